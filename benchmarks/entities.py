"""`entities.query` on a check over 100,000 entities."""

from __future__ import annotations

from pathlib import Path

from agentmem import Row
from benchmarks.corpus import opened
from benchmarks.measure import Figure, series
from benchmarks.run import Setting


def figures(setting: Setting) -> list[Figure]:
    """The first page, the first page with the total, a page further on; of what lacks a check, and what failed it."""
    path = _store(setting)
    found = []
    with opened(path) as store:
        for where in ("check.authz is null", "check.authz = 'fail'", "check.authz is null and attrs.area = 'api'"):
            aims = (None, None) if "attrs" in where else (2, 30)
            first = series([lambda: store.entities.query("host", where=where)] * setting.rounds(60))  # noqa: B023
            total = series([lambda: store.entities.query("host", where=where, total=True)] * setting.rounds(30))  # noqa: B023
            for what, times, aim in (("first page", first, aims[0]), ("with the total", total, aims[1])):
                found.append(Figure("entities", f"query {where!r}, {what}", times.median, "ms", aim, more=times.spread))
        after = store.entities.query("host", where="check.authz is null").after
        further = series(
            [lambda: store.entities.query("host", where="check.authz is null", after=after)] * setting.rounds(60)
        )
        found.append(Figure("entities", "the page after it", further.median, "ms", 2, more=further.spread))
    return found


def _store(setting: Setting) -> Path:
    path = setting.directory / f"entities-{setting.notes}.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    areas = ("api", "web", "mail", "internal")
    with opened(path, durability="normal") as store:
        for start in range(0, setting.notes, 5000):
            with store.transaction():
                rows = [
                    Row(
                        f"host-{n:06}.example.com", attrs={"area": areas[n % 4], "port": n % 9000, "score": n % 97 / 97}
                    )
                    for n in range(start, min(start + 5000, setting.notes))
                ]
                store.entities.put_many("host", rows=rows)
                # Nine tenths are marked, one in thirty of these failed.
                for result, keys in _marks([row.key for row in rows]).items():
                    store.entities.mark("host", keys, {"authz": result, "tls": "pass"})
    return path


def _marks(keys: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"pass": [], "fail": []}
    for number, key in enumerate(keys):
        if number % 10:
            found["fail" if number % 30 == 1 else "pass"].append(key)
    return found
