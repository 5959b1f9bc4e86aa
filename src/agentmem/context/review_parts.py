"""What the sections of a review share: what is asked, what is found, and where a list goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from agentmem import limits
from agentmem.context import lines
from agentmem.context.budget import Line
from agentmem.context.reach import Reach, as_json
from agentmem.errors import InvalidInput, shown
from agentmem.records.base import View

MOST: Final = limits.COUNT_EXACT + 1
"""As far as anything is counted; so many stand for more."""

Key: TypeAlias = tuple[float, ...]
What: TypeAlias = Literal[
    "stalled",
    "open",
    "abandoned",
    "question",
    "contradicted",
    "contested",
    "in_force_again",
    "superseded",
    "duplicate",
    "lapsed",
    "claimed",
    "unfinished",
    "no_summary",
    "stale",
    "unsure",
    "unconfirmed",
    "untrusted",
    "undeclared",
    "unmarked",
    "empty",
]


@frozen
class Finding:
    """One thing that is worth a look.

    Attributes:
        what: Why it is told, in one word.
        ref: What names it wherever an id is taken: `12`, `12.3`, `host:db1`; of a check or a type its name.
        record: Its id, None for a check or a type.
        kind: Of a note its kind; else `entity`, `item`, `summary`, `check`, `type`.
        status: Its status, empty where it has none.
        title: Its text as it was written, of this `origin`.
        origin: Where that came from.
        remark: What is said of it, as it stands in the text of the answer; texts of other records in it are escaped.
        others: The ids of the other records it is about.
        at: The time that is told, in microseconds; None for none.
        number: The number that is told; None for none.
    """

    what: What
    ref: str
    record: int | None
    kind: str
    status: str
    title: str
    origin: str
    remark: str
    others: tuple[int, ...] = ()
    at: int | None = None
    number: int | None = None

    def line(self) -> Line:
        """It as a line of the answer."""
        after = f"– {self.remark}" if self.remark else ""
        if self.kind == "entity":
            of, _, key = self.ref.partition(":")
            return Line(f"#{self.record} {of}:{lines.inline(key, self.origin)} {after}", ref=f"get({self.record})")
        if self.kind == "item":
            return Line(f"{self.ref} {lines.inline(self.title, self.origin)} {after}", ref=f"get({self.ref})")
        if self.record is None:
            return Line(f"{self.ref} {after}")
        before = f"{self.kind} [{self.status}]" if self.status else self.kind
        return lines.record(self.record, self.title, origin=self.origin, before=before, after=after)


@frozen
class Part:
    """One section of a review.

    Attributes:
        name: Its word; give it as `section=` to read it alone.
        title: What it lists.
        findings: At most `limit` of them.
        total: How many there are, exact up to 1,000; 1,001 stands for more. Of a part that was looked at, in that part.
        after: Continues the list, given as `after=` together with `section=`; None at its end.
        looked_at: Which part was looked at, where it would have cost too much to look at all; else empty.
    """

    name: str
    title: str
    findings: tuple[Finding, ...]
    total: int
    after: str | None
    looked_at: str = ""

    @property
    def counted(self) -> str:
        """The total as text: `12`, `1000+`."""
        return number(self.total)


def number(total: int) -> str:
    """A total that was counted up to `MOST`, as text."""
    return f"{limits.COUNT_EXACT}+" if total >= MOST else str(total)


@frozen
class Ask:
    """What is asked of a section.

    Attributes:
        view: Where to read.
        reach: The task, or the project.
        before: What happened last before this time has lain still for long. Microseconds.
        seq: The last event of that time.
        limit: At most so many findings.
        alone: This section alone is asked for, so it may take longer.
        place: After which place of the list to go on; empty for its beginning.
    """

    view: View
    reach: Reach
    before: int
    seq: int
    limit: int
    alone: bool = False
    place: Key = ()

    @property
    def days(self) -> str:
        """How long that is: `14 days`."""
        days = (self.view.now - self.before) / 86_400_000_000
        return "1 day" if days == 1 else f"{days:.3g} days"

    def part(
        self,
        name: str,
        title: str,
        keys: Sequence[Key],
        told: Callable[[Sequence[Key]], Iterable[Finding]],
        **more: Any,
    ) -> Part:
        """The part of a list that was gone through as a whole, or up to a bound.

        Args:
            name: Of the section.
            title: Of the section.
            keys: One for each finding, in order.
            told: Makes the findings of a few keys.
            more: Further fields of the part.
        """
        wanted = [key for key in keys if key > self.place][: self.limit + 1]
        return self.cut(name, title, wanted, told, min(len(keys), MOST), **more)

    def cut(
        self,
        name: str,
        title: str,
        wanted: Sequence[Key],
        told: Callable[[Sequence[Key]], Iterable[Finding]],
        total: int,
        beyond: Key | None = None,
        **more: Any,
    ) -> Part:
        """The part of a list of which the keys after the place are known, at least one more than are wanted.

        `beyond` is where the list goes on behind these keys, if it does.
        """
        page = wanted[: self.limit]
        last = page[-1] if len(wanted) > self.limit else beyond
        after = None if last is None else cursor(name, last)
        return Part(name, title, tuple(told(page)) if page else (), total, after, **more)


def cursor(name: str, key: Key) -> str:
    """A place in the list of a section, as text."""
    return ":".join([name, *(repr(part) for part in key)])


def place(name: str, after: object) -> Key:
    """The place that a cursor of this section stands for.

    Raises:
        InvalidInput: It is not of this section.
    """
    given, *parts = after.split(":") if isinstance(after, str) else [""]
    try:
        key = tuple(float(part) if "." in part or "e" in part else int(part) for part in parts)
    except ValueError:
        key = ()
    if given != name or not key or not all(abs(part) <= limits.INT_MAX for part in key):
        raise InvalidInput(
            f"after={shown(after)} is no place in the section {name}", next="Give the `after` of that section's answer"
        )
    return key


def seq_until(view: View, time: int) -> int:
    """The seq of the last event up to a time, 0 for none, by halving: where clocks went back, of one that fits."""
    sql = "SELECT seq, at FROM event WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
    low, high = 0, view.seq
    while low < high:
        middle = (low + high + 1) // 2
        row = view.row(sql, (middle,))
        if row is None or row[1] <= time:
            low = middle
        else:
            high = row[0] - 1
    return low


@frozen
class Told:
    """A note in one row, as most findings tell it."""

    id: int
    kind: str
    title: str
    status: str
    origin: str
    shut: int
    run: str | None
    created_at: int
    updated_at: int
    confidence: float | None

    def finding(self, what: What, remark: str, **more: Any) -> Finding:
        """It as a finding."""
        return Finding(what, str(self.id), self.id, self.kind, self.status, self.title, self.origin, remark, **more)


_TOLD: Final = """
SELECT note.id, kind, title, status, origin, shut, run, created_at, updated_at, confidence
FROM json_each(?) AS wanted CROSS JOIN note ON note.id = wanted.value WHERE title IS NOT NULL ORDER BY wanted.key
"""


def told(view: View, notes: Iterable[int]) -> list[Told]:
    """A few notes, in this order."""
    return [Told(*row) for row in view.rows(_TOLD, (as_json(notes),))]


def of_status(reach: Reach, kind: str, status: str) -> tuple[str, list[Any]]:
    """`note … WHERE …` for the notes of a kind and status that the review reaches, from an index in the order of ids."""
    if reach.nodes is not None:
        listed = reach.listed(lambda node: node.kind == kind and node.status == status)
        return "note WHERE note.id IN (SELECT value FROM json_each(?))", [listed]
    if reach.root is not None:
        return "note INDEXED BY note_root WHERE root = ? AND kind = ? AND status = ?", [reach.root, kind, status]
    return "note INDEXED BY note_project WHERE project = ? AND kind = ? AND status = ?", [reach.project, kind, status]


Pairs: TypeAlias = Sequence[tuple[str, str]]


def ids(ask: Ask, pairs: Pairs, *, after: int = 0, until: int = limits.INT_MAX, most: int) -> list[int]:
    """The ids of notes of these kinds and statuses after one and up to one, the lowest first."""
    parts, values = [], []
    for kind, status in pairs:
        rows, bound = of_status(ask.reach, kind, status)
        parts.append(f"SELECT * FROM (SELECT id FROM {rows} AND id > ? AND id <= ? ORDER BY id LIMIT {most})")
        values += [*bound, after, until]
    sql = f"{' UNION ALL '.join(parts)} ORDER BY 1 LIMIT {most}"
    return [found for (found,) in ask.view.rows(sql, values)]


def by_id(
    ask: Ask,
    name: str,
    title: str,
    pairs: Pairs,
    make: Callable[[Told], Finding],
    *,
    until: int = limits.INT_MAX,
) -> Part:
    """A section of all notes of these kinds and statuses up to one, the oldest first."""
    total = len(ids(ask, pairs, until=until, most=MOST))
    after = int(ask.place[0]) if ask.place else 0
    wanted: list[Key] = [(found,) for found in ids(ask, pairs, after=after, until=until, most=ask.limit + 1)]
    return ask.cut(name, title, wanted, lambda page: map(make, told(ask.view, [int(key[0]) for key in page])), total)
