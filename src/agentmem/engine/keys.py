"""What forms a key may have, how a passphrase becomes a raw key, and the files that hold keys.

A key is never shown: not in an error, a `repr`, a file name or a URI. No file with a key in it is ever overwritten,
renamed or removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from attrs import field, frozen

from agentmem.engine.files import directory_fsync, private_file_make, publish, temporary_beside
from agentmem.errors import InvalidInput, KeyMissing

__all__ = [
    "ENV_KEY",
    "ENV_KEY_FILE",
    "KEY_BYTES",
    "SALT_BYTES",
    "Key",
    "KeySource",
    "RawKey",
    "ResolvedKey",
    "child_environment",
    "default_key_file",
    "given_key",
    "key_directory_make",
    "key_file_read",
    "key_file_write",
    "key_parsed",
    "key_text",
    "new_key",
    "store_key_file",
    "store_key_files",
    "stretch",
]

Key = bytes | str | Callable[[], bytes | str]
"""32 bytes (a raw key), a passphrase, or a callable that returns either and is asked again after a rekey."""

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
ENV_KEY: Final = "AGENTMEM_KEY"
ENV_KEY_FILE: Final = "AGENTMEM_KEY_FILE"

_STRETCH_ITERATIONS: Final = (
    256_000  # SQLCipher 4's default, so that stock SQLCipher opens the file with the passphrase
)
_KEY_FILE_BYTES_MAX: Final = 4096
_HEX_KEY: Final = re.compile(r"[0-9A-Fa-f]{64}")


class KeySource(Enum):
    """Where a key was found.

    A `KEY_FILE` was named by the caller of a rekey; a `STORE_FILE` is in the user's configuration directory and belongs to
    one store; the `DEFAULT_FILE` there guards all stores that have no key of their own.
    """

    ARGUMENT = "argument"
    ENVIRONMENT = "environment"
    ENVIRONMENT_FILE = "environment_file"
    KEYRING = "keyring"
    KEY_FILE = "key_file"
    STORE_FILE = "store_file"
    DEFAULT_FILE = "default_file"


@frozen
class ResolvedKey:
    """A key in one of its two forms, and where it came from.

    Attributes:
        material: 32 bytes (a raw key) or a passphrase. Never part of the `repr`.
        source: Which of the places had it.
        path: The key file, where the source is a file.
        made: The default key file was made by this call: losing it loses all.
    """

    material: bytes | str = field(repr=False)
    source: KeySource
    path: Path | None = None
    made: bool = False


@frozen
class RawKey:
    """The 32 bytes a file is encrypted with and the 16 bytes of salt it begins with."""

    key: bytes = field(repr=False)
    salt: bytes = field(repr=False)

    def pragma_value(self) -> str:
        """The 96 hex digits SQLCipher takes as key and salt, in its `x'…'` form."""
        return f"x'{self.key.hex()}{self.salt.hex()}'"


def new_key() -> bytes:
    """Make a raw key: 32 bytes from the operating system's random source."""
    return secrets.token_bytes(KEY_BYTES)


def child_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Copy an environment without `AGENTMEM_KEY` and every name that begins so, for a child process.

    Args:
        env: The environment to copy, this process's own by default.
    """
    source = os.environ if env is None else env
    # Windows has one spelling of a name whatever its case, so no case of it may slip through.
    return {name: value for name, value in source.items() if not name.upper().startswith(ENV_KEY)}


def key_text(material: bytes | str) -> str:
    """The text form of a key, as `AGENTMEM_KEY` and a key file take it: for export, at the user's own word only."""
    return "hex:" + material.hex() if isinstance(material, bytes) else material


def default_key_file() -> Path:
    """The path of the one default key file of this user. It need not exist."""
    from platformdirs import user_config_path

    return user_config_path("agentmem", appauthor=False) / "key"


def store_key_file(salt: bytes, number: int) -> Path:
    """The path of a key file of one store: `keys/<salt>.key` beside the default one, then `keys/<salt>.2.key` and so on.

    The salt, the first 16 bytes of the file, is no secret; a rekey keeps it, and the copies of a file have the same.
    """
    return default_key_file().parent / "keys" / (salt.hex() + (f".{number}" if number > 1 else "") + ".key")


def store_key_files(salt: bytes) -> list[tuple[int, Path]]:
    """The key files of one store that are there, by number, the newest first."""
    first = store_key_file(salt, 1)
    try:
        names = os.listdir(first.parent)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise KeyMissing(f"The directory of keys {first.parent} cannot be read", why=str(error.strerror)) from error
    pattern = re.compile(rf"{salt.hex()}(?:\.([1-9][0-9]*))?\.key")
    found = [(int(match[1] or 1), first.parent / name) for name in names if (match := pattern.fullmatch(name))]
    return sorted(found, reverse=True)


def given_key(argument: Key) -> bytes | str:
    """The key that a caller gave, asked for where it is a callable.

    Raises:
        InvalidInput: It has none of the accepted forms.
    """
    return _checked(argument() if callable(argument) else argument, "the key argument")


