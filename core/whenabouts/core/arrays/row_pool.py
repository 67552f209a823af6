"""A pool of rows: numbered slots for values that are added, read and freed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import one_chunk
from whenabouts.core.arrays.typing import BoolArray, IntArray


class RowPool:
    """The columns of a schema as arrays that grow by doubling; free slots are reused first.

    Numbers, times and booleans are stored natively, anything else as Python objects.

    >>> rows = RowPool(pa.schema({"v": pa.int32(), "s": pa.string()}))
    >>> at = rows.put(pa.table({"v": pa.array([1, None], pa.int32()), "s": ["a", "b"]}))
    >>> rows.free(at[:1]); rows.table(rows.put(rows.table(at[1:]))).to_pylist(), rows.used
    ([{'v': None, 's': 'b'}], 2)
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._stored = [_stored_type(field.type) for field in schema]
        self._columns: list[NDArray[Any]] = [np.zeros(0, kind or object) for kind in self._stored]
        self._valid: list[BoolArray | None] = [None for _ in schema]  # None: no value has been null
        self._free = np.zeros(0, np.int64)
        self._free_count = 0

    @property
    def used(self) -> int:
        """How many slots hold a row."""
        return len(self._free) - self._free_count

    @property
    def nbytes(self) -> int:
        """Bytes of the rows held; objects count as references."""
        return self.used * sum(column.itemsize + 1 for column in self._columns)

    @property
    def room(self) -> int:
        """How many slots there are."""
        return len(self._free)

    @property
    def free_slots(self) -> IntArray:
        """Indices that hold nothing."""
        return self._free[: self._free_count]

    def put(self, rows: pa.Table) -> IntArray:
        """Add rows; returns their slots. O(rows) amortised."""
        n = rows.num_rows
        if n > self._free_count:
            self._grow(max(n - self._free_count, len(self._free)))
        at = self._free[self._free_count - n : self._free_count][::-1].copy()
        self._free_count -= n
        for i, column in enumerate(rows.columns):
            array = one_chunk(column)
            self._note_nulls(i, at, array)
            self._columns[i][at] = _as_numpy(array, self._stored[i])
        return at

    def free(self, at: IntArray) -> None:
        """Free slots."""
        self._free[self._free_count : self._free_count + len(at)] = at
        self._free_count += len(at)
        for column in self._columns:
            if column.dtype == object:
                column[at] = None

    def table(self, at: IntArray) -> pa.Table:
        """The rows in these slots."""
        arrays = [
            _as_arrow(column[at], None if valid is None else valid[at], field.type)
            for column, valid, field in zip(self._columns, self._valid, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _note_nulls(self, i: int, at: IntArray, array: pa.Array) -> None:
        valid = self._valid[i]
        if valid is None:
            if not array.null_count:
                return
            valid = self._valid[i] = np.ones(self.room, bool)
        valid[at] = np.asarray(array.is_valid()) if array.null_count else True

    def _grow(self, more: int) -> None:
        size = len(self._free)
        self._columns = [np.concatenate([column, np.zeros(more, column.dtype)]) for column in self._columns]
        self._valid = [
            None if valid is None else np.concatenate([valid, np.zeros(more, bool)]) for valid in self._valid
        ]
        free = np.empty(size + more, np.int64)
        free[:more] = np.arange(size + more - 1, size - 1, -1)
        free[more : more + self._free_count] = self._free[: self._free_count]
        self._free, self._free_count = free, self._free_count + more


def _stored_type(type_: pa.DataType) -> type[np.generic] | None:
    """The numpy type in which values are stored, None for objects."""
    if pa.types.is_boolean(type_):
        return np.bool_
    if pa.types.is_integer(type_) or pa.types.is_float32(type_) or pa.types.is_float64(type_):
        stored: type[np.generic] = pa.array([0], type_).to_numpy().dtype.type
        return stored
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        return np.int32
    is_long = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time64, pa.types.is_date64)
    return np.int64 if any(is_it(type_) for is_it in is_long) else None


def _as_numpy(array: pa.Array, stored: type[np.generic] | None) -> NDArray[Any]:
    if stored is None:
        objects = np.empty(len(array), object)
        # Nested values stay Arrow scalars: Python cannot represent all times in them.
        objects[:] = list(array) if pa.types.is_nested(array.type) else array.to_pylist()
        return objects
    if stored is not np.bool_ and not pa.types.is_floating(array.type):
        array = array.view(pa.from_numpy_dtype(stored))
    nothing = False if stored is np.bool_ else 0
    return np.asarray((array.fill_null(nothing) if array.null_count else array).to_numpy(zero_copy_only=False))


def _as_arrow(values: NDArray[Any], valid: BoolArray | None, type_: pa.DataType) -> pa.Array:
    if values.dtype == object:
        shown = [True] * len(values) if valid is None else valid
        return pa.array([value if is_shown else None for value, is_shown in zip(values, shown, strict=True)], type_)
    array = pa.array(values, mask=None if valid is None or valid.all() else ~valid)
    return array if array.type == type_ else array.view(type_)
