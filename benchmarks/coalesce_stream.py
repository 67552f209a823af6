"""Tuples a second that a stream coalesces eagerly in order of time, block by block: in memory, and with durable state.

    python benchmarks/coalesce_stream.py [--groups 100] [--blocks 40]

A reading of a random group each microsecond, a window of ten blocks that is evaluated every ten blocks. `in memory`:
`WindowExtent.update`. `durable`: the operator as an engine hosts it. Its rows wait in state until the watermark, which
lags by one block, has passed them; then its runs are in state, which is a dict. Measured are CPU-seconds per tuple of
each block, including reading it. The results are in `benchmarks/results/coalesce_stream.json`, and beside it whether
durable blocks keep to `DURABLE_WANTED`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import numpy as np
import pyarrow as pa
from measuring import SEPARATOR, Suite

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.runtime.protocol import Arrival
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.window_extent.extent import WindowExtent

BLOCKS_HELD = 10
DURABLE_WANTED = 8.0
"""Millions of tuples a CPU-second, eager and with durable state, median over blocks."""


def readings(rows: int, groups: int, cp: float) -> pa.Table:
    """In order of time; with probability cp a value equals that of the group's previous reading."""
    rng = np.random.default_rng(5)
    group = rng.integers(0, groups, rows)
    value = np.empty(rows, np.int64)
    value[np.argsort(group, kind="stable")] = np.cumsum(rng.random(rows) >= cp) % 1000
    return pa.table({"t": 1_700_000_000_000_000 + np.arange(rows), "g": group, "v": value})


def in_memory(schema: pa.Schema, width_us: int) -> Callable[[pa.Table], None]:
    """Adds blocks to an extent."""
    extent = WindowExtent(schema, time="t", group="g", values="v", window=f"{width_us}us", scheme="eager")
    return lambda block: extent.update(block) and None


def durable(schema: pa.Schema, width_us: int) -> Callable[[pa.Table], None]:
    """Processes blocks as a host does."""
    query = Coalesce(time="t", group="g", values="v", window=f"{width_us}us", slide=f"{width_us}us", scheme="eager")
    operator, store = query.operator([schema], streaming=True), DictStore()

    def take(block: pa.Table) -> None:
        arrivals = [Arrival(0, operator.readers[0].read(batch).block) for batch in block.to_batches()]
        operator.step(store, arrivals, block.column("t")[0].as_py())

    return take


def seconds_a_tuple(take: Callable[[pa.Table], None], table: pa.Table, size: int) -> list[float]:
    """Seconds per tuple of each block, once the window is full and has been evaluated."""
    spent = []
    for start in range(0, len(table), size):
        block = table.slice(start, size)
        begun = time.process_time()
        take(block)
        spent.append((time.process_time() - begun) / size)
    return spent[2 * BLOCKS_HELD :]


@click.command()
@click.option("--groups", default=100, show_default=True)
@click.option("--blocks", default=40, show_default=True, help="How many, 20 of which fill the window.")
def main(groups: int, blocks: int) -> None:
    """Print millions of tuples per second, by block size and coalescing probability: median over blocks, and mean."""
    pa.set_cpu_count(1)
    suite = Suite("coalesce_stream", blocks)
    durable_rates: dict[str, float] = {}
    for size in (10_000, 100_000):
        for cp in (0.5, 0.9, 0.99):
            table = readings(blocks * size, groups, cp)
            for name, way in (("in memory", in_memory), ("durable", durable)):
                spent = seconds_a_tuple(way(table.schema, BLOCKS_HELD * size), table, size)
                suite.record(f"blocks of {size:,}, cp {cp}{SEPARATOR}{name}", spent, groups=groups)
                median, mean = 1e-6 / float(np.median(spent)), 1e-6 / float(np.mean(spent))
                click.echo(f"blocks of {size:,}, cp {cp}, {name:9s}: {median:5.2f} million/s, mean {mean:5.2f}")
                if name == "durable":
                    durable_rates[f"{size:,} at cp {cp}"] = median
    told = ", ".join(f"{of}: {rate:.1f}" for of, rate in durable_rates.items())
    met = sum(rate >= DURABLE_WANTED for rate in durable_rates.values())
    suite.finding(
        "Coalescing: eager blocks with durable state",
        f"Wanted: {DURABLE_WANTED:g} million tuples a CPU-second. {met} of {len(durable_rates)} cases reach it; by "
        f"rows a block, in millions: {told}.",
    )
    suite.save()


if __name__ == "__main__":
    main()
