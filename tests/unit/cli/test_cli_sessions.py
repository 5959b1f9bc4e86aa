"""Conversations on the command line: what a person who approves and reads sees."""

from __future__ import annotations

from typing import Any


def test_nothing_that_waits_is_said_with_the_project(cli: Any) -> None:
    """Whoever looks into the wrong project reads which one it was."""
    done = cli.run("approvals")
    assert done.stdout == ""
    assert "nothing waits in project acme" in done.stderr
    assert cli.run("approvals", "--quiet").stderr == ""


def test_a_long_event_is_cut_where_it_stands_among_others(cli: Any) -> None:
    """`session show` says how to read the rest; `session read` gives it."""
    session = cli.out("session", "start", "--title", "Long")
    event = cli.out("session", "append", session, "user.message", "word " * 2000)
    shown = cli.out("session", "show", session)
    assert len(shown) < 3000
    assert f"10000 characters: agentmem session read {session} {event}" in shown
    assert len(cli.out("session", "read", session, event)) > 9000
