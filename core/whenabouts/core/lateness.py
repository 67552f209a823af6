"""Which rows come too late: those whose `t_max` is behind the watermark in force when their block enters."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.errors import Code
from whenabouts.core.events import EventReader, times
from whenabouts.core.protocol import NO_WATERMARK, Arrival, Copied, Rejected, Step


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
