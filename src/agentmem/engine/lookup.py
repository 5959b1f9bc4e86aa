"""Where the key of a file is looked for, and which of those found there is the one.

The order: the argument; `AGENTMEM_KEY`; `AGENTMEM_KEY_FILE`; the operating system's keyring, first the entries of this
store, then the default one; the key files of this store; the default key file, which is made when the first new store
needs one. The first three name one key and no other. The rest are candidates, each tried against the first page: after a
rekey the former key still opens the copies made before, and a crash may leave a new key that is not in use.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from agentmem.engine.connection import Opening
from agentmem.engine.faults import wrong_key
from agentmem.engine.files import io_failed
from agentmem.engine.keys import (
    ENV_KEY,
    ENV_KEY_FILE,
    Key,
    KeySource,
    RawKey,
    ResolvedKey,
    default_key_file,
    given_key,
    key_directory_make,
    key_file_read,
    key_file_write,
    key_parsed,
    new_key,
    store_key_file,
    store_key_files,
    stretch,
)
from agentmem.engine.pages import encrypted_check, first_page, first_page_now, key_fits, page_authentic, raw_key_of
from agentmem.errors import AgentMemError, InvalidInput, KeyMissing, WrongKey

__all__ = [
    "KEYRING_SERVICE",
    "KeyFinder",
    "Looked",
    "keyring_module",
    "keyring_text",
    "keyring_user",
    "open_found",
    "places_looked_in",
    "resolve_key",
]

KEYRING_SERVICE: Final = "agentmem"
_KEYRING_DEFAULT: Final = "default"

T = TypeVar("T")
_Place = Callable[[], ResolvedKey | None]


@attrs.frozen
class KeyFinder:
    """How the key of one file is found, and found again after it was changed.

    Attributes:
        path: The file.
        argument: A key that was given; no other place is asked.
        key_file: A key file that was named; no other place is asked.
        environment: Whether the environment may name the key.
    """

    path: Path
    argument: Key | None = attrs.field(default=None, repr=False)
    key_file: Path | None = None
    environment: bool = True

    def names_one(self) -> bool:
        """Whether a key is named, so that no place is searched."""
        given = self.argument is not None or self.key_file is not None
        return given or (self.environment and not {ENV_KEY, ENV_KEY_FILE}.isdisjoint(os.environ))

    def named(self) -> ResolvedKey | None:
        """The one key that was named, None where it is to be searched.

        Raises:
            InvalidInput: It has none of the accepted forms, or its file is readable by others.
            KeyMissing: The file that was named is not there.
        """
        if self.argument is not None:
            return ResolvedKey(given_key(self.argument), KeySource.ARGUMENT)
        if self.key_file is not None:
            return _file_named(self.key_file, KeySource.KEY_FILE)
        if not self.environment:
            return None
        text = os.environ.get(ENV_KEY)
        if text is not None:
            return ResolvedKey(key_parsed(text, ENV_KEY), KeySource.ENVIRONMENT)
        name = os.environ.get(ENV_KEY_FILE)
        if name is not None:
            return _file_named(Path(name).expanduser(), KeySource.ENVIRONMENT_FILE)
        return None

    def for_new(self) -> ResolvedKey:
        """The key of a file that is to be made: the one named, the default ones, or a default key file made now.

        Raises:
            InvalidInput, KeyMissing: As `named` does; or the keyring cannot be read.
            IoFailed: The default key file could not be made.
        """
        return self.named() or _keyring_default() or _default_file_key() or _default_file_made()

    def searched(self, salt: bytes | None) -> tuple[list[ResolvedKey], AgentMemError]:
        """The candidates where none was named, in their order, and what to say if none of them fits.

        A place that can't be read matters only then: the key may be there.

        Args:
            salt: The first 16 bytes of the file, None where there is none yet.

        Raises:
            InvalidInput, KeyMissing: There is no candidate.
        """
        found: list[ResolvedKey] = []
        failed: list[AgentMemError] = []
        for place in _places(salt, failed):
            try:
                candidate = place()
            except (InvalidInput, KeyMissing) as error:
                failed.append(error)
                continue
            if candidate is not None:
                found.append(candidate)
        if not found:
            raise failed[0] if failed else self._missing(salt)
        return found, failed[0] if failed else wrong_key(self.path)

    def _missing(self, salt: bytes | None) -> KeyMissing:
        own = "" if salt is None else f", no file {store_key_file(salt, 1)}"
        return KeyMissing(
            f"No key was found for {self.path}",
            why=f"No argument, no {ENV_KEY}, no {ENV_KEY_FILE}, no keyring entry{own}, and no file {default_key_file()}",
            next="Give the key the file was made with. A new key is never made for an existing file.",
        )


@attrs.frozen
class _Search:
    """One look at a file and at the keys there are for it.

    Attributes:
        path: The file.
        page: Its first page as it lies there.
        now: The same as the last commit left it.
        candidates: The keys.
        failed: What to say if none of them fits.
    """

    path: Path
    page: bytes
    now: bytes
    candidates: list[ResolvedKey]
    failed: AgentMemError

    @classmethod
    def of(cls, finder: KeyFinder) -> _Search:
        page = first_page(finder.path)
        encrypted_check(finder.path, page)
        candidates, failed = finder.searched(page[:16])
        # Of a single candidate there is nothing to choose, and the WAL need not be looked at.
        now = page if len(candidates) == 1 else first_page_now(finder.path)
        return cls(finder.path, page, now, candidates, failed)

    def fitting(self) -> Iterator[tuple[ResolvedKey, RawKey]]:
        """The candidates that may be the key of the file, the likeliest first."""
        others = []
        for candidate in self.candidates:
            raw = stretch(candidate.material, self.page[:16])
            if page_authentic(self.now, 1, raw):
                yield candidate, raw
            else:
                others.append((candidate, raw))
        # After a power cut the WAL may hold a commit that SQLite does not take for whole: then the page before counts.
        for candidate, raw in others:
            if key_fits(self.path, self.page, raw):
                yield candidate, raw


def open_found(
    opening: Opening, finders: tuple[KeyFinder, ...], open_one: Callable[[Opening], T]
) -> tuple[T, ResolvedKey, KeyFinder]:
    """Open an existing file with the key that is found for it.

    Args:
        opening: How; its key is replaced.
        finders: Asked in turn until one has the key.
        open_one: Opens with a key; `WrongKey` where that is not the file's.

    Returns:
        What `open_one` did, the key, and what found it.

    Raises:
        KeyMissing, WrongKey: No key, or none that fits; what the first finder met.
        InvalidInput: A key has none of the accepted forms.
        NotAStore: The file is empty, too short or not encrypted.
    """
    refused: AgentMemError | None = None
    for finder in finders:
        try:
            named = finder.named()
            if named is None:
                return (*_open_searched(opening, finder, open_one), finder)
            raw = raw_key_of(opening.path, named.material)
            return open_one(attrs.evolve(opening, key=raw)), named, finder
        except (KeyMissing, WrongKey) as error:
            refused = refused or error
    raise refused or wrong_key(opening.path)


def _open_searched(opening: Opening, finder: KeyFinder, open_one: Callable[[Opening], T]) -> tuple[T, ResolvedKey]:
    seen = b""
    while True:
        search = _Search.of(finder)
        for candidate, raw in search.fitting():
            try:
                return open_one(attrs.evolve(opening, key=raw)), candidate
            except WrongKey:
                continue
        # Another process may be giving the file a new key: only the same page twice is a verdict.
        if search.now == seen:
            raise search.failed
        seen = search.now


def resolve_key(argument: Key | None, *, path: Path) -> ResolvedKey:
    """Find the key of a file without opening it; of a file that is not there, the key it would get if that exists.

    Args:
        argument: What the caller gave; it wins over every other place and is not held against the file.
        path: The file, without symbolic links.

    Raises:
        InvalidInput: A key has none of the accepted forms, or a key file is readable by others.
        KeyMissing: No place has a key.
        WrongKey: None of those found fits the file.
        NotAStore: The file is empty, too short or not encrypted.
    """
    finder = KeyFinder(path, argument)
    named = finder.named()
    if named is not None:
        return named
    if not path.exists():
        return finder.searched(None)[0][0]
    search = _Search.of(finder)
    for candidate, _ in search.fitting():
        return candidate
    raise search.failed


@attrs.frozen
class Looked:
    """A place where the key of an existing file was looked for, and no key that opens it was found.

    Attributes:
        source: Which.
        path: The key file, where the place is a file.
        found: What is there, in words; never a key.
    """

    source: KeySource
    path: Path | None
    found: str


def places_looked_in(path: Path) -> tuple[Looked, ...]:
    """What the places have that are searched for the key of a file, after `resolve_key` said that none of it fits.

    Raises:
        NotAStore: The file is empty or too short.
    """
    salt = first_page(path)[:16]
    looked = [Looked(KeySource.ENVIRONMENT, None, f"{ENV_KEY} is not set")]
    looked.append(Looked(KeySource.ENVIRONMENT_FILE, None, f"{ENV_KEY_FILE} is not set"))
    looked.append(Looked(KeySource.KEYRING, None, _keyring_words(salt)))
    try:
        files = [file for _, file in store_key_files(salt)] or [store_key_file(salt, 1)]
    except KeyMissing as error:
        looked.append(Looked(KeySource.STORE_FILE, store_key_file(salt, 1), str(error)))
        files = []
    looked += [Looked(KeySource.STORE_FILE, file, _file_words(file)) for file in files]
    default = default_key_file()
    return (*looked, Looked(KeySource.DEFAULT_FILE, default, _file_words(default)))


_UNFIT: Final = "does not open the file"


def _file_words(path: Path) -> str:
    try:
        return "no such file" if key_file_read(path) is None else f"a key, which {_UNFIT}"
    except (InvalidInput, KeyMissing) as error:
        return str(error)


def _keyring_words(salt: bytes) -> str:
    if keyring_module() is None:
        return "not looked in: the extra is not installed"
    try:
        number = len(_keyring_texts(salt))
    except KeyMissing as error:
        return str(error)
    if number < 2:
        return f"an entry, which {_UNFIT}" if number else "no entry"
    return f"{number} entries, none of which opens the file"


# The places


def _places(salt: bytes | None, failed: list[AgentMemError]) -> Iterator[_Place]:
    """What to ask for a candidate, each by itself, in order; what can't even be listed goes to `failed`."""
    try:
        texts = _keyring_texts(salt)
    except KeyMissing as error:
        failed.append(error)
    else:
        yield from (partial(_keyring_key, text) for text in texts)
    if salt is not None:
        try:
            files = store_key_files(salt)
        except KeyMissing as error:
            failed.append(error)
        else:
            yield from (partial(_file_key, path, KeySource.STORE_FILE) for _, path in files)
    yield _default_file_key


