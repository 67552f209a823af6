"""Well-known distributions of time as templates: few buckets, and a bound on what that costs.

**The bound.** Let X1, X2 have the distribution functions F1, F2, and let templates stand for them whose functions
differ from these by at most e1, e2 anywhere. Exchanging one factor at a time in `P(X2 - X1 <= z) = E F2(z + X1)` shows
that it changes by at most e1 + e2, whatever z is. A condition has two ends, so `P(lo <= X2 - X1 <= hi)` changes by at
most 2 (e1 + e2). A template made with tolerance T keeps to e = T/4: two of them in a pair give P within T, one beside
an exact time gives P within T/2.

**The buckets.** Each distribution here is unimodal, so on either side of the mode the mass that lies farther out than y
is a convex function of y. A template replaces it by chords. They run from knots lowered by e (halved where less than 2e
is left), so that a chord may rise above the curve by as much as it starts below; each is made as long as the bound
allows, hence their number adapts to the curvature. A tail without end is cut where no more than e is left of it, inside
the same bound; a distribution with ends keeps exactly these. The largest gap between a chord and a convex curve is
where the curve has the chord's slope, which each distribution gives in closed form: the bound is checked, not
estimated.

Offsets are whole microseconds. Where even buckets of one microsecond would miss the bound (a normal distribution
narrower than 11 us at the default tolerance) the call is refused and says which tolerance can be had: a template cannot
stand for it that well, and a `Point` is often what is meant.
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
"""How far P may be off by default: below what most users know about their clocks."""

LEAST_TOLERANCE = 1e-6
"""Finer templates would have thousands of buckets, and rounding would begin to show."""

Knot = tuple[int, float]


def normal(mean: Duration, sd: Duration, *, tolerance: float = TOLERANCE) -> Template:
    """The normal distribution of a time with the given mean and standard deviation, as a template.

    P of any condition is off by at most `tolerance` if both sides of the pair are discretised so, by half of it if one
    is. 36 buckets over 3.5 standard deviations to each side at the default, in general about `1.1 / sqrt(tolerance)`;
    the cost is some twenty evaluations of the distribution function for each.

    Raises QueryError: WA-2006 for `sd` not above zero, a tolerance outside [1e-6, 1), or a distribution too narrow for
    the tolerance; WA-2002 for what is no duration.

    >>> template = normal(0, "20 ms")
    >>> len(template.masses), template.length_us
    (36, 139232)
    """
    middle, spread = parse_duration(mean, name="mean"), _positive(sd, "sd")
    side = _NormalSide(spread)
    return _template(middle, side, side, tolerance)


def exponential(mean: Duration, *, start: Duration = 0, tolerance: float = TOLERANCE) -> Template:
    """`start` plus an exponentially distributed time of the given mean, as a template; cut at about 8.3 means.

    Tolerance and errors as for `normal`.

    >>> exponential("1 s").edges[-1] - exponential("1 s").edges[0]
    8294051
    """
    return _template(parse_duration(start, name="start"), None, _ExponentialSide(_positive(mean, "mean")), tolerance)


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
    before, after = (_RampSide(width, width / sum(widths)) if width else None for width in widths)
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


def sum_of_uniforms(first: Duration, second: Duration, *, tolerance: float = TOLERANCE) -> Template:
    """The sum of two independent times, uniform in `[-first, first]` and in `[-second, second]`: a trapezoid.

    Exactly over `[-(first + second), first + second]`. Tolerance as for `normal`. Raises QueryError WA-2006 for a
    length not above zero.

    >>> sum_of_uniforms("1 s", "20 ms").length_us
    2040000
    """
    lengths = sorted((_positive(first, "first"), _positive(second, "second")))
    side = _TrapezoidSide(*lengths)
    return _template(0, side, side, tolerance)


def spend_of(tolerance: float) -> float:
    """What a distribution function may be off by for P to be off by at most `tolerance`: a quarter (see the module).

    A millionth of it is left to the rounding of the functions. Raises QueryError WA-2006 outside [1e-6, 1).

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


