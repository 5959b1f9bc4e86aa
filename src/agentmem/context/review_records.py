"""What a review says of what is known: what is doubtful, untrusted, contradicted, and who holds what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any, Final

from agentmem.context import lines
from agentmem.context.reach import as_json
from agentmem.context.review_parts import MOST, Ask, Finding, Key, Pairs, Part, What, ids, told
from agentmem.engine.migrations import DOUBTED
from agentmem.records import claims
from agentmem.types import STATUSES, UNTRUSTED

_KNOWN: Final[Pairs] = (("fact", "active"), ("decision", "active"), ("lesson", "active"))
_CHUNKS: Final = 5  # so many times `MOST` old records are looked at


def unsure(ask: Ask) -> Part:
    """Facts, decisions and lessons in force with a confidence below a half, the least sure first."""
    reach, where = ask.reach, ""
    values: list[Any] = [ask.reach.project]
    if reach.nodes is not None:
        where, values = "AND id IN (SELECT value FROM json_each(?))", [reach.project, reach.listed(_is_known)]
    elif reach.root is not None:
        where, values = "AND root = ?", [reach.project, reach.root]
    rows = f"FROM note INDEXED BY note_doubted WHERE project = ? AND {DOUBTED} {where}"
    total = ask.view.number(f"SELECT count(*) FROM (SELECT 1 {rows} LIMIT {MOST})", values)
    place = ask.place if len(ask.place) == 3 else (-1.0, 0, 0)
    sql = f"""
    SELECT confidence, root, id {rows} AND (confidence, root, id) > (?, ?, ?)
    ORDER BY confidence, root, id LIMIT {ask.limit + 1}
    """
    keys: list[Key] = list(ask.view.rows(sql, [*values, *place]))

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for one in told(ask.view, [int(key[2]) for key in page]):
            yield one.finding("unsure", f"confidence {one.confidence:.2g}", at=one.updated_at)

    return ask.cut("unsure", "in force with little confidence", keys, findings, total)


def _is_known(node: Any) -> bool:
    return (node.kind, node.status) in _KNOWN


def unconfirmed(ask: Ask) -> Part:
    """Facts, decisions and lessons in force that were written long ago and never confirmed. Untrusted ones are listed apart."""
    first, more = _old(ask, 0, MOST)
    after = int(ask.place[0]) if ask.place else 0
    wanted, beyond = _old(ask, after, ask.limit + 1) if after else (first, more)

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for one in told(ask.view, [int(key[0]) for key in page]):
            later = one.updated_at > ask.before
            remark = f"written {lines.day(one.created_at)}" + (
                f", changed {lines.day(one.updated_at)}" if later else ""
            )
            yield one.finding("unconfirmed", remark, at=one.created_at)

    looked = f"the oldest {_CHUNKS * MOST}" if more is not None and len(first) < MOST else ""
    title = f"written more than {ask.days} ago and never confirmed"
    return ask.cut("unconfirmed", title, wanted, findings, min(len(first), MOST), beyond, looked_at=looked)


def _old(ask: Ask, after: int, most: int) -> tuple[list[Key], Key | None]:
    """At least `most` of them after an id, if there are so many among the next few thousand; and where to go on if not."""
    found: list[Key] = []
    for _ in range(_CHUNKS):
        some = ids(ask, _KNOWN, after=after, until=ask.seq, most=MOST)
        if some:
            values = (ask.reach.project, some[0], some[-1])
            apart = {note for (note,) in ask.view.rows(_CONFIRMED, values)}
            apart |= {note for kind, _ in _KNOWN for (note,) in ask.view.rows(_UNTRUSTED, (kind, *values))}
            found += [(note,) for note in some if note not in apart]
        if len(some) < MOST:
            return found, None
        after = some[-1]
        if len(found) >= most:
            break
    return found, (after,)


_CONFIRMED: Final = """
SELECT id FROM note INDEXED BY note_confirmed WHERE project = ? AND confirmed_at IS NOT NULL AND id BETWEEN ? AND ?
"""
_UNTRUSTED: Final = """
SELECT id FROM note INDEXED BY note_untrusted
WHERE kind = ? AND project = ? AND status = 'active' AND origin IN ('import', 'tool', 'web') AND id BETWEEN ? AND ?
"""


# Untrusted records

_FOREIGN: Final[Pairs] = tuple(
    (kind, status) for kind, statuses in STATUSES.items() for status in statuses if status != "dropped"
)
_ORIGINS: Final = ", ".join(f"'{origin}'" for origin in sorted(UNTRUSTED, key=("import", "tool", "web").index))


def untrusted(ask: Ask) -> Part:
    """What came from elsewhere and nobody confirmed: notes, entities, items, summaries, as they were written."""
    first = _foreign(ask, 0, MOST)
    wanted = _foreign(ask, int(ask.place[0]), ask.limit + 1) if ask.place else first
    return ask.cut(
        "untrusted",
        "from elsewhere, confirmed by nobody",
        wanted,
        lambda page: _foreign_findings(ask, [int(key[0]) for key in page]),
        len(first),
    )


def _foreign(ask: Ask, after: int, most: int) -> list[Key]:
    reach, view = ask.reach, ask.view
    found = [_foreign_notes(ask, after, most)]
    if reach.root is None:
        sql = f"""
        SELECT id FROM entity INDEXED BY entity_untrusted
        WHERE project = ? AND origin IN ({_ORIGINS}) AND id > ? AND key IS NOT NULL ORDER BY id LIMIT {most}
        """
        found.append([row[0] for row in view.rows(sql, (reach.project, after))])
    for table, present in (
        ("item", "item.removed = 0"),
        ("summary", "coalesce(summary.work, summary.result) IS NOT NULL"),
    ):
        where, values = _tree_of(ask)
        sql = f"""
        SELECT {table}.id FROM {table} INDEXED BY {table}_untrusted CROSS JOIN note ON note.id = {table}.note
        WHERE {table}.origin IN ({_ORIGINS}) AND {present} AND {table}.id > ? AND {where}
        ORDER BY {table}.id LIMIT {most}
        """
        found.append([row[0] for row in view.rows(sql, (after, *values))])
    return [(record,) for _, record in zip(range(most), merge(*found), strict=False)]


def _tree_of(ask: Ask) -> tuple[str, list[Any]]:
    """The condition that a note lies within what the review reaches."""
    where, values = ask.reach.condition()
    if ask.reach.nodes is None:
        return where, list(values)
    listed = ask.reach.listed(lambda node: True)
    return f"{where} AND note.id IN (SELECT value FROM json_each(?))", [*values, listed]


def _foreign_notes(ask: Ask, after: int, most: int) -> list[int]:
    where, values = _tree_of(ask)
    one = f"""
    SELECT id FROM note INDEXED BY note_untrusted
    WHERE {where} AND kind = ? AND status = ? AND origin IN ({_ORIGINS}) AND id > ? ORDER BY id LIMIT {most}
    """
    parts, bound = [], []
    for kind, status in _FOREIGN:
        parts.append(f"SELECT * FROM ({one})")
        bound += [*values, kind, status, after]
    return [row[0] for row in ask.view.rows(f"{' UNION ALL '.join(parts)} ORDER BY 1 LIMIT {most}", bound)]


_ELSE: Final = """
SELECT wanted.value, entity.type, entity.key, entity.status, entity.origin, item.note, item.number, item.text, item.origin,
       summary.note, coalesce(summary.result, summary.work), summary.origin
