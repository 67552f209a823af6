"""Fills pairs from index ranges: the kernel that all strategies share.

A base row's ranges are four half-open indices `outer_lo <= sure_lo <= sure_hi <= outer_hi` into the ordered targets:
left probe, sure run, right probe. The fill copies sure runs and decides the rest with the canonical kernel. It stops
when the output is full and resumes there at the next call, so its output is bounded for any input.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    FLOAT64,
    FOUR_INT64,
    INT32,
    INT64,
    READ_INT32,
    READ_INT32_2D,
    READ_INT64,
    READ_INT64_3D,
    THREE_INT64,
    TWO_INT64,
    UINT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.satisfaction_probability import KERNEL_ERROR, pair_probability
from whenabouts.core.timing_join.pair_decision import (
    KIND_THRESHOLDS,
    OPEN,
    KindThresholds,
    compare_anchors,
    has_templates,
    judge,
    probability_of_kinds,
)

# Which ranges a fill writes. The two probe parts go through the look-up table (ITC Alg. 6).
EVERYTHING, SURE, LEFT_PROBE, RIGHT_PROBE = range(4)

# Cells of the fill's state: where to resume (row, number of its candidates already processed), and counts so far.
ROW, SEEN, PASSED, PROBED, TAKEN, HITS = range(6)
STATE_SLOTS = 6

RUN = 8  # runs up to this length are written with a constant number of elements


@compiled(FOUR_INT64(READ_INT32_2D, INT64, INT64))
def _part_of(ranges: NDArray[np.int32], row: int, part: int) -> tuple[int, int, int, int]:
    a, b, c, d = ranges[row, 0], ranges[row, 1], ranges[row, 2], ranges[row, 3]
    if part == SURE:
        return b, b, c, c
    if part == LEFT_PROBE:
        return a, b, b, b
    if part == RIGHT_PROBE:
        return c, c, c, d
    return a, b, c, d


@compiled(THREE_INT64(READ_INT32_2D, INT64))
def part_extent(ranges: NDArray[np.int32], part: int) -> tuple[int, int, int]:
    """The number of candidates in a part, and the range of target indices that contains them."""
    count, first, last = 0, 2**31, 0
    for i in range(ranges.shape[0]):
        start, _, _, end = _part_of(ranges, i, part)
        if start < end:
            count += end - start
            first, last = min(first, start), max(last, end)
    return count, min(first, last), last


@compiled(TWO_INT64(READ_INT32_2D))
def candidate_counts(ranges: NDArray[np.int32]) -> tuple[int, int]:
    """The numbers of sure pairs and of all candidates."""
    sure = candidates = 0
    for i in range(ranges.shape[0]):
        sure += np.int64(ranges[i, 2]) - ranges[i, 1]
        candidates += np.int64(ranges[i, 3]) - ranges[i, 0]
    return sure, candidates


@compiled(INT64(
    INT64, INT64, FLOAT64, INT64, INT64, INT32, READ_INT64, READ_INT64, READ_INT32, UINT64, UINT64,
    WRITE_INT32, WRITE_INT32, INT64
), inline=True)  # fmt: skip
def _probe(
    lo: int,
    hi: int,
    confidence: float,
    base_min: int,
    base_max: int,
    base_position: int,
    target_min: IntArray,
    target_max: IntArray,
    target_position: NDArray[np.int32],
    first: int,
    last: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
    written: int,
) -> int:
    """Write the targets `first..last` that the kernel accepts (ITC Alg. 3); returns the new `written`."""
    for j in range(first, last):
        # Write first, then count: no branch that could be mispredicted.
        slot = np.uint64(written)
        out_base[slot] = base_position
        out_target[slot] = target_position[j]
        written += pair_probability(base_min, base_max, target_min[j], target_max[j], lo, hi) >= confidence
    return written


@compiled(INT64(
    INT64, INT64, FLOAT64, INT64, INT64, INT32, READ_INT64, READ_INT64, READ_INT32, UINT64, UINT64,
    WRITE_INT32, WRITE_INT32, INT64,
    INT64, WRITE_INT64, UINT64, WRITE_INT64,
), inline=True)  # fmt: skip
def _probe_with_table(
    lo: int,
    hi: int,
    confidence: float,
    base_min: int,
    base_max: int,
    base_position: int,
    target_min: IntArray,
    target_max: IntArray,
    target_position: NDArray[np.int32],
    first: int,
    last: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
    written: int,
    sign: int,
    table: IntArray,
    table_first: int,
    state: IntArray,
) -> int:
    """As `_probe`, through the look-up table (ITC Alg. 7)."""
    mark = sign * base_min
    hits = 0
    proof = confidence + KERNEL_ERROR
    for j in range(first, last):
        slot = np.uint64(written)
        out_base[slot] = base_position
        out_target[slot] = target_position[j]
        if mark <= table[j - table_first]:
            written += 1
            hits += 1
            continue
        p = pair_probability(base_min, base_max, target_min[j], target_max[j], lo, hi)
        written += p >= confidence
        # Reuse only a value that proves that the kernel accepts the dominated pairs, rounding included.
        if p == 1.0 or p >= proof:
            table[j - table_first] = mark
    state[HITS] += hits
    state[PROBED] += np.int64(last - first) - hits
    return written


@compiled(TWO_INT64(
    INT32, INT64, INT32, READ_INT64, READ_INT32, READ_INT32, READ_INT64_3D, UINT64, UINT64, WRITE_INT32, WRITE_INT32,
    INT64,
), inline=True)  # fmt: skip
def _compare(
    base_position: int,
    base_max: int,
    base_kind: int,
    target_max: IntArray,
    target_position: NDArray[np.int32],
    target_kind: NDArray[np.int32],
    thresholds: IntArray,
    first: int,
    last: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
    written: int,
) -> tuple[int, int]:
    """Put out the targets `first..last` that the thresholds accept; the new `written`, and how many stay open.

    Four comparisons and no branch to mispredict. Kernel calls in here would triple its time: so a range with anything
    open, which is rare, is done again by `_settle`.
    """
    unsettled = 0
    for j in range(first, last):
        slot, at = np.uint64(written), np.uint64(j)
        out_base[slot] = base_position
        out_target[slot] = target_position[at]
        sure, possible = compare_anchors(thresholds, base_kind, target_kind[at], target_max[at] - base_max)
        written += sure
        unsettled += possible & (not sure)
    return written, unsettled


@compiled(INT64(
    INT64, INT64, FLOAT64, INT64, INT64, INT32, INT64, READ_INT64, READ_INT64, READ_INT32, INT64, INT64,
    WRITE_INT32, WRITE_INT32, INT64, KIND_THRESHOLDS,
))  # fmt: skip
def _settle(
    lo: int,
    hi: int,
    confidence: float,
    base_min: int,
    base_max: int,
    base_position: int,
    base_kind: int,
    target_min: IntArray,
    target_max: IntArray,
    target_position: NDArray[np.int32],
    first: int,
    last: int,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
    written: int,
    kinds: KindThresholds,
) -> int:
    """As `_compare`, with the kernel for what the thresholds leave open; returns the new `written`."""
    thresholds, target_kind, templates = kinds.table, kinds.target, has_templates(kinds)
    for j in range(first, last):
        p, _ = judge(
            lo, hi, base_min, base_max, base_kind, target_min[j], target_max[j], target_kind[j], thresholds, templates
        )
        if p == OPEN:
            p = probability_of_kinds(
                lo, hi, base_min, base_max, base_kind, target_min[j], target_max[j], target_kind[j], kinds
            )
        out_base[written] = base_position
        out_target[written] = target_position[j]
        written += p >= confidence
    return written


@compiled(INT64(
    INT64, INT64, INT64, FLOAT64, READ_INT64, READ_INT64, READ_INT32, READ_INT64, READ_INT64, READ_INT32,
    READ_INT32_2D, KIND_THRESHOLDS,
    WRITE_INT64, INT64, WRITE_INT64, WRITE_INT32, WRITE_INT32,
))  # fmt: skip
def fill_pairs(
    part: int,
    lo: int,
    hi: int,
    confidence: float,
    base_min: IntArray,
    base_max: IntArray,
    base_position: NDArray[np.int32],
    target_min: IntArray,
    target_max: IntArray,
    target_position: NDArray[np.int32],
    ranges: NDArray[np.int32],
    kinds: KindThresholds,
    table: IntArray,
    table_first: int,
    state: IntArray,
    out_base: NDArray[np.int32],
    out_target: NDArray[np.int32],
) -> int:
    """Write pairs of `part` until the rows end or the output is full; `state` (initially zeros) is where to resume.

    `kinds` decides what lies outside the sure range where its table is not empty; otherwise the kernel of two
    uniforms does.

    Returns how many pairs were written. The part is done when `state[PASSED]` equals its number of
    candidates.

    The look-up table has one number per target instead of a probability: how far its best result so far applies. Left
    probe, base rows from newest to oldest: the greatest t_min of a base row whose probability proves a match
    (`>= c + e`, or 1). A later row in this traversal has no greater t_max. If it has no greater t_min either, it is
    dominated, `P(D >= lo)` is no smaller (Corollary 2), and the kernel must accept the pair. Right probe: oldest to
    newest, the least t_min, negated so that one comparison serves both. (The paper stores the last result, whether it
    proves a match or not. Only matches can be reused, and the one that applies farthest is reused most often.)
    """
    rows, capacity, written = ranges.shape[0], out_base.size, 0
    step, seen = state[ROW], state[SEEN]
    backward = part == LEFT_PROBE
    # Out of the tuple once: taking an array out of it counts references, too much for every short range.
    base_kind, target_kind, thresholds = kinds.base, kinds.target, kinds.table
    while step < rows:
        i = rows - 1 - step if backward else step
        outer_lo, sure_lo, sure_hi, outer_hi = _part_of(ranges, i, part)
        j = outer_lo + seen
        while j < outer_hi:
            if written == capacity:
                state[ROW], state[SEEN] = step, j - outer_lo
                return written
            sure = sure_lo <= j < sure_hi
            end = sure_hi if sure else (sure_lo if j < sure_lo else outer_hi)
            end = min(end, j + capacity - written)
            count = end - j
            if sure:
                # Unsigned indices: numba then omits the test for negative ones and LLVM vectorises the copy
                # (three times faster). In place, because a call that passes arrays costs 30 ns, too much for
                # short runs. Those are copied with what follows them, a constant number that takes one instruction;
                # the next run overwrites the rest.
                source, slot = np.uint64(j), np.uint64(written)
                if count <= RUN and written + RUN <= capacity and j + RUN <= target_position.size:
                    for k in range(RUN):
                        out_base[slot + np.uint64(k)] = base_position[i]
                    for k in range(RUN):
                        out_target[slot + np.uint64(k)] = target_position[source + np.uint64(k)]
                else:
                    for k in range(np.uint64(count)):
                        out_base[slot + k] = base_position[i]
                    for k in range(np.uint64(count)):
                        out_target[slot + k] = target_position[source + k]
                written += count
                state[TAKEN] += count
            elif thresholds.size:
                after, unsettled = _compare(
                    base_position[i], base_max[i], base_kind[i], target_max, target_position, target_kind, thresholds,
                    j, end, out_base, out_target, written,
                )  # fmt: skip
                if unsettled:
                    after = _settle(
                        lo, hi, confidence, base_min[i], base_max[i], base_position[i], base_kind[i],
                        target_min, target_max, target_position, j, end, out_base, out_target, written, kinds,
                    )  # fmt: skip
                written = after
                state[PROBED] += unsettled
            elif part == EVERYTHING:
                written = _probe(
                    lo, hi, confidence, base_min[i], base_max[i], base_position[i], target_min,
                    target_max, target_position,
                    j, end, out_base, out_target, written,
                )  # fmt: skip
                state[PROBED] += count
            else:
                written = _probe_with_table(
                    lo, hi, confidence, base_min[i], base_max[i], base_position[i], target_min,
                    target_max, target_position,
                    j, end, out_base, out_target, written, 1 if backward else -1, table, table_first, state,
                )  # fmt: skip
            state[PASSED] += count
            j = end
        step, seen = step + 1, 0
    state[ROW], state[SEEN] = step, 0
    return written
