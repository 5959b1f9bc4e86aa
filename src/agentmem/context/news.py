"""News: what a worker on a task should hear since its last call, two lines at most."""

from __future__ import annotations

from typing import Final

from agentmem.context import lines
from agentmem.records import subjects, tree
from agentmem.records.base import View
from agentmem.types import UNTRUSTED

LINES: Final = 2
_READ: Final = 20


def news(view: View, task: int, since: int) -> tuple[str, ...]:
    """New decisions at or above a task, answers to questions beneath it or it, changed blocks: at most two lines.

    Args:
        view: Where to read; events of the caller's own run are no news.
        task: The task worked on.
        since: The seq of the last call.
    """
    if subjects.hidden(view, [task]):
        return ()
    chain = [task, *tree.ancestors(view, task)]
    marks = ", ".join("?" * len(chain))
    run = view.binding.actor.run
    untrusted = ", ".join(f"'{origin}'" for origin in sorted(UNTRUSTED))
    decisions = view.rows(
        f"""
        SELECT id, title FROM note
        WHERE (parent IN ({marks}) OR (parent IS NULL AND project = (SELECT project FROM note WHERE id = ?)))
          AND kind = 'decision' AND status = 'active' AND changed > ? AND title IS NOT NULL
          AND origin NOT IN ({untrusted}) AND (run IS NULL OR run IS NOT ?) {subjects.of_notes(view)}
        ORDER BY id DESC LIMIT {_READ}
        """,
        (*chain, task, since, run),
    )
    answers = view.rows(
        f"""
        SELECT question.id, answer.id, answer.title, answer.origin
        FROM link JOIN note AS question ON question.id = link.dst JOIN note AS answer ON answer.id = link.src
        WHERE link.kind = 'answers' AND link.seq > ? AND question.parent IN ({marks}) AND answer.title IS NOT NULL
          AND (link.run IS NULL OR link.run IS NOT ?)
          {_asked(view)} {subjects.of_notes(view, "answer")}
        ORDER BY link.seq DESC LIMIT {_READ}
        """,
        (since, *chain, run),
    )
    settled = view.rows(
        f"""
        SELECT waiting.src, note.id, note.title, note.status, note.origin
        FROM link AS waiting JOIN note ON note.id = waiting.dst
        WHERE waiting.kind = 'depends_on' AND waiting.src IN ({marks}) AND note.changed > ? AND note.title IS NOT NULL
          AND note.status IN ('done', 'dropped', 'failed', 'worked') AND (note.run IS NULL OR note.run IS NOT ?)
          {subjects.of_notes(view)}
        ORDER BY note.changed DESC LIMIT {_READ}
        """,
        (*chain, since, run),
    )
    found = [f"news: decision #{note} {lines.inline(title)}" for note, title in decisions]
    found += [
        f"news: question #{question} answered by #{note} {lines.inline(title, origin)}"
        for question, note, title, origin in answers
    ]
    found += [
        f"news: #{waiting} waited for #{note} {lines.inline(title, origin)}, now {status}"
        for waiting, note, title, status, origin in settled
    ]
    return _two(found)


def _asked(view: View) -> str:
    """The same for the question of a link: by the link, so that it is looked at where there is one only."""
    seen = subjects.of_notes(view, "asked")
    return seen and f"AND EXISTS (SELECT 1 FROM note AS asked WHERE asked.id = link.dst {seen})"


def _two(found: list[str]) -> tuple[str, ...]:
    if len(found) <= LINES:
        return tuple(found)
    return (found[0], f"{found[1]} (and {len(found) - LINES} more: resume(since=…))")
