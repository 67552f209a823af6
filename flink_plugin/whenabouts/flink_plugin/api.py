"""What a user calls: streams of blocks in, a stream of blocks out, with the job's own runtime mode.

The way of a row: `blocks` (elements to packed rows, by bucket) -> `bucket_host` (the operator) -> here, where output,
rejects and counts part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyflink.common import Duration as FlinkDuration
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import DataStream, OutputTag, RuntimeExecutionMode
from pyflink.java_gateway import get_gateway

from whenabouts.core.conditions import Condition
from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting import Hosting
from whenabouts.core.protocol import Query
from whenabouts.core.timestamps import Lateness, TimeSpec
from whenabouts.core.timing_join import TimingJoin
from whenabouts.flink_plugin.blocks import Blocks, ClockedPackFunction, PackFunction, ReadBlob
from whenabouts.flink_plugin.bucket_host import BucketFunction
from whenabouts.flink_plugin.clock import delay_ms
from whenabouts.flink_plugin.wire import COUNTS_OUTPUT, REJECTS_OUTPUT, blob_type, packed_type, tagged_type

BUCKETS = 32
"""Buckets unless the user says otherwise. A constant, not a multiple of the parallelism: keys must find their state
again when a job is restored with another one."""

WATERMARKS = ("lateness", "inputs")


class Result(NamedTuple):
    """A query's operator in a job, and how to read what it gives."""

    operator: DataStream
    hosting: Hosting

    @property
    def output(self) -> Blocks:
        """The output rows; the watermark goes on with them."""
        return self._blocks(self.operator, self.hosting.operator().output_schema)

    @property
    def rejects(self) -> Blocks:
        """The rejected rows."""
        return self._blocks(self.side(REJECTS_OUTPUT), self.hosting.rejects_schema)

    @property
    def counts(self) -> DataStream:
        """The counts of `whenabouts.core.metrics`: JSON objects by name, one for each step, to be summed."""
        return self.side(COUNTS_OUTPUT).map(lambda tagged: bytes(tagged[1]).decode(), Types.STRING())

    def side(self, name: str) -> DataStream:
        """A side output of the operator, tagged."""
        return self.operator.get_side_output(OutputTag(name, tagged_type()))

    def _blocks(self, tagged: DataStream, schema: pa.Schema) -> Blocks:
        return Blocks(tagged.map(lambda row: bytes(row[1]), blob_type()), schema, ReadBlob(schema))


_results: WeakKeyDictionary[Any, Result] = WeakKeyDictionary()


def timing_join(
    left: Blocks,
    right: Blocks,
    *,
    left_time: TimeSpec,
    right_time: TimeSpec,
    condition: Condition,
    on: str | Sequence[str] | None = None,
    how: str = "inner",
    best: str | None = None,
    strategy: str = "auto",
    lateness: Lateness | None = None,
    suffixes: tuple[str, str] = ("_left", "_right"),
    probability: bool = True,
    block_size: int = 1000,
    max_latency: Duration | None = None,
    min_confidence: float | None = None,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "timing-join",
) -> Blocks:
    """Pairs of a left and a right row for which `P(condition) >= confidence`, as a stream or in batch."""
    query = TimingJoin(
        left_time=left_time,
        right_time=right_time,
        condition=condition,
        on=on,
        how=how,
        best=best,
        strategy=strategy,
        lateness=lateness,
        suffixes=suffixes,
        probability=probability,
        block_size=block_size,
        max_latency=max_latency,
        min_confidence=min_confidence,
    )
    return run(query, [left, right], buckets=buckets, watermarks=watermarks, name=name)


def run(
    query: Query,
    inputs: Sequence[Blocks],
    *,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "whenabouts",
) -> Blocks:
    """The output of any query over one stream for each of its inputs."""
    result = hosted(query, inputs, buckets=buckets, watermarks=watermarks, name=name)
    output = result.output
    _results[output] = result
    return output


def rejects(result: Blocks) -> Blocks:
    """The rows that the query giving `result` did not process: `input`, `code`, `reason`, and their own columns."""
    return result_of(result).rejects


def counts(result: Blocks) -> DataStream:
    """Counts by name as JSON (rows_in = rows_processed + rows_rejected, and those of the operator), one per step."""
    return result_of(result).counts