def _file_key(path: Path, source: KeySource) -> ResolvedKey | None:
    found = key_file_read(path)
    return None if found is None else ResolvedKey(found, source, path)


def _file_named(path: Path, source: KeySource) -> ResolvedKey:
    found = _file_key(path, source)
    if found is not None:
        return found
    if source is KeySource.KEY_FILE:
        raise KeyMissing(f"The key file {path} is not there any more", next="Put it back.")
    raise KeyMissing(
        f"{ENV_KEY_FILE} names a file that is not there: {path}",
        next=f"Correct {ENV_KEY_FILE}, or unset it to use the default key.",
    )


def _default_file_key() -> ResolvedKey | None:
    return _file_key(default_key_file(), KeySource.DEFAULT_FILE)


def _default_file_made() -> ResolvedKey:
    path = default_key_file()
    try:
        key_directory_make(path.parent)
        made = key_file_write(path, new_key())
    except OSError as error:
        raise io_failed(f"The key file {path} could not be made", error) from error
    found = _default_file_key()
    if found is None:
        raise KeyMissing(f"The key file {path} went away while it was being made")
    return attrs.evolve(found, made=made)


# The keyring


def keyring_module() -> Any:
    """The package `keyring`, None where the extra is not installed."""
    try:
        return importlib.import_module("keyring")
    except ImportError:
        return None


