"""Late rows where rows are copied and buckets have watermarks of their own: the clock of a row's packer decides.

With time slots, copies of a row are in several buckets. Where an engine works element by element, each task has a
watermark of its own: a row could be late in one bucket and not in another, so that a pair of a rejected row comes out,
or a pair is missing without a reject. Therefore a row is late if its `t_max` is more than the lateness older than what
its packer has read before. Packers report that to all buckets after each block. A channel keeps order, so whatever a
bucket knows of a packer when a row of it arrives, the other buckets know when they get their copies; the reports are
part of the state, so that this holds after a restore, too. A watermark is the least of such clocks: what is not late by
its packer's is not late for the operator.

If a restored job has another number of packers, the rows of all are late by the least of the earlier clocks. (A packer
that had ended by then does not raise it, although the watermark had left it behind.)
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, Copied, Operator, Query, Step
from whenabouts.core.runtime.rejects import reject_rows
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.state.segment_codec import decode, encode
from whenabouts.core.wrappers.base import WrappedQuery

if TYPE_CHECKING:
    from collections.abc import Iterable

_REPORT = struct.Struct("<qqq")

PackerClocks: TypeAlias = tuple[int, ...]
"""Of one input: what is late in any case, then the clock of each packer, in microseconds."""


def report(packer: int, packers: int, clock_us: int) -> bytes:
    """The bytes by which one of an input's `packers` tells its clock."""
    return _REPORT.pack(packer, packers, clock_us)


def with_report(clocks: PackerClocks, blob: bytes) -> PackerClocks:
    """The clocks of an input after a report.

    >>> clocks = with_report(with_report((), report(1, 2, 70)), report(0, 2, 50))
    >>> clocks[1:], with_report(clocks, report(0, 1, NO_WATERMARK))[0]
    ((50, 70), 50)
    """
    packer, packers, clock_us = _REPORT.unpack(blob)
    least_us, *known = clocks or (NO_WATERMARK,)
    if len(known) != packers:
        least_us = max(least_us, min((us for us in known if us != NO_WATERMARK), default=NO_WATERMARK))
        known = [NO_WATERMARK] * packers
    known[packer] = max(known[packer], clock_us)
    return least_us, *known


def late_before(clocks: PackerClocks, packer: int) -> int:
    """The least `t_max` of a packer's rows that are not late.

    >>> late_before((20, 50, 70), 1), late_before((), 0) == NO_WATERMARK
    (70, True)
    """
    return max((*clocks[:1], *clocks[1 + packer : 2 + packer]), default=NO_WATERMARK)


def without_late(
    blob: bytes, input: int, *, copied: bool, before_us: int, operator: Operator, inputs: tuple[str, ...]
) -> tuple[tuple[int, bytes], Iterable[tuple[int, bytes]]]:
    """A packed block's rows that are not late, and the late ones as rejects, unless another bucket counts them: numbers
    of rows and bytes. O(rows)."""
    reader, step = operator.readers[input], Step()
    block = decode(blob, reader.block_schema)
    arrival = (Copied if copied else Arrival)(input, block)
    kept = [each.block for each in drop_late(operator.readers, [arrival], before_us, step, count_processed=False)]
    if not kept:
        on_time = 0, b""
    elif kept[0].num_rows == block.num_rows:
        on_time = block.num_rows, blob
    else:
        on_time = kept[0].num_rows, encode(kept[0], reader.block_schema)
    raw = [each.schema for each in operator.readers]
    return on_time, [(each.rows.num_rows, encode(reject_rows(each, raw, inputs))) for each in step.rejected]


def without_slots(query: Query, why: str) -> Any:
    """The query without the time slots that "auto" may choose. Raises QueryError WA-2041, with `why`, if they are asked
    for."""
    if isinstance(query, WrappedQuery):
        return replace(query, query=without_slots(query.query, why))  # type: ignore[type-var]
    slots = getattr(query, "time_slots", None)
    if slots is None:
        return query
    if slots != "auto":
        raise QueryError(
            Code.NOT_SLOTTED,
            f"time slots with {why}",
            "copies of a row would have watermarks of their own here: leave time_slots out",
        )
    if getattr(query, "slots", None) is None:  # the option itself is in checkpoints: keep it
        return query
    return replace(query, time_slots=None)  # type: ignore[type-var]
