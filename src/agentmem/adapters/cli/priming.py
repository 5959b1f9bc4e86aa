"""The command prime: what an agent is told at the beginning, for hosts that have no hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session

if TYPE_CHECKING:
    from agentmem.store import Store


@command("prime", verbs=("resume",))
@options.budget
def prime(session: Session, store: Store, budget: int) -> None:
    """How to use the memory, and where the work stands.

    For any host: put what it prints at the beginning of an agent's context. The budget is that of the second part.

    Examples:
      agentmem prime
      agentmem prime --budget 1000
    """
    from agentmem.tools.guide import INSTRUCTIONS

    found = store.resume(session.task, budget=budget)
    if session.out.json:
        session.out.value(found, instructions=INSTRUCTIONS)
    else:
        session.out.text(f"{INSTRUCTIONS}\n{found.text}")


COMMANDS = {made.name: made for made in (prime,)}
