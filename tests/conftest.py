"""What the tests of the log and the records stand on: a store in a directory of its own and a clock that they set."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentmem import Store

# Helpers that stand beside the tests of one room and are used in others too.
pytest.register_assert_rewrite("damage", "toy")

KEY = bytes(range(32))
BEGIN = 1_750_000_000_000_000  # microseconds since 1970 UTC


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Have processes that tests start obey SIGINT, also where the tests run in the background of a shell, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Clock:
    """A clock that goes on by one microsecond with each look at it, and by as much as a test wants."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def advance(self, *, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@pytest.fixture
def clock() -> Clock:
    """The clock of every store that `opened` opens."""
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store lies."""
    return tmp_path / "work.db"


@pytest.fixture
def opened(path: Path, clock: Clock) -> Iterator[Callable[..., Store]]:
    """Opens the file at `path`; options as those of `Store.open`. All are closed at the end."""
    stores: list[Store] = []

    def open_one(**options: object) -> Store:
        given = {"project": "acme", "key": KEY, "durability": "normal", "clock": clock} | options
        stores.append(Store.open(path, **given))  # type: ignore[arg-type]
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened: Callable[..., Store]) -> Store:
    """An empty store, project `acme`, author `ana`, run `r1`."""
    return opened(author="ana", run="r1")


class Undo(Exception):
    """Raised to have a transaction rolled back."""


@contextlib.contextmanager
def rolled_back(store: Store) -> Iterator[None]:
    """A transaction, or a savepoint of the one around it, that is undone at the end of the block."""
    with contextlib.suppress(Undo), store.transaction():
        yield
        raise Undo


@pytest.fixture
def undone() -> Callable[[Store], contextlib.AbstractContextManager[None]]:
    """`with undone(store):` does something in a transaction and has it rolled back."""
    return rolled_back
