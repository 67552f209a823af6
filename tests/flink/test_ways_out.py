"""Conversions of Blocks: to rows, a Table, the records of a sink, and Arrow in the client."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import Encoder, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink
from pyflink.table import Schema, StreamTableEnvironment, Table, TableDescriptor

from whenabouts import AtLeastOnceWarning
from whenabouts.core import Lateness, Point, QueryError, within
from whenabouts.core.local import timing_join as local_join
from whenabouts.flink_plugin import Blocks, collect, local_environment, read_files, rejects, rows_of, table_of
from whenabouts.flink_plugin import timing_join as flink_join
from whenabouts.flink_plugin.kafka import topic_sink
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

T0 = 1_700_000_000_000_000
ROWS = 3000
JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within("1us", confidence=1),
}
NAMED = ["k", "t_left", "x_left", "t_right", "x_right", "probability"]


def _side() -> pa.Table:
    """Rows with a NaN, a null in a column of integers, and one without a time."""
    t = [T0 + 10_000 * i for i in range(ROWS)]
    t[7] = None  # type: ignore[call-overload]
    x = pa.array([None if i == 5 else float("nan") if i == 6 else i / 2 for i in range(ROWS)], pa.float64())
    return pa.table({"k": pa.array([i % 3 for i in range(ROWS)]), "t": pa.array(t, pa.timestamp("us")), "x": x})


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of both sides; the two are the same."""
    folder = tmp_path_factory.mktemp("sides")
    for name in ("left", "right"):
        pq.write_table(_side(), folder / f"{name}.parquet", row_group_size=1000)
    return folder


def _pairs(sides: Path, **conf: object) -> tuple[StreamExecutionEnvironment, Blocks]:
    env = local_environment(1, **conf)  # type: ignore[arg-type]
    streams = [read_files(env, sides / f"{name}.parquet", name=name) for name in ("left", "right")]
    pairs = flink_join(*streams, **JOIN, lateness=Lateness(left="1h", right="1h"))
    assert isinstance(pairs, Blocks)
    return env, pairs


def _expected() -> list[tuple[Any, ...]]:
    found = local_join(_side(), _side(), **JOIN)
    assert found.column_names == NAMED
    return sorted(tuple(map(str, row.values())) for row in found.to_pylist())


@pytest.mark.parametrize("mode", [PROCESS, THREAD])
def test_a_result_and_its_rejects_are_collected_by_columns(sides: Path, mode: str) -> None:
    _, pairs = _pairs(sides, mode=mode)
    found = collect(pairs)
    assert found.schema == pairs.schema
    assert sorted(tuple(map(str, row.values())) for row in found.select(NAMED).to_pylist()) == _expected()
    refused = collect(rejects(pairs)).select(["input", "code"]).to_pylist()
    assert sorted(row["input"] + row["code"] for row in refused) == ["leftWA-1003", "rightWA-1003"]


def test_a_table_of_blocks_has_event_time_and_goes_to_a_sink_of_files(sides: Path, tmp_path: Path) -> None:
    env, pairs = _pairs(sides)
    tables = StreamTableEnvironment.create(env)
    table = table_of(pairs, tables)
    assert table_of(pairs, tables) is table
    tables.create_temporary_view("pairs", table)
    minutes = tables.sql_query(
        "SELECT window_start, COUNT(*) AS n, COUNT(x_left) AS x, MAX(k) AS k FROM TABLE(TUMBLE(TABLE pairs, "
        "DESCRIPTOR(event_time), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
    )
    described = minutes.get_resolved_schema()
    schema = Schema.new_builder().from_fields(described.get_column_names(), described.get_column_data_types())
    sink = TableDescriptor.for_connector("filesystem").schema(schema.build()).format("csv")
    minutes.execute_insert(sink.option("path", (tmp_path / "out").as_uri()).build()).wait()
    rows = [row for part in (tmp_path / "out").glob("part-*") for row in csv.reader(part.open(encoding="utf-8"))]
    assert (sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows)) == (ROWS - 1, ROWS - 2)
    assert len(rows) == ROWS * 10_000 // 10_000_000
    with pytest.warns(AtLeastOnceWarning, match="WA-2054: the sink commits rows with checkpoints"):
        topic_sink(table, "broker:9092", "pairs")
    env.enable_checkpointing(10_000)
    descriptor = str(topic_sink(table, "broker:9092", "pairs", key=("k",)))
    assert "`x_left` DOUBLE" in descriptor


def test_rows_of_blocks_go_to_a_sink_of_files(sides: Path, tmp_path: Path) -> None:
    env, pairs = _pairs(sides)
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder()).build()
    lines = rows_of(pairs).map(lambda row: "|".join(map(str, list(row)[:-1])), Types.STRING())
    lines.sink_to(sink)
    env.execute()
    found = [line for part in (tmp_path / "out").rglob("*part-*") for line in part.read_text().splitlines()]
    assert sorted(tuple(line.split("|")) for line in found) == _expected()


def test_files_become_rows_and_a_table_without_a_query(sides: Path) -> None:
    env = local_environment(1, streaming=False)
    blocks = read_files(env, sides / "left.parquet")
    tables = StreamTableEnvironment.create(env)
    summed = tables.sql_query(f"SELECT COUNT(*), COUNT(t), COUNT(x), SUM(k) FROM {table_of(blocks, tables)}")
    with summed.execute().collect() as found:
        assert [tuple(row) for row in found] == [(ROWS, ROWS - 1, ROWS - 1, ROWS)]
    with rows_of(blocks).map(lambda row: row["k"], Types.LONG()).execute_and_collect() as keys:
        assert Counter(keys) == {0: ROWS // 3, 1: ROWS // 3, 2: ROWS // 3}
    found_ = collect(blocks)
    assert found_.column("k").to_pylist() == _side().column("k").to_pylist()


def test_a_table_of_another_job_and_a_foreign_stream_are_refused() -> None:
    env, other = local_environment(1), StreamTableEnvironment.create(local_environment(1))
    blocks = Blocks(env.from_collection([1], Types.LONG()), pa.schema({"k": pa.int64()}), iter)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="WA-2006: the blocks and the Table environment are of two jobs"):
        table_of(blocks, other)
    plain: Table = other.sql_query("SELECT 1 AS k")
    with pytest.raises(QueryError, match="WA-2006: this stream did not come from whenabouts"):
        collect(plain)
