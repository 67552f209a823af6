"""Settled tuples that an extent to come can still hold, kept in the form of a scheme from step to step.

Those of a window are a log in order of time: a step writes the tuples that it settled behind the others, as one
segment, and puts small segments at the end together, so that there are few and a run is in few pieces; each tuple is
written O(log tuples) times. Of a time-based window whole segments are dropped. Of a tuple-based one it hangs on what
comes which tuples go: the log is written anew once it holds twice what it did then, O(1) amortised a tuple. Where there
is no window, the last run of each group is kept, and rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.tuple_codec import COUNTED, TupleForm
from whenabouts.core.coalescing.tuples import Groups, TemporalTuples, groups_of, order_of
from whenabouts.core.coalescing.window_ranges import places_of
from whenabouts.core.coalescing.window_spec import Extents
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import NO_WATERMARK, SegmentStore, Step
from whenabouts.core.state.memory_store import StampedStore, StorePart
from whenabouts.core.state.segment_codec import decode, encode, unwrap, wrap
from whenabouts.core.state.segmented_state import Layout, SegmentedState, rows_in_state

FIRST = NO_WATERMARK + 1
"""Before all times."""

LEAST_BYTES = 1 << 12
"""Segments up to this size are put together in any case."""
LEAST_TUPLES = 256
"""So many tuples more than twice those of a tuple-based window may lie in its log."""

Since = Callable[[int], tuple[TemporalTuples, BoolArray]]
"""All tuples at or after a time, kept and new, and which of them go on the one before."""


class Progress(NamedTuple):
    """Up to where time has come: all tuples before `until` are settled; the greatest time seen; tuples counted."""

    until: int = NO_WATERMARK
    latest: int = NO_WATERMARK
    counted: int = 0


class Merged(NamedTuple):
    """Kept and new tuples in order, and for how many tuples each one stands."""

    tuples: TemporalTuples
    weight: IntArray | None


class KeptTuples:
    """The settled tuples of one bucket and input during one step.

    Raises EngineError WA-3003 for state of another form.
    """

    def __init__(self, store: SegmentStore, form: TupleForm, keys: Keys, extents: Extents) -> None:
        self._form, self._keys, self._window = form, keys, extents.window
        layout = Layout([form.stored], purpose=f"eager {form.eager}")
        self._written = StampedStore(StorePart(store, 0, 2))
        self._state = SegmentedState(self._written, layout, slot_us=1)  # segments end where their tuples do
        self._book = StorePart(store, 1, 2)
        found = self._book.get(0, 0)
        told = {} if found is None else json.loads(bytes(unwrap(found)))
        if not isinstance(told, dict):
            raise EngineError(
                Code.STATE_FORMAT,
                "the state was written by an earlier release, which kept tuples in another form",
                "restart from a new checkpoint, or with the release that wrote it",
            )
        self.clock = Progress(*told.get("clock", ()))
        self.stamp: str = told.get("stamp", "")
        self._logged, self._rewritten = told.get("log", (0, 0))
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
        """New tuples behind those kept at or after `from_us`. O(both)."""
        batches = self._state.load(0, from_us, 2**62)
        if not batches:
            return Merged(new, None)
        old = self._form.decode(batches, from_us)
        tables = [old.table, new.table.select(self._form.names)]
        table = pa.concat_tables([part.cast(self._form.plain) for part in tables]).combine_chunks()
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
        none = pa.Table.from_batches([], self._form.plain)
        nothing = TemporalTuples(none, np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(1, np.int64))
        return self.merged(nothing, from_us).tuples

    def keep(self, since: Since, new: TemporalTuples, linked: BoolArray | None, floor_us: int, step: Step) -> None:
        """Keep new tuples, which are later than all that are kept; those before `floor_us` count no more.

        `linked`: which new ones go on the one before among them, where that is known.
        """
        if len(new):
            self._logged += len(new)
            if self._window.rows is not None and self._logged > 2 * self._rewritten + LEAST_TUPLES:
                self._write_anew(since)
            else:
                self._add(since, new, linked, floor_us)
        self._state.evict(0, floor_us)
        self._count(step)

    def _add(self, since: Since, new: TemporalTuples, linked: BoolArray | None, floor_us: int) -> None:
        new_from_us = int(new.times.min())
        if linked is None or floor_us > new_from_us:
            new, linked = since(max(new_from_us, floor_us))
        rows = self._rows(new, linked)
        before_us = self._end_of_rest(rows.nbytes, new_from_us)
        if before_us < new_from_us:
            rows = self._rows(*since(max(before_us, floor_us)))
        self._state.put_behind(0, before_us, rows)

    def _end_of_rest(self, size: int, new_from_us: int) -> int:
        """Where the segments end that new rows of a size are not put together with.

        Smaller ones are, unless they are a sixteenth of all: what is one segment is dropped as one.
        """
        before_us, most = new_from_us, self._state.bytes_held // 16
        for end_us, held in self._state.latest(0):
            if held > max(LEAST_BYTES, min(size, most)):
                return end_us if before_us == FIRST else new_from_us
            before_us, size = FIRST, size + held
        return before_us

    def _write_anew(self, since: Since) -> None:
        """Have a log of the tuples alone that a tuple-based window holds now."""
        tuples, linked = since(FIRST)
        assert self._window.rows is not None
        if self._window.per_group:
            ends = np.repeat(tuples.starts[1:], np.diff(tuples.starts))
            at = np.flatnonzero(np.arange(len(tuples)) >= ends - self._window.rows)
        else:
            at = np.flatnonzero(places_of(tuples, self._form.group) >= len(tuples) - self._window.rows)
        self._logged = self._rewritten = len(at)
        begins = ~linked[at] | (np.diff(at, prepend=-2) != 1)
        self._state.put_behind(0, FIRST, self._form.encode(tuples, at, begins))

    def _rows(self, tuples: TemporalTuples, linked: BoolArray) -> pa.RecordBatch:
        return self._form.encode(tuples, np.arange(len(tuples)), ~linked)

    def keep_last_runs(self, merged: Merged, linked: BoolArray, step: Step) -> None:
        """Keep the last run of each group, which may go on; the eager scheme only its two ends."""
        tuples = merged.tuples
        runs = np.cumsum(~linked)
        last = np.concatenate([runs, [0]])[tuples.starts[1:] - 1]
        mine = runs == np.repeat(last, np.diff(tuples.starts))
        weight = np.ones(len(tuples), np.int64) if merged.weight is None else merged.weight
        if self._form.eager:
            ends = np.zeros(len(tuples), bool)
            ends[tuples.starts[1:][np.diff(tuples.starts) > 0] - 1] = True
            total = np.bincount(runs[mine], weight[mine], minlength=int(runs.max(initial=0)) + 1).astype(np.int64)
            heads = ~linked
            weight = np.where(heads & ~ends, total[runs] - 1, np.where(heads, total[runs], 1))
            mine &= ends | heads
        at = np.flatnonzero(mine)
        rows = self._form.encode(tuples, at, ~linked[at], weight[at] if self._form.weighted else None)
        self._state.put_behind(0, FIRST, rows)
        self._count(step)

    def forget(self, step: Step) -> None:
        """Keep nothing."""
        self._state.put_behind(0, FIRST, _empty(self._form.stored))
        self._count(step)

    def save(self, clock: Progress) -> str:
        """Write the directory, the clock, and the stamp that tells this state from all others; gives the stamp."""
        self._state.save()
        if clock != self.clock:
            log = self._logged, self._rewritten
            self.stamp = self._written.stamp(f"{self.stamp} {clock} {log}")
            self._book.put(0, 0, wrap(json.dumps({"clock": clock, "log": log, "stamp": self.stamp}).encode()))
        return self.stamp

    def counts(self) -> pa.Table | None:
        """The group columns of all groups and, last, how many tuples each has had, as `count` left them."""
        found = self._book.get(0, 1)
        return None if found is None else pa.Table.from_batches([decode(found, self._form.counted)])

    def count(self, groups: pa.Table, counts: IntArray) -> None:
        """Remember how many tuples groups have had by now."""
        rows = groups.append_column(COUNTED, pa.array(counts)).combine_chunks().to_batches()
        if rows:
            self._book.put(0, 1, encode(rows[0]))

    def _count(self, step: Step) -> None:
        change = self._state.rows_held - self._rows_before
        step.metrics[metrics.STORED if change > 0 else metrics.EVICTED] += abs(change)
        self._rows_before = self._state.rows_held


def rows_kept(store: SegmentStore) -> int:
    """Rows in the store of a bucket's `KeptTuples`."""
    return rows_in_state(StorePart(store, 0, 2), 1)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
