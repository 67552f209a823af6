"""What a user calls: DataFrames in, a DataFrame out, batch or streaming as the inputs are.

The way of a row: `packing` (rows to blobs, by bucket) -> `batch_host` or `streaming_host` (the operator) ->
`tagged_rows` (output, rejects, counts) -> here, where they part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Unpack

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from whenabouts.core.coalescing.operator import Coalesce, CoalesceOptions
from whenabouts.core.errors import Code, EngineError, QueryError
from whenabouts.core.hosting.column_case import as_spelled, check_distinct
from whenabouts.core.hosting.host import Hosting, require_lateness
from whenabouts.core.hosting.input_checks import check_hosting, check_input, check_inputs, check_query, check_streams
from whenabouts.core.hosting.micro_batch_watermark import delay_ms
from whenabouts.core.hosting.signatures import takes_options_of
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.temporal_queries.aggregate import TemporalAggregate, TemporalAggregateOptions
from whenabouts.core.temporal_queries.join import TemporalJoin, TemporalJoinOptions
from whenabouts.core.timing_join.query import TimingJoin, TimingJoinOptions
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.window_join.settings import TimesByStream, WindowJoinOptions
from whenabouts.core.wrappers.deduplication import Identifying, deduplicated
from whenabouts.core.wrappers.payload_decoding import Payloads, decoded
from whenabouts.core.wrappers.state_limit import StateLimit
from whenabouts.spark_plugin.arrow_types import arrow_schema
from whenabouts.spark_plugin.batch_host import BatchHost
from whenabouts.spark_plugin.checkpoints import identities
from whenabouts.spark_plugin.column_types import check_types
from whenabouts.spark_plugin.observing import observe_counts
from whenabouts.spark_plugin.packing import ARRIVED, FLUSH, PACKED, EndMarkers, Packer
from whenabouts.spark_plugin.plans import watermarks
from whenabouts.spark_plugin.results import Result, marked, result_of, results_in
from whenabouts.spark_plugin.sessions import ignores_case, prepare
from whenabouts.spark_plugin.streaming_host import BucketProcessor
from whenabouts.spark_plugin.tagged_rows import TAGGED
from whenabouts.spark_plugin.unit_alarm import alarm_of
from whenabouts.spark_plugin.workers import Stage, code_of_worker_first

A_DATAFRAME = "give a DataFrame of Spark: spark.createDataFrame(frame), spark.read..., spark.readStream..."
A_RESULT = "give the DataFrame that a function of this package returned"


@takes_options_of(TimingJoin, time_slots="auto")
def timing_join(
    left: DataFrame,
    right: DataFrame,
    *,
    buckets: int | None = None,
    bound: StateLimit | None = None,
    dedupe: Identifying | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[TimingJoinOptions],
) -> DataFrame:
    """Pairs of a left and a right row for which `P(condition) >= confidence`, in batch or as a stream.

    Columns: the left ones, the right ones (`on` once; equal names get `suffixes`), `probability` (double) unless
    `probability=False`, and on streams `event_time` (the larger `t_max` of the pair), which carries the watermark, so
    that windows and further stateful operators can follow in append mode. Rows that cannot be used are in
    `rejects(pairs)`; no row is dropped silently.

    `how` (`inner`, `left_outer`, `right_outer`, `full_outer`, `left_semi`, `left_anti`) says what becomes of rows
    without a partner; `best` (`left`, `right`, `both`) keeps the most probable partner only. Columns of a missing
    partner are null; semi and anti give the left columns only. In every mode but plain inner `event_time` is the
    instant that settled the row: it is older than the watermark and carries none (see
    `whenabouts.core.timing_join.modes`).

    A streaming query that is restarted from its checkpoint may have another confidence, not less than the
    `min_confidence` that it was started with (the confidence itself, if none was given).

    A stream needs `lateness`, how far a side's rows may lag: it is the watermark; do not call `withWatermark`.
    `buckets`: into how many parts the keys are split, `spark.sql.shuffle.partitions` unless said otherwise; it is the
    limit of parallelism, and fixed for the life of a checkpoint, as Spark fixes the partitions. `bound`: a limit on the
    rows that a bucket of a stream holds. `dedupe`: columns that identify a row, where sources deliver rows again
    (`whenabouts.core.wrappers.deduplication`). `payloads`: how rows are read that hold records as bytes, as those of
    Kafka do (`whenabouts.core.wrappers.payloads`).

    `time_slots` spreads the rows of one key over the buckets by time: "auto" where there is no `on` and the query
    allows it, a width ("10 s") where a key is so frequent that one bucket cannot follow, None never. One side's rows
    are copied `reach / width + 1` times, `reach` being the stretch in which partners lie. Modes that decide about the
    rows of both sides (`full_outer`, `best="both"`) refuse a width (WA-2041).

    In batch a bucket that does not fit into a worker's memory is taken in piecemeal, in order of time, if the condition
    has two ends and intervals a `max_uncertainty`: else give more `buckets`.

    Raises: InputError (WA-1xxx) for columns, QueryError (WA-2xxx) for options, among them WA-2051 for streams without
    lateness and WA-2052 for watermarks that cannot work together, EngineError WA-3004 when one side is a stream and the
    other is not, WA-3002 for an unfit Spark. What a checkpoint and a sink can be is checked by `write_stream`.

    Cost: packing and shuffling both sides once, then as `whenabouts.core.local.timing_join` in parallel over the
    buckets.
    """
    options.setdefault("time_slots", "auto")
    return run(TimingJoin(**options), [left, right], buckets=buckets, bound=bound, dedupe=dedupe, payloads=payloads)


@takes_options_of(WindowJoin, without=("times",), time_slots="auto")
def window_join(
    frames: Mapping[str, DataFrame],
    *,
    time: TimesByStream,
    buckets: int | None = None,
    bound: StateLimit | None = None,
    dedupe: Identifying | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[WindowJoinOptions],
) -> DataFrame:
    """Combinations of one row from each of several DataFrames that lie in each other's windows, batch or streaming.

    Arguments and columns are those of `whenabouts.core.local.window_join`; `lateness`, `buckets`, `time_slots`,
    `bound`, `dedupe` and rejected rows as in `timing_join`. On a stream `strategy="bew"` (what `auto` takes) gives a
    combination with the newest of its rows, and `t_last` carries the watermark on; `few` waits until the watermark has
    passed all of them, which costs less at high rates, and its rows carry none. A predicate is a condition in SQL,
    the same on every engine, or a function that travels to the workers by pickle and sees Arrow arrays.

    Raises: as `timing_join`; QueryError WA-2006 where `frames` and `time` name other streams, WA-2004 for windows that
    leave two streams without a bound, WA-2061 to WA-2065 for windows and predicates, WA-2091 to WA-2093 for
    conditions in SQL. Cost: packing and shuffling each input once, then as `whenabouts.core.local.window_join` in
    parallel over the buckets.
    """
    options.setdefault("time_slots", "auto")
    check_streams(frames, (DataFrame,), A_DATAFRAME)
    query = WindowJoin.of(tuple(frames), time, **options)
    return run(
        query, [frames[name] for name in query.inputs], buckets=buckets, bound=bound, dedupe=dedupe, payloads=payloads
    )


@takes_options_of(Coalesce)
def coalesce(
    frame: DataFrame,
    *,
    buckets: int | None = None,
    bound: StateLimit | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[CoalesceOptions],
) -> DataFrame:
    """Consecutive rows of a group whose values are equivalent, merged to one, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.coalesce`; `lateness`, `buckets`, `bound` and rejected
    rows as in `timing_join`. On a stream an extent comes out once the watermark has passed its `window_end`, and
    without a window a run once the next one has begun: rows that arrive out of order inside the lateness correct it
    before. `eager` keeps runs in state and `lazy` rows; the result is the same. A predicate travels to the workers by
    pickle.

    A window of `rows` of all groups together (no `per_group`) cannot be split by group: all rows go through one bucket,
    one core, and their last `rows` must fit into one task's memory.

    Raises: as `timing_join`; QueryError WA-2006, WA-2021, WA-2022, InputError WA-1023. Cost: packing and shuffling
    once, then as `whenabouts.core.local.coalesce` in parallel over the buckets.
    """
    return run(Coalesce(**options), [frame], buckets=buckets, bound=bound, payloads=payloads)


@takes_options_of(TemporalAggregate)
def temporal_aggregate(
    frame: DataFrame,
    *,
    buckets: int | None = None,
    bound: StateLimit | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[TemporalAggregateOptions],
) -> DataFrame:
    """For each group, how long its coalesced tuples last in the extents of a window, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.temporal_aggregate` (`where` is an Arrow expression, which
    travels to the workers by pickle); `lateness`, `buckets`, rejected rows and when rows come out as in `coalesce`.
    """
    return run(TemporalAggregate(**options), [frame], buckets=buckets, bound=bound, payloads=payloads)


@takes_options_of(TemporalJoin)
def temporal_join(
    left: DataFrame,
    right: DataFrame,
    *,
    buckets: int | None = None,
    bound: StateLimit | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[TemporalJoinOptions],
) -> DataFrame:
    """Pairs of coalesced tuples of two windows by when they hold, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.temporal_join` (`matches` travels to the workers by
    pickle); `lateness` (of either side), `buckets`, rejected rows and when rows come out as in `coalesce`. Tuples are
    spread over buckets by the group columns that `on` names; without any, one bucket does the work.
    """
    return run(TemporalJoin(**options), [left, right], buckets=buckets, bound=bound, payloads=payloads)


def run(
    query: Query,
    inputs: Sequence[DataFrame],
    *,
    buckets: int | None = None,
    end_of_input: DataFrame | None = None,
    bound: StateLimit | None = None,
    dedupe: Identifying | None = None,
    payloads: Payloads | None = None,
) -> DataFrame:
    """The output of any query over one DataFrame for each of its inputs.

    `end_of_input`: a stream whose first row means that all inputs have ended: results that still waited for the
    watermark come out (see `end_of_input.run_to_end`). An input with a boolean column `_wa_end_of_input` tells its own
    end by a flush row, in which that is true. Errors as `timing_join`, and QueryError WA-2006 for a wrong
    number of inputs or buckets.
    """
    check_query(query)
    check_inputs(query, inputs, (DataFrame,), A_DATAFRAME)
    check_hosting(buckets, bound)
    _require_lateness(query, inputs)
    query = decoded(deduplicated(query, dedupe), payloads)
    return tagged(query, inputs, buckets=buckets, end_of_input=end_of_input, bound=bound).output


def _require_lateness(query: Query, inputs: Sequence[DataFrame]) -> None:
    """Refuse streams without lateness. (A mix of streams and batches is refused later.)"""
    if all(df.isStreaming for df in inputs):
        require_lateness(query)


def rejects(result: DataFrame) -> DataFrame:
    """The rows that the query giving `result` did not process: `input`, `code`, `reason`, and their own columns.

    `result` is what a function of this package returned, or a DataFrame made from it. Reading both `result` and this
    runs the query twice, each read on its own: on a stream use `write_with_rejects`. Raises QueryError WA-2006 where
    the plan of `result` holds no query of ours, or several.
    """
    check_input("result", result, (DataFrame,), A_RESULT)
    return result_of(result).rejects


def counts(result: DataFrame) -> DataFrame:
    """Counts by `name` (rows_in = rows_processed + rows_rejected, and those of the operator), one row for each step."""
    check_input("result", result, (DataFrame,), A_RESULT)
    return result_of(result).counts


def write_with_rejects(
    result: DataFrame,
    write_rows: Callable[[DataFrame, int], None],
    write_rejects: Callable[[DataFrame, int], None],
    write_counts: Callable[[DataFrame, int], None] | None = None,
    *,
    checkpoint: str | None = None,
) -> DataStreamWriter:
    """A writer of a stream's rows and rejects from one run: set trigger (and checkpoint) on it and call `start()`.

    The functions get a batch DataFrame and the batch's number, as in `foreachBatch`; after a failure a batch comes
    again with the same number. `checkpoint` is checked as by `write_stream`, whose errors are raised. Raises QueryError
    WA-2006 if `result` is no stream (in batch, write both).
    """
    check_input("result", result, (DataFrame,), A_RESULT)
    if not result.isStreaming:
        raise QueryError(Code.BAD_OPTION, "write_with_rejects was given a batch", "write result and rejects(result)")
    source = result_of(result)
    hosting = source.hosting  # over Spark Connect the function travels to the server, where no DataFrame may go

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            with code_of_worker_first():
                here = Result(batch, hosting)
                write_rows(here.output, number)
                write_rejects(here.rejects, number)
                if write_counts is not None:
                    write_counts(here.counts, number)
        finally:
            batch.unpersist()

    if checkpoint is None:
        return source.tagged.writeStream.foreachBatch(write)
    check_checkpoint([source], checkpoint)
    return source.tagged.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)


def write_stream(
    rows: DataFrame, checkpoint: str, *, of: DataFrame | None = None, output_mode: str = "append"
) -> DataStreamWriter:
    """`rows.writeStream` with its checkpoint set, once it is sure that the query can start from there.

    `rows`: what a function of this package returned, or a DataFrame made from it. `of`: the former, where the plan of
    `rows` does not show it (a view over Spark Connect, a checkpoint()). Set sink and trigger on the writer and call
    `start()`.

    Raises: QueryError WA-2053 for another output mode than append, WA-2006 if `rows` is no stream or none of ours;
    EngineError WA-3032 where another query wrote the checkpoint, with all that differs, WA-3003 for other buckets or a
    layout of another version. Rows that the state lacks for a wider query are found in its first step (WA-3006).

    Cost: one small Spark job over the checkpoint, which reads a row for each bucket.
    """
    check_input("rows", rows, (DataFrame,), A_RESULT)
    if str(output_mode).lower() != "append":
        raise QueryError(
            Code.OUTPUT_MODE,
            f"output mode {output_mode!r}: rows come out once, when they are final, and never change",
            'use "append"; to have a table of the latest rows, merge them into it in foreachBatch',
        )
    if not rows.isStreaming:
        raise QueryError(Code.BAD_OPTION, "write_stream was given a batch", "use rows.write")
    check_checkpoint(results_in(rows) or [result_of(rows)] if of is None else [result_of(of)], checkpoint)
    return rows.writeStream.outputMode("append").option("checkpointLocation", checkpoint)


def check_checkpoint(results: Sequence[Result], checkpoint: str) -> None:
    """Raise as `write_stream` unless the queries of one stream can start from a checkpoint."""
    for found in identities(results[0].tagged.sparkSession, checkpoint):
        refusals = [_refusal(result, found) for result in results]
        for refusal in refusals:
            if refusal is not None and None not in refusals:
                raise refusal


def _refusal(result: Result, found: str) -> EngineError | None:
    try:
        result.hosting.identity.check(found)
    except EngineError as refusal:
        return refusal
    return None


def tagged(
    query: Query,
    inputs: Sequence[DataFrame],
    *,
    buckets: int | None = None,
    end_of_input: DataFrame | None = None,
    bound: StateLimit | None = None,
) -> Result:
    """The tagged rows of a query; `run` with everything still in one DataFrame."""
    streaming = _is_streaming(query, inputs)
    session = inputs[0].sparkSession
    prepare(session, streaming=streaming)
    if streaming:
        _check_watermarks(query, inputs)
    if buckets is None:
        buckets = int(session.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    schemas = tuple(arrow_schema(df.drop(FLUSH), name) for df, name in zip(inputs, query.inputs, strict=True))
    flushed = any(FLUSH in df.columns for df in inputs)
    if ignores_case(session):
        query, schemas = as_spelled(query, schemas)
    hosting = Hosting(query, schemas, buckets, streaming, bound, flushed)
    operator = hosting.operator()  # refuses here, in the driver, what cannot work
    check_types(query, operator, inputs, schemas)
    if ignores_case(session):
        check_distinct(operator.output_schema.names, "the result would have columns")
    alarm = alarm_of(session)
    packed = [
        _numbered(df).mapInArrow(Stage(f"{name} of {query.described}", Packer(hosting, place, alarm).pack), PACKED)
        for place, (name, df) in enumerate(zip(query.inputs, inputs, strict=True))
    ]
    if streaming:
        return marked(_stream(hosting, packed, end_of_input), hosting)
    rows = reduce(DataFrame.union, packed).repartition("bucket").sortWithinPartitions("bucket", "first")
    return marked(rows.mapInArrow(Stage(query.described, BatchHost(hosting).run), TAGGED), hosting)


def _stream(hosting: Hosting, packed: list[DataFrame], end: DataFrame | None) -> DataFrame:
    """Each side moves the clock by its own lateness; then the clock column goes, and with it Spark's late filter.

    Late rows are the operator's to reject.
    """
    sides = [
        df.withWatermark("clock", f"{delay_ms(lateness)} milliseconds")
        for df, lateness in zip(packed, hosting.query.lateness_us, strict=True)
    ]
    if end is not None:
        markers = Stage(f"end of {hosting.query.described}", EndMarkers(hosting.buckets).mark)
        sides.append(end.mapInArrow(markers, PACKED))
    rows = reduce(DataFrame.union, [side.select("bucket", *ARRIVED) for side in sides])
    tagged = rows.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=BucketProcessor(hosting),
        outputStructType=TAGGED,
        outputMode="Append",
        timeMode="EventTime",
    )
    return observe_counts(tagged, hosting.query)


def _numbered(df: DataFrame) -> DataFrame:
    """The columns by number, and `FLUSH` last: mapInArrow asks for each by name, and fails on a dot or a backtick."""
    numbered = df.toDF(*(FLUSH if name == FLUSH else str(place) for place, name in enumerate(df.columns)))
    return numbered.select(*sorted(numbered.columns, key=lambda name: name == FLUSH))


def _is_streaming(query: Query, inputs: Sequence[DataFrame]) -> bool:
    streaming = [df.isStreaming for df in inputs]
    if any(streaming) and not all(streaming):
        kinds = ["a stream" if stream else "a batch" for stream in streaming]
        told = ", ".join(f"{name} is {kind}" for name, kind in zip(query.inputs, kinds, strict=True))
        raise EngineError(Code.MIXED_INPUTS, told, "read all with spark.readStream, or all with spark.read")
    return streaming[0]


def _check_watermarks(query: Query, inputs: Sequence[DataFrame]) -> None:
    """Refuse watermarks that Spark would refuse only once the query runs, or that would lose rows."""
    for name, df in zip(query.inputs, inputs, strict=True):
        for own in results_in(df):
            raise QueryError(
                Code.WATERMARKS_CLASH,
                f"the {name} input is the output of another query, {own.hosting.query.described}",
                "Spark takes one watermark per stream: write its rows to a table and read them from there",
            )
        for column in watermarks(df):
            raise QueryError(
                Code.WATERMARKS_CLASH,
                f"the {name} input has a watermark of its own, on column {column!r}",
                "leave withWatermark out and give lateness=; after an aggregation or another stateful query, write its "
                "rows to a table and read them from there",
            )
    policy = inputs[0].sparkSession.conf.get("spark.sql.streaming.multipleWatermarkPolicy", "min")
    if len(inputs) > 1 and str(policy).lower() == "max":
        raise QueryError(
            Code.WATERMARKS_CLASH,
            "spark.sql.streaming.multipleWatermarkPolicy is max: rows of the slower input would be late",
            "set it to min, Spark's default",
        )
