"""Tests of the oracle's histograms: the paper's numbers, and sums and walks that share no formula with it."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import oracle
from whenabouts.conformance.oracle import AmbiguousPairError, Fault, Ratio, Shape, Time
from whenabouts.core import Histogram, Template
from whenabouts.core.times.limits import UNBOUNDED_US

# PTJoin Examples 3 and 4: detected at 60, 110 and 210.
PHI_1 = Template(((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6")))
PHI_2 = Template(((0, 10, "0.15"), (10, 20, "0.3"), (20, 30, "0.4"), (30, 40, "0.15")))


def placed(template: Template, t_max: int) -> Time:
    shape = oracle.shape_of(template)
    return Time(t_max + shape[0][0], t_max, shape)


H_2, H_3 = placed(PHI_2, 110), placed(PHI_1, 210)


def at_least(first: Time, shift: int, second: Time) -> Fraction:
    """P(X_first - shift >= X_second)."""
    return oracle.probability(first, second, -UNBOUNDED_US, -shift).exact


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Up to four buckets with holes between them and before the anchor."""
    weights = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any))
    edges = [-draw(st.integers(0, 2))]
    for _ in weights:
        edges.append(edges[-1] - draw(st.integers(1, 5)))
    buckets = list(zip(edges[1:], edges, weights, strict=False))
    return tuple((lo, hi, Fraction(w, sum(weights))) for lo, hi, w in reversed(buckets) if w)


times = st.tuples(shapes(), st.integers(-8, 8)).map(lambda drawn: Time(drawn[1] + drawn[0][0][0], drawn[1], drawn[0]))
bounds = st.tuples(st.integers(-15, 10), st.integers(0, 20)).map(lambda at: (at[0], at[0] + at[1]))


def test_the_papers_probabilities() -> None:
    """The paper rounds the second to 0.769."""
    assert at_least(H_3, 90, H_2) == Fraction("0.925")
    assert at_least(H_3, 100, H_2) == Fraction("0.76875")


def test_the_papers_satisfaction_time() -> None:
    """With y = 70 + x the paper finds -0.0007625 y^2 + 0.236 y - 17.315 = 0.8, and stime = y + 40."""
    found = oracle.satisfaction_time(H_3, H_2, Fraction("0.8"))
    assert float(found) == 208.5907854727929
    y = found - 40
    assert abs(-Fraction("0.0007625") * y * y + Fraction("0.236") * y - Fraction("17.315") - Fraction("0.8")) < 2.0**-60


def test_the_satisfaction_time_of_a_flat_stretch_is_its_end() -> None:
    """Half of the mass lies ten below the other half: moved by 5 to 15, P is 1/2 all the way.

    X1       ###.........########      - 15 ... - 5
    X2          |(0)
    """
    half = Fraction(1, 2)
    split = Time(-5, 25, ((-30, -20, half), (-10, 0, half)))
    assert oracle.satisfaction_time(split, Time(0, 0), half) == 15
    assert abs(oracle.satisfaction_time(split, Time(0, 0), half + Fraction(1, 10**9)) - 5) < 1e-6
    assert oracle.satisfaction_time(split, Time(0, 0), Fraction(1)) == -5


@settings(deadline=None, max_examples=60)
@given(times, times, st.fractions(Fraction(1, 100), 1, max_denominator=100))
def test_the_satisfaction_time_parts_what_reaches_the_confidence(first: Time, second: Time, c: Fraction) -> None:
    """All whole shifts up to it reach the confidence, none after it does."""
    shift = oracle.satisfaction_time(first, second, c) - second.t_max
    for whole in range(-70, 70):
        close = abs(whole - shift) < Fraction(1, 2**60)
        assert close or (at_least(first, whole, second) >= c) == (whole <= shift)


@settings(deadline=None)
@given(times, times, bounds)
def test_a_histogram_is_a_mixture(left: Time, right: Time, window: tuple[int, int]) -> None:
    """Ends a bucket at a time: given the two buckets, the events are plain intervals."""
    total = Fraction(0)
    for lo1, hi1, p1 in left.shape:
        for lo2, hi2, p2 in right.shape:
            part = oracle.probability(
                (left.t_max + lo1, left.t_max + hi1), (right.t_max + lo2, right.t_max + hi2), *window
            )
            total += p1 * p2 * part.exact
    assert oracle.probability(left, right, *window).exact == total


@settings(deadline=None, max_examples=60)
@given(times, times, bounds)
def test_the_probability_is_the_share_of_a_fine_grid(left: Time, right: Time, window: tuple[int, int]) -> None:
    """Cells of a grid that lie wholly inside the window bound P from below, cells that meet it from above."""
    n, least, most = 4, Fraction(0), Fraction(0)

    def cells(time: Time) -> list[tuple[Fraction, Fraction, Fraction]]:
        cut = []
        for lo, hi, p in time.shape:
            width = Fraction(hi - lo, n)
            cut += [(time.t_max + lo + i * width, time.t_max + lo + (i + 1) * width, p / n) for i in range(n)]
        return cut

    for start1, end1, p1 in cells(left):
        for start2, end2, p2 in cells(right):
            least += p1 * p2 * (window[0] <= start2 - end1 and end2 - start1 <= window[1])
            most += p1 * p2 * (start2 - end1 <= window[1] and end2 - start1 >= window[0])
    assert least <= oracle.probability(left, right, *window).exact <= most