def result_of(result: Any) -> Result:
    """What is known of a stream that `run` or `timing_join` returned. Raises QueryError WA-2006 for another."""
    try:
        return _results[result]
    except (KeyError, TypeError):
        raise QueryError(
            Code.BAD_OPTION, "this stream did not come from whenabouts", "give the very object that was returned"
        ) from None


def hosted(
    query: Query,
    inputs: Sequence[Blocks],
    *,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "whenabouts",
) -> Result:
    """The operator of a query in the job of its inputs; `run` before output and rejects part."""
    _check(query, inputs, buckets, watermarks)
    streaming = _is_streaming(inputs[0].stream)
    hosting = Hosting(query, tuple(source.schema for source in inputs), buckets or BUCKETS, streaming)
    hosting.operator()  # refuses here, in the client, what cannot work
    sides = [
        _packed(source, hosting, place, own_clock=watermarks == "lateness", name=name)
        for place, source in enumerate(inputs)
    ]
    rows = sides[0].union(*sides[1:]) if len(sides) > 1 else sides[0]
    buckets_of_rows = rows.key_by(lambda packed: packed[0], Types.INT())
    operator = buckets_of_rows.process(BucketFunction(hosting), tagged_type()).name(name).uid(name)
    return Result(operator, hosting)


def _packed(source: Blocks, hosting: Hosting, place: int, *, own_clock: bool, name: str) -> DataStream:
    """Packed rows of one input under its watermark, read where its elements are: their order is kept."""
    label = f"{name}-{hosting.query.inputs[place]}"
    parallelism = source.stream._j_data_stream.getParallelism()
    if not (own_clock and hosting.streaming):
        packed = source.stream.process(PackFunction(hosting, place, source.read), packed_type())
        return packed.name(f"{label}-blocks").uid(f"{label}-blocks").set_parallelism(parallelism)
    clocked = source.stream.process(
        ClockedPackFunction(hosting, place, source.read), Types.TUPLE([packed_type(), Types.LONG()])
    )
    clocked = clocked.name(f"{label}-blocks").uid(f"{label}-blocks").set_parallelism(parallelism)
    return _under_watermark(clocked, hosting.query.lateness_us[place], label, parallelism)


def _under_watermark(clocked: DataStream, lateness_us: int, label: str, parallelism: int) -> DataStream:
    """What PyFlink's `assign_timestamps_and_watermarks` does behind its Python assigner.

    Called by itself it would put a Python operator of the job's parallelism in between, which changes the order of rows
    and cannot have a uid.
    """
    jvm = get_gateway().jvm.org.apache.flink.streaming.api.functions.python.eventtime
    delay = FlinkDuration.of_millis(delay_ms(lateness_us))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(delay)._j_watermark_strategy
    marked = clocked._j_data_stream.assignTimestampsAndWatermarks(
        strategy.withTimestampAssigner(jvm.CustomTimestampAssigner())
    )
    marked = marked.uid(f"{label}-watermarks").setParallelism(parallelism)
    packed = marked.map(jvm.RemoveTimestampMapFunction(), packed_type().get_java_type_info())
    return DataStream(packed.name(f"{label}-packed").uid(f"{label}-packed").setParallelism(parallelism))


def _check(query: Query, inputs: Sequence[Blocks], buckets: int | None, watermarks: str) -> None:
    if len(inputs) != len(query.inputs):
        raise QueryError(
            Code.BAD_OPTION,
            f"the query has {len(query.inputs)} inputs ({', '.join(query.inputs)}), {len(inputs)} were given",
            "give one stream for each",
        )
    if buckets is not None and buckets < 1:
        raise QueryError(Code.BAD_OPTION, f"buckets is {buckets}", "give one or more")
    if watermarks not in WATERMARKS:
        raise QueryError(Code.BAD_OPTION, f"watermarks is {watermarks!r}", f"choose of {', '.join(WATERMARKS)}")


def _is_streaming(stream: DataStream) -> bool:
    """What the job's `execution.runtime-mode` says. (AUTOMATIC is decided by Flink only when the job is submitted.)"""
    mode = stream.get_execution_environment()._j_stream_execution_environment.getConfiguration()
    text = str(mode.toMap().get("execution.runtime-mode"))
    return text.upper() != str(RuntimeExecutionMode.BATCH.name)
