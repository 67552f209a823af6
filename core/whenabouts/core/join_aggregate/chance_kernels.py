"""The kernel of the chance functions: all left rows of a block, each over its pieces (see `chance_pieces`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    INT64,
    READ_FLOAT64,
    READ_INT32,
    READ_INT64,
    WRITE_FLOAT64,
    WRITE_INT64,
    WRITE_INT64_2D,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.join_aggregate.piece_kernels import (
    CHANGE_OF_PRODUCT,
    CHANGE_OF_TAIL,
    add_partners,
    add_tails,
    any_of,
    bend_of_piece,
    mean_of_any,
    mean_of_bent,
    mean_of_none,
    only_certain_is_one,
    rule_of,
    shape_share,
    sort_instants,
    unique_instants,
)
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.histogram_probability import SHAPES
from whenabouts.core.times.limits import NEVER_US

COUNT_VARIANCE, SUM_VARIANCE, NONE, ANY = 1, 2, 4, 8

NO_ONE_BEYOND = 64.0
"""A piece on which this many partners are expected adds less than e^-64 to P(none)."""

FIRST_STATES = 8
"""`count_at` starts with P(N >= k) up to this k."""

_WRITE_FLOAT64_2D = types.Array(types.float64, 2, "C")


class Rows(NamedTuple):
    """The times of rows: uniform on `[t_min, t_max]`, or as the shapes (empty: none) that `shape` numbers."""

    t_min: IntArray
    t_max: IntArray
    shape: NDArray[np.int32]
    shapes: Shapes


class Ring(NamedTuple):
    """The uncertain partners of left rows.

    Those of left row i are the right rows `rows[offsets[i] : offsets[i + 1]]`. `value`: the value of each of them, 0.0
    for a null (empty if no variance of a sum is asked). `certain`: how many certain partners each left row has.
    `expected`, `expected_sum`: of the uncertain partners of each left row.
    """

    offsets: IntArray
    rows: NDArray[np.int32]
    value: FloatArray
    certain: IntArray
    expected: FloatArray
    expected_sum: FloatArray


class Chances(NamedTuple):
    """Where the kernel writes; arrays of functions that are not asked may be empty."""

    none: FloatArray
    any: FloatArray
    count_variance: FloatArray
    sum_variance: FloatArray
    at_least: FloatArray
    count_at: IntArray
    terms: IntArray


ROWS = types.NamedTuple((READ_INT64, READ_INT64, READ_INT32, SHAPES), Rows)  # type: ignore[no-untyped-call]  # numba ships no types
RING = types.NamedTuple(  # type: ignore[no-untyped-call]  # as above
    (READ_INT64, READ_INT32, READ_FLOAT64, READ_INT64, READ_FLOAT64, READ_FLOAT64), Ring
)
CHANCES = types.NamedTuple(  # type: ignore[no-untyped-call]  # as above
    (WRITE_FLOAT64,) * 4 + (_WRITE_FLOAT64_2D, WRITE_INT64_2D, WRITE_INT64), Chances
)


@compiled((WRITE_INT64, INT64, WRITE_INT64_2D, WRITE_FLOAT64))
def sort_partners(order: IntArray, count: int, times: IntArray, value: FloatArray) -> None:
    """Sort the first `count` numbers of partners by start, end, shape and value (Shell, gaps of Ciura).

    This is the canonical order: sums over partners do not depend on the order of their arrival.
    """
    gap = 1
    while gap < count:
        gap = gap * 9 // 4 + 1
    while gap > 1:
        gap = max(gap * 4 // 9, 1)
        for i in range(gap, count):
            moved = order[i]
            first, last, entry, v = times[0, moved], times[1, moved], times[2, moved], value[moved]
            j = i
            while j >= gap:
                o = order[j - gap]
                before = first < times[0, o]
                if first == times[0, o]:
                    before = last < times[1, o]
                    if last == times[1, o]:
                        before = entry < times[2, o] or (entry == times[2, o] and v < value[o])
                if not before:
                    break
                order[j] = o
                j -= gap
            order[j] = moved


@compiled((ROWS, ROWS, READ_FLOAT64, INT64, INT64, RING, INT64, READ_INT64, READ_FLOAT64, CHANCES))
def fill_chances(
    left: Rows,
    right: Rows,
    bends: FloatArray,
    lo: int,
    hi: int,
    ring: Ring,
    asked: int,
    at_least: IntArray,
    confidences: FloatArray,
    out: Chances,
) -> None:
    """The chance functions of each left row; `asked` is a sum of the constants above.

    `bends`: three numbers for each entry of the left shapes (`shared_clock`), or none if no density is bent.
    `at_least`: the k of each column of `out.at_least`; `confidences`: the c of each column of `out.count_at`.

    One long function: each array that is passed on costs numba some nanoseconds for its references, per piece and
    partner. Split by its numbered parts it takes twice to five times as long.
    """
    l_min, l_max, l_shape, l_shapes = left
    r_min, r_max, r_shape, r_shapes = right
    l_edge, l_mass, l_start = l_shapes.edge, l_shapes.mass, l_shapes.start
    r_edge, r_mass, r_start = r_shapes.edge, r_shapes.mass, r_shapes.start
    bent = bends.size > 0
    offsets, rows, value, certain_rows, expected, expected_sum = ring
    out_none, out_any, out_variance, out_sum_variance, out_at_least, out_count_at, out_terms = out

    most = most_edges = 1
    for i in range(offsets.size - 1):
        edges = 2
        if l_shape.size:
            edges = l_start[l_shape[i] + 1] - l_start[l_shape[i]]
        for r in range(offsets[i], offsets[i + 1]):
            edges += 2 * (r_start[r_shape[rows[r]] + 1] - r_start[r_shape[rows[r]]]) if r_shape.size else 4
        most = max(most, offsets[i + 1] - offsets[i])
        most_edges = max(most_edges, edges)
    order, raw, raw_value = np.empty(most, np.int64), np.empty((3, most), np.int64), np.zeros(most)
    c_min, c_max, c_entry = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    c_times, c_sum, c_squares = np.empty(most, np.int64), np.empty(most), np.empty(most)
    end_at, end_p, end_q = np.empty(most, np.int64), np.empty(most), np.empty(most)
    p_a, p_b, q_a, q_b = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    times = np.empty(most, np.int64)
    cuts = np.empty(most_edges, np.int64)
    size = max(most, FIRST_STATES) + 1  # no more states than partners: P(N >= k) is 0 beyond
    constant, state, tails, all_tails = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    at_least_sum = np.empty(at_least.size)
    at_least_certain, at_least_possible = np.empty(at_least.size, np.bool_), np.empty(at_least.size, np.bool_)

    for i in range(offsets.size - 1):
        # 1. Classes: partners of equal times, in canonical order.
        first, count = offsets[i], offsets[i + 1] - offsets[i]
        for r in range(count):
            row = np.uint32(rows[first + r])
            raw[0, r], raw[1, r], raw[2, r] = r_min[row], r_max[row], -1
            if r_shape.size:
                raw[2, r] = r_start[r_shape[row]]
                raw[0, r] = r_max[row] + r_edge[raw[2, r]]
            order[r] = r
            if value.size:
                raw_value[r] = value[first + r]
        sort_partners(order, count, raw, raw_value)
        classes = 0
        for r in range(count):
            at = order[r]
            c = classes - 1
            v = raw_value[at]
            if c >= 0 and c_min[c] == raw[0, at] and c_max[c] == raw[1, at] and c_entry[c] == raw[2, at]:
                c_times[c] += 1
                c_sum[c] += v
                c_squares[c] += v * v
            else:
                c_min[classes], c_max[classes], c_entry[classes] = raw[0, at], raw[1, at], raw[2, at]
                c_times[classes], c_sum[classes], c_squares[classes] = 1, v, v * v
                end_at[classes] = NEVER_US
                classes += 1

        # 2. Cuts.
        y_min, y_max, bucket, bucket_end = l_min[i], l_max[i], -1, l_max[i]
        cut_count = 0
        if l_shape.size:
            bucket = l_start[l_shape[i]]
            last_entry = l_start[l_shape[i] + 1] - 1
            y_min, y_max = l_max[i] + l_edge[bucket], l_max[i] + l_edge[last_entry]
            bucket_end = l_max[i] + l_edge[bucket + 1]
            for e in range(bucket + 1, last_entry):
                cuts[cut_count] = l_max[i] + l_edge[e]
                cut_count += 1
        cuts[cut_count], cuts[cut_count + 1] = y_min, y_max
        cut_count += 2
        for c in range(classes):
            e = c_entry[c]
            edge = c_min[c]
            while True:
                if y_min < edge - hi < y_max:
                    cuts[cut_count] = edge - hi
                    cut_count += 1
                if y_min < edge - lo < y_max:
                    cuts[cut_count] = edge - lo
                    cut_count += 1
                if edge >= c_max[c]:
                    break
                edge = c_max[c]
                if e >= 0:
                    e += 1
                    edge += r_edge[e]
        sort_instants(cuts, cut_count)
        pieces = max(unique_instants(cuts, cut_count) - 1, 1)
        if y_min == y_max:
            cuts[1] = y_max  # one piece of no length

        functions, states = asked, FIRST_STATES if confidences.size else 0
        for n in range(confidences.size):
            out_count_at[i, n] = -1
        first_pass, passes = True, True
        while passes:
            none_sum = any_sum = within = between = away = within_sum = between_sum = away_sum = 0.0
            uncovered, covered_somewhere, possible_somewhere = False, False, False
            least_certain, most_possible = count + 1, 0
            for k in range(states + 1):
                all_tails[k] = 0.0
            for n in range(at_least.size):
                at_least_sum[n], at_least_certain[n], at_least_possible[n] = 0.0, True, False
            active = 0
            if bucket >= 0:
                bucket = l_start[l_shape[i]]
                bucket_end = l_max[i] + l_edge[bucket + 1]
            for piece in range(pieces):
                a, b = cuts[piece], cuts[piece + 1]
                bend = (1.0, 1.0, 1.0)
                if bucket >= 0:
                    while bucket_end < b:
                        bucket += 1
                        bucket_end = l_max[i] + l_edge[bucket + 1]
                    length = float(l_edge[bucket + 1] - l_edge[bucket])
                    weight = l_mass[bucket] * (float(b - a) / length)
                    if bent:
                        after = bucket_end - l_edge[bucket + 1] + l_edge[bucket]
                        share, bend = bend_of_piece(
                            bends, bucket, float(a - after) / length, float(bucket_end - a) / length,
                            float(b - after) / length, float(bucket_end - b) / length,
                        )  # fmt: skip
                        weight *= share
                    if weight == 0.0:
                        continue
                else:
                    weight = float(b - a) / float(y_max - y_min) if a < b else 1.0

                # 3. The shares of the partners that the piece can reach.
                sloping, others = 0, most  # changing shares from the front of the arrays, constant ones from the back
                certain = possible = degree = 0
                const_none, const_any, change, m_a, m_b, s_a, s_b = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                variance = sum_variance = 0.0
                for c in range(active, classes):
                    if c_min[c] - hi > b:
                        break
                    if c_max[c] - lo < a:
                        active += c == active
                        continue
                    u = c_times[c]
                    if c_min[c] == c_max[c]:
                        if a >= c_max[c] - hi and b <= c_min[c] - lo:
                            certain += u
                            s_a += c_sum[c]
                            s_b += c_sum[c]
                        continue
                    # Ratios of integers. The last piece usually ended where this one starts.
                    pa, qa = end_p[c], end_q[c]
                    if c_entry[c] < 0:
                        length = float(c_max[c] - c_min[c])
                        inside_a = max(min(a + hi, c_max[c]) - max(a + lo, c_min[c]), 0)
                        inside_b = max(min(b + hi, c_max[c]) - max(b + lo, c_min[c]), 0)
                        if end_at[c] != a:
                            pa, qa = float(inside_a) / length, float(c_max[c] - c_min[c] - inside_a) / length
                        pb, qb = pa, qa
                        if inside_a != inside_b:
                            pb, qb = float(inside_b) / length, float(c_max[c] - c_min[c] - inside_b) / length
                    else:
                        if end_at[c] != a:
                            pa, qa = shape_share(a + lo, a + hi, c_max[c], c_entry[c], r_edge, r_mass)
                        pb, qb = shape_share(b + lo, b + hi, c_max[c], c_entry[c], r_edge, r_mass)
                    end_at[c], end_p[c], end_q[c] = b, pb, qb
                    if pa == 0.0 and pb == 0.0:
                        continue
                    s_a += c_sum[c] * pa
                    s_b += c_sum[c] * pb
                    if qa == 0.0 and qb == 0.0:
                        certain += u
                        continue
                    possible += u
                    m_a += u * pa
                    m_b += u * pb
                    if bent:
                        spread = mean_of_bent(bend, pa * qa, (pa * qb + pb * qa) / 2.0, pb * qb)
                    else:
                        spread = (pa * qa + pb * qb) / 3.0 + (pa * qb + pb * qa) / 6.0
                    variance += u * spread
                    sum_variance += c_squares[c] * spread
                    if pa == pb and qa == qb:
                        others -= 1
                        at = others
                        p, q = any_of(pa, qa, u) if u > 1 else (pa, qa)
                        const_any += const_none * p
                        const_none *= q
                    else:
                        at = sloping
                        sloping += 1
                        degree += u
                        change += u * abs(pb - pa)
                    p_a[at], p_b[at], q_a[at], q_b[at], times[at] = pa, pb, qa, qb, u
                possible += certain
                uncovered |= certain == 0
                covered_somewhere |= certain > 0
                possible_somewhere |= possible > 0
                least_certain, most_possible = min(least_certain, certain), max(most_possible, possible)

                # 4. The functions.
                if functions & COUNT_VARIANCE:
                    u_a, u_b = m_a + certain - expected[i], m_b + certain - expected[i]
                    within += weight * variance
                    if bent:
                        between += weight * mean_of_bent(bend, u_a * u_a, u_a * u_b, u_b * u_b)
                        away += weight * mean_of_bent(bend, u_a, (u_a + u_b) / 2.0, u_b)
                    else:
                        between += weight * ((u_a * u_a + u_a * u_b + u_b * u_b) / 3.0)
                        away += weight * ((u_a + u_b) / 2.0)
                if functions & SUM_VARIANCE:
                    u_a, u_b = s_a - expected_sum[i], s_b - expected_sum[i]
                    within_sum += weight * sum_variance
                    if bent:
                        between_sum += weight * mean_of_bent(bend, u_a * u_a, u_a * u_b, u_b * u_b)
                        away_sum += weight * mean_of_bent(bend, u_a, (u_a + u_b) / 2.0, u_b)
                    else:
                        between_sum += weight * ((u_a * u_a + u_a * u_b + u_b * u_b) / 3.0)
                        away_sum += weight * ((u_a + u_b) / 2.0)
                if functions & (NONE | ANY):
                    if certain or min(m_a, m_b) > NO_ONE_BEYOND:
                        any_sum += weight
                    else:
                        nodes, parts = rule_of(change, degree, CHANGE_OF_PRODUCT, bent)
                        if functions & NONE:
                            none_sum += weight * (
                                const_none * mean_of_none(sloping, q_a, q_b, times, nodes, parts, bent, bend)
                            )
                            out_terms[0] += nodes * parts * sloping
                        if functions & ANY:
                            some = mean_of_any(sloping, p_a, p_b, q_a, q_b, times, nodes, parts, bent, bend)
                            any_sum += weight * (const_any + const_none * some)
                            out_terms[0] += nodes * parts * sloping
                asked_tails = at_least.size if first_pass else 0
                for n in range(asked_tails + (states > 0)):
                    full = n == asked_tails  # the last one is for `count_at`: P(N >= k) for every k up to `states`
                    need = (states if full else at_least[n] - certain_rows[i]) - certain
                    if full:
                        for k in range(1, min(certain, states) + 1):
                            all_tails[k] += weight
                    else:
                        at_least_certain[n] &= need <= 0
                        at_least_possible[n] |= possible - certain >= need
                        if need <= 0:
                            at_least_sum[n] += weight
                    if need <= 0 or (not full and possible - certain < need):
                        continue
                    constant[0] = 1.0
                    tails[0] = 0.0
                    for k in range(1, need + 1):
                        constant[k] = tails[k] = 0.0
                    for at in range(others, most):
                        add_partners(p_a[at], q_a[at], times[at], constant, need)
                    nodes, parts = rule_of(change, degree, CHANGE_OF_TAIL, bent)
                    out_terms[0] += nodes * parts * sloping
                    add_tails(
                        sloping, p_a, p_b, q_a, q_b, times, constant, need, nodes, parts, weight, bent, bend, state,
                        tails,
                    )  # fmt: skip
                    if full:
                        for k in range(1, need + 1):
                            all_tails[certain + k] += tails[k]
                    else:
                        at_least_sum[n] += tails[need]

            # 5. What the row gets.
            if functions & COUNT_VARIANCE:
                out_variance[i] = within + max(between - away * away, 0.0)
            if functions & SUM_VARIANCE:
                out_sum_variance[i] = within_sum + max(between_sum - away_sum * away_sum, 0.0)
            if functions & NONE:
                none_sum = only_certain_is_one(none_sum, uncovered, not possible_somewhere)
                out_none[i] = 0.0 if certain_rows[i] else none_sum
            if functions & ANY:
                any_sum = only_certain_is_one(any_sum, possible_somewhere, not uncovered)
                out_any[i] = 1.0 if certain_rows[i] else any_sum
            if first_pass:
                for n in range(at_least.size):
                    out_at_least[i, n] = only_certain_is_one(at_least_sum[n], at_least_possible[n], at_least_certain[n])
            passes = False
            for n in range(confidences.size):
                if out_count_at[i, n] >= 0:
                    continue
                k = states
                while (
                    k > 0 and only_certain_is_one(all_tails[k], k <= most_possible, k <= least_certain) < confidences[n]
                ):
                    k -= 1
                if k < states or states >= count:
                    out_count_at[i, n] = certain_rows[i] + k
                else:
                    passes = True
            first_pass, functions, states = False, 0, min(2 * states, max(count, FIRST_STATES))
