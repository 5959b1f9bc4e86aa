"""Who calls: the view of the store in which a call acts, and the claims of servers that have ended.

Several agents may share one connection. `by` tells them apart: it is a label, not a right. Claims are held by the
process, so that whoever shares the connection may go on with them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from agentmem import limits
from agentmem.errors import AgentMemError, NotFound
from agentmem.records import validate
from agentmem.store import Store

__all__ = ["Callers", "hold", "server_run", "take_back"]

_CALLERS: Final = 1000  # remembered, the latest
_SERVER: Final = re.compile(r"server-([0-9a-f]{8})-([0-9]+)-([0-9]+)(?:/.*)?", re.ASCII)


class Callers:
    """The callers of one store by name, each with the task that it resumed last.

    Attributes:
        task: The task of the server itself, None where it is there for the project.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.task = store.actor.task
        self._tasks: dict[str | None, int] = {}
        self._lock = threading.Lock()
        self._token = store.claim_token()

    def view(self, by: str | None) -> Store:
        """The store in the name of a caller, at work on what it resumed last."""
        own = self._store.actor
        found = self._store
        if by is not None:
            validate.label(by, "by")
            run = by if own.run is None else f"{own.run}/{by}"
            found = found.acting(author=by, run=run[: limits.LABEL_CHARS])
            found.adopt_claims(self._token)
        with self._lock:
            task = self._tasks.get(by)
        if task is None:
            return found
        try:
            return found.acting(task=task)
        except NotFound:  # purged since
            self.left(by)
            return found

    def took(self, by: str | None, task: int) -> None:
        """A caller came back to a task."""
        with self._lock:
            self._tasks.pop(by, None)
            self._tasks[by] = task
            if len(self._tasks) > _CALLERS:
                del self._tasks[next(iter(self._tasks))]

    def left(self, by: str | None) -> None:
        """A caller is at work on the project again."""
        with self._lock:
            self._tasks.pop(by, None)


def server_run() -> str:
    """A label for the run of this server process, by which others know later whether it still lives."""
    return f"server-{_boot()}-{os.getpid()}-{_started(os.getpid()) or 0}"


def take_back(store: Store) -> int:
    """Give back the claims of server processes of this machine that ended without doing so. Returns how many.

    The secret of a server's claims follows from its run and the identity of the store, so that a later process can act
    for one that was killed. A live one is left alone, and so is one of another machine, or of before a restart of it:
    its claims lapse.
    """
    returned = 0
    for run in sorted({claim.run for claim in store.claims() if claim.run is not None and not claim.mine}):
        found = _SERVER.fullmatch(run)
        if found is None or found[1] != _boot() or _started(int(found[2])) in (0, int(found[3])):
            continue  # of others, or alive; also one that can't be looked at
        dead = store.acting(run=run)
        dead.adopt_claims(_secret(store, run.split("/")[0]))
        with suppress(AgentMemError):  # somebody else was quicker
            returned += dead.release().changed
    return returned


def hold(store: Store) -> None:
    """Have the claims of this server's run held by the secret that `take_back` knows."""
    run = store.actor.run
    if run is not None and _SERVER.fullmatch(run):
        store.adopt_claims(_secret(store, run))


def _secret(store: Store, run: str) -> str:
    identity = store.log.head().store.encode()
    return hmac.new(identity, b"claims of " + run.encode(), hashlib.sha256).digest()[:16].hex()


def _boot() -> str:
    """This start of this machine, 8 hex digits; of the machine alone where the system does not tell."""
    try:
        known = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        # A container has process ids of its own.
        known += os.readlink("/proc/self/ns/pid").encode()
    except OSError:
        import platform

        known = platform.node().encode()
    return hashlib.sha256(known).hexdigest()[:8]


def _started(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; 0 where it can't be told. None where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return None if fields[0] in ("Z", "X") else int(fields[19])  # one that only waits to be reaped is dead
    except (OSError, ValueError, IndexError):
        pass
    if os.name == "nt":  # where signal 0 is no question
        return 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0
