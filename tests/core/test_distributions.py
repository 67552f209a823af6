"""Distributions as templates: P within the tolerance, against closed forms and quadrature; few buckets; bad input."""

import math
from bisect import bisect_right
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from whenabouts.conformance.oracle import Time, probability, shape_of
from whenabouts.core import QueryError, Template, empirical, exponential, normal, triangular, uniform
from whenabouts.core.times.distributions import sum_of_uniforms
from whenabouts.core.times.empirical_distributions import MOST_BUCKETS, equal_mass, through_quantiles

Function = Callable[[float], float]


def buckets_of(template: Template) -> list[tuple[int, int, Fraction]]:
    """Buckets with the offsets that the distribution was asked for, not those before the anchor."""
    return [(template.end_us + lo, template.end_us + hi, p) for lo, hi, p in template.exact]


def distribution_function(template: Template) -> Function:
    buckets = buckets_of(template)
    starts = [lo for lo, _, _ in buckets]
    below = [Fraction(0), *accumulate(p for *_, p in buckets)]

    def at(x: float) -> float:
        place = bisect_right(starts, x) - 1
        if place < 0:
            return 0.0
        lo, hi, p = buckets[place]
        return float(below[place] + p * (min(Fraction(x), hi) - lo) / (hi - lo))

    return at


def exact(left: Template, right: Template, lo: int, hi: int) -> Fraction:
    """P(lo <= X_right - X_left <= hi) in rationals."""
    times = [Time(0, template.end_us, shape_of(template)) for template in (left, right)]
    return probability(*times, lo, hi).exact


def exponential_function(mean: float) -> Function:
    return lambda x: -math.expm1(-max(x, 0) / mean)


def triangular_function(low: float, mode: float, high: float) -> Function:
    def at(x: float) -> float:
        if x <= mode:
            return max(x - low, 0) ** 2 / ((high - low) * (mode - low)) if mode > low and x > low else 0.0
        return 1 - max(high - x, 0) ** 2 / ((high - low) * (high - mode)) if mode < high else 1.0

    return at


def sum_function(a: int, b: int) -> Function:
    """By four squared ramps, in rationals: in floats they would lose the digits that the test needs."""

    def at(z: float) -> float:
        ramps = sum(max(Fraction(z) + s * a + t * b, 0) ** 2 * s * t for s in (1, -1) for t in (1, -1))
        return float(ramps / (8 * a * b))

    return at


def worst(template: Template, function: Function, beside: float) -> float:
    """Greatest difference of the distribution functions, over knots and a fine grid between and beyond them."""
    knots = [lo for lo, _, _ in buckets_of(template)] + [buckets_of(template)[-1][1]]
    grid = set(np.linspace(knots[0] - beside, knots[-1] + beside, 1500).tolist()) | set(map(float, knots))
    grid |= {(a + b) / 2 for a, b in pairwise(knots)}
    ours = distribution_function(template)
    return max(abs(ours(x) - function(x)) for x in grid)


SCALES = st.integers(300, 10**9) | st.integers(10**9, 5 * 10**14)
TOLERANCES = st.sampled_from([0.1, 0.01, 1e-3, 2e-4])


@settings(max_examples=40, deadline=None)
@given(st.integers(-(10**12), 10**12), SCALES, TOLERANCES)
def test_normal_keeps_to_a_quarter_of_the_tolerance(mean: int, sd: int, tolerance: float) -> None:
    template = normal(mean, sd, tolerance=tolerance)
    gap = worst(template, NormalDist(mean, sd).cdf, 5 * sd)
    assert 0.99 * tolerance / 4 < gap <= tolerance / 4  # within the bound, and no better than it needs to be
    assert len(template.masses) <= 1.2 / math.sqrt(tolerance) + 4
    middle = 2 * mean
    assert [(middle - hi, middle - lo) for lo, hi, _ in reversed(buckets_of(template))] == [
        (lo, hi) for lo, hi, _ in buckets_of(template)
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(-(10**12), 10**12), SCALES, TOLERANCES)
def test_exponential_keeps_to_a_quarter_of_the_tolerance(start: int, mean: int, tolerance: float) -> None:
    template = exponential(mean, start=start, tolerance=tolerance)
    gap = worst(template, lambda x: exponential_function(mean)(x - start), 9 * mean)
    assert 0.99 * tolerance / 4 < gap <= tolerance / 4
    assert len(template.masses) <= 1.05 / math.sqrt(tolerance) + 3
    assert buckets_of(template)[0][0] == start


