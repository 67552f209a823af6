"""Hosts an operator in a `KeyedProcessFunction`: `core.hosting.element_host` over Flink's state and timers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

from whenabouts.core.hosting.element_host import ElementHost, Here, Runner
from whenabouts.core.hosting.host import Hosting
from whenabouts.core.hosting.warm_up import load_kernels
from whenabouts.flink_plugin.counting import GroupCounts
from whenabouts.flink_plugin.own_thread import runner
from whenabouts.flink_plugin.worker_imports import import_numba

Out = Iterator[Any]


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


class KeyedState:
    """The state variables of a task; Flink sets the current key. Names and types are those of checkpoints."""

    def __init__(self, context: RuntimeContext) -> None:
        binary = Types.PICKLED_BYTE_ARRAY  # holds our own bytes: the one type that works in thread mode too
        self._map = context.get_map_state(MapStateDescriptor("segments", Types.STRING(), binary()))
        self._kept = context.get_list_state(ListStateDescriptor("rows", binary()))
        self._record = context.get_state(ValueStateDescriptor("book", binary()))
        self.segments = MapStateStore(self._map)

    def read_record(self) -> bytes | None:
        """The record's bytes, None if there is none."""
        data: bytes | None = self._record.value()
        return data

    def write_record(self, data: bytes) -> None:
        """Replace the record."""
        self._record.update(data)

    def clear(self) -> None:
        """Drop segments and record."""
        self._map.clear()
        self._record.clear()

    def keep(self, data: bytes) -> None:
        """Append to the rows that wait in front of the operator."""
        self._kept.add(data)

    def take_kept(self) -> list[bytes]:
        """The rows that wait, in order; they wait no longer."""
        kept = list(self._kept.get())
        self._kept.clear()
        return kept


@dataclass(frozen=True, slots=True)
class _Bucket:
    """`element_host.BucketState` of the current key."""

    state: KeyedState
    ctx: Any

    @property
    def key(self) -> int:
        key: int = self.ctx.get_current_key()
        return key

    @property
    def segments(self) -> MapStateStore:
        return self.state.segments

    def read_record(self) -> bytes | None:
        return self.state.read_record()

    def write_record(self, data: bytes) -> None:
        self.state.write_record(data)

    def clear(self) -> None:
        self.state.clear()

    def keep(self, data: bytes) -> None:
        self.state.keep(data)

    def take_kept(self) -> list[bytes]:
        return self.state.take_kept()

    @property
    def watermark_ms(self) -> int:
        ms: int = self.ctx.timer_service().current_watermark()
        return ms

    @property
    def now_ms(self) -> int:
        ms: int = self.ctx.timer_service().current_processing_time()
        return ms

    def set_event_timer(self, ms: int) -> None:
        self.ctx.timer_service().register_event_time_timer(ms)

    def delete_event_timer(self, ms: int) -> None:
        self.ctx.timer_service().delete_event_time_timer(ms)

    def set_clock_timer(self, ms: int) -> None:
        self.ctx.timer_service().register_processing_time_timer(ms)

    def delete_clock_timer(self, ms: int) -> None:
        self.ctx.timer_service().delete_processing_time_timer(ms)


class BucketFunction(KeyedProcessFunction):
    """Runs the operator of each bucket; knows no kind of operator."""

    _runner: Runner = Here()
    """Flink also closes what could not be opened."""

    def __init__(self, hosting: Hosting, max_latency_ms: int | None = None, *, gathers: bool = False) -> None:
        """As `core.hosting.element_host.ElementHost`."""
        self._hosting, self._max_latency_ms, self._gathers = hosting, max_latency_ms, gathers

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        self._state = KeyedState(runtime_context)
        import_numba()
        self._runner = runner()
        if self._max_latency_ms is not None:
            self._runner.run(load_kernels)  # Flink lets rows come when all tasks are open: none waits for this
        counts = GroupCounts(runtime_context.get_metrics_group(), self._hosting.query)
        self._host = ElementHost(self._hosting, self._runner, counts.take, self._max_latency_ms, gathers=self._gathers)

    def close(self) -> None:
        """Called by Flink when the task ends."""
        self._runner.stop()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Out:
        """A packed row."""
        kind, rows, blob = value
        return self._host.element((kind, rows, bytes(blob)), _Bucket(self._state, ctx))

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Out:
        """The operator has work to do without new rows, or the input has ended."""
        return self._host.timer(timestamp, _Bucket(self._state, ctx))
