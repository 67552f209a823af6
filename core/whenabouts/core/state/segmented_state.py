"""One bucket's state during one step: rows of every input in segments of event time, and blocks that wait.

`state.segment_layout` describes the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import one_batch, rows_at, table_of, with_null_columns
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.blocks import T_MAX, times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, SegmentStore
from whenabouts.core.state.segment_codec import encode
from whenabouts.core.state.segment_directory import Directory
from whenabouts.core.state.segment_layout import (
    NONE_OPEN,
    SEGMENTS_PER_STEP,
    WAITING,
    Layout,
    Segment,
    SegmentRows,
    every_row,
    segments_for,
    segments_wanted,
    with_room,
)
from whenabouts.core.state.stored_segments import StoredSegments, present


class SegmentedState:
    """Reads the directory when created (one `get`); `save` writes it back (one `put`) if anything changed.

    `slot_us` is only used for a new bucket: an existing one keeps the width it was written with, so that query options
    may change at a restart. With `span_us` small segments grow over later slots, up to that span; without it a segment
    has the slots that it was created with. Raises EngineError WA-3003 if the state has other columns.

    >>> from whenabouts.core.state.memory_store import DictStore
    >>> schema = pa.schema({"_wa_t_min": pa.int64(), "_wa_t_max": pa.int64()})
    >>> store = DictStore(); state = SegmentedState(store, [schema], slot_us=10)
    >>> state.append(0, pa.record_batch({"_wa_t_min": [3, 14], "_wa_t_max": [4, 25]})); state.save()
    >>> state = SegmentedState(store, [schema], slot_us=10)
    >>> [rows.column(1).to_pylist() for rows in state.load(0, 20, 29)], state.evict(0, before_us=10), state.rows_held
    ([[25]], 1, 1)
    """

    def __init__(
        self, store: SegmentStore, layout: Layout | Sequence[pa.Schema], *, slot_us: int, span_us: int = 0
    ) -> None:
        self._store = store
        self._layout = layout if isinstance(layout, Layout) else Layout(layout)
        self._schemas = tuple(self._layout.schemas)
        self._changed = False
        self._directory = directory = Directory.read(store, self._layout) or Directory.empty(self._layout, slot_us)
        self.slot_us, self._span_us = directory.slot_us, span_us
        self._segments, self._waiting, self._floors = directory.segments, directory.waiting, directory.floors
        self._stored = StoredSegments(store, self._layout, directory.marked_later)
        self.kept_before = directory.kept
        self._left_out = 0

    @property
    def rows_held(self) -> int:
        """Rows in segments (without waiting rows)."""
        return sum(segment.rows for segments in self._segments for segment in segments.values())

    @property
    def bytes_held(self) -> int:
        """Bytes of segments (without marks and waiting rows)."""
        return sum(segment.size for segments in self._segments for segment in segments.values())

    def gauges(self, inputs: Sequence[str]) -> dict[str, int]:
        """Rows and bytes held of each of the query's inputs (without waiting rows)."""
        held: dict[str, int] = {}
        for at, input in enumerate(inputs):
            own = [own for own, of in self._layout.held_for.items() if of == at]
            segments = [segment for each in (at, *own) for segment in self._segments[each].values()]
            metrics.held(held, input, sum(s.rows for s in segments), sum(s.size for s in segments))
        return held

    @property
    def rows_waiting(self) -> int:
        """Rows that wait to be correlated."""
        return sum(rows for _, _, rows, _ in self._waiting)

    @property
    def first_waiting_us(self) -> int | None:
        """The least `t_max` of the rows that wait, None if there is none."""
        return min((first for *_, first in self._waiting), default=None)

    @property
    def progress_us(self) -> int:
        """The time before which an operator that works in time order has processed all rows."""
        return self._directory.progress_us

    @progress_us.setter
    def progress_us(self, us: int) -> None:
        self._changed |= us != self._directory.progress_us
        self._directory.progress_us = us

    @property
    def rows_numbered(self) -> int:
        """How many rows have got a number."""
        return self._directory.rows_numbered

    @rows_numbered.setter
    def rows_numbered(self, count: int) -> None:
        self._changed |= count != self._directory.rows_numbered
        self._directory.rows_numbered = count

    @property
    def notes(self) -> list[int]:
        """Numbers that an operator keeps beside its rows; empty in a new bucket, and in one written without any."""
        return self._directory.notes

    @notes.setter
    def notes(self, numbers: list[int]) -> None:
        self._changed |= numbers != self._directory.notes
        self._directory.notes = numbers

    def set_retention(self, ahead_us: Sequence[int]) -> None:
        """Declare that rows of input i are kept while `t_max >= watermark + ahead_us[i]`.

        A changed query may keep fewer rows than before, and more only while no row has been dropped. Raises EngineError
        WA-3006 if it needs rows that were dropped. `kept_before`: what the step before declared, None in a new bucket.
        """
        floors = self._floors[: len(ahead_us)]  # the operator's own inputs come after them
        for floor, had, wanted in zip(floors, self.kept_before or ahead_us, ahead_us, strict=True):
            if floor != NO_WATERMARK and wanted < had:
                raise EngineError(
                    Code.STATE_LACKS_ROWS,
                    "the state was kept for a stricter query: rows that this one could still match were dropped",
                    "start from a new checkpoint; min_confidence= keeps state for later changes",
                )
        self._changed |= self.kept_before is not None and self.kept_before != list(ahead_us)
        self._directory.kept = list(ahead_us)

    def lengths(self, declared: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The least and greatest length that times of each input may have, in a step whose query declares these.

        Rows in state came with lengths that earlier queries declared, and keep them; once they have left, those
        declared now hold. Of rows that an earlier release wrote nothing is known.
        """
        had = self._directory.lengths
        if had is None or not (self._waiting or any(self._segments)):
            lengths = list(declared)
        else:
            lengths = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(had, declared, strict=True)]
        self._changed |= had is not None and had != lengths
        self._directory.lengths = lengths
        return lengths

    def first_end_us(self, input: int) -> int | None:
        """The end (exclusive) of the input's earliest segment, which eviction must reach to free anything."""
        return min((segment.stop * self.slot_us for segment in self._segments[input].values()), default=None)

    def rows_of(self, input: int, before_us: int = END_OF_TIME) -> int:
        """Rows in the input's segments that begin before a time, from the directory alone: more than are needed."""
        return sum(s.rows for s in self._segments[input].values() if s.first * self.slot_us < before_us)

    def first_start_us(self, input: int, from_us: int) -> int | None:
        """The start of the input's first segment that begins at or after a time; None if there is none."""
        starts = [segment.first * self.slot_us for segment in self._segments[input].values()]
        return min((start for start in starts if start >= from_us), default=None)

    def first_from_us(self, input: int, from_us: int) -> int | None:
        """A lower bound of the times of the input's rows from `from_us` on, from the directory alone; None if there are
        none."""
        starts = [s.first * self.slot_us for s in self._segments[input].values() if s.stop * self.slot_us > from_us]
        return max(min(starts), from_us) if starts else None

    def load(self, input: int, first_us: int, last_us: int) -> list[pa.RecordBatch]:
        """Rows of the segments that intersect `[first_us, last_us]` of t_max, in time order, without dropped rows."""
        return [held.rows for held in self.load_marked(input, first_us, last_us)]

    def load_marked(self, input: int, first_us: int, last_us: int) -> list[SegmentRows]:
        """As `load`, with the rows' marks as further columns, and their indices for `mark`.

        A segment that was not marked yet (`Layout.marked_later`) has no further columns.
        """
        loaded = [self._alive(input, segment.first) for segment in self._within(input, first_us, last_us)]
        return [held for held in loaded if held.rows.num_rows]

    def load_chosen(
        self, input: int, first_us: int, last_us: int, chosen: Callable[[pa.RecordBatch], BoolArray]
    ) -> list[pa.RecordBatch]:
        """As `load`, only the rows that `chosen` says. One segment is in memory at a time."""
        loaded = []
        for segment in self._within(input, first_us, last_us):
            rows, floor = self._stored.read(input, segment.first, keep=False), self._floors[input]
            wanted = chosen(rows)
            if floor > segment.first * self.slot_us:
                wanted &= self._axis(input, rows) >= floor
            loaded.append(rows.take(pa.array(np.flatnonzero(wanted))))  # a copy: the segment can go
        return [rows for rows in loaded if rows.num_rows]

    def rows_within(self, input: int, first_us: int, last_us: int) -> int:
        """Rows of the segments that `load` would read, from the directory alone."""
        return sum(segment.rows for segment in self._within(input, first_us, last_us))

    def _within(self, input: int, first_us: int, last_us: int) -> list[Segment]:
        from_us = max(first_us, self._floors[input])
        return [
            segment
            for segment in sorted(self._segments[input].values())
            if segment.stop * self.slot_us > from_us and segment.first * self.slot_us <= last_us
        ]

    def mark(self, held: SegmentRows, marks: pa.RecordBatch) -> None:
        """Replace the marks of rows from `load_marked`. `save` writes them, unless the rows are dropped before."""
        self._stored.mark(held, marks)
        self._changed = True
        self._note_open(held.input, held.first)

    def needed(self, input: int, rows: pa.RecordBatch) -> BoolArray:
        """Which rows, with their marks, are still needed (`Layout.needed`)."""
        needed = self._layout.needed.get(input)
        return np.ones(rows.num_rows, bool) if needed is None else needed(rows)

    def drop_unneeded(self) -> int:
        """Drop rows that are no longer needed because of marks of this step; returns how many rows left the store.

        A segment is rewritten once half of its rows are unneeded, so that no more rows are written than dropped. What
        `append` has left out counts, too.
        """
        dropped, self._left_out = self._left_out, 0
        for input, first in self._stored.unsaved:
            if input not in self._layout.needed:
                continue
            rows = self._stored.read(input, first)
            useful = self._useful(input, rows)
            kept = int(useful.sum())
            if 2 * kept > rows.num_rows:
                continue
            dropped += rows.num_rows - kept
            if kept:
                self._write(input, first, self._segments[input][first].stop, rows.filter(pa.array(useful)))
            else:
                self._remove(input, first)
        return dropped

    def append(self, input: int, block: pa.RecordBatch, *, segments: int = SEGMENTS_PER_STEP) -> None:
        """Append rows (with marks, if the input has them) to the segments that span their slots.

        Rows that no segment spans go to new segments, to about so many, or fewer where these would be small and short.
        Stored rows that are no longer needed are left out of a segment that is rewritten.
        """
        slots = self._axis(input, block) // self.slot_us
        held = sorted(self._segments[input].values())
        if self._span_us:
            span = self._span_us // self.slot_us
            held = with_room(held, span, block.num_rows)
            segments = min(segments, segments_wanted(held, slots, block.nbytes, span))
        for first, stop, at in segments_for(held, slots, segments):
            rows = rows_at(block, at)
            if first in self._segments[input]:
                stop = max(self._segments[input][first].stop, int(slots[at].max()) + 1)
                before = self._stored.read(input, first)
                if input in self._layout.needed:
                    useful = self._useful(input, before)
                    self._left_out += before.num_rows - int(useful.sum())
                    before = before.filter(pa.array(useful))
                rows = one_batch(table_of([before, with_null_columns(rows, before.schema)], before.schema))
            self._write(input, first, stop, rows)

    def take_before(self, input: int, before_us: int) -> list[pa.RecordBatch]:
        """Remove and return all rows of the segments that begin before a time."""
        return self._take(input, lambda segment: segment.first * self.slot_us < before_us)

    def _take(self, input: int, chosen: Callable[[Segment], bool]) -> list[pa.RecordBatch]:
        segments = [segment for segment in sorted(self._segments[input].values()) if chosen(segment)]
        taken = [self._alive(input, segment.first).rows for segment in segments]
        for segment in segments:
            self._remove(input, segment.first)
        return taken

    def take_ended(self, input: int, before_us: int) -> list[pa.RecordBatch]:
        """Remove and return all rows of the segments that end at or before a time, in time order."""
        return self._take(input, lambda segment: segment.stop * self.slot_us <= before_us)

    def segment_ends(self, input: int) -> list[tuple[int, int]]:
        """The end (exclusive) and the bytes of each of the input's segments, latest first."""
        segments = sorted(self._segments[input].values(), reverse=True)
        return [(segment.stop * self.slot_us, segment.size) for segment in segments]

    def replace_from(self, input: int, from_us: int, block: pa.RecordBatch) -> None:
        """Replace all segments that end after a time by one with this block, whose rows are at or after that time."""
        for first in [first for first, held in self._segments[input].items() if held.stop * self.slot_us > from_us]:
            self._remove(input, first)
        if block.num_rows:
            at = self._axis(input, block)
            self._write(input, int(at.min()) // self.slot_us, int(at.max()) // self.slot_us + 1, block)

    def expiring(self, input: int, before_us: int) -> list[pa.RecordBatch]:
        """The open rows that `evict(input, before_us)` will drop, with their marks.

        Only segments with such rows are read.
        """
        found = []
        for segment in sorted(self._segments[input].values()):
            if segment.open_us < before_us:
                rows = self._stored.read(input, segment.first)
                at = self._axis(input, rows)
                leaving = (at >= self._floors[input]) & (at < before_us) & self._open(input, rows)
                found.append(rows.filter(pa.array(leaving)))
        return [rows for rows in found if rows.num_rows]

    def first_open_us(self, input: int) -> int | None:
        """The time of the input's first open row, None if there is none."""
        first = min((segment.open_us for segment in self._segments[input].values()), default=NONE_OPEN)
        return None if first == NONE_OPEN else first

    def evict(self, input: int, before_us: int) -> int:
        """Drop rows with `t_max < before_us`; returns how many rows left the store.

        Whole segments are deleted without being read. Rows of a segment that is needed in part are hidden at once, and
        deleted together with the segment.
        """
        if before_us <= self._floors[input]:
            return 0
        self._floors[input] = before_us
        self._changed = True
        gone = [segment for segment in self._segments[input].values() if segment.stop * self.slot_us <= before_us]
        for segment in gone:
            self._remove(input, segment.first)
        for segment in list(self._segments[input].values()):
            if segment.open_us < before_us:
                self._note_open(input, segment.first)
        return sum(segment.rows for segment in gone)

    def trim(self, input: int) -> int:
        """Rewrite the segments half of whose rows were dropped by `evict`; returns how many rows left the store.

        Only those that this step has read, so that none is read for it. No more rows are written than dropped. Segments
        that end far ahead need it, as whole ones leave by themselves.
        """
        dropped = 0
        for first, segment in list(self._segments[input].items()):
            if segment.first * self.slot_us >= self._floors[input] or not self._stored.was_read(input, first):
                continue
            rows = self._stored.read(input, first)
            alive = self._axis(input, rows) >= self._floors[input]
            kept = int(np.count_nonzero(alive))
            if 2 * kept > segment.rows:
                continue
            dropped += segment.rows - kept
            if kept:
                self._write(input, first, segment.stop, rows.filter(pa.array(alive)))
            else:
                self._remove(input, first)
        return dropped

    def forget_marks(self, input: int) -> None:
        """Drop all marks of an input in `Layout.marked_later`."""
        self._changed |= self._stored.forget_marks(input)

    def wait(self, input: int, block: pa.RecordBatch) -> None:
        """Keep a block until `take_waiting`, in arrival order."""
        number = self._waiting[-1][1] + 1 if self._waiting else 0
        self._store.put(WAITING - input, number, encode(block, self._schemas[input]))
        self._waiting.append([input, number, block.num_rows, int(times(block)[1].min())])
        self._changed = True

    def take_waiting(self) -> list[Arrival]:
        """Remove and return the waiting blocks, in arrival order."""
        taken = []
        for input, number, _, _ in self._waiting:
            data = self._store.get(WAITING - input, number)
            taken.append(Arrival(input, self._stored.decoded(input, present(data, WAITING - input, number))))
            self._store.delete(WAITING - input, number)
            self._changed = True
        self._waiting.clear()
        return taken

    def save(self) -> None:
        """Write changed marks and the directory, if this step changed anything."""
        if not self._changed:
            return
        self._stored.save()
        self._directory.write(self._store, self._layout)
        self._changed = False

    def _write(self, input: int, first: int, stop: int, rows: pa.RecordBatch) -> None:
        size = self._stored.write(input, first, rows)
        self._segments[input][first] = Segment(first, stop, rows.num_rows, size=size)
        self._changed = True
        self._note_open(input, first)

    def _remove(self, input: int, first: int) -> None:
        self._stored.drop(input, first)
        del self._segments[input][first]
        self._changed = True

    def _axis(self, input: int, rows: pa.RecordBatch) -> IntArray:
        return np.asarray(rows.column(self._layout.axes.get(input, T_MAX)).to_numpy())

    def _useful(self, input: int, rows: pa.RecordBatch) -> BoolArray:
        return self.needed(input, rows) & (self._axis(input, rows) >= self._floors[input])

    def _open(self, input: int, rows: pa.RecordBatch) -> BoolArray:
        return self._layout.opens[input](rows)

    def _note_open(self, input: int, first: int) -> None:
        if input not in self._layout.opens:
            return
        segment, floor = self._segments[input][first], self._floors[input]
        rows = self._stored.read(input, first)
        waiting = self._axis(input, rows)
        if self._layout.opens[input] is not every_row:
            waiting = waiting[self._open(input, rows)]
        if segment.first * self.slot_us < floor:
            waiting = waiting[waiting >= floor]
        self._segments[input][first] = segment._replace(open_us=int(waiting.min(initial=NONE_OPEN)))

    def _alive(self, input: int, first: int) -> SegmentRows:
        rows, floor = self._stored.read(input, first), self._floors[input]
        if floor <= first * self.slot_us or (alive := self._axis(input, rows) >= floor).all():
            return SegmentRows(input, first, np.arange(rows.num_rows), rows)
        return SegmentRows(input, first, np.flatnonzero(alive), rows.filter(pa.array(alive)))
