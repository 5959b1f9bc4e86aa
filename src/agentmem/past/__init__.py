"""The past and the end of a record: history, revisions, undo, time travel, purge."""
