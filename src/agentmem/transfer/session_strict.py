"""A session in the form that others read: the public events of managed agents, and the way back.

`strict` gives what every client of that form parses: no event and no field of ours, and nothing that the form lacks.
`from_strict` takes such events; what this version does not know is kept whole, as `x.foreign`.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from agentmem.errors import InvalidInput, shown
from agentmem.log.canonical import canonical
from agentmem.records import vocabulary
from agentmem.types import moment

__all__ = ["FOREIGN", "Logged", "Read", "Reading", "from_strict", "public_id", "strict"]

FOREIGN: Final = "x.foreign"
# What the form makes of an event itself.
_FRAME: Final = ("id", "type", "processed_at")
_CONFIRMS: Final = "user.tool_confirmation"
_UNKNOWN: Final = "unknown_error"
# The errors of the form, and what each must have besides a message.
_ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((_UNKNOWN, "model_overloaded_error", "model_rate_limited_error", "model_request_failed_error",
                     "billing_error", "tool_use_limit_reached_error", "compaction_limit_reached_error"), ()),
    **dict.fromkeys(("mcp_connection_failed_error", "mcp_authentication_failed_error"), ("mcp_server_name",)),
    "credential_host_unreachable_error": ("credential_id", "vault_id"),
    **dict.fromkeys((f"repository_{what}_error" for what in (
        "authentication", "forbidden", "not_found", "checkout", "clone")), ()),
}  # fmt: skip
_RUN_ERRORS: Final = frozenset(
    (_UNKNOWN, "timeout_error", "program_error", "thread_limit_error", "max_workflow_runs_error")
)
_REFUSED: Final = frozenset(("cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms"))


Resolve: TypeAlias = Callable[[str], int | None]


class Logged(Protocol):
    """An event of a session, as far as others are told of it."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def type(self) -> str:
        """Its type."""

    @property
    def body(self) -> Mapping[str, Any] | None:
        """What it says; None once it was purged."""

    @property
    def at(self) -> int:
        """When it was appended, microseconds since 1970 UTC."""


def public_id(store: str, seq: int) -> str:
    """The id of an event outside: unique among stores."""
    return f"sevt_{store[:8]}_{seq}"


def strict(store: str, events: Iterable[Logged], dropped: Counter[str] | None = None) -> Iterator[dict[str, Any]]:
    """Events in the public form. Our own types, the caller's own and purged events are left out.

    So are our fields of public types. What the form has no word for takes its nearest: an error of another kind is an
    `unknown_error`, a block that was taken out of a result is a text that says so, labels that are no text are spelled as
    JSON. The agent of a `session.updated` is left out, since ours need not have what theirs has.

    Args:
        store: The id of the store.
        events: In order.
        dropped: Is added to, by type, as events are left out.
    """
    for event in events:
        if event.body is None or event.type.startswith(("x.", vocabulary.OURS)):
            if dropped is not None:
                dropped[event.type] += 1
            continue
        ours = vocabulary.TYPES[event.type].ours
        found = {"id": public_id(store, event.id), "type": event.type}
        found |= {
            name: _public(store, event.type, name, value) for name, value in event.body.items() if name not in ours
        }
        found.pop("agent", None)
        found["processed_at"] = moment(event.at).isoformat(timespec="microseconds").replace("+00:00", "Z")
        yield found


def _public(store: str, of: str, name: str, value: Any) -> Any:
    """The value of a field as the form has it."""
    if name in vocabulary.REFERENCES:
        return public_id(store, value)
    match name:
        case "stop_reason" if "event_ids" in value:
            return {**value, "event_ids": [public_id(store, seq) for seq in value["event_ids"]]}
        case "stop_details" if value.get("category") not in _REFUSED:
            return {part: told for part, told in value.items() if part != "category"}
        case "content" if of in vocabulary.RESULTS:
            return [_block(block) for block in value]
        case "metadata":
            return {label: each if isinstance(each, str) else canonical(each) for label, each in value.items()}
        case "error" if of == "session.error":
            return _error(value)
        case "error":
            return _run_error(value)
        case "result" if of == "workflow_run.status_ended" and "error" in value:
            return {**value, "error": _run_error(value["error"])}
        case _:
            return value


