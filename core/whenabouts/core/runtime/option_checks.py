"""Checks of query options: a wrong object is refused, with a hint at what is expected.

Every check raises QueryError, with code WA-2006 unless stated otherwise.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from whenabouts.core.durations import number_of, parse_non_negative, whole_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.blocks import PREFIX
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.time_specs import TimeSpec

_PARTS_OF_A_TIME = ("columns", "ends", "end_columns", "max_uncertainty_us")
"""Looked up on the type, because these properties of a clock with an unknown offset raise errors."""


def refused(name: str, value: object, hint: str, code: Code = Code.BAD_OPTION) -> QueryError:
    """The error for an invalid option; a large value is shown by its type."""
    return QueryError(code, f"{name} is {shown(value)}", hint)


def shown(value: object) -> str:
    """A value for an error message: its text if that is short, otherwise its type.

    >>> shown("4"), shown(range(3)), shown([[0] * 99] * 99)
    ("'4'", 'range(0, 3)', 'a list')
    """
    text = repr(value) if isinstance(value, (str, bytes, int, float, type(None))) else reprlib.repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "row"), counted(4_000, "row")
    ('1 row', '4,000 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def columns_shown(schema: pa.Schema) -> str:
    """The hint of an error about a column that does not exist; without the columns that a block has before its own.

    >>> columns_shown(pa.schema({"_wa_t_max": pa.int64(), "t": pa.int64(), "k": pa.string()}))
    'it has t, k'
    >>> columns_shown(pa.schema([]))
    'it has no columns'
    """
    own = [name for name in schema.names if not name.startswith(PREFIX)]
    return f"it has {', '.join(own) or 'no columns'}"


def time_of(name: str, value: Any) -> TimeSpec:
    """A time specification: Point, Interval, Histogram, or the result of `from_clock`, `from_latency`, ..."""
    if isinstance(value, type) or not all(hasattr(type(value), part) for part in _PARTS_OF_A_TIME):
        hint = f"give Point({value!r})" if isinstance(value, str) and value else 'give Point("t") or Interval("a", "b")'
        raise refused(name, value, hint)
    spec: TimeSpec = value
    return spec


def condition_of(name: str, value: Any) -> Condition:
    """A timing condition."""
    if not isinstance(value, Condition):
        raise refused(name, value, "give within(...), deadline(...), delay(...) or between(...), with a confidence")
    if not value.says_confidence:
        raise QueryError(
            Code.BAD_CONFIDENCE, f"{name} has no confidence", "give confidence=..., or possibly(...) for any above 0"
        )
    return value


def one_of(name: str, value: Any, known: Sequence[str | None]) -> None:
    """One of the known words."""
    if not isinstance(value, (str, type(None))) or value not in known:
        raise refused(name, value, f"choose one of {', '.join(word for word in known if word)}")


def flag(name: str, value: Any) -> None:
    """True or False, and no other object."""
    if not isinstance(value, bool):
        raise refused(name, value, "give True or False")


def text(name: str, value: Any) -> None:
    """A non-empty text."""
    if not isinstance(value, str) or not value:
        raise refused(name, value, "give a text")


def function(name: str, value: Any, hint: str) -> None:
    """A function or another callable, but not a class."""
    if not callable(value) or isinstance(value, type):
        raise refused(name, value, hint)


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """An integer of Python or numpy, from `least` to `most`, as one of Python."""
    number = whole_of(value)
    if number is None or number < least or (most is not None and number > most):
        limits = f"{least} or more" if most is None else f"from {least} to {most:,}"
        raise refused(name, value, f"give a whole number, {limits}")
    return number


def slots_of(value: Any) -> int | str | None:
    """The width of time slots in microseconds, "auto", or None. Raises WA-2002 and WA-2003 for invalid durations."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    width = parse_non_negative(value, name="time_slots")
    if not width:
        raise refused("time_slots", width, "give a width above zero")
    return width


def suffixes(name: str, value: Any) -> None:
    """Two texts."""
    two = isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) == 2
    if not two or not all(isinstance(each, str) for each in value):
        raise refused(name, value, 'give two texts, as ("_left", "_right")')


def columns_of(name: str, value: Any, code: Code = Code.BAD_OPTION) -> tuple[str, ...]:
    """One column name or several.

    >>> columns_of("group", "a"), columns_of("group", ["a", "b"])
    (('a',), ('a', 'b'))
    """
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, (bytes, Mapping)) or not isinstance(names, Sequence):
        raise refused(name, value, "name a column, or a list of columns", code)
    if not all(isinstance(each, str) for each in names):
        raise refused(name, value, "name columns by text", code)
    return tuple(names)


def items_of(name: str, value: Any, hint: str, code: Code = Code.BAD_OPTION) -> tuple[tuple[Any, Any], ...]:
    """The items of a mapping, or of a tuple of pairs."""
    found = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(found, (tuple, list)) or not all(isinstance(each, tuple) and len(each) == 2 for each in found):
        raise refused(name, value, hint, code)
    return tuple(found)


def rates_of(value: Any, inputs: Sequence[str]) -> dict[str, float]:
    """Rows per second by input, for all inputs or for none."""
    hint = f"give rows per second, above 0, for {' and '.join(inputs)}"
    rates = dict(items_of("rates", value, hint))
    if rates and set(rates) != set(inputs):
        raise refused("rates", value, hint)
    for rate in rates.values():
        if not 0 < (number_of(rate) or 0) < float("inf"):
            raise refused("rates", value, hint)
    return {name: rate if type(rate) is int else float(rate) for name, rate in rates.items()}
