"""The coalesced extents of one input, step by step: final extents are evaluated, tuples that still count are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.coalescing.aggregate_needs import AggregateNeeds
from whenabouts.core.coalescing.extents import FinalExtents
from whenabouts.core.coalescing.reorder_buffer import ReorderBuffer
from whenabouts.core.coalescing.schedule import (
    FIRST,
    Progress,
    floor_of,
    instants_between,
    is_due,
    next_due,
    slides_between,
)
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.coalescing.sliding_ranges import (
    NewTuples,
    ranges_at_instants,
    ranges_at_window_ends,
    ranges_in_time,
    ranges_of_group_slides,
    ranges_of_last,
    ranges_of_stream_slides,
)
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.coalescing.tuple_codec import TupleCodec
from whenabouts.core.coalescing.tuples import TemporalTuples, links_of
from whenabouts.core.coalescing.window_log import Merged, TuplesSince, WindowLog
from whenabouts.core.coalescing.window_ranges import (
    Ranges,
    WindowEnds,
    ranges_at,
    ranges_of_row_slides,
    ranges_of_slides,
    ranges_up_to,
    whole_groups,
)
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, SegmentStore, Step
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.state.segment_codec import fingerprint
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.state.window_cache import window_cache


class _Stores(NamedTuple):
    """The parts of a bucket's store: waiting rows, the log of settled tuples, and the log's directory."""

    waiting: StorePart
    log: StorePart
    directory: StorePart

    @classmethod
    def of(cls, store: SegmentStore) -> _Stores:
        """Checkpoints hold the parts under these numbers."""
        return cls(StorePart(store, 0, 2), StorePart(store, 1, 4), StorePart(store, 3, 4))


class ExtentEvaluator:
    """Evaluates the extents of one input over the blocks and the state of one bucket."""

    def __init__(self, reader: EventReader, spec: CoalescingSpec, needs: AggregateNeeds | None = None) -> None:
        self.spec = spec
        self._needs = AggregateNeeds() if needs is None else needs
        self.buffer = ReorderBuffer(reader, spec.group, spec.lateness_us)
        weighted = spec.extents.is_history and spec.eager
        self._codec = TupleCodec(
            reader.schema, spec.group, spec.values, spec.eager, spec.equivalence.needs_all_values, weighted
        )
        # A sliding window stays in memory from step to step; history and single extents are read from the state.
        self._slides = spec.extents.slides and not spec.extents.is_history
        self._definition = fingerprint(reader.input, reader.schema, spec, self._needs)

    def is_new(self, store: SegmentStore) -> bool:
        """Whether no step has left state in the store."""
        return self.progress(store) == Progress()

    def progress(self, store: SegmentStore) -> Progress:
        """How far event time had advanced in the last step."""
        return self._log(_Stores.of(store)).progress

    def count_from(self, store: SegmentStore, counted: int) -> None:
        """Say in a new store how many tuples were settled before its own, so that slides by rows continue."""
        self._log(_Stores.of(store)).save(Progress(counted=counted))

    def convert(self, store: SegmentStore, other: ExtentEvaluator) -> None:
        """Write the tuples that the evaluator of the other scheme has stored in the format of this one. O(tuples)."""
        parts = _Stores.of(store)
        kept = other._log(parts)
        tuples = kept.all_from(FIRST)
        linked = np.zeros(len(tuples), bool)
        if self.spec.eager:
            linked, _ = links_of(tuples, self.spec.values, self.spec.equivalence)
        kept.discard()
        self._log(parts).restore(tuples, linked)

    def rows_held(self, store: SegmentStore) -> int:
        """Rows that wait in a bucket's state, plus the tuples or runs that are kept there."""
        parts = _Stores.of(store)
        return rows_in_state(parts.waiting, 1) + rows_in_state(parts.log, 1)

    @contextmanager
    def step(
        self,
        store: SegmentStore,
        blocks: Sequence[pa.RecordBatch],
        until_us: int,
        latest_us: int,
        step: Step,
        ends: WindowEnds | None = None,
    ) -> Iterator[FinalExtents | None]:
        """Add rows that are not late, and evaluate the extents that are final now; None if there is none.

        All rows before `until_us` have arrived; at `END_OF_TIME` no state is written. `latest_us`: the greatest time of
        all rows so far. `ends`: where windows that slide by rows end, if another input determines it.

        The extents may refer to the window in memory. The window becomes available to the next step when the context
        ends.
        """
        parts = self._parts(store)
        log = self._log(parts)
        was = log.progress
        latest = max([was.latest, latest_us, *(int(times(block)[1].max(initial=FIRST)) for block in blocks)])
        until = max(until_us, was.until)
        new, first_waiting = self.buffer.settle(parts.waiting, blocks, until, step)
        now = Progress(until, latest, was.counted + len(new))
        if self.spec.extents.at_us is not None:  # tuples after the only instant are irrelevant
            new = tuples_between(new, NO_WATERMARK, self.spec.extents.at_us)
        window = self._window(log, was, now, step)
        if window is None:
            extents = self._evaluate_log(log, new, was, now, step, ends)
        else:
            extents = self._evaluate_window(window, log, new, was, now, step, ends)
        stamp = None
        if until != END_OF_TIME:
            stamp = log.save(now)
            metrics.held(step.gauges, self.buffer.reader.name, log.rows_held, log.bytes_held)
            step.timer_us = self._timer(now, log.rows_held > 0, first_waiting)
        yield extents
        if stamp is not None and window is not None:
            window_cache().put(stamp + self._definition, window)

    @staticmethod
    def _parts(store: SegmentStore) -> _Stores:
        return _Stores.of(store)

    def _log(self, parts: _Stores) -> WindowLog:
        return WindowLog(parts.log, parts.directory, self._codec, self.buffer.keys, self.spec.extents)

    def _window(self, log: WindowLog, was: Progress, now: Progress, step: Step) -> SlidingWindow | None:
        """The window as the last step left it: from the cache or, if an extent is due, from the state.

        None if the step needs no window: nothing is kept yet and never will be, or no extent is due.
        """
        if not self._slides or (now.until == END_OF_TIME and not log.rows_held):
            return None
        found = window_cache().take(log.stamp + self._definition) if log.stamp else None
        if isinstance(found, SlidingWindow) and found.needs.same(self._needs):
            self._drop_expired(found, was)
            return found
        spec, asked = self.spec, self.spec.extents.window
        if log.rows_held and asked.rows is None and not is_due(spec.extents, was, now):
            return None
        schema, over_all = self.buffer.reader.schema, asked.over_all_groups
        window = SlidingWindow(
            schema, spec.group, spec.values, spec.equivalence, self._needs, eager=spec.eager, numbered=over_all
        )
        if log.rows_held:
            tuples = log.all_from(floor_of(spec.extents, was))
            linked = None
            if spec.eager:
                linked, compared = links_of(tuples, spec.values, spec.equivalence)
                step.metrics[metrics.COMPARED] += compared
            before = was.counted - len(tuples)
            window.append(tuples, linked, NewTuples.of(tuples, spec.group, before).numbers if over_all else None)
            counts = log.counts()
            if counts is not None:
                window.count_from(counts.select(spec.group), counts.column(-1).to_numpy())
            self._drop_expired(window, was)
        return window

    def _drop_expired(self, window: SlidingWindow, was: Progress) -> None:
        """Drop tuples that no extent after `was` contains."""
        asked = self.spec.extents.window
        if asked.rows is None:
            window.drop_before(floor_of(self.spec.extents, was))
        elif asked.per_group:
            window.drop_all_but(asked.rows)
        else:
            window.drop_below(was.counted - asked.rows + 1)

    def _evaluate_window(
        self,
        window: SlidingWindow,
        log: WindowLog,
        new: TemporalTuples,
        was: Progress,
        now: Progress,
        step: Step,
        ends: WindowEnds | None,
    ) -> FinalExtents | None:
        """As `_evaluate_log`, but in memory: writes only new tuples, and compares only these if the scheme is eager."""
        extents, group, final, ordered = self.spec.extents, self.spec.group, None, None
        if extents.window.over_all_groups:
            ordered = NewTuples.of(new, group, was.counted)
        linked, compared = window.append(new, None, None if ordered is None else ordered.numbers)
        step.metrics[metrics.COMPARED] += compared
        if is_due(extents, was, now):
            if not self.spec.eager:
                step.metrics[metrics.COMPARED] += window.compare()
            final = FinalExtents(window, window.linked, self._ranges_in_window(window, ordered, was, now, ends))
        if now.until != END_OF_TIME:
            log.append(window.since, new, linked & ~new.heads, floor_of(extents, now), step)
            if len(new) and extents.window.per_group and extents.slide_rows is not None:
                log.save_counts(*window.counted())
        return final

    def _ranges_in_window(
        self, window: SlidingWindow, ordered: NewTuples | None, was: Progress, now: Progress, ends: WindowEnds | None
    ) -> Ranges:
        extents, rows, group = self.spec.extents, self.spec.extents.window.rows, self.spec.group
        if rows is None:
            assert extents.slide_us is not None
            slides = slides_between(extents, was, now)
            return ranges_in_time(window, extents.slide_us, extents.window.reach_us, *slides)
        if ends is not None and ordered is not None:
            return ranges_at_window_ends(window, rows, ends, ordered, group)
        if extents.slide_rows is not None:
            if ordered is not None:
                return ranges_of_stream_slides(window, rows, extents.slide_rows, ordered)
            return ranges_of_group_slides(window, rows, extents.slide_rows, was.until)
        instants = instants_between(extents, window.first_us, was, now)
        if ordered is not None:
            return ranges_at_instants(window, rows, instants, ordered)
        return ranges_of_last(window, rows, instants)

    def _evaluate_log(
        self, log: WindowLog, new: TemporalTuples, was: Progress, now: Progress, step: Step, ends: WindowEnds | None
    ) -> FinalExtents | None:
        """The final extents, from the tuples in the state and the new ones; leaves in the state what still counts."""
        extents, due, final = self.spec.extents, is_due(self.spec.extents, was, now), None
        if due or extents.is_history:
            merged = log.merged(new, floor_of(extents, was))
            linked, compared = links_of(merged.tuples, self.spec.values, self.spec.equivalence)
            step.metrics[metrics.COMPARED] += compared
            if due:
                final = self._extents(merged, linked, was, now, ends)
        if now.until == END_OF_TIME:
            return final
        if extents.at_us is not None and extents.at_us < now.until:
            log.clear(step)
        elif extents.is_history:
            log.keep_last_runs(merged, linked, step)
        else:
            log.append(self._since(log, new, was, step), new, None, floor_of(extents, now), step)
        return final

    def _since(self, log: WindowLog, new: TemporalTuples, was: Progress, step: Step) -> TuplesSince:
        """Reads the tuples at or after a time from the state; with their links if the scheme keeps these."""

        def since(us: int) -> tuple[TemporalTuples, BoolArray]:
            tuples = log.merged(tuples_between(new, us, END_OF_TIME), max(us, floor_of(self.spec.extents, was))).tuples
            if not self.spec.eager:
                return tuples, np.zeros(len(tuples), bool)
            linked, compared = links_of(tuples, self.spec.values, self.spec.equivalence)
            step.metrics[metrics.COMPARED] += compared
            return tuples, linked

        return since

    def _extents(
        self, merged: Merged, linked: BoolArray, was: Progress, now: Progress, ends: WindowEnds | None
    ) -> FinalExtents:
        tuples, extents, window, names = merged.tuples, self.spec.extents, self.spec.extents.window, self.spec.group
        if extents.is_history:
            final = now.until == END_OF_TIME or (extents.at_us is not None and extents.at_us < now.until)
            return FinalExtents(tuples, linked, whole_groups(tuples), merged.weight, open_ended=not final)
        if ends is not None:
            return FinalExtents(tuples, linked, ranges_up_to(tuples, window, ends, names))
        if extents.slide_rows is not None:
            return FinalExtents(tuples, linked, ranges_of_row_slides(tuples, window, extents.slide_rows, names))
        if extents.slide_us is None:
            at = now.latest if extents.at_us is None else extents.at_us
            return FinalExtents(tuples, linked, ranges_at(tuples, window, np.array([at]), names))
        if window.width_us is not None:
            slides = slides_between(extents, was, now)
            return FinalExtents(tuples, linked, ranges_of_slides(tuples, window, extents.slide_us, *slides))
        instants = instants_between(extents, int(tuples.times.min(initial=END_OF_TIME)), was, now)
        return FinalExtents(tuples, linked, ranges_at(tuples, window, instants, names))

    def _timer(self, now: Progress, holds_tuples: bool, first_waiting: int | None) -> int | None:
        """The least watermark at which an extent can be final."""
        extents = self.spec.extents
        if extents.slide_us is None and (extents.is_history or extents.slide_rows is not None):
            return None if first_waiting is None else first_waiting + 1
        return next_due(extents, now, now.until if holds_tuples else first_waiting)


def tuples_between(tuples: TemporalTuples, least_us: int, greatest_us: int) -> TemporalTuples:
    """The tuples with `least_us <= time <= greatest_us`."""
    keep = (tuples.times >= least_us) & (tuples.times <= greatest_us)
    if keep.all():
        return tuples
    before = np.concatenate([[0], np.cumsum(keep)])
    return TemporalTuples(tuples.table, tuples.rows[keep], tuples.times[keep], before[tuples.starts])
