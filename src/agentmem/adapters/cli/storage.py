"""Commands on the store as a whole: init, key, stats, index, verify, log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.output import complain, is_terminal
from agentmem.adapters.cli.progress import Progress, working
from agentmem.adapters.cli.session import Session, key_words
from agentmem.adapters.cli.shown import NOT_CLEANED, compact, counts, head_text, number, sizes, when

if TYPE_CHECKING:
    from agentmem.engine.keys import ResolvedKey
    from agentmem.store import Store
    from agentmem.types import Event
    from agentmem.upkeep.sizes import Stats


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

    If no place has a key that opens the file, all are listed with what was found there, and the exit code is 4.

    Examples:
      agentmem key where --json
    """
    from agentmem.errors import WrongKey

    out = session.out
    try:
        found = _resolved(session)
    except WrongKey:
        _unfound(session)
        return
    source = "key_file" if session.given.get("key_file") else found.source.value
    path = session.given.get("key_file") or found.path
    if out.json:
        out.value({"source": source, "path": path and str(path), "store": session.path})
    else:
        out.text(source if path is None else f"{source} {path}")


def _unfound(session: Session) -> None:
    """No key fits: where one was looked for, and how to name another."""
    from agentmem.engine.lookup import places_looked_in

    out, looked = session.out, places_looked_in(session.path.resolve())
    next = (
        "Give the key the file has now: --key-file PATH, AGENTMEM_KEY_FILE, AGENTMEM_KEY or --ask-key."
        " If it is one of these, the first page is damaged: agentmem doctor"
    )
    if out.json:
        places = [
            {"source": one.source.value, "path": one.path and str(one.path), "found": one.found} for one in looked
        ]
        out.value({"source": None, "path": None, "store": session.path, "looked_in": places, "next": next})
    else:
        lines = [f"  {one.source.value}{'' if one.path is None else f' {one.path}'}: {one.found}" for one in looked]
        out.text("\n".join([f"no key that was found opens {session.path}", *lines]))
        out.say(f"next: {next}")
    click.get_current_context().exit(Exit.WRONG_KEY)


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
    from agentmem.engine.lookup import resolve_key

    return resolve_key(session.key(new=False), path=session.path.resolve())


@command("stats", verbs=("stats", "projects.stats"))
@click.option("--log", is_flag=True, help="Also events and bytes by project and kind. Reads the whole log.")
@click.option("--tables", is_flag=True, help="Also bytes by table and index. Reads every page of the file.")
def stats(session: Session, store: Store, log: bool, tables: bool) -> None:
    """The size of the store, and what the project holds.

    Examples:
      agentmem stats --json
      agentmem stats --log --tables
    """
    from agentmem.errors import NotFound

    out, found = session.out, store.stats(log=log, tables=tables)
    try:
        project = store.projects.stats()
    except NotFound:  # nothing was written in it yet
        project = None
    if out.json:
        out.value(found, project=project)
        return
    rows = [
        ("path", str(found.path)),
        (
            "file",
            f"{number(found.file_bytes, 'byte')}, log {number(found.wal_bytes, 'byte')},"
            f" {number(found.free_pages, 'free page')}",
        ),
        (
            "events",
            f"{found.events:,}" + (f", {when(found.first_at)} to {when(found.last_at)} UTC" if found.events else ""),
        ),
        ("projects", f"{found.projects:,}"),
        ("records", counts(found.records)),
        ("meaning", _meaning(found)),
        ("project", store.project),
    ]
    if project is None:
        rows.append(("", "nothing was written in it yet"))
    else:
        rows += [("  notes", counts(project.notes)), ("  entities", counts(project.entities, kinds=True))]
    if found.purge_pending:
        rows.append(
            ("pending", f"a purge: what was purged may still be in free pages and write-ahead log; {NOT_CLEANED}")
        )
    out.text("\n".join(f"{name:<10} {value}".rstrip() for name, value in rows))
    if found.log is not None:
        sizes(out, found.log)
    if found.tables is not None:
        out.table(
            ("table", "of", "bytes", "unused"),
            ((one.name, one.of, f"{one.bytes:,}", f"{one.unused:,}") for one in found.tables),
        )


def _meaning(found: Stats) -> str:
    """How many records can be found by their meaning, and what bars the others."""
    parts = [f"{number(found.vectors, 'vector')} of {number(found.embedded, 'record')}"]
    if found.embedder is not None:
        parts.append(f"by {found.embedder}")
    if found.waiting:
        parts.append(f"{found.waiting if found.waiting <= 1000 else '1000+'} changed since")
    if found.embedding_failed is not None:
        parts.append(f"failed: {found.embedding_failed}")
    return ", ".join(parts)


@command("index", store="write", verbs=("wait_for_index",))
@click.option("--timeout", type=float, metavar="SECONDS", help="Wait so long at most; what was done until then stays.")
def index(session: Session, store: Store, timeout: float | None) -> None:
    """Have everything indexed by words and by meaning, and wait for it.

    Other commands leave what they wrote to be embedded later. If it is not done in time, or can't be, what is left
    and why goes to stderr, and the exit code is 1.

    Examples:
      agentmem index
      agentmem index --timeout 60
    """
    out = session.out
    with Progress(out, "embedding") as progress:
        whole = store.wait_for_index(timeout, progress=progress)
    found = store.stats()
    if out.json:
        names = ("embedder", "vectors", "embedded", "waiting", "embedding_failed")
        out.value({"whole": whole} | {name: getattr(found, name) for name in names})
    else:
        out.text(_meaning(found))
    if not whole:
        out.say("not whole yet" if found.embedding_failed is None else f"not whole: {found.embedding_failed}")
        click.get_current_context().exit(Exit.FAILURE)


@command("verify", verbs=("verify",))
@click.option("--replay", is_flag=True, help="Also fold the log anew and compare every table, row for row.")
@click.option("--independent", is_flag=True, help="Also have stock SQLCipher check every page of a snapshot.")
@click.option(
    "--head", metavar="STORE:SEQ:CHAIN", help="A head noted earlier (agentmem log --head): the log must contain it."
)
def verify(session: Session, store: Store, replay: bool, independent: bool, head: str | None) -> None:
    """Check the file.

    The chain of the log, the index, the vectors and the pages always, more when asked. Problems go to stdout, one a line,
    and the exit code is 10.

    Examples:
      agentmem verify
      agentmem verify --replay --independent
    """
    out = session.out
    noted = options.head(head)
    with working(out, "verifying"):
        found = store.verify(replay=replay, independent=independent, head=noted)
    if out.json:
        out.value(found, sound=bool(found))
    elif found:
        out.text(f"sound: {number(found.events, 'event')}, head {head_text(found.head)}")
    else:
        out.text("\n".join(found.problems))
    if not found:
        click.get_current_context().exit(Exit.DAMAGED)


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
            out.text(head_text(end))
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


COMMANDS = {made.name: made for made in (init, key, stats, index, verify, log)}
