"""Folders of real logs: tokens of each folder, and of the resume that an agent reads instead.

    python benchmarks/folders.py PATH [--under tasks] [--show NAME]

Every folder with a `task.json` is imported into a project of its own. Prints one line a folder and the totals; `--show`
prints the whole resume of one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from agentmem import Store


def main() -> None:
    """Import each folder and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--show", default="", help="print the resume of the folders whose name contains this")
    parser.add_argument("--budget", type=int, default=2000)
    options = parser.parse_args()
    folders = sorted({found.parent for found in options.path.rglob("task.json")})
    rows = []
    with (
        tempfile.TemporaryDirectory() as temporary,
        Store.open(Path(temporary) / "folders.db", project="folders", key=b"f" * 32, durability="normal") as store,
    ):
        for number, folder in enumerate(folders):
            project = store.in_project(f"folder-{number}")
            done = project.import_(folder)
            resumed = project.resume(budget=options.budget)
            rows.append((folder.relative_to(options.path), done, resumed))
            if options.show and options.show in str(folder):
                print(f"=== {folder.name}\n{resumed.text}\n")
        sound = store.verify(replay=True)
    if not options.show:
        print(f"{'folder':<70}{'files':>6}{'tokens':>9}{'resume':>8}{'left':>6}{'failed':>7}{'decided':>8}")
        for name, done, resumed in rows:
            print(
                f"{name!s:<70}{done.files:>6}{done.folder_tokens:>9}{resumed.tokens:>8}"
                f"{done.left:>6}{done.failed:>7}{done.decided:>8}"
            )
    raw = sum(done.folder_tokens for _, done, _ in rows)
    read = sum(resumed.tokens for _, _, resumed in rows)
    ratio = statistics.median(done.folder_tokens / max(resumed.tokens, 1) for _, done, resumed in rows)
    print(
        f"{len(rows)} folders, {raw:,} tokens -> {read:,}; median ratio {ratio:.1f}; {'sound' if sound else sound.problems}"
    )


if __name__ == "__main__":
    main()
