"""What holds a session while it is run: the lease is renewed, and an interrupt is noticed."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from agentmem.errors import Busy, Conflict
from agentmem.harness import settling
from agentmem.records import session_leases
from agentmem.store.inside import binding_of
from agentmem.store.sessions import Session

_LOOK_SECONDS: Final = 0.1


class Keeper:
    """Holds a session from `with` to its end.

    Attributes:
        interrupted: Set once a `user.interrupt` is in the log that is later than `since`, and when the session was lost.
        lost: The error by which the session could not be held any longer; None while it is.
        since: The event that settled the session last; interrupts up to it are of former turns.
    """

    def __init__(self, session: Session, seconds: int, stop: threading.Event | None = None) -> None:
        self.interrupted = threading.Event()
        self.lost: Exception | None = None
        self.since = 0
        self._session, self._seconds, self._stop = session, seconds, stop
        self._apart: list[threading.Event] = []
        self._looked = 0
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="agentmem-session", daemon=True)

    def __enter__(self) -> Keeper:
        self._session.hold(seconds=self._seconds)
        try:
            self._thread.start()
        except BaseException:  # the machine has no thread left
            self._session.give_back()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:  # what still runs is told to stop
            self.interrupt()
        self._over.set()
        self._thread.join()
        if self.lost is not None or os.getpid() != self._process:  # a child gives nothing back that its parent holds
            return
        try:
            self._session.give_back()
        except Exception:
            if error is None:  # else that one says why
                raise

    def check(self) -> None:
        """Refuse to go on when the session was lost, and in a child of the process that holds it.

        Raises:
            Conflict: It is held no longer, or by the parent. What else ended the holding is raised as it is.
        """
        if self.lost is not None:
            raise self.lost
        if os.getpid() != self._process:
            raise Conflict("The process was forked while it ran a session", why="The parent goes on with it")

    def apart(self) -> threading.Event:
        """An event of its own for one call, set when the session is interrupted; setting it interrupts nothing else."""
        one = threading.Event()
        with self._lock:
            self._apart.append(one)
            if self.interrupted.is_set():
                one.set()
        return one

    def interrupt(self) -> None:
        """Have the wake end as soon as it can."""
        with self._lock:
            self.interrupted.set()
            for one in self._apart:
                one.set()

    def look(self) -> None:
        """Notice an interrupt that is in the log by now."""
        session = self._session
        with self._lock:
            with binding_of(session).reading() as view:
                asked = settling.asked(view, session.id)
            if asked > self._looked:
                self._looked = asked
                if session.events(after=self.since, types=("user.interrupt",), limit=1):
                    self.interrupt()

    def go_on(self, since: int) -> None:
        """Begin another turn: the interrupts up to an event are settled."""
        with self._lock:
            self.since, self._looked = since, 0
            self.interrupted.clear()
            self._apart = []

    def _keep(self) -> None:
        try:
            self._kept()
        except Exception as error:  # noqa: BLE001  # raised by the run as soon as it looks
            # Whoever writes learns it too: each write checks the lease in its own transaction.
            self.lost = error
            self.interrupt()

    def _kept(self) -> None:
        database = binding_of(self._session).ledger.database
        version: int | None = None
        renewed = time.monotonic()
        while not self._over.wait(_LOOK_SECONDS):
            if self._stop is not None and self._stop.is_set():
                self.interrupt()
            now = time.monotonic()
            try:
                if now - renewed > self._seconds / 3:
                    self._renew()
                    renewed = now
                current = database.data_version()
                if current != version:
                    version = current
                    self.look()
            except Busy:  # the lease holds for a while yet
                if time.monotonic() - renewed > self._seconds:
                    raise

    def _renew(self) -> None:
        session = self._session
        if session_leases.hold(binding_of(session), session.id, self._seconds).created:
            # Another may have run it in between. What this run knows of it is old.
            session.give_back()
            raise Conflict(
                f"Session #{session.id} is no longer held by this run",
                why="Its lease lapsed",
                next="Wake the session again",
            )
