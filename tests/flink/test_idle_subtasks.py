"""A subtask to which no rows come holds the watermark back, unless the job says when it is idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyflink.common import Types
from pyflink.table import StreamTableEnvironment
from pyflink.util.java_utils import get_field_value, is_instance_of

from whenabouts.flink_plugin import Blocks, coalesce, local_environment
from whenabouts.flink_plugin.file_source import split_stream
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.timestamp("us")})
STEPS = 8
RUNS: Any = {"time": "t", "values": "k", "window": "10 s", "slide": "10 s", "lateness": "0 s"}
CLOCK = "table.exec.source.idle-timeout"


def _read(step: str) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array([0]), pa.array([int(step) * 10_000_000], pa.timestamp("us"))], schema=SCHEMA)


def _in_one_of_two_subtasks(mode: str, **conf: Any) -> Blocks:
    """A row in each of a few steps, between which there are checkpoints."""
    conf |= {"execution__checkpointing__interval": "300 ms", "execution__checkpointing__storage": "jobmanager"}
    env = local_environment(2, mode=mode, **conf)
    steps = split_stream(env, [str(n) for n in range(STEPS)], splits_per_checkpoint=1, name="steps")
    spread = steps.key_by(lambda _: 0, Types.INT()).map(lambda step: step, Types.STRING()).set_parallelism(2)
    return Blocks(spread.name("spread").uid("spread"), SCHEMA, _read)


def _answers(rows: Blocks) -> int:
    """How many times the operator answers."""
    answers = coalesce(rows, **RUNS).stream.map(lambda _: 1, Types.INT())
    with answers.execute_and_collect() as found:
        return sum(found)


@pytest.mark.parametrize("mode", [PROCESS, pytest.param(THREAD, marks=pytest.mark.full)])
def test_an_idle_subtask_does_not_hold_the_watermark_back(mode: str) -> None:
    assert _answers(_in_one_of_two_subtasks(mode)) <= 2  # at the end
    assert _answers(_in_one_of_two_subtasks(mode, table__exec__source__idle_timeout="100 ms")) > STEPS // 2


def test_the_timeout_of_a_table_environment_counts() -> None:
    env = local_environment(1, mode=THREAD)
    tables = StreamTableEnvironment.create(env)
    tables.get_config().set(CLOCK, "7 s")
    coalesce(tables.sql_query("SELECT CAST(1 AS BIGINT) AS k, TIMESTAMP '2024-05-01 00:00:00' AS t"), **RUNS)
    assert _timeouts(env) == ["PT7S"]


def _timeouts(env: Any) -> list[str]:
    """The idle timeouts of the operators that make watermarks."""
    waiting, found = list(env._j_stream_execution_environment.getTransformations()), set()
    while waiting:
        each = waiting.pop()
        waiting.extend(each.getInputs())
        if is_instance_of(each, "org.apache.flink.streaming.api.transformations.TimestampsAndWatermarksTransformation"):
            idle = get_field_value(each.getWatermarkStrategy(), "baseStrategy")
            found.add(str(get_field_value(idle, "idlenessTimeout")))
    return sorted(found)
