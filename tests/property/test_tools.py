"""Tools under any arguments: an answer or a typed error, never anything else; nothing half-written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import Store
from agentmem.tools import Toolbox
from agentmem.tools.looking import LOOKING
from agentmem.tools.specs import CORE

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.sampled_from(["1", "2", "2.1", "host:a", "$1", "goal", "fact", "done", "pass", "[1", '{"a": 1}', "\x00", "\ud800"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({name for tool in CORE for name in tool.schema["properties"]})


def plausible(tool: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of a tool by their names, with values of every kind."""
    return st.dictionaries(st.sampled_from(sorted(tool.schema["properties"])), VALUES, max_size=4)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Tools over a small store."""
    path: Path = tmp_path_factory.mktemp("tools") / "work.db"
    store = Store.open(path, project="acme", key=bytes(range(32)), durability="normal", embedder=None)
    store.notes.add("goal", "Check")
    store.checklists.add(2, "one")
    store.entities.put("host", "a")
    tools = Toolbox(store)
    yield tools
    tools.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_arguments_give_an_answer_or_a_typed_error(box: Toolbox, data: st.DataObject) -> None:
    """With a code, in words; a refused call leaves the log as it was."""
    tool = data.draw(st.sampled_from(CORE))
    given_ = data.draw(plausible(tool) | VALUES)
    before = box.store.log.head()
    reply = box.call(tool.name, given_)
    assert isinstance(reply.text, str)
    if reply.error is not None:
        assert reply.text.startswith(f"error {reply.error.code}: ")
        assert box.store.log.head() == before


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_reading_verbs_write_nothing_whatever_they_are_given(box: Toolbox, data: st.DataObject) -> None:
    """Neither by a good call nor by a bad one."""
    verb = data.draw(st.sampled_from(LOOKING))
    given_ = data.draw(st.dictionaries(st.sampled_from(sorted(verb.schema["properties"])), VALUES, max_size=4))
    before = box.store.log.head()
    box.call("more", {"verb": verb.name, "args": given_})
    assert box.store.log.head() == before
