"""Settled tuples that a later extent can still contain, stored between steps in the format of a scheme.

The tuples of a window form a log in time order. A step appends the tuples it settled as one segment, and merges small
segments at the end, so that segments are few and a run is in few pieces; each tuple is written O(log tuples) times. A
time-based window drops whole segments. In a row-count window, later arrivals decide which tuples expire: the log is
rewritten when it has doubled since the last time, O(1) amortised per tuple. Without a window, the last run of each
group is kept, and rewritten in each step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import no_rows
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.schedule import FIRST, Progress
from whenabouts.core.coalescing.tuple_codec import COUNTED, TupleCodec
from whenabouts.core.coalescing.tuples import Groups, TemporalTuples, groups_of, order_of
from whenabouts.core.coalescing.window_ranges import ranges_at
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, SegmentStore, Step
from whenabouts.core.state.memory_store import StampedStore
from whenabouts.core.state.segment_codec import decode, encode, unwrap, wrap
from whenabouts.core.state.segment_layout import DIRECTORY
from whenabouts.core.state.segmented_state import SegmentedState

LEAST_BYTES = 1 << 12
"""Segments up to this size are always merged."""
LEAST_TUPLES = 256
"""The log of a row-count window may hold this many tuples more than twice its window."""

TuplesSince = Callable[[int], tuple[TemporalTuples, BoolArray]]
"""Gives all tuples at or after a time, kept and new, and which of them extend their predecessor."""


class Merged(NamedTuple):
    """Kept and new tuples in order, and how many tuples each one represents."""

    tuples: TemporalTuples
    weight: IntArray | None


class WindowLog:
    """The settled tuples of one bucket and input during one step.

    `stamp` identifies the stored state. `progress`: how far event time had advanced when it was saved. Raises
    EngineError WA-3003 for state in another format.
    """

    def __init__(
        self, segments: SegmentStore, directory: SegmentStore, codec: TupleCodec, keys: Keys, extents: Extents
    ) -> None:
        self._codec, self._keys, self._window = codec, keys, extents.window
        self._segments, self._directory = StampedStore(segments), directory
        self._state = SegmentedState(self._segments, codec.layout, slot_us=1)  # segments end exactly at their tuples
        found = directory.get(0, 0)
        saved = {} if found is None else json.loads(bytes(unwrap(found)))
        if not isinstance(saved, dict):
            raise EngineError(
                Code.STATE_FORMAT,
                "the state was written by an earlier release, which kept tuples in another format",
                "restart from a new checkpoint, or with the release that wrote it",
            )
        self.progress = Progress(*saved.get("clock", ()))
        self.stamp: str = saved.get("stamp", "")
        self._logged, self._rewritten = saved.get("log", (0, 0))
        self._rows_before = self._state.rows_held

    @property
    def rows_held(self) -> int:
        """Rows in the store: tuples, or runs."""
        return self._state.rows_held

    @property
    def bytes_held(self) -> int:
        """Bytes of these rows."""
        return self._state.bytes_held

    def merged(self, new: TemporalTuples, from_us: int) -> Merged:
        """The tuples kept at or after `from_us`, followed by the new ones. O(both)."""
        batches = self._state.load(0, from_us, 2**62)
        if not batches:
            return Merged(new, None)
        old = self._codec.decode(batches, from_us)
        tables = [old.table, new.table.select(self._codec.names)]
        table = pa.concat_tables([part.cast(self._codec.plain) for part in tables]).combine_chunks()
        rows = np.concatenate([old.rows, new.rows + old.table.num_rows]).astype(np.int32)
        codes = groups_of(self._keys, table)
        order = order_of(np.concatenate([old.times, new.times]), Groups(codes.codes[rows], codes.low, codes.size))
        joined = np.concatenate([old.joined, np.zeros(len(new), bool)])[order.at]
        weight = None
        if old.weight is not None:
            weight = np.concatenate([old.weight, np.ones(len(new), np.int64)])[order.at]
        return Merged(TemporalTuples(table, rows[order.at], order.times, order.starts, joined), weight)

    def all_from(self, from_us: int) -> TemporalTuples:
        """All kept tuples at or after a time."""
        return self.kept(from_us).tuples

    def kept(self, from_us: int) -> Merged:
        """As `all_from`, with how many tuples each one represents."""
        empty = pa.Table.from_batches([], self._codec.plain)
        none = TemporalTuples(empty, np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(1, np.int64))
        return self.merged(none, from_us)

    def append(
        self, since: TuplesSince, new: TemporalTuples, linked: BoolArray | None, floor_us: int, step: Step
    ) -> None:
        """Append new tuples, which are later than all in the log, and evict those before `floor_us`.

        `linked`: which new tuples extend a new predecessor, if known.
        """
        if len(new):
            self._logged += len(new)
            if self._window.rows is not None and self._logged > 2 * self._rewritten + LEAST_TUPLES:
                self._rewrite(since)
            else:
                self._append(since, new, linked, floor_us)
        self.evict(floor_us, step)

    def evict(self, floor_us: int, step: Step) -> None:
        """Evict tuples before `floor_us`."""
        self._state.evict(0, floor_us)
        self._count(step)

    def _append(self, since: TuplesSince, new: TemporalTuples, linked: BoolArray | None, floor_us: int) -> None:
        new_from_us = int(new.times.min())
        if linked is None or floor_us > new_from_us:
            new, linked = since(max(new_from_us, floor_us))
        rows = self._rows(new, linked)
        from_us = self._first_to_merge(rows, new_from_us)
        if from_us < new_from_us:
            rows = self._rows(*since(max(from_us, floor_us)))
        self._state.replace_from(0, from_us, rows)

    def _first_to_merge(self, rows: pa.RecordBatch, new_from_us: int) -> int:
        """The time from which on stored segments are merged with new rows.

        Segments no larger than the new rows are merged, unless they would exceed a sixteenth of the log: a segment is
        only dropped as a whole.
        """
        from_us, most = new_from_us, max(LEAST_BYTES, self._state.bytes_held // 16)
        ends = self._state.segment_ends(0)
        if not ends or ends[0][1] > most:
            return new_from_us
        size = rows.nbytes
        for end_us, held in ends:
            if held > max(LEAST_BYTES, min(size, most)):
                return end_us if from_us == FIRST else new_from_us
            from_us, size = FIRST, size + held
        return from_us

    def _rewrite(self, since: TuplesSince) -> None:
        """Rewrite the log so that it has only the tuples that the row-count window contains now."""
        tuples, linked = since(FIRST)
        last = ranges_at(tuples, self._window, np.array([END_OF_TIME]), self._codec.group).lows
        at = np.flatnonzero(np.arange(len(tuples)) >= np.repeat(last, np.diff(tuples.starts)))
        self._logged = self._rewritten = len(at)
        begins = ~linked[at] | (np.diff(at, prepend=-2) != 1)
        self._state.replace_from(0, FIRST, self._codec.encode(tuples, at, begins))

    def _rows(self, tuples: TemporalTuples, linked: BoolArray) -> pa.RecordBatch:
        return self._codec.encode(tuples, None, ~linked)

    def keep_last_runs(self, merged: Merged, linked: BoolArray, step: Step) -> None:
        """Keep only the last run of each group, which later tuples may extend; the eager scheme keeps its two ends."""
        tuples = merged.tuples
        runs = np.cumsum(~linked)
        last = np.concatenate([runs, [0]])[tuples.starts[1:] - 1]
        mine = runs == np.repeat(last, np.diff(tuples.starts))
        weight = np.ones(len(tuples), np.int64) if merged.weight is None else merged.weight
        if self._codec.eager:
            ends = np.zeros(len(tuples), bool)
            ends[tuples.starts[1:][np.diff(tuples.starts) > 0] - 1] = True
            total = np.bincount(runs[mine], weight[mine], minlength=int(runs.max(initial=0)) + 1).astype(np.int64)
            heads = ~linked
            weight = np.where(heads & ~ends, total[runs] - 1, np.where(heads, total[runs], 1))
            mine &= ends | heads
        at = np.flatnonzero(mine)
        self.replace(tuples, at, ~linked[at], weight[at], step)

    def replace(self, tuples: TemporalTuples, at: IntArray, begins: BoolArray, weight: IntArray, step: Step) -> None:
        """Keep only the tuples at these indices; which begin a run, and how many tuples each one represents."""
        rows = self._codec.encode(tuples, at, begins, weight if self._codec.weighted else None)
        self._state.replace_from(0, FIRST, rows)
        self._count(step)

    def discard(self) -> None:
        """Drop all tuples and the directory of their segments, so that they can be written in another format."""
        self._state.replace_from(0, FIRST, no_rows(self._codec.stored))
        self._segments.delete(DIRECTORY, 0)

    def restore(self, tuples: TemporalTuples, linked: BoolArray) -> None:
        """Write tuples that were stored in another format; progress and counts stay."""
        self._state.replace_from(0, FIRST, self._rows(tuples, linked))
        self._state.save()

    def clear(self, step: Step) -> None:
        """Drop all tuples."""
        self._state.replace_from(0, FIRST, no_rows(self._codec.stored))
        self._count(step)

    def save(self, progress: Progress, others: str = "") -> str:
        """Write the directory with the progress and a stamp that identifies this state; returns the stamp.

        `others`: a digest of what this step changed in other parts of the store, if the stamp is to cover them.
        """
        self._state.save()
        if progress != self.progress or others:
            log = self._logged, self._rewritten
            self.stamp = self._segments.stamp(f"{self.stamp} {progress} {log}{others}")
            saved = {"clock": progress, "log": log, "stamp": self.stamp}
            self._directory.put(0, 0, wrap(json.dumps(saved).encode()))
        return self.stamp

    def counts(self) -> pa.Table | None:
        """The group columns and, last, how many tuples each group has had so far, as `save_counts` stored them."""
        found = self._directory.get(0, 1)
        return None if found is None else pa.Table.from_batches([decode(found, self._codec.counted)])

    def save_counts(self, groups: pa.Table, counts: IntArray) -> None:
        """Store how many tuples each group has had so far."""
        rows = groups.append_column(COUNTED, pa.array(counts)).combine_chunks().to_batches()
        if rows:
            self._directory.put(0, 1, encode(rows[0]))

    def _count(self, step: Step) -> None:
        change = self._state.rows_held - self._rows_before
        step.metrics[metrics.STORED if change > 0 else metrics.EVICTED] += abs(change)
        self._rows_before = self._state.rows_held
