"""What the tests of purges share; lets them import the rest from beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def searched(
    record_testsuite_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> Iterator[list[int]]:
    """The bytes that each proof of a module searched and found nothing in; their sum stands in the report of the run."""
    sizes: list[int] = []
    yield sizes
    name = request.module.__name__
    record_testsuite_property(
        f"{name}: bytes of decrypted pages searched after {len(sizes)} purges, found 0", sum(sizes)
    )
