"""Kernels for pairs of rows that have few candidates each.

Pairs that the probability decides are decided some hundred at a time, so that the CPU does not wait for the times of
one after the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    FLOAT64,
    INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.prefetch import prefetch
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.probability.satisfaction_probability import fill_probabilities_at
from whenabouts.core.timing_join.pair_decision import KIND_THRESHOLDS, KindThresholds, fill_decisions_at
from whenabouts.core.timing_join.pair_fill import PASSED, PROBED, RUN, TAKEN

PAIRS_AT_ONCE = 1 << 10
"""Rows with so many candidates are decided together, then written: they stay in the first-level cache."""

_MOST_DOUBTS = 2 * PAIRS_AT_ONCE + 1
"""Of rows decided together, and room for one more to be written."""

_AHEAD = 16
"""So many rows before it, a row's first position is requested."""

NO_ROOM, MANY = -1, -2


@compiled((READ_INT64, READ_INT32, READ_INT64, WRITE_INT64, WRITE_INT64))
def rows_in_order(
    axis: IntArray,
    position: Positions,
    t_min: IntArray,
    out_min: IntArray,
    out_max: IntArray,
) -> None:
    """The times of rows, from their positions and twice their midpoints."""
    for i in range(len(out_min)):
        at = np.uint64(i)
        first = t_min[np.uint32(position[at])]
        out_min[i] = first
        out_max[i] = axis[at] - first


@compiled((READ_INT64, INT64, WRITE_INT64))
def keys_in_order(starts: IntArray, begin: int, out_key: IntArray) -> None:
    """The keys of rows by key from `begin` on, as many as there is room for."""
    key, after = 0, len(starts) - 1
    while after - key > 1:
        middle = (key + after) >> 1
        if starts[middle] <= begin:
            key = middle
        else:
            after = middle
    for i in range(len(out_key)):
        while begin + i >= starts[key + 1]:
            key += 1
        out_key[i] = key


@compiled(INT64(
    INT64, INT64, FLOAT64, READ_INT32_2D, READ_INT64, READ_INT64, INT64, READ_INT64, READ_INT64, READ_INT32,
    KIND_THRESHOLDS, BOOL, WRITE_INT64, INT64, WRITE_INT32, WRITE_INT32,
))  # fmt: skip
def fill_near_pairs(
    lo: int,
    hi: int,
    confidence: float,
    ranges: NDArray[np.int32],
    base_min: IntArray,
    base_max: IntArray,
    first_row: int,
    target_min: IntArray,
    target_max: IntArray,
    position: Positions,
    kinds: KindThresholds,
    in_order: bool,
    state: IntArray,
    written: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
) -> int:
    """Write the pairs of base rows, the first of which is number `first_row`, after `written` others.

    `ranges` are indices into `position`: the targets in the order of the search. Times and `kinds` are by row.
    The pairs and their order are those of `fill_pairs`, and so is what it adds to the counts of `state`. Returns how
    many pairs there are then; with `state` unchanged NO_ROOM if there may be none, MANY if a row has many candidates.
    `in_order`: a row's targets are near those of the last one of its key, in the cache. Otherwise their positions are
    read together, in a loop without branches, so that many reads are under way.
    """
    room = len(out_base) - RUN
    doubtful_base, doubtful_target = np.empty(_MOST_DOUBTS, np.int32), np.empty(_MOST_DOUBTS, np.int32)
    probability = np.empty(_MOST_DOUBTS, np.float64)
    sure = passed = probed = row = 0
    by_kind = kinds.table.size > 0
    while row < len(ranges):
        # What some rows have in doubt is decided first, so that no written pair has to move.
        after, candidates, doubts = row, 0, 0
        while after < len(ranges) and candidates <= PAIRS_AT_ONCE:
            if after + _AHEAD < len(ranges):
                prefetch(position, np.uint64(ranges[np.uint64(after + _AHEAD), 0]))
            i = np.uint64(after)  # unsigned: numba omits the test for negative indices
            outer_lo, sure_lo, sure_hi, outer_hi = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
            count = np.int64(outer_hi) - outer_lo
            if count > PAIRS_AT_ONCE:
                return MANY
            candidates += count
            sure += np.int64(sure_hi) - sure_lo
            if sure_lo != outer_lo or sure_hi != outer_hi:
                for target in range(outer_lo, outer_hi):
                    d = np.uint64(doubts)
                    doubtful_base[d], doubtful_target[d] = after, position[np.uint64(target)]
                    doubts += not sure_lo <= target < sure_hi
            after += 1
        if written + candidates > room:
            return NO_ROOM
        passed += candidates
        pairs = doubtful_base[:doubts], doubtful_target[:doubts]
        if by_kind:
            probed += fill_decisions_at(
                kinds, first_row, base_min, base_max, target_min, target_max, *pairs, lo, hi, probability[:doubts]
            )
        else:
            fill_probabilities_at(base_min, base_max, target_min, target_max, *pairs, lo, hi, probability[:doubts])
            probed += doubts
        first, decided = written, 0
        for number in range(row, after):
            i = np.uint64(number)
            outer_lo, sure_lo, sure_hi, outer_hi = ranges[i, 0], ranges[i, 1], ranges[i, 2], ranges[i, 3]
            count = np.int64(outer_hi) - outer_lo
            all_sure = sure_lo == outer_lo and sure_hi == outer_hi
            if all_sure and count <= RUN and (not in_order or outer_lo + RUN <= len(position)):
                # What is written beyond the run is overwritten by the next one.
                slot, at = np.uint64(written), np.uint64(outer_lo)
                for j in range(RUN):
                    out_base[slot + np.uint64(j)] = first_row + number
                if in_order:
                    for j in range(RUN):
                        out_target[slot + np.uint64(j)] = position[at + np.uint64(j)]
                else:
                    for j in range(RUN):
                        out_target[slot + np.uint64(j)] = outer_lo + j
                written += count
            else:
                for target in range(outer_lo, outer_hi):
                    slot, is_sure = np.uint64(written), sure_lo <= target < sure_hi
                    out_base[slot] = first_row + number
                    out_target[slot] = position[np.uint64(target)] if in_order else target
                    written += is_sure | (probability[np.uint64(decided)] >= confidence)
                    decided += not is_sure
        if not in_order:
            for k in range(first, written):
                slot = np.uint64(k)
                out_target[slot] = position[np.uint32(out_target[slot])]
        row = after
    state[PASSED] += passed
    state[TAKEN] += sure
    state[PROBED] += probed
    return written
