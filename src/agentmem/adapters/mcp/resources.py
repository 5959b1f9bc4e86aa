"""Resources: the way back into a project, and each record, as text."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple
from urllib.parse import quote, unquote

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.types import Annotations, Resource, ResourceTemplate

from agentmem.errors import AgentMemError, InvalidInput, NotFound
from agentmem.tools import Toolbox, lines

__all__ = ["MIME", "TEMPLATES", "Named", "listed", "parsed", "read", "record_uri", "resume_uri"]

MIME: Final = "text/plain"
_SCHEME: Final = "agentmem://"
_LISTED: Final = 50
_URI_CHARS: Final = 4096

TEMPLATES: Final = (
    ResourceTemplate(
        uri_template="agentmem://resume/{project}",
        name="resume",
        title="Where the work stands",
        description="What resume says of a project: goals, what is left, what failed, what was decided.",
        mime_type=MIME,
    ),
    ResourceTemplate(
        uri_template="agentmem://record/{id}",
        name="record",
        title="A record in full",
        description="57, 14.3 for an item, endpoint%3AGET%20%2Fx for an entity.",
        mime_type=MIME,
    ),
)


class Named(NamedTuple):
    """What a URI of ours names."""

    of: Literal["resume", "record"]
    name: str


def parsed(uri: str) -> Named | None:
    """What a URI names; None where it is none of ours."""
    if not uri.startswith(_SCHEME) or len(uri) > _URI_CHARS:
        return None
    of, _, rest = uri.removeprefix(_SCHEME).partition("/")
    # A slash within a name is fine: it names no file.
    name = unquote(rest, errors="strict") if _decodable(rest) else ""
    match of:
        case "resume":
            return Named("resume", name)
        case "record":
            return Named("record", name)
    return None


def _decodable(text: str) -> bool:
    try:
        unquote(text, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def resume_uri(project: str) -> str:
    """The URI of the way back into a project."""
    return f"{_SCHEME}resume/{quote(project, safe='')}"


def record_uri(ref: str | int) -> str:
    """The URI of a record."""
    return f"{_SCHEME}record/{quote(str(ref), safe='')}"


def listed(toolbox: Toolbox) -> list[Resource]:
    """The way back into each project, the server's own first; nothing where the store can't be opened, which calls say."""
    try:
        store = toolbox.store
        own = store.project
        names = [own, *(one.name for one in store.projects.list() if one.name not in (None, own))]
    except AgentMemError:
        return []
    return [
        Resource(
            uri=resume_uri(name),
            name=f"resume of {name}",
            title=f"Where {name} stands",
            mime_type=MIME,
            annotations=Annotations(audience=["assistant"], priority=1.0 if name == own else 0.3),
        )
        for name in names[:_LISTED]
        if name is not None
    ]


def read(toolbox: Toolbox, named: Named, uri: str) -> str:
    """The text of a resource.

    Raises:
        ResourceNotFoundError: There is no such project or record.
        ResourceError: The store can't be read.
    """
    try:
        store = toolbox.store
        if named.of == "record":
            return lines.record(store, store.get(named.name))
        if named.name != store.project:
            store = store.in_project(named.name)
            store.projects.get()
        return store.resume(None).text
    except (NotFound, InvalidInput) as error:
        raise ResourceNotFoundError(f"Unknown resource: {uri}") from error
    except AgentMemError as error:
        raise ResourceError(str(error)) from error
