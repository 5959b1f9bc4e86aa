"""The command line explains itself, and has every verb of the store."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from agentmem import Store, __version__
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.options import Command
from agentmem.adapters.cli.root import agentmem

# Verbs that no command stands for, and why.
WITHOUT_COMMAND = {
    "in_project": "--project",
    "acting": "--author, --run, --task, --origin",
    "attempts.failed_like": "hook pre-tool, which hosts run",
    "beneath": "serve --under: a command of a person needs no such limit",
    "transaction": "a process has one command; many at once are one command",
    "news": "what a process has heard; between processes resume --since tells it",
}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None, name
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


ALL = dict(commands(agentmem))
LEAVES = {path: found for path, found in ALL.items() if isinstance(found, Command)}


def test_the_named_commands_are_there() -> None:
    """The verbs that people and hosts call are commands of these names."""
    names = """
    init import resume left find tree add attempt mark query checklist checkpoint summary claim release key stats verify
    update get link put expect groups move confirm log projects
    history revisions revision diff undo forget redact review
    backup restore export rekey doctor salvage
    """
    for name in names.split():
        assert (name,) in ALL


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    """`--help` of each command shows at least one call of that command."""
    result = CliRunner().invoke(agentmem, [*path, "--help"])
    assert result.exit_code == Exit.OK
    examples = result.stdout.partition("Examples:")[2].partition("Options:")[0]
    assert f"agentmem {' '.join(path)}" in examples


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_takes_json_and_the_global_options(path: tuple[str, ...]) -> None:
    """--json and --quiet are in the help of each command; the other global options are taken after it too."""
    shown = CliRunner().invoke(agentmem, [*path, "--help"]).stdout
    assert "--json" in shown
    assert "--quiet" in shown
    taken = {name for parameter in LEAVES[path].params for name in parameter.opts}
    assert {"--db", "--project", "--author", "--run", "--task", "--origin", "--key-file", "--ask-key"} <= taken
    assert not {name for name in taken if name in ("--key", "--passphrase", "--password")}


def test_every_verb_of_the_store_has_its_command(tmp_path: Path) -> None:
    """What the Python store can do the command line can, but for a few verbs that are named with the reason."""
    covered = {verb for found in LEAVES.values() for verb in found.verbs}
    with Store.open(tmp_path / "work.db", key=b"k" * 32) as store:
        verbs = set(_methods(store))
        for name, part in {**vars(store), "sessions": store.sessions}.items():
            if not name.startswith("_"):
                verbs |= {f"{name}.{verb}" for verb in _methods(part)}
    assert "notes.add" in verbs
    assert covered - verbs == set(), "commands name verbs that the store has not"
    assert verbs - covered == set(WITHOUT_COMMAND), "verbs without a command"


def _methods(value: object) -> list[str]:
    return [name for name, _ in inspect.getmembers(type(value), callable) if not name.startswith("_")]


def test_the_help_documents_every_exit_code() -> None:
    """`agentmem --help` lists each code with its meaning."""
    shown = CliRunner().invoke(agentmem, ["--help"]).stdout
    for code in Exit:
        assert f"{int(code):>3}  {code.meaning}" in shown


def test_without_arguments_the_help_is_shown() -> None:
    """`agentmem` alone is `agentmem --help`."""
    assert CliRunner().invoke(agentmem, []).stdout == CliRunner().invoke(agentmem, ["--help"]).stdout


def test_the_version_is_that_of_the_package() -> None:
    """`agentmem --version` names it."""
    assert __version__ in CliRunner().invoke(agentmem, ["--version"]).stdout


IMPORTED = """
import sys
import agentmem
sys.argv = ["agentmem", *{arguments!r}]
from agentmem.__main__ import main
code = main()
print(*sorted(name.partition(".")[0] for name in set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["left", "--help"],
        ["import", "--help"],
        ["forget", "--help"],
        ["rekey", "--help"],
        ["doctor", "--help"],
    ],
)
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    """Beyond what `import agentmem` loads they load neither engine nor importer nor rich."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(arguments=arguments)], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2] / "src", timeout=60,
    )  # fmt: skip
    loaded = set(ran.stderr.split())
    assert "click" in loaded
    assert not loaded & {"apsw", "numpy", "onnxruntime", "tokenizers", "cattrs", "markdown_it", "rich", "platformdirs"}
