"""Pairs of seismic and acoustic detections, from Parquet files to a table of JSON files: `job.py INPUT OUTPUT`.

INPUT has the folders `seismic` and `acoustic`, with the columns `station`, `t_min`, `t_max` (microseconds). The job
runs unchanged on Kubernetes (`deployment.yaml`), with `flink run`, and in a local Flink.
"""

from __future__ import annotations

import sys

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

import whenabouts as wa
from whenabouts.flink_plugin import read_files, table_of

SINK = """
CREATE TABLE found (station BIGINT, left_at BIGINT, right_at BIGINT, probability DOUBLE, event_time TIMESTAMP(3))
WITH ('connector' = 'filesystem', 'path' = '{output}', 'format' = 'json')
"""
INSERT = "INSERT INTO found SELECT station, t_max_left, t_max_right, probability, event_time FROM pairs"


def main(source: str, output: str) -> None:
    """Run the job to the end of the files."""
    env = StreamExecutionEnvironment.get_execution_environment()
    tables = StreamTableEnvironment.create(env)
    seismic, acoustic = (read_files(env, f"{source}/{name}", name=name) for name in ("seismic", "acoustic"))
    time = wa.Interval("t_min", "t_max", max_uncertainty="2 s")
    pairs = wa.timing_join(
        seismic,
        acoustic,
        on="station",
        left_time=time,
        right_time=time,
        condition=wa.within("2 s", confidence=0.6),
        lateness="1 min",
        name="pairs",
    )
    tables.create_temporary_view("pairs", table_of(pairs, tables))
    tables.execute_sql(SINK.format(output=output))
    tables.execute_sql(INSERT).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
