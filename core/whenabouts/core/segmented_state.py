"""One bucket's state during one step: rows of every input in segments of event time, and rows that wait.

Event time is a grid of slots, and a segment is a run of slots, kept under its first one. How many slots it spans
follows the rows that arrive together: a trickle is kept slot by slot, a micro-batch of an hour in a few segments, for
every segment costs its host a round trip. A directory segment lists them, so that a step never has to list the store
and eviction needs no read. Layout, keys of the store being (input, slot):

    (i, first slot)        rows of input i whose t_max lies in the slots of the segment
    (WAITING - i, number)  a block of input i that waits to be correlated
    (DIRECTORY, 0)         JSON: fingerprint, slot width, segments with their ends and rows, waiting blocks, floors
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.events import T_MAX, times
from whenabouts.core.protocol import NO_WATERMARK, Arrival, SegmentStore
from whenabouts.core.segments import decode, encode, fingerprint, unwrap, wrap

IntArray = NDArray[np.int64]

DIRECTORY = -1
WAITING = -2
SEGMENTS_PER_STEP = 4
"""Rows that arrive together go to about so many new segments of an input: what is dropped as one, is kept as one."""


class _Segment(NamedTuple):
    """Slots `[first, stop)` of an input, disjoint from its other segments."""

    first: int
    stop: int
    rows: int


class SegmentedState:
    """Reads the directory when made (one `get`); `save` writes it back (one `put`) if anything changed.

    `slot_us` counts for a new bucket only: an existing one keeps the width that it was written with, so that query
    options may change over a restart. Raises EngineError WA-3003 if the state holds other columns.

    >>> from whenabouts.core.stores import DictStore
    >>> schema = pa.schema({"_wa_t_min": pa.int64(), "_wa_t_max": pa.int64()})
    >>> store = DictStore(); state = SegmentedState(store, [schema], slot_us=10)
    >>> state.append(0, pa.record_batch({"_wa_t_min": [3, 14], "_wa_t_max": [4, 25]})); state.save()
    >>> state = SegmentedState(store, [schema], slot_us=10)
    >>> [rows.column(1).to_pylist() for rows in state.load(0, 20, 29)], state.evict(0, before_us=10), state.rows_held
    ([[25]], 1, 1)
    """

    def __init__(self, store: SegmentStore, schemas: Sequence[pa.Schema], *, slot_us: int) -> None:
        self._store = store
        self._schemas = tuple(schemas)
        self._fingerprint = fingerprint(*(f"{f.name}:{f.type}" for schema in schemas for f in schema))
        self._changed = False
        self._segments: list[dict[int, _Segment]] = [{} for _ in self._schemas]
        self._waiting: list[list[int]] = []
        self._floors = [NO_WATERMARK] * len(self._schemas)
        self.slot_us = slot_us
        self._read_directory()

    @property
    def rows_held(self) -> int:
        """Rows in segments (waiting rows not counted)."""
        return sum(segment.rows for segments in self._segments for segment in segments.values())

    @property
    def rows_waiting(self) -> int:
        """Rows that wait to be correlated."""
        return sum(rows for _, _, rows, _ in self._waiting)

    @property
    def first_waiting_us(self) -> int | None:
        """Least `t_max` of the rows that wait, None if none does."""
        return min((first for *_, first in self._waiting), default=None)

    def first_end_us(self, input: int) -> int | None:
        """End (exclusive) of the input's earliest segment: what eviction must reach to free anything."""
        return min((segment.stop * self.slot_us for segment in self._segments[input].values()), default=None)

    def load(self, input: int, first_us: int, last_us: int) -> list[pa.RecordBatch]:
        """Rows of the segments that meet `[first_us, last_us]` of t_max, by time, without rows already dropped."""
        from_us = max(first_us, self._floors[input])
        loaded = [
            self._alive(input, self._read(input, segment.first))
            for segment in sorted(self._segments[input].values())
            if segment.stop * self.slot_us > from_us and segment.first * self.slot_us <= last_us
        ]
        return [rows for rows in loaded if rows.num_rows]

    def append(self, input: int, block: pa.RecordBatch) -> None:
        """Add rows to the segments that span their slots, behind the rows that are there, and to new ones."""
        slots = times(block)[1] // self.slot_us
        for first, stop, at in self._homes(input, slots):
            rows = block.take(pa.array(at))
            if first in self._segments[input]:
                stop = self._segments[input][first].stop
                both = pa.Table.from_batches([self._read(input, first), rows]).combine_chunks()
                rows = both.to_batches()[0]
            self._write(input, first, stop, rows)

    def rewrite(self, input: int, block: pa.RecordBatch) -> None:
        """Hold exactly these rows of an input."""
        for first in self._segments[input]:
            self._store.delete(input, first)
        self._segments[input] = {}
        self._changed = True
        self.append(input, block)

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
            self._store.delete(input, first)
        return sum(self._segments[input].pop(first).rows for first in gone)

    def wait(self, input: int, block: pa.RecordBatch) -> None:
        """Keep a block, in arrival order, until `take_waiting`."""
        number = self._waiting[-1][1] + 1 if self._waiting else 0
        self._store.put(WAITING - input, number, encode(block))
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
        """Write the directory back if this step changed anything."""
        if not self._changed:
            return
        directory = {
            "fingerprint": self._fingerprint,
            "slot_us": self.slot_us,
            "segments": [sorted(segments.values()) for segments in self._segments],
            "waiting": self._waiting,
            "floors": self._floors,
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
                "the state was written for inputs with other columns or types",
                "restart from a new checkpoint, or bring the columns back",
            )
        self.slot_us = directory["slot_us"]
        self._segments = [{row[0]: _Segment(*row) for row in segments} for segments in directory["segments"]]
        self._waiting = directory["waiting"]
        self._floors = directory["floors"]

    def _homes(self, input: int, slots: IntArray) -> Iterator[tuple[int, int, IntArray]]:
        """Where rows of these slots go: (first slot, stop, row positions), of a segment that is there or of a new one.

        Rows between two segments stay between them, so that segments never overlap.
        """
        held = sorted(self._segments[input].values())
        firsts = np.array([segment.first for segment in held], np.int64)
        stops = np.array([segment.stop for segment in held], np.int64)
        before = np.searchsorted(firsts, slots, side="right")  # how many segments begin at or before the slot
        inside = (before > 0) & (slots < np.append(stops, 0)[before - 1])
        for place in np.unique(before[inside]).tolist():
            yield held[place - 1].first, held[place - 1].stop, np.flatnonzero(inside & (before == place))
        outside = np.flatnonzero(~inside)
        if not len(outside):
            return
        low, high = int(slots[outside].min()), int(slots[outside].max())
        width = -(-(high - low + 1) // SEGMENTS_PER_STEP)
        home = (slots[outside] - low) // width * (len(held) + 1) + before[outside]
        for number in np.unique(home).tolist():
            at = outside[home == number]
            yield int(slots[at].min()), int(slots[at].max()) + 1, at

    def _read(self, input: int, first: int) -> pa.RecordBatch:
        return decode(_present(self._store.get(input, first), input, first), self._schemas[input])

    def _write(self, input: int, first: int, stop: int, rows: pa.RecordBatch) -> None:
        self._store.put(input, first, encode(rows))
        self._segments[input][first] = _Segment(first, stop, rows.num_rows)
        self._changed = True

    def _alive(self, input: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        alive = np.asarray(rows.column(T_MAX)) >= self._floors[input]
        return rows if alive.all() else rows.filter(pa.array(alive))


def _present(data: bytes | None, input: int, slot: int) -> bytes:
    if data is None:
        raise EngineError(
            Code.STATE_FORMAT,
            f"the state lost segment ({input}, {slot})",
            "the checkpoint is damaged: start a new one",
        )
    return data
