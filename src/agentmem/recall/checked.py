"""Calls of an embedder, which may be a caller's own code: what it gives is looked at before anything rests on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agentmem.errors import AgentMemError, EmbedderFailed, ModelMissing, shown
from agentmem.recall import embedder

if TYPE_CHECKING:
    import numpy.typing as npt

    from agentmem.recall.codes import Floats
    from agentmem.recall.embedder import Embedder

__all__ = ["embedded", "embedded_apart", "embedded_queries", "known", "proved", "windows"]

T = TypeVar("T")

_ID_CHARS: Final = 200
_DIM_MOST: Final = 65_536
_PROBE: Final = "ready"
_NEXT: Final = "Until it works, recall goes by words"


def proved(model: Embedder) -> Embedder:
    """The embedder, once it has shown that it works: what cannot be loaded says so here.

    Raises:
        ModelMissing: NumPy is not installed.
        EmbedderFailed: Its id or dim is not acceptable, or it does not give vectors.
    """
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise ModelMissing("Vectors need NumPy, which is not installed", why=str(error),
                           next="Install numpy; until then recall goes by words") from error  # fmt: skip
    id, dim = _guarded(model, lambda: (model.id, model.dim))
    if not isinstance(id, str) or not 0 < len(id) <= _ID_CHARS:
        raise EmbedderFailed(
            f"The id of the embedder is {shown(id)}", why=f"It is a text of 1 to {_ID_CHARS} characters", next=_NEXT
        )
    if not isinstance(dim, int) or isinstance(dim, bool) or not 0 < dim <= _DIM_MOST:
        raise EmbedderFailed(
            f"The dim of the embedder {shown(id)} is {shown(dim)}",
            why=f"It is a whole number from 1 to {_DIM_MOST:,}",
            next=_NEXT,
        )
    embedded(model, [_PROBE])
    return model


def embedded_apart(model: Embedder, texts: Sequence[str]) -> list[Floats | None]:
    """The vector of each text, float32 [dim]; None for one that the embedder cannot take, though it takes others.

    Raises:
        EmbedderFailed: It can take nothing now.
    """
    try:
        return list(embedded(model, texts)) if texts else []
    except EmbedderFailed:
        embedded(model, [_PROBE])
    found: list[Floats | None] = []
    for text in texts:
        try:
            found.append(embedded(model, [text])[0])
        except EmbedderFailed:
            found.append(None)
    if any(vector is None for vector in found):
        embedded(model, [_PROBE])  # it may have failed altogether since: then no text is to blame
    return found


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


def windows(model: Embedder, text: str, before: str) -> list[tuple[int, int]]:
    """The pieces of a text that are embedded one by one, each behind the line `before`, as (start, end) in characters.

    Raises:
        EmbedderFailed: The embedder raised an error, or gave what are no pieces of the text.
    """
    found = _guarded(
        model, lambda: [(index(start), index(end)) for start, end in embedder.windows_of(model, text, before)]
    )
    if not all(0 <= start < end <= len(text) for start, end in found):
        raise EmbedderFailed(
            f"The embedder {shown(model.id)} gave windows that are no pieces of the text",
            why="Each is (start, end) in characters, with 0 <= start < end <= len(text)",
            next=_NEXT,
        )
    return found


def _vectors(model: Embedder, texts: Sequence[str], embed: Callable[[Sequence[str]], Floats]) -> Floats:
    import numpy as np

    given = _guarded(model, lambda: np.asarray(embed(texts)))
    with np.errstate(all="ignore"):  # what overflows is no vector, which is said below
        found = _guarded(model, lambda: _real(given))
    if found.shape != (len(texts), model.dim):
        raise EmbedderFailed(
            f"The embedder {shown(model.id)} gave vectors of shape {found.shape} for {len(texts)} texts",
            why=f"They have to be [{len(texts)}, {model.dim}], as its dim says",
            next=_NEXT,
        )
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
    if not bool((np.isfinite(lengths) & (lengths > 0)).all()):
        raise EmbedderFailed(
            f"The embedder {shown(model.id)} gave what is no vector",
            why="A component is no number, or all are zero",
            next=_NEXT,
        )
    return np.asarray(found / lengths, np.float32)


def _guarded(model: Embedder, call: Callable[[], T]) -> T:
    try:
        return call()
    except AgentMemError:
        raise
    except Exception as error:  # whatever a caller's own code raises
        raise EmbedderFailed(
            f"The embedder {shown(type(model).__name__)} failed: {shown(_said(error))}",
            next=_NEXT,
        ) from error


def _real(given: npt.NDArray[Any]) -> Floats:
    import numpy as np

    if given.dtype.kind == "c":
        raise ValueError("its vectors are of complex numbers")
    return given.astype(np.float32)


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # nor need a caller's own error be able to say anything
        return type(error).__name__
