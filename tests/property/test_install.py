"""Whatever stands in a client's file: an install adds one entry, and an uninstall takes it out again."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from agentmem.adapters.install.applying import applied
from agentmem.adapters.install.clients import CLIENTS
from agentmem.adapters.install.commands import Options
from agentmem.adapters.install.entries import server_entry
from agentmem.adapters.install.jsontext import append, parsed, put, remove
from agentmem.adapters.install.planning import planned_install, planned_uninstall
from agentmem.adapters.install.register import Register
from agentmem.adapters.install.surroundings import Surroundings

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)
SERVERS = st.dictionaries(TEXT.filter(lambda name: name != "agentmem"), VALUES, max_size=3)
HOOKS = st.dictionaries(st.sampled_from(["SessionStart", "Stop", "Other"]), st.lists(VALUES, max_size=3), max_size=3)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={"mcpServers": SERVERS, "hooks": HOOKS, "theme": VALUES, "": VALUES, "é\n\\": VALUES},
)
INDENTS = st.sampled_from([None, 0, 1, 2, 4, "\t"])
ENDS = st.sampled_from(["", "\n", "\r\n", " \n\n"])


def written(value: Any, indent: Any, end: str, ascii_only: bool) -> str:
    separators = (",", ":") if indent == 0 else None
    text = json.dumps(value, indent=indent or None, ensure_ascii=ascii_only, separators=separators) + end
    return text.replace("\n", "\r\n") if end == "\r\n" else text


@given(CONFIGS, INDENTS, ENDS, st.booleans(), st.sampled_from(["gemini", "claude-code", "windsurf"]), st.booleans())
def test_any_configuration_survives(
    value: dict[str, Any], indent: Any, end: str, ascii_only: bool, client: str, edited: bool
) -> None:
    """Its other keys survive the install; the uninstall brings it back byte for byte, or in value where it was edited."""
    text = written(value, indent, end, ascii_only)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        around, known = Surroundings(home, home / "p", "linux"), CLIENTS[client]
        path, options = around.path(known.servers("user")[0]), Options("/py", skill=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        applied(planned_install(known, "user", around, options, Register(home / "installs.json")))
        after = json.loads(path.read_bytes())
        assert after["mcpServers"].pop("agentmem") == server_entry(known, options)
        after["hooks"] = {
            event: kept
            for event, listed in after.get("hooks", {}).items()
            if (kept := [one for one in listed if "-m agentmem hook" not in json.dumps(one)])
            or event in value.get("hooks", {})
        }
        assert after == {**value, "mcpServers": value.get("mcpServers", {}), "hooks": value.get("hooks", {})}
        if edited:
            path.write_bytes(path.read_bytes() + b" ")
        applied(planned_uninstall(known, "user", around, Register.load(home / "installs.json")))
        assert path.read_bytes() == text.encode() if not edited else json.loads(path.read_bytes()) == value
        assert edited or not (home / "installs.json").exists()


NOISE = st.sampled_from(["", " ", "\n", "\r\n", "\t", "/* , ] */", '// } "\n', "/*\n*/"])


@st.composite
def commented(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON with comments, blanks and trailing commas anywhere."""

    def noise() -> str:
        return draw(NOISE) + draw(NOISE)

    def spelled(one: Any) -> str:
        if isinstance(one, dict):
            parts = [f"{noise()}{json.dumps(k)}{noise()}:{noise()}{spelled(v)}{noise()}" for k, v in one.items()]
        elif isinstance(one, list):
            parts = [f"{noise()}{spelled(v)}{noise()}" for v in one]
        else:
            return json.dumps(one)
        comma = "," + noise() if parts and draw(st.booleans()) else "" if parts else noise()
        left, right = "{}" if isinstance(one, dict) else "[]"
        return f"{left}{','.join(parts)}{comma}{right}"

    return draw(NOISE) + spelled(value) + draw(NOISE)


OBJECTS = st.dictionaries(TEXT.filter(lambda name: name != "ours"), VALUES, min_size=0, max_size=4)


@given(st.data(), OBJECTS, VALUES)
def test_comments_survive_any_change(data: st.DataObject, value: dict[str, Any], new: Any) -> None:
    """A member is put in and taken out again: the values are right at each step, and no comment is lost."""
    text = data.draw(commented(value))
    comments = text.count("/*"), text.count("//")
    changed = put(text, ("ours", "a"), new, comments=True)
    assert parsed(changed, comments=True).value == {**value, "ours": {"a": new}}
    changed = put(changed, ("ours", "list"), [1], comments=True)
    changed = append(changed, ("ours", "list"), new, comments=True)
    assert parsed(changed, comments=True).value["ours"]["list"] == [1, new]
    back = remove(changed, ("ours",), comments=True)
    assert parsed(back, comments=True).value == value
    if not any(mark in json.dumps(new) for mark in ("/*", "//")):
        assert (back.count("/*"), back.count("//")) == comments
    for name in value:
        less = remove(text, (name,), comments=True)
        assert parsed(less, comments=True).value == {key: one for key, one in value.items() if key != name}
