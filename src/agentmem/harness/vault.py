"""Vaults: where credentials are, by id. What a vault gives is granted for one call of a tool, and never logged.

A value goes from hand to hand as a `Secret`, which no traceback, log or pickle shows. An error on its way is raised where
no variable of any frame has the value itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

from attrs import frozen

from agentmem.errors import AgentMemError, InvalidInput, IoFailed, MissingExtra, NotFound, shown
from agentmem.records import validate
from agentmem.types import Json

__all__ = [
    "ChainVault", "GrantRequest", "KeyringVault", "MintingVault", "Secret", "Vault", "missing", "unframed",
]  # fmt: skip

_VALUE_BYTES: Final = 64 * 1024
_INDEX: Final = "ids of all"  # the entry of a keyring that lists the others: no label has blanks

_Error = TypeVar("_Error", bound=BaseException)


class Secret:
    """A credential's value, which shows itself to nobody: no form of it, no copy, no pickle has the value but `value`.

    Args:
        value: The value, text of at most 64 KiB.
        expires_at: When it is good no more, microseconds since 1970 UTC; None for a static one.

    Attributes:
        expires_at: As given.

    Raises:
        InvalidInput: It is no text, blank or too long. The error does not show it.
    """

    __slots__ = ("_read", "expires_at")

    def __init__(self, value: str, expires_at: int | None = None) -> None:
        problem = None
        try:
            validate.written(value, "The value of the credential", _VALUE_BYTES)
        except InvalidInput as error:
            problem = unframed(error)
        if problem is not None:
            del value
            raise problem
        # Within a function, so that what goes through the attributes of an object finds no text.
        self._read: Callable[[], str] = lambda: value
        self.expires_at = validate.optional_cursor(expires_at, "expires_at")

    @property
    def value(self) -> str:
        """The value."""
        return self._read()

    def __repr__(self) -> str:
        return "<Secret>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __getstate__(self) -> NoReturn:
        raise TypeError("A secret is not copied, pickled or sent anywhere")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A secret is not copied, pickled or sent anywhere")


def unframed(error: _Error) -> _Error:
    """An error without the frames and causes it came from, in whose variables a secret may stand.

    It is to be raised outside of the `except` that caught it, which would else become its context.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


@frozen
class GrantRequest:
    """What a credential is wanted for.

    Attributes:
        credential: Its id.
        tool: The tool that declared it.
        session: The session in which the tool is called.
        scope: What the tool declared that it needs it for. It binds where the secret is minted for it, and in the built-in
            http tool; of a static secret it is a note.
        seconds: How long the grant lasts.
    """

    credential: str
    tool: str
    session: int
    scope: Mapping[str, Json]
    seconds: int


class Vault(Protocol):
    """Gives credentials by id."""

    def secret(self, request: GrantRequest) -> Secret:
        """The credential that is asked for.

        Raises:
            NotFound: It has none of this id.
        """


Mint: TypeAlias = Callable[[GrantRequest], "Secret | str"]


class MintingVault:
    """Credentials that functions of yours make when they are needed: short-lived tokens, for exactly what is asked.

    ```py
    vault = MintingVault({"prod-stripe": lambda request: restricted_key(request.scope, request.seconds)})
    ```

    Args:
        mints: By id a function of the request that gives a `Secret`, or its text. Say in the `Secret` when it expires: it is
            masked until then and an hour more, a text for as long as the process lives.
    """

    def __init__(self, mints: Mapping[str, Mint]) -> None:
        for name, mint in mints.items():
            validate.label(name, "The id of a credential")
            validate.callable_(mint, f"The mint of {name}")
        self._mints = dict(mints)

    def __repr__(self) -> str:
        return f"<MintingVault of {len(self._mints)} credentials>"

    def ids(self) -> list[str]:
        """The ids, sorted."""
        return sorted(self._mints)

    def secret(self, request: GrantRequest) -> Secret:
        """What the function of the id makes; what it raises is raised.

        Raises:
            NotFound: There is no function of the id.
            InvalidInput: It gave what is no secret.
        """
        mint = self._mints.get(request.credential)
        if mint is None:
            raise missing(request.credential, self._mints)
        return _sealed(mint(request), request.credential)


def _sealed(found: Secret | str, name: str) -> Secret:
    """What a mint gave, as a secret."""
    if isinstance(found, Secret):
        return found
    problem = InvalidInput(
        f"The mint of {name} gave a {type(found).__name__}",
        why="It gives a Secret, or its text",
        next="Mend the function",
    )
    if isinstance(found, str):
        try:
            return Secret(found)
        except InvalidInput as error:
            problem = unframed(error)
    del found
    raise problem


