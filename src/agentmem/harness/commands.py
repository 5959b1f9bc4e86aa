"""Tools that are commands: a program in a child process, without a shell, within limits."""

from __future__ import annotations

import codecs
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from attrs import evolve, frozen

from agentmem.errors import InvalidInput, ToolFailed, shown
from agentmem.harness.processes import Ended, Limits, run
from agentmem.harness.schema import well_formed
from agentmem.harness.templates import Template
from agentmem.harness.toolset import Call, Permission, Tool
from agentmem.records.validate import whole
from agentmem.types import Json

__all__ = ["command"]

_PREFIX: Final = "AGENTMEM_"
_OURS: Final = ("HOME", "TMPDIR")
_ERROR_BYTES: Final = 8192
_SIZE_MAX: Final = 2**62
_GIB: Final = 1024**3


def command(
    name: str,
    argv: Sequence[str | Sequence[str]],
    *,
    description: str,
    schema: Mapping[str, Any] | None = None,
    stdin: str | None = None,
    options_allowed: bool | Collection[str] = False,
    env: Mapping[str, str] | Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    provision: Callable[[], str | os.PathLike[str]] | None = None,
    memory_bytes: int | None = 4 * _GIB,
    cpu_seconds: int | None = None,
    file_bytes: int | None = _GIB,
    output_bytes: int = 200_000,
    idempotent: bool = False,
    permission: Permission = "allow",
    credential: str | None = None,
    scope: Mapping[str, Json] | None = None,
    seconds: float = 60.0,
    parallel: bool = True,
    expires: int | None = None,
    output_chars: int = 200_000,
) -> Tool:
    """A tool that runs a program. Its output is the result; how it failed, with the end of its standard error, is too.

    An argument may hold `{field}`: what the model gave takes its place, as part of this one argument whatever it holds.
    `{{field}}` stands for itself. A field that is not required and has no default stands in a list of arguments within
    `argv`, which is left out without it: `["git", "log", ["-n", "{count}"]]`. No shell is involved, and a placeholder in
    a script for one is refused: give the script `"$1"` and the field as an argument.

    A value that begins with `-` is refused where it would begin an argument, since it could be an option; put `--` or
    `--name={field}` into the template, and name fields that may be options in `options_allowed`.

    The program gets `PATH`, `HOME` and `TMPDIR` (of a directory that goes with the call), `LANG` and what `env` adds;
    never a variable of agentmem's. A credential comes through a pipe whose number is in `AGENTMEM_CREDENTIAL_FD`. At the
    end of the call its whole process group ends. It is no sandbox: the program may do what its user may.

    Args:
        name: The tool's name.
        argv: The program and its arguments. The program itself holds no placeholder.
        description: What the model is told.
        schema: The schema of the input; by default each placeholder is a text.
        stdin: What the program reads: `"json"` for the input as JSON, `"{field}"` for the text of one, None for nothing.
        options_allowed: The fields whose values may begin with `-`, or True for all.
        env: More variables: with their values, or the names of those it gets from this process.
        cwd: The directory it runs in; by default a fresh one, which goes with the call.
        provision: Makes that directory instead, once, when the tool is first called.
        memory_bytes: Address space of each process, None for no limit; runtimes that reserve much need more.
        cpu_seconds: Processor time of each process, None for no limit but `seconds`.
        file_bytes: Size of each file it writes, None for no limit.
        output_bytes: Of its output that are kept.
        idempotent: Whether twice with the same input is as good as once.
        permission: `ask` waits for a person's approval.
        credential: The id of the credential it is granted.
        scope: What the grant is for.
        seconds: The time a call has; then the group gets SIGTERM, and after 2 seconds SIGKILL.
        parallel: Whether it may run beside others.
        expires: The seconds that a request for approval waits, None for ever.
        output_chars: The characters of its result that are kept.

    Raises:
        InvalidInput: A placeholder that the schema does not know, or one where it does not belong; a system without POSIX.
    """
    if sys.platform == "win32":
        raise InvalidInput("Commands are tools on POSIX systems only", next="Make a tool of a function that runs it")
    template = Template.of(name, argv, stdin)
    described = template.schema() if schema is None else well_formed(name, schema)
    ran = _Command(
        template,
        template.defaults(described),
        _allowed(template, options_allowed),
        _named(env),
        _Place(cwd, provision),
        Limits(
            seconds,
            whole(output_bytes, "output_bytes", 1, _SIZE_MAX),
            _ERROR_BYTES,
            _limit(memory_bytes, "memory_bytes"),
            _limit(cpu_seconds, "cpu_seconds"),
            _limit(file_bytes, "file_bytes"),
        ),
    )
    return Tool(
        name=name,
        description=description,
        schema=described,
        run=ran,
        idempotent=idempotent,
        permission=permission,
        credential=credential,
        scope=scope or {},
        seconds=seconds,
        parallel=parallel,
        expires=expires,
        output_chars=output_chars,
    )


def _limit(value: int | None, name: str) -> int | None:
    return None if value is None else whole(value, name, 1, _SIZE_MAX)


def _allowed(template: Template, options: bool | Collection[str]) -> frozenset[str]:
    if isinstance(options, bool):
        return frozenset(template.fields) if options else frozenset()
    return frozenset(options)


