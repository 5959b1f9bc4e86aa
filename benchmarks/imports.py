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
    """Starts of Python with and without the import, taking turns."""
    rounds = 5 if setting.quick else 30
    codes = {
        "bare": "pass",
        "package": "import agentmem",
        "store": "from agentmem import Store",
        "parts": "import apsw, attrs",
    }
    times: dict[str, list[float]] = {name: [] for name in codes}
    for code in codes.values():  # so that all bytecode is there
        _start(code)
    for _ in range(rounds):
        for name, code in codes.items():
            times[name].append(_start(code))
    beyond = {name: statistics.median(found) - statistics.median(times["bare"]) for name, found in times.items()}
    more = {"bare": round(statistics.median(times["bare"]), 1), "of it apsw and attrs": round(beyond["parts"], 1)}
    return [
        Figure("import", "agentmem beyond bare Python", beyond["package"], "ms", 60),
        Figure("import", f"Store beyond bare Python, heavy modules {_heavy()}", beyond["store"], "ms", 60, more=more),
    ]


def _heavy() -> str:
    code = f"from agentmem import *; import sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    return _run(code).strip()


def _start(code: str) -> float:
    begun = time.perf_counter()
    _run(code)
    return (time.perf_counter() - begun) * 1000


def _run(code: str) -> str:
    environment = {"PYTHONPATH": str(SOURCES)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return found.stdout
