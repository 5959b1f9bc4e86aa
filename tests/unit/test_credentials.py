"""Credentials in what is written: a warning, refused, or masked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentmem import CredentialFound, NewNote, Store

KEY = b"k" * 32
# Made up, in the published forms.
SECRETS = {
    "GitHub token": "ghp_" + "a1B2" * 9,
    "AWS access key": "AKIA" + "ABCDEFGH12345678",
    "API key": "sk-ant-" + "x9Yz" * 8,
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlMTIz",
    "password in a URL": "postgres://app:hunter22@db.example/billing",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
    "secret": "api_key = 9f8e7d6c5b4a3210",
}


def opened(path: Path, **options: Any) -> Store:
    return Store.open(path / "s.db", project="p", key=KEY, **options)


@pytest.mark.parametrize("name", SECRETS)
def test_a_credential_is_warned_of_by_default(tmp_path: Path, name: str) -> None:
    """The text is kept verbatim and the answer names the form, never the value."""
    with opened(tmp_path) as store:
        done = store.notes.add("fact", "Found in the log", body=f"it says {SECRETS[name]} there")
        assert len(done.notices) == 1
        assert name in done.notices[0]
        assert SECRETS[name] not in done.notices[0]
        assert SECRETS[name] in store.notes.get(done).body


@pytest.mark.parametrize("name", SECRETS)
def test_a_store_may_refuse_it(tmp_path: Path, name: str) -> None:
    """Nothing is written, and the error does not repeat the value."""
    with opened(tmp_path, credentials="refuse") as store:
        with pytest.raises(CredentialFound) as caught:
            store.entities.put("host", "a", attrs={"note": {"deep": [SECRETS[name]]}})
        assert SECRETS[name] not in str(caught.value)
        assert store.log.head().seq == 0


@pytest.mark.parametrize("name", SECRETS)
def test_a_store_may_mask_it(tmp_path: Path, name: str) -> None:
    """What is written holds a mark in its place, in record and log alike."""
    with opened(tmp_path, credentials="mask") as store:
        store.notes.add_many([NewNote("fact", "Found", body=f"before {SECRETS[name]} after")])
        (note,) = store.notes.list(kind="fact")
        assert note.body.startswith(f"before [masked: {name}]")
        assert note.body.endswith(" after")
        assert SECRETS[name] not in note.body
        assert all(SECRETS[name] not in str(event.payload) for event in store.log.read())


def test_ordinary_text_is_left_alone(tmp_path: Path) -> None:
    """Names, hashes, paths and talk of passwords are no credentials."""
    with opened(tmp_path, credentials="refuse") as store:
        for number, text in enumerate(
            [
                "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 fixes it",
                "the password field is hidden; token: count_tokens(text)",
                "https://user@example.com/path and https://example.com:8443/x@y",
                "AKIA is a prefix, sk-learn a package, eyJ the start of base64",
                "password: (unknown)",
                "修复登录密码校验，密码：见保险库",
            ]
        ):
            store.notes.add("fact", f"Text {number}", body=text)
