"""The cost of an as-of join's probabilities per left row, one thread, by kinds of times and by overlap.

    python benchmarks/asof_chance.py [--rows 200000] [--rounds 5]

Times are sorted and of 100 keys. "candidates" is their mean number per left row, "certain" the share of left rows with
a certain answer. Printed are the median CPU-microseconds per left row, without the preparation of the right side,
which is printed per right row.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import click
import numpy as np
from measuring import SEPARATOR, Suite

from whenabouts.core.asof_join.prevailing import Direction, Side, prevailing

KEYS = 100
GAP_US = 1000
"""The mean distance of right rows of one key."""


class Workload(NamedTuple):
    """Lengths of the two sides' intervals, and the target in microseconds per left row (None: none is stated)."""

    name: str
    left_us: int
    right_us: int
    target: float | None = None
    direction: Direction = "backward"
    share: float = 1.0


WORKLOADS = (
    Workload("nearly exact", 30, 30, 0.2),
    Workload("right points", 2000, 0, 1.5),
    Workload("left points, 3 overlap", 0, 1400, 1.5),
    Workload("left points, 50 overlap", 0, 52_000, None, share=0.1),
    Workload("both uncertain, 3 overlap", 900, 900, 3.0),
    Workload("both uncertain, 6 overlap", 2600, 2600, None),
    Workload("both uncertain, 12 overlap", 5600, 5600, None, share=0.1),
    Workload("both uncertain, 24 overlap", 11_000, 11_000, None, share=0.02),
    Workload("nearest, 3 overlap", 700, 700, None, "nearest"),
    Workload("nearest, 12 overlap", 4000, 4000, None, "nearest", share=0.1),
    Workload("nearest, 24 overlap", 8000, 8000, None, "nearest", share=0.02),
    Workload("both truncated to 100 gaps", -100, -100, None, share=0.1),
)


def side(seed: int, rows: int, length_us: int, span_us: int) -> Side:
    """Rows sorted by time: intervals of half to one and a half of a length, or truncated to a multiple of the gap."""
    random = np.random.default_rng(seed)
    t_min = np.sort(random.integers(0, span_us, rows))
    if length_us < 0:
        unit = -length_us * GAP_US
        t_min -= t_min % unit
        t_max = t_min + unit
    elif length_us:
        t_max = t_min + random.integers(length_us // 2, length_us * 3 // 2, rows)
    else:
        t_max = t_min
    return Side(t_min, t_max, random.integers(0, KEYS, rows).astype(np.int32))


def cpu(left: Side, right: Side, direction: Direction, rounds: int) -> list[float]:
    """CPU-seconds of each round."""
    spent = []
    for _ in range(rounds):
        begun = time.process_time()
        prevailing(left, right, direction=direction)
        spent.append(time.process_time() - begun)
    return spent


@click.command()
@click.option("--rows", default=200_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--only", default="", help="Workloads whose name holds this.")
def main(rows: int, rounds: int, only: str) -> None:
    """Measure, print and save."""
    suite, told = Suite("asof_chance", rounds), []
    span = rows * GAP_US // KEYS
    click.echo(
        f"{'workload':30} {'candidates':>10} {'certain':>8} {'us/left row':>12} {'target':>7} {'us/right row':>13}"
    )
    for work in WORKLOADS:
        if only not in work.name:
            continue
        left, right = side(1, rows, work.left_us, span), side(2, rows, work.right_us, span)
        n = int(rows * work.share)
        left = Side(left.t_min[:n], left.t_max[:n], left.key[:n] if left.key is not None else None)
        answer = prevailing(left, right, direction=work.direction)
        certain = np.zeros(len(answer.rows) + 1)
        np.cumsum(answer.probability == 1.0, out=certain[1:])
        share = np.mean(certain[answer.offsets[1:]] > certain[answer.offsets[:-1]])
        empty = Side(left.t_min[:0], left.t_max[:0], np.zeros(0, np.int32))
        prepared = statistics.median(cpu(empty, right, work.direction, rounds))
        costs = [max(whole - prepared, 0.0) / n for whole in cpu(left, right, work.direction, rounds)]
        us = statistics.median(costs) * 1e6
        target = "" if work.target is None else f"{work.target:.1f}"
        click.echo(
            f"{work.name:30} {len(answer.rows) / n:10.1f} {share:8.0%} {us:12.2f} {target:>7} "
            f"{prepared / rows * 1e6:13.2f}"
        )
        suite.record(f"the probabilities of a left row{SEPARATOR}{work.name}", costs, candidates=len(answer.rows) / n)
        told.append(f"{work.name} {us:.2g} us" + (f" (wanted: at most {target})" if target else ""))
    if not only:
        suite.finding("As-of joins: the probabilities of a left row", "; ".join(told) + ". CPU, one thread.")
    suite.save()


if __name__ == "__main__":
    main()
