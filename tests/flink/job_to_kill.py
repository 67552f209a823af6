"""A streaming join over files into a file sink, for `test_recovery` to kill: FOLDER MODE PARALLELISM [CHECKPOINT].

`SPLITS_LOG` names the log of splits, `SPLITS` how many the job may begin before it stops to be killed (0: no limit),
`JOB_CALL` which join it is.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyflink.common import Encoder, Types
from pyflink.datastream.connectors.file_system import FileSink, RollingPolicy

import whenabouts as wa
from whenabouts.core import Interval, Lateness, between, within
from whenabouts.flink_plugin import asof_join, timing_join
from whenabouts.flink_plugin.blocks import Blocks
from whenabouts.flink_plugin.file_source import ReadSplit, read_files
from whenabouts.flink_plugin.mini_cluster import local_environment
from whenabouts.flink_plugin.row_streams import rows_of

TIME = Interval("t_min", "t_max", max_uncertainty="4s")
JOIN = {
    "on": "k",
    "left_time": TIME,
    "right_time": TIME,
    "condition": within("3s", confidence=0.4),
    "how": "left_outer",
    "lateness": Lateness(left="2s", right="2s"),
}

ASOF = {name: JOIN[name] for name in ("on", "left_time", "right_time", "how", "lateness")} | {"confidence": 0.4}


def documented(orders: Any, payments: Any, **options: Any) -> Any:
    """The call of docs/join-aggregate.md, with further options."""
    page = Path(__file__).parents[2] / "docs" / "join-aggregate.md"
    program = page.read_text(encoding="utf-8").partition("On Spark and Flink it is the same call:")[2]
    call = program.partition("per_order = wa.")[2].partition("\n)\n")[0]
    names = {"wa": wa, "orders": orders, "payments": payments, "options": options}
    return eval(f"wa.{call} **options)", names)


FOLDING = {name: JOIN[name] for name in ("on", "left_time", "right_time", "lateness")} | {
    "condition": between("0 s", "20 s", confidence=0.4), "folding": "always",
    "aggregates": {"n": "count", "total": "sum:id", "least": "min:id", "expected": "expected_count"},
}  # fmt: skip

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "timing_join": (timing_join, JOIN), "asof_join": (asof_join, ASOF), "join_aggregate": (documented, {}),
    "folding": (wa.join_aggregate, FOLDING),
}  # fmt: skip

PATIENCE_S = 600


class ReadAndTell(ReadSplit):
    """Writes each split that it reads to a log, which shows the splits that are read again.

    The last split that the job may begin never ends: no checkpoint can complete, so the kill is always in time.
    """

    def __call__(self, split: str) -> Iterator[pa.RecordBatch]:
        """Record batches of the schema."""
        path = Path(os.environ["SPLITS_LOG"])
        with path.open("a", encoding="utf-8") as log:
            log.write(split + "\n")
        most = int(os.environ["SPLITS"])
        patience = time.monotonic() + PATIENCE_S
        while most and len(path.read_text(encoding="utf-8").splitlines()) >= most:
            if time.monotonic() > patience:
                raise TimeoutError("nobody killed this job")
            time.sleep(0.1)
        yield from super().__call__(split)


def main(folder: Path, mode: str, parallelism: int, checkpoint: str | None) -> None:
    """Run the job to its end."""
    recovery = {} if checkpoint is None else {"execution__state_recovery__path": checkpoint}
    env = local_environment(
        parallelism,
        mode=mode,
        execution__checkpointing__interval="100 ms",
        execution__checkpointing__dir=(folder / "checkpoints").as_uri(),
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        table__exec__uid__generation="ALWAYS",
        state__backend__type=os.environ.get("STATE_BACKEND", "hashmap"),
        **recovery,
    )
    sides = []
    for name in ("left", "right"):
        blocks = read_files(env, folder / name, splits_per_checkpoint=1, name=name)
        sides.append(Blocks(blocks.stream, blocks.schema, ReadAndTell(blocks.schema)))
    call, options = CALLS[os.environ["JOB_CALL"]]
    pairs = call(*sides, **options, buckets=4)
    lines = rows_of(pairs).map(lambda row: repr(list(row)[:-1]), Types.STRING()).uid("lines")
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder())
    lines.sink_to(sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("sink")
    env.execute("join to kill")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else None)
