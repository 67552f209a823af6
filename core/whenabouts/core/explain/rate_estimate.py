"""Accidental pairs from the rates: how often the join accepts two unrelated rows.

A row is an anchor (its `t_max`) and a shape (a length, or a template). For unrelated streams with constant rates the
anchors are uniform over the spans of their sides, so the difference of two anchors is distributed as that of two
uniform times, which the canonical kernel computes. What remains is the set of differences at which two shapes match.

That set is computed exactly. Shift the right row against the left one by x. Consider all x at which an edge of the one
shape is `lo` or `hi` away from an edge of the other. Between two neighbours of these x, the same buckets overlap, and
`P(x)` is quadratic (PTJoin section 3 divides the axis in the same way). Three values determine the quadratic, its
crossings of the confidence divide the axis into ranges, and the kernel decides which of these match.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.explain.time_slides import JoinSide
from whenabouts.core.runtime.blocks import T_MAX, T_MIN, TEMPLATE, templates_of
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.operator import TimingJoinOperator

SHAPE_PAIRS = 4096
"""How many random pairs of rows the window is averaged over."""

_VALUES_AT_ONCE = 1 << 20


def from_rates(
    operator: TimingJoinOperator, left: JoinSide, right: JoinSide, random: np.random.Generator
) -> tuple[float, float]:
    """The expected number of accidental pairs, and the width of the matching differences in microseconds.

    Both sides must have rows. Cost: a sort by key, and nine kernel calls per interval between two edges, for each
    distinct pair of shapes that was drawn.
    """
    pairs, left_at, right_at = _draw(left, right, random)
    if pairs == 0:
        return 0.0, 0.0
    shapes, drawn = np.unique(
        np.column_stack([_shapes(left)[left_at], _shapes(right)[right_at]]), axis=0, return_counts=True
    )
    spans = _Spans.of(left, right)
    edges = [_edges(spec, shapes[:, at : at + 2]) for spec, at in zip(_specs(operator), (0, 2), strict=True)]
    per_shape = 12 * edges[0].shape[1] * edges[1].shape[1] + 8
    chance, width = np.zeros(len(shapes)), np.zeros(len(shapes))
    for start in range(0, len(shapes), max(1, _VALUES_AT_ONCE // per_shape)):
        piece = slice(start, start + max(1, _VALUES_AT_ONCE // per_shape))
        matching = _matching(operator, shapes[piece], (edges[0][piece], edges[1][piece]), spans)
        chance[piece], width[piece] = spans.chance(*matching), spans.width(*matching)
    weights = drawn / drawn.sum()
    return pairs * float(weights @ chance), float(weights @ width)


def _draw(left: JoinSide, right: JoinSide, random: np.random.Generator) -> tuple[float, IntArray, IntArray]:
    """The number of pairs with equal keys, and the positions of `SHAPE_PAIRS` of them, drawn uniformly."""
    keys, right_start, right_count = np.unique(np.sort(right.code), return_index=True, return_counts=True)
    left_order, right_order = np.argsort(left.code, kind="stable"), np.argsort(right.code, kind="stable")
    of_left = np.minimum(np.searchsorted(keys, left.code[left_order]), len(keys) - 1)
    partners = np.where(keys[of_left] == left.code[left_order], right_count[of_left], 0)
    reached = np.cumsum(partners)
    if reached[-1] == 0:
        return 0.0, reached[:0], reached[:0]
    number = random.integers(0, reached[-1], SHAPE_PAIRS)  # pair numbers, in order of the left rows
    at = np.searchsorted(reached, number, side="right")
    nth_partner = number - (reached[at] - partners[at])
    return float(reached[-1]), left_order[at], right_order[right_start[of_left[at]] + nth_partner]


def _specs(operator: TimingJoinOperator) -> tuple[TimeSpec, TimeSpec]:
    return operator.query.left_time, operator.query.right_time


def _shapes(side: JoinSide) -> IntArray:
    """(length, template number or 0) of each row."""
    template = templates_of(side.rows)
    lengths = side.t_max - side.t_min
    return np.column_stack([lengths, np.zeros_like(lengths) if template is None else template])


def _edges(spec: TimeSpec, shapes: IntArray) -> IntArray:
    """The bucket edges of each shape, as offsets from its anchor; shorter lists are padded with their last edge, 0."""
    if not spec.templates:
        return np.column_stack([-shapes[:, 0], np.zeros_like(shapes[:, 0])])
    edges = [template.edges for _, template in spec.templates]
    table = np.zeros((len(edges), max(map(len, edges))), np.int64)
    for row, of_template in zip(table, edges, strict=True):
        row[: len(of_template)] = of_template
    return np.asarray(table[shapes[:, 1]])


class _Spans(NamedTuple):
    """The spans of the anchors: uniform in [0, left] and [start, start + right]. Their differences are on a lattice."""

    left: int
    start: int
    right: int
    tick: int
    phase: int

    @classmethod
    def of(cls, left: JoinSide, right: JoinSide) -> _Spans:
        """The spans of two sides: those of their rows, extended by a mean gap at each end, which is unbiased."""
        first, second = (int(side.t_max[0]) - side.gap_us for side in (left, right))
        lengths = [int(side.t_max[-1] - side.t_max[0]) + 2 * side.gap_us for side in (left, right)]
        tick = int(np.gcd(left.tick_us, right.tick_us))
        phase = int(right.t_max[0] - left.t_max[0]) % tick
        return cls(lengths[0], second - first, lengths[1], tick, phase)

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest difference."""
        return self.start - self.left, self.start + self.right

    def cells(self, first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
        """Twice the ends of the interval that the lattice points in [first, last] cover, a tick each."""
        low = -(-(first - self.phase) // self.tick)
        high = np.maximum((last - self.phase) // self.tick, low - 1)
        return 2 * (self.phase + self.tick * low) - self.tick, 2 * (self.phase + self.tick * high) + self.tick

    def width(self, first: IntArray, last: IntArray) -> FloatArray:
        """The total width that the ranges of each row cover, in microseconds."""
        low, high = self.cells(first, last)
        return np.asarray((high - low).sum(axis=1) / 2, np.float64)

    def chance(self, first: IntArray, last: IntArray) -> FloatArray:
        """The probability that the difference of two random anchors lies in the ranges of each row."""
        low, high = self.cells(first, last)
        return np.asarray((self._below(high) - self._below(low)).sum(axis=1))

    def _below(self, doubled: IntArray) -> FloatArray:
        """P(2 (right anchor - left anchor) <= doubled) for times uniform over the spans, by the canonical kernel."""
        from whenabouts.core.probability.satisfaction_probability import satisfaction_probability
        from whenabouts.core.times.limits import UNBOUNDED_US

        shifted = 2 * self.start - doubled.ravel()
        zero = np.zeros_like(shifted)
        p = satisfaction_probability(
            zero, zero + 2 * self.left, shifted, shifted + 2 * self.right, -UNBOUNDED_US, 0
        )  # fmt: skip
        return p.reshape(doubled.shape)


def _matching(
    operator: TimingJoinOperator, shapes: IntArray, edges: tuple[IntArray, IntArray], spans: _Spans
) -> tuple[IntArray, IntArray]:
    """The anchor differences at which shapes match, row by row: disjoint [first, last], empty if last < first."""
    condition = operator.query.condition
    apart = (edges[0][:, :, None] - edges[1][:, None, :]).reshape(len(shapes), -1)
    least, greatest = (np.full((len(shapes), 1), end, np.int64) for end in spans.ends)
    cuts = np.hstack([apart + condition.lo_us, apart + condition.hi_us, least, greatest])
    cuts = np.sort(np.clip(cuts, least, greatest), axis=1)
    begin, end = cuts[:, :-1] + 1, cuts[:, 1:] - 1
    inside = [_probability(operator, shapes, at) for at in (begin, (begin + end) // 2, end)]
    low, high = (begin + at for at in _crossings(begin, end, inside, condition.confidence))
    first = np.hstack([cuts, begin, low, low + 1, np.maximum(low + 1, high), high + 1])
    last = np.hstack([cuts, low - 1, low, high - 1, high, end])
    bounds = np.hstack([cuts, *[begin] * 5]), np.hstack([cuts, *[end] * 5])
    first, last = np.maximum(first, bounds[0]), np.minimum(last, bounds[1])
    first[:, 1 : cuts.shape[1]] += cuts[:, 1:] == cuts[:, :-1]  # a repeated cut counts once
    accepted = _probability(operator, shapes, (first + last) // 2) >= condition.confidence
    return first, np.where(accepted, last, first - 1)


def _probability(operator: TimingJoinOperator, shapes: IntArray, differences: IntArray) -> FloatArray:
    """The join's probability for each pair of shapes, with left anchor 0 and right anchor at each difference."""
    anchors = differences.ravel()
    at = np.repeat(np.arange(len(shapes), dtype=np.int32), differences.shape[1])
    zero = np.zeros(len(shapes), np.int64)
    specs = _specs(operator)
    left, right = _table(specs[0], shapes[:, :2], zero), _table(specs[1], shapes[at, 2:], anchors)
    p = operator.matching.probabilities(left, right, at, np.arange(len(anchors), dtype=np.int32))
    return p.reshape(differences.shape)


def _table(spec: TimeSpec, shapes: IntArray, anchors: IntArray) -> pa.Table:
    """The time columns of a block."""
    columns = {T_MIN: pa.array(anchors - shapes[:, 0]), T_MAX: pa.array(anchors)}
    if spec.templates:
        columns[TEMPLATE] = pa.array(shapes[:, 1].astype(np.int32))
    return pa.table(columns)


def _crossings(
    begin: IntArray, end: IntArray, values: list[FloatArray], confidence: float
) -> tuple[IntArray, IntArray]:
    """How far from `begin` the quadratic through the values at begin, middle and end crosses the confidence, rounded.

    Where it crosses less than twice, the results are arbitrary: every range between them is tested anyway.
    """
    length = np.maximum(end - begin, 1).astype(np.float64)
    middle = ((begin + end) // 2 - begin) / length
    p0, p1, p2 = values
    with np.errstate(divide="ignore", invalid="ignore"):
        square = np.nan_to_num((p1 - p0 - middle * (p2 - p0)) / (middle * (middle - 1)), posinf=0.0, neginf=0.0)
        slope = p2 - p0 - square
        root = np.sqrt(slope * slope - 4 * square * (p0 - confidence))
        far = -0.5 * (slope + np.copysign(root, slope))  # avoids cancellation
        roots = np.stack([far / square, (p0 - confidence) / far])
    low, high = np.sort(np.clip(np.nan_to_num(roots, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0), axis=0)
    return np.rint(low * length).astype(np.int64), np.rint(high * length).astype(np.int64)
