"""Entities in memory, for the tests of `where`, `order` and `group`."""

from __future__ import annotations

import json

import apsw
import pytest

from agentmem.records.where import (
    ENTITY_FIELDS,
    SQL_FUNCTIONS,
    Sql,
    compile_cursor,
    compile_group,
    compile_order,
    make_cursor,
    parse,
)

NOW = 1_800_000_000_000_000
SCHEMA = (
    "CREATE TABLE entity (id INTEGER PRIMARY KEY, project INTEGER, type TEXT, key TEXT, status TEXT, confidence REAL,"
    " parent INTEGER, attrs TEXT, author TEXT, run TEXT, origin TEXT, created_at INTEGER, updated_at INTEGER,"
    " revision INTEGER) STRICT",
    "CREATE TABLE mark (entity INTEGER, name TEXT, result TEXT, value TEXT, detail TEXT, at INTEGER,"
    " PRIMARY KEY (entity, name)) STRICT, WITHOUT ROWID",
    "CREATE INDEX mark_check ON mark (name, entity, result)",
    "CREATE TABLE lease (record INTEGER PRIMARY KEY, expires_at INTEGER) STRICT",
    "CREATE INDEX entity_key ON entity (project, type, key)",
    "CREATE INDEX entity_updated ON entity (project, type, updated_at)",
)


class Table:
    """Entities in memory, chosen by `where`."""

    now = NOW

    def __init__(self):
        self.db = apsw.Connection(":memory:")
        for name, function in SQL_FUNCTIONS.items():
            self.db.create_scalar_function(name, function, 1, deterministic=True)
        for statement in SCHEMA:
            self.db.execute(statement)

    def put(self, id, attrs=None, checks=None, claimed_until=None, **columns):
        row = {"project": 1, "type": "t", "key": f"k{id}", "status": "new", "origin": "agent", "created_at": id}
        row |= {"updated_at": id, "revision": 1, "attrs": json.dumps(attrs or {}, ensure_ascii=False)} | columns
        names = ["id", *row]
        marks = ", ".join("?" * len(names))
        self.db.execute(f"INSERT INTO entity ({', '.join(names)}) VALUES ({marks})", [id, *row.values()])
        for name, mark in (checks or {}).items():
            result, value, detail = mark if isinstance(mark, tuple) else (mark, None, None)
            value = None if value is None else json.dumps(value)
            self.db.execute("INSERT INTO mark VALUES (?, ?, ?, ?, ?, 1)", (id, name, result, value, detail))
        if claimed_until is not None:
            self.db.execute("INSERT INTO lease VALUES (?, ?)", (id, claimed_until))

    def ids(self, source, **params):
        text, bindings = parse(source, ENTITY_FIELDS, params, now=NOW).sql
        return [row[0] for row in self.db.execute(f"SELECT e.id FROM entity AS e WHERE {text} ORDER BY e.id", bindings)]

    def pages(self, order, size):
        found, after = [], None
        compiled = compile_order(order, ENTITY_FIELDS, now=NOW)
        columns = compiled.columns
        while True:
            more = Sql("TRUE", []) if after is None else compile_cursor(after, compiled, "all")
            rows = self.db.execute(
                f"SELECT e.id, {columns.text} FROM entity AS e WHERE {more.text} ORDER BY {compiled.sql} LIMIT ?",
                [*columns.bindings, *more.bindings, size],
            ).fetchall()
            if not rows:
                return found
            found += [row[0] for row in rows]
            after = make_cursor(compiled, "all", rows[-1][1:])

    def groups(self, source, **options):
        grouping = compile_group(source, ENTITY_FIELDS, now=NOW, **options)
        query = grouping.select(Sql("FROM entity AS e WHERE e.project = ?", [1]))
        return grouping.read(self.db.execute(*query))

    def plan(self, query):
        return [row[3] for row in self.db.execute("EXPLAIN QUERY PLAN " + query.text, query.bindings)]


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def typed(table):
    """One attribute `x` with a value of each type; entity 1 has none."""
    values = [None, True, False, 1, 1.5, "1", "true", "", ["a", 1, True], {"a": 1}, 0]
    table.put(1)
    for n, value in enumerate(values, start=2):
        table.put(n, {"x": value})
    return table
