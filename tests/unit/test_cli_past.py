"""The command line for the past of records, their end, and the upkeep of the file."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agentmem import Store
from agentmem.adapters.cli import progress
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.output import Output
from agentmem.adapters.cli.root import agentmem

KEY = bytes(range(32))
HEX = KEY.hex()


class Cli:
    """The command line over one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment: dict[str, str | None] = {
            "AGENTMEM_KEY": f"hex:{HEX}", "AGENTMEM_PROJECT": "acme", "AGENTMEM_DB": str(path),
        }  # fmt: skip

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None, **environment: str | None) -> Result:
        runner = CliRunner(env={**self.environment, **environment})
        result = runner.invoke(agentmem, arguments, input=stdin)
        assert result.exit_code == code, (result.output, result.exception)
        assert HEX not in result.output
        return result

    def out(self, *arguments: str, stdin: str | None = None) -> str:
        return self.run(*arguments, stdin=stdin).stdout.rstrip("\n")

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def error(self, *arguments: str, code: int) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stderr.splitlines()[-1])["error"]

    def head(self) -> str:
        return self.out("log", "--head")

    def store(self, **options: Any) -> Store:
        return Store.open(self.path, key=KEY, project="acme", create=False, **options)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path / "work.db")
    made.run("init")
    return made


@pytest.fixture
def goal(cli: Cli) -> str:
    return cli.out("add", "goal", "Check example.com", "--run", "r7", "--author", "ada")


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
    (("left",), "Later"),
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
    assert past.stdout == answered.replace("", "")
    assert f"as of event {then}, " in past.stderr


def test_a_time_is_a_moment_too(cli: Cli, goal: str) -> None:
    """--at takes a date or a time, UTC where it does not say, and digits are always an event."""
    assert cli.run("list", "--at", "2001-01-01").stdout == ""
    shown = cli.json("get", goal)["created_at_iso"]
    assert cli.json("get", goal, "--at", shown)["id"] == int(goal)
    assert cli.json("get", goal, "--at", shown.removesuffix("Z"))["id"] == int(goal)
    assert "The log ends at event 2" in cli.error("list", "--at", "20010101", code=Exit.NOT_FOUND)["why"]


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
    assert shown.stdout.startswith("would be purged: 2 note\n  2 note Check example.com\n  3 note One\n")
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
    assert lines["erased"] == f"1 events: {made}"
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
    made = cli.out("add", "fact", "\u202eold \x1b[31mred", "--origin", "web")
    shown = cli.run("forget", made, "--dry-run").stdout
    assert not set(shown) & {"\x1b", "\u202e"}
    assert "«web: " in shown


def test_a_purge_that_waits_for_a_reader_says_so(cli: Cli, goal: str) -> None:
    """While somebody reads the receipt says pending and does not call the write-ahead log clean."""
    with cli.store() as reader, reader.database.read(long=True) as connection:
        connection.execute("SELECT count(*) FROM event").fetchall()
        done = cli.run("forget", goal, "--yes").stdout
    assert "pending: free pages and write-ahead log" in done
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
    assert cli.json("projects", "delete", "acme", "--yes")["types"]["project"] == 1
    assert cli.out("projects") == ""


def test_sizes_are_shown_by_kind_and_table(cli: Cli, goal: str) -> None:
    """`stats` has the sizes of the file; --log those of events, --tables those of tables."""
    found = cli.json("stats", "--log", "--tables")
    assert found["events"] == 2
    assert {one["kind"] for one in found["log"]} == {"project.created", "note.added"}
    assert "event" in {one["name"] for one in found["tables"]}
    shown = cli.out("stats", "--log", "--tables")
    assert "note.added" in shown
    assert "search_content" in shown
    assert cli.json("projects", "stats", "--log")["bytes"] > 0
    assert "note.added" in cli.out("projects", "stats", "--log")


