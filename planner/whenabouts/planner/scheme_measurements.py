"""What a scheme costs when it runs: bytes a tuple, CPU time of an update and of a scan, on the operators themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from whenabouts.core.coalescing.operator import Coalesce
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival
from whenabouts.core.shared_coalescing.operator import SharedCoalescing
from whenabouts.core.state.memory_store import DictStore


@dataclass(frozen=True, slots=True)
class Measured:
    """``memory`` in bytes; ``update`` in microseconds of CPU time for each arriving tuple; ``scan`` for each look.

    All of all queries together; ``tuples``: how many the window holds when it is looked at (mean); ``step_rows``: how
    many of them arrived in a step.
    """

    memory: float
    update: float
    scan: float
    tuples: float
    step_rows: float


def measure(
    queries: Mapping[str, Coalesce],
    schemes: Mapping[str, str],
    table: pa.Table,
    *,
    slide_us: int,
    steps_per_slide: int = 4,
    warm_slides: int,
) -> Measured:
    """Run queries together over a table in order of arrival, and measure once ``warm_slides`` extents have come out.

    All queries must slide by ``slide_us``. Rows arrive in ``steps_per_slide`` steps under a watermark that passes no
    instant; then the watermark alone reaches it, so that all rows before it are settled, which is still part of their
    update; then it passes it by a microsecond, and the extents are looked at. The table's time column is int64. Memory
    is what the store holds when an instant has been looked at. Cost: that of the run.
    """
    query = SharedCoalescing(queries=queries, schemes=schemes)
    operator = query.operator([table.schema], streaming=True)
    name = query.queries[0][1].point.t
    block = operator.readers[0].read(table.combine_chunks().to_batches()[0]).block
    at = np.asarray(block.column(name).to_numpy())
    # A row belongs to the step in which it arrives: the greatest time so far says when that is.
    arrival = np.maximum.accumulate(at)
    lateness = int((arrival - at).max(initial=0))
    first, last = int(at[0]) // slide_us + 1, int(arrival[-1]) // slide_us
    store, held, updates, scans, sizes, steps = DictStore(), 0.0, 0.0, 0.0, 0.0, 0
    watermark, rows = NO_WATERMARK, 0
    looks = 0
    for slide in range(first, last + 1):
        until = np.searchsorted(arrival, slide * slide_us + lateness, side="right")
        cuts = np.linspace(rows, until, steps_per_slide + 1).astype(int)
        warm = slide - first >= warm_slides
        steps += warm
        for low, high in pairwise(cuts):
            if high == low:
                continue
            piece = pa.RecordBatch.from_arrays(
                [column.slice(low, high - low) for column in block.columns], schema=block.schema
            )
            started = time.process_time()
            operator.step(store, [Arrival(0, piece)], watermark)
            if warm:
                updates += time.process_time() - started
                held += high - low
                steps += 1
            watermark = max(watermark, min(int(arrival[high - 1]) - lateness, slide * slide_us))
        started = time.process_time()
        operator.step(store, [], slide * slide_us)
        settled = time.process_time()
        watermark = slide * slide_us + 1
        operator.step(store, [], watermark)
        if warm:
            updates += settled - started
            scans += time.process_time() - settled
            sizes += store.bytes_held
            looks += 1
        rows = int(until)
    width = max(each.extents.window.width_us or 0 for _, each in query.queries)
    tuples = len(at) * width / max(int(arrival[-1] - at[0]), 1)
    return Measured(sizes / looks, updates / held * 1e6, scans / looks * 1e6, tuples, held / steps)


def median(found: Sequence[Measured]) -> Measured:
    """The median of each figure."""
    return Measured(*(float(np.median(each)) for each in zip(*map(astuple, found), strict=True)))
