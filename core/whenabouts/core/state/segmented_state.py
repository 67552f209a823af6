"""One bucket's state during one step: rows of every input in segments of event time, and rows that wait.

Event time is a grid of slots, and a segment is a run of slots, kept under its first one. How many slots it spans
follows the rows that arrive together: a trickle is kept slot by slot, a micro-batch of an hour in a few segments, for
every segment costs its host a round trip. A directory segment lists them, so that a step never has to list the store
and eviction needs no read. Layout, keys of the store being (input, slot):

    (i, first slot)          rows of input i whose t_max lies in the slots of the segment
    (MARKS - i, first slot)  what is known of these rows, row by row: small, and rewritten where it changes
    (WAITING - i, number)    a block of input i that waits to be correlated
    (DIRECTORY, 0)           JSON: fingerprint, slot width, segments (end, rows, first open row), waiting blocks,
                             floors, how long rows are kept, rows numbered
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code, EngineError
from whenabouts.core.runtime.event_reader import T_MAX, times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, SegmentStore
from whenabouts.core.state.segment_codec import decode, encode, fingerprint, unwrap, wrap

DIRECTORY = -1
WAITING = -2
MARKS = -16
LEAST_SLOT_US = 250_000
"""Slots of segments are not narrower than this, however short the condition: a segment should hold many rows."""

SEGMENTS_PER_STEP = 4
"""Rows that arrive together go to about so many new segments of an input: what is dropped as one, is kept as one."""

NONE_OPEN = END_OF_TIME
"""A segment's first open row where it has none."""


@dataclass(frozen=True)
class Layout:
    """What an operator keeps beside the plain rows of its inputs.

    `schemas`: of the rows of every input, the operator's own ones behind those of the query. `marks`: by input, the
    schema of what is known of each row. `axes`: by input, the column by which its rows are ordered, `T_MAX` unless said
    otherwise. `opens`: by input, which rows (with marks) an operator waits for; inputs not named have none. `needed`:
    by input, which rows (with marks) are of any further use; of inputs not named all are. `purpose`: text that state
    is bound to.
    """

    schemas: Sequence[pa.Schema]
    marks: dict[int, pa.Schema] = field(default_factory=dict)
    axes: dict[int, str] = field(default_factory=dict)
    opens: dict[int, Callable[[pa.RecordBatch], NDArray[np.bool_]]] = field(default_factory=dict)
    purpose: str = ""
    needed: dict[int, Callable[[pa.RecordBatch], NDArray[np.bool_]]] = field(default_factory=dict)


class SegmentRows(NamedTuple):
    """Rows of one segment with their marks, and where they stand in it."""

    input: int
    first: int
    at: IntArray
    rows: pa.RecordBatch


class _Segment(NamedTuple):
    """Slots `[first, stop)` of an input, disjoint from its other segments; `open_us`: where its first open row lies.

    `size`: bytes of the rows, 0 where an earlier release wrote them.
    """

    first: int
    stop: int
    rows: int
    open_us: int = NONE_OPEN
    size: int = 0


