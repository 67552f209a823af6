"""The extents of one input while they are open: what each step changes in them.

An extent can be read from its first tuple on. The coalesced tuples that have been emitted are a function of the state
(the rows that wait, the tuples that are kept, and the progress), so they are not stored: a step compares them before
and after its arrivals. Of extents at multiples of the slide, those are open that end at or after the watermark, up to
the first one at or after the greatest time so far: where the final rows would end if the stream ended now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import table_of, take_table
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.early_beginnings import NewTuples, lows_of, moves_of
from whenabouts.core.coalescing.early_changes import net_changes, range_changes_of
from whenabouts.core.coalescing.early_index import EarlyIndex, Links, Reach
from whenabouts.core.coalescing.early_kernels import INSERT, NO_NEXT
from whenabouts.core.coalescing.extent_evaluator import ExtentEvaluator
from whenabouts.core.coalescing.schedule import FIRST, Progress, first_slide, floor_of
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.coalescing.sorted_lists import Neighbours
from whenabouts.core.coalescing.tuples import ListTuples
from whenabouts.core.coalescing.waiting_rows import LEAST_ROWS, WaitingRows
from whenabouts.core.coalescing.window_log import WindowLog
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.output_memory import require_room
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, SegmentStore, Step
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.state.window_cache import window_cache

_ROWS_KEPT = 3
"""Settled tuples stay rows, and are not written a second time, while there are so many rows for each one that waits."""


class Changes(NamedTuple):
    """Rows of an index that changed, and how: see `net_changes`."""

    rows: IntArray
    op: IntArray
    held: EarlyIndex


class _Arrived(NamedTuple):
    """Tuples by what they do to an index: those at its end, those inside it (with the places they go to), and those
    that replace one at their time (with the place of that one).

    `lists`, `times`: of all of them, by the number of the list (which groups do not follow) and time.
    """

    appended: ListTuples
    inserted: ListTuples
    between: Neighbours
    replacing: ListTuples
    replaced: Neighbours
    lists: IntArray
    times: IntArray


class EarlyEvaluator(ExtentEvaluator):
    """Keeps rows as the evaluator of final extents does, and says what each step changes in the open ones."""

    def __init__(self, reader: EventReader, spec: CoalescingSpec) -> None:
        super().__init__(reader, spec)
        self._early = self._definition + " early"

    @contextmanager
    def changes(
        self,
        store: SegmentStore,
        blocks: Sequence[pa.RecordBatch],
        watermark_us: int,
        until_us: int,
        latest_us: int,
        step: Step,
    ) -> Iterator[Changes]:
        """Add rows that are not late, and give what this changes. `until_us`, `latest_us`: as `ExtentEvaluator.step`.

        Expired tuples leave the index when the context ends.
        """
        parts = self._parts(store)
        log, waiting = self._log(parts), WaitingRows(parts.waiting, self.buffer.layout)
        was, table = log.progress, table_of(blocks, self.buffer.reader.block_schema)
        latest = max(was.latest, latest_us, int(times(table)[1].max(initial=FIRST)))
        now = Progress(max(until_us, was.until), latest, was.counted)
        index = self._index(log, waiting, was)
        arrived = self._arrived(index, table, waiting)
        rows, op = self._update(index, arrived, max(watermark_us, was.until), was, now, step)
        step.metrics[metrics.COMPARED] += index.runs.comparisons
        index.runs.comparisons = 0
        settled, first_waiting = index.count_between(was.until, now.until)
        index.waiting += len(arrived.appended.times) + len(arrived.inserted.times) - settled
        others = self._settle(index, waiting, table, was, now, settled, step)
        now = now._replace(counted=was.counted + settled + others)
        stamp = None
        if now.until != END_OF_TIME:
            since_us = self._keep(log, waiting, index, table.num_rows, was, now, step)
            waiting.append(table, since_us)
            waiting.settle(since_us, now.until)
            stamp = log.save(now, waiting.save())
            for held in (waiting, log):
                metrics.held(step.gauges, self.buffer.reader.name, held.rows_held, held.bytes_held)
            step.timer_us = self._timer(now, log.rows_held > 0 or index.size > index.waiting, first_waiting)
        yield Changes(rows, op, index)
        if stamp is not None and not self._is_over(now):
            self._expire(index, now, step)
            index.runs.sweep()
            window_cache().put(stamp + self._early, index)

    def rows_held(self, store: SegmentStore) -> int:
        """As `ExtentEvaluator.rows_held`."""
        parts = self._parts(store)
        return WaitingRows(parts.waiting, self.buffer.layout).rows_held + rows_in_state(parts.log, 1)

    def _is_over(self, progress: Progress) -> bool:
        """Whether the only extent is final."""
        at_us = self.spec.extents.at_us
        return at_us is not None and at_us < progress.until

    @property
    def _only(self) -> tuple[int, int] | None:
        """The least and the greatest time of a row in the only extent, if there is just one."""
        extents = self.spec.extents
        at_us = extents.at_us
        return None if at_us is None else (floor_of(extents, Progress(until=at_us)), at_us)

    def _in_extents(self, rows: pa.Table) -> pa.Table:
        """The rows that the only extent contains, if there is one."""
        if self._only is None:
            return rows
        first_us, last_us = self._only
        at = times(rows)[0]
        inside = (at >= first_us) & (at <= last_us)
        return rows if inside.all() else rows.filter(pa.array(inside)).combine_chunks()

    def _settle(
        self,
        index: EarlyIndex,
        waiting: WaitingRows,
        arrived: pa.Table,
        was: Progress,
        now: Progress,
        settled: int,
        step: Step,
    ) -> int:
        """Reject rows that share their group and time with a tuple that is now settled; count settled tuples.

        `settled`: those of the index. Returns how many are in no extent.
        """
        step.metrics[metrics.PROCESSED] += settled
        shared = index.take_shared(now.until)
        first_us, last_us = self._only or (NO_WATERMARK, END_OF_TIME)
        last_settled = now.until - 1
        if not len(shared) and waiting.are_between(first_us, last_us):
            of_arrived = times(arrived)[0][:0] if now.until != END_OF_TIME else times(arrived)[0]
            if not ((of_arrived < first_us) | (of_arrived > last_us)).any():
                return 0
        rows = waiting.between(was.until, last_settled)
        if now.until == END_OF_TIME:  # else all that arrived are later
            rows = pa.concat_tables([rows, arrived]).combine_chunks()
        at = times(rows)[0]
        outside = (at < first_us) | (at > last_us)
        suspects = outside | np.isin(at, shared) if len(shared) else outside
        tuples = self.buffer.settled(rows.filter(pa.array(suspects)).combine_chunks(), step)
        others = int(((tuples.times < first_us) | (tuples.times > last_us)).sum())
        step.metrics[metrics.PROCESSED] -= len(tuples) - others  # these are in the index
        return others

    def _index(self, log: WindowLog, waiting: WaitingRows, was: Progress) -> EarlyIndex:
        """The index as the last step left it: from the cache, or from the state."""
        found = window_cache().take(log.stamp + self._early) if log.stamp else None
        if isinstance(found, EarlyIndex):
            return found
        index = EarlyIndex(self.buffer.reader.schema, self.spec)
        if self._is_over(was):
            return index
        kept = log.kept(floor_of(self.spec.extents, was))
        if kept.weight is not None:
            index.begin_with(kept.tuples, kept.weight)
        else:
            index.add(index.listed(kept.tuples))
        rows = waiting.between(was.until if waiting.since_us is None else waiting.since_us, END_OF_TIME)
        tuples, duplicates = self.buffer.ordered(self._in_extents(rows))
        index.add(index.listed(tuples))
        index.share(duplicates.times[duplicates.times >= was.until])
        index.waiting = index.count_between(was.until, END_OF_TIME)[0]
        index.runs.comparisons = 0
        return index

    def _arrived(self, index: EarlyIndex, table: pa.Table, waiting: WaitingRows) -> _Arrived:
        """The tuples that arrive, one for each group and time. Where rows wait for that time, the smallest one wins."""
        tuples, duplicates = self.buffer.ordered(self._in_extents(table))
        index.share(duplicates.times)
        new = index.listed(tuples)
        inside = index.is_inside(new)
        within = np.flatnonzero(inside)
        found = index.runs.lists.neighbours(new.lists[within], new.times[within])
        rivals = within[found.here >= 0]
        won = rivals
        if len(rivals):
            at = tuples.times[rivals]
            index.share(at)
            rows = waiting.between(int(at.min()), int(at.max()))
            rows = rows.filter(pa.array(np.isin(times(rows)[0], at)))
            both = pa.concat_tables([rows, take_table(tuples.table, tuples.rows[rivals])]).combine_chunks()
            kept = self.buffer.ordered(both)[0].rows.astype(np.int64)
            won = rivals[np.sort(kept[kept >= rows.num_rows]) - rows.num_rows]
        free = np.flatnonzero(found.here < 0)
        taken = found.at(np.flatnonzero(np.isin(within, won)))
        order = np.argsort(new.lists, kind="stable")
        if len(won) < len(rivals):
            order = order[~np.isin(order, np.setdiff1d(rivals, won))]
        return _Arrived(
            new.at(np.flatnonzero(~inside)), new.at(within[free]), found.at(free), new.at(won), taken,
            new.lists[order], new.times[order],
        )  # fmt: skip

    def _update(
        self, index: EarlyIndex, arrived: _Arrived, from_us: int, was: Progress, now: Progress, step: Step
    ) -> tuple[IntArray, IntArray]:
        """Put the tuples that arrived, all at or after `from_us`, into the index; what changes in open extents."""
        if self.spec.extents.slide_us is None:
            return self._update_only(index, arrived, was, now, step)
        if self.spec.extents.window.rows is not None:
            return self._update_rows(index, arrived, from_us, was, now, step)
        open_before = self._open(from_us, was)
        old = index.within(index.touched(arrived.lists, arrived.times), open_before)
        self._take_in(index, arrived, step)
        new = index.within(index.touched(arrived.lists, arrived.times), open_before)
        rows, op = net_changes(old, new, index.runs.equal_rows)
        if self._last_open(was, now) > open_before.high:
            opened = open_before._replace(low=open_before.high + 1, high=self._last_open(was, now))
            first_us = max(opened.low * opened.slide - opened.reach, FIRST)
            inserted = index.within(index.runs_from(first_us), opened)
            rows, op = np.concatenate([rows, inserted]), np.append(op, np.full(len(inserted), INSERT))
        return rows, op

    def _update_only(
        self, index: EarlyIndex, arrived: _Arrived, was: Progress, now: Progress, step: Step
    ) -> tuple[IntArray, IntArray]:
        """As `_update`, if there is one extent: runs change where rows arrive, and where it begins if that moves."""
        extents, where = self.spec.extents, (arrived.lists, arrived.times)
        new = NewTuples(*map(np.concatenate, zip(arrived.appended[:2], arrived.inserted[:2], strict=True)))
        moves = moves_of(index, extents, arrived.lists, new, was, now)
        had = index.in_window(moves.since, moves, *where)
        self._take_in(index, arrived, step)
        return net_changes(had, index.in_window(lows_of(index, extents, moves), moves, *where), index.runs.equal_rows)

    def _update_rows(
        self, index: EarlyIndex, arrived: _Arrived, from_us: int, was: Progress, now: Progress, step: Step
    ) -> tuple[IntArray, IntArray]:
        """As `_update`, if the window counts rows: those that arrive take others out of each later extent."""
        extents, window = self.spec.extents, self.spec.extents.window
        opens = self._last_open(was, now) > self._last_open(was, was)
        # Over all groups, rows of one group take out those of another.
        some = None if opens or window.over_all_groups else np.unique(arrived.lists)
        old = index.held(some)
        self._take_in(index, arrived, step)
        new = index.held(some)
        ends = self._instants_open(index, from_us, was, now)
        assert extents.slide_us is not None
        had = ends[ends <= self._last_open(was, was) * extents.slide_us]
        before, after = index.ranges(old, window, had, len(ends)), index.ranges(new, window, ends, len(ends))
        return range_changes_of(old, before, new, after, ends, index.runs.equal_rows)

    def _take_in(self, index: EarlyIndex, arrived: _Arrived, step: Step) -> None:
        if len(arrived.replacing.times):
            index.runs.replace(arrived.replacing, arrived.replaced)
        if len(arrived.inserted.times):
            before = index.links(arrived.between)
            after = index.links(index.runs.insert(arrived.inserted))
            _count(arrived.inserted, before, after, step)
        attached = index.add(arrived.appended)
        step.metrics[metrics.ATTACHED] += attached
        step.metrics[metrics.MERGES] += attached

    def _open(self, from_us: int, progress: Progress) -> Reach:
        """The extents that can be read at this progress, and that rows from a time on can change."""
        extents = self.spec.extents
        assert extents.slide_us is not None
        first, last = first_slide(from_us, extents.slide_us), self._last_open(progress, progress)
        return Reach(extents.slide_us, extents.window.reach_us, first, last)

    def _last_open(self, was: Progress, now: Progress) -> int:
        """The number of the last slide whose extent can be read: the first one at or after the greatest time."""
        slide_us = self.spec.extents.slide_us
        assert slide_us is not None
        until_us = was.until if now.until == END_OF_TIME else now.until
        return max(first_slide(now.latest, slide_us), first_slide(until_us, slide_us) - 1)

    def _instants_open(self, index: EarlyIndex, from_us: int, was: Progress, now: Progress) -> IntArray:
        """As `_open`, as times; with those extents that open between two states of progress."""
        extents = self.spec.extents
        assert extents.slide_us is not None
        last = self._last_open(was, now)
        first = min(first_slide(from_us, extents.slide_us), self._last_open(was, was) + 1)
        first = max(first, first_slide(index.first_us, extents.slide_us))
        require_room(max(last + 1 - first, 0), 2 * 8, "instants at which a window slides")
        return np.arange(first, max(first, last + 1)) * extents.slide_us

    def _keep(
        self,
        log: WindowLog,
        waiting: WaitingRows,
        index: EarlyIndex,
        arrived: int,
        was: Progress,
        now: Progress,
        step: Step,
    ) -> int:
        """Keep settled tuples in the state, as long as an open extent can contain them: as rows, as they came, or, if
        these would be many, as runs in the log. Returns the time from which on they are kept as rows."""  # fmt: skip
        extents = self.spec.extents
        if self._is_over(now):
            log.clear(step)
        elif extents.is_history:
            index.carry_before(now.until)
            tuples, begins, weight = index.last_runs(now.until)
            log.replace(tuples, np.arange(len(tuples)), begins, weight, step)
        else:
            floor_us = floor_of(extents, now)
            least_us = max(floor_us, index.first_us if extents.window.rows is not None else FIRST)
            since_us = min(max(was.until if waiting.since_us is None else waiting.since_us, least_us), now.until)
            if waiting.rows_from(since_us) + arrived <= _ROWS_KEPT * index.waiting + LEAST_ROWS:
                log.evict(floor_us, step)
                return since_us
            tuples, linked = index.tuples_between(since_us, now.until)
            log.append(self._since(log, tuples, was, step), tuples, linked, floor_us, step)
        return now.until

    def _expire(self, index: EarlyIndex, now: Progress, step: Step) -> None:
        """Drop what no open extent contains."""
        extents = self.spec.extents
        if extents.is_history:
            return  # done when the last runs were kept
        if extents.window.rows is None:
            # Tuples that wait stay: rows at their times are duplicates.
            step.metrics[metrics.DETACHED] += index.drop_before(min(floor_of(extents, now), now.until))
        elif extents.window.per_group:
            step.metrics[metrics.DETACHED] += index.drop_all_but(extents.window.rows + index.counts_from(now.until))
        elif index.beginning is not None:
            step.metrics[metrics.DETACHED] += index.drop_before(min(index.beginning.us, now.until))
        else:
            first_us = index.last_before(now.until, extents.window.rows)
            step.metrics[metrics.DETACHED] += 0 if first_us is None else index.drop_before(first_us)


def _count(new: ListTuples, before: Links, after: Links, step: Step) -> None:
    """Count what Algorithm 2 of Al-Kateb 2010 does with tuples out of order; those of a step arrive together.

    New tuples between two others merge into the run of either, or of both; they split a run if both were in one.
    """
    begins = np.ones(len(new.times), bool)
    begins[1:] = (np.diff(new.lists) != 0) | (after.next_time[:-1] != new.times[1:])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(begins)) - 1
    heads = np.add.reduceat(after.here, first)
    goes_on = (after.next_time[last] != NO_NEXT) & (after.next_head[last] == 0)
    of_their_own = heads - (goes_on & (heads > 0))  # runs of new tuples alone
    through = goes_on & (heads == 0)
    attached = len(begins) - int(of_their_own.sum())
    joined = int((through & (before.next_head[first] == 1)).sum())
    step.metrics[metrics.ATTACHED] += attached
    step.metrics[metrics.MERGES] += attached + joined
    step.metrics[metrics.SPLITS] += int((~through & (before.next_head[first] == 0)).sum())