@settings(max_examples=40, deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(0, 10**6), st.integers(0, 10**15), TOLERANCES)
def test_triangular_keeps_to_a_quarter_of_the_tolerance(low: int, rise: int, fall: int, tolerance: float) -> None:
    assume(rise + fall >= 30_000)
    template = triangular(low, low + rise, low + rise + fall, tolerance=tolerance)
    assert worst(template, triangular_function(low, low + rise, low + rise + fall), 100) <= tolerance / 4
    assert (buckets_of(template)[0][0], buckets_of(template)[-1][1]) == (low, low + rise + fall)
    assert len(template.masses) <= 1.1 / math.sqrt(tolerance) + 4


@settings(max_examples=40, deadline=None)
@given(SCALES, SCALES, TOLERANCES)
def test_sum_of_uniforms_keeps_to_a_quarter_of_the_tolerance(a: int, b: int, tolerance: float) -> None:
    template = sum_of_uniforms(a, b, tolerance=tolerance)
    assert worst(template, sum_function(a, b), 100) <= tolerance / 4
    assert (buckets_of(template)[0][0], buckets_of(template)[-1][1]) == (-a - b, a + b)


@pytest.mark.parametrize(
    ("make", "function"),
    [
        (lambda: normal(0, "1 s", tolerance=1e-6), NormalDist(0, 10**6).cdf),
        (lambda: exponential("1 s", tolerance=1e-6), exponential_function(10**6)),
        (lambda: triangular(0, "1 s", "3 s", tolerance=1e-6), triangular_function(0, 10**6, 3 * 10**6)),
    ],
    ids=["normal", "exponential", "triangular"],
)
def test_the_finest_tolerance(make: Callable[[], Template], function: Function) -> None:
    template = make()
    assert 0.99 * 2.5e-7 < worst(template, function, 10**6) <= 2.5e-7
    assert len(template.masses) < 1200


WINDOWS = [(-50_000, 50_000), (0, 20_000), (-5_000, -4_000), (100, 200), (30_000, 300_000), (-(10**9), 10**9)]


@lru_cache
def normal_pair(tolerance: float) -> tuple[Template, Template]:
    return normal(0, "20 ms", tolerance=tolerance), normal("5 ms", "35 ms", tolerance=tolerance)


@pytest.mark.parametrize("tolerance", [0.05, 1e-3])
@pytest.mark.parametrize("window", WINDOWS)
def test_normal_and_normal_by_the_closed_form(window: tuple[int, int], tolerance: float) -> None:
    difference = NormalDist(5_000, math.hypot(20_000, 35_000))
    p = difference.cdf(window[1]) - difference.cdf(window[0])
    assert abs(float(exact(*normal_pair(tolerance), *window)) - p) <= tolerance


@pytest.mark.parametrize("tolerance", [0.05, 1e-3])
@pytest.mark.parametrize("window", WINDOWS)
def test_exponential_and_exponential_by_the_closed_form(window: tuple[int, int], tolerance: float) -> None:
    m1, m2 = 10_000, 25_000

    def below(z: float) -> float:
        return 1 - m2 / (m1 + m2) * math.exp(-z / m2) if z >= 0 else m1 / (m1 + m2) * math.exp(z / m1)

    templates = exponential(m1, tolerance=tolerance), exponential(m2, tolerance=tolerance)
    assert abs(float(exact(*templates, *window)) - (below(window[1]) - below(window[0]))) <= tolerance


