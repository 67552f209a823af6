"""Hosts an operator where the engine works element by element (Flink): packed rows, timers, and buckets as keys.

The same host serves streams and batch. On a stream each packed row is a step, or, if a latency is set, all rows that
arrived within a few milliseconds. In batch the rows of a bucket are held in memory until its input has ended, which the
engine signals by a timer, and are then one step. They are not state: a batch job of Flink has the state of one key at a
time, and Python, which works on bundles of elements, may run when that is another one.

A bucket has one event-time timer besides the one at the end of time (decision 0018). A restored bucket sets its timers
again, since a checkpoint may lack them (decision 0020).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeVar

from whenabouts.core.hosting.bucket_record import BucketRecord, JsonRecords, RecordState, move_timer
from whenabouts.core.hosting.element_watermark import LAST_MS, ElementWatermark
from whenabouts.core.hosting.host import COUNTS, BucketInput, Hosting, read_counts, tagged_rows
from whenabouts.core.hosting.input_watermarks import CLOCKS
from whenabouts.core.hosting.packed_kinds import PRESENT, REJECTS, Content, content_of, packer_of, rows_kind
from whenabouts.core.hosting.packer_clocks import late_before, with_report, without_late
from whenabouts.core.hosting.segment_cache import CachedStore, SegmentCache
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode, SegmentStore, Step
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_codec import unwrap, wrap

CONTROL = -1
"""A key that is no bucket's, whatever their number. It is called like a bucket when a task starts, so that a checkpoint
of another number of buckets is refused: none of its buckets might have a key of today's."""

_IDENTITY = CLOCKS - 1
"""The store's input number for the identity of the query, which no operator uses."""

_HEADER = struct.Struct("<iq")
"""The header of a kept blob: its kind and its number of rows."""

T = TypeVar("T")
Blob = tuple[int, int, bytes]
"""Kind, rows, bytes."""
TaggedBlob = tuple[int, bytes]
"""`host.Tagged` as a plain tuple."""


class Wanted(NamedTuple):
    """The part of a `Step` that decides about timers."""

    timer_us: int | None
    rows_waiting: int


class BucketState(RecordState, Protocol):
    """The engine's storage for the current bucket: state, timers, and the two clocks."""

    @property
    def segments(self) -> SegmentStore:
        """The operator's state."""

    def clear(self) -> None:
        """Drop segments and record."""

    def keep(self, data: bytes) -> None:
        """Append to the rows that wait before the operator."""

    def take_kept(self) -> list[bytes]:
        """Remove and return the waiting rows, in order."""

    @property
    def watermark_ms(self) -> int:
        """The engine's watermark."""

    @property
    def now_ms(self) -> int:
        """The processing time."""

    def set_event_timer(self, ms: int) -> None:
        """Set an event-time timer; setting it twice has no further effect."""

    def delete_event_timer(self, ms: int) -> None:
        """Delete an event-time timer."""

    def set_clock_timer(self, ms: int) -> None:
        """Set a processing-time timer; setting it twice has no further effect."""

    def delete_clock_timer(self, ms: int) -> None:
        """Delete a processing-time timer."""


class Runner(Protocol):
    """Runs work in some thread."""

    def run(self, work: Callable[[], T]) -> T:
        """Returns or raises what `work` does."""

    def step(self, work: Callable[[SegmentStore], T], store: SegmentStore, cache: SegmentCache, bucket: int) -> T:
        """Returns or raises what `work` does with a bucket's store; its writes are applied if it does not fail."""

    def stop(self) -> None:
        """No more work will follow."""


class Here:
    """Runs work in the calling thread."""

    def run(self, work: Callable[[], T]) -> T:
        """Returns or raises what `work` does."""
        return work()

    def step(self, work: Callable[[SegmentStore], T], store: SegmentStore, cache: SegmentCache, bucket: int) -> T:
        """Returns or raises what `work` does with a bucket's store; its writes are applied if it does not fail."""
        cached = CachedStore(lambda segment: store.get(*segment), cache, bucket)
        given = work(cached)
        cached.apply(store)
        return given

    def stop(self) -> None:
        """Nothing to stop."""


