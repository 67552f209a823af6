"""Kafka topics in and out, by Flink's own connector (`flink-sql-connector-kafka`, a jar in `pipeline.jars`).

    seismic = read_topic(tables, "localhost:9092", "seismic", lateness="5 s")
    pairs = timing_join(seismic, acoustic, ..., payloads=JsonPayload({...}), watermarks="source")
    out = tables.create_statement_set()
    out.add_insert(topic_sink(pairs, brokers, "pairs"), pairs)
    out.add_insert(topic_sink(refused, brokers, "dead-letters"), refused)
    out.execute()

Rows are written in transactions that end with Flink's checkpoints: a consumer with `isolation.level=read_committed`
sees each row once, a checkpoint later.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, Table, TableDescriptor
from pyflink.table.expressions import col, lit

from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import AtLeastOnceWarning, Code
from whenabouts.core.hosting.brokers import require_broker
from whenabouts.core.hosting.element_watermark import delay_ms
from whenabouts.core.runtime.option_checks import columns_of
from whenabouts.flink_plugin.runtime_mode import is_streaming

COMMIT_WITHIN_MS = 900_000
"""How long a transaction may stay open: brokers allow 15 minutes by default. A job that is down for longer loses the
rows that it has written and not committed."""


def read_topic(
    tables: StreamTableEnvironment,
    brokers: str,
    topic: str,
    *,
    lateness: Duration | None = None,
    wait: Duration = "10 s",
    **options: str,
) -> Table:
    """The records of a topic from its beginning: `value` (bytes), `timestamp`, `partition`, `offset`.

    `brokers`: `host:port`, several with commas between them. `lateness`: how long after its `t_max` a record may have
    been written, by the topic's own timestamps. Flink then follows each partition's watermark, so that no row is late
    because one partition is read faster than another; pass `watermarks="source"` to the operation that takes the Table.
    None: the watermark follows the rows as they are read. `options`: of the connector, such as
    `**{"scan.watermark.idle-timeout": "1 min"}`, or `**{"scan.bounded.mode": "latest-offset"}` for the topic's present
    content. Pass the Table to an operation together with `payloads`. Raises EngineError WA-3041 if no broker
    answers within `wait`.
    """
    require_broker(brokers, wait)
    schema = (
        Schema.new_builder()
        .column("value", DataTypes.BYTES())
        .column_by_metadata("timestamp", DataTypes.TIMESTAMP_LTZ(3), is_virtual=True)
        .column_by_metadata("partition", DataTypes.INT(), is_virtual=True)
        .column_by_metadata("offset", DataTypes.BIGINT(), is_virtual=True)
    )
    if lateness is not None:
        behind = lit(delay_ms(parse_non_negative(lateness, name="lateness"))).milli
        schema = schema.watermark("timestamp", col("timestamp") - behind)
    chosen = {
        "properties.bootstrap.servers": brokers,
        "topic": topic,
        "scan.startup.mode": "earliest-offset",
    }
    descriptor = TableDescriptor.for_connector("kafka").schema(schema.build()).format("raw")
    for name, value in (chosen | options).items():
        descriptor = descriptor.option(name, value)
    return tables.from_descriptor(descriptor.build())


def topic_sink(
    rows: Table, brokers: str, topic: str, *, key: str | Sequence[str] = (), **options: str
) -> TableDescriptor:
    """Where `rows` can be inserted: a topic that takes each as a record of JSON, exactly once.

    `key`: the column or columns of the record's key. The job needs checkpoints: rows become visible with them. A stream
    without them is warned of (`AtLeastOnceWarning`, WA-2054). The broker distinguishes writers by
    `sink.transactional-id-prefix`, by default the topic's name: jobs that write to one topic need different ones. Times
    are written with microseconds, bytes as base64. Raises QueryError WA-2006 for a `key` that names no columns.
    """
    keys = columns_of("key", key)
    chosen = {
        "properties.bootstrap.servers": brokers,
        "topic": topic,
        "value.format": "json",
        "value.json.timestamp-format.standard": "ISO-8601",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": topic,
        "properties.transaction.timeout.ms": str(COMMIT_WITHIN_MS),
    }
    if keys:
        chosen |= {"key.format": "json", "key.fields": ";".join(keys), "key.json.timestamp-format.standard": "ISO-8601"}
    chosen |= options
    if chosen["sink.delivery-guarantee"] == "exactly-once":
        _warn_without_checkpoints(rows)
    descriptor = TableDescriptor.for_connector("kafka").schema(_columns_of(rows))
    for name, value in chosen.items():
        descriptor = descriptor.option(name, value)
    return descriptor.build()


def _warn_without_checkpoints(rows: Table) -> None:
    """A sink commits with checkpoints; without them readers wait for the end of the input, which a stream has not."""
    if is_streaming([rows]) and not rows._t_env.get_config().get("execution.checkpointing.interval", ""):
        warnings.warn(
            f"{Code.AT_LEAST_ONCE}: the sink commits rows with checkpoints, and the job makes none: readers see no row "
            "before the input ends, and a restart starts over (hint: call env.enable_checkpointing(10_000) before, or "
            "choose **{'sink.delivery-guarantee': 'at-least-once'})",
            AtLeastOnceWarning,
            stacklevel=3,
        )


def _columns_of(rows: Table) -> Schema:
    """A Table's columns, none a time attribute. (PyFlink reports every TIMESTAMP with milliseconds.)"""
    types = get_gateway().jvm.org.apache.flink.table.types
    row = rows._j_table.getResolvedSchema().toPhysicalRowDataType().getLogicalType()
    plain = types.logical.utils.LogicalTypeUtils.removeTimeAttributes(row)
    schema = Schema.new_builder()
    schema._j_builder.fromRowDataType(types.utils.TypeConversions.fromLogicalToDataType(plain))
    return schema.build()
