"""Columns of a joined pair: names, types, and the rows themselves, taken once at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.errors import Code, QueryError

ROWS_PER_BATCH = 1 << 20
"""Output rows per record batch: bounds the memory of one batch, and is enough for the system's large pages."""

ROWS_PER_BATCH_OF_TEXT = 1 << 18
"""The same where a column's width varies: keeps text below Arrow's 2 GiB a column."""

PROBABILITY = "probability"
EVENT_TIME = "event_time"

_EMPTY = np.empty(0, np.int64)


class PairColumns:
    """Left columns, right columns without the keys, then the extra columns; equal names get the suffixes.

    Raises QueryError WA-2009 where two columns would still have one name.

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
    ) -> None:
        self._left, self._right = left.names, [name for name in right.names if name not in keys]
        clash = (set(self._left) & set(self._right)) - set(keys)
        names = [name + suffixes[0] if name in clash else name for name in self._left]
        names += [name + suffixes[1] if name in clash else name for name in self._right]
        names += [field.name for field in extra]
        for name in names:
            if names.count(name) > 1:
                raise QueryError(
                    Code.COLUMN_CLASH,
                    f"two output columns would be called {name!r}",
                    "rename one, or give other suffixes",
                )
        types = [left.field(name).type for name in self._left] + [right.field(name).type for name in self._right]
        fields = [pa.field(name, type_) for name, type_ in zip(names, types, strict=False)]
        self.schema = pa.schema([*fields, *extra])
        plain = all(pa.types.is_primitive(field.type) for field in self.schema)
        self._rows_per_batch = ROWS_PER_BATCH if plain else ROWS_PER_BATCH_OF_TEXT

    def batches(
        self,
        left: pa.Table,
        right: pa.Table,
        pairs: tuple[NDArray[np.int32], NDArray[np.int32]],
        extra: Sequence[NDArray[np.generic]],
    ) -> Iterator[pa.RecordBatch]:
        """The pairs' rows. O(pairs), independent of the size of the inputs once these are in one chunk each."""
        left_rows, right_rows = pairs
        for start in range(0, len(left_rows), self._rows_per_batch):
            piece = slice(start, start + self._rows_per_batch)
            l_at, r_at = left_rows[piece], right_rows[piece]
            columns = [_take(left.column(name), l_at) for name in self._left]
            columns += [_take(right.column(name), r_at) for name in self._right]
            computed = [pa.array(values[piece]) for values in extra]
            for values in computed:
                field = self.schema.field(len(columns))
                columns.append(values if values.type == field.type else values.cast(field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _take(column: pa.ChunkedArray, at: NDArray[np.int32]) -> pa.Array:
    if column.num_chunks == 1 and column.null_count == 0 and _is_8_bytes(column.type):
        return _gather(column.chunk(0), at)
    taken = pc.take(column.chunk(0) if column.num_chunks == 1 else column, pa.array(at), boundscheck=False)
    if not isinstance(taken, pa.ChunkedArray):
        return taken
    return taken.chunk(0) if taken.num_chunks == 1 else pa.concat_arrays(taken.chunks)


def _is_8_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type_)) and type_.bit_width == 64


def _gather(column: pa.Array, at: NDArray[np.int32]) -> pa.Array:
    """`column.take(at)` for plain numbers and times, which are most of what a join puts out: in a third of the time."""
    from whenabouts.core.gather import gather  # numba: imported when first needed

    out = np.empty(len(at), np.int64)
    values = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset) if len(column) else _EMPTY
    gather(values, at, out)
    return pa.Array.from_buffers(column.type, len(at), [None, pa.py_buffer(out)])
