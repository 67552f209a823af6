"""Kernels for one left row: its pieces, the shares of its partners on a piece, and integrals over a piece.

See `chance_pieces` for the method. On a piece x runs from 0 to 1, and each partner's share p(x) and its complement q(x)
are lines given by their values at the ends, so `p(x) = p_a (1 - x) + p_b x`: sums of numbers that are not negative.
"""

from __future__ import annotations

import numpy as np
from numba import types

from whenabouts.core.arrays.integer_powers import power
from whenabouts.core.arrays.jit import (
    BOOL,
    FLOAT64,
    INT64,
    READ_FLOAT64,
    READ_INT64,
    TWO_INT64,
    WRITE_FLOAT64,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.probability.gauss_legendre import COMPLEMENTS, NODES, START, WEIGHTS

TWO_FLOATS = types.Tuple((types.float64,) * 2)  # type: ignore[no-untyped-call]  # numba ships no types
BEND = types.UniTuple(types.float64, 3)  # type: ignore[no-untyped-call]  # as above
_MEAN_AND_BEND = types.Tuple((types.float64, BEND))  # type: ignore[no-untyped-call]  # as above
_WRITE_INT32 = types.Array(types.int32, 1, "C")

MOST_NODES = 16
CHANGE_OF_BEND = 8.0

# How much all p_j of a piece may change together, so that 1, 2, ... nodes integrate a product of q_j within 2^-60:
# c_r T^(2r) with c_r = (r!)^4 / ((2r + 1) ((2r)!)^3). Of a tail the mixed differences of order s are below 2^(s - 1),
# which gives c_r (2T)^(2r) / 2. Rounded down.
CHANGE_OF_PRODUCT = np.array([
    4.562e-09, 0.0002474, 0.01097, 0.07916, 0.2717, 0.6387, 1.203, 1.969, 2.927, 4.064, 5.363, 6.808, 8.383, 10.07,
    11.87, 13.75,
])  # fmt: skip
CHANGE_OF_TAIL = np.array([
    3.226e-09, 0.0001471, 0.00616, 0.04316, 0.1456, 0.3383, 0.6322, 1.028, 1.521, 2.103, 2.767, 3.503, 4.305, 5.163,
    6.074, 7.03,
])  # fmt: skip


@compiled((WRITE_INT64, INT64))
def sort_instants(values: IntArray, count: int) -> None:
    """Sort the first `count` values (Shell, gaps of Ciura): they are a few runs that are nearly in order."""
    gap = 1
    while gap < count:
        gap = gap * 9 // 4 + 1
    while gap > 1:
        gap = gap * 4 // 9 if gap > 2 else 1
        gap = max(gap, 1)
        for i in range(gap, count):
            value = values[i]
            j = i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value


@compiled(INT64(WRITE_INT64, INT64), inline=True)
def unique_instants(values: IntArray, count: int) -> int:
    """Drop repeats from sorted values; returns how many are left."""
    kept = 0
    for i in range(count):
        if kept == 0 or values[i] != values[kept - 1]:
            values[kept] = values[i]
            kept += 1
    return kept


@compiled(TWO_FLOATS(INT64, INT64, INT64, INT64, READ_INT64, READ_FLOAT64), inline=True)
def shape_share(
    first: int, last: int, anchor: int, entry: int, edge: IntArray, mass: FloatArray
) -> tuple[float, float]:
    """The mass in `[first, last]` and outside of it of a shape that ends at `anchor`, its entries from `entry` on.

    Both come from integers: no difference of nearly equal floats.
    """
    p = q = 0.0
    start = anchor + edge[entry]
    while start < anchor:
        end = anchor + edge[entry + 1]
        length = end - start
        inside = max(min(last, end) - max(first, start), 0)
        p += mass[entry] * (float(inside) / float(length))
        q += mass[entry] * (float(length - inside) / float(length))
        start = end
        entry += 1
    return p, q


@compiled(TWO_INT64(FLOAT64, INT64, READ_FLOAT64, BOOL), inline=True)
def rule_of(change: float, degree: int, limits: FloatArray, bent: bool) -> tuple[int, int]:
    """The number of nodes, and of equal parts of the piece that take as many, for polynomials of this degree.

    `degree // 2 + 1` nodes are exact; fewer do where the shares change little. A bent density raises the degree by 2;
    its derivatives are at most 8 and 64 times its maximum (Markov's inequality), as if the shares changed by 8 more.
    """
    if bent:
        change, degree = change + CHANGE_OF_BEND, degree + 2
    exact = degree // 2 + 1
    parts = 1
    while exact > MOST_NODES and change > limits[MOST_NODES - 1] * parts:
        parts *= 2
    change /= parts
    nodes = 1
    while nodes < exact and change > limits[nodes - 1]:
        nodes += 1
    return nodes, parts


@compiled(_MEAN_AND_BEND(READ_FLOAT64, INT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64), inline=True)
def bend_of_piece(
    bends: FloatArray, entry: int, from_start: float, to_end: float, last_from_start: float, last_to_end: float
) -> tuple[float, tuple[float, float, float]]:
    """The mean density of a piece of a bucket, relative to the bucket's, and the piece's own bends.

    Where the piece starts and ends is given by shares of the bucket: those before and after its start, then its end.
    """
    first, middle, last = bends[3 * entry], bends[3 * entry + 1], bends[3 * entry + 2]
    x, y, u, v = from_start, to_end, last_from_start, last_to_end
    one = first * y * y + 2.0 * middle * x * y + last * x * x
    two = first * y * v + middle * (x * v + y * u) + last * x * u
    three = first * v * v + 2.0 * middle * u * v + last * u * u
    mean = (one + two + three) / 3.0
    if mean == 0.0:
        return 0.0, (1.0, 1.0, 1.0)
    return mean, (one / mean, two / mean, three / mean)


@compiled(FLOAT64(BEND, FLOAT64, FLOAT64, FLOAT64), inline=True)
def mean_of_bent(bend: tuple[float, float, float], first: float, middle: float, last: float) -> float:
    """The mean of a polynomial of degree 2, given by its Bernstein coefficients, under a bent density."""
    mean = first * (bend[0] + bend[1] / 2.0 + bend[2] / 6.0)
    mean += middle * (bend[0] / 2.0 + bend[1] * 2.0 / 3.0 + bend[2] / 2.0)
    mean += last * (bend[0] / 6.0 + bend[1] / 2.0 + bend[2])
    return mean / 5.0


@compiled(FLOAT64(INT64, BOOL, BEND, FLOAT64, FLOAT64), inline=True)
def weight_of(node: int, bent: bool, bend: tuple[float, float, float], x: float, rest: float) -> float:
    """The weight of a node at x, under the density of the piece."""
    weight: float = WEIGHTS[node]
    if bent:
        weight *= bend[0] * rest * rest + 2.0 * bend[1] * rest * x + bend[2] * x * x
    return weight


@compiled(FLOAT64(INT64, READ_FLOAT64, READ_FLOAT64, READ_INT64, INT64, INT64, BOOL, BEND), inline=True)
def mean_of_none(
    count: int,
    q_a: FloatArray,
    q_b: FloatArray,
    times: IntArray,
    nodes: int,
    parts: int,
    bent: bool,
    bend: tuple[float, float, float],
) -> float:
    """The mean over a piece of `prod q_j^times_j`."""
    total = 0.0
    for part in range(parts):
        for node in range(START[nodes], START[nodes + 1]):
            x, rest = (part + NODES[node]) / parts, (parts - 1 - part + COMPLEMENTS[node]) / parts
            none = 1.0
            for j in range(count):
                q = q_a[j] * rest + q_b[j] * x
                none *= q if times[j] == 1 else power(q, times[j])
            total += weight_of(node, bent, bend, x, rest) * none
    return total / parts


@compiled(TWO_FLOATS(FLOAT64, FLOAT64, INT64), inline=True)
def any_of(p: float, q: float, times: int) -> tuple[float, float]:
    """P(any) and P(none) of some alike partners, each a sum or product of numbers that are not negative."""
    some, none = 0.0, 1.0
    while times > 0:
        if times & 1:
            some += none * p
            none *= q
        p += q * p
        q *= q
        times >>= 1
    return some, none


@compiled(FLOAT64(
    INT64, READ_FLOAT64, READ_FLOAT64, READ_FLOAT64, READ_FLOAT64, READ_INT64, INT64, INT64, BOOL, BEND
), inline=True)  # fmt: skip
def mean_of_any(
    count: int,
    p_a: FloatArray,
    p_b: FloatArray,
    q_a: FloatArray,
    q_b: FloatArray,
    times: IntArray,
    nodes: int,
    parts: int,
    bent: bool,
    bend: tuple[float, float, float],
) -> float:
    """The mean over a piece of `1 - prod q_j^times_j`, as a sum over the first partner that there is."""
    total = 0.0
    for part in range(parts):
        for node in range(START[nodes], START[nodes + 1]):
            x, rest = (part + NODES[node]) / parts, (parts - 1 - part + COMPLEMENTS[node]) / parts
            some, none = 0.0, 1.0
            for j in range(count):
                p, q = p_a[j] * rest + p_b[j] * x, q_a[j] * rest + q_b[j] * x
                if times[j] > 1:
                    p, q = any_of(p, q, times[j])
                some += none * p
                none *= q
            total += weight_of(node, bent, bend, x, rest) * some
    return total / parts


@compiled((FLOAT64, FLOAT64, INT64, WRITE_FLOAT64, INT64), inline=True)
def add_partners(p: float, q: float, times: int, state: FloatArray, states: int) -> None:
    """Add alike partners to the distribution of their number: `state[k]` is P(k), the last one P(at least that many).

    Everything is a sum of numbers that are not negative.
    """
    for _ in range(times):
        state[states] += state[states - 1] * p
        for k in range(states - 1, 0, -1):
            state[k] = state[k] * q + state[k - 1] * p
        state[0] *= q


@compiled((
    INT64, READ_FLOAT64, READ_FLOAT64, READ_FLOAT64, READ_FLOAT64, READ_INT64, READ_FLOAT64, INT64, INT64, INT64,
    FLOAT64, BOOL, BEND, WRITE_FLOAT64, WRITE_FLOAT64,
), inline=True)  # fmt: skip
def add_tails(
    count: int,
    p_a: FloatArray,
    p_b: FloatArray,
    q_a: FloatArray,
    q_b: FloatArray,
    times: IntArray,
    constant: FloatArray,
    states: int,
    nodes: int,
    parts: int,
    weight: float,
    bent: bool,
    bend: tuple[float, float, float],
    state: FloatArray,
    out: FloatArray,
) -> None:
    """Add the piece's mean of P(N >= k), times its weight, to `out[k]` for k from 1 to `states`.

    `constant`: the distribution of the partners whose shares do not change on the piece.
    """
    for part in range(parts):
        for node in range(START[nodes], START[nodes + 1]):
            x, rest = (part + NODES[node]) / parts, (parts - 1 - part + COMPLEMENTS[node]) / parts
            for k in range(states + 1):
                state[k] = constant[k]
            for j in range(count):
                p, q = p_a[j] * rest + p_b[j] * x, q_a[j] * rest + q_b[j] * x
                for _ in range(times[j]):  # as `add_partners`: a call per node would count references of the array
                    state[states] += state[states - 1] * p
                    for k in range(states - 1, 0, -1):
                        state[k] = state[k] * q + state[k - 1] * p
                    state[0] *= q
            tail = 0.0
            scale = weight * weight_of(node, bent, bend, x, rest) / parts
            for k in range(states, 0, -1):
                tail += state[k]
                out[k] += scale * tail


@compiled(FLOAT64(FLOAT64, BOOL, BOOL), inline=True)
def only_certain_is_one(p: float, possible: bool, certain: bool) -> float:
    """A probability as doubles have it: 0 only if impossible, 1 only if certain."""
    if certain:
        return 1.0
    if not possible:
        return 0.0
    return min(max(p, 5e-324), 1.0 - 2.0**-53)
