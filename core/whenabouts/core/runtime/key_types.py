"""The common type in which key columns of several inputs are compared: exact for all values, or refused.

Integers are compared with integers, floats with floats, text with text, bytes with bytes, dates with dates, decimals
with decimals of any scale, and timestamps, durations and times of day with the same kind in any unit. Families do not
mix, because a float may equal an integer only after rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.ticks import PER_SECOND, as_ticks
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.key_names import Key, of_input
from whenabouts.core.runtime.option_checks import columns_shown

_ANY_INTEGER = pa.decimal128(20, 0)
"""Holds every int64 and every uint64."""
_MOST_DIGITS = 76


def common_type(key: Key, schemas: Sequence[pa.Schema], inputs: Sequence[str]) -> pa.DataType:
    """The type in which a key of all inputs is compared.

    Raises InputError WA-1001 for a missing column and QueryError WA-2008 for types that cannot be compared.

    >>> schemas = [pa.schema({"k": pa.timestamp(unit)}) for unit in ("s", "ns")]
    >>> common_type("k", schemas, ("left", "right"))
    TimestampType(timestamp[ns])
    """
    types = []
    names = [of_input([key], input)[0] for input in range(len(inputs))]
    for schema, input_name, name in zip(schemas, inputs, names, strict=True):
        if name not in schema.names:
            raise InputError(
                Code.MISSING_COLUMN,
                f"the {input_name} input has no key column {name!r}",
                columns_shown(schema),
            )
        types.append(_compared(schema.field(name).type, name, input_name))
    typed = [type_ for type_ in types if not pa.types.is_null(type_)]  # a column with only nulls fits any type
    if not typed:
        return types[0]
    found: pa.DataType | None = typed[0]
    for type_ in typed[1:]:
        found = found if found is None or type_ == found else _holding_both(found, type_)
    if found is None:
        raise QueryError(
            Code.KEY_TYPES_DIFFER,
            f"key {key!r} is {' and '.join(str(type_) for type_ in types)}",
            "cast one side: keys are compared in a common type",
        )
    return found


def in_one_type(chunks: Sequence[pa.Array], type_: pa.DataType) -> pa.ChunkedArray:
    """Key columns in their `common_type`, or as decimals if an instant does not fit into it."""
    try:
        return pa.chunked_array([_exact(chunk, type_) for chunk in chunks], type_)
    except pa.ArrowInvalid:
        if not _has_unit(type_):
            raise
    return pa.chunked_array([_ticks(chunk, type_.unit) for chunk in chunks], pa.decimal128(30, 0))


def for_hash(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A key column in a form to hash: equal keys have equal forms; different keys may, too.

    The form determines the bucket that holds a key's state, so it must not change.
    """
    if pa.types.is_timestamp(type_):
        return column.cast(pa.timestamp("us", None if type_.tz is None else "UTC"), safe=False)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.int64())
    if _has_unit(type_):
        factor = PER_SECOND[type_.unit] // PER_SECOND[column.type.unit]
        return pa.array(_as_numpy(column) * factor, pa.int64(), mask=np.asarray(column.is_null()))  # may overflow
    return _exact(column, type_)


def _compared(type_: pa.DataType, name: str, input_name: str) -> pa.DataType:
    """The type in which values of `type_` are compared. Raises QueryError WA-2008 for types without equality."""
    if pa.types.is_dictionary(type_):
        return _compared(type_.value_type, name, input_name)
    if pa.types.is_uint64(type_):
        return type_
    if pa.types.is_integer(type_):
        return pa.int64()
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    if pa.types.is_timestamp(type_):
        return pa.timestamp(type_.unit, None if type_.tz is None else "UTC")
    plain = (pa.types.is_boolean, pa.types.is_date, pa.types.is_decimal, pa.types.is_null)
    if _has_unit(type_) or any(is_it(type_) for is_it in plain):
        return type_
    raise QueryError(
        Code.KEY_TYPES_DIFFER,
        f"key {name!r} of the {input_name} input is {type_}, which has no equality to join on",
        "use integers, text, dates, times, timestamps, durations, decimals or booleans",
    )


def _holding_both(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """A type that holds all values of two different types; None if there is none."""
    pair = (one, other)
    if all(pa.types.is_integer(type_) or type_ == _ANY_INTEGER for type_ in pair):
        return _ANY_INTEGER
    if all(map(pa.types.is_date, pair)):
        return pa.date64()
    if all(map(pa.types.is_decimal, pair)):
        scale = max(type_.scale for type_ in pair)
        digits = max(type_.precision - type_.scale for type_ in pair) + scale
        if digits > _MOST_DIGITS:
            return None
        return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)
    if _family(one) is not None and _family(one) == _family(other):
        finer = max(pair, key=lambda type_: PER_SECOND[type_.unit])
        return pa.time64("us") if pa.types.is_time32(finer) else finer  # no time32[ms] holds every time32[s]
    return None


def _family(type_: pa.DataType) -> str | None:
    """The family of a type with a time unit, None for other types."""
    if pa.types.is_timestamp(type_):
        return f"timestamp {type_.tz}"
    if pa.types.is_duration(type_):
        return "duration"
    return "time" if pa.types.is_time(type_) else None


def _has_unit(type_: pa.DataType) -> bool:
    return _family(type_) is not None


def one_of_equals(column: pa.Array) -> pa.Array:
    """Floats with the same bits for equal keys: 0.0 for -0.0, and one NaN. Other types are unchanged.

    >>> one_of_equals(pa.array([-0.0, 1.5, None])).to_pylist()
    [0.0, 1.5, None]
    """
    if not pa.types.is_floating(column.type):
        return column
    values = column.to_numpy(zero_copy_only=False)
    values = values + values.dtype.type(0)  # -0.0 + 0.0 is 0.0
    values[np.isnan(values)] = np.nan  # one of all its bit patterns
    return pa.array(values, column.type, mask=np.asarray(column.is_null()))


def _exact(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return one_of_equals(column.cast(type_) if column.type != type_ else column)


def _ticks(column: pa.Array, unit: str) -> pa.Array:
    """Times as whole numbers of a unit, which may exceed int64."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.decimal128(30, 0))
    ticks = pa.array(_as_numpy(column), pa.int64(), mask=np.asarray(column.is_null())).cast(pa.decimal128(19, 0))
    factor = Decimal(PER_SECOND[unit] // PER_SECOND[column.type.unit])
    return pc.multiply(ticks, pa.scalar(factor, pa.decimal128(10, 0)))


def _as_numpy(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The ticks of a column of times, 0 for null."""
    return np.asarray(as_ticks(column).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
