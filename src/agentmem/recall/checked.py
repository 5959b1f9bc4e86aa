"""Calls of an embedder, which may be a caller's own code: what it gives is looked at before anything rests on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from agentmem.errors import AgentMemError, EmbedderFailed, shown
from agentmem.recall import embedder

if TYPE_CHECKING:
    from agentmem.recall.codes import Floats
    from agentmem.recall.embedder import Embedder

T = TypeVar("T")

__all__ = ["embedded", "embedded_queries", "known"]


def embedded(model: Embedder, texts: Sequence[str]) -> Floats:
    """The vectors of texts, float32 [len(texts), dim], each of length 1.

    Raises:
        EmbedderFailed: The embedder raised an error, or gave what are no such vectors.
    """
    return _vectors(model, texts, model.embed)


def embedded_queries(model: Embedder, texts: Sequence[str]) -> Floats:
    """The vectors of queries; as `embedded`."""
    return _vectors(model, texts, lambda asked: embedder.embed_queries(model, asked))


def known(model: Embedder, text: str) -> bool:
    """Whether the embedder understands a text.

    Raises:
        EmbedderFailed: It raised an error.
    """
    return _guarded(model, lambda: embedder.knows(model, [text])[0])


def _vectors(model: Embedder, texts: Sequence[str], embed: Callable[[Sequence[str]], Floats]) -> Floats:
    import numpy as np

    found = _guarded(model, lambda: np.asarray(embed(texts), np.float32))
    if found.shape != (len(texts), model.dim):
        raise EmbedderFailed(
            f"The embedder {shown(model.id)} gave vectors of shape {found.shape} for {len(texts)} texts",
            why=f"They have to be [{len(texts)}, {model.dim}], as its dim says",
        )
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if not bool((np.isfinite(lengths) & (lengths > 0)).all()):
        raise EmbedderFailed(
            f"The embedder {shown(model.id)} gave what is no vector", why="A component is no number, or all are zero"
        )
    return np.asarray(found / lengths, np.float32)


def _guarded(model: Embedder, call: Callable[[], T]) -> T:
    try:
        return call()
    except AgentMemError:
        raise
    except Exception as error:  # whatever a caller's own code raises
        raise EmbedderFailed(
            f"The embedder {shown(type(model).__name__)} failed: {shown(str(error))}",
            next="Until it works, recall goes by words",
        ) from error
