"""How good an answer is whose truth is known: precision and recall, the best window, reliability of probabilities.

A pair is one number, `left row * rows on the right + right row`, so that sets of pairs are sorted arrays of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MOST_PAIRS = 50_000_000


@dataclass(frozen=True)
class Score:
    """`found` pairs in the answer, `right` of them true, out of `true` pairs in all."""

    found: int
    right: int
    true: int

    @property
    def precision(self) -> float:
        """The share of the answer that is true; 1 for an empty answer."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """The share of the truth that is in the answer; 1 if there is nothing to find."""
        return self.right / self.true if self.true else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2 * self.right / (self.found + self.true) if self.found + self.true else 1.0


@dataclass(frozen=True)
class Bin:
    """Pairs whose probabilities lie in one bin: their mean probability, and the share of them that is true."""

    probability: float
    share: float
    pairs: int


def pairs_within(left_us: Array, right_us: Array, low_us: float, high_us: float) -> tuple[Array, Array]:
    """Rows (left, right) of all pairs with `low <= right - left <= high`: an ordinary interval join.

    >>> pairs_within(np.array([0, 10]), np.array([12, 3, 40]), 0, 12)
    (array([0, 0, 1]), array([1, 0, 0]))
    """
    order = np.argsort(right_us, kind="stable")
    ordered = right_us[order]
    first = np.searchsorted(ordered, left_us + low_us, "left")
    count = np.maximum(np.searchsorted(ordered, left_us + high_us, "right") - first, 0)
    if count.sum() > MOST_PAIRS:
        raise ValueError(f"{count.sum():,} pairs are too many to list")
    left = np.repeat(np.arange(len(left_us)), count)
    within = np.arange(len(left)) - np.repeat(np.cumsum(count) - count, count)
    return left, order[np.repeat(first, count) + within]


def score(found: Array, truth: Array) -> Score:
    """Two sets of pairs compared.

    >>> score(np.array([1, 2, 3, 4]), np.array([2, 3, 9]))
    Score(found=4, right=2, true=3)
    """
    return Score(len(found), int(np.isin(found, truth).sum()), len(truth))


def by_confidence(probability: Array, is_true: Array, true: int, confidences: Sequence[float]) -> list[Score]:
    """The answer at each confidence, from one join at the lowest of them: a higher one only removes pairs."""
    kept = [probability >= confidence for confidence in confidences]
    return [Score(int(keep.sum()), int(is_true[keep].sum()), true) for keep in kept]


def best(scores: Sequence[Score]) -> tuple[int, Score]:
    """Place and score of the best F1; the first of equal ones."""
    place = int(np.argmax([one.f1 for one in scores]))
    return place, scores[place]


def best_window(difference: Array, is_true: Array, true: int, edges: Array) -> tuple[Score, float, float]:
    """The window `low <= difference <= high` with the best F1, of all pairs of edges, chosen by the truth itself.

    Cost: a binary search for each edge, and the square of the number of edges.
    """
    edges = np.unique(edges)
    every, those = np.sort(difference), np.sort(difference[is_true])
    found, right = (
        np.maximum(np.searchsorted(of, edges, "right")[None, :] - np.searchsorted(of, edges, "left")[:, None], 0)
        for of in (every, those)
    )
    f1 = np.triu(2 * right / np.maximum(found + true, 1))
    low, high = np.unravel_index(np.argmax(f1), f1.shape)
    chosen = Score(int(found[low, high]), int(right[low, high]), true)
    return chosen, float(edges[low]), float(edges[high])


def reliability(probability: Array, is_true: Array, bins: int = 10) -> list[Bin]:
    """Equal bins of [0, 1], the empty ones left out; the last includes 1 (Murphy and Winkler, 1977)."""
    place = np.minimum((probability * bins).astype(int), bins - 1)
    held = [place == each for each in range(bins)]
    return [Bin(float(probability[at].mean()), float(is_true[at].mean()), int(at.sum())) for at in held if at.any()]


def pooled(many: Sequence[Sequence[Bin]], bins: int = 10) -> list[Bin]:
    """The bins of several runs together."""
    merged: dict[int, list[Bin]] = {}
    for one in (one for run in many for one in run):
        merged.setdefault(min(int(one.probability * bins), bins - 1), []).append(one)
    return [_merged(merged[place]) for place in sorted(merged)]


def _merged(many: Sequence[Bin]) -> Bin:
    pairs = sum(one.pairs for one in many)
    probability = sum(one.probability * one.pairs for one in many) / pairs
    return Bin(probability, sum(one.share * one.pairs for one in many) / pairs, pairs)


def calibration_error(bins: Sequence[Bin]) -> float:
    """The mean distance between probability and share, weighted by pairs (Naeini et al., 2015); 0 without pairs."""
    pairs = sum(one.pairs for one in bins)
    return sum(abs(one.probability - one.share) * one.pairs for one in bins) / pairs if pairs else 0.0
