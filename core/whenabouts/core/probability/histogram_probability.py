"""The canonical kernel for histograms: the probability that the difference of two times lies in a window.

`P = sum over buckets u, v of p_u p_v K(u, v)`, where K is the kernel of two uniforms (`pair_probability`), PTJoin
section 2. For a bucket u of the left event, the buckets of the right event that lie entirely inside the window form a
contiguous run, and the run's mass is a difference of exact partial sums. So only buckets that the window cuts cost a
call of K. The run only moves forward as u advances: O(n1 + n2 + cut pairs).

Order: the left event's buckets are always the outer loop, whichever side a strategy uses as its base. The same sum in
the same order gives the same bits. With one bucket on each side the result is K, bit for bit.

Error: K has a relative error of at most 5u (u = 2^-53), masses are rounded once (u), a run's mass is off by at most u,
and at most n1 + n2 additions follow each other: `|value - P| <= (n1 + n2 + 8) u`. `guard_band` is twice that, for a
bound and the pair that it decides, doubled again as a margin.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    FLOAT64,
    INT64,
    READ_FLOAT64,
    READ_INT32,
    READ_INT64,
    WRITE_FLOAT64,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.satisfaction_probability import KERNEL_ERROR, pair_probability

SHAPES = types.NamedTuple(  # type: ignore[no-untyped-call]  # numba ships no types
    (READ_INT64, READ_FLOAT64, READ_FLOAT64, READ_INT64), Shapes
)

UNIFORM = -1
"""The shape number of a row that is uniform between its own ends."""

_LEAST = 5e-324
_GREATEST = 1.0 - 2.0**-53


@compiled(FLOAT64(INT64))
def guard_band(buckets: int) -> float:
    """The guard band for pairs of shapes with `buckets` buckets together: only the kernel may decide a pair whose
    probability is this close to the confidence."""
    return max((buckets + 8) * 2.0**-51, KERNEL_ERROR)


@compiled(FLOAT64(INT64, INT64, INT64, INT64, INT64, INT64, SHAPES, SHAPES, INT64, INT64))
def shape_probability(
    left_min: int,
    left_max: int,
    left_shape: int,
    right_min: int,
    right_max: int,
    right_shape: int,
    left_shapes: Shapes,
    right_shapes: Shapes,
    lo: int,
    hi: int,
) -> float:
    """P(lo <= X_right - X_left <= hi) of one pair; times in int64 microseconds, shapes by number or `UNIFORM`."""
    edge1, mass1, _, start1 = left_shapes
    edge2, mass2, below2, start2 = right_shapes
    first1 = first2 = 0
    n1 = n2 = 1
    support_min1, support_max1, support_min2, support_max2 = left_min, left_max, right_min, right_max
    if left_shape >= 0:
        first1 = start1[left_shape]
        n1 = start1[left_shape + 1] - first1 - 1
        support_min1, support_max1 = left_max + edge1[first1], left_max + edge1[first1 + n1]
    if right_shape >= 0:
        first2 = start2[right_shape]
        n2 = start2[right_shape + 1] - first2 - 1
        support_min2, support_max2 = right_max + edge2[first2], right_max + edge2[first2 + n2]
    if support_min2 - support_max1 >= lo and support_max2 - support_min1 <= hi:
        return 1.0
    if support_max2 - support_min1 < lo or support_min2 - support_max1 > hi:
        return 0.0
    if left_shape < 0 and right_shape < 0:
        return pair_probability(left_min, left_max, right_min, right_max, lo, hi)

    p = 0.0
    possible = False
    near = inside = within = far = 0  # indices of the right event's buckets; none moves back as u advances
    for u in range(n1):
        a, b, mass = support_min1, support_max1, 1.0
        if left_shape >= 0:
            a, b, mass = left_max + edge1[first1 + u], left_max + edge1[first1 + u + 1], mass1[first1 + u]
        if mass == 0.0:
            continue
        if right_shape < 0:
            inner = pair_probability(a, b, right_min, right_max, lo, hi)
            possible = possible or inner > 0.0
            p += mass * inner
            continue
        while near < n2 and right_max + edge2[first2 + near + 1] - a < lo:
            near += 1
        while inside < n2 and right_max + edge2[first2 + inside] - b < lo:
            inside += 1
        while within < n2 and right_max + edge2[first2 + within + 1] - a <= hi:
            within += 1
        while far < n2 and right_max + edge2[first2 + far] - b <= hi:
            far += 1
        inner = 0.0
        for v in range(near, inside):
            k = pair_probability(a, b, right_max + edge2[first2 + v], right_max + edge2[first2 + v + 1], lo, hi)
            possible = possible or (k > 0.0 and mass2[first2 + v] > 0.0)
            inner += mass2[first2 + v] * k
        if within > inside:
            run = below2[first2 + within] - below2[first2 + inside]
            possible = possible or run > 0.0
            inner += run
        for v in range(max(inside, within), far):
            k = pair_probability(a, b, right_max + edge2[first2 + v], right_max + edge2[first2 + v + 1], lo, hi)
            possible = possible or (k > 0.0 and mass2[first2 + v] > 0.0)
            inner += mass2[first2 + v] * k
        p += mass * inner
    if not possible:
        return 0.0
    # Only certain pairs may have probability 1, and only impossible ones 0: confidence 1 relies on it.
    return min(max(p, _LEAST), _GREATEST)


@compiled((
    READ_INT64, READ_INT64, READ_INT32, READ_INT64, READ_INT64, READ_INT32, READ_INT32, READ_INT32,
    SHAPES, SHAPES, INT64, INT64, WRITE_FLOAT64,
))  # fmt: skip
def _fill_at(
    left_min: IntArray,
    left_max: IntArray,
    left_shape: NDArray[np.int32],
    right_min: IntArray,
    right_max: IntArray,
    right_shape: NDArray[np.int32],
    left_at: NDArray[np.int32],
    right_at: NDArray[np.int32],
    left_shapes: Shapes,
    right_shapes: Shapes,
    lo: int,
    hi: int,
    out: FloatArray,
) -> None:
    # Most pairs of a join are certain. The two supports show it here, without a call that passes tuples.
    edge1, start1, edge2, start2 = left_shapes.edge, left_shapes.start, right_shapes.edge, right_shapes.start
    for i in range(out.size):
        left, right = np.uint32(left_at[i]), np.uint32(right_at[i])
        min1, max1, min2, max2 = left_min[left], left_max[left], right_min[right], right_max[right]
        s1 = s2 = UNIFORM
        from1, end1, from2, end2 = min1, max1, min2, max2
        if left_shape.size:
            s1 = left_shape[left]
            from1, end1 = max1 + edge1[start1[s1]], max1 + edge1[start1[s1 + 1] - 1]
        if right_shape.size:
            s2 = right_shape[right]
            from2, end2 = max2 + edge2[start2[s2]], max2 + edge2[start2[s2 + 1] - 1]
        if from2 - end1 >= lo and end2 - from1 <= hi:
            out[i] = 1.0
        else:
            out[i] = shape_probability(min1, max1, s1, min2, max2, s2, left_shapes, right_shapes, lo, hi)


def shape_probabilities_at(
    left: tuple[IntArray, IntArray, NDArray[np.int32]],
    right: tuple[IntArray, IntArray, NDArray[np.int32]],
    left_at: NDArray[np.int32],
    right_at: NDArray[np.int32],
    left_shapes: Shapes,
    right_shapes: Shapes,
    lo: int,
    hi: int,
) -> FloatArray:
    """P(lo <= X_right - X_left <= hi) of the pairs (left_at[i], right_at[i]).

    `left` and `right` are (t_min, t_max, shape numbers); without shape numbers the rows are uniform. Every position
    must be a valid index. O(pairs x buckets).

    >>> from whenabouts.core.probability.histogram_arrays import NO_SHAPES, template_shapes
    >>> from whenabouts.core.times.templates import Template
    >>> phi1 = Template(((0, 20, .1), (20, 30, .3), (30, 40, .6)))
    >>> phi2 = Template(((0, 10, .15), (10, 20, .3), (20, 30, .4), (30, 40, .15)))
    >>> at = zero = np.zeros(1, np.int32)
    >>> a2, a3 = (np.array([70]), np.array([110]), zero), (np.array([170]), np.array([210]), zero)
    >>> shape_probabilities_at(
    ...     a2, a3, at, at, template_shapes((phi2,)), template_shapes((phi1,)), 90, 2**62
    ... ).round(12).tolist()  # PTJoin Example 3
    [0.925]
    """
    out = np.empty(left_at.size)
    _fill_at(
        *left, *right, np.ascontiguousarray(left_at, np.int32), np.ascontiguousarray(right_at, np.int32),
        left_shapes, right_shapes, lo, hi, out,
    )  # fmt: skip
    return out
