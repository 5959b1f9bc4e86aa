"""The command line for the past and the upkeep, as a process: what a terminal is asked, what an interrupt leaves."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentmem import Store
from agentmem.adapters.cli.exits import Exit

ROOT = Path(__file__).parents[2]
KEY = bytes(range(32))
POSIX = pytest.mark.skipif(os.name != "posix", reason="terminals and signals of POSIX")
DEADLINE = 120  # seconds, for what never comes


class Process:
    """The command line over one store, each call a process."""

    def __init__(self, directory: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "VIRTUAL_ENV") if name in os.environ}
        self.directory = directory
        self.path = directory / "work.db"
        self.environment = {
            **kept,
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(directory / "home"),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "AGENTMEM_DB": str(self.path),
            "AGENTMEM_KEY": f"hex:{KEY.hex()}",
            "AGENTMEM_PROJECT": "acme",
            "PYTHONUTF8": "1",
            "TERM": "xterm",
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "agentmem", *arguments]

    def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        ran = subprocess.run(
            self.command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, check=False,
            env=self.environment, cwd=self.directory,
        )  # fmt: skip
        assert ran.returncode == code, ran.stderr.decode()
        return ran.stdout.decode(), ran.stderr.decode()

    def store(self) -> Store:
        return Store.open(self.path, key=KEY, project="acme", create=False, durability="normal")


class Terminal:
    """A command at a terminal that is its three streams."""

    def __init__(self, cli: Process, *arguments: str) -> None:
        import pty

        self._leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            cli.command(*arguments), stdin=follower, stdout=follower, stderr=follower, env=cli.environment,
            cwd=cli.directory, start_new_session=True,
        )  # fmt: skip
        os.close(follower)
        self.shown = ""
        self._seen = 0

    def expect(self, words: str) -> None:
        """Read until these words come after those that were seen before."""
        while words not in self.shown[self._seen :]:
            assert self._more(), f"{words!r} did not come:\n{self.shown}"
        self._seen = self.shown.index(words, self._seen) + len(words)

    def type(self, line: str) -> None:
        os.write(self._leader, f"{line}\n".encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._more():
            pass
        os.close(self._leader)
        return self.process.wait(DEADLINE)

    def _more(self) -> bool:
        import select

        ready, _, _ = select.select([self._leader], [], [], DEADLINE)
        assert ready, f"nothing came any more:\n{self.shown}"
        try:
            part = os.read(self._leader, 65536)
        except OSError:  # the other end is closed
            return False
        self.shown += part.decode(errors="replace")
        return bool(part)


@pytest.fixture
def cli(tmp_path: Path) -> Process:
    made = Process(tmp_path)
    with Store.open(made.path, key=KEY, project="acme", durability="normal") as store:
        goal = store.notes.add("goal", "Check example.com")
        store.notes.add("step", "Look around", parent=goal)
    return made


# What a terminal is asked


@POSIX
def test_a_terminal_is_asked_before_a_purge(cli: Process) -> None:
    """It shows what would go; no is no, with code 1, and yes purges and shows the receipt."""
    refused = Terminal(cli, "forget", "2")
    refused.expect("would be purged: 2 note")
    refused.expect("3 note Look around")
    refused.expect("For good? [y/N]:")
    refused.type("n")
    assert refused.end() == Exit.FAILURE
    assert "nothing was purged" in refused.shown
    agreed = Terminal(cli, "forget", "2")
    agreed.expect("For good? [y/N]:")
    agreed.type("y")
    assert agreed.end() == 0
    assert "cleaned: log, tables" in agreed.shown
    cli.run("get", "2", code=Exit.NOT_FOUND)


@POSIX
def test_what_comes_up_while_it_asks_is_shown_first(cli: Process) -> None:
    """What others write beneath meanwhile is not purged along with what was agreed to: it asks again."""
    asked = Terminal(cli, "forget", "2")
    asked.expect("For good?")
    with cli.store() as store:
        store.notes.add("fact", "Just found", parent=2)
    asked.type("y")
    asked.expect("Others wrote meanwhile")
    asked.expect("4 fact Just found" if "4 fact" in asked.shown else "Just found")
    asked.expect("For good?")
    asked.type("n")
    assert asked.end() == Exit.FAILURE
    assert json.loads(cli.run("get", "4", "--json")[0])["title"] == "Just found"


@POSIX
@pytest.mark.parametrize("arguments", [("redact", "2"), ("projects", "delete", "acme")], ids=" ".join)
def test_every_purge_asks(cli: Process, arguments: tuple[str, ...]) -> None:
    """Redacting and deleting a project ask as well; --yes asks nothing, --dry-run neither."""
    cli.run("update", "2", "--body", "earlier")
    head = cli.run("log", "--head")
    asked = Terminal(cli, *arguments)
    asked.expect("For good?")
    asked.type("")
    assert asked.end() == Exit.FAILURE
    assert Terminal(cli, *arguments, "--dry-run").end() == 0
    assert cli.run("log", "--head") == head
    assert Terminal(cli, *arguments, "--yes").end() == 0
    assert cli.run("log", "--head") != head


@POSIX
def test_an_interrupt_at_the_question_purges_nothing(cli: Process) -> None:
    """Ctrl-C is no answer: code 130, and the log is as it was."""
    head = cli.run("log", "--head")
    asked = Terminal(cli, "forget", "2")
    asked.expect("For good?")
    # One that comes after the question and before its reading is noticed only with the next.
    while asked.process.poll() is None:
        asked.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            asked.process.wait(2)
    assert asked.end() == Exit.INTERRUPTED
    assert "Traceback" not in asked.shown
    assert cli.run("log", "--head") == head


@POSIX
def test_a_new_passphrase_is_typed_twice(cli: Process) -> None:
    """--ask-new-key asks twice, shows nothing of it, and the file opens with it alone; for copies too."""
    asked = Terminal(cli, "rekey", "--ask-new-key")
    for prompt in ("New passphrase:", "Repeat for confirmation:"):
        asked.expect(prompt)
        asked.type("correct horse battery")
    assert asked.end() == 0
    assert "horse" not in asked.shown
    cli.run("left", code=Exit.WRONG_KEY)
    copied = Terminal(cli, "backup", "copy.db", "--ask-key", "--ask-new-key")
    for prompt, typed in (
        ("Passphrase:", "correct horse battery"),
        ("New passphrase:", "staple"),
        ("Repeat", "staple"),
    ):
        copied.expect(prompt)
        copied.type(typed)
    assert copied.end() == 0
    key = cli.directory / "copy.key"
    key.write_text("staple\n", "utf-8")
    key.chmod(0o600)
    assert "Look around" in cli.run("left", "--db", "copy.db", "--key-file", "copy.key")[0]


def test_nobody_is_asked_where_nobody_is(cli: Process) -> None:
    """Without a terminal nothing waits for an answer: a purge is refused with code 2, a passphrase too."""
    cli.run("update", "2", "--body", "earlier")
    for arguments in (("forget", "2"), ("redact", "2"), ("projects", "delete", "acme"), ("rekey", "--ask-new-key"),
                      ("backup", "copy.db", "--ask-new-key")):  # fmt: skip
        _, err = cli.run(*arguments, code=Exit.USAGE)
        assert "Traceback" not in err
    assert not (cli.directory / "copy.db").exists()


# What an interrupt leaves


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with so much in it that what is done with all of it takes a while."""
    path = tmp_path_factory.mktemp("large") / "work.db"
    with Store.open(path, key=KEY, project="acme", durability="normal") as store:
        for batch in range(20):
            with store.transaction():
                for number in range(100):
                    store.notes.add("fact", f"Fact {batch} {number}", body=f"{batch} {number} of many words " * 150)
    return path


