"""A straight line through differences of times, not moved by gross errors, with errors that hold for bursts.

The line is that of Theil (1950) and Sen (1968) on medians of time blocks, refined by Huber's M-estimate (1964).
Standard errors are those of the sandwich clustered over blocks of time (Liang and Zeger 1986): differences that are
close in time may be alike. That of the slope is the form which leaves out each block in turn, and so holds for few rows
(MacKinnon and White 1985). The offset is the median about the line; its error follows Woodruff (1952): the clustered
error of the share of rows below the median, carried over to the axis by the quantiles themselves, so that no density is
estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray

MEDIAN_BLOCKS = 32
CLUSTERS = 40
ENDS, FREE = 5 / 9, 0.7
"""What counts for a slope: the fourth moment of even times makes it 5/9 of the blocks (Bell and McCaffrey 2002), and
of few rows those that are not clipped."""

WIDE = 1.96
"""Errors to either side of the median between which quantiles are taken: those of one error are of too few rows."""

ROUNDS = 50
"""More than Huber's iteration needs: it stops where the line no longer moves."""


@dataclass(frozen=True, slots=True)
class Line:
    """`y = median + slope x` with the covariance of both: ((var median, cov), (cov, var slope))."""

    median: float
    slope: float
    covariance: tuple[tuple[float, float], tuple[float, float]]

    @property
    def slope_error(self) -> float:
        """Standard error of the slope."""
        return float(np.sqrt(self.covariance[1][1]))


def fit_line(x: FloatArray, y: FloatArray, *, slope: float | None = None) -> Line:
    """The line through three points or more in order of x, which are not all at one x; with `slope` given, only its
    median is found.

    Cost: O(n log n) for n points.

    >>> x = np.arange(100.0)
    >>> line = fit_line(x, 7 + 0.5 * x + np.where(x % 10 == 3, 1000.0, 0.0))  # a tenth are gross errors
    >>> round(line.slope, 2), round(line.median, 1)
    (0.5, 7.0)
    """
    variance = 0.0
    if slope is None:
        slope, variance = _slope(x, y)
    rest = y - slope * x
    own = _median_error(rest)
    middle = float(np.mean(x))
    covariance = -middle * variance
    return Line(float(np.median(rest)), slope, ((own**2 + middle**2 * variance, covariance), (covariance, variance)))


def blocks_of(n: int, most: int) -> IntArray:
    """The number of the block of each of n rows in order of time: at most `most` blocks of almost equal size.

    >>> blocks_of(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    return np.arange(n) * min(n, most) // max(n, 1)


def errors_like(deviations: float, rows: int) -> float:
    """How many standard errors of a slope are as improbable as so many deviations of a normal distribution, since the
    error is estimated, too: by Student's distribution (Cornish and Fisher 1937).

    >>> [round(errors_like(3, rows), 1) for rows in (20, 40, 1_000)]
    [4.2, 3.6, 3.4]
    """
    freedom, z = ENDS * min(FREE * rows, CLUSTERS), deviations
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _slope(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """The slope and its variance."""
    scale = max(float(np.ptp(x)), 1.0)
    at = (x - np.mean(x)) / scale
    slope = _median_slope(at, y)
    rest = y - slope * at
    level = float(np.median(rest))
    bound = max(1.5 * float(np.median(np.abs(rest - level))), 1.0)
    for _ in range(ROUNDS):
        rest = y - level - slope * at
        weight = bound / np.maximum(np.abs(rest), bound)
        total, first, second = np.sum(weight), np.sum(weight * at), np.sum(weight * at * at)
        up, across = np.sum(weight * rest), np.sum(weight * at * rest)
        determinant = total * second - first**2
        if determinant <= 0:
            break
        steps = (second * up - first * across) / determinant, (total * across - first * up) / determinant
        level, slope = level + steps[0], slope + steps[1]
        if max(map(abs, steps)) < 1e-6 * bound:
            break
    rest = y - level - slope * at
    weight = (np.abs(rest) < bound).astype(float)
    return float(slope) / scale, _slope_variance(at, weight, np.clip(rest, -bound, bound)) / scale**2


def _slope_variance(at: FloatArray, weight: FloatArray, pull: FloatArray) -> float:
    """The variance of the slope, from what it would be without each of the clusters."""
    block = blocks_of(len(at), CLUSTERS)
    own = np.stack([np.bincount(block, weight * power) for power in (np.ones(len(at)), at, at * at)])
    whole = own.sum(axis=1, keepdims=True)
    if _determinant(whole) <= 0:  # all that is not clipped lies at one time
        return _slope_variance(at, np.ones(len(at)), pull)
    total, first, _ = rest = np.where(_determinant(whole - own) > 0, whole - own, whole)
    up, across = np.bincount(block, pull), np.bincount(block, pull * at)
    moves = (total * across - first * up) / _determinant(rest)
    return float(np.sum(moves**2)) * (len(moves) - 1) / len(moves)


def _determinant(moments: FloatArray) -> FloatArray:
    """Of the matrix ((total, first), (first, second)) of each column."""
    total, first, second = moments
    return np.asarray(total * second - first**2)


def _median_slope(at: FloatArray, y: FloatArray) -> float:
    """The median of the slopes between the medians of blocks."""
    block = blocks_of(len(at), MEDIAN_BLOCKS)
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    points = np.array(
        [(np.median(a), np.median(b)) for a, b in zip(np.split(at, starts[1:]), np.split(y, starts[1:]), strict=True)]
    )
    one, other = np.triu_indices(len(points), 1)
    run = points[other, 0] - points[one, 0]
    rise = points[other, 1] - points[one, 1]
    return float(np.median(rise[run > 0] / run[run > 0])) if (run > 0).any() else 0.0


def _median_error(rest: FloatArray) -> float:
    """The standard error of the median."""
    side = np.sign(rest - np.median(rest)) / 2
    sums = np.bincount(blocks_of(len(rest), CLUSTERS), side)
    error = float(np.sqrt(np.sum(sums**2) * len(sums) / max(len(sums) - 1, 1))) / len(rest)
    low, high = np.quantile(rest, [max(0.5 - WIDE * error, 0.0), min(0.5 + WIDE * error, 1.0)])
    return max(float(high - low) / 2 / WIDE, 0.5)
