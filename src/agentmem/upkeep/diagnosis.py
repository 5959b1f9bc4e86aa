"""What an examination of a file found: each thing with its code, whether the data is safe, and what to do."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

from attrs import frozen

from agentmem.errors import AgentMemError
from agentmem.types import Head

__all__ = ["Diagnosis", "Finding", "Severity"]


class Severity(Enum):
    """How much a finding matters."""

    NOTE = "note"
    """Worth to know; nothing is wrong."""
    WARNING = "warning"
    """The file works; something should be seen to."""
    FAULT = "fault"
    """Something is broken, or the file can't be used as it is."""


@frozen
class Finding:
    """One thing that was found.

    Attributes:
        code: Stable, for programs.
        severity: How much it matters.
        what: What it is, in a sentence.
        safe: Whether what was written is safe: in the file, readable, or to be made anew from what is.
        next: What to do about it. Never a command that deletes or overwrites.
    """

    code: str
    severity: Severity
    what: str
    safe: bool
    next: str

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "what": self.what,
            "safe": self.safe,
            "next": self.next,
        }


@frozen
class Diagnosis:
    """What `doctor` found and did.

    Attributes:
        path: The file.
        findings: What was found, faults first; after a repair what is left.
        examined: What was looked at to the end: `surroundings, key, pages, wal, structure, schema,
            purge, chain, replay, index`.
        head: The end of the log, where the chain could be checked.
        repaired: What was made anew or taken away, one sentence each.
    """

    path: Path
    findings: tuple[Finding, ...]
    examined: tuple[str, ...]
    head: Head | None
    repaired: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether no fault was found in what was looked at."""
        return not any(finding.severity is Severity.FAULT for finding in self.findings)

    @property
    def safe(self) -> bool:
        """Whether everything that was written is safe, as far as anything tells."""
        return all(finding.safe for finding in self.findings)

    def __bool__(self) -> bool:
        return self.sound

    @property
    def text(self) -> str:
        """The same for people, one line a finding and one for what to do about it."""
        lines = [f"repaired: {each}" for each in self.repaired]
        for finding in self.findings:
            state = "" if finding.safe else " (data is at risk)"
            lines.append(f"{finding.severity.value}: {finding.what}{state} [{finding.code}]")
            if finding.next:
                lines.append(f"  {finding.next}")
        if not self.findings:
            lines.append("Nothing is wrong.")
        lines.append(f"Looked at: {', '.join(self.examined)}.")
        if self.head is not None:
            lines.append(f"The log is whole: {self.head.seq} events.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        head = self.head
        return {
            "path": str(self.path),
            "sound": self.sound,
            "safe": self.safe,
            "findings": [finding.to_dict() for finding in self.findings],
            "examined": list(self.examined),
            "head": None if head is None else {"store": head.store, "seq": head.seq, "chain": head.chain},
            "repaired": list(self.repaired),
        }


def of_error(error: AgentMemError, *, safe: bool) -> Finding:
    """A finding that an error of ours tells by itself."""
    what = error.what if not error.why else f"{error.what}: {error.why}"
    return Finding(error.code, Severity.FAULT, what, safe, error.next)
