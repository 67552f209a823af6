"""Tables and DataStreams in and out: the rows of the local engine, whatever the columns' types."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyflink.common import Duration, Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes, StreamTableEnvironment, Table
from pyflink.table.expressions import col

from whenabouts.core import DigitsCutWarning, EngineError, InputError, Lateness, Point, QueryError, within
from whenabouts.core.local import coalesce as local_coalesce
from whenabouts.core.local import timing_join as local_join
from whenabouts.flink_plugin import coalesce, collect, metrics, rejects, timing_join
from whenabouts.flink_plugin.blocks import Blocks, ReadBlob
from whenabouts.flink_plugin.mini_cluster import PROCESS, THREAD, local_environment
from whenabouts.flink_plugin.row_streams import blocks_of, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LEFT = "k BIGINT, t TIMESTAMP(6), n BIGINT, f DOUBLE, b BOOLEAN, s STRING"
LEFT_ROWS = """\
1,2024-05-01 00:00:01.000123,,NaN,true,ä
2,2024-05-01 00:00:02.500000,9007199254740993,,,""
1,2024-05-01 00:01:00.000001,7,0.5,false,
1,,8,0.5,false,no time
"""
RIGHT = "k BIGINT, t TIMESTAMP(6), d DATE, m DECIMAL(10, 2), y BYTES"
RIGHT_ROWS = """\
1,2024-05-01 00:00:01.000124,1900-02-03,1.25,AP8=
2,2024-05-01 00:00:03.500001,2024-05-01,,
1,2024-05-01 00:01:01.000001,,-3,AA==
"""
JOIN: Any = {
    "on": "k",
    "left_time": Point("t"),
    "right_time": Point("t"),
    "condition": within("1 s", confidence=1),
    "lateness": Lateness(left="1 h", right="1 h"),
}


CHANGES = {"l": 1_711_852_200_000, "r": 1_729_996_200_000}
"""2024-03-31 02:30 and 2024-10-27 02:30 in UTC; clocks in Berlin skip the one time of day and show the other twice."""


def _sides(tables: StreamTableEnvironment, folder: Path) -> Iterator[Table]:
    for name, columns, rows in (("l", LEFT, LEFT_ROWS), ("r", RIGHT, RIGHT_ROWS)):
        (folder / f"{name}.csv").write_text(rows, encoding="utf-8")
        tables.execute_sql(
            f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'format' = 'csv', "
            f"'path' = '{(folder / name).as_uri()}.csv', 'csv.null-literal' = '')"
        )
        at = f"TO_TIMESTAMP_LTZ({CHANGES[name]} + k * 1000, 3)"
        yield tables.sql_query(f"SELECT *, '{name}' AS side_{name}, {at} AS at_{name} FROM {name}")


def _expected() -> list[tuple[Any, ...]]:
    first, last = dt.datetime(2024, 5, 1, 0, 0, 1, 123), dt.datetime(2024, 5, 1, 0, 1, 0, 1)
    us = dt.timedelta(microseconds=1)
    left = pa.table({"k": [1, 2, 1], "t": [first, dt.datetime(2024, 5, 1, 0, 0, 2, 500000), last]})
    right = pa.table({"k": [1, 2, 1], "t": [first + us, dt.datetime(2024, 5, 1, 0, 0, 3, 500001), last + 10**6 * us]})
    pairs = local_join(left, right, **JOIN)
    times = pairs.select(["t_left", "t_right"]).to_pylist()
    return [tuple(at.isoformat(" ") for at in row.values()) for row in times]


def test_a_table_comes_back_as_a_table_and_sql_goes_on_with_its_event_time(tmp_path: Path) -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=PROCESS))
    tables.get_config().set("table.local-time-zone", "Europe/Berlin")  # it changes no instant
    pairs = timing_join(*_sides(tables, tmp_path), **JOIN)
    tables.create_temporary_view("pairs", pairs)
    query = """
        SELECT window_start, COUNT(*), COUNT(n), MAX(n), COUNT(f), MAX(CAST(f AS STRING)), COUNT(b), MAX(s), MIN(d),
               MAX(m), MAX(side_l || side_r), MAX(TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(1711852200000, 3), at_l)),
               MAX(TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(1729996200000, 3), at_r)),
               MAX(CAST(t_left AS STRING)), MAX(CAST(t_right AS STRING))
        FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(event_time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end
    """
    with tables.execute_sql(query).collect() as rows:
        found = sorted(tuple(row) for row in rows)
    minute = dt.datetime(2024, 5, 1, 2)  # windows are printed in the session's time zone
    assert [(row[0], row[1]) for row in found] == [(minute, 1), (minute + dt.timedelta(minutes=1), 1)]
    assert Counter(row[-2:] for row in found) == Counter(_expected())
    first, second = found
    assert first[2:10] == (0, None, 1, "NaN", 1, "ä", dt.date(1900, 2, 3), first[9])
    assert str(first[9]) == "1.25"
    assert second[2:9] == (1, 7, 1, "0.5", 1, None, None)
    assert (first[-4:-2], second[-4:-2]) == ((1, 1), (1, 1))


@pytest.mark.parametrize("mode", [THREAD, PROCESS])
def test_a_stream_of_rows_comes_back_as_one_and_rejects_are_its_side_output(mode: str) -> None:
    env = local_environment(1, mode=mode)
    type_ = Types.ROW_NAMED(["k", "t", "at"], [Types.LONG(), Types.LONG(), Types.STRING()])
    left = env.from_collection([Row(1, 5, "a"), Row(2, 5, "b"), Row(1, None, "bad")], type_)
    right = env.from_collection([Row(1, 7, "c"), Row(2, 9, "d")], type_)
    join: Any = JOIN | {"condition": within("2us", confidence=1)}
    pairs = timing_join(left, right, **join, name="rows")
    refused = rejects(pairs)
    told = Types.STRING()
    everything = pairs.map(lambda row: f"pair {list(row)}", told).union(
        refused.map(lambda row: f"reject {list(row)[:2]} {row[-1]}", told), metrics(pairs)
    )
    with everything.map(str, told).execute_and_collect() as rows:  # PyFlink makes a union with itself twice
        found = list(rows)
    (pair,) = [row for row in found if row.startswith("pair")]
    assert pair.startswith("pair [1, 5, 'a', 7, 'c', 1.0, ")
    (reject,) = [row for row in found if row.startswith("reject")]
    assert reject.startswith("reject ['left', 'WA-1003']")


def test_readings_of_a_table_are_coalesced_as_if_they_came_in_order(tmp_path: Path) -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    readings = ["a,2024-05-01 00:00:00,20", "a,2024-05-01 00:10:00,20", "a,2024-05-01 01:30:00,21"]
    (tmp_path / "r.csv").write_text("\n".join([*readings, "b,2024-05-01 00:05:00,3"]) + "\n", encoding="utf-8")
    tables.execute_sql(
        "CREATE TEMPORARY TABLE r (room STRING, ts TIMESTAMP(6), lamp BIGINT) WITH ('connector' = 'filesystem', "
        f"'format' = 'csv', 'path' = '{(tmp_path / 'r.csv').as_uri()}')"
    )
    runs = coalesce(
        tables.sql_query("SELECT * FROM r"), time="ts", group="room", values="lamp", window="1h", slide="30m",
        lateness="2h",
    )  # fmt: skip
    tables.create_temporary_view("runs", runs)
    with tables.execute_sql("SELECT CAST(window_end AS STRING), room, lamp, n FROM runs").collect() as rows:
        found = Counter(tuple(row) for row in rows)
    minutes = (0, 10, 90, 5)
    table = pa.table(
        {
            "room": ["a", "a", "a", "b"],
            "ts": [dt.datetime(2024, 5, 1) + dt.timedelta(minutes=minute) for minute in minutes],
            "lamp": [20, 20, 21, 3],
        }
    )
    want = local_coalesce(table, time="ts", group="room", values="lamp", window="1h", slide="30m").to_pylist()
    assert found == Counter(
        (row["window_end"].isoformat(" ", "microseconds"), row["room"], row["lamp"], row["n"]) for row in want
    )


def test_columns_that_arrow_cannot_carry_are_refused() -> None:
    tables = StreamTableEnvironment.create(local_environment(1))
    nested = tables.sql_query("SELECT 1 AS k, TIMESTAMP '2024-05-01 00:00:00' AS t, ARRAY[1, 2] AS a")
    with pytest.raises(InputError, match="WA-1002: column 'a' is ARRAY"):
        timing_join(nested, nested, **JOIN)
    env = local_environment(1)
    with pytest.raises(InputError, match="WA-1002: the stream's elements are"):
        timing_join(*[env.from_collection([1], Types.LONG())] * 2, **JOIN)


def test_a_watermark_strategy_that_lost_its_assigner_fails_the_job_with_a_code() -> None:
    class At(TimestampAssigner):  # here, so that it is pickled by value: Flink's Python need not find the tests
        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            """Milliseconds."""
            return int(value[1]) // 1000

    plain, idle = WatermarkStrategy.for_monotonous_timestamps(), Duration.of_seconds(1)
    kept = plain.with_idleness(idle).with_timestamp_assigner(At())
    lost = plain.with_timestamp_assigner(At()).with_idleness(idle)
    type_ = Types.ROW_NAMED(["k", "t"], [Types.LONG(), Types.LONG()])
    join: Any = JOIN | {"condition": within("2ms", confidence=1), "watermarks": "source"}

    def pairs(*strategies: WatermarkStrategy) -> list[Any]:
        env = local_environment(1, mode=THREAD, restart_strategy__type="none")
        rows = env.from_collection([Row(1, 5_000), Row(1, 9_000)], type_)
        sides = [rows.assign_timestamps_and_watermarks(strategy) for strategy in strategies]
        both = Types.TUPLE([Types.LONG(), Types.LONG()])
        times = timing_join(*sides, **join).map(lambda row: (row["t_left"], row["t_right"]), both)
        with times.execute_and_collect() as found:
            return sorted(found)

    assert pairs(kept, kept) == [(5_000, 5_000), (9_000, 9_000)]
    with pytest.raises(Exception, match=r"WA-3021: rows of the timing-join-right .*call with_timestamp"):
        pairs(kept, lost)


def test_a_table_without_event_time_is_refused_where_it_is_wanted() -> None:
    tables = StreamTableEnvironment.create(local_environment(1))
    plain = tables.sql_query("SELECT 1 AS k, TIMESTAMP '2024-05-01 00:00:00' AS t")
    with pytest.raises(EngineError, match=r"WA-3021: .*left input carry no event time .*WATERMARK FOR"):
        timing_join(plain, plain, **JOIN, watermarks="source")


def test_event_time_of_a_table_is_kept_where_clocks_skip_an_hour() -> None:
    tables = StreamTableEnvironment.create(local_environment(1))
    tables.get_config().set("table.local-time-zone", "Europe/Berlin")
    at = f"TO_TIMESTAMP_LTZ({CHANGES['l']} + k * 1000, 3)"
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE spring (k BIGINT, t AS {at}, WATERMARK FOR t AS t) WITH ('connector' = 'datagen', "
        "'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '3')"
    )
    rows = tables.from_path("spring")
    pairs = timing_join(rows, rows, **JOIN | {"condition": within("1us", confidence=1)}, watermarks="source")
    with pairs.select(col("k"), col("t_left").cast(DataTypes.STRING())).execute().collect() as found:
        assert sorted(map(tuple, found)) == [(k, f"2024-03-31 04:30:0{k}.000000") for k in (1, 2, 3)]


@pytest.mark.parametrize("watermarks", ["lateness", "source"])
def test_a_table_may_have_several_time_attributes(watermarks: str) -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    tables.execute_sql(
        "CREATE TEMPORARY TABLE seen (k BIGINT, t AS TO_TIMESTAMP_LTZ(k * 1000, 3), WATERMARK FOR t AS t) WITH "
        "('connector' = 'datagen', 'fields.k.kind' = 'sequence', 'fields.k.start' = '1', 'fields.k.end' = '3')"
    )
    rows = tables.sql_query("SELECT k, t AS first_seen, t FROM seen")
    pairs = timing_join(rows, tables.from_path("seen"), **JOIN, watermarks=watermarks, name=watermarks)
    found = collect(pairs).select(["k", "first_seen", "t_left"]).to_pylist()
    assert sorted(row["k"] for row in found) == [1, 2, 3]
    assert all(row["first_seen"] == row["t_left"] for row in found)


def test_a_latency_that_cannot_be_kept_is_refused() -> None:
    type_ = Types.ROW_NAMED(["k", "t"], [Types.LONG(), Types.LONG()])
    for mode, least in ((THREAD, 5), (PROCESS, 25)):
        rows = local_environment(1, mode=mode).from_collection([Row(1, 1)], type_)
        with pytest.raises(QueryError, match=f"WA-2141: max_latency is {least - 1} ms .*give {least} ms or more"):
            timing_join(rows, rows, **JOIN, max_latency=f"{least - 1} ms")
        timing_join(rows, rows, **JOIN, max_latency=f"{least} ms")
    env = local_environment(1, mode=PROCESS, python__fn_execution__bundle__size=1000)
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})
    blocks = Blocks(env.from_collection([1], Types.LONG()), schema, ReadBlob(schema))
    with pytest.raises(QueryError, match="WA-2141: max_latency leaves 4 ms for a bundle, but bundles of this job wait"):
        timing_join(blocks, blocks, **JOIN, max_latency="100 ms")
    timing_join(blocks, blocks, **JOIN)


def _steps_of_600_rows(**conf: object) -> list[dict[str, int]]:
    """The counts of each step of a join of 300 rows with themselves, in one bucket."""
    env = local_environment(1, mode=THREAD, **conf)  # its bundles have one element
    type_ = Types.ROW_NAMED(["k", "t"], [Types.LONG(), Types.LONG()])
    rows = env.from_collection([Row(1, 1000 * i) for i in range(300)], type_)
    pairs = timing_join(rows, rows, **JOIN | {"condition": within("1us", confidence=1)}, buckets=1)
    with metrics(pairs).execute_and_collect() as told:
        steps = [json.loads(step) for step in told]
    assert sum(step.get("matched", 0) for step in steps) == 300
    assert sum(step["rows_in"] for step in steps) == 600
    return steps


def test_rows_are_gathered_whatever_the_jobs_own_bundles_are() -> None:
    assert len(_steps_of_600_rows()) < 30


def test_no_more_rows_are_packed_together_than_the_job_says() -> None:
    steps = _steps_of_600_rows(python__fn_execution__arrow__batch__size=40)
    assert max(step["rows_in"] for step in steps) == 40


def test_a_query_over_tables_is_made_while_another_thread_calls_the_jvm() -> None:
    tables = StreamTableEnvironment.create(local_environment(1))
    concurrent = get_gateway().jvm.java.util.concurrent
    rows, latch = _endless(tables), concurrent.CountDownLatch(1)
    with ThreadPoolExecutor(2) as threads:
        # On the connection that made the tables.
        busy = threads.submit(getattr(latch, "await"), 300, concurrent.TimeUnit.SECONDS)
        time.sleep(0.2)
        pairs = threads.submit(timing_join, rows, rows, **JOIN, name="elsewhere").result()
        assert not busy.done()  # it was another one
        latch.countDown()
        assert busy.result()
    assert "t_left" in pairs.get_schema().get_field_names()


def _endless(tables: StreamTableEnvironment) -> Table:
    tables.execute_sql(
        "CREATE TEMPORARY TABLE endless (k BIGINT, t AS k * 1000) WITH ('connector' = 'datagen', "
        "'rows-per-second' = '200', 'fields.k.kind' = 'sequence', 'fields.k.start' = '0', 'fields.k.end' = '100000')"
    )
    return tables.sql_query("SELECT k, t FROM endless")


TWO = Types.TUPLE([Types.LONG(), Types.LONG()])
LAZY: Any = JOIN | {"strategy": "lazy", "block_size": 10**6, "max_latency": "200 ms"}  # and a lateness of an hour


def test_a_lazy_stream_of_rows_answers_by_the_clock_when_event_time_stands_still() -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    rows = _endless(tables)
    both = timing_join(rows, rows, **LAZY).select(col("k"), col("t_left"))
    with both.execute().collect() as pairs:
        assert [pair[0] == pair[1] // 1000 for pair, _ in zip(pairs, range(5), strict=False)] == [True] * 5


def test_a_lazy_stream_of_blocks_does_so_too() -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})

    def read(row: Any) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [row[0]], "t": [row[1]]}, schema)

    blocks = Blocks(tables.to_data_stream(_endless(tables)), schema, read)
    pairs = timing_join(blocks, blocks, **LAZY)
    assert isinstance(pairs, Blocks)
    with rows_of(pairs).map(lambda row: (row["k"], row["t_left"]), TWO).execute_and_collect() as found:
        assert [pair[0] == pair[1] // 1000 for pair, _ in zip(found, range(5), strict=False)] == [True] * 5


def test_a_stream_that_was_a_table_is_one_of_named_rows() -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    rows = tables.to_data_stream(tables.sql_query("SELECT CAST(1 AS BIGINT) AS k, CAST(1000001 AS BIGINT) AS t"))
    pairs = timing_join(rows, rows, **JOIN).map(lambda row: (row["k"], row["t_left"]), TWO)
    with pairs.execute_and_collect() as found:
        assert list(found) == [(1, 1_000_001)]


FINE = ("0001-01-01 00:00:00", "1969-12-31 23:59:59.999999999", "2024-05-01 00:00:00.000001001", "9999-12-31 23:59:59")


@pytest.mark.parametrize("type_", ["TIMESTAMP(7)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(9)"])
def test_times_of_a_table_finer_than_microseconds_are_cut_downwards_in_the_whole_calendar(type_: str) -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=THREAD))
    tables.get_config().set("table.local-time-zone", "UTC")
    rows = tables.sql_query(
        f"SELECT CAST(s AS {type_}) AS t, 1 AS k, CAST(s AS {type_}) AS p "
        f"FROM (VALUES {', '.join(map(repr, FINE))}) AS v(s)"
    )
    pairs = collect(timing_join(rows, rows, **JOIN | {"lateness": "10000 days"}))
    assert pairs.num_rows == len(FINE)
    for name in ("t_left", "p_left", "p_right"):
        found = sorted(at.replace(tzinfo=None).isoformat(" ") for at in pairs.column(name).to_pylist())
        assert found == [FINE[0], FINE[1][:-3], FINE[2][:-3], FINE[3]]


def test_digits_that_a_table_loses_are_told_of_once() -> None:
    tables = StreamTableEnvironment.create(local_environment(1, mode=PROCESS))
    rows = tables.sql_query(
        "SELECT CAST(s AS TIMESTAMP(9)) AS t, CAST(s AS CHAR(3)) AS c, CAST(s AS TIMESTAMP_LTZ(7)) AS i, "
        f"CAST(s AS TIMESTAMP(6)) AS u FROM (VALUES {', '.join(map(repr, FINE))}, (CAST(NULL AS STRING))) AS v(s)"
    )
    blocks = blocks_of(rows, "digits")
    with blocks.stream.execute_and_collect() as streams:
        (stream,) = [bytes(byte & 255 for byte in each) for each in streams]  # Java's have a sign
    with pytest.warns(DigitsCutWarning, match="WA-1075: 2 times of the first rows in '[ti]' that have such") as told:
        found = [batch for _ in range(2) for batch in blocks.read(stream)]
    assert len(told) == 2  # one for each column
    assert all(batch.schema == blocks.schema for batch in found)