def test_a_review_proposes(cli: Cli, goal: str) -> None:
    """`review` names what is worth a look and changes nothing."""
    cli.run("add", "question", "Who runs it?")
    head = cli.head()
    assert "Who runs it?" in cli.out("review", "--older-than", "0")
    assert [one["name"] for one in cli.json("review", "--older-than", "0", "--section", "questions")["parts"]] == [
        "questions"
    ]
    assert cli.head() == head


# Copies


def test_a_backup_is_restored(cli: Cli, goal: str, tmp_path: Path) -> None:
    """The copy opens with the key of the store; restored it goes on with the same ids, and its head verifies."""
    made = cli.run("backup", "copy.db")
    assert made.stdout == f"{tmp_path / 'copy.db'}\n"
    head = cli.json("backup", "second.db")["head"]
    cli.run("restore", "copy.db", "restored.db")
    noted = f"{head['store']}:{head['seq']}:{head['chain']}"
    assert noted in made.stderr
    assert cli.out("verify", "--db", "restored.db", "--head", noted).startswith("sound")
    assert cli.json("get", goal, "--db", "restored.db")["title"] == "Check example.com"


def test_nothing_is_overwritten(cli: Cli, goal: str, tmp_path: Path) -> None:
    """A target that exists is refused and keeps its bytes; what was refused leaves no key file either."""
    cli.run("backup", "copy.db")
    (tmp_path / "there").write_text("mine", "utf-8")
    before = sorted(tmp_path.iterdir())
    for arguments in (
        ("backup", "there", "--new-key-file", "fresh.key"), ("restore", "copy.db", "there"), ("restore", "copy.db"),
        ("restore", "copy.db", "there", "--new-key-file", "fresh.key"), ("export", "there"),
        ("salvage", "copy.db", "there"), ("salvage", "copy.db", "new.db", "--remainder", "there"),
        ("salvage", "copy.db", "there", "--new-key-file", "fresh.key"),
    ):  # fmt: skip
        assert cli.error(*arguments, code=Exit.CONFLICT)["code"] == "store_exists"
    assert (tmp_path / "there").read_text("utf-8") == "mine"
    assert sorted(tmp_path.iterdir()) == before


def test_a_copy_can_have_a_key_of_its_own(cli: Cli, goal: str, tmp_path: Path) -> None:
    """--new-key-file makes a key where there is none, private, says where, and takes one that is there."""
    made = cli.run("backup", "copy.db", "--new-key-file", "copy.key")
    assert f"its key is in {tmp_path / 'copy.key'}" in made.stderr
    key = (tmp_path / "copy.key").read_text("utf-8").strip()
    assert key not in made.output
    if os.name == "posix":
        assert (tmp_path / "copy.key").stat().st_mode & 0o777 == 0o600
    cli.run("left", "--db", "copy.db", code=Exit.WRONG_KEY)
    cli.run("left", "--db", "copy.db", "--key-file", "copy.key")
    cli.run("restore", "copy.db", "restored.db", "--key-file", "copy.key", "--new-key-file", "copy.key")
    assert (tmp_path / "copy.key").read_text("utf-8").strip() == key
    assert cli.json("backup", "third.db", "--new-key-file", "copy.key")["key_same"] is False
    cli.run("backup", "fourth.db", "--new-key-file", "no/such/place.key", code=Exit.NOT_FOUND)


def test_a_store_is_restored_to_its_own_place(cli: Cli, goal: str, tmp_path: Path) -> None:
    """Without TARGET the new file is that of --db; its directory is not invented."""
    cli.run("backup", "copy.db")
    cli.run("restore", "copy.db", "--db", str(tmp_path / "new.db"))
    assert (tmp_path / "new.db").exists()
    cli.run("restore", "copy.db", "--db", str(tmp_path / "none" / "new.db"), code=Exit.STORE_MISSING)


