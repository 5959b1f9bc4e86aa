"""The command line over one store, called in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from agentmem import Store
from agentmem.adapters.cli.root import agentmem

KEY = bytes(range(32))
HEX = KEY.hex()


class Cli:
    """The command line over one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment: dict[str, str | None] = {
            "AGENTMEM_KEY": f"hex:{HEX}", "AGENTMEM_PROJECT": "acme", "AGENTMEM_DB": str(path),
        }  # fmt: skip

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None, **environment: str | None) -> Result:
        runner = CliRunner(env={**self.environment, **environment})
        result = runner.invoke(agentmem, arguments, input=stdin)
        assert result.exit_code == code, (result.output, result.exception)
        assert HEX not in result.output
        return result

    def out(self, *arguments: str, stdin: str | None = None) -> str:
        return self.run(*arguments, stdin=stdin).stdout.rstrip("\n")

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def error(self, *arguments: str, code: int) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stderr.splitlines()[-1])["error"]

    def head(self) -> str:
        return self.out("log", "--head")

    def store(self, **options: Any) -> Store:
        return Store.open(self.path, key=KEY, project="acme", create=False, **options)
