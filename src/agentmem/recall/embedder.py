"""Texts to vectors: what an embedder is, and the one that the package ships.

Without NumPy, ONNX Runtime or tokenizers this module can be imported; `ModelMissing` says so when a vector is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

from agentmem.recall.model_folder import Folder, Pooling
from agentmem.recall.onnx_embedder import OnnxEmbedder

if TYPE_CHECKING:
    import os

    import numpy as np
    import numpy.typing as npt

    from agentmem.types import Unset

    # A folder of a model, an embedder of the caller's own, none at all; `UNSET` for that of the environment or the shipped.
    EmbedderChoice: TypeAlias = "Embedder | str | os.PathLike[str] | None | Unset"

__all__ = ["Embedder", "OnnxEmbedder", "embed_queries", "knows", "shipped", "windows_of"]

_MAX_TOKENS: Final = 256  # of the shipped model, the two that stand around each text included
WINDOW_CHARS: Final = 1000  # for embedders that cannot tell tokens: English of some 254 tokens
OVERLAP_CHARS: Final = 120

_FOLDER: Final = Path(__file__).parent / "model"
GRAPH_SHA256: Final = "f4f4fcd88c976b283965c196f3a018ea9ace65a275c4e201c95f03648db1359f"
TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"


@runtime_checkable
class Embedder(Protocol):
    """What makes vectors of texts.

    It may offer more, which is used where it is there: `embed_queries(texts)`, where questions are embedded otherwise than
    what answers them; `knows(texts) -> list[bool]`, whether it understands each; `windows(text, before=)`, the
    pieces of a long text as (start, end) in characters, each to be read behind `before`.

    Attributes:
        id: Names the model and all that changes its vectors. Vectors of one id can be compared, of two never.
        dim: Components of a vector.
    """

    @property
    def id(self) -> str:
        """See `Embedder`."""
        ...

    @property
    def dim(self) -> int:
        """See `Embedder`."""
        ...

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of the texts, [len(texts), dim], each row of length 1."""
        ...


def embed_queries(embedder: Embedder, texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Vectors of questions, [len(texts), dim]: by the embedder's own `embed_queries` where it has one."""
    own = getattr(embedder, "embed_queries", None)
    vectors: npt.NDArray[np.float32] = (own or embedder.embed)(texts)
    return vectors


def knows(embedder: Embedder, texts: Sequence[str]) -> list[bool]:
    """Whether the embedder understands each text. One that cannot say is taken to, where there is anything to read."""
    own = getattr(embedder, "knows", None)
    if own is None:
        return [any(map(str.isalnum, text)) for text in texts]
    return [bool(known) for known in own(texts)]


def windows_of(embedder: Embedder, text: str, before: str = "") -> list[tuple[int, int]]:
    """The pieces of a text that are embedded one by one, as (start, end) in characters: one where all of it fits.

    Each is embedded behind a line `before`, which takes some of the room. An embedder that cannot tell tokens gets pieces
    of `WINDOW_CHARS`, cut at blanks where there are any.
    """
    own = getattr(embedder, "windows", None)
    if own is not None:
        return [(start, end) for start, end in own(text, before=before)]
    return _by_characters(text)


def _by_characters(text: str) -> list[tuple[int, int]]:
    found, start = [], 0
    while len(text) - start > WINDOW_CHARS:
        most = start + WINDOW_CHARS
        blank = max(text.rfind(mark, start + WINDOW_CHARS // 2, most) for mark in (" ", "\n"))
        end = most if blank < 0 else blank
        found.append((start, end))
        start = end - OVERLAP_CHARS
    return [*found, (start, len(text))]


_LOCK: Final = threading.Lock()
_SHIPPED: list[OnnxEmbedder] = []


def shipped() -> OnnxEmbedder:
    """The embedder inside the package: all-MiniLM-L6-v2, English, 384 components. One a process; it loads on first use.

    Reads texts of 256 tokens. Its files are compared with the hashes they were released with when they are loaded.
    """
    if not _SHIPPED:
        made = OnnxEmbedder.of(_shipped_folder())
        with _LOCK:
            if not _SHIPPED:
                _SHIPPED.append(made)
    return _SHIPPED[0]


def _shipped_folder() -> Folder:
    return Folder(
        name="all-MiniLM-L6-v2",
        graph=_FOLDER / "minilm.onnx",
        tokenizer=_FOLDER / "tokenizer.json",
        pooling=Pooling.MEAN,
        dim=384,
        max_tokens=_MAX_TOKENS,
        graph_sha256=GRAPH_SHA256,
        tokenizer_sha256=TOKENIZER_SHA256,
    )
