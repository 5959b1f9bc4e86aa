"""Installing agentmem into clients and out of them: what was there stays, byte for byte."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from machines import EACH, Machine, existing

from agentmem.adapters.hooks.hosts import HOSTS, HookEvent
from agentmem.adapters.install.applying import applied
from agentmem.adapters.install.clients import CLIENTS, client_named
from agentmem.adapters.install.commands import Options, hook_command
from agentmem.adapters.install.entries import server_entry, skill_text, snippets
from agentmem.adapters.install.jsontext import at, parsed
from agentmem.adapters.install.planning import difference, state
from agentmem.adapters.install.register import Register
from agentmem.adapters.install.surroundings import Scope, Surroundings
from agentmem.errors import Conflict, InvalidInput, IoFailed

HOOKED = [(client, scope) for client, scope in EACH if CLIENTS[client].hooks is not None]
ROOT = pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write anywhere")


def server_in(path: Path, client: str) -> Any:
    """What stands in a client's file as its server agentmem."""
    text, known = path.read_text("utf-8"), CLIENTS[client]
    value = tomllib.loads(text) if path.suffix == ".toml" else parsed(text, comments=known.comments).value
    return at(value, (*known.key, "agentmem"))


@pytest.mark.parametrize(("client", "scope"), EACH)
def test_a_fresh_machine_gets_it_and_is_as_it_was_afterwards(machine: Machine, client: str, scope: Scope) -> None:
    """Without any file of a client all are made; an uninstall leaves not a file and not a folder of them."""
    before = machine.tree()
    machine.install(client, scope)
    known = CLIENTS[client]
    assert server_in(machine.servers(client, scope), client) == server_entry(known, machine.options)
    if scope in known.skills:
        skill = machine.around.path(known.skills[scope]) / "agentmem" / "SKILL.md"
        assert skill.read_text("utf-8") == skill_text()
    machine.uninstall(client, scope)
    after = machine.tree()
    after.pop("config", None)
    assert after == before


@pytest.mark.parametrize(("client", "scope"), EACH)
def test_an_existing_file_comes_back_byte_for_byte(machine: Machine, client: str, scope: Scope) -> None:
    """Other servers, settings, comments and layout stay; a copy is kept; an uninstall restores every byte."""
    known = CLIENTS[client]
    path = machine.put(machine.servers(client, scope), existing(known))
    before = machine.tree()
    machine.install(client, scope)
    text = path.read_text("utf-8")
    assert server_in(path, client) == server_entry(known, machine.options)
    assert path.with_name(f"{path.name}.before-agentmem").read_text("utf-8") == existing(known)
    for line in existing(known).rstrip("}\n").splitlines():
        assert line.rstrip(",]") in text
    machine.uninstall(client, scope)
    after = machine.tree()
    after.pop("config", None)
    assert after == before


@pytest.mark.parametrize(("client", "scope"), EACH)
def test_a_file_that_was_edited_since_loses_only_what_is_ours(machine: Machine, client: str, scope: Scope) -> None:
    """What somebody wrote after the install stays; the copy from before stays too, and is named."""
    known = CLIENTS[client]
    path = machine.put(machine.servers(client, scope), existing(known))
    machine.install(client, scope)
    text = path.read_text("utf-8")
    edited = text + "# later\n" if path.suffix == ".toml" else text.replace('"dark"', '"light"')
    path.write_text(edited, "utf-8")
    plan = machine.uninstall(client, scope)
    left = path.read_text("utf-8")
    assert "agentmem" not in left
    expected = existing(known) + "# later\n" if path.suffix == ".toml" else existing(known).replace('"dark"', '"light"')
    assert left == expected
    copy = path.with_name(f"{path.name}.before-agentmem")
    assert copy.read_text("utf-8") == existing(known)
    assert any(str(copy) in note for note in plan.notes)


