"""Sliding temporal aggregate: does the cost of a slide follow what changed, or the window?

    python benchmarks/sliding_aggregate.py [--groups 100]

Readings of each group every 30 s for ten days, a slide of 5 minutes, windows of 1 hour to 5 days: the same number of
tuples enter and leave at each slide, while the window holds up to 120 times as many. CPU-seconds of the call, per slide
and group; the results are in `benchmarks/results/sliding_aggregate.json`.
"""

from __future__ import annotations

import time

import click
import numpy as np
import pyarrow as pa
from measuring import SEPARATOR, Suite

from whenabouts.core.local import temporal_aggregate

SECOND = 1_000_000


def readings(groups: int) -> pa.Table:
    """Ten days of each group, in order of time."""
    at = np.arange(0, 10 * 86_400, 30)
    rng = np.random.default_rng(3)
    value = np.cumsum(rng.random((len(at), groups)) < 0.3, axis=0) % 7
    return pa.table(
        {"t": np.repeat(at * SECOND, groups), "g": np.tile(np.arange(groups), len(at)), "v": value.reshape(-1)}
    )


@click.command()
@click.option("--groups", default=100, show_default=True)
def main(groups: int) -> None:
    """Print the cost by window and function."""
    pa.set_cpu_count(1)
    table = readings(groups)
    suite = Suite("sliding_aggregate", rounds=3)
    click.echo(f"{table.num_rows:,} rows, {groups} groups, a slide of 5 minutes")
    for functions in (("max", "sum", "count"), ("median",)):
        asked = {name: name for name in functions}
        for window in ("1h", "6h", "24h", "5d"):
            seconds, rows = [], 0
            for _ in range(3):
                start = time.process_time()
                rows = temporal_aggregate(
                    table, time="t", group="g", values="v", window=window, slide="5m", aggregates=asked
                ).num_rows
                seconds.append(time.process_time() - start)
            series = f"{'+'.join(functions)}, {groups} groups{SEPARATOR}window {window}"
            suite.record(series, [spent / rows for spent in seconds], rows_in=table.num_rows, rows_out=rows)
            median = float(np.median(seconds))
            click.echo(
                f"  {'+'.join(functions):14s} window {window:>3s}: {median / rows * 1e6:6.2f} us a slide and group"
            )
    suite.save()


if __name__ == "__main__":
    main()
