"""How surprising a line is: scores of an image, and the chance that the best of all lines has such a sum.

**The score.** Each count is compared with its own neighbourhood without its centre (the hollow predictor of Stark and
Abeles 2009), so that daily cycles and common slow bursts cancel. What exceeds it is cut at 4 standard deviations, so
that no single burst outvotes the rest, and weighted as in a Poisson likelihood ratio.

**Chance.** Under the null every row of the image is turned by a random amount of its own, so that the sum along any
line is one of independent draws, each from its own row. Its generating function is known, and the saddlepoint
approximation (Daniels 1954, Lugannani and Rice 1980) gives its tail far out, where normal tails are wrong by orders
of magnitude. The probability for the best of all lines counts each one as a trial (look-elsewhere; Gross and Vitells
2010).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import FloatArray, IntArray

OUTER, INNER = 48, 3
NOISE_REACH = 400
CUT = 4.0
SHARE = 0.1
"""The share of left rows with a partner for which scores are best."""

THINNED_TO = 1_500_000
DOMINANT = 3
"""The best segments without which a line must still be visible."""


def scores(image: NDArray[Any], left_rows: IntArray) -> NDArray[np.float32]:
    """The score of each cell of an image (segments x differences), given the left rows of each segment."""
    result = np.empty(image.shape, np.float32)
    for row, (counts, rows) in enumerate(zip(image.astype(float), left_rows, strict=True)):
        background = hollow_background(counts)
        rest = counts - background
        bound = CUT * np.sqrt(np.maximum(background, 1 / (2 * OUTER)))
        square, cells = _around(np.clip(rest, -np.maximum(bound, 1), np.maximum(bound, 1)) ** 2, NOISE_REACH)
        variance = np.maximum(square / cells, background) + 1 / (2 * OUTER)
        most = np.maximum(CUT * np.sqrt(variance), 1)
        result[row] = np.clip(rest, -most, most) * np.log1p(SHARE * rows / variance)
    return result


def hollow_background(counts: FloatArray) -> FloatArray:
    """What the neighbourhood of each cell of a row has in a cell on average, without the cell's own surroundings.

    >>> float(hollow_background(np.array([2.0] * 50 + [9.0] + [2.0] * 50))[50])
    2.0
    """
    whole, whole_cells = _around(counts, OUTER)
    core, core_cells = _around(counts, INNER)
    return np.asarray((whole - core) / np.maximum(whole_cells - core_cells, 1))


def chance_of(total: float, rows: NDArray[Any], trials: float) -> float:
    """The probability that the best of `trials` lines has a sum of `total` or more, if each row is turned at random.

    Cost: O(cells) for each of some twenty steps, of at most 1.5 million cells.

    >>> rows = np.random.default_rng(0).poisson(1.0, (64, 500)).astype(float)
    >>> 0.1 < chance_of(64.0, rows, 1.0) < 1, chance_of(200.0, rows, 1e6) < 1e-12
    (True, True)
    """
    step = max(rows.size // THINNED_TO, 1)
    tail = math.exp(min(log_tail(total, np.asarray(rows[:, ::step], float)), 0.0))
    return -math.expm1(-trials * tail)


def log_tail(total: float, rows: FloatArray) -> float:
    """ln P(sum of one random cell of each row >= total), by the saddlepoint."""
    top = rows.max(axis=1)
    if total > float(np.sum(top)):
        return -math.inf
    if total <= float(np.sum(rows.mean(axis=1))):
        return 0.0
    low, high = 0.0, 1.0 / max(float(rows.std()), 1e-9)
    limit = 700.0 / max(float(np.ptp(rows)), 1e-9)
    while cumulants(min(high, limit), rows)[1] < total:
        if high >= limit:  # all rows are at their greatest values
            return float(np.sum(np.log(np.mean(rows >= top[:, None], axis=1))))
        low, high = high, 2 * high
    high = min(high, limit)
    eta = (low + high) / 2
    for _ in range(60):
        _, mean, variance = cumulants(eta, rows)
        if mean < total:
            low = eta
        else:
            high = eta
        if abs(mean - total) <= 1e-9 * max(abs(total), 1.0):
            break
        newton = eta + (total - mean) / variance if variance > 0 else low
        eta = newton if low < newton < high else (low + high) / 2
    value, _, variance = cumulants(eta, rows)
    spread = eta * math.sqrt(2 * math.pi * variance)
    return value - eta * total - math.log(max(spread, 1.0))


def cumulants(eta: float, rows: FloatArray) -> tuple[float, float, float]:
    """The cumulant generating function of a sum of one random cell of each row, its mean and its variance at `eta`.

    >>> cumulants(0.0, np.array([[0.0, 2.0], [1.0, 1.0]]))
    (0.0, 2.0, 1.0)
    """
    top = rows.max(axis=1, keepdims=True)
    weight = np.exp(eta * (rows - top))
    total = weight.sum(axis=1)
    mean = (weight * rows).sum(axis=1) / total
    square = (weight * rows * rows).sum(axis=1) / total
    value = np.log(total / rows.shape[1]) + eta * top[:, 0]
    return float(value.sum()), float(mean.sum()), float(np.maximum(square - mean**2, 0).sum())


def without_best(total: float, votes: FloatArray) -> tuple[float, IntArray]:
    """The sum of a line without its three best rows, and the rows that are left; `votes` are its values by row."""
    kept = np.sort(np.argsort(votes, kind="stable")[:-DOMINANT])
    return total - float(np.sum(np.sort(votes)[-DOMINANT:])), kept


def _around(values: FloatArray, reach: int) -> tuple[FloatArray, IntArray]:
    """The sum of the values within `reach` of each, and how many they are."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    low, high = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(values))
    return sums[high] - sums[low], high - low
