"""Classes of candidates that share their probability, and which answers are certain.

Rows with the same support and shape form one class of multiplicity u: its factor in a product is the u-th power of one
row's, and its rows share one probability. Points at one instant form a class of which only the last row can prevail
over left times after it, and only the first over left times before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_INT32,
    WRITE_FLOAT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.asof_join.candidates import INFINITE, RIGHT_INDEX, RightIndex
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.histogram_probability import SHAPES

UNIFORM = -1


class Classes(NamedTuple):
    """Classes in ascending order of (begin, end, shape): class k has the candidates `first[k] : first[k + 1]`.

    `below`: the probability that a row of the class prevails (of points: their last row, over left times after them).
    `above`: that the first of points prevails over left times before it.
    """

    begin: IntArray
    end: IntArray
    shape: NDArray[np.int32]
    first: IntArray
    below: FloatArray
    above: FloatArray


CLASSES = types.NamedTuple(  # type: ignore[no-untyped-call]  # numba ships no types
    (WRITE_INT64, WRITE_INT64, WRITE_INT32, WRITE_INT64, WRITE_FLOAT64, WRITE_FLOAT64), Classes
)


class Left(NamedTuple):
    """A left time: its support, and its shape in the left catalogue."""

    begin: int
    end: int
    shape: int


TWO_FLOAT64 = types.UniTuple(types.float64, 2)  # type: ignore[no-untyped-call]  # as above
LEFT = types.NamedUniTuple(types.int64, 3, Left)  # type: ignore[no-untyped-call]  # as above


@compiled(INT64(RIGHT_INDEX, READ_INT32, INT64, INT64, CLASSES))
def number_classes(index: RightIndex, found: NDArray[np.int32], c0: int, c1: int, classes: Classes) -> int:
    """The classes of the candidates `found[c0:c1]`; returns how many there are."""
    begin, end, shape, first = classes.begin, classes.end, classes.shape, classes.first
    m = 0
    for i in range(c0, c1):
        row = found[i]
        s, e, h = index.begin[row], index.end[row], index.shape[row]
        if m and begin[m - 1] == s and end[m - 1] == e and shape[m - 1] == h:
            continue
        begin[m], end[m], shape[m], first[m] = s, e, h, i - c0
        m += 1
    first[m] = c1 - c0
    return m


@compiled(BOOL(INT64, INT64, INT64, INT64, INT64, SHAPES), inline=True)
def _has_mass_in(low: int, high: int, begin: int, end: int, shape: int, shapes: Shapes) -> bool:
    # Whether a time that is no point lies strictly between two instants with positive probability.
    if max(begin, low) >= min(end, high):
        return False
    if shape == UNIFORM:
        return True
    start, last = shapes.start[shape], shapes.start[shape + 1] - 1
    anchor = end - shapes.edge[last]
    for bucket in range(start, last):
        if shapes.mass[bucket] > 0.0 and max(anchor + shapes.edge[bucket], low) < min(
            anchor + shapes.edge[bucket + 1], high
        ):
            return True
    return False


@compiled(BOOL(INT64, INT64, INT64, INT64, INT64, INT64, BOOL, SHAPES), inline=True)
def _within(
    low: int, high: int, tolerance: int, begin: int, end: int, shape: int, nearest: bool, shapes: Shapes
) -> bool:
    # Whether a right time is within reach of a left time in a bucket [low, high] with positive probability.
    down = -tolerance if nearest else 0
    start = last = 0
    buckets = 1
    if shape != UNIFORM:
        start = shapes.start[shape]
        last = shapes.start[shape + 1] - 1
        buckets = last - start
    for bucket in range(start, start + buckets):
        s, e = begin, end
        if shape != UNIFORM:
            if shapes.mass[bucket] == 0.0:
                continue
            s, e = end - shapes.edge[last] + shapes.edge[bucket], end - shapes.edge[last] + shapes.edge[bucket + 1]
        if low == high and s == e:
            if down <= low - s <= tolerance:
                return True
        elif max(low - e, down) < min(high - s, tolerance):
            return True
    return False


@compiled(BOOL(LEFT, INT64, CLASSES, INT64, BOOL, SHAPES, SHAPES))
def any_within(
    left: Left, tolerance: int, classes: Classes, m: int, nearest: bool, left_shapes: Shapes, right_shapes: Shapes
) -> bool:
    """Whether some candidate is within reach with positive probability; if none is, surely no row prevails."""
    for k in range(m):
        s, e, h = classes.begin[k], classes.end[k], classes.shape[k]
        if left.shape == UNIFORM:
            if _within(left.begin, left.end, tolerance, s, e, h, nearest, right_shapes):
                return True
            continue
        start, last = left_shapes.start[left.shape], left_shapes.start[left.shape + 1] - 1
        anchor = left.end - left_shapes.edge[last]
        for bucket in range(start, last):
            low, high = anchor + left_shapes.edge[bucket], anchor + left_shapes.edge[bucket + 1]
            if left_shapes.mass[bucket] > 0.0 and _within(low, high, tolerance, s, e, h, nearest, right_shapes):
                return True
    return False


@compiled(INT64(INT64, INT64, INT64, CLASSES, INT64, BOOL, SHAPES))
def certain_class(a: int, b: int, tolerance: int, classes: Classes, m: int, nearest: bool, shapes: Shapes) -> int:
    """The class whose row prevails in every world, or -1. Of points it is the last one's class backward; nearest it is
    the row on the side where the left time is, and -1 if several points leave two of them."""
    begin, end, first = classes.begin, classes.end, classes.first
    if not nearest:
        j = -1
        for k in range(m):  # ascending in (begin, end)
            if end[k] <= a:
                j = k
        if j < 0 or b - begin[j] > tolerance:
            return -1
        if begin[j] < end[j] and first[j + 1] - first[j] > 1:
            return -1
        for k in range(m):
            if k == j:
                continue
            if begin[k] == end[k]:
                if begin[j] < begin[k] and (begin[k] < b or (a == b and begin[k] == b)):
                    return -1
            elif _has_mass_in(begin[j], b, begin[k], end[k], classes.shape[k], shapes):
                return -1
        return j
    p, q = -INFINITE, INFINITE
    for k in range(m):
        p = max(p, min(begin[k], 2 * a - end[k]))
        q = min(q, max(end[k], 2 * b - begin[k]))
    for j in range(m):
        if min(begin[j], 2 * a - end[j]) < p or max(end[j], 2 * b - begin[j]) > q:
            continue
        if max(b - begin[j], end[j] - a) > tolerance:
            continue
        if first[j + 1] - first[j] > 1 and (begin[j] < end[j] or a < begin[j] < b):
            continue
        blocked = False
        for k in range(m):
            if k == j:
                continue
            if begin[k] < end[k]:
                blocked = _has_mass_in(p, q, begin[k], end[k], classes.shape[k], shapes)
            else:
                blocked = p < begin[k] < q or (
                    # Points at equal distances: the one before prevails.
                    a == b and begin[j] == end[j] and begin[j] > a and a - begin[k] == begin[j] - a
                )
            if blocked:
                break
        if not blocked:
            return j
    return -1


@compiled(TWO_FLOAT64(INT64, INT64, INT64, INT64, SHAPES), inline=True)
def distribution_at(time: int, begin: int, end: int, shape: int, shapes: Shapes) -> tuple[float, float]:
    """The distribution function of a time that is no point, and its density just after `time`."""
    if time < begin:
        return 0.0, 0.0
    if time >= end:
        return 1.0, 0.0
    if shape == UNIFORM:
        return float(time - begin) / float(end - begin), 1.0 / float(end - begin)
    bucket, last = shapes.start[shape], shapes.start[shape + 1] - 1
    anchor = end - shapes.edge[last]
    while last - bucket > 1:  # the bucket in which `time` lies is in [bucket, last)
        middle = (bucket + last) >> 1
        if anchor + shapes.edge[middle] <= time:
            bucket = middle
        else:
            last = middle
    length = float(shapes.edge[bucket + 1] - shapes.edge[bucket])
    mass = shapes.mass[bucket]
    return shapes.below[bucket] + mass * (float(time - anchor - shapes.edge[bucket]) / length), mass / length


@compiled(INT64(SHAPES), inline=True)
def most_edges(shapes: Shapes) -> int:
    """The greatest number of edges of a shape, 2 of a uniform time."""
    most = 2
    for shape in range(shapes.start.size - 1):
        most = max(most, shapes.start[shape + 1] - shapes.start[shape])
    return most
