"""Columns of a joined pair: names, types, and the rows themselves, taken once at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.errors import Code, QueryError

ROWS_PER_BATCH = 1 << 18
"""Output rows per record batch: bounds the memory of one `take` and keeps text below Arrow's 2 GiB a column."""

PROBABILITY = "probability"
EVENT_TIME = "event_time"


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

    def batches(
        self,
        left: pa.Table,
        right: pa.Table,
        pairs: tuple[NDArray[np.int32], NDArray[np.int32]],
        extra: Sequence[NDArray[np.generic]],
    ) -> Iterator[pa.RecordBatch]:
        """The pairs' rows. O(pairs), independent of the size of the inputs once these are in one chunk each."""
        left_rows, right_rows = pairs
        for start in range(0, len(left_rows), ROWS_PER_BATCH):
            piece = slice(start, start + ROWS_PER_BATCH)
            l_at, r_at = pa.array(left_rows[piece]), pa.array(right_rows[piece])
            columns = [_take(left.column(name), l_at) for name in self._left]
            columns += [_take(right.column(name), r_at) for name in self._right]
            computed = [pa.array(values[piece]) for values in extra]
            for values in computed:
                field = self.schema.field(len(columns))
                columns.append(values if values.type == field.type else values.cast(field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _take(column: pa.ChunkedArray, at: pa.Array) -> pa.Array:
    taken = (column.chunk(0) if column.num_chunks == 1 else column).take(at)
    if not isinstance(taken, pa.ChunkedArray):
        return taken
    return taken.chunk(0) if taken.num_chunks == 1 else pa.concat_arrays(taken.chunks)
