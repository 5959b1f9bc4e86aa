"""A tool that tries to leak its credential in many ways: nothing of it reaches the log, the file, the model or a process."""

from __future__ import annotations

import base64
import html
import json
import os
import sys
import textwrap
import traceback
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmem import Store
from agentmem.harness import Credential, Harness, MintingVault, Reply, ToolCall, command, tool
from agentmem.harness.request import ModelRequest
from agentmem.harness.toolset import Call
from agentmem.log.canonical import canonical

SECRET = "sk_live_51H8xWq+/=Zz0 é"

LEAKS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: f"the key is {secret}, use it",
    "base64": lambda secret: base64.b64encode(f"user:{secret}".encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(f"{secret}!".encode()).decode().rstrip("="),
    "hex": lambda secret: secret.encode().hex(),
    "HEX with colons": lambda secret: ":".join(f"{byte:02X}" for byte in secret.encode()),
    "URL": lambda secret: f"https://example.com/?key={urllib.parse.quote(secret, safe='')}",
    "form": lambda secret: urllib.parse.urlencode({"key": secret}),
    "JSON": lambda secret: json.dumps({"key": secret}),
    "escapes": lambda secret: "".join(f"\\u{ord(character):04x}" for character in secret),
    "HTML": lambda secret: f"<b>{html.escape(secret)}</b>",
    "lines": lambda secret: "\n".join(textwrap.wrap(secret, 5, drop_whitespace=False)),
    "lines of base64": lambda secret: base64.encodebytes((secret * 9).encode()).decode(),
    "a letter a line": "\n".join,
}


def undone(text: str) -> str:
    """All that a reader would try on a text."""
    found = [text, "".join(text.split()), urllib.parse.unquote_plus(text), html.unescape(text)]
    for piece in list(found):
        for part in piece.replace(":", "").replace("-", "+").replace("_", "/").split('"'):
            for skip in range(4):
                for decode in (bytes.fromhex, lambda data: base64.b64decode(data + "==")):
                    try:
                        found.append(decode(part[skip:]).decode("utf-8", "replace"))
                    except ValueError:
                        continue
    return "\n".join(found)


def everything(store: Store, path: Path) -> str:
    """All that is stored: each payload, each table, as text."""
    with store.database.read() as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        kept = [name for name in tables if not name.startswith("search_")]
        rows = [repr(row) for name in kept for row in connection.execute(f"SELECT * FROM {name}")]
    return "\n".join(rows)


@pytest.mark.parametrize("way", [*LEAKS, "exception", "repr", "traceback", "note", "output of a program"])
def test_nothing_of_a_credential_is_kept(store: Store, path: Path, way: str) -> None:
    """Neither where it was put, nor in the session, nor in what the model is asked with next."""
    seen: list[str] = []

    @tool(credential="prod")
    def leak(credential: Credential, asked: Call) -> str:
        """Try to leak."""
        if way == "repr":
            return f"{credential!r} {credential} {vars(type(credential)).get('value')}"
        secret = credential.reveal()
        match way:
            case "exception":
                raise ValueError(f"401 for {secret}", secret)
            case "traceback":
                try:
                    raise KeyError(secret)
                except KeyError:
                    return traceback.format_exc()
            case "note":
                note = asked.store.notes.add("fact", f"The key is {secret}", tags=["key"])
                asked.store.sessions.get(asked.session).append("x.note", {secret: [secret]}, key="k")
                return f"#{note.id}"
            case _:
                return LEAKS[way](secret)

    script = (
        "import os, base64; s = os.read(int(os.environ['AGENTMEM_CREDENTIAL_FD']), 9999); print(s, base64.b64encode(s))"
    )
    program = command("leak", [sys.executable, "-c", script], description="Leak", credential="prod")

    def model(request: ModelRequest) -> Reply:
        seen.append(repr(request) + request.window.text + canonical([event.body for event in request.window.events]))
        if request.turn > 1:
            # A model that was told it all the same must not write it down again.
            again = Reply.of(f"done, with {SECRET}", ToolCall("nothing", {"key": SECRET}))
            return again if request.turn == 2 else Reply.of("end")
        return Reply.of("", ToolCall("leak"))

    session = store.sessions.start()
    session.append("user.message", "go")
    vault = MintingVault({"prod": lambda request: SECRET})
    tools = [program if way == "output of a program" else leak]
    woken = Harness(store, model, tools, vault=vault, retries=0).wake(session)
    assert woken.stop_reason == "end_turn"
    grants = session.events(types=("agentmem.grant",))
    assert [event.body["credential_id"] for event in grants if event.body] == ["prod"]
    results = session.events(types=("agent.tool_result",))
    assert way in ("repr", "note") or any("[masked: prod]" in event.text for event in results)
    for text in (everything(store, path), *seen[:2], *(event.text for event in session.events())):
        assert SECRET not in text
        assert SECRET not in undone(text)
        assert SECRET.encode().hex() not in text.lower()
    assert SECRET not in repr(dict(os.environ))
    assert store.verify(replay=True)


def test_a_vault_that_fails_is_a_result(store: Store) -> None:
    """A credential that it has not, or an error of a mint, is told to the model; nothing is run."""

    @tool(credential="other")
    def use(credential: Credential) -> str:
        """Use it."""
        return credential.reveal()

    def model(request: ModelRequest) -> Any:
        return Reply.of("", ToolCall("use")) if request.turn == 1 else "end"

    session = store.sessions.start()
    session.append("user.message", "go")
    Harness(store, model, [use], vault=MintingVault({"prod": lambda request: SECRET})).wake(session)
    (result,) = session.events(types=("agent.tool_result",))
    assert "has no credential 'other'" in result.text
    assert not session.events(types=("agentmem.tool_started",))
