"""A state as its fields by name, and what differs between two states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from attrs import frozen

from agentmem.log.canonical import canonical, plain
from agentmem.past.folding import State
from agentmem.past.footprint import as_set
from agentmem.types import Json, Origin

# Columns that are no content: ids, times, and who, which the event itself says.
_NO_CONTENT: Final = frozenset(
    ("id", "revision", "changed", "created_at", "updated_at", "author", "run", "at", "done_by", "done_at", "digest")
)
# What a creation need not tell: it says so itself, or it follows from the place in the log.
_OF_CREATION: Final = frozenset(("origin", "position", "project"))
_NAMED: Final = {"filter": "where"}
_MARKED: Final = ("result", "value", "detail")


@frozen
class FieldChange:
    """One field that differs between two states of a record.

    `attrs.area` is an attribute, `check.authz` a mark as an object of `result`, `value` and `detail`, `links.uses` the
    list of what the record points at by that kind.

    Attributes:
        name: The field.
        before: What it was; None for nothing.
        after: What it is then; None for nothing.
        known: False where what it was rests on something that was purged.
    """

    name: str
    before: Json
    after: Json
    known: bool = True


def fields(state: State) -> dict[str, Json]:
    """The content of a state by the public names of its fields."""
    found: dict[str, Json] = {}
    for column, value in state.row.items():
        if column == "attrs":
            found |= {f"attrs.{name}": part for name, part in plain(value).items()}
        elif column not in _NO_CONTENT:
            found[_NAMED.get(column, column)] = as_set(column, value)
    for name, mark in sorted(state.marks.items()):
        given = {part: mark[part] for part in _MARKED if mark[part] is not None}
        if "value" in given:
            given["value"] = plain(given["value"])
        found[f"check.{name}"] = given
    for kind, target in sorted(state.links):
        linked = found.setdefault(f"links.{kind}", [])
        assert isinstance(linked, list)  # made here
        linked.append(target)
    return found


def differences(before: State | None, after: State | None) -> tuple[FieldChange, ...]:
    """What differs, field by field; of a record that was just created what it was created with."""
    if after is None:
        return ()
    now = fields(after)
    if before is None:
        return tuple(
            FieldChange(name, None, value)
            for name, value in now.items()
            if not _is_empty(value) and name not in _OF_CREATION
        )
    then = fields(before)
    return tuple(
        FieldChange(name, then.get(name), now.get(name), before.known)
        for name in dict.fromkeys((*then, *now))
        if not _same(then.get(name), now.get(name))
    )


def _is_empty(value: Json) -> bool:
    return value is None or value is False or value in ("", [], {})


def _same(one: Json, other: Json) -> bool:
    return one in ("", None) if other in ("", None) else canonical(one) == canonical(other)


def shortened(value: Json, most: int) -> Json:
    """A value of which a list of many changes shows the beginning only: a text, or the JSON of something larger."""
    text = value if isinstance(value, str) else canonical(value) if isinstance(value, (list, dict)) else ""
    return value if len(text) <= most else text[: most - 1] + "…"


def converted(change: FieldChange, make: Callable[[Json], Json]) -> FieldChange:
    """The same change with what a function makes of each of its two values."""
    return FieldChange(change.name, make(change.before), make(change.after), change.known)


def origins(state: State | None, changed: Iterable[FieldChange]) -> Iterator[Origin]:
    """Where the texts of a record came from: its own, and of the marks that are among what changed."""
    if state is None:
        return
    if state.row.get("origin") is not None:
        yield state.row["origin"]
    for name in (change.name.removeprefix("check.") for change in changed):
        if name in state.marks:
            yield state.marks[name]["origin"]


def label(of: str, state: State) -> str | None:
    """What a record is called: its title, key or text; None where that was purged."""
    row = state.row
    called: str | None
    match of:
        case "entity":
            called = f"{row['type']}:{row['key']}" if row["key"] else None
        case "checks":
            called = row["type"] if state.known else None
        case "project":
            called = row["name"]
        case "note":
            called = row["title"]
        case "summary":
            called = row["result"] or row["work"]
        case "session":
            called = row["title"]
        case _:
            called = row["text"]
    return called
