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
    assert (first.needs, second.needs) == (("headers", "tls"), ("headers", "tls"))


def test_the_text_of_a_table_does_not_depend_on_what_is_asked_for(tmp_path):
    """An import with other types changes entities, and no note."""
    files = {"hosts.md": HOSTS, "plan.md": "# P\n\n## Live hosts\n\n- 10.0.0.1: web\n\n## Steps\n\n- [ ] look\n"}
    plain, asked = read(tmp_path, files), read(tmp_path, files, "host")
    assert plain.entities == ()
    assert [(note.source, note.digest) for note in plain.notes] == [(note.source, note.digest) for note in asked.notes]


def test_a_row_needs_the_checks_of_its_own_tables(tmp_path):
    """Blank cells included, and a column that is empty all the way down where another table has results in it."""
    one = "# A\n\n| Host | TLS | Headers |\n|---|---|---|\n| a | pass | |\n| b | | fail |\n"
    two = "# B\n\n| Host | TLS | Note |\n|---|---|---|\n| c | | |\n"
    log = "# 2026-10-13\n\n| Host | Verdict | 结论 |\n|---|---|---|\n| b | slow | fail |\n"
    plan = read(tmp_path, {"a.md": one, "b.md": two, "journal/2026-10-13.md": log}, "host")
    assert {entity.key: entity.needs for entity in plan.entities} == {
        "a": ("headers", "tls"),
        "b": ("headers", "tls", "结论"),
        "c": ("tls",),
    }


TABLE = "| Host | TLS |\n|---|---|\n| pay.example.org | |\n| b.example.org | pass |\n"


@pytest.mark.parametrize(
    "text",
    [
        f"# H\n\n## Out of scope\n\n{TABLE}",
        f"# H\n\n## Not ours to touch\n\n{TABLE}",
        f"# H\n\n## 不在范围\n\n{TABLE}",
        f"# H\n\n## 超出范围的主机\n\n{TABLE}",
        f"# H\n\n## 勿动\n\n{TABLE}",
        f"# H\n\n## 别碰\n\n{TABLE}",
        f"# H\n\n## Hosts that are out of scope\n\n{TABLE}",
        f"# H\n\n## Hosts\n\n### Not ours\n\n{TABLE}",
        f"# H\n\n## Hosts\n\n**Out of scope**:\n\n{TABLE}",
        f"# H\n\n## Hosts\n\nThese are not ours:\n\n{TABLE}",
        f"# Hosts out of scope\n\n## List\n\n{TABLE}",
        "# H\n\n## Out of scope hosts\n\n- pay.example.org\n- b.example.org: mail\n",
        "# H\n\n| Host | Scope |\n|---|---|\n| pay.example.org | no |\n| b.example.org | out of scope |\n",
        "# H\n\n| Host | Status |\n|---|---|\n| pay.example.org | out of scope |\n| b.example.org | 不在范围 |\n",
    ],
)
def test_what_is_not_ours_is_no_entity(tmp_path, text):
    """Nothing that is out of scope is handed out as work; it stays in the text of a note."""
    plan = read(tmp_path, {"hosts.md": text}, "host")
    assert plan.entities == ()
    texts = "\n".join(f"{note.title} {note.body}" for note in plan.notes)
    assert "pay.example.org" in texts
    assert "b.example.org" in texts


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
