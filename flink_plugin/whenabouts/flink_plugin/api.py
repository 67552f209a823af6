"""What a user calls: streams of blocks or rows in, such a stream out, with the job's own runtime mode.

The way of a row: `row_streams` (rows to blocks) -> `blocks` (elements to packed rows, by bucket) -> `bucket_calls`
(in process mode: calls in front of them) -> `bucket_host` (the operator) -> here, where output, rejects and
counts part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, Unpack
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyflink.common import Duration as FlinkDuration
from pyflink.common import TypeInformation, Types, WatermarkStrategy
from pyflink.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import Table

from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.element_watermark import delay_ms
from whenabouts.core.hosting.host import COUNTS, OUTPUT, REJECTED, Hosting, require_lateness, require_one_zone
from whenabouts.core.hosting.input_checks import check_hosting, check_inputs, check_query, check_streams
from whenabouts.core.hosting.signatures import takes_options_of
from whenabouts.core.runtime.option_checks import one_of, text
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.timing_join.query import TimingJoin, TimingJoinOptions
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.window_join.settings import TimesByStream, WindowJoinOptions
from whenabouts.core.wrappers.deduplication import Identifying, deduplicated
from whenabouts.core.wrappers.payload_decoding import Payloads, decoded
from whenabouts.flink_plugin.blocks import Blocks, ClockedPackFunction, PackFunction, ReadBlob, behind, named
from whenabouts.flink_plugin.bucket_calls import with_calls
from whenabouts.flink_plugin.bucket_host import BucketFunction
from whenabouts.flink_plugin.bucket_labels import groups_of, labels
from whenabouts.flink_plugin.job_names import require_free
from whenabouts.flink_plugin.retyping import zone_of
from whenabouts.flink_plugin.row_packing import Latency, hops, require_latency, set_bundles, threads
from whenabouts.flink_plugin.row_streams import as_given, blocks_of, environment_of, stream_of
from whenabouts.flink_plugin.wire import blob_type, by_bucket, packed_type, tagged_type

BUCKETS = 8
"""Buckets unless the user says otherwise. A constant, not a multiple of the parallelism: keys must find their state
again when a job is restored with another one. Each has a step for every block, which costs as much as thousands of rows
do: not more than needed."""

LOW_LATENCY_BUCKETS = 2
"""Buckets where `max_latency` is given: each has a step for every bundle, however few rows are in it. A constant for
the same reason."""

_TAG_NAMES = {OUTPUT: "output", REJECTED: "rejects", COUNTS: "counts"}

WATERMARKS = ("lateness", "inputs")

Form: TypeAlias = Blocks | Table | DataStream
"""What a query takes and gives."""

_FORMS = (Blocks, Table, DataStream)
_A_STREAM = "give a Table (tables.from_path(name)), a DataStream of named rows, or Blocks (read_files)"


@dataclass(frozen=True, eq=False)
class Result:
    """A query's operator in a job, and how to read what it gives."""

    operator: DataStream
    hosting: Hosting
    name: str
    buffer_ms: int | None
    """How long a network buffer behind it may wait; None: as long as in the rest of the job."""

    @property
    def title(self) -> str:
        """The name and the query, for Flink's plans and screens."""
        return titled(self.name, self.hosting.query)

    @cached_property
    def output(self) -> Blocks:
        """The output rows; the watermark goes on with them."""
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
        """What there is of one tag. (PyFlink lets a side output that nobody reads into the main one.)"""

        def of_tag(row: Any) -> Iterator[Any]:
            if row[0] == tag:
                yield read(bytes(row[1]))

        told = behind(self.operator.flat_map(of_tag, kind), _TAG_NAMES[tag], like=self.operator)
        return told if self.buffer_ms is None else told.set_buffer_timeout(self.buffer_ms)


_results: WeakKeyDictionary[Any, Result] = WeakKeyDictionary()


