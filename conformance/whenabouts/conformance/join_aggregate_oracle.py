"""Join aggregates by exact rationals and plain loops: nothing of the core's algorithms.

Given the instant y of the left row its partners are independent, and each p_j(y) = P(lo <= X_j - y <= hi) is linear
between the cuts: the edges of the left row's density, and every edge of a right row's density less lo or hi. On such a
piece the distribution of the number of partners is a polynomial in y, which is integrated exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from whenabouts.conformance import multiset
from whenabouts.conformance.oracle import Time

Polynomial = list[Fraction]
"""Coefficients of 1, x, x^2, ... on a piece, where x runs from 0 to 1."""

_ZERO, _ONE = Fraction(0), Fraction(1)


class Chances(NamedTuple):
    """What is asked about the partners of one left row; `at_least[k]` is P(N >= k), for k from 0 to the partners."""

    expected_count: Fraction
    expected_sum: Fraction
    count_variance: Fraction
    sum_variance: Fraction
    at_least: tuple[Fraction, ...]
    probabilities: tuple[Fraction, ...]

    @property
    def none(self) -> Fraction:
        """P(N = 0)."""
        return 1 - self.at_least[1] if len(self.at_least) > 1 else _ONE

    def count_at(self, confidence: float) -> int:
        """The greatest k with P(N >= k) >= confidence."""
        return max(k for k, p in enumerate(self.at_least) if p >= Fraction(confidence))


def chances(left: Time, rights: Sequence[Time], lo: int, hi: int, values: Sequence[Fraction | None] = ()) -> Chances:
    """The chances of a left row; a value of None counts for no sum.

    >>> found = chances(Time(0, 10), [Time(12, 12)] * 3, 0, 5)
    >>> found.none, found.count_variance, found.at_least[3]
    (Fraction(7, 10), Fraction(189, 100), Fraction(3, 10))
    """
    return _chances(_moments(left, rights, lo, hi), values)


def chances_of_clock(
    left: Time, rights: Sequence[Time], lo: int, hi: int, offsets: Sequence[int], values: Sequence[Fraction | None] = ()
) -> Chances:
    """The chances where one clock stamped all right rows: the mixture over its offset, exactly.

    Times have own errors only. `offsets`: that of the right clock, and of the left one if it has another. Their sum,
    added to the left time, has a density that is linear between its edges. Given the sum, every moment is a polynomial
    between the sums that bring an edge of the left row's density to one of a right row's, less lo or hi.

    >>> at = [Time(t - 10, t + 10) for t in (200, 210, 400, 700, 900)]
    >>> found = chances_of_clock(Time(0, 0), at, 0, 500, [1000])
    >>> found.expected_count, found.none, found.count_variance
    (Fraction(5, 4), Fraction(1919, 4800), Fraction(1043, 800))
    """
    return _chances(_moments_of_clock(left, rights, lo, hi, offsets), values)


def chances_of_clocks(
    left: Time,
    rights: Sequence[Time],
    clocks: Sequence[int],
    lo: int,
    hi: int,
    offset: int,
    left_offset: int = 0,
    values: Sequence[Fraction | None] = (),
) -> Chances:
    """The chances where right row j is a reading of the clock `clocks[j]`, each of which has an offset of its own.

    Times have own errors only. Given the left row's instant the clocks are independent, and the moments of one are
    those of `chances_of_clock`; they are polynomials in that instant between the sums of an edge of a right row, less
    lo or hi, and either end of the offset. `left_offset`: of the left row's own clock; then it has no histogram.

    >>> found = chances_of_clocks(Time(0, 0), [Time(3, 3)] * 3, [1, 1, 2], -1, 1, 5)
    >>> found.expected_count, found.none, found.at_least[3]
    (Fraction(3, 5), Fraction(16, 25), Fraction(1, 25))
    """
    numbers = sorted(set(clocks))
    members = {d: [j for j, clock in enumerate(clocks) if clock == d] for d in numbers}
    edges_left, height = _density(left, left_offset)
    edges_right = {right.t_max + edge for right in rights for first, last, _ in right.buckets for edge in (first, last)}
    cuts = {edge - shift + by for edge in edges_right for shift in (lo, hi) for by in (-offset, offset)}
    inside = sorted({cut for cut in cuts if edges_left[0] < cut < edges_left[-1]} | set(edges_left))
    points, weights = _quadrature(max(len(rights) + len(numbers), 4) + 1)
    mixed: _Moments | None = None
    for a, b in pairwise(inside) if len(inside) > 1 else [(inside[0], inside[0])]:
        for x, weight in zip(points, weights, strict=True):
            y = a + (b - a) * x
            share = weight * ((b - a) * height(y) if a < b else 1)
            given = _Moments([_ONE], [], [])
            at = Time(y, y)  # type: ignore[arg-type]  # rationals are fine
            for d in numbers:
                own = _moments_of_clock(at, [rights[j] for j in members[d]], lo, hi, [offset])
                given = given.beside(own)
            given = given.times(share)
            mixed = given if mixed is None else mixed.plus(given)
    assert mixed is not None, "there is a piece"
    order = [j for d in numbers for j in members[d]]
    back = [order.index(j) for j in range(len(rights))]
    each, both = [mixed.each[j] for j in back], [[mixed.both[j][k] for k in back] for j in back]
    return _chances(_Moments(mixed.counts, each, both), values)


def _density(left: Time, offset: int) -> tuple[list[int], Callable[[Fraction], Fraction]]:
    """The edges of a left row's density, with an offset of its own clock, and its height."""
    if not offset:
        buckets = [(left.t_max + first, left.t_max + last, mass) for first, last, mass in left.buckets]

        def of_bucket(y: Fraction) -> Fraction:
            return sum((mass / (last - first) for first, last, mass in buckets if first < y < last), _ZERO)

        return sorted({edge for first, last, _ in buckets for edge in (first, last)}), of_bucket
    first, last = left.t_min, left.t_max

    def of_sum(y: Fraction) -> Fraction:
        if first == last:
            return Fraction(1, 2 * offset)
        start, end = max(y - offset, Fraction(first)), min(y + offset, Fraction(last))
        return max(end - start, _ZERO) / (2 * offset * (last - first))

    return sorted({first - offset, first + offset, last - offset, last + offset}), of_sum


