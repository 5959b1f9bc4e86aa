"""The records of a space in a store of agentmem, and what it finds there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentmem import NewNote, Store
from agentmem.context.recalled import Recall
from agentmem.limits import TITLE_CHARS
from benchmarks.retrieval.data import Item, Space
from benchmarks.retrieval.measures import RETRIEVED
from benchmarks.retrieval.scores import RANKED

KEY = b"benchmark key of 32 bytes, raw.."
_LINE = re.compile(r"^\W{0,4}#(\d+)\b", re.MULTILINE)


@dataclass(frozen=True)
class Filled:
    """A store that holds a space. `places` leads from the id of a note to the place of its item."""

    store: Store
    places: dict[int, int]

    def found(self, query: str) -> list[int]:
        """What `store.find` finds: places, best first."""
        return self._places([hit.id for hit in self.store.find(query, limit=RETRIEVED)])

    def recalled(self, query: str, limit: int = RETRIEVED) -> list[int]:
        """What `store.recall` recalls: places, best first. A hit that stands for its repeats counts for them too."""
        return self._hits(self.store.recall(query, limit=limit))

    def shown(self, query: str, budget: int) -> tuple[list[int], list[int]]:
        """What is recalled with a budget: the places of all hits, and of those the text has a line of."""
        found = self.store.recall(query, limit=RANKED, budget=budget)
        return self._hits(found), self._places([int(id) for id in _LINE.findall(found.text)])

    def _hits(self, found: Recall) -> list[int]:
        return self._places([id for hit in found.hits for id in (hit.record.id, *hit.repeats)])

    def _places(self, ids: list[int]) -> list[int]:
        return [self.places[id] for id in dict.fromkeys(ids) if id in self.places]


@contextmanager
def filled(space: Space, directory: Path) -> Iterator[Filled]:
    """A store of its own with all records of a space: a note for each, beneath a step for each group, in order."""
    with Store.open(directory / f"{space.name}.db", project=space.name, key=KEY, durability="normal") as store:
        with store.transaction():
            steps: dict[str, int] = {}
            for item in space.items:
                if item.group and item.group not in steps:
                    steps[item.group] = store.notes.add("step", _step(item), similar=False).id
            ids = store.notes.add_many([_note(item, steps) for item in space.items]).ids
        store.wait_for_index()
        yield Filled(store, {id: place for place, id in enumerate(ids)})


def _step(item: Item) -> str:
    return f"{item.group.replace('_', ' ')}, {item.heading}" if item.heading else item.group


def _note(item: Item, steps: dict[str, int]) -> NewNote:
    title, body = item.title, item.body
    if len(title) > TITLE_CHARS:
        cut = (
            title.rfind(" ", TITLE_CHARS // 2, TITLE_CHARS)
            if " " in title[TITLE_CHARS // 2 : TITLE_CHARS]
            else TITLE_CHARS
        )
        title, body = title[:cut], "\n".join(filter(None, (title[cut:].strip(), body)))
    parent = None if item.kind == "goal" else steps.get(item.group)  # a goal stands beneath nothing
    return NewNote(item.kind, title, body=body, tags=item.tags, parent=parent)  # type: ignore[arg-type]
