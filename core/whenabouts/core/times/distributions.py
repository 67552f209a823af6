"""Well-known distributions of time as templates with few buckets, and a bound on the approximation error.

**The bound.** Let X1, X2 have the distribution functions F1, F2, and let templates approximate these functions to
within e1, e2 everywhere. Replacing one factor at a time in `P(X2 - X1 <= z) = E F2(z + X1)` shows that this
probability changes by at most e1 + e2, for any z. A condition has two bounds, so `P(lo <= X2 - X1 <= hi)` changes by
at most 2 (e1 + e2). A template with tolerance T uses e = T/4: two such templates in a pair give P within T, one with
an exact time gives P within T/2.

**The buckets.** Each distribution here is unimodal, so on either side of the mode the mass beyond distance y is a
convex function of y. A template replaces this function by chords. They start at knots lowered by e (halved where less
than 2e is left), so that a chord may rise above the curve by as much as it starts below it. Each chord is as long as
the bound allows, so their number adapts to the curvature. An infinite tail is cut where at most e of it is left, within
the same bound; a bounded distribution keeps its exact support. The largest gap between a chord and a convex curve is
where the curve has the chord's slope, which each distribution gives in closed form: the bound is verified, not
estimated.

Offsets are whole microseconds. If even buckets of one microsecond would exceed the bound (a normal distribution
narrower than 11 us at the default tolerance), the call is refused and names a tolerance that is possible. A `Point` is
often the better choice then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.templates import Template

TOLERANCE = 1e-3
"""The default error of P: smaller than most users' knowledge of their clocks."""

LEAST_TOLERANCE = 1e-6
"""Finer templates would have thousands of buckets, and rounding errors would matter."""

Knot = tuple[int, float]


def normal(mean: Duration, sd: Duration, *, tolerance: float = TOLERANCE) -> Template:
    """The normal distribution of a time with the given mean and standard deviation, as a template.

    The error of P is at most `tolerance` if both sides of a pair are such templates, and half of it if one side is. At
    the default there are 36 buckets over 3.5 standard deviations to each side, in general about `1.1 / sqrt(tolerance)`
    buckets. Cost: some twenty evaluations of the distribution function per bucket.

    Raises QueryError: WA-2006 unless `sd` is above zero, for a tolerance outside [1e-6, 1), or for a distribution too
    narrow for the tolerance; WA-2002 for an invalid duration.

    >>> template = normal(0, "20 ms")
    >>> len(template.masses), template.length_us
    (36, 139232)
    """
    middle, spread = parse_duration(mean, name="mean"), _positive(sd, "sd")
    side = _NormalHalf(spread)
    return _template(middle, side, side, tolerance)


def exponential(mean: Duration, *, start: Duration = 0, tolerance: float = TOLERANCE) -> Template:
    """`start` plus an exponentially distributed time with the given mean, as a template; cut at about 8.3 means.

    Tolerance and errors as for `normal`.

    >>> exponential("1 s").edges[-1] - exponential("1 s").edges[0]
    8294051
    """
    return _template(parse_duration(start, name="start"), None, _ExponentialHalf(_positive(mean, "mean")), tolerance)


def triangular(low: Duration, mode: Duration, high: Duration, *, tolerance: float = TOLERANCE) -> Template:
    """The triangular distribution over exactly `[low, high]` with its peak at `mode`, as a template.

    Tolerance as for `normal`. Raises QueryError WA-2006 unless `low <= mode <= high` and `low < high`.

    >>> triangular("0 s", "1 s", "4 s").length_us
    4000000
    """
    ends = [parse_duration(value, name=name) for value, name in ((low, "low"), (mode, "mode"), (high, "high"))]
    if not (ends[0] <= ends[1] <= ends[2] and ends[0] < ends[2]):
        raise _bad(f"low, mode and high are {ends} us", "give low <= mode <= high, and low < high")
    widths = ends[1] - ends[0], ends[2] - ends[1]
    before, after = (_RampHalf(width, width / sum(widths)) if width else None for width in widths)
    return _template(ends[1], before, after, tolerance)


def uniform(low: Duration, high: Duration) -> Template:
    """The uniform distribution over `[low, high]`: exactly a template of one bucket.

    Raises QueryError WA-2006 unless `low < high`.

    >>> uniform("-1 s", "1 s").buckets
    ((-1000000, 1000000, 1),)
    """
    ends = parse_duration(low, name="low"), parse_duration(high, name="high")
    if ends[0] >= ends[1]:
        raise _bad(f"low is {ends[0]} us and high {ends[1]} us", "give low < high")
    return Template(((*ends, 1),))


