"""Finding what was written."""
