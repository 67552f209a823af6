"""What a timing join's steps, rows, pairs and kernel calls cost: the defaults of `timing_cost.Prices`.

    python benchmarks/planner_prices.py

Interval streams of 1,000 rows a second and 50 keys run through the operator in steps of some rows of each side; CPU
time a row, and what came out and was probed. A step of one row gives the price of a step; large steps give those of
rows, pairs and kernel calls, by least squares. The block that `auto` takes is checked against these times.
"""

from __future__ import annotations

import time

import click
import numpy as np
import pyarrow as pa

from whenabouts.core import Interval, within
from whenabouts.core.protocol import NO_WATERMARK, Arrival
from whenabouts.core.stores import DictStore
from whenabouts.core.timing_join import TimingJoin

RATE, KEYS, LONGEST_US = 1_000, 50, 200_000
STEPS = {1: 300, 10: 200, 100: 100, 1_000: 40, 10_000: 12}


def side(rows: int, seed: int) -> pa.RecordBatch:
    """Intervals of up to 200 ms in order of their ends."""
    random = np.random.default_rng(seed)
    end = np.sort(random.integers(0, rows * 1_000_000 // RATE, rows))
    start = end - random.integers(0, LONGEST_US, rows)
    return pa.record_batch([start, end, random.integers(0, KEYS, rows)], names=["a", "b", "k"])


def measured(strategy: str, window: str, rows: int) -> tuple[float, float, float]:
    """Nanoseconds of CPU time a row, pairs a row, and kernel calls a row."""
    spec = Interval("a", "b", max_uncertainty=f"{LONGEST_US} us")
    query = TimingJoin(
        left_time=spec, right_time=spec, condition=within(window, confidence=0.7), on="k", strategy=strategy
    )
    tables = [side(rows * STEPS[rows], seed) for seed in (1, 2)]
    operator = query.operator([table.schema for table in tables], streaming=True)
    blocks = [reader.read(table).block for reader, table in zip(operator.readers, tables, strict=True)]
    ends = np.minimum(*(table["b"].to_numpy() for table in tables))
    store, watermark, pairs, probed = DictStore(), NO_WATERMARK, 0, 0
    spent = 0.0
    for step in range(STEPS[rows]):
        arrivals = [Arrival(input, block.slice(step * rows, rows)) for input, block in enumerate(blocks)]
        started = time.process_time()
        found = operator.step(store, arrivals, watermark)
        spent += time.process_time() - started
        watermark = int(ends[(step + 1) * rows - 1])
        pairs += found.metrics["matched"]
        probed += found.metrics["probed"]
    n = 2 * rows * STEPS[rows]
    return spent / n * 1e9, pairs / n, probed / n


@click.command()
def main() -> None:
    """Print what was measured, and the prices that follow."""
    click.echo("| strategy | window | rows a step and side | ns a row | pairs a row | kernel calls a row |")
    click.echo("| --- | --- | --- | --- | --- | --- |")
    equations, times = [], []
    for strategy in ("auto", "lazy", "lazy_lookup"):
        measured(strategy, "1 s", 100)  # kernels are compiled
        for rows in STEPS:
            for window in ("100 ms", "2 s"):
                ns, pairs, probed = measured(strategy, window, rows)
                click.echo(f"| {strategy} | {window} | {rows:,} | {ns:,.0f} | {pairs:.2f} | {probed:.2f} |")
                if strategy != "lazy_lookup":
                    equations.append([0.5 / rows, 1.0, pairs, probed])
                    times.append(ns)
    weights = 1 / np.array(times)
    prices = np.linalg.lstsq(np.array(equations) * weights[:, None], np.array(times) * weights, rcond=None)[0]
    told = zip(("step", "row", "pair", "kernel"), prices, strict=True)
    click.echo("\n" + ", ".join(f"{name} {price:,.0f} ns" for name, price in told))


if __name__ == "__main__":
    main()
