"""Queries over ranges of rows against plain loops."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import join_aggregate_oracle
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.join_aggregate.range_queries import (
    BLOCK,
    NO_KEY,
    RangeMinimum,
    collected,
    counts,
    distinct_counts,
    reversed_keys,
)
from whenabouts.core.join_aggregate.right_columns import RightColumn
from whenabouts.core.join_aggregate.value_keys import ValueKeys


class Ranges(NamedTuple):
    start: IntArray
    stop: IntArray
    offsets: IntArray
    rows: Positions

    @property
    def beside(self) -> tuple[IntArray, Positions]:
        return self.offsets, self.rows

    def rows_of(self, i: int) -> list[int]:
        inside = list(range(self.start[i], self.stop[i]))
        return inside + self.rows[self.offsets[i] : self.offsets[i + 1]].tolist()


def ranges(random: np.random.Generator, rows: int, count: int, beside: int = 6) -> Ranges:
    """Ranges in any order, some empty or backwards, with rows on both sides of each."""
    start, stop = random.integers(0, rows + 1, (2, count))
    offsets, found = [0], []
    for first, last in zip(start, stop, strict=True):
        outside = np.array([row for row in range(rows) if not first <= row < last], np.int32)
        chosen = np.sort(random.choice(outside, min(int(random.integers(0, beside)), len(outside)), replace=False))
        found.append(chosen)
        offsets.append(offsets[-1] + len(chosen))
    return Ranges(start, stop, np.array(offsets), np.concatenate([*found, np.empty(0, np.int32)]))


SIZES = [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7, 333]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("different", [1, 3, 1000])
def test_every_function_is_that_of_plain_loops(size: int, different: int) -> None:
    random = np.random.default_rng(size + different)
    ranks = np.unique(random.integers(0, different, size), return_inverse=True)[1].reshape(-1)
    ranks = np.where(random.random(size) < 0.2, -1, ranks)
    rank = random.permutation(size)
    asked = ranges(random, size, 300)
    keys = np.where(ranks < 0, NO_KEY, ranks)
    least = RangeMinimum(keys).of_ranges(asked.start, asked.stop, asked.beside)
    greatest = RangeMinimum(reversed_keys(keys)).of_ranges(asked.start, asked.stop, asked.beside)
    most = reversed_keys(greatest)
    distinct = distinct_counts(ranks, asked.start, asked.stop, asked.beside)
    count = counts(asked.start, asked.stop, asked.offsets)
    offsets, rows = collected(rank, asked.start, asked.stop, asked.beside)
    for i in range(len(asked.start)):
        inside = asked.rows_of(i)
        values = [value for value in ranks[inside].tolist() if value >= 0]
        truth = min(values, default=NO_KEY), max(values, default=NO_KEY), len(set(values)), len(inside)
        assert (least[i], most[i], distinct[i], count[i]) == truth
        assert rows[offsets[i] : offsets[i + 1]].tolist() == sorted(inside, key=lambda row: int(rank[row]))


@given(st.integers(0, 200), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_any_ranges(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    ranks = np.unique(random.integers(-3, 20, size), return_inverse=True)[1].reshape(-1)
    asked = ranges(random, size, 40)
    least = RangeMinimum(ranks).of_ranges(asked.start, asked.stop, asked.beside)
    distinct = distinct_counts(ranks, asked.start, asked.stop, asked.beside)
    for i in range(len(asked.start)):
        values = ranks[asked.rows_of(i)].tolist()
        assert (least[i], distinct[i]) == (min(values, default=NO_KEY), len(set(values)))


COLUMNS = [
    pa.array([0.0, -0.0, None, float("nan"), float("inf"), -5e-324, 2.5, -0.0]),
    pa.array([1.5, None, float("-inf"), 0.1], pa.float32()),
    pa.array(["b", "a", None, "", "ä", "z", "a"]),
    pa.array([3, None, -(2**63), 2**63 - 1, 3]),
    pa.array([3, None, -5, 2**63 - 2, 1 - 2**63]),
    pa.array([2**64 - 1, None, 0], pa.uint64()),
    pa.array([200, None, 7], pa.uint8()),
    pa.array([True, None, False]),
    pa.array([Decimal("2.50"), Decimal("-1"), None]),
    pa.array([5, None, -3], pa.int32()).view(pa.date32()),
    pa.array([5, None, 3]).view(pa.timestamp("us", "UTC")),
    pa.array([None, None], pa.int32()),
    pa.array([], pa.float64()),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: f"{column.type}-{len(column)}")
def test_keys_are_in_the_order_of_min_and_max(column: pa.Array) -> None:
    random = np.random.default_rng(len(column))
    keys, values = ValueKeys.of(column), column.to_pylist()
    asked = ranges(random, len(column), 60)
    least = keys.values_of(keys.minima.of_ranges(asked.start, asked.stop, asked.beside))
    most = keys.values_of(reversed_keys(keys.maxima.of_ranges(asked.start, asked.stop, asked.beside)))
    assert (least.type, most.type) == (column.type, column.type)
    distinct = distinct_counts(RightColumn("v", column).ranks, asked.start, asked.stop, asked.beside)
    for i in range(len(asked.start)):
        inside = [values[row] for row in asked.rows_of(i)]
        truth = [join_aggregate_oracle.decided(name, inside) for name in ("min", "max", "count_distinct")]
        assert repr([least[i].as_py(), most[i].as_py(), int(distinct[i])]) == repr(truth)


def test_only_types_that_are_no_numbers_are_sorted() -> None:
    sorted_ones = [str(column.type) for column in COLUMNS if ValueKeys.of(column).by_rank]
    assert sorted_ones == ["string", "int64", "uint64", "bool", "decimal128(3, 2)"]  # one int64 column of the two
