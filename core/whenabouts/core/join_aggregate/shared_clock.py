"""Right rows that one clock stamped: its offset belongs to the left time.

The readings of a clock share its offset, so right rows are not independent of each other. Against a left row only the
difference counts: `X_j - Y = (t_j - E_j) - Y'` with `Y' = t_l - E_l - O_left + O_right`. With Y' as the left time and
own errors alone on the right, everything is independent, and the chance functions are exact as they are
(`chance_pieces`). No dimension is added.

The density of Y' is that of a sum of up to three uniform times, or of a histogram and a uniform time: on each piece a
polynomial of degree 2 at most. It is stored as a histogram whose buckets are bent. The *bends* of a bucket are the
three Bernstein coefficients of its density, relative to its mean:
`f(x) = b0 (1 - x)^2 + 2 b1 x (1 - x) + b2 x^2`, b0 + b1 + b2 = 3. All three are sums of products of lengths that are
not negative, so nothing cancels, however much the lengths differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.join_aggregate.chance_pieces import NOT_BENT, Rows, rows_of
from whenabouts.core.probability.histogram_arrays import Shapes


class Bent(NamedTuple):
    """Left rows with bent densities: `bends` has three numbers for each entry of `rows.shapes`; empty: none is bent."""

    rows: Rows
    bends: FloatArray


def given_offsets(left: Rows, right: Rows, offsets_us: tuple[int, int], *, one_clock: bool = True) -> tuple[Bent, Rows]:
    """Both sides with times that are independent: both offsets in the left times, right ones with own errors alone.

    `one_clock`: whether one clock made all right readings; otherwise only the left clock's offset is in the left times.

    `offsets_us`: of the left clock (0: left times are as they are) and of the right one. The rows' ends have the offset
    of their own clock, as across domains, and so have shapes, which approximate the sum of both errors; these give way
    to the exact density.
    """
    of_left, of_right = offsets_us
    if of_left:
        left = rows_of(left.t_min + of_left, left.t_max - of_left)
    return with_offsets(left, (of_left, of_right) if one_clock else (of_left,)), rows_of(
        right.t_min + of_right, right.t_max - of_right
    )


def with_offsets(left: Rows, offsets: Sequence[int]) -> Bent:
    """Left rows with the offsets of up to two clocks added to their own times, each uniform in `[-offset, offset]`.

    One offset at most beside a histogram. Cost: O(rows), and O(buckets^2) per template.

    >>> points = rows_of(np.array([0]), np.array([0]))
    >>> with_offsets(points, [5]).rows[:2], with_offsets(points, [5]).bends.size
    ((array([-5]), array([5])), 0)
    >>> bent = with_offsets(points, [1, 2])  # a trapezoid
    >>> bent.rows.shapes.edge.tolist(), bent.rows.shapes.mass.tolist(), bent.bends.tolist()[:3]
    ([-6, -4, -2, 0], [0.25, 0.5, 0.25, 0.0], [0.0, 1.0, 2.0])
    """
    wide = [2 * offset for offset in offsets if offset]
    if not wide:
        return Bent(left, NOT_BENT)
    by = sum(wide) // 2
    if left.shape.size:
        kinds = [_bent_histogram(left.shapes, number, wide) for number in range(len(left.shapes.start) - 1)]
        number, end = left.shape, left.t_max + by
    else:
        lengths = left.t_max - left.t_min
        if len(wide) == 1 and not lengths.any():
            return Bent(rows_of(left.t_min - by, left.t_max + by), NOT_BENT)
        different, which = np.unique(lengths, return_inverse=True)
        kinds = [_sums_of_uniforms(different, wide)]
        number, end = which.reshape(-1).astype(np.int32), left.t_max + by
    shapes, bends = _catalogue(kinds)
    start = shapes.edge[shapes.start[:-1]]
    return Bent(rows_of(end + start[number], end, number, shapes), bends)


class _Pieces(NamedTuple):
    """Densities, one a row: their edges, and on each piece between them the mass and the bends; pieces may be empty."""

    edges: IntArray
    mass: FloatArray
    bends: FloatArray


def _sums_of_uniforms(lengths: IntArray, more: Sequence[int]) -> _Pieces:
    """The densities of sums of uniform times on `[0, length]` and `[0, more]`, one row per length.

    With lengths a <= b <= c, the sum of those of b and c has a trapezoid as density: it rises up to b, and falls from c
    on. The density of all is the mean of this trapezoid over `[y - a, y]`. On each of the trapezoid's three parts that
    is the length of the overlap times the mean height, both linear in y between the edges.
    """
    given = np.stack(np.broadcast_arrays(lengths, *(np.int64(length) for length in (*more, 0)[:2])), axis=1)
    a, b, c = np.sort(given, axis=1).T
    edges = np.sort(np.stack([np.zeros_like(a), a, b, c, a + b, a + c, b + c, a + b + c], axis=1), axis=1)
    up, across = np.maximum(b, 1).astype(float), c.astype(float)
    parts = ((np.zeros_like(a), b), (b, c), (c, b + c))

    def height(part: int, u: IntArray) -> FloatArray:
        """Of the trapezoid within a part, as a share of its greatest height, 1 / c."""
        found: FloatArray = np.stack([u / up[:, None], np.ones(u.shape), ((b + c)[:, None] - u) / up[:, None]])[part]
        return found

    first, last = edges[:, :-1], edges[:, 1:]
    bends = np.zeros((*first.shape, 3))
    for part, (start, end) in enumerate(parts):
        overlap, mean = [], []
        for y in (first, last):
            low, high = (np.clip(u, start[:, None], end[:, None]) for u in (y - a[:, None], y))
            overlap.append((high - low).astype(float))
            mean.append((height(part, low) + height(part, high)) / 2)
        exact = (a == 0)[:, None]  # no time to average over: the height itself, in the part that holds the piece
        here = (first >= start[:, None]) & (last <= end[:, None])
        overlap = [np.where(exact, here, of) for of in overlap]
        bends[..., 0] += overlap[0] * mean[0]
        bends[..., 1] += (overlap[0] * mean[1] + overlap[1] * mean[0]) / 2
        bends[..., 2] += overlap[1] * mean[1]
    mean_of_piece = bends.sum(axis=2) / 3
    mass = (last - first) * mean_of_piece / (np.maximum(a, 1) * across)[:, None]
    return _Pieces(edges, mass, _relative(bends))


def _bent_histogram(shapes: Shapes, number: int, more: Sequence[int]) -> _Pieces:
    """The density of a histogram's time plus a uniform one on `[0, more]`: the mixture of its buckets' densities."""
    entries = slice(shapes.start[number], shapes.start[number + 1])
    edge, mass = shapes.edge[entries], shapes.mass[entries][:-1]
    of_buckets = _sums_of_uniforms(np.diff(edge), more)
    edges = of_buckets.edges + edge[:-1, None]
    share = (of_buckets.mass * mass[:, None]).reshape(-1)
    bends = of_buckets.bends.reshape(-1, 3)
    first, last = edges[:, :-1].reshape(-1), edges[:, 1:].reshape(-1)
    cuts = np.unique(edges)
    start, end = cuts[:-1, None], cuts[1:, None]
    inside = (first <= start) & (end <= last) & (first < last)
    length = np.maximum(last - first, 1).astype(float)
    ends = [((u - first) / length, (last - u) / length) for u in (start, end)]
    found = np.empty((len(cuts) - 1, 3))
    for n, (one, other) in enumerate(((ends[0], ends[0]), (ends[0], ends[1]), (ends[1], ends[1]))):
        blossom = bends[:, 0] * (one[1] * other[1]) + bends[:, 2] * (one[0] * other[0])
        blossom += bends[:, 1] * (one[0] * other[1] + one[1] * other[0])
        found[:, n] = np.where(inside, share / length * blossom, 0.0).sum(axis=1)
    return _Pieces(cuts[None], (np.diff(cuts) * found.sum(axis=1) / 3)[None], _relative(found)[None])


def _relative(bends: FloatArray) -> FloatArray:
    """Bends with a mean of 1; 1 where there is no density."""
    mean = bends.sum(axis=-1, keepdims=True) / 3
    return np.divide(bends, mean, out=np.ones_like(bends), where=mean > 0)


def _catalogue(kinds: Sequence[_Pieces]) -> tuple[Shapes, FloatArray]:
    """Densities as shapes without empty pieces, each anchored where it ends."""
    kept = [np.pad(np.diff(of.edges) > 0, ((0, 0), (0, 1)), constant_values=True) for of in kinds]
    padded = [
        (
            of.edges - of.edges[:, -1:],
            np.pad(of.mass, ((0, 0), (0, 1))),
            np.pad(np.cumsum(of.mass, axis=1), ((0, 0), (1, 0))),
        )
        for of in kinds
    ]
    edge, mass, below = (np.concatenate([of[n][at] for of, at in zip(padded, kept, strict=True)]) for n in range(3))
    start = np.append(0, np.cumsum(np.concatenate([at.sum(axis=1) for at in kept])))
    for column in (edge, mass, below, start):
        column.setflags(write=False)
    ends = ((0, 0), (0, 1), (0, 0))
    bends = [np.pad(of.bends, ends, constant_values=1.0)[at] for of, at in zip(kinds, kept, strict=True)]
    return Shapes(edge, mass, below, start), np.concatenate(bends).reshape(-1)
