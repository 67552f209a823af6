"""The canonical kernel against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whenabouts.conformance import oracle
from whenabouts.core.probability.satisfaction_probability import (
    KERNEL_ERROR,
    satisfaction_probability,
    satisfaction_probability_numpy,
)
from whenabouts.core.times.limits import UNBOUNDED_US

YEAR_1900_US, YEAR_2200_US = -2_208_988_800_000_000, 7_258_118_400_000_000
MONTH_US = 30 * 86_400 * 10**6
ULP = Fraction(1, 2**53)
PROVEN = 5 * ULP + 6 * ULP**2

Pair = tuple[int, int, int, int, int, int]


def exact(pair: Pair) -> Fraction:
    return oracle.probability(pair[:2], pair[2:4], *pair[4:]).exact


def kernel(pair: Pair) -> float:
    return float(satisfaction_probability(*[np.array([time]) for time in pair[:4]], *pair[4:])[0])


def kernel_numpy(pair: Pair) -> float:
    return float(satisfaction_probability_numpy(*[np.array([time]) for time in pair[:4]], *pair[4:])[0])


def swapped(pair: Pair) -> Pair:
    min1, max1, min2, max2, lo, hi = pair
    return min2, max2, min1, max1, -hi, -lo


LENGTHS = st.one_of(st.just(0), st.integers(1, 10), st.integers(1, 10**6), st.integers(1, MONTH_US))


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Timestamps of any mixture of lengths, with window ends that mostly cut into the support of the
    difference."""
    min1 = draw(st.integers(YEAR_1900_US, YEAR_2200_US - MONTH_US))
    len1, len2 = draw(LENGTHS), draw(LENGTHS)
    far = draw(st.integers(YEAR_1900_US, YEAR_2200_US - MONTH_US))
    min2 = draw(st.sampled_from((min1, min1 + 1, far)))
    first, last = min2 - min1 - len1, min2 + len2 - min1
    near = st.sampled_from((first, first + min(len1, len2), first + max(len1, len2), last)).flatmap(
        lambda corner: st.integers(corner - 2, corner + 2)
    )
    end = st.one_of(near, st.integers(first, last))
    lo, hi = sorted((draw(end), draw(end)))
    lo = draw(st.sampled_from((lo, lo, lo, -UNBOUNDED_US)))
    hi = draw(st.sampled_from((hi, hi, hi, UNBOUNDED_US)))
    return min1, min1 + len1, min2, min2 + len2, lo, hi


class TestAccuracy:
    @given(pairs())
    @settings(max_examples=600, deadline=None)
    @example((0, MONTH_US, 0, MONTH_US, 0, UNBOUNDED_US))
    @example((0, 1, YEAR_2200_US, YEAR_2200_US + MONTH_US, -UNBOUNDED_US, YEAR_2200_US))
    def test_error_is_within_the_proven_bound(self, pair: Pair) -> None:
        truth, value = exact(pair), Fraction(kernel(pair))
        assert abs(value - truth) <= Fraction(1, 10**12)
        # The clamp away from 1 is within the same bound; the clamp away from 0 never acts on such lengths.
        assert abs(value - truth) <= PROVEN * truth

    @given(pairs())
    @settings(max_examples=600, deadline=None)
    def test_only_certain_is_one_and_only_impossible_is_zero(self, pair: Pair) -> None:
        truth, value = exact(pair), kernel(pair)
        assert (value == 1.0) == (truth == 1)
        assert (value == 0.0) == (truth == 0)

    def test_guard_band_covers_two_evaluations(self) -> None:
        assert Fraction(KERNEL_ERROR) >= 2 * PROVEN

    @pytest.mark.parametrize(
        ("pair", "probability"),
        [
            ((0, 0, 5, 5, 5, 5), 1.0),  # points: bounds are inclusive
            ((0, 0, 5, 5, 6, 9), 0.0),
            ((0, 0, 0, 10, -3, 4), 0.4),  # a point and an interval
            ((0, 10, 0, 0, -4, 3), 0.4),
            ((0, 10, 0, 10, -10, 0), 0.5),
            ((0, 10, 0, 10, 3, 3), 0.0),  # an instant has no mass
            ((0, 10, 20, 30, 0, 10), 0.0),  # supports touch only
            ((0, 10, 20, 30, 10, 30), 1.0),
            ((0, 4, 0, 4, -UNBOUNDED_US, UNBOUNDED_US), 1.0),
            ((0, 2, 0, 4, -UNBOUNDED_US, 3), 0.9375),
        ],
    )
    def test_worked_values(self, pair: Pair, probability: float) -> None:
        assert exact(pair) == Fraction(probability).limit_denominator(10**6)
        assert kernel(pair) == probability

    def test_values_that_would_round_to_one_are_held_under_it(self) -> None:
        one_us_short = (0, MONTH_US, 0, MONTH_US, -UNBOUNDED_US, MONTH_US - 1)
        assert 1 - exact(one_us_short) < ULP / 2
        assert kernel(one_us_short) == 1 - 2.0**-53
        assert 0 < kernel((0, MONTH_US, 0, MONTH_US, MONTH_US - 1, UNBOUNDED_US)) < 1e-24


class TestBits:
    @given(pairs())
    @settings(max_examples=400, deadline=None)
    def test_swapping_the_sides_gives_the_same_bits(self, pair: Pair) -> None:
        assert kernel(pair) == kernel(swapped(pair))

    @given(pairs(), st.integers(-(10**14), 10**14))
    @settings(max_examples=200, deadline=None)
    def test_moving_both_events_gives_the_same_bits(self, pair: Pair, shift: int) -> None:
        moved = (*(time + shift for time in pair[:4]), *pair[4:])
        assert kernel(pair) == kernel(moved)

    @given(pairs())
    @settings(max_examples=400, deadline=None)
    def test_numpy_form_gives_the_same_bits(self, pair: Pair) -> None:
        assert kernel(pair) == kernel_numpy(pair)

    def test_forms_agree_on_a_million_rows(self) -> None:
        random = np.random.default_rng(20100527)
        n = 1_000_000
        length1, length2 = (np.exp(random.uniform(-1, np.log(MONTH_US), n)).astype(np.int64) for _ in range(2))
        min1 = random.integers(YEAR_1900_US, YEAR_2200_US, n)
        min2 = min1 + (random.uniform(-1.5, 1.5, n) * (length1 + length2)).astype(np.int64)
        arguments = (min1, min1 + length1, min2, min2 + length2, -(10**9), 10**8)
        compiled, plain = satisfaction_probability(*arguments), satisfaction_probability_numpy(*arguments)
        assert np.array_equal(compiled.view(np.int64), plain.view(np.int64))
        assert len(np.unique(plain)) > n // 10  # the sample is not made of trivial cases


class TestArguments:
    def test_unequal_lengths_are_refused(self) -> None:
        two, three = np.arange(2), np.arange(3)
        with pytest.raises(ValueError, match="equally long"):
            satisfaction_probability(two, two, three, three, 0, 1)

    def test_read_only_and_strided_arrays_are_taken(self) -> None:
        times = np.arange(20)[::2]
        times.flags.writeable = False
        assert satisfaction_probability(times, times, times, times, 0, 0).tolist() == [1.0] * 10

    def test_no_rows(self) -> None:
        none = np.empty(0, np.int64)
        assert satisfaction_probability(none, none, none, none, 0, 1).shape == (0,)
