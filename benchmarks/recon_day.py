"""A day of reconnaissance through the Python API: 200 endpoints, four subagents, three lost contexts.

    python benchmarks/recon_day.py

Prints, for each stretch of the day, the calls made, the tokens an agent would have written as arguments and read as
answers, and what `resume` gave back after each loss. At the end it checks that no endpoint was tested twice, none was
left out, and no attempt that had failed was made again.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from agentmem import Held, Row, Store
from agentmem.context.tokens import count_tokens

ENDPOINTS = 200
CHECKS = ["authz", "csrf", "rate-limit"]
PAYLOADS = ["' OR 1=1 in the id", "a second id of another tenant", "a forged X-Forwarded-For", "a JSON body as XML"]


class Meter:
    """Counts what an agent writes and reads."""

    def __init__(self) -> None:
        self.calls = self.written = self.read = 0

    def call(self, answer: Any, *given: Any) -> Any:
        """One call: its arguments and its answer, in tokens."""
        self.calls += 1
        self.written += count_tokens(json.dumps(given, ensure_ascii=False, default=str))
        text = getattr(answer, "text", None)
        self.read += count_tokens(text if isinstance(text, str) else shown(answer))
        return answer


def shown(answer: Any) -> str:
    """A write's answer as a tool would print it: ids, notices, earlier attempts."""
    parts = [str(getattr(answer, "id", "") or getattr(answer, "ids", ""))]
    parts += getattr(answer, "notices", ())
    parts += [f"#{one.id} {one.title} ({one.why})" for one in getattr(answer, "earlier", ())]
    return " ".join(parts)


def plan(store: Store, meter: Meter) -> tuple[int, list[int]]:
    """Morning: goal, rules, steps with scopes, the endpoints."""
    goal = meter.call(store.notes.add("goal", "Review the shop API of shop.example"), "goal", "Review the shop API").id
    for rule in ("Stay out of *.corp.example", "No more than 5 requests a second", "Never touch /admin/payouts"):
        meter.call(store.notes.add("decision", rule, parent=goal, pin=rule.startswith("Stay")), "decision", rule, goal)
    meter.call(store.entities.expect("endpoint", CHECKS), "endpoint", CHECKS)
    areas = ["cart", "account", "search", "orders"]
    rows = [
        Row(
            f"{('GET', 'POST', 'PUT', 'DELETE')[number % 4]} /v1/{areas[number // 50]}/{number}",
            attrs={"area": areas[number // 50]},
        )
        for number in range(ENDPOINTS)
    ]
    meter.call(store.entities.put_many("endpoint", rows=rows), "endpoint", [row.key for row in rows])
    steps = []
    for area in areas:
        scope = store.scope("endpoint", where="attrs.area = :area", checks=CHECKS, area=area)
        step = meter.call(store.notes.add("step", f"Test /{area}", parent=goal, scope=scope), "step", area, goal).id
        steps.append(step)
    return goal, steps


def work(store: Store, meter: Meter, step: int, rng: random.Random, tested: dict[str, int], limit: int) -> int:
    """A subagent tests endpoints of its step until there are none left, or `limit` are done."""
    done = 0
    area = store.notes.get(step).scope.where  # type: ignore[union-attr]
    while done < limit:
        free = f"({area}) and check.authz is null"
        taken = meter.call(store.claim(type="endpoint", where=free, n=10), "endpoint", free, 10)
        if not taken.ids:
            break
        for found in taken.ids:
            endpoint = store.entities.get(found)
            tested[str(endpoint.key)] = tested.get(str(endpoint.key), 0) + 1
            results: dict[str, Any] = {check: rng.choice(["pass", "pass", "pass", "fail", "na"]) for check in CHECKS}
            meter.call(store.entities.mark("endpoint", [found], results), endpoint.key, results)
            done += 1
        meter.call(store.release(taken.ids), len(taken.ids))
        if rng.random() < 0.5:
            what = rng.choice(PAYLOADS)
            tried = store.attempts.open(f"{what} on {step}", task=step)
            meter.call(tried, what, step)
            if any(one.status == "failed" for one in tried.earlier):
                store.attempts.close(tried, "unclear", why="not made: it failed before")
            else:
                meter.call(
                    store.attempts.close(tried, "failed", why="the gateway answers 400 before the handler"), "failed"
                )
    return done


def main() -> None:
    """Run the day and print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    rng = random.Random(7)
    rows: list[tuple[str, int, int, int, str]] = []
    tested: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.db"
        key = b"r" * 32
        meter = Meter()
        store = Store.open(path, project="shop", key=key, author="lead", run="lead")
        goal, steps = plan(store, meter)
        rows.append(("plan", meter.calls, meter.written, meter.read, ""))
        stretch = 0
        while store.left(goal).marks_total:
            stretch += 1
            meter = Meter()
            for number, step in enumerate(steps):
                agent = store.acting(author=f"sub{number}", run=f"sub{number}-{stretch}", task=step)
                brief = meter.call(agent.resume(step, budget=1000), step)
                assert "Stay out of *.corp.example" in brief.text, "a decision of the goal did not reach the subagent"
                work(agent, meter, step, rng, tested, limit=15)
            if stretch <= 3:
                meter.call(store.checkpoint(f"Stretch {stretch} over; see what is left", task=goal), "checkpoint")
            rows.append((f"stretch {stretch}", meter.calls, meter.written, meter.read, ""))
            if stretch <= 3:
                store.close()  # the context is lost: a new process knows nothing but the file
                store = Store.open(path, project="shop", key=key, author="lead", run="lead")
                back = store.resume(goal, budget=2000)
                left = store.left(goal)
                rows.append(
                    (f"lost context {stretch}", 2, 0, back.tokens + left.tokens, f"{left.marks_total} marks left")
                )
        for step in steps:
            store.summarize(step, work="All checks run.", result="See the failed checks.")
        store.summarize(goal, work="Four areas tested.", result="See the parts.")
        final = store.task_summary(goal)
        sound = store.verify(replay=True)
        try:
            store.claim([steps[0]])
        except Held as error:
            raise SystemExit(f"a claim was left behind: {error}") from None
        store.close()
    print(f"{'':<16}{'calls':>8}{'written':>10}{'read':>8}")
    for name, calls, written, read, remark in rows:
        print(f"{name:<16}{calls:>8}{written:>10}{read:>8}  {remark}")
    total = [sum(row[index] for row in rows) for index in (1, 2, 3)]
    print(f"{'in all':<16}{total[0]:>8}{total[1]:>10}{total[2]:>8}")
    print(f"tested twice: {sum(1 for times in tested.values() if times > 1)}, never: {ENDPOINTS - len(tested)}")
    print(f"summary of the day: {final.tokens} tokens; verify: {'sound' if sound else sound.problems}")
    if len(tested) != ENDPOINTS or max(tested.values()) != 1 or not sound:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