def _moments_of_clock(left: Time, rights: Sequence[Time], lo: int, hi: int, offsets: Sequence[int]) -> _Moments:
    above = sorted(offset for offset in offsets if offset)
    if not above:
        return _moments(left, rights, lo, hi)
    end, flat = sum(above), above[1] - above[0] if len(above) == 2 else above[0]
    edges_left = {left.t_max + edge for first, last, _ in left.buckets for edge in (first, last)}
    edges_right = {right.t_max + edge for right in rights for first, last, _ in right.buckets for edge in (first, last)}
    cuts = {edge - shift - start for edge in edges_right for shift in (lo, hi) for start in edges_left}
    inside = sorted({cut for cut in cuts if -end < cut < end} | {-end, -flat, flat, end})
    degree = len(rights) + 2
    points, weights = _quadrature(degree)
    mixed: _Moments | None = None
    for a, b in pairwise(inside):
        for x, weight in zip(points, weights, strict=True):
            at = a + (b - a) * x
            height = min(Fraction(end - abs(at), end - flat), _ONE) if flat < end else _ONE
            share = weight * (b - a) * height / (end + flat)  # the trapezoid's area is end + flat
            if share:
                given = _moments(_moved(left, at), rights, lo, hi)
                mixed = given.times(share) if mixed is None else mixed.plus(given.times(share))
    assert mixed is not None, "the density is above 0 somewhere"
    return mixed


