"""The tables, as numbered migrations. A migration is never edited after its release.

`event` is the truth. `project` to `message` are projections of it, with no cascades and no
validating constraints: replay must never fail where the first write did not. Content columns may be
null: an erased record leaves a stub. `meta`, `lease`, `request`, `blob` and `vector` are operational
state outside the log. `search` is the full-text index, kept by triggers; triggers also take away the
vectors of a text that changes.
"""

from __future__ import annotations

from typing import Final

from agentmem.engine.schema import Migration
from agentmem.engine.session_tables import MESSAGE_TEXT, SESSIONS
from agentmem.text import FTS_TOKENIZE

# Tables outside the log: a replay does not make them, a copy of the log does not carry them.
OPERATIONAL: Final = ("meta", "lease", "request", "blob", "vector")

# Conditions of partial indexes. A query uses such an index only if it says the same in the same words.
LEFT: Final = "shut = 0 AND kind IN ('goal', 'step') AND status IN ('open', 'active')"
ITEMS_LEFT: Final = "shut = 0 AND open_items > 0 AND status NOT IN ('done', 'failed', 'dropped')"
ITEMS_CLOSED: Final = "open_items > 0 AND (shut = 1 OR status IN ('done', 'failed', 'dropped'))"
# Events after which a record has no row, though its text is in the log still: its creation was taken back, or it was
# made a part of another.
GONE: Final = "substr(kind, -10) = '.withdrawn' OR substr(kind, -7) = '.merged'"
# Unfinished tasks beneath a closed one, where nobody looks for them.
SHUT: Final = "shut = 1 AND kind IN ('goal', 'step') AND status IN ('open', 'active')"
# Marks that are told by their words: routine ones, which passed or did not apply and say no more, are found by queries.
TOLD: Final = "({row}.detail IS NOT NULL OR {row}.value IS NOT NULL OR {row}.result IN ('fail', 'error'))"
DOUBTED: Final = "status = 'active' AND kind IN ('fact', 'decision', 'lesson') AND confidence < 0.5"
# Decisions tagged `scope` say what the work may touch at all.
RULES: Final = "kind = 'decision' AND status = 'active' AND instr(tags, '\"scope\"')"
# The order of facts: the surest first, then the newest; imported ones as their files have them.
SUREST: Final = "coalesce(confidence, 0.5) DESC, run IS 'import', iif(run IS 'import', id, -id)"

_EVENT = """
CREATE TABLE event (
    seq INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    project INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    type TEXT NOT NULL,
    record INTEGER NOT NULL,
    session INTEGER,
    author TEXT,
    run TEXT,
    task INTEGER,
    origin TEXT NOT NULL,
    request TEXT,
    payload TEXT,
    salt BLOB,
    digest BLOB NOT NULL,
    chain BLOB NOT NULL,
    session_chain BLOB
) STRICT
"""

