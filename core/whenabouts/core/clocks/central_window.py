"""The condition on times that a given share of true pairs meets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from whenabouts.core.arrays.typing import FloatArray
from whenabouts.core.clocks.calibration import distribution_function, quantiles
from whenabouts.core.times.conditions import Condition, between
from whenabouts.core.times.templates import Template

POINTS = 4000
HALVINGS = 24

CONFIDENCES = (0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2)
OFF = 0.04
CLEARLY = 0.5
"""Another confidence than one half is taken if an error of 0.04 of the distribution function changes the share by less
than half as much."""


def central_window(delays: Sequence[Template], share: float) -> Condition:
    """A condition that this share of pairs meets, of each kind at least, where both times of a pair are known but for a
    delay with the distribution of its kind.

    A pair with the delay d has the probability m(d) = F(d - lo) - F(d - hi), and meets the condition if that is not
    below the confidence. With `lo = q_a - q_c` and `hi = q_(1-a) - q_(1-c)` these are the delays from quantile a to
    quantile 1 - a, if none exceeds the window, and a is lowered until they have the share. The confidence c is one half
    unless the distribution has a gap in its middle, where m would be near one half for many delays.

    Cost: some 200 evaluations at 4,000 points for each kind.

    >>> two_ways = Template(((0, 10, 0.5), (10, 1000, 0), (1000, 1010, 0.5)))
    >>> central_window([two_ways], 0.9).confidence < central_window([Template(((0, 10, 1),))], 0.9).confidence
    True
    """
    at = (np.arange(POINTS) + 0.5) / POINTS
    points = [np.asarray(quantiles(delay, at.tolist())) for delay in delays]
    found: list[tuple[float, float, float, float]] = []
    for confidence in CONFIDENCES:
        low, high = 0.0, (1 - share) / 2
        for _ in range(HALVINGS):
            tail = (low + high) / 2
            ends = _ends(delays, tail, confidence)
            low, high = (tail, high) if _least(delays, points, ends, confidence) >= share else (low, tail)
        ends = _ends(delays, low, confidence)
        less, more = (_least(delays, points, ends, confidence + off) for off in (OFF, -OFF))
        found.append((more - less, confidence, *ends))
    best = min(found, key=lambda each: each[0])
    _, confidence, lo, hi = best if best[0] < CLEARLY * found[0][0] else found[0]
    return between(math.floor(lo), math.ceil(hi), confidence=confidence)


def _ends(delays: Sequence[Template], tail: float, confidence: float) -> tuple[float, float]:
    """The widest window of those of the kinds."""
    ends = np.array([quantiles(delay, [tail, confidence, 1 - confidence, 1 - tail]) for delay in delays])
    return float((ends[:, 0] - ends[:, 1]).min()), float((ends[:, 3] - ends[:, 2]).max())


def _least(
    delays: Sequence[Template], points: Sequence[FloatArray], ends: tuple[float, float], confidence: float
) -> float:
    """The least share of a kind's delays whose pairs meet the condition."""
    lo, hi = ends
    shares = []
    for delay, at in zip(delays, points, strict=True):
        probability = distribution_function(delay, at - lo) - distribution_function(delay, at - hi)
        shares.append(float(np.mean(probability >= confidence)))
    return min(shares)
