"""Commands that misbehave: none hangs the harness, outlives its call, floods it or sees what is not its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Child

from agentmem.errors import ToolFailed
from agentmem.harness.commands import command
from agentmem.harness.toolset import Call, Tool

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="commands are tools on POSIX systems"),
    pytest.mark.timeout(120),
]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PATIENT = 60.0  # far more than any of these needs: what ends in time ends long before
SHORT = 0.5


def python(script: str, **options: Any) -> Tool:
    return command("cmd", [sys.executable, "-c", script], description="Runs", **options)


def shell(script: str, **options: Any) -> Tool:
    return command("cmd", ["sh", "-c", script], description="Runs", **options)


def called(tool: Tool, *, cancelled: threading.Event | None = None, credential: Any = None, **input: Any) -> str:
    call = Call(
        tool.name, tool.validated(input), 1, 2, "k",
        seconds=tool.seconds, cancelled=cancelled or threading.Event(), credential=credential,
    )  # fmt: skip
    begun = time.monotonic()
    text = tool.run(call)
    assert time.monotonic() - begun < PATIENT
    return text


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that another process brings about."""
    deadline = time.monotonic() + PATIENT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the directories of the calls are."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest, temporary: Path) -> Iterator[None]:
    """No test leaves a descriptor, a thread, a child of this process or a directory."""
    before, threads = descriptors(), set(threading.enumerate())
    yield
    assert descriptors() == before
    assert set(threading.enumerate()) <= threads
    if "without_descriptors" not in request.node.name:
        assert list(temporary.iterdir()) == []
    with contextlib.suppress(ChildProcessError):
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)


def test_a_program_that_ignores_sigterm_is_killed() -> None:
    """And its output until then is the result."""
    script = (
        "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begun', flush=True); time.sleep(999)"
    )
    said = called(python(script, seconds=SHORT))
    assert said == "stopped: its time limit of 0.5 s was over\nstandard output:\nbegun\n"


def test_a_program_may_end_by_itself_when_it_is_told_to() -> None:
    """SIGTERM comes first; what it says then is kept."""
    said = called(shell("trap 'echo saved; exit 0' TERM; echo begun; while :; do sleep 0.05; done", seconds=SHORT))
    assert said.endswith("begun\nsaved\n")


@LINUX
def test_a_call_that_is_cancelled_ends_its_whole_group() -> None:
    """Children of the program too."""
    cancelled = threading.Event()
    tool = shell("sleep 999 & echo $!; echo $$; echo done > made; sleep 999", seconds=PATIENT)
    threading.Timer(0.3, cancelled.set).start()
    said = called(tool, cancelled=cancelled)
    assert said.startswith("stopped: the call was interrupted")
    pids = [int(line) for line in said.splitlines() if line.isdigit()]
    assert len(pids) == 2
    until(lambda: not any(alive(each) for each in pids))


@LINUX
def test_what_a_program_leaves_in_the_background_ends_with_it() -> None:
    """Although it holds the output open."""
    said = called(shell("sleep 999 & echo $!", seconds=PATIENT))
    until(lambda: not alive(int(said)))


@LINUX
def test_what_left_the_group_and_holds_the_output_is_found() -> None:
    """A process with a session of its own."""
    script = "import os,time; p = os.fork()\nif p == 0:\n os.setsid(); time.sleep(999)\nprint(p)"
    said = called(python(script, seconds=PATIENT))
    until(lambda: not alive(int(said)))


@LINUX
def test_what_left_the_group_is_found_when_the_time_is_over() -> None:
    """Although it let go of the output."""
    script = (
        "import os,time\nr, w = os.pipe()\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
        "  os.write(w, str(os.getpid()).encode())\n  os.closerange(0, 99); time.sleep(999)\n os._exit(0)\n"
        "print(os.read(r, 99).decode(), flush=True); time.sleep(999)"
    )
    said = called(python(script, seconds=1.0))
    until(lambda: not alive(int(said.splitlines()[-1])))


def test_a_program_that_closes_its_output_and_sleeps_ends_in_time() -> None:
    """The end of its output is not taken for its own."""
    assert called(shell("exec >&- 2>&-; sleep 999", seconds=SHORT)).startswith("stopped: its time limit")


def test_a_daemon_does_not_hang_the_call() -> None:
    """One that lets go of everything outlives the call, which is said in the docs: a command is in no sandbox."""
    script = "import os,sys\nif os.fork() == 0:\n os.setsid(); os.closerange(0, 99); os._exit(0)\nprint('ok')"
    assert called(python(script, seconds=PATIENT)) == "ok\n"


def test_output_without_end_is_cut_and_ends_the_program() -> None:
    """The memory of the harness stays small, and the result says how much there was."""
    said = called(command("cmd", ["cat", "/dev/zero"], description="", seconds=PATIENT))
    assert said.startswith("stopped: it wrote more than 268635456 bytes\nstandard output, first 200000 of 26")
    said = called(shell("yes line; :", seconds=PATIENT, output_bytes=100))
    assert "standard output, first 100 of " in said
    assert said.endswith("line\n" * 20)


