"""Credentials in text that is being written: recognised by their published forms.

A memory is read next to instructions and may be exported: a credential in it is a leak waiting to
happen. What is recognised has a fixed prefix or an unmistakable shape; a plain password in a sentence
is not.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, TypeAlias

from agentmem.errors import CredentialFound
from agentmem.log.canonical import canonical, plain

Policy: TypeAlias = Literal["warn", "refuse", "mask"]
POLICIES: Final = ("warn", "refuse", "mask")

_FORMS: Final = {
    "private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?:[\s\S]*?-----END (?:[A-Z]+ )*PRIVATE KEY-----)?",
    "AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9_]{22,255}\b",
    "GitLab token": r"\bglpat-[A-Za-z0-9_\-]{20,}",
    "Slack token": r"\bxox[abeprs]-[A-Za-z0-9\-]{10,}",
    "Google API key": r"\bAIza[0-9A-Za-z_\-]{35}",
    "API key": r"\bsk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_\-]{24,}",
    "Stripe key": r"\b[rs]k_live_[0-9A-Za-z]{16,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "PyPI token": r"\bpypi-AgE[A-Za-z0-9_\-]{40,}",
    "JSON web token": r"\beyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}",
    "password in a URL": r"\b[a-z][a-z0-9+.\-]{1,20}://[^\s/:@]{1,100}:[^\s/@]{3,100}@(?=[A-Za-z0-9\[])",
    "secret": r"(?i:\b(?:password|passwd|secret|api[_\-]?key|access[_\-]?token)\b[\"']?\s{0,3}[=:]\s{0,3}[\"']?)"
    r"(?=[^\s\"']{0,60}\d)(?=[^\s\"']{0,60}[A-Za-z])[^\s\"'<>{}$]{10,200}",
}
_NAMES: Final = tuple(_FORMS)
_ANY: Final = re.compile("|".join(f"({form})" for form in _FORMS.values()))
_SHORTEST: Final = 14
# One of these, case folded, stands in whatever a form matches: text without them, nearly all, is done in two microseconds.
_HINTS: Final = (
    "-----begin", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "aiza", "sk-",
    "k_live_", "npm_", "pypi-", "eyj", "://", "password", "passwd", "secret", "apikey", "api_key", "api-key",
    "accesstoken", "access_token", "access-token",
)  # fmt: skip


def screened(payload: dict[str, Any], policy: Policy) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A payload as it may be written, and the forms of credential found in it.

    With `mask` each one is replaced by `[masked: …]`.

    Raises:
        CredentialFound: There is one and the policy is `refuse`. The error does not repeat it.
    """
    found: dict[str, None] = {}
    mask = policy == "mask"
    kept = {
        name: _screen_state(part, found, mask=mask) if name == "state" else _screen(part, found, mask=mask)
        for name, part in payload.items()
    }
    if not found:
        return payload, ()
    if policy == "refuse":
        raise CredentialFound(
            f"The text holds what looks like a credential: {', '.join(found)}",
            why="This store is opened with credentials='refuse'",
            next="Write where it is kept instead of what it is",
        )
    return (kept if policy == "mask" else payload), tuple(found)


def _screen(value: Any, found: dict[str, None], *, mask: bool) -> Any:
    kind = type(value)
    if kind is str:
        if len(value) < _SHORTEST or not _hinted(value) or _ANY.search(value) is None:
            return value
        return _ANY.sub(lambda match: _noted(match, found, mask=mask), value)
    if kind is dict:
        return {_screen(name, found, mask=mask): _screen(part, found, mask=mask) for name, part in value.items()}
    if kind is list or kind is tuple:
        return [_screen(part, found, mask=mask) for part in value]
    return value


# Columns of a stated record that hold JSON as text; of a mark, the place of its value.
_JSON_COLUMNS: Final = ("attrs", "tags", "scope", "names")
_MARK_VALUE: Final = 1


def _screen_state(state: dict[str, Any], found: dict[str, None], *, mask: bool) -> dict[str, Any]:
    """A stated record, its columns of JSON screened value by value: masked as text they would be no JSON any more."""

    def column(value: Any) -> Any:
        return canonical(_screen(plain(value), found, mask=mask)) if type(value) is str else value

    kept = {
        name: column(part) if name in _JSON_COLUMNS else _screen(part, found, mask=mask)
        for name, part in state.items()
        if name != "marks"
    }
    if "marks" in state:
        kept["marks"] = {
            _screen(name, found, mask=mask): [
                column(part) if place == _MARK_VALUE else _screen(part, found, mask=mask)
                for place, part in enumerate(row)
            ]
            for name, row in state["marks"].items()
        }
    return kept


def _hinted(text: str) -> bool:
    folded = text.casefold()
    return any(map(folded.__contains__, _HINTS))


def _noted(match: re.Match[str], found: dict[str, None], *, mask: bool) -> str:
    name = _NAMES[(match.lastindex or 1) - 1]
    found[name] = None
    return f"[masked: {name}]" if mask else match[0]
