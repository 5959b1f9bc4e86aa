"""Exports as somebody would make them who knows the format and means no good: consistent in themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentmem import Scope, Store
from agentmem.log import chain

NAMES = (
    "seq", "at", "project", "kind", "version", "type", "record", "session", "author", "run", "task", "origin", "request",
)  # fmt: skip
Lines = list[dict[str, Any]]


def tables(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every table that an export of the whole log carries, and the index made of it."""
    names = (
        "event", "project", "note", "link", "entity", "mark", "checks", "item", "checkpoint", "summary", "copied", "blob",
        "search",
    )  # fmt: skip
    with store.database.read() as connection:
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names}


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def spelled(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def write(path: Path, lines: Lines, *, sealed: bool = True) -> Path:
    """Write the lines; `sealed` computes digests, chain and counts anew, so that nothing contradicts itself."""
    if sealed:
        seal(lines)
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, "utf-8")
    return path


def seal(lines: Lines) -> None:
    first, *events, last = lines
    texts = sum("is" in line for line in events)
    events = [line for line in events if "seq" in line]
    if first["agentmem"] == "log":
        previous = chain.genesis(first["store"])
        first["head"]["seq"] = 0
    else:
        head = json.dumps(first, ensure_ascii=False, separators=(",", ":")).encode()
        previous = hashlib.sha256(b"agentmem copy 1\x00" + head).digest()
    for line in events:
        if "payload" in line:
            stored = ("@" if line.get("texts") else "") + spelled(line["payload"])
            digest = chain.digest(bytes.fromhex(line["salt"]), stored)
        else:
            digest = bytes.fromhex(line["digest"])
        previous = chain.link(previous, chain.header(*(line[name] for name in NAMES)), digest)
        line["chain"] = previous.hex()
    last["chain"] = previous.hex()
    last["end"] = {
        "seq": events[-1]["seq"] if events else 0,
        "events": len(events),
        "erased": sum("erased" in line for line in events),
        "records": sum(line["record"] == line["seq"] for line in events),
        "texts": texts,
    }


def forged(source: Path, target: Path, change: Callable[[Lines], None]) -> Path:
    """A copy of an export that somebody changed, and then made consistent again."""
    lines = lines_of(source)
    change(lines)
    return write(target, lines)


def event(lines: Lines, kind: str, nth: int = 0) -> dict[str, Any]:
    """The n-th event of a kind."""
    return [line for line in lines if line.get("kind") == kind][nth]


def filled(store: Store) -> int:
    """Write one record of each type; gives the goal."""
    goal = store.notes.add("goal", "Check example.com", scope=Scope("host"))
    step = store.notes.add("step", "Look at the ports", parent=goal, body="long " * 1000)
    store.entities.put("host", "web", attrs={"os": "linux"})
    store.entities.put("host", "db", parent="host:web")
    store.entities.mark("host", ["web"], {"tls": "pass"})
    store.entities.expect("host", ["tls"])
    store.notes.add("fact", "443 is open", parent=step, about="host:web", links=[("supports", goal)])
    store.checklists.add(step, "one", "two")
    store.checklists.done(step, 1)
    store.checkpoint("halfway", task=step)
    store.summarize(step, work="ports", result="one")
    store.notes.move(step, parent=goal, first=True)
    return goal.id


def payload(of: str, nth: int = 0, /, **changes: Any) -> Callable[[Lines], None]:
    """Has fields of a payload say something else."""

    def change(lines: Lines) -> None:
        event(lines, of, nth)["payload"] |= changes

    return change


def header(of: str, nth: int = 0, /, **changes: Any) -> Callable[[Lines], None]:
    """Has fields of a header say something else."""

    def change(lines: Lines) -> None:
        event(lines, of, nth).update(changes)

    return change
