"""How the cost per row and per pair grows with rows, keys, the width of the window, streams and queries.

    python benchmarks/growth.py [NAME ...] [--most 10000000]

Batch, local engine, from Arrow tables to Arrow tables; CPU-seconds of the process, the least of `--rounds`. A cost that
grows faster than rows and pairs together has an exponent above 0.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import click
import numpy as np
import pyarrow as pa
from curves import draw, exponent
from measuring import Suite

from whenabouts.core import Interval, Point, within
from whenabouts.core.local import run, timing_join
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.planner.selection import select

SECOND = 1_000_000
LENGTHS_US = (20_000, 200_000)
STEP_ROWS = 100_000
TIME = Interval("a", "b", max_uncertainty="200ms")


def events(seed: int, rows: int, keys: int, per_key_and_second: float) -> pa.Table:
    """Events in random order, uncertain by 20 to 200 ms."""
    random = np.random.default_rng(seed)
    start = random.integers(0, max(int(rows / keys / per_key_and_second * SECOND), 1), rows)
    return pa.table(
        {
            "k": random.integers(0, keys, rows),
            "a": start,
            "b": start + random.integers(*LENGTHS_US, rows, endpoint=True),
            "id": np.arange(rows),
        }
    )


def join(rows: int, keys: int, per_key_and_second: float, within_us: int) -> Callable[[], int]:
    """A timing join, as a function that returns the number of pairs."""
    left, right = (events(seed, rows, keys, per_key_and_second) for seed in (1, 2))
    condition = within(within_us, confidence=0.8)
    return lambda: (
        timing_join(
            left, right, on="k", left_time=TIME, right_time=TIME, condition=condition, probability=False
        ).num_rows
    )


class Measured(NamedTuple):
    """Least CPU-seconds of a call, its number of output rows, and the operating system's share of the CPU."""

    seconds: float
    found: int
    system: float


def measure(suite: Suite, series: str, call: Callable[[], int], rows: int) -> Measured:
    """Call once to warm up, then in rounds, and record the results."""
    spent, found, system = [], call(), os.times().system
    for _ in range(suite.rounds):
        begun = time.process_time()
        found = call()
        spent.append(time.process_time() - begun)
    share = (os.times().system - system) / sum(spent)
    suite.record(series, spent, rows_in=rows, rows_out=found, system=round(share, 3))
    click.echo(f"{series}: {min(spent):.4f} CPU-s ({share:.0%} system), {rows:,} rows in, {found:,} out")
    return Measured(min(spent), found, share)


def by_rows(suite: Suite, most: int) -> None:
    """10^4 rows a side to `most`, 1,000 keys, 2.4 partners an event: longer streams."""
    points, systems = [], []
    for rows in _powers(10_000, most):
        seconds, pairs, system = measure(suite, f"rows / {rows}", join(rows, 1_000, 1.25, SECOND), 2 * rows)
        points.append((rows, 1e9 * seconds / (2 * rows + pairs)))
        systems.append(f"{1e9 * system * seconds / (2 * rows + pairs):,.0f}")
    what = "Longer streams at the same density, in one batch"
    why = (
        f"Of that the operating system took {', '.join(systems)} ns, which gives memory for rows and pairs. The sort "
        "does more for each row of more rows, and pairs take values from columns that are larger than the caches."
    )
    _tell(suite, "Rows", points, "rows of a side", what, why=why)


def by_length(suite: Suite, most: int) -> None:
    """10^5 rows a side to ten times `most` as a stream with state, 100,000 rows a step and side, 1,000 keys."""
    points = []
    stream(STEP_ROWS)  # to load the kernels
    for rows in _powers(STEP_ROWS, 10 * most):
        spent, pairs, held = stream(rows)
        suite.record(f"length of a stream / {rows}", [spent], rows_in=2 * rows, rows_out=pairs, state_bytes=held)
        click.echo(f"length / {rows}: {spent:.2f} CPU-s, {pairs:,} out, at most {held:,} bytes of state")
        points.append((rows, 1e9 * spent / (2 * rows + pairs)))
    _tell(suite, "Length of a stream", points, "rows of a side", "A stream with durable state, ever longer")


