"""A tool that makes HTTP requests, to which the harness attaches the credential: the model never sees it.

It is what binds the scope of a static secret: the hosts, methods and paths that are listed are the only ones it is sent to.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from agentmem.errors import InvalidInput, ToolFailed, shown
from agentmem.harness.addresses import Address, Network, Origin, Target, connectable, origin, target
from agentmem.harness.addresses import networks as within
from agentmem.harness.toolset import Call, Permission, Tool
from agentmem.records.validate import did_you_mean, whole
from agentmem.types import Json

if TYPE_CHECKING:
    import ssl

    from agentmem.harness.exchange import Answer
    from agentmem.harness.grants import Credential

__all__ = ["http_tool"]

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?|", re.ASCII)
_ASKED: Final = (
    "Accept", "Accept-Language", "Content-Type", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
    "Prefer", "Range",
)  # fmt: skip
_SHOWN: Final = (
    "Content-Type", "Content-Range", "ETag", "Last-Modified", "Link", "Location", "Retry-After", "X-Request-Id",
    "X-RateLimit-Remaining", "X-RateLimit-Reset",
)  # fmt: skip
# They frame the request or name its receiver; whoever sets them could send another than the one that was checked.
_NEVER: Final = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive",
    "proxy-authorization", "proxy-connection", "forwarded", "x-forwarded-host", "x-http-method", "x-http-method-override",
    "x-method-override", "x-original-url", "x-rewrite-url",
})  # fmt: skip
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HOPS: Final = 5
_BYTES_MAX: Final = 64 * 1024 * 1024
_SHOWN_VALUE_CHARS: Final = 1000
_CHARSETS: Final = frozenset({
    "utf-8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "windows-1252", "shift_jis", "gb18030", "gbk",
})  # fmt: skip


def http_tool(
    name: str = "http",
    *,
    hosts: Sequence[str],
    methods: Sequence[str] = ("GET",),
    description: str | None = None,
    credential: str | None = None,
    header: str = "Authorization",
    scheme: str = "Bearer ",
    scope: Mapping[str, Json] | None = None,
    headers: Mapping[str, str] | None = None,
    key_header: str | None = None,
    networks: Sequence[str] = (),
    tls: ssl.SSLContext | None = None,
    request_bytes: int = 1024 * 1024,
    response_bytes: int = 200_000,
    idempotent: bool | None = None,
    permission: Permission = "allow",
    seconds: float = 60.0,
    parallel: bool = True,
    expires: int | None = None,
    output_chars: int = 210_000,
) -> Tool:
    """A tool that makes requests to listed hosts, with a credential that only they get.

    Requests are https; http only to a literal address of this machine. A redirect is followed, for GET and HEAD, where it
    stays at its host and within the scope; any other is the result. Proxies of the environment are not used. A name that
    leads to an address inside the network is refused, unless `networks` lists it.

    The result is the status line, some of the headers, a blank line and the body. A status like 404 is a result as well.

    Args:
        name: The tool's name.
        hosts: Exact ones, with a port if it is not the usual: `api.example.com`, `127.0.0.1:8080`.
        methods: The methods it may use.
        description: What the model is told; by default what it can reach.
        credential: The id of the credential that is attached.
        header: The header that carries it.
        scheme: What stands before it there.
        scope: What the grant is for. `{"paths": ["/v1/charges"]}` binds the paths to these and those beneath them, and
            `{"methods": [...]}` the methods further.
        headers: Fixed ones of each request.
        key_header: A header that carries the idempotency key, for APIs that know one; then the tool is idempotent.
        networks: Networks inside that its hosts may lead to: `10.0.0.0/8`.
        tls: How TLS is done; by default with the system's certificates.
        request_bytes: The most that a body has.
        response_bytes: Of a response's body that are kept.
        idempotent: Whether twice is as good as once; by default where all methods only read, or `key_header` is given.
        permission: `ask` waits for a person's approval of each call.
        seconds: The time a call has, with all redirects.
        parallel: Whether it may run beside others.
        expires: The seconds that a request for approval waits, None for ever.
        output_chars: The characters of its result that are kept.

    Raises:
        InvalidInput: A host, method, header, path or network that is none.
    """
    bound = _Bound.of(scope or {}, methods)
    origins = tuple(origin(each) for each in _listed(hosts, "hosts"))
    fixed = _fixed(headers or {}, header if credential is not None else None, key_header)
    run = _Http(
        credential is not None, origins, bound, fixed, header, scheme, key_header, within(networks), tls,
        whole(request_bytes, "request_bytes", 0, _BYTES_MAX), whole(response_bytes, "response_bytes", 1, _BYTES_MAX),
    )  # fmt: skip
    return Tool(
        name=name,
        description=description if description is not None else _description(origins, bound),
        schema=_schema(bound),
        run=run,
        idempotent=(key_header is not None or set(bound.methods) <= _SAFE) if idempotent is None else idempotent,
        permission=permission,
        credential=credential,
        scope={**(scope or {}), "hosts": list(hosts), "methods": list(bound.methods)},
        seconds=seconds,
        parallel=parallel,
        expires=expires,
        output_chars=output_chars,
    )


def _listed(values: object, name: str) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise InvalidInput(f"{name} is {shown(values)}", why="It is a list that is not empty")
    return list(values)


def _fixed(headers: Mapping[str, str], secret: str | None, key: str | None) -> dict[str, str]:
    for each in (*headers, *filter(None, (secret, key))):
        if not isinstance(each, str) or not _TOKEN.fullmatch(each) or each.lower() in _NEVER:
            raise InvalidInput(
                f"The header {shown(each)} can't be set",
                why="It is no name of one, or it frames or redirects the request",
            )
    for each, value in headers.items():
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise InvalidInput(f"The header {each} has a value that is none", why="It is one line of ASCII")
        if each.lower() in _SECRET_HEADERS or (secret is not None and each.lower() == secret.lower()):
            raise InvalidInput(
                f"The header {each} is fixed", next="Keep what it carries in the vault, and give credential="
            )
    return dict(headers)


@frozen
class _Bound:
    """What a scope binds requests to. No paths means all."""

    methods: tuple[str, ...]
    paths: tuple[str, ...]

    @staticmethod
    def of(scope: Mapping[str, Any], methods: Sequence[str]) -> _Bound:
        """The bounds of a scope within given methods.

        Raises:
            InvalidInput: A method or a path is none, or no method is left.
        """
        for each in (*_listed(methods, "methods"), *scope.get("methods", ())):
            if each not in _METHODS:
                raise InvalidInput(f"The method {shown(each)} is none of {', '.join(_METHODS)}")
        kept = tuple(each for each in dict.fromkeys(methods) if each in scope.get("methods", methods))
        paths = tuple(_listed(scope["paths"], "paths")) if "paths" in scope else ()
        for path in paths:
            if not isinstance(path, str) or not path.startswith("/") or re.search(r"[?#\s]|/\.\.?(/|$)", path):
                raise InvalidInput(f"The path {shown(path)} is none", why="It begins with / and holds no query")
        if not kept:
            raise InvalidInput(
                "The scope leaves no method",
                why=f"The tool has {', '.join(methods)}",
                next="Name one of them in the scope",
            )
        return _Bound(kept, paths)

    def check(self, method: str, path: str) -> None:
        """Refuse what is outside.

        Raises:
            InvalidInput: The method or the path is.
        """
        if method not in self.methods:
            raise InvalidInput(
                f"The method {shown(method)} is not for this tool", next=f"It has {', '.join(self.methods)}"
            )
        if self.paths and not any(path == each or path.startswith(each.rstrip("/") + "/") for each in self.paths):
            raise InvalidInput(
                f"The path {shown(path)} is not for this tool", next=f"It reaches {', '.join(self.paths)}"
            )


def _description(origins: Sequence[Origin], bound: _Bound) -> str:
    hosts = ", ".join(f"{each.host}:{each.port}" if each.port else each.host for each in origins)
    below = f", at the paths {', '.join(bound.paths)}" if bound.paths else ""
    return f"Make an HTTP request to {hosts}{below}. Authentication is attached where it is due."


def _schema(bound: _Bound) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "method": {"type": "string", "enum": list(bound.methods), "default": bound.methods[0]},
        "url": {"type": "string", "description": "The whole URL, with its query"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}, "description": ", ".join(_ASKED)},
    }
    if not set(bound.methods) <= _SAFE:
        properties["body"] = {"type": "string", "description": "A body of text; say its Content-Type in headers"}
        properties["json"] = {"description": "A body of JSON, in place of body"}
    return {"type": "object", "properties": properties, "required": ["url"], "additionalProperties": False}


@frozen(repr=False, eq=False)
class _Sent:
    """What is sent but for the credential, and what it is bound to."""

    place: Target
    method: str
    headers: dict[str, str]
    body: bytes | None
    bounds: Sequence[_Bound]
    deadline: float


@frozen(eq=False)
class _Http:
    """What runs the tool."""

    granted: bool
    origins: tuple[Origin, ...]
    bound: _Bound
    fixed: dict[str, str]
    header: str
    scheme: str
    key_header: str | None
    networks: tuple[Network, ...]
    tls: ssl.SSLContext | None
    request_bytes: int
    response_bytes: int

    def __call__(self, call: Call) -> str:
        deadline = time.monotonic() + call.seconds
        if self.granted and call.credential is None:
            raise ToolFailed(f"{call.tool} was given no credential", next="Run it with a vault that has it")
        bounds = [self.bound, *_granted_bounds(call.credential, self.bound)]
        method = call.input.get("method", self.bound.methods[0])
        place = target(call.input["url"], self.origins)
        for each in bounds:
            each.check(method, place.path)
        body, kind = self._body(call.input)
        headers = self._headers(place, call, body, kind)
        sent = _Sent(place, method, headers, body, bounds, deadline)
        answer = self._answered(sent, call, connectable(place, self.networks, deadline))
        if isinstance(answer, ToolFailed):
            raise answer
        return _told(answer, method)

    def _body(self, input: Mapping[str, Any]) -> tuple[bytes | None, str | None]:
        if "json" in input and "body" in input:
            raise InvalidInput("The request has both body and json", next="Give one of them")
        body: bytes | None = None
        kind: str | None = None
        if "json" in input:
            body, kind = json.dumps(input["json"], ensure_ascii=False).encode(), "application/json"
        elif "body" in input:
            body, kind = input["body"].encode(), "text/plain; charset=utf-8"
        if body is not None and len(body) > self.request_bytes:
            raise InvalidInput(
                f"The body has {len(body)} bytes, {self.request_bytes} at most", next="Send less at once"
            )
        return body, kind

    def _headers(self, place: Target, call: Call, body: bytes | None, kind: str | None) -> dict[str, str]:
        """The headers of the request but for the credential; those of the model are of a closed set."""
        asked: dict[str, str] = {}
        for name, value in call.input.get("headers", {}).items():
            known = next((each for each in _ASKED if each.lower() == name.lower()), None)
            if known is None or known in asked:
                raise InvalidInput(
                    f"The header {shown(name)} can't be given",
                    next=f"{did_you_mean(name, _ASKED)} There are {', '.join(_ASKED)}".lstrip(),
                )
            if not _VALUE.fullmatch(value):
                raise InvalidInput(f"The header {known} is {shown(value)}", why="It is one line of ASCII")
            asked[known] = value
        found = {"User-Agent": "agentmem", "Accept-Encoding": "identity"} | ({"Content-Type": kind} if kind else {})
        found |= asked
        for name, value in self.fixed.items():
            found = {each: given for each, given in found.items() if each.lower() != name.lower()} | {name: value}
        if self.key_header is not None:
            found[self.key_header] = call.key
        length = {} if body is None else {"Content-Length": str(len(body))}
        return {"Host": place.authority, **found, **length, "Connection": "close"}

    def _answered(self, sent: _Sent, call: Call, addresses: Sequence[Address]) -> Answer | ToolFailed:
        """Send it, with the credential, and follow redirects that stay. Raises nothing: this frame knows the secret."""
        import ssl

        from agentmem.harness.exchange import exchange

        place, headers = sent.place, sent.headers
        if call.credential is not None:
            value = f"{self.scheme}{call.credential.reveal()}"
            if not _VALUE.fullmatch(value):
                return ToolFailed("The credential can't stand in a header", why="It is not one line of ASCII")
            headers = {**headers, self.header: value}
        context = self.tls or ssl.create_default_context()
        for _ in range(_HOPS):
            answer = exchange(
                place, addresses, sent.method, headers, sent.body,
                context=context, most=self.response_bytes, deadline=sent.deadline, cancelled=call.cancelled,
            )  # fmt: skip
            if isinstance(answer, ToolFailed) or sent.method not in ("GET", "HEAD"):
                return answer
            after = self._redirected(place, answer, sent)
            if after is None:
                return answer
            place = after
        return answer

    def _redirected(self, place: Target, answer: Answer, sent: _Sent) -> Target | None:
        """Where a redirect leads that may be followed: to the same host and port, within the bounds."""
        from urllib.parse import urljoin

        location = answer.header("Location")
        if answer.status not in _REDIRECTS or location is None:
            return None
        try:
            after = target(urljoin(f"{place.scheme}://{place.authority}{place.asked}", location), self.origins)
            for each in sent.bounds:
                each.check(sent.method, after.path)
        except (InvalidInput, ValueError):
            return None
        same = (after.scheme, after.host, after.port) == (place.scheme, place.host, place.port)
        return after if same else None


def _granted_bounds(credential: Credential | None, bound: _Bound) -> list[_Bound]:
    """The bounds of the grant itself, which may be closer than the tool's."""
    scope: Mapping[str, Any] = {} if credential is None else credential.scope
    return [_Bound.of(scope, bound.methods)] if scope else []


def _told(answer: Answer, method: str) -> str:
    """The result. A body that was cut is cut at the end of the text, where what masks secrets looks for parts of one."""
    lines = [f"HTTP {answer.status} {answer.reason}".rstrip()]
    for name in _SHOWN:
        lines += [
            f"{name}: {value[:_SHOWN_VALUE_CHARS]}" for key, value in answer.headers if key.lower() == name.lower()
        ]
    if not answer.whole:
        lines.append(f"[the first {len(answer.body)} bytes of the body]")
    text = "" if method == "HEAD" else _text(answer)
    return "\n".join(lines) + (f"\n\n{text}" if text else "")


def _text(answer: Answer) -> str:
    encoding = answer.header("Content-Encoding")
    if encoding is not None and encoding.lower() != "identity":
        return f"[{len(answer.body)} bytes, {shown(encoding)}]"
    if b"\0" in answer.body:
        return f"[{len(answer.body)} bytes that are no text]"
    found = re.search(r"charset=\"?([\w.:-]+)", answer.header("Content-Type") or "", re.ASCII)
    charset = found[1].lower() if found else "utf-8"
    text = answer.body.decode(charset if charset in _CHARSETS else "utf-8", "replace")
    return text.rstrip("\ufffd") if not answer.whole else text
