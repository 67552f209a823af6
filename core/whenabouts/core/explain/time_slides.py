"""Time slides: pairs of two streams, one of them shifted by more than a pair can span, hence pairs of chance only.

The background estimate of searches for coincidences between detectors. Each stream keeps its own rate, its bursts and
its keys; what is lost is what ties the two streams together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.runtime.event_reader import T_MAX, T_MIN
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.timing_join.modes import LEFT, RIGHT
from whenabouts.core.timing_join.operator import TimingJoinOperator

STRETCHES = 16
"""A sample is that many stretches of consecutive left rows: neighbours stay together, as they are in bursts."""


class Side(NamedTuple):
    """The usable rows of an input in order of `t_max`, with their key codes (equal codes on both sides: equal keys)."""

    rows: pa.Table
    t_min: IntArray
    t_max: IntArray
    code: IntArray

    @property
    def longest_us(self) -> int:
        """Length of the longest time."""
        return int((self.t_max - self.t_min).max(initial=0))

    @property
    def gap_us(self) -> int:
        """Mean distance of neighbours."""
        return int(self.t_max[-1] - self.t_max[0]) // max(1, len(self.t_max) - 1)

    @property
    def tick_us(self) -> int:
        """The greatest common divisor of the distances: a second where the clock shows whole seconds, else mostly 1."""
        return int(np.gcd.reduce(self.t_max - self.t_max[0])) or 1


class Slides(NamedTuple):
    """The shifts in microseconds, the pairs that each gave, and the share of the left rows that took part."""

    shifts_us: tuple[int, ...]
    pairs: list[int]
    sampled: float


def slide(operator: TimingJoinOperator, left: Side, right: Side, slides: int, share: float) -> Slides:
    """Count the pairs of up to `slides` shifts of `right`, with about a `share` of the left rows.

    A pair that truly belongs together lies in a range of differences no wider than the window and both lengths, so that
    a shift by more than this width tears it apart. The shifts are the least multiples of that, forwards and backwards,
    so that rates that change slowly are the same at both ends; what is shifted out of the span comes in at its other
    end. They are whole ticks of the clocks, since a clock of whole seconds meets another one by chance more often than
    times between the seconds would.
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


def _width(operator: TimingJoinOperator, left: Side, right: Side) -> int:
    condition = operator.query.condition
    return condition.hi_us - condition.lo_us + left.longest_us + right.longest_us


def _up(us: int, tick: int) -> int:
    return -(-us // tick) * tick


def _sample(rows: int, share: float) -> IntArray:
    """Positions of about a share of the rows, in stretches that are spread evenly."""
    wanted = max(1, round(share * rows))
    if wanted >= rows:
        return np.arange(rows)
    stretches = min(STRETCHES, wanted)
    length = wanted // stretches
    starts = np.linspace(0, rows - length, stretches).astype(np.int64)
    return np.unique(starts[:, None] + np.arange(length))


def _at(side: Side, at: IntArray) -> Side:
    return Side(side.rows.take(pa.array(at)), side.t_min[at], side.t_max[at], side.code[at])


def _rotated(side: Side, shift: int, period: int) -> Side:
    """The side later by `shift`, the rows that leave the span coming in at its start; still in order of `t_max`."""
    first = side.t_max[0]
    t_max = first + (side.t_max - first + shift) % period
    order = np.argsort(t_max, kind="stable")
    moved = Side(side.rows, side.t_min + (t_max - side.t_max), t_max, side.code)
    return _at(moved, order)


def _count(operator: TimingJoinOperator, base: Side, other: Side, left_rows: int) -> int:
    """The pairs that the join finds; of the right side only what is within reach of a sample goes in."""
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


def _reached(operator: TimingJoinOperator, base: Side, other: Side) -> IntArray:
    """Positions in `other` that can match any row of `base`: O(rows), since both are in order."""
    condition = operator.query.condition
    starts = np.searchsorted(other.t_max, base.t_min + condition.lo_us, side="left")
    stops = np.searchsorted(other.t_max, base.t_max + condition.hi_us + other.longest_us, side="right")
    changes = np.zeros(len(other.code) + 1, np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, stops, -1)
    return np.flatnonzero(np.cumsum(changes[:-1]) > 0)


def _block(side: Side) -> pa.Table:
    """The rows as a block, with the times that the side has now."""
    rows = side.rows
    for name, values in ((T_MIN, side.t_min), (T_MAX, side.t_max)):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    return rows.combine_chunks()
