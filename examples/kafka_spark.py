"""Two Kafka topics joined on Spark: pairs to a third topic, what nobody could use to a fourth.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3 examples/kafka_spark.py localhost:9092 DIR

`seismic` and `acoustic` hold JSON records as `{"id": 7, "region": "r3", "t_min": 1700000000000000, "t_max":
1700000000400000}`: an event happened at some time from `t_min` to `t_max`, in microseconds. The pairs that with
probability 0.6 or more lie within two seconds go to `pairs`; records that are no such JSON, late, reversed or dated
into the future go to `dead-letters` with a code and a reason. State and progress are in DIR: start it again, and it
goes on.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from whenabouts.core import Interval, JsonPayload, Lateness, within
from whenabouts.spark_plugin import timing_join, write_with_rejects
from whenabouts.spark_plugin.kafka import read_topic, topic_writer

EVENT = JsonPayload(
    {"id": "int64", "region": "string", "t_min": "int64", "t_max": "int64"}, received="timestamp", max_ahead="1 day"
)


def main(brokers: str, folder: str) -> None:
    """Run until it is stopped."""
    spark = SparkSession.builder.getOrCreate()
    pairs = timing_join(
        read_topic(spark, brokers, "seismic"), read_topic(spark, brokers, "acoustic"), on="region",
        payloads=EVENT, dedupe="id",  # a producer that is not idempotent sends again what was not acknowledged
        left_time=Interval("t_min", "t_max", max_uncertainty="500 ms"),
        right_time=Interval("t_min", "t_max", max_uncertainty="2 s"),
        condition=within("2 s", confidence=0.6),
        lateness=Lateness(left="5 s", right="5 s"),
    )  # fmt: skip
    writer = write_with_rejects(
        pairs,
        topic_writer(brokers, "pairs", key=["id_left", "id_right"]),
        topic_writer(brokers, "dead-letters"),
        checkpoint=f"{folder}/pairs",
    )
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:3])
