"""Projects: namespaces in a store, and the one that a directory stands for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import apsw
from attrs import frozen

from agentmem import limits
from agentmem.errors import UNSEEN, Conflict, InvalidInput, NotFound, shown
from agentmem.log.kinds import EventKind
from agentmem.records import subjects, validate
from agentmem.records.base import Namespace, Source, Unit, View
from agentmem.types import UNTRUSTED, Event, Project, Written

COLUMNS: Final = "id, name, created_at, revision"


@frozen
class KindSize:
    """The events of one kind in one project, and the bytes of their payloads. Of what was purged only the header counts."""

    project: int
    kind: str
    events: int
    bytes: int


@frozen
class ProjectStats:
    """What a project holds, in numbers of records.

    Attributes:
        project: The project.
        notes: By kind.
        entities: By type.
        marks: Current marks of its entities.
        items: Of the checklists of its notes, removed ones left out.
        checkpoints: Of its tasks and its own.
        summaries: Of its tasks.
        events: How many the log has of it.
        bytes: Of the payloads of these events; None where it was not asked for.
        log: Events and bytes by kind, the largest first; None where it was not asked for.
    """

    project: Project
    notes: Mapping[str, int]
    entities: Mapping[str, int]
    marks: int
    items: int
    checkpoints: int
    summaries: int
    events: int
    bytes: int | None = None
    log: tuple[KindSize, ...] | None = None


def project_named(source: Source, name: str) -> int:
    """The id of the project of this name.

    Raises:
        NotFound: Nothing was ever written in it, or it was merged, or purged.
    """
    wanted = validate.project(name)
    row = source.row("SELECT id FROM project WHERE name = ?", (wanted,))
    if row is None:
        raise NotFound(f"There is no project {shown(wanted)}", next="See projects.list()")
    return int(row[0])


class Projects(Namespace):
    """`store.projects`: list, create, rename, numbers."""

    __slots__ = ()

    def list(self) -> tuple[Project, ...]:
        """Every project of the store, oldest first."""
        subjects.refuse_whole(self._binding, "Projects are more than one subject")
        with self._binding.reading() as view:
            return tuple(Project(*row) for row in view.rows(f"SELECT {COLUMNS} FROM project ORDER BY id"))

    def get(self, name: str | None = None) -> Project:
        """The project of this name, or the view's own.

        Raises:
            NotFound: Nothing was ever written in it.
        """
        wanted = self._binding.project if name is None else validate.project(name)
        subjects.refuse_projects(self._binding, wanted)
        with self._binding.reading() as view:
            row = view.row(f"SELECT {COLUMNS} FROM project WHERE name = ?", (wanted,))
            if row is None:
                raise NotFound(
                    f"There is no project {shown(wanted)}", next="A project comes to be with the first write in it"
                )
            return Project(*row)

    def rename(self, name: str, *, request_id: str | None = None) -> Written:
        """Give the view's project another name. Its records keep their ids.

        Views by the old name, this one too, do not follow: go on with `store.in_project(name)`.

        Raises:
            Conflict: Another project has the name.
            NotFound: Nothing was ever written in the view's project.
        """
        name = validate.project(name)
        subjects.refuse_whole(self._binding, "A project is more than one subject")

        def command(unit: Unit) -> Written:
            refuse_untrusted(unit, "renames no project")
            row = unit.row(f"SELECT {COLUMNS} FROM project WHERE name = ?", (self._binding.project,))
            if row is None:
                raise NotFound(f"There is no project {shown(self._binding.project)}")
            if row[1] == name:
                return Written(row[0], row[3], transit=unit.transit)
            if unit.row("SELECT 1 FROM project WHERE name = ?", (name,)) is not None:
                raise Conflict(f"There is a project {shown(name)} already")
            event = unit.append("project.changed", {"set": {"name": name}}, record=row[0], project=row[0])
            notice = f"go on with in_project({shown(name)}): a write under the old name begins a new project"
            return Written(row[0], event.seq, ("name",), (), (notice,), transit=unit.transit)

        arguments = {"from": self._binding.project, "name": name}
        return self._binding.run("projects.rename", arguments, request_id, command)

    def stats(self, *, log: bool = False) -> ProjectStats:
        """How many records of each sort and how many events the view's project has.

        Args:
            log: Also the bytes of its events, by kind. Reads all of them.

        Raises:
            NotFound: Nothing was ever written in the project.
        """
        validate.flag(log, "log")
        subjects.refuse_whole(self._binding, "These numbers are of all subjects")
        with self._binding.reading() as view:
            project = self.get()
            sizes = kind_sizes(view, project.id) if log else None

            def counted(sql: str) -> int:
                return view.number(f"SELECT count(*) FROM {sql}", (project.id,))

            return ProjectStats(
                project,
                dict(view.rows("SELECT kind, count(*) FROM note WHERE project = ? GROUP BY kind", (project.id,))),
                dict(view.rows("SELECT type, count(*) FROM entity WHERE project = ? GROUP BY type", (project.id,))),
                marks=counted("mark WHERE project = ?"),
                items=counted("note JOIN item ON item.note = note.id WHERE note.project = ? AND item.removed = 0"),
                checkpoints=counted("checkpoint WHERE project = ?"),
                summaries=counted("note JOIN summary ON summary.note = note.id WHERE note.project = ?"),
                events=counted("event WHERE project = ?"),
                bytes=None if sizes is None else sum(size.bytes for size in sizes),
                log=sizes,
            )


def kind_sizes(view: View, project: int | None) -> tuple[KindSize, ...]:
    """Events and bytes by project and kind, the largest first, of one project or of all. Reads every event."""
    sql = f"""
    SELECT project, kind, count(*), coalesce(sum(octet_length(payload)), 0) AS bytes FROM event
    {"" if project is None else "WHERE project = ?"} GROUP BY project, kind ORDER BY bytes DESC, project, kind
    """
    return tuple(KindSize(*row) for row in view.rows(sql, () if project is None else (project,)))


def refuse_untrusted(unit: Unit, what: str) -> None:
    """Refuse that text from elsewhere does something to a whole project.

    Raises:
        InvalidInput: The actor's origin is not trusted.
    """
    if unit.actor.origin in UNTRUSTED:
        raise InvalidInput(f"Text from {unit.actor.origin} {what}", next="Let an agent or a person decide")


def default_project(directory: Path | str | None = None) -> str:
    """The project that a directory stands for: its base name and a short hash of a real path.

    The path hashed is that of git's common directory, which all worktrees of one repository share, or
    of the directory itself outside a repository. Two directories of one name do not collide.

    Args:
        directory: The current one if None.
    """
    start = Path(directory or ".").resolve()
    common = _git_common_directory(start)
    anchor = start if common is None else common
    named = anchor.parent if anchor.name == ".git" else anchor
    name = re.sub(rf"(?:[^\w.\-]|[{UNSEEN}])+", "-", named.name).strip("-.") or "root"
    short = hashlib.sha256(str(anchor).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{name[: limits.PROJECT_CHARS - 9]}-{short}"


def _git_common_directory(start: Path) -> Path | None:
    """The repository's common directory, read from its files."""
    for place in (start, *start.parents):
        dot = place / ".git"
        if dot.is_dir():
            return dot.resolve()
        if dot.is_file():
            return _linked(place, dot)
        if (place / "HEAD").is_file() and (place / "objects").is_dir() and (place / "refs").is_dir():
            return place  # a bare repository
    return None