@settings(deadline=None)
@given(times, times, bounds, st.integers(-(10**15), 10**15), st.integers(1, 10**7))
def test_the_probability_does_not_depend_on_origin_unit_or_side(
    left: Time, right: Time, window: tuple[int, int], origin: int, unit: int
) -> None:
    def moved(time: Time) -> Time:
        shape = tuple((unit * lo, unit * hi, p) for lo, hi, p in time.shape)
        return Time(origin + unit * time.t_min, origin + unit * time.t_max, shape)

    p = oracle.probability(left, right, *window).exact
    assert oracle.probability(moved(left), moved(right), unit * window[0], unit * window[1]).exact == p
    assert oracle.probability(right, left, -window[1], -window[0]).exact == p


@settings(deadline=None)
@given(st.integers(0, 9), times, bounds)
def test_a_uniform_interval_is_a_histogram_of_equal_buckets(length: int, right: Time, window: tuple[int, int]) -> None:
    """A point stays a point; an interval may be cut anywhere."""
    whole = oracle.probability((-length, 0), right, *window).exact
    if length > 1:
        cut = ((-length, -1, Fraction(length - 1, length)), (-1, 0, Fraction(1, length)))
        assert oracle.probability(Time(-length, 0, cut), right, *window).exact == whole
    assert oracle.probability((-length, 0), Time(*right), *window).exact == whole


def test_probabilities_are_certain_exactly_when_the_supports_lie_inside() -> None:
    """The anchor may lie after the support, and times in a gap of the support are impossible."""
    late = placed(Template(((0, 4, 0.1), (4, 8, 0), (8, 10, 0.9), (10, 30, 0))), 30)  # supports [0, 4] and [8, 10]
    assert late.t_min == 0
    assert oracle.probability((0, 0), late, 0, 10).exact == 1
    assert oracle.probability((0, 0), late, 0, 9).exact < 1
    assert oracle.probability((0, 0), late, 4, 8).exact == 0
    assert oracle.probability((0, 0), late, 10, 30).exact == 0


def test_probabilities_are_divided_by_their_exact_sum() -> None:
    tenths = oracle.shape_of(Template(((0, 1, 0.1), (1, 2, 0.2), (2, 3, 0.7))))
    assert sum(p for *_, p in tenths) == 1
    assert tenths[0][2] != Fraction(1, 10), "a float is what it is, not what it was written as"
    assert oracle.shape_of(Template(((5, 6, "0.1"), (6, 8, "0.9"))))[0] == (-3, -2, Fraction(1, 10))


def test_ties_of_histograms_are_known_only_where_nothing_is_rounded() -> None:
    assert oracle.is_match(Ratio(3, 4, mixture=True), 0.75)
    assert not oracle.is_match(Ratio(3, 4, mixture=True), 0.7500000000000001)
    assert oracle.is_match(Ratio(6, 6, mixture=True), 1.0)
    assert not oracle.is_match(Ratio(2**50 - 1, 2**50, mixture=True), 1.0)
    assert not oracle.is_match(Ratio(0, 6, mixture=True), 5e-324)
    assert oracle.is_match(Ratio(4, 5, mixture=True), 0.799999999)
    for numerator, denominator in ((4, 5), (2**60 + 1, 2**61)):
        with pytest.raises(AmbiguousPairError):
            oracle.is_match(Ratio(numerator, denominator, mixture=True), numerator / denominator)


def test_dyadic_buckets_give_dyadic_sums() -> None:
    """Eighths over lengths of 2 and 4: the terms' common denominator is a power of two, though P itself is 1/2."""
    shape = oracle.shape_of(Template(((0, 2, "0.125"), (2, 4, "0.375"), (4, 8, "0.5"))))
    p = oracle.probability(Time(-8, 0, shape), Time(-8, 0, shape), 0, UNBOUNDED_US)
    assert (p.exact, p.small, p.nearest) == (Fraction(1, 2), True, 0.5)
    assert p.denominator > 2
    thirds = oracle.shape_of(Template(((0, 3, "0.5"), (3, 4, "0.5"))))
    assert not oracle.probability(Time(-4, 0, thirds), (0, 1), 0, 3).small


def test_every_fault_of_a_histogram_has_its_code() -> None:
    """A row with several faults has the code of the first of: no time, a time out of range, no such template."""
    spec = Histogram("t", template="kind", templates={"7": [(0, 10, 1)], "8": [(0, 4, 1), (4, 6, 0)]})
    types = {"t": pa.int64(), "kind": pa.int32()}
    rows = [(None, 9), (10**18, 9), (5, 9), (5, None), (5, 7), (5, 8)]
    told = [oracle.read_time(spec, {"t": t, "kind": kind}, types) for t, kind in rows]
    one = Fraction(1)
    assert told == [
        Fault("WA-1003"),
        Fault("WA-1007"),
        Fault("WA-1013"),
        Fault("WA-1013"),
        Time(-5, 5, ((-10, 0, one),)),
        Time(-1, 5, ((-6, -2, one),)),
    ]
    alone = Histogram("t", templates=Template(((0, 3, 1),)))
    assert oracle.read_time(alone, {"t": 5}, {"t": pa.timestamp("ms")}) == Time(4997, 5000, ((-3, 0, one),))
