"""Meaning for one open file: which embedder, the codes of the vectors, what was just written, the work in the background.

Everything here is optional: where a model is missing, damaged, another than the store's, or does not know the language
of a query, recall goes by words and says why.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import evolve, field, frozen

from agentmem.engine.database import Database
from agentmem.errors import AgentMemError, ModelDamaged, ModelMissing, shown
from agentmem.recall import checked, embedding, filters, loading, passages, vectors
from agentmem.recall.filters import Narrowed
from agentmem.recall.vectors import Index, Near
from agentmem.records import cleaning
from agentmem.records.base import View
from agentmem.types import Unset

if TYPE_CHECKING:
    from agentmem.recall.codes import Filter, Floats
    from agentmem.recall.embedder import Embedder, EmbedderChoice

__all__ = ["Asked", "Meaning", "State"]

State: TypeAlias = Literal["used", "off", "missing", "damaged", "other", "unknown", "failed"]
"""Whether meaning took part in an answer: `used`; `off`, the store was opened without; `missing` or `damaged`, the model
is; `other`, the vectors are another embedder's; `unknown`, the model does not know the language of the query; `failed`,
the embedder raised an error."""

_FRESH: Final = 16  # records without vectors that one answer embeds by itself
_FRESH_WINDOWS: Final = 4  # of each
_WALKED: Final = 4000  # vectors that are looked at one by one for some that pass
_FRESH_IN_ALL: Final = 16
_KEPT: Final = 256  # of these, and of queries, in memory
_MORE: Final = 4
_FEW: Final = 1000  # records whose vectors are read rather than the codes of all
_WINDOWS: Final = 4  # looked at for each record that is wanted, which may have several
_ESTIMATE: Final = 0.08  # by how much the estimate by codes may be off
_STEP_SECONDS: Final = 0.2  # between two looks at how far the worker is


@frozen(eq=False)
class Asked:
    """A query by its meaning.

    Attributes:
        state: Whether meaning takes part.
        why: A sentence for where it does not.
        vector: float32 [dim], unit length; None where it does not.
        fresh: How near records are that have no vectors in the file yet.
        pending: How many records wait for theirs, counted up to 1,001.
        whole: Whether `fresh` has all of these that have a meaning.
    """

    state: State
    why: str = ""
    vector: Floats | None = None
    fresh: dict[int, Near] = field(factory=dict)
    pending: int = 0
    whole: bool = True


class Meaning:
    """What all views of one open file share of it. Nothing is loaded before the first use. Safe for threads."""

    def __init__(self, database: Database, choice: EmbedderChoice) -> None:
        self.database = database
        self._choice = choice
        self._lock = threading.RLock()
        self._model: Embedder | None = None
        self._failed: AgentMemError | None = None
        self._index: Index | None = None
        self._worker: embedding.Worker | None = None
        self._may_switch = not isinstance(choice, Unset)
        self._often = False
        self._queries: OrderedDict[str, Floats] = OrderedDict()
        self._fresh: OrderedDict[tuple[int, bytes], list[tuple[int, int, Floats]]] = OrderedDict()
        _watch(self)

    # What a search asks

    def ask(self, view: View, query: str) -> Asked:
        """The query as a vector, if meaning can take part, with what is not in the file yet."""
        asked = self.vector(view, query)
        if asked.vector is None:
            return asked
        waiting = embedding.pending(view.connection)
        if not waiting:
            return asked
        try:
            latest = embedding.newest(view, _FRESH + 1)
            fresh, all_of_them = self.fresh(view, asked.vector, latest[:_FRESH])
        except AgentMemError as error:
            return Asked(_state_of(error), str(error))
        self.work()
        done, last = embedding.reached(view.connection)
        whole = all_of_them and len(latest) <= _FRESH and last - done <= embedding.RECENT * _FRESH
        return evolve(asked, fresh=fresh, pending=waiting, whole=whole)

    def vector(self, view: View, query: str) -> Asked:
        """The query as a vector, if meaning can take part."""
        state, why = self._ready(view)
        if state != "used":
            return Asked(state, why)
        assert self._model is not None  # or it would not be ready
        try:
            if not checked.known(self._model, query):
                return Asked(
                    "unknown", f"{shown(self._model.id.partition(':')[0])} does not know the language of the query"
                )
            return Asked("used", "", self._query(query))
        except AgentMemError as error:
            return Asked(_state_of(error), str(error))

    def nearest(self, view: View, asked: Asked, to: Narrowed, most: int, least: float) -> dict[int, Near]:
        """The records nearest to a query that pass, at most so many, none with a cosine below `least`."""
        index = self._index
        if asked.vector is None or index is None:
            return {}
        self._follow(view, index)
        allowed = None if to.everything else _allowed(to, index)
        codes = index.codes
        count = most + most // 2
        found: dict[int, Near] = {}
        looked: set[int] = set()
        while True:
            nearest = codes.nearest(asked.vector, count, allowed=allowed)
            new = [record for record in nearest.ids.tolist() if record not in looked]
            looked.update(new)
            near = vectors.cosines(view, asked.vector, ids=new)
            good = [record for record, one in near.items() if one.cosine >= least]
            for record in filters.passing_ids(view, good, to):
                if record not in found or found[record].cosine < near[record].cosine:
                    found[record] = near[record]
            ended = len(nearest) < count or nearest.cosines[-1] < least - _ESTIMATE
            if ended or len(found) >= most:
                break
            count *= _MORE
            if count > _WALKED and to.others and to.only is None:
                # Next to nothing passes: all that does is read off the tables, in their order, once.
                to = filters.scanned(view, to)
                allowed, count = _allowed(to, index), most + most // 2
        fresh = [record for record, one in asked.fresh.items() if one.cosine >= least]
        found |= {record: asked.fresh[record] for record in filters.passing_ids(view, fresh, to)}
        best = sorted(found, key=lambda record: (-found[record].cosine, -record))[:most]
        return {record: found[record] for record in best}

    def _follow(self, view: View, index: Index) -> None:
        """Bring the codes up to what is committed: events of a transaction may be rolled back, and their numbers given again."""
        if self.database.in_write():
            with self.database.read(alone=True) as connection:
                index.follow(View(view.binding, connection))
        else:
            index.follow(view)

    def among(self, view: View, asked: Asked, records: Sequence[int], most: int) -> dict[int, Near]:
        """Those of these records that are nearest to a query, at most so many.

        Few are compared one by one, and many where no other search has read the codes: the first time that takes less. In
        a transaction, where others wait, these are only the first of the records.
        """
        index = self._index
        if asked.vector is None or index is None:
            return {}
        by_codes = len(records) > _FEW and (self._often or len(index.codes) > 0)
        if self.database.in_write():
            by_codes = by_codes and len(index.codes) > 0
            records = records if by_codes else records[:_FEW]
        else:
            self._often |= len(records) > _FEW
            if by_codes:
                index.follow(view)
        if by_codes:
            from agentmem.recall.codes import of_records

            nearest = index.codes.nearest(asked.vector, _WINDOWS * most, allowed=of_records(records))
            found = vectors.cosines(view, asked.vector, ids=nearest.ids.tolist())
        else:
            found = vectors.cosines(view, asked.vector, records=records)
        best = sorted(found, key=lambda record: (-found[record].cosine, record))[:most]
        return {record: found[record] for record in best}

    def cosines(self, view: View, asked: Asked, records: Iterable[int]) -> dict[int, Near]:
        """How near these records are; nothing for one without vectors."""
        if asked.vector is None:
            return {}
        wanted = set(records)
        found = vectors.cosines(view, asked.vector, records=wanted)
        return found | {record: near for record, near in asked.fresh.items() if record in wanted}

    # The model

    def _ready(self, view: View) -> tuple[State, str]:
        """Whether meaning can take part now, and why not."""
        try:
            model = self._loaded()
        except AgentMemError as error:
            return _state_of(error), str(error)
        if model is None:
            return "off", "the store was opened without an embedder"
        named = embedding.state(view.connection).get("embedder")
        with self._lock:
            if named is not None and named != model.id:
                if not self._switches(model, named):
                    return "other", f"the vectors were made by {shown(named)}, not by {shown(model.id)}"
                self.work()
                return "other", f"the vectors of {shown(named)} are made anew by {shown(model.id)}"
            if self._index is None:
                self._index = Index(model.dim)
        return "used", ""

    def _loaded(self) -> Embedder | None:
        if self._choice is None:
            return None
        with self._lock:
            if isinstance(self._failed, (ModelMissing, ModelDamaged)):  # a model does not come by itself
                raise self._failed
            if self._model is None:
                try:
                    with loading.alone():
                        self._model = _embedder(self._choice)
                except AgentMemError as error:
                    self._failed = error
                    raise
                self._failed = None  # of an embedder that asked the store while it was tried
            return self._model

    def _settled(self) -> Embedder | None:
        """The embedder for work in the background, where the vectors are its own or are to be; others are dropped first."""
        model = self._loaded()
        if model is None:
            return None
        with self.database.read() as connection:
            named = embedding.state(connection).get("embedder")
        if named in (None, model.id):
            return model
        if not self._switches(model, named):
            return None
        embedding.choose(self.database, model)
        with self._lock:
            self._may_switch = False
            self._index = None
            self._queries.clear()
            self._fresh.clear()
        return model

    def _switches(self, model: Embedder, named: str | None) -> bool:
        """Whether the vectors are to be made anew by this store's embedder: if told to, once, for two must not take turns.

        Without being told to only those of an earlier release of the same model are.
        """
        same_model = named is not None and named.partition(":")[0] == model.id.partition(":")[0]
        return not self.database.read_only and (self._may_switch or same_model)

    def _query(self, query: str) -> Floats:
        assert self._model is not None  # asked for by the caller
        known = self._queries.get(query)
        if known is None:
            known = checked.embedded_queries(self._model, [query])[0]
            with self._lock:
                self._queries[query] = known
                while len(self._queries) > _KEPT:
                    self._queries.popitem(last=False)
        return known

    def likeness(self, asked: Asked, texts: Sequence[str]) -> list[float]:
        """The cosine of a query with each text; nothing where meaning takes no part, or the embedder fails now."""
        if asked.vector is None or self._model is None or not texts:
            return []
        try:
            return [float(vector @ asked.vector) for vector in checked.embedded(self._model, texts)]
        except AgentMemError:
            return []  # the places of an answer only: it is told all the same

    def prepare(self, query: str) -> None:
        """Load the model and embed a query before a reading begins, which is not to be open for so long."""
        try:
            model = self._loaded()
            if model is not None and checked.known(model, query):
                self._query(query)
        except AgentMemError:
            return  # `ask` meets it again, and says so

    def fresh(
        self, view: View, query: Floats, latest: Sequence[int], *, most: int = _FRESH_WINDOWS
    ) -> tuple[dict[int, Near], bool]:
        """How near some records are that have no vectors yet: `most` windows of each are embedded here and now.

        So that no answer waits long, `_FRESH_IN_ALL` windows are, of the first of the records.

        Returns:
            How near they are, and whether that is all of them.
        """
        assert self._model is not None  # it made the query
        places = {record: place for place, record in enumerate(latest)}
        texts = sorted(passages.texts(view.connection, latest, spoken=True), key=lambda text: places[text[0]])
        # By the text: after a rollback another record gets the same id and seq.
        keys = {record: (most, _digest(line, rest)) for record, line, rest in texts}
        missing: list[int] = []
        pieces: list[passages.Window] = []
        for text in [one for one in texts if keys[one[0]] not in self._fresh]:
            own = list(passages.windows(self._model, [text], most=most))
            if pieces and len(pieces) + len(own) > _FRESH_IN_ALL:
                break
            pieces += own
            missing.append(text[0])
        made = checked.embedded_apart(self._model, [piece.text for piece in pieces])
        with self._lock:
            for record in missing:
                self._fresh[keys[record]] = [
                    (piece.begin, piece.finish, vector)
                    for piece, vector in zip(pieces, made, strict=True)
                    if piece.record == record and vector is not None
                ]
            while len(self._fresh) > _KEPT:
                self._fresh.popitem(last=False)
            kept = {record: self._fresh[key] for record, key in keys.items() if key in self._fresh}
        near = {
            record: max((Near(float(vector @ query), begin, finish) for begin, finish, vector in windows), key=_cosine)
            for record, windows in kept.items()
            if windows
        }
        return near, len(kept) == len(keys)

    # Work in the background

    def work(self) -> bool:
        """Begin to embed what waits for it, in the background. Whether it began now."""
        if self._choice is None or self.database.read_only:
            return False
        with self._lock:
            if self._worker is None:
                settled = weakref.WeakMethod(self._settled)  # the worker is not to keep what owns it
                self._worker = embedding.Worker(self.database, lambda: (call := settled()) and call())
                weakref.finalize(self, self._worker.end).atexit = False
                _WORKERS.add(self._worker)
            return self._worker.start()

    def wait(self, timeout: float | None, progress: Callable[[int, int], object] | None = None) -> bool:
        """Have all embedded that is committed now, and wait for that.

        Args:
            timeout: Seconds to wait at most; None to wait until it is done or can't be.
            progress: Called with the events that are done and those there are.

        Returns:
            Whether it is. Without an embedder nothing waits.
        """
        if self._choice is None:
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        begun, last = self._reached()
        reached = begun
        while reached < last:
            started = self.work()
            worker = self._worker
            if worker is None:
                return False  # opened for reading
            while not worker.join(
                _STEP_SECONDS if deadline is None else min(_STEP_SECONDS, deadline - time.monotonic())
            ):
                reached, _ = self._reached()
                if progress is not None:
                    progress(min(reached, last) - begun, last - begun)
                if reached >= last or (deadline is not None and time.monotonic() >= deadline):
                    return reached >= last
            reached, _ = self._reached()
            if started or worker.stopped:
                break  # a whole run of it: what is not done now can't be
        return reached >= last

    def _reached(self) -> tuple[int, int]:
        """Up to which event all texts have vectors of this store's embedder, and the last event there is."""
        # What others committed too, also where this thread is inside a reading that does not see it.
        with self.database.read(alone=True) as connection:
            named = embedding.state(connection).get("embedder")
            reached, last = embedding.reached(connection)
        return (reached if self._made(named) else 0), last

    def _made(self, named: str | None) -> bool:
        """Whether the embedder of this name is this store's; not where that cannot be loaded."""
        if named is None:
            return True
        try:
            model = self._loaded()
        except AgentMemError:
            return False
        return model is not None and model.id == named

    @property
    def codes_bytes(self) -> int | None:
        """Bytes of memory that the codes of the vectors take; None where they are not loaded."""
        index = self._index
        return None if index is None else index.codes.nbytes

    @property
    def failed(self) -> AgentMemError | None:
        """Why nothing is embedded, None where nothing is wrong."""
        return self._failed or (None if self._worker is None else self._worker.failed)

    def drop(self) -> None:
        """Drop what is remembered of any text, for use after a purge."""
        with self._lock:
            self._index = None if self._index is None else Index(self._index.codes.dim)
            self._queries.clear()
            self._fresh.clear()

    def close(self) -> None:
        """End the work in the background, before the file is closed."""
        if self._worker is not None:
            self._worker.stop()
        _OPEN.discard(self)

    def forked(self) -> None:
        """In the child of a fork: locks may be held by threads that are not in it."""
        self._lock = threading.RLock()
        self._index = None
        if self._worker is not None:
            self._worker.forked()


