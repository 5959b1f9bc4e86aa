"""Thin layers over the library, each optional."""
