"""`agentmem hook EVENT`: what a host runs at moments of its own. It never breaks the host.

Whatever happens, the exit code is 0 and stdout holds one whole answer or nothing; why there is none stands on stderr. It
opens the store itself, loads no model, and ends by itself when its time is up. Nothing here needs the packages of the
command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from agentmem.adapters.hooks.hosts import HOSTS, HookEvent, HostHook, Shape

__all__ = ["leave", "main"]

_OPTIONS: Final = ("db", "project", "key-file", "author", "run", "task", "budget", "within", "host")
# Milliseconds from the start of the process. A command waits for pre-tool; an agent that wakes without its memory because
# the machine was busy is worse off than one that wakes a second later.
_WITHIN: Final = {HookEvent.PRE_TOOL: 150}
_WITHIN_OTHERS: Final = 2000
_WITHIN_MOST: Final = 60_000
_PRINTS_SECONDS: Final = 5.0  # for a host that does not read on
_STDIN_BYTES: Final = 4 * 1024 * 1024
_FIRST: Final = time.monotonic()
_answering: Final = threading.Lock()  # held from the moment that an answer is there: it is then printed whole


class _Usage(ValueError):
    """The command line of the hook is wrong."""


def main(arguments: Sequence[str]) -> int:
    """Run one hook. The code is always 0: a host takes others for a verdict."""
    try:
        _run(arguments)
    except KeyboardInterrupt:
        _complain("interrupted")
    except Exception as error:  # noqa: BLE001  # whatever it is, it is not for the host to stumble over
        known = isinstance(error, _Usage) or hasattr(error, "what")
        _complain(f"{error}" if known else f"{type(error).__name__}: {error}")
    return 0


def leave() -> NoReturn:
    """End the process here, with what it said and the code 0: nothing is left to tidy that a kill would not leave as well."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
    os._exit(0)


def _run(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        _complain(
            f"agentmem hook EVENT [--OPTION VALUE …]: EVENT is {', '.join(HookEvent)}; options are {', '.join(_OPTIONS)}"
        )
        return
    if arguments[0] not in tuple(HookEvent):
        raise _Usage(f"there is no event {arguments[0]!r}; there are {', '.join(HookEvent)}")
    event = HookEvent(arguments[0])
    options = _options(arguments[1:])
    within = min(max(int(options.get("within", _WITHIN.get(event, _WITHIN_OTHERS))), 1), _WITHIN_MOST)
    timer = threading.Timer(max(within / 1000 - _since_start(), 0.001), _time_is_up)
    timer.daemon = True
    timer.start()
    try:
        said = _said()
        hook = _hook(event, options.get("host"), said)
        from agentmem.adapters.hooks.work import work

        text = work(event, options, said, seconds=within / 1000)
        _answering.acquire()
        timer.cancel()
        _answer(hook, text)
    finally:
        timer.cancel()


def _options(arguments: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    waiting = list(arguments)
    while waiting:
        name, sign, value = waiting.pop(0).partition("=")
        if not name.startswith("--") or name[2:] not in _OPTIONS:
            raise _Usage(f"there is no option {name!r}; there are {', '.join(_OPTIONS)}")
        if not sign:
            if not waiting:
                raise _Usage(f"{name} needs a value")
            value = waiting.pop(0)
        found[name[2:]] = value
    return found


def _said() -> Mapping[str, Any]:
    """What the host says on stdin; nothing where it says nothing, or nothing that can be read."""
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    found = sys.stdin.buffer.read(_STDIN_BYTES)
    while sys.stdin.buffer.read(1 << 20):  # so that a host that writes more does not stumble over a closed pipe
        found = b""
    try:
        said = json.loads(found.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _hook(event: HookEvent, host: str | None, said: Mapping[str, Any]) -> HostHook:
    """How the host takes an answer: the one that is named, or the first that has an event of this name."""
    if host is not None:
        found = HOSTS.get(host)
        if found is None:
            raise _Usage(f"there is no host {host!r}; there are {', '.join(HOSTS)}")
        return found.get(event, HostHook(event, Shape.SILENT))
    name = said.get("hook_event_name") or said.get("hookEventName")
    for hooks in HOSTS.values():
        if event in hooks and hooks[event].name == name:
            return hooks[event]
    return HOSTS["plain"][event]


def _answer(hook: HostHook, text: str) -> None:
    """Print it, in one write, as the host takes it."""
    match hook.shape:
        case Shape.TEXT:
            whole = f"{text}\n" if text else ""
        case Shape.SPECIFIC:
            specific = {"hookEventName": hook.name, "additionalContext": text}
            whole = json.dumps({"hookSpecificOutput": specific}) if text else ""
        case Shape.CONTEXT:
            whole = json.dumps({"additional_context": text}) if text else ""
        case Shape.MESSAGE:
            whole = json.dumps({"systemMessage": text}) if text else ""
        case Shape.EMPTY:
            whole = "{}"
        case Shape.SILENT:
            whole = ""
    if whole and sys.stdout is not None:
        last = threading.Timer(_PRINTS_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()
        os.set_blocking(sys.stdout.fileno(), True)
        rest = memoryview(whole.encode())
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]
        last.cancel()


def _since_start() -> float:
    """Seconds since this process was started: as the system has it, else since this module was read."""
    try:
        ticks = int(Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19])
        up = float(Path("/proc/uptime").read_text("ascii").split()[0])
        return max(up - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, ValueError, IndexError):
        return time.monotonic() - _FIRST


def _time_is_up() -> None:
    """End here and now, unless the answer is being printed. A write that has begun is committed whole, or not at all."""
    if _answering.acquire(blocking=False):
        os._exit(0)


def _complain(why: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"agentmem hook: {' '.join(why.split())}\n")
            sys.stderr.flush()
