"""Where clients keep their files on this machine: home, configuration folders, the project worked in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from attrs import field, frozen

__all__ = ["Scope", "Surroundings"]

Scope: TypeAlias = Literal["user", "project"]
"""Whether a client is to have agentmem everywhere, or in one project."""


@frozen
class Surroundings:
    """What paths are made of.

    Attributes:
        home: The user's home.
        root: The project's folder.
        platform: As `sys.platform` has it.
        environ: Variables by which programs move their folders.
    """

    home: Path
    root: Path
    platform: str = sys.platform
    environ: Mapping[str, str] = field(factory=dict)

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process; the project is the repository around the working directory, else that directory."""
        home = Path.home()
        return cls(home, _project_root(Path.cwd(), home), sys.platform, dict(os.environ))

    def path(self, template: str) -> Path:
        """A path from a template such as `{home}/.cursor/mcp.json`."""
        base, _, rest = template.partition("}/")
        return self._base(base.removeprefix("{")).joinpath(*rest.split("/"))

    def _base(self, name: str) -> Path:
        match name:
            case "home":
                return self.home
            case "root":
                return self.root
            case "claude":
                return self._moved("CLAUDE_CONFIG_DIR", self.home / ".claude")
            case "claude_json":
                return self._moved("CLAUDE_CONFIG_DIR", self.home)
            case "codex":
                return self._moved("CODEX_HOME", self.home / ".codex")
            case "copilot":
                return self._moved("COPILOT_HOME", self.home / ".copilot")
            case "xdg":
                return self._moved("XDG_CONFIG_HOME", self.home / ".config")
            case "zed":
                if self.platform == "darwin":
                    return self.home / ".config" / "zed"
                return self._applications() / ("Zed" if self.platform == "win32" else "zed")
            case _:
                return self._applications()

    def _applications(self) -> Path:
        """Where applications with windows keep their settings."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self._moved("APPDATA", self.home / "AppData" / "Roaming")
        return self._moved("XDG_CONFIG_HOME", self.home / ".config")

    def _moved(self, variable: str, usual: Path) -> Path:
        found = self.environ.get(variable)
        return Path(found) if found and Path(found).is_absolute() else usual


def _project_root(start: Path, home: Path) -> Path:
    """The nearest folder upwards that is a repository; not the home, which may be one for its dotfiles."""
    real = Path(os.path.realpath(home))
    for folder in (start, *start.parents):
        if folder in (home, real):
            break
        if (folder / ".git").exists():
            return folder
    return start
