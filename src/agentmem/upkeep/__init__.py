"""The file as a whole: sizes, checks, backup, restore, a new key."""
