"""Write the parts of the documentation that are taken from the code: docs/api.md, and the tables between markers.

    python scripts/build_docs.py          write them
    python scripts/build_docs.py --check  say which are out of date, and exit with 1 if any is
    python scripts/build_docs.py --figures  also the table of figures of the past, from the last whole run of benchmarks

It needs agentmem with the extra `cli` to be importable. A test compares its output with the files.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

import agentmem
from agentmem import errors, harness, limits, types
from agentmem.adapters.cli.exits import Exit
from agentmem.context.tokens import count_tokens
from agentmem.store import Store
from agentmem.store.at import PastStore
from agentmem.store.sessions import Session
from agentmem.tools.guide import agent_guide
from agentmem.tools.specs import CORE
from agentmem.upkeep.diagnosis import Severity

ROOT = Path(__file__).resolve().parents[1]
NAMESPACES = {
    "notes": "Notes",
    "links": "Links",
    "attempts": "Attempts",
    "entities": "Entities",
    "checklists": "Checklists",
    "projects": "ProjectVerbs",
    "sessions": "Sessions",
    "log": "Log",
}
_WIDTH = 110

VERBS: dict[str, tuple[str, ...]] = {
    "Open and close": ("open", "close", "in_project", "acting", "beneath", "transaction"),
    "Come back to the work": (
        *("resume", "left", "task_summary", "graph", "recall", "find"),
        *("get", "news", "checkpoints", "claims", "review"),
    ),
    "Write": ("scope", "checkpoint", "summarize", "confirm"),
    "Share the work": ("claim", "release", "claim_token", "adopt_claims", "watch"),
    "The past": ("history", "revisions", "revision", "diff", "at", "undo"),
    "End for good": ("forget", "redact"),
    "Copies": ("backup", "restore", "export", "import_"),
    "The file": ("verify", "doctor", "salvage", "rekey", "stats", "wait_for_index"),
}
# Values outside agentmem.types: the module they are in, and their names.
GIVEN: dict[str, tuple[str, ...]] = {
    "records": ("NewNote", "Row", "Result"),
    "recall": ("Embedder", "OnnxEmbedder"),
}
ANSWERS: dict[str, tuple[str, ...]] = {
    "session_types": ("SessionInfo", "SessionEvent", "Appended", "Forked", "Piece", "Waiting", "Ready"),
    "context.window": ("Window",),
    "context.audit": ("Audit", "AuditEntry"),
    "log.alone": ("Proof",),
    "context": ("Resume", "Left", "Step", "OpenItem", "ScopeLeft", "CheckLeft", "Missing"),
    "context.parts": ("TaskSummary", "Part", "Graph", "Node"),
    "context.recalled": ("Recall",),
    "recall": ("RecalledHit", "Why", "Found", "Hit"),
    "records": ("Page", "Groups", "Group", "Numbers", "ProjectStats", "KindSize"),
    "context.review": ("Review",),
    "context.review_parts": ("Part", "Finding"),
    "context.history": ("History", "Diff"),
    "past.history": ("Change",),
    "past.fields": ("FieldChange",),
    "past.at": ("Moment",),
    "upkeep.backup": ("Backup",),
    "upkeep.restore": ("Restored",),
    "transfer.export": ("Exported",),
    "transfer.importer": ("Imported",),
    "transfer.copies": ("ImportedCopy",),
    "transfer.restore_log": ("ImportedLog",),
    "upkeep.health": ("Verified",),
    "upkeep.diagnosis": ("Diagnosis", "Finding"),
    "upkeep.salvage": ("Salvaged",),
    "upkeep.rekey": ("Rekeyed",),
    "upkeep.sizes": ("Stats", "TableSize"),
}
# Names that two modules have: what tells them apart in a heading.
_OF = {"context.review_parts": " of a Review", "upkeep.diagnosis": " of a Diagnosis"}


def classes(place: str) -> dict[str, type]:
    """The public classes of a module, or of the modules of a package, by name."""
    root = importlib.import_module(f"agentmem.{place}")
    modules = [root, *(importlib.import_module(name) for name in _modules(root))]
    return {
        name: made
        for module in modules
        for name, made in vars(module).items()
        if isinstance(made, type) and made.__module__ == module.__name__
    }


def _modules(package: ModuleType) -> list[str]:
    return [each.name for each in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}.")]


def chosen(names: dict[str, tuple[str, ...]]) -> list[str]:
    """What is to be said of the classes of these names."""
    owned = [(place, name) for place, those in names.items() for name in those]
    twice = {name for _, name in owned if [each for _, each in owned].count(name) > 1}
    return [value(classes(place)[name], _OF.get(place, "") if name in twice else "") for place, name in owned]


def inherited(owner: type) -> dict[str, Any]:
    """What a class has, that of its bases first, each in the order it is written in."""
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("agentmem."):
            found |= vars(base)
    return found


def members(owner: type) -> dict[str, Any]:
    """The public methods of a class and of its bases, class methods too."""
    found = {}
    for name, value in inherited(owner).items():
        function = value.__func__ if isinstance(value, classmethod) else value
        if not name.startswith("_") and inspect.isfunction(function):
            found[name] = function
    return found


def called(name: str) -> str:
    """A verb of the store as a caller writes it: of the class, or of an open store."""
    return f"{'Store' if isinstance(inspect.getattr_static(Store, name), classmethod) else 'store'}.{name}"


def namespaces() -> dict[str, type]:
    """The class behind each namespace of the store."""
    found = classes("records") | classes("store")
    return {name: found[made] for name, made in NAMESPACES.items()}


def signature(called: str, function: Callable[..., Any], *, bound: int = 1) -> str:
    """A call with its parameters without the `bound` first, broken into lines where it is long."""
    shape = inspect.signature(function)
    shown, star = [], False
    for parameter in list(shape.parameters.values())[bound:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        prefix = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
        text = f"{prefix}{parameter.name}: {_type(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {_default(parameter.default)}"
        shown.append(text)
    result = _type(shape.return_annotation)
    line = f"{called}({', '.join(shown)}) -> {result}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{called}(", *(f"    {each}," for each in shown), f") -> {result}"])


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    # Modules are how the code names things, not how a caller does.
    return re.sub(r"\b[a-z_]+\.(?=[A-Z])", "", text)


def _default(value: object) -> str:
    if value is count_tokens:
        return "count_tokens"
    if inspect.isfunction(value):
        return value.__name__
    return repr(value)


_HEADINGS = ("Args", "Attributes", "Returns", "Raises")


def prose(docstring: str | None, *, without: tuple[str, ...] = ()) -> str:
    """A Google docstring as Markdown: sections as lists."""
    assert docstring, "a public name without a docstring"
    blocks: list[str] = []
    lines = inspect.cleandoc(docstring).split("\n")
    position = 0
    while position < len(lines):
        name = lines[position].rstrip(":")
        if lines[position].endswith(":") and name in _HEADINGS:
            inside, position = _indented(lines, position + 1)
            if name not in without:
                blocks.append(_section(name, inside))
            continue
        blocks.append(lines[position])
        position += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(blocks)).strip()


def _indented(lines: list[str], position: int) -> tuple[list[str], int]:
    inside = []
    while position < len(lines) and (lines[position].startswith("    ") or not lines[position].strip()):
        inside.append(lines[position][4:])
        position += 1
    return inside, position


def _section(name: str, inside: list[str]) -> str:
    entries: list[str] = []
    for line in inside:
        if line.startswith("    ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line.strip())
    if name == "Returns":
        return f"Returns: {' '.join(entries)}\n"
    title = {"Args": "", "Attributes": "", "Raises": "Raises:\n\n"}[name]
    return f"\n{title}" + "\n".join(_entry(entry) for entry in entries) + "\n"


def _entry(text: str) -> str:
    names, _, said = text.partition(": ")
    return f"- {', '.join(f'`{name.strip()}`' for name in names.split(','))}: {said}"


def verb(called: str, function: Callable[..., Any]) -> str:
    """One verb: its heading, its call, what it does."""
    return f"### {called}\n\n```py\n{signature(called, function)}\n```\n\n{prose(function.__doc__)}\n"


def value(made: type, of: str = "") -> str:
    """One class of values: what it is, its fields with their types; `of` tells it from another of its name."""
    told = dict(_told(made))
    rows = []
    given = attrs.has(made)
    for field in attrs.fields(made) if given else ():
        if field.name.startswith("_"):
            continue
        default = "" if field.default is attrs.NOTHING else _of_default(field.default)
        said = f": {told[field.name]}" if field.name in told else ""
        rows.append(f"- `{field.name}: {_type(field.type)}{default}`{said}")
    for name, member in vars(made).items():
        if isinstance(member, property) and not name.startswith("_") and (given or name not in told):
            rows.append(f"- `{name}`: {_first(member.__doc__)}".removesuffix(": "))
        elif inspect.isfunction(member) and not given and not name.startswith("_"):
            asked = str(inspect.signature(member)).replace("self, ", "").replace("self", "").replace("'", "")
            rows.append(f"- `{name}{asked}`: {_first(member.__doc__)}")
    text = prose(made.__doc__, without=("Args", "Attributes") if given else ())
    return f"### {made.__name__}{of}\n\n{text}\n\n" + "\n".join(rows) + "\n"


def _of_default(default: object) -> str:
    return " = …" if isinstance(default, attrs.Factory) else f" = {default!r}"  # type: ignore[arg-type]


def _told(made: type) -> Iterator[tuple[str, str]]:
    lines = inspect.cleandoc(made.__doc__ or "").split("\n")
    for position, line in enumerate(lines):
        if line in ("Args:", "Attributes:"):
            inside, _ = _indented(lines, position + 1)
            for entry in _section("Args", inside).strip().split("\n"):
                name, _, said = entry.removeprefix("- ").partition(": ")
                yield name.strip("`"), said


def _first(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "").partition("\n\n")[0].replace("\n", " ")


def values() -> list[type]:
    """The classes of values of `agentmem.types`, in their order."""
    return [
        made
        for name, made in vars(types).items()
        if not name.startswith("_") and isinstance(made, type) and attrs.has(made) and made.__module__ == types.__name__
    ]


def api() -> str:
    """The whole of docs/api.md."""
    lines = [
        "# API",
        "",
        "Every verb and every value, taken from the code by `scripts/build_docs.py`. What the words mean is in"
        " [concepts.md](concepts.md), how they are used in [guide.md](guide.md).",
        "",
        'Where a verb takes a `Ref` it takes a record, its id, `"type:key"` for an entity, or `"14.3"` for item 3'
        " of note 14. `UNSET` leaves a field as it is, `None` clears it. Times are integers, microseconds since 1970"
        " UTC. A write with `request_id=`, repeated with the same arguments, writes nothing again and gives the first"
        " outcome.",
        "",
        "## The store",
        "",
        prose(Store.__doc__),
        "",
        _properties(Store),
    ]
    store = members(Store)
    listed = [name for names in VERBS.values() for name in names]
    assert sorted(listed) == sorted(store), f"verbs to be listed here: {set(store) ^ set(listed)}"
    for title, names in VERBS.items():
        lines += [f"## {title}", ""]
        lines += [verb(called(name), store[name]) for name in names]
        if title == "The past":
            lines += ["### PastStore", "", prose(PastStore.__doc__), "", _properties(PastStore, Store)]
    for name, owner in namespaces().items():
        lines += [f"## store.{name}", ""]
        lines += [verb(f"store.{name}.{each}", function) for each, function in members(owner).items()]
        if name == "sessions":
            lines += [
                "### Session",
                "",
                prose(Session.__doc__),
                "",
                _properties(Session).replace("`store.", "`session."),
            ]
            lines += [verb(f"session.{each}", function) for each, function in members(Session).items()]
    lines += ["## agentmem.harness", "", "How it is used is in [harness.md](harness.md).", "", *of_harness()]
    lines += ["## Functions", "", _function("default_project", agentmem.default_project)]
    lines += ["## Values that are given", "", *chosen(GIVEN)]
    lines += ["## Values that come back", "", *(value(made) for made in values()), *chosen(ANSWERS)]
    lines += ["## Closed sets of words", "", _words()]
    lines += ["## Limits", "", _limits()]
    return "\n".join(lines).rstrip() + "\n"


def of_harness() -> list[str]:
    """What `agentmem.harness` has: its functions, then its classes, by name."""
    # What is another thing on another system can't be in a file that is the same on all.
    names = sorted({*harness.__all__} - {"inherited_handle"}, key=str.lower)
    public = {name: getattr(harness, name) for name in names}
    lines = []
    for name, made in public.items():
        if inspect.isfunction(made):
            call = signature(name, made, bound=0)
            lines.append(f"### {name}\n\n```py\n{call}\n```\n\n{prose(made.__doc__)}\n")
    return [*lines, *(_with_methods(made) for made in public.values() if isinstance(made, type))]


def _with_methods(made: type) -> str:
    """A class of values, and what can be called on it."""
    rows = []
    for name, function in members(made).items():
        if attrs.has(made) or isinstance(inspect.getattr_static(made, name), classmethod):
            of_class = isinstance(inspect.getattr_static(made, name), classmethod)
            call = " ".join(signature(f"{made.__name__}.{name}" if of_class else name, function).split())
            rows.append(f"- `{call.replace('( ', '(').replace(', )', ')')}`: {_first(function.__doc__)}")
    return value(made) + "".join(f"{row}\n" for row in rows)


def _function(name: str, function: Callable[..., Any]) -> str:
    shape = inspect.signature(function)
    return f"### {name}\n\n```py\n{name}{str(shape).replace(chr(39), '')}\n```\n\n{prose(function.__doc__)}\n"


def _properties(owner: type, without: type = object) -> str:
    known = inherited(without)
    found = ((name, member) for name, member in inherited(owner).items() if isinstance(member, property))
    found = ((name, member) for name, member in found if name not in known)
    return "\n".join(f"- `store.{name}`: {_first(member.__doc__)}" for name, member in found) + "\n"


def _words() -> str:
    sets = {
        "Kind of note": types.NOTE_KINDS,
        "Kind of link between notes": types.LINK_KINDS,
        "Result of a check": types.CHECK_RESULTS,
        "Outcome of an attempt": types.OUTCOMES,
        "Origin, the most trusted first": types.ORIGINS,
        "Severity of a finding of `doctor`": tuple(each.value for each in Severity),
    }
    rows = ["| set | words |", "|---|---|"]
    rows += [f"| {name} | {', '.join(f'`{word}`' for word in words)} |" for name, words in sets.items()]
    rows += [
        f"| Statuses of `{kind}`, the default first | {', '.join(f'`{word}`' for word in words)} |"
        for kind, words in types.STATUSES.items()
    ]
    return "\n".join(rows) + "\n"


def _limits() -> str:
    rows = ["Bytes are of UTF-8.", "", "| name in `agentmem.limits` | value | of |", "|---|---:|---|"]
    theme = ""
    for line in inspect.getsource(limits).split("\n"):
        if line.startswith("# "):
            theme = line[2:]
        elif match := re.match(r"([A-Z_]+): Final = ", line):
            number = getattr(limits, match[1])
            rows.append(f"| `{match[1]}` | {number:,} | {theme} |")
    return "\n".join(rows) + "\n"


def error_table() -> str:
    """Every exception with its code."""
    rows = ["| code | exception | also a | what it means |", "|---|---|---|---|"]
    for node in ast.parse(inspect.getsource(errors)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        made = getattr(errors, node.name)
        if issubclass(made, errors.AgentMemError):
            built_in = next(base for base in made.__mro__ if base.__module__ == "builtins").__name__
            rows.append(f"| `{made.code}` | `{node.name}` | `{built_in}` | {_first(made.__doc__)} |")
    return "\n".join(rows)


def exit_table() -> str:
    """Every exit code of the command line."""
    rows = ["| exit code | meaning |", "|---:|---|"]
    return "\n".join([*rows, *(f"| {code.value} | {code.meaning} |" for code in Exit)])


def commands() -> dict[str, Any]:
    """Every command by its whole name, in the order of the help."""
    import click

    from agentmem.adapters.cli.root import agentmem as root

    found: dict[str, Any] = {}

    def collect(command: click.Command, name: str) -> None:
        if isinstance(command, click.Group):
            if name and command.invoke_without_command:
                found[name] = command
            context = click.Context(command)
            for each in command.list_commands(context):
                inner = command.get_command(context, each)
                assert inner is not None
                collect(inner, f"{name} {each}".strip())
        else:
            found[name] = command

    collect(root, "")
    return found


def command_table() -> str:
    """Every command, what it does, the verb of the library it stands for."""
    rows = ["| command | what it does | verb |", "|---|---|---|"]
    for name, command in commands().items():
        verbs = ", ".join(f"`{each}`" for each in getattr(command, "verbs", ()))
        rows.append(f"| `{name}` | {command.get_short_help_str(120)} | {verbs} |")
    return "\n".join(rows)


def tool_table() -> str:
    """The tools that a model sees by default, with their arguments."""
    rows = ["| tool | arguments, those needed in bold | does |", "|---|---|---|"]
    for tool in CORE:
        needed = tool.schema.get("required", ())
        names = [f"**{name}**" if name in needed else name for name in tool.schema["properties"] if name != "by"]
        said = re.sub(r"([|\[\]])", r"\\\1", tool.description)
        rows.append(f"| `{tool.name}` | {', '.join(names)} | {said} |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {
    "errors": error_table, "exits": exit_table, "commands": command_table, "tools": tool_table,
}  # fmt: skip
_MARKED = re.compile(r"(<!-- from the code: (\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """A document with the tables between its markers made anew."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", text)


