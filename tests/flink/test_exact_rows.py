"""Microseconds survive conversion to and from Python: constants, and rows of Tables as a DataStream."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyflink.common import Types
from pyflink.table import DataTypes, StreamTableEnvironment, Table
from pyflink.table.expressions import col

from whenabouts.core import Point, within
from whenabouts.flink_plugin import timing_join
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within(0, confidence=1),
    "lateness": "1 h",
}
CONSTANTS = {
    "t": "TIMESTAMP '2024-05-01 00:00:01.000123'",
    "i": "CAST(TIMESTAMP '2024-05-01 00:00:01.000456' AS TIMESTAMP_LTZ(6))",
    "last": "TIMESTAMP '9999-12-31 23:59:59.999999'",
    "first": "TIMESTAMP '0001-01-01 00:00:00.000001'",
    "no_time": "CAST(NULL AS TIMESTAMP(6))",
    "bytes": "CAST(X'00FF' AS BYTES)",
    "fixed": "X'0102'",
    "no_bytes": "CAST(NULL AS BYTES)",
    "day": "DATE '1900-01-02'",
    "no_day": "CAST(NULL AS DATE)",
    "money": "CAST(1.25 AS DECIMAL(10, 2))",
    "long": "CAST('12345678901234567890.123456789' AS DECIMAL(29, 9))",
    "small": "CAST(-3 AS TINYINT)",
    "short": "CAST(-300 AS SMALLINT)",
    "whole": "CAST(9007199254740993 AS BIGINT)",
    "no_whole": "CAST(NULL AS BIGINT)",
    "single": "CAST(0.1 AS FLOAT)",
    "real": "CAST(0.1 AS DOUBLE)",
    "no_real": "CAST(NULL AS DOUBLE)",
    "truth": "TRUE",
    "no_truth": "CAST(NULL AS BOOLEAN)",
    "text": "'ä'",
    "empty": "''",
    "no_text": "CAST(NULL AS STRING)",
}


def _texts(table: Table, names: list[str]) -> list[tuple[str | None, ...]]:
    """Columns as Flink prints them."""
    with table.select(*(col(name).cast(DataTypes.STRING()) for name in names)).execute().collect() as rows:
        return sorted((tuple(row) for row in rows), key=str)


@pytest.mark.parametrize("mode", [THREAD, pytest.param(PROCESS, marks=pytest.mark.full)])
def test_constants_are_what_they_are(mode: str) -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=mode))
    tables.get_config().set("table.local-time-zone", "UTC")
    rows = tables.sql_query("SELECT 1 AS k, " + ", ".join(f"{sql} AS `{name}`" for name, sql in CONSTANTS.items()))
    pairs = timing_join(rows, rows, **JOIN)
    assert _texts(pairs, [f"{name}_left" for name in CONSTANTS]) == _texts(rows, list(CONSTANTS))


@pytest.mark.full
def test_constants_that_the_planner_finds_itself_keep_their_microseconds() -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    times = [f"TIMESTAMP '2024-05-01 00:00:01.{us:06}'" for us in (123, 456)]
    two = "SELECT * FROM (VALUES " + ", ".join(f"(1, {time})" for time in times) + ") AS v(k, t)"
    for name, query in (("values", two), ("where", f"{two} WHERE t = {times[0]}")):
        rows = tables.sql_query(query)
        pairs = timing_join(rows, rows, **JOIN, name=name)
        assert _texts(pairs, ["t_left"]) == _texts(rows, ["t"])


SHOWN = ("t", "i", "last", "first", "no_time", "bytes", "day", "money", "no_whole", "text")


def _shown(row: Any) -> str:
    """Values of a row as text; in thread mode PyFlink gives Java's own objects for times."""

    def text(value: Any) -> str:
        if type(value).__name__ == "Instant":
            return f"{value.seconds}.{value.nanos:09}"
        return str(value.toString()) if hasattr(value, "toString") else str(value)

    return "|".join(text(row[f"{name}_left"]) for name in SHOWN)


@pytest.mark.parametrize("mode", [PROCESS, pytest.param(THREAD, marks=pytest.mark.full)])
def test_the_rows_of_a_table_are_a_stream_for_python(mode: str) -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=mode))
    tables.get_config().set("table.local-time-zone", "Europe/Berlin")
    rows = tables.sql_query("SELECT 1 AS k, " + ", ".join(f"{CONSTANTS[name]} AS `{name}`" for name in SHOWN))
    pairs = timing_join(rows, rows, **JOIN)
    # PyFlink has no type for a stream of instants finer than milliseconds: that column is cast, as the docs say.
    pairs = pairs.add_or_replace_columns(col("i_left").cast(DataTypes.TIMESTAMP_LTZ(3)).alias("i_left"))
    pairs = pairs.drop_columns(col("i_right"))
    streams = [tables.to_data_stream(pairs), tables.to_changelog_stream(pairs.where(col("k") == 1))]
    shown = [stream.map(_shown, Types.STRING()) for stream in streams]
    with shown[0].union(shown[1]).map(str, Types.STRING()).execute_and_collect() as found:
        first, second = found
    wall, instant = dt.datetime(2024, 5, 1, 0, 0, 1, 123), dt.datetime(2024, 4, 30, 22, 0, 1, tzinfo=dt.UTC)
    ends = ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00.000001"]
    if mode == PROCESS:
        times = [str(wall), f"{int(instant.timestamp())}.000000000", *ends]
    else:
        times = [wall.isoformat(), instant.isoformat().replace("+00:00", "Z"), *(end.replace(" ", "T") for end in ends)]
    assert first.split("|") == [*times, "None", str(b"\0\xff"), "1900-01-02", "1.25", "None", "ä"]
    assert second == first
