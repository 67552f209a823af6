"""Operands of one operation as values of one type, so that whether it works depends on types, not on values.

Arrow would convert integers to floats only where nothing is rounded, and uint64 to int64 only where it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.expressions.time_values import in_unit_of, scale_of

Values: TypeAlias = Any
"""A `pa.Array`, or a `pa.Scalar`."""

_ANY_INTEGER = pa.decimal128(20, 0)
"""Holds every int64 and every uint64."""


def alike(values: Sequence[Values]) -> list[Values]:
    """Values as one type: an integer beside a float is a double, rounded as SQL engines do; times and durations have
    the finest unit, dates beside times are times; an untyped NULL (of a column without any value) has the type of the
    others. Arrow knows what to do with the rest.

    >>> [str(each.type) for each in alike([pa.array([1]), pa.array([0.5], pa.float32()), pa.nulls(1)])]
    ['double', 'double', 'double']
    """
    kinds = list(dict.fromkeys(each.type for each in values if not pa.types.is_null(each.type)))
    common = _common_type(kinds)
    if common is not None:
        return [_converted(common, each) for each in values]
    return [typed(kinds[0], each) for each in values] if kinds else list(values)


def comparable(left: Values, right: Values) -> list[Values]:
    """Values of a comparison: those of times as they are (`time_values` compares them exactly), others as one type.

    >>> [str(each.type) for each in comparable(pa.array([1], pa.uint64()), pa.array([1]))]
    ['decimal128(20, 0)', 'decimal128(20, 0)']
    """
    if scale_of(left.type) is not None and scale_of(right.type) is not None:
        return [left, right]
    integers = [each for each in (left.type, right.type) if pa.types.is_integer(each)]
    if len(integers) == 2 and pa.uint64() in integers and any(map(pa.types.is_signed_integer, integers)):
        return [pc.cast(each, _ANY_INTEGER) for each in (left, right)]
    return [typed(pa.bool_(), each) for each in alike([left, right])]


def typed(kind: pa.DataType, values: Values) -> Values:
    """Values, or if they are untyped NULLs, those of a type."""
    return pc.cast(values, kind) if pa.types.is_null(values.type) else values


def rounded(kind: pa.DataType, values: Values) -> Values:
    """Numbers as floats of a type, integers as the nearest one. (Arrow's cast refuses integers that are none.)

    >>> rounded(pa.float64(), pa.array([2**53 + 1])).to_pylist()
    [9007199254740992.0]
    """
    return pc.cast(values, kind, safe=not pa.types.is_integer(values.type))


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is of integers, floats or decimals."""
    return any(is_one(kind) for is_one in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def as_instants(values: Values) -> Values:
    """Dates as times, other values as they are."""
    if not pa.types.is_date(values.type):
        return values
    return in_unit_of(pa.timestamp("s" if pa.types.is_date32(values.type) else "ms", "UTC"), values)


def _common_type(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type that values of these types have together; None for one type, and for those that are left to Arrow."""
    if len(kinds) < 2:
        return None
    if any(map(pa.types.is_floating, kinds)) and all(map(is_number, kinds)):
        return pa.float64()
    if all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in kinds):
        return pa.large_string()
    scales = {kind: scale for kind in kinds if (scale := scale_of(kind)) is not None}
    if len(scales) < len(kinds) or len({scale.measures for scale in scales.values()}) > 1:
        return None
    finest = min(kinds, key=lambda kind: scales[kind].unit)
    return pa.timestamp("ms", "UTC") if pa.types.is_date64(finest) else finest


def _converted(kind: pa.DataType, values: Values) -> Values:
    if values.type == kind:
        return values
    if pa.types.is_floating(kind):
        return rounded(kind, values)
    return in_unit_of(kind, values) if scale_of(values.type) is not None else pc.cast(values, kind)
