"""The embedder inside the package: its vectors, what it understands, where it cuts, and what happens when it cannot run."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.errors import ModelDamaged, ModelMissing
from agentmem.recall import embedder
from agentmem.recall.embedder import Embedder, OnnxEmbedder, embed_queries, knows, shipped, windows_of

SOURCES = Path(__file__).parents[3] / "src"

# Of the weights in 32 bits: the first eight components of each text.
REFERENCE = {
    "A man is eating food.": [0.0332, 0.0044, -0.0063, 0.0484, -0.1387, -0.0336, 0.1011, -0.0544],
    "A man is eating a piece of bread.": [0.0525, 0.0552, -0.0112, -0.0057, -0.1272, -0.0223, 0.0769, 0.0132],
    "where is the login token stored": [-0.0033, 0.0011, -0.0667, -0.0588, 0.0355, -0.0118, 0.0671, 0.0247],
    "def parse_config(path: str) -> dict:": [0.0238, 0.028, -0.0339, -0.0012, 0.0054, -0.1232, 0.0357, 0.0339],
}
# And the cosines between them.
COSINES = [
    [1.0, 0.755, -0.068, 0.024],
    [0.755, 1.0, 0.066, -0.014],
    [-0.068, 0.066, 1.0, 0.082],
    [0.024, -0.014, 0.082, 1.0],
]
ENGLISH = st.lists(
    st.sampled_from(
        ["the", "token", "was refused", "by every", "server", "in Oslo,", "42 times;", "a_b.py", "failed: why?"]
    ),
    max_size=40,
).map(" ".join)
ANY = st.text(st.characters(exclude_categories=()), max_size=200)


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left * right).sum(axis=1)


# Vectors


def test_the_reference() -> None:
    """Vectors point where those of the original weights do: components within 0.01, cosines of pairs within 0.02."""
    vectors = shipped().embed(list(REFERENCE))
    assert vectors.dtype == np.float32
    assert np.abs(vectors[:, :8] - np.array(list(REFERENCE.values()))).max() < 0.01
    assert np.abs(vectors @ vectors.T - np.array(COSINES)).max() < 0.02


def test_the_shipped_one_is_an_embedder() -> None:
    """It has the two methods and the id that stores ask for, and queries are embedded as texts are."""
    model = shipped()
    assert isinstance(model, Embedder)
    assert (model.dim, model.id) == (384, OnnxEmbedder.of(embedder._shipped_folder(), threads=1).id)
    assert np.array_equal(embed_queries(model, ["a question"]), model.embed(["a question"]))
    assert shipped() is model


def test_no_texts() -> None:
    """Of no texts there are no vectors, of the right width."""
    assert shipped().embed([]).shape == (0, 384)


@given(st.lists(st.one_of(ENGLISH, ANY), min_size=1, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_a_vector_does_not_depend_on_the_batch(texts: list[str], random: object) -> None:
    """Whatever else is embedded with a text and in whatever order, its vector is the same, and of length 1."""
    mixed = list(range(len(texts)))
    random.shuffle(mixed)  # type: ignore[attr-defined]
    together = shipped().embed([texts[place] for place in mixed])
    alone = np.concatenate([shipped().embed([texts[place]]) for place in mixed])
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-5
    assert cosines(together, alone).min() > 0.99999


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_no_vector(threads: int) -> None:
    """However many batches are computed at a time, each vector lies in its text's row."""
    texts = [f"The number {number} stands here. " * (1 + number % 40) for number in range(90)]
    one = OnnxEmbedder.of(embedder._shipped_folder(), threads=threads)
    assert cosines(one.embed(texts), shipped().embed(texts)).min() > 0.99999
    assert one.id == shipped().id


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "\x00", "a\x00b", "\ud800", "x\udfffy", "👩‍👩‍👧 🚀🚀", "x" * 65_536, "中" * 5_000, "\u202eabc", "é" * 300),
        "[SEP] [CLS] [MASK]",
    ],
    ids=ascii,
)  # fmt: skip
def test_odd_texts(text: str) -> None:
    """Any text has a vector: empty, half of a surrogate pair, without a blank in 64 KiB."""
    (vector,) = shipped().embed([text])
    assert np.isfinite(vector).all()
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
    assert len(shipped().knows([text])) == 1
    assert shipped().windows(text)[-1][1] == len(text)


def test_256_tokens_are_read() -> None:
    """A text is read up to its 254th token, where the tokenizer's own file stops at 128; what is after changes nothing."""
    start = "number " * 250
    same, other, long = shipped().embed([start + "one two three four", start + "one two three four five six", start])
    assert float(same @ other) > 0.99999
    assert float(same @ long) < 0.99999
    assert float(shipped().embed(["number " * 130 + "kitten " * 100])[0] @ shipped().embed(["number " * 130])[0]) < 0.95


