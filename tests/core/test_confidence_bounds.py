"""LH, LL, RL, RH, the midpoint ranges and invalidation, against their definitions and against the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whenabouts.core.probability.confidence_bounds import confidence_bounds, is_wide, least_reach, sum_quantile
from whenabouts.core.probability.match_thresholds import eviction_bound, least_difference
from whenabouts.core.probability.midpoint_bounds import anchored_ranges
from whenabouts.core.probability.satisfaction_probability import KERNEL_ERROR, satisfaction_probability
from whenabouts.core.times.limits import ALWAYS_US, FARTHEST_US, NEVER_US, UNBOUNDED_US

MONTH_US = 30 * 86_400 * 10**6
CONFIDENCES = (1.0, 0.8, 0.75, 0.5, 1 / 3, 0.2, 1e-3, 1e-300)

Interval = tuple[int, int]


def _obsolete_before(watermark: int, lo: int, hi: int, *, other_pi: int, this_rho: int, confidence: float) -> int:
    return eviction_bound(
        watermark, least_difference(((other_pi, other_pi),), ((this_rho, this_rho),), lo, hi, confidence)
    )


def tail_hi(base: Interval, target: Interval, hi: int) -> Fraction:
    """P(X_target - X_base <= hi), exactly: count the unit squares' parts under the diagonal."""
    (min1, max1), (min2, max2) = base, target
    if min1 == max1 and min2 == max2:
        return Fraction(int(min2 - min1 <= hi))
    if min1 == max1 or min2 == max2:
        first, last = min2 - max1, max2 - min1
        return Fraction(min(max(hi - first, 0), last - first), last - first)
    # The area of {(x1, x2): x2 <= x1 + hi}: over each unit step of x1 the clipped height is linear.
    heights = [min(max(x1 + hi - min2, 0), max2 - min2) for x1 in range(min1, max1 + 1)]
    area = sum(Fraction(a + b, 2) for a, b in itertools.pairwise(heights))
    return area / ((max1 - min1) * (max2 - min2))


def tail_lo(base: Interval, target: Interval, lo: int) -> Fraction:
    return tail_hi((-base[1], -base[0]), (-target[1], -target[0]), -lo)


def bounds_by_definition(
    base: Interval, lo: int, hi: int, rho: int, pi: int, confidence: float
) -> tuple[int, int, int, int]:
    maybe, sure = Fraction(confidence - KERNEL_ERROR), Fraction(confidence + KERNEL_ERROR)
    axis = range(base[0] + lo - pi - 2, base[1] + hi + 2 * pi + 3)
    may = lambda p: p > 0 and p >= maybe  # noqa: E731
    must = lambda p: p == 1 or p >= sure  # noqa: E731
    lh = min(x for x in axis if may(tail_lo(base, (x - rho, x), lo)))
    ll = min(x for x in axis if must(tail_lo(base, (x - pi, x), lo)))
    rl = max(x for x in axis if must(tail_hi(base, (x - rho, x), hi)))
    rh = max(x for x in axis if may(tail_hi(base, (x - pi, x), hi)))
    if hi - lo < base[1] - base[0] + pi:
        ll = max(lh, rh + 1)
        rl = ll - 1
    return lh, ll, rl, rh


def one_row(
    ranges: Callable[..., np.ndarray], base: Interval, lo: int, hi: int, lengths: Interval, confidence: float
) -> tuple[int, ...]:
    row = ranges(np.array([base[0]]), np.array([base[1]]), lo, hi, target_lengths=lengths, confidence=confidence)
    return tuple(row[0].tolist())


LENGTH = st.integers(0, 9)
WINDOW = st.tuples(st.integers(-12, 8), st.integers(0, 24)).map(lambda w: (w[0], w[0] + w[1]))