class _Moments(NamedTuple):
    """P(N = k), P(B_j) and P(B_j and B_k): what mixes linearly."""

    counts: list[Fraction]
    each: list[Fraction]
    both: list[list[Fraction]]

    def times(self, share: Fraction) -> _Moments:
        both = [[share * p for p in row] for row in self.both]
        return _Moments([share * p for p in self.counts], [share * p for p in self.each], both)

    def beside(self, other: _Moments) -> _Moments:
        """Of both together, if they are independent."""
        counts = [_ZERO] * (len(self.counts) + len(other.counts) - 1)
        for j, p in enumerate(self.counts):
            for k, q in enumerate(other.counts):
                counts[j + k] += p * q
        both = [[*row, *(p * q for q in other.each)] for row, p in zip(self.both, self.each, strict=True)]
        both += [[*(p * q for q in self.each), *row] for row, p in zip(other.both, other.each, strict=True)]
        return _Moments(counts, [*self.each, *other.each], both)

    def plus(self, other: _Moments) -> _Moments:
        def sums(one: list[Fraction], more: list[Fraction]) -> list[Fraction]:
            return [p + q for p, q in zip(one, more, strict=True)]

        both = [sums(one, more) for one, more in zip(self.both, other.both, strict=True)]
        return _Moments(sums(self.counts, other.counts), sums(self.each, other.each), both)


def _moments(left: Time, rights: Sequence[Time], lo: int, hi: int) -> _Moments:
    counts = [_ZERO] * (len(rights) + 1)
    each = [_ZERO] * len(rights)
    both = [[_ZERO] * len(rights) for _ in rights]
    for weight, shares in _pieces(left, rights, lo, hi):
        for k, polynomial in enumerate(_distribution(shares)):
            counts[k] += weight * _integral(polynomial)
        for j, p in enumerate(shares):
            each[j] += weight * _integral(p)
            for k, other in enumerate(shares):
                both[j][k] += weight * _integral(p if j == k else _product(p, other))
    return _Moments(counts, each, both)


def _chances(moments: _Moments, values: Sequence[Fraction | None]) -> Chances:
    counts, each, both = moments
    v = [_ZERO if value is None else Fraction(value) for value in values] or [_ZERO] * len(each)
    pairs = [(j, k) for j in range(len(each)) for k in range(len(each))]
    return Chances(
        expected_count=sum(each, _ZERO),
        expected_sum=sum((v[j] * each[j] for j in range(len(each))), _ZERO),
        count_variance=sum((both[j][k] - each[j] * each[k] for j, k in pairs), _ZERO),
        sum_variance=sum((v[j] * v[k] * (both[j][k] - each[j] * each[k]) for j, k in pairs), _ZERO),
        at_least=tuple(sum(counts[k:], _ZERO) for k in range(len(counts))),
        probabilities=tuple(each),
    )


@lru_cache
def _quadrature(degree: int) -> tuple[list[Fraction], list[Fraction]]:
    """Points inside [0, 1], and weights that integrate polynomials up to the degree exactly."""
    points = [Fraction(k + 1, degree + 2) for k in range(degree + 1)]
    weights = []
    for x in points:
        basis: Polynomial = [_ONE]
        for other in points:
            if other != x:
                basis = _product(basis, [-other / (x - other), 1 / (x - other)])
        weights.append(_integral(basis))
    return points, weights


def _moved(time: Time, by: Fraction) -> Time:
    return time._replace(t_min=time.t_min + by, t_max=time.t_max + by)  # type: ignore[arg-type]  # rationals are fine


def _pieces(left: Time, rights: Sequence[Time], lo: int, hi: int) -> list[tuple[Fraction, list[Polynomial]]]:
    """The pieces of the left row's density: the probability of each, and p_j on it."""
    if not left.shape and left.t_min == left.t_max:
        return [(_ONE, [[_share(right, Fraction(left.t_max), lo, hi)] for right in rights])]
    cuts = {
        left.t_max + start + shift
        for right in rights
        for first, last, _ in right.buckets
        for start in (first + right.t_max - left.t_max, last + right.t_max - left.t_max)
        for shift in (-lo, -hi)
    }
    found = []
    for first, last, mass in left.buckets:
        start, end = left.t_max + first, left.t_max + last
        inside = sorted({cut for cut in cuts if start < cut < end} | {start, end})
        for a, b in pairwise(inside):
            weight = mass * Fraction(b - a, end - start)
            found.append((weight, [_line(right, a, b, lo, hi) for right in rights]))
    return found


