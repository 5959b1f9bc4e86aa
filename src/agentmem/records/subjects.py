"""Subjects kept apart: a view of one entity sees nothing that is about another.

What a record is about is its entity, or that of the nearest note above it, or that of its session. A view of a subject
sees what is about that entity or about one beneath it, and what is about none; all of it in the subject's project.
A checkpoint of a task that is about none is about what its session is about: where B's work stands is B's.

Readings narrow their queries by the conditions made here, which are empty in a view without a subject.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from agentmem import limits
from agentmem.engine.database import Database
from agentmem.errors import OutOfReach
from agentmem.records import tree
from agentmem.records.base import Binding, Source, Unit
from agentmem.records.standing import project_of
from agentmem.types import RecordType


def within(source: Source, entity: int, subject: int) -> bool:
    """Whether an entity is a subject or lies beneath it."""
    return entity == subject or subject in tree.ancestors(source, entity, "entity")


# What a note is about, by a table that stands for it. Most notes name it themselves, or have none above: the walk is rare.
_OF_NOTE: Final = f"""
CASE WHEN {{note}}.entity IS NOT NULL THEN {{note}}.entity WHEN {{note}}.parent IS NOT NULL THEN (
    WITH RECURSIVE above (id, level) AS (
        SELECT {{note}}.parent, 1
        UNION ALL
        SELECT up.parent, level + 1 FROM above JOIN note AS up ON up.id = above.id
        WHERE up.entity IS NULL AND up.parent IS NOT NULL AND level < {limits.TREE_LEVELS}
    )
    SELECT up.entity FROM above JOIN note AS up ON up.id = above.id WHERE up.entity IS NOT NULL LIMIT 1
) END
"""
# What a checkpoint is about that its task does not say. Of a session that was purged nobody knows: then it is another's.
_SPOKEN: Final = """
(SELECT ifnull((SELECT ifnull(spoken.entity, 0) FROM session AS spoken WHERE spoken.id = written.session), -1)
 FROM event AS written WHERE written.seq = {checkpoint}.id AND written.session IS NOT NULL)
"""
_WITHIN: Final = """
SELECT id FROM (
    WITH RECURSIVE within (id) AS (
        VALUES ({subject}) UNION ALL SELECT entity.id FROM within JOIN entity ON entity.parent = within.id
    ) SELECT id FROM within)
"""


def _visible(about: str, subject: int | str) -> str:
    # It tells the planner nothing, so that a query goes by the indexes that it goes by without.
    return f"likelihood(ifnull({about} IN ({_WITHIN.format(subject=subject)}), TRUE), 0.9999)"


def condition(source: Source, column: str) -> str:
    """SQL that narrows to what a view of a subject sees, by a column with the entity; empty where it has no subject."""
    subject = source.binding.subject
    return "" if subject is None else f"AND {_visible(column, subject)}"


def of_notes(source: Source, note: str = "note") -> str:
    """SQL that narrows to the notes that a view of a subject sees; empty where it has no subject.

    Args:
        source: Where the query runs.
        note: The table that stands for the note.
    """
    return of_notes_about(source.binding.subject, note)


def of_notes_about(subject: int | None, note: str = "note") -> str:
    """The same by the subject, None for none."""
    return "" if subject is None else f"AND {_visible(_OF_NOTE.format(note=note), subject)}"


def of_checkpoints(source: Source) -> str:
    """SQL that narrows the table of checkpoints to what a view of a subject sees; empty where it has no subject."""
    subject = source.binding.subject
    if subject is None:
        return ""
    task = f"(SELECT {_OF_NOTE.format(note='about')} FROM note AS about WHERE about.id = checkpoint.task)"
    spoken = f"nullif({_SPOKEN.format(checkpoint='checkpoint')}, 0)"
    return f"AND {_visible(f'coalesce({task}, {spoken})', subject)}"


# What a candidate of a search is about, by the tables that stand for it.
_ABOUT: Final = f"""
coalesce(entity.id, session.entity, {_OF_NOTE.format(note="note")}, {_OF_NOTE.format(note="owner")},
         CASE WHEN checkpoint.id IS NOT NULL THEN nullif({_SPOKEN.format(checkpoint="checkpoint")}, 0) END)
