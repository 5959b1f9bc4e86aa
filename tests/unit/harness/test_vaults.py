"""Vaults that keep or make credentials: minted ones, the system's keyring, several in a row."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agentmem.errors import AgentMemError, InvalidInput, IoFailed, MissingExtra, NotFound
from agentmem.harness.vault import ChainVault, GrantRequest, KeyringVault, MintingVault, Secret

keyring = pytest.importorskip("keyring")
backend = pytest.importorskip("keyring.backend")
errors = pytest.importorskip("keyring.errors")

SECRET = "sk_live_51H8xWq+/=zz"


def ask(credential: str) -> GrantRequest:
    return GrantRequest(credential, "tool", 1, {}, 300)


class Memory(backend.KeyringBackend):  # type: ignore[misc,name-defined]
    """A keyring in this process, as the package has them for systems."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.error: Exception | None = None

    def get_password(self, service: str, username: str) -> str | None:
        if self.error is not None:
            raise self.error
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.error is not None:
            raise self.error
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise errors.PasswordDeleteError("there is none")


@pytest.fixture
def memory() -> Iterator[Memory]:
    before, made = keyring.get_keyring(), Memory()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


def test_a_mint_gives_a_secret_or_a_text() -> None:
    """Both come as a secret; the end of the first is kept."""
    vault = MintingVault({"a": lambda request: SECRET, "b": lambda request: Secret(SECRET, 7)})
    assert (vault.secret(ask("a")).value, vault.secret(ask("a")).expires_at) == (SECRET, None)
    assert (vault.secret(ask("b")).value, vault.secret(ask("b")).expires_at) == (SECRET, 7)
    assert vault.ids() == ["a", "b"]


@pytest.mark.parametrize("given", [None, 7, SECRET.encode(), "", " \n", "a\0b", "a\ud800b", "x" * 65_537])
def test_what_is_no_secret_is_refused(given: Any) -> None:
    """Neither the mint's nor the caller's; the error does not repeat it."""
    for make in (lambda: Secret(given), lambda: MintingVault({"a": lambda request: given}).secret(ask("a"))):
        with pytest.raises(InvalidInput) as caught:
            make()
        assert SECRET not in f"{caught.value} {caught.value.to_dict()}"


def test_a_mint_is_a_function_of_a_label() -> None:
    """All else is refused when the vault is made."""
    for mints in ({"a b": str}, {"": str}, {"a": SECRET}):
        with pytest.raises(InvalidInput) as caught:
            MintingVault(mints)  # type: ignore[arg-type]
        assert mints.get("a") is None or "function" in str(caught.value)


def test_an_unknown_id_names_the_nearest() -> None:
    """Of those that the vault can list."""
    with pytest.raises(NotFound, match="Did you mean prod-stripe"):
        MintingVault({"prod-stripe": lambda request: SECRET}).secret(ask("prod-strip"))


def test_the_keyring_keeps_them(memory: Memory) -> None:
    """Add, replace, list, give, remove; under a service of the vault's own."""
    vault = KeyringVault()
    assert vault.ids() == []
    vault.add("prod-stripe", "the former value")
    vault.add("prod-stripe", SECRET)
    vault.add("ci", "another value")
    assert vault.ids() == ["ci", "prod-stripe"]
    assert vault.secret(ask("prod-stripe")).value == SECRET
    assert {service for service, _ in memory.kept} == {"agentmem-vault"}
    vault.remove("prod-stripe")
    assert vault.ids() == ["ci"]
    assert SECRET not in repr(memory.kept)
    for call in (lambda: vault.secret(ask("prod-stripe")), lambda: vault.remove("prod-stripe")):
        with pytest.raises(NotFound):
            call()


def test_services_are_apart(memory: Memory) -> None:
    """A vault sees those of its service only, and its list is no credential."""
    KeyringVault("one").add("a", SECRET)
    with pytest.raises(NotFound):
        KeyringVault("two").secret(ask("a"))
    assert KeyringVault("two").ids() == []
    with pytest.raises(InvalidInput):
        KeyringVault("one").secret(ask("ids of all"))


def test_without_a_keyring_the_file_vault_is_named() -> None:
    """A machine without a desktop has none: that is no credential found, so that a chain goes on."""
    from keyring.backends import fail

    before = keyring.get_keyring()
    keyring.set_keyring(fail.Keyring())
    try:
        for call in (
            lambda: KeyringVault().secret(ask("a")),
            lambda: KeyringVault().add("a", SECRET),
            KeyringVault().ids,
        ):
            with pytest.raises(NotFound, match="FileVault") as caught:
                call()
            assert caught.value.__context__ is None
        chain = ChainVault([KeyringVault(), MintingVault({"a": lambda request: SECRET})])
        assert chain.secret(ask("a")).value == SECRET
    finally:
        keyring.set_keyring(before)


def test_a_locked_keyring_is_an_error(memory: Memory) -> None:
    """One that is there and fails ends a chain; what its backend raised, whose frames know the value, is not passed on."""
    chain = ChainVault([KeyringVault(), MintingVault({"a": lambda request: SECRET})])
    for error in (errors.KeyringLocked(f"locked {SECRET}"), RuntimeError(f"no bus {SECRET}")):
        memory.error = error
        for call in (lambda: chain.secret(ask("a")), lambda: KeyringVault().add("a", SECRET)):
            with pytest.raises(IoFailed, match="FileVault") as caught:
                call()
            found: AgentMemError = caught.value
            assert SECRET not in str(found)
            assert found.__context__ is None
            assert found.__cause__ is None


def test_without_the_extra_it_says_so() -> None:
    """The error names the extra, and that a FileVault needs none."""
    code = (
        "import sys; sys.modules['keyring'] = None\n"
        "from agentmem.harness.vault import KeyringVault\n"
        "try: KeyringVault().ids()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert MissingExtra.code in done.stdout
    assert "[keyring]" in done.stdout
    assert "FileVault" in done.stdout


def test_vaults_load_no_keyring_before_it_is_used() -> None:
    """Nor anything else that is heavy."""
    code = (
        "import sys, agentmem.harness.vault, agentmem.harness.grants, agentmem.harness.masking, agentmem.harness.file_vault\n"
        "print(*sorted({'keyring', 'yaml', 'mcp', 'asyncio', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_the_first_that_knows_an_id_gives_it() -> None:
    """In their order; an id that none knows is not found."""
    first = MintingVault({"a": lambda request: "value of the first"})
    chain = ChainVault([first, MintingVault({"a": lambda request: "hidden value", "b": lambda request: SECRET})])
    assert chain.secret(ask("a")).value == "value of the first"
    assert chain.secret(ask("b")).value == SECRET
    with pytest.raises(NotFound):
        chain.secret(ask("c"))
