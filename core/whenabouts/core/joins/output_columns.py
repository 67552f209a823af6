"""The output columns of joined pairs: names, types, and the rows themselves, taken once at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.long_text import Taken, fitting
from whenabouts.core.arrays.record_batches import (
    RowsAt,
    one_chunk,
    pieces,
    side_by_side,
    take_columns,
    take_columns_or_null,
)
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US

_ROOM = 512
"""Rows that are left out, so that a full batch's columns can begin at different places of their pages: columns that are
written at once would else drive each other out of the caches (`large_arrays`)."""

ROWS_PER_BATCH = (1 << 20) - _ROOM
"""Output rows per record batch: bounds the memory of one batch, and is enough for the system's huge pages."""

ROWS_PER_BATCH_OF_TEXT = (1 << 18) - _ROOM
"""The same if a column has variable width: few pieces have to be cut because of Arrow's 2 GiB per column."""

PROBABILITY = "probability"
EVENT_TIME = "event_time"


def event_times(us: NDArray[np.int64]) -> NDArray[np.datetime64]:
    """The values of `EVENT_TIME`, within the years 1 to 9999 as all times are.

    The instant at which a row is final may lie beyond them, and Python and Spark cannot read what does.
    """
    return np.clip(us, FIRST_US, LAST_US).view("datetime64[us]")


class Column(Protocol):
    """A computed column: the rows of a slice, as an array of numpy or Arrow."""

    def __getitem__(self, piece: slice, /) -> Any:
        """The rows of a slice."""


OfRows = Callable[..., Any]
"""A computed column as a function of a batch's rows of each input, as `RowsAt`."""

Extra = Sequence[Column | OfRows | None]
"""Computed columns in schema order; None is a column of nulls."""


class PairColumns:
    """Left columns, right columns without the keys, then the extra columns; equal names get the suffixes.

    `key_types`: types of the key columns, if they differ from those of the left input. Raises QueryError WA-2009 if
    two columns would still have the same name.

    >>> schemas = pa.schema({"k": pa.int64(), "v": pa.int64()}), pa.schema({"k": pa.int64(), "v": pa.string()})
    >>> extra = [pa.field("probability", pa.float64())]
    >>> PairColumns(*schemas, keys=("k",), suffixes=("_l", "_r"), extra=extra).schema.names
    ['k', 'v_l', 'v_r', 'probability']
    """

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        *,
        keys: Sequence[str],
        suffixes: tuple[str, str],
        extra: Sequence[pa.Field],
        key_types: Sequence[pa.DataType] | None = None,
    ) -> None:
        self._keys = tuple(keys)
        own = output_names(left.names, right.names, keys, suffixes)
        self._left, self._right = map(list, own)
        names = [name for side in own for name in side.values()]
        names += [field.name for field in extra]
        check_names(names, "rename one, or give other suffixes", computed=[field.name for field in extra])
        of_keys = dict(zip(keys, key_types, strict=True)) if key_types is not None else {}
        given = [left.field(name).with_type(of_keys.get(name, left.field(name).type)) for name in self._left]
        given += [right.field(name) for name in self._right]
        fields = [field.with_name(name).with_nullable(True) for name, field in zip(names, given, strict=False)]
        self.schema = pa.schema([*fields, *extra])
        self._rows_per_batch = rows_per_batch(self.schema)

    def batches(
        self,
        left: pa.Table,
        right: pa.Table,
        pairs: tuple[NDArray[np.int32], NDArray[np.int32]],
        extra: Extra,
    ) -> Iterator[pa.RecordBatch]:
        """The pairs' rows. O(pairs), independent of the size of the inputs if each is in one chunk."""
        left_rows, right_rows = pairs
        taken = _taken(left, self._left, left_rows) + _taken(right, self._right, right_rows)
        together = side_by_side(left, self._left, left_rows), side_by_side(right, self._right, right_rows)
        for piece in self._pieces(len(left_rows), taken):
            lefts, rights = RowsAt(left, left_rows[piece], together[0]), RowsAt(right, right_rows[piece], together[1])
            columns = lefts.columns(self._left) + rights.columns(self._right)
            yield batch_of(self.schema, columns, extra, piece, (lefts, rights))

    def with_partner(
        self, left: pa.Table, right: pa.Table, at: NDArray[np.int32] | None, partner: NDArray[np.int32], extra: Extra
    ) -> Iterator[pa.RecordBatch]:
        """The left rows `at` (None: all, without a copy) with the right rows `partner`, negative for none.

        Each table must be in one chunk.
        """
        taken = _taken(left, self._left, at) + _taken(right, self._right, partner)
        for piece in self._pieces(len(partner), taken):
            columns = _at(left, self._left, at, piece)
            columns += take_columns_or_null([right.column(name) for name in self._right], partner[piece])
            yield batch_of(self.schema, columns, extra, piece)

    def unmatched(self, input: int, rows: pa.Table, at: NDArray[np.int32], extra: Extra) -> Iterator[pa.RecordBatch]:
        """Rows of one input (0 left, 1 right) without a partner: keys are filled, the other input's are null."""
        own = [name if name in self._keys or not input else None for name in self._left]
        own += [name if input else None for name in self._right]
        for piece in self._pieces(len(at), _taken(rows, [name for name in own if name is not None], at)):
            taken = iter(_at(rows, [name for name in own if name is not None], at, piece))
            columns = [None if name is None else next(taken) for name in own]
            yield batch_of(self.schema, columns, extra, piece)

    def _pieces(self, rows: int, taken: Sequence[Taken]) -> Iterator[slice]:
        return fitting([*pieces(rows, self._rows_per_batch)], taken)


