"""Hosts an operator in a `KeyedProcessFunction`: its segments in a MapState, its timer in Flink's, one key per bucket.

The same function serves streams and batch. On a stream each block is a step, or, where rows may not wait for large
blocks, all that came in a few milliseconds. In batch the rows of a bucket are kept until its input has ended, which
Flink tells by the last watermark there is, and are then one step.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting.host import COUNTS, REJECTS, BucketInput, Hosting, read_counts, tagged_rows
from whenabouts.core.hosting.warm_up import load_kernels
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode, SegmentStore, Step
from whenabouts.core.state.memory_store import DictStore
from whenabouts.flink_plugin.clock import LAST_MS, EngineWatermark
from whenabouts.flink_plugin.counting import GroupCounts
from whenabouts.flink_plugin.host_book import BucketRecord, BucketRecords
from whenabouts.flink_plugin.own_thread import runner
from whenabouts.flink_plugin.segment_cache import SegmentCache
from whenabouts.flink_plugin.worker_imports import import_numba

_HEADER = struct.Struct("<iq")
"""In front of a kept blob: its kind and its number of rows."""

Out = Iterator[Any]
Blob = tuple[int, int, bytes]
"""Kind, rows, bytes."""
TaggedBlob = tuple[int, bytes]
"""`core.hosting.Tagged` as Flink takes it."""


class Wanted(NamedTuple):
    """Of a `core.protocol.Step`, what decides about timers."""

    timer_us: int | None
    rows_waiting: int


class MapStateStore:
    """`SegmentStore` over Flink's MapState."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, input: int, slot: int) -> bytes | None:
        """The segment's bytes, or None."""
        data: bytes | None = self._state.get(f"{input}/{slot}")
        return data

    def put(self, input: int, slot: int, data: bytes) -> None:
        """Create or replace the segment."""
        self._state.put(f"{input}/{slot}", data)

    def delete(self, input: int, slot: int) -> None:
        """Drop the segment if it is there."""
        self._state.remove(f"{input}/{slot}")


