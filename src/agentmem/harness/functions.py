"""Tools that are Python functions: the schema is their signature, the descriptions are their docstring."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict, Unpack, overload

from agentmem.errors import InvalidInput, ToolFailed, shown
from agentmem.harness.shapes import Shape, shape, told_schema
from agentmem.harness.toolset import LOOK_SECONDS, Call, Permission, Tool
from agentmem.limits import JSON_DEPTH
from agentmem.log.canonical import canonical
from agentmem.types import Json

__all__ = ["told", "tool"]

_SECTION: Final = re.compile(r"(Args|Arguments|Returns?|Raises|Yields?|Examples?|Notes?|Attributes):\s*")
_ARGUMENT: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_INJECTED: Final = re.compile(
    r"""['"]?(?:typing\.)?(?:Optional\[)?(?:\w+\.)*(Call|Credential)(?:\]| *\| *None)?['"]?"""
)


class _Options(TypedDict, total=False):
    name: str | None
    description: str | None
    idempotent: bool
    permission: Permission
    credential: str | None
    scope: Mapping[str, Json] | None
    seconds: float
    parallel: bool
    expires: int | None
    output_chars: int


@overload
def tool(fn: Callable[..., Any], **options: Unpack[_Options]) -> Tool: ...
@overload
def tool(fn: None = None, **options: Unpack[_Options]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    permission: Permission = "allow",
    credential: str | None = None,
    scope: Mapping[str, Json] | None = None,
    seconds: float = 60.0,
    parallel: bool = True,
    expires: int | None = None,
    output_chars: int = 200_000,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """A tool of a function, as a decorator or called with it.

    A parameter annotated `Call` is given the call, one annotated `Credential` the grant; the model sees neither. An async
    function runs to its end on a loop of its own. The result becomes text: a text as it is, None as "", others as JSON.

    Args:
        fn: The function. Its parameters have annotations that JSON can say.
        name: The tool's name; by default the function's.
        description: What the model is told; by default the docstring up to its sections.
        idempotent: Whether twice with the same key is as good as once.
        permission: `ask` waits for a person's approval.
        credential: The id of the credential it is granted.
        scope: What the grant is for.
        seconds: The time a call has.
        parallel: Whether it may run beside others.
        expires: The seconds that a request for approval waits, None for ever.
        output_chars: The characters of its result that are kept.

    Raises:
        InvalidInput: A parameter that JSON can't say, or a credential that nothing takes.
    """

    def made(function: Callable[..., Any]) -> Tool:
        signed = _Signed(function, credential is not None)
        return Tool(
            name=name if name is not None else getattr(function, "__name__", "tool"),
            description=description if description is not None else signed.description,
            schema=signed.schema,
            run=signed.run,
            idempotent=idempotent,
            permission=permission,
            credential=credential,
            scope=scope or {},
            seconds=seconds,
            parallel=parallel,
            expires=expires,
            output_chars=output_chars,
        )

    return made if fn is None else made(fn)


class _Signed:
    """A function with what its signature says."""

    def __init__(self, function: Callable[..., Any], granted: bool) -> None:
        if not callable(function):
            raise InvalidInput(f"{shown(function)} is no function")
        self._function = function
        self._name = getattr(function, "__name__", "tool")
        self._parts: dict[str, Shape] = {}
        self._injected: dict[str, str] = {}
        self._positional: list[str] = []
        self.description, said = _documented(inspect.getdoc(function) or "")
        self._defaults: dict[str, Any] = {}
        hints = _hints(function, self._name)
        for parameter in _parameters(function, self._name):
            self._take(parameter, hints.get(parameter.name, Any), said.get(parameter.name), granted)
        if granted and not self._injected:
            raise InvalidInput(
                f"{self._name} declares a credential and takes none",
                next="Annotate a parameter with Credential or Call",
            )
        self.schema = told_schema(self._parts, self._parts.keys() - self._defaults.keys(), self._defaults)

    def _take(self, parameter: inspect.Parameter, hint: Any, said: str | None, granted: bool) -> None:
        """Take one parameter: as what is injected, or as a field that the model gives."""
        place = f"{self._name}.{parameter.name}"
        needed = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidInput(f"{place} takes any arguments", next="Name each, so that the model can be told of it")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            self._positional.append(parameter.name)
        kind = _injected(hint)
        if kind is not None:
            self._injected[parameter.name] = kind
            if kind == "Credential" and needed and not granted and not _optional(hint):
                raise InvalidInput(f"{place} is a Credential, of a tool that declares none", next="Give credential=")
            return
        part = shape(hint, place)
        if said is not None and "description" not in part.schema:
            part = Shape({**part.schema, "description": said}, part.build)
        self._parts[parameter.name] = part
        if not needed:
            self._defaults[parameter.name] = parameter.default

    def run(self, call: Call) -> str:
        """Call the function with what the model gave; what it raises goes on."""
        given = {name: self._parts[name].build(value) for name, value in call.input.items() if name in self._parts}
        given |= {name: call if kind == "Call" else call.credential for name, kind in self._injected.items()}
        first = [given.pop(name) if name in given else self._defaults[name] for name in self._positional]
        result = self._function(*first, **given)
        if inspect.isawaitable(result):
            result = _awaited(result, call)
        return told(result, self._name)


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} has no signature that can be read", next="Wrap it in a function with `def`"
        ) from None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The annotations, resolved one by one: what is injected may be a name that is imported for type checkers only."""
    owner = function if hasattr(function, "__annotations__") else type(function).__dict__.get("__call__", function)
    owner = getattr(owner, "__func__", owner)
    written: Mapping[str, Any] = getattr(owner, "__annotations__", {})
    found: dict[str, Any] = {}
    for parameter, hint in written.items():
        if parameter == "return":
            continue
        kind = _injected(hint) if isinstance(hint, str) else None
        if kind is not None:
            found[parameter] = hint
            continue
        holder = types.SimpleNamespace(__annotations__={parameter: hint})
        try:
            whole = inspect.unwrap(owner)
            inner = inspect.getclosurevars(whole).nonlocals if inspect.isfunction(whole) else {}
            resolved = typing.get_type_hints(
                holder, getattr(whole, "__globals__", {}), dict(inner), include_extras=True
            )
        except Exception as error:  # noqa: BLE001  # annotations are any expression at all
            raise InvalidInput(
                f"The type of {name}.{parameter} can't be read",
                why=f"{type(error).__name__}: {shown(str(error))}",
                next="Define what it names at the top of the module",
            ) from None
        found |= resolved
    return found


def _injected(hint: Any) -> str | None:
    """`Call` or `Credential` where the annotation is one of them, with or without None; as type or as its text."""
    if isinstance(hint, str):
        found = _INJECTED.fullmatch(hint)
        return found[1] if found else None
    options = [each for each in typing.get_args(hint) if each is not type(None)] if _optional(hint) else [hint]
    if len(options) != 1 or not isinstance(options[0], type):
        return None
    if options[0] is Call:
        return "Call"
    of_grants = options[0].__module__ == "agentmem.harness.grants" and options[0].__name__ == "Credential"
    return "Credential" if of_grants else None


def _optional(hint: Any) -> bool:
    if isinstance(hint, str):
        return "None" in hint or "Optional" in hint
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return union and type(None) in typing.get_args(hint)


def _documented(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring of Google's style: the text before its sections, and what it says of each argument."""
    before: list[str] = []
    said: dict[str, list[str]] = {}
    section, name, indent = "", "", 0
    for line in doc.splitlines():
        heading = _SECTION.fullmatch(line)
        if heading is not None:
            section, name, indent = heading[1], "", 0
        elif not section:
            before.append(line)
        elif section in ("Args", "Arguments") and line.strip():
            depth = len(line) - len(line.lstrip())
            found = _ARGUMENT.fullmatch(line.strip())
            if found is not None and (not indent or depth <= indent):
                name, indent = found[1], depth
                said[name] = [found[2]]
            elif name:
                said[name].append(line.strip())
    return "\n".join(before).strip(), {name: " ".join(filter(None, parts)) for name, parts in said.items()}