class KeyringVault:
    """Credentials in the keyring of the operating system; needs the extra `keyring`.

    Each is an entry of its own. One more entry lists the ids: a keyring cannot be asked for them.

    Args:
        service: The name that they stand under in the keyring.
    """

    def __init__(self, service: str = "agentmem-vault") -> None:
        self._service = validate.line(service, "service", 128)

    def __repr__(self) -> str:
        return f"<KeyringVault {shown(self._service)}>"

    def add(self, credential: str, value: str) -> None:
        """Keep a credential, or replace it.

        Args:
            credential: Its id, a label.
            value: The secret.

        Raises:
            MissingExtra, NotFound, IoFailed: As `secret`.
            InvalidInput: The id is no label, the value no text.
        """
        secret = Secret(value)
        del value
        name = validate.label(credential, "credential")
        _with_keyring(lambda keyring: keyring.set_password(self._service, name, secret.value))
        self._list({*self.ids(), name})

    def remove(self, credential: str) -> None:
        """Take a credential out of the keyring.

        Raises:
            NotFound: There is none of this id.
            MissingExtra, IoFailed: As `secret`.
        """
        self.secret(GrantRequest(credential, "", 0, {}, 0))
        _with_keyring(lambda keyring: keyring.delete_password(self._service, credential))
        self._list({*self.ids()} - {credential})

    def ids(self) -> list[str]:
        """The ids that were added, sorted.

        Raises:
            MissingExtra, NotFound, IoFailed: As `secret`.
        """
        listed = _with_keyring(lambda keyring: keyring.get_password(self._service, _INDEX))
        return sorted(json.loads(listed)) if listed else []

    def _list(self, ids: set[str]) -> None:
        text = json.dumps(sorted(ids))
        _with_keyring(lambda keyring: keyring.set_password(self._service, _INDEX, text))

    def secret(self, request: GrantRequest) -> Secret:
        """The credential of the id.

        Raises:
            NotFound: There is none; or this machine has no keyring, as one without a desktop.
            IoFailed: The keyring is locked, or fails.
            MissingExtra: The extra `keyring` is not installed.
        """
        name = validate.label(request.credential, "credential")
        found: Secret | None = _with_keyring(lambda keyring: _wrapped(keyring.get_password(self._service, name)))
        if found is None:
            raise missing(name, ())
        return found


def _wrapped(value: str | None) -> Secret | None:
    return None if value is None else Secret(value)


def _with_keyring(call: Callable[[Any], Any]) -> Any:
    """What a call of the package `keyring` gives; its errors as ours, without frames: those of a backend know the value."""
    keyring = _package()
    try:
        return call(keyring)
    except AgentMemError as error:
        problem: AgentMemError = unframed(error)
    except Exception as error:  # noqa: BLE001  # backends raise what their systems raise, beside keyring's own
        problem = _failed(type(error).__name__)
    raise problem


def _package() -> Any:
    try:
        import keyring
    except ImportError:
        raise MissingExtra(
            "The keyring of the operating system needs the extra keyring",
            next="Install it with pip install '.[keyring]', or keep credentials in a FileVault",
        ) from None
    return keyring


def _failed(kind: str) -> AgentMemError:
    if kind == "NoKeyringError":
        return NotFound(
            "This machine has no keyring that can be used",
            why="There is none without a desktop or a service that keeps one",
            next="Keep credentials in a FileVault, or mint them with a MintingVault",
        )
    return IoFailed(
        "The keyring of the operating system could not be used",
        why=kind,
        next="Unlock it, or keep credentials in a FileVault",
    )


class ChainVault:
    """Several vaults: the first that knows an id gives it.

    Args:
        vaults: In the order in which they are asked.
    """

    def __init__(self, vaults: Iterable[Vault]) -> None:
        self._vaults = tuple(vaults)

    def __repr__(self) -> str:
        return f"<ChainVault of {len(self._vaults)} vaults>"

    def secret(self, request: GrantRequest) -> Secret:
        """The credential of the id, of the first vault that has it. Any error but that it has none ends the search.

        Raises:
            NotFound: None of them has it.
        """
        for vault in self._vaults:
            try:
                return vault.secret(request)
            except NotFound:
                continue
        raise missing(request.credential, ())


def missing(credential: str, known: Iterable[str]) -> NotFound:
    """The error for an id that a vault does not have."""
    return NotFound(
        f"The vault has no credential {shown(credential)}",
        next=validate.did_you_mean(credential, known) or "Add it to the vault",
    )
