"""The chance functions against exact rationals, and the laws between them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import join_aggregate_oracle, oracle
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
from whenabouts.core.probability.histogram_arrays import template_shapes
from whenabouts.core.probability.histogram_probability import shape_probabilities_at
from whenabouts.core.times.templates import Template

ALL = NONE | ANY | COUNT_VARIANCE | SUM_VARIANCE
NEAR = Fraction(1, 10**12)
MONTH_US = 30 * 86_400 * 10**6


def side_of(times: Sequence[Time]) -> Rows:
    t_min, t_max = (np.array([time[end] for time in times], np.int64) for end in (0, 1))
    if not any(time.shape for time in times):
        return rows_of(t_min, t_max)
    shapes = list(dict.fromkeys(time.shape for time in times))
    number = np.array([shapes.index(time.shape) for time in times], np.int32)
    return rows_of(t_min, t_max, number, template_shapes(tuple(map(template_of, shapes))))


def template_of(shape: oracle.Shape) -> Template:
    buckets = list(shape)
    for (_, end, _), (start, _, _) in pairwise(shape):
        if end < start:
            buckets.append((end, start, Fraction(0)))
    return Template(tuple(sorted(buckets)))


def found_for(
    left: Time, rights: Sequence[Time], lo: int, hi: int, values: Sequence[float] | None = None, **asked: Any
) -> tuple[Chances, float]:
    """The chances of one left row, and the expected count; partners as the ranges of a join would give them."""
    sides = side_of([left]), side_of(rights) if rights else rows_of(np.empty(0), np.empty(0))
    at = np.zeros(len(rights), np.int32), np.arange(len(rights), dtype=np.int32)
    p = np.array([])
    if rights:
        triples = [(side.t_min, side.t_max, side.shape) for side in sides]
        p = shape_probabilities_at(*triples, *at, sides[0].shapes, sides[1].shapes, lo, hi)
    ring = np.flatnonzero((p > 0) & (p < 1)).astype(np.int32)
    value = None if values is None else np.array(values, float)[ring]
    partners = Partners(np.array([0, len(ring)]), ring, p[ring], np.array([int((p == 1).sum())]), value)
    asked.setdefault("functions", ALL if values is not None else ALL - SUM_VARIANCE)
    return chances(*sides, lo, hi, partners, **asked), float(partners.expected_count()[0])


def check(left: Time, rights: Sequence[Time], lo: int, hi: int, values: Sequence[float]) -> None:
    ks = tuple(range(1, len(rights) + 2))
    found, expected = found_for(left, rights, lo, hi, values, at_least=ks)
    truth = join_aggregate_oracle.chances(left, rights, lo, hi, [Fraction(value) for value in values])
    assert abs(Fraction(expected) - truth.expected_count) <= NEAR
    assert abs(Fraction(float(found.none[0])) - truth.none) <= NEAR
    assert abs(Fraction(float(found.any[0])) - (1 - truth.none)) <= NEAR
    scale = (1 + truth.expected_count) ** 2
    assert abs(Fraction(float(found.count_variance[0])) - truth.count_variance) <= NEAR * scale
    scale *= 1 + max((Fraction(value) ** 2 for value in values), default=Fraction(0))
    assert abs(Fraction(float(found.sum_variance[0])) - truth.sum_variance) <= NEAR * scale
    tails = found.at_least[0].tolist()
    for k, value in zip(ks, tails, strict=True):
        exact = truth.at_least[k] if k < len(truth.at_least) else Fraction(0)
        assert abs(Fraction(value) - exact) <= NEAR
        assert (value == 0) == (exact == 0)
        assert (value == 1) == (exact == 1)
    assert (found.none[0] == 0, found.none[0] == 1) == (truth.none == 0, truth.none == 1)
    assert (found.any[0] == 1, found.any[0] == 0) == (truth.none == 0, truth.none == 1)
    assert abs(found.none[0] + found.any[0] - 1) <= 1e-11
    assert abs(found.any[0] - tails[0]) <= 1e-15
    assert abs(sum(tails) - expected) <= 1e-11
    second = sum((2 * k - 1) * tail for k, tail in zip(ks, tails, strict=True))
    assert abs(second - found.count_variance[0] - expected**2) <= 1e-11 * float(1 + truth.expected_count) ** 2


class TestWorkedNumbers:
    LEFT, RIGHTS = Time(0, 10), [Time(8, 12), Time(10, 20), Time(3, 3), Time(12, 14)]
    PHI1 = Template(((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6")))
    PHI2 = Template(((0, 10, "0.15"), (10, 20, "0.3"), (20, 30, "0.4"), (30, 40, "0.15")))

    def test_four_partners_of_the_oracle(self) -> None:
        truth = join_aggregate_oracle.chances(self.LEFT, self.RIGHTS, 0, 5, [5, 1, 2, -3])
        assert truth.probabilities == (Fraction(9, 20), Fraction(1, 8), Fraction(3, 10), Fraction(1, 5))
        assert (truth.expected_count, truth.count_variance) == (Fraction(43, 40), Fraction(557, 960))
        assert truth.none == Fraction(1901, 9600)
        assert truth.at_least[2:4] == (Fraction(69, 320), Fraction(551, 9600))
        assert (truth.expected_sum, truth.sum_variance) == (Fraction(19, 8), Fraction(7523, 1600))

    def test_four_partners(self) -> None:
        found, expected = found_for(self.LEFT, self.RIGHTS, 0, 5, [5, 1, 2, -3], at_least=(2, 3))
        assert expected == 43 / 40
        values = found.none[0], found.count_variance[0], found.sum_variance[0], *found.at_least[0]
        assert values == pytest.approx([1901 / 9600, 557 / 960, 7523 / 1600, 69 / 320, 551 / 9600], rel=2e-16)

    def test_three_points(self) -> None:
        found, _ = found_for(self.LEFT, [Time(12, 12)] * 3, 0, 5, at_least=(3,))
        assert [found.none[0], found.count_variance[0], found.at_least[0, 0]] == [7 / 10, 189 / 100, 3 / 10]

    def test_histograms(self) -> None:
        left = Time(20, 60, oracle.shape_of(self.PHI1))
        rights = [Time(70, 110, oracle.shape_of(self.PHI2)), Time(80, 120, oracle.shape_of(self.PHI2))]
        truth = join_aggregate_oracle.chances(left, rights, -60, 60)
        assert (truth.expected_count, truth.count_variance) == (Fraction(271, 160), Fraction(8239, 25600))
        assert (truth.none, truth.at_least[2]) == (Fraction(7, 128), Fraction(479, 640))
        found, expected = found_for(left, rights, -60, 60, at_least=(2,))
        values = expected, found.count_variance[0], found.none[0], found.at_least[0, 0]
        assert values == pytest.approx([271 / 160, 8239 / 25600, 7 / 128, 479 / 640], rel=3e-16)

    def test_templates_with_empty_buckets_at_their_ends(self) -> None:
        template = Template(((0, 5, 0), (5, 15, "0.25"), (15, 20, "0.75"), (20, 40, 0)))
        shape = oracle.shape_of(template)
        left, rights = Time(20, 60, shape), [Time(30, 70, shape), Time(40, 80, shape)]
        truth = join_aggregate_oracle.chances(left, rights, -12, 12)
        templates = template_shapes((template,))
        rows = [rows_of(np.array(a), np.array(b), np.zeros(len(a), np.int32), templates) for a, b in
                (([20], [60]), ([30, 40], [70, 80]))]  # fmt: skip
        p = np.array([float(p) for p in truth.probabilities])
        found = chances(*rows, -12, 12, Partners(np.array([0, 2]), np.arange(2, dtype=np.int32), p), NONE)
        assert found.none[0] == pytest.approx(float(truth.none), rel=1e-15)

    def test_points_that_share_the_whole_of_y(self) -> None:
        found, _ = found_for(Time(0, 10), [Time(5, 5), Time(10, 10)], -5, 5, at_least=(1, 2))
        assert (found.none[0], found.any[0]) == (0.0, 1.0)
        assert found.at_least[0].tolist() == [1.0, 5e-324] or found.at_least[0, 1] < 1

    def test_nobody(self) -> None:
        found, expected = found_for(Time(0, 10), [], 0, 5, [], at_least=(1,), count_at=(0.5,))
        assert (expected, found.none[0], found.any[0], found.at_least[0, 0]) == (0.0, 1.0, 0.0, 0.0)
        assert (found.count_variance[0], found.sum_variance[0], found.count_at[0, 0]) == (0.0, 0.0, 0)


LENGTHS = st.one_of(st.just(0), st.integers(1, 8), st.integers(1, 10**6), st.integers(1, MONTH_US))


@st.composite
def histograms(draw: st.DrawFn) -> oracle.Shape:
    widths = draw(st.lists(LENGTHS.map(lambda length: length + 1), min_size=1, max_size=4))
    masses = draw(st.lists(st.integers(0, 5), min_size=len(widths), max_size=len(widths)))
    masses[0] = masses[-1] = 1
    shape, end = [], 0
    for width, mass in zip(widths[::-1], masses, strict=True):
        if mass:
            shape.append((end - width, end, Fraction(mass, sum(masses))))
        end -= width
    return tuple(shape[::-1])


@st.composite
def cases(draw: st.DrawFn, most: int = 6) -> tuple[Time, list[Time], int, int, list[float]]:
    """Times around the windows of a left row; histograms on a side are on all of its rows."""

    def times(count: int, ends: st.SearchStrategy[int]) -> list[Time]:
        of_shapes = draw(st.booleans())
        found = []
        for _ in range(count):
            end = draw(ends)
            shape = draw(histograms()) if of_shapes else ()
            found.append(Time(end + shape[0][0] if shape else end - draw(LENGTHS), end, shape))
        return found

    (left,) = times(1, st.integers(-10, 10))
    lo = draw(st.sampled_from([-(2**62), -5, 0, 3, -MONTH_US]))
    hi = draw(st.sampled_from([2**62, 5, 8, 10**6, MONTH_US]))
    corners = [left.t_min, left.t_max, left.t_min + lo, left.t_max + lo, left.t_max + hi]
    corners = [edge for edge in corners if abs(edge) < 2**58]
    near = st.sampled_from(corners).flatmap(lambda edge: st.integers(edge - 6, edge + 6))
    far = st.integers(left.t_min - 10**7, left.t_max + 10**7)
    rights = times(draw(st.integers(0, most)), near | near | far)
    if rights:
        rights += draw(st.lists(st.sampled_from(rights), max_size=2))  # classes
    values = draw(st.lists(st.integers(-5, 5).map(float), min_size=len(rights), max_size=len(rights)))
    return left, rights, lo, hi, values


@given(cases())
@settings(max_examples=300, deadline=None)
def test_any_times(case: tuple[Time, list[Time], int, int, list[float]]) -> None:
    check(*case)


@given(cases(), st.sampled_from([0.05, 0.5, 0.9, 1.0]))
@settings(max_examples=100, deadline=None)
def test_count_at_is_the_greatest_k(case: tuple[Time, list[Time], int, int, list[float]], c: float) -> None:
    left, rights, lo, hi, _ = case
    truth = join_aggregate_oracle.chances(left, rights, lo, hi)
    found, _ = found_for(left, rights, lo, hi, count_at=(c, 0.3))
    if c == 1.0 or all(abs(p - Fraction(c)) > NEAR for p in truth.at_least):
        assert found.count_at[0, 0] == truth.count_at(c)


Case = tuple[Time, list[Time], int, int, list[float]]


def numbers(found: Chances) -> list[float]:
    columns = found.none, found.any, found.count_variance, found.sum_variance, found.at_least[0], found.count_at[0]
    return [float(value) for column in columns for value in column]


def shifted(time: Time, by: int) -> Time:
    return time._replace(t_min=time.t_min + by, t_max=time.t_max + by)


def negated(time: Time) -> Time:
    length = time.t_max - time.t_min
    shape = tuple((-length - end, -length - start, p) for start, end, p in time.shape[::-1])
    return Time(-time.t_max, -time.t_min, shape)


ASKED: dict[str, Any] = {"at_least": (1, 2, 3), "count_at": (0.5, 0.9)}


@given(cases(), st.integers(-(2**57), 2**57), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_shifts_and_orders_change_no_bit(case: Case, by: int, random: Any) -> None:
    left, rights, lo, hi, values = case
    found = numbers(found_for(left, rights, lo, hi, values, **ASKED)[0])
    moved = [shifted(right, by) for right in rights]
    assert numbers(found_for(shifted(left, by), moved, lo, hi, values, **ASKED)[0]) == found
    order = list(range(len(rights)))
    random.shuffle(order)
    again, _ = found_for(left, [rights[i] for i in order], lo, hi, [values[i] for i in order], **ASKED)
    if not any(right.shape for right in rights):  # shapes are numbered in the order in which they are given
        assert numbers(again) == found


@given(cases())
@settings(max_examples=100, deadline=None)
def test_negated_times_and_windows_change_nothing(case: Case) -> None:
    left, rights, lo, hi, values = case
    found, _ = found_for(left, rights, lo, hi, values, at_least=(1, 2, 3))
    again, _ = found_for(negated(left), [negated(right) for right in rights], -hi, -lo, values, at_least=(1, 2, 3))
    scale = (1 + len(rights)) ** 2 * 25
    assert numbers(found) == pytest.approx(numbers(again), rel=1e-12, abs=1e-12 * scale)


@given(cases(), st.integers(1, 99))
@settings(max_examples=100, deadline=None)
def test_splitting_the_left_interval_changes_nothing(case: Case, percent: int) -> None:
    left, rights, lo, hi, values = case
    length = left.t_max - left.t_min
    cut = length * percent // 100
    if left.shape or not 0 < cut < length:
        return
    split = left._replace(
        shape=((-length, cut - length, Fraction(cut, length)), (cut - length, 0, 1 - Fraction(cut, length)))
    )
    found, _ = found_for(left, rights, lo, hi, values, at_least=(1, 2, 3))
    again, _ = found_for(split, rights, lo, hi, values, at_least=(1, 2, 3))
    scale = (1 + len(rights)) ** 2 * 25
    assert numbers(found) == pytest.approx(numbers(again), rel=1e-12, abs=1e-12 * scale)


@given(cases(most=4), cases(most=1))
@settings(max_examples=100, deadline=None)
def test_one_right_more_raises_counts_and_lowers_none(case: Case, other: Case) -> None:
    left, rights, lo, hi, _ = case
    more = [*rights, *other[1][:1]]
    if any(right.shape for right in more) != all(right.shape for right in more):
        return
    ks = tuple(range(1, len(more) + 1))
    (fewer, e_fewer), (found, e) = (found_for(left, side, lo, hi, at_least=ks) for side in (rights, more))
    assert e >= e_fewer
    assert found.none[0] <= fewer.none[0] + 1e-12
    assert found.any[0] >= fewer.any[0] - 1e-12
    assert (found.at_least >= fewer.at_least - 1e-12).all()


@given(cases())
@settings(max_examples=100, deadline=None)
def test_what_else_is_asked_changes_no_bit(case: Case) -> None:
    left, rights, lo, hi, values = case
    together, _ = found_for(left, rights, lo, hi, values, at_least=(2, 1, 3), count_at=(0.5, 1.0, 0.01))
    assert found_for(left, rights, lo, hi, functions=NONE)[0].none == together.none
    assert found_for(left, rights, lo, hi, functions=ANY)[0].any == together.any
    assert found_for(left, rights, lo, hi, functions=COUNT_VARIANCE)[0].count_variance == together.count_variance
    assert found_for(left, rights, lo, hi, values, functions=SUM_VARIANCE)[0].sum_variance == together.sum_variance
    for column, k in enumerate((2, 1, 3)):
        alone, _ = found_for(left, rights, lo, hi, functions=0, at_least=(k,))
        assert alone.at_least[0, 0] == together.at_least[0, column]
    for column, c in enumerate((0.5, 1.0, 0.01)):
        alone, _ = found_for(left, rights, lo, hi, functions=0, count_at=(c,))
        assert alone.count_at[0, 0] == together.count_at[0, column]


def test_many_partners_of_a_point() -> None:
    """Without uncertainty on the left the partners are independent."""
    random = np.random.default_rng(5)
    lengths = random.integers(1, 50, 400)
    starts = -random.integers(0, lengths + 1)
    rights = [Time(int(start), int(start + length)) for start, length in zip(starts, lengths, strict=True)]
    truth = join_aggregate_oracle.chances(Time(0, 0), rights[:60], -3, 3)
    found, _ = found_for(Time(0, 0), rights[:60], -3, 3, at_least=(1, 5, 20, 40), count_at=(0.5, 1e-9))
    for k, value in zip((1, 5, 20, 40), found.at_least[0].tolist(), strict=True):
        assert abs(Fraction(value) - truth.at_least[k]) <= truth.at_least[k] * (4 * 60 + 30) / 2**53
    assert found.count_at[0].tolist() == [truth.count_at(0.5), truth.count_at(1e-9)]
    assert found.none[0] == pytest.approx(float(truth.none), rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("times", [(1, 2, 34), (9, 3, 5)])
def test_many_partners_whose_shares_change_together(times: tuple[int, int, int]) -> None:
    """More than 16 nodes would be needed, so pieces are halved; few nodes suffice where little changes."""
    left, kinds = Time(0, 1000), [Time(-50, 700), Time(200, 1300), Time(600, 601)]
    rights = [kind for kind, count in zip(kinds, times, strict=True) for _ in range(count)]
    ks = tuple(range(1, len(rights) + 1))
    truth = join_aggregate_oracle.chances(left, rights, -200, 300)
    found, expected = found_for(left, rights, -200, 300, at_least=ks, count_at=(0.5, 0.01))
    assert abs(Fraction(float(found.none[0])) - truth.none) <= Fraction(1, 10**15)
    for k, value in zip(ks, found.at_least[0].tolist(), strict=True):
        assert abs(Fraction(value) - truth.at_least[k]) <= Fraction(1, 10**14)
    assert found.count_at[0].tolist() == [truth.count_at(0.5), truth.count_at(0.01)]
    assert abs(Fraction(float(found.count_variance[0])) - truth.count_variance) <= NEAR
    assert abs(Fraction(expected) - truth.expected_count) <= NEAR


def test_values_that_are_not_finite_make_their_variance_nan() -> None:
    found, _ = found_for(Time(0, 10), [Time(8, 12), Time(12, 14)], 0, 5, [np.inf, 1.0])
    assert np.isnan(found.sum_variance[0])
    assert np.isfinite(found.count_variance[0])


def test_a_number_far_beyond_the_partners_costs_no_memory() -> None:
    found, _ = found_for(Time(0, 10), [Time(8, 12)], 0, 5, at_least=(10**12,))
    assert found.at_least[0, 0] == 0.0
