"""Time slides: joins with one stream shifted by more than a true pair can span, so that all pairs are accidental.

This is the background estimate of searches for coincidences between detectors. Each stream keeps its rate, bursts and
keys; only the relation between the two streams is destroyed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.runtime.blocks import T_MAX, T_MIN
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.operator import TimingJoinOperator

SAMPLED_RUNS = 16
"""A sample consists of this many runs of consecutive left rows, so that bursts stay together."""


class JoinSide(NamedTuple):
    """The usable rows of an input sorted by `t_max`, with key codes (equal codes on both sides mean equal keys)."""

    rows: pa.Table
    t_min: IntArray
    t_max: IntArray
    code: IntArray

    @property
    def longest_us(self) -> int:
        """The length of the longest time."""
        return int((self.t_max - self.t_min).max(initial=0))

    @property
    def gap_us(self) -> int:
        """The mean distance of neighbouring rows."""
        return int(self.t_max[-1] - self.t_max[0]) // max(1, len(self.t_max) - 1)

    @property
    def tick_us(self) -> int:
        """The greatest common divisor of the distances: 1 s for a clock of whole seconds, otherwise usually 1 us."""
        return int(np.gcd.reduce(self.t_max - self.t_max[0])) or 1


class Slides(NamedTuple):
    """The shifts in microseconds, the number of pairs of each, and the share of the left rows that were joined."""

    shifts_us: tuple[int, ...]
    pairs: list[int]
    sampled: float


def slide(operator: TimingJoinOperator, left: JoinSide, right: JoinSide, slides: int, share: float) -> Slides:
    """Count the pairs of up to `slides` shifts of `right`, with about a `share` of the left rows.

    The differences of true pairs lie in a range no wider than the window plus both lengths, so a shift by more than
    this width separates them. The shifts are the least multiples of that width, forwards and backwards, so that slowly
    changing rates stay aligned. Rows shifted out of the span re-enter at its other end. Shifts are whole ticks of the
    clocks, because two clocks of whole seconds coincide by chance more often than continuous times would.
    """
    if min(len(left.code), len(right.code)) < 2 or operator.query.condition.one_sided:
        return Slides((), [], 1.0)
    tick = int(np.gcd(left.tick_us, right.tick_us))
    step = _up(_width(operator, left, right) + 1, tick)
    period = _up(int(right.t_max[-1] - right.t_max[0]) + max(right.gap_us, 1), tick)
    number = min(slides, period // step - 1)
    shifts = tuple((k // 2 + 1) * step * (-1 if k % 2 else 1) for k in range(number))
    at = _sample(len(left.code), share)
    base = left if len(at) == len(left.code) else _at(left, at)
    counts = [_count(operator, base, _rotated(right, shift, period), len(left.code)) for shift in shifts]
    return Slides(shifts, counts, len(at) / len(left.code))


def _width(operator: TimingJoinOperator, left: JoinSide, right: JoinSide) -> int:
    condition = operator.query.condition
    return condition.hi_us - condition.lo_us + left.longest_us + right.longest_us


def _up(us: int, tick: int) -> int:
    return -(-us // tick) * tick


def _sample(rows: int, share: float) -> IntArray:
    """Positions of about a share of the rows, in evenly spread runs of consecutive rows."""
    wanted = max(1, round(share * rows))
    if wanted >= rows:
        return np.arange(rows)
    stretches = min(SAMPLED_RUNS, wanted)
    length = wanted // stretches
    starts = np.linspace(0, rows - length, stretches).astype(np.int64)
    return np.unique(starts[:, None] + np.arange(length))


def _at(side: JoinSide, at: IntArray) -> JoinSide:
    return JoinSide(take_table(side.rows, at), side.t_min[at], side.t_max[at], side.code[at])


def _rotated(side: JoinSide, shift: int, period: int) -> JoinSide:
    """The side shifted by `shift`, with rows that leave the span re-entering at its start; sorted by `t_max` again."""
    first = side.t_max[0]
    t_max = first + (side.t_max - first + shift) % period
    order = np.argsort(t_max, kind="stable")
    moved = JoinSide(side.rows, side.t_min + (t_max - side.t_max), t_max, side.code)
    return _at(moved, order)


def _count(operator: TimingJoinOperator, base: JoinSide, other: JoinSide, left_rows: int) -> int:
    """The number of pairs that the join finds; only right rows within reach of a sample are passed to it."""
    if len(base.code) < left_rows:
        other = _at(other, _reached(operator, base, other))
    arrivals = [
        Arrival(input, batch)
        for input, side in ((LEFT, base), (RIGHT, other))
        for batch in _block(side).to_batches()
        if batch.num_rows
    ]
    step = operator.step(DictStore(), arrivals, NO_WATERMARK, FlushMode.END)
    return sum(batch.num_rows for batch in step.output)


def _reached(operator: TimingJoinOperator, base: JoinSide, other: JoinSide) -> IntArray:
    """Positions in `other` that can match any row of `base`. O(rows log rows)."""
    condition = operator.query.condition
    starts = np.searchsorted(other.t_max, base.t_min + condition.lo_us, side="left")
    stops = np.searchsorted(other.t_max, base.t_max + condition.hi_us + other.longest_us, side="right")
    changes = np.zeros(len(other.code) + 1, np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, stops, -1)
    return np.flatnonzero(np.cumsum(changes[:-1]) > 0)


def _block(side: JoinSide) -> pa.Table:
    """The rows as a block, with the side's current times."""
    rows = side.rows
    for name, values in ((T_MIN, side.t_min), (T_MAX, side.t_max)):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    return rows.combine_chunks()
