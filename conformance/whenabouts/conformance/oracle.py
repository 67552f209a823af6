"""The answers, recomputed from scratch: exact rationals, plain Python loops, nothing of the core's algorithms.

Probability. X1 is uniform on [a1, b1], X2 on [a2, b2], D = X2 - X1. With r(x) = max(x, 0) the distribution function of
D for positive lengths is a sum of four squared ramps,

    2 l1 l2 P(D <= z) = r(z - (a2 - b1))^2 - r(z - (a2 - a1))^2 - r(z - (b2 - b1))^2 + r(z - (b2 - a1))^2

which loses digits in floats but not in integers; the kernel under test sums trapezoids instead. If one time is a
point, D is uniform; if both are, it is a number.

Membership. The spec says: a pair is a match iff the kernel's value >= confidence. The kernel errs by at most 5 * 2^-53
relative, so the exact P decides wherever |P - confidence| > 2^-49. Closer than that (ties: P = 4/5 and the float 0.8,
which is not 4/5) it decides too as long as the numerator and the denominator are integers below 2^53: then the kernel
does nothing inexact but one division, and gives the double nearest to P. A pair that is neither is *ambiguous*: no
independent oracle can know the kernel's last bit, so the oracle raises `AmbiguousPairError` and the inputs of the suite
contain no such pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from whenabouts.conformance import multiset
from whenabouts.core.conditions import Condition
from whenabouts.core.timestamps import TimeSpec

BAND = Fraction(1, 2**49)
"""Half width of the stretch around the confidence in which rounding could decide."""

EXACT_BELOW = 2**53
"""Integers up to here are doubles."""

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999

_PER_MICROSECOND = {"ns": Fraction(1, 1000), "us": Fraction(1), "ms": Fraction(1000), "s": Fraction(1_000_000)}


class AmbiguousPairError(AssertionError):
    """An input of the suite contains a pair whose membership hangs on the kernel's rounding: change the input."""


class Ratio(NamedTuple):
    """A probability as numerator and denominator, not reduced: their size says whether the kernel is exact."""

    numerator: int
    denominator: int

    @property
    def exact(self) -> Fraction:
        """The probability."""
        return Fraction(self.numerator, self.denominator)

    @property
    def nearest(self) -> float:
        """The double nearest to it (Python divides integers with correct rounding)."""
        return self.numerator / self.denominator

    @property
    def small(self) -> bool:
        """Whether every number that the kernel needs is a double."""
        return self.numerator < EXACT_BELOW and self.denominator < EXACT_BELOW


@lru_cache(maxsize=1 << 16)
def _difference_probability(l1: int, l2: int, offset: int, lo: int, hi: int) -> Ratio:
    """P(lo <= D <= hi) for D = offset + U(0, l2) - U(0, l1)."""
    if l1 == 0 and l2 == 0:
        return Ratio(int(lo <= offset <= hi), 1)
    if l1 == 0 or l2 == 0:
        start, end = offset - l1, offset + l2
        return Ratio(max(0, min(hi, end) - max(lo, start)), end - start)

    def ramps(z: int) -> int:
        corners = ((-l1, 1), (0, -1), (l2 - l1, -1), (l2, 1))
        return sum(sign * max(z - (offset + corner), 0) ** 2 for corner, sign in corners)

    return Ratio(ramps(hi) - ramps(lo), 2 * l1 * l2)


def probability(left: tuple[int, int], right: tuple[int, int], lo: int, hi: int) -> Ratio:
    """P(lo <= X_right - X_left <= hi) for the intervals `left` and `right` (ends equal: a point), exactly.

    >>> probability((0, 10), (12, 20), -15, 15).exact, probability((5, 5), (5, 7), 0, 1).exact
    (Fraction(27, 32), Fraction(1, 2))
    """
    return _difference_probability(left[1] - left[0], right[1] - right[0], right[0] - left[0], lo, hi)


