"""Streams of blocks: elements that hold many rows, and how to read them as Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyflink.datastream import DataStream, FlatMapFunction, ProcessFunction, RuntimeContext

from whenabouts.core.hosting.element_host import Here, Runner
from whenabouts.core.hosting.element_watermark import LEAST_MS
from whenabouts.core.hosting.host import BlockPacker, Hosting, Packed, clock_of
from whenabouts.core.state.segment_codec import decode
from whenabouts.core.times.time_units import ENOUGH_VALUES
from whenabouts.flink_plugin.own_thread import runner
from whenabouts.flink_plugin.row_packing import LOST_ASSIGNER, no_event_time
from whenabouts.flink_plugin.wire import keyed
from whenabouts.flink_plugin.worker_imports import import_numba

Read = Callable[[Any], Iterator[pa.RecordBatch]]
T = TypeVar("T")


def named(stream: DataStream, name: str, *, like: DataStream) -> DataStream:
    """An operator with `name` as its name and uid, and the parallelism of another one, so that rows keep their
    order."""
    return stream.name(name).uid(name).set_parallelism(like._j_data_stream.getParallelism())


def behind(stream: DataStream, what: str, *, like: DataStream) -> DataStream:
    """As `named`, by `uid_behind`."""
    return named(stream, uid_behind(like, what), like=like)


def uid_behind(stream: DataStream, what: str) -> str:
    """The uid of an operator by its purpose and the uid (or name, if it has none) of the stream before it."""
    front = stream._j_data_stream.getTransformation()
    return f"{front.getUid() or front.getName()}-{what}"


@dataclass(frozen=True, eq=False)
class Blocks:
    """A stream of elements that `read` turns into record batches of `schema`, in the worker.

    An element may contain the rows (Arrow bytes: `ReadBlob`) or refer to them (a file). `event_time` is a column that
    is never older than the stream's watermark, or None. `title` is the name of the rows in plans.
    """

    stream: DataStream
    schema: pa.Schema
    read: Read
    event_time: str | None = None
    title: str = "blocks"


class BatchFunction(FlatMapFunction):
    """Base of functions over the record batches of each element. Arrow is used where it cannot hang (`own_thread`)."""

    _runner: Runner = Here()
    """Flink also closes what could not be opened."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        self._runner = runner()

    def close(self) -> None:
        """Called by Flink when the task ends."""
        self._runner.stop()

    def results(self, value: Any, work: Callable[[pa.RecordBatch], T]) -> Iterator[T]:
        """What `work` returns for each batch of an element, which must not be Arrow."""
        batches = self._read(value)

        def of_next() -> T | None:
            batch = next(batches, None)
            return None if batch is None else work(batch)

        while (result := self._runner.run(of_next)) is not None:
            yield result


@dataclass(frozen=True)
class ReadBlob:
    """Reads the output of an operator of this package: the bytes of a segment."""

    schema: pa.Schema

    def __call__(self, blob: Any) -> Iterator[pa.RecordBatch]:
        """One record batch."""
        yield decode(bytes(blob), self.schema)


def subtask(context: RuntimeContext) -> tuple[int, int]:
    """Which of a function's subtasks this is, and how many there are."""
    inner: Any = getattr(context, "_runtime_context", None)
    if inner is None:
        return context.get_index_of_this_subtask(), context.get_number_of_parallel_subtasks()
    task = inner.getTaskInfo()  # in thread mode PyFlink 2.3 still calls methods that Flink 2 has moved here
    return int(task.getIndexOfThisSubtask()), int(task.getNumberOfParallelSubtasks())


class PackFunction(ProcessFunction):
    """Reads the elements of one input and packs their rows, by bucket; they keep the element's event time. O(rows)."""

    _runner: Runner = Here()
    _packer: BlockPacker
    """There is none, and no other thread, if the function could not be opened; Flink closes it all the same."""

    def __init__(self, hosting: Hosting, input: int, read: Read, labels: Sequence[int]) -> None:
        self._hosting, self._input, self._read, self._labels = hosting, input, read, labels

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called by Flink in every task before anything else."""
        import_numba()
        self._runner = runner()
        number, packers = subtask(runtime_context)
        self._packer = self._runner.run(lambda: BlockPacker(self._hosting, self._input, number=number, packers=packers))

    def close(self) -> None:
        """Called by Flink when the task ends."""
        if hasattr(self, "_packer"):
            self._packer.units.report()
        self._runner.stop()

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """Packed rows of one element."""
        if self._hosting.streaming:
            self._check_event_time(ctx.timestamp())
        for batch in self._batches(value):
            yield from (keyed(row, self._labels) for row in batch)

    def _batches(self, value: Any) -> Iterator[list[Packed]]:
        batches = self._read(value)
        while (packed := self._runner.run(lambda: self._pack(next(batches, None)))) is not None:
            yield packed

    def _pack(self, batch: pa.RecordBatch | None) -> list[Packed] | None:
        if batch is None:
            return None
        block, refused = self._packer.read(batch)
        self._packer.units.report(ENOUGH_VALUES)
        return [*refused, *self._packer.split([block])]

    def _check_event_time(self, timestamp_ms: int | None) -> None:
        if timestamp_ms is None or timestamp_ms == LEAST_MS:
            name = self._hosting.query.inputs[self._input]
            raise no_event_time(name, LOST_ASSIGNER)


class ClockedPackFunction(PackFunction):
    """As `PackFunction`, with each packed row's timestamp in milliseconds, which the watermark follows.

    Rows that arrived together are late together or not at all: the watermark may advance after the last block of a
    batch but not between two of them, so that only the last one has the new timestamp.
    """

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """Packed rows of one element, and their timestamps."""
        for batch in self._batches(value):
            clock_us = clock_of(batch)
            for row in batch[:-1]:
                yield keyed(row, self._labels), LEAST_MS
            for row in batch[-1:]:
                yield keyed(row, self._labels), LEAST_MS if clock_us is None else clock_us // 1000
