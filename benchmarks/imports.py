"""What `import agentmem` costs, and whether it stays light."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.run import Setting

SOURCES = Path(__file__).parent.parent / "src"
HEAVY = ("numpy", "onnxruntime", "tokenizers", "cattrs", "markdown_it", "click", "rich", "platformdirs", "sqlcipher3")


def figures(setting: Setting) -> list[Figure]:
    """Interleaved starts of Python with and without the import, in milliseconds."""
    rounds = 5 if setting.quick else 25
    bare, ours, parts = [], [], []
    _start("import agentmem")
    for _ in range(rounds):
        bare.append(_start("pass"))
        ours.append(_start("import agentmem"))
        parts.append(_start("import apsw, attrs"))
    loaded = subprocess.run(
        [sys.executable, "-c", f"import agentmem, sys; print([name for name in {HEAVY!r} if name in sys.modules])"],
        env={"PYTHONPATH": str(SOURCES)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    heavy = loaded.stdout.strip()
    beyond = statistics.median([one - other for one, other in zip(ours, bare, strict=True)])
    apsw_attrs = statistics.median([one - other for one, other in zip(parts, bare, strict=True)])
    return [
        Figure("import", f"agentmem beyond bare Python, heavy modules {heavy}", beyond, "ms", 60,
               more={"bare": round(statistics.median(bare), 1), "of it apsw and attrs": round(apsw_attrs, 1)})
    ]  # fmt: skip


def _start(code: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCES)}, check=True)
    return (time.perf_counter() - begun) * 1000