class _Side(Protocol):
    """One side of a mode, by the distance y >= 0 from it in microseconds."""

    @property
    def width(self) -> int | None:
        """Where the distribution ends on this side, None if it does not."""

    def beyond(self, y: float) -> float:
        """The mass farther out than y: convex and falling."""

    def distance_at(self, density: float) -> float:
        """Where the density, which falls with y, has this value; anything outside the side where it never does."""


@dataclass(frozen=True)
class _NormalSide:
    sd: int
    width = None

    def beyond(self, y: float) -> float:
        return math.erfc(y / (self.sd * math.sqrt(2))) / 2

    def distance_at(self, density: float) -> float:
        return self.sd * math.sqrt(max(-2 * math.log(density * self.sd * math.sqrt(2 * math.pi)), 0))


@dataclass(frozen=True)
class _ExponentialSide:
    mean: int
    width = None

    def beyond(self, y: float) -> float:
        return math.exp(-y / self.mean)

    def distance_at(self, density: float) -> float:
        return -self.mean * math.log(density * self.mean)


@dataclass(frozen=True)
class _RampSide:
    """A density that falls linearly to 0 at `width`, of total `mass`."""

    width: int
    mass: float

    def beyond(self, y: float) -> float:
        return self.mass * (1 - y / self.width) ** 2

    def distance_at(self, density: float) -> float:
        return self.width * (1 - density * self.width / (2 * self.mass))


@dataclass(frozen=True)
class _TrapezoidSide:
    """Half of the sum of two uniforms of half widths `short <= long`: level up to their difference, then a ramp."""

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


def _template(mode: int, before: _Side | None, after: _Side | None, tolerance: float) -> Template:
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


def _knots(side: _Side, spend: float) -> Iterator[Knot]:
    """Distances from the mode with the mass that the template puts farther out, from the mode to the side's end."""
    end = side.width if side.width is not None else _first_within(side, spend)
    knot, step = (0, side.beyond(0)), 1
    yield knot
    while knot[0] < end:
        following = _farthest(side, spend, knot, end, step)
        step = following[0] - knot[0]
        knot = following
        yield knot


def _first_within(side: _Side, spend: float) -> int:
    """The least distance beyond which no more than `spend` lies."""
    good = 1
    while side.beyond(good) > spend:
        good *= 2
    return _bisect(good // 2, good, lambda y: side.beyond(y) > spend)[1]


def _farthest(side: _Side, spend: float, knot: Knot, end: int, step: int) -> Knot:
    """The farthest next knot whose chord keeps within `spend`. Steeper chords do, so the good knots are a range."""

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


def _gap(side: _Side, near: Knot, far: Knot) -> float:
    """How far the chord rises above the curve; it starts and ends at most `spend` below it by construction."""
    slope = (near[1] - far[1]) / (far[0] - near[0])
    if slope <= 0:  # a step so short that the masses are the same double
        return near[1] - side.beyond(far[0])
    y = min(max(side.distance_at(slope), near[0]), far[0])
    return near[1] - slope * (y - near[0]) - side.beyond(y)


def _bisect(yes: int, no: int, holds: Callable[[int], bool]) -> tuple[int, int]:
    """Neighbouring integers between `yes` and `no`, the first of which still holds and the second no longer."""
    while no - yes > 1:
        middle = (yes + no) // 2
        if holds(middle):
            yes = middle
        else:
            no = middle
    return yes, no


class _TooNarrowError(Exception):
    """A bucket of one microsecond misses the bound."""


def _too_narrow(before: _Side | None, after: _Side | None, tolerance: float) -> QueryError:
    hint = "its microseconds matter little: use Point or uniform(...)"
    while (tolerance := tolerance * 1.25) < 1:
        try:
            for side in (before, after):
                if side is not None:
                    list(_knots(side, spend_of(tolerance)))
        except _TooNarrowError:
            continue
        hint = f"tolerance={math.ceil(tolerance * 1e6) / 1e6:g} can be had, or use Point or uniform(...)"
        break
    return _bad("the distribution is too narrow for whole microseconds at this tolerance", hint)


def _positive(value: Duration, name: str) -> int:
    microseconds = parse_duration(value, name=name)
    if microseconds <= 0:
        raise _bad(f"{name} is {value!r}", "give a duration above zero")
    return microseconds


def _bad(problem: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_OPTION, problem, hint)
