"""Two streams of events that nothing pairs, as sorted times by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.pair_images import Streams
from whenabouts.core.clocks.ticks import dithered, tick_of
from whenabouts.core.durations import format_duration
from whenabouts.core.joins.sides import SIDES
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.key_names import key_names, of_input
from whenabouts.core.runtime.keys import NULL_KEY, Keys

FEWEST_ROWS = 20
FINE_US = 1000
"""Real clocks never agree to this granularity all the time."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Sorted times by key, since `origin_us`, the first left row; `ticks_us` of both sides."""

    streams: Streams
    origin_us: int
    span_us: int
    ticks_us: tuple[int, int]
    rows: int


def by_key(blocks: Sequence[pa.Table], on: Any) -> list[tuple[IntArray, IntArray]]:
    """Sorted times of both sides for each key that both have."""
    if on is None or not key_names(on, SIDES):
        found = [times(block)[0] for block in blocks]
        return [(np.sort(found[0]), np.sort(found[1]))]
    pairs = [pair for _, pair in named(blocks, on) if len(pair[0]) and len(pair[1])]
    # In an order that does not depend on that of the rows, as numbers of keys do.
    return sorted(pairs, key=lambda pair: tuple((int(side[0]), int(side[-1]), len(side)) for side in pair))


def named(blocks: Sequence[pa.Table], on: Any) -> list[tuple[tuple[Any, ...], tuple[IntArray, IntArray]]]:
    """The values of each key that a side has, and the sorted times of both sides, in the order of the values."""
    names = key_names(on, SIDES)
    found = [times(block)[0] for block in blocks]
    codes = Keys(names, [block.schema for block in blocks], SIDES).codes(blocks)
    keys: dict[int, tuple[Any, ...]] = {}
    parts: list[dict[int, IntArray]] = []
    for side, (block, us, code) in enumerate(zip(blocks, found, codes, strict=True)):
        order = np.lexsort((us, code))
        order = order[code[order] != NULL_KEY]
        numbers, first = np.unique(code[order], return_index=True)
        parts.append(dict(zip(numbers.tolist(), np.split(us[order], first[1:]), strict=False)))
        values = take_table(block.select(list(of_input(names, side))), order[first])
        columns = [values.column(name).to_pylist() for name in values.column_names]
        keys |= dict(zip(numbers.tolist(), zip(*columns, strict=True), strict=True))
    none = np.empty(0, np.int64)
    pairs = [(key, (parts[0].get(number, none), parts[1].get(number, none))) for number, key in keys.items()]
    return sorted(pairs, key=lambda pair: [(str(type(value)), value) for value in pair[0]])


def unfit(pairs: Streams, max_offset_us: int) -> tuple[str, str] | None:
    """Why nothing can be learned from such rows: the reason and its sentence."""
    counts = [sum(len(pair[side]) for pair in pairs) for side in (0, 1)]
    if min(counts) < FEWEST_ROWS:
        return (
            "too_few",
            f"{FEWEST_ROWS} usable rows a side are needed; found: {counts[0]:,} left, {counts[1]:,} right.",
        )
    first, last = (
        [pick(int(pair[side][at]) for pair in pairs) for side in (0, 1)] for pick, at in ((min, 0), (max, -1))
    )
    common = min(last) - max(first)
    if common < 2 * max_offset_us:
        have = f"{format_duration(max(common, 0))} in common"
        hint = f"narrow max_offset to {format_duration(common // 2)}" if common > 1 else "give streams of the same time"
        return "too_few", (
            f"The two streams have {have}, and max_offset is {format_duration(max_offset_us)}, of which twice is "
            f"needed: {hint}."
        )
    return None


def dithered_sides(pairs: Streams, tick: int | None, seed: int) -> Sides:
    """The times with ticks dithered, on both sides: left times in the tick that begins with them, since they were cut,
    right ones about their middle, so that the offset is that of the right readings."""
    origin = min(int(left[0]) for left, _ in pairs)
    span = max(int(left[-1]) for left, _ in pairs) - origin
    whole = [np.concatenate([pair[side] for pair in pairs]) for side in (0, 1)]
    ticks = [tick or tick_of(side) for side in whole]
    rng = np.random.default_rng(seed)
    streams = []
    for left, right in pairs:
        parts = [(left - origin), (right - origin)]
        for side in (0, 1):
            if ticks[side] > 1:
                parts[side] = np.floor(dithered(parts[side], ticks[side], rng, centred=True)).astype(np.int64)
        streams.append((parts[0], parts[1]))
    return Sides(streams, origin, max(span, 1), (ticks[0], ticks[1]), len(whole[0]))


def copied(pairs: Streams, ticks: tuple[int, int]) -> str | None:
    """What to say if all times of one side are among those of the other: one was made from the other.

    Times of a coarse granularity may be equal by right. Cost: O(n log n).

    >>> left, right = np.array([3, 8, 9]), np.array([3, 9])
    >>> copied([(left, right)], (1, 1))[:47]
    'All 2 right times are among the left ones, to t'
    >>> copied([(left, right + 1)], (1, 1)), copied([(left, right)], (1, 1_000_000))
    (None, None)
    """
    if max(ticks) > FINE_US:
        return None
    for one, name in ((0, "left"), (1, "right")):
        if all(np.isin(pair[one], pair[1 - one]).all() for pair in pairs):
            rows, other = sum(len(pair[one]) for pair in pairs), ("left", "right")[1 - one]
            return (
                f"All {rows:,} {name} times are among the {other} ones, to the microsecond: one table was made from "
                "the other, which says nothing about clocks."
            )
    return None
