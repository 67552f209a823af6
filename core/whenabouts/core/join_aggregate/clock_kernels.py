"""The chance functions of left rows whose partners are readings of several clocks, each with an offset of its own.

Given the left row's time Y = y the clocks are independent. Given also its offset O, so are the readings of a clock, of
which each has the share `p_j(y - O)`. So N is a sum over clocks of numbers whose distribution is a mean over the window
`[y - offset, y + offset]` of u = y - O. On the u-axis the shares are linear between the cuts e - lo and e - hi, for
each end e of a reading. Seen from y, these cuts lie at e - lo and e - hi, +- offset. On a piece of y between those, the
window consists of *segments*: whole pieces of u, and one at either end, of which one end moves with y. The shares at
the ends of a segment are linear in y, and so is its length: sums of products that are not negative.

Within a segment the mean over u is that of a polynomial, whose degree is the number of readings with a share that
changes; over the piece the distribution of a clock is a polynomial of a degree higher by one. Gauss-Legendre quadrature
is exact for both, or within 2^-60 where the outer one needs more than 16 nodes (`MOST_DEGREE`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from whenabouts.core.arrays.jit import (
    FLOAT64,
    INT64,
    WRITE_FLOAT64,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.join_aggregate.piece_kernels import CHANGE_OF_TAIL, rule_of
from whenabouts.core.probability.gauss_legendre import COMPLEMENTS, NODES, START, WEIGHTS

_WRITE_FLOAT64_2D = types.Array(types.float64, 2, "C")
_COUNT_AND_CHANGE = types.Tuple((types.int64, types.float64))  # type: ignore[no-untyped-call]  # numba ships no types
_THREE_INT64 = types.UniTuple(types.int64, 3)  # type: ignore[no-untyped-call]  # as above
_FOUR_FLOATS = types.UniTuple(types.float64, 4)  # type: ignore[no-untyped-call]  # as above

MOST_DEGREE = np.array([31, 31, 31, 35, 47, 64, 89, 125, 177, 249, 353, 499, 705, 997, 1410, 1995, 2821, 3989])
"""The degree up to which 16 nodes in each of 1, 2, 4, ... equal parts of a piece are within 2^-60, for polynomials that
are at most 4 on it.

