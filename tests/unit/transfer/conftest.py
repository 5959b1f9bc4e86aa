"""Lets the tests of exports import what they share from beside them, and gives them a second store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentmem import Store

sys.path.insert(0, str(Path(__file__).parent))

KEY = bytes(range(32))


@pytest.fixture
def another(tmp_path: Path, clock: Callable[[], int]) -> Iterator[Callable[..., Store]]:
    """Opens stores of other names in the same directory; `another("b")`."""
    opened: list[Store] = []

    def open_one(name: str, **options: object) -> Store:
        given = {"project": "acme", "key": KEY, "durability": "normal", "clock": clock} | options
        opened.append(Store.open(tmp_path / f"{name}.db", **given))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