class TestDefinition:
    @given(st.integers(-20, 20), LENGTH, LENGTH, LENGTH, WINDOW, st.sampled_from(CONFIDENCES))
    @settings(max_examples=250, deadline=None)
    @example(0, 2, 0, 2, (-4, 4), 0.5)
    @example(0, 0, 4, 10, (-1, 1), 0.2)  # the narrow window of the specification
    def test_bounds(self, start: int, length: int, one: int, other: int, window: Interval, confidence: float) -> None:
        base, (rho, pi) = (start, start + length), sorted((one, other))
        expected = bounds_by_definition(base, *window, rho, pi, confidence)
        assert one_row(confidence_bounds, base, *window, (rho, pi), confidence) == expected

    def test_the_narrow_window_of_the_specification_has_no_sure_range(self) -> None:
        # base point 0, |D| <= 1, target t_max 5: P = 0, 1/3, 1/5 for lengths 4, 6, 10
        lh, ll, rl, rh = one_row(confidence_bounds, (0, 0), -1, 1, (4, 10), 0.3)
        assert rl < ll
        assert lh <= 5 <= rh

    def test_probe_regions_are_at_most_pi_minus_rho(self) -> None:
        # ITC says d - rho for the left one; with tight bounds the difference of the lengths is the most.
        for confidence in (1.0, 0.7, 0.4, 0.1):
            lh, ll, rl, rh = one_row(confidence_bounds, (0, 100), -1_000, 1_000, (20, 200), confidence)
            assert 0 < ll - lh <= 200 - 20 + 1
            assert 0 <= rh - rl <= 200 - 20 + 1
            assert (rh == rl) == (confidence == 1.0)  # ITC section 5: certainty leaves no right probe

    @pytest.mark.parametrize("ranges", [confidence_bounds, anchored_ranges])
    def test_open_ends_saturate(self, ranges: Callable[..., np.ndarray]) -> None:
        unbounded_pi = (0, 2**62)
        base = (FARTHEST_US - MONTH_US, FARTHEST_US)
        left_open = one_row(ranges, base, -UNBOUNDED_US, 5, unbounded_pi, 0.8)
        assert left_open[:2] == (NEVER_US, NEVER_US)
        assert left_open[2] < left_open[3] < ALWAYS_US
        right_open = one_row(ranges, base, -5, UNBOUNDED_US, unbounded_pi, 0.8)
        assert right_open[2:] == (ALWAYS_US, ALWAYS_US)
        assert NEVER_US < right_open[0] < right_open[1]
        everything = one_row(ranges, base, -UNBOUNDED_US, UNBOUNDED_US, unbounded_pi, 1.0)
        assert everything == (NEVER_US, NEVER_US, ALWAYS_US, ALWAYS_US)

    @pytest.mark.parametrize("ranges", [confidence_bounds, anchored_ranges])
    @pytest.mark.parametrize("lengths", [(5, 4), (-1, 4)])
    def test_lengths_that_are_no_range_are_refused(self, ranges: Callable[..., np.ndarray], lengths: Interval) -> None:
        with pytest.raises(ValueError, match="target_lengths"):
            one_row(ranges, (0, 1), -9, 9, lengths, 0.5)


LONG = st.one_of(st.integers(0, 10), st.integers(0, 10**6), st.integers(0, MONTH_US), st.integers(0, FARTHEST_US))
ANY_CONFIDENCE = st.one_of(
    st.floats(1e-9, 1.0),
    st.sampled_from((1.0, 1 - 2.0**-53, 1 - 2.0**-50, 1 - 2.0**-49, 1 - 1e-13, 0.5, KERNEL_ERROR, 1e-300)),
)


class TestAgainstTheKernel:
    """Targets of various lengths at and around each bound: none outside may match, all in the sure range must."""

    @given(
        st.integers(-(2**52), 2**52), LONG, LONG, LONG, st.integers(-(2**52), 2**52), LONG, ANY_CONFIDENCE,
        st.integers(0, 2**32),
    )  # fmt: skip
    @settings(max_examples=300, deadline=None)
    def test_ranges_never_contradict_it(
        self, start: int, length: int, one: int, other: int, lo: int, width: int, confidence: float, seed: int
    ) -> None:
        base, (rho, pi) = (start, start + length), sorted((one, other))
        hi = lo + width
        random = np.random.default_rng(seed)
        lengths = np.concatenate(([rho, pi], random.integers(rho, pi, 60, endpoint=True)))
        # As far from a bound as the kernel's noise may reach, in all orders of magnitude.
        offsets = np.concatenate(([0, 1, -1], random.choice([-1, 1], 59) * 2 ** random.integers(0, 50, 59)))
        for ranges, anchored in ((confidence_bounds, False), (anchored_ranges, True)):
            outer_lo, sure_lo, sure_hi, outer_hi = one_row(ranges, base, lo, hi, (rho, pi), confidence)
            for bound in (outer_lo, sure_lo, sure_hi, outer_hi):
                at = bound + offsets
                t_max = (at + lengths) // 2 if anchored else at
                t_min = t_max - lengths
                inside = (np.abs(t_max) <= FARTHEST_US) & (np.abs(t_min) <= FARTHEST_US)
                t_min, t_max = t_min[inside], t_max[inside]
                axis = t_min + t_max if anchored else t_max
                first, last = np.full(len(t_min), base[0]), np.full(len(t_min), base[1])
                matches = satisfaction_probability(first, last, t_min, t_max, lo, hi) >= confidence
                assert not matches[(axis < outer_lo) | (axis > outer_hi)].any()
                assert matches[(axis >= sure_lo) & (axis <= sure_hi)].all()

    def test_midpoint_ranges_are_tight(self) -> None:
        # With one target length nothing but the margin is probed.
        outer_lo, sure_lo, sure_hi, outer_hi = one_row(anchored_ranges, (0, 100), -9_000, 9_000, (70, 70), 0.8)
        assert sure_lo - outer_lo <= 4
        assert outer_hi - sure_hi <= 4
        assert sure_hi - sure_lo > 35_000