def is_match(p: Ratio, confidence: float) -> bool:
    """Whether the canonical kernel must accept a pair of this probability; see the module's text.

    >>> is_match(Ratio(4, 5), 0.8), is_match(Ratio(4, 5), 0.8000000000000002), is_match(Ratio(2**60 - 1, 2**60), 1.0)
    (True, False, False)
    """
    if confidence == 1.0 or p.numerator == 0 or p.numerator == p.denominator:
        return p.numerator == p.denominator  # certain pairs, and only they, have probability 1
    distance = p.exact - Fraction(confidence)
    if abs(distance) > BAND:
        return distance > 0
    if not p.small:
        raise AmbiguousPairError(f"{p.numerator}/{p.denominator} is within 2^-49 of {confidence!r}, not small")
    return p.nearest >= confidence


class Fault(NamedTuple):
    """A row that cannot be used: its code."""

    code: str


def read_time(spec: TimeSpec, row: dict[str, Any], types: dict[str, pa.DataType]) -> tuple[int, int] | Fault:
    """A row's interval in microseconds, or why it is refused (one fault: in the order of the codes)."""
    ends: list[int] = []
    for name in spec.columns:
        if row[name] is None:
            return Fault("WA-1003")
        unit = types[name].unit if pa.types.is_timestamp(types[name]) else "us"
        ends.append(int(row[name] * _PER_MICROSECOND[unit] // 1))
    t_min, t_max = ends[0], ends[-1]
    if not (_FIRST_US <= t_min <= _LAST_US and _FIRST_US <= t_max <= _LAST_US):
        return Fault("WA-1007")
    if t_min > t_max:
        return Fault("WA-1004")
    longest, shortest = spec.max_uncertainty_us, spec.min_uncertainty_us
    if longest is not None and t_max - t_min > longest:
        return Fault("WA-1005")
    if t_max - t_min < shortest:
        return Fault("WA-1006")
    return t_min, t_max


class Event(NamedTuple):
    """A usable row: its interval, its key (None: meets nothing), and its values as `multiset` compares them."""

    t_min: int
    t_max: int
    key: tuple[object, ...] | None
    values: tuple[object, ...]

    @property
    def time(self) -> tuple[int, int]:
        """The interval."""
        return self.t_min, self.t_max


def key_of(values: Sequence[object]) -> tuple[object, ...] | None:
    """A key as SQL and pandas compare it: null equals nothing, NaN equals NaN, -0.0 equals 0.0.

    >>> key_of([1, None]) is None, key_of([float("nan")]) == key_of([float("nan")]), key_of([-0.0]) == key_of([0.0])
    (True, True, True)
    """
    if any(value is None for value in values):
        return None
    return tuple("NaN" if value != value else value for value in values)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, timestamps as integers in their own unit (datetime would cut nanoseconds)."""
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


Refused = list[tuple[str, tuple[object, ...]]]


def read(table: pa.Table, spec: TimeSpec, on: Sequence[str] = ()) -> tuple[list[Event], Refused]:
    """Events, and the refused rows as (code, values)."""
    types = {field.name: field.type for field in table.schema}
    events, refused = [], []
    values_of_rows = zip(*(multiset.cells(column) for column in table.columns), strict=True)
    for row, values in zip(plain_rows(table), values_of_rows, strict=True):
        time = read_time(spec, row, types)
        if isinstance(time, Fault):
            refused.append((time.code, values))
        else:
            events.append(Event(*time, key_of([row[name] for name in on]), values))
    return events, refused


class Pair(NamedTuple):
    """A match, with its exact probability."""

    left: Event
    right: Event
    p: Ratio


def by_key(events: Sequence[Event]) -> dict[tuple[object, ...], list[Event]]:
    """Events that can meet something, by key."""
    groups: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in events:
        if event.key is not None:
            groups[event.key].append(event)
    return groups


def candidates(left: Sequence[Event], right: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """All pairs of equal key."""
    partners = by_key(right)
    for event in left:
        if event.key is not None:
            for other in partners.get(event.key, ()):
                yield event, other


def pairs(left: Sequence[Event], right: Sequence[Event], condition: Condition) -> list[Pair]:
    """Every matching pair, once for each pair of rows."""
    found = []
    for event, other in candidates(left, right):
        p = probability(event.time, other.time, condition.lo_us, condition.hi_us)
        if is_match(p, condition.confidence):
            found.append(Pair(event, other, p))
    return found
