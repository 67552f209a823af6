"""How the watermark follows the inputs, and which rows come too late: those whose `t_max` is behind it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.errors import Code
from whenabouts.core.events import EventReader, times
from whenabouts.core.protocol import END_OF_TIME, NO_WATERMARK, Arrival, Copied, Rejected, Step


def drop_late(
    readers: Sequence[EventReader], arrivals: Sequence[Arrival], watermark_us: int, step: Step
) -> list[Arrival]:
    """The arrivals without late rows; these go to `step.rejected` (WA-1010), and the rows are counted.

    Every operator begins a step with it, so that rows in = processed + rejected holds for all of them.
    """
    kept = []
    for arrival in arrivals:
        block = arrival.block
        counted = not isinstance(arrival, Copied)
        if watermark_us != NO_WATERMARK:
            late = times(block)[1] < watermark_us
            if late.any() and counted:
                reader = readers[arrival.input]
                rows = reader.raw(block.filter(pa.array(late)))
                step.rejected.append(Rejected(arrival.input, Code.LATE, rows))
                step.metrics[metrics.LATE] += rows.num_rows
                step.metrics[metrics.REJECTED] += rows.num_rows
            if late.any():
                block = block.filter(pa.array(~late))
        if counted:
            step.metrics[metrics.PROCESSED] += block.num_rows
        if block.num_rows:
            kept.append(Arrival(arrival.input, block))
    return kept


def watermark_of(greatest_us: Sequence[int], lateness_us: Sequence[int], idle_after_us: int | None = None) -> int:
    """The watermark once the inputs have come so far: no input is expected to give a row with a lesser `t_max`.

    `greatest_us`: by input the greatest `t_max` so far, `NO_WATERMARK` before any, `END_OF_TIME` once it has ended and
    holds nothing back. Each input's clock is its `lateness_us` behind that, and the least clock counts. But a clock
    that is more than `idle_after_us` behind the most advanced one belongs to an idle input: it does not hold the
    watermark back any further. That is told by event time alone, so that a replay has the same watermarks.

    >>> watermark_of([100, 40], [5, 5]), watermark_of([100, 40], [5, 5], 20), watermark_of([100, 90], [5, 5], 20)
    (35, 75, 85)
    """
    clocks = [
        us if us in (NO_WATERMARK, END_OF_TIME) else us - lateness
        for us, lateness in zip(greatest_us, lateness_us, strict=True)
    ]
    ahead = max((clock for clock in clocks if clock != END_OF_TIME), default=NO_WATERMARK)
    if idle_after_us is None or ahead == NO_WATERMARK:
        return min(clocks)
    return max(min(clocks), ahead - idle_after_us)
