"""The command line for the upkeep of the file: sizes, copies, keys, damage; what is shown meanwhile."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from command_line import Cli

from agentmem.adapters.cli import progress
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.output import Output


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


def test_where_a_key_is_looked_for_is_told_though_none_opens_the_file(cli: Cli, goal: str, tmp_path: Path) -> None:
    """`key where` lists the places and what is in each, with the code of a wrong key and never as that error."""
    cli.environment["AGENTMEM_KEY"] = None
    cli.run("init", "--db", "other.db")  # makes the default key file
    cli.run("left", code=Exit.WRONG_KEY)
    done = cli.run("key", "where", code=Exit.WRONG_KEY)
    default = tmp_path / "config" / "agentmem" / "key"
    assert f"default_file {default}: a key, which does not open the file" in done.stdout
    assert "environment: AGENTMEM_KEY is not set" in done.stdout
    assert ".key: no such file" in done.stdout
    assert "--key-file" in done.stderr
    assert "[wrong_key]" not in done.output
    assert default.read_text("utf-8").strip().removeprefix("hex:") not in done.output
    found = cli.json("key", "where", code=Exit.WRONG_KEY)
    assert found["source"] is None
    assert [one["source"] for one in found["looked_in"]] == [
        "environment", "environment_file", "keyring", "store_file", "default_file",
    ]  # fmt: skip


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
        assert found["findings"][0]["code"] == finding
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
    damage(cli.path, keep=0.8)
    done = cli.json("salvage", "work.db", "rest.db", "--remainder", "later.jsonl", code=Exit.DAMAGED)
    assert 0 < done["events"] < done["first_lost"] + 1
    assert (tmp_path / "later.jsonl").exists()
    assert cli.out("verify", "--db", "rest.db", "--replay").startswith("sound")
    shown = cli.run("salvage", "work.db", "again.db", code=Exit.DAMAGED).stdout
    assert f"lost: from event {done['first_lost']} on" in shown


def test_a_lost_salt_comes_from_a_backup(cli: Cli, goal: str, tmp_path: Path) -> None:
    """--salt-from gives the first 16 bytes where those of the damaged file are gone."""
    cli.run("backup", "kept.db")
    content = (tmp_path / "kept.db").read_bytes()
    (tmp_path / "broken.db").write_bytes(bytes(16) + content[16:])
    cli.run("salvage", "broken.db", "rest.db", code=Exit.WRONG_KEY)
    cli.run("salvage", "broken.db", "rest.db", "--salt-from", "kept.db")
    assert cli.json("get", goal, "--db", "rest.db")["id"] == int(goal)


# What is shown meanwhile


class Screen(io.StringIO):
    """A stream that is a terminal, and tells when something stands on it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        done = super().write(text)
        if "ing" in text:
            self.written.set()
        return done


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No work is too short to be shown."""
    monkeypatch.setattr(progress, "_SHOWN_AFTER", 0.0)
    monkeypatch.setenv("TERM", "xterm")


def test_progress_is_shown_at_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long work has a bar on stderr if that is a terminal; --quiet and a file get none."""
    for out, stream, seen in (
        (Output(), Screen(), True), (Output(quiet=True), Screen(), False), (Output(), io.StringIO(), False),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.Progress(out, "exporting") as step:
            step(1, 3)
            step(3, 3)
        assert ("exporting" in stream.getvalue()) is seen


def test_what_cannot_say_how_far_it_is_shows_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is there while the work lasts; an interrupt takes it away again and gives the cursor back."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(KeyboardInterrupt), progress.working(Output(), "copying"):
        assert screen.written.wait(60)
        raise KeyboardInterrupt
    shown = screen.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert shown.rindex("\x1b[2K") > shown.rindex("copying")
