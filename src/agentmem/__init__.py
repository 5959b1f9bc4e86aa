"""Durable working memory for AI agents in one encrypted SQLite file.

```python
from agentmem import Store

with Store.open("work.db", project="acme") as store:
    goal = store.notes.add("goal", "Check example.com")
    print(store.resume(goal).text)
```
"""

from agentmem._version import __version__
from agentmem.errors import (
    AgentMemError,
    Busy,
    CipherMissing,
    Closed,
    Conflict,
    Corrupt,
    CredentialFound,
    Held,
    InvalidInput,
    KeyChanged,
    KeyMissing,
    LimitExceeded,
    NetworkFileSystem,
    NewerFile,
    NotAStore,
    NotFound,
    ReadOnly,
    RequestMismatch,
    StoreExists,
    StoreMissing,
    WhereError,
    WrongKey,
)
from agentmem.records.entity_writes import Result, Row
from agentmem.records.note_writes import NewNote
from agentmem.records.projects import default_project
from agentmem.store import Store
from agentmem.types import UNSET, Entity, Event, Head, Item, Note, Scope, Written, WrittenMany

__all__ = [
    "UNSET",
    "AgentMemError",
    "Busy",
    "CipherMissing",
    "Closed",
    "Conflict",
    "Corrupt",
    "CredentialFound",
    "Entity",
    "Event",
    "Head",
    "Held",
    "InvalidInput",
    "Item",
    "KeyChanged",
    "KeyMissing",
    "LimitExceeded",
    "NetworkFileSystem",
    "NewNote",
    "NewerFile",
    "NotAStore",
    "NotFound",
    "Note",
    "ReadOnly",
    "RequestMismatch",
    "Result",
    "Row",
    "Scope",
    "Store",
    "StoreExists",
    "StoreMissing",
    "WhereError",
    "WrongKey",
    "Written",
    "WrittenMany",
    "__version__",
    "default_project",
]
