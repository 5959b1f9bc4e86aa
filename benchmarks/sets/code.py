"""The records of the code set: functions and methods of Python's standard library, read from the running interpreter.

Nothing of the library is kept in the project; the sources are parsed, never imported. The queries stand beside this
file in `code.queries.jsonl`.
"""

from __future__ import annotations

import ast
import json
import sysconfig
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULES = (
    "argparse ast asyncio.base_events asyncio.locks asyncio.queues asyncio.streams asyncio.tasks asyncio.timeouts base64 "
    "bisect calendar cmd collections colorsys concurrent.futures.thread configparser contextlib copy csv dataclasses "
    "difflib email.generator email.header email.message email.utils filecmp fileinput fnmatch ftplib functools getopt "
    "gettext glob graphlib gzip heapq html.parser http.client http.cookiejar http.cookies http.server inspect ipaddress "
    "json.decoder json.encoder linecache logging logging.handlers mailbox mimetypes netrc os pathlib pickle plistlib "
    "posixpath pprint queue random reprlib sched shlex shutil smtplib socket socketserver statistics string subprocess "
    "tarfile tempfile textwrap threading timeit tokenize tomllib._parser traceback unittest.case unittest.loader "
    "urllib.parse urllib.request urllib.robotparser uuid warnings zipfile"
).split()
"""The modules read, in this order; each stands in Python 3.11 to 3.13."""

MOVED = {"pathlib": ("pathlib._local",)}
"""Where a later version keeps what the module itself defined; the ids keep the module's public name."""

QUERIES = Path(__file__).with_name("code.queries.jsonl")
LEAST_LINES = 4
TITLE_CHARS = 200
BODY_CHARS = 6_000

Function = ast.FunctionDef | ast.AsyncFunctionDef


def records() -> Iterator[dict[str, Any]]:
    """One record for each function or method of four lines or more, docstring apart, module by module.

    Yields:
        The fields of a retrieval set's record: id `module.qualname`, kind, title, body, tags and group. Half of the
        titles are the id, half the signature, by a checksum of the id. Definitions that share a qualified name (a
        property and its setter, the branches of a platform) make one record.
    """
    for module in MODULES:
        found: dict[str, tuple[str, list[str]]] = {}
        for source in _sources(module):
            for qualname, title, body in _functions(source):
                found.setdefault(f"{module}.{qualname}", (title, []))[1].append(body)
        for id, (line, bodies) in found.items():
            body = "\n\n".join(bodies)
            if body.count("\n") + 1 < LEAST_LINES:
                continue
            yield {
                "id": id,
                "kind": "fact",
                "title": (id if zlib.crc32(id.encode()) % 2 else line)[:TITLE_CHARS],
                "body": body[:BODY_CHARS],
                "tags": [],
                "group": module,
            }


def queries() -> tuple[list[dict[str, Any]], int]:
    """The queries whose answers all exist in the running Python, in their order, and the number of those left out.

    Returns:
        Objects with `query`, `relevant` (ids of records) and `style`; and how many name an id this version lacks.
    """
    present = {record["id"] for record in records()}
    with QUERIES.open(encoding="utf-8") as lines:
        every = [json.loads(line) for line in lines]
    answered = [query for query in every if present.issuperset(query["relevant"])]
    return answered, len(every) - len(answered)


def _sources(module: str) -> Iterator[str]:
    """The source text of a module and of the private ones it moved into, those that exist here."""
    library = Path(sysconfig.get_path("stdlib"))
    for name in (module, *MOVED.get(module, ())):
        stem = library.joinpath(*name.split("."))
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
            if path.is_file():
                yield path.read_text(encoding="utf-8")


def _functions(source: str) -> Iterator[tuple[str, str, str]]:
    """Qualified name, signature and text without docstrings, of each function outside other functions."""
    lines = source.split("\n")  # splitlines() also splits at form feeds, where the parser counts no line
    for qualname, node in _walk(ast.parse(source).body, ""):
        word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield qualname, f"{word} {node.name}({ast.unparse(node.args)}){returns}", _body(node, lines)


def _walk(statements: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    """The functions under classes and under the conditions around them, in the order of the source."""
    for node in statements:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield prefix + node.name, node
            case ast.ClassDef():
                yield from _walk(node.body, f"{prefix}{node.name}.")
            case ast.If():
                yield from _walk([*node.body, *node.orelse], prefix)
            case ast.Try():
                handlers = [statement for handler in node.handlers for statement in handler.body]
                yield from _walk([*node.body, *handlers, *node.orelse, *node.finalbody], prefix)
            case _:
                pass


def _body(node: Function, lines: list[str]) -> str:
    """The source of a function with its decorators and comments, dedented, docstrings cut, inner ones too."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    cut: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(
            inner, clean=False
        ):
            docstring = inner.body[0]
            # One that shares its line with the `def` stays: cutting the line would cut the signature.
            if not lines[docstring.lineno - 1][: docstring.col_offset].strip():
                cut.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    kept = (lines[line - 1] for line in range(first, (node.end_lineno or node.lineno) + 1) if line not in cut)
    return textwrap.dedent("\n".join(kept)).strip("\n")
