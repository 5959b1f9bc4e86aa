"""What the log is about: for each kind of record its commands and how its events apply."""
