"""Everything a ranking needs, as files: to try formulas on without a store or a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.retrieval.data import Collection, Space
from benchmarks.retrieval.methods import Signals
from benchmarks.retrieval.vectors import Matrix, Vectors


def dump(collection: Collection, vectors: Vectors, directory: Path) -> None:
    """Write `<name>.json` and `<name>.npz`.

    The JSON is a list of spaces: `name`, `records` (id, kind, title, body, text, tags, parent, heading, order within
    the parent, previous: a place or null), `queries` (text, relevant: places in the records, half, category).
    The arrays are numbered by space: [queries, records] are `cosine_0`, `dated_0` (the heading before the text), where a
    text is cut where the model cuts it, and `windows_0`, the best of the pieces of a long text; `records_0` and
    `queries_0` are unit vectors.
    """
    directory.mkdir(parents=True, exist_ok=True)
    spaces = []
    arrays: dict[str, Matrix] = {}
    for number, space in enumerate(collection.spaces):
        spaces.append(_described(space))
        signals = Signals(space, vectors)
        found = {
            "queries": signals.asked,
            "records": vectors.of(signals.texts),
            "cosine": signals.cosine,
            "dated": signals.dated,
            "windows": signals.windows,
        }
        arrays |= {f"{name}_{number}": array.astype(np.float32) for name, array in found.items()}
    (directory / f"{collection.name}.json").write_text(json.dumps(spaces, ensure_ascii=False), encoding="utf-8")
    np.savez(directory / f"{collection.name}.npz", allow_pickle=False, **arrays)


def _described(space: Space) -> dict[str, Any]:
    order: dict[str, int] = {}
    records = []
    for place, item in enumerate(space.items):
        order[item.group] = order.get(item.group, -1) + 1
        records.append(
            {
                "id": item.id, "kind": item.kind, "title": item.title, "body": item.body, "text": item.text,
                "tags": item.tags, "parent": item.group, "heading": item.heading, "order": order[item.group],
                "previous": space.previous(place),
            }
        )  # fmt: skip
    queries = [
        {"text": one.text, "relevant": one.relevant, "half": one.half, "category": one.category}
        for one in space.questions
    ]
    return {"name": space.name, "records": records, "queries": queries}
