"""The rows of an as-of join of streams in a bucket's state, during one step.

A left row is *open* until no right row to come can be one of its candidates; then it is settled. Backward that is a
function of its own time. Forward and nearest a right row that surely lies after it settles it earlier: each open row
has a mark, the watermark at which it is due by the right rows so far, and arriving right rows lower it. As the right
row that settles a left row arrives before the watermark reaches that mark, the instant is a function of the data alone.

Right rows are kept by time until every open left row, and every one to come, begins after them; then they are folded
(`asof_join.carried_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, table_of, with_columns_of
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.asof_join.carried_rows import Carried, CarriedRows
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import PREFIX, times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, SegmentStore, Step
from whenabouts.core.state.segment_directory import notes_in_state, rows_in_state
from whenabouts.core.state.segment_layout import Layout, every_row
from whenabouts.core.state.segmented_state import SegmentedState

DUE = PREFIX + "due"
_SETTLED = END_OF_TIME
_OF_CARRIED = slice(1, 1 + len(Carried._fields))
"""The directory's notes: the least mark, those of carried rows, and `Reach.noted`, which earlier releases lack."""
_MARKS = pa.schema([pa.field(DUE, pa.int64())])

HighEnds = Callable[[pa.Table, pa.Table], IntArray]
"""From left and right rows: the latest instant at which a candidate of each left row can begin, given these."""


class Reach(NamedTuple):
    """What decides how long rows are needed. `longest`: the greatest lengths of left and right times."""

    direction: str
    tolerance_us: int | None
    longest: tuple[int, int]
    order_by: tuple[str, ...]

    @property
    def looks_ahead(self) -> bool:
        """Whether right rows after a left row can prevail."""
        return self.direction != "backward"

    @property
    def ahead_us(self) -> int:
        """How far after a left row's end its candidates can begin at most."""
        return self.tolerance_us or 0 if self.looks_ahead else 0

    @property
    def behind_us(self) -> int | None:
        """How far before a left row's begin its candidates can end at most; None: any distance."""
        return 0 if self.direction == "forward" else self.tolerance_us

    @property
    def noted(self) -> list[int]:
        """What the marks of open left rows depend on besides right rows."""
        return [self.ahead_us, *self.longest] if self.looks_ahead else []

    @property
    def kept_us(self) -> int:
        """How far before the watermark right rows are kept (`SegmentedState.set_retention`)."""
        if self.direction == "forward":
            return 0  # a left row to come does not look back
        return NO_WATERMARK if self.tolerance_us is None else -self.longest[LEFT] - self.tolerance_us


def layout_of(blocks: Sequence[pa.Schema], reach: Reach, purpose: str) -> Layout:
    """The layout of the state: open left rows, with marks if right rows can settle them, and right rows."""
    if not reach.looks_ahead:
        return Layout(blocks, opens={LEFT: every_row}, purpose=purpose)
    return Layout(blocks, marks={LEFT: _MARKS}, opens={LEFT: _is_open}, needed={LEFT: _is_open}, purpose=purpose)


