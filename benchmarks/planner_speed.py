"""How long planning takes, model building included: distinct coalescing queries of random windows, cp and oop.

    python benchmarks/planner_speed.py

Once without a budget, once with a budget of 60 % of the memory of the unrestricted optimum, so that it binds. All plans
are optimal.
"""

from __future__ import annotations

import time

import click
import numpy as np
from measuring import Suite

from whenabouts.planner import CoalescingQuery, Registry, Statistics


def registered(queries: int, budget: float | None) -> Registry:
    """The given number of queries, all different."""
    random, registry = np.random.default_rng(queries), Registry(memory_budget=budget)
    for number in range(queries):
        rows = int(random.integers(100, 100_000))
        known = Statistics(float(random.random()), float(random.random()))
        registry.register(f"q{number}", CoalescingQuery((f"c{number}",), ("g",), rows=rows), known)
    return registry


def needed(registry: Registry) -> float:
    """Bytes of the unrestricted optimum."""
    plan = registry.plan()
    return sum(each.state_bytes for each in plan.queries if each.scheme == "eager") + sum(plan.shared_bytes.values())


LIMITS = {1_000: 2.0, 10_000: 20.0}
"""The time limit in seconds for planning so many queries."""


@click.command()
@click.option("--rounds", default=3, show_default=True)
def main(rounds: int) -> None:
    """Plan, and record the seconds."""
    suite = Suite("planner_speed", rounds)
    for queries, limit in LIMITS.items():
        bytes_needed = needed(registered(queries, None))
        for name, budget in (("no", None), ("a binding", 0.6 * bytes_needed)):
            took = []
            for _ in range(rounds):
                started = time.perf_counter()
                plan = registered(queries, budget).plan()
                took.append(time.perf_counter() - started)
            suite.record(f"{queries:,} queries, {name} budget / planned", took, clock="wall", status=plan.status)
            suite.claim(
                f"{queries:,} distinct queries, {name} budget",
                f"Planned to optimality in under {limit:g} s, model building included.",
                holds=max(took) < limit and plan.status == "optimal",
                why=f"Median {np.median(took):.2f} s of {rounds} (wall), at most {max(took):.2f} s; {plan.status}.",
            )
    suite.save()


if __name__ == "__main__":
    main()
