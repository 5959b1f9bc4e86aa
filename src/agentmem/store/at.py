"""The store as it was at one moment: every verb that reads, and none that writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from agentmem import limits
from agentmem.errors import InvalidInput, NotFound, NotInPast, shown
from agentmem.log.ledger import Ledger
from agentmem.past.at import Moment, PastDatabase, moment, not_in_past
from agentmem.records import validate
from agentmem.records.attempts import Attempts
from agentmem.records.base import Binding
from agentmem.records.events import Log
from agentmem.store.opening import Store
from agentmem.store.shared import Shared
from agentmem.types import Earlier, Event, Ref

if TYPE_CHECKING:
    from agentmem.context.recalled import Recall
    from agentmem.engine.database import Database
    from agentmem.recall.find import Found
    from agentmem.upkeep.backup import Backup
    from agentmem.upkeep.health import Verified
    from agentmem.upkeep.rekey import Rekeyed


class PastAttempts(Attempts):
    """Attempts as they were; those alike are looked for by words too, which a view of the past does not know."""

    __slots__ = ()

    def earlier(self, what: str, *, about: Ref | None = None, task: Ref | None = None) -> tuple[Earlier, ...]:
        """Refused.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "Looking for attempts by their words")


class PastLog(Log):
    """The log up to the moment."""

    __slots__ = ()

    def read(self, *, project: str | None = None, **filters: Any) -> tuple[Event, ...]:
        """See `Log.read`; of a view that has one project only, that one."""
        if project is not None:
            _within(self._binding, project)
        return super().read(project=project, **filters)


class PastStore(Store):
    """A store as it was right after one event. Made by `Store.at`.

    Reading works as on the store: its time is that of the event, nothing is claimed, nothing can be searched or
    written. Close it to give its memory back; it also closes with the store it came from.
    """

    def __init__(self, shared: Shared, binding: Binding) -> None:
        super().__init__(shared, binding)
        self.attempts = PastAttempts(binding)
        self.log = PastLog(binding)

    @property
    def moment(self) -> Moment:
        """Up to where the log counts."""
        return _moment(self._binding)

    def __repr__(self) -> str:
        return f"<PastStore {shown(str(self.path))} project={shown(self.project)} seq={self.moment.seq}>"

    def in_project(self, name: str) -> PastStore:
        """The same moment, another project, by the name it had then.

        Raises:
            NotInPast: The log is so long that one project was folded, and this is another.
        """
        wanted = validate.project(name)
        _within(self._binding, wanted)
        return PastStore(self._shared, attrs.evolve(self._binding, project=wanted))

    def beneath(self, note: Ref) -> PastStore:
        """The same moment, for a worker on one task; see `Store.beneath`."""
        return PastStore(self._shared, super().beneath(note)._binding)

    def acting(self, **labels: Any) -> PastStore:
        """The same moment, for another actor; see `Store.acting`."""
        return PastStore(self._shared, super().acting(**labels)._binding)

    def find(self, query: str, **options: Any) -> Found:
        """Refused: the index knows the words of now.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "Search by words")

    def recall(self, query: str, **options: Any) -> Recall:
        """Refused: index and vectors are of the words of now.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "Recall")

    def verify(self, *arguments: Any, **options: Any) -> Verified:
        """Refused: it is of the file.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "A check of the file")

    def backup(self, *arguments: Any, **options: Any) -> Backup:
        """Refused: it would be of the present.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "A copy of the file")

    def rekey(self, *arguments: Any, **options: Any) -> Rekeyed:
        """Refused: it is of the file.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "A new key")

    def wait_for_index(self, timeout: float | None = None, **options: Any) -> bool:
        """Refused: there is no index.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "Search by words")

    def watch(
        self, *, after: int | None = None, kinds: Sequence[str] = (), timeout: float | None = None
    ) -> Iterator[Event]:
        """Refused: nothing is going to happen.

        Raises:
            NotInPast: Always.
        """
        raise _lacks(self._binding, "Waiting for events")


def open_past(shared: Shared, binding: Binding, seq: int | None, time: object) -> PastStore:
    """The command behind `Store.at`."""
    if (seq is None) == (time is None):
        raise InvalidInput("A moment is a seq or a time", next="Give at(seq) or at(time=…)")
    database = shared.database
    wanted = None if seq is None else validate.cursor(seq, "seq")
    found = moment(database, binding.project, seq=wanted, time=None if time is None else validate.moment(time, "time"))
    root = database.parent if isinstance(database, PastDatabase) else database
    past = PastDatabase(root, binding.ledger.kinds, found)
    try:
        ledger = Ledger(past, binding.ledger.kinds, binding.ledger.store, lambda: found.at)
        ledger.past = True
        kept = Shared(past, ledger, shared.counter)
        then = attrs.evolve(binding, ledger=ledger, leases=kept.leases, project=found.name)
        return PastStore(kept, _settled(then, found, root))
    except BaseException:
        past.close()
        raise


def _settled(binding: Binding, moment: Moment, root: Database) -> Binding:
    """The view as it can be at that moment: without a task that was not there yet.

    Raises:
        NotFound: Another project had the name then.
    """
    with binding.reading() as view:
        if moment.project is not None and view.known_project not in (moment.project, -1):
            raise NotFound(
                f"The project {shown(binding.project)} did not exist at event {moment.seq}",
                why=f"Project #{view.known_project} had its name then",
                next=_way_to(root, moment, view.known_project, dict(view.rows("SELECT id, name FROM project"))),
            )
        task = binding.actor.task
        if task is None or view.row("SELECT 1 FROM note WHERE id = ?", (task,)) is not None:
            return binding
    return binding.acting(task=None)


def _way_to(root: Database, moment: Moment, project: int, then: Mapping[int, str]) -> str:
    """How to read a project that had the name of the asker's at the moment, and has another or none now.

    Args:
        root: The store.
        moment: The moment.
        project: That project.
        then: The projects there were at the moment, by id.
    """
    with root.read(alone=True) as connection:
        rows: Any = connection.execute("SELECT id, name FROM project WHERE name IS NOT NULL").fetchall()
    now: dict[int, str] = dict(rows)
    own = now.get(project)
    if own is None and moment.partial:
        return "Ask for a later event: the log is too long for a view of a project that has no name now"
    # A view of any other project leads there too, if nobody else had the name of that one then.
    others = (name for key, name in now.items() if key in then or name not in then.values())
    by = own or next((name for name in others if name != moment.name), None)
    via = "in_project(any name that no project has)" if by is None else f"in_project({shown(by)})"
    return f"Ask with {via}.at({moment.seq}).in_project({shown(moment.name)})"


def _moment(binding: Binding) -> Moment:
    database = binding.ledger.database
    assert isinstance(database, PastDatabase)  # as `open_past` made it
    return database.moment


def _lacks(binding: Binding, what: str) -> NotInPast:
    return not_in_past(what, _moment(binding).seq)


def _within(binding: Binding, project: str) -> None:
    """Refuse a project that was not folded.

    Raises:
        NotInPast: The view has one project, and this is another, or all.
    """
    found = _moment(binding)
    if found.partial and project != found.name:
        raise NotInPast(
            f"This view of the past has project {shown(found.name)} only",
            why=f"The log has more than {limits.AT_EVENTS} events up to event {found.seq}, of which one project's are folded",
            next=f"Ask with in_project({shown(project)}).at({found.seq}) of the store",
        )
