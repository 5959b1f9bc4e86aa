"""What a tool of a session is: a name, a schema, what runs it, and what the harness must know before it does."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from attrs import field, frozen

from agentmem.errors import Conflict, InvalidInput, NotFound, shown
from agentmem.harness.schema import checked, copied, well_formed
from agentmem.records.validate import choice, did_you_mean, flag, label, number, text, whole
from agentmem.types import Json

if TYPE_CHECKING:
    from agentmem.harness.grants import Credential

__all__ = ["LOOK_SECONDS", "Call", "Permission", "Tool", "Toolset"]

Permission: TypeAlias = Literal["allow", "ask"]

LOOK_SECONDS: Final = 0.05
"""Between two looks of what runs a tool at whether its call was cancelled."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_DESCRIPTION_BYTES: Final = 64 * 1024
_SECONDS_MAX: Final = 86_400
_EXPIRES_MAX: Final = 366 * 86_400
_OUTPUT_CHARS_MAX: Final = 16_000_000


@frozen(eq=False)
class Call:
    """One call of a tool.

    Attributes:
        tool: The tool's name.
        input: What the model gave, validated.
        session: The session's id.
        event: The seq of the event that asked for it.
        key: An idempotency key: the same when the call is run again after a crash.
        attempt: 1 the first time.
        credential: The grant of the credential that the tool declares, else None.
        seconds: The time the call has.
        cancelled: Set on an interrupt and when the time is over. What takes long looks at it.
        store: A view of the store that acts within the session, or None.
    """

    tool: str
    input: dict[str, Any] = field(repr=False)
    session: int
    event: int
    key: str
    attempt: int = 1
    credential: Credential | None = None
    seconds: float = 60.0
    cancelled: threading.Event = field(factory=threading.Event, repr=False)
    store: Any = field(default=None, repr=False)


def named(name: object) -> bool:
    """Whether a tool can have this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _copied(scope: Any) -> Any:
    if not isinstance(scope, Mapping):
        raise InvalidInput(f"scope is {shown(scope)}", why="It is an object of JSON")
    return copied(scope)


@frozen(eq=False)
class Tool:
    """A tool that a model may call. Thread-safe as far as what runs it is.

    Attributes:
        name: 1 to 64 of `[A-Za-z0-9_-]`.
        description: What it does and when to use it, for the model.
        schema: The JSON Schema of its input, of an object.
        run: What does it. Its text is the result; what it raises is the result too, as an error.
        idempotent: Whether running it twice with the same key is as good as once: then a call that a crash interrupted
            is run again. Others are reported as unknown.
        permission: `ask` waits for a person's approval of each call.
        credential: The id of the credential that it is granted for each call.
        scope: What the grant is for. It binds where the secret is minted, and in the http tool.
        seconds: The time a call has.
        parallel: Whether it may run beside others.
        expires: The seconds that a request for approval waits, None for ever.
        output_chars: The characters of its result that are kept.
    """

    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)
    run: Callable[[Call], str] = field(repr=False)
    idempotent: bool = False
    permission: Permission = "allow"
    credential: str | None = None
    scope: Mapping[str, Json] = field(factory=dict, converter=_copied)
    seconds: float = 60.0
    parallel: bool = True
    expires: int | None = None
    output_chars: int = 200_000

    def __attrs_post_init__(self) -> None:
        if not named(self.name):
            raise InvalidInput(f"A tool is named {shown(self.name)}", why="A name is 1 to 64 of A-Z a-z 0-9 _ -")
        text(self.description, f"The description of {self.name}", _DESCRIPTION_BYTES)
        object.__setattr__(self, "schema", well_formed(self.name, self.schema))
        if not callable(self.run):
            raise InvalidInput(f"{self.name} has run={shown(self.run)}", why="It is a function of the call")
        flag(self.idempotent, "idempotent")
        flag(self.parallel, "parallel")
        choice(self.permission, "permission", get_args(Permission))
        if self.credential is not None:
            label(self.credential, "credential")
        number(self.seconds, "seconds", 0.001, _SECONDS_MAX)
        if self.expires is not None:
            whole(self.expires, "expires", 1, _EXPIRES_MAX)
        whole(self.output_chars, "output_chars", 1, _OUTPUT_CHARS_MAX)

    def validated(self, input: object) -> dict[str, Any]:
        """An input as a fresh value that the schema accepts.

        Raises:
            InvalidInput: It is not what the schema says; the message names the place and the nearest known name.
        """
        return checked(self.name, self.schema, input)


class Toolset:
    """Tools by name, in the order given: a provider's prompt cache holds only while the order stays.

    Args:
        tools: The tools.

    Raises:
        Conflict: Two have one name.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if not isinstance(tool, Tool):
                raise InvalidInput(
                    f"{shown(tool)} is no tool", next="Make one of a function with agentmem.harness.tool"
                )
            if tool.name in self._tools:
                raise Conflict(f"Two tools are named {tool.name}", next="Give one another name, or a prefix")
            self._tools[tool.name] = tool

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def names(self) -> list[str]:
        """The names, in order."""
        return list(self._tools)

    def get(self, name: str) -> Tool:
        """The tool of a name.

        Raises:
            NotFound: There is none; the message names the nearest.
        """
        found = self._tools.get(name) if isinstance(name, str) else None
        if found is not None:
            return found
        there = f"There are {', '.join(self._tools) or 'none in this session'}"
        raise NotFound(f"There is no tool {shown(name)}", next=f"{did_you_mean(name, self._tools)} {there}".lstrip())

    def definitions(self) -> list[dict[str, Any]]:
        """`name`, `description` and `input_schema` of each, in order, for a model's API. The caller may change them."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": copied(tool.schema)} for tool in self
        ]
