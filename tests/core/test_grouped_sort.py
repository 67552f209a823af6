"""Pairs sorted by group and value, against numpy: few and many rows, groups of all sizes, values that crowd."""

from __future__ import annotations

import numpy as np
import pytest

from whenabouts.core.arrays import grouped_sort
from whenabouts.core.arrays.grouped_sort import sorted_in_groups
from whenabouts.core.arrays.typing import IntArray

YEARS = 8_000 * 365 * 86_400_000_000


def _values(shape: str, rows: int) -> IntArray:
    rng = np.random.default_rng(3)
    match shape:
        case "uniform":
            return rng.integers(-YEARS, YEARS, rows)
        case "crowded":  # nearly all within a second, and two ends of the calendar: radix sort
            values = rng.integers(0, 1_000_000, rows)
            values[:1], values[-1:] = -YEARS, YEARS
            return values
        case "ties":
            return rng.integers(0, 1 + rows // 4, rows)
        case "nearly":  # insertion alone
            return np.arange(rows) * 2 + rng.choice([0, 0, 0, 0, 0, -1, 1, 7], rows) * (np.arange(rows) % 3 == 0)
        case "halves":  # insertion gives up
            return np.concatenate([np.arange(rows // 2), np.arange(rows - rows // 2)])
        case "falling":
            return np.arange(rows)[::-1] * 1000
        case _:
            return np.sort(rng.integers(0, YEARS, rows))


@pytest.mark.parametrize("shape", ["uniform", "crowded", "ties", "nearly", "halves", "falling", "rising"])
@pytest.mark.parametrize(("rows", "groups"), [(0, 3), (1, 1), (40, 3), (20_000, 1), (20_000, 7), (20_000, 30_000)])
def test_pairs_are_in_the_order_of_a_stable_sort(shape: str, rows: int, groups: int) -> None:
    values, codes = _values(shape, rows), np.random.default_rng(4).integers(0, groups, rows) + 5
    found = sorted_in_groups(values, None, codes, 5, groups)
    order = np.lexsort((values, codes))
    assert np.array_equal(found.pairs, np.stack([values[order], order], axis=1))
    assert np.array_equal(found.starts, np.searchsorted(codes[order], np.arange(5, 6 + groups)))
    same = (np.diff(values[order]) == 0) & (np.diff(codes[order]) == 0)
    assert found.has_ties == same.any()
    carried = sorted_in_groups(values, values ^ 7, codes, 5, groups).pairs
    assert np.array_equal(carried, np.stack([values[order], values[order] ^ 7], axis=1))


@pytest.mark.parametrize("bits", [5, 11, 12, 22, 33, 44, 55, 62])
def test_radix_passes_cover_all_bits_of_the_values(bits: int) -> None:
    """An odd and an even number of passes; as plain Python too, which small calls run."""
    rng = np.random.default_rng(bits)
    values = rng.integers(0, 2**bits, 200)
    values[:2] = 0, 2**bits - 1
    pairs = np.stack([values, np.arange(200)], axis=1)
    order = np.argsort(values, kind="stable")
    for radix in (grouped_sort._by_radix, grouped_sort._by_radix.py_func):  # type: ignore[attr-defined]  # numba's
        found = np.empty_like(pairs)
        radix(pairs.copy(), 0, 200, 0, 2**bits - 1, found, np.empty(2049, np.int32))
        assert np.array_equal(found, pairs[order])
