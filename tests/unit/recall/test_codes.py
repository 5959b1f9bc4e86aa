"""Codes of vectors in memory: what is near is found, whatever is added, taken out and filtered meanwhile."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.recall import codes
from agentmem.recall.codes import Codes, of_groups, of_records, pack, quantise, rescore

DIM = 384
CHUNK = 64


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of a few rows, so that few rows make many."""
    monkeypatch.setattr(codes, "_CHUNK", CHUNK)
    monkeypatch.setattr(codes, "_SMALLEST", 4)
    return iter(())


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def clustered(count: int, *, seed: int = 0, each: int = 50) -> np.ndarray:
    """Unit vectors in clusters of about `each`, whose members have a cosine of about 0.7 with one another."""
    random = np.random.default_rng(seed)
    centres = unit(random.normal(size=(max(count // each, 1), DIM)))
    noise = random.normal(size=(count, DIM)) * (0.65 / DIM**0.5)
    return unit(centres[random.integers(0, len(centres), count)] + noise)


def filled(vectors: np.ndarray, *, groups: np.ndarray | None = None, first: int = 0) -> Codes:
    """Codes whose ids count from `first` and whose records are ten times the ids."""
    found = Codes(vectors.shape[1])
    ids = np.arange(first, first + len(vectors))
    found.add(ids, ids * 10, groups, vectors)
    return found


def signs(count: int, dim: int, seed: int) -> np.ndarray:
    """Vectors of components 1 and -1: for these, estimates order as Hamming distances do, exactly."""
    return np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), size=(count, dim))


def by_hamming(query: np.ndarray, rows: np.ndarray, count: int) -> list[int]:
    """Positions in order of differing signs, then of place."""
    return np.argsort((rows != query).sum(axis=1), kind="stable")[:count].tolist()


def exact(query: np.ndarray, vectors: np.ndarray, count: int) -> set[int]:
    return set(np.argsort(-(vectors @ query), kind="stable")[:count].tolist())


# What is found


@given(st.integers(1, 200), st.integers(0, 150), st.integers(0, 40), st.integers(0, 2**32), st.integers(1, 60))
@settings(deadline=None)
def test_order(dim: int, rows: int, count: int, seed: int, batch: int) -> None:
    """In any number of dimensions and however they were added, rows come in the order of differing signs, then of adding."""
    vectors, query = signs(rows, dim, seed), signs(1, dim, seed + 1)[0]
    found = Codes(dim)
    for start in range(0, rows, batch):
        ids = np.arange(start, min(start + batch, rows))
        found.add(ids, ids, None, vectors[ids])
    assert found.nearest(query.astype(np.float32), count).ids.tolist() == by_hamming(query, vectors, count)


@pytest.mark.usefixtures("small_chunks")
def test_order_across_chunks() -> None:
    """The order is the same where rows lie in many chunks and far more are compared than are held."""
    vectors, query = signs(5_000, 32, 1), signs(1, 32, 2)[0]
    found = filled(vectors)
    for count in (1, 50, 300, 1_250, 6_000):
        assert found.nearest(query.astype(np.float32), count).ids.tolist() == by_hamming(query, vectors, count)


def test_what_belongs_to_a_row_stays_with_it() -> None:
    """Ids, records, groups and estimates of an answer are those of the same row."""
    vectors = clustered(3_000)
    groups = np.arange(3_000, dtype=np.int32) % 7
    answer = filled(vectors, groups=groups).nearest(vectors[17], 100)
    assert answer.ids[0] == 17
    assert (answer.records == answer.ids * 10).all()
    assert (answer.groups == answer.ids % 7).all()
    assert (np.diff(answer.cosines) <= 0).all()


@pytest.mark.parametrize("rows", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_recall(rows: int) -> None:
    """Of the ten nearest in clusters of fifty, 98 in a hundred are among the hundred best codes."""
    vectors = clustered(rows)
    found = filled(vectors)
    queries = clustered(rows, seed=0)[:: rows // 100] + np.random.default_rng(5).normal(size=(100, DIM)) * 0.02
    hits = sum(len(exact(q, vectors, 10) & set(found.nearest(q, 100).ids.tolist())) for q in unit(queries))
    assert hits >= 980


def test_rescored_order_is_the_exact_one() -> None:
    """Rescoring with eight bits a component gives cosines within 0.005, so that the best comes first."""
    vectors = clustered(5_000)
    kept, scales = quantise(vectors)
    found = filled(kept)
    for query in vectors[::500]:
        ids = found.nearest(query, 100).ids
        cosines = rescore(query, kept[ids], scales[ids])
        assert np.abs(cosines - vectors[ids] @ query).max() < 0.005
        assert ids[np.argmax(cosines)] == np.argmax(vectors @ query)


def test_equals() -> None:
    """Equal vectors have equal estimates and equal cosines wherever they stand, and come in the order of adding."""
    kept, scales = quantise(np.repeat(clustered(7), 97, axis=0))
    answer = filled(kept).nearest(clustered(1, seed=4)[0], 700)
    assert len(set(answer.cosines.tolist())) == 7
    assert [set(np.diff(part)) for part in np.split(answer.ids, 7)] == [{1}] * 7
    assert len(set(rescore(clustered(1, seed=4)[0], kept, scales).tolist())) == 7


def test_estimates() -> None:
    """Estimated cosines are those of the full vectors within 0.04 on average of squares, and not off to one side."""
    vectors = clustered(20_000)
    query = vectors[7]
    answer = filled(vectors).nearest(query, 20_000)
    off = answer.cosines - (vectors @ query)[answer.ids]
    assert np.sqrt(np.mean(off**2)) < 0.04
    assert abs(off.mean()) < 0.003


def test_nothing_there() -> None:
    """Empty codes, a count of zero and a filter that lets nothing pass answer with nothing."""
    query = np.ones(DIM, np.float32)
    some = filled(clustered(10))
    answers = [Codes(DIM).nearest(query, 5), some.nearest(query, 0), some.nearest(query, -1),
               some.nearest(query, 5, allowed=of_groups([3]))]  # fmt: skip
    assert [len(answer) for answer in answers] == [0] * 4
    assert [answer.seen for answer in answers] == [0, 10, 10, 0]
    assert [one.dtype for one in (answers[0].ids, answers[0].groups, answers[0].cosines)] == [
        "int64",
        "int32",
        "float32",
    ]


def test_more_than_there_are() -> None:
    """Asked for more rows than there are, all come."""
    assert sorted(filled(clustered(37)).nearest(np.ones(DIM, np.float32), 1_000).ids) == list(range(37))


def test_query_without_direction() -> None:
    """A query of zeros answers like any other, with finite estimates."""
    answer = filled(clustered(50)).nearest(np.zeros(DIM, np.float32), 10)
    assert len(answer) == 10
    assert np.isfinite(answer.cosines).all()


# Filters


def test_filter_inside_the_search() -> None:
    """A row that passes is found though thousands that don't pass are nearer."""
    vectors = np.concatenate([unit(np.ones((5_000, DIM))), unit(-np.ones((3, DIM)))])
    groups = np.array([1] * 5_000 + [2] * 3, np.int32)
    found = filled(vectors, groups=groups)
    answer = found.nearest(vectors[0], 10, allowed=of_groups([2]))
    assert (answer.ids.tolist(), answer.seen) == ([5_000, 5_001, 5_002], 3)
    assert found.nearest(vectors[0], 10, allowed=of_records([50_010])).ids.tolist() == [5_001]
    assert found.nearest(vectors[0], 1, allowed=lambda rows: rows.ids == 5_002).ids.tolist() == [5_002]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.99])
def test_filtered_is_as_if_the_others_were_not_there(share: float) -> None:
    """However many rows pass, the answer is that of codes which hold these alone."""
    vectors, query = signs(3_000, 100, 3), signs(1, 100, 4)[0]
    passing = np.random.default_rng(1).random(3_000) < share
    found = filled(vectors, groups=passing.astype(np.int32)).nearest(
        query.astype(np.float32), 20, allowed=of_groups([1])
    )
    alone = filled(vectors[passing]).nearest(query.astype(np.float32), 20)
    assert found.ids.tolist() == np.flatnonzero(passing)[alone.ids].tolist()
    assert found.seen == alone.seen


numbers = st.lists(st.one_of(st.integers(-50, 50), st.integers(-(2**62), 2**62)), max_size=30)


@given(numbers, numbers)
@settings(deadline=None)
def test_of_records(asked: list[int], present: list[int]) -> None:
    """`of_records` passes just the records named, near together or far apart, negative or absent."""
    held = present + asked[::2]
    rows = codes.Rows(np.arange(len(held)), np.array(held, np.int64), np.zeros(len(held), np.int32))
    assert of_records(asked)(rows).tolist() == [one in set(asked) for one in held]


def test_mask_of_another_shape() -> None:
    """A filter that answers with anything but one truth for each row is refused."""
    found = filled(clustered(10))
    with pytest.raises(ValueError, match="of 10 rows answered bool of shape"):
        found.nearest(np.ones(DIM, np.float32), 5, allowed=lambda rows: np.ones(3, np.bool_))
    with pytest.raises(ValueError, match="answered int64"):
        found.nearest(np.ones(DIM, np.float32), 5, allowed=lambda rows: rows.ids)


def test_filters_cannot_change_rows() -> None:
    """The arrays a filter looks at can't be written."""

    def writes(rows: codes.Rows) -> np.ndarray:
        rows.ids[0] = 9
        return rows.ids > 0

    with pytest.raises(ValueError, match="read-only"):
        filled(clustered(10)).nearest(np.ones(DIM, np.float32), 5, allowed=writes)


# Adding and taking out


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_changes(seed: int) -> None:
    """After any adding and taking out, the codes hold and find just what is left, in the order of adding."""
    random = np.random.default_rng(seed)
    vectors, query = signs(4_000, 96, seed), signs(1, 96, seed + 100)[0]
    found, left, next_id = Codes(96), np.empty(0, np.int64), 0
    while next_id < 3_000:
        ids = np.arange(next_id, next_id + random.integers(1, 200))
        found.add(ids, ids * 10, (ids % 3).astype(np.int32), vectors[ids])
        left, next_id = np.concatenate([left, ids]), int(ids[-1]) + 1
        gone = random.choice(left, int(len(left) * random.choice([0, 0.02, 0.3, 0.95])), replace=False)
        assert found.remove(np.concatenate([gone, [10**9]])) == len(gone)
        left = left[~np.isin(left, gone)]
        assert len(found) == len(left)
        answer = found.nearest(query.astype(np.float32), 4_000)
        assert answer.ids.tolist() == left[by_hamming(query, vectors[left], 4_000)].tolist()
        assert (answer.records == answer.ids * 10).all()
        assert (answer.groups == answer.ids % 3).all()


@pytest.mark.usefixtures("small_chunks")
def test_memory_after_taking_out() -> None:
    """Memory is let go with the rows, also where a few are left everywhere."""
    found = filled(clustered(100 * CHUNK))
    before = found.nbytes
    found.remove(np.flatnonzero(np.arange(100 * CHUNK) % 32))
    assert len(found) == 200
    assert found.nbytes < before / 20
    found.remove(range(100 * CHUNK))
    assert (len(found), found.nbytes) == (0, 0)


def test_memory_of_many() -> None:
    """A row of 384 dimensions costs less than 70 bytes where there are many, and a handful of rows costs little."""
    bits = np.random.default_rng(0).integers(0, 256, (100_000, DIM // 8), dtype=np.uint8)
    found = Codes(DIM)
    for start in range(0, 100_000, 1_000):
        ids = np.arange(start, start + 1_000)
        found.add(ids, ids, None, bits[ids])
    assert found.nbytes / 2**20 < 70 * 100_000 / 2**20 + 2.5
    assert filled(clustered(3)).nbytes < 20_000


def test_taking_out_records() -> None:
    """With a record all its rows go."""
    found = Codes(DIM)
    found.add(np.arange(9), np.arange(9) // 3, None, clustered(9))
    assert found.remove_records([1, 7]) == 3
    assert sorted(found.nearest(np.ones(DIM, np.float32), 9).ids) == [0, 1, 2, 6, 7, 8]


@pytest.mark.usefixtures("small_chunks")
def test_replacing_while_searching() -> None:
    """A record whose rows are replaced is there for every search, with its old rows or its new ones, never both."""
    vectors = clustered(300)
    found = filled(vectors)
    over, seen = threading.Event(), []

    def search() -> None:
        while not (seen and over.is_set()):
            seen.append(found.nearest(vectors[0], 400).records.tolist())

    reader = threading.Thread(target=search)
    reader.start()
    for turn in range(1, 100):
        of = np.arange(turn * 3 % 250, turn * 3 % 250 + 40)
        found.add(of + turn * 1_000, of * 10, None, vectors[of], replacing=of * 10)
    over.set()
    reader.join()
    assert all(sorted(one) == list(range(0, 3_000, 10)) for one in seen)


def test_memory_while_adding() -> None:
    """Many rows added at once need memory for a part of them only beside what stays."""
    vectors = np.ones((200_000, DIM), np.int8)
    found, ids = Codes(DIM), np.arange(200_000)
    tracemalloc.start()
    try:
        found.add(ids, ids, None, vectors)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - found.nbytes < vectors.nbytes / 3


def test_one_by_one() -> None:
    """Rows added one at a time are found as if they had been added at once."""
    vectors = clustered(700)
    found = Codes(DIM)
    for place, vector in enumerate(vectors):
        found.add(np.array([place]), np.array([place * 10]), None, vector[None, :])
    alone, together = found.nearest(vectors[3], 50), filled(vectors).nearest(vectors[3], 50)
    assert alone.ids.tolist() == together.ids.tolist()
    assert alone.cosines.tolist() == together.cosines.tolist()


def test_codes_and_vectors_alike() -> None:
    """Codes of `pack` and the vectors of `quantise` they were made of give the same answers."""
    kept, _ = quantise(clustered(500))
    packed, given = Codes(DIM), filled(kept)
    packed.add(np.arange(500), np.arange(500), None, pack(kept))
    query = clustered(1, seed=9)[0]
    assert packed.nearest(query, 40).ids.tolist() == given.nearest(query, 40).ids.tolist()


@pytest.mark.parametrize(
    ("ids", "records", "groups", "shape"),
    [
        (3, 3, None, (2, DIM)),
        (3, 2, None, (3, DIM)),
        (3, 3, 1, (3, DIM)),
        (3, 3, None, (3, DIM - 1)),
        (3, 3, None, (DIM,)),
    ],
)
def test_shapes_that_do_not_fit(ids: int, records: int, groups: int | None, shape: tuple[int, ...]) -> None:
    """Arrays that don't fit together are refused, and nothing of them is added."""
    found = filled(clustered(5))
    with pytest.raises(ValueError, match="as many of each are needed"):
        found.add(np.arange(ids), np.arange(records), None if groups is None else np.zeros(groups, np.int32),
                  np.ones(shape, np.float32))  # fmt: skip
    assert len(found) == 5


def test_query_of_other_dimensions() -> None:
    """A query with another number of components is refused, also where there is nothing to search."""
    for found in (Codes(DIM), filled(clustered(5))):
        with pytest.raises(ValueError, match="384 components"):
            found.nearest(np.ones(DIM + 1, np.float32), 5)
    with pytest.raises(ValueError, match="dim is 0"):
        Codes(0)


# Eight bits a component


@given(st.integers(0, 20), st.integers(1, 40), st.integers(0, 2**32))
@settings(deadline=None)
def test_quantised(rows: int, dim: int, seed: int) -> None:
    """No component is off by more than half a step, and the largest is kept exactly but for rounding."""
    vectors = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    kept, scales = quantise(vectors)
    assert (kept.dtype, scales.dtype, kept.shape, scales.shape) == (np.int8, np.float32, (rows, dim), (rows,))
    assert (np.abs(kept * scales[:, None] - vectors) <= scales[:, None] * 0.5001).all()
    assert (np.abs(kept.astype(np.int16)).max(axis=1, initial=0) == 127).all()


def test_quantised_nothing() -> None:
    """A vector of zeros stays one."""
    kept, scales = quantise(np.zeros((2, 5), np.float32))
    assert not kept.any()
    assert not scales.any()
    assert rescore(np.ones(5, np.float32), kept, scales).tolist() == [0, 0]


# Threads


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("rounds", [150, pytest.param(3_000, marks=pytest.mark.slow)])
def test_searches_while_writing(rounds: int) -> None:
    """A search beside writers sees each of their changes whole or not at all, and no row with another's code."""
    batch, writers = 10, 3
    found, vectors = Codes(DIM), signs(1_000, DIM, 1)
    over, wrong = threading.Event(), []

    def write(number: int) -> None:
        for turn in range(rounds):
            ids = np.arange(batch) + (turn * writers + number) * batch
            found.add(ids, ids * 10, (ids % 5).astype(np.int32), vectors[ids % 1_000])
            if turn >= 20:
                found.remove(ids - 20 * writers * batch)

    def search() -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            query = vectors[turn % 1_000].astype(np.float32)
            answer = found.nearest(query, 50)
            same = (vectors[answer.ids % 1_000] == query).mean(axis=1)
            expected = (2 * same - 1) * DIM**0.5 / np.sqrt(2 / np.pi)
            if (
                answer.seen % batch
                or not (answer.records == answer.ids * 10).all()
                or len(set(answer.ids.tolist())) < len(answer)
            ):
                wrong.append(answer)
            if not np.allclose(answer.cosines, expected, atol=1e-3) or not (answer.groups == answer.ids % 5).all():
                wrong.append(answer)

    readers = [threading.Thread(target=search) for _ in range(2)]
    working = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for one in readers + working:
        one.start()
    for one in working:
        one.join()
    over.set()
    for one in readers:
        one.join()
    assert not wrong
    assert sorted(found.nearest(np.ones(DIM, np.float32), 10_000).ids) == list(
        range((rounds - 20) * writers * batch, rounds * writers * batch)
    )
