"""Every way to write a text into a store, each with what is to be forgotten for the text to be gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from agentmem import NewNote, Result, Scope, Store

# No word of the other texts has a part of it; it is analysed as one word without a stem of its own.
SECRET: Final = "zqvxjkwyzqu"
CHINESE: Final = "魑魅魍魉饕餮貔貅"
LONG_WORD: Final = "qzx" + "vjkw" * 60

Write: TypeAlias = Callable[[Store, str], object]
"""Writes the text and gives what to forget."""


def _goal(store: Store, **fields: object) -> int:
    return store.notes.add("goal", "Ship the release", **fields).id  # type: ignore[arg-type]


def _note(field: str) -> Write:
    def write(store: Store, text: str) -> object:
        return store.notes.add("fact", "What is known", **{field: text})  # type: ignore[arg-type]

    return write


def _title(store: Store, text: str) -> object:
    return store.notes.add("fact", f"The password is {text} today")


def _tag(store: Store, text: str) -> object:
    return store.notes.add("fact", "What is known", tags=["plain", text[:40]])


def _scope(store: Store, text: str) -> object:
    return store.notes.add("step", "Check all hosts", scope=Scope("host", f"attrs.area = '{text}'"))


def _edited_title(store: Store, text: str) -> object:
    note = store.notes.add("fact", f"The password is {text}")
    store.notes.update(note, title="The password is kept elsewhere", body="See the vault")
    return note


def _edited_body(store: Store, text: str) -> object:
    note = store.notes.add("fact", "What is known", body=f"First {text} then more")
    for number in range(5):
        store.notes.update(note, body=f"Revision {number} " + "of the body " * 40 * number)
    return note


def _attempt(store: Store, text: str) -> object:
    tried = store.attempts.open(f"Log in with {text}", task=_goal(store))
    store.attempts.close(tried, "failed", why="It is refused")
    return tried


def _why(store: Store, text: str) -> object:
    tried = store.attempts.open("Log in as admin")
    store.attempts.close(tried, "failed", why=f"Only {text} is accepted")
    return tried


def _item(store: Store, text: str) -> object:
    goal = _goal(store)
    return store.checklists.add(goal, "Before", f"Rotate {text} at once", "After").ids[1]


def _item_of_note(store: Store, text: str) -> object:
    goal = _goal(store)
    store.checklists.add(goal, "Before", f"Rotate {text} at once", done=True)
    return goal


def _removed_item(store: Store, text: str) -> object:
    goal = _goal(store)
    store.checklists.add(goal, "Before", f"Rotate {text} at once")
    store.checklists.remove(goal, 2)
    return f"{goal}.2"


def _edited_item(store: Store, text: str) -> object:
    goal = _goal(store)
    item = store.checklists.add(goal, f"Rotate {text} at once").ids[0]
    store.checklists.edit(item, "Rotate it at once")
    return item


def _checkpoint(store: Store, text: str) -> object:
    return store.checkpoint(f"Halfway through {text}, next the rest")


def _checkpoint_of_task(store: Store, text: str) -> object:
    goal = _goal(store)
    store.checkpoint(f"Halfway through {text}, next the rest", task=goal)
    return goal


def _summary(store: Store, text: str) -> object:
    goal = _goal(store)
    return store.summarize(goal, work=f"Rotated {text}", result="All is well", basis=f"Log of {text}")


def _replaced_summary(store: Store, text: str) -> object:
    goal = _goal(store)
    store.summarize(goal, result=f"All but {text} is well")
    store.summarize(goal, result="All is well")
    return goal


def _key(store: Store, text: str) -> object:
    store.entities.put("host", f"{text}.example.com", attrs={"port": 443})
    return f"host:{text}.example.com"


def _attr(store: Store, text: str) -> object:
    return store.entities.put("host", "a.example.com", attrs={"login": {"password": text}, "port": 443})


def _attr_name(store: Store, text: str) -> object:
    return store.entities.put("host", "a.example.com", attrs={text[:60]: True, "port": 443})


def _changed_attr(store: Store, text: str) -> object:
    host = store.entities.put("host", "a.example.com", attrs={"password": text})
    store.entities.put("host", "a.example.com", attrs={"password": "elsewhere"})
    return host


def _removed_attr(store: Store, text: str) -> object:
    host = store.entities.put("host", "a.example.com", attrs={"password": text})
    store.entities.put("host", "a.example.com", attrs={"password": None})
    return host


def _mark(store: Store, text: str) -> object:
    host = store.entities.put("host", "a.example.com")
    store.entities.mark("host", [host], {"tls": Result("fail", value={"cipher": text}), "dns": "pass"})
    return host


def _detail(store: Store, text: str) -> object:
    host = store.entities.put("host", "a.example.com")
    store.entities.mark("host", [host], {"tls": Result("fail", detail=f"It offers {text}")})
    return host


def _replaced_mark(store: Store, text: str) -> object:
    host = store.entities.put("host", "a.example.com")
    store.entities.mark("host", [host], {"tls": Result("fail", value=text, detail=f"It offers {text}")})
    store.entities.mark("host", [host], {"tls": "pass"})
    return host


def _unmarked(store: Store, text: str) -> object:
    host = store.entities.put("host", "a.example.com")
    store.entities.mark("host", [host], {"tls": Result("fail", value=text)})
    store.entities.unmark("host", [host], ["tls"])
    return host


def _renamed(store: Store, text: str) -> object:
    host = store.entities.put("host", f"{text}.example.com")
    store.entities.rename(f"host:{text}.example.com", "a.example.com")
    return host


def _link_kind(store: Store, text: str) -> object:
    one, other = store.entities.put("host", "a.example.com"), store.entities.put("host", "b.example.com")
    store.links.add(one, text[:40], other)
    store.links.remove(one, text[:40], other)
    store.links.add(one, text[:39], other)
    return one


def _entity_type(store: Store, text: str) -> object:
    return store.entities.put(text[:40], "a.example.com")


def _entity_status(store: Store, text: str) -> object:
    return store.entities.put("host", "a.example.com", status=text[:40])


def _beneath_entity(store: Store, text: str) -> object:
    above = store.entities.put("host", "a.example.com")
    store.entities.put("port", "443", attrs={"banner": text}, parent=above)
    return above


def _large_body(store: Store, text: str) -> object:
    line = f"Line of {text} in the report\n"
    return store.notes.add("fact", "A long report", body=line * (200_000 // len(line.encode())))


def _edited_large_body(store: Store, text: str) -> object:
    note = _large_body(store, text)
    store.notes.update(note, body="Another line of the report\n" * 7000)  # type: ignore[arg-type]
    return note


def _beneath(store: Store, text: str) -> object:
    goal = _goal(store)
    step = store.notes.add("step", "Look into it", parent=goal)
    store.notes.add("fact", f"It is {text}", parent=step, links=[("supports", goal)])
    return goal


def _undone_text(store: Store, text: str) -> object:
    note = store.notes.add("fact", "What is known")
    change = store.notes.update(note, body=f"It is {text}")
    store.undo(change.revision)
    return note


def _undone_note(store: Store, text: str) -> object:
    note = store.notes.add("fact", f"It is {text}")
    store.undo(note.id)
    return note.id


def _undone_beneath(store: Store, text: str) -> object:
    goal = _goal(store)
    with_items = store.acting(run="undone")
    step = with_items.notes.add("step", f"It is {text}", parent=goal)
    with_items.checklists.add(step, f"Rotate {text}")
    with_items.summarize(step, result=f"It was {text}")
    with_items.checkpoint(f"Halfway through {text}", task=step)
    with_items.notes.add("fact", f"Known of {text}", parent=step)
    store.undo(run="undone")
    return goal


def _undone_undo(store: Store, text: str) -> object:
    note = store.notes.add("fact", f"It is {text}")
    store.undo(store.undo(note.id).events)
    store.notes.update(note.id, title="It is known")
    return note.id


def _redacted_before(store: Store, text: str) -> object:
    note = store.notes.add("fact", "What is known", body="Nothing")
    store.notes.update(note, body=f"It is {text}")
    store.redact(note)
    return note


def _many_at_once(store: Store, text: str) -> object:
    notes = [NewNote("goal", f"Goal of {text}"), NewNote("step", f"Step of {text}", parent="$1")]
    return store.notes.add_many(notes, request_id="all").ids[0]


def _requested(store: Store, text: str) -> object:
    return store.notes.add("fact", f"It is {text}", request_id="once")


def _claimed(store: Store, text: str) -> object:
    note = store.notes.add("fact", f"It is {text}")
    store.claim(note)
    return note


def _untrusted(store: Store, text: str) -> object:
    return store.acting(origin="web").notes.add("fact", f"It is {text}", confidence=0.9)


def _declared(store: Store, text: str) -> object:
    return store.entities.expect("host", [text[:40], "tls"], where=f"attrs.area = '{text}'")


def _merged_entity(store: Store, text: str) -> object:
    kept = store.entities.put("host", "a.example.com", attrs={"password": "elsewhere"})
    second = store.in_project("second")
    second.entities.put("host", "a.example.com", attrs={"password": text})
    store.projects.merge("second", collisions="merge")
    return kept


WRITES: Final[Mapping[str, Write]] = {
    "title of a note": _title,
    "body": _note("body"),
    "basis": _note("basis"),
    "source": _note("source"),
    "tag": _tag,
    "scope of a step": _scope,
    "earlier title": _edited_title,
    "earlier body": _edited_body,
    "what was attempted": _attempt,
    "why an attempt failed": _why,
    "checklist item": _item,
    "item of a forgotten note": _item_of_note,
    "removed item": _removed_item,
    "earlier text of an item": _edited_item,
    "checkpoint": _checkpoint,
    "checkpoint of a task": _checkpoint_of_task,
    "summary": _summary,
    "replaced summary": _replaced_summary,
    "key of an entity": _key,
    "attribute": _attr,
    "name of an attribute": _attr_name,
    "changed attribute": _changed_attr,
    "removed attribute": _removed_attr,
    "value of a mark": _mark,
    "detail of a mark": _detail,
    "replaced mark": _replaced_mark,
    "mark taken away": _unmarked,
    "renamed entity": _renamed,
    "kind of a link of entities": _link_kind,
    "type of an entity": _entity_type,
    "status of an entity": _entity_status,
    "entity beneath another": _beneath_entity,
    "body of 200 KB": _large_body,
    "earlier body of 200 KB": _edited_large_body,
    "note beneath another": _beneath,
    "undone text": _undone_text,
    "undone note": _undone_note,
    "undone notes beneath": _undone_beneath,
    "note that is there again": _undone_undo,
    "text after a redaction": _redacted_before,
    "notes written together": _many_at_once,
    "note of a request": _requested,
    "claimed note": _claimed,
    "text from elsewhere": _untrusted,
    "expected checks": _declared,
    "entity merged into another": _merged_entity,
}


def surround(store: Store) -> None:
    """Records of every sort beside those that go, so that pages hold several and the index has several segments."""
    goal = store.notes.add("goal", "Another goal", body="A body of some length. " * 20)
    for number in range(30):
        step = store.notes.add("step", f"Another step {number}", parent=goal, body="Some more to read. " * number)
        store.checklists.add(step, f"Another item {number}")
        store.entities.put("host", f"other-{number}.example.com", attrs={"number": number, "text": "plain " * number})
        store.entities.mark("host", [f"other-{number}.example.com"], {"tls": Result("pass", detail="as it should be")})
    store.summarize(goal, result="Other results")
    store.checkpoint("Another checkpoint")


def family(store: Store) -> dict[str, int]:
    """A goal with all that may hang on it, about an entity, and others that point at both."""
    host = store.entities.put("host", "a.example.com", attrs={"os": "the one and only"}).id
    goal = store.notes.add("goal", "Ship the release", body="All of it at once", about=host).id
    step = store.notes.add("step", "Look into it well", parent=goal).id
    item = store.checklists.add(step, "Before anything else").ids[0]
    store.checkpoint("Halfway through with it", task=step)
    summary = store.summarize(step, result="All is well by now").id
    other = store.notes.add("fact", "Something else", about=host, links=[("supports", goal)]).id
    beside = store.entities.put("host", "b.example.com").id
    store.links.add(beside, "near", host)
    return {
        "host": host, "goal": goal, "step": step, "item": item, "summary": summary, "other": other, "beside": beside,
    }  # fmt: skip
