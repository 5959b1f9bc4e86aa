"""What every answer can do beside its text: turn into JSON, and show itself in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import attrs

from agentmem.context.escape import html


class Answer:
    """An answer with a `text`; a frozen attrs class beneath it has the fields."""

    __slots__ = ()

    text: str

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON."""
        return attrs.asdict(cast("attrs.AttrsInstance", self))

    def _repr_html_(self) -> str:
        return f"<pre>{html(self.text)}</pre>"


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts by section without those of nothing."""
    return {name: number for name, number in counts.items() if number}
