"""Topics joined and coalesced on Flink: results to two more topics, what nobody could use to a third, each row once.

    flink run -pyexec python -pyclientexec python -C file:///PATH/TO/flink-sql-connector-kafka-5.0.0-2.2.jar \\
        -py examples/kafka_flink.py localhost:9092

Topics, columns and results are those of `kafka_spark.py`. What is written becomes visible, to consumers with
`isolation.level=read_committed`, with each checkpoint.
"""

from __future__ import annotations

import sys

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

import whenabouts as wa
from whenabouts.flink_plugin.kafka import read_topic, topic_sink

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


def main(brokers: str) -> None:
    """Submit the job; it runs until it is cancelled."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    tables = StreamTableEnvironment.create(env)
    seismic, acoustic = (read_topic(tables, brokers, topic, lateness="5 s") for topic in ("seismic", "acoustic"))
    pairs = wa.timing_join(
        seismic, acoustic, on="region", watermarks="source",
        payloads={"left": SEISMIC, "right": ACOUSTIC},
        deduplicate_by="id",  # a producer that is not idempotent sends again what was not acknowledged
        left_time=wa.Interval("t_min", "t_max", max_uncertainty="500 ms"),
        right_time=wa.Interval("t_min", "t_max", max_uncertainty="2 s"),
        condition=wa.within("2 s", confidence=0.6),
        lateness=wa.Lateness(left="5 s", right="5 s"),
    )  # fmt: skip
    levels = wa.coalesce(
        seismic, payloads=SEISMIC, time="t_max", group="region", values="level", lateness="5 s", watermarks="source"
    )
    out = tables.create_statement_set()
    for name, rows, key in (("pairs", pairs, ("id_left", "id_right")), ("levels", levels, ("region", "valid_from"))):
        out.add_insert(topic_sink(rows, brokers, name, key=key), rows)
        refused = wa.rejects(rows)
        own = {"sink.transactional-id-prefix": f"dead-letters-of-{name}"}
        out.add_insert(topic_sink(refused, brokers, "dead-letters", **own), refused)
    out.execute()


if __name__ == "__main__":
    main(sys.argv[1])
