"""The store: one open file, and every verb on it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import apsw

from agentmem import context, limits, text
from agentmem.context.tokens import Counter, count_tokens
from agentmem.engine.database import Database, SqlFunction
from agentmem.engine.keys import Key
from agentmem.engine.migrations import SCHEMA
from agentmem.errors import InvalidInput, NotAStore
from agentmem.log.ledger import Ledger, Transaction, system_clock
from agentmem.records import claims, confirm, entities, reports, scopes, validate
from agentmem.records.attempts import Attempts
from agentmem.records.base import Binding, Leases, Unit
from agentmem.records.checklists import Checklists
from agentmem.records.entities import Entities
from agentmem.records.kinds import KINDS
from agentmem.records.links import Links
from agentmem.records.notes import Notes
from agentmem.records.projects import Projects, default_project
from agentmem.records.refs import identify, note_id
from agentmem.records.where import SQL_FUNCTIONS
from agentmem.recall.find import Found, find
from agentmem.types import (
    UNSET,
    Actor,
    Claim,
    Event,
    Head,
    Origin,
    Record,
    Ref,
    Scope,
    Status,
    Unset,
    Written,
    WrittenMany,
)

FUNCTIONS = (
    SqlFunction("agentmem_analyse", text.analyse, 1),
    *(SqlFunction(name, call, 1) for name, call in SQL_FUNCTIONS.items()),
)
