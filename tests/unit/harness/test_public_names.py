"""What a newcomer meets first: the names that can be imported, and what is said of the usual mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import agentmem
from agentmem import Store, errors, harness
from agentmem.errors import InvalidInput
from agentmem.harness import Harness, Reply


def test_every_name_that_is_promised_is_there() -> None:
    """Each name of `__all__` can be had, and is listed by `dir`."""
    for package in (agentmem, harness):
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(package.__all__) <= set(dir(package))


def test_every_error_can_be_caught_by_its_name() -> None:
    """Each exception is a name of the package."""
    assert set(errors.__all__) <= set(agentmem.__all__)


@pytest.mark.parametrize("place", ["agentmem", "agentmem.harness"])
def test_a_name_that_is_none_is_an_error(place: str) -> None:
    """An import of it fails; nothing answers in its place."""
    done = subprocess.run([sys.executable, "-c", f"from {place} import Sesion"], capture_output=True, check=False)
    assert b"ImportError" in done.stderr


def test_a_function_that_is_no_tool_is_told_how_to_become_one(store: Store) -> None:
    """A function without the decorator is refused by name."""

    def order(number: int) -> str:
        return str(number)

    with pytest.raises(InvalidInput, match=r"agentmem\.harness\.tool"):
        Harness(store, lambda request: Reply.of("hi"), [order])  # type: ignore[list-item]


def test_an_agent_file_without_a_name_is_told_so(store: Store, tmp_path: Path) -> None:
    """The message says what is missing."""
    path = tmp_path / "agent.json"
    path.write_text("{}")
    with pytest.raises(InvalidInput, match="no name"):
        Harness.from_file(store, path, lambda request: "hi")


def test_what_a_question_in_chinese_asks_for_is_in_the_line_that_answers_it(store: Store) -> None:
    """The place of a long text stands whole in a small window, also in a script that says more in each character."""
    session = store.sessions.start()
    asked = session.append("agent.tool_use", {"name": "policy", "input": {}}).id
    text = "物流记录很长。" * 2000 + "退货政策:七天内无理由退货。"
    session.append("agent.tool_result", {"tool_use_id": asked, "content": text})
    for number in range(40):
        session.append("user.message", f"第{number}个问题:发票抬头写什么?")
        session.append("agent.message", f"第{number}个回答:写公司名称。")
    session.append("user.message", "退货政策是什么?")
    assert "七天内无理由退货" in session.window(budget=1500).tail


def test_no_module_hides_a_public_name() -> None:
    """Once it is imported a module of the package is an attribute of it: none may be named as a function is."""
    import pkgutil

    from agentmem import harness

    modules = {each.name for each in pkgutil.iter_modules(harness.__path__)}
    assert not modules & set(harness.__all__)
