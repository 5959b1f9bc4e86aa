"""Durable working memory for AI agents in one encrypted SQLite file.

```python
from agentmem import Store

with Store.open("work.db", project="acme") as store:
    goal = store.notes.add("goal", "Check example.com")
    print(store.resume(goal).text)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentmem._version import __version__

if TYPE_CHECKING:
    from agentmem.errors import (
        AgentMemError,
        ApprovalNeeded,
        Busy,
        CipherMissing,
        Closed,
        Conflict,
        Corrupt,
        CredentialFound,
        DiskFull,
        EmbedderFailed,
        Held,
        InvalidInput,
        IoFailed,
        KeyChanged,
        KeyMissing,
        LimitExceeded,
        MissingExtra,
        ModelDamaged,
        ModelMissing,
        NetworkFileSystem,
        NewerFile,
        NotAStore,
        NotFound,
        NotInPast,
        OutOfReach,
        ReadOnly,
        RequestMismatch,
        StorageWarning,
        StoreExists,
        StoreMissing,
        StoreReplaced,
        ToolFailed,
        ToolTimeout,
        UndoBlocked,
        WhereError,
        WrongKey,
    )
    from agentmem.recall.embedder import Embedder
    from agentmem.recall.onnx_embedder import OnnxEmbedder
    from agentmem.records.entity_writes import Result, Row
    from agentmem.records.note_writes import NewNote
    from agentmem.records.projects import default_project
    from agentmem.session_types import Ready, SessionEvent, SessionInfo, Waiting
    from agentmem.store import Store
    from agentmem.store.session import Session
    from agentmem.types import UNSET, Entity, Event, Head, Item, Note, Receipt, Scope, Undone, Written, WrittenMany

__all__ = [
    "UNSET",
    "AgentMemError",
    "ApprovalNeeded",
    "Busy",
    "CipherMissing",
    "Closed",
    "Conflict",
    "Corrupt",
    "CredentialFound",
    "DiskFull",
    "Embedder",
    "EmbedderFailed",
    "Entity",
    "Event",
    "Head",
    "Held",
    "InvalidInput",
    "IoFailed",
    "Item",
    "KeyChanged",
    "KeyMissing",
    "LimitExceeded",
    "MissingExtra",
    "ModelDamaged",
    "ModelMissing",
    "NetworkFileSystem",
    "NewNote",
    "NewerFile",
    "NotAStore",
    "NotFound",
    "NotInPast",
    "Note",
    "OnnxEmbedder",
    "OutOfReach",
    "ReadOnly",
    "Ready",
    "Receipt",
    "RequestMismatch",
    "Result",
    "Row",
    "Scope",
    "Session",
    "SessionEvent",
    "SessionInfo",
    "StorageWarning",
    "Store",
    "StoreExists",
    "StoreMissing",
    "StoreReplaced",
    "ToolFailed",
    "ToolTimeout",
    "UndoBlocked",
    "Undone",
    "Waiting",
    "WhereError",
    "Written",
    "WrittenMany",
    "WrongKey",
    "__version__",
    "default_project",
]

# Where each public name is: the command line shows its help without loading the engine.
_PLACES = {
    "agentmem.errors": (
        "AgentMemError ApprovalNeeded Busy CipherMissing Closed Conflict Corrupt CredentialFound DiskFull EmbedderFailed Held "
        "InvalidInput IoFailed KeyChanged KeyMissing LimitExceeded MissingExtra ModelDamaged ModelMissing "
        "NetworkFileSystem NewerFile NotAStore NotFound NotInPast OutOfReach ReadOnly RequestMismatch StorageWarning StoreExists "
        "StoreMissing StoreReplaced ToolFailed ToolTimeout UndoBlocked WhereError WrongKey"
    ),
    "agentmem.recall.embedder": "Embedder",
    "agentmem.recall.onnx_embedder": "OnnxEmbedder",
    "agentmem.records.entity_writes": "Result Row",
    "agentmem.records.note_writes": "NewNote",
    "agentmem.records.projects": "default_project",
    "agentmem.session_types": "Ready SessionEvent SessionInfo Waiting",
    "agentmem.store": "Store",
    "agentmem.store.session": "Session",
    "agentmem.types": "UNSET Entity Event Head Item Note Receipt Scope Undone Written WrittenMany",
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker is to notice a name that is none

    def __getattr__(name: str) -> Any:
        """A public name, its module loaded on first use (PEP 562)."""
        place = _PLACE_OF.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        found = getattr(importlib.import_module(place), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
