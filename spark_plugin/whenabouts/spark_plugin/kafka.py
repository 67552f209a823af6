"""Kafka topics in and out, by Spark's own connector (`spark-sql-kafka-0-10`, which `--packages` brings).

    seismic = read_topic(spark, "localhost:9092", "seismic")
    pairs = timing_join(seismic, acoustic, ..., payloads=JsonPayload({...}))
    write_with_rejects(pairs, topic_writer(brokers, "pairs", key=["id_left", "id_right"]),
                       topic_writer(brokers, "dead-letters"), checkpoint="...").start()

Spark's sink is at-least-once: a repeated micro-batch writes the same rows again. A consumer that uses each key once
sees each row once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, struct, to_json

from whenabouts.core.durations import Duration
from whenabouts.core.hosting.brokers import require_broker
from whenabouts.core.runtime.option_checks import columns_of
from whenabouts.spark_plugin.column_names import quoted

_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # Spark's own format has milliseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


def read_topic(
    spark: SparkSession, brokers: str, topic: str, *, stream: bool = True, wait: Duration = "10 s", **options: str
) -> DataFrame:
    """The records of a topic from its beginning: `value`, `key`, `partition`, `offset`, `timestamp` and the other
    columns of Spark's source.

    `brokers`: `host:port`, several with commas between them. `stream`: False for the topic's present content.
    `options`: of the connector, such as `maxOffsetsPerTrigger="100000"`. Pass the DataFrame to an operation together
    with `payloads`. Raises EngineError WA-3041 if no broker answers within `wait`.
    """
    require_broker(brokers, wait)
    chosen = {"kafka.bootstrap.servers": brokers, "subscribe": topic, "startingOffsets": "earliest", **options}
    return (spark.readStream if stream else spark.read).format("kafka").options(**chosen).load()


def topic_writer(
    brokers: str, topic: str, *, key: str | Sequence[str] = (), **options: str
) -> Callable[[DataFrame, int], None]:
    """A function that writes a DataFrame to a topic as JSON, one record per row, for `write_with_rejects`.

    `key`: the column or columns that identify a row; they are the record's key, by which consumers recognise rows that
    a repeated micro-batch writes again. `options`: of the connector. Times are written with microseconds, bytes as
    base64. Raises QueryError WA-2006 for a `key` that names no columns.
    """
    keys = columns_of("key", key)
    chosen = {"kafka.bootstrap.servers": brokers, "topic": topic, **options}

    def write(rows: DataFrame, number: int) -> None:
        names = to_json(struct(*(col(quoted(name)) for name in keys)), _TIMES) if keys else lit(None).cast("string")
        value = to_json(struct(*(col(quoted(name)) for name in rows.columns)), _TIMES)
        rows.select(names.alias("key"), value.alias("value")).write.format("kafka").options(**chosen).save()

    return write
