"""Match thresholds: for every pair of shapes, the differences of anchors that match (PTJoin Theorems 2 and 3).

Write `D = X_target - X_base = delta + Z`, with delta the difference of the two anchors and Z the difference of the two
shapes. `P(D >= lo)` grows and `P(D <= hi)` falls with delta. In a window that is wide for the pair (`hi - lo` at least
the sum of both supports), at most one of them is below 1, and the pair matches iff delta lies in one range. PTJoin
computes the ends of that range, the satisfaction times, as real numbers. Here they are integers, found with the
canonical kernel (e is its guard band, c the confidence):

    outer_lo .. outer_hi   no delta outside can match:     both tails >= c - e and > 0
    sure_lo .. sure_hi     every delta inside matches:     both tails >= c + e, or 1

Between the two, usually a microsecond wide, and wherever the window is narrow, only the kernel decides. All other
pairs are decided by comparing integers.

Where there are too many lengths for one shape each, rows are grouped into *classes*: uniforms between a shortest and a
longest length. A longer uniform that ends at the same anchor is stochastically earlier, so the two extreme lengths
bracket a class, and the kernel decides what the bracket leaves open.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    FLOAT64,
    INT64,
    READ_INT32,
    READ_INT64,
    READ_INT64_2D,
    WRITE_INT32,
    WRITE_INT64,
    WRITE_INT64_2D,
    WRITE_INT64_3D,
    compiled,
)
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.confidence_bounds import is_wide, opens_left, opens_right
from whenabouts.core.probability.histogram_arrays import Shapes, template_shapes, uniform_shapes
from whenabouts.core.probability.histogram_probability import SHAPES, guard_band, shape_probability
from whenabouts.core.times.limits import ALWAYS_US, NEVER_US, UNBOUNDED_US
from whenabouts.core.times.templates import Template

MOST_LENGTHS = 32
"""With more distinct lengths than this, several lengths share a class."""

Lengths: TypeAlias = tuple[tuple[int, int], ...]
"""Classes of uniform times: (shortest, longest) of each, in microseconds."""

SideKinds: TypeAlias = tuple[Template | tuple[int, int], ...]
"""The kinds of rows that one side has: registered templates, or classes of lengths, never both."""


class BracketingShapes(NamedTuple):
    """The shapes that bracket the kinds of one side: kind k lies between `earliest[k]` and `latest[k]`."""

    shapes: Shapes
    earliest: IntArray
    latest: IntArray


def bracketing_shapes(kinds: SideKinds) -> BracketingShapes:
    """The bracketing shapes: of a template itself, of a class its longest and its shortest length."""
    n = len(kinds)
    templates = tuple(kind for kind in kinds if isinstance(kind, Template))
    if templates:
        return BracketingShapes(template_shapes(templates), np.arange(n), np.arange(n))
    lengths = [length for kind in kinds if not isinstance(kind, Template) for length in kind]
    return BracketingShapes(uniform_shapes(lengths), np.arange(1, 2 * n, 2), np.arange(0, 2 * n, 2))


@compiled(INT64(READ_INT64, WRITE_INT64, WRITE_INT32))
def number_distinct(values: IntArray, distinct: IntArray, number: NDArray[np.int32]) -> int:
    """Number `values` (>= 0) by first appearance and write the distinct ones into `distinct`. O(n).

    Returns their count, or -1 as soon as `distinct` is too short for them."""
    cells = 4 * distinct.size
    held, numbers = np.full(cells, -1), np.empty(cells, np.int32)
    count = 0
    for i in range(values.size):
        value = values[i]
        at = (value ^ (value >> 7)) % cells
        while held[at] != value:
            if held[at] < 0:
                if count == distinct.size:
                    return -1
                held[at], numbers[at], distinct[count] = value, count, value
                count += 1
                break
            at = (at + 1) % cells
        number[i] = numbers[at]
    return count


def few_lengths(lengths: IntArray) -> tuple[Lengths, NDArray[np.int32]] | None:
    """One class per distinct length, in ascending order, and the class of each row; None for over `MOST_LENGTHS`.

    >>> few_lengths(np.array([7, 5, 7])), few_lengths(np.arange(33))
    ((((5, 5), (7, 7)), array([1, 0, 1], dtype=int32)), None)
    """
    distinct, number = np.empty(MOST_LENGTHS, np.int64), np.empty(len(lengths), np.int32)
    count = number_distinct(lengths, distinct, number)
    if count < 0:
        return None
    order = np.argsort(distinct[:count])  # independent of the rows' order: thresholds are cached by the classes
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count)
    return tuple((length, length) for length in distinct[order].tolist()), rank[number]


def classes_of(lengths: IntArray, most: int = MOST_LENGTHS) -> tuple[Lengths, NDArray[np.int32]]:
    """Classes with about equally many distinct lengths each, and the class of each row. O(n log n).

    >>> kinds, number = classes_of(np.array([5, 7, 5]))
    >>> kinds, number.tolist()
    (((5, 5), (7, 7)), [0, 1, 0])
    """
    distinct = np.unique(lengths)
    cuts = (
        distinct if len(distinct) <= most else np.unique(np.quantile(distinct, np.arange(most) / most, method="lower"))
    )
    number = np.searchsorted(cuts, lengths, side="right") - 1
    ends = np.append(np.searchsorted(distinct, cuts[1:]), len(distinct)) - 1
    kinds = tuple(zip(cuts.tolist(), distinct[ends].tolist(), strict=True))
    return kinds, number.astype(np.int32)


@compiled(FLOAT64(FLOAT64, FLOAT64, FLOAT64, FLOAT64), inline=True)
def _quadratic_root(p0: float, p1: float, p2: float, p: float) -> float:
    """Where in [0, 1] the parabola through (0, p0), (1/2, p1), (1, p2) has the value p, between p0 and p2."""
    curve = 2.0 * (p0 - 2.0 * p1 + p2)
    slope = 4.0 * p1 - 3.0 * p0 - p2
    root = math.sqrt(max(slope * slope - 4.0 * curve * (p0 - p), 0.0))
    # The form without cancellation: the slope is positive if p0 < p2 and negative otherwise.
    below = slope + root if p2 > p0 else slope - root
    return 2.0 * (p - p0) / below if below != 0.0 else 0.5


@compiled(INT64(SHAPES, INT64, SHAPES, INT64, INT64, INT64, FLOAT64, INT64, INT64))
def _last_that_reaches(
    base: Shapes, b: int, target: Shapes, t: int, lo: int, hi: int, threshold: float, yes: int, no: int
) -> int:
    """The delta nearest to `no` at which P reaches the threshold (and is not 0); P is 1 at `yes`.

    P is piecewise quadratic in delta. So the next guess is a root of the parabola through both ends and the middle, as
    the paper solves the quadratic of the bounding configuration. Also trying the middle keeps the number of steps
    logarithmic.
    """
    p_yes, p_no = 1.0, 0.0
    step = 1 if yes > no else -1
    guess = no + step  # done at once if the caller passed neighbours
    while yes != no + step:
        for turn in range(3):
            p = shape_probability(0, 0, b, guess, guess, t, base, target, lo, hi)
            if p == 1.0 or (p > 0.0 and p >= threshold):
                yes, p_yes = guess, p
            else:
                no, p_no = guess, p
            width = abs(yes - no)
            if width <= 1:
                break
            if turn == 0:  # the middle, and the parabola through it
                middle = no + step * (width // 2)
                p = shape_probability(0, 0, b, middle, middle, t, base, target, lo, hi)
                share = _quadratic_root(p_no, p, p_yes, threshold)
                guess = no + step * int(share * width)
                if p == 1.0 or (p > 0.0 and p >= threshold):
                    yes, p_yes = middle, p
                else:
                    no, p_no = middle, p
            elif turn == 1:  # the other side of the root, if the guess was good
                nearby = max(width >> 12, 1)
                guess = guess - step * nearby if yes == guess else guess + step * nearby
            else:
                guess = no + step * (width // 2)
            guess = no + step * min(max(step * (guess - no), 1), max(abs(yes - no) - 1, 1))
    return yes


@compiled((
    SHAPES, READ_INT64, READ_INT64, SHAPES, READ_INT64, READ_INT64, INT64, INT64, FLOAT64, WRITE_INT64_3D
))  # fmt: skip
def _fill_thresholds(
    base: Shapes,
    base_earliest: IntArray,
    base_latest: IntArray,
    target: Shapes,
    target_earliest: IntArray,
    target_latest: IntArray,
    lo: int,
    hi: int,
    confidence: float,
    out: IntArray,
) -> None:
    start1, start2 = base.start, target.start
    for k in range(base_earliest.size):
        b0, b1 = base_earliest[k], base_latest[k]
        for m in range(target_earliest.size):
            t0, t1 = target_earliest[m], target_latest[m]
            buckets = start1[b0 + 1] - start1[b0] + start2[t0 + 1] - start2[t0] - 2
            band = guard_band(buckets)
            maybe, sure = confidence - band, confidence + band
            # The least and greatest Z of the latest target and the earliest base, and of the reverse.
            late_least = target.edge[start2[t1]] - base.edge[start1[b0 + 1] - 1]
            late_most = target.edge[start2[t1 + 1] - 1] - base.edge[start1[b0]]
            early_least = target.edge[start2[t0]] - base.edge[start1[b1 + 1] - 1]
            early_most = target.edge[start2[t0 + 1] - 1] - base.edge[start1[b1]]
            outer_lo = sure_lo = NEVER_US
            outer_hi = sure_hi = ALWAYS_US
            if not opens_left(lo):
                outer_lo = _last_that_reaches(
                    base, b0, target, t1, lo, UNBOUNDED_US, maybe, lo - late_least, lo - late_most - 1
                )
                sure_lo = lo - early_least
                if sure <= 1.0:
                    sure_lo = _last_that_reaches(
                        base, b1, target, t0, lo, UNBOUNDED_US, sure, sure_lo, min(outer_lo, sure_lo) - 1
                    )
            if not opens_right(hi):
                outer_hi = _last_that_reaches(
                    base, b1, target, t0, -UNBOUNDED_US, hi, maybe, hi - early_most, hi - early_least + 1
                )
                sure_hi = hi - late_most
                if sure <= 1.0:
                    sure_hi = _last_that_reaches(
                        base, b0, target, t1, -UNBOUNDED_US, hi, sure, sure_hi, max(outer_hi, sure_hi) + 1
                    )
            if not is_wide(lo, hi, max(late_most - late_least, early_most - early_least)):
                sure_lo, sure_hi = ALWAYS_US, NEVER_US
            out[k, m, 0], out[k, m, 1], out[k, m, 2], out[k, m, 3] = outer_lo, sure_lo, sure_hi, outer_hi


@lru_cache(maxsize=256)
def thresholds(base: SideKinds, target: SideKinds, lo: int, hi: int, confidence: float) -> IntArray:
    """outer_lo, sure_lo, sure_hi, outer_hi of `anchor_target - anchor_base`, for each pair of kinds: int64[n, m, 4].

    `lo`, `hi`: the window on `X_target - X_base` in microseconds. Ends are inclusive, `NEVER_US` and `ALWAYS_US` where
    the window is open. If the sure range is empty (sure_lo > sure_hi), the kernel decides everything in the outer one.
    The last 256 results are cached. Cost: some 60 kernel calls for each pair of kinds.

    >>> phi1 = Template(((0, 20, .1), (20, 30, .3), (30, 40, .6)))
    >>> phi2 = Template(((0, 10, .15), (10, 20, .3), (20, 30, .4), (30, 40, .15)))
    >>> thresholds((phi2,), (phi1,), 0, 2**62, .8)[0, 0, :2].tolist()  # PTJoin Example 4
    [2, 2]
    """
    one, other = bracketing_shapes(base), bracketing_shapes(target)
    table = np.empty((len(base), len(target), 4), np.int64)
    _fill_thresholds(*one, *other, lo, hi, confidence, table)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=64)
def mean_offsets(kinds: SideKinds) -> IntArray:
    """Roughly the mean time of each kind, in microseconds from its anchor.

    >>> mean_offsets(((10, 30),)).tolist(), mean_offsets((Template(((0, 20, .5), (20, 40, .5))),)).tolist()
    ([-10], [-20])
    """
    return np.array(
        [
            round(sum(p * (lo + hi) / 2 for lo, hi, p in kind.exact)) if isinstance(kind, Template) else -sum(kind) // 4
            for kind in kinds
        ],
        np.int64,
    )


def common_ranges(table: IntArray, shift: IntArray, present: IntArray) -> IntArray:
    """For each base kind, the ranges that hold for all `present` target kinds together: int64[n, 4].

    They bound (target anchor + shift[kind]) - (base anchor); PTJoin Theorem 3 where the shifts are 0.
    """
    of = table[:, present, :]
    shifted = np.where((of > NEVER_US) & (of < ALWAYS_US), of + shift[present][None, :, None], of)
    ends = shifted[..., 0].min(1), shifted[..., 1].max(1), shifted[..., 2].min(1), shifted[..., 3].max(1)
    return np.ascontiguousarray(np.stack(ends, axis=1))


@compiled((READ_INT64, READ_INT32, READ_INT64_2D, WRITE_INT64_2D))
def fill_kind_bounds(base_max: IntArray, kind: NDArray[np.int32], span: IntArray, out: IntArray) -> None:
    """The bounds of each base row on the targets' axis: its anchor plus the ranges of its kind."""
    for i in range(base_max.size):
        for end in range(4):
            distance = span[kind[i], end]
            out[i, end] = distance if distance in (NEVER_US, ALWAYS_US) else base_max[i] + distance


