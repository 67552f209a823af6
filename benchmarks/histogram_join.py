"""The cost of histograms: the join with 100 templates per side against the uniform-interval join on the same rows.

    python benchmarks/histogram_join.py [--rounds 7] [--templates 100]

Workloads A and B of `join_core.py`. Both contenders get the same anchors (t_max) and keys; the interval join treats
each row as uniform over the support of its template. The two answers differ only because of the shapes; their numbers
of pairs are
printed, and the time is compared per pair. Also: Theorem 3's probing ranges against PTJoin's confidence-free ones
(equations 5 and 6) in the setting of its Example 5 (500 random templates a side, d = 1500 ms, confidence 0.8), and the
time to compute their thresholds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import numpy as np
from join_core import CONFIDENCE, LENGTHS_US, WORKLOADS, workload
from measuring import Suite

from whenabouts.core.probability.match_thresholds import thresholds
from whenabouts.core.times.templates import Template
from whenabouts.core.timing_join.strategies import CorrelationCounters, Times, correlate


def random_templates(seed: int, n: int, shortest_us: int, longest_us: int) -> tuple[Template, ...]:
    """Templates of 3 to 8 buckets with random edges and masses."""
    random = np.random.default_rng(seed)
    made = []
    for length in random.integers(shortest_us, longest_us, n, endpoint=True).tolist():
        edges = np.unique(np.append(random.integers(1, length, random.integers(2, 8)), [0, length])).tolist()
        masses = random.dirichlet(np.ones(len(edges) - 1)).tolist()
        made.append(Template(tuple(zip(edges[:-1], edges[1:], masses, strict=True))))
    return tuple(made)


def rows(times: Times, templates: tuple[Template, ...], seed: int) -> Times:
    """The same anchors and keys, each with a template at random."""
    number = np.random.default_rng(seed).integers(0, len(templates), len(times)).astype(np.int32)
    lengths = np.array([template.length_us for template in templates])
    return Times(times.t_max - lengths[number], times.t_max, times.key, number)


def run(
    base: Times, target: Times, within_us: int, templates: tuple[tuple[Template, ...], tuple[Template, ...]]
) -> Callable[[], tuple[int, CorrelationCounters]]:
    """A function that returns the number of pairs and the counters."""

    def call() -> tuple[int, CorrelationCounters]:
        counters = CorrelationCounters()
        found = correlate(
            base, target, -within_us, within_us, CONFIDENCE, strategy="auto",
            base_lengths=LENGTHS_US, target_lengths=LENGTHS_US, counters=counters,
            base_templates=templates[0], target_templates=templates[1],
        )  # fmt: skip
        return sum(len(pairs) for pairs, _ in found), counters

    return call


def compare(suite: Suite, name: str, templates: int) -> None:
    """Alternate both joins; their answers differ only because of the shapes."""
    work = workload(name)
    left, right = (random_templates(seed, templates, *LENGTHS_US) for seed in (3, 4))
    base, target = rows(work.base, left, 5), rows(work.target, right, 6)
    plain = (Times(base.t_min, base.t_max, base.key), Times(target.t_min, target.t_max, target.key))
    calls = {
        "histograms": run(base, target, work.within_us, (left, right)),
        "intervals": run(*plain, work.within_us, ((), ())),
    }
    for kind, call in calls.items():
        pairs, counters = call()  # now thresholds and kernels are ready
        click.echo(f"workload {name}, {kind}: {pairs:,} pairs, {counters.probed:,} probed by the kernel")
    suite.compare(f"{WORKLOADS[name][0]}: {templates} templates a side", calls, _pairs, incomparable=["intervals"])


def _pairs(answer: tuple[int, CorrelationCounters]) -> tuple[int, int]:
    return answer[0], answer[0]


def tightness(templates: int) -> None:
    """PTJoin Example 5: the width of the probing ranges, tight over loose."""
    left, right = (random_templates(seed, templates, 50_000, 500_000) for seed in (7, 8))
    d = 1_500_000
    start = time.process_time()
    table = thresholds(left, right, -d, d, CONFIDENCE)
    click.echo(f"thresholds of {templates} x {templates} templates: {time.process_time() - start:.2f} CPU-s")
    longest = max(template.length_us for template in right)
    ratios = []
    for k, template in enumerate(left):
        tight = (table[k, :, 1].max() - table[k, :, 0].min()) + (table[k, :, 3].max() - table[k, :, 2].min())
        loose = 2 * (template.length_us + longest)  # LPR = [min - d, max - d + pi), RPR = (min + d, max + d + pi]
        ratios.append(loose / max(int(tight), 1))
    low, middle, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    click.echo(f"loose over tight probing ranges: median {middle:.2f} (5% {low:.2f}, 95% {high:.2f})")


@click.command()
@click.option("--rounds", default=7, show_default=True)
@click.option("--templates", default=100, show_default=True)
def main(rounds: int, templates: int) -> None:
    """Print both parts."""
    suite = Suite("histogram_join", rounds)
    for name in ("A", "B"):
        compare(suite, name, templates)
    suite.save()
    tightness(500)


if __name__ == "__main__":
    main()
