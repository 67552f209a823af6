"""Ranges of targets against the canonical kernel on every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.probability.histogram_arrays import shapes_of
from whenabouts.core.probability.histogram_probability import shape_probabilities_at
from whenabouts.core.times.templates import Template
from whenabouts.core.timing_join.candidate_ranges import CandidateRanges, ranges_of

TEMPLATES = (
    Template(((0, 20, "0.1"), (20, 30, "0.3"), (30, 40, "0.6"))),
    Template(((0, 7, "0.25"), (7, 20, 0), (20, 21, "0.75"))),
)
ENDS = st.sampled_from([-(2**62), -50, -9, 0, 3])


@st.composite
def sides(draw: st.DrawFn, keyed: bool) -> tuple[Times, tuple[Template, ...]]:
    """Points, a few lengths, many lengths, or templates."""
    n = draw(st.integers(0, 25))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    t_max = random.integers(0, 150, n)
    key = random.integers(0, 3, n) if keyed else None
    kind = draw(st.sampled_from(["points", "few", "many", "templates"]))
    if kind == "templates":
        number = random.integers(0, len(TEMPLATES), n).astype(np.int32)
        lengths = np.array([template.length_us for template in TEMPLATES])[number]
        return Times(t_max - lengths, t_max, key, number), TEMPLATES
    lengths = {"points": np.zeros(n, int), "few": random.choice([0, 4, 30], n), "many": random.integers(0, 60, n)}[kind]
    return Times(t_max - lengths, t_max, key), ()


def all_probabilities(
    base: Times, target: Times, templates: list[tuple[Template, ...]], lo: int, hi: int
) -> NDArray[np.float64]:
    """P of every pair, 0 for pairs of different keys."""
    n, m = len(base), len(target)
    at = np.repeat(np.arange(n, dtype=np.int32), m), np.tile(np.arange(m, dtype=np.int32), n)
    none = np.empty(0, np.int32)
    rows = [(side.t_min, side.t_max, none if side.template is None else side.template) for side in (base, target)]
    p = shape_probabilities_at(*rows, *at, *map(shapes_of, templates), lo, hi).reshape(n, m)
    return p if base.key is None or target.key is None else np.where(base.key[:, None] == target.key, p, 0.0)


def lengths_of(side: Times) -> tuple[int, int]:
    lengths = side.t_max - side.t_min
    return int(lengths.min(initial=0)), int(lengths.max(initial=0))


def check(found: CandidateRanges, p: NDArray[np.float64], confidence: float, *, possible: bool) -> None:
    assert sorted(found.base.position.tolist()) == list(range(p.shape[0]))
    for row, (outer_lo, sure_lo, sure_hi, outer_hi) in zip(found.base.position, found.ranges.tolist(), strict=True):
        assert 0 <= outer_lo <= sure_lo <= sure_hi <= outer_hi <= p.shape[1]
        position = found.target.position
        assert (p[row, position[sure_lo:sure_hi]] >= confidence).all()
        outside = np.concatenate([position[:outer_lo], position[outer_hi:]])
        assert (p[row, outside] == 0).all() if possible else (p[row, outside] < confidence).all()


@given(st.data(), st.booleans(), ENDS, ENDS, st.sampled_from([0.05, 0.5, 0.8, 1.0]), st.booleans())
@settings(max_examples=500, deadline=None)
def test_sure_targets_match_and_no_target_outside_does(
    data: st.DataObject, keyed: bool, first: int, last: int, confidence: float, possible: bool
) -> None:
    lo, hi = min(first, -last), max(first, -last)
    (base, base_templates), (target, target_templates) = data.draw(sides(keyed)), data.draw(sides(keyed))
    found = ranges_of(
        base, target, lo, hi, confidence, base_lengths=lengths_of(base), target_lengths=lengths_of(target),
        base_templates=base_templates, target_templates=target_templates, possible=possible,
    )  # fmt: skip
    p = all_probabilities(base, target, [base_templates, target_templates], lo, hi)
    check(found, p, confidence, possible=possible)


def test_base_rows_and_equal_targets_keep_their_order() -> None:
    base = Times(np.array([50, 0, 20]), np.array([60, 10, 30]))
    target = Times(np.array([5, 0, 4, 5]), np.array([15, 20, 16, 15]))  # one midpoint
    found = ranges_of(base, target, -5, 5, 0.5, base_lengths=(0, 20), target_lengths=(0, 20))
    assert found.base.position.tolist() == [0, 1, 2]
    assert found.target.position.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("possible", [False, True])
def test_the_work_does_not_grow_with_the_pairs(possible: bool) -> None:
    """Of points nothing is uncertain: all partners are in the sure range."""
    instants = np.arange(0, 1000)
    found = ranges_of(
        Times(instants, instants), Times(instants, instants), -100, 100, 1.0, base_lengths=(0, 0),
        target_lengths=(0, 0), possible=possible,
    )  # fmt: skip
    assert (found.ranges[:, 0] == found.ranges[:, 1]).all()
    assert (found.ranges[:, 2] == found.ranges[:, 3]).all()
    assert int((found.ranges[:, 2] - found.ranges[:, 1]).sum()) == 201 * 1000 - 100 * 101
