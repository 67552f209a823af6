"""Two Kafka topics joined on Flink: pairs to a third topic, what nobody could use to a fourth, each row once.

    flink run -pyexec python -pyclientexec python -C file:///PATH/TO/flink-sql-connector-kafka-5.0.0-2.2.jar \\
        -py examples/kafka_flink.py localhost:9092

Topics and columns are those of `kafka_spark.py`. What is written becomes visible, to consumers with
`isolation.level=read_committed`, with each checkpoint.
"""

from __future__ import annotations

import sys

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

from whenabouts.core import Interval, JsonPayload, Lateness, within
from whenabouts.flink_plugin import rejects, timing_join
from whenabouts.flink_plugin.kafka import read_topic, topic_sink

EVENT = JsonPayload(
    {"id": "int64", "region": "string", "t_min": "int64", "t_max": "int64"}, received="timestamp", max_ahead="1 day"
)


def main(brokers: str) -> None:
    """Submit the job; it runs until it is cancelled."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    tables = StreamTableEnvironment.create(env)
    pairs = timing_join(
        read_topic(tables, brokers, "seismic", lateness="5 s"), read_topic(tables, brokers, "acoustic", lateness="5 s"),
        on="region", watermarks="inputs",
        payloads=EVENT, dedupe="id",  # a producer that is not idempotent sends again what was not acknowledged
        left_time=Interval("t_min", "t_max", max_uncertainty="500 ms"),
        right_time=Interval("t_min", "t_max", max_uncertainty="2 s"),
        condition=within("2 s", confidence=0.6),
        lateness=Lateness(left="5 s", right="5 s"),
    )  # fmt: skip
    refused = rejects(pairs)
    out = tables.create_statement_set()
    out.add_insert(topic_sink(pairs, brokers, "pairs", key=("id_left", "id_right")), pairs)
    out.add_insert(topic_sink(refused, brokers, "dead-letters"), refused)
    out.execute()


if __name__ == "__main__":
    main(sys.argv[1])
