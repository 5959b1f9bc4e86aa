"""Commands on the store as a whole: init, key, stats, verify, log, projects."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.options import command, common_options
from agentmem.adapters.cli.output import complain, is_terminal
from agentmem.adapters.cli.session import Session, key_words
from agentmem.adapters.cli.shown import compact, when, written

if TYPE_CHECKING:
    from agentmem.engine.keys import ResolvedKey
    from agentmem.store import Store
    from agentmem.types import Event, Head


@command("init", store=None, verbs=("open", "close"))
def init(session: Session) -> None:
    """Make the store, and say where its key is. One that is there already is opened and left as it is.

    Losing the key loses all that is written. The default key file guards copies of the database, not your account.

    Examples:
      agentmem init
      agentmem init --db work.db --key-file work.key
    """
    out = session.out
    made = not session.path.exists()
    with session.opened("create") as store:
        database = store.database
        if out.json:
            source = database.key_source
            key = {"source": source and source.value, "path": database.key_path, "made": database.key_made}
            out.value({"path": store.path, "project": store.project, "made": made, "key": key})
            return
        out.text(str(store.path))
        if not made:
            out.say("the store was there already")
            out.say(key_words(store))


@options.group("key")
def key() -> None:
    """The key of the store: where it is, and a copy of it.

    Examples:
      agentmem key where
      agentmem key export
    """


@command("where", store=None, group=key)
def key_where(session: Session) -> None:
    """Where the key of the store is looked for and found. The key itself is not shown.

    Examples:
      agentmem key where --json
    """
    out = session.out
    found = _resolved(session)
    source = "key_file" if session.given.get("key_file") else found.source.value
    path = session.given.get("key_file") or found.path
    if out.json:
        out.value({"source": source, "path": path and str(path), "store": session.path})
    else:
        out.text(source if path is None else f"{source} {path}")


@command("export", store=None, group=key)
def key_export(session: Session) -> None:
    """Print the key in the form AGENTMEM_KEY takes: at a terminal, elsewhere only with --yes.

    Whoever has it reads all copies of the database. A store that is there must open with it.

    Examples:
      agentmem key export
      agentmem key export --yes > /media/stick/agentmem.key
    """
    from agentmem.engine.keys import key_text

    if not session.given.get("yes") and not is_terminal(sys.stdout):
        raise click.UsageError(
            "stdout is no terminal, and the key would stay where it goes. If you mean it, add --yes."
        )
    found = _resolved(session)
    if session.path.exists():
        with session.opened("read"):
            pass
    complain("warning: whoever has this key reads all copies of the database. Keep it apart from them.")
    text = key_text(found.material)
    if session.out.json:
        session.out.value({"key": text, "store": session.path})
    else:
        session.out.text(text)


def _resolved(session: Session) -> ResolvedKey:
    from agentmem.engine.keys import resolve_key

    return resolve_key(session.key(new=False), existing=True, path=session.path)


@command("stats", verbs=("stats", "projects.stats"))
def stats(session: Session, store: Store) -> None:
    """The size of the store, and what the project holds.

    Examples:
      agentmem stats --json
    """
    from agentmem.errors import NotFound

    out, found = session.out, store.stats()
    try:
        project = store.projects.stats()
    except NotFound:  # nothing was written in it yet
        project = None
    if out.json:
        out.value(found, project=project)
        return
    sizes = [
        ("path", str(found.path)),
        ("file", f"{found.file_bytes:,} bytes, log {found.wal_bytes:,} bytes"),
        ("events", f"{found.events:,}"),
        ("projects", f"{found.projects:,}"),
        ("records", _counts(found.records)),
        ("project", store.project),
    ]
    if project is None:
        sizes.append(("", "nothing was written in it yet"))
    else:
        sizes += [("  notes", _counts(project.notes)), ("  entities", _counts(project.entities))]
    out.text("\n".join(f"{name:<10} {value}".rstrip() for name, value in sizes))


def _counts(numbers: Any) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number) or "none"


@command("verify", store=None, verbs=("verify", "wait_for_index"))
@click.option("--replay", is_flag=True, help="Also fold the log anew and compare every table, row for row.")
@click.option("--independent", is_flag=True, help="Also have stock SQLCipher check every page of a snapshot.")
@click.option(
    "--head", metavar="STORE:SEQ:CHAIN", help="A head noted earlier (agentmem log --head): the log must contain it."
)
@click.option("--reindex", is_flag=True, help="First make an index anew that an earlier version made.")
def verify(session: Session, replay: bool, independent: bool, head: str | None, reindex: bool) -> None:
    """Check the file.

    The chain of the log, the index and the pages always, more when asked. Problems go to stdout, one a line,
    and the exit code is 10.

    Examples:
      agentmem verify
      agentmem verify --replay --independent
    """
    out = session.out
    noted = None if head is None else _head(head)
    with session.opened("write" if reindex else "read") as store:
        if reindex:
            store.wait_for_index()
        found = store.verify(replay=replay, independent=independent, head=noted)
    if out.json:
        out.value(found, sound=bool(found))
    elif found:
        out.text(f"sound: {found.events:,} events, head {_head_text(found.head)}")
    else:
        out.text("\n".join(found.problems))
    if not found:
        click.get_current_context().exit(Exit.DAMAGED)


def _head_text(head: Head) -> str:
    return f"{head.store}:{head.seq}:{head.chain}"


def _head(given: str) -> Head:
    from agentmem.types import Head

    store, _, rest = given.partition(":")
    seq, _, chain = rest.partition(":")
    if not seq.isdigit() or not chain:
        raise click.BadParameter("A head is STORE:SEQ:CHAIN, as agentmem log --head prints it.", param_hint="--head")
    return Head(store, int(seq), chain)


@command("log", verbs=("log.read", "log.get", "log.head", "watch"))
@click.argument("seq", type=int, required=False)
@click.option(
    "--head", "head", is_flag=True, help="Only the end of the log: note it elsewhere for agentmem verify --head."
)
@click.option("--follow", is_flag=True, help="Go on with events as they are committed.")
@click.option("--timeout", type=float, metavar="SECONDS", help="With --follow: end after so long without an event.")
@click.option("--record", metavar="REF", help="Events of this record.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Of this kind, as note.added. Repeatable.")
@click.option("--all-projects", is_flag=True, help="Of every project.")
@click.option("--newest-first", is_flag=True, help="In reverse.")
@click.option("--until", type=int, metavar="SEQ", help="Only up to this one.")
@click.option("--after", type=int, metavar="SEQ", help="Only later ones.")
@options.limit()
def log(
    session: Session,
    store: Store,
    seq: int | None,
    head: bool,
    follow: bool,
    timeout: float | None,
    record: str | None,
    kinds: tuple[str, ...],
    all_projects: bool,
    newest_first: bool,
    until: int | None,
    after: int | None,
    limit: int,
) -> None:
    """The events behind everything.

    Or the one of SEQ in full.

    Examples:
      agentmem log --newest-first --limit 20
      agentmem log --record 12 --json
      agentmem log --follow --kind note.added
      agentmem log 480
    """
    out = session.out
    if head:
        end = store.log.head()
        if out.json:
            out.value(end)
        else:
            out.text(_head_text(end))
    elif seq is not None:
        _one_event(session, store, seq)
    elif follow:
        for event in store.watch(after=after, kinds=kinds, timeout=timeout):
            _events(session, (event,))
            out.flush()
    else:
        found = store.log.read(
            after=after or 0, until=until, record=record, project="*" if all_projects else None, kinds=kinds,
            newest_first=newest_first, limit=limit,
        )  # fmt: skip
        _events(session, found)
        if len(found) == limit:
            last = found[-1].seq
            out.say(f"perhaps more: {f'--until {last - 1}' if newest_first else f'--after {last}'}")


def _one_event(session: Session, store: Store, seq: int) -> None:
    from agentmem.errors import NotFound

    event = store.log.get(seq)
    if event is None:
        raise NotFound(f"There is no event {seq}", next=f"The last one is {store.log.head().seq}")
    if session.out.json:
        session.out.value(event)
        return
    _events(session, (event,))
    session.out.text(f"chain: {event.chain.hex()}")
    session.out.text("payload: erased" if event.payload is None else f"payload: {compact(event.payload)}")


def _events(session: Session, events: tuple[Event, ...]) -> None:
    if session.out.json:
        session.out.values(events)
        return
    for event in events:
        who = " ".join(f"{name}={label}" for name, label in (("by", event.author), ("run", event.run)) if label)
        origin = "" if event.origin == "agent" else f" ({event.origin})"
        session.out.text(f"{event.seq} {when(event.at)} {event.kind} {event.record}{origin} {who}".rstrip())


@options.group("projects", invoke_without_command=True)
@click.pass_context
def projects(context: click.Context) -> None:
    """The projects of the store, oldest first.

    Examples:
      agentmem projects
      agentmem projects rename acme --project acme-1f2e3d4c
    """
    if context.invoked_subcommand is None:
        session = context.ensure_object(Session)
        with session.opened("read") as store:
            _projects(session, store)


projects.params.extend(common_options(leaf=True))


def _projects(session: Session, store: Store) -> None:
    out = session.out
    found = store.projects.list()
    if out.json:
        out.values(found)
        return
    rows = (
        (str(one.id), one.name or "", f"{when(one.created_at)} UTC", "this one" if one.name == store.project else "")
        for one in found
    )
    out.table(("id", "name", "since", ""), rows)


@command("list", verbs=("projects.list",), group=projects)
def projects_list(session: Session, store: Store) -> None:
    """The projects of the store, oldest first.

    Examples:
      agentmem projects list --json
    """
    _projects(session, store)


@command("rename", store="write", verbs=("projects.rename",), group=projects)
@click.argument("name")
@options.request_id
def projects_rename(session: Session, store: Store, name: str, request_id: str | None) -> None:
    """Give the project another NAME. Its records keep their ids.

    The directory still stands for the old name: from then on give --project NAME, or set AGENTMEM_PROJECT.

    Examples:
      agentmem projects rename acme --project acme-1f2e3d4c
    """
    written(session.out, store.projects.rename(name, request_id=request_id))


COMMANDS = {made.name: made for made in (init, key, stats, verify, log, projects)}