class OpenRows:
    """One step's view of the state. `high_ends` is needed if the direction looks ahead."""

    def __init__(
        self,
        store: SegmentStore,
        layout: Layout,
        keys: Keys,
        reach: Reach,
        high_ends: HighEnds,
        *,
        slot_us: int,
    ) -> None:
        self._reach, self._high_ends = reach, high_ends
        self._schemas = layout.schemas
        self._state = SegmentedState(store, layout, slot_us=slot_us)
        self._state.set_retention([0, reach.kept_us])
        notes = self._state.notes or [END_OF_TIME, *Carried()]
        self._first_due, carried, reached = notes[0], _carried(notes), notes[_OF_CARRIED.stop :]
        self._carried = CarriedRows(
            store,
            layout.schemas[RIGHT],
            keys,
            order_by=reach.order_by,
            tolerance_us=reach.tolerance_us,
            carried=carried,
        )
        if reached != reach.noted:
            self._mark_again()

    def add(self, arrivals: Sequence[Arrival]) -> None:
        """Store rows that arrived; right ones lower the marks of open left rows."""
        left, right = ([block for of, block in arrivals if of == input] for input in (LEFT, RIGHT))
        if not self._reach.looks_ahead:
            for input, blocks in ((LEFT, left), (RIGHT, right)):
                for block in blocks:
                    self._state.append(input, block)
            return
        if right:
            self._lower(one_batch(table_of(right, self._schemas[RIGHT])))
        for block in right:
            self._state.append(RIGHT, block)
        if left:
            rows = one_batch(table_of(left, self._schemas[LEFT]))
            due = self._dues(rows, self._settling(rows))
            self._first_due = min(self._first_due, int(due.min()))
            self._state.append(LEFT, with_columns_of(rows, _marks(due)))

    def settled(self, watermark_us: int) -> pa.RecordBatch:
        """Remove and return the left rows that no right row to come can concern any more."""
        state, settled_before = self._state, self._settled_before(watermark_us)
        first_us = state.first_open_us(LEFT)
        if first_us is None or first_us >= settled_before:
            rows: list[pa.RecordBatch] = []
        elif self._reach.looks_ahead:
            rows = self._due(watermark_us, settled_before)
        else:
            held = state.load(LEFT, NO_WATERMARK, settled_before - 1)
            rows = [block.filter(pa.array(times(block)[1] < settled_before)) for block in held]
        state.evict(LEFT, settled_before - self._reach.ahead_us)
        return one_batch(table_of(rows, self._schemas[LEFT]))

    def all_left(self) -> list[pa.RecordBatch]:
        """All open left rows."""
        held = [each.rows for each in self._state.load_marked(LEFT, NO_WATERMARK, END_OF_TIME)]
        if self._reach.looks_ahead:
            held = [rows.filter(pa.array(_is_open(rows))) for rows in held]
        return [rows.select(self._schemas[LEFT].names) for rows in held]

    def right_of(self, left: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Right rows among which are all candidates of left rows, and those that exclude others."""
        if not left.num_rows:
            return []
        t_min, t_max = times(left)
        first_us = NO_WATERMARK
        if self._reach.behind_us is not None:
            first_us = int(t_min.min()) - self._reach.behind_us
        last_us = int(t_max.max()) + self._reach.ahead_us + self._reach.longest[RIGHT]
        return [self._carried.of(left), *self._state.load(RIGHT, first_us, last_us)]

    def drop_unneeded(self, watermark_us: int, step: Step) -> None:
        """Fold and drop right rows that are only needed in part, or not any more."""
        needed_from = self._needed_from(watermark_us)
        if needed_from in (NO_WATERMARK, END_OF_TIME):
            return
        state = self._state
        dropped = state.drop_unneeded()
        if self._reach.direction == "forward":
            dropped += state.evict(RIGHT, needed_from)
        else:
            ended = one_batch(table_of(state.take_ended(RIGHT, needed_from), self._schemas[RIGHT]))
            dropped += self._carried.fold(ended, needed_from) + self._carried.sweep(needed_from)
            if self._reach.tolerance_us is not None:
                dropped += state.evict(RIGHT, needed_from - self._reach.tolerance_us)
        step.metrics[metrics.EVICTED] += dropped

    def save(self, watermark_us: int, inputs: Sequence[str], step: Step) -> None:
        """Write the directory; the step gets its timer and the size of the state."""
        self._state.notes = [self._first_due, *self._carried.carried, *self._reach.noted]
        self._state.save()
        step.gauges = self._state.gauges(inputs)
        carried = self._carried.carried
        metrics.held(step.gauges, inputs[RIGHT], carried.rows, carried.bytes)
        step.timer_us = self._timer(watermark_us)

    def _settled_before(self, watermark_us: int) -> int:
        """Left rows with a lesser `t_max` can be due; backward they are."""
        if watermark_us in (NO_WATERMARK, END_OF_TIME):
            return watermark_us
        return watermark_us - self._reach.longest[RIGHT]

    def _needed_from(self, watermark_us: int) -> int:
        """The A of `carried_rows`: no open left row, and none to come, begins before it."""
        if watermark_us in (NO_WATERMARK, END_OF_TIME):
            return watermark_us
        first_us = self._state.first_open_us(LEFT)
        earliest = watermark_us if first_us is None else min(watermark_us, first_us)
        return earliest - self._reach.longest[LEFT]

    def _mark_again(self) -> None:
        """Give all open left rows the marks of this query: an earlier one, which made them, had another tolerance."""
        self._first_due = END_OF_TIME
        for held in self._state.load_marked(LEFT, NO_WATERMARK, END_OF_TIME):
            due = np.where(_is_open(held.rows), self._dues(held.rows, self._settling(held.rows)), _SETTLED)
            self._state.mark(held, _marks(due))
            self._first_due = min(self._first_due, int(due.min()))

    def _due(self, watermark_us: int, settled_before: int) -> list[pa.RecordBatch]:
        """The left rows whose marks the watermark has reached; none are read if there are none."""
        found: list[pa.RecordBatch] = []
        if self._first_due > watermark_us:
            return found
        later_us = self._state.first_start_us(LEFT, settled_before)
        self._first_due = END_OF_TIME if later_us is None else later_us + self._reach.longest[RIGHT] + 1
        for held in self._state.load_marked(LEFT, NO_WATERMARK, settled_before - 1):
            due = _due_of(held.rows)
            now = due <= watermark_us
            if now.any():
                self._state.mark(held, _marks(np.where(now, _SETTLED, due)))
                found.append(held.rows.filter(pa.array(now)).select(self._schemas[LEFT].names))
            self._first_due = min(self._first_due, int(due[~now].min(initial=END_OF_TIME)))
        return found

    def _lower(self, right: pa.RecordBatch) -> None:
        """Lower the marks of the open left rows that these right rows settle earlier."""
        t_min, t_max = times(right)
        first_us, last_us = int(t_min.min()) - self._reach.ahead_us, int(t_max.max())
        if self._reach.direction == "nearest":  # a right row before a left one settles it, too
            last_us += self._reach.ahead_us + self._reach.longest[LEFT]
        for held in self._state.load_marked(LEFT, first_us, last_us):
            due = _due_of(held.rows)
            lowered = np.minimum(due, self._dues(held.rows, right))
            lowered[due == _SETTLED] = _SETTLED
            if (lowered < due).any():
                self._state.mark(held, _marks(lowered))
                self._first_due = min(self._first_due, int(lowered.min()))

    def _dues(self, left: pa.RecordBatch, right: pa.RecordBatch) -> IntArray:
        """The watermark at which each left row is due, by these right rows."""
        tables = (pa.Table.from_batches([rows]) for rows in (left.select(self._schemas[LEFT].names), right))
        due: IntArray = self._high_ends(*tables) + self._reach.longest[RIGHT] + 1
        return due

    def _settling(self, left: pa.RecordBatch) -> pa.RecordBatch:
        """The stored right rows that can settle left rows."""
        return one_batch(table_of(self.right_of(left), self._schemas[RIGHT]))

    def _timer(self, watermark_us: int) -> int | None:
        """The least watermark at which a left row is settled, or right rows are folded or dropped."""
        state, (left_longest, right_longest) = self._state, self._reach.longest
        first_us = state.first_open_us(LEFT)
        due = [] if first_us is None else [first_us + right_longest + 1]
        if self._reach.looks_ahead:
            due = [self._first_due]
        end_us = state.first_end_us(RIGHT)
        due += [us + left_longest for us in (end_us, self._carried.next_sweep_us) if us is not None]
        return min((us for us in due if watermark_us < us < END_OF_TIME), default=None)


def rows_held(store: SegmentStore) -> int:
    """The rows of both inputs in a bucket's state. Two `get`s of its directory."""
    notes = notes_in_state(store)
    return rows_in_state(store, 2) + (_carried(notes).rows if notes else 0)


def _carried(notes: Sequence[int]) -> Carried:
    return Carried(*notes[_OF_CARRIED])


def _due_of(rows: pa.RecordBatch) -> IntArray:
    return np.asarray(rows.column(DUE).to_numpy())


def _marks(due: IntArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(due, pa.int64())], schema=_MARKS)


def _is_open(rows: pa.RecordBatch | pa.Table) -> BoolArray:
    return np.asarray(rows.column(DUE).to_numpy() != _SETTLED)
