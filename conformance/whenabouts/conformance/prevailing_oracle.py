"""Which right row prevails over a left row in an as-of join, recomputed from scratch in rationals.

Given the left time y, a right row is looked for at growing distance d: backward at y - d, forward at y + d, nearest at
both. With `H_k(d, y)` the probability that row k is met by distance d, and h_k its derivative in d,

    P_j    = E_y integral over [0, tolerance] of h_j(d, y) product over k != j of (1 - H_k(d, y)) dd
    P_none = E_y product over k of (1 - H_k(tolerance, y))

All distribution functions are piecewise linear, so this is an integral of polynomials in d and y over polygons with
rational corners, which is computed symbolically: there is no rounding, no pruning of rows and no mirroring. Points are
atoms. `by_orders` is a second way without any integral, for few rows and no tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Literal

from whenabouts.conformance.oracle import Time

Direction = Literal["backward", "forward", "nearest"]

Polynomial = dict[tuple[int, int], Fraction]
"""Coefficients of d^i y^j by (i, j)."""

Linear = tuple[Fraction, Fraction]
"""c0 + c1 y."""


@dataclass(frozen=True)
class Answer:
    """The probability of each right row, in the order given, and of none."""

    rows: tuple[Fraction, ...]
    none: Fraction


@dataclass(frozen=True)
class Rules:
    """The options of the join. `tolerance_us`: None is infinite."""

    direction: Direction = "backward"
    tolerance_us: int | None = None
    exact_matches: bool = True


@dataclass(frozen=True)
class _Row:
    """A right row: where it is in the input, and its buckets (start, end, probability); a point has one of length 0."""

    place: int
    buckets: tuple[tuple[int, int, Fraction], ...]

    @property
    def is_point(self) -> bool:
        return self.buckets[0][0] == self.buckets[0][1]

    @property
    def edges(self) -> set[int]:
        return {edge for start, end, _ in self.buckets for edge in (start, end)}

    def density(self, x: Fraction) -> Fraction:
        """At an x that is no edge."""
        return sum((p / (end - start) for start, end, p in self.buckets if start < x < end), Fraction(0))

    def line(self, x: Fraction) -> Linear:
        """The distribution function around an x that is no edge: c0 + c1 x."""
        c0, c1 = Fraction(0), Fraction(0)
        for start, end, p in self.buckets:
            if end < x:
                c0 += p
            elif start < x:
                slope = p / (end - start)
                c0, c1 = c0 - slope * start, c1 + slope
        return c0, c1


def _row(time: Time, place: int) -> _Row:
    return _Row(place, tuple((time.t_max + start, time.t_max + end, p) for start, end, p in time.buckets))


def prevailing(left: Time, right: Sequence[Time], rules: Rules, ranks: Sequence[int] | None = None) -> Answer:
    """The exact probabilities; `ranks`: the total order among right rows of equal time, by default that of the rows."""
    order = list(range(len(right))) if ranks is None else list(ranks)
    rows = [_row(time, place) for place, time in enumerate(right)]
    y = _row(left, -1)
    if y.is_point:
        at = y.buckets[0][0]
        excluded = [] if rules.exact_matches else [row for row in rows if row.is_point and row.buckets[0][0] == at]
        given = _Given([row for row in rows if row not in excluded], rules, order)
        shares = list(given.at_point(Fraction(at)))
    else:
        shares = list(_Given(rows, rules, order).over(y))
    found = [Fraction(0)] * len(rows)
    none = Fraction(0)
    for place, share in shares:
        if place < 0:
            none += share
        else:
            found[place] += share
    return Answer(tuple(found), none)


@dataclass(frozen=True)
class _Given:
    """The right rows under the rules."""

    rows: list[_Row]
    rules: Rules
    order: list[int]

    @property
    def _spread(self) -> list[_Row]:
        return [row for row in self.rows if not row.is_point]

    def over(self, y: _Row) -> Iterator[tuple[int, Fraction]]:
        """Shares of an uncertain left time, (place or -1 for none, probability)."""
        every = set().union(*(row.edges for row in self.rows), set())
        cuts = {Fraction(edge) for edge in every | y.edges}
        if self.rules.tolerance_us is not None:
            cuts |= {Fraction(edge + sign * self.rules.tolerance_us) for edge in every for sign in (-1, 1)}
        if self.rules.direction == "nearest":
            cuts |= {Fraction(one + other, 2) for one in every for other in every}
        for start, end, p in y.buckets:
            inside = sorted(cut for cut in cuts if start <= cut <= end)
            for y0, y1 in pairwise(inside):
                for place, integrand in self._shares((y0 + y1) / 2, (Fraction(0), Fraction(1))):
                    total = sum(
                        (c * (y1 ** (j + 1) - y0 ** (j + 1)) / (j + 1) for (_, j), c in integrand.items()), Fraction(0)
                    )
                    yield place, p / (end - start) * total

    def at_point(self, y: Fraction) -> Iterator[tuple[int, Fraction]]:
        """Shares of a left time that is a point."""
        for place, integrand in self._shares(y, (y, Fraction(0))):
            yield place, integrand.get((0, 0), Fraction(0))

    def _shares(self, middle: Fraction, y: Linear) -> Iterator[tuple[int, Polynomial]]:
        """Shares given y near `middle`, as polynomials in y alone."""
        direction = self.rules.direction
        ends: list[tuple[Fraction, Linear]] = []
        for edge in set().union(*(row.edges for row in self._spread), set()):
            ends += self._distance(edge, middle, y)
        reach: tuple[Fraction, Linear] | None = None
        if self.rules.tolerance_us is not None:
            reach = Fraction(self.rules.tolerance_us), (Fraction(self.rules.tolerance_us), Fraction(0))
        met: _Row | None = None
        for row in self.rows:
            if not row.is_point:
                continue
            for distance in self._distance(row.buckets[0][0], middle, y):
                if reach is None or distance[0] < reach[0] or (distance[0] == reach[0] and met is None):
                    reach, met = distance, row
                elif distance[0] == reach[0] and met is not None and self._prevails(row, met, middle):
                    met = row
        limits = sorted({(Fraction(0), (Fraction(0), Fraction(0))), *ends} | ({reach} if reach else set()))
        limits = [limit for limit in limits if reach is None or limit[0] <= reach[0]]
        for (d0, from_), (d1, to) in pairwise(limits):
            if d0 == d1:
                continue
            d = (d0 + d1) / 2
            factors = {row.place: self._not_met(row, middle, d, y) for row in self._spread}
            for row in self._spread:
                density = Fraction(0)
                if direction != "forward":
                    density += row.density(middle - d)
                if direction != "backward":
                    density += row.density(middle + d)
                if not density:
                    continue
                integrand: Polynomial = {(0, 0): density}
                for other in self._spread:
                    if other is not row:
                        integrand = _times(integrand, factors[other.place])
                yield row.place, _integral(integrand, from_, to)
        last: Polynomial = {(0, 0): Fraction(1)}
        if reach is not None:
            just_before = reach[0] - min((reach[0] - d for d, _ in limits if d < reach[0]), default=Fraction(0)) / 2
            for row in self._spread:
                last = _times(last, self._not_met(row, middle, just_before, y) if reach[0] else {(0, 0): Fraction(1)})
            last = _at(last, reach[1])
        else:
            beyond = max((d for d, _ in limits), default=Fraction(0)) + 1
            for row in self._spread:
                last = _times(last, self._not_met(row, middle, beyond, y))
        yield (-1 if met is None else met.place), last

    def _distance(self, edge: int, middle: Fraction, y: Linear) -> Iterator[tuple[Fraction, Linear]]:
        """How far `edge` is from y, at the middle and as a function of y, if the direction looks there."""
        if edge <= middle and self.rules.direction != "forward":
            yield middle - edge, (y[0] - edge, y[1])
        elif edge >= middle and self.rules.direction != "backward":
            yield edge - middle, (edge - y[0], -y[1])

    def _prevails(self, row: _Row, other: _Row, middle: Fraction) -> bool:
        """Of two points at the same distance."""
        at, at_other = row.buckets[0][0], other.buckets[0][0]
        if at != at_other:
            return at < at_other  # nearest: the one before
        later = self.order[row.place] > self.order[other.place]
        before = at <= middle and self.rules.direction != "forward"
        return later == before

    def _not_met(self, row: _Row, middle: Fraction, d: Fraction, y: Linear) -> Polynomial:
        """1 - H(d, y) near (middle, d), as a polynomial in d and y."""
        low, high = middle, middle
        low_d = high_d = Fraction(0)
        if self.rules.direction != "forward":
            low, low_d = middle - d, Fraction(-1)
        if self.rules.direction != "backward":
            high, high_d = middle + d, Fraction(1)
        result: Polynomial = {(0, 0): Fraction(1)}
        for at, by_d, sign in ((low, low_d, 1), (high, high_d, -1)):
            # A left time that is a point may lie on an edge; there the distribution function is continuous.
            c0, c1 = row.line(at) if at not in row.edges else (_value(row, at), Fraction(0))
            for power, c in (((0, 0), c0 + c1 * y[0]), ((0, 1), c1 * y[1]), ((1, 0), c1 * by_d)):
                result[power] = result.get(power, Fraction(0)) + sign * c
        return {power: c for power, c in result.items() if c}


def _value(row: _Row, x: Fraction) -> Fraction:
    shares = (p * min((x - start) / (end - start), Fraction(1)) for start, end, p in row.buckets if start < x)
    return sum(shares, Fraction(0))


def _times(one: Polynomial, other: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for (i, j), c in one.items():
        for (k, m), e in other.items():
            result[i + k, j + m] = result.get((i + k, j + m), Fraction(0)) + c * e
    return result


def _at(polynomial: Polynomial, d: Linear) -> Polynomial:
    """The polynomial in y that has d = c0 + c1 y put in."""
    powers: list[Polynomial] = [{(0, 0): Fraction(1)}]
    for _ in range(max((i for i, _ in polynomial), default=0)):
        powers.append(_times(powers[-1], {(0, 0): d[0], (0, 1): d[1]}))
    result: Polynomial = {}
    for (i, j), c in polynomial.items():
        for (_, k), e in powers[i].items():
            result[0, j + k] = result.get((0, j + k), Fraction(0)) + c * e
    return result


def _integral(polynomial: Polynomial, from_: Linear, to: Linear) -> Polynomial:
    """Integrated over d."""
    whole = {(i + 1, j): c / (i + 1) for (i, j), c in polynomial.items()}
    result = _at(whole, to)
    for power, c in _at(whole, from_).items():
        result[power] = result.get(power, Fraction(0)) - c
    return result


def by_orders(left: Time, right: Sequence[Time]) -> Answer:
    """Backward without a tolerance, by counting: times in one stretch between edges come in any order equally likely.

    Exponential in the number of rows.
    """
    y, rows = _row(left, -1), [_row(time, place) for place, time in enumerate(right)]
    edges = sorted(set().union(*(row.edges for row in [y, *rows])))
    stretches: list[tuple[int, int]] = []
    for start, end in pairwise([*edges, edges[-1]]):
        stretches += [(start, start)] + ([(start, end)] if start < end else [])

    def shares(row: _Row) -> list[tuple[int, Fraction]]:
        found = []
        for number, (start, end) in enumerate(stretches):
            if row.is_point:
                p = Fraction(int(start == end == row.buckets[0][0]))
            else:
                p = sum(
                    (p * (end - start) / (to - from_) for from_, to, p in row.buckets if from_ <= start and end <= to),
                    Fraction(0),
                )
            if p:
                found.append((number, p))
        return found

    result, none = [Fraction(0)] * len(rows), Fraction(0)
    for world in product(shares(y), *map(shares, rows)):
        p = Fraction(1)
        for _, share in world:
            p *= share
        at = world[0][0]
        places = [number for number, _ in world[1:]]
        start, end = stretches[at]
        beside = [place for place, number in enumerate(places) if number == at]
        if start == end and beside:
            result[beside[-1]] += p  # points at one instant: the last in order
            continue
        for place in beside:
            result[place] += p / (len(beside) + 1)
        p /= len(beside) + 1  # the left time is before all others in its stretch
        before = max((number for number in places if number < at), default=None)
        if before is None:
            none += p
            continue
        tied = [place for place, number in enumerate(places) if number == before]
        if stretches[before][0] == stretches[before][1]:
            tied = tied[-1:]
        for place in tied:
            result[place] += p / len(tied)
    return Answer(tuple(result), none)
