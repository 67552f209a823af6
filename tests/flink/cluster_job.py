"""A job that gets whenabouts from `-pyfs` alone: `flink run -pyfs whenabouts.zip -py cluster_job.py FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyflink.common import Encoder, Row, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, RollingPolicy

import whenabouts as wa
from whenabouts.flink_plugin import Blocks, read_files
from whenabouts.flink_plugin.row_streams import rows_of


def line(row: Row) -> str:
    """A pair, with the worker that saw it and the worker's path of the package."""
    return f"{row['id_left']} {row['id_right']} {os.getpid()} {wa.__file__}"


def main(folder: Path) -> None:
    """Run the job to its end."""
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (read_files(env, folder / name, name=name) for name in ("left", "right"))
    time: Any = {"left_time": wa.Point("t"), "right_time": wa.Point("t")}
    lateness = wa.Lateness(left="1 h", right="1 h")
    pairs = wa.timing_join(left, right, on="k", **time, condition=wa.within("1 s", confidence=1), lateness=lateness)
    assert isinstance(pairs, Blocks)
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder())
    sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
    rows_of(pairs).map(line, Types.STRING()).sink_to(sink.build())
    env.execute("shipped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
