"""A support case of 200 turns with documents of 20,000 tokens, for two customers: what a window costs, and what it knows.

    python -m benchmarks.support [--turns 200] [--budget 16000]

Two sessions go on in turns, each about its customer. The tool `read_document` gives contracts of 20,000 tokens; customers
say things in passing; both are asked about later, tens of turns apart. The script knows which text holds the answer. At
each step it looks whether the window that the model would be asked with holds it, and whether anything of the other
customer is in it. The tokens are by the default counter; the whole history is what a client without windows sends.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentmem import Store
from agentmem.context.tokens import count_tokens
from agentmem.store.session import Session
from benchmarks.measure import Figure
from benchmarks.words import Words

DOCUMENT_TOKENS = 20_000
THINGS = "notice period,deposit,service window,penalty,insurance sum,renewal date,delivery limit,credit line".split(",")
UNITS = {"notice period": "days", "deposit": "euros", "service window": "hours", "penalty": "euros a day",
         "insurance sum": "euros", "renewal date": "May", "delivery limit": "pallets", "credit line": "dollars"}  # fmt: skip


@dataclass
class Customer:
    """One of the two, with what was said of it so far."""

    name: str
    session: Session
    words: Words
    chosen: random.Random
    facts: list[tuple[str, str, int]] = field(default_factory=list)
    history: int = 0
    spent: int = 0
    whole: int = 0
    asked: int = 0
    known: int = 0
    leaked: int = 0
    missing: list[str] = field(default_factory=list)
    turn: int = 0

    @property
    def mark(self) -> str:
        """What stands in every text of this customer's, and in no other."""
        return f"Zq{self.name}"


def figures(setting: Any) -> list[Figure]:
    """The case as rows of the table."""
    told = told_of(40 if setting.quick else 200, 16_000, Path(setting.disk))
    return [
        Figure("session", "tokens of windows against whole histories, support case", told["share"], "×", 0.2),
        Figure("session", "answers that were in the window when they were asked for", told["known"], "", 1.0, least=True,
               more={"asked": told["asked"]}),
        Figure("session", "windows with anything of the other customer", told["leaked"], "", 0),
    ]  # fmt: skip


def told_of(turns: int, budget: int, folder: Path) -> dict[str, Any]:
    """The whole case."""
    with Store.open(folder / "support.db", project="support", key=bytes(range(32)), durability="normal") as store:
        goal = store.notes.add("goal", "Answer the customers")
        store.notes.add("decision", "Refunds above 500 need a manager", parent=goal)
        customers = []
        for number, name in enumerate(("Ada", "Bert")):
            store.entities.put("customer", name)
            session = store.sessions.start(
                title=f"Case of {name}", task=goal, agent="support", about=f"customer:{name}"
            )
            customers.append(Customer(name, session, Words(seed=number + 3), random.Random(number + 11)))
        for _ in range(turns):
            for customer in customers:
                other = customers[0] if customer is customers[1] else customers[1]
                step(customer, other, budget)
        spent, whole = sum(one.spent for one in customers), sum(one.whole for one in customers)
        asked, known = sum(one.asked for one in customers), sum(one.known for one in customers)
        return {
            "turns": turns, "budget": budget, "history": [one.history for one in customers], "spent": spent, "whole": whole,
            "share": spent / whole, "asked": asked, "known": known / max(asked, 1),
            "leaked": sum(one.leaked for one in customers), "missing": [each for one in customers for each in one.missing],
            "fresh": [len(one.session.events(types=("agent.thread_context_compacted",), limit=1000)) for one in customers],
        }  # fmt: skip


def step(customer: Customer, other: Customer, budget: int) -> None:
    """One turn: the customer says or asks something; the model is asked; it answers."""
    customer.turn += 1
    session, turn = customer.session, customer.turn
    wanted = None
    if turn % 15 == 1:
        document(customer)
    if turn % 7 == 3:
        thing, number = f"locker {customer.words.content()}{turn}", str(customer.chosen.randrange(1000, 9999))
        customer.facts.append((thing, number, turn))
        said(customer, f"By the way, the code of my {thing} is {number}, {customer.mark}. {customer.words.text(30)}")
    elif turn % 3 == 0 and (older := [fact for fact in customer.facts if fact[2] < turn - 5]):
        thing, wanted, _ = customer.chosen.choice(older)
        said(customer, f"{customer.mark} asks again: what was the {thing}?")
    else:
        said(customer, f"{customer.words.text(40)} {customer.mark}?")
    window = session.compact(budget=budget)
    customer.spent += window.tokens
    customer.whole += customer.history
    assert window.tokens <= budget
    customer.leaked += other.mark in window.text or any(fact[1] in window.text for fact in other.facts if fact[1] not in
                                                        {own[1] for own in customer.facts})  # fmt: skip
    if wanted is not None:
        customer.asked += 1
        if wanted in window.text:
            customer.known += 1
        else:
            customer.missing.append(f"{customer.name} {turn}: {thing} {wanted}")
    noted = session.append("agent.message", f"{customer.words.text(60)} {customer.mark}")
    customer.history += tokens(session, noted.id)
    if turn % 10 == 0:
        noted = session.append("x.progress", {"text": f"turn {turn} of {customer.mark}"}, key="progress")


def document(customer: Customer) -> None:
    """A contract of 20,000 tokens, with a few figures somewhere in it."""
    name = f"K-{customer.name[0]}{customer.turn}"
    lines, cost = [], 0
    while cost < DOCUMENT_TOKENS:
        text = customer.words.text(80)
        lines.append(text)
        cost += count_tokens(text + "\n")
    for thing in customer.chosen.sample(THINGS, 4):
        number = str(customer.chosen.randrange(10_000, 99_999))
        place = customer.chosen.randrange(len(lines))
        lines.insert(
            place, f"The {thing} of contract {name} is {number} {UNITS[thing]}, as agreed with {customer.mark}."
        )
        customer.facts.append((f"{thing} of contract {name}", number, customer.turn))
    made = customer.session.extend(
        [
            ("agent.tool_use", {"name": "read_document", "input": {"name": name}}),
            ("agent.tool_result", {"tool_use_id": -1, "content": "\n".join(lines)}),
        ]
    )
    customer.history += sum(tokens(customer.session, event) for event in made.ids)


def said(customer: Customer, text: str) -> None:
    """A message of the customer."""
    customer.history += tokens(customer.session, customer.session.append("user.message", text).id)


def tokens(session: Session, event: int) -> int:
    """What an event costs in a whole history."""
    return count_tokens(session.event(event).text + "\n")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.support", description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--budget", type=int, default=16_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentmem-support-") as folder:
        told = told_of(asked.turns, asked.budget, Path(folder))
    for name, value in told.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