def sum_of_uniforms(
    first: Duration, second: Duration, third: Duration | None = None, *, tolerance: float = TOLERANCE
) -> Template:
    """The sum of independent times, uniform in `[-first, first]`, `[-second, second]` and perhaps `[-third, third]`.

    The density of two is a trapezoid. The support is exactly `[-(first + second + third), first + second + third]`.
    Tolerance as for `normal`. Raises QueryError WA-2006 unless all lengths are above zero.

    >>> sum_of_uniforms("1 s", "20 ms").length_us, sum_of_uniforms("1 s", "20 ms", "5 s").length_us
    (2040000, 12040000)
    """
    given = [("first", first), ("second", second), *([] if third is None else [("third", third)])]
    short, long, *longest = sorted(_positive(length, name) for name, length in given)
    side: _Half = _TrapezoidHalf(short, long)
    if longest:
        side = _WidenedHalf(_TrapezoidHalf(short, long), longest[0])
    return _template(0, side, side, tolerance)


def spend_of(tolerance: float) -> float:
    """The error of a distribution function that gives P within `tolerance`: a quarter of it (see the module docstring).

    A millionth of it is reserved for rounding. Raises QueryError WA-2006 outside [1e-6, 1).

    >>> spend_of(0.1)
    0.024999975
    """
    try:
        good = LEAST_TOLERANCE <= tolerance < 1
    except TypeError:
        good = False
    if not good:
        raise _bad(f"tolerance is {tolerance!r}", "give a number from 1e-6 to below 1")
    return tolerance / 4 * (1 - 1e-6)


class _Half(Protocol):
    """The distribution on one side of its mode, by the distance y >= 0 from the mode in microseconds."""

    @property
    def width(self) -> int | None:
        """Where the distribution ends on this side, None if it does not."""

    def beyond(self, y: float) -> float:
        """The mass beyond distance y: convex and falling."""

    def distance_at(self, density: float) -> float:
        """Where the density, which falls with y, has this value; if it never does, any distance outside the side."""


@dataclass(frozen=True)
class _NormalHalf:
    sd: int
    width = None

    def beyond(self, y: float) -> float:
        return math.erfc(y / (self.sd * math.sqrt(2))) / 2

    def distance_at(self, density: float) -> float:
        return self.sd * math.sqrt(max(-2 * math.log(density * self.sd * math.sqrt(2 * math.pi)), 0))


@dataclass(frozen=True)
class _ExponentialHalf:
    mean: int
    width = None

    def beyond(self, y: float) -> float:
        return math.exp(-y / self.mean)

    def distance_at(self, density: float) -> float:
        return -self.mean * math.log(density * self.mean)


@dataclass(frozen=True)
class _RampHalf:
    """A density that falls linearly to 0 at `width`, of total `mass`."""

    width: int
    mass: float

    def beyond(self, y: float) -> float:
        return self.mass * (1 - y / self.width) ** 2

    def distance_at(self, density: float) -> float:
        return self.width * (1 - density * self.width / (2 * self.mass))


@dataclass(frozen=True)
class _TrapezoidHalf:
    """Half of the sum of two uniforms of half widths `short <= long`: constant up to their difference, then a ramp."""

    short: int
    long: int

    @property
    def width(self) -> int:
        return self.short + self.long

    def beyond(self, y: float) -> float:
        if y <= self.long - self.short:
            return 0.5 - y / (2 * self.long)
        return (self.width - y) ** 2 / (8 * self.short * self.long)

    def distance_at(self, density: float) -> float:
        return self.width - density * 4 * self.short * self.long


@dataclass(frozen=True)
class _WidenedHalf:
    """Half of the sum of a trapezoid and a uniform of half width `by`, which is at least as wide as its parts.

    The mass beyond y is the mean of the trapezoid's mass beyond `y - by` to `y + by`, from its integral.
    """

    trapezoid: _TrapezoidHalf
    by: int

    @property
    def width(self) -> int:
        return self.trapezoid.width + self.by

    def beyond(self, y: float) -> float:
        return (self._integral(y - self.by) - self._integral(y + self.by)) / (2 * self.by)

    def distance_at(self, density: float) -> float:
        near, far = 0.0, float(self.width)
        while far - near > 1e-3:  # the density falls with the distance
            middle = (near + far) / 2
            above = (self._mass(middle - self.by) - self._mass(middle + self.by)) / (2 * self.by) > density
            near, far = (middle, far) if above else (near, middle)
        return near

    def _mass(self, u: float) -> float:
        """The trapezoid's mass beyond any u."""
        of_half = self.trapezoid.beyond(abs(u)) if abs(u) < self.trapezoid.width else 0.0
        return of_half if u >= 0 else 1 - of_half

    def _integral(self, u: float) -> float:
        """The integral of `_mass` from u to infinity."""
        if u < 0:
            return self._integral(-u) - u
        short, long, width = self.trapezoid.short, self.trapezoid.long, self.trapezoid.width
        flat = long - short
        ramp = max(width - max(u, flat), 0) ** 3 / (24 * short * long)
        return ramp if u >= flat else ramp + (flat - u) / 2 - (flat**2 - u**2) / (4 * long)


