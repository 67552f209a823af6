"""Arrow batches, tables and chunks: the small conversions that operators share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.threads import cuts, each
from whenabouts.core.arrays.typing import BoolArray, IntArray


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column as one array, without a copy if it has one chunk (`combine_chunks` always copies)."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def doubles(column: pa.Array) -> NDArray[np.float64]:
    """The values of a column of floats, 0.0 for a null; no copy of doubles without nulls.

    >>> doubles(pa.array([0.5, None], pa.float32()))
    array([0.5, 0. ])
    """
    column = column if pa.types.is_float64(column.type) else column.cast(pa.float64())
    return np.asarray(column.fill_null(0.0) if column.null_count else column)


def with_nulls(values: IntArray | NDArray[np.float64], missing: BoolArray) -> pa.Array:
    """Integers or doubles with nulls where a value is missing, without a copy: `pa.array` takes five times as long.

    >>> with_nulls(np.array([1.5, 2.5]), np.array([False, True])).to_pylist()
    [1.5, None]
    """
    valid = pa.array(~missing).buffers()[1] if missing.any() else None
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, buffer])


def separate_bytes(column: pa.Array) -> list[bytes | None]:
    """The values of an array of `pa.binary()`: `to_pylist` takes four times as long.

    >>> separate_bytes(pa.array([b"ab", None, b"", b"c"]).slice(1))
    [None, b'', b'c']
    """
    _, ends, data = column.buffers()
    if not len(column) or data is None:
        values: list[bytes | None] = [b""] * len(column)
    else:
        at = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
        first = int(at[0])
        joined = data.slice(first, int(at[-1]) - first).to_pybytes()
        values = [joined[begin:end] for begin, end in pairwise((at - first).tolist())]
    for place in np.flatnonzero(column.is_null()) if column.null_count else ():
        values[place] = None
    return values


def table_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Batches of one schema as a table with one chunk per column (none if there are no rows)."""
    return pa.Table.from_batches(list(batches), schema).combine_chunks()


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch.

    >>> one_batch(pa.table({"a": pa.array([], pa.int64())})).num_rows
    0
    """
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


def with_columns_of(rows: pa.RecordBatch, more: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the columns of other, aligned rows appended.

    >>> with_columns_of(pa.record_batch({"a": [1]}), pa.record_batch({"b": [2]})).to_pylist()
    [{'a': 1, 'b': 2}]
    """
    schema = pa.schema([*rows.schema, *more.schema])
    return pa.RecordBatch.from_arrays([*rows.columns, *more.columns], schema=schema)


def with_null_columns(rows: pa.RecordBatch, schema: pa.Schema, count: int | None = None) -> pa.RecordBatch:
    """The rows in a schema that begins with theirs, further columns null. `count`: how many, if there is no column.

    >>> with_null_columns(pa.record_batch({"a": [1]}), pa.schema({"a": pa.int64(), "b": pa.string()})).to_pylist()
    [{'a': 1, 'b': None}]
    """
    if len(rows.schema) == len(schema):
        return rows
    count = rows.num_rows if count is None else count
    more = [pa.nulls(count, schema.field(i).type) for i in range(len(rows.schema), len(schema))]
    return pa.RecordBatch.from_arrays([*rows.columns, *more], schema=schema)


def select_columns(rows: pa.RecordBatch, chosen: Sequence[int]) -> pa.RecordBatch:
    """The columns at these indices, with their fields."""
    schema = pa.schema([rows.schema.field(i) for i in chosen])
    return pa.RecordBatch.from_arrays([rows.column(i) for i in chosen], schema=schema)


def rows_at(block: pa.RecordBatch, at: IntArray) -> pa.RecordBatch:
    """The rows at ascending indices, without a copy if these are contiguous."""
    if int(at[-1]) - int(at[0]) + 1 == len(at):
        return block.slice(int(at[0]), len(at))
    return block.take(pa.array(at))


_EMPTY = np.empty(0, np.int64)