FROM json_each(?) AS wanted LEFT JOIN entity ON entity.id = wanted.value
LEFT JOIN item ON item.id = wanted.value LEFT JOIN summary ON summary.id = wanted.value
"""


def _foreign_findings(ask: Ask, records: Sequence[int]) -> Iterator[Finding]:
    notes = {one.id: one for one in told(ask.view, records)}
    others = ask.view.rows(_ELSE, (as_json(record for record in records if record not in notes),))
    rest = {finding.record: finding for finding in map(_foreign_finding, others)}
    for record in records:
        if record in notes:
            yield notes[record].finding("untrusted", "", at=notes[record].created_at)
        elif record in rest:
            yield rest[record]


def _foreign_finding(row: Sequence[Any]) -> Finding:
    record, type, key, status, origin, owner, number, text, item_origin, summed, told_as, summary_origin = row
    if type is not None:
        return Finding("untrusted", f"{type}:{key}", record, "entity", status, key, origin, "")
    if owner is not None:
        return Finding("untrusted", f"{owner}.{number}", record, "item", "", text or "", item_origin, "")
    return Finding(
        "untrusted",
        str(record),
        record,
        "summary",
        "",
        told_as or "",
        summary_origin,
        f"of #{summed}",
        others=(summed,),
    )


# Claims

_LEASES: Final = """
SELECT lease.record, lease.holder, lease.run, lease.secret, lease.taken_at, lease.expires_at,
       coalesce(note.kind, iif(entity.id IS NULL, 'item', 'entity')), coalesce(note.status, entity.status, ''),
       coalesce(note.title, entity.key, item.text, ''), coalesce(note.origin, entity.origin, item.origin),
       entity.type, item.note, item.number
