"""The head of a window: the session, its state, pinned events, the task's `resume`, what is left of the older part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from agentmem import limits
from agentmem.context import lines
from agentmem.context.budget import Line, Section, fit
from agentmem.context.resume import resume
from agentmem.context.tokens import Counter
from agentmem.context.window_events import SHOWN
from agentmem.log.canonical import canonical
from agentmem.records import session_reads, subjects, vocabulary
from agentmem.records.base import View
from agentmem.records.session_rows import Segment, load_event, load_session
from agentmem.session_types import SessionEvent, SessionInfo

SUMMARY: Final = "x.summary"
"""The type of a caller's own summaries of earlier parts: `{"text": …, "until": <the last event it covers>}`."""

_KEYS: Final = 200  # of the state that are read
_OLDER: Final = 400  # events of the older part that are looked at, the latest
_OLDER_CHARS: Final = 4_000_000  # of their texts, so that no window waits long
_CITED: Final = re.compile(r"#(\d{1,18})\b")
_RESUME_SHARE: Final = 0.4


def head(
    view: View,
    session: int,
    segments: Sequence[Segment],
    *,
    after: int,
    left_out: int,
    pinned: Sequence[int],
    recent: Sequence[SessionEvent],
    budget: int,
    counter: Counter,
) -> str:
    """What stands before the events after a place, of which `left_out` come before, in at most `budget` tokens."""
    info = load_session(view, session)
    told, spent = _task(view, info, budget, counter)
    sections = [
        Section("state", "state:", 0.25, *state_lines(view, segments), more="session.state()"),
        Section("pinned", "pinned:", 0.3, [_whole(view, each) for each in pinned], more="session.read(…)"),
        *_older(view, segments, after, left_out, recent, pinned),
    ]
    room = max(budget - spent, limits.BUDGET_MIN)
    fitted = fit([_line(view, info)], sections, budget=room, counter=counter, head_share=0.1, more="session.events()")
    return f"{fitted.text}\n{told}" if told else fitted.text


def _line(view: View, info: SessionInfo) -> Line:
    """The session in one line."""
    about = ""
    if info.about is not None:
        row = view.row("SELECT type, key, origin FROM entity WHERE id = ?", (info.about,))
        about = "" if row is None else f", about {row[0]}:{lines.inline(row[1], row[2])}"
    agent = f", agent {lines.inline(str(info.agent['name']))}" if info.agent else ""
    title = f" {lines.inline(info.title, info.origin)}" if info.title else ""
    return Line(f"session #{info.id}{title}{about}{agent}", limit=120)


def _task(view: View, info: SessionInfo, budget: int, counter: Counter) -> tuple[str, int]:
    """What the session works on: its `resume` where there is room, else its line; and what that costs."""
    if info.task is None or subjects.hidden(view, [info.task]):
        return "", 0
    room = int(budget * _RESUME_SHARE)
    if budget - room >= limits.BUDGET_MIN and room >= limits.BUDGET_MIN:
        text = resume(view, info.task, after=None, budget=room, counter=counter).text
    else:
        row = view.row("SELECT title, origin, status FROM note WHERE id = ?", (info.task,))
        text = "" if row is None else f"task #{info.task} [{row[2]}] {lines.inline(row[0], row[1])}"
        room = max((budget - limits.BUDGET_MIN), 0)
    spent = counter(text + "\n")
    return (text, spent) if text and spent <= room else ("", 0)


def state_lines(view: View, segments: Sequence[Segment], *, after: int = 0) -> tuple[list[Line], int]:
    """The state of a session, a line for each key that was set after a place, and how many there are.

    Summaries stand elsewhere. Of thousands of keys the first are read.
    """
    newest = {key: event for key, event in session_reads.newest(view, segments).items() if event > after}
    found = []
    for key in sorted(newest)[:_KEYS]:
        event = load_event(view, newest[key])
        if event.type != SUMMARY:
            said = canonical(event.body) if event.body is not None else "(purged)"
            if event.body is not None and event.body.keys() == {"text"}:
                said = str(event.body["text"])
            text = f"#{event.id} {key}: {lines.inline(said, event.origin)}"
            found.append(Line(text, ref=f"read_event({event.id})"))
    return found, len(newest) if len(newest) > _KEYS else len(found)


def _whole(view: View, event: int) -> Line:
    return _excerpt(load_event(view, event), 400)


def _excerpt(event: SessionEvent, limit: int, *, before: str = "") -> Line:
    """One earlier event in one line."""
    of = event.type.partition(".")[2].replace("_", " ") if not event.type.startswith("x.") else event.type
    who = {"user.message": "user", "agent.message": "agent", "system.message": "system"}.get(event.type, of)
    target = f" of #{event.target}" if event.target is not None else ""
    long = f" ({len(event.text)} characters)" if len(event.text) > 2000 else ""
    text = lines.inline(event.text, event.origin) if event.text else "" if event.body is not None else "(purged)"
    return Line(f"#{event.id} {before}{who}{target}{long}: {text}", ref=f"read_event({event.id})", limit=limit)


def _older(
    view: View,
    segments: Sequence[Segment],
    after: int,
    total: int,
    recent: Sequence[SessionEvent],
    pinned: Sequence[int],
) -> list[Section]:
    """What is left of the part before a place: summaries, what began it, what is still referenced, the latest of the rest."""
    if not after:
        return []
    older, _ = session_reads.latest(view, segments, until=after, types=SHOWN, limit=_OLDER, chars=_OLDER_CHARS)
    older.reverse()
    first = session_reads.events(view, segments, until=after, types=("user.message",), limit=1)
    summaries = session_reads.events(view, segments, types=(SUMMARY,), newest_first=True, limit=20)
    cited = _cited(recent)
    told = {*pinned, *(event.id for event in first)}
    referenced = [event for event in older if event.id in cited and event.id not in told]
    told |= {event.id for event in referenced}
    rest = [event for event in older if event.id not in told and event.text and event.type != "agent.thinking"]
    said = [event for event in rest if event.type in ("user.message", "agent.message", "system.message")]
    done = [event for event in rest if event.type in vocabulary.RESULTS or event.type == "user.tool_confirmation"]
    more = f"session.events(until={after})"
    return [
        Section("summaries", "summaries of earlier parts:", 0.3, [_excerpt(event, 600) for event in summaries]),
        Section("first", "it began with:", 0.15, [_excerpt(event, 300) for event in first if event.id not in pinned]),
        Section("referenced", "earlier, still referred to:", 0.2, [_excerpt(event, 150) for event in referenced], more=more),
        Section("earlier", f"earlier, the latest first ({total} events in all):", 0.2, [_excerpt(event, 60) for event in said],
                more=more),
        Section("results", "what tools answered earlier, the latest first:", 0.1, [_excerpt(event, 40) for event in done],
                more=more),
    ]  # fmt: skip


def _cited(events: Iterable[SessionEvent]) -> set[int]:
    """The events that others name by their number, or answer."""
    found = {event.target for event in events if event.target is not None}
    for event in events:
        found |= {int(number) for number in _CITED.findall(event.text)}
    return found
