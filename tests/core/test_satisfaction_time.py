"""The satisfaction time against its definition, and against the thresholds that the join compares."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_histogram_correlation import Bucket, exact, templates

from whenabouts.core import QueryError, Template
from whenabouts.core.satisfaction_time import satisfaction_time
from whenabouts.core.shape_thresholds import thresholds


def at(template: Template, end: int | Fraction) -> list[tuple[Fraction, Fraction, Fraction]]:
    return [(Fraction(end) + lo, Fraction(end) + hi, p) for lo, hi, p in template.exact]


def scaled(template: Template, end: Fraction, by: int) -> list[Bucket]:
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
