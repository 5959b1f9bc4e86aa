"""The command line for the past of records and their end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Cli

from agentmem.adapters.cli.exits import Exit

# What happened


def test_history_tells_who_changed_what(cli: Cli, goal: str) -> None:
    """Each event is a line that begins with its number, with what was before and after."""
    cli.run("update", goal, "--status", "active", "--run", "r8")
    lines = cli.out("history", goal).splitlines()
    assert lines[1].startswith(f"{goal} ")
    assert "status open → active" in lines[2]
    assert "(r8)" in lines[2]
    assert [one["kind"] for one in cli.json("history", goal)["changes"]] == ["note.added", "note.changed"]


def test_history_goes_on_where_it_stopped(cli: Cli, goal: str) -> None:
    """A page names the option that continues it, in either direction."""
    cli.run("add", "step", "a", "b", "c", "--parent", goal)
    first = cli.run("history", "--limit", "2")
    cursor = first.stderr.split("more: --after ")[1].strip()
    assert [one["seq"] for one in cli.json("history", "--after", cursor)["changes"]] == [3, 4, 5]
    newest = cli.run("history", "--newest-first", "--limit", "2")
    cursor = newest.stderr.split("more: --before ")[1].strip()
    assert [one["seq"] for one in cli.json("history", "--newest-first", "--before", cursor)["changes"]] == [3, 2, 1]


def test_who_acts_is_no_filter(cli: Cli, goal: str) -> None:
    """--of-run and --of-author choose what was written; AGENTMEM_RUN and --run only say who asks."""
    cli.run("add", "fact", "Another", "--run", "r8")
    assert [one["record"] for one in cli.json("history", "--of-run", "r8")["changes"]] == [3]
    assert [one["record"] for one in cli.json("history", "--of-author", "ada")["changes"]] == [1, int(goal)]
    assert len(json.loads(cli.run("history", "--json", AGENTMEM_RUN="r8").stdout)["changes"]) == 3


def test_revisions_and_their_difference(cli: Cli, goal: str) -> None:
    """`revisions` lists the changes of a record, `revision` shows one state of it, `diff` compares two."""
    cli.run("update", goal, "--title", "Check example.org", "--tag", "p1")
    cli.run("update", goal, "--status", "done")
    seqs = [one["seq"] for one in cli.json("revisions", goal)["changes"]]
    assert seqs == [4, 3, 2]
    assert cli.json("revision", goal, "2")["title"] == "Check example.com"
    assert "title: Check example.com" in cli.out("revision", goal, "2")
    fields = {one["name"]: one["after"] for one in cli.json("diff", goal, "--from", "2", "--to", "3")["fields"]}
    assert fields == {"title": "Check example.org", "tags": ["p1"]}
    assert "status open → done" in cli.out("diff", goal, "--from", "3")


READINGS = (
    (("resume",), "Later"),
    (("left",), "closed with 2 unticked"),
    (("list",), "Later"),
    (("tree", "2"), "Later"),
    (("get", "2"), "later body"),
    (("checkpoints",), "Later"),
    (("summary", "read", "2"), "Later"),
    (("query", "host"), "Later"),
    (("groups", "host", "status"), "Later"),
    (("children", "host:web-1"), "Later"),
    (("marks", "host:web-1"), "later"),
    (("links", "2"), "supports"),
    (("checklist", "show", "2"), "Later"),
    (("review", "--older-than", "0"), "Later"),
    (("history",), "Later"),
)


@pytest.mark.parametrize(("arguments", "later"), READINGS, ids=[" ".join(words) for words, _ in READINGS])
def test_reading_as_it_was(cli: Cli, goal: str, arguments: tuple[str, ...], later: str) -> None:
    """With --at a command answers as it would have then, and says of when that is."""
    cli.run("put", "host", "web-1")
    cli.run("checklist", "add", goal, "First")
    then = cli.json("log", "--newest-first", "-n", "1")["seq"]
    answered = cli.run(*arguments).stdout
    cli.run("add", "step", "Later", "--parent", goal)
    cli.run("update", goal, "--body", "later body")
    cli.run("checkpoint", "Later")
    cli.run("summary", "write", goal, "--result", "Later")
    cli.run("put", "host", "Later", "--status", "Later", "--parent", "host:web-1")
    cli.run("mark", "host", "web-1", "-c", "later=pass")
    cli.run("link", cli.out("add", "fact", "Later"), "supports", goal)
    cli.run("checklist", "add", goal, "Later")
    assert later in cli.run(*arguments).stdout
    past = cli.run(*arguments, "--at", str(then))
    assert past.stdout == answered
    assert f"as of event {then}, " in past.stderr


def test_a_time_is_a_moment_too(cli: Cli, goal: str) -> None:
    """--at takes a date or a time, UTC where it does not say, and digits are always an event."""
    assert cli.run("list", "--at", "2001-01-01").stdout == ""
    shown = cli.json("get", goal)["created_at_iso"]
    assert cli.json("get", goal, "--at", shown)["id"] == int(goal)
    assert cli.json("get", goal, "--at", shown.removesuffix("Z"))["id"] == int(goal)
    assert "The log ends at event 2" in cli.error("list", "--at", "20010101", code=Exit.NOT_FOUND)["why"]


def test_a_search_of_the_past_is_refused_by_name(cli: Cli) -> None:
    """`find --at` says that a past has no search, and what takes --at instead."""
    assert "A past has no search" in cli.error("find", "x", "--at", "1", code=Exit.USAGE)["what"]


def test_the_past_is_exported(cli: Cli, goal: str) -> None:
    """`export --at` writes the log up to that event and no more."""
    cli.run("add", "fact", "Later")
    cli.run("export", "then.jsonl", "--at", goal)
    assert "Later" not in Path("then.jsonl").read_text("utf-8")
    assert "Check example.com" in Path("then.jsonl").read_text("utf-8")


def test_the_past_is_not_written(cli: Cli, goal: str) -> None:
    """Only commands that read take --at."""
    for arguments in (("update", goal, "--status", "done"), ("find", "x"), ("forget", goal), ("undo", "2")):
        assert "--at" in cli.run(*arguments, "--at", "2", code=Exit.USAGE).stderr


# Taking back


def test_an_event_is_taken_back(cli: Cli, goal: str) -> None:
    """`undo` names the event that took another back, and is itself undone."""
    cli.run("update", goal, "--status", "active")
    assert cli.out("undo", "3") == "3 taken back by 4"
    assert cli.json("get", goal)["status"] == "open"
    assert cli.json("undo", "4")["undone"] == [4]
    assert cli.json("get", goal)["status"] == "active"


def test_what_stands_on_an_event_bars_its_undo(cli: Cli, goal: str) -> None:
    """The error names the events to undo first, also for programs, and nothing is written."""
    cli.run("add", "step", "One", "--parent", goal)
    head = cli.head()
    error = cli.error("undo", goal, code=Exit.CONFLICT)
    assert (error["code"], error["events"]) == ("undo_blocked", [3])
    assert cli.head() == head
    assert [one.split()[0] for one in cli.out("undo", goal, "3").splitlines()] == ["3", "2"]


def test_a_run_is_taken_back_as_a_whole(cli: Cli, goal: str) -> None:
    """--of-run takes all of a run back, --of-request all of a request; a dry run only says so."""
    cli.run("add", "step", "One", "--parent", goal, "--run", "r8")
    cli.run("add", "step", "Two", "Three", "--parent", goal, "--request-id", "q1")
    head = cli.head()
    assert cli.out("undo", "--of-run", "r8", "--dry-run") == "3 would be taken back"
    assert cli.head() == head
    cli.run("undo", "--of-run", "r8")
    assert cli.json("undo", "--of-request", "q1")["undone"] == [5, 4]
    assert cli.json("list")["id"] == int(goal)
    again = cli.run("undo", "--of-run", "r8")
    assert "nothing to take back" in again.stderr
    assert again.stdout == ""


# Ending for good


def test_nothing_is_purged_without_yes(cli: Cli, goal: str) -> None:
    """Where nobody can be asked `forget` shows what would go, says that it did nothing, and ends with 2."""
    cli.run("add", "step", "One", "--parent", goal)
    head = cli.head()
    shown = cli.run("forget", goal, code=Exit.USAGE)
    assert shown.stdout.startswith("would be purged: 2 notes\n  2 note Check example.com\n  3 note One\n")
    assert "nothing was purged" in shown.stderr
    assert cli.run("forget", goal, "--dry-run").stdout == shown.stdout
    planned = json.loads(cli.run("forget", goal, "--json", code=Exit.USAGE).stdout)
    assert (planned["dry_run"], planned["ids"], planned["events"]) == (True, [2, 3], [2, 3])
    assert cli.head() == head


def test_a_receipt_tells_all_but_the_text(cli: Cli, goal: str) -> None:
    """It has what went, what was cleaned, what a purge cannot reach, where the text still is, and the head."""
    made = cli.out("add", "fact", "The password is hunter2")
    other = cli.out("add", "fact", "Somebody said: The password is hunter2")
    cli.run("link", goal, "uses", made)
    done = cli.run("forget", made, "--yes")
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["purged"] == f"1 note: {made}"
    assert lines["erased"] == f"1 event: {made}"
    assert lines["changed, since they point at it"] == goal
    assert lines["the same text stands also in"] == other
    assert "write-ahead log" in lines["cleaned"]
    assert "backups" in lines["survives"]
    assert lines["head"] == cli.head()
    assert "hunter2" not in done.output
    assert cli.run("get", made, code=Exit.NOT_FOUND).stdout == ""
    found = cli.json("forget", other, "--yes")
    assert (found["ids"], len(found["digests"]), found["wal_pending"]) == ([int(other)], 1, False)


def test_quiet_leaves_the_ids(cli: Cli, goal: str) -> None:
    """With --quiet a receipt is the ids of what went, one a line."""
    cli.run("checklist", "add", goal, "One")
    assert cli.run("forget", goal, "--yes", "-q").output == "2\n3\n"


def test_the_environment_purges_no_project(cli: Cli, goal: str) -> None:
    """Neither AGENTMEM_PROJECT nor --project says what to purge: a project is named as such."""
    other = cli.out("add", "goal", "Elsewhere", "--project", "other")
    cli.run("forget", "--yes", "--project", "other", code=Exit.USAGE)
    cli.run("forget", "-", "--yes", stdin="\n", code=Exit.USAGE)
    assert cli.json("get", other)["title"] == "Elsewhere"
    done = cli.json("forget", "--whole-project", "other", "--yes")
    assert done["types"] == {"note": 1, "project": 1}
    assert cli.json("get", goal)["title"] == "Check example.com"


def test_entities_are_purged_by_what_they_are(cli: Cli) -> None:
    """--type with --where and --param chooses entities; references are taken from stdin too."""
    cli.run("put", "host", "web-1", "web-2", "--attr", "env=test")
    cli.run("put", "host", "web-3", "--attr", "env=live")
    chosen = ("forget", "--type", "host", "--where", "attrs.env = :env", "--param", "env=test")
    assert "entity host:web-2" in cli.run(*chosen, "--dry-run").stdout
    assert cli.json(*chosen, "--yes")["types"] == {"entity": 2}
    cli.run("forget", "-", "--yes", stdin="host:web-3\n")
    assert cli.out("query", "host") == ""
    assert "nothing to purge" in cli.run(*chosen, "--yes").stderr


def test_a_plan_moves_no_cursor(cli: Cli) -> None:
    """Titles in a plan are made harmless, and those from elsewhere are quoted."""
    made = cli.out("checkpoint", "\u202eold \x1b[31mred\nmore", "--origin", "web")
    shown = cli.run("forget", made, "--dry-run").stdout
    assert not set(shown) & {"\x1b", "\u202e"}
    assert "«web: " in shown


def test_a_purge_that_waits_for_a_reader_says_so(cli: Cli, goal: str) -> None:
    """While somebody reads the receipt says pending and does not call the write-ahead log clean."""
    with cli.store() as reader, reader.database.read(long=True) as connection:
        connection.execute("SELECT count(*) FROM event").fetchall()
        done = cli.run("forget", goal, "--yes").stdout
    assert "pending: free pages and write-ahead log" in done
    assert "not cleaned yet (somebody is reading, or there is no room): a later write does it" in done
    cleaned = next(line for line in done.splitlines() if line.startswith("cleaned: "))
    assert "write-ahead log" not in cleaned
    cli.run("add", "fact", "Next")
    assert cli.json("stats")["purge_pending"] is False


def test_a_repeated_purge_purges_nothing_again(cli: Cli, goal: str) -> None:
    """The same --request-id gives the same receipt; without it a second purge finds nothing."""
    cli.run("forget", goal, "--yes", "--request-id", "q1")
    again = cli.run("forget", goal, "--yes", "--request-id", "q1")
    assert "repeated: nothing was purged again" in again.stderr
    cli.run("forget", goal, "--yes", code=Exit.NOT_FOUND)


def test_earlier_texts_are_redacted(cli: Cli, goal: str) -> None:
    """`redact` keeps what a record says now; what it said before is gone from its history. The same rule asks for --yes."""
    cli.run("update", goal, "--body", "the key is s3cret")
    cli.run("update", goal, "--body", "the key is in the vault")
    plan = cli.run("redact", goal, code=Exit.USAGE)
    assert "would be redacted: 1 note: 2" in plan.stdout
    assert "s3cret" not in plan.output
    assert "s3cret" in cli.out("history", goal)
    assert cli.out("redact", goal, "--yes").startswith("redacted: 1 note: 2\nerased: 3 events: 2, 3, 4\n")
    assert "s3cret" not in cli.out("history", goal)
    assert cli.json("get", goal)["body"] == "the key is in the vault"


def test_one_attribute_is_redacted(cli: Cli) -> None:
    """--attr and --check take what an entity has of that name, now too."""
    cli.run("put", "host", "web-1", "--attr", "token=s3cret", "--attr", "os=bsd")
    cli.run("mark", "host", "web-1", "-c", "tls=fail", "--value", "tls=1.0")
    cli.run("redact", "host:web-1", "--attr", "token", "--yes")
    cli.run("redact", "host:web-1", "--check", "tls", "--yes")
    assert cli.json("get", "host:web-1")["attrs"] == {"os": "bsd"}
    mark = cli.json("marks", "host:web-1")
    assert (mark["result"], mark["value"]) == ("fail", None)


# Projects


def test_projects_are_merged_and_deleted(cli: Cli, goal: str) -> None:
    """`projects merge` moves all in, names collisions, and keeps ids; `projects delete` purges one, with --yes."""
    cli.run("put", "host", "web-1")
    cli.run("put", "host", "web-1", "--project", "old", "--attr", "os=bsd")
    moved = cli.out("add", "fact", "Of old", "--project", "old")
    assert "host:web-1" in cli.error("projects", "merge", "old", code=Exit.CONFLICT)["what"]
    shown = cli.out("projects", "merge", "old", "--collisions", "merge")
    assert "host:web-1 was in both" in shown
    assert cli.json("get", moved)["project"] == cli.json("get", goal)["project"]
    assert cli.json("get", "host:web-1")["attrs"] == {"os": "bsd"}
    assert cli.json("projects", "stats", "acme")["notes"] == {"goal": 1, "fact": 1}
    cli.run("projects", "delete", "acme", code=Exit.USAGE)
    assert cli.json("projects", "delete", "acme", "--yes")["types"]["note"] == 2
    assert cli.out("projects") == ""


def test_a_review_proposes(cli: Cli, goal: str) -> None:
    """`review` names what is worth a look and changes nothing."""
    cli.run("add", "question", "Who runs it?")
    head = cli.head()
    assert "Who runs it?" in cli.out("review", "--older-than", "0")
    assert [one["name"] for one in cli.json("review", "--older-than", "0", "--section", "questions")["parts"]] == [
        "questions"
    ]
    assert cli.head() == head


def test_one_is_one(cli: Cli, goal: str) -> None:
    """Counts of one thing are in the singular, of the record and its events in a receipt too."""
    fact = cli.out("add", "fact", "One")
    shown = cli.out("forget", fact, "--dry-run")
    assert shown.startswith("would be purged: 1 note\n")
    assert "erased: 1 event: " in shown
    cli.run("checklist", "add", fact, "First", "Second")
    cli.run("checklist", "remove", f"{fact}.1")
    stats = cli.json("stats")
    assert stats["records"]["item"] == stats["project"]["items"] == 1
    assert "1 item" in cli.out("stats")
    cli.run("checklist", "add", fact, "Third")
    assert "2 items" in cli.out("projects", "stats")
