"""Chance functions where one clock stamped all right rows, against the mixture over its offset by exact rationals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from math import comb, factorial, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import join_aggregate_oracle
from whenabouts.conformance.oracle import Time
from whenabouts.core.join_aggregate.chance_pieces import (
    ANY,
    COUNT_VARIANCE,
    NONE,
    SUM_VARIANCE,
    Chances,
    Partners,
    Rows,
    chances,
    rows_of,
)
from whenabouts.core.join_aggregate.shared_clock import Bent, with_offsets
from whenabouts.core.probability.histogram_arrays import template_shapes
from whenabouts.core.times.templates import Template

NEAR = Fraction(1, 10**12)
MONTH_US = 30 * 86_400 * 10**6
ALL = NONE | ANY | COUNT_VARIANCE | SUM_VARIANCE


def side_of(times: Sequence[Time]) -> Rows:
    """Uniform times, or one histogram."""
    t_min, t_max = (np.array([time[end] for time in times], np.int64) for end in (0, 1))
    if not (times and times[0].shape):
        return rows_of(t_min, t_max)
    return rows_of(t_min, t_max, np.zeros(1, np.int32), template_shapes((Template(times[0].shape),)))


def found_for(
    left: Time, rights: Sequence[Time], lo: int, hi: int, offsets: Sequence[int], values: Sequence[float]
) -> tuple[Chances, Fraction]:
    """The chances; which partners are certain is known from the oracle, their probabilities roughly, as a join does."""
    truth = join_aggregate_oracle.chances_of_clock(left, rights, lo, hi, offsets, list(map(Fraction, values)))
    rough = np.array([float(p) for p in truth.probabilities]) * (1 - 1e-4)
    uncertain = np.array([0 < p < 1 for p in truth.probabilities], bool)
    at = np.flatnonzero(uncertain).astype(np.int32)
    certain = np.array([sum(p == 1 for p in truth.probabilities)])
    partners = Partners(np.array([0, len(at)]), at, rough[at], certain, np.array(values, float)[at])
    bent = with_offsets(side_of([left]), offsets)
    ks = tuple(range(1, len(rights) + 1))
    found = chances(bent.rows, side_of(rights), lo, hi, partners, ALL, at_least=ks, bends=bent.bends)
    scale = (1 + truth.expected_count) ** 2
    assert abs(Fraction(float(found.none[0])) - truth.none) <= NEAR
    assert abs(Fraction(float(found.any[0])) - (1 - truth.none)) <= NEAR
    assert abs(Fraction(float(found.count_variance[0])) - truth.count_variance) <= NEAR * scale
    of_sum = truth.sum_variance
    assert abs(Fraction(float(found.sum_variance[0])) - of_sum) <= NEAR * scale * 26
    for k, value in zip(ks, found.at_least[0].tolist(), strict=True):
        assert abs(Fraction(value) - truth.at_least[k]) <= NEAR
        assert (value == 0, value == 1) == (truth.at_least[k] == 0, truth.at_least[k] == 1)
    return found, truth.none


def test_worked_numbers() -> None:
    rights = [Time(t - 10, t + 10) for t in (200, 210, 400, 700, 900)]
    found, none = found_for(Time(0, 0), rights, 0, 500, [1000], [1, 2, 3, 4, 5])
    assert none == Fraction(1919, 4800)
    assert [found.none[0], found.count_variance[0]] == pytest.approx([1919 / 4800, 1043 / 800], rel=1e-15)


LENGTHS = st.one_of(st.just(0), st.integers(1, 8), st.integers(1, 10**6), st.integers(1, MONTH_US))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Time, list[Time], int, int, list[int], list[float]]:
    length = draw(LENGTHS)
    end = draw(st.integers(-10, 10))
    left, offsets = Time(end - length, end), draw(st.lists(LENGTHS, min_size=1, max_size=2))
    if length > 3 and draw(st.booleans()):
        cut = draw(st.integers(1, length - 1))
        mass = Fraction(draw(st.integers(1, 7)), 8)
        left, offsets = left._replace(shape=((-length, -cut, mass), (-cut, 0, 1 - mass))), offsets[:1]
    lo, hi = draw(st.sampled_from([-MONTH_US, -5, 0, 3])), draw(st.sampled_from([5, 8, 10**6, MONTH_US]))
    by = sum(offsets)
    near = st.sampled_from([
        edge + shift for edge in (left.t_min - by, left.t_min, left.t_max + by) for shift in (lo, hi)
    ]).flatmap(lambda edge: st.integers(edge - 6, edge + 6))  # fmt: skip
    rights = []
    for _ in range(draw(st.integers(0, 3))):
        last = draw(near | st.integers(left.t_min - by, left.t_max + by))
        rights.append(Time(last - draw(LENGTHS), last))
    values = draw(st.lists(st.integers(-5, 5).map(float), min_size=len(rights), max_size=len(rights)))
    return left, rights, lo, hi, offsets, values


@given(cases())
@settings(max_examples=30, deadline=None)
def test_the_mixture_over_offsets(case: tuple[Time, list[Time], int, int, list[int], list[float]]) -> None:
    found_for(*case)


def _mass_below(bent: Bent, row: int, y: int) -> float:
    """The distribution function of a bent density, by its Bernstein form."""
    shapes, number = bent.rows.shapes, bent.rows.shape[row]
    total = 0.0
    for entry in range(shapes.start[number], shapes.start[number + 1] - 1):
        start, end = (int(bent.rows.t_max[row] + shapes.edge[entry + k]) for k in (0, 1))
        x = min(max((y - start) / (end - start), 0.0), 1.0)
        b0, b1, b2 = bent.bends[3 * entry : 3 * entry + 3]
        cubic = b0 * (1 - (1 - x) ** 3) / 3 + b1 * (x**2 - 2 * x**3 / 3) + b2 * x**3 / 3
        total += shapes.mass[entry] * cubic
    return total


@pytest.mark.parametrize("lengths", [(0, 3, 3), (4, 6, 10), (5, 5, 5), (1, 2, 50), (1, 10**6, 10**12), (0, 0, 7)])
def test_densities_of_sums_of_uniform_times(lengths: tuple[int, int, int]) -> None:
    """Against truncated powers in exact rationals, at every edge and between."""
    own, *offsets = (2 * length for length in lengths)
    bent = with_offsets(side_of([Time(0, own), Time(7, 7 + own)]), [offset // 2 for offset in offsets])
    if not bent.bends.size:
        assert (bent.rows.t_min.tolist(), bent.rows.t_max.tolist()) == ([-lengths[2], 0], [lengths[2], 7 + lengths[2]])
        return
    widths = [width for width in (own, *offsets) if width]
    low = -sum(offsets) // 2
    corners = [(sum(chosen), len(chosen)) for n in range(len(widths) + 1) for chosen in combinations(widths, n)]
    area = prod(widths) * factorial(len(widths))
    for first, last in pairwise(sorted({corner for corner, _ in corners})):
        for y in {first, (first + last) // 2, last}:
            below = sum((-1) ** n * max(y - corner, 0) ** len(widths) for corner, n in corners) / area
            assert _mass_below(bent, 0, low + y) == pytest.approx(below, abs=4e-16)
            assert _mass_below(bent, 1, low + y + 7) == pytest.approx(below, abs=4e-16)
    assert (bent.bends >= 0).all()


def test_classes_of_one_clock() -> None:
    kinds = [Time(-50, 700), Time(200, 1300), Time(600, 601)]
    rights = [kind for kind, count in zip(kinds, (1, 2, 3), strict=True) for _ in range(count)]
    found_for(Time(0, 40), rights, -200, 300, [1000], [1.0] * len(rights))


@pytest.mark.parametrize("partners", [9, 60])
def test_many_partners_of_one_clock(partners: int) -> None:
    """More than 16 nodes would be needed, so pieces are halved; few nodes suffice where little changes."""
    bent = with_offsets(side_of([Time(-30, 30)]), [1000])

    def height(y: int) -> Fraction:
        return min(Fraction(1030 - abs(y), 60), Fraction(1)) / 2000

    def absent(y: int) -> Fraction:
        return 1 - Fraction(max(min(y + 300, 700) - max(y - 200, -50), 0), 750)

    cuts, none = sorted({-1030, -970, 970, 1030, -350, 150, 400, 900}), Fraction(0)
    for a, b in pairwise(cuts):
        for k in range(partners + 1):  # Bernstein: the integral of x^k (1 - x)^(n - k) is k! (n - k)! / (n + 1)!
            term = comb(partners, k) * absent(a) ** (partners - k) * absent(b) ** k * (b - a)
            falling = Fraction(factorial(k) * factorial(partners + 1 - k), factorial(partners + 2)) * height(a)
            rising = Fraction(factorial(k + 1) * factorial(partners - k), factorial(partners + 2)) * height(b)
            none += term * (falling + rising)
    rights = side_of([Time(-50, 700)] * partners)
    ring = Partners(np.array([0, partners]), np.arange(partners, dtype=np.int32), np.full(partners, 0.3))
    found = chances(bent.rows, rights, -200, 300, ring, NONE | ANY, at_least=(1,), bends=bent.bends)
    assert abs(Fraction(float(found.none[0])) - none) <= NEAR * Fraction(1, 100)
    assert abs(Fraction(float(found.any[0])) - (1 - none)) <= NEAR * Fraction(1, 100)
    assert abs(Fraction(float(found.at_least[0, 0])) - (1 - none)) <= NEAR * Fraction(1, 100)


def test_no_rows() -> None:
    nobody = side_of([])
    for offsets in ([5], [5, 3]):
        bent = with_offsets(nobody, offsets)
        assert bent.rows.t_max.size == 0
        assert bent.bends.size == 0


def test_no_offset_changes_nothing() -> None:
    left = side_of([Time(0, 5)])
    assert with_offsets(left, [0, 0]).rows is left
