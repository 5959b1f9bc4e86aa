"""The command line says where the key of a store is, also after it got another one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentmem import Store
from agentmem.adapters.cli.root import agentmem


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key but that of a home which is empty, and no keyring."""
    for name in [name for name in os.environ if name.startswith("AGENTMEM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setitem(sys.modules, "keyring", None)


def run(path: Path, *arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(agentmem, [*arguments, "--json"], env={"AGENTMEM_DB": str(path)})
    assert result.exit_code == code, (result.output, result.exception)
    return json.loads(result.stdout) if code == 0 else json.loads(result.stderr)["error"]


def test_where_the_key_is(path: Path, tmp_path: Path) -> None:
    """`key where` names the default key file, the store's own one after a rekey, and for a copy the one that opens it."""
    default = tmp_path / "config" / "agentmem" / "key"
    run(path, "init")
    assert run(path, "key", "where") | {"store": ""} == {"source": "default_file", "path": str(default), "store": ""}
    copy = tmp_path / "copy.db"
    with Store.open(path, project="acme") as store:
        store.database.snapshot_to(copy)
        made = store.rekey()
    assert run(path, "key", "where")["path"] == str(made.path)
    assert run(path, "key", "where")["source"] == "store_file"
    assert run(copy, "key", "where")["path"] == str(default)


def test_the_exported_key_opens_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`key export` prints the key the store has now, and that opens it on its own."""
    run(path, "init")
    before = run(path, "key", "export", "--yes")["key"]
    with Store.open(path, project="acme") as store:
        store.rekey()
    now = run(path, "key", "export", "--yes")["key"]
    assert now != before
    monkeypatch.setenv("AGENTMEM_KEY", now)
    run(path, "stats")
    monkeypatch.setenv("AGENTMEM_KEY", before)
    assert run(path, "stats", code=4)["code"] == "wrong_key"


def test_a_key_that_fits_nowhere_is_not_shown(path: Path, tmp_path: Path) -> None:
    """Where none of the keys there are opens the store, `key export` says that, and `key where` lists the places."""
    run(path, "init")
    (tmp_path / "config" / "agentmem" / "key").write_text("another\n")
    assert run(path, "key", "export", "--yes", code=4)["code"] == "wrong_key"
    result = CliRunner().invoke(agentmem, ["key", "where", "--json"], env={"AGENTMEM_DB": str(path)})
    assert (result.exit_code, json.loads(result.stdout)["source"]) == (4, None)
    assert "another" not in result.output


def test_init_again_says_where_the_own_key_is(path: Path) -> None:
    """`init` over a store with a key of its own names that file."""
    run(path, "init")
    with Store.open(path, project="acme") as store:
        made = store.rekey()
    assert run(path, "init")["key"] == {"source": "store_file", "path": str(made.path), "made": False}
    result = CliRunner().invoke(agentmem, ["init"], env={"AGENTMEM_DB": str(path)})
    assert str(made.path) in result.stderr
    assert "this store alone" in result.stderr
