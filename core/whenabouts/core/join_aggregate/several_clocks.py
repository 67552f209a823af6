"""The kernel of the chance functions over all left rows of a block, where right rows are readings of several clocks.

See `clock_kernels` for the method, and `chance_kernels` for right rows that are independent of each other.
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.jit import INT64, READ_FLOAT64, READ_INT64, compiled
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.join_aggregate.chance_kernels import (
    ANY,
    CHANCES,
    COUNT_VARIANCE,
    FIRST_STATES,
    NONE,
    RING,
    ROWS,
    SUM_VARIANCE,
    Chances,
    Ring,
    Rows,
    sort_partners,
)
from whenabouts.core.join_aggregate.clock_kernels import (
    Clocks,
    Segment,
    distribution_at,
    moments_at,
    parts_for,
    survey,
)
from whenabouts.core.join_aggregate.piece_kernels import (
    MOST_NODES,
    bend_of_piece,
    only_certain_is_one,
    sort_instants,
    unique_instants,
    weight_of,
)
from whenabouts.core.probability.gauss_legendre import COMPLEMENTS, NODES, START

NODES_OF_MOMENTS = 4
"""Squares of means are polynomials of degree 4, and a bent density raises that by 2."""


@compiled((ROWS, ROWS, READ_FLOAT64, READ_INT64, INT64, INT64, INT64, RING, INT64, READ_INT64, READ_FLOAT64, CHANCES))
def fill_chances_of_clocks(
    left: Rows,
    right: Rows,
    bends: FloatArray,
    clock: IntArray,
    offset: int,
    lo: int,
    hi: int,
    ring: Ring,
    asked: int,
    at_least: IntArray,
    confidences: FloatArray,
    out: Chances,
) -> None:
    """As `chance_kernels.fill_chances`, where right row j is a reading of the clock `clock[j]`.

    Every clock has an offset of its own, uniform in `[-offset, offset]`, offset > 0. Right times have their own errors
    alone, and no shapes.
    """
    l_min, l_max, l_shape, l_shapes = left
    r_min, r_max, _, _ = right
    l_edge, l_mass, l_start = l_shapes.edge, l_shapes.mass, l_shapes.start
    bent = bends.size > 0
    offsets, rows, value, certain_rows, expected, expected_sum = ring
    out_none, out_any, out_variance, out_sum_variance, out_at_least, out_count_at, out_terms = out

    most = most_edges = 1
    for i in range(offsets.size - 1):
        n = offsets[i + 1] - offsets[i]
        most = max(most, n)
        most_edges = max(most_edges, 8 * n + (l_start[l_shape[i] + 1] - l_start[l_shape[i]] if l_shape.size else 2))
    order, raw, raw_value = np.empty(most, np.int64), np.empty((3, most), np.int64), np.zeros(most)
    clocks = Clocks(
        np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.empty(most),
        np.empty(most + 1, np.int64), np.empty(4 * most, np.int64), np.empty(most + 1, np.int64),
    )  # fmt: skip
    segment = Segment(
        np.empty(4, np.int64), np.empty(most, np.int64), np.empty((4, most)), np.empty((4, most)), np.zeros(3, np.int64)
    )
    cuts = np.empty(most_edges, np.int64)
    weights, bend_of = np.empty(most_edges), np.empty((most_edges, 3))
    size = max(most, FIRST_STATES) + 1
    state, of_clock, found, tails = np.empty(size), np.empty(size), np.empty(size), np.empty(size)

    for i in range(offsets.size - 1):
        # 1. Classes: partners of one clock and of equal times, in canonical order; and the cuts of each clock.
        first, count = offsets[i], offsets[i + 1] - offsets[i]
        for r in range(count):
            row = rows[first + r]
            raw[0, r], raw[1, r], raw[2, r], order[r] = clock[row], r_min[row], r_max[row], r
            if value.size:
                raw_value[r] = value[first + r]
        sort_partners(order, count, raw, raw_value)
        classes = clock_count = 0
        for r in range(count):
            at, c = order[r], classes - 1
            v = raw_value[at]
            another = r == 0 or raw[0, at] != raw[0, order[r - 1]]
            if another:
                clocks.first_class[clock_count] = classes
                clock_count += 1
            elif clocks.t_min[c] == raw[1, at] and clocks.t_max[c] == raw[2, at]:
                clocks.times[c] += 1
                clocks.sum[c] += v
                clocks.squares[c] += v * v
                continue
            clocks.t_min[classes], clocks.t_max[classes], clocks.times[classes] = raw[1, at], raw[2, at], 1
            clocks.sum[classes], clocks.squares[classes] = v, v * v
            classes += 1
        clocks.first_class[clock_count] = classes
        kept = 0
        for d in range(clock_count):
            clocks.first_cut[d] = kept
            own, n = clocks.cuts[kept:], 0
            for c in range(clocks.first_class[d], clocks.first_class[d + 1]):
                for edge in (clocks.t_min[c], clocks.t_max[c]):
                    own[n], own[n + 1] = edge - hi, edge - lo
                    n += 2
            sort_instants(own, n)
            kept += unique_instants(own, n)
        clocks.first_cut[clock_count] = kept

        # 2. The pieces of y, with their weights and the bends of the density.
        y_min, y_max, bucket = l_min[i], l_max[i], -1
        cut_count = 0
        if l_shape.size:
            bucket, last_entry = l_start[l_shape[i]], l_start[l_shape[i] + 1] - 1
            y_min, y_max = l_max[i] + l_edge[bucket], l_max[i] + l_edge[last_entry]
            for e in range(bucket + 1, last_entry):
                cuts[cut_count] = l_max[i] + l_edge[e]
                cut_count += 1
        cuts[cut_count], cuts[cut_count + 1] = y_min, y_max
        cut_count += 2
        for k in range(kept):
            for cut in (clocks.cuts[k] - offset, clocks.cuts[k] + offset):
                if y_min < cut < y_max:
                    cuts[cut_count] = cut
                    cut_count += 1
        sort_instants(cuts, cut_count)
        pieces = max(unique_instants(cuts, cut_count) - 1, 1)
        if y_min == y_max:
            cuts[1] = y_max  # one piece of no length
        for piece in range(pieces):
            a, b = cuts[piece], cuts[piece + 1]
            weights[piece] = float(b - a) / float(y_max - y_min) if a < b else 1.0
            if bucket >= 0:
                while l_max[i] + l_edge[bucket + 1] < b:
                    bucket += 1
                begins, stops = l_max[i] + l_edge[bucket], l_max[i] + l_edge[bucket + 1]
                length = float(stops - begins)
                weights[piece] = l_mass[bucket] * (float(b - a) / length)
                if bent:
                    share, bend = bend_of_piece(
                        bends, bucket, float(a - begins) / length, float(stops - a) / length,
                        float(b - begins) / length, float(stops - b) / length,
                    )  # fmt: skip
                    weights[piece] *= share
                    bend_of[piece, 0], bend_of[piece, 1], bend_of[piece, 2] = bend

        # 3. The variances.
        if asked & (COUNT_VARIANCE | SUM_VARIANCE):
            within = between = away = sum_within = sum_between = sum_away = 0.0
            for piece in range(pieces):
                a, b, weight = cuts[piece], cuts[piece + 1], weights[piece]
                bend = (bend_of[piece, 0], bend_of[piece, 1], bend_of[piece, 2]) if bent else (1.0, 1.0, 1.0)
                for node in range(START[NODES_OF_MOMENTS], START[NODES_OF_MOMENTS + 1]):
                    x, rest = NODES[node], COMPLEMENTS[node]
                    mean, variance, sum_mean, sum_variance = moments_at(
                        clocks, clock_count, a, b, offset, lo, hi, segment, x, rest
                    )
                    w = weight * weight_of(node, bent, bend, x, rest)
                    u, s = mean - expected[i], 0.0 if expected_sum.size == 0 else sum_mean - expected_sum[i]
                    within += w * variance
                    between += w * (u * u)
                    away += w * u
                    sum_within += w * sum_variance
                    sum_between += w * (s * s)
                    sum_away += w * s
                out_terms[0] += NODES_OF_MOMENTS * classes
            if asked & COUNT_VARIANCE:
                out_variance[i] = within + max(between - away * away, 0.0)
            if asked & SUM_VARIANCE:
                out_sum_variance[i] = sum_within + max(sum_between - sum_away * sum_away, 0.0)

        # 4. The distribution: a pass for none and any, one for each k of P(N >= k), and some for `count_at`.
        for n in range(confidences.size):
            out_count_at[i, n] = -1
        passes, number, counted = 1 + at_least.size + (confidences.size > 0), 0, FIRST_STATES
        while number < passes:
            counting = number == 1 + at_least.size
            states = 1
            if counting:
                states = min(counted, max(count, FIRST_STATES))
            elif number > 0:
                states = at_least[number - 1] - certain_rows[i]
            known = (number == 0 and not asked & (NONE | ANY)) or states < 1 or (not counting and states > count)
            for k in range(min(states, size - 1) + 1):
                tails[k] = 0.0
            none, least, most_there = 0.0, count, 0
            for piece in range(0 if known else pieces):
                a, b, weight = cuts[piece], cuts[piece + 1], weights[piece]
                if weight == 0.0:
                    continue
                bend = (bend_of[piece, 0], bend_of[piece, 1], bend_of[piece, 2]) if bent else (1.0, 1.0, 1.0)
                of_piece, most_of_piece, degree = survey(clocks, clock_count, a, b, offset, lo, hi, segment)
                least, most_there = min(least, of_piece), max(most_there, most_of_piece)
                degree = 0 if a == b else degree + (2 if bent else 0)
                parts, nodes = parts_for(degree), min(degree // 2 + 1, MOST_NODES)
                for part in range(parts):
                    for node in range(START[nodes], START[nodes + 1]):
                        x, rest = (part + NODES[node]) / parts, (parts - 1 - part + COMPLEMENTS[node]) / parts
                        out_terms[0] += distribution_at(
                            clocks, clock_count, a, b, offset, lo, hi, segment, x, rest, states, state, of_clock, found
                        )
                        w = weight * weight_of(node, bent, bend, x, rest) / parts
                        none += w * found[0]
                        tail = 0.0
                        for k in range(states, 0, -1):
                            tail += found[k]
                            tails[k] += w * tail
            if number == 0:
                if asked & NONE:
                    of_none = only_certain_is_one(none, least == 0, most_there == 0)
                    out_none[i] = 0.0 if certain_rows[i] else of_none
                if asked & ANY:
                    some = only_certain_is_one(tails[1], most_there > 0, least > 0)
                    out_any[i] = 1.0 if certain_rows[i] else some
            elif not counting:
                if known:
                    out_at_least[i, number - 1] = 1.0 if states < 1 else 0.0
                else:
                    p = only_certain_is_one(tails[states], most_there >= states, least >= states)
                    out_at_least[i, number - 1] = p
            else:
                again = False
                for n in range(confidences.size):
                    if out_count_at[i, n] >= 0:
                        continue
                    k = states
                    while k > 0 and only_certain_is_one(tails[k], k <= most_there, k <= least) < confidences[n]:
                        k -= 1
                    if k < states or states >= count:
                        out_count_at[i, n] = certain_rows[i] + k
                    else:
                        again = True
                if again:
                    counted *= 2
                    continue
            number += 1
