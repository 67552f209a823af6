"""What `profile` costs: a million times of several kinds, beside sorting them.

    python benchmarks/profile_column.py [--rows 1000000] [--rounds 5]

Medians of the CPU-seconds of the process. The aim is at most 3 s for a million rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import pyarrow as pa

import whenabouts as wa

START_US, DAY_US = 1_704_067_200_000_000, 86_400_000_000
DAYS, GROUPS = 10, 50


def tables(rows: int) -> dict[str, tuple[pa.Table, dict[str, Any]]]:
    """The columns by name, with the options of their profile."""
    draw = np.random.default_rng(0)
    us = START_US + np.sort(draw.integers(0, DAYS * DAY_US, rows))
    group = draw.integers(0, GROUPS, rows)
    granule = draw.choice([1_000, 1_000_000, 300_000_000], rows, p=[0.7, 0.25, 0.05])
    arrival = us + draw.exponential(200_000, rows).astype(np.int64)
    order = np.argsort(arrival)
    late = pa.table({"t": us[order], "seen": arrival[order], "g": group[order]})
    polled = START_US + np.arange(rows) // GROUPS * 30_000_000 + np.arange(rows) % GROUPS * 7_000 + group
    return {
        "random": (pa.table({"t": us, "v": group}), {}),
        "three granularities": (pa.table({"t": us // granule * granule, "v": group}), {}),
        f"{GROUPS} groups, arrivals": (late, {"group": "g", "arrival": "seen"}),
        f"{GROUPS} polled groups": (pa.table({"t": polled, "g": np.arange(rows) % GROUPS}), {"group": "g"}),
        "each row twice": (pa.table({"t": np.repeat(us[::2], 2), "v": np.repeat(group[::2], 2)}), {}),
    }


@click.command()
@click.option("--rows", default=1_000_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(rows: int, rounds: int) -> None:
    """Print the medians."""
    for name, (table, options) in tables(rows).items():
        seconds = _median(lambda table=table, options=options: wa.profile(table, "t", **options), rounds)
        sorting = _median(lambda table=table: np.sort(table["t"].to_numpy()), rounds)
        click.echo(f"{name:24} {seconds:6.2f} s   sorting alone {sorting:5.2f} s")


def _median(run: Callable[[], Any], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return statistics.median(found)


if __name__ == "__main__":
    main()
