"""Every example in the help of the command line does what it says, in a store that has the records it names."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from agentmem import Store
from agentmem.adapters.cli.root import agentmem

KEY = bytes(range(32))
ENVIRONMENT = {"AGENTMEM_KEY": f"hex:{KEY.hex()}", "AGENTMEM_PROJECT": "acme", "AGENTMEM_DB": "store.db"}
DOCS = Path(__file__).parents[3] / "docs"

# Examples that are not run, and why.
NOT_RUN = {
    "agentmem key export --yes > /media/stick/agentmem.key": "no such stick",
    "agentmem key export": "at a terminal only",
    "nmap-to-jsonl scan.xml | agentmem put host --rows -": "no such program",
    "git diff --stat | agentmem add fact \"What the branch changes\" --parent 2 --body -": "a pipe",
    "export AGENTMEM_CLAIM=$(agentmem claim 12 --run worker-1 --quiet)": "a variable of the shell",
    "agentmem release --run worker-1 --claim 7f6c0a...": "a token that only a claim has",
    "agentmem release 12 --claim 7f6c0a...": "a token that only a claim has",
    "agentmem log --follow --kind note.added": "goes on for ever",
    "agentmem confirm 41 --origin user": "at a terminal only",
    "agentmem session export 90 > case.jsonl": "a redirection of the shell",
    "agentmem mcp install claude-code": "asks at a terminal",
    "agentmem serve": "takes stdin and stdout for itself",
    "agentmem serve --project acme --under 14": "takes stdin and stdout for itself",
    "agentmem serve --http --token-file ~/.config/agentmem/http.token": "serves until it is ended",
    "agentmem claims --mine --json": "a call has claims only by its token",
}  # fmt: skip
# What an example needs that others would stumble over.
BEFORE = {
    "agentmem projects rename acme --project acme-1f2e3d4c": ["projects rename former"],
    "agentmem import acme.jsonl --project copies --collisions merge": ["export acme.jsonl --project acme-old"],
    "agentmem restore work-2026-11-30.db restored.db": ["backup work-2026-11-30.db"],
    "agentmem restore work-2026-11-30.db other.db --new-key-file other.key": ["backup work-2026-11-30.db"],
    "agentmem claims": ["claim 20"],
    "agentmem mcp list --json": ["mcp install cursor --yes"],
    "agentmem vault list secrets.vault": ["vault add secrets.vault prod-stripe < stripe.key"],
    "agentmem vault list secrets.vault --json": ["vault add secrets.vault prod-stripe < stripe.key"],
    "agentmem vault remove secrets.vault prod-stripe": ["vault add secrets.vault prod-stripe < stripe.key"],
    "agentmem session verify case.audit": ["session audit 90 --export case.audit"],
    "agentmem salvage work.db salvaged.db": ["backup work.db"],
    "agentmem salvage work.db rest.db --remainder later.jsonl": ["backup work.db"],
    "agentmem undo --of-run r7 --dry-run": ["forget 480 --yes", "forget 90 --yes"],
}


def examples() -> Iterator[str]:
    def of(group: click.Group) -> Iterator[str]:
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            for line in (found.help or "").partition("Examples:")[2].strip().splitlines():
                yield line.strip()
            if isinstance(found, click.Group):
                yield from of(found)

    yield from dict.fromkeys(of(agentmem))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the examples name: records by their ids, events by their numbers, files."""
    directory = tmp_path_factory.mktemp("examples")
    with Store.open(directory / "store.db", key=KEY, project="acme", durability="normal") as store:
        _fill(store.acting(run="r7"))
        store.in_project("acme-old").notes.add("fact", "Of the old project")
        store.in_project("acme-1f2e3d4c").notes.add("fact", "Of the directory")
    (directory / "case.jsonl").write_text(
        '{"id": "a", "type": "user.message", "content": [{"type": "text", "text": "hi"}]}\n'
    )
    (directory / "stripe.key").write_text("sk_live_51H8xWq0aZ\n", "utf-8")
    (directory / "notes").mkdir()
    (directory / "notes" / "plan.md").write_text("# Plan\n\n- [ ] One\n", "utf-8")
    (directory / "notes.txt").write_text("Doing: the login form.\n", "utf-8")
    (directory / "work.key").write_text("a passphrase of words\n", "utf-8")
    (directory / "work.key").chmod(0o600)
    shutil.copytree(DOCS / "examples", directory / "docs" / "examples")
    return directory


