"""Correlation of histogram times: every strategy against exact rationals, and where the kernel is asked."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import oracle
from whenabouts.conformance.satisfaction_time import satisfaction_time
from whenabouts.core import QueryError
from whenabouts.core.probability.histogram_arrays import NO_SHAPES, template_shapes
from whenabouts.core.probability.histogram_probability import guard_band, shape_probabilities_at
from whenabouts.core.probability.match_thresholds import (
    MOST_LENGTHS,
    bracketing_shapes,
    classes_of,
    number_distinct,
    thresholds,
)
from whenabouts.core.times.templates import Template
from whenabouts.core.timing_join.strategies import STRATEGIES, CorrelationCounters, Times, correlate


def exact(left: list[oracle.Bucket], right: list[oracle.Bucket], lo: int, hi: int) -> Fraction:
    return oracle.probability(oracle.Time(0, 0, tuple(left)), oracle.Time(0, 0, tuple(right)), lo, hi).exact


@st.composite
def templates(draw: st.DrawFn, scale: int = 1) -> Template:
    widths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    weights = draw(st.lists(st.integers(0, 4), min_size=len(widths), max_size=len(widths)).filter(any))
    edges = np.cumsum([draw(st.integers(-20, 20)), *widths]).tolist()
    total = sum(weights)
    return Template(
        tuple(
            (scale * lo, scale * hi, Fraction(weight, total))
            for lo, hi, weight in zip(edges, edges[1:], weights, strict=False)
        )
    )


@st.composite
def sides(draw: st.DrawFn) -> tuple[tuple[Template, ...], list[tuple[int, int, int]]]:
    """Registered templates (none: uniform rows), and rows of (t_max, template or length, key)."""
    registered = tuple(draw(st.lists(templates(), max_size=3)))
    shapes = st.integers(0, len(registered) - 1) if registered else st.integers(0, 40)
    return registered, draw(st.lists(st.tuples(st.integers(-30, 30), shapes, st.integers(0, 1)), max_size=14))


def as_times(registered: tuple[Template, ...], rows: list[tuple[int, int, int]]) -> Times:
    t_max = np.array([row[0] for row in rows], np.int64)
    second = [row[1] for row in rows]
    lengths = np.array([registered[s].length_us if registered else s for s in second], np.int64)
    template = np.array(second, np.int32) if registered else None
    return Times(t_max - lengths, t_max, np.array([row[2] for row in rows], np.int64), template)


def buckets(registered: tuple[Template, ...], row: tuple[int, int, int]) -> list[oracle.Bucket]:
    t_max, second, _ = row
    if not registered:
        return [(t_max - second, t_max, Fraction(1))]
    return [(t_max + lo, t_max + hi, p) for lo, hi, p in registered[second].exact]


WINDOWS = [(-200, 200), (-60, 90), (-5, 5), (3, 3), (-7, 40), (0, 2**62), (-(2**62), 4)]


@settings(max_examples=150)
@given(sides(), sides(), st.sampled_from(WINDOWS), st.sampled_from([0.01, 0.3, 0.5, 0.8, 0.97, 1.0]), st.booleans())
def test_every_strategy_equals_exact_rationals(left, right, window, confidence, base_is_right) -> None:  # type: ignore[no-untyped-def]
    lo, hi = window
    expected = set()
    for (i, a), (j, b) in product(enumerate(left[1]), enumerate(right[1])):
        if a[2] == b[2]:
            p = exact(buckets(left[0], a), buckets(right[0], b), lo, hi)
            wanted = Fraction(confidence)
            if abs(p - wanted) < Fraction(1, 2**40) and p != 1:
                return  # rounding decides: no brute force can say
            if p >= wanted:
                expected.add((i, j))
    (base, base_window), target = ((right, (-hi, -lo)), left) if base_is_right else ((left, (lo, hi)), right)
    for strategy in STRATEGIES:
        found: list[tuple[int, int]] = []
        for b_at, t_at in correlate(
            as_times(*base), as_times(*target), *base_window, confidence,
            strategy=strategy, base_lengths=(0, 100), target_lengths=(0, 100), counters=CorrelationCounters(),
            base_templates=base[0], target_templates=target[0], base_is_right=base_is_right, chunk_pairs=7,
        ):  # fmt: skip
            found += zip(b_at.tolist(), t_at.tolist(), strict=True)
        pairs = [(t, b) for b, t in found] if base_is_right else found
        assert sorted(pairs) == sorted(expected), strategy
        once = [
            pair
            for rows in correlate(
                as_times(*base), as_times(*target), *base_window, confidence,
                strategy=strategy, base_lengths=(0, 100), target_lengths=(0, 100), counters=CorrelationCounters(),
                base_templates=base[0], target_templates=target[0], base_is_right=base_is_right, first_only=True,
            )
            for pair in zip(*(at.tolist() for at in rows), strict=True)
        ]  # fmt: skip
        assert set(once) <= set(found), strategy
        assert {b for b, _ in once} == {b for b, _ in found}, strategy


@settings(max_examples=200)
@given(templates(), templates(), st.integers(-60, 60), st.sampled_from(WINDOWS))
def test_probability_is_within_1e_15_of_exact(left: Template, right: Template, delta: int, window) -> None:  # type: ignore[no-untyped-def]
    at, zero = np.zeros(1, np.int32), np.zeros(1, np.int32)
    one = (np.array([-left.length_us]), np.array([0]), zero)
    other = (np.array([delta - right.length_us]), np.array([delta]), zero)
    p = shape_probabilities_at(one, other, at, at, template_shapes((left,)), template_shapes((right,)), *window)[0]
    wanted = exact(buckets((left,), (0, 0, 0)), buckets((right,), (delta, 0, 0)), *window)
    assert abs(Fraction(p) - wanted) < Fraction(1, 10**15)
    assert (p == 1.0) == (wanted == 1)
    assert (p == 0.0) == (wanted == 0)


def test_paper_examples_3_and_4() -> None:
    phi1 = Template(((0, 20, 0.1), (20, 30, 0.3), (30, 40, 0.6)))
    phi2 = Template(((0, 10, 0.15), (10, 20, 0.3), (20, 30, 0.4), (30, 40, 0.15)))
    at = zero = np.zeros(1, np.int32)
    a2, a3 = (np.array([70]), np.array([110]), zero), (np.array([170]), np.array([210]), zero)
    for lo, wanted in ((90, 0.925), (100, 0.76875)):
        p = shape_probabilities_at(a2, a3, at, at, template_shapes((phi2,)), template_shapes((phi1,)), lo, 2**62)
        assert abs(p[0] - wanted) < 1e-15
    # stime(H3, H2, 0.8) = 208.59: at d = 0 a shift of H2 to an anchor of 208 satisfies, to 209 it does not.
    assert thresholds((phi2,), (phi1,), 0, 2**62, 0.8)[0, 0, :2].tolist() == [210 - 208, 210 - 208]


def test_wide_windows_ask_the_kernel_only_in_the_guard_band() -> None:
    random = np.random.default_rng(3)
    registered = tuple(
        Template(tuple((10 * i, 10 * i + 10, float(p)) for i, p in enumerate(random.dirichlet(np.ones(6)))))
        for _ in range(20)
    )
    rows = [
        (int(t), int(k), 0) for t, k in zip(random.integers(0, 4000, 300), random.integers(0, 20, 300), strict=True)
    ]
    for strategy in ("auto", "eager", "lazy", "lazy_lookup"):
        counters = CorrelationCounters()
        found = correlate(
            as_times(registered, rows), as_times(registered, rows), -150, 150, 0.8, strategy=strategy,
            base_lengths=(0, 60), target_lengths=(0, 60), counters=counters,
            base_templates=registered, target_templates=registered,
        )  # fmt: skip
        assert sum(len(base) for base, _ in found) > 1000
        assert counters.probed == 0


def test_auto_asks_no_kernel_where_lengths_are_few() -> None:
    random = np.random.default_rng(4)
    t_min = random.integers(0, 10_000, 500)
    times = Times(t_min, t_min + random.choice([0, 20, 50], 500))
    counters = CorrelationCounters()
    pairs = sum(
        len(base)
        for base, _ in correlate(
            times, times, -100, 100, 0.7123, strategy="auto", base_lengths=(0, 50), target_lengths=(0, 50),
            counters=counters,
        )
    )  # fmt: skip
    assert pairs > 1000
    assert counters.probed == 0


def test_classes_bracket_their_lengths() -> None:
    lengths = np.random.default_rng(5).integers(0, 10_000, 5_000)
    kinds, number = classes_of(lengths)
    assert len(kinds) <= MOST_LENGTHS
    shortest, longest = np.array(kinds).T
    assert (shortest[number] <= lengths).all()
    assert (lengths <= longest[number]).all()
    shapes, earliest, latest = bracketing_shapes(kinds)
    assert (-shapes.edge[2 * earliest] == longest).all()
    assert (-shapes.edge[2 * latest] == shortest).all()


@given(st.lists(st.integers(0, 2**40), max_size=60), st.integers(1, 8))
def test_numbers_of_few_values(values: list[int], most: int) -> None:
    distinct, number = np.empty(most, np.int64), np.empty(len(values), np.int32)
    count = number_distinct(np.array(values, np.int64), distinct, number)
    if len(set(values)) > most:
        assert count == -1
    else:
        assert count == len(set(values))
        assert distinct[number].tolist() == values


def test_a_guard_band_covers_the_sum() -> None:
    assert guard_band(2) < guard_band(1000) < 1e-11


def test_numbers_without_templates_are_refused() -> None:
    times = Times(np.array([0]), np.array([0]), None, np.array([0], np.int32))
    with pytest.raises(ValueError, match="template numbers"):
        correlate(
            times, Times(np.array([0]), np.array([0])), 0, 0, 1.0, strategy="auto", base_lengths=(0, 0),
            target_lengths=(0, 0), counters=CorrelationCounters(),
        )  # fmt: skip
    assert NO_SHAPES.start.tolist() == [0]


def at(template: Template, end: int | Fraction) -> list[tuple[Fraction, Fraction, Fraction]]:
    return [(Fraction(end) + lo, Fraction(end) + hi, p) for lo, hi, p in template.exact]


def scaled(template: Template, end: Fraction, by: int) -> list[oracle.Bucket]:
    return [(int(lo * by), int(hi * by), p) for lo, hi, p in at(template, end)]


@settings(max_examples=150)
@given(templates(), templates(), st.integers(-50, 50), st.sampled_from([0.05, 0.3, 0.5, 0.77, 0.99, 1.0]))
def test_it_is_where_the_confidence_is_lost(first: Template, second: Template, end: int, confidence: float) -> None:
    time = satisfaction_time(first, end, second, confidence)
    by = 10**6  # the oracle takes integers: a millionth of a microsecond either side
    for shift, holds in ((-3, True), (3, False)):
        moved = Fraction(round(time * by) + shift, by)
        p = exact(scaled(second, moved, by), scaled(first, Fraction(end), by), 0, 2**80)
        assert (p >= Fraction(repr(confidence))) == holds


@settings(max_examples=100)
@given(templates(1000), templates(1000), st.sampled_from([0.051, 0.303, 0.777, 0.991]))
def test_the_thresholds_of_the_join_are_its_whole_microseconds(first: Template, second: Template, c: float) -> None:
    # X_first - X_second >= 0: the difference of anchors (first's less second's) must be at least -stime(first at 0).
    outer_lo, sure_lo = thresholds((second,), (first,), 0, 2**62, c)[0, 0, :2].tolist()
    least = -satisfaction_time(first, 0, second, c)
    assert outer_lo <= np.ceil(least + 1e-6)
    assert np.ceil(least - 1e-6) <= sure_lo


def test_it_moves_with_the_first() -> None:
    phi = Template(((0, 20, 0.1), (20, 30, 0.3), (30, 40, 0.6)))
    assert satisfaction_time(phi, 1_000, phi, 0.5) - satisfaction_time(phi, 0, phi, 0.5) == 1_000


def test_a_confidence_outside_is_refused() -> None:
    phi = Template(((0, 20, 1),))
    with pytest.raises(QueryError, match="WA-2001"):
        satisfaction_time(phi, 0, phi, 0.0)
