"""What an http tool may be, and where its requests may go: hosts by their exact name, addresses once they are resolved."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.errors import InvalidInput, ToolFailed, ToolTimeout
from agentmem.harness import addresses
from agentmem.harness.addresses import connectable, networks, origin, target
from agentmem.harness.grants import Credential
from agentmem.harness.http import http_tool
from agentmem.harness.toolset import Call, Tool
from agentmem.harness.vault import Secret

pytestmark = pytest.mark.timeout(120)


def made(**options: Any) -> Tool:
    return http_tool(hosts=["api.example.com"], **options)


def called(tool: Tool, url: str, *, grant: Credential | None = None, seconds: float = 60.0) -> str:
    call = Call(tool.name, tool.validated({"url": url}), 1, 2, "k", credential=grant, seconds=seconds)
    return tool.run(call)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/",
        "https://api.example.com.evil.example/",
        "https://evil.example/api.example.com",
        "https://evil.example#@api.example.com/",
        "https://api.example.com@evil.example/",
        "https://api.example.com:443@evil.example/",
        "https://evil.example\\@api.example.com/",
        "https://api.example.com\\.evil.example/",
        "https://api.example.com./",
        "https://sub.api.example.com/",
        "https://api.example.com:8443/",
        "https://api.example.com:99999/",
        "https://api.example.com:/",
        "https://api.example.com%2eevil.example/",
        "https://аpi.example.com/",
        "https://api。example。com/",
        "http://api.example.com/",
        "http://api.example.com:443/",
        "ftp://api.example.com/",
        "file:///etc/passwd",
        "file://api.example.com/etc/passwd",
        "//api.example.com/",
        "/v1",
        "",
        "https:///v1",
        "https://",
        "https:api.example.com",
        " https://api.example.com/",
        "https://api.example.com/\r\nX-Evil: 1",
        "https://api.example.com/a b",
        "https://api.exam\tple.com/",
        "https://api.example.com/\0",
        "https://api.example.com/" + "a" * 9000,
        "gopher://api.example.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://017700000001/",
        "https://127.1/",
        "https://localhost/",
        "https://[::ffff:127.0.0.1]/",
        "https://169.254.169.254/latest/meta-data",
    ],
)
def test_only_the_listed_hosts_are_reached(url: str) -> None:
    """By exact name and port, whatever the URL tries; nothing is resolved or sent."""
    with pytest.raises(InvalidInput):
        called(made(), url)


@pytest.mark.parametrize(
    "host",
    ["", "*", "*.example.com", "https://example.com", "a.com/b", "a b", "127.1", "0x7f.1", "u@a.com", "a.com:0", "a.com:x",
     "::1", "[::1", "-a.com", "a..com", "a.com.", "bücher.de", None, 3],
)  # fmt: skip
def test_a_host_that_is_none_is_refused_when_the_tool_is_made(host: Any) -> None:
    """No patterns, no schemes, no odd spellings of addresses."""
    with pytest.raises(InvalidInput):
        http_tool(hosts=[host])
    with pytest.raises(InvalidInput):
        http_tool(hosts=[])
    with pytest.raises(InvalidInput):
        http_tool(hosts="api.example.com")


@given(st.text(alphabet="htps:/@.#?\\[]%aeipx.com0127 \n\t8443", max_size=40).map(lambda text: f"https://{text}"))
def test_no_url_leads_elsewhere(url: str) -> None:
    """Whatever is accepted is the listed host and port, by a reading that is not ours too."""
    from urllib.parse import urlsplit

    try:
        found = target(url, [origin("api.com"), origin("x.com:8443")])
    except InvalidInput:
        return
    split = urlsplit(url)
    assert (found.host, found.port) in {("api.com", 443), ("x.com", 8443)}
    assert (split.hostname, split.port or 443) == (found.host, found.port)
    assert split.username is None


INSIDE = [
    "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::1", "2001:0:a00:1::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_a_name_that_leads_inside_is_refused(resolver: Callable[..., list[str]], address: str) -> None:
    """By every form of an address inside, also one that wraps another."""
    resolver(address)
    grant = Credential("c", Secret("secret"), scope={}, expires_at=2**62)
    with pytest.raises(ToolFailed, match="inside the network"):
        called(made(credential="c"), "https://api.example.com/", grant=grant)
    assert grant.reveal() == "secret"


def test_addresses_outside_are_kept_and_those_inside_left_out(resolver: Callable[..., list[str]]) -> None:
    """In the resolver's order; what the author lists is reached."""
    resolver("10.0.0.1", "93.184.216.34", "2606:4700::1111", "93.184.216.34")
    place = target("https://api.example.com/", [origin("api.example.com")])
    later = time.monotonic() + 60
    assert [str(each) for each in connectable(place, (), later)] == ["93.184.216.34", "2606:4700::1111"]
    within = networks(["10.0.0.0/8", "fd00::/8"])
    assert str(connectable(place, within, later)[0]) == "10.0.0.1"


def test_a_resolver_that_hangs_or_fails_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver has no time limit; the call has."""
    over = threading.Event()

    def hang(*_: Any, **__: Any) -> Any:
        over.wait(60)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(addresses.socket, "getaddrinfo", hang)
    with pytest.raises(ToolTimeout, match="not resolved in time"):
        called(made(), "https://api.example.com/", seconds=0.1)
    over.set()
    with pytest.raises(ToolFailed, match="was not found"):
        called(made(), "https://api.example.com/")


def test_every_listed_origin_is_one_address_or_name() -> None:
    """An address stands in its usual form, with brackets where it has colons."""
    assert origin("[0:0:0:0:0:0:0:1]:80").host == "::1"
    assert origin("API.Example.com").host == "api.example.com"
    assert origin("127.0.0.1").address == ipaddress.ip_address("127.0.0.1")
    assert target("http://[::1]/", [origin("[::1]")]).authority == "[::1]"


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Authorization": "Bearer x"}}, {"headers": {"Host": "x"}}, {"headers": {"X": "a\r\nb"}},
        {"headers": {"a b": "x"}}, {"headers": {"X-Key": "x"}, "header": "x-key", "credential": "c"},
        {"header": "Host", "credential": "c"}, {"key_header": "a\nb"}, {"scope": {"paths": ["v1"]}},
        {"scope": {"paths": ["/a/../b"]}}, {"scope": {"paths": []}}, {"networks": ["10.0.0.1/8"]}, {"networks": [3.5]},
    ],
)  # fmt: skip
def test_a_setting_that_cannot_hold_is_refused_when_the_tool_is_made(options: dict[str, Any]) -> None:
    """A secret in a fixed header would be in the program's text."""
    with pytest.raises(InvalidInput):
        made(**options)


def test_the_methods_bind() -> None:
    """Those of the tool, within those of the scope; the schema says which."""
    tool = made(methods=["GET", "DELETE"], scope={"methods": ["GET"]})
    assert tool.schema["properties"]["method"]["enum"] == ["GET"]
    assert "body" not in tool.schema["properties"]
    with pytest.raises(InvalidInput):
        tool.validated({"url": "https://api.example.com/", "method": "DELETE"})
    for wrong in (["get"], ["TRACE"], ["CONNECT"], [], "GET"):
        with pytest.raises(InvalidInput):
            made(methods=wrong)
    with pytest.raises(InvalidInput, match="no method"):
        made(methods=["GET"], scope={"methods": ["POST"]})