class SegmentedState:
    """Reads the directory when made (one `get`); `save` writes it back (one `put`) if anything changed.

    `slot_us` counts for a new bucket only: an existing one keeps the width that it was written with, so that query
    options may change over a restart. Raises EngineError WA-3003 if the state holds other columns.

    >>> from whenabouts.core.state.memory_store import DictStore
    >>> schema = pa.schema({"_wa_t_min": pa.int64(), "_wa_t_max": pa.int64()})
    >>> store = DictStore(); state = SegmentedState(store, [schema], slot_us=10)
    >>> state.append(0, pa.record_batch({"_wa_t_min": [3, 14], "_wa_t_max": [4, 25]})); state.save()
    >>> state = SegmentedState(store, [schema], slot_us=10)
    >>> [rows.column(1).to_pylist() for rows in state.load(0, 20, 29)], state.evict(0, before_us=10), state.rows_held
    ([[25]], 1, 1)
    """

    def __init__(self, store: SegmentStore, layout: Layout | Sequence[pa.Schema], *, slot_us: int) -> None:
        self._store = store
        self._layout = layout if isinstance(layout, Layout) else Layout(layout)
        self._schemas = tuple(self._layout.schemas)
        bound = [f"{f.name}:{f.type}" for schema in self._schemas for f in schema]
        self._fingerprint = fingerprint(*bound, *filter(None, [self._layout.purpose]))
        self._changed = False
        self._read_now: dict[tuple[int, int], pa.RecordBatch] = {}  # segments with their marks: a step reads each once
        self._unsaved_marks: set[tuple[int, int]] = set()
        self.rows_numbered = 0
        self._progress_us = NO_WATERMARK
        self._segments: list[dict[int, _Segment]] = [{} for _ in self._schemas]
        self._waiting: list[list[int]] = []
        self._floors = [NO_WATERMARK] * len(self._schemas)
        self._kept: list[int] | None = None
        self.slot_us = slot_us
        self._read_directory()

    @property
    def rows_held(self) -> int:
        """Rows in segments (waiting rows not counted)."""
        return sum(segment.rows for segments in self._segments for segment in segments.values())

    @property
    def bytes_held(self) -> int:
        """Bytes of segments (marks and waiting rows not counted)."""
        return sum(segment.size for segments in self._segments for segment in segments.values())

    def gauges(self, inputs: Sequence[str]) -> dict[str, int]:
        """Rows and bytes held of each input that the query names, waiting rows not counted."""
        held: dict[str, int] = {}
        for input, segments in zip(inputs, self._segments, strict=False):  # behind them are rows of the operator's own
            rows, size = sum(s.rows for s in segments.values()), sum(s.size for s in segments.values())
            metrics.held(held, input, rows, size)
        return held

    @property
    def rows_waiting(self) -> int:
        """Rows that wait to be correlated."""
        return sum(rows for _, _, rows, _ in self._waiting)

    @property
    def first_waiting_us(self) -> int | None:
        """Least `t_max` of the rows that wait, None if none does."""
        return min((first for *_, first in self._waiting), default=None)

    @property
    def progress_us(self) -> int:
        """Up to where (exclusive) an operator that works in the order of time has come."""
        return self._progress_us

    @progress_us.setter
    def progress_us(self, us: int) -> None:
        self._changed |= us != self._progress_us
        self._progress_us = us

    def keep(self, ahead_us: Sequence[int]) -> None:
        """Declare that rows of input i are kept while `t_max >= watermark + ahead_us[i]`.

        A changed query may keep fewer rows than before; it may keep more only while nothing has been dropped. Raises
        EngineError WA-3006 where it asks for rows that are gone.
        """
        floors = self._floors[: len(ahead_us)]  # behind them are rows of the operator's own
        for floor, had, wanted in zip(floors, self._kept or ahead_us, ahead_us, strict=True):
            if floor != NO_WATERMARK and wanted < had:
                raise EngineError(
                    Code.STATE_LACKS_ROWS,
                    "the state was kept for a stricter query: rows that this one could still match are gone",
                    "start from a new checkpoint; min_confidence= keeps state for changes to come",
                )
        self._changed |= self._kept is not None and self._kept != list(ahead_us)
        self._kept = list(ahead_us)

    def first_end_us(self, input: int) -> int | None:
        """End (exclusive) of the input's earliest segment: what eviction must reach to free anything."""
        return min((segment.stop * self.slot_us for segment in self._segments[input].values()), default=None)

    def first_from_us(self, input: int, from_us: int) -> int | None:
        """No row of the input from `from_us` on lies before this (what the directory tells, nothing is read); None
        where no segment reaches so far."""
        starts = [s.first * self.slot_us for s in self._segments[input].values() if s.stop * self.slot_us > from_us]
        return max(min(starts), from_us) if starts else None

    def load(self, input: int, first_us: int, last_us: int) -> list[pa.RecordBatch]:
        """Rows of the segments that meet `[first_us, last_us]` of t_max, by time, without rows already dropped."""
        return [held.rows for held in self.held(input, first_us, last_us)]

    def held(self, input: int, first_us: int, last_us: int) -> list[SegmentRows]:
        """As `load`, with the rows' marks as further columns, and their places for `mark`."""
        from_us = max(first_us, self._floors[input])
        loaded = [
            self._alive(input, segment.first)
            for segment in sorted(self._segments[input].values())
            if segment.stop * self.slot_us > from_us and segment.first * self.slot_us <= last_us
        ]
        return [held for held in loaded if held.rows.num_rows]

    def mark(self, held: SegmentRows, marks: pa.RecordBatch) -> None:
        """Replace the marks of rows that `held` gave; written by `save`, and not at all if they are dropped before."""
        whole = self._read(held.input, held.first)
        places = np.arange(whole.num_rows)
        places[held.at] = whole.num_rows + np.arange(len(held.at))
        width = len(self._schemas[held.input])
        old = _columns(whole, range(width, len(whole.schema)))
        both = pa.Table.from_batches([old, marks]).combine_chunks().to_batches()[0]
        new = both.take(pa.array(places))
        columns = [*whole.columns[:width], *new.columns]
        self._read_now[held.input, held.first] = pa.RecordBatch.from_arrays(columns, schema=whole.schema)
        self._unsaved_marks.add((held.input, held.first))
        self._changed = True
        self._note_open(held.input, held.first)

    def needed(self, input: int, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Which rows, with their marks, are of any further use (`Layout.needed`)."""
        needed = self._layout.needed.get(input)
        return np.ones(rows.num_rows, bool) if needed is None else needed(rows)

    def thin(self) -> int:
        """Drop rows that marks of this step have made useless (`Layout.needed`); returns how many rows left the store.

        A segment is rewritten once they are half of it, so that no more rows are written than are dropped.
        """
        dropped = 0
        for input, first in sorted(self._unsaved_marks):
            if input not in self._layout.needed:
                continue
            rows = self._read(input, first)
            useful = self.needed(input, rows) & (self._axis(input, rows) >= self._floors[input])
            kept = int(useful.sum())
            if 2 * kept > rows.num_rows:
                continue
            dropped += rows.num_rows - kept
            if kept:
                self._write(input, first, self._segments[input][first].stop, rows.filter(pa.array(useful)))
            else:
                self._drop(input, first)
                del self._segments[input][first]
                self._changed = True
        return dropped

    def append(self, input: int, block: pa.RecordBatch) -> None:
        """Add rows (with marks, where the input has them) behind those in the segments that span their slots.

        Rows that no segment spans go to new ones.
        """
        slots = self._axis(input, block) // self.slot_us
        for first, stop, at in self._homes(input, slots):
            rows = _rows_at(block, at)
            if first in self._segments[input]:
                stop = self._segments[input][first].stop
                both = pa.Table.from_batches([self._read(input, first), rows]).combine_chunks()
                rows = both.to_batches()[0]
            self._write(input, first, stop, rows)

    def take(self, input: int, before_us: int) -> list[pa.RecordBatch]:
        """Take all rows out of the segments that begin before a time."""
        segments = [s for s in sorted(self._segments[input].values()) if s.first * self.slot_us < before_us]
        taken = [self._alive(input, segment.first).rows for segment in segments]
        for segment in segments:
            self._drop(input, segment.first)
            del self._segments[input][segment.first]
            self._changed = True
        return taken

    def latest(self, input: int) -> list[tuple[int, int]]:
        """End (exclusive) and bytes of each of the input's segments, the latest first."""
        segments = sorted(self._segments[input].values(), reverse=True)
        return [(segment.stop * self.slot_us, segment.size) for segment in segments]

    def replace_from(self, input: int, before_us: int, block: pa.RecordBatch) -> None:
        """Hold a block as one segment, in place of all that end behind a time; its rows lie at that time or behind."""
        for first in [first for first, held in self._segments[input].items() if held.stop * self.slot_us > before_us]:
            self._drop(input, first)
            del self._segments[input][first]
            self._changed = True
        if block.num_rows:
            slots = self._axis(input, block) // self.slot_us
            self._write(input, int(slots.min()), int(slots.max()) + 1, block)

    def crossing(self, input: int, before_us: int) -> list[pa.RecordBatch]:
        """Open rows that `evict(input, before_us)` is about to drop, with their marks.

        Only segments that have such rows are read.
        """
        found = []
        for segment in sorted(self._segments[input].values()):
            if segment.open_us < before_us:
                rows = self._read(input, segment.first)
                at = self._axis(input, rows)
                leaving = (at >= self._floors[input]) & (at < before_us) & self._open(input, rows)
                found.append(rows.filter(pa.array(leaving)))
        return [rows for rows in found if rows.num_rows]

    def first_open_us(self, input: int) -> int | None:
        """Where the input's first open row lies."""
        first = min((segment.open_us for segment in self._segments[input].values()), default=NONE_OPEN)
        return None if first == NONE_OPEN else first

    def evict(self, input: int, before_us: int) -> int:
        """Drop rows with `t_max < before_us`; returns how many rows left the store.

        Whole segments are deleted unread. The rest of a segment is dropped logically at once (`load` hides it) and
        physically with its segment.
        """
        if before_us <= self._floors[input]:
            return 0
        self._floors[input] = before_us
        self._changed = True
        gone = [first for first, segment in self._segments[input].items() if segment.stop * self.slot_us <= before_us]
        for first in gone:
            self._drop(input, first)
        dropped = sum(self._segments[input].pop(first).rows for first in gone)
        for segment in list(self._segments[input].values()):
            if segment.open_us < before_us:
                self._note_open(input, segment.first)
        return dropped

    def wait(self, input: int, block: pa.RecordBatch) -> None:
        """Keep a block, in arrival order, until `take_waiting`."""
        number = self._waiting[-1][1] + 1 if self._waiting else 0
        self._store.put(WAITING - input, number, encode(block, self._schemas[input]))
        self._waiting.append([input, number, block.num_rows, int(times(block)[1].min())])
        self._changed = True

    def take_waiting(self) -> list[Arrival]:
        """The waiting blocks in arrival order; none waits afterwards."""
        taken = []
        for input, number, _, _ in self._waiting:
            data = self._store.get(WAITING - input, number)
            taken.append(Arrival(input, decode(_present(data, WAITING - input, number), self._schemas[input])))
            self._store.delete(WAITING - input, number)
            self._changed = True
        self._waiting = []
        return taken

    def save(self) -> None:
        """Write changed marks and the directory back if this step changed anything."""
        if not self._changed:
            return
        for input, first in sorted(self._unsaved_marks):
            self._put_marks(input, first)
        directory = {
            "fingerprint": self._fingerprint,
            "slot_us": self.slot_us,
            "segments": [sorted(segments.values()) for segments in self._segments],
            "waiting": self._waiting,
            "floors": self._floors,
            "kept": self._kept,
            "rows_numbered": self.rows_numbered,
            "progress_us": self._progress_us,
        }
        self._store.put(DIRECTORY, 0, wrap(json.dumps(directory).encode()))
        self._changed = False

    def _read_directory(self) -> None:
        data = self._store.get(DIRECTORY, 0)
        if data is None:
            return
        directory: dict[str, Any] = json.loads(bytes(unwrap(data)))
        if directory["fingerprint"] != self._fingerprint:
            raise EngineError(
                Code.STATE_FORMAT,
                "the state was written for other columns, types, names of templates, or another mode of the query",
                "restart from a new checkpoint, or bring back the columns, the templates' names and the mode",
            )
        self.slot_us = directory["slot_us"]
        self._segments = [{row[0]: _Segment(*row) for row in segments} for segments in directory["segments"]]
        self._waiting = directory["waiting"]
        self._floors = directory["floors"]
        self._kept = directory.get("kept")
        self.rows_numbered = directory.get("rows_numbered", 0)
        self._progress_us = directory.get("progress_us", NO_WATERMARK)

    def _homes(self, input: int, slots: IntArray) -> Iterator[tuple[int, int, IntArray]]:
        """Where rows of these slots go: (first slot, stop, row positions), of a segment that is there or of a new one.

        Rows between two segments stay between them, so that segments never overlap.
        """
        held = sorted(self._segments[input].values())
        if len(slots) and (not held or held[-1].stop <= slots[0]) and bool((slots[1:] >= slots[:-1]).all()):
            yield from _in_order(slots)
            return
        firsts = np.array([segment.first for segment in held], np.int64)
        stops = np.array([segment.stop for segment in held], np.int64)
        before = np.searchsorted(firsts, slots, side="right")  # how many segments begin at or before the slot
        inside = (before > 0) & (slots < np.append(stops, 0)[before - 1])
        for place in _distinct(before[inside]):
            yield held[place - 1].first, held[place - 1].stop, np.flatnonzero(inside & (before == place))
        outside = np.flatnonzero(~inside)
        if not len(outside):
            return
        low, high = int(slots[outside].min()), int(slots[outside].max())
        width = _width(low, high)
        home = (slots[outside] - low) // width * (len(held) + 1) + before[outside]
        for number in _distinct(home):
            at = outside[home == number]
            yield int(slots[at].min()), int(slots[at].max()) + 1, at

    def _read(self, input: int, first: int) -> pa.RecordBatch:
        if (input, first) not in self._read_now:
            rows = decode(_present(self._store.get(input, first), input, first), self._schemas[input])
            marks = self._layout.marks.get(input)
            if marks is not None:
                data = _present(self._store.get(MARKS - input, first), MARKS - input, first)
                rows = beside(rows, decode(data, marks))
            self._read_now[input, first] = rows
        return self._read_now[input, first]

    def _write(self, input: int, first: int, stop: int, rows: pa.RecordBatch) -> None:
        schema = self._schemas[input]
        data = encode(_columns(rows, range(len(schema))), schema)
        self._store.put(input, first, data)
        self._read_now[input, first] = rows
        if input in self._layout.marks:
            self._put_marks(input, first)
        self._unsaved_marks.discard((input, first))
        self._segments[input][first] = _Segment(first, stop, rows.num_rows, size=len(data))
        self._changed = True
        self._note_open(input, first)

    def _put_marks(self, input: int, first: int) -> None:
        rows = self._read_now[input, first]
        marks = _columns(rows, range(len(self._schemas[input]), len(rows.schema)))
        self._store.put(MARKS - input, first, encode(marks))

    def _drop(self, input: int, first: int) -> None:
        self._store.delete(input, first)
        if input in self._layout.marks:
            self._store.delete(MARKS - input, first)
        self._read_now.pop((input, first), None)
        self._unsaved_marks.discard((input, first))

    def _axis(self, input: int, rows: pa.RecordBatch) -> IntArray:
        return np.asarray(rows.column(self._layout.axes.get(input, T_MAX)).to_numpy())

    def _open(self, input: int, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        return self._layout.opens[input](rows)

    def _note_open(self, input: int, first: int) -> None:
        if input not in self._layout.opens:
            return
        rows = self._read(input, first)
        at = self._axis(input, rows)
        waiting = at[(at >= self._floors[input]) & self._open(input, rows)]
        segment = self._segments[input][first]
        self._segments[input][first] = segment._replace(open_us=int(waiting.min(initial=NONE_OPEN)))

    def _alive(self, input: int, first: int) -> SegmentRows:
        rows = self._read(input, first)
        alive = self._axis(input, rows) >= self._floors[input]
        if alive.all():
            return SegmentRows(input, first, np.arange(rows.num_rows), rows)
        return SegmentRows(input, first, np.flatnonzero(alive), rows.filter(pa.array(alive)))


def _in_order(slots: IntArray) -> Iterator[tuple[int, int, IntArray]]:
    """New segments of rows in order of their slots, behind all segments that are there."""
    low, high = int(slots[0]), int(slots[-1])
    edges = np.searchsorted(slots, low + _width(low, high) * np.arange(SEGMENTS_PER_STEP + 1)).tolist()
    for begin, end in pairwise(edges):
        if begin < end:
            yield int(slots[begin]), int(slots[end - 1]) + 1, np.arange(begin, end)


def _width(low: int, high: int) -> int:
    """Slots of each of the new segments that span `low` to `high`."""
    return -(-(high - low + 1) // SEGMENTS_PER_STEP)


def _rows_at(block: pa.RecordBatch, at: IntArray) -> pa.RecordBatch:
    """The rows at places that rise, without a copy where they lie side by side."""
    if int(at[-1]) - int(at[0]) + 1 == len(at):
        return block.slice(int(at[0]), len(at))
    return block.take(pa.array(at))


def _distinct(numbers: IntArray) -> list[int]:
    """Which small numbers there are, in order. O(numbers)."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


def rows_in_state(store: SegmentStore, inputs: int) -> int:
    """Rows of an operator's first `inputs` inputs that a bucket holds, those included that wait. One `get`."""
    data = store.get(DIRECTORY, 0)
    if data is None:
        return 0
    directory: dict[str, Any] = json.loads(bytes(unwrap(data)))
    held = sum(_Segment(*row).rows for segments in directory["segments"][:inputs] for row in segments)
    return held + sum(int(rows) for _, _, rows, _ in directory["waiting"])


def beside(rows: pa.RecordBatch, more: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of both, row by row.

    >>> beside(pa.record_batch({"a": [1]}), pa.record_batch({"b": [2]})).to_pylist()
    [{'a': 1, 'b': 2}]
    """
    schema = pa.schema([*rows.schema, *more.schema])
    return pa.RecordBatch.from_arrays([*rows.columns, *more.columns], schema=schema)


def _columns(rows: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    schema = pa.schema([rows.schema.field(place) for place in places])
    return pa.RecordBatch.from_arrays([rows.column(place) for place in places], schema=schema)


def _present(data: bytes | None, input: int, slot: int) -> bytes:
    if data is None:
        raise EngineError(
            Code.STATE_FORMAT,
            f"the state lost segment ({input}, {slot})",
            "the checkpoint is damaged: start a new one",
        )
    return data
