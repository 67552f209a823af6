"""The answers, recomputed from scratch: exact rationals, plain Python loops, nothing of the core's algorithms.

Probability. X1 is uniform on [a1, b1], X2 on [a2, b2], D = X2 - X1. With r(x) = max(x, 0) the distribution function of
D for positive lengths is a sum of four squared ramps,

    2 l1 l2 P(D <= z) = r(z - (a2 - b1))^2 - r(z - (a2 - a1))^2 - r(z - (b2 - b1))^2 + r(z - (b2 - a1))^2

which loses digits in floats but not in integers; the kernel under test sums trapezoids instead. If one time is a
point, D is uniform; if both are, it is a number. A histogram is a mixture of uniforms, so P is the sum of this over all
pairs of buckets, weighted with the product of their probabilities: n1 n2 terms, no cumulative sums, no tables.

Membership. The spec says: a pair is a match iff the kernel's value >= confidence. For points and intervals the kernel
errs by at most 5 * 2^-53 relative, so the exact P decides wherever |P - confidence| > 2^-49; with a histogram it may
err by 2^-40, its guard band. Closer than that (ties: P = 4/5 and the float 0.8, which is not 4/5) P decides too where
the kernel's value is known: for points and intervals as long as the numerator and the denominator are integers below
2^53, since the kernel then does nothing inexact but one division and gives the double nearest to P; for histograms as
long as lengths and probabilities of buckets are dyadic (k / 2^n) and all terms of the sum are multiples of one 2^-n,
n <= 52, since then nothing is rounded at all. A pair that is neither is *ambiguous*: no independent oracle can know the
kernel's last bit, so the oracle raises `AmbiguousPairError` and the inputs of the suite contain no such pair. Certain
and impossible pairs are never ambiguous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from math import floor, lcm
from typing import Any, NamedTuple

import pyarrow as pa

from whenabouts.conformance import multiset
from whenabouts.core.durations import parse_duration
from whenabouts.core.times.clock_errors import Clock
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.learned import Learned
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.times.templates import Template
from whenabouts.core.times.time_specs import Around, Distributed, TimeSpec

BAND = Fraction(1, 2**49)
"""Half width of the stretch around the confidence in which rounding could decide, for points and intervals."""

HISTOGRAM_BAND = Fraction(1, 2**40)
"""The same where a time is a histogram: many terms are summed."""

EXACT_BELOW = 2**53
"""Integers up to here are doubles."""

Bucket = tuple[int, int, Fraction]
"""Start and end in microseconds before or after the row's `t_max`, and the probability in between."""

Shape = tuple[Bucket, ...]
"""A histogram without its place in time; probabilities sum to 1, no bucket has probability 0."""

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999

_PER_MICROSECOND = {"ns": Fraction(1, 1000), "us": Fraction(1), "ms": Fraction(1000), "s": Fraction(1_000_000)}


class AmbiguousPairError(AssertionError):
    """An input of the suite contains a pair whose membership depends on the kernel's rounding: change the input."""


class Time(NamedTuple):
    """When a row happened: uniform in `[t_min, t_max]` (equal: a point), or as a histogram anchored at `t_max`."""

    t_min: int
    t_max: int
    shape: Shape = ()

    @property
    def buckets(self) -> Shape:
        """The histogram; a uniform time has one bucket, of length 0 if it is a point."""
        return self.shape or ((self.t_min - self.t_max, 0, Fraction(1)),)


class Ratio(NamedTuple):
    """A probability as numerator and denominator, not reduced: their size says whether the kernel's value is known.

    For a mixture the denominator is a common one of all terms of the sum.
    """

    numerator: int
    denominator: int
    mixture: bool = False

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
        """Whether every number that the kernel needs is a double; of a mixture, every term and every partial sum."""
        if self.mixture and self.denominator & (self.denominator - 1):
            return False
        return self.numerator < EXACT_BELOW and self.denominator < EXACT_BELOW

    @property
    def band(self) -> Fraction:
        """How near the confidence the kernel's rounding could decide."""
        return HISTOGRAM_BAND if self.mixture else BAND


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


def _odd_part(length: int) -> int:
    """A length without its factors of two; 1 for a point."""
    return length // (length & -length) if length else 1


