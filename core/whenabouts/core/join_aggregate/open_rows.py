"""The rows of a join aggregate of streams in a bucket's state, during one step.

A left row is *open* until the watermark proves that no right row to come can be one of its partners; then it is
settled, and leaves the state. Right rows are kept while a left row that is open, or one to come, can meet them. So a
left row is computed once, from all its partners together, and neither steps nor the order of arrival matter.

Right rows that no left row to come can meet may be folded into the open left rows (`folded`), and leave the state then.
This is done where they outnumber the open left rows: folding costs a look at each of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import table_of, with_null_columns
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, SegmentStore, Step
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.state.segment_layout import LEAST_SLOT_US, Layout, every_row
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.times.widened import lengths_of
from whenabouts.core.timing_join.settings import TimingJoinSettings


class Folding(NamedTuple):
    """How right rows are folded. `marks`: the schema of the marks (`folded.marks_of`), None: they never are.

    `settings`: a digest of all that marks depend on. `least`: the least number of right rows to fold, None: they stay.
    `right_per_left`: the least number for each open left row.
    """

    marks: pa.Schema | None = None
    settings: int = 0
    least: int | None = None
    right_per_left: int = 0


_NEW_SEGMENTS = {LEFT: 1, RIGHT: 2}
"""About how many new segments of an input a step makes. All left rows before an instant are read together, so that few
serve best; right rows are dropped segment by segment."""

MarksWith = Callable[[pa.Table, Sequence[pa.RecordBatch]], pa.RecordBatch]
"""From left rows, with their marks, and right rows: the marks once these are folded, too."""


class Reach:
    """How far apart partners can be, from the timing join whose pairs are all right rows that can matter."""

    def __init__(self, join: TimingJoinSettings) -> None:
        self._join = join
        self._lo, self._hi = join.window_from(LEFT)
        self._longest = join.left_time.max_uncertainty_us or 0, join.right_time.max_uncertainty_us or 0
        self.lengths = lengths_of(join.left_time, join.right_time)

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

    def around_right(self, right: Sequence[pa.RecordBatch]) -> tuple[int, int]:
        """The range of `t_max` of the left rows that right rows are partners of."""
        first = min(int(times(block)[0].min()) for block in right)
        last = max(int(times(block)[1].max()) for block in right)
        return first - self._hi, last - self._lo + self._longest[LEFT]


def layout_of(blocks: Sequence[pa.Schema], marks: pa.Schema | None, purpose: str) -> Layout:
    """The layout of the state: open left rows, marked once right rows were folded, and right rows.

    The directory's notes are the settings of the last folding, and its watermark.
    """
    if marks is None:
        return Layout(blocks, opens={LEFT: every_row}, purpose=purpose)
    later = frozenset({LEFT})
    return Layout(blocks, marks={LEFT: marks}, opens={LEFT: every_row}, purpose=purpose, marked_later=later)


class OpenRows:
    """One step's view of the state.

    Raises EngineError WA-3006 if an open left row has folded partners, and these were found by other settings.
    """

    def __init__(self, state: SegmentedState, left_schema: pa.Schema, reach: Reach, folding: Folding) -> None:
        self._state, self._left_schema = state, left_schema
        self._reach, self._folding = reach, folding
        self._state.set_retention([reach.bound(input, 0) for input in (LEFT, RIGHT)])
        self._stored = self._evicted = 0
        self._check_notes()

    def _check_notes(self) -> None:
        state = self._state
        if not state.notes or state.notes[0] == self._folding.settings:
            return
        first_us = state.first_open_us(LEFT)
        if first_us is not None and first_us < state.notes[1]:
            raise EngineError(
                Code.STATE_LACKS_ROWS,
                "open left rows have partners that were folded for other aggregates or another condition, and dropped",
                "continue with those until these left rows have come out, or start from a new checkpoint; "
                "folding='never' keeps rows for later changes",
            )
        state.forget_marks(LEFT)
        state.notes = []

    def take_in(self, arrivals: Sequence[Arrival], watermark_us: int) -> list[pa.RecordBatch]:
        """Store rows that arrived; remove and return the left rows that are settled at this watermark, with marks.

        A left row can be settled when it arrives, where right rows come before left ones.
        """
        state, before_us = self._state, self._reach.bound(LEFT, watermark_us)
        settled: list[pa.RecordBatch] = []
        first_us = state.first_open_us(LEFT)
        if first_us is not None and first_us < before_us:
            settled = [_before(block, before_us) for block in state.load(LEFT, NO_WATERMARK, before_us - 1)]
        self._evicted = state.evict(LEFT, before_us) + state.trim(LEFT)  # before new rows are added to their segments
        for input, block in arrivals:
            if input == LEFT:
                final = times(block)[1] < before_us
                if final.any():
                    settled.append(block.filter(pa.array(final)))
                    block = block.filter(pa.array(~final))
            if block.num_rows:
                state.append(input, block, segments=_NEW_SEGMENTS[input])
                self._stored += block.num_rows
        return [block for block in settled if block.num_rows]

    def left_table(self, blocks: Sequence[pa.RecordBatch]) -> pa.Table:
        """Left rows as one table, with marks if any of them has some."""
        schema = max((block.schema for block in blocks), key=len, default=self._left_schema)
        return table_of([with_null_columns(block, schema) for block in blocks], schema)

    def all_left(self) -> list[pa.RecordBatch]:
        """All open left rows, with marks."""
        return self._state.load(LEFT, NO_WATERMARK, END_OF_TIME)

    def right_of(self, left: pa.Table) -> list[pa.RecordBatch]:
        """Right rows among which are all partners of left rows."""
        return self._state.load(RIGHT, *self._reach.around(left)) if left.num_rows else []

    def drop_unneeded(self, watermark_us: int, marks_with: MarksWith, step: Step) -> None:
        """Drop settled left rows, and right rows that no left row can meet any more; fold others."""
        state = self._state
        step.metrics[metrics.STORED] += self._stored
        step.metrics[metrics.EVICTED] += self._evicted
        first_us = state.first_open_us(LEFT)
        earliest_us = watermark_us if first_us is None else min(watermark_us, first_us)
        step.metrics[metrics.EVICTED] += state.evict(RIGHT, self._reach.bound(RIGHT, earliest_us))
        least = self._folding.least
        if first_us is not None and least is not None:
            before_us = min(self._reach.bound(RIGHT, watermark_us), watermark_us)  # later ones may still come
            step.metrics[metrics.EVICTED] += self._fold(least, before_us, watermark_us, marks_with)
        step.metrics[metrics.EVICTED] += state.trim(RIGHT)

    def _fold(self, least: int, before_us: int, watermark_us: int, marks_with: MarksWith) -> int:
        """Fold the right rows before a time, if there are at least so many, and enough for each open left row.

        Returns how many rows left the store with whole segments.
        """
        state, folding = self._state, self._folding
        enough = max(least, folding.right_per_left * state.rows_of(LEFT))
        if state.rows_of(RIGHT, before_us) < enough:  # without reading any
            return 0
        right = [_before(block, before_us) for block in state.load(RIGHT, NO_WATERMARK, before_us - 1)]
        right = [block for block in right if block.num_rows]
        if sum(block.num_rows for block in right) < enough:
            return 0
        held = state.load_marked(LEFT, *self._reach.around_right(right))
        if held:
            marks = marks_with(self.left_table([each.rows for each in held]), right)
            ends = np.cumsum([0, *(each.rows.num_rows for each in held)]).tolist()
            for each, (start, stop) in zip(held, pairwise(ends), strict=True):
                state.mark(each, marks.slice(start, stop - start))
        state.notes = [folding.settings, watermark_us]
        return state.evict(RIGHT, before_us)

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
    final = times(block)[1] < before_us
    return block if final.all() else block.filter(pa.array(final))
