"""A query in a Flink job: its inputs packed, by bucket, into the operator, under their watermarks.

The way of a row: `row_streams` (rows to blocks) -> `blocks` (elements to packed rows, by bucket) -> `bucket_calls`
(on streams: calls in front of them) -> `bucket_host` (the operator) -> `Result`, where output, rejects and counts
part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
from pyflink.common import Duration as FlinkDuration
from pyflink.common import TypeInformation, Types, WatermarkStrategy
from pyflink.datastream import DataStream
from pyflink.java_gateway import get_gateway
from pyflink.table import Table

from whenabouts.core.durations import Duration
from whenabouts.core.hosting.element_host import CONTROL
from whenabouts.core.hosting.element_watermark import delay_ms
from whenabouts.core.hosting.host import COUNTS, OUTPUT, REJECTED, Hosting, require_one_zone
from whenabouts.core.hosting.host_options import LATENESS, SOURCE
from whenabouts.core.hosting.packer_clocks import without_slots
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.wrappers.state_limit import StateLimit
from whenabouts.flink_plugin.blocks import Blocks, ClockedPackFunction, PackFunction, ReadBlob, behind, named
from whenabouts.flink_plugin.bucket_calls import with_calls
from whenabouts.flink_plugin.bucket_host import BucketFunction
from whenabouts.flink_plugin.bucket_labels import groups_of, labels
from whenabouts.flink_plugin.retyping import zone_of
from whenabouts.flink_plugin.row_packing import Latency, hops, require_latency, set_bundles, threads
from whenabouts.flink_plugin.row_streams import blocks_of, environment_of
from whenabouts.flink_plugin.runtime_mode import is_streaming
from whenabouts.flink_plugin.wire import blob_type, by_bucket, packed_type, tagged_type

BUCKETS = 8
"""Buckets unless the user says otherwise. A constant, not a multiple of the parallelism: keys must find their state
again when a job is restored with another one. Each has a step for every block, which costs as much as thousands of rows
do: not more than needed."""

LOW_LATENCY_BUCKETS = 2
"""Buckets where `max_latency` is given: each has a step for every bundle, however few rows are in it. A constant for
the same reason."""

_TAG_NAMES = {OUTPUT: "output", REJECTED: "rejects", COUNTS: "counts"}

Form: TypeAlias = Blocks | Table | DataStream
"""What a query takes and gives."""


@dataclass(frozen=True, eq=False)
class Result:
    """A query's operator in a job, and how to read what it gives."""

    operator: DataStream
    hosting: Hosting
    name: str
    buffer_ms: int | None
    """How long a network buffer after it may wait; None: as long as in the rest of the job."""

    @property
    def title(self) -> str:
        """The name and the query, for Flink's plans and screens."""
        return titled(self.name, self.hosting.query)

    @cached_property
    def output(self) -> Blocks:
        """The output rows, with the watermark."""
        operator = self.hosting.operator()
        return self._blocks(OUTPUT, operator.output_schema, self.title, operator.event_time)

    @cached_property
    def rejects(self) -> Blocks:
        """The rejected rows."""
        return self._blocks(REJECTED, self.hosting.rejects_schema, f"rejects of {self.title}")

    @cached_property
    def counts(self) -> DataStream:
        """The counts of `whenabouts.core.metrics`: JSON objects by name, one for each step, to be summed."""
        return self._tagged(COUNTS, bytes.decode, Types.STRING())

    def _blocks(self, tag: int, schema: pa.Schema, title: str, event_time: str | None = None) -> Blocks:
        return Blocks(self._tagged(tag, bytes, blob_type()), schema, ReadBlob(schema), event_time, title)

    def _tagged(self, tag: int, read: Callable[[bytes], Any], kind: TypeInformation) -> DataStream:
        """The blobs of one tag. (PyFlink sends a side output without readers to the main output.)"""

        def of_tag(row: Any) -> Iterator[Any]:
            if row[0] == tag:
                yield read(bytes(row[1]))

        found = behind(self.operator.flat_map(of_tag, kind), _TAG_NAMES[tag], like=self.operator)
        return found if self.buffer_ms is None else found.set_buffer_timeout(self.buffer_ms)


