"""Invalid calls are refused with a code before a job exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode
from pyflink.table import EnvironmentSettings, StreamTableEnvironment

from whenabouts.core import InputError, Lateness, Point, QueryError, within
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.flink_plugin import coalesce, run, temporal_aggregate, temporal_join, timing_join, window_join
from whenabouts.flink_plugin.blocks import Blocks, ReadBlob
from whenabouts.flink_plugin.file_source import read_files
from whenabouts.flink_plugin.kafka import topic_sink
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64()})
PAIRS: Any = {"left_time": Point("t"), "right_time": Point("t"), "condition": within("1 s", confidence=1), "on": "k"}
RUNS: Any = {"time": "t", "group": "k", "values": "t", "window": "1h"}
WINDOWS: Any = {"time": Point("t"), "windows": {("a", "b"): "1 s"}, "on": "k"}

CALLS: dict[str, Any] = {
    "timing_join": lambda rows, **more: timing_join(rows, rows, **PAIRS, **more),
    "window_join": lambda rows, **more: window_join({"a": rows, "b": rows}, **WINDOWS, **more),
    "coalesce": lambda rows, **more: coalesce(rows, **RUNS, slide="1h", **more),
    "temporal_aggregate": lambda rows, **more: temporal_aggregate(rows, **RUNS, aggregates={"n": "count"}, **more),
    "temporal_join": lambda rows, **more: temporal_join(rows, rows, **RUNS, slide="1h", **more),
    "run": lambda rows, lateness=None, **more: run(TimingJoin(**PAIRS, lateness=lateness), [rows, rows], **more),
}


def _rows(*, streaming: bool = True) -> Blocks:
    env = local_environment(1, mode=THREAD, streaming=streaming)
    return Blocks(env.from_collection([1], Types.LONG()), SCHEMA, ReadBlob(SCHEMA))


@pytest.mark.parametrize("name", CALLS)
def test_a_stream_without_lateness_is_refused(name: str) -> None:
    with pytest.raises(QueryError, match="WA-2051: the inputs are streams without a declared lateness"):
        CALLS[name](_rows())
    assert isinstance(CALLS[name](_rows(), lateness="5 s"), Blocks)
    assert isinstance(CALLS[name](_rows(streaming=False)), Blocks)


def test_watermarks_that_streams_carry_say_their_lateness_but_not_what_is_idle() -> None:
    assert isinstance(timing_join(_rows(), _rows(), **PAIRS, watermarks="source"), Blocks)
    with pytest.raises(QueryError, match="WA-2051"):
        window_join({"a": _rows(), "b": _rows()}, **WINDOWS, watermarks="source", idle_after="1 m")
    idle = Lateness("1 s", "1 s", idle_after="1 m")
    assert isinstance(timing_join(_rows(), _rows(), **PAIRS, watermarks="source", lateness=idle), Blocks)


JOIN: Any = PAIRS | {"lateness": "1 s"}
ONE_ROW = "SELECT 1 AS k, TIMESTAMP '2024-05-01 00:00:00' AS t"


@pytest.mark.parametrize("name", CALLS)
def test_a_job_whose_mode_flink_would_choose_is_refused(name: str) -> None:
    rows = _rows()
    rows.stream.get_execution_environment().set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    with pytest.raises(QueryError, match=r"WA-2006: execution.runtime-mode is 'AUTOMATIC' .*STREAMING or BATCH"):
        CALLS[name](rows, lateness="5 s")


def test_a_table_whose_mode_flink_would_choose_is_refused() -> None:
    tables = _tables()
    rows = tables.sql_query(ONE_ROW)
    tables.get_config().set("execution.runtime-mode", "AUTOMATIC")
    with pytest.raises(QueryError, match=r"WA-2006: execution.runtime-mode is 'AUTOMATIC'"):
        timing_join(rows, rows, **JOIN)
    with pytest.raises(QueryError, match=r"WA-2006: execution.runtime-mode is 'AUTOMATIC'"):
        topic_sink(rows, "broker:9092", "pairs")


def test_the_mode_of_a_table_environment_counts() -> None:
    finite = StreamTableEnvironment.create(local_environment(1, mode=THREAD), EnvironmentSettings.in_batch_mode())
    rows = finite.sql_query(ONE_ROW)
    timing_join(rows, rows, **PAIRS)
    env = local_environment(1, mode=THREAD, streaming=False)
    endless = StreamTableEnvironment.create(env, EnvironmentSettings.in_streaming_mode()).sql_query(ONE_ROW)
    with pytest.raises(QueryError, match="WA-2051"):
        timing_join(endless, endless, **PAIRS)


def test_a_name_is_of_one_query_until_the_job_has_begun(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1], "t": [1]}), tmp_path / "rows.parquet")
    env = local_environment(1, mode=THREAD)
    left, right = (read_files(env, tmp_path / "rows.parquet", name=name) for name in ("left", "right"))
    timing_join(left, right, **JOIN)
    with pytest.raises(QueryError, match=r"WA-2191: the job has a query called 'timing-join' .*name="):
        timing_join(left, right, **JOIN)
    coalesce(left, **RUNS, lateness="1 s", name="runs")
    with pytest.raises(QueryError, match="WA-2191: the job has a query called 'runs'"):
        timing_join(left, right, **JOIN, name="runs")
    timing_join(left, right, **JOIN, name="other")
    env._j_stream_execution_environment.getStreamGraph(True)  # as execute() does
    timing_join(left, right, **JOIN)


def test_a_name_is_of_one_query_of_tables_and_of_one_source(tmp_path: Path) -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    rows = tables.sql_query(ONE_ROW)
    timing_join(rows, rows, **JOIN)
    with pytest.raises(QueryError, match="WA-2191: the job has a query called 'timing-join'"):
        timing_join(rows, rows, **JOIN)
    pq.write_table(pa.table({"k": [1], "t": [1]}), tmp_path / "rows.parquet")
    env = local_environment(1, mode=THREAD)
    alike = [read_files(env, tmp_path / "rows.parquet") for _ in range(2)]
    with pytest.raises(QueryError, match=r"WA-2191: the job has two sources called 'files' .*name="):
        timing_join(*alike, **JOIN)


def _tables(zone: str = "UTC") -> StreamTableEnvironment:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    tables.get_config().set("table.local-time-zone", zone)
    return tables


def test_what_is_no_input_is_refused_and_told_where_the_table_is() -> None:
    tables = _tables()
    rows = tables.sql_query(ONE_ROW)
    wrong: Any = "seismic"
    with pytest.raises(InputError, match=r"WA-1062: the right input is 'seismic' .*tables.from_path\(name\)"):
        timing_join(rows, wrong, **JOIN)
    with pytest.raises(InputError, match="WA-1062: the left input is None"):
        timing_join(None, rows, **JOIN)  # type: ignore[arg-type]


def test_columns_that_pyflink_has_no_type_for_are_refused_by_name() -> None:
    tables = _tables()
    rows = tables.sql_query("SELECT 1 AS k, TIMESTAMP '2024-05-01 00:00:00' AS t, PARSE_JSON('{}') AS v")
    with pytest.raises(InputError, match="WA-1002: column 'v' is VARIANT"):
        timing_join(rows, rows, **JOIN)
    stream = tables.to_data_stream(rows)
    with pytest.raises(InputError, match=r"WA-1002: PyFlink does not know .*VARIANT.*give the Table"):
        timing_join(stream, stream, **JOIN)


INSTANTS = "SELECT 1 AS k, TO_TIMESTAMP_LTZ(0, 3) AS t"
TIMES_OF_DAY = "SELECT 1 AS k, TIMESTAMP '1970-01-01 01:00:00' AS t"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "GMT+01:00"])
def test_instants_against_times_of_day_are_refused_outside_of_utc(zone: str) -> None:
    tables = _tables(zone)
    instants, others = tables.sql_query(INSTANTS), tables.sql_query(TIMES_OF_DAY)
    told = "WA-2192: time column 't' of the left input holds instants, time column 't' of the right input times without"
    with pytest.raises(QueryError, match=told):
        timing_join(instants, others, **JOIN)
    with pytest.raises(QueryError, match="WA-2008: key 't'"):
        timing_join(instants, others, **JOIN | {"on": "t"})
    timing_join(instants, instants, **JOIN)
    timing_join(others, others, **JOIN, name="others")


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "GMT+00:00"])
def test_instants_and_times_of_day_meet_in_utc(zone: str) -> None:
    tables = _tables(zone)
    timing_join(tables.sql_query(INSTANTS), tables.sql_query(TIMES_OF_DAY), **JOIN)
