"""The text of a record that is embedded: its line, and the rest of it in windows as long as a model reads at once.

The line stands before every window, which is shorter for it: a window out of the middle of a body says little by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import apsw
from attrs import frozen

from agentmem.engine.migrations import MARKS_TOLD
from agentmem.engine.session_tables import MESSAGE_TEXT
from agentmem.log.canonical import plain
from agentmem.recall import checked
from agentmem.recall.filters import named

if TYPE_CHECKING:
    from agentmem.recall.embedder import Embedder

_LINE_CHARS: Final = 200

_SENTENCE_END: Final = r"(?<=[.!?])\s+|(?<=[。！？])|\n+"
_LISTED: Final = "IN (SELECT value FROM json_each(?1))"
_TEXTS: Final = f"""
SELECT id, title, concat_ws(char(10), nullif(body, ''), why, basis), NULL FROM note WHERE title IS NOT NULL AND id {_LISTED}
UNION ALL
SELECT id, type || ' ' || key, {MARKS_TOLD.replace("$", "entity.")}, attrs FROM entity WHERE key IS NOT NULL AND id {_LISTED}
UNION ALL
SELECT id, text, '', NULL FROM item WHERE text IS NOT NULL AND NOT removed AND id {_LISTED}
UNION ALL
SELECT id, '', text, NULL FROM checkpoint WHERE text IS NOT NULL AND id {_LISTED}
UNION ALL
SELECT id, '', concat_ws(char(10), result, work, basis), NULL FROM summary
WHERE coalesce(work, result) IS NOT NULL AND id {_LISTED}
UNION ALL
SELECT id, '', {MESSAGE_TEXT.format(row="message")}, NULL FROM message WHERE text IS NOT NULL AND id {_LISTED}
"""
# Of a session what people and agents say has a meaning; what tools answer is found by words.
_SPOKEN: Final = f"{_TEXTS} AND type IN ('user.message', 'agent.message', 'system.message')"


@frozen
class Window:
    """A piece of a record's text that has a vector of its own.

    Attributes:
        record: The record.
        begin: Where it begins in the text after the line, in characters.
        finish: Where it ends.
        text: What is embedded.
    """

    record: int
    begin: int
    finish: int
    text: str


def texts(connection: apsw.Connection, records: Iterable[int], *, spoken: bool = False) -> list[tuple[int, str, str]]:
    """Id, line and other text of these records, those left out that have none.

    Args:
        connection: Any.
        records: Which.
        spoken: Leave out of sessions what is not embedded.
    """
    rows: list[tuple[Any, ...]] = connection.execute(_SPOKEN if spoken else _TEXTS, (named(records),)).fetchall()
    return [(row[0], row[1], f"{_told(row[3])}{row[2] or ''}") for row in rows]


def _told(attrs: str | None) -> str:
    """The attributes of an entity as words, a line each."""
    if attrs is None or attrs == "{}":
        return ""
    return "".join(f"{name}: {value}\n" for name, value in plain(attrs).items() if value is not None)


def windows(model: Embedder, texts: Iterable[tuple[int, str, str]], *, most: int | None = None) -> Iterator[Window]:
    """The windows of these texts that the model can read; nothing for a text in a language it does not know.

    Args:
        model: What will embed them.
        texts: Id, line and other text of each record.
        most: Windows of one record at most.
    """
    for record, line, rest in texts:
        if not checked.known(model, f"{line}\n{rest}"):
            continue
        begun = line[:_LINE_CHARS]
        body = rest if line == begun else f"{line[_LINE_CHARS:]}\n{rest}"
        if not body.strip():
            yield Window(record, 0, 0, line)
            continue
        spans = checked.windows(model, body, begun)
        moved = len(body) - len(rest)
        for begin, finish in spans[:most]:
            piece = body[begin:finish]
            yield Window(record, max(begin - moved, 0), max(finish - moved, 0), f"{begun}\n{piece}" if begun else piece)


def parts(text: str, chars: int) -> list[tuple[int, int]]:
    """The parts of a window, as (begin, finish): whole sentences or lines of at most so many characters; a longer one alone."""
    ends = [*(found.end() for found in re.finditer(_SENTENCE_END, text)), len(text)]
    found: list[tuple[int, int]] = []
    begin = last = 0
    for end in ends:
        if end - begin > chars and last > begin:
            found.append((begin, last))
            begin = last
        last = end
    return [*found, (begin, len(text))]
