"""Embedders: a caller's own, several, bad ones, none; a model that is missing or damaged; a change of the model."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import Gated, Toy, embedded, ids, vectors

import agentmem
from agentmem import InvalidInput, NewNote, Store

Opens = Callable[..., Store]
MODEL = Path(agentmem.__file__).parent / "recall" / "model"


def named(store: Store) -> str | None:
    with store.database.read() as connection:
        row = connection.execute("SELECT value FROM meta WHERE name = 'embedder'").fetchone()
    return None if row is None else row[0]


def cats(store: Store) -> list[int]:
    return [store.notes.add("fact", title).id for title in ("A kitten", "Two felines")]


@pytest.mark.parametrize("dim", [1, 7, 64, 256, 1024])
def test_an_embedder_of_any_dim(opened: Opens, dim: int) -> None:
    """Vectors have as many components as the embedder says."""
    store = opened(embedder=Toy(dim=dim))
    made = cats(store)
    embedded(store)
    assert set(vectors(store)) == {(record, dim) for record in made}
    if dim >= 64:
        assert set(ids(store.recall("cats"))) == set(made)


def test_questions_and_texts_may_be_embedded_apart(opened: Opens) -> None:
    """`embed_queries`, `knows` and `windows` are used where an embedder has them."""

    class Own(Toy):
        def embed_queries(self, texts: Sequence[str]) -> Any:
            return self.embed(["feline" for _ in texts])

        def knows(self, texts: Sequence[str]) -> list[bool]:
            return ["secret" not in text for text in texts]

        def windows(self, text: str, **_: Any) -> list[tuple[int, int]]:
            return [(0, len(text) // 2), (len(text) // 2, len(text))]

    store = opened(embedder=Own())
    note = store.notes.add("fact", "A kitten", body="x" * 20)
    unread = store.notes.add("fact", "A kitten is a secret")
    embedded(store)
    assert [record for record, _ in vectors(store)] == [note.id, note.id]
    assert ids(store.recall("whatever")) == [note.id]
    assert store.recall("secret").meaning == "unknown"
    assert ids(store.recall("secret")) == [unread.id]


def test_a_folder_that_holds_no_model_where_it_belongs_is_missing(opened: Opens) -> None:
    """A graph somewhere beneath is not looked for; a path may be text."""
    for folder in (MODEL.parent, str(MODEL.parent)):
        assert opened(embedder=folder).recall("anything").meaning == "missing"


def test_a_folder_as_sentence_transformers_has_it(opened: Opens, tmp_path: Path) -> None:
    """The files of the model in the package, laid out as others are, find by meaning too."""
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "model.onnx").symlink_to(MODEL / "minilm.onnx")
    (folder / "tokenizer.json").symlink_to(MODEL / "tokenizer.json")
    store = opened(embedder=str(folder))
    note = store.notes.add("fact", "Users cannot log in after the update")
    answer = embedded(store).recall("authentication failures since the new release")
    assert (answer.meaning, ids(answer)) == ("used", [note.id])
    assert named(store).startswith("my-model")


def test_none_goes_by_words(opened: Opens) -> None:
    """Without an embedder nothing is embedded and the answer says so."""
    store = opened(embedder=None)
    made = cats(store)
    answer = store.recall("kitten")
    assert (answer.meaning, ids(answer), answer.pending) == ("off", made[:1], 0)
    assert store.recall("cats").hits == ()
    assert (vectors(store), named(store)) == ([], None)


@pytest.mark.parametrize(
    ("value", "state"), [("none", "off"), ("", "used"), ("shipped", "used"), ("/no/such/folder", "missing")]
)
def test_the_environment_names_one(opened: Opens, monkeypatch: pytest.MonkeyPatch, value: str, state: str) -> None:
    """`AGENTMEM_EMBEDDER` counts where none is given; one that is given wins."""
    monkeypatch.setenv("AGENTMEM_EMBEDDER", value)
    assert opened().recall("anything").meaning == state
    assert opened(embedder=Toy()).recall("anything").meaning == "used"
    assert opened(embedder=None).recall("anything").meaning == "off"


class Bad(Toy):
    """Good until told otherwise."""

    fault: Callable[[Any], Any] | None = None

    def embed(self, texts: Sequence[str]) -> Any:
        found = super().embed(texts)
        return found if self.fault is None else self.fault(found)


def _raises(_: Any) -> Any:
    raise OSError("the GPU fell off")


FAULTS = {
    "raises": _raises,
    "nan": lambda found: found * np.nan,
    "infinite": lambda found: found * np.inf,
    "zeros": lambda found: found * 0,
    "narrow": lambda found: found[:, 1:],
    "few": lambda found: found[1:],
    "flat": lambda found: found.ravel(),
    "none": lambda found: None,
    "text": lambda found: "vector",
    "objects": lambda found: [[object()]],
    "ragged": lambda found: [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_embedder_costs_meaning_only(opened: Opens, fault: str) -> None:
    """From the start or later: recall goes by words and says why; writing goes on; what it gave is not kept."""
    bad = Bad()
    bad.fault = FAULTS[fault]
    store = opened(embedder=bad)
    made = cats(store)
    answer = store.recall("kitten")
    assert (answer.meaning, ids(answer)) == ("failed", made[:1])
    assert answer.because
    assert "By words only" in answer.text
    assert not store._shared.meaning.wait(60)
    assert vectors(store) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_an_embedder_that_breaks_later_is_used_again_once_it_works(opened: Opens, fault: str) -> None:
    """A fault in between loses nothing: what waits is embedded after it."""
    bad = Bad()
    store = opened(embedder=bad)
    made = cats(store)
    embedded(store)
    bad.fault = FAULTS[fault]
    third = store.notes.add("fact", "Three kittens")
    assert store.recall("some other question about kittens").meaning == "failed"
    store._shared.meaning.wait(60)
    bad.fault = None
    embedded(store)
    assert set(ids(store.recall("cats"))) == {*made, third.id}


def test_a_text_that_the_embedder_cannot_take_holds_up_no_other(opened: Opens) -> None:
    """One text that makes the embedder raise is left to words; all others get their vectors."""

    class Picky(Toy):
        def embed(self, texts: Sequence[str]) -> Any:
            if any("poison" in text for text in texts):
                raise ValueError("cannot read that")
            return super().embed(texts)

    store = opened(embedder=Picky())
    one, poison, other = (store.notes.add("fact", title).id for title in ("A kitten", "A poison feline", "Two kittens"))
    store._shared.meaning.wait(60)
    assert {record for record, _ in vectors(store)} == {one, other}
    answer = store.recall("cats")
    assert (answer.meaning, set(ids(answer))) == ("used", {one, other})
    assert ids(store.recall("poison")) == [poison]


@pytest.mark.parametrize("embedder", [5, object(), Toy, {"id": "x"}])
def test_what_is_no_embedder_is_refused_on_opening(opened: Opens, embedder: Any) -> None:
    """Something without `embed`, `id` and `dim` is an error at once, not later."""
    with pytest.raises(InvalidInput):
        opened(embedder=embedder)


@pytest.mark.parametrize(
    "wrong", [{"dim": None}, {"dim": 0}, {"dim": -4}, {"dim": 3.5}, {"dim": "64"}, {"id": ""}, {"id": None}, {"id": 5}]
)
def test_an_embedder_with_a_wrong_id_or_dim_is_not_used(opened: Opens, wrong: dict[str, Any]) -> None:
    """An id is a text, a dim a whole number from 1; looked at when it is first used, for reading them may load a model."""
    toy = Toy()
    for name, value in wrong.items():
        setattr(toy, name, value)
    store = opened(embedder=toy)
    made = cats(store)
    answer = store.recall("kitten")
    assert (answer.meaning, ids(answer)) == ("failed", made[:1])
    assert next(iter(wrong)) in answer.because


# Another embedder than the vectors were made by


def test_another_embedder_embeds_anew_in_the_background(opened: Opens) -> None:
    """Meanwhile recall goes by words; then by the new meaning. No record is touched: the log stays as it was."""
    first = opened(embedder=Toy("one", 64))
    made = cats(first)
    embedded(first).close()
    gated = Gated("two", 128)
    store = opened(embedder=gated)
    head = store.log.head()
    answer = store.recall("kitten")
    assert (answer.meaning, ids(answer)) == ("other", made[:1])
    assert gated.waits.wait(60)
    assert vectors(store) == []
    assert ids(store.recall("kitten"))[0] == made[0]
    gated.open.set()
    embedded(store)
    assert named(store) == "two"
    assert set(vectors(store)) == {(record, 128) for record in made}
    answer = store.recall("cats")
    assert (answer.meaning, set(ids(answer))) == ("used", set(made))
    assert store.log.head() == head


def test_vectors_of_another_embedder_are_never_compared(opened: Opens) -> None:
    """Of the same dim as well: the first recall after the change compares nothing with what the other one made."""

    class Constant(Toy):
        def embed(self, texts: Sequence[str]) -> Any:
            return np.full((len(texts), self.dim), 0.5, np.float32)

    first = opened(embedder=Constant("one"))
    first.notes.add_many([NewNote("fact", f"Number {n} of something") for n in range(100)])
    embedded(first).close()

    class Slow(Gated):
        def embed_queries(self, texts: Sequence[str]) -> Any:
            return np.full((len(texts), self.dim), 0.5, np.float32)

    slow = Slow("two")
    store = opened(embedder=slow)
    for _ in range(2):
        assert store.recall("zeppelin").hits == ()
    slow.open.set()
    embedded(store)
    assert store.recall("zeppelin").hits == ()


def test_opening_without_a_word_leaves_the_vectors_of_another_alone(opened: Opens) -> None:
    """Who did not ask for another embedder goes by words and says by whom the vectors are."""
    first = opened(embedder=Toy("one"))
    made = cats(first)
    embedded(first).close()
    before = vectors(store := opened())
    answer = store.recall("kitten")
    assert (answer.meaning, ids(answer)) == ("other", made[:1])
    assert "one" in answer.because
    assert "anew" not in answer.because
    store.notes.add("fact", "A third kitten")
    store._shared.meaning.wait(60)
    assert (vectors(store), named(store)) == (before, "one")
    store.close()
    assert set(ids(opened(embedder=Toy("one")).recall("cats"))) > set(made)


def test_waiting_counts_the_vectors_of_this_embedder_alone(opened: Opens) -> None:
    """After a change all has to be embedded anew; who does not change anything waits for nothing and hears no."""
    first = opened(embedder=Toy("one"))
    made = cats(first)
    embedded(first).close()
    store = opened(embedder=Toy("two"))
    assert store.wait_for_index(60)
    assert (named(store), {record for record, _ in vectors(store)}) == ("two", set(made))
    assert store.recall("cats").meaning == "used"
    assert not opened().wait_for_index(60)
    assert not opened(embedder=Toy("three"), read_only=True).wait_for_index(60)
    assert named(store) == "two"


def test_two_stores_with_different_embedders_do_not_take_turns(opened: Opens) -> None:
    """The vectors change hands a few times at most, however often both recall; both answer by words at least."""
    one, two = opened(embedder=Toy("one")), opened(embedder=Toy("two"))
    made = cats(one)
    owners = []
    for _ in range(6):
        for store in (one, two):
            assert made[0] in ids(store.recall("kitten"))
            store._shared.meaning.work()
            assert store._shared.meaning._worker.join(60)
            owners.append(named(store))
    changes = sum(a != b for a, b in itertools.pairwise(owners))
    assert changes <= 2
    assert {one.recall("cats").meaning, two.recall("cats").meaning} == {"used", "other"}


def test_a_change_of_the_embedder_waits_for_no_transaction(opened: Opens) -> None:
    """While another thread, or this one, is inside a transaction, recall answers by words at once."""
    first = opened(embedder=Toy("one"))
    made = cats(first)
    embedded(first).close()
    store = opened(embedder=Toy("two"), busy_timeout=60.0)
    answers: list[Any] = []
    other = threading.Thread(target=lambda: answers.append(store.recall("kitten")))
    with store.transaction():
        store.notes.add("fact", "A third kitten")
        other.start()
        assert len(store.recall("kitten")) == 2
        other.join(30)
        assert [ids(answer) for answer in answers] == [made[:1]]
        assert answers[0].meaning == "other"
    assert len(embedded(store).recall("cats")) == 3


def test_a_store_opened_for_reading_uses_what_is_there(opened: Opens) -> None:
    """It finds by the vectors in the file and by embedding the latest itself, and writes nothing."""
    first = opened(embedder=Toy())
    made = cats(first)
    embedded(first)
    late = first.notes.add("fact", "A late kitten")
    store = opened(embedder=Toy(), read_only=True)
    assert set(ids(store.recall("cats"))) == {*made, late.id}
    assert not store._shared.meaning.wait(1)
    assert opened(embedder=Toy("other"), read_only=True).recall("cats").meaning == "other"
    assert {record for record, _ in vectors(first)} == set(made)


def test_embedding_goes_on_where_it_was_stopped(opened: Opens) -> None:
    """Closed in the middle, the next process embeds the rest, nothing twice."""
    gated = Gated()
    first = opened(embedder=gated)
    made = first.notes.add_many([NewNote("fact", f"kitten {n}") for n in range(40)]).ids
    first._shared.meaning.work()
    assert gated.waits.wait(60)
    gated.open.set()
    first.close()
    store = embedded(opened(embedder=Toy()))
    assert [record for record, _ in vectors(store)] == list(made)


# In processes of their own

WITHOUT = """
import sys
blocked = set(sys.argv[2].split(","))
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
def no_network(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        raise AssertionError(event)
sys.addaudithook(no_network)
from agentmem import Store
with Store.open(sys.argv[1], project="acme", key=bytes(32)) as store:
    note = store.notes.add("fact", "The login form is slow")
    for _ in range(2):
        answer = store.recall("login")
        assert [hit.id for hit in answer] == [note.id], answer
        print(answer.meaning, answer.because)
"""


def run(script: str, *arguments: str, source: Path | None = None) -> list[str]:
    given = {"PYTHONPATH": str(source)} if source else {}
    import os

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments], capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | given,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("blocked", ["onnxruntime", "tokenizers", "numpy", "onnxruntime,tokenizers,numpy"])
def test_s10_without_the_packages_that_run_the_model_words_go_on(tmp_path: Path, blocked: str) -> None:
    """Without ONNX Runtime, the tokenizer or NumPy recall goes by words, says what is missing, and asks no network."""
    lines = run(WITHOUT, str(tmp_path / "work.db"), blocked)
    assert [line.split()[0] for line in lines] == ["missing", "missing"]
    assert any(name in lines[0] for name in blocked.split(","))


def test_s10_nothing_is_downloaded(tmp_path: Path) -> None:
    """The model is in the package: the first recall opens no connection."""
    assert run(WITHOUT, str(tmp_path / "work.db"), "nothing") == ["used ", "used "]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package in a directory of its own, its model copied, all else as it is."""
    import shutil

    source = Path(agentmem.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "agentmem", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


@pytest.mark.parametrize("name", ["minilm.onnx", "tokenizer.json"])
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_damaged_model_is_not_used(copied: Path, tmp_path: Path, name: str, how: str) -> None:
    """One flipped byte, half a file or none: recall goes by words and names the file."""
    file = copied / "agentmem" / "recall" / "model" / name
    if how == "gone":
        file.unlink()
    else:
        with file.open("r+b") as opened:
            middle = file.stat().st_size // 2
            if how == "cut":
                opened.truncate(middle)
            else:
                opened.seek(middle)
                byte = opened.read(1)[0]
                opened.seek(middle)
                opened.write(bytes([byte ^ 1]))
    lines = run(WITHOUT, str(tmp_path / "work.db"), "nothing", source=copied)
    assert [line.split()[0] for line in lines] == ["missing" if how == "gone" else "damaged"] * 2
    assert name in lines[0]