@lru_cache(maxsize=1 << 16)
def _mixture_probability(left: Shape, right: Shape, distance: int, lo: int, hi: int) -> Ratio:
    """P(lo <= D <= hi) for the anchors `distance` apart: the sum over all pairs of buckets.

    The lengths of the buckets go into the denominator where they are no power of two, even if they cancel in the sum: a
    kernel may divide by them.
    """
    terms, common = [], 1
    for start1, end1, p1 in left:
        for start2, end2, p2 in right:
            part = _difference_probability(end1 - start1, end2 - start2, distance + start2 - start1, lo, hi).exact
            terms.append(p1 * p2 * part)
            lengths = _odd_part(end1 - start1) * _odd_part(end2 - start2)
            common = lcm(common, p1.denominator * p2.denominator * part.denominator * lengths)
    return Ratio(int(sum(terms) * common), common, mixture=True)


def probability(left: Time | tuple[int, int], right: Time | tuple[int, int], lo: int, hi: int) -> Ratio:
    """P(lo <= X_right - X_left <= hi), exactly; a plain pair of ends is an interval, or a point if they are equal.

    >>> probability((0, 10), (12, 20), -15, 15).exact, probability((5, 5), (5, 7), 0, 1).exact
    (Fraction(27, 32), Fraction(1, 2))
    >>> half = Fraction(1, 2)
    >>> probability(Time(0, 30, ((-30, -20, half), (-10, 0, half))), (20, 20), 0, 30).exact  # a hole in the middle
    Fraction(1, 2)
    """
    first, second = Time(*left), Time(*right)
    if first.shape or second.shape:
        return _mixture_probability(first.buckets, second.buckets, second.t_max - first.t_max, lo, hi)
    lengths = first.t_max - first.t_min, second.t_max - second.t_min
    return _difference_probability(*lengths, second.t_min - first.t_min, lo, hi)


def can_meet(left: Time | tuple[int, int], right: Time | tuple[int, int], lo: int, hi: int) -> bool:
    """Whether any instants of two times, the ends of their supports included, are lo to hi apart: what `possibly` asks.

    >>> can_meet((0, 10), (12, 20), -2, 2), can_meet((0, 10), (12, 20), -1, 1), can_meet((5, 5), (5, 5), 0, 0)
    (True, False, True)
    >>> can_meet(Time(0, 30, ((-30, -20, Fraction(1, 2)), (-10, 0, Fraction(1, 2)))), (15, 15), 0, 4)  # in the hole
    False
    """
    first, second = Time(*left), Time(*right)
    apart = second.t_max - first.t_max
    return any(
        apart + start2 - end1 <= hi and apart + end2 - start1 >= lo
        for start1, end1, _ in first.buckets
        for start2, end2, _ in second.buckets
    )


def is_match(p: Ratio, confidence: float) -> bool:
    """Whether the canonical kernel must accept a pair of this probability; see the module's text.

    >>> is_match(Ratio(4, 5), 0.8), is_match(Ratio(4, 5), 0.8000000000000002), is_match(Ratio(2**60 - 1, 2**60), 1.0)
    (True, False, False)
    >>> is_match(Ratio(3, 4, mixture=True), 0.75)
    True
    """
    if confidence == 1.0 or p.numerator == 0 or p.numerator == p.denominator:
        return p.numerator == p.denominator  # certain pairs, and only they, have probability 1
    distance = p.exact - Fraction(confidence)
    if abs(distance) > p.band:
        return distance > 0
    if not p.small:
        raise AmbiguousPairError(f"{p.numerator}/{p.denominator} is nearer than {p.band} to {confidence!r}, not small")
    return p.nearest >= confidence


def satisfaction_time(first: Time, second: Time, confidence: Fraction) -> Fraction:
    """The greatest T with `P(X1 + max(second) - T >= X2) >= confidence`, to 2^-64 us (PTJoin Definition 8).

    The paper asks for equality, which is not unique where the distribution is flat. Found by bisection, with the exact
    probability at every step: it only falls as T grows. `0 < confidence <= 1`.

    >>> float(satisfaction_time(Time(0, 10), Time(0, 10), Fraction(1, 2)))
    10.0
    """

    def holds(shift: Fraction) -> bool:
        """Whether P(X1 - shift >= X2) reaches the confidence; in units in which the shift is whole."""
        unit = shift.denominator
        one, other = (
            Time(
                time.t_min * unit,
                time.t_max * unit,
                tuple((start * unit, end * unit, p) for start, end, p in time.buckets),
            )
            for time in (first, second)
        )
        return probability(one, other, -UNBOUNDED_US * unit, -shift.numerator).exact >= confidence

    good = Fraction(first.t_min - second.t_max)  # X1 surely comes after X2, moved by this
    bad = good + 2 ** (first.t_max - first.t_min + second.t_max - second.t_min + 1).bit_length()  # surely before it
    while bad - good > Fraction(1, 2**64):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good + second.t_max


