"""Hosts an operator in a `KeyedProcessFunction`: its segments in a MapState, its timer in Flink's, one key per bucket.

The same function serves streams and batch. On a stream each block is a step. In batch the rows of a bucket are kept
until its input has ended, which Flink tells by the last watermark there is, and are then one step.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

from whenabouts.core.errors import Code, EngineError
from whenabouts.core.hosting import COUNTS, REJECTS, Arrived, Hosting, read_counts, tagged_rows
from whenabouts.core.protocol import NO_WATERMARK, Demand, SegmentStore, Step
from whenabouts.core.stores import DictStore
from whenabouts.flink_plugin.clock import LAST_MS, LEAST_MS, Clock
from whenabouts.flink_plugin.counting import GroupCounts
from whenabouts.flink_plugin.own_thread import runner

_HEADER = struct.Struct("<iq")
"""In front of a kept blob: its kind and its number of rows."""

Out = Iterator[Any]
Blob = tuple[int, int, bytes]
"""Kind, rows, bytes."""
TaggedBlob = tuple[int, bytes]
"""`core.hosting.Tagged` as Flink takes it."""


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

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        binary = Types.PICKLED_BYTE_ARRAY  # holds our own bytes: the one type that works in thread mode too
        self._segments = runtime_context.get_map_state(MapStateDescriptor("segments", Types.STRING(), binary()))
        self._kept = runtime_context.get_list_state(ListStateDescriptor("rows", binary()))
        self._book = runtime_context.get_state(ValueStateDescriptor("book", binary()))
        self._store = MapStateStore(self._segments)
        self._runner = runner()
        self._operator = self._runner.run(self._hosting.operator)
        self._inputs = self._hosting.query.inputs
        self._metrics = GroupCounts(runtime_context.get_metrics_group(), self._inputs)

    def close(self) -> None:
        """Called by Flink when the task ends."""
        self._runner.stop()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Out:
        """A packed row."""
        _, kind, rows, _, blob = value
        packed = (kind, rows, bytes(blob))
        if kind == REJECTS:
            tagged = self._runner.run(lambda: self._tagged(Step(), self._arrived([packed])))
            yield from self._counted(tagged)
            return
        book = self._book_of(ctx)
        if self._hosting.streaming:
            yield from self._stream_step([packed], Clock(ctx.timer_service().current_watermark()), book, ctx)
        else:
            self._kept.add(_HEADER.pack(kind, rows) + packed[2])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Out:
        """The operator has work to do without new rows, or the input has ended."""
        book = self._known_book()
        if book is None:  # the end came with an earlier timer
            return
        clock = Clock(ctx.timer_service().current_watermark())
        if clock.ended:
            yield from self._end(clock, ctx)
        elif timestamp == book["timer_ms"]:
            yield from self._stream_step([], clock, book, ctx, fired=True)

    def _stream_step(
        self, packed: list[Blob], clock: Clock, book: dict[str, Any], ctx: Any, *, fired: bool = False
    ) -> Out:
        clock = clock.at_least(book["watermark_ms"])
        timer_us, tagged = self._step(self._store, packed, clock.us, Demand.NOTHING)
        timer_ms = clock.timer_ms(timer_us)
        self._set_timer(book["timer_ms"], timer_ms, ctx, fired)
        now = book | {"timer_ms": timer_ms, "watermark_ms": clock.ms}
        if now != book:
            self._book.update(json.dumps(now).encode())
        yield from self._counted(tagged, ctx.get_current_key())

    def _end(self, clock: Clock, ctx: Any) -> Out:
        """Everything that is still to come from this bucket; nothing of it stays."""
        if self._hosting.streaming:
            _, tagged = self._step(self._store, [], clock.us, Demand.END)
        else:
            kept = [(*_HEADER.unpack_from(data), data[_HEADER.size :]) for data in self._kept.get()]
            _, tagged = self._step(DictStore(), kept, NO_WATERMARK, Demand.END)
        self._segments.clear()
        self._kept.clear()
        self._book.clear()
        yield from self._counted(tagged, ctx.get_current_key())

    def _counted(self, tagged: list[TaggedBlob], bucket: int | None = None) -> list[TaggedBlob]:
        """What is going out, when its counts are in Flink's metrics. `bucket`: that of a step of the operator."""
        counts = read_counts(blob for tag, blob in tagged if tag == COUNTS)
        self._metrics.take(counts, bucket)
        return tagged

    def _step(
        self, store: SegmentStore, packed: list[Blob], watermark_us: int, demand: Demand
    ) -> tuple[int | None, list[TaggedBlob]]:
        """One step of the operator: the timer that it wants, and what it gave."""

        def work(segments: SegmentStore) -> tuple[int | None, list[TaggedBlob]]:
            arrived = self._arrived(packed)
            step = self._hosting.step(self._operator, segments, arrived, watermark_us, demand)
            return step.timer_us, self._tagged(step, arrived)

        return self._runner.step(work, store)

    def _arrived(self, packed: list[Blob]) -> Arrived:
        arrived = Arrived()
        arrived.take(self._operator, packed)
        return arrived

    def _tagged(self, step: Step, arrived: Arrived) -> list[TaggedBlob]:
        return [(row.tag, row.blob) for row in tagged_rows(step, arrived, self._operator, self._inputs)]

    def _known_book(self) -> dict[str, Any] | None:
        data = self._book.value()
        book: dict[str, Any] | None = None if data is None else json.loads(data)
        return book

    def _book_of(self, ctx: Any) -> dict[str, Any]:
        """What the host itself remembers of the bucket. A new one gets a timer for the end of the input.

        Raises EngineError WA-3003 for state that was written for another number of buckets.
        """
        book = self._known_book()
        if book is None:
            book = {"buckets": self._hosting.buckets, "timer_ms": None, "watermark_ms": LEAST_MS}
            ctx.timer_service().register_event_time_timer(LAST_MS)
            self._book.update(json.dumps(book).encode())
        elif book["buckets"] != self._hosting.buckets:
            raise EngineError(
                Code.STATE_FORMAT,
                f"the checkpoint holds {book['buckets']} buckets of keys, the query asks for {self._hosting.buckets}",
                f"give buckets={book['buckets']}, or start from a new checkpoint",
            )
        return book

    def _set_timer(self, old_ms: int | None, new_ms: int | None, ctx: Any, fired: bool) -> None:
        """One timer per bucket besides the last; one that has fired is gone already."""
        if new_ms == old_ms:
            return
        if old_ms is not None and not fired:
            ctx.timer_service().delete_event_time_timer(old_ms)
        if new_ms is not None:
            ctx.timer_service().register_event_time_timer(new_ms)
