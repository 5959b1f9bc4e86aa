"""The grammar of keys, the places they come from, and what never shows them."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.engine import keys
from agentmem.engine.keys import KeySource, child_environment, key_text, new_key, stretch
from agentmem.engine.lookup import KeyFinder, resolve_key
from agentmem.errors import AgentMemError, InvalidInput, IoFailed, KeyMissing

HERE = Path("store.db")
RAW = bytes(range(32))


@pytest.fixture(autouse=True)
def _no_other_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No key of the machine that runs the tests is ever found, and no keyring."""
    for name in list(os.environ):
        if name.startswith("AGENTMEM_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "keyring", None)


def resolved(argument: keys.Key | None = None, *, existing: bool = True) -> keys.ResolvedKey:
    return resolve_key(argument, path=HERE) if existing else KeyFinder(HERE, argument).for_new()


def test_bytes_are_a_raw_key() -> None:
    """TRAPS 2: exactly 32 bytes are a raw key."""
    assert resolved(RAW).material == RAW


@pytest.mark.parametrize("length", [0, 1, 16, 31, 33, 48, 64])
def test_bytes_of_another_length_are_refused(length: int) -> None:
    """TRAPS 2: bytes of any other length are refused, not padded, cut or taken for a passphrase."""
    with pytest.raises(InvalidInput, match="32 bytes"):
        resolved(b"k" * length)


@given(st.text(min_size=1).filter(lambda text: text[:2].lower() != "x'" and "\0" not in text))
def test_text_is_a_passphrase(text: str) -> None:
    """TRAPS 2: text is a passphrase as it stands, if UTF-8 can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(InvalidInput):
            resolved(text)
    else:
        assert resolved(text).material == text


def test_an_empty_passphrase_is_refused() -> None:
    """TRAPS 2: an empty key would write a plain file."""
    with pytest.raises(InvalidInput, match="empty"):
        resolved("")


@pytest.mark.parametrize("text", ["x'" + "0" * 64 + "'", "X'" + "0" * 64 + "'", "x'anything"])
def test_a_passphrase_spelled_as_a_raw_key_is_refused(text: str) -> None:
    """TRAPS 2: SQLCipher would silently take x'…' for a raw key."""
    with pytest.raises(InvalidInput, match="x'"):
        resolved(text)


@pytest.mark.parametrize("value", [None, 7, bytearray(32), ["key"]])
def test_a_callable_must_return_a_key(value: object) -> None:
    """What a callable returns is held to the same grammar, and nothing in it means the default key."""
    with pytest.raises(InvalidInput):
        resolved(lambda: value)  # type: ignore[arg-type,return-value]


def test_a_callable_is_asked_each_time() -> None:
    """A callable is asked again, so that a changed key is found."""
    answers = iter([RAW, "passphrase"])
    ask = lambda: next(answers)  # noqa: E731
    assert [resolved(ask).material, resolved(ask).material] == [RAW, "passphrase"]


def test_the_environment_holds_a_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAPS 2: AGENTMEM_KEY is a passphrase unless it begins hex:, even if it looks like hex."""
    monkeypatch.setenv("AGENTMEM_KEY", "ab" * 32)
    assert resolved().material == "ab" * 32
    assert resolved().source is KeySource.ENVIRONMENT


def test_the_environment_holds_a_raw_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAPS 2: hex: and 64 digits in AGENTMEM_KEY are a raw key."""
    monkeypatch.setenv("AGENTMEM_KEY", "hex:" + RAW.hex().upper())
    assert resolved().material == RAW


@pytest.mark.parametrize(
    "text", ["", "hex:", "hex:00", "hex:" + "0" * 63, "hex:" + "0 " * 64, "hex:" + "g" * 64, "x'00'"]
)
def test_a_malformed_environment_key_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """TRAPS 2: a malformed AGENTMEM_KEY is an error, never a silent passphrase and never the next place."""
    monkeypatch.setenv("AGENTMEM_KEY", text)
    with pytest.raises(InvalidInput):
        resolved()


def test_the_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is argument, AGENTMEM_KEY, AGENTMEM_KEY_FILE, keyring, default file."""
    monkeypatch.setenv("AGENTMEM_KEY", "from the environment")
    assert resolved("given").source is KeySource.ARGUMENT
    monkeypatch.setenv("AGENTMEM_KEY_FILE", "/nowhere")
    assert resolved().source is KeySource.ENVIRONMENT


def key_file(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("content", "material"),
    [
        (b"hex:" + RAW.hex().encode() + b"\n", RAW),
        (b"a passphrase\r\n", "a passphrase"),
        (b"no line end", "no line end"),
        (b"two\nlines\n", "two\nlines"),
        (bytes(range(224, 256)), bytes(range(224, 256))),
    ],
)
def test_a_key_file_holds_either_form(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, material: bytes | str
) -> None:
    """A key file holds hex: and 64 digits, a passphrase with or without a line end, or 32 bytes that are no text."""
    path = key_file(tmp_path / "k", content)
    monkeypatch.setenv("AGENTMEM_KEY_FILE", str(path))
    found = resolved()
    assert (found.material, found.source, found.path) == (material, KeySource.ENVIRONMENT_FILE, path)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_key_file_open_to_others_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int) -> None:
    """A key file that group or world may touch is refused by its mode."""
    monkeypatch.setenv("AGENTMEM_KEY_FILE", str(key_file(tmp_path / "k", b"correct horse", mode)))
    with pytest.raises(InvalidInput, match=f"{mode:04o}") as caught:
        resolved()
    assert "horse" not in str(caught.value.to_dict())