def _linked(place: Path, dot: Path) -> Path | None:
    """The common directory of a worktree or a submodule, whose `.git` is a file `gitdir: <path>`."""
    first = dot.read_text("utf-8", "replace").partition("\n")[0]
    if not first.startswith("gitdir:"):
        return None
    directory = (place / first.removeprefix("gitdir:").strip()).resolve()
    pointer = directory / "commondir"
    if not pointer.is_file():
        return directory
    return (directory / pointer.read_text("utf-8", "replace").strip()).resolve()


def _apply_created(connection: apsw.Connection, event: Event) -> None:
    name = None if event.payload is None else event.payload["name"]
    connection.execute(
        "INSERT INTO project (id, name, created_at, revision) VALUES (?, ?, ?, ?)",
        (event.record, name, event.at, event.seq),
    )


def _apply_changed(connection: apsw.Connection, event: Event) -> None:
    values: dict[str, Any] = {} if event.payload is None else event.payload["set"]
    if "name" in values:
        connection.execute("UPDATE project SET name = ? WHERE id = ?", (values["name"], event.record))
    connection.execute("UPDATE project SET revision = ? WHERE id = ?", (event.seq, event.record))


EVENTS = (
    EventKind("project.created", "project", _apply_created, creates=True),
    EventKind("project.changed", "project", _apply_changed),
)
PROJECTIONS = ("project",)
