"""What a project should hold, as plain values: the model beside which the store is put."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from hypothesis import strategies as st

from agentmem import Scope
from agentmem.types import STATUSES

INDEX = st.integers(0, 1 << 16)
KINDS = st.sampled_from(sorted(STATUSES))
WORDS = (
    "alpha", "Bravo", "naïve", "café", "10.0.0.1", "foo_bar", "parseHTML", "v1.2.3", "数据库", "CVE-2024-12345",
    "C++", "/etc/hosts",
)  # fmt: skip
TITLES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
BODIES = st.sampled_from(("", "one line", "two\nlines", "Ünïcode 数据", "\x01 odd"))
TAGS = st.lists(st.sampled_from(("p0", "p3", "api")), max_size=2, unique=True)
CONFIDENCES = st.sampled_from((None, 0.0, 0.25, 1, 1.0))
CHECKS = ("authz", "csrf", "tls")
RESULTS = st.sampled_from(("pass", "fail", "na", "error"))
VALUES = st.sampled_from((None, True, 1, 1.0, -0.0, "1", [1, {"a": None}]))
KEYS = ("one", "two", "three", "four")
TYPES = ("host", "page")
WHERES: dict[str | None, Callable[[Thing], bool]] = {
    None: lambda thing: True,
    "status = 'new'": lambda thing: thing.status == "new",
    "attrs.a = 1": lambda thing: type(thing.attrs.get("a")) in (int, float) and thing.attrs["a"] == 1,
}
TASKS = ("goal", "step")
OVER = ("done", "failed", "dropped")


@define
class Entry:
    """A checklist item as it should be."""

    number: int
    text: str
    done: bool = False
    removed: bool = False


@define
class Text:
    """A note as it should be."""

    kind: str
    title: str
    status: str
    body: str = ""
    tags: list[str] = field(factory=list)
    pinned: bool = False
    confidence: float | None = None
    parent: int | None = None
    entity: int | None = None
    why: str | None = None
    scope: Scope | None = None
    items: list[int] = field(factory=list)  # present ones in order
    touched: int = 0  # the seq of the last change of content at or beneath it


@define
class Thing:
    """An entity as it should be."""

    type: str
    key: str
    status: str = "new"
    attrs: dict[str, Any] = field(factory=dict)
    parent: int | None = None
    confidence: float | None = None
    marks: dict[str, tuple[str, Any]] = field(factory=dict)


@define
class Model:
    """Everything the project should hold."""

    notes: dict[int, Text] = field(factory=dict)
    order: dict[int | None, list[int]] = field(factory=dict)
    things: dict[int, Thing] = field(factory=dict)
    entries: dict[int, Entry] = field(factory=dict)
    owner: dict[int, int] = field(factory=dict)
    links: set[tuple[int, str, int]] = field(factory=set)
    declared: dict[tuple[str, str | None], tuple[str, ...]] = field(factory=dict)
    summaries: dict[int, tuple[int, str, str, int]] = field(factory=dict)  # id, work, result, seq by note
    checkpoints: dict[int, str] = field(factory=dict)
    leases: dict[int, tuple[str, int]] = field(factory=dict)
    requests: list[tuple[Callable[[], Any], Any]] = field(factory=list)
    name: str = "acme"

    def above(self, note: int | None) -> list[int]:
        """A note and all above it, the nearest first."""
        chain = []
        while note is not None:
            chain.append(note)
            note = self.notes[note].parent
        return chain

    def touch(self, note: int | None, seq: int) -> None:
        for each in self.above(note):
            self.notes[each].touched = max(self.notes[each].touched, seq)

    def shut(self, note: int) -> bool:
        """Whether a closed task stands above it."""
        higher = (self.notes[each] for each in self.above(note)[1:])
        return any(each.kind in TASKS and each.status in OVER for each in higher)

    def beneath(self, note: int) -> list[int]:
        return [each for each in self.notes if note in self.above(each)]

    def expected(self, scope: Scope) -> list[tuple[list[Thing], str]]:
        """Each check of a scope with the entities that need it."""
        inside = [one for one in self.things.values() if one.type == scope.type and WHERES[scope.where](one)]
        if scope.checks:
            return [(inside, name) for name in scope.checks]
        return [
            ([one for one in inside if WHERES[where](one)], name)
            for (type, where), names in self.declared.items()
            for name in names
            if type == scope.type
        ]

    def left(self, task: int | None) -> tuple[int, int, int]:
        """How many steps, items and marks are left, computed the long way."""
        inside = list(self.notes) if task is None else self.beneath(task)
        live = [(each, self.notes[each]) for each in inside if not self.shut(each)]
        unfinished = [(n, note) for n, note in live if note.kind in TASKS and note.status in ("open", "active")]
        steps = sum(1 for number, _ in unfinished if number != task)
        items = sum(not self.entries[item].done for _, note in live if note.status not in OVER for item in note.items)
        scopes = [note.scope for number, note in live if note.scope is not None
                  and (note.status in ("open", "active") or number == task)]  # fmt: skip
        needed = [each for scope in scopes for each in self.expected(scope)]
        if not needed and task is None:
            for (type, where), names in self.declared.items():
                needed += self.expected(Scope(type, where, names)) if names else []
        marks = sum(
            thing.marks.get(check, ("error", None))[0] == "error" for inside, check in needed for thing in inside
        )
        return steps, items, marks


def exact(value: Any) -> str:
    """A spelling in which `True`, `1` and `1.0` differ; written here anew, not taken from the library."""
    if isinstance(value, dict):
        return "{" + ",".join(f'"{name}":{exact(value[name])}' for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(exact, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return repr(value + 0.0)  # no -0.0
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