In the Bernstein ellipse E_r of the piece a polynomial of degree d is at most 4 r^d, and the ellipse E_s of a part of
length h lies in that with (r + 1/r) / 2 = 1 + h (s + 1/s - 2) / 2. There Gauss-Legendre errs by at most
64/15 s^-30 / (1 - s^-2) times that, for any s (Trefethen, Approximation Theory and Approximation Practice, 2013,
theorem 19.3).
"""


class Clocks(NamedTuple):
    """The uncertain partners of a left row, by clock.

    Clock d has the classes `first_class[d] : first_class[d + 1]`: readings of equal times, `times` many, with the sum
    of their values and of their squares. Its cuts on the u-axis are `cuts[first_cut[d] : first_cut[d + 1]]`, ascending.
    """

    t_min: IntArray
    t_max: IntArray
    times: IntArray
    sum: FloatArray
    squares: FloatArray
    first_class: IntArray
    cuts: IntArray
    first_cut: IntArray


class Segment(NamedTuple):
    """Room for one segment. `ends`: where it starts and ends, each where the piece of y starts and where it ends.

    Of the classes that it can reach: their numbers, and their shares and the complements of these at the four ends.
    `summary`: how many readings are certain on it, how many possible, and how many have a share that changes.
    """

    ends: IntArray
    which: IntArray
    p: FloatArray
    q: FloatArray
    summary: IntArray


CLOCKS = types.NamedTuple(  # type: ignore[no-untyped-call]  # as above
    (WRITE_INT64,) * 3 + (WRITE_FLOAT64,) * 2 + (WRITE_INT64,) * 3, Clocks
)
SEGMENT = types.NamedTuple(  # type: ignore[no-untyped-call]  # as above
    (WRITE_INT64,) * 2 + (_WRITE_FLOAT64_2D,) * 2 + (WRITE_INT64,), Segment
)


@compiled(INT64(INT64))
def parts_for(degree: int) -> int:
    """In how many equal parts a piece is integrated."""
    k = 0
    while k < MOST_DEGREE.size - 1 and degree > MOST_DEGREE[k]:
        k += 1
    return 1 << k


@compiled(INT64(CLOCKS, INT64, INT64, INT64, INT64))
def segments_of(clocks: Clocks, d: int, a: int, b: int, offset: int) -> int:
    """The number of segments of clock d on the piece [a, b] of y."""
    own = clocks.cuts[clocks.first_cut[d] : clocks.first_cut[d + 1]]
    low = np.searchsorted(own, b - offset, side="left")
    high = np.searchsorted(own, a + offset, side="right") - 1
    return 1 if low > high else int(high - low + 2)


@compiled(_COUNT_AND_CHANGE(CLOCKS, INT64, INT64, INT64, INT64, INT64, INT64, INT64, INT64, SEGMENT))
def take_segment(
    clocks: Clocks, d: int, n: int, segments: int, a: int, b: int, offset: int, lo: int, hi: int, segment: Segment
) -> tuple[int, float]:
    """Fill a segment: how many classes it can reach, and how much their shares change; -1 for one of no length."""
    ends, which, p, q, summary = segment
    own = clocks.cuts[clocks.first_cut[d] : clocks.first_cut[d + 1]]
    low = np.searchsorted(own, b - offset, side="left")
    ends[0], ends[1], ends[2], ends[3] = a - offset, b - offset, a + offset, b + offset
    if n > 0:
        ends[0] = ends[1] = own[low + n - 1]
    if n < segments - 1:
        ends[2] = ends[3] = own[low + n]
    if ends[0] == ends[2] and ends[1] == ends[3]:
        return -1, 0.0
    count = certain = possible = degree = 0
    change = 0.0
    for c in range(clocks.first_class[d], clocks.first_class[d + 1]):
        first, last, times = clocks.t_min[c], clocks.t_max[c], clocks.times[c]
        if first == last:  # a point: 0 or 1 on the open segment
            if ends[0] < last - hi or ends[3] > first - lo:
                continue
            for e in range(4):
                p[e, count], q[e, count] = 1.0, 0.0
            certain += times
        else:
            length = last - first
            least, most = length, 0
            for e in range(4):
                inside = max(min(ends[e] + hi, last) - max(ends[e] + lo, first), 0)
                p[e, count], q[e, count] = float(inside) / float(length), float(length - inside) / float(length)
                least, most = min(least, inside), max(most, inside)
            if most == 0:
                continue
            if least == length:
                certain += times
            else:
                possible += times
                if least < most:
                    degree += times
                    change += times * (float(most - least) / float(length))
        which[count] = c
        count += 1
    summary[0], summary[1], summary[2] = certain, certain + possible, degree
    return count, change


@compiled(FLOAT64(WRITE_INT64, INT64, FLOAT64, FLOAT64), inline=True)
def share_of(ends: IntArray, offset: int, x: float, rest: float) -> float:
    """How much of the window a segment is, at x of the piece."""
    length = float(ends[2] - ends[0]) * rest + float(ends[3] - ends[1]) * x
    return length / float(2 * offset)


@compiled(_THREE_INT64(CLOCKS, INT64, INT64, INT64, INT64, INT64, INT64, SEGMENT))
def survey(
    clocks: Clocks, count: int, a: int, b: int, offset: int, lo: int, hi: int, segment: Segment
) -> tuple[int, int, int]:
    """Of a piece of y: the least number of partners, the greatest, and the degree of the distribution in y."""
    least = most = degree = 0
    for d in range(count):
        certain, possible, of_clock = -1, 0, 0
        segments = segments_of(clocks, d, a, b, offset)
        for n in range(segments):
            if take_segment(clocks, d, n, segments, a, b, offset, lo, hi, segment)[0] < 0:
                continue
            certain = segment.summary[0] if certain < 0 else min(certain, segment.summary[0])
            possible = max(possible, segment.summary[1])
            if n == 0 or n == segments - 1:  # an end of it moves
                of_clock = max(of_clock, segment.summary[2] + 1)
        least += certain
        most += possible
        degree += of_clock
    return least, most, degree


@compiled(INT64(
    CLOCKS, INT64, INT64, INT64, INT64, INT64, INT64, SEGMENT, FLOAT64, FLOAT64, INT64, WRITE_FLOAT64, WRITE_FLOAT64,
    WRITE_FLOAT64,
))  # fmt: skip
def distribution_at(
    clocks: Clocks,
    count: int,
    a: int,
    b: int,
    offset: int,
    lo: int,
    hi: int,
    segment: Segment,
    x: float,
    rest: float,
    states: int,
    state: FloatArray,
    of_clock: FloatArray,
    out: FloatArray,
) -> int:
    """The distribution of N at x of the piece: `out[k]` is P(N = k), `out[states]` is P(N >= states). Returns its work:
    nodes x partners. Everything is a sum of numbers that are not negative."""
    terms = 0
    _, which, p, q, summary = segment
    out[0] = 1.0
    for k in range(1, states + 1):
        out[k] = 0.0
    for d in range(count):
        for k in range(states + 1):
            of_clock[k] = 0.0
        segments = segments_of(clocks, d, a, b, offset)
        for n in range(segments):
            near, change = take_segment(clocks, d, n, segments, a, b, offset, lo, hi, segment)
            if near < 0:
                continue
            share = share_of(segment.ends, offset, x, rest)
            nodes, parts = rule_of(change, summary[2], CHANGE_OF_TAIL, False)
            terms += nodes * parts * near
            for part in range(parts):
                for node in range(START[nodes], START[nodes + 1]):
                    v, w = (part + NODES[node]) / parts, (parts - 1 - part + COMPLEMENTS[node]) / parts
                    state[0] = 1.0
                    for k in range(1, states + 1):
                        state[k] = 0.0
                    for j in range(near):
                        p_j = (p[0, j] * rest + p[1, j] * x) * w + (p[2, j] * rest + p[3, j] * x) * v
                        q_j = (q[0, j] * rest + q[1, j] * x) * w + (q[2, j] * rest + q[3, j] * x) * v
                        for _ in range(clocks.times[which[j]]):
                            state[states] += state[states - 1] * p_j
                            for k in range(states - 1, 0, -1):
                                state[k] = state[k] * q_j + state[k - 1] * p_j
                            state[0] *= q_j
                    scale = share * WEIGHTS[node] / parts
                    for k in range(states + 1):
                        of_clock[k] += scale * state[k]
        # The sum of two independent numbers; `state` has the tails of the new one.
        state[states] = of_clock[states]
        for k in range(states - 1, -1, -1):
            state[k] = state[k + 1] + of_clock[k]
        most = out[states]
        for k in range(states):
            most += out[k] * state[states - k]
        for k in range(states - 1, -1, -1):
            total = 0.0
            for j in range(k + 1):
                total += out[j] * of_clock[k - j]
            out[k] = total
        out[states] = most
    return terms


@compiled(_FOUR_FLOATS(CLOCKS, INT64, INT64, INT64, INT64, INT64, INT64, SEGMENT, FLOAT64, FLOAT64))
def moments_at(
    clocks: Clocks,
    count: int,
    a: int,
    b: int,
    offset: int,
    lo: int,
    hi: int,
    segment: Segment,
    x: float,
    rest: float,
) -> tuple[float, float, float, float]:
    """At x of the piece: mean and variance of the number of partners, and of the sum of their values."""
    _, which, p, q, _ = segment
    mean = variance = sum_mean = sum_variance = 0.0
    for d in range(count):
        m = m_square = s = s_square = 0.0
        segments = segments_of(clocks, d, a, b, offset)
        for n in range(segments):
            near, _ = take_segment(clocks, d, n, segments, a, b, offset, lo, hi, segment)
            if near < 0:
                continue
            share = share_of(segment.ends, offset, x, rest)
            m_a = m_b = s_a = s_b = 0.0
            for j in range(near):
                p_a, p_b = p[0, j] * rest + p[1, j] * x, p[2, j] * rest + p[3, j] * x
                q_a, q_b = q[0, j] * rest + q[1, j] * x, q[2, j] * rest + q[3, j] * x
                spread = share * ((p_a * q_a + p_b * q_b) / 3.0 + (p_a * q_b + p_b * q_a) / 6.0)
                c = which[j]
                m_a += clocks.times[c] * p_a
                m_b += clocks.times[c] * p_b
                s_a += clocks.sum[c] * p_a
                s_b += clocks.sum[c] * p_b
                variance += clocks.times[c] * spread
                sum_variance += clocks.squares[c] * spread
            m += share * ((m_a + m_b) / 2.0)
            s += share * ((s_a + s_b) / 2.0)
            m_square += share * ((m_a * m_a + m_a * m_b + m_b * m_b) / 3.0)
            s_square += share * ((s_a * s_a + s_a * s_b + s_b * s_b) / 3.0)
        mean += m
        sum_mean += s
        variance += max(m_square - m * m, 0.0)
        sum_variance += max(s_square - s * s, 0.0)
    return mean, variance, sum_mean, sum_variance
