"""The timing join as a table function of SQL, and streams through temporary views."""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from whenabouts.core import Interval, Lateness, Point, within
from whenabouts.core.local import timing_join as join_locally
from whenabouts.spark_plugin import register_sql, timing_join
from whenabouts.spark_plugin.sql_functions import _instant_us

pytestmark = pytest.mark.slow


def events() -> pa.Table:
    """Both sides and an unknown one; unusable rows; times in the repeated hour of New York."""
    draw = np.random.default_rng(2)
    n, start = 60, int(dt.datetime(2021, 11, 7, 5, 30, tzinfo=dt.UTC).timestamp() * 1_000_000)
    t_max = start + draw.integers(0, 3_600_000_000, n)
    t_min = t_max - draw.integers(-1_000_000, 300_000_000, n)
    return pa.table(
        {
            "sensor": draw.choice(["seismic", "acoustic", "other"], n),
            "region": pa.array(draw.integers(0, 3, n), mask=draw.random(n) < 0.1),
            "t_min": pa.array(t_min, pa.timestamp("us", "UTC")),
            "t_max": pa.array(t_max, pa.timestamp("us", "UTC"), mask=draw.random(n) < 0.05),
            "id": pa.array(range(n), pa.int32()),
            "day": pa.array([dt.date(2021, 11, 7)] * n),
        }
    )


@pytest.fixture
def in_new_york(spark: SparkSession) -> Any:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


