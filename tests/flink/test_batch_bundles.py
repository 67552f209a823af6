"""Batches in which Flink hands Python the elements of several keys together: no row is lost.

A batch job holds the state of one key at a time, and a bundle of elements may be processed when that is another.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import Row, Types
from pyflink.datastream import RuntimeExecutionMode
from pyflink.table import StreamTableEnvironment

from whenabouts.core import Point, within
from whenabouts.core.local import join_aggregate as local_aggregate
from whenabouts.core.local import timing_join as local_join
from whenabouts.flink_plugin import collect, join_aggregate, timing_join
from whenabouts.flink_plugin.file_source import read_files
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS, KEYS = 600, 40
JOIN: Any = {"on": "k", "left_time": Point("t"), "right_time": Point("t")}
NEAR = within("300 s", confidence=1)


def _side(name: str) -> pa.Table:
    times = pa.array([dt.datetime(2024, 5, 1) + dt.timedelta(seconds=7 * i % 5_000) for i in range(ROWS)])
    return pa.table({"k": [i % KEYS for i in range(ROWS)], "t": times.cast(pa.timestamp("us")), name: range(ROWS)})


def _sides(form: str, mode: str, folder: Path) -> list[Any]:
    """Both inputs in a batch job whose bundles hold as many elements as Flink's default."""
    env = local_environment(1, streaming=False, mode=mode, python__fn_execution__bundle__size=100_000)
    tables = StreamTableEnvironment.create(env)
    sides: list[Any] = []
    for name in ("a", "b"):
        side = _side(name)
        if form == "blocks":
            pq.write_table(side, folder / f"{name}.parquet")
            sides.append(read_files(env, folder / f"{name}.parquet", name=name))
            continue
        types = Types.ROW_NAMED(side.column_names, [Types.LONG(), Types.SQL_TIMESTAMP(), Types.LONG()])
        rows = env.from_collection([Row(*row.values()) for row in side.to_pylist()], types)
        sides.append(tables.from_data_stream(rows) if form == "Table" else rows)
    return sides


def _counted(table: pa.Table, columns: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.select(columns).to_pylist())


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        ("blocks", PROCESS),
        ("Table", PROCESS),
        pytest.param("DataStream", PROCESS, marks=pytest.mark.full),
        ("Table", THREAD),
    ],
)
def test_no_row_of_a_batch_is_lost(form: str, mode: str, tmp_path: Path) -> None:
    left, right = _sides(form, mode, tmp_path)
    found = collect(timing_join(left, right, condition=NEAR, **JOIN))
    wanted = local_join(_side("a"), _side("b"), condition=NEAR, **JOIN)
    assert wanted.num_rows > ROWS
    assert _counted(found, ["a", "b"]) == _counted(wanted, ["a", "b"])


def test_each_left_row_of_a_batch_has_its_numbers(tmp_path: Path) -> None:
    left, right = _sides("Table", PROCESS, tmp_path)
    numbers: Any = {"aggregates": {"n": "count", "most": "max:b"}, "condition": NEAR, **JOIN}
    found = collect(join_aggregate(left, right, **numbers))
    wanted = local_aggregate(_side("a"), _side("b"), **numbers)
    assert _counted(found, ["a", "n", "most"]) == _counted(wanted, ["a", "n", "most"])


def test_a_query_built_as_a_stream_is_not_run_as_a_batch(tmp_path: Path) -> None:
    env = local_environment(1, mode=THREAD)
    for name in ("a", "b"):
        pq.write_table(_side(name), tmp_path / f"{name}.parquet")
    sides = [read_files(env, tmp_path / f"{name}.parquet", name=name) for name in ("a", "b")]
    pairs = timing_join(*sides, condition=NEAR, lateness="2 h", **JOIN)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)  # as a Table environment with that mode does
    with pytest.raises(Exception, match="WA-2006: the query was built as a stream, and the job runs as a batch"):
        collect(pairs)
