"""The columns that queries over coalesced tuples add to their output: when a window ends, when a tuple is valid."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.ticks import PER_SECOND
from whenabouts.core.arrays.typing import IntArray

WINDOW_END = "window_end"
VALID_FROM = "valid_from"
VALID_TO = "valid_to"
VALID_LAST = "valid_last"
COUNT = "n"

OP = "op"
"""What becomes of a row of early answers: see `runtime.changes`."""


_FIRST_NS = -(2**63) + 1
"""The first time of a nanosecond column: in pandas the number before it is NaT."""


def window_end_type(time: pa.DataType) -> pa.DataType:
    """The type of `window_end` for a time column of this type.

    It is in microseconds whatever the unit of the time column: slides fall on whole microseconds, and may lie after the
    last time that nanoseconds can hold (the year 2262).

    >>> window_end_type(pa.timestamp("ns", "UTC")), window_end_type(pa.int64())
    (TimestampType(timestamp[us, tz=UTC]), DataType(int64))
    """
    return pa.timestamp("us", time.tz) if pa.types.is_timestamp(time) else time


def time_array(us: IntArray, type_: pa.DataType) -> pa.Array:
    """Microseconds, of times that such a column held, converted to its type.

    >>> time_array(np.array([2_000_000]), pa.timestamp("s")).cast(pa.int64()).to_pylist()
    [2]
    """
    if not pa.types.is_timestamp(type_):
        return pa.array(us)
    per_second = PER_SECOND[type_.unit]
    if per_second == 1_000_000:
        return pa.array(us).view(type_)
    if per_second < 1_000_000:
        return pa.array(us // (1_000_000 // per_second)).view(type_)
    # Nanoseconds begin within a microsecond, which rounded down does not fit.
    ticks = np.where(us <= _FIRST_NS // 1000, _FIRST_NS, us * 1000)
    return pa.array(ticks).view(type_)