class BucketFunction(KeyedProcessFunction):
    """Runs the operator of each bucket; knows no kind of operator."""

    def __init__(self, hosting: Hosting, max_latency_ms: int | None = None, *, gathers: bool = False) -> None:
        """`max_latency_ms`: how long rows may wait by the clock. `gathers`: they wait here, as long as the last step
        took, and all that came meanwhile are one step; else each element is one, and where its rows wait is the
        operator's business."""
        self._hosting = hosting
        self._max_latency_ms = max_latency_ms
        self._gathers = gathers and max_latency_ms is not None
        self._step_ms = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        binary = Types.PICKLED_BYTE_ARRAY  # holds our own bytes: the one type that works in thread mode too
        self._segments = runtime_context.get_map_state(MapStateDescriptor("segments", Types.STRING(), binary()))
        self._kept = runtime_context.get_list_state(ListStateDescriptor("rows", binary()))
        self._books = BucketRecords(runtime_context.get_state(ValueStateDescriptor("book", binary())))
        self._store = MapStateStore(self._segments)
        self._cache = SegmentCache()
        import_numba()
        self._runner = runner()
        if self._max_latency_ms is not None:
            self._runner.run(load_kernels)  # Flink lets rows come when all tasks are open: none waits for this
        self._operator = self._runner.run(self._hosting.operator)
        self._inputs = self._hosting.query.inputs
        self._metrics = GroupCounts(runtime_context.get_metrics_group(), self._inputs)

    def close(self) -> None:
        """Called by Flink when the task ends."""
        self._runner.stop()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Out:
        """A packed row."""
        kind, rows, blob = value
        packed = (kind, rows, bytes(blob))
        if kind == REJECTS:
            tagged = self._runner.run(lambda: self._tagged(Step(), self._arrived([packed])))
            yield from self._counted(tagged)
            return
        book = self._book_of(ctx)
        if self._hosting.streaming:
            clock = EngineWatermark(ctx.timer_service().current_watermark()).at_least(book.watermark_ms)
            if book.keeps and (clock.ms != book.watermark_ms or not self._gathers):
                yield from self._gathered(book, ctx)
                book = self._book_of(ctx)
            if self._gathers:
                self._gather(packed, clock, book, ctx)
            else:
                yield from self._stream_step([packed], clock, book, ctx)
        else:
            self._keep(packed)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Out:
        """The operator has work to do without new rows, or the input has ended."""
        book = self._book_with_timers(ctx)
        if book is None:  # the end came with an earlier timer
            return
        clock = EngineWatermark(ctx.timer_service().current_watermark())
        if book.keeps:
            yield from self._gathered(book, ctx)
            book = self._book_of(ctx)
        if clock.ended:
            yield from self._end(clock, ctx)
        elif timestamp == book.flush_ms:
            yield from self._stream_step([], clock, replace(book, flush_ms=None), ctx, FlushMode.FLUSH)
        elif timestamp == book.timer_ms:
            yield from self._stream_step([], clock, replace(book, timer_ms=None), ctx)

    def _gather(self, packed: Blob, clock: EngineWatermark, book: BucketRecord, ctx: Any) -> None:
        """Keep rows for the step that a timer by the clock begins. Rows of one step have come under one watermark: what
        is late is late whether it waits or not."""
        self._keep(packed)
        timers, flush_ms = ctx.timer_service(), book.flush_ms
        if flush_ms is None:
            flush_ms = timers.current_processing_time() + min(self._step_ms, self._max_latency_ms or 0)
            timers.register_processing_time_timer(flush_ms)
        book = replace(book, watermark_ms=clock.ms, flush_ms=flush_ms, keeps=True)
        self._books.put(ctx.get_current_key(), book)

    def _gathered(self, book: BucketRecord, ctx: Any) -> Out:
        """The step of what was gathered, under the watermark of its coming."""
        timers = ctx.timer_service()
        began_ms = timers.current_processing_time()
        timers.delete_processing_time_timer(book.flush_ms)
        clock, book = EngineWatermark(book.watermark_ms), replace(book, flush_ms=None, keeps=False)
        yield from self._stream_step(self._take_kept(), clock, book, ctx, FlushMode.FLUSH)
        self._step_ms = timers.current_processing_time() - began_ms

    def _keep(self, packed: Blob) -> None:
        kind, rows, blob = packed
        self._kept.add(_HEADER.pack(kind, rows) + blob)

    def _take_kept(self) -> list[Blob]:
        """Inputs in the query's order: which of them came first is a race between tasks."""
        kept = [(*_HEADER.unpack_from(data), data[_HEADER.size :]) for data in self._kept.get()]
        self._kept.clear()
        return sorted(kept, key=itemgetter(0))

    def _stream_step(
        self,
        packed: list[Blob],
        clock: EngineWatermark,
        book: BucketRecord,
        ctx: Any,
        demand: FlushMode = FlushMode.NOTHING,
    ) -> Out:
        clock, bucket = clock.at_least(book.watermark_ms), ctx.get_current_key()
        wanted, tagged = self._step(self._store, self._cache, bucket, packed, clock.us, demand)
        book = replace(book, watermark_ms=clock.ms)
        self._books.put(bucket, self._with_timers(book, clock.timer_ms(wanted.timer_us), wanted.rows_waiting, ctx))
        yield from self._counted(tagged, bucket)

    def _end(self, clock: EngineWatermark, ctx: Any) -> Out:
        """Everything that is still to come from this bucket; nothing of it stays."""
        bucket = ctx.get_current_key()
        if self._hosting.streaming:
            _, tagged = self._step(self._store, self._cache, bucket, [], clock.us, FlushMode.END)
        else:
            rows = self._take_kept()
            _, tagged = self._step(DictStore(), SegmentCache(), bucket, rows, NO_WATERMARK, FlushMode.END)
        self._segments.clear()
        self._cache.forget(bucket)
        self._books.forget(bucket)
        yield from self._counted(tagged, bucket)

    def _counted(self, tagged: list[TaggedBlob], bucket: int | None = None) -> list[TaggedBlob]:
        """What is going out, when its counts are in Flink's metrics. `bucket`: that of a step of the operator."""
        counts = read_counts(blob for tag, blob in tagged if tag == COUNTS)
        self._metrics.take(counts, bucket)
        return tagged

    def _step(
        self,
        store: SegmentStore,
        cache: SegmentCache,
        bucket: int,
        packed: list[Blob],
        watermark_us: int,
        demand: FlushMode,
    ) -> tuple[Wanted, list[TaggedBlob]]:
        """One step of the operator: what it wants, and what it gave.

        No Arrow leaves the work: even to let go of it in a thread of the JVM would hang.
        """

        def work(segments: SegmentStore) -> tuple[Wanted, list[TaggedBlob]]:
            arrived = self._arrived(packed)
            step = self._hosting.step(self._operator, segments, arrived, watermark_us, demand)
            return Wanted(step.timer_us, step.rows_waiting), self._tagged(step, arrived)

        return self._runner.step(work, store, cache, bucket)

    def _arrived(self, packed: list[Blob]) -> BucketInput:
        arrived = BucketInput()
        arrived.take(self._operator, packed)
        return arrived

    def _tagged(self, step: Step, arrived: BucketInput) -> list[TaggedBlob]:
        return [(row.tag, row.blob) for row in tagged_rows(step, arrived, self._operator, self._inputs)]

    def _book_of(self, ctx: Any) -> BucketRecord:
        """What the host itself remembers of the bucket. A new one gets a timer for the end of the input.

        Raises EngineError WA-3003 for state that was written for another number of buckets.
        """
        book = self._book_with_timers(ctx)
        if book is None:
            book = BucketRecord(self._hosting.buckets)
            ctx.timer_service().register_event_time_timer(LAST_MS)
            self._books.put(ctx.get_current_key(), book)
        elif book.buckets != self._hosting.buckets:
            raise EngineError(
                Code.STATE_FORMAT,
                f"the checkpoint holds {book.buckets} buckets of keys, the query asks for {self._hosting.buckets}",
                f"give buckets={book.buckets}, or start from a new checkpoint",
            )
        return book

    def _book_with_timers(self, ctx: Any) -> BucketRecord | None:
        """The bucket's book, if it has one. When it comes from a checkpoint, its timers are set again: in process mode
        those of a bundle that a checkpoint ended are not in that checkpoint, though all else that it did is."""
        bucket, timers = ctx.get_current_key(), ctx.timer_service()
        restored = not self._books.knows(bucket)
        book = self._books.get(bucket)
        if restored and book is not None:
            timers.register_event_time_timer(LAST_MS)
            if book.timer_ms is not None:
                timers.register_event_time_timer(book.timer_ms)
            if book.flush_ms is not None:
                timers.register_processing_time_timer(book.flush_ms)
        return book

    def _with_timers(self, book: BucketRecord, timer_ms: int | None, waiting: int, ctx: Any) -> BucketRecord:
        """Sets one event-time timer for the bucket besides the last, and one by the clock while rows wait.

        A timer that has fired is gone from the book already. What waits is worked on at the latest when the timer by
        the clock fires, whatever event time does.
        """
        timers, flush_ms = ctx.timer_service(), book.flush_ms
        if timer_ms != book.timer_ms:
            if book.timer_ms is not None:
                timers.delete_event_time_timer(book.timer_ms)
            if timer_ms is not None:
                timers.register_event_time_timer(timer_ms)
        if self._max_latency_ms is not None and waiting and flush_ms is None:
            flush_ms = timers.current_processing_time() + self._max_latency_ms
            timers.register_processing_time_timer(flush_ms)
        return replace(book, timer_ms=timer_ms, flush_ms=flush_ms)
