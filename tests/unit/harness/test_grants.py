"""Grants: a credential for one call, which leaks into nothing that describes, copies or prints it."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import pickle
import pprint
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.errors import AgentMemError, Conflict, InvalidInput, NotFound, ToolFailed
from agentmem.harness.grants import Credential, Grants, inherited, inherited_handle
from agentmem.harness.vault import GrantRequest, MintingVault, Secret

SECRET = "sk_live_51H8xWq+/=zz"
FDS = Path("/proc/self/fd")


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def granted(value: Any = SECRET, *, seconds: int = 300, clock: Callable[[], int] | None = None) -> Credential:
    vault = MintingVault({"prod": lambda request: value})
    grants = Grants(vault, seconds=seconds) if clock is None else Grants(vault, seconds=seconds, clock=clock)
    return grants.grant("prod", tool="pay", session=1, scope={"paths": ["/v1"]})


def told(error: BaseException) -> str:
    """All that a thorough report of an error shows: every frame of it and of its causes, with their variables."""
    shown = []
    pending: list[BaseException | None] = [error]
    while pending:
        each = pending.pop()
        if each is not None:
            frames = traceback.StackSummary.extract(traceback.walk_tb(each.__traceback__), capture_locals=True)
            # This test's own frames know the secret, as the program does that has it.
            frames = traceback.StackSummary.from_list([frame for frame in frames if frame.filename != __file__])
            shown += [repr(each), str(each), repr(vars(each)), repr(each.args), *frames.format()]
            pending += [each.__cause__, each.__context__]
    return "\n".join(shown)


def test_it_is_revealed_once() -> None:
    """The second time is a conflict, whatever came of the first."""
    credential = granted()
    assert (credential.id, credential.scope) == ("prod", {"paths": ["/v1"]})
    assert credential.reveal() == SECRET
    with pytest.raises(Conflict, match="used already"):
        credential.reveal()


def test_of_many_threads_one_gets_it() -> None:
    """Also where all ask at the same moment."""
    credential = granted()
    barrier, found = threading.Barrier(8), []

    def ask() -> None:
        barrier.wait()
        with contextlib.suppress(Conflict):
            found.append(credential.reveal())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [SECRET]


def test_it_ends() -> None:
    """After its seconds it reveals nothing, and had it not been used before."""
    clock = Time()
    credential = granted(seconds=5, clock=clock)
    assert credential.expires_at == clock.now + 5_000_000
    clock.now += 5_000_000
    with pytest.raises(Conflict, match="has ended"):
        credential.reveal()


def test_what_was_minted_for_less_ends_earlier() -> None:
    """The end of the secret is the end of the grant; one that has ended is not granted at all."""
    clock = Time()
    assert granted(Secret(SECRET, clock.now + 7), clock=clock).expires_at == clock.now + 7
    with pytest.raises(Conflict, match="ended already"):
        granted(Secret(SECRET, clock.now), clock=clock)


def test_the_mint_is_told_what_for() -> None:
    """The id, the tool, the session, the scope and the seconds."""
    asked: list[GrantRequest] = []

    def mint(request: GrantRequest) -> str:
        asked.append(request)
        return SECRET

    Grants(MintingVault({"prod": mint}), seconds=60).grant("prod", tool="pay", session=7, scope={"a": 1})
    assert asked == [GrantRequest("prod", "pay", 7, {"a": 1}, 60)]


def test_every_value_is_masked_from_then_on() -> None:
    """A static one for good, a minted one until an hour after its end."""
    clock = Time()
    values = iter([Secret("first-token", clock.now + 60_000_000), Secret("second-token"), Secret("third-token")])
    grants = Grants(MintingVault({"prod": lambda request: next(values)}), clock=clock)
    for _ in range(2):
        grants.grant("prod", tool="t", session=1)
    assert grants.masker.mask("first-token second-token") == "[masked: prod] [masked: prod]"
    clock.now += 7200 * 1_000_000
    grants.grant("prod", tool="t", session=1)
    assert grants.masker.mask("first-token second-token third-token") == "first-token [masked: prod] [masked: prod]"


def test_what_cannot_be_granted_is_said_without_it() -> None:
    """An unknown id, a value too short to mask, a vault or a mint that gives something else, one that fails."""

    class Odd:
        def secret(self, request: GrantRequest) -> Any:
            return SECRET

    def failing(request: GrantRequest) -> str:
        raise OSError("the issuer is away")

    with pytest.raises(NotFound, match="Did you mean prod"):
        Grants(MintingVault({"prod": failing})).grant("prd", tool="t", session=1)
    with pytest.raises(OSError, match="away"):
        Grants(MintingVault({"prod": failing})).grant("prod", tool="t", session=1)
    for vault in (Odd(), MintingVault({"prod": lambda request: SECRET.encode()})):  # type: ignore[arg-type,return-value]
        with pytest.raises(InvalidInput) as caught:
            Grants(vault).grant("prod", tool="t", session=1)
        assert SECRET not in told(caught.value)
    for value in ("zq7", " z q 7 ", "zq7\0" + SECRET, SECRET * 10_000):
        with pytest.raises(InvalidInput) as caught:
            granted(value)
        assert "zq7" not in told(caught.value)
        assert SECRET not in told(caught.value)


# Ten ways to leak, and some more


def by_traceback(thing: Any) -> str:
    def tool(credential: Any) -> None:
        raise RuntimeError("it failed")

    try:
        tool(thing)
    except RuntimeError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    raise AssertionError


def by_logging(thing: Any) -> str:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "got %s and %r", (thing, thing), None)
    return logging.Formatter().format(record) + repr(vars(record))


def by_error(thing: Any) -> str:
    error = ValueError("bad", thing)
    return f"{error} {error!r} {error.args}"


def by_parts(thing: Any) -> str:
    """As serialisers do it that go through the attributes of an object, but ask no property."""
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return repr([getattr(thing, name) for name in slots])


WAYS: dict[str, Callable[[Any], Any]] = {
    "repr": repr,
    "str": str,
    "f-string": lambda thing: f"{thing} {thing!r} {thing!s} {thing!a} {thing:>40}",
    "percent": lambda thing: "%s %r %a" % (thing, thing, thing),  # noqa: UP031
    "format": "{0} {0!r} {0:s}".format,
    "in a list": lambda thing: repr([thing, {"a": thing}, (thing,)]),
    "pprint": pprint.pformat,
    "json": lambda thing: json.dumps({"a": thing}, default=str),
    "json by vars": lambda thing: json.dumps(thing, default=vars),
    "pickle": pickle.dumps,
    "old pickle": lambda thing: pickle.dumps(thing, 0),
    "copy": copy.copy,
    "deepcopy": lambda thing: copy.deepcopy({"a": [thing]}),
    "getstate": lambda thing: thing.__getstate__(),
    "vars": vars,
    "dict": lambda thing: thing.__dict__,
    "dir": lambda thing: repr(dir(thing)),
    "asdict": attrs.asdict,
    "iteration": list,
    "bytes": bytes,
    "slots": by_parts,
    "traceback": by_traceback,
    "logging": by_logging,
    "arguments of an error": by_error,
    "hash and equality": lambda thing: f"{hash(thing)} {thing == SECRET} {thing != SECRET}",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["Credential", "Secret", "Grants", "Masker", "MintingVault"])
def test_no_way_shows_the_value(kind: str, way: str) -> None:
    """Whatever describes, copies or stores a credential, a secret, or what holds them: not the value, or an error without it."""
    grants = Grants(MintingVault({"prod": lambda request: Secret(SECRET)}))
    things = {
        "Credential": grants.grant("prod", tool="t", session=1), "Secret": Secret(SECRET), "Grants": grants,
        "Masker": grants.masker, "MintingVault": MintingVault({"prod": lambda request: SECRET}),
    }  # fmt: skip
    try:
        shown = repr(WAYS[way](things[kind]))
    except Exception as error:  # noqa: BLE001  # which one it is differs from way to way
        shown = told(error)
    assert SECRET not in shown
    assert "sk_live" not in shown
    assert repr(SECRET.encode()) not in shown


def test_a_copy_is_refused() -> None:
    """A credential that was copied would be good for two uses."""
    for thing in (granted(), Secret(SECRET)):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                way(thing)


def test_an_error_while_a_child_runs_shows_nothing() -> None:
    """The frame of the block that hands it down lives on, and has no variable with the value; nor has an ended grant."""
    credential = granted()
    with pytest.raises(RuntimeError) as caught, inherited(credential):
        raise RuntimeError("the child failed")
    assert SECRET not in told(caught.value)
    with pytest.raises(Conflict) as used, inherited(credential):
        pass
    assert SECRET not in told(used.value)


@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=8, max_size=50))
def test_no_value_shows(value: str) -> None:
    """Whatever it is made of."""
    if len(value.encode()) < 8 or not value.strip() or len("".join(value.split())) < 8:
        return
    credential = granted(value)
    assert f"{credential} {credential!r}" == "<Credential prod> <Credential prod>"
    assert credential.reveal() == value


# To a child process

posix = pytest.mark.skipif(sys.platform == "win32", reason="descriptors are inherited on POSIX systems")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@contextlib.contextmanager
def nothing_left_open() -> Iterator[None]:
    before = set(os.listdir(FDS)) if FDS.exists() else set()
    threads = threading.active_count()
    yield
    assert (set(os.listdir(FDS)) if FDS.exists() else set()) == before
    assert threading.active_count() == threads


def run(credential: Credential, *argv: str) -> str:
    with nothing_left_open(), inherited(credential) as pipe:
        environment = {"PATH": os.environ["PATH"], **pipe.environment}
        assert set(pipe.environment) == {"AGENTMEM_CREDENTIAL_FD"}
        assert pipe.environment["AGENTMEM_CREDENTIAL_FD"] == str(pipe.fd)
        done = subprocess.run(argv, pass_fds=(pipe.fd,), env=environment, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.stdout


@posix
@pytest.mark.parametrize("size", [8, 4096, 65_536])
def test_a_child_reads_it_whole(size: int) -> None:
    """Of any length, also longer than a pipe has room for: nobody waits for the other."""
    value = ("sk_live_" + "0123456789abcdef" * (size // 16))[:size]
    script = (
        "import os; fd = int(os.environ['AGENTMEM_CREDENTIAL_FD']); f = open(fd); v = f.read(); "
        "print(len(v), v[:8], v == ('sk_live_' + '0123456789abcdef' * 5000)[:len(v)])"
    )
    assert run(granted(value), sys.executable, "-I", "-c", script) == f"{size} sk_live_ True\n"


@posix
@pytest.mark.parametrize(
    "line",
    [
        'TOKEN=$(cat /dev/fd/"$AGENTMEM_CREDENTIAL_FD"); echo "$TOKEN"',
        'read -r TOKEN < /dev/fd/"$AGENTMEM_CREDENTIAL_FD" || true; echo "$TOKEN"',
    ],
)
def test_a_shell_reads_it(line: str) -> None:
    """With any shell of POSIX, whatever the number of the descriptor; `read` alone would fail, as no line end follows."""
    assert run(granted(), "sh", "-euc", line) == f"{SECRET}\n"


@linux
def test_after_the_child_read_it_the_pipe_is_empty() -> None:
    """Who opens the child's descriptor through /proc later finds nothing; nor do its environment and arguments have it."""
    script = (
        "import os, sys; fd = int(os.environ['AGENTMEM_CREDENTIAL_FD']); value = os.read(fd, 9999); "
        "print(len(value), flush=True); sys.stdin.read()"
    )
    with nothing_left_open(), inherited(granted()) as pipe, subprocess.Popen(
        [sys.executable, "-I", "-c", script], pass_fds=(pipe.fd,), env=dict(pipe.environment),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == f"{len(SECRET)}\n".encode()
        place = Path(f"/proc/{child.pid}")
        for name in ("environ", "cmdline", f"fd/{pipe.fd}"):
            assert SECRET.encode() not in (place / name).read_bytes()
        assert (place / f"fd/{pipe.fd}").read_bytes() == b""


@posix
def test_a_child_that_does_not_read_keeps_nobody_waiting() -> None:
    """Nor one that another process inherited the pipe from and that lives on; and all descriptors are closed."""
    long = "sk_live_" * 8192
    for value in (SECRET, long):
        assert run(granted(value), "true") == ""
    with nothing_left_open(), contextlib.ExitStack() as later, inherited(granted(long)) as pipe:
        child = later.enter_context(subprocess.Popen(["sleep", "60"], pass_fds=(pipe.fd,)))
        later.callback(child.kill)


@posix
def test_it_is_handed_down_once() -> None:
    """A grant is good for one child, and for none once it was revealed; then no descriptor is left open."""
    credential = granted()
    with inherited(credential):
        pass
    for _ in range(2):
        with nothing_left_open(), pytest.raises(Conflict), inherited(credential):
            pass


@posix
def test_without_descriptors_it_is_a_typed_error() -> None:
    """The error names no value."""
    import resource

    credential = granted()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (max(int(name) for name in os.listdir(FDS)) if FDS.exists() else 3, hard)
    )
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(ToolFailed) as caught, inherited(credential):
            pass
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(caught.value, AgentMemError)
    assert SECRET not in told(caught.value)


@posix
def test_handles_are_for_windows() -> None:
    """Elsewhere the neighbour says so, and the grant is not used up."""
    credential = granted()
    with pytest.raises(ToolFailed, match="Windows"):
        inherited_handle(credential)
    assert credential.reveal() == SECRET