def test_long_output_that_ends_is_read_to_its_end() -> None:
    """So that the program's own end is known."""
    said = called(shell("head -c 20000000 /dev/zero | tr '\\0' x; exit 4", seconds=PATIENT, output_bytes=10))
    assert said == "exit code 4\nstandard output, first 10 of 20000000 bytes:\nxxxxxxxxxx"


def test_many_processes_are_ended_at_once() -> None:
    """A program that forks and forks, each ignoring SIGTERM."""
    script = (
        "import os,signal,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nfor _ in range(100):\n"
        " if os.fork() == 0:\n  while True: time.sleep(9)\nprint('forked', flush=True)\nwhile True:\n"
        " if os.fork() == 0: os._exit(0)\n os.wait()"
    )
    assert "forked" in called(python(script, seconds=2.0))


def test_memory_is_limited() -> None:
    """What wants more fails as it does."""
    said = called(python("b = bytearray(10**9)", memory_bytes=300_000_000, seconds=PATIENT))
    assert said.startswith("exit code 1\n")
    assert "MemoryError" in said


def test_processor_time_is_limited() -> None:
    """Beside the time on the clock."""
    said = called(python("while True: pass", cpu_seconds=1, seconds=PATIENT))
    assert said.startswith("ended by signal")


def test_files_are_limited_and_no_core_is_written() -> None:
    """A file that grows too large fails; a crash leaves no image of its memory."""
    said = called(python("open('f', 'wb').write(b'x' * 10**6)", file_bytes=10_000, seconds=PATIENT))
    assert said.startswith(("exit code", "ended by signal"))
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
    assert called(python(script)) == "(0, 0)\n"


@LINUX
def test_no_descriptor_of_ours_is_inherited(tmp_path: Path) -> None:
    """Not even one that is marked inheritable: files and sockets of this process are not the program's."""
    script = (
        "import os,json\nfound = []\nfor name in os.listdir('/proc/self/fd'):\n"
        " try: found.append(os.readlink('/proc/self/fd/' + name))\n except OSError: pass\nprint(json.dumps(found))"
    )
    with open(tmp_path / "ours", "w") as ours:
        os.set_inheritable(ours.fileno(), True)
        found = json.loads(called(python(script)))
    assert not any("ours" in each for each in found)
    assert len([each for each in found if not each.startswith("/proc")]) <= 3
    said = called(shell('for n in 3 4 5 6 7 8 9; do eval "echo x >&$n" 2>/dev/null && echo wrote $n; done; :'))
    assert said == ""


def test_it_has_no_terminal_and_a_session_of_its_own() -> None:
    """It can't ask whoever sits there."""
    script = "import os; print(os.getsid(0) == os.getpid())\ntry: open('/dev/tty')\nexcept OSError: print('none')"
    assert called(python(script)) == "True\nnone\n"


@LINUX
def test_a_command_ends_with_the_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill the harness: the program does not go on beside a second run of its call."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = """
import sys, threading, os, time
from agentmem.harness.commands import command
from agentmem.harness.toolset import Call
tool = command("cmd", ["sh", "-c", "echo [$$] > pid; sleep 999"], description="", cwd=sys.argv[1])
threading.Thread(target=tool.run, args=(Call("cmd", {}, 1, 2, "k"),), daemon=True).start()
path = os.path.join(sys.argv[1], "pid")
while not (os.path.exists(path) and open(path).read().endswith("]\\n")):
    time.sleep(0.005)
print(open(path).read(), flush=True)
sys.stdin.readline()
"""
    child = Child(script, tmp_path)
    (pid,) = child.said()
    assert alive(pid)
    child.process.send_signal(signal.SIGKILL)
    child.process.communicate()
    until(lambda: not alive(pid))


def test_many_at_once_do_not_mix() -> None:
    """Each gets its own output, whatever the others do."""
    tool = command("cmd", ["sh", "-c", 'sleep 0.05; printf "%s" "$1"; exit 0', "sh", "{a}"], description="")
    found: dict[str, str] = {}
    threads = [
        threading.Thread(target=lambda at=str(at): found.__setitem__(at, called(tool, a=at))) for at in range(16)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {str(at): str(at) for at in range(16)}


def test_a_harness_without_descriptors_gets_a_typed_failure() -> None:
    """And nothing leaks of what was begun."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tool = shell("echo x")
    called(tool)  # what is imported when first needed is
    failed: list[Exception] = []
    for most in range(4, 40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        try:
            called(tool)
        except (ToolFailed, OSError) as error:
            failed.append(error)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {type(error) for error in failed} <= {ToolFailed, OSError}
    assert any(type(error) is ToolFailed for error in failed)
    assert called(tool) == "x\n"
