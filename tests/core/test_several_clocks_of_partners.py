"""Chance functions where right rows are readings of several clocks, against the mixture by exact rationals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.test_shared_clock_of_partners import ALL, LENGTHS, NEAR, side_of
from whenabouts.conformance import join_aggregate_oracle
from whenabouts.conformance.oracle import Time
from whenabouts.core.join_aggregate.chance_pieces import NONE, Chances, Clocks, Partners, chances
from whenabouts.core.join_aggregate.clock_kernels import MOST_DEGREE, parts_for
from whenabouts.core.join_aggregate.shared_clock import with_offsets

CONFIDENCES = (0.25, 0.75)


def found_for(
    left: Time, rights: Sequence[Time], clocks: Sequence[int], lo: int, hi: int, offset: int, left_offset: int = 0
) -> Chances:
    """The chances, each within 1e-12 of the exact ones."""
    values = [float(3 * j - 2) for j in range(len(rights))]
    truth = join_aggregate_oracle.chances_of_clocks(
        left, rights, clocks, lo, hi, offset, left_offset, list(map(Fraction, values))
    )
    rough = np.array([float(p) for p in truth.probabilities]) * (1 - 1e-4)
    at = np.flatnonzero([0 < p < 1 for p in truth.probabilities]).astype(np.int32)
    certain = np.array([sum(p == 1 for p in truth.probabilities)])
    partners = Partners(np.array([0, len(at)]), at, rough[at], certain, np.array(values, float)[at])
    bent = with_offsets(side_of([left]), [left_offset])
    ks = tuple(range(1, len(rights) + 1))
    found = chances(
        bent.rows, side_of(rights), lo, hi, partners, ALL, at_least=ks, count_at=CONFIDENCES, bends=bent.bends,
        clocks=Clocks(np.array(clocks, np.int64), offset),
    )  # fmt: skip
    scale = (1 + truth.expected_count) ** 2
    for value, exact in ((found.none[0], truth.none), (found.any[0], 1 - truth.none)):
        assert abs(Fraction(float(value)) - exact) <= NEAR
        assert (value == 0, value == 1) == (exact == 0, exact == 1)
    assert abs(Fraction(float(found.count_variance[0])) - truth.count_variance) <= NEAR * scale
    assert abs(Fraction(float(found.sum_variance[0])) - truth.sum_variance) <= NEAR * scale * 100
    for k, value in zip(ks, found.at_least[0].tolist(), strict=True):
        assert abs(Fraction(value) - truth.at_least[k]) <= NEAR
        assert (value == 0, value == 1) == (truth.at_least[k] == 0, truth.at_least[k] == 1)
    for confidence, k in zip(CONFIDENCES, found.count_at[0].tolist(), strict=True):
        assert truth.at_least[k] >= Fraction(confidence) - NEAR
        assert k == len(rights) or truth.at_least[k + 1] < Fraction(confidence) + NEAR
    return found


def test_worked_numbers() -> None:
    """Each of two gateways may be off by a second: given both offsets the five readings are independent."""
    rights = [Time(t - 10, t + 10) for t in (200, 210, 400, 700, 900)]
    one = found_for(Time(0, 0), rights, [0] * 5, 0, 500, 1000)
    assert one.none[0] == pytest.approx(1919 / 4800, rel=1e-15)
    two = found_for(Time(0, 0), rights, [0, 0, 1, 1, 0], 0, 500, 1000)
    five = found_for(Time(0, 0), rights, range(5), 0, 500, 1000)
    assert one.none[0] > two.none[0] > five.none[0]
    assert five.none[0] == pytest.approx(0.75**5, rel=1e-15)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Time, list[Time], list[int], int, int, int, int]:
    length = draw(LENGTHS)
    end, offset = draw(st.integers(-10, 10)), draw(LENGTHS.filter(bool))
    left, left_offset = Time(end - length, end), draw(st.just(0) | LENGTHS)
    if length > 3 and draw(st.booleans()):
        cut = draw(st.integers(1, length - 1))
        mass = Fraction(draw(st.integers(1, 7)), 8)
        left, left_offset = left._replace(shape=((-length, -cut, mass), (-cut, 0, 1 - mass))), 0
    lo, hi = draw(st.sampled_from([-(10**9), -5, 0, 3])), draw(st.sampled_from([5, 8, 10**6, 10**12]))
    by = offset + left_offset
    near = st.sampled_from([
        edge + shift for edge in (left.t_min - by, left.t_min, left.t_max + by) for shift in (lo, hi)
    ]).flatmap(lambda edge: st.integers(edge - 6, edge + 6))  # fmt: skip
    rights = []
    for _ in range(draw(st.integers(0, 3))):
        last = draw(near | st.integers(left.t_min - by, left.t_max + by))
        rights.append(Time(last - draw(LENGTHS), last))
    clocks = draw(st.lists(st.integers(0, 2), min_size=len(rights), max_size=len(rights)))
    return left, rights, clocks, lo, hi, offset, left_offset


@given(cases())
@settings(max_examples=12, deadline=None)
def test_the_mixture_over_all_offsets(case: tuple[Time, list[Time], list[int], int, int, int, int]) -> None:
    found_for(*case)


@pytest.mark.full
@given(cases())
@settings(max_examples=400, deadline=None)
def test_many_mixtures_over_all_offsets(case: tuple[Time, list[Time], list[int], int, int, int, int]) -> None:
    found_for(*case)


def test_one_clock_is_the_kernel_of_one_clock() -> None:
    """Two ways to the same number: the offset in the left time, and a clock of its own. Sixty partners halve pieces."""
    draw = np.random.default_rng(0)
    ends = draw.integers(-900, 900, 60)
    rights = side_of([Time(int(end) - 300, int(end)) for end in ends])
    ring = Partners(np.array([0, 60]), np.arange(60, dtype=np.int32), np.full(60, 0.3))
    bent = with_offsets(side_of([Time(-30, 30)]), [700])
    one = chances(bent.rows, rights, -200, 300, ring, ALL - 2, at_least=(1, 7, 30), bends=bent.bends)
    clock = Clocks(np.zeros(60, np.int64), 700)
    other = chances(side_of([Time(-30, 30)]), rights, -200, 300, ring, ALL - 2, at_least=(1, 7, 30), clocks=clock)
    for name in ("none", "any", "at_least"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=0, atol=1e-12)
    np.testing.assert_allclose(other.count_variance, one.count_variance, rtol=1e-12)


def test_the_order_of_partners_and_the_numbers_of_clocks_do_not_show() -> None:
    draw = np.random.default_rng(1)
    ends, of = draw.integers(-900, 900, 12), np.sort(draw.integers(0, 4, 12))
    given = [Time(int(end) - 100, int(end)) for end in ends]

    def none(order: np.ndarray) -> float:
        ring = Partners(np.array([0, 12]), np.arange(12, dtype=np.int32), np.full(12, 0.3))
        rights, clocks = side_of([given[at] for at in order]), Clocks(7 * of[order] + 3, 500)
        return float(chances(side_of([Time(0, 50)]), rights, -200, 300, ring, NONE, clocks=clocks).none[0])

    assert len({none(draw.permutation(12)) for _ in range(5)}) == 1


def test_the_parts_of_a_piece() -> None:
    """Against the bound of Gauss-Legendre quadrature in an ellipse, optimised here on a grid."""
    s = (1 + np.arange(1, 3000) / 100) ** 2
    for k, degree in enumerate(MOST_DEGREE.tolist()):
        assert parts_for(degree) <= 2**k
        if degree > 31:
            half = np.float64(2.0) ** -k * (s + 1 / s - 2) / 4
            r = 1 + 2 * half + 2 * np.sqrt(half + half**2)
            bound = np.log2(64 / 15 * 4 / 2) - 30 * np.log2(s) - np.log2(1 - 1 / s**2) + degree * np.log2(r)
            assert bound.min() <= -60
