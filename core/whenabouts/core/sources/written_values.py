"""Infers the type of a CSV column: numbers, dates or booleans if the conversion loses nothing, otherwise text.

A column is numeric only if that is certain. `007`, `+4915112345678`, `0x10`, `1e5` and an integer that does not fit
into int64 stay text: as numbers they would be written differently, or become equal to other values.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.errors import Code, InputError

_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_DECIMAL = r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-][0-9]+)?$|^-?(0|[1-9][0-9]*)?\.[0-9]+[eE][0-9]+$"
_NO_NUMBER = pa.array(["nan", "NaN", "NAN", "inf", "-inf", "Inf", "-Inf", "Infinity", "-Infinity"])
_TRUTH = pa.array(["true", "True", "TRUE", "false", "False", "FALSE"])
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMES = (
    pa.date32(), pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"),
)  # fmt: skip
_DIGITS_OF_A_DOUBLE = 15
"""A double preserves every decimal number with this many significant digits."""

_A_FEW = 1000
"""How many values are examined first: they usually show that a column is text."""

_HINT = "another input or file determines the column's type: write it alike, or as text in all of them"


def natural_type(text: pa.ChunkedArray) -> pa.DataType:
    """The inferred type: int64, double, bool, date32, timestamp or string; null for no values. O(values).

    >>> [natural_type(pa.chunked_array([each])) for each in (["1", None], ["1", "2.50"], ["007"], [str(2**63)])]
    [DataType(int64), DataType(double), DataType(string), DataType(string)]
    """
    values = text.drop_null().combine_chunks()
    if not len(values):
        return pa.null()
    few = _natural(values.slice(0, _A_FEW))
    return few if len(values) <= _A_FEW or pa.types.is_string(few) else _natural(values)


def _natural(values: pa.Array) -> pa.DataType:
    trimmed = pc.utf8_trim_whitespace(values)
    if _all(pc.match_substring_regex(trimmed, _INTEGER)):
        return pa.int64() if _cast(trimmed, pa.int64()) is not None else pa.string()
    if _doubles_say_it(trimmed):
        return pa.float64()
    if _all(pc.is_in(values, value_set=_TRUTH)):
        return pa.bool_()
    if _all(pc.match_substring_regex(values, _DATE)):
        return next((type_ for type_ in _TIMES if _cast(values, type_) is not None), pa.string())
    return pa.string()


def as_type(
    text: pa.ChunkedArray,
    type_: pa.DataType,
    source: str,
    rows: IntArray | None = None,
    *,
    natural: pa.DataType | None = None,
) -> pa.ChunkedArray:
    """A text column converted to a type.

    `source` names column and file for errors, `rows` has the row numbers of the values, `natural` is the column's
    `natural_type` if known. Raises InputError WA-1067 with the first value that is not of the type in its usual form,
    and its row, from 0.
    """
    if pa.types.is_string(type_):
        return text
    if pa.types.is_null(type_):
        return pa.chunked_array([pa.nulls(len(text))])
    plain = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    values = text.combine_chunks()
    values = pc.utf8_trim_whitespace(values) if plain else values
    good = None if natural == type_ else _fitting(values, type_)
    if good is None:
        return pa.chunked_array([values.cast(type_)])
    at = int(np.argmin(good))
    raise _does_not_fit(values[at].as_py(), at if rows is None else int(rows[at]), source, type_)


def as_asked(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """A text column as the type that the user gave, in any form that Arrow reads. Raises ArrowInvalid for a value that
    has none.

    >>> as_asked(pa.array(["007", None]), pa.int64()).to_pylist()
    [7, None]
    >>> as_asked(pa.array(["10:30"]), pa.time32("s")).to_pylist()
    [datetime.time(10, 30)]
    """
    if pa.types.is_time(type_):  # Arrow reads times of day only beside a date
        text = pc.binary_join_element_wise("1970-01-01", pc.utf8_trim_whitespace(text), " ")
        return text.cast(pa.timestamp(type_.unit)).cast(type_)
    plain = pa.types.is_primitive(type_) or pa.types.is_decimal(type_)
    return (pc.utf8_trim_whitespace(text) if plain else text).cast(type_)


def _does_not_fit(value: str, row: int, source: str, type_: pa.DataType) -> InputError:
    return InputError(Code.VALUE_DOES_NOT_FIT, f"{value!r} in row {row} of {source} does not fit {type_}", _HINT)


def as_type_of_part(text: pa.Array, type_: pa.DataType, source: str, first: int) -> pa.Array:
    """Some rows of a text column as the natural type of other rows. `first`: the number of the first of them. Times
    that say less than others of their column fit. Raises as `as_type`."""
    rows = np.arange(first, first + len(text))
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        if (found := _cast(text, type_)) is not None:
            return found
    elif pa.types.is_null(type_) and text.null_count < len(text):
        at = int(np.argmax(text.is_valid()))
        raise _does_not_fit(text[at].as_py(), int(rows[at]), source, type_)
    return as_type(pa.chunked_array([text]), type_, source, rows).combine_chunks()


def _fitting(values: pa.Array, type_: pa.DataType) -> BoolArray | None:
    """Which values have a type, None if all have it."""
    natural = natural_type(pa.chunked_array([values]))
    if pa.types.is_null(natural) or natural == type_ or (natural == pa.int64() and _cast(values, type_) is not None):
        return None
    good = [value is None or _one_fits(value, type_) for value in values.to_pylist()]
    return None if all(good) else np.array(good)


def _one_fits(value: str, type_: pa.DataType) -> bool:
    one = pa.array([value])
    if pa.types.is_integer(type_):
        return _all(pc.match_substring_regex(one, _INTEGER)) and _cast(one, type_) is not None
    natural = natural_type(pa.chunked_array([one]))
    return bool(natural == type_ or (natural == pa.int64() and _cast(one, type_) is not None and _exact(value)))


def _doubles_say_it(text: pa.Array) -> bool:
    """Whether texts are decimal numbers that the nearest doubles represent exactly, or to all written digits."""
    doubles = _cast(text, pa.float64())
    if doubles is None or not pc.any(pc.is_finite(doubles)).as_py():
        return False
    other = pc.invert(pc.equal(doubles.cast(pa.string()), text))  # most are already in the form of this cast
    text = text.filter(other)
    if not _all(pc.or_(pc.match_substring_regex(text, _DECIMAL), pc.is_in(text, value_set=_NO_NUMBER))):
        return False
    size = pc.abs(doubles.filter(other))
    plain = pc.and_(pc.greater(size, 1e-300), pc.less(size, 1e300))
    short = pc.and_(plain, pc.less_equal(pc.utf8_length(text), _DIGITS_OF_A_DOUBLE))
    return all(map(_exact, text.filter(pc.invert(short)).to_pylist()))


def _exact(text: str) -> bool:
    """Whether the nearest double, written in its shortest form or with equally many digits, is the same number."""
    nearest, digits = float(text), _digits(text)
    if not digits or not isfinite(nearest):
        return not digits or not text[-1].isdigit()  # zero, or a word such as nan
    return digits in (_digits(repr(nearest)), _digits(f"{nearest:.{len(digits) - 1}e}"))


def _digits(number: str) -> str:
    """The significant digits of a decimal number."""
    return number.lstrip("-").partition("e")[0].partition("E")[0].replace(".", "").lstrip("0")


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array | None:
    try:
        return values.cast(type_)
    except pa.ArrowInvalid:
        return None


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())
