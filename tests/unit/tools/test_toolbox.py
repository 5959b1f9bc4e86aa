"""The box of tools: what is listed and what it costs, closed schemas, errors that are answers, what `more` reaches."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentmem import NotFound, Store, StoreMissing
from agentmem.context.tokens import count_tokens
from agentmem.tools import Tool, Toolbox
from agentmem.tools.changing import CHANGING, ENDING
from agentmem.tools.guide import INSTRUCTIONS, agent_guide
from agentmem.tools.looking import LOOKING

NAMES = [
    "resume",
    "left",
    "recall",
    "get",
    "query",
    "attempt",
    "note",
    "update",
    "track",
    "mark",
    "claim",
    "summarize",
    "checkpoint",
    "more",
]


def seen(tools: tuple[Tool, ...]) -> str:
    """What a model sees of tools."""
    listed = [{"name": one.name, "description": one.description, "inputSchema": one.schema} for one in tools]
    return json.dumps({"tools": listed}, ensure_ascii=False, separators=(",", ":"))


def test_fourteen_tools_cost_less_than_two_thousand_tokens(box: Toolbox) -> None:
    """Name, description and schema, by the default counter."""
    assert [tool.name for tool in box.tools] == NAMES
    assert count_tokens(seen(box.tools)) <= 2000


def test_the_instructions_cost_five_hundred_tokens_at_most() -> None:
    """And the guide, which is read once, less than resume."""
    assert count_tokens(INSTRUCTIONS) <= 500
    assert count_tokens(agent_guide()) <= 2500


def schemas(of: Any) -> list[Mapping[str, Any]]:
    """A schema and all within it."""
    found = [of]
    for part in of.get("properties", {}).values():
        found += schemas(part)
    if "items" in of:
        found += schemas(of["items"])
    return found


@pytest.mark.parametrize("full", [False, True])
def test_schemas_are_closed_flat_and_plain(store: Store, full: bool) -> None:
    """No reference, no union with null, no generated title or default; every object with properties is closed."""
    for tool in Toolbox(store, full=full).tools:
        text = json.dumps(tool.schema)
        assert not any(
            word in text for word in ("$ref", "$defs", "anyOf", "oneOf", '"null"', '"title": "', '"default"')
        )
        for schema in schemas(tool.schema):
            assert schema.get("additionalProperties") is False or "properties" not in schema
            assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
        assert tool.name.replace("_", "").isalnum()
        assert len(tool.name) <= 64


def test_hints_say_what_a_tool_does(store: Store) -> None:
    """What reads, what can't be taken back; nothing destructive is listed by default."""
    full = {tool.name: tool for tool in Toolbox(store, full=True).tools}
    assert {name for name, tool in full.items() if tool.destructive} == {
        "forget", "redact", "projects_delete", "projects_merge",
    }  # fmt: skip
    core = Toolbox(store).tools
    assert {tool.name for tool in core if tool.read_only} == {"resume", "left", "recall", "get", "query"}
    assert not any(tool.destructive for tool in core)
    assert len(full) > 40


def test_read_only_tools_write_nothing(store: Store, calls: Any, work: dict[str, int]) -> None:
    """What is hinted as reading leaves no event, in whatever way it is called."""
    goal = str(work["goal"])
    samples = {
        "ref": goal, "refs": [goal], "task": goal, "note": str(work["hosts"]), "entity": "endpoint:GET /x",
        "type": "endpoint", "by": "check.authz", "query": "login", "what": "login", "seq": work["goal"], "before": work["goal"],
    }  # fmt: skip
    before = store.log.head()
    for verb in LOOKING:
        given = {name: samples[name] for name in verb.schema.get("required", ())}
        reply = calls.box.call("more", {"verb": verb.name, "args": given})
        assert reply.error is None, f"{verb.name}: {reply.text}"
        assert reply.text
    assert store.log.head() == before


def test_more_lists_verbs_explains_and_calls_them(calls: Any, work: dict[str, int]) -> None:
    """Without a verb the list, with one that needs arguments their names, with them the answer."""
    listed = calls.more().text
    assert all(f"{verb.name}: " in listed for verb in (*LOOKING, *CHANGING))
    assert count_tokens(listed) <= 1200
    assert "args {src: string, kind: string, dst: string" in calls.more(verb="links.add").text
    assert "Check example.com" in calls.more(verb="notes.list", args={"kind": "goal"}).text
    assert "Check example.com" in calls.more(verb="list", args={"kind": "goal"}).text


def test_more_never_reaches_what_cannot_be_taken_back(store: Store) -> None:
    """Not even in a box that lists all: there each is a tool of its own, for a host to ask about."""
    for full in (False, True):
        box = Toolbox(store, full=full)
        for verb in ENDING:
            reply = box.call("more", {"verb": verb.name, "args": {}})
            assert reply.error is not None
            assert reply.error.code == "not_found"
    for verb in ENDING:
        with pytest.raises(NotFound):
            Toolbox(store).call(verb.tool.name, {})


def test_more_points_to_the_listed_tools(calls: Any) -> None:
    """Names of the library lead to the tool that does it; a slip to the nearest."""
    assert "Call track itself" in calls.refused("more", verb="entities.put_many")
    assert "Did you mean notes.list?" in calls.refused("more", verb="notes.lst")


