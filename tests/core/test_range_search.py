"""Ranges of indices found near where the last ones ended are those of a binary search."""

from __future__ import annotations

import numpy as np
import pytest

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.times.limits import ALWAYS_US, NEVER_US
from whenabouts.core.timing_join.range_search import locate, time_extremes


def searched(bounds: IntArray, key: IntArray, axis: IntArray, starts: IntArray) -> list[list[int]]:
    """By numpy, row by row."""
    found = []
    for (outer, sure, sure_end, outer_end), k in zip(bounds, key, strict=True):
        first, last = starts[k : k + 2]
        values = axis[first:last]
        lo, hi = np.searchsorted(values, outer), np.searchsorted(values, outer_end, "right")
        lo, hi = first + lo, first + max(lo, hi)
        sure_lo = min(max(first + np.searchsorted(values, sure), lo), hi)
        sure_hi = min(max(first + np.searchsorted(values, sure_end, "right"), sure_lo), hi)
        found.append([int(lo), int(sure_lo), int(sure_hi), int(hi)])
    return found


@pytest.mark.parametrize("gallop", [True, False])
@pytest.mark.parametrize(
    ("keys", "per_key", "reach", "disorder"),
    [(1, 0, 10, 0), (1, 1, 10, 0), (3, 6, 10, 3), (5, 40, 3, 0), (5, 40, 30, 20), (2, 200, 400, 5), (40, 8, 15, 1_000)],
)
def test_ranges_are_those_of_binary_searches(keys: int, per_key: int, reach: int, disorder: int, gallop: bool) -> None:
    """Keys with no, one and many targets; ends before all, after all and anywhere; empty and crossed ranges."""
    rng = np.random.default_rng((keys, per_key, reach, disorder))
    for _ in range(20):
        sizes = rng.integers(0, per_key, keys, endpoint=True)
        starts = np.concatenate(([0], np.cumsum(sizes)))
        span = 3 * per_key + 1
        axis = np.concatenate([np.sort(rng.integers(0, span, size)) for size in sizes]).astype(np.int64)
        rows = 4 * per_key + 3
        key = rng.integers(0, keys, rows)
        at = np.sort(rng.integers(-reach, span + reach, rows)) + rng.integers(-disorder, disorder + 1, rows)
        ends = np.sort(at[:, None] + rng.integers(-reach, reach, (rows, 4), endpoint=True), axis=1)
        crossed = rng.random(rows) < 0.1
        ends[crossed] = ends[crossed][:, [0, 2, 1, 3]]
        ends[rng.random(rows) < 0.05, 0] = NEVER_US
        ends[rng.random(rows) < 0.05, 3] = ALWAYS_US
        empty = rng.random(rows) < 0.05
        ends[empty] = ends[empty][:, ::-1]
        out = np.full((rows, 4), -1, np.int32)
        locate(ends, key, axis, starts, gallop, np.stack((starts[:-1], starts[:-1])), out)
        assert out.tolist() == searched(ends, key, axis, starts)


def test_extremes_of_times() -> None:
    rng = np.random.default_rng(1)
    for rows in (1, 2, 7, 8, 100):
        t_min = rng.integers(-(10**15), 10**15, rows)
        length = rng.integers(0, 10**6, rows)
        found = (int(t_min.min()), int((t_min + length).max()), int(length.min()), int(length.max()))
        assert time_extremes(t_min, t_min + length) == found
