"""Tables and lists of like things, where the caller asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.transfer.markdown import Plan, read_folder

HOSTS = """\
# Hosts

## In scope

| Host | Ports | Status | TLS | Headers | Note |
|---|---|---|---|---|---|
| www.example.com | 80 | done | pass | ✅ | front |
| `api.example.com` | 443, 8443 | active | fail | | |
| TBD | | | | | |

After the table.
"""


def read(root: Path, files: dict[str, str], *types: str) -> Plan:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return read_folder(root, entities=types)


def test_without_asking_a_table_is_text(tmp_path):
    """Tables become entities only for the types named."""
    plan = read(tmp_path, {"hosts.md": HOSTS})
    assert plan.entities == ()
    assert any("www.example.com" in note.body for note in plan.notes)


def test_the_rows_of_a_table_are_entities(tmp_path):
    """Key by the column of the type, status by its column, results as checks, what else is told as attributes."""
    plan = read(tmp_path, {"hosts.md": HOSTS}, "host")
    first, second = sorted(plan.entities, key=lambda entity: entity.key, reverse=True)
    assert (first.type, first.key, first.status) == ("host", "www.example.com", "done")
    assert (first.attrs, first.checks) == ({"ports": 80, "note": "front"}, {"tls": "pass", "headers": "pass"})
    assert (second.key, second.attrs, second.checks) == ("api.example.com", {"ports": "443, 8443"}, {"tls": "fail"})
    bodies = "\n".join(note.body for note in plan.notes)
    assert "www.example.com" not in bodies
    assert "After the table." in bodies


@pytest.mark.parametrize("header", ["Host", "Hosts", "主机", "IP address", "Hostname"])
def test_a_type_is_known_by_its_usual_names(tmp_path, header):
    """English and Chinese, one or many."""
    plan = read(tmp_path, {"a.md": f"# A\n\n| # | {header} |\n|---|---|\n| 1 | 10.0.0.1 |\n"}, "host")
    assert [entity.key for entity in plan.entities] == ["10.0.0.1"]


def test_a_heading_that_names_the_type_makes_its_list_entities(tmp_path):
    """Each item is a thing with a note."""
    text = (
        "# Recon\n\n## Live hosts\n\n- `10.0.0.1` — web\n- 10.0.0.2: ssh only\n"
        "- [x] 10.0.0.3\n\n## Other\n\n- 10.0.0.4\n"
    )
    plan = read(tmp_path, {"a.md": text}, "host")
    assert [(entity.key, entity.attrs, entity.status) for entity in plan.entities] == [
        ("10.0.0.1", {"note": "web"}, None),
        ("10.0.0.2", {"note": "ssh only"}, None),
        ("10.0.0.3", {}, "done"),
    ]


def test_method_and_path_are_one_key(tmp_path):
    """An endpoint is its method and its path, in whichever table it stands."""
    one = "# E\n\n| Method | Path | authz |\n|---|---|---|\n| GET | /users | pass |\n"
    two = "# F\n\n| Endpoint | csrf |\n|---|---|\n| GET /users | fail |\n"
    plan = read(tmp_path, {"a.md": one, "b.md": two}, "endpoint")
    assert [(entity.key, entity.checks) for entity in plan.entities] == [
        ("GET /users", {"authz": "pass", "csrf": "fail"})
    ]


def test_a_dash_beside_empty_cells_means_not_applicable(tmp_path):
    """An empty cell was not looked at; a dash where others are empty was written on purpose."""
    text = (
        "# E\n\n| Endpoint | authz | csrf |\n|---|---|---|\n| GET /a | pass | — |\n"
        "| POST /b | ✅ | |\n| PUT /c | ❌ | pass |\n"
    )
    plan = read(tmp_path, {"a.md": text}, "endpoint")
    assert [entity.checks for entity in plan.entities] == [
        {"authz": "pass", "csrf": "na"},
        {"authz": "pass"},
        {"authz": "fail", "csrf": "pass"},
    ]


def test_the_newest_file_wins_attribute_by_attribute(tmp_path):
    """A retest in a dated journal overrules an older table and leaves the rest of it."""
    journal = "# 2026-10-22\n\n| Host | TLS | Status |\n|---|---|---|\n| www.example.com | fail | reopened |\n"
    plan = read(tmp_path, {"hosts.md": HOSTS, "journal/2026-10-22.md": journal}, "host")
    www = next(entity for entity in plan.entities if entity.key == "www.example.com")
    assert (www.checks, www.status) == ({"tls": "fail", "headers": "pass"}, "reopened")
    assert www.attrs["note"] == "front"