@pytest.mark.parametrize(("client", "scope"), EACH)
def test_a_second_install_has_nothing_to_do(machine: Machine, client: str, scope: Scope) -> None:
    """The same once more changes nothing, also where the file was edited elsewhere meanwhile."""
    path = machine.put(machine.servers(client, scope), existing(CLIENTS[client]))
    machine.install(client, scope)
    tree = machine.tree()
    assert not machine.install(client, scope)
    assert machine.tree() == tree
    path.write_bytes(path.read_bytes() + b"\n")
    assert not machine.install(client, scope)


@pytest.mark.parametrize(("client", "scope"), EACH)
def test_other_options_are_a_change_that_is_taken_back_too(machine: Machine, client: str, scope: Scope) -> None:
    """A second install with other options replaces the entries, keeps the first copy, and an uninstall restores all."""
    path = machine.put(machine.servers(client, scope), existing(CLIENTS[client]))
    before = machine.tree()
    machine.install(client, scope)
    assert machine.install(client, scope, db="/data/other.db", full=True)
    assert "/data/other.db" in path.read_text("utf-8")
    assert path.read_text("utf-8").count('"serve"') == 1
    assert path.with_name(f"{path.name}.before-agentmem").read_text("utf-8") == existing(CLIENTS[client])
    machine.uninstall(client, scope)
    after = machine.tree()
    after.pop("config", None)
    assert after == before


def test_edits_between_two_installs_are_not_lost(machine: Machine) -> None:
    """What was written between two installs is in no copy, so that an uninstall puts none back."""
    path = machine.put(machine.servers("cursor"), existing(CLIENTS["cursor"]))
    machine.install("cursor")
    path.write_text(path.read_text("utf-8").replace('"dark"', '"light"'), "utf-8")
    machine.install("cursor", db="/data/other.db")
    machine.uninstall("cursor")
    assert path.read_text("utf-8") == existing(CLIENTS["cursor"]).replace('"dark"', '"light"')


@pytest.mark.parametrize(("client", "scope"), HOOKED)
def test_hooks_stand_beside_those_of_others(machine: Machine, client: str, scope: Scope) -> None:
    """Every event that the table of hosts names gets one hook; those of others stay and survive the uninstall."""
    hooks = CLIENTS[client].hooks
    assert hooks is not None
    events = [hook.name for hook in HOSTS[hooks.host].values() if hook.installed]
    other: Any = {"command": "mine", "timeout": 1}
    other = {"matcher": "x", "hooks": [{"type": "command", **other}]} if hooks.grouped else other
    text = json.dumps({"version": 1, "hooks": {events[0]: [other], "Other": [other]}}, indent=4)
    path = machine.put(machine.hooks(client, scope), text)
    machine.install(client, scope)
    value = json.loads(path.read_text("utf-8"))["hooks"]
    assert value[events[0]][0] == other
    assert value["Other"] == [other]
    for event in events:
        (ours,) = [json.dumps(one) for one in value[event] if "agentmem hook" in json.dumps(one)]
        assert f"--host {hooks.host}" in ours
    path.write_text(path.read_text("utf-8").replace('"mine"', '"changed"'), "utf-8")
    machine.uninstall(client, scope)
    assert json.loads(path.read_text("utf-8")) == json.loads(text.replace('"mine"', '"changed"'))


@pytest.mark.parametrize(("client", "scope"), HOOKED)
def test_hooks_can_be_left_out_and_taken_out(machine: Machine, client: str, scope: Scope) -> None:
    """Without hooks none are written; a second install without them takes them out again."""
    machine.install(client, scope, hooks=False, skill=False)
    assert "agentmem hook" not in "".join(map(str, machine.tree().values()))
    without = machine.servers(client, scope).read_bytes()
    machine.install(client, scope, skill=False)
    assert "agentmem hook" in machine.hooks(client, scope).read_text("utf-8")
    machine.install(client, scope, hooks=False, skill=False)
    path = machine.hooks(client, scope)
    assert machine.servers(client, scope).read_bytes() == without
    assert path == machine.servers(client, scope) or not path.exists()


