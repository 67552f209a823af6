"""Topics joined and coalesced on Spark: results to two more topics, what nobody could use to a third.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3 examples/kafka_spark.py localhost:9092 DIR

`seismic` holds JSON, as `{"id": 7, "region": "r3", "t_min": 1700000000000000, "t_max": 1700000000400000, "level": 2}`,
and `acoustic` Avro records with the same columns but `level`: an event happened at some time from `t_min` to `t_max`,
in microseconds. Events of a region that with probability 0.6 or more lie within two seconds go to `pairs`. How long the
`level` of a region stayed the same goes to `levels`. Records that are none, late, reversed or dated into the future go
to `dead-letters` with a code and a reason. State and progress are in DIR: start it again, and it continues.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import whenabouts as wa
from whenabouts.spark_plugin import PrintProgress, write_with_rejects
from whenabouts.spark_plugin.kafka import read_topic, topic_writer

SEISMIC = wa.JsonPayload(
    {"id": "int64", "region": "string", "t_min": "int64", "t_max": "int64", "level": "int64"},
    received="timestamp", max_ahead="1 day",
)  # fmt: skip
ACOUSTIC = wa.AvroPayload(
    {
        "type": "record", "name": "acoustic",
        "fields": [
            {"name": "id", "type": "long"}, {"name": "region", "type": "string"},
            {"name": "t_min", "type": "long"}, {"name": "t_max", "type": ["null", "long"]},
        ],
    },
    received="timestamp", max_ahead="1 day",
)  # fmt: skip


def main(brokers: str, folder: str) -> None:
    """Run until it is stopped."""
    spark = SparkSession.builder.getOrCreate()
    spark.streams.addListener(PrintProgress())
    # A step of bounded size: what waits after an outage is taken in piece by piece, and state stays small.
    seismic, acoustic = (
        read_topic(spark, brokers, topic, maxOffsetsPerTrigger="5000") for topic in ("seismic", "acoustic")
    )
    pairs = wa.timing_join(
        seismic, acoustic, on="region",
        payloads={"left": SEISMIC, "right": ACOUSTIC},
        deduplicate_by="id",  # a producer that is not idempotent sends again what was not acknowledged
        left_time=wa.Interval("t_min", "t_max", max_uncertainty="500 ms"),
        right_time=wa.Interval("t_min", "t_max", max_uncertainty="2 s"),
        condition=wa.within("2 s", confidence=0.6),
        lateness=wa.Lateness(left="5 s", right="5 s"),
    )  # fmt: skip
    levels = wa.coalesce(seismic, payloads=SEISMIC, time="t_max", group="region", values="level", lateness="5 s")
    for name, rows, key in (("pairs", pairs, ["id_left", "id_right"]), ("levels", levels, ["region", "valid_from"])):
        writer = write_with_rejects(
            rows,
            topic_writer(brokers, name, key=key),
            topic_writer(brokers, "dead-letters"),
            checkpoint=f"{folder}/{name}",
        )
        writer.queryName(name).start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:3])
