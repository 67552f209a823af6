"""The rows of a stream, kept once for all lazy queries, and the view that each grouping has of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of, take_table
from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.coalescing.tuples import TemporalTuples, groups_of, links_of, order_of, without_duplicates
from whenabouts.core.runtime.blocks import T_MAX, times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, SegmentStore, Step
from whenabouts.core.state.segment_layout import LEAST_SLOT_US, Layout
from whenabouts.core.state.segmented_state import SegmentedState


class SharedExtent:
    """The shared rows of one bucket during one step. Queries with the same groups also share the sorted tuples."""

    def __init__(self, store: SegmentStore, schema: pa.Schema, slot_us: int, time: str) -> None:
        self._schema = schema
        self._state = SegmentedState(
            store, Layout([schema], purpose=f"shared extent by {time}"), slot_us=max(slot_us, LEAST_SLOT_US)
        )
        self._rows_before = self._state.rows_held
        self._ordered: dict[tuple[tuple[str, ...], int, int], TemporalTuples] = {}
        self._linked: dict[tuple[int, tuple[str, ...], object], tuple[BoolArray, int]] = {}

    def append(self, blocks: Sequence[pa.RecordBatch]) -> None:
        """Add rows that are not late. O(rows)."""
        for block in blocks:
            self._state.append(0, block)

    def rows(self, from_us: int, until_us: int) -> pa.Table:
        """The rows with `from_us <= time < until_us`."""
        last = until_us if until_us == END_OF_TIME else until_us - 1
        table = table_of(self._state.load(0, from_us, last), self._schema)
        t = times(table)[1]
        inside = (t >= from_us) & (t <= last)
        return table if inside.all() else table.filter(pa.array(inside)).combine_chunks()

    def tuples(self, group: tuple[str, ...], from_us: int, until_us: int, columns: Sequence[str]) -> TemporalTuples:
        """The rows sorted by group and time, one for each instant; rows without a group are left out."""
        key = group, from_us, until_us
        if key not in self._ordered:
            tuples, has_ties = self._by_group(group, self.rows(from_us, until_us))
            self._ordered[key] = without_duplicates(tuples, columns)[0] if has_ties else tuples
        return self._ordered[key]

    def duplicates(
        self, group: tuple[str, ...], from_us: int, until_us: int, columns: Sequence[str]
    ) -> pa.RecordBatch | None:
        """The rows settled between two watermarks that are rejected as duplicates of their group and instant."""
        if until_us == NO_WATERMARK:
            return None
        tuples, has_ties = self._by_group(group, self.rows(from_us, until_us))
        rejected = without_duplicates(tuples, columns)[1].rejected if has_ties else np.empty(0, np.int64)
        if not len(rejected):
            return None
        return one_batch(take_table(tuples.table, rejected))

    def links(self, tuples: TemporalTuples, spec: CoalescingSpec) -> tuple[BoolArray, int]:
        """Which tuples extend their predecessor, and the comparisons made; queries that compare alike share them."""
        key = id(tuples), spec.values, spec.equivalence
        if key not in self._linked:
            self._linked[key] = links_of(tuples, spec.values, spec.equivalence)
            return self._linked[key]
        return self._linked[key][0], 0

    @property
    def rows_held(self) -> int:
        """Rows in the store."""
        return self._state.rows_held

    def keep_from(self, floor_us: int, covered_us: int, step: Step) -> int:
        """Drop the rows before a time; returns the time from which on all rows are held."""
        self._state.evict(0, floor_us)
        change = self._state.rows_held - self._rows_before
        step.metrics[metrics.STORED if change > 0 else metrics.EVICTED] += abs(change)
        return max(covered_us, floor_us)

    @property
    def first_row_us(self) -> int | None:
        """A lower bound of the times of all rows; None if there are no rows."""
        return self._state.first_from_us(0, NO_WATERMARK)

    def first_waiting_us(self, until_us: int) -> int | None:
        """A lower bound of the times of the rows that the watermark has not passed; None if there are none."""
        first = self._state.first_from_us(0, until_us)
        return None if first is None else max(first, until_us)

    def save(self) -> None:
        """Write the directory."""
        self._state.save()

    def _by_group(self, group: tuple[str, ...], table: pa.Table) -> tuple[TemporalTuples, bool]:
        for name in group:
            if table.column(name).null_count:
                table = table.filter(pa.array(np.asarray(table.column(name).is_valid()))).combine_chunks()
        keys = Keys(group, [table.schema], ("events",))
        order = order_of(np.asarray(table.column(T_MAX).to_numpy()), groups_of(keys, table))
        return TemporalTuples(table, order.at, order.times, order.starts), order.has_ties
