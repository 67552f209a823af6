"""Rows by key and time, against numpy's stable sort: every axis and order, lengths that can be packed and not."""

from __future__ import annotations

import numpy as np
import pytest

from whenabouts.core.arrays.key_time_order import Axis, Times, order_rows, sorted_positions
from whenabouts.core.arrays.typing import IntArray

DAY_US = 86_400_000_000


def _ends(order: str, rows: int) -> IntArray:
    rng = np.random.default_rng(5)
    t_max = rng.integers(-DAY_US, DAY_US, rows) // (10**9 if order == "ties" else 10**6)
    return np.sort(t_max) if order == "rising" else t_max


@pytest.mark.parametrize("longest", [0, 40, 2**62 // 3])
@pytest.mark.parametrize("axis", ["t_max", "midpoint", "shifted"])
@pytest.mark.parametrize("order", ["shuffled", "rising", "ties"])
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (500, 1), (500, 7), (9_000, 1), (9_000, 9), (9_000, 20_000)])
def test_rows_are_in_the_order_of_a_stable_sort(rows: int, keys: int, order: str, axis: Axis, longest: int) -> None:
    rng = np.random.default_rng(6)
    t_max, lengths = _ends(order, rows), rng.integers(0, longest, rows, endpoint=True)
    key, shift = rng.integers(0, keys, rows), rng.integers(-9, 9, rows)
    times = Times(t_max - lengths, t_max, key if keys > 1 else None)
    values = {"t_max": t_max, "midpoint": times.t_min + t_max, "shifted": t_max + shift}[axis]
    found = order_rows(times, axis, keys, shift if axis == "shifted" else None)
    found.check()
    at = np.lexsort((values, key))
    assert np.array_equal(found.position, at)
    assert np.array_equal(found.axis, values[at])
    assert np.array_equal(found.t_min, times.t_min[at])
    assert np.array_equal(found.t_max, t_max[at])
    assert np.array_equal(found.starts, np.searchsorted(key[at], np.arange(keys + 1)))
    assert np.array_equal(sorted_positions(values, times.key, keys), at)
