"""The tables of sessions and of their events, as a part of the migrations. Never edited after its release."""

from __future__ import annotations

from typing import Final

__all__ = ["AWAKE", "LONG_CHARS", "MESSAGE_TEXT", "SEARCHED_CHARS", "SESSIONS"]

# Of what a row holds, so that a replay gives the same for ever: no limits, which may change.
LONG_CHARS: Final = 4096  # a text so long is named by its hash
SEARCHED_CHARS: Final = 256 * 1024  # of a text that are searched

# Sessions that a worker has to look at: somebody answered, a time comes, or one was at work.
AWAKE: Final = (
    "archived_at IS NULL AND status <> 'terminated' AND (status <> 'idle' OR asked > settled OR due IS NOT NULL)"
)

# The text of an event of a session that is searched, `{row}` standing for its row.
MESSAGE_TEXT: Final = f"""
coalesce(nullif({{row}}.text, ''),
         (SELECT substr(blob.text, 1, {SEARCHED_CHARS}) FROM blob WHERE blob.hash = {{row}}.long), '')
"""

SESSIONS: Final = (
    # `settled` is the seq of the last change of its status, `asked` that of the last event that wants an answer, `last`
    # that of its last event, `compacted` that of the last one that says what stands for the events before it.
    """
    CREATE TABLE session (
        id INTEGER PRIMARY KEY,
        project INTEGER NOT NULL,
        title TEXT,
        task INTEGER,
        agent TEXT,
        entity INTEGER,
        metadata TEXT NOT NULL,
        parent INTEGER,
        forked_from INTEGER,
        forked_at INTEGER,
        status TEXT NOT NULL,
        stop TEXT,
        due INTEGER,
        archived_at INTEGER,
        settled INTEGER NOT NULL,
        asked INTEGER NOT NULL,
        last INTEGER NOT NULL,
        compacted INTEGER,
        origin TEXT NOT NULL,
        author TEXT,
        run TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX session_project ON session (project)",
    "CREATE INDEX session_task ON session (task) WHERE task IS NOT NULL",
    "CREATE INDEX session_entity ON session (entity) WHERE entity IS NOT NULL",
    "CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX session_forked ON session (forked_from) WHERE forked_from IS NOT NULL",
    f"CREATE INDEX session_awake ON session (project) WHERE {AWAKE}",
    # The events of sessions. `target` is the event that one answers; `open` says of a call of a tool that it has no result,
    # `asks` that a person has to answer it; `text` is what of it is searched, empty where that is a long text, named by its
    # hash. Of a purged one the frame stays, so that calls keep their results.
    """
    CREATE TABLE message (
        id INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        project INTEGER NOT NULL,
        type TEXT NOT NULL,
        key TEXT,
        target INTEGER,
        text TEXT,
        long BLOB,
        open INTEGER NOT NULL,
        asks INTEGER NOT NULL,
        gone INTEGER NOT NULL,
        origin TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX message_session ON message (session)",
    # What a window looks for at each call, however much was called and answered since.
    "CREATE INDEX message_asked ON message (session) WHERE type = 'user.message'",
    "CREATE INDEX message_summary ON message (session) WHERE type = 'x.summary'",
    "CREATE INDEX message_key ON message (session, key) WHERE key IS NOT NULL",
    "CREATE INDEX message_open ON message (session) WHERE open = 1",
    "CREATE INDEX message_target ON message (target) WHERE target IS NOT NULL",
    "CREATE INDEX message_asks ON message (project) WHERE asks = 1",
    "CREATE INDEX message_untrusted ON message (project) WHERE origin IN ('import', 'tool', 'web')",
)