def _fill(store: Store) -> None:
    def up_to(seq: int) -> None:
        while store.log.head().seq < seq - 1:
            store.notes.add("lesson", f"Lesson {store.log.head().seq}")

    assert store.notes.add("goal", "Check example.com").id == 2
    assert store.notes.add("step", "Look around", parent=2).id == 3
    store.entities.put("endpoint", "POST /login", attrs={"area": "api", "token": "s3cret"})
    store.entities.put("host", "web-1", attrs={"port": 443, "env": "test", "latency": 3})
    store.entities.put("host", "web-2")
    up_to(9)
    assert store.notes.add("question", "Who runs it?", parent=2).id == 9
    up_to(12)
    for number, title in ((12, "Check the API"), (13, "Check the mail"), (14, "Check the login")):
        assert store.notes.add("step", title, parent=2).id == number
    store.checklists.add(14, "TLS", "Headers", "Ports")
    up_to(20)
    assert store.notes.add("fact", "A shop runs it").id == 20
    up_to(31)
    for number in (31, 32):
        assert store.attempts.open(f"SQL injection {number}", task=12).id == number
    up_to(40)
    assert store.notes.add("fact", "TLS 1.0 on 443").id == 40
    store.entities.expect("endpoint", ["authz", "csrf"])
    store.entities.mark("endpoint", ["POST /login"], {"csrf": "fail"})
    store.links.add(14, "depends_on", 13)
    store.entities.put("port", "443", parent="host:web-1")
    store.links.add("host:web-1", "serves", "endpoint:POST /login")
    store.notes.add("step", "Check the tokens", parent=12)
    store.notes.add("decision", "By hand only", parent=2)
    store.acting(task=12).checkpoint("Doing: the login form.")
    up_to(57)
    assert store.notes.update(12, body="By hand").revision == 57
    assert store.notes.update(12, tags=["p0"]).revision == 58
    up_to(89)
    store.entities.put("customer", "A")
    session = store.sessions.start(title="Case 4711", agent="support")
    assert session.id == 90
    session.append("user.message", "Where is my order?")
    session.append("agent.tool_use", {"name": "orders", "input": {"id": 4711}})
    session.append("agent.tool_result", {"tool_use_id": 92, "content": "order 4711 was shipped on Monday"})
    session.append("agent.tool_use", {"name": "refund", "input": {"id": 4711}, "permission": "ask"})
    assert session.store.notes.add("fact", "Order 4711 was shipped").id == 95
    session.append("x.plan", "ask for the number", key="plan")
    up_to(481)


@pytest.fixture
def place(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    shutil.copytree(prepared, work)
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return work


@pytest.mark.parametrize("example", [each for each in examples() if each not in NOT_RUN])
def test_an_example_runs(example: str, place: Path) -> None:
    """What the help shows ends with code 0 and has something to say."""
    for before in BEFORE.get(example, ()):
        command, _, given = before.partition(" < ")
        _run(shlex.split(command), (place / given).read_text("utf-8") if given else None)
    for part in example.split(" && "):
        command, _, given = part.partition(" < ")
        name, *arguments = shlex.split(command)
        assert name == "agentmem"
        _run(arguments, (place / given).read_text("utf-8") if given else None)


def _run(arguments: list[str], stdin: str | None = None) -> None:
    done = CliRunner(env=ENVIRONMENT).invoke(agentmem, arguments, input=stdin)
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.output


def test_what_is_not_run_is_still_there() -> None:
    """The list of examples that are not run names no other."""
    assert set(NOT_RUN) | set(BEFORE) <= set(examples())