def _block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A block of a result: there is no block for what was taken out, and a source says whether it is cited."""
    match block["type"]:
        case "redacted":
            return {"type": "text", "text": "[redacted]"}
        case "search_result":
            return {"citations": {"enabled": False}, **block}
        case _:
            return block


def _error(error: Mapping[str, Any]) -> dict[str, Any]:
    of = error["type"]
    if of not in _ERRORS or any(name not in error for name in _ERRORS[of]):
        of = _UNKNOWN
    wanted = (*_ERRORS[of], *(("repository_url",) if of.startswith("repository_") else ()))
    return {
        "type": of,
        "message": error["message"],
        "retry_status": error.get("retry_status", {"type": "terminal"}),
        **{name: error[name] for name in wanted if name in error},
    }


def _run_error(error: Mapping[str, Any]) -> Mapping[str, Any]:
    return error if error["type"] in _RUN_ERRORS else {**error, "type": _UNKNOWN}


class Read(NamedTuple):
    """An event of elsewhere, as it is appended here.

    Attributes:
        type: Its type; `x.foreign` where it can't be an event of that here.
        body: Its body; references are what they were resolved to. Of an `x.foreign`: `event`, the whole of it as it was.
        original: Its id there; empty if it has none.
        at: When it was processed there, microseconds since 1970 UTC; None where that is not said.
    """

    type: str
    body: dict[str, Any]
    original: str
    at: int | None


def from_strict(events: Iterable[Any], resolve: Resolve) -> Iterator[Read]:
    """Events in the public form as they are appended here, one after another; see `Reading`.

    Args:
        events: Objects of the form, or of its SDK.
        resolve: The id here of an event that was read by now, by its id there, or its place in the append, from -1 on; None
            for none.

    Raises:
        InvalidInput: One is no event, or no JSON.
    """
    reading = Reading()
    for event in events:
        yield reading.read(event, resolve)


class Reading:
    """Events in the public form as they are appended here, one after another.

    An append takes each of them, in order, into a session of its own; after `session.status_terminated` it takes none. An
    event becomes `x.foreign` if its type or anything in it is unknown here, if what it refers to is not there or is another
    thing, or if it answers what is answered already.
    """

    def __init__(self) -> None:
        # By their ids there.
        self._types: dict[str, str] = {}
        self._answered: set[str] = set()
        self._confirmed: set[str] = set()

    def read(self, event: Any, resolve: Resolve) -> Read:
        """The next event; see `from_strict`."""
        dump = getattr(event, "model_dump", None)
        given = dump(mode="json") if callable(dump) else event
        if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
            raise InvalidInput(f"{shown(event)} is no event", why="An event is an object with a type")
        original = given["id"] if isinstance(given.get("id"), str) else ""
        body = self._body(given, resolve)
        of = FOREIGN if body is None else given["type"]
        if body is None:
            body = vocabulary.checked(FOREIGN, {"event": dict(given)})
        self._types[original] = of
        return Read(of, body, original, _at(given.get("processed_at")))

    def _body(self, event: Mapping[str, Any], resolve: Resolve) -> dict[str, Any] | None:
        """The body here, None where it can't be one."""
        of = event["type"]
        shape = vocabulary.TYPES.get(of)
        body = {name: value for name, value in event.items() if name not in _FRAME and value is not None}
        if shape is None or of.startswith(vocabulary.OURS) or not body.keys() <= shape.fields.keys() - set(shape.ours):
            return None
        led: dict[str, Any] = {
            name: self._here(of, body[name], resolve) for name in vocabulary.REFERENCES if name in body
        }
        if None in led.values():
            return None
        if of in vocabulary.CALLS and body.get("evaluated_permission") == "ask":
            body["permission"] = "ask"
        reason = body.get("stop_reason")
        if isinstance(reason, Mapping) and isinstance(reason.get("event_ids"), Sequence):
            ids = [resolve(each) for each in reason["event_ids"] if isinstance(each, str)]
            led["stop_reason"] = {**reason, "event_ids": [each for each in ids if each is not None]}
            body["stop_reason"] = {**reason, "event_ids": []}
        try:
            # Places are no ids: they are led to these by the append.
            found = vocabulary.checked(of, {**body, **dict.fromkeys(led.keys() - {"stop_reason"}, 1)})
        except InvalidInput:
            return None
        there = next((str(body[name]) for name in vocabulary.REFERENCES if name in body), None)
        self._settle(of, there)
        return {**found, **led}

    def _here(self, of: str, there: Any, resolve: Resolve) -> int | None:
        """The id here of what an event refers to; None where an append would not take it."""
        if not isinstance(there, str):
            return None
        wanted = vocabulary.answered_by(of)
        if wanted and self._types.get(there, wanted[0]) not in wanted:
            return None
        if of in vocabulary.RESULTS and there in self._answered:
            return None
        if of == _CONFIRMS and (there in self._confirmed or there in self._answered):
            return None
        return resolve(there)

    def _settle(self, of: str, there: str | None) -> None:
        if there is None:
            return
        if of in vocabulary.RESULTS:
            self._answered.add(there)
        elif of == _CONFIRMS:
            self._confirmed.add(there)


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _at(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        found = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if found.tzinfo is None else (found - _EPOCH) // datetime.timedelta(microseconds=1)
