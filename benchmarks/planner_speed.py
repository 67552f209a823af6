"""How long planning takes, model building included: distinct coalescing queries of random windows, cp and oop.

    python benchmarks/planner_speed.py

Once without a budget, once with one of 60 % of what the free optimum needs, so that it binds. All plans are optimal.
"""

from __future__ import annotations

import time

import click
import numpy as np

from whenabouts.planner import CoalescingQuery, Registry, Statistics


def registered(queries: int, budget: float | None) -> Registry:
    """So many queries that are all different."""
    random, registry = np.random.default_rng(queries), Registry(memory_budget=budget)
    for number in range(queries):
        rows = int(random.integers(100, 100_000))
        known = Statistics(float(random.random()), float(random.random()))
        registry.register(f"q{number}", CoalescingQuery((f"c{number}",), ("g",), rows=rows), known)
    return registry


def needed(registry: Registry) -> float:
    """Bytes of the free optimum."""
    plan = registry.plan()
    return sum(each.state_bytes for each in plan.queries if each.scheme == "eager") + sum(plan.shared_bytes.values())


@click.command()
@click.option("--repeat", default=3, show_default=True)
def main(repeat: int) -> None:
    """Print a table."""
    click.echo("| queries | budget | seconds (median) | of it CPU | status |\n| --- | --- | --- | --- | --- |")
    for queries in (1_000, 10_000):
        bytes_needed = needed(registered(queries, None))
        for name, budget in (("none", None), ("binding", 0.6 * bytes_needed)):
            took = []
            for _ in range(repeat):
                started, cpu = time.perf_counter(), time.process_time()
                plan = registered(queries, budget).plan()
                took.append((time.perf_counter() - started, time.process_time() - cpu))
            wall, cpu = np.median(np.array(took), axis=0)
            click.echo(f"| {queries:,} | {name} | {wall:.2f} | {cpu:.2f} | {plan.status} |")


if __name__ == "__main__":
    main()
