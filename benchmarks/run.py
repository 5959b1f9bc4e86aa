"""Run the benchmarks, print a table, write the figures as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Figure

THEMES = (
    "imports",
    "opening",
    "writes",
    "answers",
    "entities",
    "search",
    "past",
    "vectors",
    "recall",
    "embedding",
    "servers",
    "hooks",
    "sessions",
)
RESULTS = Path(__file__).parent / "results"


@dataclass
class Setting:
    """How much to measure, and where the files go.

    `directory` keeps the large stores from run to run; `disk` and `memory` are emptied, `memory` is None where there is
    no tmpfs.
    """

    quick: bool
    directory: Path
    disk: Path
    memory: Path | None

    @property
    def notes(self) -> int:
        """Notes of the large store."""
        return 5_000 if self.quick else 100_000

    @property
    def goals(self) -> int:
        """Goals of the large store."""
        return 200 if not self.quick else 20

    def rounds(self, number: int) -> int:
        """How often to repeat."""
        return max(number // 5, 2) if self.quick else number

    def scaled(self, number: int) -> int:
        """How many of something."""
        return max(number // 10, 2) if self.quick else number


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data, to see that all of it runs")
    parser.add_argument("--only", action="append", choices=THEMES, help="one theme; may be repeated")
    parser.add_argument("--dir", type=Path, help="keep the large stores here and use them again")
    asked = parser.parse_args(arguments)
    from benchmarks.measure import table

    with tempfile.TemporaryDirectory(prefix="agentmem-bench-") as scratch:
        directory = asked.dir or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else scratch) as in_memory:
            setting = Setting(asked.quick, directory, Path(scratch), Path(in_memory) if memory.is_dir() else None)
            found: list[Figure] = []
            for theme in asked.only or THEMES:
                found += importlib.import_module(f"benchmarks.{theme}").figures(setting)
    print(table(found))
    _write(found, quick=asked.quick)


def _write(found: Sequence[Figure], *, quick: bool) -> None:
    RESULTS.mkdir(exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S") + ("-quick" if quick else "") + ".json"
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    content = {"machine": machine, "quick": quick, "figures": [one.to_dict() for one in found]}
    (RESULTS / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
