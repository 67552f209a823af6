"""Values of group columns as keys of Python, where NaN equals NaN and -0.0 equals 0.0, as keys of joins do."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.plain_types import plain, plain_type
from whenabouts.core.errors import Code, InputError


def one_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, with 0.0 in place of -0.0."""
    type_ = plain_type(column.type)
    if not (pa.types.is_float32(type_) or pa.types.is_float64(type_)):
        return column
    return pc.add(pa.chunked_array([plain(chunk) for chunk in column.chunks], type_), pa.scalar(0.0, type_))


def key_values(column: pa.ChunkedArray) -> list[Any]:
    """The values as Python's. Raises InputError WA-1007 for instants that Python does not have.

    >>> key_values(pa.chunked_array([[-0.0, None, 1.5]])), len(set(key_values(pa.chunked_array([[math.nan] * 2]))))
    ([0.0, None, 1.5], 1)
    """
    try:
        values: list[Any] = column.to_pylist()
    except OverflowError:
        raise InputError(
            Code.TIME_OUT_OF_RANGE, "a group column has times outside the years 1 to 9999", "make them null"
        ) from None
    if not pa.types.is_floating(plain_type(column.type)):
        return values
    return [value if value is None else math.nan if value != value else value + 0.0 for value in values]
