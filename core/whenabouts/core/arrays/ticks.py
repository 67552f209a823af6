"""Times of any type as the integers in which they are stored.

Python has no time outside the years 1 to 9999, no duration over 999,999,999 days, and nothing finer than a microsecond
(for which pyarrow needs pandas). Code that only compares or stores values uses the integers.
"""

from __future__ import annotations

from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

_A = TypeVar("_A", pa.Array, pa.ChunkedArray)

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""How many of Arrow's unit a second has."""


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


def in_unit(column: _A, unit: str) -> _A:
    """Timestamps in another unit, finer digits rounded down; their zone stays. Raises ArrowInvalid for one that the
    unit has no number for.

    Arrow's own `floor_temporal` asks the zone for the time of day, which fails in the hour that clocks repeat.

    >>> in_unit(pa.array([-1, 1_999, None], pa.timestamp("ns", "Europe/Berlin")), "us").cast(pa.int64()).to_pylist()
    [-1, 1, None]
    >>> in_unit(pa.array([5], pa.timestamp("s")), "ms").cast(pa.int64()).to_pylist()
    [5000]
    """
    type_ = pa.timestamp(unit, column.type.tz)
    step = PER_SECOND[column.type.unit] // PER_SECOND[unit]
    if step <= 1:
        return cast(_A, column.cast(type_))
    if isinstance(column, pa.ChunkedArray):
        return cast(_A, pa.chunked_array([in_unit(chunk, unit) for chunk in column.chunks], type_))
    ticks, null = as_ticks(column), np.asarray(column.is_null()) if column.null_count else None
    coarser = np.asarray(ticks.fill_null(0)) // step
    return cast(_A, pa.array(coarser, pa.int64(), mask=null).view(type_))