def _awaited(awaitable: Any, call: Call) -> Any:
    """What an awaitable comes to, on a loop of its own; where the thread has one that runs, in a thread beside it."""
    import asyncio

    async def ended() -> Any:
        task = asyncio.ensure_future(awaitable)
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_SECONDS)
            if call.cancelled.is_set() and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=LOOK_SECONDS)
                break
        if not task.done() or task.cancelled():
            raise ToolFailed(f"{call.tool} was stopped before its end", why="It was interrupted, or its time was over")
        return task.result()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ended())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, "agentmem-tool") as beside:
        return beside.submit(asyncio.run, ended()).result()


def told(value: Any, name: str = "tool") -> str:
    """A result as text: a text as it is, None as "", others as canonical JSON.

    Raises:
        ToolFailed: JSON can't say it.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which the log can't hold
            text = text.encode("utf-8", "replace").decode()
        return text
    try:
        return canonical(_plain(value, 0))
    except InvalidInput as error:
        raise ToolFailed(
            f"{name} ended and gave what is no JSON", why=error.what, next="Have it return text, or plain values"
        ) from None


def _plain(value: Any, depth: int) -> Any:
    """A value with enums, classes of attrs, dataclasses, sets and mappings as plain ones; others are left as they are."""
    if depth > JSON_DEPTH:  # `canonical` refuses it, a value that holds itself too
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(part, depth + 1) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, depth + 1) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(part, depth + 1) for part in value), key=repr)
    names: list[str] | None = None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
    elif hasattr(type(value), "__attrs_attrs__"):
        names = [each.name for each in type(value).__attrs_attrs__ if not each.name.startswith("_")]
    return value if names is None else {name: _plain(getattr(value, name), depth + 1) for name in names}
