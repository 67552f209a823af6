"""Groups whose days look alike but shifted: perhaps they write local times of different zones.

The rows of a day, in 96 quarters of an hour, give each group a profile. Its circular cross-correlation with that of the
other groups has its peak at the offset of the two. Days are resampled (block bootstrap) to see whether the peak stays.
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.profile.granules import DAY, MINUTE

QUARTER = 15 * MINUTE
_BINS = DAY // QUARTER
_LEAST_DAYS = 5
_MOST_DAYS = 20_000
_LEAST_ROWS = 1_000
_LEAST_QUARTERS = 2
_RESAMPLED = 200
_KEPT = 0.95
_LEAST_CORRELATION = 0.5


class Days:
    """Counts of rows by day and quarter of an hour, from the first to the last day of a span."""

    def __init__(self, us: IntArray) -> None:
        self._first, last = (int(us.min()) // DAY, int(us.max()) // DAY) if len(us) else (0, 0)
        self._days = last - self._first + 1
        self.total = self._counts(us) if self._days <= _MOST_DAYS else None

    def _counts(self, us: IntArray) -> FloatArray:
        at = us // QUARTER - self._first * _BINS
        return np.bincount(at, minlength=self._days * _BINS).reshape(self._days, _BINS).astype(np.float64)

    def offset(self, us: IntArray, seed: int) -> int | None:
        """By how many quarters of an hour the days of these rows are ahead of those of the other rows.

        None if they are not, if it is unclear, and if either side has under 1,000 rows or five days.
        """
        if self.total is None:
            return None
        mine = self._counts(us)
        sides = [mine, self.total - mine]
        with_rows = [side[side.sum(axis=1) > 0] for side in sides]
        if any(len(side) < _LEAST_DAYS or side.sum() < _LEAST_ROWS for side in with_rows):
            return None
        return offset_of_days(with_rows[0], with_rows[1], seed)


def offset_of_days(days: FloatArray, others: FloatArray, seed: int) -> int | None:
    """By how many quarters of an hour the days of a group are ahead of the others', None if they are not, or unclear.

    The offset of the highest correlation must be at least two quarters, the correlation there above a half, and 95 % of
    200 resamplings of the days must have their highest correlation within a quarter of it. O(days) per resampling.
    """
    random = np.random.default_rng(seed)
    correlations = _correlations(days.sum(axis=0), others.sum(axis=0))
    best = int(np.argmax(correlations))
    if correlations[best] < _LEAST_CORRELATION or min(best, _BINS - best) < _LEAST_QUARTERS:
        return None
    kept = 0
    for _ in range(_RESAMPLED):
        mine = days[random.integers(0, len(days), len(days))].sum(axis=0)
        theirs = others[random.integers(0, len(others), len(others))].sum(axis=0)
        again = _correlations(mine, theirs)
        apart = abs(int(np.argmax(again)) - best)
        kept += min(apart, _BINS - apart) <= 1 and again[best] > again[0]
    return (best if best <= _BINS // 2 else best - _BINS) if kept >= _KEPT * _RESAMPLED else None


def _correlations(mine: FloatArray, theirs: FloatArray) -> FloatArray:
    """The correlation of two daily profiles, for each shift of the first one back."""
    profiles = []
    for counts in (mine, theirs):
        smooth = sum(np.roll(counts, shift) for shift in (-2, -1, 0, 1, 2))
        centred = smooth - np.mean(smooth)
        profiles.append(centred / (np.sqrt(np.sum(centred**2)) or 1.0))
    product = np.fft.rfft(profiles[0]) * np.conj(np.fft.rfft(profiles[1]))
    return np.asarray(np.fft.irfft(product, _BINS))
