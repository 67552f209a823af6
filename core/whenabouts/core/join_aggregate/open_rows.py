"""The rows of a join aggregate of streams in a bucket's state, during one step.

A left row is *open* until the watermark proves that no right row to come can be one of its partners; then it is
settled, and leaves the state. Right rows are kept while a left row that is open, or one to come, can meet them. So a
left row is computed once, from all its partners together, and neither steps nor the order of arrival matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.join_aggregate.settings import LEFT, RIGHT
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, SegmentStore, Step
from whenabouts.core.state.segment_layout import LEAST_SLOT_US, Layout
from whenabouts.core.state.segmented_state import SegmentedState, rows_in_state
from whenabouts.core.timing_join.settings import TimingJoinSettings


class Reach:
    """How far apart partners can be, from the timing join whose pairs are all right rows that can matter."""

    def __init__(self, join: TimingJoinSettings) -> None:
        self._join = join
        self._lo, self._hi = join.window_from(LEFT)
        self._longest = join.left_time.max_uncertainty_us or 0, join.right_time.max_uncertainty_us or 0

    @cached_property
    def _differences(self) -> tuple[int, int]:
        return self._join.least_difference(LEFT), self._join.least_difference(RIGHT)

    def bound(self, input: int, watermark_us: int) -> int:
        """Rows of `input` with a lesser `t_max` can match no row of the other input at or after the watermark."""
        from whenabouts.core.probability.match_thresholds import eviction_bound  # numba: imported when first needed

        return eviction_bound(watermark_us, self._differences[input])

    def instants(self, t_max: IntArray) -> IntArray:
        """The least watermark at which left rows are settled."""
        instants: IntArray = t_max + (1 - self._differences[LEFT])
        return instants

    @property
    def slot_us(self) -> int:
        """The slot width of a new bucket: a quarter of the range in which partners can lie."""
        return max((self._hi - self._lo + sum(self._longest)) // 4, LEAST_SLOT_US)

    def around(self, left: pa.Table) -> tuple[int, int]:
        """The range of `t_max` in which the partners of left rows lie."""
        t_min, t_max = times(left)
        return int(t_min.min()) + self._lo, int(t_max.max()) + self._hi + self._longest[RIGHT]


def layout_of(blocks: Sequence[pa.Schema], purpose: str) -> Layout:
    """The layout of the state: open left rows, and right rows."""
    return Layout(blocks, opens={LEFT: _all_rows}, purpose=purpose)


class OpenRows:
    """One step's view of the state."""

    def __init__(self, store: SegmentStore, layout: Layout, reach: Reach) -> None:
        self._reach = reach
        self._state = SegmentedState(store, layout, slot_us=reach.slot_us)
        self._state.set_retention([reach.bound(input, 0) for input in (LEFT, RIGHT)])
        self._stored = 0

    def take_in(self, arrivals: Sequence[Arrival], watermark_us: int) -> list[pa.RecordBatch]:
        """Store rows that arrived; remove and return the left rows that are settled at this watermark.

        A left row can be settled when it arrives, where right rows come before left ones.
        """
        state, before_us = self._state, self._reach.bound(LEFT, watermark_us)
        settled: list[pa.RecordBatch] = []
        first_us = state.first_open_us(LEFT)
        if first_us is not None and first_us < before_us:
            settled = [_before(block, before_us) for block in state.load(LEFT, NO_WATERMARK, before_us - 1)]
        for input, block in arrivals:
            if input == LEFT:
                final = times(block)[1] < before_us
                settled.append(block.filter(pa.array(final)))
                block = block.filter(pa.array(~final))
            if block.num_rows:
                state.append(input, block)
                self._stored += block.num_rows
        return [block for block in settled if block.num_rows]

    def all_left(self) -> list[pa.RecordBatch]:
        """All open left rows."""
        return self._state.load(LEFT, NO_WATERMARK, END_OF_TIME)

    def right_of(self, left: pa.Table) -> list[pa.RecordBatch]:
        """Right rows among which are all partners of left rows."""
        return self._state.load(RIGHT, *self._reach.around(left)) if left.num_rows else []

    def drop_unneeded(self, watermark_us: int, step: Step) -> None:
        """Drop settled left rows, and right rows that no left row can meet any more."""
        state = self._state
        step.metrics[metrics.STORED] += self._stored
        step.metrics[metrics.EVICTED] += state.evict(LEFT, self._reach.bound(LEFT, watermark_us))
        first_us = state.first_open_us(LEFT)
        earliest_us = watermark_us if first_us is None else min(watermark_us, first_us)
        step.metrics[metrics.EVICTED] += state.evict(RIGHT, self._reach.bound(RIGHT, earliest_us))

    def save(self, watermark_us: int, inputs: Sequence[str], step: Step) -> None:
        """Write the directory; the step gets its timer and the size of the state."""
        self._state.save()
        step.gauges = self._state.gauges(inputs)
        step.timer_us = self._timer(watermark_us)

    def _timer(self, watermark_us: int) -> int | None:
        """The least watermark at which a left row is settled, or a segment can be dropped."""
        state, reach = self._state, self._reach
        first_us = state.first_open_us(LEFT)
        due = [] if first_us is None else [int(reach.instants(np.array([first_us]))[0])]
        for input in (LEFT, RIGHT):
            end_us = state.first_end_us(input)
            if end_us is not None:
                due.append(end_us - reach.bound(input, 0))  # the bound is the watermark plus a constant
        return min((us for us in due if us > watermark_us), default=None)


def rows_held(store: SegmentStore) -> int:
    """The rows of both inputs in a bucket's state. One `get` of its directory."""
    return rows_in_state(store, 2)


def _before(block: pa.RecordBatch, before_us: int) -> pa.RecordBatch:
    return block.filter(pa.array(times(block)[1] < before_us))


def _all_rows(rows: pa.RecordBatch | pa.Table) -> BoolArray:
    return np.ones(rows.num_rows, bool)
