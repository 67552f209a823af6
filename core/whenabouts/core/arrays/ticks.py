"""Times of any type as the integers in which they are stored.

Python has no time outside the years 1 to 9999, no duration over 999,999,999 days, and nothing finer than a microsecond
(for which pyarrow needs pandas). Code that only compares or stores values uses the integers.
"""

from __future__ import annotations

from typing import TypeVar, cast

import pyarrow as pa

_A = TypeVar("_A", pa.Array, pa.ChunkedArray)


def as_ticks(column: _A) -> _A:
    """A temporal column as int32 or int64, without a copy; any other column unchanged.

    >>> as_ticks(pa.array([2**62]).view(pa.timestamp("s"))).to_pylist(), as_ticks(pa.array(["a"])).to_pylist()
    ([4611686018427387904], ['a'])
    """
    if not pa.types.is_temporal(column.type) or pa.types.is_interval(column.type):
        return column
    type_ = pa.int32() if column.type.bit_width == 32 else pa.int64()
    if isinstance(column, pa.ChunkedArray):
        return cast(_A, pa.chunked_array([chunk.view(type_) for chunk in column.chunks], type_))
    return cast(_A, column.view(type_))