def _template(mode: int, before: _Half | None, after: _Half | None, tolerance: float) -> Template:
    spend = spend_of(tolerance)
    try:
        sides = [[] if side is None else list(_knots(side, spend)) for side in (before, after)]
    except _TooNarrowError:
        raise _too_narrow(before, after, tolerance) from None
    buckets = [(mode - far, mode - near, mass) for near, far, mass in map(_bucket, pairwise(sides[0]))][::-1]
    buckets += [(mode + near, mode + far, mass) for near, far, mass in map(_bucket, pairwise(sides[1]))]
    return Template(tuple(buckets))


def _bucket(ends: tuple[Knot, Knot]) -> tuple[int, int, float]:
    (near, above), (far, below) = ends
    return near, far, above - below


def _knots(side: _Half, spend: float) -> Iterator[Knot]:
    """Distances from the mode, each with the template's mass beyond it, from the mode to the side's end."""
    end = side.width if side.width is not None else _first_within(side, spend)
    knot, step = (0, side.beyond(0)), 1
    yield knot
    while knot[0] < end:
        following = _farthest(side, spend, knot, end, step)
        step = following[0] - knot[0]
        knot = following
        yield knot


def _first_within(side: _Half, spend: float) -> int:
    """The least distance beyond which no more than `spend` lies."""
    good = 1
    while side.beyond(good) > spend:
        good *= 2
    return _bisect(good // 2, good, lambda y: side.beyond(y) > spend)[1]


def _farthest(side: _Half, spend: float, knot: Knot, end: int, step: int) -> Knot:
    """The farthest next knot whose chord stays within `spend`. Steeper chords do too, so the good knots are a range."""

    def candidate(y: int) -> Knot:
        mass = 0.0 if y == end else side.beyond(y)
        return y, mass - min(spend, mass / 2)

    def keeps(y: int) -> bool:
        return _gap(side, knot, candidate(y)) <= spend

    at = knot[0]
    good = at + 1
    if not keeps(good):
        raise _TooNarrowError
    while good < end:
        tried = min(at + step, end)
        if tried > good:
            if not keeps(tried):
                return candidate(_bisect(good, tried, keeps)[0])
            good = tried
        step *= 2
    return candidate(good)


def _gap(side: _Half, near: Knot, far: Knot) -> float:
    """How far the chord rises above the curve; it starts and ends at most `spend` below it by construction."""
    slope = (near[1] - far[1]) / (far[0] - near[0])
    if slope <= 0:  # a step so short that the masses are the same double
        return near[1] - side.beyond(far[0])
    y = min(max(side.distance_at(slope), near[0]), far[0])
    return near[1] - slope * (y - near[0]) - side.beyond(y)


def _bisect(yes: int, no: int, holds: Callable[[int], bool]) -> tuple[int, int]:
    """The neighbouring integers between `yes` and `no` of which the first holds and the second does not."""
    while no - yes > 1:
        middle = (yes + no) // 2
        if holds(middle):
            yes = middle
        else:
            no = middle
    return yes, no


class _TooNarrowError(Exception):
    """Even a bucket of one microsecond exceeds the bound."""


def _too_narrow(before: _Half | None, after: _Half | None, tolerance: float) -> QueryError:
    hint = "use Point or uniform(...)"
    while (tolerance := tolerance * 1.25) < 1:
        try:
            for side in (before, after):
                if side is not None:
                    list(_knots(side, spend_of(tolerance)))
        except _TooNarrowError:
            continue
        hint = f"tolerance={math.ceil(tolerance * 1e6) / 1e6:g} is possible, or use Point or uniform(...)"
        break
    return _bad("the distribution is too narrow for whole microseconds at this tolerance", hint)


def _positive(value: Duration, name: str) -> int:
    microseconds = parse_duration(value, name=name)
    if microseconds <= 0:
        raise _bad(f"{name} is {value!r}", "give a duration above zero")
    return microseconds


def _bad(problem: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_OPTION, problem, hint)