def _line(right: Time, a: int, b: int, lo: int, hi: int) -> Polynomial:
    """p on a piece, through its values at a third and two thirds: a point jumps at the ends."""
    first, second = (_share(right, a + Fraction(b - a) * k / 3, lo, hi) for k in (1, 2))
    return [2 * first - second, 3 * (second - first)]


def _share(right: Time, y: Fraction, lo: int, hi: int) -> Fraction:
    """P(lo <= X - y <= hi)."""
    total = _ZERO
    for start, end, mass in right.buckets:
        first, last = Fraction(right.t_max + start), Fraction(right.t_max + end)
        if first == last:
            total += mass * (lo <= first - y <= hi)
        else:
            total += mass * max(min(last, y + hi) - max(first, y + lo), _ZERO) / (last - first)
    return total


def _distribution(shares: Sequence[Polynomial]) -> list[Polynomial]:
    """P(N = k) for each k, as polynomials."""
    found: list[Polynomial] = [[_ONE]]
    for p in shares:
        q = [1 - p[0], *(-c for c in p[1:])]
        without = [_product(polynomial, q) for polynomial in found] + [[_ZERO]]
        with_it = [[_ZERO]] + [_product(polynomial, p) for polynomial in found]
        found = [_sum(one, other) for one, other in zip(without, with_it, strict=True)]
    return found


def _product(first: Polynomial, second: Polynomial) -> Polynomial:
    found = [_ZERO] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            found[i + j] += a * b
    return found


def _sum(first: Polynomial, second: Polynomial) -> Polynomial:
    length = max(len(first), len(second))
    return [sum((p[i] for p in (first, second) if i < len(p)), _ZERO) for i in range(length)]


def _integral(polynomial: Polynomial) -> Fraction:
    """From x = 0 to 1."""
    return sum((c / (power + 1) for power, c in enumerate(polynomial)), _ZERO)


def decided(function: str, values: Sequence[Any]) -> Any:
    """A decided function of the values of a left row's pairs, in the canonical order of the right rows.

    Numbers compare by size, -0.0 before 0.0 (but they are not distinct), NaN last; a null is no value, except to
    `first`, `last` and `collect`.

    >>> [decided(name, [2.0, None, -0.0, 0.0]) for name in ("count", "sum", "mean", "min", "last", "count_distinct")]
    [3, 2.0, 0.6666666666666666, -0.0, 0.0, 2]
    """
    return _FUNCTIONS[function](list(values))


def exact_sum(values: Sequence[Any]) -> Any:
    """The exact sum, rounded once; -0.0 if all values are. Integers and decimals stay exact."""
    if isinstance(values[0], Decimal):
        scale = max(-int(value.as_tuple().exponent) for value in values)
        return Decimal(f"{sum(int(Fraction(value) * 10**scale) for value in values)}E-{scale}")
    if not isinstance(values[0], float):
        return sum(values)
    if not all(map(math.isfinite, values)):
        return sum(value for value in values if not math.isfinite(value))
    if all(value == 0 and math.copysign(1, value) < 0 for value in values):
        return -0.0
    total = sum(map(Fraction, values), _ZERO)
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _present(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _mean(values: list[Any]) -> float | None:
    present = _present(values)
    return float(exact_sum(present)) / float(len(present)) if present else None


def _by_size(value: Any) -> tuple[bool, Any, bool]:
    """The order of `min` and `max`."""
    if isinstance(value, float):
        return value != value, 0.0 if value != value else value, math.copysign(1, value) > 0
    return False, value.encode() if isinstance(value, str) else value, False


def _extreme(choose: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    return lambda values: choose(_present(values), key=_by_size, default=None)


def _one_zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "count": lambda values: len(_present(values)),
    "any": bool,
    "sum": lambda values: exact_sum(_present(values)) if _present(values) else None,
    "mean": _mean,
    "min": _extreme(min),
    "max": _extreme(max),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "count_distinct": lambda values: len({multiset.cell(_one_zero(value)) for value in _present(values)}),
    "collect": lambda values: values,
}
