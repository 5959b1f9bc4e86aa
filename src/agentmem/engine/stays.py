"""Which blocks are still going on, and the few places they take: true after an interrupt at any instruction.

A signal handler may raise between any two instructions, so also where `__exit__` has been called and has not run a line
yet. Nothing that a block would have to do at its end can then be relied on. What is relied on here: a `with` statement
drops what it holds when it is over, however it ended, and each single operation on a dict, list or deque is whole.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from functools import partial
from sys import modules
from threading import get_ident
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import ref

__all__ = ["Held", "Holder", "Place", "Places", "Stay", "Tip", "current_task"]

_LOOK_SECONDS: Final = 0.05  # how often a waiter looks whether who is inside is still alive


class Leaving:
    """`__exit__`, in a form that only the `with` statement holds.

    A traceback keeps alive whatever the interrupted frames had as locals, `self` of `__exit__` too, for as long as
    somebody keeps the traceback, as an interactive session does. This bound form is nobody's local: once the statement
    is over it is gone, so a weak reference to it tells whether the block goes on.
    """

    def __get__(self, block: Held | None, kind: type | None = None) -> Any:
        if block is None:
            return self  # as an ExitStack asks for it
        held = partial(block._leave)
        stay = block.stay
        if stay is None or not stay.alive():
            block.hold = ref(held)
        return held

    def __call__(self, block: Held, *how: Any) -> None:
        block._leave(*how)


class Held:
    """The base of a context manager whose end is noticed also where its `__exit__` did not run.

    Attributes:
        hold: What the `with` statement holds, weakly; None or dead where there is none, as in an ExitStack.
        stay: The present stay in the block.
    """

    __slots__ = ("__weakref__", "hold", "stay")

    def __init__(self) -> None:
        self.hold: ref[Any] | None = None
        self.stay: Stay | None = None

    @property
    def going_on(self) -> bool:
        """Whether it was entered and not left yet."""
        return self.stay is not None and self.stay.alive()

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        __exit__ = Leaving()


class Tip(Protocol):
    """What wants to know how a block ended."""

    def settle(self, *, kept: bool) -> None:
        """Be told, once or several times alike."""


class Session(Protocol):
    """What blocks share."""

    def gone(self, stay: Stay) -> None:
        """Told that a block is over without `leave`, in whatever thread dropped it."""


class Stay:
    """One block from its entry to its end.

    Attributes:
        thread: Where it was entered, by `get_ident`.
        tip: Told whether what was written in it is kept.
        savepoint: The name of its savepoint, empty for the outermost.
        released: The savepoint was released.
        undone: The savepoint was rolled back to.
    """

    __slots__ = ("_session", "_task", "_token", "began", "released", "savepoint", "thread", "tip", "undone")

    def __init__(self, block: Held, session: Session) -> None:
        """Begin it: what is entered, and what it shares."""
        self.thread = get_ident()
        self.began = 0.0
        self.tip: Tip | None = None
        self.savepoint = ""
        self.released = self.undone = False
        self._session = session
        self._task: ref[Any] | None = None
        if "asyncio" in modules and (task := current_task()) is not None:
            self._task = ref(task)
        held = None if block.hold is None else block.hold()
        self._token: ref[Any] | None = ref(block if held is None else held, self._gone)

    def _gone(self, _: object) -> None:
        self._session.gone(self)

    def alive(self) -> bool:
        """Whether the block goes on: a `with` statement holds it, or whoever entered it by hand still has it."""
        token = self._token
        return token is not None and token() is not None

    def leave(self) -> None:
        """Have it over: the last act of an end in order."""
        self._token = None

    def of_this_task(self) -> bool:
        """Whether it was entered by the asyncio task that runs now, or by none."""
        return self._task is None or self._task() is current_task()


def current_task() -> Any:
    """The asyncio task of this thread, None where there is none. Does not import asyncio."""
    asyncio = modules.get("asyncio")
    if asyncio is None:
        return None
    # Another thread may be in the middle of importing it.
    running = getattr(asyncio, "_get_running_loop", None)
    if running is None or (loop := running()) is None:
        return None
    return asyncio.current_task(loop)


class Holder(Protocol):
    """What takes a place."""

    def alive(self) -> bool:
        """Whether it is still in use."""

    def lost(self) -> None:
        """Called by any thread that finds it is not: give the place back, after whatever goes before that."""


class Place:
    """A holder that gives its place back by itself."""

    def alive(self) -> bool:
        """Always."""
        return True

    def lost(self) -> None:
        """Never."""


class Places:
    """So many places, each with its holder on record from the very instruction that takes it.

    A lock would not know who took it, if the interrupt came between the taking and the writing down.
    """

    def __init__(self, count: int) -> None:
        self._numbers = tuple(range(count))
        self._held: dict[int, Holder] = {}
        self._queue: deque[tuple[Holder, Any]] = deque()

    def take(self, holder: Holder, timeout: float) -> bool:
        """Take a place, first come first served.

        Args:
            holder: Who. It may hold one already.
            timeout: Seconds to wait.

        Returns:
            Whether it has one.
        """
        if not self._queue:
            for number in self._numbers:
                if self._held.setdefault(number, holder) is holder:
                    return True
            if self._try(holder):
                return True
        return self._wait(holder, timeout)

    def holds(self, holder: Holder) -> bool:
        """Whether it has a place."""
        return holder in self._held.values()

    def holders(self) -> list[Holder]:
        """Who has a place."""
        found = (self._held.get(number) for number in self._numbers)
        return [each for each in found if each is not None]

    def free(self, holder: Holder) -> None:
        """Give a place back, where it has one."""
        for number in self._numbers:
            if self._held.get(number) is holder:
                self._held.pop(number)
        if self._queue:
            self._ring()

    def _try(self, holder: Holder) -> bool:
        for number in self._numbers:
            if self._held.setdefault(number, holder) is holder:
                return True
        gone = [each for each in self.holders() if not each.alive()]
        for each in gone:
            each.lost()
        return bool(gone) and any(self._held.setdefault(number, holder) is holder for number in self._numbers)

    def _wait(self, holder: Holder, timeout: float) -> bool:
        bell = allocate_lock()
        bell.acquire()
        waiting = (holder, bell)
        until = monotonic() + timeout
        self._queue.append(waiting)
        try:
            while True:
                if self._first() is waiting and self._try(holder):
                    return True
                left = until - monotonic()
                if left <= 0:
                    return False
                bell.acquire(timeout=min(left, _LOOK_SECONDS))
        finally:
            self._dequeue(waiting)
            self._ring()

    def _first(self) -> tuple[Holder, Any] | None:
        """Who is next; those that wait no more are passed over."""
        while True:
            try:
                waiting = self._queue[0]
            except IndexError:
                return None
            if waiting[0].alive():
                return waiting
            self._dequeue(waiting)

    def _dequeue(self, waiting: tuple[Holder, Any]) -> None:
        try:
            self._queue.remove(waiting)
        except ValueError:  # another thread found that it waits no more
            return

    def _ring(self) -> None:
        first = self._first()
        if first is None:
            return
        try:
            first[1].release()
        except RuntimeError:  # rung already
            return
