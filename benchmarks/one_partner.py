"""The cost of semi and anti joins whose rows have many partners: rows are decided without listing pairs.

    python benchmarks/one_partner.py [--most 1000000]

Batch, local engine, points of one key, each with a tenth of the other side as partners; CPU-seconds of the process and
Arrow's peak memory, compared with the inner join where that has at most 100 million pairs.
"""

from __future__ import annotations

import time

import click
import numpy as np
import pyarrow as pa

from whenabouts.core import Point, within
from whenabouts.core.local import run
from whenabouts.core.timing_join.query import TimingJoin

SPAN_US = 1_000_000_000
MOST_PAIRS = 100_000_000


def points(seed: int, rows: int) -> pa.Table:
    """Points in random order."""
    t = np.random.default_rng(seed).integers(0, SPAN_US, rows)
    return pa.table({"t": t, "id": np.arange(rows)})


def measured(how: str, rows: int) -> tuple[float, int, int, int]:
    """CPU-seconds, output rows, examined pairs, and Arrow's peak memory in bytes."""
    query = TimingJoin(
        left_time=Point("t"),
        right_time=Point("t"),
        condition=within(SPAN_US // 20, confidence=1),
        how=how,
        probability=False,
    )
    tables = [points(seed, rows) for seed in (1, 2)]
    start = time.process_time()
    outcome = run(query, tables)
    seconds = time.process_time() - start
    looked_at = outcome.metrics["sure"] + outcome.metrics["probed"]
    return seconds, outcome.output.num_rows, looked_at, pa.default_memory_pool().max_memory()


@click.command()
@click.option("--most", default=1_000_000, show_default=True, help="Rows of a side of the last run.")
def main(most: int) -> None:
    """Print a line for each mode and size."""
    print(f"{'how':>10} {'rows':>10} {'seconds':>9} {'out':>12} {'looked at':>12} {'MB':>7}")
    rows = 1_000
    while rows <= most:
        for how in ("left_semi", "left_anti", "inner"):
            if how == "inner" and rows * rows // 10 > MOST_PAIRS:
                continue
            seconds, out, looked_at, peak = measured(how, rows)
            print(f"{how:>10} {rows:>10,} {seconds:>9.3f} {out:>12,} {looked_at:>12,} {peak >> 20:>7,}")
        rows *= 10


if __name__ == "__main__":
    main()