"""


def seen(subject: int) -> tuple[str, int]:
    """The condition of a search, on the tables that stand for a candidate, that a view of a subject sees it."""
    return _visible(_ABOUT, "?"), subject


_SUBJECTS: Final = f"""
WITH asked (id, note) AS MATERIALIZED (
    SELECT value, coalesce(
        (SELECT note.id FROM note WHERE note.id = value),
        (SELECT note FROM item WHERE item.id = value),
        (SELECT note FROM summary WHERE summary.id = value),
        (SELECT task FROM checkpoint WHERE checkpoint.id = value))
    FROM json_each(?)
)
SELECT asked.id, coalesce(
           entity.id, session.entity, spoke.entity, {_OF_NOTE.format(note="note")},
           CASE WHEN checkpoint.id IS NOT NULL THEN nullif({_SPOKEN.format(checkpoint="checkpoint")}, 0) END),
       coalesce(note.project, entity.project, session.project, message.project, checkpoint.project, checks.project)
FROM asked
LEFT JOIN note ON note.id = asked.note
LEFT JOIN entity ON entity.id = asked.id
LEFT JOIN session ON session.id = asked.id
LEFT JOIN message ON message.id = asked.id
LEFT JOIN session AS spoke ON spoke.id = message.session
LEFT JOIN checkpoint ON checkpoint.id = asked.id
LEFT JOIN checks ON checks.id = asked.id
"""


def subject_of(source: Source, record: int) -> int | None:
    """The entity that a record is about, None for none."""
    rows = source.rows(_SUBJECTS, (json.dumps([record]),))
    return rows[0][1] if rows else None


def hidden(source: Source, records: Iterable[int]) -> set[int]:
    """Those of these records that a view of a subject does not see; none where the view has no subject.

    What is in another project, or is no more, it does not see either.
    """
    subject = source.binding.subject
    if subject is None:
        return set()
    found = {row[0]: (row[1], row[2]) for row in source.rows(_SUBJECTS, (json.dumps(list(records)),))}
    known = {entity: within(source, entity, subject) for entity in {about for about, _ in found.values() if about}}
    own = source.known_project
    return {record for record, (about, project) in found.items() if project != own or not known.get(about or 0, True)}


def refuse_hidden(source: Source, record: int, of: RecordType) -> None:
    """Refuse what a view of a subject does not see.

    Raises:
        OutOfReach: It is about another subject, or in another project.
    """
    subject = source.binding.subject
    if subject is None:
        return
    unseen = project_of(source, of, record) != source.known_project if of == "project" else hidden(source, [record])
    if unseen:
        raise _refusal(f"#{record} is about another subject, or in another project", subject)


def refuse_whole(binding: Binding, what: str) -> None:
    """Refuse what concerns more than one subject to a view of one.

    Args:
        binding: The view.
        what: A sentence without its end that says why it is not for one subject alone.

    Raises:
        OutOfReach: It is a view of a subject.
    """
    if binding.subject is not None:
        raise _refusal(what, binding.subject)


def refuse_projects(binding: Binding, *named: str | None) -> None:
    """Refuse another project than its own, or all of them (`"*"`), to a view of a subject.

    Raises:
        OutOfReach: It is such a view.
    """
    if any(name not in (None, binding.project) for name in named):
        refuse_whole(binding, "This is another project")


def _refusal(what: str, subject: int) -> OutOfReach:
    return OutOfReach(
        what,
        why=f"This session is about entity #{subject} and sees nothing about others",
        next="Ask for what is about it, or go on without",
    )


# Writing


def given(unit: Unit, about: int | None, above: int | None) -> int | None:
    """What a new note is about: in a view of a subject that, where neither it nor a note above says so.

    Args:
        unit: The unit of work.
        about: What the caller says.
        above: The note that it is to stand beneath.
    """
    subject = unit.binding.subject
    if subject is None or about is not None or (above is not None and subject_of(unit, above) is not None):
        return about
    return subject


def refuse_loosened(unit: Unit, note: int, before: int | None) -> None:
    """Refuse that a note which was about something is about nothing now: every subject would see it.

    Args:
        unit: The unit of work, after the change.
        note: The note.
        before: What it was about.

    Raises:
        OutOfReach: It would be so, in a view of a subject.
    """
    subject = unit.binding.subject
    if subject is not None and before is not None and (subject_of(unit, note) is None or hidden(unit, [note])):
        raise _refusal(f"#{note} would be about something else, or about nothing", subject)


_ELSEWHERE: Final = """
SELECT DISTINCT value FROM event, json_each(json_array(
    payload ->> '$.entity', payload ->> '$.parent', payload ->> '$.note', payload ->> '$.task',
    payload ->> '$.set.entity', payload ->> '$.set.parent', payload ->> '$.set.note', payload ->> '$.set.task',
    payload ->> '$.state.entity', payload ->> '$.state.parent', payload ->> '$.state.note', payload ->> '$.state.task'))
