"""The coalesced extents of one input, step by step: what becomes final is looked at, what can still count is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.equivalence import Equivalence
from whenabouts.core.coalescing.reorder_buffer import TupleStream
from whenabouts.core.coalescing.sliding_ranges import (
    Arrivals,
    ranges_at_instants,
    ranges_at_marks,
    ranges_in_time,
    ranges_of_group_slides,
    ranges_of_last,
    ranges_of_stream_slides,
)
from whenabouts.core.coalescing.sliding_window import Keeps, MovingWindow
from whenabouts.core.coalescing.tuple_codec import TupleForm
from whenabouts.core.coalescing.tuples import TemporalTuples, links_of
from whenabouts.core.coalescing.window_log import FIRST, KeptTuples, Merged, Progress, Since, rows_kept
from whenabouts.core.coalescing.window_ranges import (
    Marks,
    Ranges,
    ranges_at,
    ranges_of_row_slides,
    ranges_of_slides,
    ranges_up_to,
    whole_groups,
)
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.runtime.event_reader import EventReader, times
from whenabouts.core.runtime.output_memory import require_room
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, SegmentStore, Step
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.state.segment_codec import fingerprint
from whenabouts.core.state.segmented_state import rows_in_state
from whenabouts.core.state.window_cache import windows


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

    def _count_runs(self) -> int:
        """How many runs all ranges have: one, and one more for each tuple but the first that extends no predecessor."""
        held = self.ranges.lows < self.ranges.highs
        begun = np.cumsum(~self.linked)
        inside = begun[self.ranges.highs[held] - 1] - begun[self.ranges.lows[held]]
        return int(inside.sum()) + len(inside)

    def runs(self, width: int = 0) -> Runs:
        """The coalesced tuples of all ranges, which are to be rows of so many bytes. O(tuples in ranges).

        Raises QueryError WA-2201 where these do not fit into memory.
        """
        from whenabouts.core.coalescing.kernels import runs_of_ranges  # numba: imported when first needed

        given = self.tuples.times, self.linked, self.ranges.lows, self.ranges.highs
        size = self._count_runs()
        require_room(size, 5 * 8 + width, "coalesced rows of all extents")
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
        # What slides over the past keeps its window in memory from step to step.
        self._moves = how.extents.slides and not how.extents.is_history
        self._definition = fingerprint(reader.input, reader.schema, how, self._keeps)
        self._moved: tuple[str, MovingWindow] | None = None

    def is_new(self, store: SegmentStore) -> bool:
        """Whether no step has left state in the store."""
        return KeptTuples(StorePart(store, 1, 2), self._form, self.rows.keys, self.how.extents).clock == Progress()

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
        now = Progress(until, latest, was.counted + len(new))
        new = self._not_after(new, self.how.extents.at_us)
        window = self._window(kept, was, now, step)
        if window is None:
            look = self._look(kept, new, was, now, step, marks)
        else:
            look = self._moving_look(window, kept, new, was, now, step, marks)
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

    def _window(self, kept: KeptTuples, was: Progress, now: Progress, step: Step) -> MovingWindow | None:
        """The window as the last step left it, from memory or, where an extent is due, from the state.

        None where a step does without: nothing is kept yet and never will be, or nothing is due.
        """
        if not self._moves or (now.until == END_OF_TIME and not kept.rows_held):
            return None
        found = windows().take(kept.stamp + self._definition) if kept.stamp else None
        if isinstance(found, MovingWindow) and found.keeps.same(self._keeps):
            self._drop_old(found, was)
            return found
        if kept.rows_held and self.how.extents.window.rows is None and not self._is_due(was, now):
            return None
        how, extents = self.how, self.how.extents
        schema, over_all = self.rows.reader.schema, extents.window.over_all_groups
        window = MovingWindow(
            schema, how.group, how.values, how.equivalence, self._keeps, eager=how.eager, numbered=over_all
        )
        if kept.rows_held:
            tuples = kept.all_from(self._floor(was))
            linked = None
            if how.eager:
                linked, compared = links_of(tuples, how.values, how.equivalence)
                step.metrics[metrics.COMPARED] += compared
            before = was.counted - len(tuples)
            window.append(tuples, linked, Arrivals.of(tuples, how.group, before).numbers if over_all else None)
            counts = kept.counts()
            if counts is not None:
                window.count_from(counts.select(how.group), counts.column(-1).to_numpy())
            self._drop_old(window, was)
        return window

    def _drop_old(self, window: MovingWindow, was: Progress) -> None:
        """Drop what no extent holds that comes out after `was`."""
        asked = self.how.extents.window
        if asked.rows is None:
            window.drop_before(self._floor(was))
        elif asked.per_group:
            window.drop_but(asked.rows)
        else:
            window.drop_below(was.counted - asked.rows + 1)

    def _moving_look(
        self,
        window: MovingWindow,
        kept: KeptTuples,
        new: TemporalTuples,
        was: Progress,
        now: Progress,
        step: Step,
        marks: Marks | None,
    ) -> Look | None:
        """As `_look`, in memory: only new tuples are written, and if the scheme is eager only they are compared."""
        extents, group, look, arrived = self.how.extents, self.how.group, None, None
        if extents.window.over_all_groups:
            arrived = Arrivals.of(new, group, was.counted)
        linked, compared = window.append(new, None, None if arrived is None else arrived.numbers)
        step.metrics[metrics.COMPARED] += compared
        if self._is_due(was, now):
            if not self.how.eager:
                step.metrics[metrics.COMPARED] += window.compare()
            look = Look(window, window.linked, self._moving_ranges(window, arrived, was, now, marks))
        if now.until != END_OF_TIME:
            kept.keep(window.since, new, linked & ~new.heads, self._floor(now), step)
            if len(new) and extents.window.per_group and extents.slide_rows is not None:
                kept.count(*window.counted())
        return look

    def _moving_ranges(
        self, window: MovingWindow, arrived: Arrivals | None, was: Progress, now: Progress, marks: Marks | None
    ) -> Ranges:
        extents, rows, group = self.how.extents, self.how.extents.window.rows, self.how.group
        if rows is None:
            assert extents.slide_us is not None
            return ranges_in_time(window, extents.slide_us, extents.window.reach_us, *self._slides(was, now))
        if marks is not None and arrived is not None:
            return ranges_at_marks(window, rows, marks, arrived, group)
        if extents.slide_rows is not None:
            if arrived is not None:
                return ranges_of_stream_slides(window, rows, extents.slide_rows, arrived)
            return ranges_of_group_slides(window, rows, extents.slide_rows, was.until)
        instants = self._instants(window.first_us, was, now)
        if arrived is not None:
            return ranges_at_instants(window, rows, instants, arrived)
        return ranges_of_last(window, rows, instants)

    def _instants(self, first_us: int, was: Progress, now: Progress) -> IntArray:
        """The instants at which extents of windows of rows become final, none of them before the first tuple."""
        assert self.how.extents.slide_us is not None
        first, last = self._slides(was, now)
        first = max(first, first_slide(first_us, self.how.extents.slide_us))
        require_room(last + 1 - first, 2 * 8, "instants at which a window slides")
        return np.arange(first, max(first, last + 1)) * self.how.extents.slide_us

    def _slides(self, was: Progress, now: Progress) -> tuple[int, int]:
        """The numbers of the first and the last slide whose extents become final in this step."""
        slide_us = self.how.extents.slide_us
        assert slide_us is not None
        first, last = first_slide(was.until, slide_us), first_slide(now.until, slide_us) - 1
        return first, first_slide(now.latest, slide_us) if now.until == END_OF_TIME else last

    def _look(
        self, kept: KeptTuples, new: TemporalTuples, was: Progress, now: Progress, step: Step, marks: Marks | None
    ) -> Look | None:
        extents, due, look = self.how.extents, self._is_due(was, now), None
        if due or extents.is_history:
            merged = kept.merged(new, self._floor(was))
            linked, compared = links_of(merged.tuples, self.how.values, self.how.equivalence)
            step.metrics[metrics.COMPARED] += compared
            if due:
                look = self._extents(merged, linked, was, now, marks)
        if now.until == END_OF_TIME:
            return look
        if extents.at_us is not None and extents.at_us < now.until:
            kept.forget(step)
        elif extents.is_history:
            kept.keep_last_runs(merged, linked, step)
        else:
            kept.keep(self._since(kept, new, was, step), new, None, self._floor(now), step)
        return look

    def _since(self, kept: KeptTuples, new: TemporalTuples, was: Progress, step: Step) -> Since:
        """The tuples at or after a time, from the state, and which go on the ones before them, if that is kept."""

        def since(us: int) -> tuple[TemporalTuples, BoolArray]:
            tuples = kept.merged(_between(new, us, END_OF_TIME), max(us, self._floor(was))).tuples
            if not self.how.eager:
                return tuples, np.zeros(len(tuples), bool)
            linked, compared = links_of(tuples, self.how.values, self.how.equivalence)
            step.metrics[metrics.COMPARED] += compared
            return tuples, linked

        return since

    def _is_due(self, was: Progress, now: Progress) -> bool:
        """Whether an extent becomes final in this step."""
        extents = self.how.extents
        ending = now.until == END_OF_TIME
        if extents.at_us is not None:
            return was.until <= extents.at_us and (extents.is_history or extents.at_us < now.until)
        if extents.slide_us is not None:
            return ending or first_slide(was.until, extents.slide_us) < first_slide(now.until, extents.slide_us)
        return ending or extents.is_history or extents.slide_rows is not None

    def _extents(self, merged: Merged, linked: BoolArray, was: Progress, now: Progress, marks: Marks | None) -> Look:
        tuples, extents, window, names = merged.tuples, self.how.extents, self.how.extents.window, self.how.group
        if extents.is_history:
            final = now.until == END_OF_TIME or (extents.at_us is not None and extents.at_us < now.until)
            return Look(tuples, linked, whole_groups(tuples), merged.weight, open_ended=not final)
        if marks is not None:
            return Look(tuples, linked, ranges_up_to(tuples, window, marks, names))
        if extents.slide_rows is not None:
            return Look(tuples, linked, ranges_of_row_slides(tuples, window, extents.slide_rows, names))
        if extents.slide_us is None:
            at = now.latest if extents.at_us is None else extents.at_us
            return Look(tuples, linked, ranges_at(tuples, window, np.array([at]), names))
        if window.width_us is not None:
            return Look(tuples, linked, ranges_of_slides(tuples, window, extents.slide_us, *self._slides(was, now)))
        instants = self._instants(int(tuples.times.min(initial=END_OF_TIME)), was, now)
        return Look(tuples, linked, ranges_at(tuples, window, instants, names))

    def _floor(self, clock: Progress) -> int:
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

    def _timer(self, now: Progress, holds: bool, first_waiting: int | None) -> int | None:
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
        return tuples if at_us is None else _between(tuples, NO_WATERMARK, at_us)


def _between(tuples: TemporalTuples, least_us: int, greatest_us: int) -> TemporalTuples:
    """The tuples of these times."""
    keep = (tuples.times >= least_us) & (tuples.times <= greatest_us)
    if keep.all():
        return tuples
    before = np.concatenate([[0], np.cumsum(keep)])
    return TemporalTuples(tuples.table, tuples.rows[keep], tuples.times[keep], before[tuples.starts])


def first_slide(us: int, slide_us: int) -> int:
    """The number of the first instant at or after a time: `k * slide_us >= us`."""
    return -(-us // slide_us)
