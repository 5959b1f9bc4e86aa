"""Commands on sessions: begin, append, read, fork, audit; approvals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from agentmem import limits
from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import block, compact, inline, when, written
from agentmem.errors import InvalidInput

if TYPE_CHECKING:
    from agentmem.session_types import SessionEvent, SessionInfo, Waiting
    from agentmem.store import Store

# Of an event among others; `session read` gives all of it.
_SHOWN_CHARS: Final = 2000


@options.group("session")
def session_group() -> None:
    """Conversations: durable, in order, each verifiable by itself.

    Examples:
      agentmem session start --title "Case 4711"
      agentmem session append 90 user.message "Where is my order?"
      agentmem session window 90
    """


@command("start", store="create", verbs=("sessions.start",), group=session_group)
@click.option("--title", metavar="LINE", help="One line for people.")
@click.option("--agent", metavar="NAME", help="Who converses.")
@click.option("--about", metavar="REF", help="The entity it is about; what concerns others is out of its sight.")
@click.option("--metadata", multiple=True, metavar="NAME=TEXT", help="A label of your own.")
@click.option("--parent", metavar="ID", help="The session that it works for.")
@options.request_id
def start(session: Session, store: Store, metadata: tuple[str, ...], **given: Any) -> None:
    """Begin a session; its id goes to stdout. With --task it works on that task.

    Examples:
      agentmem session start --title "Case 4711" --about customer:A --task 12
    """
    made = store.sessions.start(task=session.task, metadata=options.pairs(metadata, "--metadata") or None, **given)
    if session.out.json:
        session.out.value(made.info, repeated=made.repeated)
    else:
        session.out.text(str(made.id))


@command("list", verbs=("sessions.list",), group=session_group)
@click.option("--of-task", "task", metavar="REF", help="That work on this task.")
@click.option("--about", metavar="REF", help="That are about this entity.")
@click.option("--parent", metavar="ID", help="That work for this session.")
@click.option("--status", type=click.Choice(("idle", "running", "rescheduling", "terminated")), help="In this status.")
@click.option("--archived", is_flag=True, help="Those that were archived instead.")
@click.option("--newest-first", is_flag=True, help="In reverse.")
@options.after("id")
@options.limit()
def listed(session: Session, store: Store, limit: int, **given: Any) -> None:
    """Sessions of the project.

    Examples:
      agentmem session list --status idle --newest-first
    """
    found, out = store.sessions.list(limit=limit, **given), session.out
    if out.json:
        out.values(found)
    else:
        rows = (
            (str(one.id), one.status, f"{when(one.updated_at)} UTC", inline(one.title, one.origin)) for one in found
        )
        out.table(("id", "status", "last", "title"), rows)
    if len(found) == limit:
        out.say(f"perhaps more: --after {found[-1].id}")


@command("ready", verbs=("sessions.ready",), group=session_group)
@options.limit()
def ready(session: Session, store: Store, limit: int) -> None:
    """The sessions that can go on now and that nobody runs, and why.

    Examples:
      agentmem session ready
    """
    found, out = store.sessions.ready(limit=limit), session.out
    if out.json:
        out.values(found)
    else:
        rows = ((str(one.session), one.why, f"{when(one.since)} UTC", inline(one.title)) for one in found)
        out.table(("id", "why", "since", "title"), rows)


@command("append", store="write", group=session_group)
@click.argument("id")
@click.argument("type")
@click.argument("text", default="")
@click.option("--body", metavar="JSON", help="The body, instead of a text.")
@click.option("--state-key", "key", metavar="KEY", help="Of an x. event: what it is the state of.")
@options.request_id
def append(
    session: Session,
    store: Store,
    id: str,
    type: str,
    text: str,
    body: str | None,
    key: str | None,
    request_id: str | None,
) -> None:
    """Append an event of TYPE to session ID; - as TEXT reads stdin.

    Examples:
      agentmem session append 90 user.message "Where is my order?"
      agentmem session append 90 x.plan "ask for the number" --state-key plan
      agentmem session append 90 agent.tool_use --body '{"name": "orders", "input": {"id": 4711}}'
    """
    if body is not None and text:
        raise click.UsageError("TEXT and --body exclude each other.")
    given: Any = session.text(text) if body is None else _parsed(session.text(body))
    written(session.out, store.sessions.get(id).append(type, given or None, key=key, request_id=request_id))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("--body is no JSON", why=str(error)) from None


@command("show", verbs=("sessions.get",), group=session_group)
@click.argument("id")
@click.option("--types", metavar="TYPE,…", default="", help="Only events of these types.")
@click.option("--after", type=int, default=0, metavar="ID", help="Only later ones.")
@click.option("--until", type=int, metavar="ID", help="Only up to this one.")
@click.option("--newest-first", is_flag=True, help="In reverse.")
@options.limit()
def show(
    session: Session, store: Store, id: str, types: str, after: int, until: int | None, newest_first: bool, limit: int
) -> None:
    """What was said in session ID, in order.

    Examples:
      agentmem session show 90
      agentmem session show 90 --types user.message,agent.message --newest-first --limit 5
    """
    one, out = store.sessions.get(id), session.out
    wanted = [each.strip() for each in types.split(",") if each.strip()]
    found = one.events(after=after, until=until, types=wanted, newest_first=newest_first, limit=limit)
    if out.json:
        out.values(found)
    else:
        if not out.quiet and not after:
            out.text(_headline(one.info))
        for event in found:
            out.text(_event(event, chars=_SHOWN_CHARS))
    if len(found) == limit:
        out.say(f"perhaps more: {'--until' if newest_first else '--after'} {found[-1].id - newest_first}")


def _headline(info: SessionInfo) -> str:
    reason = "" if info.stop_reason is None else f" ({info.stop_reason['type']})"
    agent = f", agent {inline(str(info.agent['name']))}" if info.agent else ""
    return f"session {info.id} {inline(info.title, info.origin)}".rstrip() + f": {info.status}{reason}{agent}"


def _event(event: SessionEvent, *, chars: int | None = None) -> str:
    about = f" of #{event.target}" if event.target is not None else ""
    key = f" {inline(event.key)}" if event.key else ""
    head = f"#{event.id} {when(event.at)} UTC {event.type}{about}{key}"
    if event.body is None:
        return f"{head}\n(purged)"
    shown = event.text if event.text else compact(event.body) if event.body else ""
    if not shown:
        return head
    if chars is None or len(shown) <= chars:
        return f"{head}\n{block(shown, event.origin)}"
    rest = f"… {len(shown)} characters: agentmem session read {event.session} {event.id}"
    return f"{head}\n{block(shown[:chars], event.origin)}\n{rest}"


@command("state", group=session_group)
@click.argument("id")
def state(session: Session, store: Store, id: str) -> None:
    """The state of session ID: the newest of its own events of each key.

    Examples:
      agentmem session state 90
    """
    found, out = store.sessions.get(id).state(), session.out
    if out.json:
        out.values(found.values())
    else:
        out.table(
            ("key", "event", "value"), ((key, str(one.id), inline(one.text, one.origin)) for key, one in found.items())
        )


@command("read", group=session_group)
@click.argument("id")
@click.argument("event", type=int)
@click.option("--offset", type=int, default=0, show_default=True, help="Where to begin, in characters.")
@options.limit(limits.PIECE_CHARS)
def read(session: Session, store: Store, id: str, event: int, offset: int, limit: int) -> None:
    """The text of an EVENT of session ID, a piece at a time.

    Examples:
      agentmem session read 90 93 --offset 20
    """
    piece = store.sessions.get(id).read(event, offset, limit=limit)
    if session.out.json:
        session.out.value(piece)
        return
    session.out.text(piece.text)
    if piece.next is not None:
        session.out.say(f"more: --offset {piece.next} of {piece.total}")


@command("window", group=session_group)
@click.argument("id")
@click.option("--budget", type=int, default=limits.WINDOW_DEFAULT, show_default=True, help="Tokens of the answer.")
@click.option("--pinned", multiple=True, type=int, metavar="EVENT", help="An event that is to be in it.")
def window(session: Session, store: Store, id: str, budget: int, pinned: tuple[int, ...]) -> None:
    """What the next call of a model in session ID needs, within a budget of tokens.

    Examples:
      agentmem session window 90 --budget 8000
    """
    session.out.answer(store.sessions.get(id).window(budget=budget, pinned=pinned))


@command("fork", store="write", group=session_group)
@click.argument("id")
@click.option(
    "--at-event", "at", type=int, metavar="EVENT", help="The last event that it has; the last of all if none is given."
)
@click.option("--title", metavar="LINE", help="Another title.")
@options.request_id
def fork(session: Session, store: Store, id: str, at: int | None, title: str | None, request_id: str | None) -> None:
    """Begin another session with the events of session ID up to one of them; its id goes to stdout.

    Examples:
      agentmem session fork 90 --at-event 93
    """
    made, out = store.sessions.get(id).fork(at, title=title, request_id=request_id), session.out
    if out.json:
        out.value(made.info, outside=made.outside)
        return
    out.text(str(made.id))
    for event, tool in made.outside:
        out.say(f"not undone: #{event} {inline(tool)} ran after that place")


@command("change", store="write", group=session_group)
@click.argument("id")
@click.option("--title", metavar="LINE", help="Another title.")
@click.option("--agent", metavar="NAME", help="Another agent.")
@click.option("--of-task", "task", metavar="REF", help="Another task.")
@options.expected_revision
@options.request_id
def change(session: Session, store: Store, id: str, **given: Any) -> None:
    """Change what is known of session ID.

    Examples:
      agentmem session change 90 --title "Case 4711, closed"
    """
    kept = {name: value for name, value in given.items() if value is not None}
    written(session.out, store.sessions.get(id).change(**kept))


@command("archive", store="write", group=session_group)
@click.argument("id")
@click.option("--undo", is_flag=True, help="Take it out of the archive again.")
def archive(session: Session, store: Store, id: str, undo: bool) -> None:
    """Put session ID away: lists leave it out, nothing can be appended.

    Examples:
      agentmem session archive 90
      agentmem session archive 90 --undo
    """
    written(session.out, store.sessions.get(id).change(archived=not undo))


@command("source", verbs=("sessions.source",), group=session_group)
@click.argument("ref")
def source(session: Session, store: Store, ref: str) -> None:
    """The event that a note written in a session rests on.

    Examples:
      agentmem session source 95
    """
    found, out = store.sessions.source(ref), session.out
    if out.json:
        out.values([] if found is None else [found])
    else:
        out.text("it was written in no session, or before any tool had answered" if found is None else _event(found))


@command("audit", group=session_group)
@click.argument("id")
@click.option("--export", "target", metavar="FILE", help="Write the file that verifies alone instead; - is stdout.")
def audit(session: Session, store: Store, id: str, target: str | None) -> None:
    """Who did what when in session ID, with the proof of its chain.

    Examples:
      agentmem session audit 90
      agentmem session audit 90 --export case.audit
    """
    found, out = store.sessions.get(id).audit(), session.out
    if target is None:
        out.answer(found)
        return
    if target == "-":
        # As JSON, in which a terminal needs nothing escaped: what it would escape is what the chain is made of.
        out.values(map(json.loads, found.export()))
        return
    with Path(target).open("x", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in found.export())
    out.say(f"{found.events} events, chain {found.chain}")


@command("export", group=session_group)
@click.argument("id")
@click.option("--strict", is_flag=True, help="In the public form of managed agents, for clients of others.")
def export(session: Session, store: Store, id: str, strict: bool) -> None:
    """The events of session ID as JSON Lines on stdout: lossless, for agentmem session import, or for others.

    Examples:
      agentmem session export 90 > case.jsonl
      agentmem session export 90 --strict
    """
    session.out.values(store.sessions.get(id).export(strict=strict))


@command("import", store="create", verbs=("sessions.import_",), group=session_group)
@click.argument("file")
@click.option("--title", metavar="LINE", help="Another title than the file says.")
@click.option("--agent", metavar="NAME", help="Another agent.")
@click.option("--about", metavar="REF", help="The entity it is about.")
@click.option("--foreign", is_flag=True, help="It is a file of others: its texts are shown quoted.")
def import_(session: Session, store: Store, file: str, foreign: bool, **given: Any) -> None:
    """Begin a session with the events of FILE, of either form; - reads stdin. Its id goes to stdout.

    Examples:
      agentmem session import case.jsonl
    """
    text = session.stdin() if file == "-" else _text_of(file)
    # Not splitlines: JSON has characters in its texts that end a line elsewhere.
    made = store.sessions.import_(text.split("\n"), task=session.task, origin="import" if foreign else None, **given)
    if session.out.json:
        session.out.value(made.info)
    else:
        session.out.text(str(made.id))


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8", why=f"At byte {error.start + 1}") from None


@command("verify", store=None, group=session_group)
@click.argument("file")
@click.option("--chain", metavar="HEX", help="The end of the chain, noted elsewhere.")
def verify(session: Session, file: str, chain: str | None) -> None:
    """Verify the FILE of an audit by itself, without the store.

    Examples:
      agentmem session verify case.audit
    """
    from agentmem.errors import Corrupt
    from agentmem.log import alone

    try:
        with Path(file).open(encoding="utf-8") as lines:
            proof = alone.verify(lines)
    except UnicodeDecodeError:
        raise InvalidInput(f"{file} is no audit of a session", why="It is not UTF-8") from None
    if proof.sound and chain is not None and chain != proof.chain:
        raise Corrupt("The chain ends elsewhere than was noted", why=f"It ends with {proof.chain}")
    if not proof.sound:
        raise Corrupt(f"The audit of session {proof.session} is broken", why=proof.problem)
    if session.out.json:
        session.out.value(proof)
    else:
        purged = f", {proof.purged} of them purged" if proof.purged else ""
        session.out.text(
            f"session {proof.session} of store {proof.store}: {proof.events} events{purged}, sound\n{proof.chain}"
        )


@command("approvals", verbs=("sessions.waiting",))
def approvals(session: Session, store: Store) -> None:
    """The calls of tools that wait for a person, the oldest first.

    Examples:
      agentmem approvals
    """
    found, out = store.sessions.waiting(), session.out
    if out.json:
        out.values(found)
    else:
        for one in found:
            out.text(_request(one))
        if not found:
            out.say(f"nothing waits in project {inline(store.project)}")


def _request(one: Waiting) -> str:
    until = f", until {when(one.expires_at)} UTC" if one.expires_at else ""
    title = f" {inline(one.title)}" if one.title else ""
    return (
        f"#{one.event} {when(one.asked_at)} UTC session {one.session}{title}{until}\n"
        f"  {inline(one.tool)} {inline(compact(one.input))}\n  hash {one.input_hash}"
    )


_hash = click.option("--hash", "input_hash", metavar="HEX", help="The hash that was looked at; another one is refused.")
_by = click.option("--by", metavar="LABEL", help="Who says so; the author if none is given.")


@command("approve", store="write", verbs=("sessions.confirm",))
@click.argument("event", type=int)
@_by
@_hash
@click.option("--seconds", type=int, help="It lapses after so long if the call has not begun.")
@options.request_id
def approve(session: Session, store: Store, event: int, **given: Any) -> None:
    """Allow the call EVENT. It runs when its session is woken next.

    Examples:
      agentmem approve 94 --by alice
    """
    written(session.out, store.sessions.confirm(event, "allow", **given))


@command("deny", store="write")
@click.argument("event", type=int)
@click.option("--message", metavar="TEXT", help="What the agent is told.")
@_by
@_hash
@options.request_id
def deny(session: Session, store: Store, event: int, message: str | None, **given: Any) -> None:
    """Deny the call EVENT. It is never run; the agent is told.

    Examples:
      agentmem deny 94 --message "Ask the customer first"
    """
    told = None if message is None else session.text(message)
    written(session.out, store.sessions.confirm(event, "deny", message=told, **given))


COMMANDS = {"session": session_group, **{made.name: made for made in (approvals, approve, deny)}}
