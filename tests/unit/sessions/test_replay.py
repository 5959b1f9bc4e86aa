"""Sessions as a property: after any commands the log verifies and replays to the tables, and what was purged is not said."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import AgentMemError, Store
from agentmem.records import vocabulary
from agentmem.store.sessions import Session

NUMBER = st.integers(0, 40)
STEPS = st.lists(st.tuples(st.integers(0, 29), NUMBER, NUMBER), max_size=30)


def ids(store: Store, sql: str) -> list[int]:
    with store.database.read() as connection:
        return [int(row[0]) for row in connection.execute(sql).fetchall() if row[0] is not None]


def pick(of: list[int], number: int) -> int:
    return of[number % len(of)]


def _call(store: Store, number: int) -> int:
    marks = ", ".join(f"'{of}'" for of in sorted(vocabulary.CALLS))
    return pick(ids(store, f"SELECT id FROM message WHERE type IN ({marks})"), number)


def _spoken(store: Store, session: Session, what: int, word: str, number: int) -> object:
    match what % 12:
        case 0 | 1:
            return session.append("user.message", word)
        case 2:
            return session.append("agent.tool_use", {"name": "a", "input": {"q": word}, "permission": "ask"})
        case 3:
            return session.append("agent.custom_tool_use", {"name": "a", "input": {"q": word}})
        case 4:
            call = _call(store, number)
            of, name = vocabulary.result_of(store.sessions.get(session).event(call).type)
            return session.append(of, {name: call, "content": word})
        case 5:
            return session.confirm(_call(store, number), "deny", message=word)
        case 6:
            return session.append("x.plan", {"text": word}, key=f"k{number % 2}")
        case 7:
            return session.append("session.status_running")
        case 8:
            return session.append("session.status_idle", {"stop_reason": {"type": "end_turn"}, "due": number + 1})
        case 9:
            return session.append("agentmem.timer", {"at": number, "note": word})
        case 10:
            return session.append(
                "agentmem.tool_started", {"tool_use_id": _call(store, number), "key": "k", "attempt": 1}
            )
        case _:
            return session.compact(
                budget=1000, pinned=ids(store, f"SELECT id FROM message WHERE session = {session.id}")[:1]
            )


def perform(store: Store, what: int, one: int, other: int, word: str) -> object:
    """One command; which records it concerns is chosen by numbers."""
    sessions = ids(store, "SELECT id FROM session")
    if not sessions or what == 12:
        about = f"customer:{'AB'[one % 2]}" if one % 3 == 0 else None
        parent = pick(sessions, other) if sessions and one % 5 == 0 else None
        tasks = ids(store, "SELECT id FROM note WHERE kind = 'goal'")
        task = pick(tasks, other) if tasks and one % 2 else None
        return store.sessions.start(title=word, about=about, parent=parent, task=task, metadata={"a": word})
    session = store.sessions.get(pick(sessions, one))
    match what:
        case 13:
            events = ids(store, f"SELECT id FROM message WHERE session = {session.id}")
            return session.fork(pick([session.id, *events], other))
        case 14:
            return session.change(title=word, metadata={"b": word})
        case 15:
            return session.change(archived=other % 2 == 0)
        case 16 | 17 | 18:
            return store.forget(pick(ids(store, "SELECT id FROM message"), other))
        case 19:
            return store.forget(session)
        case 20:
            return store.redact(session)
        case 21:
            return store.forget(pick(ids(store, "SELECT id FROM note UNION SELECT id FROM entity"), other))
        case 22:
            session.hold()
            session.give_back()
            return None
        case 23:
            return store.undo(pick(ids(store, "SELECT seq FROM event"), other))
        case 24:
            return store.notes.add("goal", word)
        case 25:
            return session.store.notes.add("fact", word)
        case 26:
            return store.in_project("other").projects.merge("acme")
        case 27:
            return store.redact(pick(ids(store, "SELECT id FROM note UNION SELECT id FROM entity"), other))
        case 28:
            store.entities.put("customer", "A")
            return store.entities.put("customer", "B")
        case _:
            return _spoken(store, session, what, word, other)


def _attempt(command: Callable[[], object]) -> None:
    try:
        command()
    except AgentMemError:
        pass
    except ZeroDivisionError:
        pass  # there is nothing yet that the command could concern


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_sessions_replay_to_their_tables(steps: list[tuple[int, int, int]]) -> None:
    """Whatever was said, changed, forked, held, merged, redacted and purged, in any order."""
    ticks = count(1_750_000_000_000_000)
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/s.db"
        key = bytes(range(32))
        with Store.open(path, project="acme", key=key, durability="normal", clock=lambda: next(ticks)) as store:
            store.entities.put("customer", "A")
            for number, (what, one, other) in enumerate(steps):
                _attempt(lambda: perform(store, what, one, other, f"word{number}"))  # noqa: B023
            assert store.verify(replay=True).problems == ()
            with store.database.read() as connection:
                orphans = connection.execute(
                    "SELECT id FROM message WHERE session NOT IN (SELECT id FROM session)"
                    " OR project <> (SELECT project FROM session WHERE session.id = message.session)"
                ).fetchall()
            assert orphans == []
            store.export(f"{directory}/log.jsonl")
            for session in ids(store, "SELECT id FROM session"):
                assert store.sessions.get(session).audit().sound
            spoken = ids(store, "SELECT id FROM message ORDER BY id")
        with Store.open(f"{directory}/t.db", project="acme", key=key, durability="normal") as again:
            again.import_(f"{directory}/log.jsonl")
            assert again.verify(replay=True).problems == ()
            assert ids(again, "SELECT id FROM message ORDER BY id") == spoken
