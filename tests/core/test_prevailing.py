"""Which right row prevails, and how probably: the kernels against exact rationals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from whenabouts.conformance import prevailing_oracle as oracle
from whenabouts.conformance.oracle import Time
from whenabouts.core.asof_join.prevailing import Direction, Prevailing, Side, prevailing
from whenabouts.core.times.templates import Template

DIRECTIONS: tuple[Direction, ...] = ("backward", "forward", "nearest")
PROMISED = Fraction(1, 10**12)


class Times(NamedTuple):
    """Times of one side as the core and as the oracle take them."""

    side: Side
    exact: list[Time]


def intervals(ends: Sequence[tuple[int, int]]) -> Times:
    t_min, t_max = (np.array([end[i] for end in ends], np.int64) for i in (0, 1))
    return Times(Side(t_min, t_max), [Time(*end) for end in ends])


def histograms(templates: tuple[Template, ...], rows: Sequence[tuple[int, int]]) -> Times:
    """Rows of (t_max, template)."""
    t_max, number = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int32)
    lengths = np.array([template.length_us for template in templates])
    side = Side(t_max - lengths[number], t_max, None, number, templates)
    return Times(side, [Time(0, t, tuple(templates[k].exact)) for t, k in rows])


def random_template(draw: random.Random, scale: int) -> Template:
    """Up to three buckets, some empty, perhaps at an end."""
    weights = [draw.choice([0, 1, 2, 3]) for _ in range(draw.randint(1, 3))]
    if not any(weights):
        weights[0] = 1
    edges = [draw.randint(-3, 3) * scale]
    for _ in weights:
        edges.append(edges[-1] + draw.randint(1, 4) * scale)
    total = sum(weights)
    return Template(
        tuple((lo, hi, Fraction(weight, total)) for lo, hi, weight in zip(edges, edges[1:], weights, strict=False))
    )


def random_times(draw: random.Random, n: int, span: int = 10, scale: int = 1) -> Times:
    """Small integers, so that ends touch and rows are equal; points, intervals or histograms."""
    if draw.random() < 0.3:
        templates = tuple(random_template(draw, scale) for _ in range(2))
        return histograms(templates, [(draw.randint(0, span) * scale, draw.randint(0, 1)) for _ in range(n)])
    starts = [draw.randint(0, span) * scale for _ in range(n)]
    return intervals([(start, start + draw.choice([0, 0, 1, 2, 3, 5, 8]) * scale) for start in starts])


def random_rules(draw: random.Random, scale: int = 1) -> oracle.Rules:
    tolerance = draw.choice([None, None, 0, 1, 2, 3, 5])
    return oracle.Rules(draw.choice(DIRECTIONS), None if tolerance is None else tolerance * scale, draw.random() < 0.6)


def run(left: Side, right: Side, rules: oracle.Rules) -> Prevailing:
    return prevailing(
        left,
        right,
        direction=rules.direction,
        tolerance_us=rules.tolerance_us,
        allow_exact_matches=rules.exact_matches,
    )


def of_row(answer: Prevailing, i: int, right: int) -> list[float]:
    """The probabilities of left row i by right row, and of none."""
    found = [0.0] * right
    for c in range(answer.offsets[i], answer.offsets[i + 1]):
        found[answer.rows[c]] = float(answer.probability[c])
    return [*found, float(answer.none_probability[i])]


def check(left: Times, right: Times, rules: oracle.Rules, ranks: list[int] | None = None) -> Fraction:
    """The greatest error; only what is certain may be 1.0."""
    side = right.side if ranks is None else right.side._replace(rank=np.array(ranks, np.int64))
    answer, greatest = run(left.side, side, rules), Fraction(0)
    for i, time in enumerate(left.exact):
        exact = oracle.prevailing(time, right.exact, rules, ranks)
        for value, expected in zip(of_row(answer, i, len(right.exact)), [*exact.rows, exact.none], strict=True):
            assert (value == 1.0) == (expected == 1), (left, right, rules)
            greatest = max(greatest, abs(Fraction(value) - expected))
    return greatest


@pytest.mark.parametrize("seed", range(12))
def test_every_kind_of_time(seed: int) -> None:
    """Points, intervals and histograms, touching ends, equal rows, each direction, tolerances at edges and 0."""
    draw = random.Random(seed)
    for _ in range(25):
        left, right = random_times(draw, 2), random_times(draw, draw.randint(0, 5))
        ranks = list(range(len(right.exact)))
        draw.shuffle(ranks)
        assert check(left, right, random_rules(draw), ranks) < PROMISED