def test_a_hook_that_somebody_moved_to_another_group_goes_too(machine: Machine) -> None:
    """A handler of ours in a group with others is taken out of it, and the others stay."""
    machine.install("claude-code")
    path = machine.hooks("claude-code")
    value = json.loads(path.read_text("utf-8"))
    value["hooks"]["Stop"][0]["hooks"].insert(0, {"type": "command", "command": "mine"})
    path.write_text(json.dumps(value), "utf-8")
    machine.uninstall("claude-code")
    assert json.loads(path.read_text("utf-8")) == {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}
    }


BROKEN = [
    "{", "[]", '"text"', '{"mcpServers": []}', '{"mcpServers": "x"}', '{"mcpServers": null}', '{"a": NaN}',
    '{"mcpServers": {}, "mcpServers": {}}', '{"mcpServers": {"agentmem": {"command": "another"}}}',
    '// no comment here\n{}', "[" * 100_000, '{"mcpServers": {"agentmem": 5}}',
]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:40])
def test_a_broken_file_is_refused_and_nothing_is_written(machine: Machine, text: str) -> None:
    """Bad JSON, wrong types and an entry of our name that is not ours: a typed error that names the file."""
    path = machine.put(machine.servers("claude-code"), text)
    before = machine.tree()
    with pytest.raises((InvalidInput, Conflict)) as raised:
        machine.install("claude-code")
    assert str(path) in raised.value.what
    assert "mcp show claude-code" in raised.value.next
    assert machine.tree() == before


@pytest.mark.parametrize(
    "text", ["a = ", "mcp_servers = 5", 'mcp_servers = {other = {command = "x"}}', "[[mcp_servers]]\na = 1",
             '[mcp_servers.agentmem]\ncommand = "x"', "a = 1\na = 2"],
)  # fmt: skip
def test_toml_to_which_no_table_can_be_added_is_refused(machine: Machine, text: str) -> None:
    """Bad TOML, inline tables and a table that is not ours are left as they are."""
    machine.put(machine.servers("codex"), text)
    before = machine.tree()
    with pytest.raises((InvalidInput, Conflict)):
        machine.install("codex")
    assert machine.tree() == before


@pytest.mark.parametrize("text", ['{"hooks": []}', '{"hooks": {"SessionStart": {}}}', "not json", '{"hooks": 5}'])
def test_a_broken_second_file_keeps_the_first_untouched(machine: Machine, text: str) -> None:
    """All files are planned before any is written."""
    machine.put(machine.hooks("claude-code"), text)
    before = machine.tree()
    with pytest.raises(InvalidInput):
        machine.install("claude-code")
    assert machine.tree() == before


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00}\x00", b'{"a": "\xe9"}'])
def test_other_encodings_are_refused(machine: Machine, data: bytes) -> None:
    """A file that is not UTF-8 is left as it is."""
    path = machine.put(machine.servers("cursor"), "")
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match="UTF-8"):
        machine.install("cursor")
    assert path.read_bytes() == data


@pytest.mark.parametrize("text", ["", " \n", "\ufeff{}", "{}", '{"mcpServers":{}}', '{"a":1}', '{ "a" : 1 }\r\n',
                                  '{\r\n\t"a": {},\r\n\t"mcpServers": {\r\n\t}\r\n}\r\n'])  # fmt: skip
def test_any_layout_of_json_takes_the_entry_and_comes_back(machine: Machine, text: str) -> None:
    """Empty files, one line, tabs, a byte order mark, line ends of Windows."""
    path = machine.put(machine.servers("cursor"), text)
    machine.install("cursor")
    after = path.read_bytes().decode()
    assert server_in_text(after) == server_entry(CLIENTS["cursor"], machine.options)
    assert "\r\n" not in text or "\n" not in after.replace("\r\n", "")
    machine.uninstall("cursor")
    assert path.read_bytes().decode() == text


def server_in_text(text: str) -> Any:
    return json.loads(text.removeprefix("\ufeff"))["mcpServers"]["agentmem"]