def quadrature(density: Function, ends: tuple[float, float], other: Function, window: tuple[int, int]) -> float:
    """P by integrating over the left time: Gauss-Legendre of 8 points on 1,000 panels."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(*ends, 1001)
    half = (edges[1] - edges[0]) / 2
    return math.fsum(
        w * half * density(x) * (other(x + window[1]) - other(x + window[0]))
        for middle in edges[:-1] + half
        for x, w in zip(middle + half * nodes, weights, strict=True)
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_normal_and_uniform_by_quadrature(window: tuple[int, int]) -> None:
    left = NormalDist(0, 20_000)

    def right(x: float) -> float:
        return min(max((x + 10_000) / 40_000, 0.0), 1.0)

    p = quadrature(left.pdf, (-160_000, 160_000), right, window)
    assert abs(float(exact(normal(0, 20_000), uniform(-10_000, 30_000), *window)) - p) <= 1e-3 / 2


@pytest.mark.parametrize("window", WINDOWS)
def test_triangular_and_uniform_by_quadrature(window: tuple[int, int]) -> None:
    ends = (0, 5_000, 40_000)
    p = quadrature(lambda _: 1 / 30_000, (0, 30_000), triangular_function(*ends), window)
    assert abs(float(exact(uniform(0, 30_000), triangular(*ends), *window)) - p) <= 1e-3 / 2


def test_a_uniform_distribution_is_one_exact_bucket() -> None:
    assert uniform("-1 s", "2 s").exact == ((-3_000_000, 0, 1),)


# --- Samples ------------------------------------------------------------------------------------------------------


def sample_function(samples: list[int]) -> Function:
    """Each sample uniform in its microsecond."""
    return lambda x: math.fsum(min(max(x - value, 0.0), 1.0) for value in samples) / len(samples)


@given(st.lists(st.integers(-30, 30) | st.integers(-(10**6), 10**6), min_size=1, max_size=60), TOLERANCES)
@settings(deadline=None)
def test_empirical_keeps_to_a_quarter_of_the_tolerance(samples: list[int], tolerance: float) -> None:
    template = empirical(samples, tolerance=tolerance)
    function, ours = sample_function(samples), distribution_function(template)
    corners = {float(value + side) for value in samples for side in (0, 1)}
    assert max(abs(function(x) - ours(x)) for x in corners) <= tolerance / 4
    assert (buckets_of(template)[0][0], buckets_of(template)[-1][1]) == (min(samples), max(samples) + 1)
    assert len(template.masses) <= 2 * len(set(samples)) - 1


def test_empirical_of_many_samples_has_few_buckets() -> None:
    samples = np.random.default_rng(7).exponential(1e6, 200_000).astype(np.int64)
    template = empirical(samples, tolerance=0.01)
    values = np.sort(samples)
    ours = np.array([distribution_function(template)(float(x)) for x in values[::97]])
    assert np.abs(ours - np.searchsorted(values, values[::97]) / len(values)).max() <= 0.01 / 4
    assert len(template.masses) < 40


@pytest.mark.parametrize(
    "samples",
    [
        [1, 2_000, 7],
        np.array([1, 2_000, 7], np.int32),
        np.array([1.0, 2_000.0, 7.0]),
        np.array([1, 2_000, 7], "timedelta64[us]"),
        np.array([1_999, 2_000_000, 7_000], "timedelta64[ns]"),
        [timedelta(microseconds=1), "2 ms", 7],
        pa.array([1, 2_000, 7]),
        pa.array([1, 2_000, 7], pa.duration("us")),
        pa.chunked_array([[1], [2_000, 7]]),
        iter([1, 2_000, 7]),
    ],
)
def test_samples_in_any_form(samples: Any) -> None:
    assert empirical(samples, tolerance=1e-3) == empirical([7, 1, 2_000], tolerance=1e-3)


@given(st.lists(st.integers(0, 50) | st.integers(0, 10**9), min_size=1, max_size=300), st.booleans(), st.booleans())
@settings(deadline=None)
def test_equal_mass_gives_every_stretch_between_samples_its_share(samples: list[int], below: bool, above: bool) -> None:
    shortest, longest = 0 if below else None, 10**9 if above else None
    template = equal_mass(samples, shortest=shortest, longest=longest)
    n, ordered = len(samples), sorted(samples)
    assert len(template.masses) <= min(math.ceil(2 * math.sqrt(n)), MOST_BUCKETS) + 2 + len(set(samples))
    ours = distribution_function(template)
    if len(set(samples)) == n > 1 and min(np.diff(ordered)) > 1 and not {0, 10**9} & set(samples):
        stretches = n - 1 + below + above
        share = max(math.ceil((n - 1) / math.ceil(2 * math.sqrt(n))), 1) / stretches
        for rank, value in enumerate(ordered):
            assert abs(ours(value) - (rank + below) / stretches) <= share
        assert ours(ordered[0]) == pytest.approx(below / stretches)
        assert ours(ordered[-1]) == pytest.approx(1 - above / stretches)


def test_equal_mass_has_buckets_of_equal_mass() -> None:
    samples = np.arange(0, 401**2, 401) ** 2  # 401 samples, ever farther apart
    masses = equal_mass(samples).masses
    assert len(masses) == 41
    assert max(masses) <= 10.01 / 400
    assert min(masses) >= 8.99 / 400


def test_samples_all_equal_are_one_microsecond() -> None:
    assert buckets_of(equal_mass([5, 5, 5])) == buckets_of(empirical([5])) == [(5, 6, 1)]
    assert buckets_of(equal_mass([5], longest=9)) == [(5, 9, 1)]


def test_quantiles_are_met_exactly() -> None:
    template = through_quantiles({0: 10, "0.25": 20, "0.5": 20, "0.75": 21, 1: 100})
    assert buckets_of(template) == [
        (10, 20, Fraction(1, 4)),
        (20, 21, Fraction(1, 2)),
        (21, 100, Fraction(1, 4)),
    ]
    assert buckets_of(through_quantiles({"0.5": 0}, shortest=0, longest=8)) == [
        (0, 1, Fraction(1, 2)),
        (1, 8, Fraction(1, 2)),
    ]


# --- Bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: normal(0, 0), "WA-2006"),
        (lambda: normal(0, "-1 s"), "WA-2006"),
        (lambda: normal(0.5, "1 s"), "WA-2002"),
        (lambda: normal(0, "soon"), "WA-2002"),
        (lambda: normal(0, "1 s", tolerance=9e-7), "WA-2006"),
        (lambda: normal(0, "1 s", tolerance=1), "WA-2006"),
        (lambda: normal(0, "1 s", tolerance=math.nan), "WA-2006"),
        (lambda: normal(0, "1 s", tolerance="small"), "WA-2006"),
        (lambda: normal(0, "100000 weeks"), "WA-1012"),
        (lambda: exponential(0), "WA-2006"),
        (lambda: exponential(-1), "WA-2006"),
        (lambda: triangular(0, 2, 1), "WA-2006"),
        (lambda: triangular(1, 1, 1), "WA-2006"),
        (lambda: triangular(2, 1, 3), "WA-2006"),
        (lambda: uniform(1, 1), "WA-2006"),
        (lambda: sum_of_uniforms(0, 1), "WA-2006"),
        (lambda: empirical([]), "WA-2006"),
        (lambda: empirical(np.zeros((2, 2))), "WA-2006"),
        (lambda: empirical([1.0, math.nan]), "WA-2002"),
        (lambda: empirical([1.0, math.inf]), "WA-2002"),
        (lambda: empirical([0.25, 1.0]), "WA-2002"),
        (lambda: empirical([1, None]), "WA-2002"),
        (lambda: empirical(np.array(["NaT", 1], "timedelta64[us]")), "WA-2002"),
        (lambda: empirical(pa.array([1, None])), "WA-2002"),
        (lambda: empirical(["1 s", "soon"]), "WA-2002"),
        (lambda: empirical("1 s"), "WA-2002"),
        (lambda: empirical(5), "WA-2002"),
        (lambda: empirical([2**60]), "WA-2002"),
        (lambda: empirical([1], tolerance=0), "WA-2006"),
        (lambda: equal_mass([5], longest=4), "WA-2006"),
        (lambda: equal_mass([5], shortest=6), "WA-2006"),
        (lambda: equal_mass([5], shortest=6, longest=4), "WA-2006"),
        (lambda: through_quantiles({}), "WA-2006"),
        (lambda: through_quantiles({0: 1}), "WA-2006"),
        (lambda: through_quantiles({1: 1}), "WA-2006"),
        (lambda: through_quantiles({0: 1, 1: 2}, longest=3), "WA-2006"),
        (lambda: through_quantiles({0: 1, 0.5: 5, 1: 2}), "WA-2006"),
        (lambda: through_quantiles({0.5: 5}, shortest=6, longest=9), "WA-2006"),
        (lambda: through_quantiles({0: 1, 0.5: 5, "0.5": 5, 1: 7}), "WA-2006"),
        (lambda: through_quantiles({0: 1, 1.5: 2}), "WA-2006"),
        (lambda: through_quantiles({0: 1, "half": 2, 1: 3}), "WA-2006"),
        (lambda: through_quantiles({0: 1, math.nan: 2, 1: 3}), "WA-2006"),
        (lambda: through_quantiles({0: 1, 1: math.nan}), "WA-2002"),
    ],
)
def test_bad_input_is_refused_with_a_code_and_a_hint(call: Callable[[], Template], code: str) -> None:
    with pytest.raises(ValueError, match=code) as caught:
        call()
    assert caught.value.hint  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [lambda t: normal(0, 2, tolerance=t), lambda t: triangular(0, 1, 3, tolerance=t)])
def test_too_narrow_for_microseconds_says_which_tolerance_can_be_had(make: Callable[[float], Template]) -> None:
    with pytest.raises(QueryError, match=r"WA-2006.*too narrow") as caught:
        make(1e-3)
    tolerance = float(caught.value.hint.split("=")[1].split()[0])
    make(tolerance)
    with pytest.raises(QueryError, match="too narrow"):
        make(tolerance / 1.3)
