"""Embedding with ONNX Runtime on the CPU: sessions, batches, pooling.

A vector depends on its text alone: shorter texts of a batch are padded and masked.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from agentmem.errors import InvalidInput, ModelDamaged, ModelMissing, shown
from agentmem.recall.model_folder import Folder, Pooling, read_folder
from agentmem.recall.tokens import OVERLAP_TOKENS, Tokens, packages_missing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import onnxruntime  # type: ignore[import-untyped]

    Floats = npt.NDArray[np.float32]

__all__ = ["OnnxEmbedder"]

# Tokens of one batch, padding included: what is between two layers stays in the second cache. Batches of 4,096 tokens
# took 1.6 times as long for each text.
BATCH_TOKENS: Final = 512
THREADS: Final = 2
_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_QUIET: Final = "ORT_DISABLE_TELEMETRY"
_FATAL: Final = 4  # the runtime prints nothing; its errors come as exceptions
_DIGEST_CHARS: Final = 16


class OnnxEmbedder:
    """A sentence-transformers model as ONNX: any folder with a graph and a `tokenizer.json`.

    Pooling, prompts and the most tokens are read from the folder's configuration. Vectors have length 1. Nothing but the
    configuration is read before the first use. One embedder may be used by many threads; a forked child loads the graph
    again.

    Args:
        path: The folder.
        threads: How many batches are computed at a time; by default two, or one on a single core. Speed only.
        max_tokens: What is read of a text, special tokens included; by default as the folder says.
        query_prompt: Stands before each query; by default the folder's prompt `query`.
        text_prompt: Stands before each other text; by default the folder's prompt `document` or `passage`.

    Raises:
        ModelMissing: The folder lacks the graph or the tokenizer.
        ModelDamaged: A file of the configuration does not parse. When used: a file does not load or run.
        InvalidInput: The configuration asks for what is not supported.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        max_tokens: int | None = None,
        query_prompt: str | None = None,
        text_prompt: str | None = None,
    ) -> None:
        folder = read_folder(Path(path))
        given: dict[str, Any] = {"max_tokens": max_tokens, "query_prompt": query_prompt, "text_prompt": text_prompt}
        self._begin(evolve(folder, **{name: value for name, value in given.items() if value is not None}), threads)

    @classmethod
    def of(cls, folder: Folder, *, threads: int | None = None) -> OnnxEmbedder:
        """An embedder of files that are described already."""
        made = cls.__new__(cls)
        made._begin(folder, threads)
        return made

    def _begin(self, folder: Folder, threads: int | None) -> None:
        if threads is not None and threads < 1:
            raise InvalidInput(f"threads is {shown(threads)}", next="Give 1 or more.")
        if folder.max_tokens < 1:
            raise InvalidInput(f"max_tokens is {shown(folder.max_tokens)}", next="Give 1 or more.")
        self._folder = folder
        self._threads = threads or min(THREADS, _cores())
        self._loaded: dict[int, _Loaded] = {}

    def __repr__(self) -> str:
        return f"<OnnxEmbedder {self._folder.name}>"

    @property
    def id(self) -> str:
        """The model's name and a hash of its files and of every setting that changes vectors."""
        return self._here.id

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return self._folder.dim or self._here.graph.dim

    def embed(self, texts: Sequence[str]) -> Floats:
        """Vectors of the texts, float32 [len(texts), dim], each row of length 1.

        A text is read as far as `max_tokens`.

        Raises:
            ModelMissing: A package or file that it needs is not there.
            ModelDamaged: A file is not what it should be, or the model gives what is no vector.
        """
        return self._vectors(self._folder.text_prompt, texts)

    def embed_queries(self, texts: Sequence[str]) -> Floats:
        """Vectors of queries: as `embed`, with the prompt that the model wants before them."""
        return self._vectors(self._folder.query_prompt, texts)

    def knows(self, texts: Sequence[str]) -> list[bool]:
        """Whether the model understands each text: at most a fifth of its words' tokens are unknown to it.

        Unknown are words that the vocabulary lacks and all letters of scripts that it knows from single letters only. A text
        without words is not understood.
        """
        return self._here.tokens.knows(texts)

    def windows(
        self, text: str, *, size: int | None = None, overlap: int = OVERLAP_TOKENS, before: str = ""
    ) -> list[tuple[int, int]]:
        """The pieces of a text that the model reads in one go, in order, as (start, end) in characters.

        Cut between words, at the end of a paragraph or sentence if there is one in the last quarter.

        Args:
            text: Any text.
            size: The most tokens of a piece; by default as many as the model reads.
            overlap: Tokens that a piece shares with the one before, at most; never more than half of a piece.
            before: What stands before each piece when it is embedded; it takes half of the room at most.
        """
        tokens = self._here.tokens
        room = self._folder.max_tokens - tokens.around - tokens.count(self._folder.text_prompt)
        left = max(room // 2, room - tokens.count(f"{before}\n")) if before else room
        most = max(1, min(size or left, left))
        return tokens.windows(text, size=most, overlap=max(0, min(overlap, most // 2)))

    def load(self) -> None:
        """Load the model now and not with the first text."""
        _ = self._here.graph

    @property
    def _here(self) -> _Loaded:
        """What this process loaded. A forked child begins anew: threads of the parent's session are not in it."""
        mine = self._loaded.get(os.getpid())
        return mine or self._loaded.setdefault(os.getpid(), _Loaded(self._folder))

    def _vectors(self, prompt: str, texts: Sequence[str]) -> Floats:
        here, folder = self._here, self._folder
        graph, tokens = here.graph, here.tokens
        ids = tokens.ids([prompt + (text.lower() if folder.lower else text) for text in texts], folder.max_tokens)
        np = graph.numpy
        if graph.dim != self.dim:
            raise ModelDamaged(
                f"The model {shown(folder.name)} gives vectors of {graph.dim} components",
                why=f"Its configuration says {self.dim}.",
                next="Get the model's files again.",
            )
        found: Floats = np.zeros((len(ids), self.dim), np.float32)

        def fill(rows: list[int]) -> None:
            found[rows] = graph.run([ids[row] for row in rows], folder.pooling, tokens.pad)

        self._each(fill, _batches([len(each) for each in ids]))
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        if not bool((np.isfinite(lengths) & (lengths > 0)).all()):
            raise ModelDamaged(
                f"The model {shown(folder.name)} gives what is no vector",
                why="A component is not a number, or all are zero.",
                next="Get the model's files again.",
            )
        found /= lengths
        return found

    def _each(self, fill: Callable[[list[int]], None], batches: Iterable[list[int]]) -> None:
        """Compute the batches, several at a time: one thread for each scales better than many for one."""
        left = deque(batches)
        failed: list[Exception] = []

        def work() -> None:
            while left and not failed:
                try:
                    batch = left.popleft()
                except IndexError:
                    return  # another took the last
                try:
                    fill(batch)
                except Exception as error:  # noqa: BLE001  # goes on to the caller below
                    failed.append(error)

        helpers = [
            threading.Thread(target=work, name="agentmem-batch") for _ in range(min(self._threads, len(left)) - 1)
        ]
        begun = list(itertools.takewhile(_started, helpers))
        try:
            work()
        finally:
            left.clear()
            for helper in begun:
                helper.join()
        if failed:
            raise failed[0]


def _started(thread: threading.Thread) -> bool:
    """Whether the thread could be started: at the end of a process, or where there are too many, it can't."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of the texts in batches of like lengths, so that little is padding."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[place] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


class _Loaded:
    """What one process loaded of a model: each part when it is first needed, once."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._parts: dict[str, Any] = {}

    @property
    def tokens(self) -> Tokens:
        made: Tokens = self._part(
            "tokens", lambda: Tokens(_read(self._folder.tokenizer, self._folder.tokenizer_sha256))
        )
        return made

    @property
    def graph(self) -> _Graph:
        made: _Graph = self._part("graph", lambda: _Graph(self._folder))
        return made

    @property
    def id(self) -> str:
        made: str = self._part("id", lambda: _id(self._folder))
        return made

    def _part(self, name: str, make: Callable[[], object]) -> Any:
        found = self._parts.get(name)
        if found is None:
            with self._lock:
                found = self._parts.get(name)
                if found is None:
                    found = self._parts[name] = make()
        return found


class _Graph:
    """A session of ONNX Runtime and what it takes and gives."""

    def __init__(self, folder: Folder) -> None:
        try:
            import numpy

            runtime = _runtime()
        except ImportError as error:
            raise packages_missing(error) from error
        self.numpy: Any = numpy
        self._folder = folder
        self._session = self._open(runtime, folder)
        self._inputs = {
            one.name: numpy.int32 if "int32" in one.type else numpy.int64 for one in self._session.get_inputs()
        }
        strange = [name for name in self._inputs if name not in _INPUTS]
        if strange:
            raise InvalidInput(f"The graph of {shown(folder.name)} asks for the input {shown(strange[0])}",
                               why=f"An embedder gives {', '.join(_INPUTS)}.", next="Use another export.")  # fmt: skip
        self._output, self._pooled = _output(self._session, folder)
        width = next(one.shape[-1] for one in self._session.get_outputs() if one.name == self._output)
        self.dim = width if isinstance(width, int) else self._measured()

    @staticmethod
    def _open(runtime: Any, folder: Folder) -> onnxruntime.InferenceSession:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1  # no threads of its own, which a forked child would wait for
        options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL
        options.enable_mem_pattern = False  # a plan of memory for each shape would only grow
        # A graph is loaded by its bytes where they were hashed, so that what is hashed is what runs.
        source = _read(folder.graph, folder.graph_sha256) if folder.graph_sha256 else str(folder.graph)
        try:
            return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's errors have no common base but Exception
            raise ModelDamaged(f"The graph of {shown(folder.name)} does not load", why=str(error),
                               next="Get the model's files again, or a later onnxruntime.") from error  # fmt: skip

    def _measured(self) -> int:
        return int(self.run([[0]], self._folder.pooling, 0).shape[1])

    def run(self, ids: Sequence[Sequence[int]], pooling: Pooling, pad: int) -> Floats:
        """The vectors of some texts, [len(ids), dim], of any length."""
        np = self.numpy
        lengths = np.array([len(each) for each in ids])
        mask = np.arange(lengths.max()) < lengths[:, None]
        tokens = np.full(mask.shape, pad, np.int64)
        tokens[mask] = np.concatenate([np.asarray(each, np.int64) for each in ids])
        made = {
            "input_ids": tokens,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(tokens),
            "position_ids": np.broadcast_to(np.arange(mask.shape[1]), mask.shape),
        }
        feed = {name: np.ascontiguousarray(made[name], kind) for name, kind in self._inputs.items()}
        try:
            (found,) = self._session.run([self._output], feed)
        except Exception as error:  # as above
            raise ModelDamaged(f"The model {shown(self._folder.name)} does not run", why=str(error),
                               next="Get the model's files again.") from error  # fmt: skip
        return found if self._pooled else _pool(np, found, mask, pooling)


def _runtime() -> Any:
    """ONNX Runtime, told to report to nobody.

    From 1.29 on its official builds keep an identifier and a queue in the user's cache directory and send to their makers
    what models run, from a thread that also keeps a forked child from ending. They ask the environment once, as they are
    imported. Whoever has set the variable, or has imported the package before, has decided for the process.
    """
    decided = _QUIET in os.environ or "onnxruntime" in sys.modules
    if not decided:
        os.environ[_QUIET] = "1"
    try:
        import onnxruntime
    finally:
        if not decided:
            del os.environ[_QUIET]
    if not decided:
        onnxruntime.disable_telemetry_events()  # for builds that do not ask the environment
    return onnxruntime


def _output(session: onnxruntime.InferenceSession, folder: Folder) -> tuple[str, bool]:
    """The output to take, and whether it is the text's vector already, [batch, dim], or its tokens', [batch, tokens, dim]."""
    ranks = {one.name: len(one.shape or ()) for one in session.get_outputs()}
    if ranks.get("sentence_embedding") == 2:
        return "sentence_embedding", True
    if folder.unread is not None:
        raise InvalidInput(f"The model {shown(folder.name)} has a module {shown(folder.unread)} after its pooling",
                           why="Only a graph that has it inside, with an output sentence_embedding, can be used.",
                           next="Export the whole sentence-transformers model.")  # fmt: skip
    for name in ("last_hidden_state", "token_embeddings", *ranks):
        if ranks.get(name) == 3:
            return name, False
    raise InvalidInput(f"The graph of {shown(folder.name)} gives no vectors of tokens",
                       why=f"Its outputs are {shown(list(ranks))}.", next="Use another export.")  # fmt: skip


def _pool(np: Any, vectors: Any, mask: Any, pooling: Pooling) -> Floats:
    match pooling:
        case Pooling.MEAN:
            found = np.einsum("btd,bt->bd", vectors, mask.astype(np.float32)) / mask.sum(axis=1, keepdims=True)
        case Pooling.CLS:
            found = vectors[:, 0]
        case Pooling.MAX:
            found = np.where(mask[:, :, None], vectors, -np.inf).max(axis=1)
        case Pooling.LAST:
            found = vectors[np.arange(len(vectors)), mask.sum(axis=1) - 1]
    pooled: Floats = np.asarray(found, np.float32)
    return pooled


def _id(folder: Folder) -> str:
    """Name and hash. The graph's own further files (`model.onnx_data`) count as the graph does."""
    graph = folder.graph_sha256 or "".join(
        _sha256(each) for each in sorted(folder.graph.parent.glob(f"{folder.graph.name}*"))
    )
    tokenizer = folder.tokenizer_sha256 or _sha256(folder.tokenizer)
    settings = (folder.pooling.value, folder.max_tokens, folder.query_prompt, folder.text_prompt, folder.lower)
    digest = hashlib.sha256(repr((graph, tokenizer, *settings)).encode()).hexdigest()
    return f"{folder.name}:{digest[:_DIGEST_CHARS]}"


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(path: Path, sha256: str | None) -> bytes:
    """A file of a model, compared with what it has to hash to."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise ModelDamaged(f"The file {shown(path.name)} of the model is not the one that was released",
                           why="Its sha256 is another: it was changed, or written in part.",
                           next="Install the package again. Until then recall goes by words.")  # fmt: skip
    return content


def _unreadable(path: Path, error: OSError) -> ModelMissing | ModelDamaged:
    if isinstance(error, FileNotFoundError):
        return ModelMissing(
            f"The model's file {shown(path.name)} is not there", next="Install the package, or get the folder, again."
        )
    return ModelDamaged(
        f"The model's file {shown(path.name)} cannot be read", why=str(error), next="Look at its permissions."
    )


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
