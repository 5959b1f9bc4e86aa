"""Measure how well what was written is found again; print tables, write the figures as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.retrieval import report
from benchmarks.retrieval.data import Collection, collection, names
from benchmarks.retrieval.dump import dump
from benchmarks.retrieval.measures import Answered
from benchmarks.retrieval.methods import every
from benchmarks.retrieval.sweep import sweep, table
from benchmarks.retrieval.terms import ablated
from benchmarks.retrieval.vectors import Vectors

RESULTS = Path(__file__).parents[1] / "results"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--sets", help=f"some of {','.join(names())}, parted by commas; by default all", default="")
    parser.add_argument("--ablate", action="store_true", help="also what each weight and each term is worth")
    parser.add_argument("--out", type=Path, help="the JSON; by default a new file beside the other results")
    parser.add_argument(
        "--dump", type=Path, metavar="DIR", help="write records, questions and cosines there; measure nothing"
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep the vectors there and use them again")
    asked = parser.parse_args(arguments)
    vectors = _vectors(asked.cache)
    found: dict[str, Any] = {}
    for name in filter(None, asked.sets.split(",")) if asked.sets else names():
        wanted = collection(name)
        if wanted is None:
            print(f"skipped: {name}, its data is not here", file=sys.stderr)
        elif asked.dump is not None:
            dump(wanted, vectors, asked.dump)
        else:
            found[name] = _measured(wanted, vectors, ablate=asked.ablate)
        vectors.keep()
    if asked.dump is None:
        _write(found, asked.out)


def _vectors(cache: Path | None) -> Vectors:
    from agentmem.recall.embedder import shipped

    model = shipped()
    return Vectors(model.embed, model.id, cache)


def _measured(wanted: Collection, vectors: Vectors, *, ablate: bool) -> dict[str, Any]:
    """The figures of one set; its tables are printed."""
    answers: dict[str, list[Answered]] = {}
    with tempfile.TemporaryDirectory(prefix="agentmem-bench-") as scratch:
        for space in wanted.spaces:
            for name, ranked in every(wanted, space, vectors, Path(scratch)):
                answers.setdefault(name, []).extend(report.answered(space, ranked, sessions=wanted.sessions))
    figures = {name: report.figures(wanted, found) for name, found in answers.items()}
    comparison = report.compared(answers)
    print(report.tables(wanted, figures, comparison), end="\n\n", flush=True)
    result: dict[str, Any] = {"methods": figures, "comparison": comparison}
    if ablate:
        result["fusions"] = sweep(wanted, vectors)
        print(f"### Simple fusions\n\n{table(result['fusions'])}", end="\n\n", flush=True)
        with tempfile.TemporaryDirectory(prefix="agentmem-bench-") as scratch:
            result["terms"] = ablated(wanted, Path(scratch))
        print(f"### Terms of recall\n\n{table(result['terms'])}", end="\n\n", flush=True)
    return result


def _write(found: dict[str, Any], path: Path | None) -> None:
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    target = path or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-retrieval.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        json.dumps({"machine": machine, "sets": found}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