@takes_options_of(TimingJoin, time_slots="auto")
def timing_join(
    left: Form,
    right: Form,
    *,
    buckets: int | None = None,
    dedupe: Identifying | None = None,
    payloads: Payloads | None = None,
    watermarks: str = "lateness",
    name: str = "timing-join",
    **options: Unpack[TimingJoinOptions],
) -> Form:
    """Pairs of a left and a right row for which `P(condition) >= confidence`, as a stream or in batch.

    `left`, `right`: Tables, DataStreams of named rows, or `Blocks`, the fastest form; what comes back has the form of
    `left`. Columns: the left ones, the right ones (`on` once; equal names get `suffixes`), `probability` (double)
    unless `probability=False`, and on streams `event_time` (the larger `t_max` of the pair). In a Table `event_time`
    is the time attribute, under the operator's watermark, so that windows can follow. Rows that cannot be used are in
    `rejects(pairs)`; no row is dropped silently.

    Whether it is a stream or a batch, `execution.runtime-mode` says (AUTOMATIC is taken for a stream). `how`
    (`inner`, `left_outer`, `right_outer`, `full_outer`, `left_semi`, `left_anti`) says what becomes of rows without a
    partner; `best` (`left`, `right`, `both`) keeps the most probable partner only: see
    `whenabouts.core.timing_join.modes`. In every mode but plain inner `event_time` is the instant that settled the row:
    it is older than the watermark and is no time attribute.

    `watermarks`: `lateness` follows the greatest `t_max` of each input by its lateness, as on every engine, and a
    stream must say it (WA-2051); `inputs` keeps what the streams carry, which must then have event times (EngineError
    WA-3021 in the job where they have not), and needs no `lateness` unless it has an `idle_after`. A query that is
    restored may have another confidence, not less than the `min_confidence` that it was started with. `buckets`: into
    how many parts the keys are split (8); it is the limit of parallelism, and fixed for the life of a savepoint.
    `dedupe`: columns that identify a row, where sources deliver rows again (`whenabouts.core.wrappers.deduplication`).
    `payloads`: how rows are read that hold records as bytes, as those of Kafka do
    (`whenabouts.core.wrappers.payloads`). `name` begins the uid of every operator: each query of a job needs its own
    (WA-2191).

    `max_latency`: how long a row may take through the query, by the clock on the wall. Rows wait for others in bundles
    for two fifths of it and in front of the join for one more at most; the rest is for Flink's exchanges and the work
    itself. (Of `Blocks` only a lazy strategy lets rows wait.) Without it rows wait half a second at most for each
    bundle on their way. With it `buckets` is 2 unless given: say more where more than two tasks are to work. QueryError
    WA-2141 where it cannot be kept.

    `time_slots` spreads the rows of one key over the buckets by time: "auto" where there is no `on` and the query
    allows it, a width ("10 s") where a key is so frequent that one bucket cannot follow, None never. Modes that
    decide about the rows of both sides (`full_outer`, `best="both"`) refuse a width (WA-2041).

    Raises: InputError (WA-1xxx) for columns, QueryError (WA-2xxx) for options. Cost: packing and shuffling both sides
    once, then as `whenabouts.core.local.timing_join` in parallel over the buckets.
    """
    options.setdefault("time_slots", "auto")
    query = decoded(deduplicated(TimingJoin(**options), dedupe), payloads)
    latency = options.get("max_latency")
    return run(query, [left, right], buckets=buckets, watermarks=watermarks, name=name, max_latency=latency)


@takes_options_of(WindowJoin, without=("times",), time_slots="auto")
def window_join(
    streams: Mapping[str, Form],
    *,
    time: TimesByStream,
    buckets: int | None = None,
    dedupe: Identifying | None = None,
    payloads: Payloads | None = None,
    watermarks: str = "lateness",
    name: str = "window-join",
    max_latency: Duration | None = None,
    **options: Unpack[WindowJoinOptions],
) -> Form:
    """Combinations of one row from each of several streams that lie in each other's windows, in the form of the first.

    Arguments and columns are those of `whenabouts.core.local.window_join`; `lateness`, `buckets`, `dedupe`,
    `time_slots`, `watermarks`, `name`, `max_latency` and rejected rows as in `timing_join`. A predicate is a
    condition in SQL, the same on every engine, or a function that travels to the workers by pickle and sees Arrow
    arrays. Raises and costs: as `timing_join`; QueryError WA-2004 for windows that leave two streams without a bound,
    WA-2061 to WA-2065 for windows and predicates, WA-2091 to WA-2093 for conditions in SQL.
    """
    options.setdefault("time_slots", "auto")
    check_streams(streams, _FORMS, _A_STREAM)
    query = WindowJoin.of(tuple(streams), time, **options)
    inputs = [streams[stream] for stream in query.inputs]
    query_ = decoded(deduplicated(query, dedupe), payloads)
    return run(query_, inputs, buckets=buckets, watermarks=watermarks, name=name, max_latency=max_latency)


def run(
    query: Query,
    inputs: Sequence[Form],
    *,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "whenabouts",
    max_latency: Duration | None = None,
    payloads: Payloads | None = None,
) -> Form:
    """The output of any query over one stream for each of its inputs, in the form of the first; as `timing_join`."""
    check_query(query)
    query = decoded(query, payloads)
    _check(query, inputs, buckets, watermarks, name)
    env = environment_of(inputs[0])
    if _is_streaming(env):
        _check_lateness(query, watermarks)
    require_free(env, name, [stream_of(source) for source in inputs if not isinstance(source, Table)])
    result = hosted(query, inputs, buckets=buckets, watermarks=watermarks, name=name, max_latency=max_latency)
    output = as_given(result.output, inputs[0])
    _results[output] = result
    return output


