"""Inputs that update or delete rows are refused with a code; whatever gives rows that stay is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyflink.common import RowKind
from pyflink.table import StreamTableEnvironment, Table

from whenabouts.core import Code, InputError, Point, within
from whenabouts.flink_plugin import collect, timing_join
from whenabouts.flink_plugin.mini_cluster import THREAD, local_environment

pytestmark = pytest.mark.filterwarnings("ignore")

JOIN = {
    "left_time": Point("t"), "right_time": Point("t"), "condition": within("1 s", confidence=1), "on": "k",
    "lateness": "1 s",
}  # fmt: skip
COUNTED = "SELECT k, MAX(t) AS t FROM plain GROUP BY k"
CHANGED = "SELECT k, MAX(CAST(t AS BIGINT)) AS t FROM (VALUES (1, 1), (1, 2)) AS x(k, t) GROUP BY k"
NUMBERED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS n FROM plain"
WINDOWS = "TABLE(TUMBLE(TABLE plain, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
CHANGING = {
    "aggregate": COUNTED,
    "aggregate and filter": f"SELECT * FROM ({COUNTED}) WHERE t > 3",
    "aggregate and join": f"SELECT a.k, a.t FROM ({COUNTED}) AS a JOIN `Rank` AS b ON a.k = b.k",
    "aggregate and interval": f"SELECT a.k, b.t FROM ({COUNTED}) AS a, `Rank` AS b WHERE a.t > b.t",
    "aggregate of aggregate": f"SELECT k, COUNT(*) AS t FROM ({COUNTED}) GROUP BY k",
    "top": f"SELECT k, t FROM ({NUMBERED.format('t')}) WHERE n < 3",
    "last": f"SELECT k, t FROM ({NUMBERED.format('ts DESC')}) WHERE n = 1",
    "outer join": "SELECT a.k, b.t FROM plain AS a LEFT JOIN `Rank` AS b ON a.k = b.k",
    "anti join": "SELECT k, t FROM plain AS a WHERE NOT EXISTS (SELECT * FROM `Rank` AS b WHERE a.k = b.k)",
}
STAYING = {
    "table": "SELECT * FROM `Rank`",
    "join": "SELECT a.k, a.t FROM plain AS a JOIN `Rank` AS b ON a.k = b.k",
    "first": f"SELECT k, t FROM ({NUMBERED.format('ts')}) WHERE n = 1",
    "windows": f"SELECT k, MAX(t) AS t FROM {WINDOWS} GROUP BY k, window_start, window_end",
}


def _tables(folder: Path) -> StreamTableEnvironment:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    rows = "WITH ('connector' = 'datagen', 'number-of-rows' = '3')"
    tables.execute_sql(f"CREATE TABLE plain (k BIGINT, t BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) {rows}")
    tables.execute_sql(f"CREATE TABLE `Rank` (k BIGINT, t BIGINT) {rows}")
    changes = f"WITH ('connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'debezium-json')"
    tables.execute_sql(f"CREATE TABLE captured (k BIGINT, t BIGINT) {changes}")
    return tables


@pytest.mark.parametrize("form", ["table", "stream"])
@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_rows_is_refused(tmp_path: Path, name: str, form: str) -> None:
    tables = _tables(tmp_path)
    changing: Table = tables.sql_query(CHANGING[name])
    given = changing if form == "table" else tables.to_changelog_stream(changing)
    with pytest.raises(InputError, match="has updates of rows") as raised:
        timing_join(given, given, **JOIN)
    assert raised.value.code is Code.CHANGES


@pytest.mark.parametrize("name", STAYING)
def test_rows_that_stay_are_accepted(tmp_path: Path, name: str) -> None:
    tables = _tables(tmp_path)
    staying = tables.sql_query(STAYING[name])
    for number, given in enumerate((staying, tables.to_data_stream(staying), tables.to_changelog_stream(staying))):
        timing_join(given, given, **JOIN, name=f"join-{number}")


def test_captured_changes_are_never_joined_silently(tmp_path: Path) -> None:
    """A Table of them is refused; of a stream the job ends at the first row that is no insertion."""
    before, after = '{"k": 1, "t": 1}', '{"k": 1, "t": 2}'
    (tmp_path / "changes.json").write_text(
        f'{{"before": null, "after": {before}, "op": "c"}}\n{{"before": {before}, "after": {after}, "op": "u"}}\n'
    )
    tables = _tables(tmp_path)
    captured = tables.from_path("captured")
    with pytest.raises(InputError, match="WA-1065"):
        timing_join(captured, captured, **JOIN)
    stream = tables.to_changelog_stream(captured)
    pairs = timing_join(stream, stream, **JOIN, name="stream")
    with pytest.raises(Exception, match=r"WA-1065: the stream-.* input has updates of rows"):
        collect(pairs)


BETWEEN = {
    "filter": lambda stream: stream.filter(lambda row: True),
    "union": lambda stream: stream.union(stream),
    "rebalance": lambda stream: stream.rebalance(),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_changes_of_a_table_end_the_job_behind_other_operators_too(tmp_path: Path, name: str) -> None:
    tables = _tables(tmp_path)
    stream = BETWEEN[name](tables.to_changelog_stream(tables.sql_query(CHANGED)))
    pairs = timing_join(stream, stream, **JOIN, name=name)
    with pytest.raises(Exception, match=rf"WA-1065: the {name}-.* input has updates of rows"):
        collect(pairs)


def test_a_function_may_leave_changes_out(tmp_path: Path) -> None:
    tables = _tables(tmp_path)
    stream = tables.to_changelog_stream(tables.sql_query(CHANGED))
    new = stream.filter(lambda row: row.get_row_kind() is RowKind.INSERT)
    assert collect(timing_join(new, new, **JOIN)).column("t_left").to_pylist() == [1]
