"""Processes that end, fork or fail in the middle of a wake: what stays in the file can be taken up, nothing runs twice."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from agentmem import Store
from agentmem.harness import Harness, Reply, ToolCall, tool
from agentmem.harness.toolset import Call
from agentmem.store.sessions import Session

KEY = bytes(range(32))
BEGIN = """
import os, sys, threading
from agentmem import Store
from agentmem.harness import Harness, Reply, ToolCall, tool
from agentmem.harness.toolset import Call

store = Store.open(sys.argv[1], project="exits", key=bytes(range(32)), durability="normal")
session = store.sessions.get(int(sys.argv[2]))

def done(what):
    with open(sys.argv[3], "a") as file:
        file.write(what + chr(10))

def model(request):
    last = request.window.events[-1]
    return Reply.of("", ToolCall("act")) if last.type == "user.message" else "end"

"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "exits.db"


def begun(path: Path) -> int:
    with Store.open(path, project="exits", key=KEY) as store:
        session = store.sessions.start()
        session.append("user.message", "go")
        return session.id


def driven(path: Path, session: int, code: str) -> subprocess.CompletedProcess[str]:
    """A process that runs this, to its end."""
    command = [
        sys.executable,
        "-c",
        BEGIN + textwrap.dedent(code),
        str(path),
        str(session),
        str(path.with_suffix(".done")),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def taken_up(path: Path, session: int) -> tuple[list[str], str]:
    """The results once another process has run the session to its end, and the last word."""

    @tool
    def act(asked: Call) -> str:
        """Do it."""
        with path.with_suffix(".done").open("a") as file:
            file.write("again\n")
        return "acted"

    def model(request: object) -> Reply:
        last = request.window.events[-1]  # type: ignore[attr-defined]
        return Reply.of("", ToolCall("act")) if last.type == "user.message" else Reply.of("end")

    later = 3600 * 1_000_000  # the lease of the other has lapsed
    with Store.open(path, project="exits", key=KEY, clock=lambda: time.time_ns() // 1000 + later) as store:
        found: Session = store.sessions.get(session)
        if store.sessions.ready():
            Harness(store, model, [act]).work()
        assert store.sessions.ready() == ()
        assert found.holder() is None
        assert store.verify(replay=True)
        results = found.events(types=("agent.tool_result",), limit=100)
        return [event.text for event in results], found.events(types=("agent.message",), newest_first=True, limit=1)[
            0
        ].text


def lines(path: Path) -> list[str]:
    done = path.with_suffix(".done")
    return done.read_text().splitlines() if done.exists() else []


def test_a_tool_that_ends_the_process(path: Path) -> None:
    """At once, past everything: the call was begun and is reported, not repeated."""
    session = begun(path)
    ended = driven(path, session, """
        @tool
        def act() -> str:
            "End it."
            done("once")
            os._exit(7)

        Harness(store, model, [act]).wake(session)
    """)  # fmt: skip
    assert ended.returncode == 7, ended.stderr
    results, last = taken_up(path, session)
    assert "unknown" in results[0]
    assert last == "end"
    assert lines(path) == ["once"]


@pytest.mark.parametrize("how", ["return", "sys.exit"])
def test_a_process_that_exits_while_a_tool_runs(path: Path, how: str) -> None:
    """Its end waits for no tool, and says nothing on the way."""
    session = begun(path)
    ended = driven(path, session, f"""
        running = threading.Event()

        @tool(seconds=600)
        def act() -> str:
            "Take for ever."
            done("once")
            running.set()
            threading.Event().wait()

        threading.Thread(target=Harness(store, model, [act]).wake, args=(session,), daemon=True).start()
        assert running.wait(30)
        if {how!r} == "sys.exit":
            sys.exit(0)
    """)  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    results, last = taken_up(path, session)
    assert "unknown" in results[0]
    assert lines(path) == ["once"]
    assert last == "end"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tool_that_forks(path: Path) -> None:
    """The child writes nothing of the call, whether it returns, raises, or wakes the session itself."""
    session = begun(path)
    ended = driven(path, session, """
        import warnings
        warnings.simplefilter("ignore")

        @tool
        def act() -> str:
            "Fork three times."
            for way in range(3):
                child = os.fork()
                if child == 0:
                    if way == 0:
                        return "of the child"
                    if way == 1:
                        raise ValueError("of the child")
                    try:
                        Harness(store, model, [act]).wake(session)
                        done("woke in the child")
                    finally:
                        os._exit(0)
                os.waitpid(child, 0)
            done("once")
            return "of the parent"

        print(Harness(store, model, [act]).wake(session).text)
    """)  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "end\n"), ended.stderr
    results, last = taken_up(path, session)
    assert (results, last) == (["of the parent"], "end")
    assert lines(path) == ["once"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_model_that_forks(path: Path) -> None:
    """The child, in which the wake would go on, is refused and writes nothing."""
    session = begun(path)
    ended = driven(path, session, """
        import warnings
        warnings.simplefilter("ignore")
        parent = os.getpid()

        @tool
        def act() -> str:
            "Do it."
            done("once")
            return "acted"

        def forking(request):
            child = os.fork()
            if child:
                os.waitpid(child, 0)
            return model(request)

        try:
            print(Harness(store, forking, [act]).wake(session).text, flush=True)
        except BaseException as error:
            done(type(error).__name__) if os.getpid() == parent else None
        if os.getpid() != parent:
            os._exit(0)
    """)  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "end\n"), ended.stderr
    results, last = taken_up(path, session)
    assert (results, last) == (["acted"], "end")
    assert lines(path) == ["once"]


def test_two_processes_that_work_on_the_same_sessions(path: Path) -> None:
    """Each call runs once, whoever runs it; both come to an end."""
    with Store.open(path, project="exits", key=KEY) as store:
        sessions = [store.sessions.start() for _ in range(12)]
        for session in sessions:
            session.append("user.message", "go")
    code = BEGIN + textwrap.dedent("""
        @tool
        def act(asked: Call) -> str:
            "Do it."
            done(f"act {asked.session}")
            return "acted"

        harness = Harness(store, model, [act])
        while store.sessions.ready():
            harness.work()
    """)
    command = [sys.executable, "-c", code, str(path), str(sessions[0].id), str(path.with_suffix(".done"))]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for worker in workers:
        _, told = worker.communicate(timeout=120)
        assert worker.returncode == 0, told
    assert sorted(lines(path)) == sorted(f"act {session.id}" for session in sessions)
    with Store.open(path, project="exits", key=KEY) as store:
        assert all(info.stop_reason == {"type": "end_turn"} for info in store.sessions.list(limit=100))
        assert store.verify(replay=True)


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir() or sys.platform != "linux", reason="limits of files as Linux has them"
)
def test_a_disk_that_is_full_while_a_session_runs(path: Path) -> None:
    """A typed error; with space again the session goes on, and what had begun is reported."""
    session = begun(path)
    ended = driven(path, session, """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        @tool
        def act() -> str:
            "Have no space left."
            done("once")
            size = os.stat(sys.argv[1] + "-wal").st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1, resource.RLIM_INFINITY))
            return "x" * 1_000_000

        try:
            Harness(store, model, [act]).wake(session)
        except OSError as error:
            print(type(error).__name__, flush=True)
        os._exit(0)
    """)  # fmt: skip
    assert ended.stdout.strip() in ("DiskFull", "IoFailed"), (ended.stdout, ended.stderr)
    results, last = taken_up(path, session)
    assert "unknown" in results[0]
    assert last == "end"
    assert lines(path) == ["once"]
