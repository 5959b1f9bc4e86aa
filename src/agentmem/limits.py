"""Every limit, with its unit. Bytes are of UTF-8."""

from __future__ import annotations

from typing import Final

# Text of records
TITLE_CHARS: Final = 500
BODY_BYTES: Final = 256 * 1024
WHY_BYTES: Final = 16 * 1024
BASIS_CHARS: Final = 1000
ITEM_CHARS: Final = 1000
CHECKPOINT_BYTES: Final = 64 * 1024
SUMMARY_BYTES: Final = 64 * 1024
DETAIL_CHARS: Final = 1000
MARK_BYTES: Final = 64 * 1024  # of a mark's value, as JSON

# A text of the log so long is stored once, by its hash. Rows of sessions are made by it: a change needs a migration.
BLOB_CHARS: Final = 4096

# Labels: author, run, task names, request ids, project names, tokens
LABEL_CHARS: Final = 64
REQUEST_ID_CHARS: Final = 128
PROJECT_CHARS: Final = 128
TOKEN_CHARS: Final = 48
TAG_CHARS: Final = 48
TAGS_PER_NOTE: Final = 32

# Entities
KEY_CHARS: Final = 512
ATTR_NAME_CHARS: Final = 64
ATTRS_PER_ENTITY: Final = 256
ATTRS_BYTES: Final = 64 * 1024
CHECKS_PER_DECLARATION: Final = 256

# Shape
TREE_LEVELS: Final = 64
JSON_DEPTH: Final = 32
INT_MAX: Final = 2**63 - 1
TIME_LEAST: Final = -62_135_596_800_000_000  # the year 1, in microseconds since 1970 UTC
TIME_MOST: Final = 253_402_300_799_999_999  # the end of the year 9999
ITEMS_PER_CHECKLIST: Final = 10_000
LINKS_PER_WRITE: Final = 64

# Many at once and pages
BATCH: Final = 10_000
PAGE: Final = 100
PAGE_MAX: Final = 1000
COUNT_EXACT: Final = 1000
GROUPS_MAX: Final = 1000

# Where
WHERE_CHARS: Final = 4000
WHERE_DEPTH: Final = 32
WHERE_TERMS: Final = 200
WHERE_VALUES: Final = 1000
WHERE_RESOLVED_CHARS: Final = 64 * 1024
ORDER_FIELDS: Final = 8
GROUP_FIELDS: Final = 4
QUERY_CHARS: Final = 2000

# Budget, in tokens by the store's counter
BUDGET_MIN: Final = 300
BUDGET_DEFAULT: Final = 2000
BUDGET_MAX: Final = 1_000_000

# Claims, in seconds
CLAIM_SECONDS: Final = 900
CLAIM_SECONDS_MAX: Final = 86_400

# Waiting: for other writers; for events, for the index; in seconds
BUSY_SECONDS_MAX: Final = 86_400
WAIT_SECONDS_MAX: Final = 1_000_000_000

# Requests remembered, in days
REQUEST_DAYS: Final = 30

# Undo: events taken back by one call
UNDO_EVENTS: Final = 100_000

# A view of the past: up to so many events all of it is folded, above that one project
AT_EVENTS: Final = 1_000_000

# Exports: one line, in bytes
EXPORT_LINE_BYTES: Final = 32 * 1024 * 1024

# Sessions
SESSION_EVENT_BYTES: Final = 16 * 1024 * 1024  # of one event's body, as JSON
SESSION_INDEXED_CHARS: Final = 256 * 1024  # of an event's text that are searched; as the tables have it
SESSION_EVENTS: Final = 1000  # appended by one call
METADATA_PAIRS: Final = 16
METADATA_NAME_CHARS: Final = 64
METADATA_VALUE_CHARS: Final = 512
AGENT_BYTES: Final = 64 * 1024
PIECE_CHARS: Final = 20_000  # of one piece of a long text
PIECE_CHARS_MAX: Final = 1_000_000
SESSION_LINEAGE: Final = 64  # forks of forks
SESSION_LEASE_SECONDS: Final = 60  # renewed while a harness is at work
WINDOW_DEFAULT: Final = 16_000  # tokens of a window
WINDOW_MIN: Final = 1000
PINNED_EVENTS: Final = 32
