"""Files of sessions that were tampered with, or made to do harm: each is noticed, or refused by a typed error."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agentmem import AgentMemError, Store
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.root import agentmem
from agentmem.log import alone
from agentmem.store.sessions import Session


@pytest.fixture
def session(store: Store) -> Session:
    """A little of everything: a long text, a purged event, letters that end lines elsewhere."""
    made = store.sessions.start(title="case", agent="support")
    made.append("user.message", "hé\u2028 there\u0085")
    call = made.append("agent.tool_use", {"name": "f", "input": {"a": 1}}).id
    made.append("agent.tool_result", {"tool_use_id": call, "content": "long text " * 600})
    made.append("x.plan", {"text": "t"}, key="k")
    store.forget(made.append("user.message", "gone").id)
    return made


def covered(data: bytes) -> list[Any]:
    """What of a file its chain is made of; hexadecimal digits are the same small and large."""
    found: list[Any] = []
    for line in data.decode().split("\n"):
        part = json.loads(line) if line else {}
        found.append(
            [part.get(name) for name in ("header", "payload", "text", "hash", "store", "session", "end", "chain")]
        )
        found[-1].append((part.get("digest") or "").lower())
    return found


def test_each_byte_of_an_audit_counts(session: Session) -> None:
    """A changed one is noticed, or changes nothing that the chain is made of."""
    data = "".join(f"{line}\n" for line in session.audit().export()).encode()
    assert alone.verify(data.decode().split("\n")).sound
    before = covered(data)
    for place in range(len(data)):
        if data[place : place + 60] == data[place + 10 : place + 70]:
            continue  # within the long text one place is like another
        for bit in (1, 32):
            changed = bytearray(data)
            changed[place] ^= bit
            try:
                proof = alone.verify(io.TextIOWrapper(io.BytesIO(bytes(changed)), encoding="utf-8"))
            except (AgentMemError, UnicodeDecodeError):
                continue
            assert not proof.sound or covered(bytes(changed)) == before, (place, bit)


def test_what_is_cut_or_moved_is_noticed(session: Session) -> None:
    """At each line: without the rest, without it, twice."""
    lines = list(session.audit().export())
    for place in range(1, len(lines)):
        for changed in (lines[:place], lines[:place] + lines[place + 1 :], [*lines[: place + 1], *lines[place:]]):
            again = changed.count(lines[place]) > 1 and "hash" in json.loads(lines[place])
            assert alone.verify(changed).sound is again


ODD: list[Any] = [
    None, True, -1, 1.5, 1e300, float("nan"), 10**30, "", "x", [], {}, [[]], {"a": {}}, "\ud800", "\0", {"type": None},
]  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_no_value_of_an_audit_breaks_its_verification(session: Session, value: Any) -> None:
    """Whatever stands at whatever place, it is found unsound, or no audit."""
    lines = [json.loads(line) for line in session.audit().export()]
    for at, line in enumerate(lines):
        for name in line:
            changed = [json.dumps(each if at != place else {**each, name: value}) for place, each in enumerate(lines)]
            try:
                proof = alone.verify(changed)
            except AgentMemError:
                continue
            assert not proof.sound or line[name] == value or (name, value) == ("version", True)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"a":' * 50_000, "9" * 5000, "\0", '{"hash": [], "text": 1}', '{"end": {}}']
)
def test_no_line_of_an_audit_breaks_its_verification(session: Session, line: str) -> None:
    """Deep, long, or nothing of the kind."""
    lines = list(session.audit().export())
    for changed in ([line, *lines], [lines[0], line, *lines[1:]]):
        try:
            proof = alone.verify(changed)
        except AgentMemError:
            continue
        assert not proof.sound


@pytest.mark.parametrize("strict", [False, True])
def test_nothing_of_a_hostile_file_is_kept(store: Store, session: Session, strict: bool) -> None:
    """Whatever stands at whatever place: all of it is read, or a typed error says why not and nothing is there."""
    lines = list(session.export(strict=strict))
    there = len(store.sessions.list(limit=1000))
    for at, line in enumerate(lines):
        for name in line:
            for value in ODD:
                changed = [each if at != place else {**each, name: value} for place, each in enumerate(lines)]
                try:
                    store.sessions.import_(changed)
                    there += 1
                except AgentMemError:
                    pass
    assert len(store.sessions.list(limit=1000)) == there
    assert store.verify(replay=True).problems == ()


RUNS = CliRunner(env={"AGENTMEM_KEY": f"hex:{bytes(range(32)).hex()}", "AGENTMEM_PROJECT": "acme", "PYTHONUTF8": "1"})


def run(path: Path, *arguments: str, stdin: str | None = None) -> Result:
    """One command; nothing but an exit is ever raised."""
    done = RUNS.invoke(agentmem, ["--db", str(path), *arguments], input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.mark.parametrize("body", ["[" * 5000, '{"a":' + "[" * 5000, "9" * 5000, '{"a": NaN}', "[1]", '"\\ud800"', "5"])
def test_a_body_that_is_none_is_a_typed_error(path: Path, body: str) -> None:
    """On the command line too: deep, endless, or of another kind."""
    number = run(path, "session", "start").stdout.strip()
    done = run(path, "session", "append", number, "x.plan", "--body", body)
    assert done.exit_code == Exit.USAGE
    assert "agentmem: " in done.stderr


def test_files_that_are_no_text_are_typed_errors(path: Path, tmp_path: Path) -> None:
    """Of an import as of a proof."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF\xc0\xff")
    for command in ("import", "verify"):
        done = run(path, "session", command, str(binary))
        assert done.exit_code == Exit.USAGE
        assert "UTF-8" in done.stderr


def test_what_goes_through_a_pipe_is_what_the_chain_is_made_of(path: Path, tmp_path: Path) -> None:
    """Letters that a terminal is not shown are in an audit, and in an import, as they are."""
    text = "a\u2028b\x85c\u202ed\x1b[31m\x7f"
    lines = json.dumps({"type": "user.message", "content": text}, ensure_ascii=False)
    number = run(path, "session", "import", "-", stdin=lines).stdout.strip()
    audit = tmp_path / "case.audit"
    audit.write_text(run(path, "session", "audit", number, "--export", "-").stdout, "utf-8")
    assert run(path, "session", "verify", str(audit)).exit_code == 0
    exported = run(path, "session", "export", number).stdout
    assert json.loads(exported.split("\n")[1])["body"]["content"][0]["text"] == text
