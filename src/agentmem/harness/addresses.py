"""Which hosts a request may go to, and at which addresses: names by exact match, addresses after they were resolved.

A name that a request may use can still lead to an address inside the network, by mistake or by somebody's doing. So it is
resolved once, the addresses are checked, and the connection goes to one that was.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote

from attrs import frozen

from agentmem.errors import InvalidInput, ToolFailed, ToolTimeout, shown

__all__ = ["Address", "Origin", "Target", "connectable", "networks", "origin", "target"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORTS: Final = {"https": 443, "http": 80}
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*{_LABEL}", re.ASCII)
_URL: Final = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.ASCII | re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@]+)(?::([0-9]{1,5}))?", re.ASCII)
_ODD: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
_NUMERIC: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.ASCII)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_URL_CHARS: Final = 8192
_DECODES: Final = 5


@frozen
class Origin:
    """A host and port that requests may go to. `host` is in lower case, an address without brackets."""

    host: str
    port: int | None
    address: Address | None

    @property
    def loopback(self) -> bool:
        """Whether it is a literal address of this machine, where http does."""
        return self.address is not None and self.address.is_loopback


@frozen
class Target:
    """Where a URL leads: `path` begins with `/`, `query` is None where there is none."""

    scheme: str
    host: str
    port: int
    path: str
    query: str | None
    address: Address | None

    @property
    def asked(self) -> str:
        """The path and query, as a request line has them."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        """The host as the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def origin(text: object) -> Origin:
    """A host as a tool's author lists it: `api.example.com`, `api.example.com:8443`, `127.0.0.1:8080`, `[::1]`.

    Raises:
        InvalidInput: It is no name of one host and no address in its usual form.
    """
    found = _AUTHORITY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(
            f"The host {shown(text)} is none",
            why="It is one name or address, with a port if it has its own; no scheme, no *",
        )
    host, address = _host(found[1].lower())
    return Origin(host, None if found[2] is None else _port(found[2]), address)


def _host(text: str) -> tuple[str, Address | None]:
    """A host's name, or an address in the one form that is not mistaken for another."""
    bare = text.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        address = None
    if address is not None and (address.version == 6) == text.startswith("["):
        return str(address), address
    # 127.1, 0x7f000001 and 2130706433 are names to this, and addresses to what resolves them.
    if not _HOST.fullmatch(text) or _NUMERIC.fullmatch(text.rpartition(".")[2]):
        raise InvalidInput(
            f"The host {shown(text)} is none", why="It is a name in ASCII, or an address in its usual form"
        )
    return text, None


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65_535:
        raise InvalidInput(f"The port {text} is none", why="It is a number from 1 to 65535")
    return port


def target(url: object, origins: Sequence[Origin]) -> Target:
    """Where a URL leads, if that is listed.

    Raises:
        InvalidInput: It is no URL, holds a user, steps out of its path, or leads to a host that is not listed.
    """
    if not isinstance(url, str) or len(url) > _URL_CHARS:
        raise InvalidInput(f"The url is {shown(url)}", why=f"It is text of at most {_URL_CHARS} characters")
    odd = _ODD.search(url)
    found = _URL.fullmatch(url)
    if odd is not None or found is None:
        why = f"It holds U+{ord(odd[0]):04X}" if odd else "It begins with https:// and a host"
        raise InvalidInput(f"The url is {shown(url)}", why=why, next="Write odd characters as %20")
    authority = _AUTHORITY.fullmatch(found[2])
    if authority is None:
        raise InvalidInput(f"The url is {shown(url)}", why="Its host is none, or it holds a user")
    scheme = found[1].lower()
    host, address = _host(authority[1].lower())
    port = _PORTS[scheme] if authority[2] is None else _port(authority[2])
    listed = next((each for each in origins if each.host == host and (each.port or _PORTS[scheme]) == port), None)
    if listed is None:
        names = ", ".join(f"{each.host}:{each.port}" if each.port else each.host for each in origins)
        raise InvalidInput(f"{shown(host)} at port {port} is not a host of this tool", next=f"It reaches {names}")
    if scheme == "http" and not listed.loopback:
        raise InvalidInput(f"{shown(url)} is not encrypted", next="Begin with https://")
    return Target(
        scheme, host, port, _path(_quoted(found[3]) or "/"), None if found[4] is None else _quoted(found[4]), address
    )


def _quoted(text: str) -> str:
    return "".join(each if each.isascii() else "".join(f"%{byte:02X}" for byte in each.encode()) for each in text)


def _path(path: str) -> str:
    """A path that stays below where it seems to be, also for a server that decodes it more than once."""
    decoded = path
    for _ in range(_DECODES):
        segments = [each.partition(";")[0] for each in decoded.replace("\\", "/").split("/")]
        if "." in segments or ".." in segments:
            raise InvalidInput(f"The path {shown(path)} holds a step up", next="Write the path it leads to")
        again = unquote(decoded, errors="replace")
        if again == decoded:
            return path
        decoded = again
    raise InvalidInput(f"The path {shown(path)} is encoded too many times", next="Encode odd characters once, as %20")


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks that are inside and may be reached all the same: `10.0.0.0/8`.

    Raises:
        InvalidInput: One is none.
    """
    try:
        return tuple(ipaddress.ip_network(each) for each in texts)
    except (TypeError, ValueError) as error:
        raise InvalidInput("A network is none", why=str(error), next="Write it as 10.0.0.0/8") from None


def connectable(place: Target, allowed: Sequence[Network], deadline: float) -> list[Address]:
    """The addresses of a host that a connection may go to, in the order of the resolver.

    Args:
        place: Its host is listed.
        allowed: Networks that may be reached although they are inside.
        deadline: By the monotonic clock.

    Raises:
        ToolFailed: It has none.
        ToolTimeout: The resolver took too long.
    """
    if place.address is not None:
        return [place.address]  # it is listed as just this
    found = _resolved(place.host, place.port, deadline)
    kept = [
        each for each in found if _outside(each) or any(each.version == net.version and each in net for net in allowed)
    ]
    if not kept:
        raise ToolFailed(
            f"{place.host} leads to an address inside the network",
            why="Such addresses are reached only where the tool lists them",
            next="Whoever made the tool can list them in networks=",
        )
    return kept


def _resolved(host: str, port: int, deadline: float) -> list[Address]:
    """The addresses of a name. The resolver has no time limit of its own, so it works in a thread that may be left behind."""
    found: list[Address] = []
    problems: list[str] = []
    over = threading.Event()

    def work() -> None:
        try:
            for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.append(ipaddress.ip_address(str(place[0]).partition("%")[0]))
        except (OSError, ValueError, UnicodeError) as error:
            problems.append(getattr(error, "strerror", None) or str(error))
        finally:
            over.set()

    threading.Thread(target=work, name="agentmem-resolve", daemon=True).start()
    if not over.wait(max(0.0, deadline - time.monotonic())):
        raise ToolTimeout(f"{host} was not resolved in time", next="Try again later")
    if problems or not found:
        raise ToolFailed(f"{host} was not found", why="".join(problems))
    return list(dict.fromkeys(found))


def _outside(address: Address) -> bool:
    """Whether an address is one of the public internet, also where it wraps another."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if any(each is not None and not _outside(each) for each in inner):
            return False
        if address.ipv4_mapped is not None:
            return True
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
