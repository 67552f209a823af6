"""Times of every Arrow type and unit, compared and converted exactly: no result wraps, and none is cut unasked.

Arrow compares times in different units by a conversion to the finer one, and refuses times that do not fit it. Here the
finer side is rounded to the coarser unit, which every value fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Values: TypeAlias = Any
"""A `pa.Array`, or a `pa.Scalar`."""

MICROSECOND = 1_000
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": MICROSECOND, "ns": 1}
_DAY = 86_400 * _NANOSECONDS["s"]


class Scale(NamedTuple):
    """What the numbers of a type measure (an instant, a duration, a time of day) and their unit in nanoseconds."""

    measures: str
    unit: int


def scale_of(kind: pa.DataType) -> Scale | None:
    """The scale of a type; None for a type that measures no time. Instants without a zone are UTC.

    >>> scale_of(pa.timestamp("ms"))
    Scale(measures='instant', unit=1000000)
    """
    if pa.types.is_date32(kind):
        return Scale("instant", _DAY)
    if pa.types.is_date64(kind):
        return Scale("instant", _NANOSECONDS["ms"])
    if pa.types.is_timestamp(kind):
        return Scale("instant", _NANOSECONDS[kind.unit])
    if pa.types.is_duration(kind):
        return Scale("duration", _NANOSECONDS[kind.unit])
    return Scale("time of day", _NANOSECONDS[kind.unit]) if pa.types.is_time(kind) else None


def counts_in(unit: int, values: Values) -> Values:
    """Times as int64 numbers of a unit (given in nanoseconds), rounded down. Raises ArrowInvalid for an overflow.

    >>> counts_in(MICROSECOND, pa.array([-1, 2_000], pa.timestamp("ns"))).to_pylist()
    [-1, 2]
    """
    scale = _scale(values)
    if unit > scale.unit:
        return _floor_divide(_counts(values), unit // scale.unit)[0]
    return pc.multiply_checked(_counts(values), scale.unit // unit)


def in_unit_of(kind: pa.DataType, values: Values) -> Values:
    """Times as another type that measures the same, rounded down. Raises ArrowInvalid where it does not hold them.

    (Arrow's own cast of a far timestamp to a date wraps.)

    >>> in_unit_of(pa.date32(), pa.array([-1], pa.timestamp("s"))).to_pylist()
    [datetime.date(1969, 12, 31)]
    """
    scale = scale_of(kind)
    assert scale is not None, kind
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pc.cast(pc.cast(counts_in(scale.unit, values), width), kind)


def _scale(values: Values) -> Scale:
    scale = scale_of(values.type)
    assert scale is not None, values.type
    return scale


def _counts(values: Values) -> Values:
    if values.type.bit_width == 32:
        values = pc.cast(values, pa.int32())
    return pc.cast(values, pa.int64())


def _floor_divide(counts: Values, divisor: int) -> tuple[Values, Values]:
    """The quotient, rounded down, and whether there is a remainder. Cannot overflow: the divisor is 1 or more."""
    quotient = pc.divide(counts, divisor)  # rounds towards zero
    remainder = pc.subtract(counts, pc.multiply(quotient, divisor))
    return pc.subtract(quotient, pc.cast(pc.less(remainder, 0), pa.int64())), pc.not_equal(remainder, 0)


def _earlier(left: Values, right: Values) -> Values:
    """`left < right` of times in different units.

    For integers, a f < b where a < ceil(b / f), and b < a f where floor(b / f) < a.
    """
    left_unit, right_unit = _scale(left).unit, _scale(right).unit
    left, right = _counts(left), _counts(right)
    if left_unit > right_unit:
        floor, rest = _floor_divide(right, left_unit // right_unit)
        return pc.less(left, pc.add(floor, pc.cast(rest, pa.int64())))
    return pc.less(_floor_divide(left, right_unit // left_unit)[0], right)


def _differ(left: Values, right: Values) -> Values:
    return pc.or_(_earlier(left, right), _earlier(right, left))


def _comparison(compare: Callable[..., Values], by_order: Callable[..., Values]) -> Callable[..., Values]:
    def compared(left: Values, right: Values) -> Values:
        one, other = scale_of(left.type), scale_of(right.type)
        mixed = one is not None and other is not None and one.measures == other.measures and left.type != right.type
        return (by_order if mixed else compare)(left, right)

    return compared


COMPARISONS: Mapping[str, Callable[..., Values]] = {
    "eq": _comparison(pc.equal, lambda left, right: pc.invert(_differ(left, right))),
    "ne": _comparison(pc.not_equal, _differ),
    "lt": _comparison(pc.less, _earlier),
    "le": _comparison(pc.less_equal, lambda left, right: pc.invert(_earlier(right, left))),
    "gt": _comparison(pc.greater, lambda left, right: _earlier(right, left)),
    "ge": _comparison(pc.greater_equal, lambda left, right: pc.invert(_earlier(left, right))),
}
"""Arrow's comparisons, and exact ones where times are of different types. Null where either side is."""