def rejects(result: Form) -> Form:
    """The rows that the query giving `result` did not process: `input`, `code`, `reason`, and their own columns.

    They come from the same operator, in the form of `result`: nothing runs twice. Raises QueryError WA-2006 unless
    `result` is itself what a function of this package returned.
    """
    return as_given(result_of(result).rejects, result)


def metrics(result: Form) -> DataStream:
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
    inputs: Sequence[Form],
    *,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "whenabouts",
    max_latency: Duration | None = None,
) -> Result:
    """The operator of a query in the job of its inputs; `run` before output and rejects part."""
    env = environment_of(inputs[0])
    embedded, table_out = threads(env), isinstance(inputs[0], Table)
    gathered = not any(isinstance(source, Blocks) for source in inputs)
    latency = Latency.of(max_latency, hops=hops(threads=embedded, table_out=table_out))
    if all(isinstance(source, Blocks) for source in inputs):
        require_latency(env, latency)
    else:
        set_bundles(env, [source._t_env for source in inputs if isinstance(source, Table)], latency.bundle_ms)
    blocks = [
        blocks_of(source, f"{name}-{input}", event_time=watermarks == "inputs")
        for source, input in zip(inputs, query.inputs, strict=True)
    ]
    streaming = _is_streaming(env)
    buckets = buckets or (BUCKETS if max_latency is None else LOW_LATENCY_BUCKETS)
    hosting = Hosting(query, tuple(source.schema for source in blocks), buckets, streaming)
    operator = hosting.operator()  # refuses here, in the client, what cannot work
    zones = {zone_of(source) for source in inputs if isinstance(source, Table)}
    require_one_zone(query, operator, hosting.schemas, next(iter(zones - {None}), None))
    keys = labels(hosting.buckets, groups_of(env))
    sides = [
        _packed(source, hosting, place, keys, own_clock=watermarks == "lateness", name=name)
        for place, source in enumerate(blocks)
    ]
    if latency.buffer_ms is not None:
        sides = [side.set_buffer_timeout(latency.buffer_ms) for side in sides]
    rows = sides[0].union(*sides[1:]) if len(sides) > 1 else sides[0]
    function = BucketFunction(hosting, latency.operator_ms, gathers=gathered and max_latency is not None)
    keyed = with_calls(rows, keys, f"{name}-calls") if streaming and not embedded else by_bucket(rows)
    stream = keyed.process(function, tagged_type()).name(name).uid(name)
    stream = stream.set_description(titled(name, query))
    return Result(stream, hosting, name, latency.buffer_ms)


def titled(name: str, query: Query) -> str:
    """The name of a query in its job, and what it is."""
    return f"{name}: {query.described}"


def _packed(
    source: Blocks, hosting: Hosting, place: int, keys: Sequence[int], *, own_clock: bool, name: str
) -> DataStream:
    """Packed rows of one input under its watermark, read where its elements are: their order is kept."""
    label = f"{name}-{hosting.query.inputs[place]}"
    if not (own_clock and hosting.streaming):
        packed = source.stream.process(PackFunction(hosting, place, source.read, keys), packed_type())
        return named(packed, f"{label}-blocks", like=source.stream)
    clocked = source.stream.process(
        ClockedPackFunction(hosting, place, source.read, keys), Types.TUPLE([packed_type(), Types.LONG()])
    )
    clocked = named(clocked, f"{label}-blocks", like=source.stream)
    return _under_watermark(clocked, hosting.query.lateness_us[place], label)


def _under_watermark(clocked: DataStream, lateness_us: int, label: str) -> DataStream:
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
    marked = marked.uid(f"{label}-watermarks").setParallelism(clocked._j_data_stream.getParallelism())
    packed = marked.map(jvm.RemoveTimestampMapFunction(), packed_type().get_java_type_info())
    return named(DataStream(packed), f"{label}-packed", like=clocked)


def _check(query: Query, inputs: Sequence[Form], buckets: int | None, watermarks: str, name: str) -> None:
    """Raise InputError WA-1062 for what is no input, QueryError WA-2006 for options out of range."""
    check_inputs(query, inputs, _FORMS, _A_STREAM)
    check_hosting(buckets)
    one_of("watermarks", watermarks, WATERMARKS)
    text("name", name)


def _check_lateness(query: Query, watermarks: str) -> None:
    """Watermarks that the inputs carry imply how late rows may come; idle inputs are recognised by `lateness`."""
    if watermarks == "lateness" or query.idle_after_us is not None:
        require_lateness(query)


def _is_streaming(env: StreamExecutionEnvironment) -> bool:
    """What the job's `execution.runtime-mode` says. (AUTOMATIC is decided by Flink only when the job is submitted.)"""
    mode = env._j_stream_execution_environment.getConfiguration()
    text = str(mode.toMap().get("execution.runtime-mode"))
    return text.upper() != str(RuntimeExecutionMode.BATCH.name)
