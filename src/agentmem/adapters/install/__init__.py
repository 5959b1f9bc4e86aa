"""The installer: server, hooks and skill in the configuration of a client, and out of it again."""