def test_a_missing_key_file_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name in AGENTMEM_KEY_FILE that leads nowhere is an error, also for a new store."""
    monkeypatch.setenv("AGENTMEM_KEY_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(KeyMissing, match="AGENTMEM_KEY_FILE"):
        resolved(existing=False)


def keyring_with(entry: str | None, error: Exception | None = None) -> types.ModuleType:
    module = types.ModuleType("keyring")

    def get_password(service: str, user: str) -> str | None:
        assert (service, user) == ("agentmem", "default")
        if error is not None:
            raise error
        return entry

    module.get_password = get_password  # type: ignore[attr-defined]
    return module


def test_the_keyring_is_asked_after_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of the operating system's keyring is used before the default file."""
    monkeypatch.setitem(sys.modules, "keyring", keyring_with("hex:" + RAW.hex()))
    assert (resolved().material, resolved().source) == (RAW, KeySource.KEYRING)


def test_a_machine_without_keyring_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """NoKeyringError and an empty keyring mean: ask the next place."""
    no_keyring = type("NoKeyringError", (RuntimeError,), {})
    for module in (keyring_with(None, no_keyring()), keyring_with(None)):
        monkeypatch.setitem(sys.modules, "keyring", module)
        with pytest.raises(KeyMissing):
            resolved()


def test_a_locked_keyring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyring that is there and can't be read is an error: the next place could hold another key."""
    monkeypatch.setitem(sys.modules, "keyring", keyring_with(None, RuntimeError("locked")))
    with pytest.raises(KeyMissing, match="keyring"):
        resolved(existing=False)


def test_an_existing_file_never_gets_a_new_key(tmp_path: Path) -> None:
    """A missing key for an existing file is KeyMissing, and no key file is made."""
    with pytest.raises(KeyMissing, match=r"store\.db"):
        resolved(existing=True)
    assert list(tmp_path.iterdir()) == []


def test_the_default_key_is_made_once(tmp_path: Path) -> None:
    """The first new store makes the default key file; the next finds it, and so does an existing file."""
    first = resolved(existing=False)
    again = resolved(existing=False)
    assert (first.made, again.made, first.material) == (True, False, again.material)
    assert first.source is KeySource.DEFAULT_FILE
    assert first.path == keys.default_key_file()
    assert first.path.is_relative_to(tmp_path)
    assert resolved(existing=True).material == first.material
    assert [path.name for path in first.path.parent.iterdir()] == ["key"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_the_default_key_file_is_private() -> None:
    """TRAPS 2: the default key file has mode 0600 whatever the umask, and its directory 0700."""
    old = os.umask(0)
    try:
        path = resolved(existing=False).path
    finally:
        os.umask(old)
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_key_file_that_cannot_be_made_is_a_typed_error(tmp_path: Path) -> None:
    """Where the config directory can't be made, the error says so and is ours."""
    for name in ("config", "home"):
        (tmp_path / name).write_text("in the way")
    with pytest.raises(IoFailed, match="could not be made"):
        resolved(existing=False)


def test_a_passphrase_is_stretched_as_sqlcipher_does() -> None:
    """Stretching is PBKDF2-HMAC-SHA512 with 256,000 rounds, SQLCipher 4's default; a raw key is taken as it is."""
    salt = bytes(range(16))
    expected = hashlib.pbkdf2_hmac("sha512", "pässword".encode(), salt, 256_000, 32)
    assert stretch("pässword", salt).key == expected
    assert stretch(RAW, salt).key == RAW


def test_a_passphrase_is_stretched_once_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second stretching of one passphrase and salt computes nothing; another salt does."""
    calls: list[bytes] = []
    real = hashlib.pbkdf2_hmac

    def counting(name: str, password: bytes, salt: bytes, rounds: int, length: int) -> bytes:
        calls.append(salt)
        return real(name, password, salt, 10, length)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counting)
    one, other = os.urandom(16), os.urandom(16)
    for salt in (one, one, other, one):
        stretch("the same", salt)
    assert calls == [one, other]


def test_a_new_key_is_random() -> None:
    """Two new keys differ and are 32 bytes."""
    assert new_key() != new_key()
    assert len(new_key()) == 32


@pytest.mark.parametrize("material", [RAW, "a passphrase"])
def test_the_text_form_reads_back(monkeypatch: pytest.MonkeyPatch, material: bytes | str) -> None:
    """What export writes is what the environment takes."""
    monkeypatch.setenv("AGENTMEM_KEY", key_text(material))
    assert resolved().material == material


def test_children_get_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAPS 2: no name that begins AGENTMEM_KEY goes to a child process; everything else does."""
    monkeypatch.setenv("AGENTMEM_KEY", "secret")
    monkeypatch.setenv("AGENTMEM_KEYS_OLD", "secret")
    monkeypatch.setenv("AGENTMEM_PROJECT", "acme")
    env = child_environment()
    assert env["AGENTMEM_PROJECT"] == "acme"
    assert not [name for name in env if name.startswith("AGENTMEM_KEY")]
    assert child_environment({"AGENTMEM_KEY_FILE": "f", "agentmem_key": "k", "PATH": "p"}) == {"PATH": "p"}


def test_no_repr_shows_a_key() -> None:
    """A key is in no repr."""
    found, raw = resolved(RAW), stretch("open sesame", bytes(16))
    shown = repr(found) + repr(resolved("open sesame")) + repr(raw)
    for secret in (RAW.hex(), repr(RAW)[2:20], "sesame", raw.key.hex()):
        assert secret not in shown


@given(st.one_of(st.binary(max_size=80), st.text(max_size=80)))
def test_no_error_shows_a_key(value: bytes | str) -> None:
    """An error about a key shows nothing of it longer than a few characters that errors hold anyway."""
    try:
        resolved(value)
    except AgentMemError as error:
        shown = "".join(error.to_dict().values())
        text = value.hex() if isinstance(value, bytes) else value
        assert len(text) < 8 or text[2:] not in shown