JSONC = """// settings
{
  /* a block
     of two lines */
  "servers": {
    "one": {"command": "x"}, // the first
    // the last
    "two": {"command": "y", "args": ["//no comment", "/* nor this */",],},
    // after the last
  },
  "inputs": [], // trailing
}
// the end
"""


def test_comments_and_trailing_commas_stay(machine: Machine) -> None:
    """A file with comments is edited as text: each line of it is there afterwards, and after surgery too."""
    path = machine.put(machine.servers("vscode"), JSONC)
    machine.install("vscode")
    text = path.read_text("utf-8")
    assert [line for line in text.splitlines() if line in JSONC.splitlines()] == JSONC.splitlines()
    assert server_in(path, "vscode") == server_entry(CLIENTS["vscode"], machine.options)
    path.write_text(text + "// later\n", "utf-8")
    machine.uninstall("vscode")
    assert path.read_text("utf-8") == JSONC + "// later\n"


def test_opencode_gets_the_form_its_file_has(machine: Machine) -> None:
    """A file in the form of version 2 gets the server there, a .jsonc that is there is taken."""
    text = '{\n  "mcp": {"servers": {}}, // v2\n}\n'
    path = machine.put(machine.home / ".config" / "opencode" / "opencode.jsonc", text)
    machine.install("opencode")
    value = parsed(path.read_text("utf-8"), comments=True).value
    assert value["mcp"]["servers"]["agentmem"]["type"] == "local"
    assert "enabled" not in value["mcp"]["servers"]["agentmem"]
    assert list(value["mcp"]) == ["servers"]
    machine.uninstall("opencode")
    assert path.read_text("utf-8") == text


def test_a_table_of_ours_that_lost_its_marks_is_not_touched(machine: Machine) -> None:
    """Without the comments nothing tells where our block ends: that is said instead of guessed."""
    path = machine.put(machine.servers("codex"), "")
    machine.install("codex", hooks=False, skill=False)
    path.write_text(
        "\n".join(line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")), "utf-8"
    )
    with pytest.raises(Conflict, match="marks"):
        machine.install("codex", hooks=False, skill=False, db="/x.db")


def test_what_others_put_into_our_table_is_not_lost(machine: Machine) -> None:
    """Codex keeps settings of a server beneath its table; outside the block they bar the surgery, and it says so."""
    path = machine.put(machine.servers("codex"), 'model = "o9"\n')
    machine.install("codex", hooks=False, skill=False)
    path.write_text(path.read_text("utf-8") + "[mcp_servers.agentmem.tools.forget]\napproval = true\n", "utf-8")
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="agentmem"):
        machine.uninstall("codex")
    assert path.read_bytes() == before


def test_a_skill_that_is_there_is_not_written_over(machine: Machine) -> None:
    """A foreign file is refused; one of ours that was edited is left, at an install and at an uninstall."""
    skill = machine.home / ".claude" / "skills" / "agentmem" / "SKILL.md"
    machine.put(skill, "mine")
    with pytest.raises(Conflict, match="did not write"):
        machine.install("claude-code")
    skill.unlink()
    machine.install("claude-code")
    machine.put(skill, "edited")
    assert any("edited" in note for note in machine.plan("claude-code").notes)
    assert any("stays" in note for note in machine.uninstall("claude-code").notes)
    assert skill.read_text("utf-8") == "edited"


def test_a_skill_that_two_clients_share_goes_with_the_last(machine: Machine) -> None:
    """Codex and Zed read one folder: its file stays as long as one of them has agentmem."""
    skill = machine.home / ".agents" / "skills" / "agentmem" / "SKILL.md"
    machine.install("codex")
    machine.install("zed")
    machine.uninstall("codex")
    assert skill.exists()
    machine.uninstall("zed")
    assert not (machine.home / ".agents").exists()


def test_an_uninstall_without_an_install_has_nothing_to_do(machine: Machine) -> None:
    """Nothing is touched, also where an entry of that name stands there."""
    machine.put(machine.servers("cursor"), '{"mcpServers": {"agentmem": {}}}')
    before = machine.tree()
    assert not machine.uninstall("cursor")
    assert machine.tree() == before


