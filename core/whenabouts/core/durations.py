"""Durations as people write them, to whole microseconds, exactly.

The arithmetic is on `Fraction`, so that "0.1 s" is 100,000 microseconds and nothing near it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from math import isclose
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

from whenabouts.core.errors import Code, QueryError

if TYPE_CHECKING:
    import numpy as np

Duration: TypeAlias = "str | int | timedelta | np.integer[Any] | np.timedelta64"
"""Text, or a number of microseconds. The types of numpy are for type checkers: this module imports no numpy."""

MAX_DURATION_US = 2**58
"""Longest duration taken (about 9,100 years): sums of a few of them and of any two times fit int64."""

_UNIT_US: dict[str, Fraction] = {
    name: Fraction(microseconds)
    for names, microseconds in (
        ("us µs μs microsecond microseconds", 1),
        ("ms millisecond milliseconds", 1_000),
        ("s sec secs second seconds", 1_000_000),
        ("m min mins minute minutes", 60_000_000),
        ("h hr hrs hour hours", 3_600_000_000),
        ("d day days", 86_400_000_000),
        ("w week weeks", 604_800_000_000),
    )
    for name in names.split()
} | {name: Fraction(1, 1000) for name in ("ns", "nanosecond", "nanoseconds")}

_NUMPY_UNITS = {name: _UNIT_US[name] for name in ("us", "ms", "s", "m", "h", "ns")} | {
    "D": _UNIT_US["d"], "W": _UNIT_US["w"],
}  # fmt: skip
"""Those of numpy's units that always last as long; its `m` is a minute, too."""

_LONGEST_TEXT = 200
_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_PART = re.compile(rf"\s*({_NUMBER})\s*([a-zµμ]+)")
_ISO = re.compile(rf"p(?:({_NUMBER})w)?(?:({_NUMBER})d)?(?:t(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?)?")
_ISO_UNITS = ("w", "d", "h", "m", "s")


def parse_duration(value: Duration, *, name: str = "duration") -> int:
    """Microseconds of a duration: text (`500ms`, `1h30m`, `0.5 s`, ISO 8601 `PT1.5S`), `timedelta`, or an `int`.

    An `int` is taken as microseconds already; integers and `timedelta64` of numpy are read likewise. `name` is what the
    error calls the value.

    Raises: QueryError WA-2002 for anything unreadable, not a whole number of microseconds, or over 9,100 years.

    >>> parse_duration("1h30m"), parse_duration("0.5 s"), parse_duration("-PT1.5S")
    (5400000000, 500000, -1500000)
    """
    if type(value) is int and abs(value) <= MAX_DURATION_US:  # resolved before: steps ask again and again
        return value
    microseconds = _exact(value, name)
    if microseconds.denominator != 1:
        raise _bad(value, name, "the resolution is one microsecond")
    if abs(microseconds) > MAX_DURATION_US:
        raise _bad(value, name, "durations end at about 9,100 years")
    return int(microseconds)


def parse_non_negative(value: Duration, *, name: str) -> int:
    """As `parse_duration`, refusing what is below zero with QueryError WA-2003.

    >>> parse_non_negative("2 s", name="lateness")
    2000000
    """
    microseconds = parse_duration(value, name=name)
    if microseconds < 0:
        raise QueryError(Code.NEGATIVE_DURATION, f"{name} is negative: {value!r}", "give a duration of zero or more")
    return microseconds


def format_duration(microseconds: float) -> str:
    """A duration for people: in the greatest unit of which there is at least one, to six digits.

    In the next smaller unit if only there six digits are exact.

    >>> format_duration(2_500_000), format_duration(-90_000_000), format_duration(0)
    ('2.5 s', '-1.5 min', '0 us')
    >>> format_duration(110 * 60_000_000), format_duration(100_000_001)
    ('110 min', '1.66667 min')
    """
    sizes = [(unit, int(_UNIT_US[unit])) for unit in ("d", "h", "min", "s", "ms", "us")]
    first = next((place for place, (_, size) in enumerate(sizes) if abs(microseconds) >= size), len(sizes) - 1)
    texts = [(f"{microseconds / size:.6g}", unit, size) for unit, size in sizes[first : first + 2]]
    exact = (text for text in texts if isclose(float(text[0]) * text[2], microseconds, rel_tol=1e-12))
    number, unit, _ = next(exact, texts[0])
    return f"{number} {unit}"


