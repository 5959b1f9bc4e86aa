"""Pieces of SQL that travel from one query into another."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Binding: TypeAlias = str | int | float | None


class Sql(NamedTuple):
    """A piece of SQL and what its question marks stand for, in their order."""

    text: str
    bindings: list[Binding]


def qualified(columns: str, table: str) -> str:
    """A list of columns with their table before each, for a join."""
    return ", ".join(f"{table}.{name.strip()}" for name in columns.split(","))