def shape_of(template: Template) -> Shape:
    """The buckets of a template before its anchor, from the definition that the user gave.

    >>> from whenabouts.core import Template
    >>> shape_of(Template(((0, 5, "0.5"), (5, 15, "0.5"), (15, 20, 0))))
    ((-20, -15, Fraction(1, 2)), (-15, -5, Fraction(1, 2)))
    """
    given = [(parse_duration(lo), parse_duration(hi), Fraction(p)) for lo, hi, p in template.buckets]
    total, anchor = sum((p for *_, p in given), Fraction(0)), max(hi for _, hi, _ in given)
    return tuple((lo - anchor, hi - anchor, p / total) for lo, hi, p in given if p > 0)


class Fault(NamedTuple):
    """A row that cannot be used: its code."""

    code: str


def read_time(spec: TimeSpec, row: dict[str, Any], types: dict[str, pa.DataType]) -> Time | Fault:
    """When a row happened, or why it is refused (one fault: in the order in which they are looked for)."""
    if isinstance(spec, Clock):
        spec = spec.beyond_domain
    ends: list[int] = []
    for name in spec.columns:
        if row[name] is None:
            return Fault("WA-1003")
        unit = types[name].unit if pa.types.is_timestamp(types[name]) else "us"
        ends.append(int(row[name] * _PER_MICROSECOND[unit] // 1))
    t_min, t_max = ends[0], ends[-1]
    if not (_FIRST_US <= t_min <= _LAST_US and _FIRST_US <= t_max <= _LAST_US):
        return Fault("WA-1007")
    if isinstance(spec, Around):
        return _inside(Time(t_min - parse_duration(spec.before), t_max + parse_duration(spec.after)))
    if spec.templates:
        return _read_histogram(spec, row, t_max)
    if t_min > t_max:
        return Fault("WA-1004")
    longest, shortest = spec.max_uncertainty_us, spec.min_uncertainty_us
    if longest is not None and t_max - t_min > longest:
        return Fault("WA-1005")
    if t_max - t_min < shortest:
        return Fault("WA-1006")
    return Time(t_min, t_max)


def _read_histogram(spec: TimeSpec, row: dict[str, Any], t_max: int) -> Time | Fault:
    named = dict(spec.templates)
    if spec.template_column is None:
        (template,) = named.values()
    else:
        name = row[spec.template_column]
        if name is None or str(name) not in named:
            return Fault("WA-1013")
        template = named[str(name)]
    shape = shape_of(template)
    if isinstance(spec, Learned):
        clock_rate = 1 + Fraction(spec.drift_ppb, 10**9)
        t_max = spec.t_ref_us + floor((t_max - spec.t_ref_us - spec.offset_us) / clock_rate)
    if isinstance(spec, Distributed | Learned):  # the column is where the template's offset 0 lies, not where it ends
        t_max += max(parse_duration(hi) for _, hi, _ in template.buckets)
    return _inside(Time(t_max + shape[0][0], t_max, shape))


def _inside(time: Time) -> Time | Fault:
    """The time, unless it leaves the calendar."""
    return time if time.t_min >= _FIRST_US and time.t_max <= _LAST_US else Fault("WA-1007")


class Event(NamedTuple):
    """A usable row: when it happened, its key (None: meets nothing), and its values as `multiset` compares them."""

    t_min: int
    t_max: int
    key: tuple[object, ...] | None
    values: tuple[object, ...]
    shape: Shape = ()

    @property
    def time(self) -> Time:
        """When it happened."""
        return Time(self.t_min, self.t_max, self.shape)


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
            events.append(Event(time.t_min, time.t_max, key_of([row[name] for name in on]), values, time.shape))
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
        ends = event.time, other.time, condition.lo_us, condition.hi_us
        if can_meet(*ends) if condition.possible else is_match(p, condition.confidence):
            found.append(Pair(event, other, p))
    return found