CALL = """TABLE(events), side => 'sensor', left => 'seismic', right => 'acoustic', on => 'region',
          time => 't_min,t_max', within => '4 minutes', confidence => 0.6"""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_instants_are_read_to_both_ends_of_the_calendar(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instants = [dt.datetime(2021, 11, 7, 5, 30, tzinfo=dt.UTC), dt.datetime(2021, 11, 7, 6, 30, tzinfo=dt.UTC)]
    ends = [dt.datetime.min, dt.datetime.min + dt.timedelta(days=2), dt.datetime.max]
    epoch = dt.datetime(1970, 1, 1)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        found = [_instant_us(moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for moment in instants]
        at_ends = [_instant_us(moment) - (moment - epoch) // dt.timedelta(microseconds=1) for moment in ends]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found == [int(moment.timestamp()) * 1_000_000 for moment in instants]
    assert at_ends[0] == at_ends[1]
    assert all(abs(us) < 24 * 3_600_000_000 for us in at_ends)


@pytest.mark.usefixtures("in_new_york")
@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.RejectedRowsWarning")
def test_the_table_function_gives_the_rows_and_rejects_of_the_join(spark: SparkSession, tmp_path: Path) -> None:
    from whenabouts.core.local import rejects

    pq.write_table(events(), tmp_path / "events.parquet")
    spark.read.parquet(str(tmp_path)).createOrReplaceTempView("events")
    register_sql(spark)
    sides = [
        events().filter(pa.compute.field("sensor") == kind).drop_columns("sensor") for kind in ("seismic", "acoustic")
    ]
    time = Interval("t_min", "t_max")
    want = join_locally(
        *sides, on="region", left_time=time, right_time=time, condition=within("4 minutes", confidence=0.6)
    )
    assert want.num_rows > 10
    told = spark.sql(f"SELECT * FROM timing_join({CALL})").toArrow()
    assert told.schema.names == want.schema.names
    assert rows(told.cast(want.schema)) == rows(want)
    bad = rejects(want)
    assert bad.num_rows > 1
    refused = spark.sql(f"SELECT * FROM timing_join_rejects({CALL})").toArrow().cast(bad.schema)
    of_no_side = pa.compute.field("code") == "WA-1061"
    assert rows(refused.filter(~of_no_side)) == rows(bad)
    others = events().filter(pa.compute.field("sensor") == "other")
    assert refused.filter(of_no_side).column("input").to_pylist() == ["other"] * others.num_rows != []


def test_what_the_function_cannot_do_is_told_when_the_query_is_analysed(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(events(), tmp_path / "events.parquet")
    spark.read.parquet(str(tmp_path)).createOrReplaceTempView("events")
    register_sql(spark)
    for call, told in (
        (CALL.replace("within", "withn"), "WA-2006.*'withn'"),
        (CALL.replace("'sensor'", "'kind'"), "WA-1001.*'kind'"),
    ):
        with pytest.raises(PySparkException, match=told):
            spark.sql(f"SELECT * FROM timing_join({call})").collect()


ODD_CALL = "TABLE(odd), left => 'l', right => 'r', on => 'k', time => 't', within => '2 s', confidence => 1"


def odd_rows(spark: SparkSession, **columns: str) -> DataFrame:
    """A view `odd` of a pair of rows and an unusable one, with further columns."""
    more = "".join(f", {text} AS {name}" for name, text in columns.items())
    rows = [
        f"SELECT TIMESTAMP '2024-01-01 00:00:00' AS t, 1 AS k, '{side}' AS side{more}" for side in ("l", "r")
    ] + [f"SELECT null, 1, 'r'{more}"]  # fmt: skip
    frame = spark.sql(" UNION ALL ".join(rows))
    frame.createOrReplaceTempView("odd")
    return frame


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.RejectedRowsWarning")
def test_maps_pass_through_the_table_function_and_its_rejects_at_any_depth(spark: SparkSession) -> None:
    maps = {
        "plain": "map('a', 1, 'b', null)",
        "dates": "map('a', date'2024-01-01', 'b', null)",
        "structs": "map('a', named_struct('x', 1, 'm', map(1, 2)))",
        "keys": "map(named_struct('x', 1, 'd', date'2024-01-01'), 2)",
        "inside": "array(map('a', 2), null)",
        "field": "named_struct('m', map(1, 2), 'none', cast(null AS map<int, int>), 'x', array(5))",
        "none": "cast(map() AS map<int, int>)",
    }
    want = tuple(odd_rows(spark, **maps).select(*maps).collect()[0])
    register_sql(spark)
    paired = spark.sql(f"SELECT * FROM timing_join({ODD_CALL})").select(*[f"{name}_right" for name in maps])
    assert list(map(tuple, paired.collect())) == [want]
    rejected = spark.sql(f"SELECT * FROM timing_join_rejects({ODD_CALL})").select(*maps)
    assert list(map(tuple, rejected.collect())) == [want]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("array(parse_json('1'))", "WA-1002: column 'p' is array<variant>.*cannot take variant"),
        ("interval '1-2' year to month", "WA-1002: column 'p' of the events input is interval year to month"),
        ("array()", "WA-1002: column 'p' of the events input is array<void>"),
        ("map(array(1), 2)", "WA-1002: column 'p' is map<array<int>,int>.*arrays in keys of maps"),
        ("named_struct('a', 1, 'a', 2)", "WA-1002: column 'p' is struct.*two fields of one name"),
    ],
)
def test_columns_that_a_table_function_cannot_take_are_refused(spark: SparkSession, column: str, told: str) -> None:
    odd_rows(spark, p=column)
    register_sql(spark)
    with pytest.raises(PySparkException, match=told):
        _ = spark.sql(f"SELECT * FROM timing_join({ODD_CALL})").schema


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            "left_time => 'ntz'",
            "WA-2192: time column 't' of the right input holds instants, time column 'ntz' of the left input",
        ),
        ("where => 'left.t <= right.ntz'", "WA-2192: column '.*' of a condition holds instants, .* without a zone"),
    ],
)
def test_the_function_compares_no_instants_with_times_without_a_zone(spark: SparkSession, more: str, told: str) -> None:
    odd_rows(spark, ntz="timestamp_ntz'2024-01-01 00:00:00'")
    register_sql(spark)
    with pytest.raises(PySparkException, match=told):
        _ = spark.sql(f"SELECT * FROM timing_join({ODD_CALL}, {more})").schema


def test_streams_join_through_temporary_views(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([0, 10, 20], pa.timestamp("s", "UTC")), "id": [1, 2, 3]})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    stream = spark.readStream.format("whenabouts").option("time", "t").load(str(tmp_path / "in"))
    stream.createOrReplaceTempView("replayed")
    left, right = spark.sql("SELECT t, id FROM replayed WHERE id <> 2"), spark.table("replayed")
    pairs = timing_join(
        left, right, left_time=Point("t"), right_time=Point("t"), condition=within("10 s", confidence=1),
        lateness=Lateness(), buckets=1,
    )  # fmt: skip
    pairs.createOrReplaceTempView("pairs")
    seen: list[tuple[int, int]] = []

    def write(batch: DataFrame, number: int) -> None:
        seen.extend((row.id_left, row.other) for row in batch.collect())

    writer = spark.sql("SELECT id_left, id_right + 0 AS other FROM pairs WHERE id_right > 1").writeStream
    query = writer.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()
    assert sorted(seen) == [(1, 2), (3, 2), (3, 3)]
