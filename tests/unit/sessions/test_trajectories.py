"""Recorded runs of agents as sessions: read as a conversation, and read back as they were."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import Store
from agentmem.errors import InvalidInput
from agentmem.records import vocabulary
from agentmem.transfer.trajectories import TRAJECTORY, trajectory_events, trajectory_of

RUNS = Path(__file__).resolve().parents[4] / "shared" / "data" / "trajectories"
LONG = "the same text, long enough to stand in one place only: " + "ü" * 50
NAME = st.sampled_from(["trajectory", "history", "thought", "action", "observation", "role", "content", "$", "x"])
TEXT = st.sampled_from(["", " ", "ls", LONG, LONG + "!", "\0" + LONG, "\ud800", "system", "user", "assistant"])
RUN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, st.text(max_size=5)),
    lambda part: st.one_of(st.lists(part, max_size=4), st.dictionaries(NAME, part, max_size=5)),
    max_leaves=40,
)
STEP = st.fixed_dictionaries({}, optional={"thought": TEXT, "action": TEXT, "observation": TEXT, "state": RUN})
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXT})
LIKE_A_RUN = st.fixed_dictionaries({"trajectory": st.lists(STEP, max_size=4), "history": st.lists(MESSAGE, max_size=4)})


def spelled(value: Any) -> str:
    """A value with the order of its names."""
    return json.dumps(value)


@settings(max_examples=300, deadline=None)
@given(run=st.one_of(RUN, LIKE_A_RUN))
def test_any_json_comes_back_identical(run: Any) -> None:
    """Whatever a file holds is rebuilt from its events, each of which the log takes."""
    events = trajectory_events(run)
    kept = [
        (of, vocabulary.checked(of, {**body, "tool_use_id": 1} if "tool_use_id" in body else body))
        for of, body in events
    ]
    assert spelled(trajectory_of(kept)) == spelled(run)


def test_a_run_reads_as_a_conversation() -> None:
    """What was asked, thought, done and seen is there in order; a result names its call."""
    run = {
        "history": [{"role": "system", "content": "Help."}, {"role": "user", "content": LONG}, {"role": "assistant"}],
        "trajectory": [
            {"thought": "First look.", "action": "ls", "observation": "a.py", "state": {"cwd": "/"}},
            {"thought": "", "action": "cat a.py", "observation": ""},
        ],
    }
    events = trajectory_events(run)
    assert [of for of, _ in events] == [
        "system.message", "user.message", "agent.message", "agent.tool_use", "agent.tool_result", "agent.tool_use",
        "agent.tool_result", TRAJECTORY,
    ]  # fmt: skip
    assert [body["tool_use_id"] for of, body in events if of == "agent.tool_result"] == [-4, -6]
    assert LONG not in events[-1][1]["json"]


def test_a_run_that_lacks_an_event_is_refused() -> None:
    """Without its last event, or one that a text stands in, there is nothing to rebuild."""
    events = trajectory_events({"history": [{"role": "user", "content": LONG}], "again": LONG})
    for some in ([], events[:-1], events[1:]):
        with pytest.raises(InvalidInput):
            trajectory_of(some)


@pytest.mark.data
@pytest.mark.skipif(not RUNS.is_dir(), reason="the shared real data is absent")
def test_real_runs_are_sessions_and_come_back_byte_for_byte(store: Store) -> None:
    """Each file is imported as a session and rebuilt from the log: laid out as it was, it is the same bytes."""
    counted: Counter[str] = Counter()
    paths = sorted(RUNS.glob("*.traj"))
    assert len(paths) == 15
    for path in paths:
        raw = path.read_text(encoding="utf-8")
        run = json.loads(raw)
        session = store.sessions.start(title=path.stem)
        session.extend(trajectory_events(run))
        events = session.events(limit=1000)
        counted.update(event.type for event in events)
        again = trajectory_of([(event.type, event.body) for event in events if event.body is not None])
        assert again == run
        layouts = [
            json.dumps(again, indent=indent, ensure_ascii=escaped) for indent in (2, 4) for escaped in (True, False)
        ]
        assert raw.strip() in layouts
        assert session.window(budget=4000).tokens <= 4000
        said = " ".join(event.text for event in events)
        for step in run.get("trajectory", ()):
            assert (
                step["action"] in json.dumps(said, ensure_ascii=False)
                or json.dumps(step["action"], ensure_ascii=False)[1:-1] in said
            )
            assert step["observation"] in said
    assert counted["agent.tool_use"] == counted["agent.tool_result"] > 100
    assert store.verify()
