"""Satisfaction times in the core against the conformance oracle, which finds them by bisection in exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import oracle
from whenabouts.conformance.oracle import Time
from whenabouts.conformance.satisfaction_time import satisfaction_time
from whenabouts.core import Histogram, Template, delay
from whenabouts.core.local import run
from whenabouts.core.probability.match_thresholds import thresholds
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

SECOND = 1_000_000
PHI_1 = (("0 s", "20 s", 0.1), ("20 s", "30 s", 0.3), ("30 s", "40 s", 0.6))
PHI_2 = (("0 s", "10 s", "0.15"), ("10 s", "20 s", "0.3"), ("20 s", "30 s", "0.4"), ("30 s", "40 s", "0.15"))
STIME_US = 208_590_785.4727929
"""stime(H3, H2, 0.8) of PTJoin Example 4, its unit taken as a second."""


def joined(a2_us: int, a3_us: int, shift: int, confidence: float, strategy: str) -> list[float]:
    """Probabilities of the pairs with P(H3 - shift >= H2) >= confidence, for one row a2 and one row a3."""
    query = TimingJoin(
        left_time=Histogram("t", templates={"phi2": PHI_2}), right_time=Histogram("t", templates={"phi1": PHI_1}),
        condition=delay(shift, confidence=confidence), strategy=strategy,
    )  # fmt: skip
    output = run(query, [pa.table({"t": [a2_us]}), pa.table({"t": [a3_us]})]).output
    return list(output.column("probability").to_pylist())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_join_gives_the_papers_probabilities(strategy: str) -> None:
    for shift, p in ((90, 0.925), (100, 0.76875)):
        (found,) = joined(110 * SECOND, 210 * SECOND, shift * SECOND, p - 1e-6, strategy)
        assert abs(found - p) < 1e-12
        assert joined(110 * SECOND, 210 * SECOND, shift * SECOND, p + 1e-6, strategy) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_join_turns_at_the_papers_satisfaction_time(strategy: str) -> None:
    """H2 may be anchored up to stime (PTJoin Theorem 2, d = 0), to the microsecond."""
    last = math.floor(STIME_US)
    (p,) = joined(last, 210 * SECOND, 0, 0.8, strategy)
    assert 0.8 <= p < 0.8 + 1e-6
    assert joined(last + 1, 210 * SECOND, 0, 0.8, strategy) == []


def test_the_papers_satisfaction_time() -> None:
    assert satisfaction_time(Template(PHI_1), 210 * SECOND, Template(PHI_2), 0.8) == pytest.approx(STIME_US, abs=1e-6)


@st.composite
def templates(draw: st.DrawFn) -> Template:
    """One to four buckets, holes and empty ends among them, up to a day long."""
    widths = draw(st.lists(st.integers(1, 10**10) | st.integers(1, 9), min_size=1, max_size=4))
    weights = draw(st.lists(st.integers(0, 9), min_size=len(widths), max_size=len(widths)).filter(any))
    start, buckets = draw(st.integers(-100, 100)), []
    for width, weight in zip(widths, weights, strict=True):
        buckets.append((start, start + width, Fraction(weight, sum(weights))))
        start += width
    return Template(tuple(buckets))


@settings(deadline=None, max_examples=50)
@given(templates(), templates(), st.sampled_from([0.05, 0.3, 0.5, 0.8, 0.99, 1.0]), st.integers(-(10**9), 10**9))
def test_thresholds_are_satisfaction_times(base: Template, target: Template, confidence: float, end: int) -> None:
    """The ends of the ranges enclose the exact ones, and equal them but for the guard band.

    Left end: P(X_target - X_base >= end) >= c. Right end: P(X_target - X_base <= end) >= c.
    """
    first, second = (Time(shape[0][0], 0, shape) for shape in map(oracle.shape_of, (base, target)))
    least = end - oracle.satisfaction_time(second, first, Fraction(confidence))
    most = end + oracle.satisfaction_time(first, second, Fraction(confidence))
    outer_lo, sure_lo, *_ = thresholds((base,), (target,), end, UNBOUNDED_US, confidence)[0, 0].tolist()
    *_, sure_hi, outer_hi = thresholds((base,), (target,), -UNBOUNDED_US, end, confidence)[0, 0].tolist()
    assert outer_lo <= math.ceil(least) <= sure_lo
    assert sure_hi <= math.floor(most) <= outer_hi
    for at, between in ((least, range(outer_lo, sure_lo)), (most, range(sure_hi + 1, outer_hi + 1))):
        for delta in (between[0], between[-1]) if between else ():
            window = (end, UNBOUNDED_US) if at is least else (-UNBOUNDED_US, end)
            p = oracle.probability(first, second._replace(t_max=delta), *window).exact
            assert abs(p - Fraction(confidence)) <= oracle.HISTOGRAM_BAND


@settings(deadline=None, max_examples=50)
@given(templates(), templates(), st.sampled_from([0.05, 0.3, 0.5, 0.8, 0.99, 1.0]), st.integers(-(10**15), 10**15))
def test_the_satisfaction_time_is_that_of_bisection(
    first: Template, second: Template, confidence: float, end_us: int
) -> None:
    """To the precision of a double, for hours in microseconds and for a time of this century."""
    one, other = (Time(shape[0][0], 0, shape) for shape in map(oracle.shape_of, (first, second)))
    exact = oracle.satisfaction_time(one, other, Fraction(repr(confidence)))
    assert abs(Fraction(satisfaction_time(first, 0, second, confidence)) - exact) < Fraction(1, 10**4)
    assert satisfaction_time(first, end_us, second, confidence) == pytest.approx(float(end_us + exact), abs=0.2)
