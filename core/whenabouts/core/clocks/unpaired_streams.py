"""Two streams of events that nothing pairs, as sorted times by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.clock_inputs import SIDES
from whenabouts.core.clocks.pair_images import Streams
from whenabouts.core.clocks.ticks import dithered, tick_of
from whenabouts.core.durations import format_duration
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.key_names import key_names
from whenabouts.core.runtime.keys import NULL_KEY, Keys

FEWEST_ROWS = 20


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
    found = [times(block)[0] for block in blocks]
    names = key_names(on, SIDES) if on is not None else ()
    if not names:
        return [(np.sort(found[0]), np.sort(found[1]))]
    codes = Keys(names, [block.schema for block in blocks], SIDES).codes(blocks)
    parts = []
    for us, code in zip(found, codes, strict=True):
        order = np.lexsort((us, code))
        order = order[code[order] != NULL_KEY]
        keys, first = np.unique(code[order], return_index=True)
        parts.append(dict(zip(keys.tolist(), np.split(us[order], first[1:]), strict=False)))
    pairs = [(parts[0][key], parts[1][key]) for key in parts[0].keys() & parts[1].keys()]
    # In an order that does not depend on that of the rows, as numbers of keys do.
    return sorted(pairs, key=lambda pair: tuple((int(side[0]), int(side[-1]), len(side)) for side in pair))


def unfit(pairs: Streams, max_offset_us: int) -> tuple[str, str] | None:
    """Why nothing can be learned from such rows: the reason and its sentence."""
    counts = [sum(len(pair[side]) for pair in pairs) for side in (0, 1)]
    if min(counts) < FEWEST_ROWS:
        return (
            "too_few",
            f"There are {counts[0]:,} usable left rows and {counts[1]:,} right ones; {FEWEST_ROWS} are needed.",
        )
    if all(np.array_equal(*pair) for pair in pairs):
        return "no_resolution", f"Both sides have the same {counts[0]:,} times: that says nothing about clocks."
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
                parts[side] = np.floor(dithered(parts[side], ticks[side], rng, centred=side == 1)).astype(np.int64)
        streams.append((parts[0], parts[1]))
    return Sides(streams, origin, max(span, 1), (ticks[0], ticks[1]), len(whole[0]))
