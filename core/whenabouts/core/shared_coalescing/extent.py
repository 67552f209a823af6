"""The rows of a stream, kept once for all queries that coalesce lazily: what each of them sees of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.coalescing.extent_evaluator import Coalescing
from whenabouts.core.coalescing.reorder_buffer import LEAST_SLOT_US
from whenabouts.core.coalescing.tuples import TemporalTuples, groups_of, links_of, order_of, without_rivals
from whenabouts.core.runtime.event_reader import T_MAX, times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, SegmentStore, Step
from whenabouts.core.state.segmented_state import Layout, SegmentedState


class SharedExtent:
    """The shared rows of one bucket during one step; queries of one grouping share the order, too."""

    def __init__(self, store: SegmentStore, schema: pa.Schema, slot_us: int, time: str) -> None:
        self._schema = schema
        self._state = SegmentedState(
            store, Layout([schema], purpose=f"shared extent by {time}"), slot_us=max(slot_us, LEAST_SLOT_US)
        )
        self._rows_before = self._state.rows_held
        self._ordered: dict[tuple[tuple[str, ...], int, int], TemporalTuples] = {}
        self._linked: dict[tuple[int, tuple[str, ...], object], tuple[BoolArray, int]] = {}

    def append(self, blocks: Sequence[pa.RecordBatch]) -> None:
        """Take in rows that are not late. O(rows)."""
        for block in blocks:
            self._state.append(0, block)

    def rows(self, from_us: int, until_us: int) -> pa.Table:
        """The rows from a time up to and without another one."""
        last = until_us if until_us == END_OF_TIME else until_us - 1
        table = pa.Table.from_batches(self._state.load(0, from_us, last), self._schema)
        t = times(table)[1]
        inside = (t >= from_us) & (t <= last)
        table = table if inside.all() else table.filter(pa.array(inside))
        return table.combine_chunks()

    def tuples(self, group: tuple[str, ...], from_us: int, until_us: int, columns: Sequence[str]) -> TemporalTuples:
        """The rows as a grouping sees them: by group and time, those without a group left out, one for each instant."""
        asked = group, from_us, until_us
        if asked not in self._ordered:
            found = self._by_group(group, self.rows(from_us, until_us))
            self._ordered[asked] = found[0] if not found[1] else without_rivals(found[0], columns)[0]
        return self._ordered[asked]

    def losers(
        self, group: tuple[str, ...], from_us: int, until_us: int, columns: Sequence[str]
    ) -> pa.RecordBatch | None:
        """The rows settled between two watermarks that lose against another one of their group and instant."""
        if until_us == NO_WATERMARK:
            return None
        tuples, twins = self._by_group(group, self.rows(from_us, until_us))
        rivals = without_rivals(tuples, columns)[1].losers if twins else np.empty(0, np.int64)
        if not len(rivals):
            return None
        return tuples.table.take(pa.array(rivals)).combine_chunks().to_batches()[0]

    def links(self, tuples: TemporalTuples, how: Coalescing) -> tuple[BoolArray, int]:
        """Which tuples go on their predecessors, and how many comparisons that took; once for equal queries."""
        asked = id(tuples), how.values, how.equivalence
        if asked not in self._linked:
            self._linked[asked] = links_of(tuples, how.values, how.equivalence)
            return self._linked[asked]
        return self._linked[asked][0], 0

    def keep_from(self, floor_us: int, covered_us: int, step: Step) -> int:
        """Drop the rows before a time; gives from where on every row is here."""
        self._state.evict(0, floor_us)
        change = self._state.rows_held - self._rows_before
        step.metrics[metrics.STORED if change > 0 else metrics.EVICTED] += abs(change)
        return max(covered_us, floor_us)

    @property
    def first_row_us(self) -> int | None:
        """No row lies before this; None where there is none."""
        return self._state.first_from_us(0, NO_WATERMARK)

    def save(self) -> None:
        """Write the directory."""
        self._state.save()

    def _by_group(self, group: tuple[str, ...], table: pa.Table) -> tuple[TemporalTuples, bool]:
        for name in group:
            if table.column(name).null_count:
                table = table.filter(pa.array(np.asarray(table.column(name).is_valid()))).combine_chunks()
        keys = Keys(group, [table.schema], ("events",))
        order = order_of(np.asarray(table.column(T_MAX).to_numpy()), groups_of(keys, table))
        return TemporalTuples(table, order.at, order.times, order.starts), order.twins