def _named(env: Mapping[str, str] | Sequence[str]) -> Callable[[], dict[str, str]]:
    """What gives the extra variables; names alone are looked up at each call."""
    names = list(env)
    if isinstance(env, str) or not all(isinstance(each, str) and each and "=" not in each for each in names):
        raise InvalidInput(f"env is {shown(env)}", why="It has names of variables, with or without their values")
    for each in names:
        if each.upper().startswith(_PREFIX):
            raise InvalidInput(f"env has {each}", why="No variable of agentmem's goes to a child process")
        if each in _OURS:
            raise InvalidInput(f"env has {each}", why="The harness gives it: a directory that goes with the call")
    if isinstance(env, Mapping):
        given = dict(env)
        if not all(isinstance(each, str) and "\0" not in each for each in given.values()):
            raise InvalidInput("env has a value that is no text", why="Each is text without NUL")
        return lambda: given
    return lambda: {each: os.environ[each] for each in names if each in os.environ}


class _Place:
    """Where a command runs: a given directory, one that is made when first needed, or a fresh one for each call."""

    def __init__(
        self, cwd: str | os.PathLike[str] | None, provision: Callable[[], str | os.PathLike[str]] | None
    ) -> None:
        if cwd is not None and provision is not None:
            raise InvalidInput("A command has both cwd and provision", next="Give one of them")
        if provision is not None and not callable(provision):
            raise InvalidInput(f"provision is {shown(provision)}", why="It is a function that gives a directory")
        self._given = None if cwd is None else os.fspath(cwd)
        self._provision = provision
        self._lock = threading.Lock()

    def directory(self) -> str | None:
        """The directory, None for a fresh one. What provisioning raises goes on, and the next call tries again."""
        with self._lock:
            if self._given is None and self._provision is not None:
                self._given = os.fspath(self._provision())
        if self._given is not None and not os.path.isdir(self._given):
            raise ToolFailed(
                f"The directory of a command is not there: {shown(self._given)}", next="Make it, or give another cwd"
            )
        return self._given


@frozen(eq=False)
class _Command:
    """What runs the tool."""

    template: Template
    defaults: Mapping[str, Any]
    options: frozenset[str]
    extra: Callable[[], dict[str, str]]
    place: _Place
    limits: Limits

    def __call__(self, call: Call) -> str:
        argv = self.template.filled(call.input, self.defaults, self.options)
        stdin = self.template.read(call.input, self.defaults)
        given = self.place.directory()
        with _temporary() as (work, home), _granted(call) as (descriptors, told):
            where = given or work
            env = _environment(home) | self.extra() | told
            argv[0] = _program(argv[0], where, env["PATH"])
            ended = run(
                argv,
                cwd=where,
                env=env,
                limits=evolve(self.limits, seconds=call.seconds),
                cancelled=call.cancelled,
                stdin=stdin,
                pass_fds=descriptors,
                mark=f"TMPDIR={home}",
            )
        return _said(ended)


@contextmanager
def _temporary() -> Iterator[tuple[str, str]]:
    """Two fresh directories, to work in and as a home; both go at the end, whatever was left in them."""
    with tempfile.TemporaryDirectory(prefix="agentmem-tool-", ignore_cleanup_errors=True) as base:
        work, home = os.path.join(base, "work"), os.path.join(base, "home")
        for each in (work, home):
            os.mkdir(each, 0o700)
        yield work, home


@contextmanager
def _granted(call: Call) -> Iterator[tuple[tuple[int, ...], dict[str, str]]]:
    """The descriptor by which the program gets the credential, and the variable that has its number."""
    if call.credential is None:
        yield (), {}
        return
    from agentmem.harness.grants import inherited

    with inherited(call.credential) as pipe:
        yield (pipe.fd,), dict(pipe.environment)


def _environment(home: str) -> dict[str, str]:
    # An entry that is no absolute path would be looked for in the directory of the call.
    path = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(each)]
    return {"PATH": os.pathsep.join(path), "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}


def _program(name: str, cwd: str, path: str) -> str:
    found = shutil.which(os.path.join(cwd, name) if os.sep in name else name, path=path)
    if found is None:
        raise ToolFailed(f"There is no program {shown(name)}", next="Install it, or give its whole path")
    return found


def _said(ended: Ended) -> str:
    """The result of a command. What was cut is cut at the end of the text, where what masks secrets looks for parts of one."""
    cut = ended.out_bytes - len(ended.out)
    out = _text(ended.out, ended.out_bytes, cut=cut > 0)
    how = _how(ended)
    lines = [how] if how else []
    if (how or not out.strip()) and ended.err_bytes:
        lines += ["standard error" + _part("last", ended.err, ended.err_bytes), _end(ended.err, ended.err_bytes)]
    if cut:
        lines.append("standard output" + _part("first", ended.out, ended.out_bytes))
    elif lines and out:
        lines.append("standard output:")
    return "\n".join([*lines, out]) if lines and out else out or "\n".join(lines)


def _how(ended: Ended) -> str:
    if ended.stopped:
        return f"stopped: {ended.stopped}"
    if ended.code < 0:
        try:
            name = signal.Signals(-ended.code).name
        except ValueError:
            name = "unknown"
        return f"ended by signal {-ended.code} ({name})"
    return f"exit code {ended.code}" if ended.code else ""


def _part(which: str, kept: bytes, total: int) -> str:
    return f", {which} {len(kept)} of {total} bytes:" if total > len(kept) else ":"


def _text(data: bytes, total: int, *, cut: bool) -> str:
    if b"\0" in data:
        return f"{total} bytes that are no text"
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data, not cut)


def _end(data: bytes, total: int) -> str:
    """The end of standard error, from the begin of a line: half a line could begin with half a secret."""
    if len(data) < total:
        data = data.partition(b"\n")[2]
    return _text(data, total, cut=False).rstrip("\n")
