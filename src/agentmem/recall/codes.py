"""A compact code of many unit vectors in memory, scanned exactly: which are nearest to a query.

The code of a vector is the sign of each component, one bit. Vectors that point the same way share most signs, so the
number of differing bits (Hamming distance) orders them nearly as their cosine does. A search goes in three steps, each
on fewer vectors and more exact: Hamming distance of all, the query's own components against the signs of the best of
those, and, by the caller, who keeps the full vectors, the cosines of the best of these. `quantise` makes the eight bits
a component that are kept, `pack` the code, `rescore` the cosines.

A rotation before the signs are taken, a mean taken off and a length beside each code were measured on vectors of
all-MiniLM-L6-v2: none of them found more among as many candidates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import frozen

Bits: TypeAlias = npt.NDArray[np.uint8]
Bytes: TypeAlias = npt.NDArray[np.int8]
Floats: TypeAlias = npt.NDArray[np.float32]
Ids: TypeAlias = npt.NDArray[np.int64]
Groups: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]
Distances: TypeAlias = npt.NDArray[np.uint16]
Places: TypeAlias = npt.NDArray[np.intp]

# Rows of one chunk. The temporaries of a scan (ten bytes a row) stay in the second cache, and to remove one row copies
# one chunk, 2 MB at 384 dimensions.
_CHUNK: Final = 32_768
_SMALLEST: Final = 256
# How many rows go from the first step to the second for each one that is asked for, and how many at least.
_POOL: Final = 8
_LEAST: Final = 400
_FAR: Final = 0xFFFF
# The part of a unit vector's length that lies along its signs, in many dimensions: the mean of |x| over the root of the
# mean of x², of a normal distribution.
_ALONG: Final = float(np.sqrt(2 / np.pi))


@frozen(eq=False)
class Rows:
    """Some rows, for a filter to look at. All arrays have one length and are read-only."""

    ids: Ids
    records: Ids
    groups: Groups


@frozen(eq=False)
class Nearest:
    """The nearest rows by their codes, the best first; among equals the one added first.

    `cosines` are estimates, float32, of each within about 0.04. `seen` is how many rows passed the filter.
    """

    ids: Ids
    records: Ids
    groups: Groups
    cosines: Floats
    seen: int

    def __len__(self) -> int:
        return len(self.ids)


Filter: TypeAlias = Callable[[Rows], Mask]


def of_groups(groups: Iterable[int]) -> Filter:
    """A filter for rows of these groups."""
    return _Among(groups, "groups")


def of_records(records: Ids | Iterable[int]) -> Filter:
    """A filter for rows of these records."""
    return _Among(records, "records")


def quantise(vectors: Floats) -> tuple[Bytes, Floats]:
    """Eight bits a component: `vectors` is about `codes * scales[:, None]`.

    Args:
        vectors: float32 [n, dim], finite.

    Returns:
        int8 [n, dim] in -127..127 and float32 [n], the scale of each vector (its largest component / 127).
    """
    scales = (np.abs(vectors).max(axis=1, initial=0.0) / 127.0).astype(np.float32)
    divisors = np.where(scales > 0, scales, np.float32(1.0))
    return np.rint(vectors / divisors[:, None]).astype(np.int8), scales


def pack(vectors: Bytes | Floats) -> Bits:
    """The code of each vector: the signs of its components, zero counted as negative.

    Args:
        vectors: [n, dim], int8 of `quantise` or floats. A component that quantises to zero may differ between the two.

    Returns:
        uint8 [n, ceil(dim / 8)].
    """
    return np.packbits(vectors > 0, axis=1)


def rescore(query: Floats, vectors: Bytes, scales: Floats) -> Floats:
    """The cosines of `query` (unit length, [dim]) with the vectors that `quantise` gave: float32 [m]."""
    return _products(vectors.astype(np.float32), np.asarray(query, np.float32)) * scales


@frozen(eq=False)
class _Chunk:
    """Rows that lie together. Only the first `used` are visible; what lies beyond them is written by `Codes.add` alone."""

    words: Words  # [words a row, capacity]: one word of all rows after the other, so that a scan runs along memory
    ids: Ids
    records: Ids
    groups: Groups
    used: int

    @classmethod
    def empty(cls, words: int, capacity: int) -> _Chunk:
        """A chunk without rows."""
        return cls(np.empty((words, capacity), np.uint64), np.empty(capacity, np.int64), np.empty(capacity, np.int64),
                   np.empty(capacity, np.int32), 0)  # fmt: skip

    @property
    def room(self) -> int:
        """Rows that still fit."""
        return len(self.ids) - self.used

    @property
    def nbytes(self) -> int:
        """Memory, room included."""
        return self.words.nbytes + self.ids.nbytes + self.records.nbytes + self.groups.nbytes

    def rows(self) -> Rows:
        """What is visible, without the codes."""
        parts = (self.ids[: self.used], self.records[: self.used], self.groups[: self.used])
        for part in parts:
            part.flags.writeable = False
        return Rows(*parts)

    def filled(self, ids: Ids, records: Ids, groups: Groups, words: Words) -> _Chunk:
        """The chunk with more rows. They lie in the same arrays, beyond what a reader of this one looks at."""
        begin, end = self.used, self.used + len(ids)
        self.words[:, begin:end] = words
        self.ids[begin:end], self.records[begin:end], self.groups[begin:end] = ids, records, groups
        return _Chunk(self.words, self.ids, self.records, self.groups, end)

    def moved(self, which: slice | Places, capacity: int) -> _Chunk:
        """The rows `which` in new arrays."""
        new = _Chunk.empty(len(self.words), capacity)
        return new.filled(self.ids[which], self.records[which], self.groups[which], self.words[:, which])


class Codes:
    """The codes of many vectors.

    Safe for threads: writers take turns, and a search sees the rows of the moment it began, without a lock.
    """

    def __init__(self, dim: int) -> None:
        if not 1 <= dim < _FAR:
            raise ValueError(f"dim is {dim}; a vector has 1 to {_FAR - 1} components")
        self.dim: Final = dim
        self._width: Final = -(-dim // 8)
        self._words: Final = -(-dim // 64)
        self._writing = threading.Lock()
        self._chunks: tuple[_Chunk, ...] = ()  # replaced as a whole, never changed

    def __len__(self) -> int:
        return sum(chunk.used for chunk in self._chunks)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, with the room kept for growth: 68 a row at 384 dimensions."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def add(
        self,
        ids: Ids,
        records: Ids,
        groups: Groups | None,
        vectors: Bytes | Floats | Bits,
        *,
        replacing: Ids | Iterable[int] = (),
    ) -> None:
        """Append rows, all or none.

        Args:
            ids: int64 [n], each once; that none is present already is the caller's care.
            records: int64 [n], the record each vector belongs to.
            groups: int32 [n], what filters ask about; None is 0 for each.
            vectors: the codes, uint8 [n, ceil(dim / 8)] of `pack`, or the vectors, [n, dim] int8 or floats.
            replacing: Records whose rows are taken out in the same step: no search finds such a record missing.

        Raises:
            ValueError: The shapes don't fit together.
        """
        count = len(ids)
        groups = np.zeros(count, np.int32) if groups is None else groups
        given = (self._width,) if vectors.dtype == np.uint8 else (self.dim,)
        if vectors.shape != (count, *given) or len(records) != count or len(groups) != count:
            raise ValueError(
                f"{count} ids, {len(records)} records, {len(groups)} groups and vectors of shape {vectors.shape}: "
                f"as many of each are needed, and {given[0]} columns"
            )
        gone = _Among(replacing, "records")
        with self._writing:
            chunks, begin = list(_without(self._chunks, gone)), 0
            while begin < count:
                tail = self._tail(chunks, count - begin)
                end = min(begin + tail.room, count)
                part = slice(begin, end)
                words = self._coded(vectors[part])
                chunks[-1] = tail.filled(ids[part], records[part], groups[part], words)
                begin = end
            self._chunks = tuple(chunks)

    def _coded(self, vectors: Bytes | Floats | Bits) -> Words:
        """Vectors or codes as words."""
        bits: Any = vectors if vectors.dtype == np.uint8 else pack(vectors)  # type: ignore[arg-type]
        return _words(bits, self._words)

    def _tail(self, chunks: list[_Chunk], more: int) -> _Chunk:
        """The last chunk, with room: a new one, or the old one in twice the space until it has the full size."""
        if not chunks or chunks[-1].used >= _CHUNK:
            chunks.append(_Chunk.empty(self._words, min(max(more, _SMALLEST), _CHUNK)))
        elif not chunks[-1].room:
            used = chunks[-1].used
            chunks[-1] = chunks[-1].moved(slice(used), min(used + max(used, more, _SMALLEST), _CHUNK))
        return chunks[-1]

    def remove(self, ids: Ids | Iterable[int]) -> int:
        """Take out the rows with these ids, and let go of the memory that holds them.

        Returns:
            How many there were.
        """
        return self._remove(ids, "ids")

    def remove_records(self, records: Ids | Iterable[int]) -> int:
        """Take out all rows of these records; as `remove`."""
        return self._remove(records, "records")

    def _remove(self, numbers: Ids | Iterable[int], column: str) -> int:
        gone = _Among(numbers, column)
        with self._writing:
            before = len(self)
            self._chunks = _without(self._chunks, gone)
            return before - len(self)

    def nearest(self, query: Floats, count: int, *, allowed: Filter | None = None) -> Nearest:
        """The rows whose codes are nearest to `query`.

        Args:
            query: float [dim], unit length.
            count: How many at most. To find the ten nearest among them at a million rows, ask for 100.
            allowed: Says for each of some rows whether it takes part; called for one chunk after the other. None takes
                all.

        Raises:
            ValueError: `query` has another number of components.
        """
        asked = np.asarray(query, np.float32)
        if asked.shape != (self.dim,):
            raise ValueError(f"the query has shape {asked.shape}, the codes have {self.dim} components")
        scan = _Scan(self._coded(asked[None, :]), max(count * _POOL, _LEAST) if count > 0 else 0)
        for chunk in self._chunks:
            scan.over(chunk, allowed)
        held = scan.best()
        cosines = _estimates(asked, held.words)
        best = np.argsort(-cosines, kind="stable")[: max(count, 0)]
        return Nearest(held.ids[best], held.records[best], held.groups[best], cosines[best], scan.seen)


@frozen(eq=False)
class _Held:
    """Rows that a scan holds, with their distances."""

    distances: Distances
    ids: Ids
    records: Ids
    groups: Groups
    words: Words

    @classmethod
    def none(cls, words: int) -> _Held:
        """No rows."""
        return cls(np.empty(0, np.uint16), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32),
                   np.empty((words, 0), np.uint64))  # fmt: skip

    def take(self, which: Places) -> _Held:
        """Some of them."""
        return _Held(
            self.distances[which], self.ids[which], self.records[which], self.groups[which], self.words[:, which]
        )


class _Scan:
    """One search on its way over the chunks: holds the best `count` rows, and some that may yet turn out not to be.

    `limit` is the distance of the worst row once `count` are held. Among equals the row that came first ranks first, so
    only a smaller distance can enter later.
    """

    def __init__(self, query: Words, count: int) -> None:
        self.query = query
        self.count = count
        self.limit = _FAR
        self.waiting: list[_Held] = []
        self.seen = 0

    def over(self, chunk: _Chunk, allowed: Filter | None) -> None:
        """Go over one chunk."""
        rows, words = chunk.rows(), chunk.words[:, : chunk.used]
        passed = None if allowed is None else _passed(allowed(rows), chunk.used)
        if passed is None:
            found = _distances(words, self.query)
        elif len(passed) * 6 > chunk.used:
            found = _distances(words, self.query)[passed]
        else:  # to gather the codes of a row takes about as long as to compare six where they lie
            found = _distances(words[:, passed], self.query)
        if not len(found):
            return
        self.seen += len(found)
        if not self.count:
            return
        near = np.flatnonzero(found < self.limit)
        if len(near) > self.count:  # the first chunk mostly
            near = near[found[near] <= np.partition(found[near], self.count - 1)[self.count - 1]]
        if len(near):
            at = near if passed is None else passed[near]
            self.waiting.append(_Held(found[near], rows.ids[at], rows.records[at], rows.groups[at], words[:, at]))
            if sum(len(one.ids) for one in self.waiting) >= 2 * self.count:
                self.best()

    def best(self) -> _Held:
        """The best `count` in order of distance; what else is held is let go."""
        parts = self.waiting or [_Held.none(len(self.query))]
        held = _Held(
            np.concatenate([one.distances for one in parts]),
            np.concatenate([one.ids for one in parts]),
            np.concatenate([one.records for one in parts]),
            np.concatenate([one.groups for one in parts]),
            np.concatenate([one.words for one in parts], axis=1),
        )
        held = held.take(np.argsort(held.distances, kind="stable")[: self.count])
        self.waiting = [held]
        if len(held.ids) == self.count > 0:
            self.limit = int(held.distances[-1])
        return held


class _Among:
    """Whether a column of rows holds one of some numbers. A table where they lie close together, else a search."""

    def __init__(self, numbers: npt.NDArray[Any] | Iterable[int], column: str) -> None:
        given = numbers if isinstance(numbers, np.ndarray) else np.fromiter(numbers, np.int64)
        self.column = column
        self.numbers: Ids = given.astype(np.int64)
        self.first = int(self.numbers.min()) if len(given) else 0
        span = int(self.numbers.max()) - self.first + 1 if len(given) else 0
        self.table: Mask | None = None
        if span <= max(64 * len(given), 1 << 16):
            self.table = np.zeros(span + 2, np.bool_)  # the entries at both ends stand for all numbers outside
            self.table[self.numbers - self.first + 1] = True
        else:
            self.numbers.sort()

    def __call__(self, rows: Rows) -> Mask:
        values: Ids = getattr(rows, self.column).astype(np.int64, copy=False)
        if self.table is not None:
            return self.table.take(values - self.first + 1, mode="clip")
        places = np.minimum(np.searchsorted(self.numbers, values), len(self.numbers) - 1)
        return np.asarray(self.numbers[places] == values)


def _without(chunks: tuple[_Chunk, ...], gone: _Among) -> tuple[_Chunk, ...]:
    """The chunks without some rows. A chunk that loses none stays as it is, one that does is copied."""
    if not len(gone.numbers):
        return chunks
    kept: list[_Chunk] = []
    for chunk in chunks:
        stay = np.flatnonzero(~gone(chunk.rows()))
        if len(stay) < chunk.used:
            _join(kept, chunk.moved(stay, min(max(len(stay), _SMALLEST), _CHUNK)))
        else:
            _join(kept, chunk)
    return tuple(kept)


def _join(chunks: list[_Chunk], more: _Chunk) -> None:
    """Put a chunk at the end, within the last one where both are small: removals leave no crowd of small chunks."""
    if not more.used:
        return
    if chunks and chunks[-1].used + more.used <= _CHUNK // 2:
        last = chunks.pop()
        last = last.moved(slice(last.used), last.used + more.used)
        used = slice(more.used)
        more = last.filled(more.ids[used], more.records[used], more.groups[used], more.words[:, used])
    chunks.append(more)


def _passed(mask: Mask, rows: int) -> Places:
    """Where a mask is true. Anything but a mask of all rows would silently be taken for another set of rows."""
    if mask.dtype != np.bool_ or mask.shape != (rows,):
        raise ValueError(f"a filter of {rows} rows answered {mask.dtype} of shape {mask.shape}, not bool for each row")
    return np.flatnonzero(mask)


def _words(bits: Bits, words: int) -> Words:
    """Codes as 64-bit words, [words, n]; the end of the last word is zero."""
    padded = np.zeros((len(bits), words * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return np.ascontiguousarray(padded.view(np.uint64).T)


def _distances(words: Words, query: Words) -> Distances:
    """Differing bits of each column of `words` and the one of `query`: uint16 [n]."""
    rows = words.shape[1]
    found = np.zeros(rows, np.uint16)
    differ, bits, three = np.empty(rows, np.uint64), np.empty(rows, np.uint8), np.empty(rows, np.uint8)
    for first in range(0, len(query), 3):  # three words are 192 bits at most: their sum fits a byte
        three.fill(0)
        for word in range(first, min(first + 3, len(query))):
            np.bitwise_xor(words[word], query[word], out=differ)
            np.bitwise_count(differ, out=bits)
            np.add(three, bits, out=three)
        np.add(found, three, out=found)
    return found


def _estimates(query: Floats, words: Words) -> Floats:
    """The cosine of each column of `words` with the query, from the components of the query and the signs: float32 [n].

    The product with the signs as a unit vector is on average the cosine times the part of a vector that lies along its
    signs (Gao and Long 2024, RaBitQ).
    """
    octets = np.ascontiguousarray(words.T).view(np.uint8)
    bits = np.unpackbits(octets, axis=1, count=len(query)).astype(np.float32)
    sums = 2 * _products(bits, query) - query.sum()  # the bits stand for 1 and -1
    return np.asarray(sums / (_ALONG * len(query) ** 0.5), np.float32)


def _products(rows: Floats, query: Floats) -> Floats:
    """The product of each row and the query. A row's does not depend on where it stands, as it may with BLAS: equals stay so."""
    return np.asarray(np.einsum("ij,j->i", rows, query), np.float32)