FROM lease LEFT JOIN note ON note.id = lease.record LEFT JOIN entity ON entity.id = lease.record
LEFT JOIN item ON item.id = lease.record LEFT JOIN note AS owner ON owner.id = coalesce(note.id, item.note)
"""


def held(ask: Ask) -> Part:
    """Claims that lapsed and were never given back, then those that are live."""
    view, reach = ask.view, ask.reach
    values: list[Any]
    where, values = "owner.root = ?", [reach.root]
    if reach.nodes is not None:
        where, values = "owner.id IN (SELECT value FROM json_each(?))", [reach.listed(lambda node: True)]
    elif reach.root is None:
        where, values = "coalesce(owner.project, entity.project) = ?", [reach.project]
    sql = f"{_LEASES} WHERE {where} ORDER BY lease.expires_at > ?, lease.record LIMIT {MOST}"
    rows = {(int(row[5] > view.now), row[0]): row for row in view.rows(sql, [*values, view.now])}

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for key in page:
            yield _claim_finding(ask, rows[int(key[0]), int(key[1])])

    return ask.part("claims", "claims, lapsed ones first", list(rows), findings)


def _claim_finding(ask: Ask, row: Sequence[Any]) -> Finding:
    claim = claims.claim_of(ask.view.binding, row[:6], ask.view.now)
    kind, status, title, origin, type, note, number = row[6:]
    who = "by this run" if claim.mine else f"by {lines.inline(claim.holder or claim.run or 'another run')}"
    word = "claimed" if claim.live else "claim lapsed"
    remark = f"{word} {who}, until {lines.minute(claim.expires_at)}"
    ref = f"{type}:{title}" if kind == "entity" else f"{note}.{number}" if kind == "item" else str(claim.record)
    what: What = "claimed" if claim.live else "lapsed"
    return Finding(what, ref, claim.record, kind, status, title, origin, remark, at=claim.expires_at)


# Contradictions

_OVERRULING: Final = 5000  # links looked at


def _superseded(note: str) -> str:
    """Whether something in force takes the place of a note; untrusted text takes that of untrusted text only."""
    return f"""
    EXISTS (SELECT 1 FROM link AS above JOIN note AS heir ON heir.id = above.src
            WHERE above.dst = {note}.id AND above.kind = 'supersedes' AND heir.status <> 'dropped'
              AND ({note}.origin IN ({_ORIGINS})
                   OR (heir.origin NOT IN ({_ORIGINS}) AND above.origin NOT IN ({_ORIGINS}))))
    """


# Of the links: contradictions of two records in force; successions where the older record counts as open or in force.
_CLASHES: Final = f"""
SELECT link.seq, link.kind, one.id, other.id, one.status = 'dropped', {_superseded("other")},
       other.origin NOT IN ({_ORIGINS}) AND (one.origin IN ({_ORIGINS}) OR link.origin IN ({_ORIGINS}))
FROM (SELECT * FROM link INDEXED BY link_overrules WHERE kind IN ('contradicts', 'supersedes') ORDER BY seq LIMIT {_OVERRULING})
    AS link
CROSS JOIN note AS one ON one.id = link.src CROSS JOIN note AS other ON other.id = link.dst
WHERE one.title IS NOT NULL AND other.title IS NOT NULL AND (
    (link.kind = 'contradicts' AND one.status <> 'dropped' AND other.status <> 'dropped'
     AND NOT {_superseded("one")} AND NOT {_superseded("other")})
    OR (link.kind = 'supersedes' AND other.status IN ('open', 'active')))
"""


def contradictions(ask: Ask) -> Part:
    """Records in force that contradict each other; successions that were left half done."""
    rows: dict[Key, tuple[What, int, int]] = {}
    inside = None if ask.reach.nodes is None else {node.id for node in ask.reach.nodes}
    where, values = ("one.project = ?", [ask.reach.project])
    if ask.reach.root is not None:
        where, values = "one.root = ?", [ask.reach.root]
    for seq, kind, one, other, dropped, superseded, contested in ask.view.rows(f"{_CLASHES} AND {where}", values):
        if inside is not None and one not in inside and other not in inside:
            continue
        what = _clash(kind, dropped=dropped, superseded=superseded, contested=contested)
        if what:
            rows[_RANKS[what], seq, other] = (what, one, other)

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        pairs = [rows[key] for key in page]
        notes = {one.id: one for one in told(ask.view, {note for _, *both in pairs for note in both})}
        for what, one, other in pairs:
            if one in notes and other in notes:
                heir = f"#{one} {lines.inline(notes[one].title, notes[one].origin)}"
                yield notes[other].finding(what, _CLASH_REMARKS[what].format(heir), others=(one,))

    many = ask.view.number(f"SELECT count(*) FROM (SELECT 1 FROM link INDEXED BY link_overrules WHERE {_KINDS} LIMIT ?)",
                           (_OVERRULING + 1,)) > _OVERRULING  # fmt: skip
    partly = f"the oldest {_OVERRULING} links" if many else ""
    title = "contradictions, and successions half done"
    return ask.part("contradictions", title, sorted(rows), findings, looked_at=partly)


_KINDS: Final = "kind IN ('contradicts', 'supersedes')"
_RANKS: Final[dict[What, int]] = {"contradicted": 0, "contested": 1, "in_force_again": 2, "superseded": 3}
_CLASH_REMARKS: Final[dict[What, str]] = {
    "contradicted": "contradicted by {}, both in force",
    "contested": "untrusted text wants its place: {}",
    "in_force_again": "superseded by {}, which was dropped: in force again",
    "superseded": "superseded by {}, and not dropped",
}


def _clash(kind: str, *, dropped: int, superseded: int, contested: int) -> What | None:
    """What a row of `_CLASHES` comes to; None where nothing is left to decide."""
    if kind == "contradicts":
        return "contradicted"
    if dropped:
        return None if superseded else "in_force_again"
    return "contested" if contested else "superseded"


__all__ = ["contradictions", "held", "unconfirmed", "unsure", "untrusted"]