_PROJECTIONS = (
    """
    CREATE TABLE project (
        id INTEGER PRIMARY KEY,
        name TEXT,
        created_at INTEGER NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX project_name ON project (name)",
    # `root` is the top of the tree a note stands in; `shut` says that a closed task stands above it;
    # `open_items` counts its unticked items: what is left is answered from two small indexes.
    # `changed` is the seq of the last change of content; `touched` that of the last event that makes
    # the summaries above stale: the same, a child that moved away, an item, a summary.
    """
    CREATE TABLE note (
        id INTEGER PRIMARY KEY,
        project INTEGER NOT NULL,
        kind TEXT NOT NULL,
        title TEXT,
        body TEXT,
        status TEXT NOT NULL,
        tags TEXT NOT NULL,
        parent INTEGER,
        root INTEGER NOT NULL,
        position REAL NOT NULL,
        pinned INTEGER NOT NULL,
        confidence REAL,
        basis TEXT,
        entity INTEGER,
        why TEXT,
        scope TEXT,
        dated INTEGER,
        source TEXT,
        digest TEXT,
        origin TEXT NOT NULL,
        confirmed_at INTEGER,
        confirmed_by TEXT,
        author TEXT,
        run TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        changed INTEGER NOT NULL,
        touched INTEGER NOT NULL,
        shut INTEGER NOT NULL,
        open_items INTEGER NOT NULL DEFAULT 0
    ) STRICT
    """,
    # A walk down the tree reads this index only; it also finds the children of one kind.
    "CREATE INDEX note_parent ON note (parent, kind, status, position) WHERE parent IS NOT NULL",
    "CREATE INDEX note_root ON note (root, kind, status)",
    "CREATE INDEX note_project ON note (project, kind, status)",
    "CREATE INDEX note_entity ON note (entity) WHERE entity IS NOT NULL",
    "CREATE INDEX note_top ON note (project, kind, status) WHERE parent IS NULL",
    "CREATE INDEX note_touched ON note (root, touched)",
    # The surest facts, of a tree and of a project.
    f"CREATE INDEX note_facts ON note (root, {SUREST}) WHERE kind = 'fact' AND status = 'active'",
    f"CREATE INDEX note_sure ON note (project, {SUREST}) WHERE kind = 'fact' AND status = 'active'",
    "CREATE INDEX note_pinned ON note (project, parent) WHERE pinned = 1",
    "CREATE INDEX note_untrusted ON note (project, kind, status) WHERE origin IN ('import', 'tool', 'web')",
    "CREATE INDEX note_scope ON note (project, root) WHERE scope IS NOT NULL",
    # What is left: all of it, what has a priority, what holds more of it, what is being done.
    f"CREATE INDEX note_left ON note (project, root) WHERE {LEFT}",
    f"CREATE INDEX note_tagged ON note (project, root) WHERE {LEFT} AND tags <> '[]'",
    f"CREATE INDEX note_holds ON note (parent) WHERE {LEFT}",
    "CREATE INDEX note_flight ON note (project, kind) WHERE shut = 0 AND status = 'active' AND kind IN ('attempt', 'step')",
    # Notes with unticked items: those that count as left, and those that are closed.
    f"CREATE INDEX note_items ON note (project, root, position, id, open_items) WHERE {ITEMS_LEFT}",
    f"CREATE INDEX note_closed ON note (project, root, open_items) WHERE {ITEMS_CLOSED}",
    f"CREATE INDEX note_shut ON note (project, root) WHERE {SHUT}",
    # What was written down without much faith in it, the least first.
    f"CREATE INDEX note_doubted ON note (project, confidence, root) WHERE {DOUBTED}",
    "CREATE INDEX note_confirmed ON note (project) WHERE confirmed_at IS NOT NULL",
    # Decisions that bound the work: they are told first.
    f"CREATE INDEX note_rules ON note (project, root) WHERE {RULES}",
    # What came from elsewhere and nobody confirmed, of the kinds that would rule the work.
    """
    CREATE INDEX note_foreign ON note (project, root)
    WHERE kind IN ('decision', 'lesson') AND status = 'active' AND origin IN ('import', 'tool', 'web')
    """,
    "CREATE INDEX note_source ON note (project, source) WHERE source IS NOT NULL",
    """
    CREATE TABLE link (
        src INTEGER NOT NULL,
        dst INTEGER NOT NULL,
        kind TEXT NOT NULL,
        seq INTEGER NOT NULL,
        author TEXT,
        run TEXT,
        origin TEXT NOT NULL,
        PRIMARY KEY (src, kind, dst)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX link_dst ON link (dst, kind)",
    "CREATE INDEX link_overrules ON link (seq) WHERE kind IN ('contradicts', 'supersedes')",
    """
    CREATE TABLE entity (
        id INTEGER PRIMARY KEY,
        project INTEGER NOT NULL,
        type TEXT NOT NULL,
        key TEXT,
        status TEXT NOT NULL,
        attrs TEXT NOT NULL,
        parent INTEGER,
        confidence REAL,
        origin TEXT NOT NULL,
        author TEXT,
        run TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX entity_key ON entity (project, type, key)",
    "CREATE INDEX entity_type ON entity (project, type)",
    "CREATE INDEX entity_parent ON entity (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX entity_untrusted ON entity (project) WHERE origin IN ('import', 'tool', 'web')",
    # `project` and `type` are the entity's own, kept here so that coverage is counted from one index.
    """
    CREATE TABLE mark (
        entity INTEGER NOT NULL,
        name TEXT NOT NULL,
        result TEXT NOT NULL,
        value TEXT,
        detail TEXT,
        at INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        author TEXT,
        run TEXT,
        origin TEXT NOT NULL,
        project INTEGER NOT NULL,
        type TEXT NOT NULL,
        PRIMARY KEY (entity, name)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX mark_coverage ON mark (project, type, name, result)",
    "CREATE INDEX mark_check ON mark (name, entity, result)",
    """
    CREATE TABLE checks (
        id INTEGER PRIMARY KEY,
        project INTEGER NOT NULL,
        type TEXT NOT NULL,
        filter TEXT NOT NULL,
        names TEXT NOT NULL,
        origin TEXT NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX checks_type ON checks (project, type, filter)",
    """
    CREATE TABLE item (
        id INTEGER PRIMARY KEY,
        note INTEGER NOT NULL,
        number INTEGER NOT NULL,
        text TEXT,
        done INTEGER NOT NULL,
        done_by TEXT,
        done_at INTEGER,
        position REAL NOT NULL,
        origin TEXT NOT NULL,
        removed INTEGER NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX item_number ON item (note, number)",
    "CREATE INDEX item_open ON item (note, position) WHERE done = 0 AND removed = 0",
    "CREATE INDEX item_untrusted ON item (id) WHERE removed = 0 AND origin IN ('import', 'tool', 'web')",
    """
    CREATE TABLE checkpoint (
        id INTEGER PRIMARY KEY,
        project INTEGER NOT NULL,
        task INTEGER,
        text TEXT,
        dated INTEGER,
        author TEXT,
        run TEXT,
        origin TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX checkpoint_task ON checkpoint (project, task)",
    "CREATE INDEX checkpoint_tasks ON checkpoint (project) WHERE task IS NOT NULL",
    """
    CREATE TABLE summary (
        id INTEGER PRIMARY KEY,
        note INTEGER NOT NULL,
        work TEXT,
        result TEXT,
        confidence REAL,
        basis TEXT,
        author TEXT,
        run TEXT,
        origin TEXT NOT NULL,
        at INTEGER NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX summary_note ON summary (note)",
    "CREATE INDEX summary_revision ON summary (revision, note)",
    "CREATE INDEX summary_untrusted ON summary (id) WHERE origin IN ('import', 'tool', 'web')",
    *SESSIONS,
    # What was copied from another store: the record that the other's record of this seq became here.
    """
    CREATE TABLE copied (
        store TEXT NOT NULL,
        seq INTEGER NOT NULL,
        record INTEGER NOT NULL,
        PRIMARY KEY (store, seq)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX copied_record ON copied (record)",
)

_OPERATIONAL = (
    """
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE lease (
        record INTEGER PRIMARY KEY,
        holder TEXT,
        run TEXT,
        secret BLOB NOT NULL,
        taken_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX lease_run ON lease (run)",
    """
    CREATE TABLE request (
        project INTEGER NOT NULL,
        id TEXT NOT NULL,
        arguments BLOB NOT NULL,
        result TEXT NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (project, id)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX request_at ON request (at)",
    # Long texts of payloads, each once however many events have it; `uses` counts them.
    """
    CREATE TABLE blob (
        hash BLOB PRIMARY KEY,
        text TEXT NOT NULL,
        uses INTEGER NOT NULL
    ) STRICT
    """,
    # A piece of a record's text by its meaning: `code` is the unit vector as signed bytes, each times `scale`; `begin`
    # and `finish` are characters of the text. An id is never used again, so that readers may go on from the last one.
    """
    CREATE TABLE vector (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        record INTEGER NOT NULL,
        begin INTEGER NOT NULL,
        finish INTEGER NOT NULL,
        scale REAL NOT NULL,
        code BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX vector_record ON vector (record)",
)

# Without FTS5's secure-delete: it misses the earlier text of a row that is deleted and inserted in one transaction if a
# term of the later one takes 64 bytes of positions or more (SQLite 3.54), and that entry then outlives the row. A purge
# merges the index whole.
_SEARCH = (f'CREATE VIRTUAL TABLE search USING fts5 (title, body, extra, tokenize = "{FTS_TOKENIZE}")',)


# The marks of an entity as a text, `$` standing for its row.
MARKS_TOLD: Final = f"""(
    SELECT group_concat(told, char(10)) FROM (
        SELECT concat_ws(' ', name, result, value, detail) AS told FROM mark
        WHERE entity = $id AND {TOLD.format(row="mark")} ORDER BY name
    )
)"""


def _kept(table: str, title: str, body: str, extra: str, *, columns: str, when: str) -> tuple[str, str, str]:
    """The three triggers that keep a table's rows in the index; `$` stands for the new row.

    The index stores the analysed text, so a delete removes what was inserted even if the analyser
    is another one by now. An update that sets no indexed column does not touch the index.
    """
    parts = [part.replace("$", "new.") for part in (title, body, extra)]
    row = ", ".join(["new.id", *("''" if part == "''" else f"agentmem_analyse({part})" for part in parts)])
    kept = when.replace("$", "new.")
    return (
        f"""
        CREATE TRIGGER {table}_search_insert AFTER INSERT ON {table} WHEN {kept} BEGIN
            INSERT INTO search (rowid, title, body, extra) VALUES ({row});
        END
        """,
        f"""
        CREATE TRIGGER {table}_search_update AFTER UPDATE OF {columns} ON {table} BEGIN
            DELETE FROM search WHERE rowid = old.id;
            INSERT INTO search (rowid, title, body, extra) SELECT {row} WHERE {kept};
        END
        """,
        f"""
        CREATE TRIGGER {table}_search_delete AFTER DELETE ON {table} BEGIN
            DELETE FROM search WHERE rowid = old.id;
        END
        """,
    )


_TRIGGERS = (
    *_kept(
        "note",
        "$title",
        "concat_ws(char(10), $body, $why, $basis)",
        "$tags",
        columns="title, body, why, basis, tags",
        when="new.title IS NOT NULL",
    ),
    *_kept(
        "entity",
        "$key",
        f"concat_ws(char(10), $attrs, {MARKS_TOLD})",
        "concat_ws(' ', $type, $status)",
        columns="key, attrs, type, status",
        when="$key IS NOT NULL",
    ),
    *_kept("item", "$text", "''", "''", columns="text, removed", when="$text IS NOT NULL AND NOT $removed"),
    *_kept("checkpoint", "''", "$text", "''", columns="text", when="$text IS NOT NULL"),
    *_kept(
        "summary",
        "''",
        "concat_ws(char(10), $result, $work, $basis)",
        "''",
        columns="work, result, basis",
        when="coalesce($work, $result) IS NOT NULL",
    ),
    *_kept(
        "message",
        "''",
        MESSAGE_TEXT.format(row="$").replace("$.", "$"),
        "''",
        columns="text, long",
        when="$text IS NOT NULL",
    ),
)


def _marked(event: str, row: str, told: str) -> str:
    """The trigger that has an entity's row of the index made anew when one of its marks changes that is told there."""
    return f"""
        CREATE TRIGGER mark_search_{event} AFTER {event.upper()} ON mark WHEN {told} BEGIN
            UPDATE entity SET attrs = attrs WHERE id = {row}.entity;
        END
        """


_MARK_TRIGGERS = (
    _marked("insert", "new", TOLD.format(row="new")),
    _marked("update", "new", f"{TOLD.format(row='new')} OR {TOLD.format(row='old')}"),
    _marked("delete", "old", TOLD.format(row="old")),
)


def _embedded(table: str, *columns: str) -> tuple[str, ...]:
    """The triggers that take away the vectors of a record whose text changes or goes: none outlives its text."""
    return tuple(
        f"""
        CREATE TRIGGER {table}_vector_{event.split()[0].lower()} AFTER {event} ON {table} BEGIN
            DELETE FROM vector WHERE record = old.id;
        END
        """
        for event in (f"UPDATE OF {', '.join(columns)}", "DELETE")
    )


_VECTOR_TRIGGERS = (
    *_embedded("note", "title", "body", "why", "basis"),
    *_embedded("entity", "type", "key", "attrs"),
    *_embedded("item", "text", "removed"),
    *_embedded("checkpoint", "text"),
    *_embedded("summary", "work", "result", "basis"),
    *_embedded("message", "text", "long"),
)

SCHEMA: Final = (
    Migration(
        1,
        "initial",
        (
            _EVENT,
            "CREATE INDEX event_record ON event (record)",
            "CREATE INDEX event_project ON event (project)",
            # Which projects became part of one: their history is its own then.
            "CREATE INDEX event_merged ON event (project) WHERE kind = 'project.merged'",
            "CREATE INDEX event_session ON event (session) WHERE session IS NOT NULL",
            # The latest events of notes, however many of sessions come after them.
            "CREATE INDEX event_noted ON event (project) WHERE type = 'note'",
            f"CREATE INDEX event_gone ON event (record) WHERE {GONE}",
            *_PROJECTIONS,
            *_OPERATIONAL,
            *_SEARCH,
            *_TRIGGERS,
            *_MARK_TRIGGERS,
            *_VECTOR_TRIGGERS,
        ),
    ),
)
