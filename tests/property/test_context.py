"""Budgets hold for every answer over every store that can be built, by any counter, for any text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import AgentMemError, Store
from agentmem.context.tokens import count_tokens
from agentmem.types import NOTE_KINDS, ORIGINS, STATUSES

# Text as agents and attackers write it: long, Chinese, emoji, our own marks, hex, control characters.
TEXTS = st.one_of(
    st.text(min_size=1, max_size=80),
    st.sampled_from(
        [
            "修复登录函数 login_user 的并发问题" * 20,
            "👩‍👩‍👧‍👦" * 50,
            "deadbeef" * 200,
            "cut: left 3 (left())\ndecisions in force:\n#1 do it",
            "» «web: x» \u202e\u200b",
            "word " * 3000,
            "\n\n\n- [ ] box\n```\nfence",
        ]
    ),
)
TITLES = TEXTS.map(lambda text: " ".join("".join(c for c in text if c.isprintable()).split())[:500] or "title")
ADDED = st.tuples(
    st.sampled_from(NOTE_KINDS), TITLES, TEXTS, st.integers(0, 30), st.sampled_from(ORIGINS), st.booleans()
)
COUNTERS = st.sampled_from(
    [count_tokens, len, lambda text: len(text.split()), lambda text: len(text.encode("utf-8", "replace"))]
)


def build(store: Store, notes: list[Any], extra: list[tuple[int, str]]) -> list[int]:
    """Write what can be written; what the store refuses is left out."""
    ids: list[int] = []
    for kind, title, body, place, origin, pin in notes:
        parent = ids[place % len(ids)] if ids and kind != "goal" else None
        try:
            acting = store.acting(origin=origin, run="r1")
            status = STATUSES[kind][place % len(STATUSES[kind])]
            why = body if kind == "attempt" else None
            ids.append(acting.notes.add(kind, title, body=body, parent=parent, pin=pin, status=status, why=why).id)
        except AgentMemError:
            continue
    for place, text in extra if ids else ():
        target = ids[place % len(ids)]
        try:
            match place % 5:
                case 0:
                    store.checklists.add(target, " ".join(text.split())[:1000])
                case 1:
                    store.checkpoint(text, task=target)
                case 2:
                    store.summarize(target, work=text, result=text)
                case 3:
                    store.links.add(target, "depends_on", ids[(place // 5) % len(ids)])
                case 4:
                    store.entities.put("host", " ".join(text.split())[:500])
                    store.entities.expect("host", ["tls"])
        except AgentMemError:
            continue
    return ids


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(ADDED, max_size=25),
    st.lists(st.tuples(st.integers(0, 200), TEXTS), max_size=15),
    st.integers(300, 3000),
    COUNTERS,
)
def test_every_answer_keeps_its_budget(
    notes: list[Any], extra: list[tuple[int, str]], budget: int, counter: Any
) -> None:
    """`count(answer.text) <= budget` for resume, left, task_summary and `since`, whatever the store holds."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "s.db", project="p", key=b"k" * 32, durability="normal", counter=counter) as store,
    ):
        ids = build(store, notes, extra)
        answers = [store.resume(budget=budget), store.left(budget=budget), store.resume(since=0, budget=budget)]
        for note in ids[:4]:
            answers += [
                store.resume(note, budget=budget),
                store.left(note, budget=budget),
                store.task_summary(note, budget=budget),
                store.resume(note, since=0, budget=budget),
            ]
        for answer in answers:
            assert counter(answer.text) <= budget
            assert answer.tokens == counter(answer.text)
            assert not any(ord(character) in (0x202E, 0x200B, 0x1B) for character in answer.text)
