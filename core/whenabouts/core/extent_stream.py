"""The coalesced extents of one input, step by step: what becomes final is looked at, what can still count is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.events import EventReader, times
from whenabouts.core.extents import Extents
from whenabouts.core.kept_tuples import Clock, KeptTuples, Merged, rows_kept
from whenabouts.core.moving_window import Keeps, MovingWindow
from whenabouts.core.protocol import END_OF_TIME, NO_WATERMARK, SegmentStore, Step
from whenabouts.core.segmented_state import rows_in_state
from whenabouts.core.segments import fingerprint
from whenabouts.core.stored_tuples import TupleForm
from whenabouts.core.stores import StorePart
from whenabouts.core.temporal_tuples import TemporalTuples, links_of
from whenabouts.core.tuple_stream import TupleStream
from whenabouts.core.value_equivalence import Equivalence
from whenabouts.core.window_memory import windows
from whenabouts.core.window_ranges import (
    Marks,
    Ranges,
    ranges_at,
    ranges_of_row_slides,
    ranges_of_slides,
    ranges_up_to,
    whole_groups,
)

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

FIRST = NO_WATERMARK + 1
"""Before all times."""


@dataclass(frozen=True)
class Coalescing:
    """What makes the coalesced extents of one input."""

    group: tuple[str, ...]
    values: tuple[str, ...]
    extents: Extents
    equivalence: Equivalence
    eager: bool
    lateness_us: int


class Runs(NamedTuple):
    """Coalesced tuples: of which range of a look, the place of the first tuple, `[start, end)`, how many tuples."""

    range: IntArray
    first: IntArray
    start: IntArray
    end: IntArray
    n: IntArray


@dataclass(frozen=True, slots=True)
class Look:
    """Extents that have become final: ranges of tuples, and which tuples go on their predecessors.

    `weight[i]`: for how many tuples tuple i stands. `open_ended`: the last run of each range is not final yet.
    """

    tuples: TemporalTuples | MovingWindow
    linked: BoolArray
    ranges: Ranges
    weight: IntArray | None = None
    open_ended: bool = False

    @property
    def coalesced(self) -> int:
        """Tuples that go on the one before them."""
        return self.tuples.coalesced if isinstance(self.tuples, MovingWindow) else int(self.linked.sum())

    @property
    def neighbours(self) -> int:
        """Tuples that have one before them."""
        if isinstance(self.tuples, MovingWindow):
            return len(self.tuples) - len(self.tuples.groups)
        return len(self.tuples) - int(self.tuples.heads.sum())

    def runs(self) -> Runs:
        """The coalesced tuples of all ranges. O(tuples in ranges)."""
        from whenabouts.core.coalescing_kernels import runs_of_ranges  # numba: imported when first needed

        nothing = np.empty(0, np.int64)
        given = self.tuples.times, self.linked, self.ranges.lows, self.ranges.highs
        size = runs_of_ranges(*given, *[nothing] * 4)
        of, first, end, n = (np.empty(size, np.int64) for _ in range(4))
        if size:
            runs_of_ranges(*given, of, first, end, n)
        if self.weight is not None:
            total = np.concatenate([[0], np.cumsum(self.weight)])
            n = total[first + n] - total[first]
        runs = Runs(of, first, self.tuples.times[first], end, n)
        if not self.open_ended:
            return runs
        final = np.diff(of, append=-1) == 0
        return Runs(*(column[final] for column in runs))


class ExtentStream:
    """Runs one input over the blocks and the state of one bucket."""

    def __init__(self, reader: EventReader, how: Coalescing, keeps: Keeps | None = None) -> None:
        self.how = how
        self._keeps = Keeps() if keeps is None else keeps
        self.rows = TupleStream(reader, how.group, how.lateness_us)
        weighted = how.extents.is_history and how.eager
        form = TupleForm(reader.schema, how.group, how.values, how.eager, how.equivalence.needs_all_values, weighted)
        self._form = form
        # What slides over the past in time keeps its window in memory from step to step.
        self._moves = how.eager and how.extents.window.width_us is not None and how.extents.slide_us is not None
        self._definition = fingerprint(reader.input, reader.schema, how, self._keeps)
        self._moved: tuple[str, MovingWindow] | None = None

    def is_new(self, store: SegmentStore) -> bool:
        """Whether no step has left state in the store."""
        return KeptTuples(StorePart(store, 1, 2), self._form, self.rows.keys, self.how.extents).clock == Clock()

    def rows_held(self, store: SegmentStore) -> int:
        """Rows that wait in a bucket's state, and tuples or runs that are kept there."""
        return rows_in_state(StorePart(store, 0, 2), 1) + rows_kept(StorePart(store, 1, 2))

    def step(
        self,
        store: SegmentStore,
        blocks: Sequence[pa.RecordBatch],
        until_us: int,
        latest_us: int,
        step: Step,
        marks: Marks | None = None,
    ) -> Look | None:
        """Take in rows that are not late, and give the extents that are final now; None where there is none.

        All rows before `until_us` are here; at `END_OF_TIME` no state is written. `latest_us`: the greatest time of all
        rows there have been. `marks`: where windows that slide by rows end, if another stream says so.
        """
        kept = KeptTuples(StorePart(store, 1, 2), self._form, self.rows.keys, self.how.extents)
        was = kept.clock
        latest = max([was.latest, latest_us, *(int(times(block)[1].max(initial=FIRST)) for block in blocks)])
        until = max(until_us, was.until)
        new, first_waiting = self.rows.settle(StorePart(store, 0, 2), blocks, until, step)
        now = Clock(until, latest, was.counted + len(new))
        new = self._not_after(new, self.how.extents.at_us)
        window = self._window(kept, was, now, step)
        if window is None:
            look = self._look(kept, new, was, now, step, marks)
        else:
            look = self._moving_look(window, kept, new, was, now, step)
        self._moved = None
        if until != END_OF_TIME:
            stamp = kept.save(now)
            self._moved = None if window is None else (stamp + self._definition, window)
            metrics.held(step.gauges, self.rows.reader.name, kept.rows_held, kept.bytes_held)
            step.timer_us = self._timer(now, kept.rows_held > 0, first_waiting)
        return look

    def remember(self) -> None:
        """What the last step looked at has been used: the next one may have the window."""
        if self._moved is not None:
            windows().put(*self._moved)
        self._moved = None

    def _window(self, kept: KeptTuples, was: Clock, now: Clock, step: Step) -> MovingWindow | None:
        """The window as the last step left it, from memory or, where an extent is due, from the state.

        None where a step does without: nothing is kept yet and never will be, or nothing is due.
        """
        if not self._moves or (now.until == END_OF_TIME and not kept.rows_held):
            return None
        found = windows().take(kept.stamp + self._definition) if kept.stamp else None
        if isinstance(found, MovingWindow) and found.keeps.same(self._keeps):
            found.drop_before(self._floor(was))
            return found
        if kept.rows_held and not self._is_due(was, now):
            return None
        how = self.how
        window = MovingWindow(self.rows.reader.schema, how.group, how.values, how.equivalence, self._keeps)
        if kept.rows_held:
            tuples = kept.all_from(self._floor(was))
            linked, compared = links_of(tuples, how.values, how.equivalence)
            step.metrics[metrics.COMPARED] += compared
            window.append(tuples, linked)
        return window

    def _moving_look(
        self, window: MovingWindow, kept: KeptTuples, new: TemporalTuples, was: Clock, now: Clock, step: Step
    ) -> Look | None:
        """As `_look`, in memory: only new tuples are compared, and only those of the current slot are written."""
        extents, look = self.how.extents, None
        assert extents.slide_us is not None
        step.metrics[metrics.COMPARED] += window.append(new)
        if self._is_due(was, now):
            slides = window.ranges(extents.slide_us, extents.window.reach_us, *self._slides(was, now))
            look = Look(window, window.linked, slides)
        if now.until != END_OF_TIME:
            slot_us = kept.slot_us
            current, goes_on = window.since(max(was.until // slot_us * slot_us, NO_WATERMARK))
            none = np.zeros(len(current), bool)
            kept.keep_recent(Merged(current, none, ~none, None), goes_on, self._floor(now), now.until, step)
        return look

    def _slides(self, was: Clock, now: Clock) -> tuple[int, int]:
        """The numbers of the first and the last slide whose extents become final in this step."""
        slide_us = self.how.extents.slide_us
        assert slide_us is not None
        first, last = first_slide(was.until, slide_us), first_slide(now.until, slide_us) - 1
        return first, first_slide(now.latest, slide_us) if now.until == END_OF_TIME else last

    def _look(
        self, kept: KeptTuples, new: TemporalTuples, was: Clock, now: Clock, step: Step, marks: Marks | None
    ) -> Look | None:
        extents = self.how.extents
        due = self._is_due(was, now)
        merged = kept.merged(new, self._floor(was), whole=due)
        tuples = merged.tuples
        look = linked = None
        if due or self.how.eager:
            linked, compared = links_of(tuples, self.how.values, self.how.equivalence)
            step.metrics[metrics.COMPARED] += compared
            if due:
                look = self._extents(kept, merged, linked, was, now, marks)
        if now.until == END_OF_TIME:
            return look
        linked = np.zeros(len(tuples), bool) if linked is None else linked
        if extents.at_us is not None and extents.at_us < now.until:
            kept.forget(step)
        elif extents.is_history:
            kept.keep_last_runs(merged, linked, step)
        elif extents.window.width_us is not None:
            kept.keep_recent(merged, linked, self._floor(now), now.until, step)
        else:
            kept.keep_rows(merged, linked, step)
        return look

    def _is_due(self, was: Clock, now: Clock) -> bool:
        """Whether an extent becomes final in this step."""
        extents = self.how.extents
        ending = now.until == END_OF_TIME
        if extents.at_us is not None:
            return was.until <= extents.at_us and (extents.is_history or extents.at_us < now.until)
        if extents.slide_us is not None:
            return ending or first_slide(was.until, extents.slide_us) < first_slide(now.until, extents.slide_us)
        return ending or extents.is_history or extents.slide_rows is not None

    def _extents(
        self, kept: KeptTuples, merged: Merged, linked: BoolArray, was: Clock, now: Clock, marks: Marks | None
    ) -> Look:
        tuples, extents, window, names = merged.tuples, self.how.extents, self.how.extents.window, self.how.group
        if extents.is_history:
            final = now.until == END_OF_TIME or (extents.at_us is not None and extents.at_us < now.until)
            return Look(tuples, linked, whole_groups(tuples), merged.weight, open_ended=not final)
        if marks is not None:
            return Look(tuples, linked, ranges_up_to(tuples, window, marks, names))
        if extents.slide_rows is not None:
            numbering = kept.numbering(merged)
            if window.per_group and now.until != END_OF_TIME:
                kept.count_groups(tuples, numbering)
            return Look(tuples, linked, ranges_of_row_slides(tuples, window, extents.slide_rows, numbering, names))
        if extents.slide_us is None:
            at = now.latest if extents.at_us is None else extents.at_us
            return Look(tuples, linked, ranges_at(tuples, window, np.array([at]), names))
        first, last = self._slides(was, now)
        if window.width_us is not None:
            return Look(tuples, linked, ranges_of_slides(tuples, window, extents.slide_us, first, last))
        first = max(first, first_slide(int(tuples.times.min(initial=END_OF_TIME)), extents.slide_us))
        instants = np.arange(first, max(first, last + 1)) * extents.slide_us  # none where there are no tuples
        return Look(tuples, linked, ranges_at(tuples, window, instants, names))

    def _floor(self, clock: Clock) -> int:
        """Before this no tuple counts any more: it lies in no extent that comes out at `clock` or later."""
        extents = self.how.extents
        if extents.window.width_us is None or clock.until == NO_WATERMARK:
            return FIRST
        if extents.at_us is not None:
            at = extents.at_us
        elif extents.slide_us is not None:
            at = first_slide(clock.until, extents.slide_us) * extents.slide_us
        else:
            at = clock.latest
        return max(at - extents.window.reach_us, FIRST)

    def _timer(self, now: Clock, holds: bool, first_waiting: int | None) -> int | None:
        """The least watermark at which an extent can be final."""
        extents = self.how.extents
        if extents.slide_us is not None:
            if not holds and first_waiting is None:
                return None
            from_us = now.until if holds or first_waiting is None else max(now.until, first_waiting)
            return first_slide(from_us, extents.slide_us) * extents.slide_us + 1
        if extents.at_us is not None and not extents.is_history:
            return extents.at_us + 1 if now.until <= extents.at_us else None
        if extents.is_history or extents.slide_rows is not None:
            return None if first_waiting is None else first_waiting + 1
        return None

    @staticmethod
    def _not_after(tuples: TemporalTuples, at_us: int | None) -> TemporalTuples:
        """Tuples behind the one instant that is asked for count for nothing."""
        if at_us is None or not (tuples.times > at_us).any():
            return tuples
        keep = tuples.times <= at_us
        before = np.concatenate([[0], np.cumsum(keep)])
        return TemporalTuples(tuples.table, tuples.rows[keep], tuples.times[keep], before[tuples.starts])


def first_slide(us: int, slide_us: int) -> int:
    """The number of the first instant at or after a time: `k * slide_us >= us`."""
    return -(-us // slide_us)