def hosted(
    query: Query,
    inputs: Sequence[Form],
    *,
    buckets: int | None = None,
    watermarks: str = LATENESS,
    name: str = "whenabouts",
    max_latency: Duration | None = None,
    state_limit: StateLimit | None = None,
) -> Result:
    """The operator of a query in the job of its inputs, before output, rejects and counts part."""
    env = environment_of(inputs[0])
    embedded = threads(env)
    gathered = not any(isinstance(source, Blocks) for source in inputs)
    latency = Latency.of(max_latency, hops=hops(threads=embedded))
    if all(isinstance(source, Blocks) for source in inputs):
        require_latency(env, latency)
    else:
        set_bundles(env, [source._t_env for source in inputs if isinstance(source, Table)], latency.bundle_ms)
    blocks = [
        blocks_of(source, f"{name}-{input}", event_time=watermarks == SOURCE, gather_ms=latency.gather_ms)
        for source, input in zip(inputs, query.inputs, strict=True)
    ]
    streaming = is_streaming(inputs)
    if streaming and watermarks == SOURCE:
        query = without_slots(query, "watermarks='source'")
    if streaming and query.idle_after_us is not None:
        query = without_slots(query, "idle_after on Flink")
    buckets = buckets or (BUCKETS if max_latency is None else LOW_LATENCY_BUCKETS)
    schemas = tuple(source.schema for source in blocks)
    groups = groups_of(env)
    hosting = Hosting(query, schemas, buckets, streaming, state_limit, own_watermarks=True, key_groups=groups)
    operator = hosting.operator()  # refuses here, in the client, what cannot work
    zones = {zone_of(source) for source in inputs if isinstance(source, Table)}
    require_one_zone(query, operator, hosting.schemas, next(iter(zones - {None}), None))
    keys = labels(hosting.buckets, groups)
    sides = [
        _packed(source, hosting, index, keys, own_clock=watermarks == LATENESS, name=name)
        for index, source in enumerate(blocks)
    ]
    if latency.buffer_ms is not None:
        sides = [side.set_buffer_timeout(latency.buffer_ms) for side in sides]
    rows = sides[0].union(*sides[1:]) if len(sides) > 1 else sides[0]
    function = BucketFunction(hosting, latency.operator_ms, gathers=gathered and max_latency is not None)
    keyed = with_calls(rows, (*keys, CONTROL), f"{name}-calls") if streaming else by_bucket(rows)
    stream = keyed.process(function, tagged_type()).name(name).uid(name)
    stream = stream.set_description(titled(name, query))
    return Result(stream, hosting, name, latency.buffer_ms)


def titled(name: str, query: Query) -> str:
    """The name of a query in its job, and what it is."""
    return f"{name}: {query.described}"


def _packed(
    source: Blocks, hosting: Hosting, index: int, keys: Sequence[int], *, own_clock: bool, name: str
) -> DataStream:
    """Packed rows of one input under its watermark, read where its elements are: their order is kept."""
    label = f"{name}-{hosting.query.inputs[index]}"
    if not (own_clock and hosting.streaming):
        packed = source.stream.process(PackFunction(hosting, index, source.read, keys), packed_type())
        return named(packed, f"{label}-blocks", like=source.stream)
    clocked = source.stream.process(
        ClockedPackFunction(hosting, index, source.read, keys), Types.TUPLE([packed_type(), Types.LONG()])
    )
    clocked = named(clocked, f"{label}-blocks", like=source.stream)
    return _under_watermark(clocked, hosting.query.lateness_us[index], label)


def _under_watermark(clocked: DataStream, lateness_us: int, label: str) -> DataStream:
    """What PyFlink's `assign_timestamps_and_watermarks` does behind its Python assigner.

    Called by itself it would put a Python operator of the job's parallelism in between, which changes the order of rows
    and cannot have a uid. A subtask that no rows come to is idle after `table.exec.source.idle-timeout`, as one of a
    Table's source is; until then, or for ever without it, all wait for its rows.
    """
    flink = get_gateway().jvm.org.apache.flink
    jvm = flink.streaming.api.functions.python.eventtime
    delay = FlinkDuration.of_millis(delay_ms(lateness_us))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(delay)._j_watermark_strategy
    option = flink.table.api.config.ExecutionConfigOptions.TABLE_EXEC_SOURCE_IDLE_TIMEOUT
    timeout = clocked._j_data_stream.getExecutionEnvironment().getConfiguration().get(option)
    if timeout.toMillis() > 0:
        strategy = strategy.withIdleness(timeout)
    marked = clocked._j_data_stream.assignTimestampsAndWatermarks(
        strategy.withTimestampAssigner(jvm.CustomTimestampAssigner())
    )
    marked = (
        marked.name(f"{label}-watermarks")
        .uid(f"{label}-watermarks")
        .setParallelism(clocked._j_data_stream.getParallelism())
    )
    packed = marked.map(jvm.RemoveTimestampMapFunction(), packed_type().get_java_type_info())
    return named(DataStream(packed), f"{label}-packed", like=clocked)
