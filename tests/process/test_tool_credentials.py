"""A credential on its way to a tool: the tool has it, and nothing that can be looked at does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentmem.errors import AgentMemError
from agentmem.harness.commands import command
from agentmem.harness.functions import tool
from agentmem.harness.toolset import Call, Tool

grants = pytest.importorskip("agentmem.harness.grants")
vault = pytest.importorskip("agentmem.harness.vault")

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="commands are tools on POSIX systems"),
    pytest.mark.timeout(120),
]

SECRET = "sk_live_51H8xWq+/="


def called(made: Tool, /, **input: Any) -> str:
    given = grants.Grants(vault.MintingVault({"prod": lambda request: SECRET})).grant("prod", tool=made.name, session=1)
    return made.run(Call(made.name, made.validated(input), 1, 2, "k", credential=given))


def test_a_program_reads_it_once_from_a_pipe() -> None:
    """In Python, and in a shell; whoever looks later finds the pipe empty."""
    script = (
        "import os\nfd = int(os.environ['AGENTMEM_CREDENTIAL_FD'])\n"
        "print(os.read(fd, 9999).decode())\nprint(os.read(fd, 9999) == b'')"
    )
    python = command("cmd", [sys.executable, "-c", script], description="", credential="prod")
    assert called(python) == f"{SECRET}\nTrue\n"
    shell = command(
        "cmd", ["bash", "-c", 'read -r T <&"$AGENTMEM_CREDENTIAL_FD"; echo "$T"'], description="", credential="prod"
    )
    assert called(shell) == f"{SECRET}\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_of_a_process_shows_it() -> None:
    """Neither the environment nor the arguments of the program, of those above it, nor its files or its pipe when read."""
    script = """
import glob, json, os
fd = int(os.environ["AGENTMEM_CREDENTIAL_FD"])
value = os.read(fd, 9999)
places = ["/proc/%d/%s" % (pid, name) for pid in (os.getpid(), os.getppid()) for name in ("environ", "cmdline")]
places += ["/proc/%d/fd/%d" % (os.getpid(), fd), *glob.glob(os.environ["HOME"] + "/**", recursive=True), *glob.glob("**")]
found = []
for place in places:
    if not os.path.isdir(place):
        with open(place, "rb") as file:
            if value in file.read():
                found.append(place)
print(json.dumps([len(value), len(places) > 4, found]))
"""
    made = command("cmd", [sys.executable, "-c", script], description="", credential="prod")
    assert json.loads(called(made)) == [len(SECRET), True, []]


def test_a_program_that_does_not_read_it_leaves_nothing_behind() -> None:
    """Nor one that is not there: the descriptors of the pipe are closed."""
    before = set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else set()
    assert called(command("cmd", ["true"], description="", credential="prod")) == ""
    with pytest.raises(AgentMemError):
        called(command("cmd", ["no-such-program"], description="", credential="prod"))
    if before:
        assert set(os.listdir("/proc/self/fd")) == before


def test_a_function_reveals_it_once() -> None:
    """The grant itself is no result, and shows nothing."""

    def pay(credential: grants.Credential) -> str:  # type: ignore[name-defined]
        first = credential.reveal() == SECRET
        with pytest.raises(AgentMemError):
            credential.reveal()
        return f"{first} {SECRET in repr(credential)}"

    pay.__annotations__["credential"] = grants.Credential
    assert called(tool(pay, credential="prod")) == "True False"

    def leak(call: Call) -> Any:
        return {"credential": call.credential}

    leak.__annotations__["call"] = Call
    with pytest.raises(AgentMemError) as raised:
        called(tool(leak, credential="prod"))
    assert SECRET not in str(raised.value)