def built() -> dict[Path, str]:
    """Every document that has something of the code in it, as it should be."""
    found = {ROOT / "docs" / "api.md": api(), ROOT / "docs" / "agent-guide.md": agent_guide()}
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text("utf-8")
        if path.name != "api.md" and _MARKED.search(text):
            found[path] = filled(text)
    return found


_FIGURES = re.compile(r"(<!-- figures of the past -->\n\n)(.*?)(?=\n\n<!-- end of figures -->)", re.DOTALL)


def figures() -> None:
    """Write the measured figures of the past into docs/history.md.

    They come from a machine, not from the code, so no check compares them with what benchmarks/results has today.
    """
    path = ROOT / "docs" / "history.md"
    text = path.read_text("utf-8")
    for result in sorted((ROOT / "benchmarks" / "results").glob("*.json"), reverse=True):
        run = json.loads(result.read_text("utf-8"))
        found = [one for one in run["figures"] if one["theme"] == "past"]
        if found and not run["quick"]:
            table = "\n".join(["| what | measured |", "|---|---|", *map(_figure, found)])
            place = _FIGURES.search(text)
            assert place is not None
            begin, end = place.span(2)
            path.write_text(f"{text[:begin]}{table}{text[end:]}", "utf-8")
            return
    print("No whole run of benchmarks has figures of the past: python -m benchmarks --only past")


_MORE = {"peak MB": "{} MB", "µs each": "{} µs an event", "p95": "95th percentile {:.3g} ms"}


def _figure(one: dict[str, Any]) -> str:
    what = re.sub(r"\d{4,}", lambda match: f"{int(match[0]):,}", one["what"])
    more = [shape.format(one["more"][name]) for name, shape in _MORE.items() if name in one["more"]]
    measured = f"{one['value']:.3g} {one['unit']}"
    return f"| {what} | {', '.join((measured, *more))} |"


def main() -> int:
    """Write what differs, or say so."""
    if "--figures" in sys.argv[1:]:
        figures()
    stale = {path: text for path, text in built().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv[1:]:
            path.write_text(text, "utf-8")
    return int(bool(stale) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
