"""The output columns of a combination: those of every stream, its time span, and the probabilities of its edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.long_text import fitting
from whenabouts.core.arrays.record_batches import RowsAt, pieces, side_by_side
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.joins.output_columns import Extra, batch_of, check_names, rows_per_batch
from whenabouts.core.runtime.blocks import T_MAX, T_MIN

T_FIRST = "t_first"
T_LAST = "t_last"
JOINT = "probability"


class CombinationColumns:
    """Every stream's columns in their order, then `t_first`, `t_last` and the `probabilities`.

    The key columns occur once, as the first stream has them. Any other name that several streams have gets the stream's
    name as a suffix. Raises QueryError WA-2009 if two columns would still have the same name.

    >>> schema = pa.schema({"k": pa.int64(), "t": pa.int64()})
    >>> CombinationColumns({"a": schema, "b": schema}, keys=("k",), probabilities=["probability_a_b"]).schema.names
    ['k', 't_a', 't_b', 't_first', 't_last', 'probability_a_b']
    """

    def __init__(self, schemas: Mapping[str, pa.Schema], *, keys: Sequence[str], probabilities: Sequence[str]) -> None:
        self._columns = [
            [name for name in schema.names if stream == 0 or name not in keys]
            for stream, schema in enumerate(schemas.values())
        ]
        owners = Counter(name for names in self._columns for name in names)
        fields = [
            schema.field(name).with_name(f"{name}_{stream}" if owners[name] > 1 else name)
            for (stream, schema), names in zip(schemas.items(), self._columns, strict=True)
            for name in names
        ]
        time = pa.timestamp("us", "UTC")
        fields += [pa.field(T_FIRST, time), pa.field(T_LAST, time)]
        self.schema = pa.schema([*fields, *(pa.field(name, pa.float64()) for name in probabilities)])
        check_names(self.schema.names, "rename that of the input")
        self._rows_per_batch = rows_per_batch(self.schema)

    def batches(
        self, tables: Sequence[pa.Table], at: Sequence[NDArray[np.int32]], extra: Extra
    ) -> Iterator[pa.RecordBatch]:
        """The rows of combinations; `at[s]` are their positions in the table of stream s. O(rows)."""
        streams = list(zip(tables, self._columns, at, strict=True))
        taken = [(table.column(name), positions) for table, names, positions in streams for name in names]
        together = [side_by_side(table, names, positions) for table, names, positions in streams]
        for piece in fitting([*pieces(len(at[0]), self._rows_per_batch)], taken):
            rows = [
                RowsAt(table, positions[piece], groups)
                for table, positions, groups in zip(tables, at, together, strict=True)
            ]
            columns = [column for of, names in zip(rows, self._columns, strict=True) for column in of.columns(names)]
            yield batch_of(self.schema, columns, extra, piece, rows)


class Span:
    """The columns `t_first` and `t_last` of a batch, in this order: both are found when the first is asked for, so that
    the times are read once."""

    def __init__(self) -> None:
        self._last = np.empty(0, np.int64)

    def first(self, *rows: RowsAt) -> IntArray:
        """The least `t_min` of each combination."""
        begins, ends = ([np.asarray(of[name]) for of in rows] for name in (T_MIN, T_MAX))
        first, self._last = (large_array(len(begins[0]), np.int64) for _ in range(2))
        for start in range(0, len(first), _IN_CACHE):
            part = slice(start, start + _IN_CACHE)
            _fold(np.minimum, [column[part] for column in begins], first[part])
            _fold(np.maximum, [column[part] for column in ends], self._last[part])
        return first

    def last(self, *_: RowsAt) -> IntArray:
        """The greatest `t_max` of each combination."""
        return self._last


_IN_CACHE = 1 << 14
"""So many rows of all columns stay in a cache until they are folded."""


def _fold(fold: np.ufunc, columns: Sequence[IntArray], out: IntArray) -> None:
    fold(columns[0], columns[1], out=out)
    for column in columns[2:]:
        fold(out, column, out=out)
