"""Settled tuples that an extent to come can still hold, kept in the form of a scheme from step to step.

Of a time-based window, tuples of past slots lie in segments that are written once and dropped as a whole; the tuples
of the current slot, whose runs still grow, lie apart and are rewritten. Of tuple-based windows, and where there is no
window, all that is kept is rewritten.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.extents import Extents
from whenabouts.core.keys import Keys
from whenabouts.core.protocol import NO_WATERMARK, SegmentStore, Step
from whenabouts.core.segmented_state import Layout, SegmentedState, rows_in_state
from whenabouts.core.segments import decode, encode, unwrap, wrap
from whenabouts.core.stored_tuples import TupleForm
from whenabouts.core.stores import StampedStore, StorePart
from whenabouts.core.temporal_tuples import Groups, TemporalTuples, groups_of, order_of
from whenabouts.core.window_ranges import Numbering, places_of

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

PAST, CURRENT = 0, 1
"""Inputs of the segmented state: tuples of past slots and of the current one."""

COUNTED = "_wa_counted"


class Clock(NamedTuple):
    """Up to where time has come: all tuples before `until` are settled; the greatest time seen; tuples counted."""

    until: int = NO_WATERMARK
    latest: int = NO_WATERMARK
    counted: int = 0


class Merged(NamedTuple):
    """Kept and new tuples in order: which are of past slots, which are new, and for how many tuples each one stands."""

    tuples: TemporalTuples
    past: BoolArray
    new: BoolArray
    weight: IntArray | None


class KeptTuples:
    """The settled tuples of one bucket and input during one step."""

    def __init__(self, store: SegmentStore, form: TupleForm, keys: Keys, extents: Extents) -> None:
        self._form, self._keys, self._extents = form, keys, extents
        layout = Layout([form.stored, form.stored], purpose=f"eager {form.eager}")
        self._written = StampedStore(StorePart(store, 0, 2))
        self._state = SegmentedState(self._written, layout, slot_us=extents.slot_us)
        self._book = StorePart(store, 1, 2)
        found = self._book.get(0, 0)
        told = [] if found is None else json.loads(bytes(unwrap(found)))
        self.clock = Clock(*told[:3])
        self.stamp: str = told[3] if len(told) > 3 else ""
        self._rows_before = self._state.rows_held

    @property
    def rows_held(self) -> int:
        """Rows in the store: tuples, or runs."""
        return self._state.rows_held

    @property
    def slot_us(self) -> int:
        """Width of the slots."""
        return self._state.slot_us

    @property
    def bytes_held(self) -> int:
        """Bytes of these rows."""
        return self._state.bytes_held

    def merged(self, new: TemporalTuples, from_us: int, *, whole: bool) -> Merged:
        """New tuples among those kept at or after `from_us`, without those of past slots unless `whole`. O(both)."""
        past = self._state.load(PAST, from_us, 2**62) if whole else []
        current = self._state.load(CURRENT, from_us, 2**62)
        if not past and not current:
            return Merged(new, np.zeros(len(new), bool), np.ones(len(new), bool), None)
        of_past, of_now = (self._form.decode(batches, from_us) for batches in (past, current))
        tables = [of_past.table, of_now.table, new.table.select(self._form.names)]
        offsets = [0, of_past.table.num_rows, of_past.table.num_rows + of_now.table.num_rows]
        table = pa.concat_tables([part.cast(self._form.plain) for part in tables]).combine_chunks()
        rows = np.concatenate([of_past.rows, of_now.rows + offsets[1], new.rows + offsets[2]]).astype(np.int32)
        codes = groups_of(self._keys, table)
        order = order_of(
            np.concatenate([of_past.times, of_now.times, new.times]), Groups(codes.codes[rows], codes.low, codes.size)
        )
        joined = np.concatenate([of_past.joined, of_now.joined, np.zeros(len(new), bool)])[order.at]
        weight = None
        if of_now.weight is not None:
            weight = np.concatenate([of_now.weight, np.ones(len(new), np.int64)])[order.at]
        rows = rows[order.at]
        tuples = TemporalTuples(table, rows, order.times, order.starts, joined)
        return Merged(tuples, rows < offsets[1], rows >= offsets[2], weight)

    def all_from(self, from_us: int) -> TemporalTuples:
        """All kept tuples at or after a time."""
        none = pa.Table.from_batches([], self._form.plain)
        nothing = TemporalTuples(none, np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(1, np.int64))
        return self.merged(nothing, from_us, whole=True).tuples

    def keep_recent(self, merged: Merged, linked: BoolArray, from_us: int, until_us: int, step: Step) -> None:
        """Keep the tuples of a time-based window from `from_us`: those before the slot of `until_us` for good."""
        tuples, slot_us = merged.tuples, self._state.slot_us
        at = np.flatnonzero(~merged.past & (tuples.times >= from_us))
        slots = tuples.times[at] // slot_us
        over = slots < until_us // slot_us
        for input, mine in ((PAST, over), (CURRENT, ~over)):
            if not self._form.eager:
                mine = np.full(len(at), input == PAST)
            places = at[mine]
            begins = ~linked[places] | (np.diff(places, prepend=-2) != 1) | (np.diff(slots[mine], prepend=-1) != 0)
            rows = self._form.encode(tuples, places, begins)
            if input == CURRENT:
                self._state.rewrite(CURRENT, rows)
            elif rows.num_rows:
                self._state.append(PAST, rows)
        self._state.evict(PAST, from_us)
        self._count(step)

    def keep_rows(self, merged: Merged, linked: BoolArray, step: Step) -> None:
        """Keep the tuples that a tuple-based window holds now."""
        tuples, window = merged.tuples, self._extents.window
        assert window.rows is not None
        if window.per_group:
            ends = np.repeat(tuples.starts[1:], np.diff(tuples.starts))
            at = np.flatnonzero(np.arange(len(tuples)) >= ends - window.rows)
        else:
            at = np.flatnonzero(places_of(tuples, self._form.group) >= len(tuples) - window.rows)
        self._rewrite(merged, linked, at, step)

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
        self._state.rewrite(CURRENT, rows)
        self._count(step)

    def _rewrite(self, merged: Merged, linked: BoolArray, at: IntArray, step: Step) -> None:
        begins = ~linked[at] | (np.diff(at, prepend=-2) != 1)
        self._state.rewrite(CURRENT, self._form.encode(merged.tuples, at, begins))
        self._count(step)

    def forget(self, step: Step) -> None:
        """Keep nothing."""
        for input in (PAST, CURRENT):
            self._state.rewrite(input, _empty(self._form.stored))
        self._count(step)

    def save(self, clock: Clock) -> str:
        """Write the directory, the clock, and the stamp that tells this state from all others; gives the stamp."""
        self._state.save()
        if clock != self.clock:
            self.stamp = self._written.stamp(f"{self.stamp} {clock}")
            self._book.put(0, 0, wrap(json.dumps([*clock, self.stamp]).encode()))
        return self.stamp

    def numbering(self, merged: Merged) -> Numbering:
        """How the tuples of the stream, or of each group, were counted before this step; counts the new ones."""
        tuples = merged.tuples
        if not self._extents.window.per_group:
            return Numbering(np.array([self.clock.counted - int((~merged.new).sum())]), np.array([self.clock.counted]))
        group = np.repeat(np.arange(len(tuples.starts) - 1), np.diff(tuples.starts))
        seen = self._seen(tuples)
        return Numbering(seen - np.bincount(group[~merged.new], minlength=len(seen)), seen)

    def _seen(self, tuples: TemporalTuples) -> IntArray:
        """How many tuples each group had before this step, from the counts that the last one left; leaves new ones."""
        schema = pa.schema([*(self._form.plain.field(name) for name in self._form.group), (COUNTED, pa.int64())])
        found = self._book.get(0, 1)
        told = pa.Table.from_batches([] if found is None else [decode(found, schema)], schema)
        here = np.flatnonzero(np.diff(tuples.starts))
        heads = pa.table(tuples.taken(tuples.starts[here], self._form.group), names=list(self._form.group))
        codes = groups_of(self._keys, pa.concat_tables([told.select(self._form.group), heads]).combine_chunks())
        counts = np.zeros(codes.size, np.int64)
        counts[codes.codes[: told.num_rows] - codes.low] = told.column(COUNTED).to_numpy()
        seen = np.zeros(len(tuples.starts) - 1, np.int64)
        seen[here] = counts[codes.codes[told.num_rows :] - codes.low]
        return seen

    def count_groups(self, tuples: TemporalTuples, numbering: Numbering) -> None:
        """Remember how many tuples each group has had by now."""
        here = np.flatnonzero(np.diff(tuples.starts))
        counted = pa.array((numbering.gone + np.diff(tuples.starts))[here])
        columns = [*tuples.taken(tuples.starts[here], self._form.group), counted]
        self._book.put(0, 1, encode(pa.record_batch(columns, names=[*self._form.group, COUNTED])))

    def _count(self, step: Step) -> None:
        change = self._state.rows_held - self._rows_before
        step.metrics[metrics.STORED if change > 0 else metrics.EVICTED] += abs(change)
        self._rows_before = self._state.rows_held


def rows_kept(store: SegmentStore) -> int:
    """Rows in the store of a bucket's `KeptTuples`."""
    return rows_in_state(StorePart(store, 0, 2), len((PAST, CURRENT)))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
