"""One child process within limits: its own session, a bounded time and output, nothing of it left behind.

It is no sandbox: the child has the rights of the user who runs it. What is promised is that a tool ends in time, floods
nothing, keeps no descriptor of ours, and that it ends with the harness: a small watcher beside it ends its process
group should the harness itself be killed, so that a tool run again after a crash does not run beside its first run.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from agentmem.errors import ToolFailed, shown
from agentmem.harness.toolset import LOOK_SECONDS

__all__ = ["Ended", "Limits", "run"]

_GRACE_SECONDS: Final = 2.0  # between SIGTERM and SIGKILL
_REAP_SECONDS: Final = 10.0  # for the kernel to end what got SIGKILL
_READ_BYTES: Final = 65_536
_DISCARD_BYTES: Final = 256 * 1024 * 1024  # read beyond the limit so that a talkative child still ends by itself
_DRAIN_READS: Final = 64
_ROUNDS: Final = 20

# The limits are set by a shell that then becomes the program: setting them between fork and exec can deadlock where
# there are threads. The script is fixed; the program and its arguments are arguments of it.
_LAUNCH: Final = """\
ulimit -c 0 || exit 126
[ -z "$1" ] || ulimit -v "$1" || exit 126
[ -z "$2" ] || ulimit -t "$2" || exit 126
[ -z "$3" ] || ulimit -f "$3" || exit 126
shift 3
exec "$@"
"""
_WATCH: Final = 'read -r _; kill -s KILL -- "-$1"'
_SHELL: Final = "/bin/sh"


@frozen
class Limits:
    """What a child may use. None leaves a limit as it is in this process.

    Attributes:
        seconds: Time.
        output_bytes: Of its standard output that are kept, from the beginning.
        error_bytes: Of its standard error that are kept, from the end.
        memory_bytes: Address space of each process.
        cpu_seconds: Processor time of each process.
        file_bytes: Size of each file it writes.
    """

    seconds: float
    output_bytes: int
    error_bytes: int
    memory_bytes: int | None = None
    cpu_seconds: int | None = None
    file_bytes: int | None = None


@frozen
class Ended:
    """How a child ended.

    Attributes:
        code: Its exit code, or the negative number of the signal that ended it.
        stopped: Why it was ended, as the end of a sentence; empty if it ended by itself.
        out: The beginning of its output, and how many bytes there were.
        err: The end of its standard error, and how many bytes there were.
    """

    code: int
    stopped: str
    out: bytes
    out_bytes: int
    err: bytes
    err_bytes: int


class _Kept:
    """What is kept of a stream: its first bytes, or its last ones."""

    def __init__(self, most: int, *, last: bool = False) -> None:
        self._most = most
        self._last = last
        self.data = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._last:
            self.data += data
            del self.data[: max(0, len(self.data) - self._most)]
        else:
            self.data += data[: self._most - len(self.data)]


def run(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    limits: Limits,
    cancelled: threading.Event,
    stdin: bytes | None = None,
    pass_fds: Sequence[int] = (),
    mark: str | None = None,
) -> Ended:
    """Run a program to its end, or to the end of its limits.

    Args:
        argv: The program, as an absolute path, and its arguments.
        cwd: The directory it runs in.
        env: Its whole environment.
        limits: What it may use.
        cancelled: Ends it when set.
        stdin: What it can read; None is an empty input.
        pass_fds: Descriptors that it inherits.
        mark: An entry of `env`, `NAME=value`, that no other process has: by it are found, on Linux, descendants that left
            the process group.

    Raises:
        ToolFailed: It could not be started.
    """
    try:
        with selectors.DefaultSelector() as selector:
            followed = _Followed(_started(argv, cwd, env, limits, stdin is not None, pass_fds), limits, mark, selector)
            try:
                with _watched(followed.child.pid):
                    return followed.to_the_end(stdin or b"", cancelled)
            finally:
                followed.close()
    except OSError as error:  # no descriptor or process is left to be had
        raise ToolFailed(f"{shown(argv[0])} could not be run", why=error.strerror or str(error)) from None


def _started(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], limits: Limits, fed: bool, pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    launch = [_SHELL, "-c", _LAUNCH, "sh", *_limited(limits), *argv]
    try:
        return subprocess.Popen(  # noqa: S603  # the program is the tool's author's; what a model gives is an argument
            launch,
            bufsize=0,
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ToolFailed(f"{shown(argv[0])} could not be started", why=said) from None


def _limited(limits: Limits) -> list[str]:
    """The limits in the units of `ulimit`, none above what this process itself may have."""
    import resource

    asked = (
        (resource.RLIMIT_AS, limits.memory_bytes, 1024),
        (resource.RLIMIT_CPU, limits.cpu_seconds, 1),
        (resource.RLIMIT_FSIZE, limits.file_bytes, 512),
    )
    found = []
    for kind, wanted, unit in asked:
        hard = resource.getrlimit(kind)[1]
        most = wanted if wanted is None or hard == resource.RLIM_INFINITY else min(wanted, hard)
        found.append("" if most is None else str(max(1, most // unit)))
    return found


@contextlib.contextmanager
def _watched(group: int) -> Iterator[None]:
    """Have a process group end with this process, however it ends: a watcher reads a pipe that only we hold open."""
    reader, writer = os.pipe()
    try:
        watcher = subprocess.Popen(  # noqa: S603  # a fixed script and a number
            [_SHELL, "-c", _WATCH, "sh", str(group)],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)
    try:
        yield
    finally:
        watcher.kill()  # before the pipe closes: its group may be another's by then
        watcher.wait()
        os.close(writer)


class _Followed:
    """A running child with what it said so far."""

    def __init__(
        self, child: subprocess.Popen[bytes], limits: Limits, mark: str | None, selector: selectors.BaseSelector
    ) -> None:
        self.child = child
        self._limits = limits
        self._mark = mark
        self._selector = selector
        self._input = memoryview(b"")
        self._out = _Kept(limits.output_bytes)
        self._err = _Kept(limits.error_bytes, last=True)
        self._reaped = False
        self._pidfd = _pidfd(child.pid)

    def _begin(self, stdin: bytes) -> None:
        if self._pidfd is not None:
            self._selector.register(self._pidfd, selectors.EVENT_READ)
        for pipe, kept in ((self.child.stdout, self._out), (self.child.stderr, self._err)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, kept)
        if self.child.stdin is not None:
            self._input = memoryview(stdin)
            os.set_blocking(self.child.stdin.fileno(), False)
            self._selector.register(self.child.stdin, selectors.EVENT_WRITE)

    def to_the_end(self, stdin: bytes, cancelled: threading.Event) -> Ended:
        """Feed and read it until it ends, or has to."""
        self._begin(stdin)
        deadline = time.monotonic() + self._limits.seconds
        stopped = ""
        while not self._exited() and not stopped:
            self._step(deadline)
            if cancelled.is_set():
                stopped = "the call was interrupted, or its time was over"
            elif time.monotonic() >= deadline:
                stopped = f"its time limit of {self._limits.seconds:g} s was over"
            elif self._out.total + self._err.total > self._limits.output_bytes + _DISCARD_BYTES:
                stopped = f"it wrote more than {self._limits.output_bytes + _DISCARD_BYTES} bytes"
        if stopped:
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_SECONDS
            while not self._exited() and time.monotonic() < deadline:
                self._step(deadline)
        self._finish(forced=bool(stopped))
        code = self.child.returncode
        return Ended(code, stopped, bytes(self._out.data), self._out.total, bytes(self._err.data), self._err.total)

    def _step(self, deadline: float) -> None:
        """Wait a moment for something to read or to write, and do it."""
        wait = max(0.0, min(LOOK_SECONDS, deadline - time.monotonic()))
        for key, _ in self._selector.select(wait):
            if key.fileobj is self.child.stdin:
                self._feed()
            elif key.data is not None:
                self._read(key)

    def _read(self, key: selectors.SelectorKey) -> bool:
        """Read once; False where there is nothing now."""
        try:
            data = os.read(key.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            key.data.add(data)
        else:
            self._selector.unregister(key.fileobj)
        return bool(data)

    def _feed(self) -> None:
        pipe = self.child.stdin
        assert pipe is not None
        try:
            self._input = self._input[os.write(pipe.fileno(), self._input[:_READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more, which is its own affair
            self._input = self._input[:0]
        if not self._input:
            self._selector.unregister(pipe)
            pipe.close()

    def _exited(self) -> bool:
        """Whether the child ended. It is not reaped yet: until then no other process group can have its number."""
        if not hasattr(os, "waitid"):
            return self.child.poll() is not None
        try:
            return os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, number)

    def _finish(self, *, forced: bool) -> None:
        """End what is left of the group, read what is in the pipes, reap."""
        if self._reaped:
            return
        self._reaped = True
        self._signal(signal.SIGKILL)
        open_still = self._drained()
        if self._mark is not None and (forced or open_still):
            _end_escaped(self._mark.encode())
            self._drained()
        try:
            self.child.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ToolFailed(
                "A command did not end although it was killed",
                why="The kernel holds it, perhaps on a device or a share",
            ) from None

    def _drained(self) -> bool:
        """Read what was written before the end; whether somebody still holds one of the pipes."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                for _ in range(_DRAIN_READS):
                    if not self._read(key):
                        break
        return any(key.data is not None for key in self._selector.get_map().values())

    def close(self) -> None:
        """End it if it has not ended, and let go of every descriptor."""
        try:
            self._finish(forced=True)
        finally:
            if self._pidfd is not None:
                os.close(self._pidfd)
            for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
                if pipe is not None:
                    pipe.close()


def _pidfd(pid: int) -> int | None:
    """A descriptor that says at once when a process ends, where the system has them."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _end_escaped(mark: bytes) -> None:
    """Kill the processes that carry a mark in their environment: those that left the group with a session of their own."""
    if sys.platform != "linux":
        return
    for _ in range(_ROUNDS):
        found = [int(name) for name in os.listdir("/proc") if name.isdigit() and _marked(int(name), mark)]
        for pid in found:
            descriptor = _pidfd(pid)
            if descriptor is not None:
                try:
                    if _marked(pid, mark):  # still: the number may have been given anew
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                except OSError:
                    pass
                finally:
                    os.close(descriptor)
        if not found:
            return


def _marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
