"""The cost of a step of an as-of join's stream by the keys that it holds, in this process.

    python benchmarks/asof_keys.py [--most 1000000]

Each key has one right row, folded long ago. A step takes 1,000 left and 1,000 right rows, of the same 100 keys
or of any keys. Printed are the median CPU-milliseconds of a step. They grow with the slots of keys that a step touches,
about 50 us for each: at most one for each key of the step, and at most one for 512 keys held.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import click
import numpy as np
import pyarrow as pa
from measuring import SEPARATOR, Suite

import whenabouts as wa
from whenabouts.core.runtime.protocol import Arrival
from whenabouts.core.state.memory_store import DictStore

START_US = 1_700_000_000_000_000
STEP_ROWS, STEPS = 1_000, 30
EACH_US = 1_000_000
POINTS: dict[str, Any] = {"left_time": wa.Point("t"), "right_time": wa.Point("t")}


def milliseconds_of_steps(keys: int, *, anywhere: bool) -> list[float]:
    """CPU-milliseconds of each step, with one folded right row of each of these keys."""
    query = wa.AsofJoin(**POINTS, on="k", lateness="1 us")
    random, store = np.random.default_rng(7), DictStore()
    schemas = [pa.schema({"k": pa.int64(), "t": pa.int64(), name: pa.float64()}) for name in ("w", "v")]
    operator = query.operator(schemas, streaming=True)

    def step(of: dict[int, Any], now_us: int) -> None:
        arrivals = []
        for side, k in of.items():
            t = np.sort(random.integers(now_us - EACH_US, now_us, len(k)))
            rows = pa.record_batch([k, t, random.random(len(k))], schema=schemas[side])
            arrivals.append(Arrival(side, operator.readers[side].read(rows).block))
        operator.step(store, arrivals, now_us - EACH_US)

    now_us = START_US
    every = random.permutation(keys)
    for start in range(0, keys, 100 * STEP_ROWS):
        step({1: every[start : start + 100 * STEP_ROWS]}, now_us)
        now_us += 100 * EACH_US  # so that the rows are folded
    if operator.rows_held(store) < keys:
        raise click.ClickException("rows are missing from the state")
    spent = []
    for _ in range(STEPS):
        of = {side: random.integers(0, keys if anywhere else min(keys, 100), STEP_ROWS) for side in (0, 1)}
        begun = time.process_time()
        step(of, now_us)
        spent.append((time.process_time() - begun) * 1e3)
        now_us += 10 * EACH_US
    return spent[STEPS // 3 :]  # the first ones fold the last of the rows before


@click.command()
@click.option("--most", default=1_000_000, show_default=True, help="The most keys held.")
def main(most: int) -> None:
    """Measure and save."""
    suite = Suite("asof_keys")
    held = [keys for keys in (1_000, 10_000, 100_000, 1_000_000) if keys <= most]
    for anywhere in (False, True):
        for keys in held:
            spent = milliseconds_of_steps(keys, anywhere=anywhere)
            touched = "any" if anywhere else "100"
            name = f"a step of {2 * STEP_ROWS:,} rows, of {touched} keys{SEPARATOR}{keys:,} keys held"
            suite.record(name, [milliseconds / 1e3 for milliseconds in spent])
            click.echo(f"{name:60s} {statistics.median(spent):8.1f} ms")
    suite.save()


if __name__ == "__main__":
    main()
