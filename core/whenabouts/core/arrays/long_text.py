"""Text of more bytes than one array of Arrow's `string` or `binary` holds: their offsets have 32 bits.

Those of lists have, too. Arrow's `take` copies all chunks of a column into one array first, and with pyarrow 16 it does
not notice when its result is too long: it writes offsets that are wrong, or crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code, QueryError

MOST = (1 << 31) - 1
"""Bytes, or values of lists, in one array."""

Taken = tuple[pa.ChunkedArray, NDArray[np.int32] | None]
"""A column, and the rows of it that are taken: None for all, negative for none."""


_Rows = slice | NDArray[np.int32]

_Ends = Callable[[Any], NDArray[np.integer[Any]]]
"""Where the bytes, or the values, of rows begin; row n begins where row n - 1 ends. It is called with row numbers."""

_FEW = 4
"""Where a column has so many times the rows taken, only theirs are looked at."""


def fitting(pieces: Sequence[slice], taken: Sequence[Taken], lists: IntArray | None = None) -> Iterator[slice]:
    """The pieces of the rows that are taken, in halves where a column of a piece would be too long.

    `lists`: pieces are of lists, of which number i has the rows taken from `lists[i]` to `lists[i + 1]`, each once.

    O(rows taken) for each column with text in one chunk of which few rows are taken, otherwise O(its rows + rows
    taken).

    >>> column = pa.chunked_array([["a" * 10, "b"]])
    >>> list(fitting([slice(0, 4)], [(column, np.array([0, 0, 1, 1], np.int32))]))
    [slice(0, 4, None)]
    """

    def rows_of(piece: slice) -> slice:
        return piece if lists is None else slice(int(lists[piece.start]), int(lists[piece.stop]))

    counts = [rows.stop - rows.start for rows in map(rows_of, pieces)]
    most, every = max(counts, default=0), sum(counts)
    long = [(count, at) for column, at in taken for count in _counters(column, most, every)]

    def fits(rows: slice) -> bool:
        few = lists is None or rows.stop - rows.start <= MOST
        return few and all(count(_rows(at, rows)) <= MOST for count, at in long)

    def halved(piece: slice) -> Iterator[slice]:
        if piece.stop - piece.start < 2 or fits(rows_of(piece)):
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


def _counters(column: pa.ChunkedArray, most: int, taken: int) -> Iterator[Callable[[_Rows], int]]:
    """Count the bytes of some rows' values; and so for each array inside, of lists their values. None for those that
    no `most` rows can make too long.

    `taken`: how many rows will be counted.
    """
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    for parts in zip(*map(_ends_in, chunks), strict=True):
        ends = list(zip(parts, map(len, chunks), strict=True))
        if most * sum(int(each(rows)) - int(each(0)) for each, rows in ends) <= MOST:
            continue
        if len(parts) == 1 and _FEW * taken < len(column):
            yield partial(_counted, parts[0])
            continue
        lengths = np.concatenate([np.diff(each(slice(None))) for each in parts])
        if most * int(lengths.max()) > MOST:
            yield partial(_summed, lengths)


def _counted(ends: _Ends, rows: _Rows) -> int:
    if isinstance(rows, slice):
        return int(ends(rows.stop)) - int(ends(rows.start))
    return int((ends(rows + 1) - ends(rows)).sum(dtype=np.int64))


def _summed(lengths: NDArray[np.integer[Any]], rows: _Rows) -> int:
    return int(lengths[rows].sum(dtype=np.int64))


def _ends_in(values: pa.Array) -> Iterator[_Ends]:
    """Those of each array inside that has offsets of 32 bits."""
    type_ = values.type
    if pa.types.is_struct(type_):
        for number in range(type_.num_fields):
            yield from _ends_in(values.field(number))
        return
    if pa.types.is_fixed_size_list(type_):
        size = type_.list_size
        ends = size * np.arange(values.offset, values.offset + len(values) + 1)
    elif pa.types.is_large_list(type_):
        ends = _offsets(values, np.int64)
    elif pa.types.is_list(type_) or pa.types.is_map(type_) or pa.types.is_string(type_) or pa.types.is_binary(type_):
        ends = _offsets(values, np.int32)
        yield ends.__getitem__
    else:
        return
    if pa.types.is_nested(type_):
        for inner in _ends_in(values.values):
            yield partial(_of_lists, ends, inner)


def _of_lists(ends: NDArray[np.integer[Any]], inner: _Ends, rows: Any) -> NDArray[np.integer[Any]]:
    return inner(ends[rows])


def _offsets(values: pa.Array, type_: type[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    buffer = values.buffers()[1]
    width = np.dtype(type_).itemsize
    if buffer is None or not buffer.size:
        return np.zeros(len(values) + 1, type_)
    return np.frombuffer(buffer, type_, len(values) + 1, width * values.offset)


def _rows(at: NDArray[np.int32] | None, piece: slice) -> _Rows:
    return piece if at is None else at[piece][at[piece] >= 0]