def output_names(
    left: Sequence[str], right: Sequence[str], keys: Sequence[str], suffixes: tuple[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """By input, each column's name in the output; keys are the left input's.

    >>> output_names(["k", "v"], ["k", "v", "w"], ["k"], ("_l", "_r"))
    ({'k': 'k', 'v': 'v_l'}, {'v': 'v_r', 'w': 'w'})
    """
    others = [name for name in right if name not in keys]
    clash = (set(left) & set(others)) - set(keys)
    of_left, of_right = (
        {name: name + suffix if name in clash else name for name in names}
        for names, suffix in zip((left, others), suffixes, strict=True)
    )
    return of_left, of_right


class OwnColumns:
    """The columns of one input, then the extra columns: the output of semi and anti modes.

    Raises QueryError WA-2009 if an extra column's name is taken.

    >>> OwnColumns(pa.schema({"k": pa.int64()}), [pa.field("event_time", pa.int64())]).schema.names
    ['k', 'event_time']
    """

    def __init__(self, own: pa.Schema, extra: Sequence[pa.Field]) -> None:
        self._own = own.names
        self.schema = pa.schema([*own, *extra])
        check_names(self.schema.names, "rename one")
        self._rows_per_batch = rows_per_batch(self.schema)

    def rows(self, rows: pa.Table, at: NDArray[np.int32] | None, extra: Extra) -> Iterator[pa.RecordBatch]:
        """The rows at these positions (None: all, without a copy of a table in one chunk)."""
        count = rows.num_rows if at is None else len(at)
        taken = _taken(rows, self._own, at) + [(each, None) for each in extra if isinstance(each, pa.ChunkedArray)]
        for piece in fitting([*pieces(count, self._rows_per_batch)], taken):
            yield batch_of(self.schema, _at(rows, self._own, at, piece), extra, piece)


def _at(rows: pa.Table, names: Sequence[str], at: NDArray[np.int32] | None, piece: slice) -> list[pa.Array]:
    """Columns of the rows at a slice of these positions (None: of all rows, without a copy)."""
    columns = [rows.column(name) for name in names]
    return [one_chunk(column[piece]) for column in columns] if at is None else take_columns(columns, at[piece])


def _taken(rows: pa.Table, names: Iterable[str], at: NDArray[np.int32] | None) -> list[Taken]:
    return [(rows.column(name), at) for name in names]


def check_names(names: Sequence[str], hint: str, computed: Sequence[str] = ()) -> None:
    """Refuse output columns with the same name (QueryError WA-2009). `computed`: those that no suffix can tell apart
    from a column of an input."""
    for name, times in Counter(names).items():
        if times > 1:
            if name in computed:
                without = ", or leave it out of the output: probability=False" if name == PROBABILITY else ""
                hint = f"the join computes a column of this name: rename that of the input{without}"
            raise QueryError(Code.COLUMN_CLASH, f"two output columns would be called {name!r}", hint)


def rows_per_batch(schema: pa.Schema) -> int:
    """How many output rows one batch of these columns has."""
    plain = all(pa.types.is_primitive(field.type) for field in schema)
    return ROWS_PER_BATCH if plain else ROWS_PER_BATCH_OF_TEXT


def batch_of(
    schema: pa.Schema, columns: Sequence[pa.Array | None], extra: Extra, piece: slice, rows: Sequence[RowsAt] = ()
) -> pa.RecordBatch:
    """A batch of input columns (None: nulls; cast if a key's type differs) and a slice of the computed ones.

    `rows`: those of the batch, for columns that are computed from them. Raises QueryError WA-2008 for a key that does
    not fit into the type shared by both inputs.
    """
    computed = [
        None if values is None else _as_array(values(*rows) if callable(values) else values[piece]) for values in extra
    ]
    arrays = [
        pa.nulls(piece.stop - piece.start, field.type)
        if values is None
        else values
        if values.type == field.type
        else _shared(values, field)
        for field, values in zip(schema, [*columns, *computed], strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_array(values: NDArray[np.generic] | pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return one_chunk(values)
    return values if isinstance(values, pa.Array) else pa.array(values)


def _shared(values: pa.Array, field: pa.Field) -> pa.Array:
    """Keys of one input, cast to the type shared by both."""
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        raise QueryError(
            Code.KEY_TYPES_DIFFER,
            f"key {field.name!r} is {values.type} in one input and {field.type} in the result, which cannot hold it: "
            f"{error}",
            "cast one side, or take how='inner' or 'left_outer'",
        ) from error
