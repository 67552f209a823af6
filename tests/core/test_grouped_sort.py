"""Pairs sorted by group and value, against numpy: few and many rows, groups of all sizes, values that crowd."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from whenabouts.core.arrays import grouped_sort, grouped_words
from whenabouts.core.arrays.grouped_sort import sorted_in_groups
from whenabouts.core.arrays.grouped_words import rows_in_groups
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


@pytest.mark.parametrize("shape", ["uniform", "crowded", "ties", "nearly", "halves", "falling", "rising"])
@pytest.mark.parametrize(
    ("rows", "groups"), [(0, 3), (1, 1), (40, 3), (20_000, 1), (40_000, 1), (20_000, 7), (20_000, 30_000)]
)
@pytest.mark.parametrize("known", [False, True])
def test_rows_in_groups_are_in_the_order_of_a_stable_sort(shape: str, rows: int, groups: int, known: bool) -> None:
    values, codes = _values(shape, rows), np.random.default_rng(4).integers(0, groups, rows)
    found = rows_in_groups(values, codes, groups, (-YEARS - 7, YEARS + 9) if known else None)
    order = np.lexsort((values, codes))
    assert np.array_equal(found.position, order)
    assert np.array_equal(found.values, values[order])
    assert np.array_equal(found.starts, np.searchsorted(codes[order], np.arange(1 + groups)))
    if groups == 1:
        assert all(map(np.array_equal, rows_in_groups(values, None, 1), found))


@pytest.mark.parametrize("bits", [0, 1, 40, 48, 49, 50, 51, 60, 62])
@pytest.mark.parametrize("rows", [1, 2, 8_192, 8_193, 20_000])
def test_values_of_all_widths_are_sorted(rows: int, bits: int) -> None:
    """In words that number all rows or those of a part, or in pairs: a part of 8,192 rows numbers them with 13 bits."""
    values = np.random.default_rng(bits).integers(0, 2**bits, rows) - 2**bits // 2
    values[:1], values[-1:] = 2**bits - 1 - 2**bits // 2, -(2**bits // 2)
    with patch.object(grouped_words, "sorted_in_groups", wraps=sorted_in_groups) as in_pairs:
        found = rows_in_groups(values, None, 1)
    order = np.argsort(values, kind="stable")
    assert np.array_equal(found.position, order)
    assert np.array_equal(found.values, values[order])
    if rows == 8_192:
        assert in_pairs.called == (bits > 50)


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