def test_a_log_is_exported_and_becomes_the_same_store(cli: Cli, goal: str) -> None:
    """The export of all has every project; imported into a new store its head is the same."""
    cli.run("add", "goal", "Elsewhere", "--project", "other")
    assert "all projects" in cli.run("export", "all.jsonl").stderr
    cli.run("import", "all.jsonl", "--db", "new.db")
    assert cli.out("log", "--head", "--db", "new.db") == cli.head()
    cli.run("import", "all.jsonl", "--db", "new.db")
    assert cli.out("log", "--head", "--db", "new.db") == cli.head()
    cli.run("import", "all.jsonl", code=0)  # its own log, which is all there
    cli.run("add", "goal", "x", "--db", "own.db")
    assert cli.error("import", "all.jsonl", "--db", "own.db", code=Exit.CONFLICT)["code"] == "conflict"


def test_a_project_leaves_only_when_it_is_named(cli: Cli, goal: str) -> None:
    """--project on the command line exports that project; AGENTMEM_PROJECT does not narrow an export."""
    cli.run("add", "goal", "Elsewhere", "--project", "other")
    assert cli.json("export", "one.jsonl")["what"] == "log"
    assert (cli.json("export", "two.jsonl", "--project", "other"))["records"] == 1
    assert cli.json("--project", "other", "export", "three.jsonl")["what"] == "copy"
    assert "Check example.com" not in Path("two.jsonl").read_text("utf-8")


def test_a_part_is_copied_into_another_project(cli: Cli, goal: str) -> None:
    """`export --under` and `import` make a copy with new ids; collisions are refused unless something else is said."""
    cli.run("put", "host", "web-1")
    step = cli.out("add", "step", "One", "--parent", goal, "--about", "host:web-1")
    assert cli.json("export", "part.jsonl", "--under", step)["records"] == 2
    copied = cli.json("import", "part.jsonl", "--project", "second")
    assert copied["created"] == {"entity": 1, "note": 1}
    assert copied["roots"][0] != int(step)
    cli.run("put", "host", "web-1", "--project", "third", "--db", "new.db")
    cli.run("import", "part.jsonl", "--project", "third", "--db", "new.db", code=Exit.CONFLICT)
    done = cli.json("import", "part.jsonl", "--project", "third", "--db", "new.db", "--collisions", "merge")
    assert [one["key"] for one in done["collisions"]] == ["web-1"]
    cli.run("undo", "--of-request", done["request"], "--project", "third", "--db", "new.db")
    assert cli.run("list", "--project", "third", "--db", "new.db").stdout == ""


# Keys


def test_a_new_key_is_found_by_itself(cli: Cli, goal: str) -> None:
    """`rekey` puts a key where it is looked for, says where, and that AGENTMEM_KEY no longer opens the store."""
    cli.run("backup", "before.db")
    done = cli.run("rekey")
    kind, _, place = done.stdout.strip().partition(" ")
    assert (kind, Path(place).is_file()) == ("store_file", True)
    assert "AGENTMEM_KEY is set" in done.stderr
    assert Path(place).read_text("utf-8").strip() not in done.output
    cli.run("left", code=Exit.WRONG_KEY)
    cli.run("left", "--db", "before.db")
    cli.environment["AGENTMEM_KEY"] = None
    assert cli.json("get", goal)["id"] == int(goal)
    assert cli.out("key", "where") == f"store_file {place}"


def test_a_new_key_goes_into_the_file_that_is_named(cli: Cli, goal: str, tmp_path: Path) -> None:
    """--new-key-file makes the file or takes the key that is in it; a second time nothing changes."""
    assert cli.out("rekey", "--new-key-file", "new.key") == f"key_file {tmp_path / 'new.key'}"
    again = cli.run("rekey", "--new-key-file", "new.key", "--key-file", "new.key")
    assert "nothing was changed" in again.stderr
    (tmp_path / "words.key").write_text("correct horse battery\n", "utf-8")
    (tmp_path / "words.key").chmod(0o600)
    done = json.loads(cli.run("rekey", "--new-key-file", "words.key", "--key-file", "new.key", "--json").stdout)
    assert (done["changed"], done["problems"]) == (True, [])
    cli.run("left", "--key-file", "words.key")
    cli.run("left", "--key-file", "new.key", code=Exit.WRONG_KEY)


# Damage