def test_many_threads_at_once() -> None:
    """Threads that use a new embedder at the same moment get the same vectors, and it is loaded once."""
    model = OnnxEmbedder.of(embedder._shipped_folder())
    texts = [f"what was decided about {word}" for word in ("retries", "tokens", "hosts", "ports")]
    found: list[np.ndarray] = []
    graphs: set[int] = set()
    ready = threading.Barrier(8)

    def use() -> None:
        ready.wait()
        found.append(model.embed(texts))
        graphs.add(id(model._here.graph))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(graphs) == 1
    assert all(np.array_equal(each, found[0]) for each in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_embeds_too() -> None:
    """A child forked while another thread embeds makes the same vectors, ends by itself, and nothing is printed."""
    code = """
import os, sys, threading
from agentmem.recall.embedder import shipped
model = shipped()
texts = ["a text to embed"] * 60 + ["the last one " * 100] * 20
before = model.embed(texts)
stop = threading.Event()
def work():
    while not stop.is_set():
        model.embed(texts)
thread = threading.Thread(target=work)
thread.start()
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        sys.exit(0 if (model.embed(texts) == before).all() and all(model.knows(texts)) else 3)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
stop.set()
thread.join()
sys.exit(max(codes))
"""
    shown = run(code)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter, its environment with these variables."""
    code = f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True, text=True, timeout=240, check=False, env=os.environ | variables,
    )  # fmt: skip


# What it understands


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("The login token is stored in the vault", True),
        ("Déjà vu in São Paulo", True),
        ("deploy done 🚀🎉", True),
        ("fix parse_config() in src/app/main.py:12 (CVE-2024-1234)", True),
        ("10.0.0.1", True),
        ("the α and the β of the test were far too large", True),
        ("fixed the 登录 page so that users no longer see the old form after they sign out", True),
        ("登录令牌保存在哪里", False),
        ("修复 login.py 的 bug", False),
        ("ログインの不具合を直した", False),
        ("로그인 오류 수정", False),
        ("Где хранится токен входа", False),
        ("أين يتم تخزين الرمز", False),
        ("Πού αποθηκεύεται το διακριτικό", False),
        ("a" * 200, False),
        ("", False),
        ("!? ... --", False),
        ("🚀🚀🚀", False),
    ],
    ids=ascii,
)
def test_what_is_understood(text: str, known: bool) -> None:
    """English, names and code are; scripts of which the vocabulary has single letters only are not, nor what has no words."""
    assert shipped().knows([text]) == [known]
    assert knows(shipped(), ["The token", text]) == [True, known]


# Where it cuts


@pytest.mark.parametrize("line", ["", "Login", "kestrel 10.10.4.21:8443 0x7ffdeadbeef 9f2c1a77b0 " * 4])
def test_windows_leave_room_for_the_line_before_them(line: str) -> None:
    """Whatever stands before each window, all of the window is read with it."""
    text = " ".join(f"alpha{number} tuned valve number {number}." for number in range(200))
    model = shipped()
    found = model.windows(text, before=line)
    assert len(found) > 1
    for begin, end in found:
        assert model._here.tokens.count(f"{line}\n{text[begin:end]}") <= 254


def test_a_line_takes_half_of_the_room_at_most() -> None:
    """However long the line before them is, windows have at least half of what the model reads."""
    text = "word " * 300
    assert shipped().windows(text, before="line " * 500) == shipped().windows(text, size=127)


@given(st.lists(st.one_of(ENGLISH, ANY), max_size=12).map("\n\n".join), st.integers(1, 60), st.integers(0, 80))
@settings(max_examples=60, deadline=None)
def test_windows_cover_the_text(text: str, size: int, overlap: int) -> None:
    """Windows begin at 0 and end at the end, go on, leave out nothing with a token in it, and have `size` tokens at most."""
    model = shipped()
    found = model.windows(text, size=size, overlap=overlap)
    assert found[0][0] == 0
    assert found[-1][1] == len(text)
    tokens = model._here.tokens
    for (begin, end), (after, last) in itertools.pairwise(found):
        assert begin < after
        assert end < last
        assert after <= end or tokens.count(text[end:after]) == 0
    if len(found) > 1:
        offsets = tokens._encode(text).offsets
        for begin, end in found:
            assert sum(begin <= first and last <= end for first, last in offsets if last > first) <= size + 1


def test_windows_end_with_a_paragraph_or_a_sentence() -> None:
    """Where the last quarter of a window has the end of a paragraph, the cut is there; else of a line or sentence."""
    words = "word " * 40
    text = f"{words}one. Two three.\n\nFour five. {words * 9}"
    (_, end), *_ = shipped().windows(text, size=50, overlap=0)
    assert text[:end].endswith("three.")
    text = f"{words}one. Two three {words}"
    (_, end), (begin, _), *_ = shipped().windows(text, size=50, overlap=0)
    assert text[:end].endswith("one.")
    assert text[begin:].startswith("Two")


def test_windows_overlap() -> None:
    """A window begins with the last tokens of the one before, as many as asked, at the begin of a word."""
    text = " ".join(f"w{number}" for number in range(2_000))
    found = shipped().windows(text)
    assert len(found) > 10
    for (_, end), (begin, _) in itertools.pairwise(found):
        assert begin == 0 or text[begin - 1] == " "
        assert 20 <= shipped()._here.tokens.count(text[begin:end]) <= 32


class Characters:
    """An embedder that cannot tell tokens."""

    id, dim = "characters", 2

    def embed(self, texts: list[str]) -> np.ndarray:
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


@given(st.text(st.sampled_from("ab \n"), max_size=6_000))
@settings(max_examples=30, deadline=None)
def test_windows_without_tokens(text: str) -> None:
    """An embedder that has but the two methods gets pieces of characters, is asked for queries too, and reads any words."""
    model = Characters()
    found = windows_of(model, text)
    assert found[0][0] == 0
    assert found[-1][1] == len(text)
    assert all(end - begin <= embedder.WINDOW_CHARS for begin, end in found)
    assert all(begin < after <= end for (begin, end), (after, _) in itertools.pairwise(found))
    assert knows(model, ["中文", "...", ""]) == [True, False, False]
    assert embed_queries(model, ["a", "b"]).shape == (2, 2)


# What it cannot do without


@pytest.mark.parametrize("name", ["minilm.onnx", "tokenizer.json"])
@pytest.mark.parametrize("how", ["flipped", "short", "gone"])
def test_damaged_files(tmp_path: Path, name: str, how: str) -> None:
    """One bit of a model's file changed, its end missing or all of it: an error that names the file, and no vector."""
    folder = embedder._shipped_folder()
    shutil.copytree(folder.graph.parent, tmp_path / "model")
    changed = tmp_path / "model" / name
    content = bytearray(changed.read_bytes())
    content[len(content) // 2] ^= 1
    if how == "gone":
        changed.unlink()
    else:
        changed.write_bytes(content if how == "flipped" else content[: len(content) // 2])
    model = OnnxEmbedder.of(
        evolve(folder, graph=tmp_path / "model/minilm.onnx", tokenizer=tmp_path / "model/tokenizer.json")
    )
    with pytest.raises(ModelMissing if how == "gone" else ModelDamaged, match=name):
        model.embed(["text"])
    assert model.id == shipped().id


def test_the_files_are_those_pinned() -> None:
    """The hashes that are compared on load are those of the files, the graph is at most 25 MB, and a licence is beside it."""
    folder = embedder._shipped_folder()
    assert hashlib.sha256(folder.graph.read_bytes()).hexdigest() == embedder.GRAPH_SHA256
    assert hashlib.sha256(folder.tokenizer.read_bytes()).hexdigest() == embedder.TOKENIZER_SHA256
    assert folder.graph.stat().st_size <= 25_000_000
    attribution = (folder.graph.parent / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert embedder.GRAPH_SHA256 in attribution
    assert embedder.TOKENIZER_SHA256 in attribution
    assert "Apache License" in (folder.graph.parent / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", ["numpy", "onnxruntime", "tokenizers"])
def test_a_missing_package(package: str) -> None:
    """Without a package that embedding needs, the module can be imported and an embedder had; using it says what is missing."""
    shown = run(f"""
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ImportError("no module named " + name)
sys.meta_path.insert(0, Blocker())
from agentmem.errors import ModelMissing
from agentmem.recall.embedder import shipped
try:
    shipped().embed(["text"])
except ModelMissing as error:
    print(error.code, {package!r} in error.why, shipped().id)
""")
    assert shown.stdout.split() == ["model_missing", "True", shipped().id], shown.stderr


def test_importing_loads_nothing_heavy() -> None:
    """The module and the shipped embedder are had without numbers, runtime or tokenizers; they come with the first text."""
    shown = run("""
from agentmem.recall.embedder import shipped
shipped().id, shipped().dim
print(*({"numpy", "onnxruntime", "tokenizers"} & set(sys.modules)))
shipped().embed(["text"])
print(*sorted({"numpy", "onnxruntime", "tokenizers"} & set(sys.modules)))
""")
    assert shown.stdout.splitlines() == ["", "numpy onnxruntime tokenizers"], shown.stderr
    assert shown.stderr == ""


@pytest.mark.parametrize("said", [None, "1"])
def test_the_runtime_reports_to_nobody(tmp_path: Path, said: str | None) -> None:
    """ONNX Runtime makes no file of its own and starts no thread, and the environment is afterwards as it was before."""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "LOCALAPPDATA": str(tmp_path / "local")}
    shown = run(
        """
import os
said = os.environ.pop("ORT_DISABLE_TELEMETRY", None) if os.environ["SAID"] == "None" else None
before = dict(os.environ)
from agentmem.recall.embedder import shipped
import numpy
tasks = "/proc/self/task"
threads = len(os.listdir(tasks)) if os.path.isdir(tasks) else 0
shipped().embed(["text"])
print(dict(os.environ) == before, (len(os.listdir(tasks)) if threads else 0) - threads)
""",
        **home, SAID=str(said), **({"ORT_DISABLE_TELEMETRY": said} if said else {}),
    )  # fmt: skip
    assert shown.stdout.split() == ["True", "0"], shown.stderr
    assert list(tmp_path.iterdir()) == []
