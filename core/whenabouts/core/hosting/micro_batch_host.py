"""Hosts an operator where the engine works in micro-batches (Spark): all rows of a bucket are one step, then timers.

A micro-batch is a block of its own, unless the query says how many rows may wait or how long: these wait in the state
over micro-batches, until a later one fills the block or the timer of `max_latency` expires.

The engine calls the host for each bucket that has rows, and then for each bucket whose timer has expired. It keeps the
`MicroBatchState` under the bucket's label and commits it with the micro-batch. A replayed micro-batch finds the state
of the previous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting.bucket_record import BucketRecord, move_timer
from whenabouts.core.hosting.host import BucketInput, Hosting, Tagged, tagged_rows
from whenabouts.core.hosting.micro_batch_watermark import MicroBatchWatermark
from whenabouts.core.runtime.protocol import FlushMode, SegmentStore, Step

CONTROL = -1
"""A label that is not a bucket: it receives the rows that readers refused, and a row from every micro-batch with
rows."""

LAYOUT, LAYOUT_WITH_CLOCKS = 2, 3
"""Versions of the host's own state: labels of buckets, names and types of state variables. 1 was never released. The
other one is of a bucket whose state holds the progress of its inputs (`input_watermarks`)."""

_NO_TIMER = -1


class ClearableStore(SegmentStore, Protocol):
    """A `SegmentStore` that can drop all segments at once."""

    def clear(self) -> None:
        """Drop all segments of the bucket."""


class MicroBatchState(Protocol):
    """The engine's storage for the current bucket."""

    @property
    def segments(self) -> ClearableStore:
        """The operator's state."""

    def read_record(self) -> Sequence[int] | None:
        """Layout, number of buckets and timer (-1: none), as last written; None for a new bucket."""

    def write_record(self, record: Sequence[int]) -> None:
        """Replace the record."""

    def read_identity(self) -> str | None:
        """The identity of the query (`query_identity`) that wrote the state; None if there is none."""

    def write_identity(self, text: str) -> None:
        """Keep the identity of the query where a restart can read it."""

    def set_timer(self, ms: int) -> None:
        """Set an event-time timer."""

    def delete_timer(self, ms: int) -> None:
        """Delete a timer that has not expired."""


class MicroBatchHost:
    """Runs any operator for the buckets of one task."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._operator = hosting.operator()

    def rows(
        self, label: int, packed: Iterable[tuple[int, int, bytes]], state: MicroBatchState, watermark_ms: int
    ) -> Iterator[Tagged]:
        """A micro-batch's packed rows of one bucket, or those for `CONTROL`. The step is done when this returns.

        A replay may get them in another order from the engine's shuffle. They are sorted, so that it is the same step:
        a sink may have kept what the first attempt gave.
        """
        arrived = BucketInput()
        arrived.take(self._operator, sorted(packed))
        if label == CONTROL:
            return self._control(arrived, state)
        return self._step(arrived, state, MicroBatchWatermark(watermark_ms))

    def expired(self, expired_ms: int, state: MicroBatchState, watermark_ms: int) -> Iterator[Tagged]:
        """The bucket's timer has expired: the operator has work to do without new rows."""
        return self._step(BucketInput(), state, MicroBatchWatermark(watermark_ms), expired_ms)

    def _control(self, arrived: BucketInput, state: MicroBatchState) -> Iterator[Tagged]:
        """The group that every micro-batch has: the checkpoint is checked before any bucket's work is committed."""
        identity = self._hosting.identity
        if self._record(state) is None:
            self._write(state, BucketRecord(self._hosting.buckets))
            state.write_identity(identity.to_json())
        elif (found := state.read_identity()) is not None:
            identity.check(found)
        return self._tagged(Step(), arrived)

    def _step(
        self,
        arrived: BucketInput,
        state: MicroBatchState,
        watermark: MicroBatchWatermark,
        expired_ms: int | None = None,
    ) -> Iterator[Tagged]:
        record = self._record(state)
        clocks = self._hosting.keeps_clocks or (record is not None and record.clocks)
        step = self._hosting.step(
            self._operator, state.segments, arrived, watermark.us, FlushMode.BATCH, has_clocks=clocks
        )
        if arrived.ended:
            state.segments.clear()
        timer_ms = watermark.timer_ms(step.timer_us)
        if timer_ms == expired_ms and timer_ms is not None:
            timer_ms += 1  # the engine drops the expired timer after this call, and would drop the new one with it
        set_ms = None if record is None or record.timer_ms == expired_ms else record.timer_ms
        move_timer(set_ms, timer_ms, state.set_timer, state.delete_timer)
        new = BucketRecord(self._hosting.buckets, timer_ms=timer_ms, clocks=clocks)
        if new != record:
            self._write(state, new)
        return self._tagged(step, arrived)

    def _tagged(self, step: Step, arrived: BucketInput) -> Iterator[Tagged]:
        return tagged_rows(step, arrived, self._operator, self._hosting.query.inputs)

    def _record(self, state: MicroBatchState) -> BucketRecord | None:
        """The bucket's record. Raises EngineError WA-3003 for another layout or another number of buckets."""
        numbers = state.read_record()
        if numbers is None:
            return None
        layout, buckets, timer_ms = numbers
        if layout not in (LAYOUT, LAYOUT_WITH_CLOCKS):
            raise EngineError(
                Code.STATE_FORMAT,
                f"the checkpoint's layout is version {layout}, this release knows {LAYOUT} and {LAYOUT_WITH_CLOCKS}",
                "restart with the release that wrote it, or from a new checkpoint",
            )
        timer = None if timer_ms == _NO_TIMER else timer_ms
        record = BucketRecord(buckets, timer_ms=timer, clocks=layout == LAYOUT_WITH_CLOCKS)
        return record.check(self._hosting.buckets)

    def _write(self, state: MicroBatchState, record: BucketRecord) -> None:
        layout = LAYOUT_WITH_CLOCKS if record.clocks else LAYOUT
        state.write_record((layout, record.buckets, _NO_TIMER if record.timer_ms is None else record.timer_ms))
