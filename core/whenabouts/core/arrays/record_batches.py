"""Arrow batches, tables and chunks: the small conversions that operators share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.long_text import fitting, take_by_chunk, too_long
from whenabouts.core.arrays.threads import cuts, each
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.errors import Code, QueryError

MOST_ROWS = (1 << 31) - 1
"""Of a table that a step works on: it numbers rows with 32 bits."""


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column as one array, without a copy if it has one chunk (`combine_chunks` always copies).

    Raises QueryError WA-2201 for text too long for one array.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        return pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
    except pa.ArrowInvalid as error:
        raise too_long("the values of a column") from error


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
    valid = validity(~missing) if missing.any() else None
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, buffer])


def validity(valid: BoolArray) -> pa.Buffer:
    """The validity of an Arrow array: `pa.array` of booleans takes twenty times as long, or more.

    >>> validity(np.array([True, False, True])).to_pybytes()
    b'\\x05'
    """
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


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
    """Batches of one schema as a table with one chunk per column (none if there are no rows).

    Raises QueryError WA-2201 for more than `MOST_ROWS`.
    """
    table = pa.Table.from_batches(list(batches), schema)
    if table.num_rows > MOST_ROWS:
        raise too_many(table.num_rows, "rows")
    return table.combine_chunks()


def too_many(count: int, what: str) -> QueryError:
    """The error for more rows, or keys, than 32 bits number."""
    return QueryError(
        Code.TOO_MUCH_OUTPUT,
        f"one step needs {count:,} {what} together, and {MOST_ROWS:,} are possible",
        "run the query for parts of the time or of the keys, or on Spark or Flink with more buckets",
    )


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch. Raises QueryError WA-2201 for text too long for one.

    >>> one_batch(pa.table({"a": pa.array([], pa.int64())})).num_rows
    0
    """
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise too_long("the values of a column")
    return batches[0] if batches else no_rows(table.schema)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows. Of unions, too, of which `pa.array` makes no array.

    >>> no_rows(pa.schema({"u": pa.dense_union([pa.field("n", pa.int64())])})).num_rows
    0
    """
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


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
_LARGE = 1 << 17
"""Of so many rows, a few columns do not fit into a cache."""


def pieces(rows: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows, about equally long: a short one would have small pages of memory.

    >>> list(pieces(5, 4))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    step = -(-rows // -(-rows // size)) if rows else 1
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def take_rows(column: pa.ChunkedArray, at: NDArray[np.int32]) -> pa.Array:
    """The column's values at these indices, which must be valid. O(indices).

    Raises QueryError WA-2201 for text too long for one array.
    """
    if len(list(fitting([slice(0, len(at))], [(column, at)]))) > 1:
        raise too_long("the values of a column")
    return take_columns([column], at)[0]


def chunks_of(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """The arrays of a column."""
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def take_values(values: pa.Array | pa.ChunkedArray, at: IntArray | NDArray[np.int32]) -> pa.ChunkedArray:
    """`take_table` of one column."""
    return take_table(pa.table([values], names=[""]), at).column(0)


def take_table(table: pa.Table, at: IntArray | NDArray[np.int32]) -> pa.Table:
    """The table's rows at these indices, nulls where an index is negative; in several chunks where text needs them.

    O(indices) a column.

    >>> take_table(pa.table({"a": [5, 6], "b": ["x", "y"]}), np.array([1, -1])).to_pylist()
    [{'a': 6, 'b': 'y'}, {'a': None, 'b': None}]
    """
    at = np.asarray(at, np.int32)
    columns = table.columns
    taken = [
        pa.RecordBatch.from_arrays(take_columns_or_null(columns, at[piece]), schema=table.schema)
        for piece in fitting([slice(0, len(at))], [(column, at) for column in columns])
    ]
    return pa.Table.from_batches(taken, table.schema)


def take_columns(
    columns: Sequence[pa.ChunkedArray], at: NDArray[np.int32], besides: Sequence[Callable[[], None]] = ()
) -> list[pa.Array]:
    """The values of several columns at these indices, which must be valid; by several threads if a step may use them.

    O(indices) a column. Text must fit into one array (`long_text.fitting`). `besides`: other work for the same threads.

    >>> rows = pa.table({"a": [5, 6], "b": ["x", "y"]})
    >>> [found.to_pylist() for found in take_columns(rows.columns, np.array([1, 1], np.int32))]
    [[6, 6], ['y', 'y']]
    """
    found: list[pa.Array] = [None] * len(columns)
    # Parts of all columns at once, so that no thread waits at the end of each column.
    tasks = [*besides]
    for number, column in enumerate(columns):
        if _is_plain(column):
            found[number], parts = _gathered(column.chunk(0), at)
            tasks += parts
        else:
            tasks.append(partial(_take, column, at, found, number))
    each(lambda task: task(), tasks, len(at))
    return found


def take_columns_or_null(columns: Sequence[pa.ChunkedArray], at: NDArray[np.int32]) -> list[pa.Array]:
    """The values of several columns at these indices, null where an index is negative. O(indices) a column.

    >>> take_columns_or_null([pa.chunked_array([[7, 8]])], np.array([1, -1, 0], np.int32))[0].to_pylist()
    [8, None, 7]
    """
    missing = at < 0
    if not missing.any():
        return take_columns(columns, at)
    valid, indices = validity(~missing), pa.array(at, mask=missing)
    plain = [bool(len(column)) and _is_plain(column) for column in columns]
    of_plain = iter(take_columns(list(compress(columns, plain)), np.maximum(at, 0)))
    found = []
    for column, is_plain in zip(columns, plain, strict=True):
        if is_plain:
            found.append(pa.Array.from_buffers(column.type, len(at), [valid, next(of_plain).buffers()[1]]))
        elif column.num_chunks == 1:
            found.append(pc.take(column.chunk(0), indices, boundscheck=False))
        elif len(column):
            place = pa.array(np.cumsum(~missing) - 1, mask=missing)
            found.append(take_by_chunk(column, at[~missing]).take(place))
        else:
            found.append(pa.nulls(len(at), column.type))
    return found


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether it is 8 bytes a row in one chunk, without nulls: numbers and times, most of a join's output."""
    type_ = column.type
    return bool(
        column.num_chunks == 1 and column.null_count == 0 and pa.types.is_primitive(type_) and type_.bit_width == 64
    )


