"""Grants: a credential for one call of a tool, for a few minutes, once.

A Python tool gets a `Credential` and reveals it. A child process inherits a pipe that holds the value: read once, it is
empty; nothing of it stands in the environment, the arguments or a file. This guards against accidental leaks into log and
model, not against a hostile program of the same user.

No frame that goes on living has the value in a variable: a traceback that shows variables does not show it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from attrs import frozen

from agentmem.errors import Conflict, InvalidInput, ToolFailed
from agentmem.harness.masking import Masker
from agentmem.harness.vault import GrantRequest, Secret, Vault, unframed
from agentmem.records import validate
from agentmem.types import Json

if TYPE_CHECKING:
    import subprocess

__all__ = ["DESCRIPTOR", "HANDLE", "Credential", "Grants", "Inherited", "inherited", "inherited_handle"]

DESCRIPTOR: Final = "AGENTMEM_CREDENTIAL_FD"
"""The variable that tells a child process which descriptor holds its credential: the number, never the value."""

HANDLE: Final = "AGENTMEM_CREDENTIAL_HANDLE"
"""The same on Windows, of a handle."""

SECONDS_MAX: Final = 86_400
_KNOWN_ON: Final = 3600 * 1_000_000  # a minted token is masked for so long after its end


def _now() -> int:
    return time.time_ns() // 1000


class Credential:
    """A credential that was granted to one call of a tool.

    Attributes:
        id: The id of the credential in the vault.
        scope: What it was granted for.
        expires_at: When the grant ends, microseconds since 1970 UTC.
    """

    __slots__ = ("_clock", "_lock", "_secret", "expires_at", "id", "scope")

    def __init__(
        self, id: str, secret: Secret, *, scope: Mapping[str, Json], expires_at: int, clock: Callable[[], int] = _now
    ) -> None:
        self.id = id
        self.scope: Mapping[str, Json] = MappingProxyType(dict(scope))
        self.expires_at = expires_at
        self._secret: Secret | None = secret
        self._clock = clock
        self._lock = threading.Lock()

    def reveal(self) -> str:
        """The value, once.

        Raises:
            Conflict: It was revealed already, or the grant has ended.
        """
        with self._lock:
            secret, self._secret = self._secret, None
        if secret is None:
            raise Conflict(
                f"The grant of {self.id} was used already", why="It is good for one use", next="Call the tool again"
            )
        if self.expires_at <= self._clock():
            raise Conflict(f"The grant of {self.id} has ended", next="Call the tool again")
        return secret.value

    def __repr__(self) -> str:
        return f"<Credential {self.id}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __getstate__(self) -> NoReturn:
        raise TypeError("A credential is not copied, pickled or sent anywhere")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A credential is not copied, pickled or sent anywhere")


class Grants:
    """Grants credentials out of a vault, and has every one of them masked from then on. Thread-safe as far as the vault is.

    Args:
        vault: Where they are.
        seconds: How long a grant lasts.
        clock: The time in microseconds since 1970 UTC.

    Attributes:
        masker: Knows every value that was granted: a static one for good, a minted one for an hour after its end.
    """

    def __init__(self, vault: Vault, *, seconds: int = 300, clock: Callable[[], int] = _now) -> None:
        self.masker = Masker()
        self._vault = vault
        self._seconds = validate.whole(seconds, "seconds", 1, SECONDS_MAX)
        self._clock = clock

    def __repr__(self) -> str:
        return "<Grants>"

    def grant(
        self, credential: str, *, tool: str, session: int, scope: Mapping[str, Json] = MappingProxyType({})
    ) -> Credential:
        """A credential for one call.

        Args:
            credential: Its id.
            tool: The tool that declared it.
            session: The session in which it is called.
            scope: What the tool declared that it needs it for.

        Raises:
            NotFound: The vault has none of this id.
            Conflict: What the vault gave has ended already.
            InvalidInput: It is too short to be masked.
        """
        request = GrantRequest(validate.label(credential, "credential"), tool, session, scope, self._seconds)
        secret: Any = self._vault.secret(request)
        if not isinstance(secret, Secret):
            kind = type(secret).__name__
            del secret
            raise InvalidInput(f"The vault gave a {kind} for {credential}", why="A vault gives a Secret")
        now = self._clock()
        self.masker.forget(now)
        until = now + self._seconds * 1_000_000
        ends = secret.expires_at
        if ends is not None and ends <= now:
            raise Conflict(f"What the vault gave for {credential} has ended already", next="Look at the clock of both")
        problem = None
        try:
            self.masker.add(secret.value, credential, until=None if ends is None else ends + _KNOWN_ON)
        except InvalidInput as error:
            problem = unframed(error)
        if problem is not None:
            raise problem
        return Credential(
            credential, secret, scope=scope, expires_at=until if ends is None else min(until, ends), clock=self._clock
        )


@frozen
class Inherited:
    """What a child process is started with: the descriptor to hand down, and the variable that names it."""

    fd: int
    environment: Mapping[str, str]


@contextmanager
def inherited(credential: Credential) -> Iterator[Inherited]:
    """A pipe that holds a credential, for a child process to inherit; for POSIX, see `inherited_handle` for Windows.

    Give `fd` to `pass_fds` and add `environment` to that of the child. Once the child has read it the pipe is empty. In
    this process the end is closed when the block is left. A child that never reads it keeps nobody waiting.

    Raises:
        Conflict: The credential was revealed already, or its grant has ended.
        ToolFailed: No descriptor is to be had.
    """
    pipe = _Pipe()
    try:
        pipe.fill(credential)
        yield Inherited(pipe.reading, {DESCRIPTOR: str(pipe.reading)})
    finally:
        pipe.close()


class _Pipe:
    """A pipe that is filled at once, and by a thread as far as it has no room."""

    def __init__(self) -> None:
        try:
            self.reading, self._writing = os.pipe()
        except OSError as error:
            raise ToolFailed("No pipe could be made for a credential", why=error.strerror or "") from None
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None

    def fill(self, credential: Credential) -> None:
        """Write the value, and close the end for writing, or have a thread do so."""
        os.set_blocking(self._writing, False)
        self._wake = os.pipe()
        rest = _written(self._writing, credential.reveal().encode())
        if rest:
            thread = threading.Thread(
                target=_feed, args=(self._writing, self._wake[0], rest), name="agentmem-grant", daemon=True
            )
            del rest
            try:
                thread.start()
            except RuntimeError:
                raise ToolFailed("No thread could be started to hand a credential down") from None
            self._thread = thread
        else:
            self._writing = _closed(self._writing)

    def close(self) -> None:
        """Close all of it; a thread that still waits for a reader ends."""
        self.reading = _closed(self.reading)
        if self._wake is not None:
            _closed(self._wake[1])
        if self._thread is not None:
            self._thread.join()
        self._writing = _closed(self._writing)
        if self._wake is not None:
            _closed(self._wake[0])


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _written(writing: int, data: bytes) -> bytes:
    """Write what there is room for.

    Returns:
        The rest; nothing where nobody reads any more.
    """
    try:
        while data:
            data = data[os.write(writing, data) :]
    except BlockingIOError:
        return data
    except OSError:
        return b""
    return b""


def _feed(writing: int, wake: int, data: bytes) -> None:
    """Write as the reader makes room, until all is written, nobody reads, or the other end of `wake` is closed."""
    import selectors

    with selectors.DefaultSelector() as selector:
        selector.register(writing, selectors.EVENT_WRITE)
        selector.register(wake, selectors.EVENT_READ)
        while data:
            if any(key.fd == wake for key, _ in selector.select()):
                return
            data = _written(writing, data)


if sys.platform == "win32":

    @contextmanager
    def inherited_handle(credential: Credential) -> Iterator[tuple[subprocess.STARTUPINFO, Mapping[str, str]]]:
        """The same for Windows: give the first to `startupinfo=`, with `close_fds=True`, the second to the environment.

        The child makes a descriptor of the handle: `msvcrt.open_osfhandle(int(os.environ[…]), os.O_RDONLY)`. Only the
        handles in `handle_list` are inherited. Not tested: no test of this package runs on Windows.
        """
        import msvcrt
        import subprocess

        reading, writing = os.pipe()
        try:
            handle = msvcrt.get_osfhandle(reading)
            os.set_handle_inheritable(handle, True)
            thread = threading.Thread(target=_poured, args=(writing, credential), name="agentmem-grant", daemon=True)
            thread.start()
            startup = subprocess.STARTUPINFO()
            startup.lpAttributeList = {"handle_list": [handle]}
            yield startup, {HANDLE: str(handle)}
        finally:
            os.close(reading)  # which ends the thread, once no child has it open

    def _poured(writing: int, credential: Credential) -> None:
        with suppress(OSError, Conflict), os.fdopen(writing, "wb", buffering=0) as file:
            file.write(credential.reveal().encode())

else:

    def inherited_handle(credential: Credential) -> NoReturn:
        """For Windows alone; see `inherited`."""
        raise ToolFailed(f"The credential {credential.id} can be handed down as a handle on Windows only")
