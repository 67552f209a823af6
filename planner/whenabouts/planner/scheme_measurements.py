"""Measures a coalescing scheme: memory, and the CPU time of updates and scans of the operators."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.coalescing.aggregate_needs import AggregateNeeds
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.coalescing.tuples import TemporalTuples, groups_of, order_of
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, Step
from whenabouts.core.shared_coalescing.extent import SharedExtent
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.state.memory_store import DictStore


@dataclass(frozen=True, slots=True)
class SchemeMeasurement:
    """One run, of all queries together.

    ``memory`` in bytes; ``update`` in microseconds of CPU time per arriving tuple, ``scan`` per evaluation of the
    window; ``tuples``: mean number of tuples in the window; ``step_rows``: mean number of tuples per step.
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
) -> SchemeMeasurement:
    """Run queries together over a table in order of arrival, and measure after ``warm_slides`` extents.

    All queries must slide by ``slide_us``. The rows of a slide arrive in ``steps_per_slide`` steps, while the watermark
    stays before its end. Then the watermark alone reaches the end, so that all rows before it are final: still part of
    the update. Then it passes the end by a microsecond, which evaluates the extents: the scan. Memory is what the store
    holds after an evaluation. The table's time column is int64. Cost: that of the run.
    """
    query = SharedCoalescing(queries=queries, schemes=schemes)
    operator = query.operator([table.schema], streaming=True)
    name = query.queries[0][1].point.t
    block = operator.readers[0].read(table.combine_chunks().to_batches()[0]).block
    at = np.asarray(block.column(name).to_numpy())
    # A row arrives when the greatest time so far is reached.
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
    return SchemeMeasurement(sizes / looks, updates / held * 1e6, scans / looks * 1e6, tuples, held / steps)


class Expiry(NamedTuple):
    """Microseconds of CPU time for an expiring tuple, in the window of an eager query and in a shared extent."""

    eager: float
    lazy: float


def measure_expiry(query: Coalesce, table: pa.Table, *, slides: int = 16) -> Expiry:
    """Fill what an eager operator holds in memory, and what lazy ones share, with a table, and expire all of it.

    The time is that of the operators' own window and extent, slide by slide. It is part of an update; measured alone,
    since in a step it cannot be told from the arrivals. Cost: O(tuples).
    """
    operator = query.operator([table.schema], streaming=True)
    reader, spec = operator.readers[0], query.coalescing
    block = reader.read(table.combine_chunks().to_batches()[0]).block
    rows = pa.Table.from_batches([block])
    order = order_of(times(block)[1], groups_of(Keys(spec.group, [rows.schema], ("events",)), rows))
    tuples = TemporalTuples(rows, order.at, order.times, order.starts)
    window = SlidingWindow(reader.schema, spec.group, spec.values, spec.equivalence, AggregateNeeds(), eager=True)
    window.append(tuples)
    ends = np.quantile(order.times, np.linspace(0, 1, slides + 1)[1:]).astype(np.int64) + 1
    window.drop_before(int(ends[0]))  # compiles
    expiring = len(window)
    started = time.process_time()
    for end in ends[1:]:
        window.drop_before(int(end))
    eager = time.process_time() - started
    width_us = int(order.times.max() - order.times.min())
    extent = SharedExtent(DictStore(), reader.block_schema, width_us // 16, "t")
    extent.append([block])
    extent.save()
    started = time.process_time()
    for end in ends:
        extent.keep_from(int(end), 0, Step())
        extent.save()
    lazy = time.process_time() - started
    return Expiry(eager / expiring * 1e6, lazy / len(tuples) * 1e6)


def median(found: Sequence[SchemeMeasurement]) -> SchemeMeasurement:
    """The median of each figure."""
    return SchemeMeasurement(*(float(np.median(each)) for each in zip(*map(astuple, found), strict=True)))