def pieces(rows: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows, about equally long: a short one would have small pages of memory.

    >>> list(pieces(5, 4))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    step = -(-rows // -(-rows // size)) if rows else 1
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def take_rows(column: pa.ChunkedArray, at: NDArray[np.int32]) -> pa.Array:
    """The column's values at these indices, which must be valid. O(indices)."""
    if column.num_chunks == 1 and column.null_count == 0 and _is_8_bytes(column.type):
        return _gather(column.chunk(0), at)
    taken = pc.take(column.chunk(0) if column.num_chunks == 1 else column, pa.array(at), boundscheck=False)
    if not isinstance(taken, pa.ChunkedArray):
        return taken
    return one_chunk(taken)


def take_rows_or_null(column: pa.ChunkedArray, at: NDArray[np.int32]) -> pa.Array:
    """The column's values at these indices, null where an index is negative. O(indices).

    >>> take_rows_or_null(pa.chunked_array([[7, 8]]), np.array([1, -1, 0], np.int32)).to_pylist()
    [8, None, 7]
    """
    missing = at < 0
    if not missing.any():
        return take_rows(column, at)
    if not len(column):
        return pa.nulls(len(at), column.type)
    if column.num_chunks == 1 and column.null_count == 0 and _is_8_bytes(column.type):
        taken = _gather(column.chunk(0), np.maximum(at, 0))
        valid = pa.array(~missing)
        return pa.Array.from_buffers(column.type, len(at), [valid.buffers()[1], taken.buffers()[1]])
    return pc.take(one_chunk(column), pa.array(at, mask=missing), boundscheck=False)


def _is_8_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_)) and type_.bit_width == 64


def _gather(column: pa.Array, at: NDArray[np.int32]) -> pa.Array:
    """`column.take(at)` in a third of the time, for plain numbers and times: most of a join's output."""
    from whenabouts.core.arrays.gather import gather  # numba: imported when first needed

    out = large_array(len(at), np.int64)
    values = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset) if len(column) else _EMPTY
    parts = cuts(len(at))
    if len(parts) == 1:
        gather(values, at, out)
    else:
        each(lambda part: gather(values, at[part], out[part]), parts)
    return pa.Array.from_buffers(column.type, len(at), [None, pa.py_buffer(out)])


class RowsAt:
    """The columns of a table at some rows, each gathered when it is first asked for, and copies of it with it.

    >>> schema = pa.schema([pa.field("us", pa.int64()), copy_of(pa.field("t", pa.timestamp("us")), "us")])
    >>> us = pa.array([5, 6])
    >>> rows = RowsAt(pa.table([us, us.view(pa.timestamp("us"))], schema), np.array([1], np.int32))
    >>> rows["us"].to_pylist(), rows["t"].buffers()[1].address == rows["us"].buffers()[1].address
    ([6], True)
    """

    def __init__(self, table: pa.Table, at: NDArray[np.int32]) -> None:
        self._table, self._at = table, at
        self._gathered: dict[str, pa.Array] = {}

    def __getitem__(self, name: str) -> pa.Array:
        """A column."""
        source = source_of(self._table.schema, name)
        if source not in self._gathered:
            self._gathered[source] = take_rows(self._table.column(source), self._at)
        found, type_ = self._gathered[source], self._table.schema.field(name).type
        return found if found.type == type_ else found.view(type_)


def has_copies(schema: pa.Schema, names: Sequence[str]) -> bool:
    """Whether each of these columns has a copy in the schema, besides those among them."""
    others = [name for name in schema.names if name not in names]
    copied = {source_of(schema, name) for name in others}
    return all(source_of(schema, name) in copied for name in names)


_COPY_OF = b"whenabouts.copy_of"


def copy_of(field: pa.Field, other: str) -> pa.Field:
    """The field, marked as having the same 8 bytes in every row as the field `other` of its schema, and no nulls."""
    return field.with_metadata({_COPY_OF: other.encode()})


def plain_field(field: pa.Field) -> pa.Field:
    """A field of a user's schema, which marks no copies whatever its metadata says."""
    metadata = field.metadata or {}
    return field.with_metadata({key: metadata[key] for key in metadata if key != _COPY_OF} or None)


def source_of(schema: pa.Schema, name: str) -> str:
    """The column that a column of blocks is a copy of; itself if it is none.

    >>> schema = pa.schema([pa.field("us", pa.int64()), copy_of(pa.field("t", pa.timestamp("us")), "us")])
    >>> source_of(schema, "t"), source_of(schema, "us")
    ('us', 'us')
    """
    other = (schema.field(name).metadata or {}).get(_COPY_OF)
    return name if other is None or other.decode() not in schema.names else str(other.decode())
