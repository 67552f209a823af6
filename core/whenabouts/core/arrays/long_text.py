"""Text of more bytes than one array of Arrow's `string` or `binary` holds: their offsets have 32 bits.

Arrow's `take` copies all chunks of a column into one array first, and with pyarrow 16 it does not notice when its
result is too long: it writes offsets that are wrong, or crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.errors import Code, QueryError

MOST_BYTES = (1 << 31) - 1
"""Of the values of one array."""

Taken = tuple[pa.ChunkedArray, NDArray[np.int32] | None]
"""A column, and the rows of it that are taken: None for all, negative for none."""


_Rows = slice | NDArray[np.int32]

_FEW = 16
"""Where a column has so many times the rows taken, only theirs are looked at."""


def fitting(pieces: Sequence[slice], taken: Sequence[Taken]) -> Iterator[slice]:
    """The pieces of the rows that are taken, in halves where a column of a piece would be too long.

    O(rows taken) for each column of text in one chunk of which few rows are taken, otherwise O(its rows + rows taken).

    >>> column = pa.chunked_array([["a" * 10, "b"]])
    >>> list(fitting([slice(0, 4)], [(column, np.array([0, 0, 1, 1], np.int32))]))
    [slice(0, 4, None)]
    """
    most = max((piece.stop - piece.start for piece in pieces), default=0)
    rows = sum(piece.stop - piece.start for piece in pieces)
    long = [(count, at) for column, at in taken if (count := _counter(column, most, rows)) is not None]

    def halved(piece: slice) -> Iterator[slice]:
        if piece.stop - piece.start < 2 or all(count(_rows(at, piece)) <= MOST_BYTES for count, at in long):
            yield piece
            return
        middle = (piece.start + piece.stop) // 2
        yield from halved(slice(piece.start, middle))
        yield from halved(slice(middle, piece.stop))

    for piece in pieces:
        yield from halved(piece)


def take_by_chunk(column: pa.ChunkedArray, at: NDArray[np.int32]) -> pa.Array:
    """The values of a column of several chunks at these indices, which must be valid. O(indices + chunks).

    >>> take_by_chunk(pa.chunked_array([["a", "b"], [], ["c"]]), np.array([2, 0, 2], np.int32)).to_pylist()
    ['c', 'a', 'c']
    """
    starts = np.cumsum([0, *map(len, column.chunks)])
    order = np.argsort(at, kind="stable")
    ascending = at[order]
    ends = np.searchsorted(ascending, starts)
    parts = [
        chunk.take(pa.array(ascending[ends[i] : ends[i + 1]] - starts[i]))
        for i, chunk in enumerate(column.chunks)
        if ends[i] < ends[i + 1]
    ]
    taken = pa.concat_arrays(parts or [pa.nulls(0, column.type)])
    if np.all(order[1:] > order[:-1]):  # they were ascending
        return taken
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return taken.take(pa.array(place))


def too_long(what: str) -> QueryError:
    """The error for rows that have to be in one array and are too long for it."""
    return QueryError(
        Code.TOO_MUCH_OUTPUT,
        f"{what} that one step needs together are more than 2 GiB, which Arrow's string and binary cannot hold",
        "cast such columns to large_string or large_binary (Polars has these), leave them out, or ask for batches=True",
    )


def _counter(column: pa.ChunkedArray, most: int, taken: int) -> Callable[[_Rows], int] | None:
    """Counts the bytes of some rows' values; None if no `most` values can be too long together.

    `taken`: how many rows will be counted.
    """
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return None
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    ends = [np.frombuffer(chunk.buffers()[1], np.int32, len(chunk) + 1, 4 * chunk.offset) for chunk in chunks]
    if most * sum(int(each[-1]) - int(each[0]) for each in ends) <= MOST_BYTES:
        return None
    if len(ends) == 1 and _FEW * taken < len(column):
        return lambda rows: int((ends[0][1:][rows] - ends[0][:-1][rows]).sum(dtype=np.int64))
    lengths = np.concatenate([np.diff(each) for each in ends])
    if most * int(lengths.max()) <= MOST_BYTES:
        return None
    return lambda rows: int(lengths[rows].sum(dtype=np.int64))


def _rows(at: NDArray[np.int32] | None, piece: slice) -> _Rows:
    return piece if at is None else at[piece][at[piece] >= 0]