def format_bounds(what: str, lo_us: int | None, hi_us: int | None) -> str:
    """Bounds on a difference of times for people; None: there is no such bound.

    >>> format_bounds("b - a", 0, 5_000_000), format_bounds("b - a", None, 500), format_bounds("b - a", 500, None)
    ('0 us <= b - a <= 5 s', 'b - a <= 500 us', 'b - a >= 500 us')
    """
    if lo_us is not None and hi_us is None:
        return f"{what} >= {format_duration(lo_us)}"
    least = "" if lo_us is None else f"{format_duration(lo_us)} <= "
    most = "" if hi_us is None else f" <= {format_duration(hi_us)}"
    return f"{least}{what}{most}"


def whole_of(value: object) -> int | None:
    """An integer of Python or numpy as one of Python; None for anything else, booleans among them.

    >>> whole_of(3), whole_of(True), whole_of(3.0)
    (3, None, None)
    """
    given: Any = value
    if isinstance(value, bool) or _is_timedelta64(value):
        return None
    return int(given) if isinstance(given, Integral) else None


def number_of(value: object) -> float | None:
    """A real number of Python or numpy as one of Python; None for anything else: NaN, booleans, what no float can hold.

    >>> number_of(3), number_of(0.5), number_of(True), number_of(Fraction(10**400)), number_of(float("nan"))
    (3, 0.5, None, None, None)
    """
    given: Any = value
    if isinstance(value, bool) or _is_timedelta64(value) or not isinstance(value, Real):
        return None
    try:
        number = float(given) if (whole := whole_of(given)) is None else whole
    except OverflowError:
        return None
    return number if number == number else None


def _is_timedelta64(value: object) -> bool:
    """By its name: `import whenabouts` does not import numpy. Numpy counts them among the integers."""
    return f"{type(value).__module__}.{type(value).__name__}" == "numpy.timedelta64"


def _of_timedelta64(value: Any) -> Fraction | None:
    """None for NaT, for months and years, and for a number without a unit."""
    import numpy as np

    unit, count = np.datetime_data(value.dtype)
    if unit not in _NUMPY_UNITS or np.isnat(value):
        return None
    return int(value.astype(np.int64)) * count * _NUMPY_UNITS[unit]


def _exact(value: Duration, name: str) -> Fraction:
    if isinstance(value, timedelta):
        whole = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
        return whole + Fraction(getattr(value, "nanoseconds", 0), 1000)  # those of pandas have them
    given: object = value  # callers may pass any type
    if (number := whole_of(given)) is not None:
        return Fraction(number)
    if _is_timedelta64(given) and (exact := _of_timedelta64(given)) is not None:
        return exact
    if not isinstance(value, str):
        raise _bad(value, name, "give text such as '500ms', a timedelta, or whole microseconds as an int")
    if len(value) > _LONGEST_TEXT:
        raise _bad(f"{value[:_LONGEST_TEXT]}…", name, "no duration takes so many characters")
    text = value.strip().lower()
    sign = -1 if text.startswith("-") else 1
    text = text.removeprefix("-").removeprefix("+").strip()
    return sign * (_iso(text, value, name) if text.startswith("p") else _sum_of_parts(text, value, name))


def _sum_of_parts(text: str, value: str, name: str) -> Fraction:
    total, position = Fraction(0), 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2] not in _UNIT_US:
            raise _bad(value, name, "write a number and a unit (us, ms, s, m, h, d, w), e.g. '1h30m' or '0.5 s'")
        total += Fraction(part[1]) * _UNIT_US[part[2]]
        position = part.end()
    if not text:
        raise _bad(value, name, "it is empty")
    return total


def _iso(text: str, value: str, name: str) -> Fraction:
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()) or text.endswith("t"):
        raise _bad(value, name, "ISO 8601 durations look like 'PT1H30M' or 'P1DT0.5S' (no months or years)")
    return sum(
        (Fraction(n) * _UNIT_US[unit] for n, unit in zip(match.groups(), _ISO_UNITS, strict=True) if n),
        Fraction(0),
    )


def _bad(value: object, name: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_DURATION, f"{name} cannot be read: {value!r}", hint)
