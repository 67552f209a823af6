"""Pairs of two Tables into a third, for `test_recovery_of_tables` to kill: FOLDER PARALLELISM BUCKETS [CHECKPOINT].

The Tables are folders of CSV files that the job watches for further files; it never ends by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyflink.table import StreamTableEnvironment

import whenabouts as wa
from whenabouts.flink_plugin import local_environment

TIME = wa.Interval("t_min", "t_max", max_uncertainty="4s")
JOIN = {
    "on": "k",
    "left_time": TIME,
    "right_time": TIME,
    "condition": wa.within("3s", confidence=0.4),
    "lateness": "1h",  # files are read in any order
}


def main(folder: Path, parallelism: int, buckets: int, checkpoint: str | None) -> None:
    """Run the job until it fails or is killed."""
    recovery = {} if checkpoint is None else {"execution__state_recovery__path": checkpoint}
    env = local_environment(
        parallelism,
        execution__checkpointing__interval="100 ms",
        execution__checkpointing__dir=(folder / "checkpoints").as_uri(),
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        table__exec__uid__generation="ALWAYS",
        restart_strategy__type="none",
        **recovery,
    )
    tables = StreamTableEnvironment.create(env)
    for name in ("left", "right"):
        tables.execute_sql(
            f"CREATE TABLE {name}_rows (t_min BIGINT, t_max BIGINT, k BIGINT, id BIGINT) WITH ('connector' = "
            f"'filesystem', 'format' = 'csv', 'path' = '{(folder / name).as_uri()}', "
            "'source.monitor-interval' = '100 ms')"
        )
    sides = (tables.from_path(f"{name}_rows") for name in ("left", "right"))
    tables.create_temporary_view("pairs", wa.timing_join(*sides, **JOIN, buckets=buckets, name="pairs"))
    tables.execute_sql(
        "CREATE TABLE found (id_left BIGINT, id_right BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', "
        f"'path' = '{(folder / 'out').as_uri()}', 'sink.rolling-policy.rollover-interval' = '100 ms', "
        "'sink.rolling-policy.check-interval' = '50 ms')"
    )
    tables.execute_sql("INSERT INTO found SELECT id_left, id_right FROM pairs").wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None)