def least_difference(other: SideKinds, this: SideKinds, lo: int, hi: int, confidence: float) -> int:
    """The least `t_max(this) - t_max(other)` with which two rows can match; `NEVER_US` if nothing bounds it.

    `[lo, hi]` is the window on `D = X_this - X_other`. This is ITC's LH of the longest interval, and PTJoin's Theorem 4
    over all pairs of templates. Only `lo` matters, since a later row of the other input makes D smaller. Raises
    ValueError for an empty window.

    >>> [least_difference(((0, 20),), ((0, 0),), -50, 50, confidence) for confidence in (1.0, 0.5)]
    [-50, -60]
    """
    if lo > hi:
        raise ValueError(f"the window [{lo}, {hi}] is empty")
    return NEVER_US if opens_left(lo) else int(thresholds(other, this, lo, hi, confidence)[..., 0].min())


def eviction_bound(watermark_us: int, difference_us: int) -> int:
    """The least t_max with which a buffered row can still match a future row of the other input.

    Future rows of the other input have `t_max >= watermark_us`; `difference_us` is `least_difference`. Rows with a
    lesser t_max can be evicted; in a wide window the bound is tight. `NEVER_US` if nothing can be evicted (an open
    window, or no watermark yet); `ALWAYS_US` at the end of the input.

    >>> eviction_bound(1_000, -60), eviction_bound(ALWAYS_US, -60) == ALWAYS_US
    (940, True)
    >>> eviction_bound(1_000, NEVER_US) == NEVER_US
    True
    """
    if watermark_us >= ALWAYS_US:
        return ALWAYS_US
    if watermark_us <= NEVER_US or difference_us == NEVER_US:
        return NEVER_US
    # A watermark may be any int64; Python's integers do not overflow.
    return max(NEVER_US, min(ALWAYS_US, watermark_us + difference_us))
