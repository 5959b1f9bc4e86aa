"""Stores with and without meaning. What the tests share stands beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmem import Store

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _no_embedder_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTMEM_EMBEDDER", raising=False)


@pytest.fixture
def plain(opened: Callable[..., Store]) -> Store:
    """An empty store that goes by words alone."""
    return opened(embedder=None)


@pytest.fixture
def meant(opened: Callable[..., Store]) -> Store:
    """An empty store with the embedder of the tests."""
    from toy import Toy

    return opened(embedder=Toy())


@pytest.fixture
def english(opened: Callable[..., Store]) -> Store:
    """An empty store with the model in the package."""
    return opened()