def stretch(material: bytes | str, salt: bytes) -> RawKey:
    """Turn a key into the raw key of one file.

    A passphrase goes through PBKDF2-HMAC-SHA512 with 256,000 rounds, as SQLCipher 4 does by itself (its `kdf_iter` and
    `cipher_kdf_algorithm` defaults), once per process and salt: on a usual machine it takes some 0.1 s.

    Args:
        material: 32 bytes or a passphrase.
        salt: The 16 bytes the file begins with.
    """
    if isinstance(material, bytes):
        return RawKey(material, salt)
    passphrase = material.encode()
    # The cache is keyed by a digest, so that no passphrase stays in memory because of it.
    slot = (hashlib.sha256(salt + passphrase).digest(), salt)
    # No lock: two threads at once compute the same value twice, and a fork can't leave a lock held.
    key = _stretched.get(slot)
    if key is None:
        key = hashlib.pbkdf2_hmac("sha512", passphrase, salt, _STRETCH_ITERATIONS, KEY_BYTES)
        _stretched[slot] = key
    return RawKey(key, salt)


_stretched: dict[tuple[bytes, bytes], bytes] = {}


def _checked(value: object, place: str) -> bytes | str:
    """Accept 32 bytes or a non-empty passphrase that nobody could mistake for a raw key, and nothing else."""
    if isinstance(value, bytes):
        if len(value) != KEY_BYTES:
            raise InvalidInput(
                f"{place.capitalize()} is {len(value)} bytes long; a raw key is {KEY_BYTES} bytes",
                next="Make one with agentmem.engine.keys.new_key(), or give a passphrase as str.",
            )
        return value
    if not isinstance(value, str):
        raise InvalidInput(
            f"{place.capitalize()} is a {type(value).__name__}, not bytes or str",
            next="Give 32 bytes, a passphrase, or a callable that returns one of them.",
        )
    if not value:
        raise InvalidInput(f"{place.capitalize()} is empty", next="Give 32 bytes or a passphrase that is not empty.")
    if value[:2].lower() == "x'":
        raise InvalidInput(
            f"{place.capitalize()} is a passphrase that begins x'",
            why="SQLCipher would silently take it for a raw key",
            next="Give a raw key as 32 bytes, or in the environment as hex: and 64 digits.",
        )
    if "\0" in value or not _encodable(value):
        raise InvalidInput(f"{place.capitalize()} holds a character that no passphrase can hold")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def key_parsed(text: str, place: str) -> bytes | str:
    """Read the text form of a key: `hex:` and 64 digits, or a passphrase.

    Args:
        text: The text.
        place: Where it stood, for the error text.

    Raises:
        InvalidInput: It is neither.
    """
    if not text.startswith("hex:"):
        return _checked(text, place)
    if not _HEX_KEY.fullmatch(text, 4):
        raise InvalidInput(
            f"{place} begins hex: and is not followed by 64 hex digits",
            next="Give hex: and 64 digits, or a passphrase.",
        )
    return bytes.fromhex(text[4:])


def key_file_read(path: Path) -> bytes | str | None:
    """Read a key file, None where there is none. It is refused where others may read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise KeyMissing(f"The key file {path} cannot be read", why=str(error.strerror)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyMissing(f"The key file {path} is not a regular file")
        if os.name == "posix" and status.st_mode & 0o077:
            raise InvalidInput(
                f"The key file {path} is open to others: its mode is {status.st_mode & 0o777:04o}",
                next=f"Close it with chmod 600 {path}, and think about whether the key is still secret.",
            )
        data = os.read(descriptor, _KEY_FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    return _key_file_parsed(data, path)


def _key_file_parsed(data: bytes, path: Path) -> bytes | str:
    if len(data) > _KEY_FILE_BYTES_MAX:
        raise InvalidInput(f"The key file {path} is longer than {_KEY_FILE_BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if len(data) == KEY_BYTES:
            return data
        raise InvalidInput(f"The key file {path} is neither text nor {KEY_BYTES} bytes") from None
    # An editor ends a file with a line end, which is no part of a passphrase.
    return key_parsed(text.removesuffix("\n").removesuffix("\r"), f"the key file {path}")


def key_file_write(path: Path, key: bytes) -> bool:
    """Put a raw key into a file that is not there yet: private, whole and durable, or not at all.

    Returns:
        False where there was something at the path, which is left as it is.

    Raises:
        OSError: The system could not.
    """
    temporary = temporary_beside(path)
    descriptor = private_file_make(temporary)
    try:
        os.write(descriptor, key_text(key).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return publish(temporary, path)


def key_directory_make(path: Path) -> None:
    """Make a directory for keys, and the one above it, private and durable.

    Raises:
        OSError: The system could not.
    """
    above = path.parent
    if not above.is_dir():
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory_fsync(above.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    directory_fsync(above)
