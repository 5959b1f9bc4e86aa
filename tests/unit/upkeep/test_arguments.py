"""Whatever is passed to the verbs on files: it works, or it is refused by a typed error."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from damage import KEY, filled, names

from agentmem import AgentMemError, Head, Store

ODD = [
    None, True, 0, -1, 2**63, 1.5, math.nan, "", " ", ".", "/", "a\nb", "\0", "\ud800", "\x1b[31m", "x" * 300, "x" * 5000,
    "x" * 300 + "/y", "nowhere/x", "work.db/x", "work.db", b"", b"x", b"k" * 32, b"k" * 33, [], ["a"], {}, {"a": 1}, (), object(),
    "x'00'", "hex:00", "é" * 200, lambda: None, lambda: 5, lambda: KEY, Head("a", 1, "b"), Head("ab" * 16, -1, "00" * 32),
    Head("ab" * 16, 5, "zz"), Path("work.db"), Path("deep") / "x",
]  # fmt: skip
PASSPHRASES = ("", "a\nb", "\0", "\ud800", "x" * 5000, "x'00'")  # each good one is stretched for a tenth of a second
CALLS = [
    ("backup", "path"), ("backup", "key"), ("restore", "source"), ("restore", "path"), ("restore", "key"), ("restore", "new_key"),
    ("doctor", "path"), ("doctor", "key"), ("doctor", "repair"), ("salvage", "path"), ("salvage", "to"), ("salvage", "key"),
    ("salvage", "new_key"), ("salvage", "remainder"), ("salvage", "head"),
]  # fmt: skip
GIVEN: dict[str, dict[str, Any]] = {
    "backup": {"path": "out"},
    "restore": {"source": "work.db", "path": "out", "key": KEY},
    "doctor": {"path": "work.db", "key": KEY},
    "salvage": {"path": "work.db", "to": "out", "key": KEY},
}


@pytest.mark.parametrize(("verb", "name"), CALLS)
def test_any_value_is_taken_or_refused_by_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    """No other exception comes out, its message is one readable line, and the store stays as it is."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "work.db"
    head = filled(path, 5)
    before = path.read_bytes()
    strings = PASSPHRASES if "key" in name else ODD
    for value in (each for each in ODD if not isinstance(each, str) or each in strings):
        options = GIVEN[verb] | {name: value}
        try:
            if verb == "backup":
                with Store.open(path, project="acme", key=KEY, read_only=True) as store:
                    store.backup(**options)
            else:
                getattr(Store, verb)(**options)
        except AgentMemError as error:
            assert str(error).isprintable()
            assert len(str(error)) < 10_000
        for made in names(tmp_path) - {"work.db"}:
            found = tmp_path / made
            if made.endswith((".tmp", ".db-wal")):
                assert made == "work.db-wal"
            found.unlink()
    assert path.read_bytes() == before
    with Store.open(path, project="acme", key=KEY) as store:
        assert store.log.head() == head