@pytest.fixture
def full(tmp_path: Path, large: Path) -> Process:
    """The command line over a copy of it."""
    made = Process(tmp_path)
    shutil.copy(large, made.path)
    return made


@contextmanager
def _going_on(cli: Process, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        cli.command(*arguments), env=cli.environment, cwd=cli.directory, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE)


def _until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Look until something is true or the process is over."""
    end = time.monotonic() + DEADLINE
    while not true() and process.poll() is None:
        assert time.monotonic() < end


@POSIX
@pytest.mark.parametrize(
    "arguments",
    [
        ("backup", "copy.db"),
        ("restore", "before.db", "copy.db"),
        ("salvage", "before.db", "copy.db"),
        ("export", "copy.db", "--project", "acme"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_interrupt_leaves_no_half_copy(full: Process, arguments: tuple[str, ...]) -> None:
    """Ctrl-C while a copy is made ends with 130; there is no file of that name, or it is whole; nothing is beside it."""
    if "before.db" in arguments:
        full.run("backup", "before.db")
    before = {each.name for each in full.directory.iterdir()}
    with _going_on(full, *arguments) as process:
        _until(lambda: any("copy.db" in name for name in os.listdir(full.directory)), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    assert b"Traceback" not in err
    after = {each.name for each in full.directory.iterdir() if not each.name.startswith("work.db")} - before
    assert process.returncode in (0, Exit.INTERRUPTED)
    hidden = {".copy.db.partial"} if arguments[0] == "export" else set()  # it goes on with what it has
    if "copy.db" not in after:
        assert process.returncode == Exit.INTERRUPTED
        assert after <= hidden
    else:  # it was faster
        assert after == {"copy.db"}
        if arguments[0] != "export":
            assert full.run("verify", "--db", "copy.db")[0].startswith("sound")
    assert full.run("verify")[0].startswith("sound")


@POSIX
def test_an_interrupted_rekey_leaves_a_file_that_opens(full: Process) -> None:
    """After Ctrl-C at any moment one of the two keys opens the store, and it is whole."""
    keys = full.directory / "new.key"
    with _going_on(full, "rekey", "--new-key-file", str(keys)) as process:
        _until(keys.exists, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    assert b"Traceback" not in err
    assert process.returncode in (0, Exit.INTERRUPTED), err
    found = subprocess.run(
        full.command("verify", "--key-file", str(keys)), env=full.environment, capture_output=True, check=False,
        timeout=DEADLINE,
    )  # fmt: skip
    if found.returncode == Exit.WRONG_KEY:
        assert full.run("verify")[0].startswith("sound")
    else:
        assert found.stdout.startswith(b"sound")


@POSIX
def test_an_interrupted_purge_is_all_or_nothing(full: Process) -> None:
    """After Ctrl-C a project is purged or it is not, and the next command finishes what was to be cleaned."""
    head, log = full.run("log", "--head"), full.directory / "work.db-wal"
    with _going_on(full, "projects", "delete", "acme", "--yes") as process:
        _until(lambda: log.exists() and log.stat().st_size > 0, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    assert b"Traceback" not in err
    assert process.returncode in (0, Exit.INTERRUPTED), err
    if full.run("log", "--head") == head:
        assert json.loads(full.run("stats", "--json")[0])["records"]["note"] == 2000
    else:
        assert json.loads(full.run("stats", "--json")[0])["records"]["note"] == 0
    full.run("add", "fact", "Next", "--project", "other")
    assert json.loads(full.run("stats", "--json")[0])["purge_pending"] is False
    assert full.run("verify", "--replay")[0].startswith("sound")


# What goes together


def test_a_day_with_the_store(cli: Process) -> None:
    """Back up, change the key, lose the file, restore it with the key that was kept: nothing is missing."""
    cli.run("backup", "copy.db")
    head = cli.run("log", "--head")[0].strip()
    cli.run("rekey", "--new-key-file", "new.key")
    cli.path.unlink()
    cli.run("left", code=Exit.STORE_MISSING)
    cli.run("restore", "copy.db")
    assert cli.run("verify", "--head", head)[0].startswith("sound")
    assert "Look around" in cli.run("left")[0]


def test_a_mistake_of_a_run_is_found_and_taken_back(cli: Process) -> None:
    """History says who did it, --at what was before, undo takes it back, and the answer is as it was."""
    before, _ = cli.run("left")
    seq = int(re.findall(r"^(\d+) ", cli.run("history", "--newest-first", "-n", "1")[0], re.M)[0])
    cli.run("update", "3", "--status", "dropped", "--run", "astray")
    cli.run("update", "2", "--title", "Something else", "--run", "astray")
    assert "(astray)" in cli.run("history", "--after", str(seq))[0]
    assert cli.run("left", "--at", str(seq))[0] == before
    assert len(cli.run("undo", "--of-run", "astray")[0].splitlines()) == 2
    assert cli.run("left")[0] == before