_OPEN: Final[weakref.WeakSet[Meaning]] = weakref.WeakSet()
# Apart from these: one that is dropped without being closed leaves a worker behind that still works on its last batch.
_WORKERS: Final[weakref.WeakSet[embedding.Worker]] = weakref.WeakSet()
_watched: Final[list[bool]] = []


def _watch(one: Meaning) -> None:
    """Know of it when something is purged, at a fork, and at the end of the interpreter."""
    _OPEN.add(one)
    if not _watched:
        _watched.append(True)
        atexit.register(_stop_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forked)


def _digest(line: str, rest: str) -> bytes:
    return hashlib.blake2b(f"{line}\n{rest}".encode(), digest_size=16).digest()


def _allowed(to: Narrowed, index: Index) -> Filter | None:
    if to.only is None:
        return index.within(to.project)
    from agentmem.recall.codes import of_records

    return of_records(to.only)


def _cosine(near: Near) -> float:
    return near.cosine


def _state_of(error: AgentMemError) -> State:
    match error.code:
        case "model_missing":
            return "missing"
        case "model_damaged":
            return "damaged"
        case _:
            return "failed"


def _embedder(choice: EmbedderChoice) -> Embedder:
    from agentmem.recall import embedder

    if isinstance(choice, Unset):
        model: Embedder = embedder.shipped()
    elif isinstance(choice, (str, os.PathLike)):
        from agentmem.recall.onnx_embedder import OnnxEmbedder

        model = OnnxEmbedder(Path(choice))
    else:
        assert choice is not None  # asked for by the caller
        model = choice
    return checked.proved(model)


@cleaning.dropped_by
def forget_vectors(database: Database) -> None:
    """Empties what is in memory of this file's vectors, for use after a purge."""
    for one in list(_OPEN):
        if one.database is database:
            one.drop()


def _stop_all() -> None:
    """Before the interpreter ends: a thread inside the runtime would outlive what it stands on."""
    for worker in list(_WORKERS):
        worker.stop()


def _forked() -> None:
    for one in list(_OPEN):
        one.forked()
