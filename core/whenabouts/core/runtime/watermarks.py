"""Watermarks: how they follow the inputs, and which rows are late (`t_max` behind the watermark)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.errors import Code
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, Copied, Reader, Rejected, Step


def drop_late(
    readers: Sequence[Reader],
    arrivals: Sequence[Arrival],
    watermark_us: int,
    step: Step,
    *,
    count_processed: bool = True,
) -> list[Arrival]:
    """The arrivals without late rows, which go to `step.rejected` (WA-1010); counts processed and rejected rows.

    Every operator calls it first in a step, so that rows in = processed + rejected holds for all of them.
    `count_processed`: whether the other rows count as processed now; an operator that reorders rows counts them later.
    """
    kept = []
    for arrival in arrivals:
        block = arrival.block
        counted = not isinstance(arrival, Copied)
        if watermark_us != NO_WATERMARK:
            late = times(block)[1] < watermark_us
            some = late.any()
            if some and counted:
                reader = readers[arrival.input]
                rows = reader.raw(block.filter(pa.array(late)))
                step.rejected.append(Rejected(arrival.input, Code.LATE, rows))
                step.metrics[metrics.LATE] += rows.num_rows
                step.metrics[metrics.REJECTED] += rows.num_rows
            if some:
                block = block.filter(pa.array(~late))
        if counted and count_processed:
            step.metrics[metrics.PROCESSED] += block.num_rows
        if block.num_rows:
            kept.append(Arrival(arrival.input, block))
    return kept


def watermark_of(greatest_us: Sequence[int], lateness_us: Sequence[int]) -> int:
    """The watermark of several inputs: no row with a lesser `t_max` is expected.

    `greatest_us`: by input the greatest `t_max` so far, `NO_WATERMARK` before the first row, `END_OF_TIME` once it has
    ended. Each input's watermark is `lateness_us` less than that, and the result is the least of them.

    >>> watermark_of([100, 40], [5, 5]), watermark_of([100, END_OF_TIME], [5, 5])
    (35, 95)
    """
    return min(_clocks(greatest_us, lateness_us))


def watermark_past_idle(began_us: Sequence[int], lateness_us: Sequence[int], idle_after_us: int | None) -> int:
    """The watermark that idle inputs do not hold back: `idle_after_us` behind the most advanced input.

    `began_us`: by input, the start of its last block (`began`), `NO_WATERMARK` before the first. An input is idle if it
    is further behind than `idle_after_us`. Idleness follows event time alone, so a replay has the same watermarks. It
    is measured from the starts of blocks, because other inputs' rows for the time of a block may arrive around the
    block in any order; so no input becomes idle within the length of a block.

    >>> watermark_past_idle([100, 40], [5, 5], 20), watermark_past_idle([100, 40], [5, 5], None) == NO_WATERMARK
    (75, True)
    """
    ahead = max(_clocks(began_us, lateness_us))
    return NO_WATERMARK if idle_after_us is None or ahead == NO_WATERMARK else ahead - idle_after_us


def began(t_max: IntArray, lateness_us: int) -> int:
    """The start of a block in arrival order: its least `t_max`, ignoring rows that are late within the block. O(rows).

    >>> began(np.array([50, 48, 60, 7, 90]), lateness_us=5), began(np.array([], np.int64), lateness_us=5) == END_OF_TIME
    (48, True)
    """
    in_time = t_max >= np.maximum.accumulate(t_max) - lateness_us
    return int(t_max[in_time].min(initial=END_OF_TIME))


def _clocks(us: Sequence[int], lateness_us: Sequence[int]) -> list[int]:
    known = zip(us, lateness_us, strict=True)
    return [at if at in (NO_WATERMARK, END_OF_TIME) else at - lateness for at, lateness in known]