WHERE event.record = ? AND value IS NOT NULL
"""

_OWNER: Final = """
SELECT coalesce((SELECT id FROM note WHERE id = ?1), (SELECT note FROM item WHERE id = ?1),
                (SELECT note FROM summary WHERE id = ?1), (SELECT task FROM checkpoint WHERE id = ?1))
"""


def refuse_past(source: Source, record: int, of: RecordType, *, deep: bool = False) -> None:
    """Refuse the past of a record that a view of a subject does not see, or that once was about another or beneath it.

    Args:
        source: Where to look.
        record: The record.
        of: Its type.
        deep: Also what belongs to a note.

    Raises:
        OutOfReach: It is so.
    """
    subject = source.binding.subject
    if subject is None:
        return
    refuse_hidden(source, record, of)
    if of not in ("note", "item", "summary", "checkpoint"):
        return
    row = source.row(_OWNER, (record,))
    owner = None if row is None else row[0]
    for each in {record, *([] if owner is None else [owner, *tree.ancestors(source, owner)])}:
        places = [int(place) for (place,) in source.rows(_ELSEWHERE, (each,))]
        if hidden(source, places):
            raise _refusal(f"#{record} was about another subject once, or beneath what was", subject)
    if deep:
        parts = [part for (part,) in source.rows("SELECT id FROM checkpoint WHERE task = ?", (record,))]
        if hidden(source, parts):
            raise _refusal(f"Checkpoints of #{record} are about other subjects; deep=False leaves them out", subject)


_BOUND: Final = _WITHIN.format(subject="?1")
# From above downwards: what is beneath another subject is not gone into, so that it costs little where most is others'.
_VISIBLE: Final = f"""
WITH RECURSIVE seen (id) AS (
    SELECT id FROM note WHERE project = ?2 AND parent IS NULL AND (entity IS NULL OR entity IN ({_BOUND}))
    UNION
    SELECT id FROM note WHERE entity IN ({_BOUND})
    UNION
    SELECT note.id FROM seen JOIN note ON note.parent = seen.id WHERE note.entity IS NULL OR note.entity IN ({_BOUND})
    LIMIT ?3
),
notes (id) AS MATERIALIZED (SELECT id FROM seen)
SELECT id FROM notes
UNION ALL {_BOUND}
UNION ALL SELECT item.id FROM notes JOIN item ON item.note = notes.id
UNION ALL SELECT summary.id FROM notes JOIN summary ON summary.note = notes.id
UNION ALL SELECT checkpoint.id FROM notes JOIN checkpoint ON checkpoint.project = ?2 AND checkpoint.task = notes.id
UNION ALL SELECT checkpoint.id FROM checkpoint WHERE project = ?2 AND task IS NULL
UNION ALL SELECT message.id FROM session JOIN message ON message.session = session.id
    WHERE session.project = ?2 AND (session.entity IS NULL OR session.entity IN ({_BOUND})) AND message.text IS NOT NULL
LIMIT ?3
"""
# Of each open file: the subjects with too many records to list them, and the seq up to which that is taken for true.
_many: Final[WeakKeyDictionary[Database, dict[int, int]]] = WeakKeyDictionary()
_GROWN: Final = 1.2


def among(source: Source, most: int) -> list[int] | None:
    """The records among which all are that a view of a subject sees, where they are fewer than `most`; else None."""
    subject, now = source.binding.subject, source.number("SELECT coalesce(max(seq), 0) FROM event")
    known = _many.setdefault(source.binding.ledger.database, {})
    if subject is None or known.get(subject, 0) > now:
        return None
    found = source.rows(_VISIBLE, (subject, source.known_project, most))
    if len(found) < most:
        return [record for (record,) in found]
    known[subject] = int(now * _GROWN) + 16
    return None
