"""Sorting values with what belongs to them, by one thread and by several."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from whenabouts.core.arrays import value_order
from whenabouts.core.arrays.threads import cuts, each, using
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.arrays.value_order import sorted_values

RANDOM = np.random.default_rng(3)
ROWS = 200_000

VALUES = {
    "nothing": np.zeros(0, np.int64),
    "one": np.array([7]),
    "few": RANDOM.integers(-9, 9, 1_000),
    "few of all years": RANDOM.integers(-(2**57), 2**57, 1_000),
    "even": RANDOM.permutation(ROWS),
    "ascending": np.arange(ROWS),
    "two values": RANDOM.integers(0, 2, ROWS),
    "all the same": np.full(ROWS, 5),
    "of all years": RANDOM.integers(-(2**57), 2**57, ROWS),
    "one is far away": np.append(RANDOM.integers(0, ROWS, ROWS), 2**57),
    "ever nearer": (2 ** RANDOM.uniform(0, 57, ROWS)).astype(np.int64),
    "ever nearer to the end": -(2 ** RANDOM.uniform(0, 57, ROWS)).astype(np.int64),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", VALUES)
def test_values_are_sorted_stably_with_their_keys(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = VALUES[name]
    key = RANDOM.integers(-1, 50, len(values)).astype(np.int32)
    order = np.argsort(values, kind="stable")
    for crowded in (1 << 20, 1 << 13):  # with the second, stretches are divided again
        monkeypatch.setattr(value_order, "_CROWDED", crowded)
        with using(threads):
            keyed, alone = sorted_values(values, key), sorted_values(values)
        assert keyed.key is not None
        assert np.array_equal(keyed.key, key[order])
        assert alone.key is None
        for found in (keyed, alone):
            assert found.position.dtype == np.int32
            assert np.array_equal(found.position, order)
            assert np.array_equal(found.values, values[order])


def test_input_may_be_read_only_and_stays_as_it_is() -> None:
    values = RANDOM.permutation(ROWS)
    before: IntArray = values.copy()
    values.setflags(write=False)
    sorted_values(values)
    assert np.array_equal(values, before)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_ranges_are_all_rows_in_order(threads: int) -> None:
    with using(threads):
        for rows in (0, 1, 1 << 16, (1 << 17) - 1, 1_000_003):
            parts = cuts(rows)
            assert 1 <= len(parts) <= threads
            assert all(one.stop == next_.start for one, next_ in pairwise(parts))
            assert (parts[0].start, parts[-1].stop) == (0, rows)
        within = each(lambda item: (item, len(cuts(1 << 20))), [3, 1, 2])
        assert within == [(item, 1) for item in (3, 1, 2)]  # threads are not divided further
    assert len(cuts(1 << 20)) == 1
