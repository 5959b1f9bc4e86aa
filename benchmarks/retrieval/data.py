"""Records and questions: LoCoMo where it is at hand, and the sets beside this package.

A *collection* is one set; it has one or more *spaces*, each searched by itself: a conversation of LoCoMo, or all records
of a set.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SETS = ROOT / "benchmarks" / "sets"
LOCOMO = ROOT.parent / "shared" / "data" / "locomo" / "locomo10.json"
CHOOSE, REPORT = "choose", "report"


@dataclass(frozen=True)
class Item:
    """One record to find.

    `group` names the records it stands with, in their order: the turns of a session, the notes of a step. `heading` is
    what their parent is called, in LoCoMo the date of the session.
    """

    id: str
    kind: str
    title: str
    body: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    heading: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.title}\n{self.body}" if self.body else self.title

    @property
    def dated(self) -> str:
        """All of it, after what its group is called."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text


@dataclass(frozen=True)
class Question:
    """What is asked for. `relevant` are places in the items of its space; `half` is to choose by or to report."""

    text: str
    relevant: tuple[int, ...]
    half: str
    category: str


@dataclass(frozen=True)
class Space:
    """Records that are searched together."""

    name: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]

    def previous(self, place: int) -> int | None:
        """The place of the record before one in its group."""
        return place - 1 if place and self.items[place].group == self.items[place - 1].group != "" else None


@dataclass(frozen=True)
class Collection:
    """One set. `ordered`: what stands beside a record says something about it; `main` are categories for a table of their own."""

    name: str
    spaces: tuple[Space, ...]
    ordered: bool = False
    sessions: bool = False
    main: tuple[str, ...] = field(default=())


def names() -> list[str]:
    """The collections there may be."""
    return ["locomo", *sorted(path.name.removesuffix(".queries.jsonl") for path in SETS.glob("*.queries.jsonl"))]


def collection(name: str) -> Collection | None:
    """A collection by name; None where its data is absent."""
    if name == "locomo":
        return _locomo() if LOCOMO.exists() else None
    return _set(name) if (SETS / f"{name}.queries.jsonl").exists() else None


# LoCoMo


def _locomo() -> Collection:
    conversations = json.loads(LOCOMO.read_text(encoding="utf-8"))
    spaces = tuple(_conversation(place, entry) for place, entry in enumerate(conversations))
    return Collection("locomo", spaces, ordered=True, sessions=True, main=("1", "2", "3", "4"))


def _conversation(place: int, entry: dict[str, Any]) -> Space:
    items = tuple(_turns(entry["conversation"]))
    places = {item.id: number for number, item in enumerate(items)}
    half = CHOOSE if place % 2 == 0 else REPORT
    questions = []
    for asked in entry["qa"]:
        # Some entries hold several ids, some pad the number of the turn with a zero, a few hold none that exists.
        named = [f"{one}:{int(two)}" for one, two in re.findall(r"(D\d+):(\d+)", " ".join(asked.get("evidence", ())))]
        relevant = tuple(dict.fromkeys(places[one] for one in named if one in places))
        if relevant:
            questions.append(Question(asked["question"], relevant, half, str(asked["category"])))
    return Space(entry["sample_id"], items, tuple(questions))


def _turns(conversation: dict[str, Any]) -> Iterator[Item]:
    sessions = sorted((int(found[1]), name) for name in conversation if (found := re.fullmatch(r"session_(\d+)", name)))
    for _, name in sessions:
        for turn in conversation[name]:
            text = " ".join(f"{turn['speaker']}: {turn['text']}".split())
            caption = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            date = conversation.get(f"{name}_date_time", "")
            yield Item(turn["dia_id"], "fact", text + caption, group=name, heading=date)


# The sets


def _set(name: str) -> Collection:
    records, queries = _files(name)
    items = tuple(
        Item(
            one["id"], one["kind"], one["title"], one.get("body", ""), tuple(one.get("tags", ())), one.get("group", "")
        )
        for one in records
    )
    places = {item.id: place for place, item in enumerate(items)}
    questions = tuple(
        Question(
            one["query"], tuple(places[named] for named in one["relevant"]), (CHOOSE, REPORT)[place % 2], one["style"]
        )
        for place, one in enumerate(queries)
    )
    return Collection(name, (Space(name, items, questions),))


def _files(name: str) -> tuple[Iterable[dict[str, Any]], Iterable[dict[str, Any]]]:
    """Records and queries: of the two files of the set, or of the module that makes them of what every machine has."""
    records = SETS / f"{name}.records.jsonl"
    if records.exists():
        return _lines(records), _lines(SETS / f"{name}.queries.jsonl")
    made = importlib.import_module(f"benchmarks.sets.{name}")
    queries, left_out = made.queries()
    if left_out:
        print(f"{name}: {left_out} queries left out, their answers are not in this Python", file=sys.stderr)
    return made.records(), queries


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
