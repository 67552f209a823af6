"""A query in Spark's plan: its inputs packed, by bucket, into the operator, batch or streaming as the inputs are.

The way of a row: `packing` (rows to blobs, by bucket) -> `batch_host` or `streaming_host` (the operator) ->
`tagged_rows` (output, rejects, counts) -> `results`, where they part; `batch_host` also gives the output alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from whenabouts.core.errors import Code, EngineError, QueryError
from whenabouts.core.hosting.column_case import as_spelled, check_distinct
from whenabouts.core.hosting.host import Hosting
from whenabouts.core.hosting.micro_batch_watermark import delay_ms
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.wrappers.state_limit import StateLimit
from whenabouts.spark_plugin.arrow_types import arrow_schema
from whenabouts.spark_plugin.column_types import check_types, with_own_end
from whenabouts.spark_plugin.observing import observe_counts
from whenabouts.spark_plugin.packing import ARRIVED, FLUSH, STREAMED, EndMarkers, Packer, packed_type
from whenabouts.spark_plugin.plans import watermarks
from whenabouts.spark_plugin.results import Result, marked, results_in
from whenabouts.spark_plugin.sessions import ignores_case, prepare
from whenabouts.spark_plugin.streaming_host import BucketProcessor
from whenabouts.spark_plugin.tagged_rows import TAGGED
from whenabouts.spark_plugin.unit_alarm import alarm_of
from whenabouts.spark_plugin.workers import Stage

_ALL_STREAMS = (
    "read all with spark.readStream, or all with spark.read; to look rows of a stream up in a table, call the "
    "operation in foreachBatch: docs/spark.md"
)


def tagged(
    query: Query,
    inputs: Sequence[DataFrame],
    *,
    buckets: int | None = None,
    end_of_input: DataFrame | None = None,
    state_limit: StateLimit | None = None,
) -> Result:
    """The tagged rows of a query: output, rejects and counts still in one DataFrame."""
    streaming = _is_streaming(query, inputs)
    session = inputs[0].sparkSession
    prepare(session, streaming=streaming)
    if streaming:
        _check_watermarks(query, inputs)
    inputs = [with_own_end(df, name) for df, name in zip(inputs, query.inputs, strict=True)]
    if buckets is None:
        buckets = _shuffle_partitions(session)
    schemas = tuple(arrow_schema(df.drop(FLUSH), name) for df, name in zip(inputs, query.inputs, strict=True))
    flushed = any(FLUSH in df.columns for df in inputs)
    if ignores_case(session):
        query, schemas = as_spelled(query, schemas)
    hosting = Hosting(query, schemas, buckets, streaming, state_limit, flushed)
    operator = hosting.operator()  # refuses here, in the driver, what cannot work
    check_types(query, operator, inputs, schemas)
    if ignores_case(session):
        check_distinct(operator.output_schema.names, "the result would have columns")
    alarm = alarm_of(session)
    columns = packed_type(hosting)
    packed = [
        _numbered(df).mapInArrow(Stage(f"{name} of {query.described}", Packer(hosting, index, alarm).pack), columns)
        for index, (name, df) in enumerate(zip(query.inputs, inputs, strict=True))
    ]
    if streaming:
        return marked(_stream(hosting, packed, end_of_input), hosting)
    rows = reduce(DataFrame.union, packed).repartition("bucket").sortWithinPartitions("bucket", "first")
    return marked(rows, hosting)


def _shuffle_partitions(session: SparkSession) -> int:
    """Raises QueryError WA-2151 for what is no number: Databricks also has "auto"."""
    given = session.conf.get("spark.sql.shuffle.partitions", "200") or "200"
    if not given.isascii() or not given.isdigit():
        raise QueryError(
            Code.BAD_SETTING,
            f"spark.sql.shuffle.partitions is {given!r}, and the number of buckets is fixed for a query's lifetime",
            "give buckets=, the number of cores for instance",
        )
    return int(given)


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
        sides.append(end.mapInArrow(markers, STREAMED))
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
    names = [FLUSH if name == FLUSH else str(index) for index, name in enumerate(df.columns)]
    in_order = sorted(names, key=lambda name: name == FLUSH)
    numbered = df.toDF(*names)
    return numbered if names == in_order else numbered.select(*in_order)


def _is_streaming(query: Query, inputs: Sequence[DataFrame]) -> bool:
    streaming = [df.isStreaming for df in inputs]
    if any(streaming) and not all(streaming):
        kinds = ["a stream" if stream else "a batch" for stream in streaming]
        kinds_of_inputs = ", ".join(f"{name} is {kind}" for name, kind in zip(query.inputs, kinds, strict=True))
        raise EngineError(Code.MIXED_INPUTS, kinds_of_inputs, _ALL_STREAMS)
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