def _gathered(column: pa.Array, at: NDArray[np.int32]) -> tuple[pa.Array, list[Callable[[], None]]]:
    """`column.take(at)` of a plain column, and the work that fills it: a third of the time that Arrow takes."""
    from whenabouts.core.arrays.gather import gather, gather_output  # numba: imported when first needed

    out = large_array(len(at), np.int64)
    values, fill = _words(column), gather_output if len(at) >= _LARGE else gather
    work: list[Callable[[], None]] = [partial(fill, values, at[part], out[part]) for part in cuts(len(at))]
    return _of_words(column.type, out), work


def _words(column: pa.Array) -> IntArray:
    """The values of a plain column as integers."""
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset) if len(column) else _EMPTY


def _of_words(type_: pa.DataType, words: IntArray) -> pa.Array:
    """A plain column of these values."""
    return pa.Array.from_buffers(type_, len(words), [None, pa.py_buffer(words)])


def _take(column: pa.ChunkedArray, at: NDArray[np.int32], found: list[pa.Array], number: int) -> None:
    one = column.num_chunks == 1
    found[number] = pc.take(column.chunk(0), pa.array(at), boundscheck=False) if one else take_by_chunk(column, at)


@dataclass(frozen=True, slots=True)
class _Group:
    """Plain columns of a table whose values lie side by side in `rows`."""

    names: tuple[str, ...]
    rows: IntArray


SideBySide = Mapping[str, _Group]
"""By column, the group that it belongs to."""

_LEAST_COLUMNS = 3
_BEYOND_CACHES = 1 << 19
"""Of so many rows, three columns do not fit into the caches of most processors."""


def side_by_side(table: pa.Table, names: Iterable[str], at: NDArray[np.int32]) -> SideBySide:
    """Copies of those columns whose rows `at` are gathered faster from memory where a row's values lie side by side.

    Of none unless the rows are many, come in no order, and are each wanted once or more on average. O(rows of the
    table), 32 bytes a row for each four columns.
    """
    schema = table.schema
    sources = dict.fromkeys(source_of(schema, name) for name in names)
    plain = [name for name in sources if _is_plain(table.column(name))]
    if len(plain) < _LEAST_COLUMNS or table.num_rows < _BEYOND_CACHES or len(at) < table.num_rows:
        return {}
    from whenabouts.core.arrays.key_time_order import nearly_in_order  # numba: imported when first needed
    from whenabouts.core.arrays.side_by_side import WIDTH, laid

    if nearly_in_order(at):
        return {}
    number = -(-len(plain) // WIDTH)
    parts = [tuple(plain[place::number]) for place in range(number)]
    try:
        groups = [_Group(part, laid([_words(table.column(name).chunk(0)) for name in part])) for part in parts]
    except MemoryError:  # it goes without
        return {}
    return {name: group for group in groups for name in group.names}


class RowsAt:
    """The columns of a table at some rows, each gathered when it is first asked for, and copies of it with it.

    `together`: columns that are gathered at once.

    >>> schema = pa.schema([pa.field("us", pa.int64()), copy_of(pa.field("t", pa.timestamp("us")), "us")])
    >>> us = pa.array([5, 6])
    >>> rows = RowsAt(pa.table([us, us.view(pa.timestamp("us"))], schema), np.array([1], np.int32))
    >>> rows["us"].to_pylist(), rows["t"].buffers()[1].address == rows["us"].buffers()[1].address
    ([6], True)
    """

    def __init__(self, table: pa.Table, at: NDArray[np.int32], together: SideBySide | None = None) -> None:
        self._table, self._at, self._together = table, at, together or {}
        self._gathered: dict[str, pa.Array] = {}

    def __getitem__(self, name: str) -> pa.Array:
        """A column."""
        return self.columns([name])[0]

    def columns(self, names: Sequence[str]) -> list[pa.Array]:
        """Several columns."""
        schema = self._table.schema
        sources = [source_of(schema, name) for name in names]
        wanted = [source for source in dict.fromkeys(sources) if source not in self._gathered]
        if wanted:
            groups = {id(group): group for source in wanted if (group := self._together.get(source))}.values()
            begun = [self._begun(group) for group in groups]
            alone = [source for source in wanted if source not in self._together]
            tasks = [task for _, work in begun for task in work]
            taken = take_columns([self._table.column(source) for source in alone], self._at, tasks)
            for filled in (zip(alone, taken, strict=True), *(columns.items() for columns, _ in begun)):
                self._gathered.update(filled)
        found = [(self._gathered[source], schema.field(name).type) for name, source in zip(names, sources, strict=True)]
        return [column if column.type == type_ else column.view(type_) for column, type_ in found]

    def _begun(self, group: _Group) -> tuple[dict[str, pa.Array], list[Callable[[], None]]]:
        """The columns of a group, and the work that fills them."""
        from whenabouts.core.arrays.side_by_side import gathering  # numba: imported when first needed

        out = [large_array(len(self._at), np.int64) for _ in group.names]
        types = [self._table.schema.field(name).type for name in group.names]
        found = dict(zip(group.names, map(_of_words, types, out), strict=True))
        return found, gathering(group.rows, self._at, out)


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
