"""The event log: append, chain, read, replay."""
