"""The store: one open file, and every verb on it."""

from __future__ import annotations

from agentmem.store.opening import Store

__all__ = ["Store"]