def test_what_stands_there_by_hand_is_neither_doubled_nor_ours(machine: Machine) -> None:
    """Who pasted what show prints has nothing to install, and keeps it at an uninstall."""
    server, hooks = snippets(CLIENTS["cursor"], machine.options, "linux")
    assert hooks is not None
    machine.put(machine.servers("cursor"), server)
    machine.put(machine.hooks("cursor"), hooks)
    before = machine.tree()
    assert not machine.install("cursor", skill=False)
    machine.uninstall("cursor")
    assert machine.tree() == before


def test_a_table_by_hand_is_not_doubled_either(machine: Machine) -> None:
    """The same of TOML."""
    server, _ = snippets(CLIENTS["codex"], machine.options, "linux")
    machine.put(machine.servers("codex"), server)
    assert not machine.install("codex", hooks=False, skill=False)


@pytest.mark.skipif(os.name != "posix", reason="links and modes of POSIX")
def test_a_link_stays_a_link_and_a_mode_a_mode(machine: Machine) -> None:
    """What a link leads to is written, with its mode; the copy has that mode too, for secrets may be in it."""
    real = machine.put(machine.folder / "dot files" / "claude.json", '{"secret": "x"}')
    real.chmod(0o600)
    path = machine.servers("claude-code")
    path.symlink_to(real)
    machine.install("claude-code")
    assert path.is_symlink()
    assert "agentmem" in real.read_text("utf-8")
    copy = real.with_name("claude.json.before-agentmem")
    assert [stat.S_IMODE(one.stat().st_mode) for one in (real, copy)] == [0o600, 0o600]
    machine.uninstall("claude-code")
    assert path.is_symlink()
    assert real.read_text("utf-8") == '{"secret": "x"}'
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_links_that_lead_nowhere_or_round_are_told(machine: Machine) -> None:
    """A dangling link gets its file; a circle of links is a typed error."""
    path = machine.servers("claude-code")
    path.symlink_to(machine.home / "later.json")
    machine.install("claude-code")
    assert (machine.home / "later.json").is_file()
    other = machine.servers("windsurf")
    other.parent.mkdir(parents=True)
    other.symlink_to(other)
    with pytest.raises(IoFailed):
        machine.install("windsurf")


def test_a_folder_in_the_place_of_a_file_is_refused(machine: Machine) -> None:
    """What is no regular file is not written to."""
    machine.servers("cursor").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="regular"):
        machine.install("cursor")


@ROOT
@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_folder_that_can_not_be_written_leaves_nothing_behind(machine: Machine) -> None:
    """A write that fails midway puts back what was written before."""
    machine.put(machine.servers("claude-code"), "{}")
    locked = machine.home / ".claude"
    locked.mkdir(mode=0o500)
    before = machine.tree()
    with pytest.raises(IoFailed, match="can't be written"):
        machine.install("claude-code")
    locked.chmod(0o700)
    assert {name: data for name, data in machine.tree().items() if name != "config"} == before


def test_a_file_in_the_place_of_a_folder_leaves_nothing_behind(machine: Machine) -> None:
    """The last file fails: the others, their copies, the record and the folders made are as they were."""
    machine.put(machine.servers("claude-code"), '{"a": 1}')
    machine.put(machine.home / ".claude" / "skills", "a file")
    before = machine.tree()
    with pytest.raises(IoFailed, match="put back"):
        machine.install("claude-code")
    assert machine.tree() == before


def test_a_file_that_changed_since_it_was_planned_is_left_alone(machine: Machine) -> None:
    """Between the plan and the write nobody's change is lost."""
    path = machine.put(machine.servers("cursor"), "{}")
    plan = machine.plan("cursor")
    path.write_text('{"new": 1}', "utf-8")
    before = machine.tree()
    with pytest.raises(Conflict, match="meanwhile"):
        applied(plan)
    assert machine.tree() == before