def stream(rows: int) -> tuple[float, int, int]:
    """CPU-seconds of a stream's steps, its pairs, and the most bytes of state."""
    query = TimingJoin(left_time=TIME, right_time=TIME, condition=within("1s", confidence=0.8), on="k")
    operator, store = query.operator([in_order(0, 0, 1).schema] * 2, streaming=True), DictStore()
    spent, pairs, held, latest = 0.0, 0, 0, NO_WATERMARK
    for step in range(rows // STEP_ROWS):
        batches = [in_order(side, step, STEP_ROWS) for side in (0, 1)]
        begun = time.process_time()
        arrivals = [Arrival(side, operator.readers[side].read(batch).block) for side, batch in enumerate(batches)]
        pairs += sum(out.num_rows for out in operator.step(store, arrivals, latest).output)
        spent += time.process_time() - begun
        held, latest = max(held, store.bytes_held), min(batch["b"][-1].as_py() for batch in batches)
    return spent, pairs, held


def in_order(side: int, step: int, rows: int) -> pa.RecordBatch:
    """A side of a micro-batch, in the order of its times: 1,250 rows a second, 1,000 keys."""
    random = np.random.default_rng([side, step])
    first, last = (int(at * rows / 1_250 * SECOND) for at in (step, step + 1))
    end = np.sort(random.integers(first, last, rows))
    start = end - random.integers(*LENGTHS_US, rows, endpoint=True)
    return pa.record_batch({"k": random.integers(0, 1_000, rows), "a": start, "b": end, "id": np.arange(rows)})


def by_keys(suite: Suite, most: int) -> None:
    """1 to 10^6 keys, a million rows a side, 2.4 partners an event."""
    rows, points = min(1_000_000, most), []
    for keys in _powers(1, rows):
        seconds, pairs, _ = measure(suite, f"keys / {keys}", join(rows, keys, 1.25, SECOND), 2 * rows)
        points.append((keys, 1e9 * seconds / (2 * rows + pairs)))
    _tell(suite, "Keys", points, "keys", f"The same {rows:,} rows a side over more keys")


def by_output(suite: Suite, most: int) -> None:
    """0.01 to 1,000 partners an event: wider windows over 100,000 rows a side."""
    rows, points = min(100_000, most), []
    for partners in (0.01, 0.1, 1, 10, 100, 1_000):
        per_second = 1.0 if partners <= 10 else 100.0
        width = int(partners / per_second / 2 * SECOND)
        call = join(rows, 1 if partners > 10 else 1_000, per_second, max(width, 1_000))
        seconds, pairs, _ = measure(suite, f"partners wanted / {partners}", call, 2 * rows)
        points.append((max(pairs, 1) / rows, 1e9 * seconds / (2 * rows + pairs)))
    _tell(suite, "Output", points, "pairs of an event", f"Wider windows over {rows:,} rows a side")


def by_streams(suite: Suite, most: int) -> None:
    """Uniform cliques of 2 to 6 streams of 50,000 rows, 1,000 keys. An output row has a part from each stream."""
    rows, points = min(50_000, most), []
    for k in (2, 3, 4, 5, 6):
        random = np.random.default_rng(k)
        tables = {
            f"s{place}": pa.table(
                {"k": random.integers(0, 1_000, rows), "t": np.sort(random.integers(0, rows // 50 * SECOND, rows))}
            )
            for place in range(k)
        }
        names = list(tables)
        windows = {(one, other): 20 * SECOND for at, one in enumerate(names) for other in names[at + 1 :]}
        query = WindowJoin(times=dict.fromkeys(names, Point("t")), windows=windows, on="k")
        inputs = list(tables.values())
        seconds, found, _ = measure(
            suite, f"streams / {k}", lambda query=query, inputs=inputs: run(query, inputs).output.num_rows, k * rows
        )
        points.append((k, 1e9 * seconds / (k * rows + k * found)))
    unit = "each row in and each stream's part of a row out"
    _tell(suite, "Streams", points, "streams", f"Cliques of {rows:,} rows a stream", unit)


def by_queries(suite: Suite, most: int) -> None:
    """10 to 10,000 coalescing queries planned together under a budget that binds."""
    points = []
    for queries in [n for n in (10, 100, 1_000, 10_000) if n <= most]:
        seconds, *_ = measure(suite, f"queries planned / {queries}", planning(queries), queries)
        points.append((queries, 1e9 * seconds / queries))
    _tell(suite, "Queries", points, "queries", "Planning queries of one stream under a memory budget", "each query")


def planning(queries: int) -> Callable[[], int]:
    """A function that plans queries of random costs, with memory for half of the extents."""
    random = np.random.default_rng(queries)
    eager, scans, memory = (random.random(queries).tolist() for _ in range(3))
    return lambda: len(select(eager, scans, 1.0, memory, shared_memory=0.5, budget=sum(memory) / 2).eager)


SWEEPS: Mapping[str, Callable[[Suite, int], None]] = {
    "rows": by_rows,
    "length": by_length,
    "keys": by_keys,
    "output": by_output,
    "streams": by_streams,
    "queries": by_queries,
}


def _tell(
    suite: Suite, title: str, points: list[tuple[float, float]], x_label: str, what: str,
    unit: str = "each row in and each row out", why: str = "",
) -> None:  # fmt: skip
    plot = draw(f"growth_{title.lower().replace(' ', '_')}", {"ns": points}, x_label, f"CPU-ns for {unit}")
    told = ", ".join(f"{cost:,.0f} at {x:,.3g}" for x, cost in points)
    suite.finding(
        f"Growth: {title.lower()}",
        f"{what}: CPU-ns for {unit} {told}. Without the first point that cost grows as the {x_label} to the "
        f"power of {exponent(points[1:]):.2f}. {why}".rstrip(),
        plots=[plot],
    )


def _powers(least: int, most: int) -> list[int]:
    return [10**n for n in range(12) if least <= 10**n <= most]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SWEEPS)))
@click.option("--most", default=10_000_000, show_default=True, help="the greatest number of rows of a side")
@click.option("--rounds", default=3, show_default=True)
def main(names: tuple[str, ...], most: int, rounds: int) -> None:
    """The sweeps."""
    suite = Suite("growth", rounds)
    for name in names or SWEEPS:
        SWEEPS[name](suite, most)
    suite.save()


if __name__ == "__main__":
    main()