def damage(path: Path, *, keep: float = 1.0) -> None:
    """Overwrite the last page, and cut the file to a part of its pages."""
    data = bytearray(path.read_bytes())
    data[-2000] ^= 0xFF
    path.write_bytes(data[: int(len(data) * keep) // 4096 * 4096])


def test_the_doctor_says_whether_all_is_well(cli: Cli, goal: str) -> None:
    """A sound store ends with 0 and no finding."""
    assert cli.out("doctor").startswith("Nothing is wrong.")
    found = cli.json("doctor", "--repair")
    assert (found["sound"], found["safe"], found["findings"], found["repaired"]) == (True, True, [], [])
    assert cli.run("doctor", "-q").output == "sound\n"


def test_the_doctor_works_where_nothing_opens(cli: Cli, goal: str, tmp_path: Path) -> None:
    """A missing file, a wrong key, another program's file: code 10, what it is, what to do; no byte is changed."""
    (tmp_path / "other.db").write_bytes(b"something else entirely" * 500)
    before = {each: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    for arguments, finding in ((("--db", "none.db"), "no_file"), (("--db", "other.db"), "wrong_key")):
        found = cli.json("doctor", *arguments, code=Exit.DAMAGED)
        assert [one["code"] for one in found["findings"]] == [finding]
    wrong = cli.run("doctor", code=Exit.DAMAGED, AGENTMEM_KEY=f"hex:{'11' * 32}")
    assert "[wrong_key]" in wrong.stdout
    assert {each: each.read_bytes() for each in before} == before


def test_damage_is_told_and_mended(cli: Cli, goal: str) -> None:
    """What is derived is made anew with --repair; the log is what it was."""
    head = cli.head()
    with cli.store() as store, store.database.write() as connection:
        connection.execute("UPDATE note SET title = 'forged'")
    found = cli.run("doctor", code=Exit.DAMAGED).stdout
    assert "[replay_differs]" in found
    assert cli.out("doctor", "--repair").startswith("repaired: ")
    assert cli.json("get", goal)["title"] == "Check example.com"
    assert cli.head() == head


def test_a_damaged_store_is_salvaged(cli: Cli, goal: str, tmp_path: Path) -> None:
    """What can be read becomes a new store that is sound; if events are lost the code is 10 and it says from where."""
    whole = cli.run("salvage", "work.db", "whole.db")
    assert whole.stdout.splitlines()[0] == str(tmp_path / "whole.db")
    for number in range(40):
        cli.run("add", "fact", f"Fact {number}", "--body", "word " * 300)
    damage(cli.path, keep=0.6)
    done = cli.json("salvage", "work.db", "rest.db", "--remainder", "later.jsonl", code=Exit.DAMAGED)
    assert 0 < done["events"] < done["first_lost"] + 1
    assert (tmp_path / "later.jsonl").exists()
    assert cli.out("verify", "--db", "rest.db", "--replay").startswith("sound")
    shown = cli.run("salvage", "work.db", "again.db", code=Exit.DAMAGED).stdout
    assert f"lost: from event {done['first_lost']} on" in shown


# What is shown meanwhile


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A terminal as stderr, where no work is too short to be shown."""
    shown = Screen()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "_SHOWN_AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    yield shown


def test_progress_is_shown_at_a_terminal_alone(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long work has a bar on stderr if that is a terminal; --quiet and a file get none."""
    for out, stream, seen in (
        (Output(), screen, True), (Output(quiet=True), Screen(), False), (Output(), io.StringIO(), False),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.Progress(out, "exporting") as step:
            step(1, 3)
            step(3, 3)
        assert ("exporting" in stream.getvalue()) is seen


def test_what_cannot_say_how_far_it_is_shows_that_it_goes_on(screen: Screen) -> None:
    """The line is there while the work lasts, and what fails takes it away again."""
    with pytest.raises(KeyboardInterrupt), progress.working(Output(), "copying"):
        while "copying" not in screen.getvalue():  # a thread writes it
            pass
        raise KeyboardInterrupt
    assert screen.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in screen.getvalue()  # the cursor is back
