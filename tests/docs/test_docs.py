"""The documentation is true: its examples print what they show, its links lead somewhere, it leaves nothing out."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import agentmem
from agentmem import errors, upkeep

from .documents import ROOT, Block, Document, documents, read, shown_by

DOCUMENTS = documents()
_NAMES = [document.path for document in DOCUMENTS]
# Languages of blocks that are run, and of those that are only read.
_RUN = {"python", "console"}
_READ = {"text", "sh", "py", "ebnf", "json", "toml", "sql"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with the example folders in it, and a home of its own for keys and data."""
    for name in list(os.environ):
        if name.startswith(("AGENTMEM_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(agentmem.__file__).parents[1]))
    work = tmp_path / "work"
    shutil.copytree(ROOT / "docs" / "examples", work / "docs" / "examples")
    monkeypatch.chdir(work)
    return work


def _of(language: str) -> list[Document]:
    return [document for document in DOCUMENTS if any(block.language == language for block in document.blocks)]


def _shown_after(document: Document, block: Block) -> Block | None:
    """The `text` block that follows directly upon a block: its output."""
    following = document.blocks[document.blocks.index(block) + 1 :][:1]
    return following[0] if following and following[0].language == "text" else None


@pytest.mark.parametrize("document", _of("python"), ids=lambda document: document.path)
def test_python_examples_run_and_print_what_is_shown(document: Document, place: Path) -> None:
    """The Python blocks of a document run one after another; a `text` block after one is what it prints."""
    with contextlib.ExitStack() as stack:
        names: dict[str, Any] = {"__name__": "example"}
        if document.path == "docs/api.md":  # its examples come from docstrings, which speak of an open store
            names["store"] = stack.enter_context(agentmem.Store.open("api.db"))
        for block in document.blocks:
            if block.language != "python":
                continue
            printed = io.StringIO()
            # Padded, so that a traceback shows the line of the document.
            code = compile("\n" * (block.line - 1) + block.text, str(ROOT / document.path), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            shown = _shown_after(document, block)
            if shown is not None:
                assert shown_by(shown.text, printed.getvalue()), (
                    f"{document.path}:{shown.line} shows another output than\n{printed.getvalue()}"
                )
        for value in names.values():
            if isinstance(value, agentmem.Store):
                value.close()


def _commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output shown beneath it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.rstrip("\n").split("\n"):
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", [])
        else:
            found[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in found]


@pytest.mark.parametrize("document", _of("console"), ids=lambda document: document.path)
def test_shell_examples_run_and_print_what_is_shown(document: Document, place: Path) -> None:
    """The commands of a document run in one shell, exit as they say (`# exit 3`, else 0) and print what is shown."""
    commands = [
        (block, command, shown)
        for block in document.blocks
        if block.language == "console"
        for command, shown in _commands(block)
    ]
    mark = "== end of command, exit"
    script = ['agentmem() { "$AGENTMEM_TEST_PYTHON" -m agentmem "$@"; }']
    for _, command, _ in commands:
        script += [command, f"printf '\\n{mark} %s\\n' $?"]
    environment = {**os.environ, "AGENTMEM_TEST_PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-c", "exec 2>&1\n" + "\n".join(script)],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=300, check=False,
    )  # fmt: skip
    outcomes = re.split(rf"\n{mark} (\d+)\n", done.stdout.decode())
    assert len(outcomes) == 2 * len(commands) + 1
    for (block, command, shown), output, code in zip(commands, outcomes[::2], outcomes[1::2], strict=False):
        where = f"{document.path}:{block.line}: {command}"
        wanted = re.search(r"# exit (\d+)$", command)
        assert int(code) == (int(wanted[1]) if wanted else 0), f"{where}\n{output}"
        if shown:
            assert shown_by(shown, output), f"{where}\nshows another output than\n{output}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=_NAMES)
def test_every_block_says_what_it_is(document: Document) -> None:
    """Code is in a block of a known language, and no call of the command line hides in one that is not run."""
    for block in document.blocks:
        assert block.language in _RUN | _READ, f"{document.path}:{block.line}"
        if block.language == "sh":
            calls = [
                line for line in block.text.split("\n") if re.match(r"(?:\S*/)?agentmem |python3? -m agentmem", line)
            ]
            assert not calls, f"{document.path}:{block.line}: {calls}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=_NAMES)
def test_links_lead_somewhere(document: Document) -> None:
    """A link to a file of the project finds it, one with a fragment finds the heading."""
    for link in document.links:
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = link.partition("#")
        target = (ROOT / document.path).parent / name if name else ROOT / document.path
        assert target.exists(), f"{document.path}: {link}"
        if fragment:
            path = target.resolve().relative_to(ROOT).as_posix()
            assert fragment in read(path).anchors, f"{document.path}: {link}"


def test_the_chinese_readme_is_in_step() -> None:
    """README.zh.md has the headings of README.md level by level, the same code blocks and the same links to files."""
    english, chinese = read("README.md"), read("README.zh.md")
    assert [level for level, _ in chinese.headings] == [level for level, _ in english.headings]
    assert [(block.language, block.text) for block in chinese.blocks] == [
        (block.language, block.text) for block in english.blocks
    ]
    other = {"README.zh.md": "README.md"}
    assert [link.partition("#")[0] for link in chinese.links] == [
        other.get(link, link).partition("#")[0] for link in english.links
    ]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The script that takes parts of the documentation from the code."""
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "scripts" / "build_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_taken_from_the_code_is_current(build: ModuleType) -> None:
    """docs/api.md and the tables between markers are what scripts/build_docs.py writes now."""
    stale = [path.name for path, text in build.built().items() if path.read_text("utf-8") != text]
    assert not stale, "run python scripts/build_docs.py"


def test_every_public_verb_is_documented(tmp_path: Path) -> None:
    """Each public method of the store and of its namespaces has a heading in docs/api.md."""
    headings = {text for _, text in read("docs/api.md").headings}
    of_class = {"open", "restore", "salvage", "doctor"}
    verbs = {f"{'Store' if name in of_class else 'store'}.{name}" for name in _methods(agentmem.Store)}
    with agentmem.Store.open(tmp_path / "verbs.db", encrypted=False) as store:
        for name, value in {**vars(store), "sessions": store.sessions}.items():
            if not name.startswith("_"):
                verbs |= {f"store.{name}.{verb}" for verb in _methods(type(value))}
    assert len(verbs) > 80
    assert verbs <= headings


def _methods(owner: type) -> list[str]:
    """Its own and those of its bases."""
    return [name for name in dir(owner) if not name.startswith("_") and callable(getattr(owner, name))]


def test_every_public_value_is_documented() -> None:
    """Each class among the public names that is no error has a heading in docs/api.md."""
    headings = {text for _, text in read("docs/api.md").headings}
    made = {name for name in agentmem.__all__ if isinstance(getattr(agentmem, name), type)}
    values = {name for name in made if not issubclass(getattr(agentmem, name), Exception)} - {"Store"}
    assert values <= headings


def test_every_error_code_is_documented() -> None:
    """Each code of an exception stands in the table of docs/operations.md, with the name of its exception."""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    for name in errors.__all__:
        made = getattr(errors, name)
        if issubclass(made, errors.AgentMemError):
            assert f"| `{made.code}` | `{name}` |" in text


def test_every_finding_of_doctor_is_documented() -> None:
    """Each code that `doctor` gives a finding stands in its table of docs/operations.md."""
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    table = {code for line in text.split("\n") if line.startswith("| `") for code in re.findall(r"`(\w+)`", line)}
    codes = {
        part.value
        for path in Path(upkeep.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Finding", "_fault", "self.add"} and node.args
        for part in ast.walk(node.args[0])
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    assert len(codes) > 25
    assert codes <= table


def test_every_command_is_documented(build: ModuleType) -> None:
    """Each command of the command line stands in docs/adapters.md."""
    text = (ROOT / "docs" / "adapters.md").read_text("utf-8")
    missing = [name for name in build.commands() if f"| `{name}` |" not in text]
    assert not missing


def test_every_dependency_has_its_reason() -> None:
    """Each dependency of pyproject.toml, the extras' too, stands in docs/dependencies.md."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.split(r"[^\w.-]", each)[0] for each in wanted} - {"agentmem"}
    text = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    assert [name for name in sorted(names) if f"| `{name}` |" not in text] == []


def test_the_changelog_knows_this_version() -> None:
    """CHANGELOG.md has a section for the version of the package."""
    assert any(text.startswith(agentmem.__version__) for level, text in read("CHANGELOG.md").headings if level == 2)


def test_no_document_installs_by_name() -> None:
    """No command installs agentmem by that name from an index: it belongs to another project there."""
    for document in DOCUMENTS:
        for block in document.blocks:
            assert not re.search(r"pip install (?:-\S+ )*[\"']?agentmem\b(?!-)", block.text), document.path


@pytest.mark.parametrize("script", ["scripts/test.sh", "scripts/demo.sh", ".ci/run"])
def test_scripts_that_are_named_can_be_run(script: str) -> None:
    """The commands that README.md names are there, executable, and bash can read them."""
    path = ROOT / script
    if script.startswith(".") and not path.exists():
        pytest.skip("a source distribution has no .ci")
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def test_an_output_is_compared_as_a_whole() -> None:
    """`…` stands for anything, and nothing else does."""
    assert shown_by("a\n…\nd", "a\nb\nc\nd\n")
    assert shown_by("a … d", "a b c d")
    assert shown_by("a\n…", "a\nb\n")
    assert not shown_by("a\n…\nd", "a\nb\nc\n")
    assert not shown_by("a.c", "abc")
    assert not shown_by("a", "a\nb")