def keyring_user(salt: bytes, number: int) -> str:
    """The name of an entry of one store: the salt in hex; the second has `.2` after it, and so on."""
    return salt.hex() + (f".{number}" if number > 1 else "")


def keyring_text(user: str) -> str | None:
    """An entry of the keyring, None without the extra, a backend or an entry."""
    keyring = keyring_module()
    if keyring is None:
        return None
    try:
        entry = keyring.get_password(KEYRING_SERVICE, user)
    except Exception as error:
        # keyring's own exceptions are told by name: its module layout has moved between releases.
        if type(error).__name__ == "NoKeyringError":
            return None
        raise KeyMissing(
            "The keyring could not be read",
            why=type(error).__name__,
            next=f"Unlock it, or give the key as an argument or in {ENV_KEY}.",
        ) from error
    return None if entry is None else str(entry)


def _keyring_texts(salt: bytes | None) -> list[str]:
    """The entries of one store, the newest first, then the default one. They can't be listed, so they are tried by number."""
    texts: list[str] = []
    if salt is not None:
        while (text := keyring_text(keyring_user(salt, len(texts) + 1))) is not None:
            texts.insert(0, text)
    default = keyring_text(_KEYRING_DEFAULT)
    return texts if default is None else [*texts, default]


def _keyring_key(text: str) -> ResolvedKey:
    return ResolvedKey(key_parsed(text, "the keyring entry"), KeySource.KEYRING)


def _keyring_default() -> ResolvedKey | None:
    text = keyring_text(_KEYRING_DEFAULT)
    return None if text is None else _keyring_key(text)