def test_every_changing_verb_works(calls: Any, store: Store, work: dict[str, int]) -> None:
    """Each verb beyond the listed tools, once, as a model would call it."""
    goal, step, hosts, decision = (str(work[name]) for name in ("goal", "step", "hosts", "decision"))

    def more(verb: str, **args: Any) -> str:
        return str(calls.more(verb=verb, args=args).text)

    more("links.add", src=step, kind="depends_on", dst=hosts)
    more("links.remove", src=step, kind="depends_on", dst=hosts)
    more("notes.move", note=hosts, before=step)
    more("notes.add", kind="fact", title="Retried", request_id="one")
    assert "repeated" in more("notes.add", kind="fact", title="Retried", request_id="one")
    assert "confirmed" in more("confirm", record=decision, confidence=0.8)
    more("checklists.edit", item=f"{hosts}.1", text="TLS")
    more("checklists.move", item=f"{hosts}.2", before=f"{hosts}.1")
    assert more("checklists.remove", note=hosts, items=["1"]) == "1 changed"
    more("entities.rename", entity="endpoint:GET /x", key="GET /y")
    calls.mark(type="endpoint", keys=["GET /y"], results={"authz": "pass"})
    more("entities.unmark", type="endpoint", keys=["GET /y"], names=["authz"])
    more("entities.expect", type="endpoint", checks=["authz"], where="status = :status", params={"status": "new"})
    calls.update(refs=[goal], set={"append": "a slip"})
    assert "1 events taken back" in more("undo", events=[store.log.head().seq])
    assert more("wait_for_index", seconds=30) == "all is embedded"
    more("projects.rename", name="acme-2")
    assert "acme-2" in more("projects.list")


def test_ending_verbs_are_tools_of_the_full_set(opened: Callable[..., Store], tmp_path: Path) -> None:
    """Forget shows first what goes; backup and export make files; import reads them back as others' words."""
    box = Toolbox(opened(), full=True)

    def call(name: str, **args: Any) -> Any:
        reply = box.call(name, args)
        assert reply.error is None, reply.text
        return reply

    (note,) = call("note", notes=[{"kind": "fact", "title": "hunter2"}]).data["ids"]
    assert call("forget", refs=[str(note)], dry_run=True).text.startswith("would go: 1 note")
    assert "events" in call("backup", path=str(tmp_path / "copy.db")).text
    call("export", path=str(tmp_path / "out.jsonl"))
    assert call("forget", refs=[str(note)]).text.startswith("gone: 1 note")
    (kept,) = call("note", notes=[{"kind": "fact", "title": "a secret"}]).data["ids"]
    call("update", refs=[str(kept)], set={"title": "no secret"})
    assert call("redact", ref=str(kept)).data["ids"] == [kept]
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "plan.md").write_text("# Plan\n\n- [ ] Do it\n", encoding="utf-8")
    call("import", path=str(folder))
    assert "«import: " in call("resume").text


def test_arguments_of_other_projects_and_of_the_past(calls: Any, store: Store, work: dict[str, int]) -> None:
    """`project` and `at` reach what the listed tools leave out."""
    calls.more(verb="notes.add", args={"kind": "fact", "title": "Elsewhere", "project": "other"})
    assert "Elsewhere" in calls.more(verb="notes.list", args={"project": "other"}).text
    assert "Elsewhere" not in calls.more(verb="notes.list").text
    assert "Elsewhere" in calls.more(verb="recall", args={"query": "elsewhere", "project": "*"}).text
    seq = store.log.head().seq
    calls.update(refs=[str(work["goal"])], set={"status": "done"})
    assert "[open]" in calls.more(verb="get", args={"refs": [str(work["goal"])], "at": seq}).text


def test_unknown_and_wrong_arguments_are_refused_with_what_is_known(calls: Any) -> None:
    """Each tool is closed; the nearest name is offered."""
    for tool in calls.box.tools:
        text = calls.refused(tool.name, nonsense=1)
        assert text.startswith("error invalid_input")
        assert "It takes" in text
    assert "Did you mean query?" in calls.refused("recall", querry="x")
    assert "recall needs query" in calls.refused("recall")


def test_habits_of_models_are_understood(calls: Any, work: dict[str, int]) -> None:
    """A number as a text, one for a list of one, JSON in a text, null for nothing."""
    assert calls.get(refs=work["goal"]).text == calls.get(refs=[f"#{work['goal']}"]).text
    assert calls.recall(query="corp", limit="3", kind=None).data["ids"]
    assert calls.update(refs=f'["{work["goal"]}"]', set='{"status": "active"}').text == "changed: status"
    assert "14.3" in calls.refused("get", refs=[14.3])


def test_an_unknown_tool_is_told_from_a_bad_call(box: Toolbox) -> None:
    """It is raised, with the nearest name."""
    with pytest.raises(NotFound, match="recal") as raised:
        box.call("recal", {})
    assert "Did you mean recall?" in raised.value.next


def test_a_store_that_does_not_open_is_the_answer_of_the_call(path: Path, opened: Callable[..., Store]) -> None:
    """And the next call tries again."""
    box = Toolbox(lambda: opened(create=False))
    reply = box.call("resume", {})
    assert isinstance(reply.error, StoreMissing)
    opened().notes.add("goal", "There now")
    assert "There now" in box.call("resume", {}).text
    box.close()
    assert box.call("resume", {}).error is not None


def test_it_opens_the_store_once_for_many_threads(opened: Callable[..., Store]) -> None:
    """However many call at first."""
    made: list[Store] = []

    def open_it() -> Store:
        made.append(opened())
        return made[-1]

    box = Toolbox(open_it)
    replies: list[str] = []
    threads = [threading.Thread(target=lambda: replies.append(box.call("left", {}).text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(replies) == 8


def test_a_number_larger_than_any_column_is_refused(calls: Any) -> None:
    """As a wrong value, not as an error of the store."""
    assert calls.refused("resume", budget=10**30).startswith("error invalid_input")
    note = {"kind": "fact", "title": "x", "confidence": 10**400}
    assert calls.refused("note", notes=[note]).startswith("error invalid_input")