class ElementHost:
    """Runs any operator for the buckets of one task. Made when the task starts."""

    def __init__(
        self,
        hosting: Hosting,
        runner: Runner,
        count: Callable[[Counter[str], int | None], None],
        max_latency_ms: int | None = None,
        *,
        gathers: bool = False,
    ) -> None:
        """`count` gets the counts of what goes out, and the bucket, None if it was no step of the operator.
        `max_latency_ms`: how long rows may wait by the clock. `gathers`: they wait here, as long as the last step
        took, and all that came meanwhile are one step; else each element is one, and where its rows wait is the
        operator's business."""
        self._hosting, self._runner, self._count = hosting, runner, count
        self._max_latency_ms = max_latency_ms
        self._gathers = gathers and max_latency_ms is not None
        self._step_ms = 0
        self._held: dict[int, list[Blob]] = {}
        self._records = JsonRecords()
        self._cache = SegmentCache()
        self._operator = runner.run(hosting.operator)
        self._packers_decide = hosting.packers_decide(self._operator)
        self._inputs = hosting.query.inputs
        self._identity = runner.run(lambda: wrap(hosting.identity.to_json().encode()))

    def element(self, packed: Blob, state: BucketState) -> Iterator[TaggedBlob]:
        """A packed row."""
        if packed[0] == REJECTS:
            tagged = self._runner.run(lambda: self._tagged(Step(), self._arrived([packed])))
            yield from self._counted(tagged)
            return
        if not self._hosting.streaming:
            self._hold(packed, state)
            return
        record = self._record_of(state)
        if self._packers_decide and packed[0] != PRESENT:
            on_time, refused = self._on_time(packed, record, state)
            for rejects in refused:
                yield from self.element(rejects, state)
            if on_time is None:
                return
            packed = on_time
        watermark = ElementWatermark(state.watermark_ms).at_least(record.watermark_ms)
        if record.keeps and (watermark.ms != record.watermark_ms or not self._gathers):
            yield from self._gathered(record, state)
            record = self._record_of(state)
        if self._gathers:
            self._gather(packed, watermark, record, state)
        else:
            yield from self._stream_step([packed], watermark, record, state)

    def _on_time(self, packed: Blob, record: BucketRecord, state: BucketState) -> tuple[Blob | None, list[Blob]]:
        """Rows without those that are late by their packer's clock, which are rejects; its reports are taken here."""
        kind, rows, blob = packed
        content, input = content_of(kind)
        clocks = list(record.packers or [()] * len(self._inputs))
        if content is Content.CLOCK:
            clocks[input] = with_report(clocks[input], blob)
            self._records.put(state, replace(record, packers=tuple(clocks)))
            return None, []
        copied = content is Content.COPIES
        before_us = late_before(clocks[input], packer_of(kind))
        kind = rows_kind(input, copies=copied)
        if before_us == NO_WATERMARK:
            return (kind, rows, blob), []
        (rows, blob), late = self._runner.run(
            lambda: without_late(
                blob, input, copied=copied, before_us=before_us, operator=self._operator, inputs=self._inputs
            )
        )
        refused = [(REJECTS, *each) for each in late]
        return (kind, 0 if copied else rows, blob) if rows else None, refused

    def timer(self, ms: int, state: BucketState) -> Iterator[TaggedBlob]:
        """A timer has fired: the operator has work to do without new rows, or the input has ended."""
        if not self._hosting.streaming:
            yield from self._batch_step(state)
            return
        record = self._record_with_timers(state)
        if record is None:  # the end came with an earlier timer
            return
        watermark = ElementWatermark(state.watermark_ms)
        if record.keeps:
            yield from self._gathered(record, state)
            record = self._record_of(state)
        if watermark.ended:
            yield from self._end(watermark, state)
        elif ms == record.flush_ms:
            yield from self._stream_step([], watermark, replace(record, flush_ms=None), state, FlushMode.FLUSH)
        elif ms == record.timer_ms:
            yield from self._stream_step([], watermark, replace(record, timer_ms=None), state)

    def _gather(self, packed: Blob, watermark: ElementWatermark, record: BucketRecord, state: BucketState) -> None:
        """Keep rows for the step that a processing-time timer begins. The rows of one step arrived under one watermark,
        so that waiting makes no row late. If the output has event time, the wait ends before the next watermark is
        passed on: after it the output would be late."""
        self._keep(packed, state)
        flush_ms = record.flush_ms
        if self._operator.event_time is not None and not record.keeps:
            due_ms = watermark.ms + 1 if record.timer_ms is None else min(record.timer_ms, watermark.ms + 1)
            move_timer(record.timer_ms, due_ms, state.set_event_timer, state.delete_event_timer)
            record = replace(record, timer_ms=due_ms)
        if flush_ms is None:
            flush_ms = state.now_ms + min(self._step_ms, self._max_latency_ms or 0)
            state.set_clock_timer(flush_ms)
        self._records.put(state, replace(record, watermark_ms=watermark.ms, flush_ms=flush_ms, keeps=True))

    def _gathered(self, record: BucketRecord, state: BucketState) -> Iterator[TaggedBlob]:
        """The step of the gathered rows, under the watermark of their arrival."""
        began_ms = state.now_ms
        if record.flush_ms is not None:
            state.delete_clock_timer(record.flush_ms)
        watermark, record = ElementWatermark(record.watermark_ms), replace(record, flush_ms=None, keeps=False)
        yield from self._stream_step(self._take_kept(state), watermark, record, state, FlushMode.FLUSH)
        self._step_ms = state.now_ms - began_ms

    def _hold(self, packed: Blob, state: BucketState) -> None:
        """Hold a packed row of a batch. The bucket's one timer is set with its first row: a timer that is set for a
        key that is no longer the engine's current one makes it change keys, which fires the timers of the other."""
        if state.key not in self._held:
            state.set_event_timer(LAST_MS)
        self._held.setdefault(state.key, []).append(packed)

    def _batch_step(self, state: BucketState) -> Iterator[TaggedBlob]:
        """All rows of a bucket of a batch, once it has all of them."""
        held = self._held.pop(state.key, None)
        if held is not None:
            rows = sorted(held, key=itemgetter(0))
            _, tagged = self._step(DictStore(), SegmentCache(), state.key, rows, NO_WATERMARK, FlushMode.END)
            yield from self._counted(tagged, state.key)

    def _keep(self, packed: Blob, state: BucketState) -> None:
        kind, rows, blob = packed
        state.keep(_HEADER.pack(kind, rows) + blob)

    def _take_kept(self, state: BucketState) -> list[Blob]:
        """Inputs in the query's order: the order of arrival is a race between tasks."""
        kept = [(*_HEADER.unpack_from(data), data[_HEADER.size :]) for data in state.take_kept()]
        return sorted(kept, key=itemgetter(0))

    def _stream_step(
        self,
        packed: list[Blob],
        watermark: ElementWatermark,
        record: BucketRecord,
        state: BucketState,
        demand: FlushMode = FlushMode.NOTHING,
    ) -> Iterator[TaggedBlob]:
        watermark = watermark.at_least(record.watermark_ms)
        record = replace(record, watermark_ms=watermark.ms, clocks=record.clocks or self._hosting.keeps_clocks)
        wanted, tagged = self._step(
            state.segments, self._cache, state.key, packed, watermark.us, demand, has_clocks=record.clocks
        )
        self._records.put(state, self._with_timers(record, watermark.timer_ms(wanted.timer_us), wanted, state))
        yield from self._counted(tagged, state.key)

    def _end(self, watermark: ElementWatermark, state: BucketState) -> Iterator[TaggedBlob]:
        """All remaining results of this bucket of a stream; its state is deleted."""
        _, tagged = self._step(state.segments, self._cache, state.key, [], watermark.us, FlushMode.END)
        state.clear()
        self._cache.forget(state.key)
        self._records.forget(state)
        yield from self._counted(tagged, state.key)

    def _counted(self, tagged: list[TaggedBlob], bucket: int | None = None) -> list[TaggedBlob]:
        """What is going out, once it is counted. `bucket`: that of a step of the operator."""
        self._count(read_counts(blob for tag, blob in tagged if tag == COUNTS), bucket)
        return tagged

    def _step(
        self,
        store: SegmentStore,
        cache: SegmentCache,
        bucket: int,
        packed: list[Blob],
        watermark_us: int,
        demand: FlushMode,
        *,
        has_clocks: bool = False,
    ) -> tuple[Wanted, list[TaggedBlob]]:
        """One step of the operator: what it wants, and what it gave.

        No Arrow leaves the work: where a runner has a thread of its own, even to let go of it elsewhere would hang.
        """

        def work(segments: SegmentStore) -> tuple[Wanted, list[TaggedBlob]]:
            arrived = self._arrived(packed)
            step = self._hosting.step(self._operator, segments, arrived, watermark_us, demand, has_clocks=has_clocks)
            return Wanted(step.timer_us, step.rows_waiting), self._tagged(step, arrived)

        return self._runner.step(work, store, cache, bucket)

    def _arrived(self, packed: list[Blob]) -> BucketInput:
        arrived = BucketInput()
        arrived.take(self._operator, packed)
        return arrived

    def _tagged(self, step: Step, arrived: BucketInput) -> list[TaggedBlob]:
        return [(row.tag, row.blob) for row in tagged_rows(step, arrived, self._operator, self._inputs)]

    def _record_of(self, state: BucketState) -> BucketRecord:
        """The bucket's record. A new bucket gets a record, and a timer for the end of the input.

        Raises EngineError WA-3003 for state that was written for another number of buckets, WA-3032 for that of another
        query.
        """
        record = self._record_with_timers(state)
        if record is None:
            record = BucketRecord(self._hosting.buckets, key_groups=self._hosting.key_groups)
            state.set_event_timer(LAST_MS)
            self._records.put(state, record)
            state.segments.put(_IDENTITY, 0, self._identity)
        return record

    def _record_with_timers(self, state: BucketState) -> BucketRecord | None:
        """The bucket's record, if it has one. When it comes from a checkpoint, its timers are set again: a checkpoint
        may lack the timers that the bundle it ended had set, though it has all else that the bundle did."""
        restored = not self._records.knows(state)
        record = self._records.get(state)
        if restored and record is not None:
            self._check(record, state)
            state.set_event_timer(LAST_MS)
            if record.timer_ms is not None:
                state.set_event_timer(record.timer_ms)
            if record.flush_ms is not None:
                state.set_clock_timer(record.flush_ms)
        return record

    def _check(self, record: BucketRecord, state: BucketState) -> None:
        """Refuse a bucket of another query, or of another number of buckets."""
        found = state.segments.get(_IDENTITY, 0)
        if found is None:  # an older release wrote it
            state.segments.put(_IDENTITY, 0, self._identity)
        else:
            text = bytes(unwrap(found)).decode()
            self._runner.run(lambda: self._hosting.identity.check(text))
        record.check(self._hosting.buckets, self._hosting.key_groups)

    def _with_timers(
        self, record: BucketRecord, timer_ms: int | None, wanted: Wanted, state: BucketState
    ) -> BucketRecord:
        """Sets one event-time timer for the bucket besides the last, and one by the clock while rows wait.

        A timer that has fired is gone from the record already. What waits is worked on at the latest when the timer by
        the clock fires, whatever event time does.
        """
        move_timer(record.timer_ms, timer_ms, state.set_event_timer, state.delete_event_timer)
        flush_ms = record.flush_ms
        if self._max_latency_ms is not None and wanted.rows_waiting and flush_ms is None:
            flush_ms = state.now_ms + self._max_latency_ms
            state.set_clock_timer(flush_ms)
        return replace(record, timer_ms=timer_ms, flush_ms=flush_ms)
