"""A straight line through differences of times, not moved by gross errors, with errors that hold for bursts.

The line is that of Theil (1950) and Sen (1968) on medians of time blocks, refined by Huber's M-estimate (1964).
Standard errors are those of the sandwich clustered over blocks of time (Liang and Zeger 1986): differences that are
close in time may be alike. The offset is the median about the line; its error follows Woodruff (1952): the clustered
error of the share of rows below the median, carried over to the axis by the quantiles themselves, so that no density is
estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray

MEDIAN_BLOCKS = 32
CLUSTERS = 40
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
    pull = np.clip(rest, -bound, bound)
    free = np.abs(rest) < bound
    bread = _moments(np.where(free, 1.0, 0.0), at)
    if np.linalg.det(bread) <= 0:  # all that is not clipped lies at one time
        bread = _moments(np.ones(len(at)), at)
    block = blocks_of(len(x), CLUSTERS)
    sums = np.stack([np.bincount(block, pull), np.bincount(block, pull * at)])
    clusters = sums.shape[1]
    inverse = np.linalg.inv(bread)
    spread = inverse @ (sums @ sums.T) @ inverse * clusters / (clusters - 1)
    return float(slope) / scale, float(spread[1, 1]) / scale**2


def _moments(weight: FloatArray, at: FloatArray) -> FloatArray:
    first = np.sum(weight * at)
    return np.array([[np.sum(weight), first], [first, np.sum(weight * at * at)]])


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
    low, high = np.quantile(rest, [max(0.5 - error, 0.0), min(0.5 + error, 1.0)])
    return max(float(high - low) / 2, 0.5)
