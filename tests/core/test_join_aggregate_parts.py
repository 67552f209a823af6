"""Ranges, exact sums, range queries and chances put together, against the pairs of a correlation.

What an operator will do in one step: one pass over the ranges, no pair written.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from whenabouts.conformance import join_aggregate_oracle, multiset
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.join_aggregate.chance_pieces import NONE, Partners, chances, rows_of
from whenabouts.core.join_aggregate.exact_sums import PrefixSums, digits_of
from whenabouts.core.join_aggregate.range_queries import collected, counts, distinct_counts, reversed_keys
from whenabouts.core.join_aggregate.right_columns import RightColumn
from whenabouts.core.join_aggregate.value_keys import ValueKeys
from whenabouts.core.probability.satisfaction_probability import probabilities_at
from whenabouts.core.timing_join.candidate_ranges import CandidateRanges, ranges_of
from whenabouts.core.timing_join.strategies import CorrelationCounters, Times, correlate

LEAST = 5e-324


class Rights(NamedTuple):
    """Rows in canonical order where their times are equal, and their values."""

    times: Times
    values: pa.Array


def tables(seed: int, rows: int, length: int) -> tuple[Times, Rights]:
    random = np.random.default_rng(seed)

    def side() -> Times:
        t_max = random.integers(0, 40 * rows, rows)
        return Times(t_max - random.integers(0, length + 1, rows), t_max, random.integers(0, 2, rows))

    left, right = side(), side()
    order = np.lexsort((right.t_max, right.t_min + right.t_max))  # ties on the axis in the order of `first`
    right = Times(right.t_min[order], right.t_max[order], right.key[order] if right.key is not None else None)
    values = np.round(random.normal(size=rows), 1) * 10.0 ** random.integers(-8, 8, rows)
    values[:4] = math.inf, math.nan, -0.0, 0.0
    return left, Rights(right, pa.array(values, mask=random.random(rows) < 0.1))


def ring_of(found: CandidateRanges) -> tuple[IntArray, Positions, Positions]:
    """The rows of the probed stretches: offsets, left rows, indices of ordered rights."""
    stretches = [np.concatenate([np.arange(a, b), np.arange(c, d)]) for a, b, c, d in found.ranges.tolist()]
    sizes = [len(stretch) for stretch in stretches]
    at = np.concatenate([*stretches, np.empty(0, int)]).astype(np.int32)
    return np.cumsum([0, *sizes]), np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), at


def probabilities(
    left: Times, found: CandidateRanges, row: Positions, at: Positions, window: tuple[int, int]
) -> NDArray[np.float64]:
    target = found.target
    return probabilities_at(left.t_min, left.t_max, target.t_min, target.t_max, row, at, *window)


def offsets_of(row: Positions, rows: int) -> IntArray:
    return np.searchsorted(row, np.arange(rows + 1))


@pytest.mark.parametrize("length", [0, 30, 400])
@pytest.mark.parametrize("window", [(-300, 200), (-30, 30), (0, 2**62)])
@pytest.mark.parametrize("confidence", [0.3, 0.9, 1.0])
def test_decided_functions_are_those_of_the_pairs(length: int, window: tuple[int, int], confidence: float) -> None:
    left, (right, values) = tables(length, 120, length)
    limits = {"base_lengths": (0, length), "target_lengths": (0, length)}
    found = ranges_of(left, right, *window, confidence, **limits)
    _, row, at = ring_of(found)
    accepted = probabilities(left, found, row, at, window) >= confidence
    beside = offsets_of(row[accepted], len(left)), at[accepted]
    start, stop = found.ranges[:, 1].astype(np.int64), found.ranges[:, 2].astype(np.int64)
    column = values.take(pa.array(found.target.position))
    keys = ValueKeys.of(column)
    sums = PrefixSums.of(digits_of(column)).of_ranges(start, stop, digits_of(column).take(beside[1]), beside[0])
    least = keys.minima.of_ranges(start, stop, beside)
    most = reversed_keys(keys.maxima.of_ranges(start, stop, beside))
    order = found.target.position.astype(np.int64)  # rows came in canonical order
    axis = found.target.t_min + found.target.t_max
    order = np.argsort(np.lexsort((order, found.target.t_max, axis)))
    offsets, rows = collected(order, start, stop, beside)
    answers = {
        "count": sums.counts.tolist(),
        "sum": sums.to_arrow(column.type, "v").to_pylist(),
        "mean": [None if value != value and not count else value
                 for value, count in zip(sums.to_means(column.type, "v").tolist(), sums.counts, strict=True)],
        "min": keys.values_of(least).to_pylist(),
        "max": keys.values_of(most).to_pylist(),
        "count_distinct": distinct_counts(RightColumn("v", column).ranks, start, stop, beside).tolist(),
        "collect": [column.take(pa.array(rows[a:b])).to_pylist() for a, b in pairwise(offsets)],
        "any": (counts(start, stop, beside[0]) > 0).tolist(),
    }  # fmt: skip
    pairs: list[list[int]] = [[] for _ in range(len(left))]
    for base_at, target_at in correlate(
        left, right, *window, confidence, strategy="eager", counters=CorrelationCounters(), **limits
    ):
        for base, target in zip(base_at.tolist(), target_at.tolist(), strict=True):
            pairs[base].append(target)
    plain = values.to_pylist()
    for name, answer in answers.items():
        for base, targets in enumerate(pairs):
            targets.sort(key=lambda j: (right.t_min[j] + right.t_max[j], right.t_max[j], j))
            truth = join_aggregate_oracle.decided(name, [plain[target] for target in targets])
            assert multiset.cell(answer[base]) == multiset.cell(truth), (name, base)


@pytest.mark.parametrize("window", [(-300, 200), (-30, 30), (0, 2**62)])
def test_expected_counts_are_the_exact_sums_of_the_pairs_probabilities(window: tuple[int, int]) -> None:
    left, (right, _) = tables(7, 120, 300)
    found = ranges_of(left, right, *window, 1.0, base_lengths=(0, 300), target_lengths=(0, 300), possible=True)
    _, row, at = ring_of(found)
    p = probabilities(left, found, row, at, window)
    uncertain = (p > 0) & (p < 1)
    certain = (found.ranges[:, 2] - found.ranges[:, 1]).astype(np.int64)
    certain += np.bincount(row[p == 1], minlength=len(left))
    partners = Partners(offsets_of(row[uncertain], len(left)), at[uncertain], p[uncertain], certain)
    every: list[list[float]] = [[] for _ in range(len(left))]
    for base_at, target_at in correlate(
        left, right, *window, LEAST, strategy="auto", base_lengths=(0, 300), target_lengths=(0, 300),
        counters=CorrelationCounters(),
    ):  # fmt: skip
        of_pairs = probabilities_at(left.t_min, left.t_max, right.t_min, right.t_max, base_at, target_at, *window)
        for base, value in zip(base_at.tolist(), of_pairs.tolist(), strict=True):
            every[base].append(value)
    assert partners.expected_count().tolist() == [math.fsum(values) for values in every]
    sides = rows_of(left.t_min, left.t_max), rows_of(found.target.t_min, found.target.t_max)
    none = chances(*sides, *window, partners, NONE).none
    assert ((none == 0) | (certain == 0)).all()
    assert [value == 1 for value in none.tolist()] == [not values for values in every]