class TestLeastReach:
    @given(LONG, LONG, ANY_CONFIDENCE)
    @settings(max_examples=300, deadline=None)
    def test_it_is_a_crossing_of_the_kernel(self, length1: int, length2: int, threshold: float) -> None:
        reach = least_reach(length1, length2, threshold)

        def reaches(y: int) -> bool:
            times = [np.array([time]) for time in (0, length1, 0, length2)]
            p = satisfaction_probability(*times, -UNBOUNDED_US, y - length1)[0]
            return bool(p == 1.0 or (p > 0.0 and p >= threshold))

        assert 0 <= reach <= length1 + length2
        assert reaches(reach)
        assert not reaches(reach - 1)

    @given(st.integers(1, 12), st.integers(0, 12), st.floats(0.0, 1.0))
    @settings(max_examples=300, deadline=None)
    def test_quantile_is_between_the_integers_that_enclose_it(self, length1: int, length2: int, p: float) -> None:
        z = sum_quantile(length1, length2, p)
        slack = Fraction(1, 10**12)
        below, above = (tail_hi((0, length1), (0, length2), int(y) - length1) for y in (np.floor(z), np.ceil(z)))
        assert below - slack <= Fraction(p) <= above + slack


class TestIsWide:
    def test_at_the_edge(self) -> None:
        assert is_wide(-5, 5, 10)
        assert not is_wide(-5, 5, 11)
        assert is_wide(-UNBOUNDED_US, 5, 11)
        assert is_wide(-5, UNBOUNDED_US, 11)


class TestObsoleteBefore:
    @given(st.integers(-20, 20), WINDOW, LENGTH, LENGTH, st.sampled_from(CONFIDENCES))
    @settings(max_examples=60, deadline=None)
    def test_it_is_exactly_the_least_row_that_can_still_match_one_end(
        self, watermark: int, window: Interval, other_pi: int, this_rho: int, confidence: float
    ) -> None:
        least = _obsolete_before(watermark, *window, other_pi=other_pi, this_rho=this_rho, confidence=confidence)
        threshold = Fraction(confidence - KERNEL_ERROR)
        # Any row from `this_rho` up, any future row of at most `other_pi` that ends at the watermark or up to
        # 3 us later.
        can = [
            x
            for x in range(watermark + window[0] - 12, watermark + window[0] + 22)
            if any(
                (p := tail_lo((end - other, end), (x - this, x), window[0])) > 0 and p >= threshold
                for end in range(watermark, watermark + 4)
                for other in range(other_pi + 1)
                for this in range(this_rho, this_rho + 4)
            )
        ]
        assert least == min(can)

    def test_nothing_is_dropped_without_a_watermark_or_with_an_open_end(self) -> None:
        lengths = {"other_pi": 10, "this_rho": 0, "confidence": 0.5}
        assert _obsolete_before(NEVER_US, -5, 5, **lengths) == NEVER_US
        assert _obsolete_before(10**15, -UNBOUNDED_US, 5, **lengths) == NEVER_US
        assert _obsolete_before(10**15, -5, UNBOUNDED_US, **lengths) > 0

    def test_everything_is_dropped_at_the_end_of_input(self) -> None:
        lengths = {"other_pi": 10, "this_rho": 0, "confidence": 0.5}
        assert _obsolete_before(ALWAYS_US, -5, 5, **lengths) == ALWAYS_US
        assert _obsolete_before(ALWAYS_US, -UNBOUNDED_US, 5, **lengths) == ALWAYS_US

    def test_extreme_watermarks_saturate(self) -> None:
        lengths = {"other_pi": 2**62, "this_rho": 0, "confidence": 0.5}
        assert _obsolete_before(NEVER_US + 1, -(2**59), 0, **lengths) == NEVER_US
        assert _obsolete_before(ALWAYS_US - 1, 2**59, 2**60, **(lengths | {"other_pi": 0})) == ALWAYS_US

    def test_an_empty_window_is_refused(self) -> None:
        with pytest.raises(ValueError, match="empty"):
            _obsolete_before(0, 5, 4, other_pi=1, this_rho=0, confidence=0.5)
