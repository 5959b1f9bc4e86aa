"""What importing agentmem loads: the time follows from that, and needs no clock to test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
HEAVY = {
    "numpy", "onnxruntime", "tokenizers", "cattrs", "markdown_it", "click", "rich", "platformdirs", "keyring",
    "sqlcipher3", "difflib", "multiprocessing", "asyncio", "ctypes", "sqlite3",
}  # fmt: skip
# Rooms that no opening needs.
LAZY = {"agentmem.context.resume", "agentmem.context.left", "agentmem.recall.find", "agentmem.records.where",
        "agentmem.transfer", "agentmem.adapters", "agentmem.tools", "agentmem.harness"}  # fmt: skip


def loaded(code: str) -> set[str]:
    """The modules a fresh interpreter has after running the code."""
    shown = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(SOURCES)!r}); {code}; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(shown.stdout.split())


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return loaded("pass")


def test_the_package_alone_loads_no_engine(bare: set[str]) -> None:
    """`import agentmem` gives names; what they stand for is loaded with the first that is used."""
    new = loaded("import agentmem") - bare
    assert "agentmem" in new
    assert not {name for name in new if name.partition(".")[0] in {"apsw", "attr", "attrs"} | HEAVY}


@pytest.mark.parametrize("code", ["import agentmem; agentmem.Store", "from agentmem import *"])
def test_the_store_loads_nothing_heavy(bare: set[str], code: str) -> None:
    """The public names need apsw, attrs and the stemmer; no numbers, no models, no command line, no adapter."""
    new = loaded(code) - bare
    assert "agentmem.store" in new
    assert not {name for name in new if name.partition(".")[0] in HEAVY}
    assert not {name for name in new for room in LAZY if name == room or name.startswith(f"{room}.")}


def test_opening_and_writing_loads_nothing_heavy(bare: set[str], tmp_path: Path) -> None:
    """A process that writes a note and ends pays for no reader of answers."""
    code = (
        f"from agentmem import Store; store = Store.open({str(tmp_path / 'a.db')!r}, project='p', key=b'k' * 32);"
        " store.notes.add('fact', 'A fact'); store.close()"
    )
    new = loaded(code) - bare
    assert not {name for name in new if name.partition(".")[0] in HEAVY}
    assert "agentmem.context.resume" not in new
