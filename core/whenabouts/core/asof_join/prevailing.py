"""The right rows that can prevail for each left row, and with what probability.

In a world every time is one instant, and a left row has one answer: the right row that prevails by the exact rules, or
none. The probability of an answer is that of its worlds, so those of a left row sum to 1. Times of different rows are
independent.

Backward, the last right row at or before the left time prevails. Forward is backward with time and order reversed, and
computed so; it gives the same bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.jit import (
    BOOL,
    INT64,
    READ_INT32,
    READ_INT64,
    WRITE_BOOL,
    WRITE_FLOAT64,
    WRITE_INT32,
    WRITE_INT64,
    compiled,
)
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.asof_join.candidates import (
    INFINITE,
    RIGHT_INDEX,
    RightIndex,
    first_after,
    right_index,
    walk_backward,
    walk_nearest,
)
from whenabouts.core.asof_join.classes import (
    UNIFORM,
    Classes,
    Left,
    any_within,
    certain_class,
    most_edges,
    number_classes,
)
from whenabouts.core.asof_join.line_integral import integrate_line
from whenabouts.core.asof_join.plane_grid import room_needed
from whenabouts.core.asof_join.plane_integral import integrate_plane
from whenabouts.core.asof_join.workspace import workspace
from whenabouts.core.probability.histogram_arrays import Shapes, shapes_of
from whenabouts.core.probability.histogram_probability import SHAPES
from whenabouts.core.probability.satisfaction_probability import pair_probability
from whenabouts.core.times.templates import Template

Direction = Literal["backward", "forward", "nearest"]
_Number = TypeVar("_Number", bound=np.generic)

_AT_ONCE = 1 << 16
"""Candidates, and pairs of those of an integral, after which the kernel returns, so that an interrupt is seen: tens of
milliseconds."""

_UNCERTAIN = 1.0 - 2.0**-53
"""The greatest probability of what is not certain: confidence 1 relies on it."""


class Side(NamedTuple):
    """The rows of one side of a bucket.

    `t_min`, `t_max`: int64 microseconds. `key`: int32 codes, the same on both sides, -1 for null (matches nothing);
    None: all rows have one key. `template`: int32 numbers in `templates`; None: points and uniform times. `rank`: the
    total order among right rows of equal time and key; None: the order of the rows.
    """

    t_min: IntArray
    t_max: IntArray
    key: NDArray[np.int32] | None = None
    template: NDArray[np.int32] | None = None
    templates: tuple[Template, ...] = ()
    rank: IntArray | None = None


class MaxCandidates(NamedTuple):
    """The number of different candidates beyond which a left row is rejected (WA-1053), by what its integral costs.

    `line`: of a left time that is a point; `plane`: of an uncertain one, and that to both sides. At these limits a row
    costs 2, 6 and 21 ms (benchmarks/asof_chance.py has rows of fewer). Candidates that are points do not count.
    """

    line: int = 2048
    plane: int = 64
    nearest_plane: int = 64


DEFAULT_MAX_CANDIDATES = MaxCandidates()


class Prevailing(NamedTuple):
    """What can prevail for n left rows.

    The candidates of left row i are the right rows `rows[offsets[i] : offsets[i + 1]]`; candidate c prevails with
    `probability[c]`, and no row with `none_probability[i]`. 1.0 means certainty: other probabilities are at most
    `1 - 2**-53`, and within 1e-12 of their exact value. `rejected[i]`: the row has too many candidates, and none here.
    """

    offsets: IntArray
    rows: NDArray[np.int32]
    probability: FloatArray
    none_probability: FloatArray
    rejected: BoolArray


def prevailing(
    left: Side,
    right: Side,
    *,
    direction: Direction,
    tolerance_us: int | None = None,
    allow_exact_matches: bool = True,
    max_candidates: MaxCandidates = DEFAULT_MAX_CANDIDATES,
) -> Prevailing:
    """For each left row its candidates among the right rows and the probability of each answer.

    Rows may be in any order; the order of the result's candidates is that of (begin, end, shape, rank), forward
    reversed. A left row with a null key has no candidate. `tolerance_us` is inclusive.

    O((n + m) log m + candidates), and per left row up to d^3 for d candidates that overlap, d^2 if the left time is a
    point.

    >>> left = Side(np.array([20]), np.array([30]))
    >>> right = Side(np.array([0, 20, 25]), np.array([10, 30, 25]))
    >>> answer = prevailing(left, right, direction="backward")
    >>> answer.rows.tolist(), answer.probability.tolist(), answer.none_probability.tolist()
    ([0, 1, 2], [0.375, 0.25, 0.375], [0.0])
    """
    left_shapes, right_shapes = shapes_of(left.templates), shapes_of(right.templates)
    left_begin, left_end = _supports(left, left_shapes)
    right_begin, right_end = _supports(right, right_shapes)
    rank = np.arange(len(right.t_min)) if right.rank is None else right.rank
    forward = direction == "forward"
    if forward:
        left_begin, left_end, right_begin, right_end, rank = -left_end, -left_begin, -right_end, -right_begin, -rank
        left_shapes, right_shapes = shapes_of(_mirrored(left.templates)), shapes_of(_mirrored(right.templates))
    left_key, right_key, left_shape = _keys(left), _keys(right), _numbers(left).astype(np.int64)
    keys = int(max(left_key.max(initial=-1), right_key.max(initial=-1))) + 1
    index = right_index(right_begin, right_end, _numbers(right), right_key, np.asarray(rank, np.int64), keys)
    n = len(left_begin)
    none_probability, rejected = np.empty(n), np.zeros(n, bool)
    offsets = np.zeros(n + 1, np.int64)
    rows, probability = np.empty(2 * n + 64, np.int32), np.empty(2 * n + 64)
    guess, previous = index.starts.copy(), np.full(keys + 1, -1)
    limits = (max_candidates.line, max_candidates.nearest_plane if direction == "nearest" else max_candidates.plane)
    tolerance = INFINITE if tolerance_us is None else min(tolerance_us, INFINITE)
    done, before = 0, -1
    while done < n:
        if done == before:
            rows, probability = _longer(rows), _longer(probability)
        before = done
        done = _fill(
            done, left_begin, left_end, left_shape, left_key, left_shapes, index, right_shapes,
            direction == "nearest", tolerance, not allow_exact_matches, *limits,
            guess, previous, offsets, none_probability, rejected, rows, probability,
        )  # fmt: skip
    rows, probability = rows[: offsets[n]].copy(), probability[: offsets[n]].copy()
    return Prevailing(offsets, rows, probability, none_probability, rejected)


def _longer(array: NDArray[_Number]) -> NDArray[_Number]:
    return np.concatenate([array, np.empty_like(array)])


def _supports(side: Side, shapes: Shapes) -> tuple[IntArray, IntArray]:
    t_min, t_max = np.ascontiguousarray(side.t_min, np.int64), np.ascontiguousarray(side.t_max, np.int64)
    if side.template is None:
        return t_min, t_max
    first, last = shapes.start[side.template], shapes.start[side.template + 1] - 1
    return t_max + shapes.edge[first], t_max + shapes.edge[last]


def _numbers(side: Side) -> NDArray[np.int32]:
    if side.template is None:
        return np.full(len(side.t_min), UNIFORM, np.int32)
    return np.ascontiguousarray(side.template, np.int32)


def _keys(side: Side) -> NDArray[np.int32]:
    if side.key is None:
        return np.zeros(len(side.t_min), np.int32)
    return np.ascontiguousarray(side.key, np.int32)


@lru_cache(maxsize=64)
def _mirrored(templates: tuple[Template, ...]) -> tuple[Template, ...]:
    """Templates with time reversed."""
    # Parsed buckets are in microseconds.
    return tuple(Template(tuple((-hi, -lo, p) for lo, hi, p in template.buckets[::-1])) for template in templates)  # type: ignore[operator]


@compiled(INT64(
    INT64, READ_INT64, READ_INT64, READ_INT64, READ_INT32, SHAPES, RIGHT_INDEX, SHAPES,
    BOOL, INT64, BOOL, INT64, INT64,
    WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_FLOAT64, WRITE_BOOL, WRITE_INT32, WRITE_FLOAT64,
))  # fmt: skip
def _fill(
    begun: int,
    left_begin: IntArray,
    left_end: IntArray,
    left_shape: IntArray,
    left_key: NDArray[np.int32],
    left_shapes: Shapes,
    index: RightIndex,
    right_shapes: Shapes,
    nearest: bool,
    tolerance: int,
    strict: bool,
    most_line: int,
    most_plane: int,
    guess: IntArray,
    previous: IntArray,
    offsets: IntArray,
    none_probability: FloatArray,
    rejected: BoolArray,
    rows: NDArray[np.int32],
    probability: FloatArray,
) -> int:
    # The answers of left rows from number `begun` on. Returns the number of the row where it ends: all are done, so
    # much is done, or `rows` and `probability` have no room for its candidates.
    # `guess`, `previous`: of each key, where the search begins and the last left row; -1 at first.
    n = left_begin.size
    found = np.empty(64, np.int32)
    room = 64
    classes = Classes(
        np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32),
        np.empty(room + 1, np.int64), np.empty(room), np.empty(room),
    )  # fmt: skip
    bounds = np.empty(2, np.int64)
    left_edges, right_edges = most_edges(left_shapes), most_edges(right_shapes)
    work = workspace(0, 0)
    filled, spent = offsets[begun], 0
    for i in range(begun, n):
        offsets[i] = filled
        if spent > _AT_ONCE:
            return i
        a, b, key = left_begin[i], left_end[i], left_key[i]
        if key < 0:
            none_probability[i] = 1.0
            continue
        before = previous[key]
        if before >= 0 and left_begin[before] == a and left_end[before] == b and left_shape[before] == left_shape[i]:
            # Truncated clocks give many rows the same time: they have the same answers.
            none_probability[i], rejected[i] = none_probability[before], rejected[before]
            start, count = offsets[before], offsets[before + 1] - offsets[before]
            if filled + count > rows.size:
                return i
            for c in range(count):
                rows[filled + c], probability[filled + c] = rows[start + c], probability[start + c]
            filled += count
            continue
        first, beyond = index.starts[key], index.starts[key + 1]
        at = first_after(guess[key], first, beyond, b, index.begin)
        guess[key] = at
        no_exact = strict and a == b
        while True:
            if nearest:
                c0, c1 = walk_nearest(at, first, beyond, a, b, tolerance, no_exact, index, found, bounds)
            else:
                c0, c1 = walk_backward(at, first, a, b, tolerance, no_exact, index, found, bounds)
            if c0 >= 0:
                break
            found = np.empty(c1, np.int32)
        count = c1 - c0
        if filled + count > rows.size:
            return i
        previous[key] = i
        spent += count + 1
        if count == 0:
            none_probability[i] = 1.0
            continue
        if count == 1:
            # The most frequent case, first: one row, and it is certain.
            row = found[c0]
            s, e = index.begin[row], index.end[row]
            if (nearest and max(b - s, e - a) <= tolerance) or (not nearest and e <= a and b - s <= tolerance):
                rows[filled] = index.position[row]
                probability[filled] = 1.0
                none_probability[i] = 0.0
                filled += 1
                continue
        if count == 2 and not nearest and left_shape[i] == UNIFORM and min(most_line, most_plane) >= 2:
            # The next: one row that surely comes before the other. Which of the two prevails is a question of one pair.
            row, other = found[c0], found[c0 + 1]
            e, s = index.end[row], index.begin[other]
            if e <= min(a, s) and b - index.begin[row] <= tolerance and index.shape[other] == UNIFORM:
                p = pair_probability(s, index.end[other], a, b, 0, INFINITE)
                rows[filled], rows[filled + 1] = index.position[row], index.position[other]
                probability[filled] = 1.0 if p == 0.0 else min(1.0 - p, _UNCERTAIN)
                probability[filled + 1] = p  # 0.0 and 1.0 are certain, as here
                none_probability[i] = 0.0
                filled += 2
                continue
        if count > room:
            room = 2 * count
            classes = Classes(
                np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32),
                np.empty(room + 1, np.int64), np.empty(room), np.empty(room),
            )  # fmt: skip
        m = number_classes(index, found, c0, c1, classes)
        for c in range(count):
            rows[filled + c] = index.position[found[c0 + c]]
            probability[filled + c] = 0.0
        left = Left(a, b, left_shape[i])
        sure = certain_class(a, b, tolerance, classes, m, nearest, right_shapes)
        if sure >= 0:
            none_probability[i] = 0.0
            before = not nearest or classes.begin[sure] <= a
            probability[filled + (classes.first[sure + 1] - 1 if before else classes.first[sure])] = 1.0
        elif not any_within(left, tolerance, classes, m, nearest, left_shapes, right_shapes):
            none_probability[i] = 1.0
        else:
            spread = 0
            for k in range(m):
                spread += classes.begin[k] < classes.end[k]
            if spread > (most_line if a == b else most_plane):
                rejected[i] = True
                none_probability[i] = 0.0
                continue
            spent += spread * spread
            ints, floats = room_needed(left_edges, right_edges * spread, m)
            if ints > work.ints.size or floats > work.floats.size:
                work = workspace(2 * ints, 2 * floats)
            if a == b:
                none = integrate_line(a, tolerance, classes, m, nearest, right_shapes, work)
            else:
                none = integrate_plane(
                    left, tolerance, bounds[0], bounds[1], classes, m, nearest, left_shapes, right_shapes, work
                )
            none_probability[i] = min(none, _UNCERTAIN)
            for k in range(m):
                c, last = filled + classes.first[k], filled + classes.first[k + 1] - 1
                if classes.begin[k] < classes.end[k]:
                    probability[c : last + 1] = min(classes.below[k], _UNCERTAIN)
                else:
                    # The sum, if both are the same row.
                    probability[last] += classes.below[k]
                    probability[c] += classes.above[k]
                    probability[last] = min(probability[last], _UNCERTAIN)
                    probability[c] = min(probability[c], _UNCERTAIN)
        filled += count
    offsets[n] = filled
    return n