def test_a_record_that_changed_since_is_left_alone(machine: Machine) -> None:
    """Two installs at once: the second is told, and nothing of the first is forgotten."""
    plan = machine.plan("cursor")
    machine.install("zed")
    with pytest.raises(Conflict, match="meanwhile"):
        applied(plan)
    assert [one.client for one in machine.register().installs] == ["zed"]


@pytest.mark.parametrize("steps", range(5))
def test_a_crash_between_files_leaves_each_whole_and_can_be_taken_back(
    machine: Machine, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written when the process died: an uninstall brings back what there was."""
    machine.put(machine.servers("claude-code"), existing(CLIENTS["claude-code"]))
    before = machine.tree()
    replace, replaced = os.replace, []

    class Died(BaseException):
        pass

    def dying(source: Path, target: Path) -> None:
        if len(replaced) == steps:
            raise Died
        replaced.append(target)
        replace(source, target)

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(os, "replace", dying)
        machine.install("claude-code")
    parsed(machine.servers("claude-code").read_text("utf-8"), comments=False)
    machine.uninstall("claude-code")
    files = {name: data for name, data in machine.tree().items() if data is not None}
    # Where not even the record was written, the copy is not known to be ours.
    assert {name: data for name, data in files.items() if not name.endswith(".before-agentmem")} == {
        name: data for name, data in before.items() if data is not None
    }
    assert steps < 2 or len(files) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9, "installs": []}', '{"version": 1, "installs": [{}]}'])
def test_a_damaged_record_is_refused(machine: Machine, text: str) -> None:
    """Without the record nothing can be told of what was installed, so nothing is done."""
    path = machine.put(machine.folder / "config" / "installs.json", text)
    with pytest.raises(InvalidInput, match="no record"):
        Register.load(path)


def test_the_record_says_what_became_of_each_file(machine: Machine) -> None:
    """As installed, edited since, gone."""
    machine.install("claude-code")
    machine.hooks("claude-code").write_text("{}", "utf-8")
    machine.servers("claude-code").unlink()
    assert [state(one) for one in machine.installed("claude-code").files] == ["gone", "edited since", "as installed"]


def test_the_difference_shows_what_is_added(machine: Machine) -> None:
    """A unified diff of each file, also of new ones and of files without a last line end."""
    machine.put(machine.servers("cursor"), '{"a": 1}')
    edits = machine.plan("cursor").edits
    first, second = difference(edits[0]), difference(edits[1])
    assert first.startswith(f"--- {machine.servers('cursor')}\n+++ {machine.servers('cursor')}\n")
    assert '-{"a": 1}\n\\ No newline' in first
    assert second.startswith(f"--- {os.devnull}\n")


def test_projects_and_the_user_are_kept_apart(machine: Machine) -> None:
    """Two projects and the user's own scope are three installs."""
    machine.install("cursor")
    machine.install("cursor", "project")
    machine.uninstall("cursor", "project")
    assert machine.servers("cursor").exists()
    assert not machine.servers("cursor", "project").exists()


def test_clients_without_a_scope_say_so() -> None:
    """Claude Desktop and Windsurf have no configuration of a project."""
    for name in ("claude-desktop", "windsurf"):
        with pytest.raises(InvalidInput, match="no configuration of a project"):
            CLIENTS[name].servers("project")
    with pytest.raises(InvalidInput, match="no client"):
        client_named("emacs")


def test_the_hosts_of_the_table_are_hosts() -> None:
    """Each client with hooks has a row in the table of hosts."""
    for client in CLIENTS.values():
        assert client.hooks is None or client.hooks.host in HOSTS


@pytest.mark.parametrize(
    ("platform", "environ", "template", "expected"),
    [
        ("darwin", {}, "{applications}/Claude/c.json", "/h/Library/Application Support/Claude/c.json"),
        ("win32", {"APPDATA": "/r"}, "{applications}/Claude/c.json", "/r/Claude/c.json"),
        ("win32", {}, "{zed}/settings.json", "/h/AppData/Roaming/Zed/settings.json"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "{applications}/Code/User/mcp.json", "/x/Code/User/mcp.json"),
        ("linux", {"XDG_CONFIG_HOME": "relative"}, "{xdg}/opencode/o.json", "/h/.config/opencode/o.json"),
        ("darwin", {}, "{zed}/settings.json", "/h/.config/zed/settings.json"),
        ("linux", {"CLAUDE_CONFIG_DIR": "/c"}, "{claude_json}/.claude.json", "/c/.claude.json"),
        ("linux", {"CODEX_HOME": "/c"}, "{codex}/config.toml", "/c/config.toml"),
        ("linux", {"COPILOT_HOME": "/c"}, "{copilot}/hooks/agentmem.json", "/c/hooks/agentmem.json"),
    ],
)
def test_folders_are_where_each_system_has_them(
    platform: str, environ: dict[str, str], template: str, expected: str
) -> None:
    """Application folders by system, and the variables that move them."""
    assert Surroundings(Path("/h"), Path("/p"), platform, environ).path(template) == Path(expected)


def test_the_skill_is_short_and_has_the_front_matter_that_clients_want() -> None:
    """Name and description within their limits, under 1,500 tokens."""
    from agentmem.context.tokens import count_tokens

    text = skill_text()
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == "agentmem"
    assert 0 < len(fields["description"]) <= 1024
    assert ": " not in fields["description"]
    assert count_tokens(text) < 1500
    assert "resume {}" in body


def test_nothing_heavy_is_loaded() -> None:
    """The installer needs neither engine nor server."""
    script = "import sys, agentmem.adapters.install.planning; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {name.partition(".")[0] for name in ran.stdout.split()} & {"numpy", "onnxruntime", "mcp", "starlette"}


def test_text_that_is_no_utf_8_is_refused(machine: Machine) -> None:
    """What can't stand in a file of UTF-8 is not written."""
    with pytest.raises(InvalidInput, match="UTF-8"):
        machine.install("cursor", db="/x/\udcff.db")


HOSTILE = '/da ta/it\'s $HOME `id` "q" ; 文.db'


@pytest.mark.skipif(os.name != "posix", reason="the shell of POSIX")
def test_a_hook_is_quoted_for_the_shell() -> None:
    """Spaces, quotes, dollars and letters of any script reach the hook as they are."""
    line = hook_command(Options("/opt/py thon"), HookEvent.STOP, "cursor", "linux")
    assert line == "'/opt/py thon' -P -m agentmem hook stop --host cursor"
    line = hook_command(Options("/opt/py thon", db=HOSTILE, project="a b"), HookEvent.STOP, "cursor", "linux")
    told = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-4:] == ["--db", HOSTILE, "--project", "a b"]


def test_a_hook_is_quoted_for_the_shells_of_windows() -> None:
    """Double quotes only where they are needed, slashes as both shells read them; what they read apart is refused."""
    line = hook_command(Options("C:\\Py thon\\python.exe", db="D:\\a.db"), HookEvent.STOP, "codex", "win32")
    assert line == '"C:/Py thon/python.exe" -P -m agentmem hook stop --host codex --db D:/a.db'
    for part in ("100%.db", "a&b", 'a"b', "$HOME", "`id`"):
        with pytest.raises(InvalidInput, match="quoted"):
            hook_command(Options("python.exe", db=part), HookEvent.STOP, "codex", "win32")


@pytest.mark.parametrize("text", [HOSTILE, "C:\\Users\\Zoë\\a.db", "tab\tdel\x7f"])
def test_any_text_is_written_as_toml_reads_it(machine: Machine, text: str) -> None:
    """Backslashes, quotes and control characters in a path."""
    machine.install("codex", hooks=False, skill=False, db=text)
    table = tomllib.loads(machine.servers("codex").read_text("utf-8"))["mcp_servers"]["agentmem"]
    assert table["args"][-1] == text
