"""Files with something in them, and what can happen to their bytes. No store of the file may be open in this process."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from agentmem import Head, Store
from agentmem.engine.connection import cipher_set, connection_bare
from agentmem.engine.pages import PAGE_BYTES, raw_key_of

KEY = bytes(range(32))
LONG = " ".join(["a long text that is kept once"] * 400)


def filled(path: Path, facts: int = 400, *, key: bytes | str | None = KEY) -> Head:
    """A store with a few of everything, closed again; the end of its log."""
    with Store.open(path, project="acme", key=key, encrypted=key is not None, durability="normal", run="r1") as store:
        goal = store.notes.add("goal", "Move to the queue", request_id="first")
        with store.transaction():
            for number in range(facts):
                body = LONG if number % 100 == 7 else f"what was seen at the {number}th look " * (number % 30)
                store.notes.add(
                    "fact", f"Fact {number}", body=body, parent=goal, similar=False, request_id=f"fact-{number}"
                )
        store.entities.put_many("host", keys=[f"h{number}" for number in range(20)], attrs={"port": 443})
        store.entities.mark("host", ["h1", "h2"], {"tls": "pass"})
        store.checklists.add(goal, "Read one message", "Acknowledge it")
        store.summarize(goal, result="Half of it")
        store.checkpoint("In the middle")
        store.claim([goal])
        return store.log.head()


def trees(path: Path, key: bytes | str | None = KEY) -> dict[str, list[int]]:
    """The pages of each table and index, those without children last."""
    connection = connection_bare(str(path), apsw.SQLITE_OPEN_READWRITE)
    try:
        if key is not None:
            cipher_set(connection, raw_key_of(path, key))
        found: dict[str, list[int]] = {}
        for name, page in connection.execute("SELECT name, pageno FROM dbstat ORDER BY pagetype = 'leaf'"):
            found.setdefault(str(name), []).append(int(page))  # type: ignore[arg-type]
        return found
    finally:
        connection.close()


def flip(path: Path, *pages: int, at: int = 1000) -> None:
    """One bit of each of these pages."""
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES + at)
            (byte,) = file.read(1)
            file.seek((page - 1) * PAGE_BYTES + at)
            file.write(bytes([byte ^ 1]))


def blank(path: Path, *pages: int) -> None:
    """Zeros in the place of each of these pages."""
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(bytes(PAGE_BYTES))


def cut(path: Path, size: int) -> None:
    """The file ends there."""
    with path.open("r+b") as file:
        file.truncate(size)


def behind(path: Path, *statements: str, key: bytes | str | None = KEY) -> None:
    """SQL on the file, behind the library's back."""
    with (
        Store.open(path, project="acme", key=key, encrypted=key is not None, durability="normal") as store,
        store.database.write() as connection,
    ):
        for statement in statements:
            connection.execute(statement)


def foreign(path: Path, *statements: str) -> None:
    """SQL of another program on a plain file."""
    connection = sqlite3.connect(path)
    try:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()


def copies(path: Path, *names: str) -> list[Path]:
    """Byte for byte, beside it."""
    return [Path(shutil.copy(path, path.with_name(name))) for name in names]


def names(directory: Path) -> set[str]:
    """What is there."""
    return {each.name for each in directory.iterdir()}


def contents(store: Store, tables: Iterable[str] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of these tables; of the log and all that is made of it if none are named."""
    from agentmem.records.kinds import KINDS

    with store.database.read() as connection:
        wanted = tuple(tables) or ("event", "blob", *KINDS.projections)
        return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in wanted}
