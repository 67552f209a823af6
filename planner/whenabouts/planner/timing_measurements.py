"""Measures a timing join: the CPU time of steps, rows, pairs and kernel calls of the operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from whenabouts.core import Interval, within
from whenabouts.core.costs.prices import TimingJoinPrices
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.query import TimingJoin

RATE, KEYS, LONGEST_US = 1_000, 50, 200_000
STEPS = {1: 300, 10: 200, 100: 100, 1_000: 40, 10_000: 12}
"""Rows per step and side -> number of measured steps."""

WINDOWS = ("100 ms", "2 s")
STRATEGIES = ("auto", "lazy", "lazy_lookup")
JOIN_RUNS = len(STRATEGIES) * len(STEPS) * len(WINDOWS)


@dataclass(frozen=True, slots=True)
class JoinMeasurement:
    """One run of a strategy: nanoseconds of CPU time, pairs and kernel calls, each per row."""

    strategy: str
    window: str
    rows: int
    ns: float
    pairs: float
    probed: float


def measure_prices(
    repeat: int = 1, progress: Callable[[int, int], None] | None = None
) -> tuple[TimingJoinPrices, list[JoinMeasurement]]:
    """Prices of this machine, and the runs that they were computed from. Each run is the median of ``repeat`` runs.

    ``progress`` receives the number of finished runs and of all runs. Cost: ten seconds for each repetition.
    """
    runs = [(strategy, window, rows) for strategy in STRATEGIES for rows in STEPS for window in WINDOWS]
    for strategy in STRATEGIES:
        pace(strategy, WINDOWS[0], 100)  # kernels are compiled
    paces = []
    for done, run in enumerate(runs):
        found = sorted((pace(*run) for _ in range(repeat)), key=lambda each: each.ns)
        paces.append(found[len(found) // 2])
        if progress is not None:
            progress(done + 1, len(runs))
    return prices_of(paces), paces


def prices_of(paces: Sequence[JoinMeasurement]) -> TimingJoinPrices:
    """Prices by least squares of relative errors, none below zero. The price of a look-up keeps its default.

    >>> grid = [(n, p, k) for n in (1, 9) for p in (0, 7) for k in (0, 4)]
    >>> runs = [JoinMeasurement("auto", "", n, 900 / n + 5 + 3 * p + 2 * k, p, k) for n, p, k in grid]
    >>> found = prices_of(runs)
    >>> round(found.step), round(found.row), round(found.pair), round(found.kernel)
    (1800, 5, 3, 2)
    """
    used_runs = [each for each in paces if each.strategy != "lazy_lookup"]
    equations = np.array([[0.5 / each.rows, 1.0, each.pairs, each.probed] for each in used_runs])
    weights = 1 / np.array([each.ns for each in used_runs])
    used = np.ones(4, bool)
    found = np.zeros(4)
    while used.any():
        weighed = equations[:, used] * weights[:, None]
        found[:], found[used] = 0.0, np.linalg.lstsq(weighed, np.ones(len(used_runs)), rcond=None)[0]
        if (found >= 0).all():
            break
        used &= found > 0  # leave out prices below zero and solve again
    step, row, pair, kernel = map(float, found)
    return TimingJoinPrices(step=step, row=row, pair=pair, kernel=kernel)


def pace(strategy: str, window: str, rows: int) -> JoinMeasurement:
    """Run a stream of intervals in steps of `rows` rows of each side."""
    spec = Interval("a", "b", max_uncertainty=f"{LONGEST_US} us")
    query = TimingJoin(
        left_time=spec, right_time=spec, condition=within(window, confidence=0.7), on="k", strategy=strategy
    )
    tables = [_side(rows * STEPS[rows], seed) for seed in (1, 2)]
    operator = query.operator([table.schema for table in tables], streaming=True)
    blocks = [reader.read(table).block for reader, table in zip(operator.readers, tables, strict=True)]
    ends = np.minimum(*(table["b"].to_numpy() for table in tables))
    store, watermark, pairs, probed, spent = DictStore(), NO_WATERMARK, 0, 0, 0.0
    for step in range(STEPS[rows]):
        arrivals = [Arrival(input, block.slice(step * rows, rows)) for input, block in enumerate(blocks)]
        started = time.process_time()
        found = operator.step(store, arrivals, watermark)
        spent += time.process_time() - started
        watermark = int(ends[(step + 1) * rows - 1])
        pairs += found.metrics["matched"]
        probed += found.metrics["probed"]
    n = 2 * rows * STEPS[rows]
    return JoinMeasurement(strategy, window, rows, spent / n * 1e9, pairs / n, probed / n)


def _side(rows: int, seed: int) -> pa.RecordBatch:
    """Intervals of up to 200 ms, sorted by their ends, at `RATE` per second."""
    random = np.random.default_rng(seed)
    end = np.sort(random.integers(0, rows * 1_000_000 // RATE, rows))
    start = end - random.integers(0, LONGEST_US, rows)
    return pa.record_batch([start, end, random.integers(0, KEYS, rows)], names=["a", "b", "k"])
