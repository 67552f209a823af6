"""Finite inputs in the order of time, of which only the rows around the current time are in memory.

An input comes in pieces: a table is one, a file of a dataset has one for each of its row groups. A piece is read when
the current time reaches its first `t_max`, and dropped when it has passed its last. So memory follows how far the
pieces are out of order, not how many there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, Reader

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

_NOTHING_MORE = np.iinfo(np.int64).max


class Piece(NamedTuple):
    """Rows that are read together; none has a `t_max` before `first_us`."""

    first_us: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


def pieces(reader: Reader, rows: pa.Table | Dataset) -> list[Piece]:
    """The pieces of an input. Of a dataset what has the times, columns or payloads, is read once for this, and nothing
    else; one with a filter is a single piece.

    >>> from whenabouts.core import Point
    >>> from whenabouts.core.runtime.event_reader import EventReader
    >>> table = pa.table({"t": [4, 2]})
    >>> [piece.first_us for piece in pieces(EventReader(0, "left", table.schema, Point("t")), table)]
    [2]
    """
    if isinstance(rows, pa.Table):
        return _with_rows(_least(reader, rows.to_batches()), lambda: iter(rows.to_batches()))
    columns = [*reader.time_columns]
    try:
        fragments = list(rows.get_fragments())
    except ValueError:  # a dataset with a filter does not give its files
        return _with_rows(_least(reader, rows.to_batches(columns=columns)), rows.to_batches)
    found = []
    for fragment in fragments:
        for part in _row_groups(fragment):
            ends = _least(reader, part.to_batches(schema=rows.schema, columns=columns))
            found += _with_rows(ends, _batches_of(part, rows.schema))
    return found


def _with_rows(first_us: int | None, batches: Callable[[], Iterator[pa.RecordBatch]]) -> list[Piece]:
    return [] if first_us is None else [Piece(first_us, batches)]


def _row_groups(fragment: Any) -> list[Any]:
    return fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _batches_of(part: Any, schema: pa.Schema) -> Callable[[], Iterator[pa.RecordBatch]]:
    return lambda: part.to_batches(schema=schema)


def _least(reader: Reader, batches: Any) -> int | None:
    """The least `t_max`, also of rows that are rejected: too early is safe."""
    return min((int(reader.ends(batch)[1].min()) for batch in batches if batch.num_rows), default=None)


@dataclass(slots=True)
class _Open:
    """A piece in memory: its rows in the order of `ends_us`, of which those before `at` are done."""

    input: int
    block: pa.RecordBatch
    ends_us: IntArray
    at: int = 0


class TimeOrder:
    """All rows of all inputs by `t_max`, some at a time.

    `read` turns a raw batch of an input into a block; it is called once for each batch.
    """

    def __init__(
        self, inputs: Sequence[Sequence[Piece]], read: Callable[[int, pa.RecordBatch], pa.RecordBatch]
    ) -> None:
        self._read = read
        self._open: list[_Open] = []
        named = [(piece.first_us, number, piece) for number, of in enumerate(inputs) for piece in of]
        self._waiting = [(first_us, at, number, piece) for at, (first_us, number, piece) in enumerate(named)]
        heapq.heapify(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting or self._open)

    def take(self, rows: int) -> tuple[list[Arrival], int]:
        """The next `rows` rows, or fewer at the end, by input; and a time that none of them, nor any later row, is
        before. O(rows) for each piece in memory."""
        horizon = self._horizon(rows)
        below = [int(np.searchsorted(piece.ends_us[piece.at :], horizon)) for piece in self._open]
        left = rows - sum(below)  # for rows at the horizon itself: there may be more of them than are wanted
        arrivals, first_us = [], _NOTHING_MORE
        for piece, count in zip(self._open, below, strict=True):
            through = int(np.searchsorted(piece.ends_us[piece.at :], horizon, side="right"))
            ties = min(through - count, left)
            left -= ties
            if count + ties:
                first_us = min(first_us, int(piece.ends_us[piece.at]))
                arrivals.append(Arrival(piece.input, piece.block.slice(piece.at, count + ties)))
                piece.at += count + ties
        self._open = [piece for piece in self._open if piece.at < len(piece.ends_us)]
        return sorted(arrivals, key=lambda arrival: arrival.input), first_us if arrivals else NO_WATERMARK

    def _horizon(self, rows: int) -> int:
        """The `t_max` of the last of the next rows, all pieces that reach it being in memory."""
        while True:
            ends_us = [piece.ends_us[piece.at : piece.at + rows] for piece in self._open]
            count = sum(map(len, ends_us))
            horizon = _NOTHING_MORE
            if count >= rows:
                horizon = int(np.partition(np.concatenate(ends_us), rows - 1)[rows - 1])
            if not self._waiting or self._waiting[0][0] > horizon:
                return horizon
            _, _, number, piece = heapq.heappop(self._waiting)
            self._open_piece(number, piece)

    def _open_piece(self, number: int, piece: Piece) -> None:
        blocks = [block for batch in piece.batches() if (block := self._read(number, batch)).num_rows]
        if len(blocks) > 1:  # to one, unless text is too long for one
            blocks = pa.Table.from_batches(blocks).combine_chunks().to_batches()
        for block in blocks:
            ends_us = times(block)[1]
            if np.any(ends_us[1:] < ends_us[:-1]):
                from whenabouts.core.arrays.value_order import sorted_values  # numba: imported when first needed

                found = sorted_values(ends_us)
                block, ends_us = block.take(pa.array(found.position)), found.values
            self._open.append(_Open(number, block, ends_us))
