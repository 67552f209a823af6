"""Names and types as Spark treats them: case, time zones, collations; and rows without a valid side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from whenabouts.core import DoubtfulTimesWarning, InputError, Interval, Lateness, Point, QueryError, within
from whenabouts.core.clocks.profile.profile import profile
from whenabouts.spark_plugin import (
    coalesce,
    metrics,
    register_sql,
    rejects,
    temporal_join,
    timing_join,
    watch_clock,
    window_join,
    write_with_rejects,
)
from whenabouts.spark_plugin.kafka import topic_writer

pytestmark = pytest.mark.slow

JOIN: dict[str, Any] = {"left_time": Point("T"), "right_time": Point("U"), "condition": within("1 s", confidence=1)}
ZONED: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("u"), "condition": within(0, confidence=1)}


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Any]:
    """Sets options of the session for a test."""
    before: dict[str, str | None] = {}

    def put(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    put("spark.sql.caseSensitive", "false")
    yield put
    for name, old in before.items():
        spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def table(spark: SparkSession, columns: str, *rows: str) -> DataFrame:
    return spark.sql(f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS r({columns})")


def plain(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_names_are_found_whatever_their_case(spark: SparkSession, conf: Any) -> None:
    """Times, keys spelled differently on each side, and identities. A column `Code` of a reject is not the column of
    its code."""
    left = table(spark, "Region, t, Code", "'a', 1000000L, 1", "'a', 1000000L, 1", "'b', 1500000L, 2", "'c', null, 3")
    right = table(spark, "REGION, u, w", "'a', 1200000L, 7", "'c', 1200000L, 8")
    pairs = timing_join(left, right, on="region", deduplicate_by={"left": "CODE"}, probability=False, **JOIN)
    assert pairs.columns == ["Region", "t", "Code", "u", "w"]
    assert plain(pairs.select("REGION", "code", "W")) == [("a", 1, 7)]
    refused = rejects(pairs)
    assert plain(refused.select("code", "Region", "Code_1")) == [("WA-1003", "c", 3)]
    conf("spark.sql.caseSensitive", "true")
    with pytest.raises(InputError, match="WA-1001: the left input has no time column 'T'"):
        timing_join(left, right, on=("Region", "REGION"), **JOIN)


def test_a_topic_is_written_with_columns_of_any_name(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2)], ["a`b", "c.d e"])
    rows = MagicMock(columns=frame.columns)
    topic_writer("broker:9092", "pairs", key=["a`b"])(rows, 0)
    assert plain(frame.select(*rows.select.call_args.args)) == [('{"a`b":1}', '{"a`b":1,"c.d e":2}')]


def test_columns_that_differ_by_case_only_are_refused(spark: SparkSession, conf: Any) -> None:
    left, right = table(spark, "k, t, V", "1, 1L, 1"), table(spark, "k, u, v", "1, 1L, 1")
    with pytest.raises(QueryError, match="WA-2009: the result would have columns 'V' and 'v'"):
        timing_join(left, right, on="k", **JOIN)
    with pytest.raises(QueryError, match="WA-2009: the left input has columns 'v' and 'V'"):
        timing_join(right.withColumnRenamed("u", "t").selectExpr("*", "1 AS w").toDF("k", "t", "v", "V"), right, **JOIN)
    conf("spark.sql.caseSensitive", "true")
    both = timing_join(left, right, on="k", **(JOIN | {"left_time": Point("t"), "right_time": Point("u")}))
    assert both.columns == ["k", "t", "V", "u", "v", "probability"]


def test_every_function_and_a_stream_find_their_columns(spark: SparkSession, conf: Any, stream_of: Any) -> None:
    one = table(spark, "K, T, V", "1, 1L, 5", "1, 2L, 5", "1, 9L, 6")
    runs = coalesce(one, time="t", group="k", values="v")
    assert plain(runs) == [(1, 5, 1, 9, 2), (1, 6, 9, 9, 1)]
    met = window_join(
        {"a": one, "b": one.toDF("k", "T", "V")}, time=Point("t"), on="k", windows={("a", "b"): 1},
        predicates={("a", "b"): "a.v = b.v AND a.t < b.T"},
    )  # fmt: skip
    assert met.columns == ["K", "T_a", "V_a", "T_b", "V_b", "t_first", "t_last"]
    assert plain(met.select("k", "T_a", "t_b")) == [(1, 1, 2)]
    pairs = temporal_join(one, one.toDF("k", "t", "v"), time="t", group="k", values="v", on="K", window=9, at=9)
    assert {row.K for row in pairs.collect()} == {1}
    timed = one.selectExpr("K", "T", "T + 1L AS V")
    assert watch_clock(timed, reading="t", against="v", group="k").count() == 0
    found, exact = profile(timed, "t", group="k", arrival="v"), profile(timed, "T", group="K", arrival="V")
    assert (found.rows, found.span_us) == (exact.rows, exact.span_us) == (3, (1, 9))
    with pytest.raises(QueryError, match="WA-2009: the table has columns 't' and 'T'"):
        profile(one.selectExpr("t", "v AS u").toDF("t", "T"), "t")
    events = pa.table({"Region": ["a"], "T_Min": [1], "T_Max": [2]})
    pair = [stream_of([events]), stream_of([events.rename_columns(["REGION", "Lo", "Hi"])])]
    specs = (Interval("t_min", "t_max", max_uncertainty=5), Interval("lo", "hi", max_uncertainty=5))
    streamed = timing_join(
        *pair, on="region", left_time=specs[0], right_time=specs[1], condition=within(5, confidence=0.1),
        lateness=Lateness(),
    )  # fmt: skip
    assert streamed.columns == ["Region", "T_Min", "T_Max", "Lo", "Hi", "probability", "event_time"]


def test_the_column_that_ends_an_input_is_boolean_and_found_whatever_its_case(
    spark: SparkSession, conf: Any, stream_of: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = JOIN | {"left_time": Point("t"), "right_time": Point("t")}
    for kind, value in (("int", 0), ("string", "'false'")):
        rows = spark.sql(f"SELECT 1L AS t, {value} AS _wa_end_of_input")
        with pytest.raises(QueryError, match=f"WA-2006: column '_wa_end_of_input' of the left input is {kind}"):
            timing_join(rows, rows, **options)
    rows = spark.sql("SELECT 1L AS t, false AS _Wa_End_Of_Input")
    assert timing_join(rows, rows, **options).columns == ["t_left", "t_right", "probability"]
    assert timing_join(rows, rows, **options).count() == 1
    twice = spark.sql("SELECT 1L AS t, false AS _wa_end_of_input").selectExpr("*", "true AS _WA_END_OF_INPUT")
    with pytest.raises(QueryError, match="WA-2009: the left input has columns '_wa_end_of_input' and '_WA_END_OF"):
        timing_join(twice, rows, **options)
    conf("spark.sql.caseSensitive", "true")
    assert "_Wa_End_Of_Input_left" in timing_join(rows, rows, **options).columns  # another column
    conf("spark.sql.caseSensitive", "false")
    found: list[int] = []
    left, right = (pa.table({"t": t, "_WA_END_OF_INPUT": [False, False, True]}) for t in ([1, 5_000_000, 9], [1, 2, 3]))
    alone = timing_join(stream_of([left]), stream_of([right]), how="left_anti", lateness=Lateness(), **options)
    writer = write_with_rejects(alone, lambda rows, _: found.extend(row.t for row in rows.collect()), _none)
    writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert found == [5_000_000]


def _none(batch: DataFrame, number: int) -> None:
    """Leaves rows alone."""


@pytest.mark.parametrize("wall", ["2024-07-01 12:00:00", "2024-10-27 02:30:00"])
def test_a_wall_clock_is_not_compared_with_an_instant(spark: SparkSession, conf: Any, wall: str) -> None:
    """In summer and in the repeated hour: the conversion in the hint is the one that Spark applies."""
    conf("spark.sql.session.timeZone", "Europe/Berlin")
    clock = table(spark, "t, i", f"TIMESTAMP_NTZ'{wall}', 1")
    instant = spark.sql(f"SELECT CAST(TIMESTAMP_NTZ'{wall}' AS TIMESTAMP) AS u, 2 AS j")
    for left, right in ((clock, instant.toDF("u", "j")), (instant.toDF("t", "i"), clock.toDF("u", "j"))):
        with pytest.raises(QueryError, match=r"WA-2192: time column '[tu]' of the (left|right) input holds instants"):
            timing_join(left, right, **ZONED)
    spec = Interval("t", "u", max_uncertainty="1 day")
    with pytest.raises(QueryError, match="WA-2192"):
        timing_join(clock.crossJoin(instant), instant, **(ZONED | {"left_time": spec}))
    with pytest.raises(QueryError, match="WA-2192"):
        window_join({"a": clock, "b": instant}, time={"a": Point("t"), "b": Point("u")}, windows={("a", "b"): 0})
    native = clock.join(instant, col("t") == col("u")).select("i", "j")
    mended = timing_join(clock.withColumn("t", col("t").cast("timestamp")), instant, **ZONED).select("i", "j")
    assert plain(mended) == plain(native) == [(1, 2)]
    alike = timing_join(clock, clock.toDF("u", "j"), **ZONED)
    assert plain(alike.select("i", "j")) == [(1, 1)]


def test_in_utc_a_wall_clock_tells_the_instant(spark: SparkSession, conf: Any) -> None:
    conf("spark.sql.session.timeZone", "UTC")
    clock = table(spark, "t, i", "TIMESTAMP_NTZ'2024-07-01 12:00:00', 1")
    instant = table(spark, "u, j", "TIMESTAMP'2024-07-01 12:00:00', 2")
    pairs = timing_join(clock, instant, **ZONED)
    assert plain(pairs.select("i", "j")) == plain(clock.join(instant, col("t") == col("u")).select("i", "j"))
    with pytest.raises(QueryError, match="WA-2008"):
        timing_join(clock, instant.toDF("t", "j"), on="t", **(ZONED | {"right_time": Point("t")}))


@pytest.mark.parametrize("collation", ["UTF8_LCASE", "UNICODE_CI", "UTF8_BINARY_RTRIM"])
def test_collated_text_is_not_compared(spark: SparkSession, conf: Any, collation: str) -> None:
    left = table(spark, "t, k", f"1L, 'a' COLLATE {collation}")
    right = table(spark, "u, k", "1L, 'A'")
    for inputs in ((left, right), (right.toDF("t", "k"), left.toDF("u", "k"))):
        with pytest.raises(QueryError, match=f"WA-2186: column 'k' of the (left|right) input .*{collation}"):
            timing_join(*inputs, on="k", **JOIN)
    for options in ({"group": "k", "values": "t"}, {"values": "k"}):
        with pytest.raises(QueryError, match="WA-2186"):
            coalesce(left, time="t", **options)
    with pytest.raises(QueryError, match="WA-2186"):
        timing_join(left, right, deduplicate_by={"left": "k"}, **JOIN)
    nested = left.selectExpr("t", "named_struct('a', array(k)) AS deep")
    with pytest.raises(QueryError, match="WA-2186: column 'deep'"):
        coalesce(nested, time="t", values="deep")
    carried = timing_join(left, right.drop("k"), **JOIN)
    assert plain(carried.select("k")) == [("a",)]


def test_the_table_function_rejects_rows_of_no_side(spark: SparkSession, conf: Any) -> None:
    """Rows whose tag selects no input are rejected; names and types are checked here, too."""
    register_sql(spark)
    rows = ("'l', 1L, 1", "'r', 2L, 1", "'x', 3L, 1", "null, 4L, 1", "'None', 5L, 1", "'L', 6L, null")
    table(spark, "Side, T, k", *rows).createOrReplaceTempView("tagged")
    call = "TABLE(tagged), side => 'side', left => 'l', right => 'r', time => 't', within => '1 s', confidence => 1"
    for on in ("", ", on => 'K'"):
        assert spark.sql(f"SELECT T_left, T_right FROM timing_join({call}{on})").collect() == [(1, 2)]
        refused = spark.sql(f"SELECT input, code, T FROM timing_join_rejects({call}{on})")
        assert plain(refused) == sorted(
            [("x", "WA-1061", 3), (None, "WA-1061", 4), ("None", "WA-1061", 5), ("L", "WA-1061", 6)], key=repr
        )
    table(spark, "side, t, u", "'l', TIMESTAMP_NTZ'2024-07-01 12:00:00', TIMESTAMP'2024-07-01 12:00:00'"
          ).createOrReplaceTempView("mixed")  # fmt: skip
    times = "left => 'l', right => 'r', left_time => 't', right_time => 'u', within => '1 s', confidence => 1"
    with pytest.raises(PySparkException, match="WA-2192"):
        spark.sql(f"SELECT * FROM timing_join(TABLE(mixed), {times})")
    table(spark, "side, t, k", "'l', 1L, 'a' COLLATE UTF8_LCASE").createOrReplaceTempView("collated")
    with pytest.raises(PySparkException, match="WA-2186"):
        spark.sql(f"SELECT * FROM timing_join(TABLE(collated), {call.removeprefix('TABLE(tagged), ')}, on => 'k')")


def test_times_in_another_unit_are_told_in_the_driver_and_counted(spark: SparkSession, conf: Any) -> None:
    """Workers detect them, and an accumulator reports them. One warning for each column, whatever the partitions."""
    odd = table(spark, "t, i", *(f"{1_700_000_000 + n}L, {n}" for n in range(40)), "0L, -1").repartition(3)
    pairs = timing_join(odd, odd.toDF("u", "j"), **ZONED)
    with pytest.warns(DoubtfulTimesWarning, match="look like seconds: multiply them by 1,000,000") as told:
        assert pairs.count() == 41
    texts = [str(each.message) for each in told if each.category is DoubtfulTimesWarning]
    assert sorted(text.partition(" holds")[0] for text in texts) == [
        "WA-1063: time column 't' of the left input", "WA-1063: time column 'u' of the right input"
    ]  # fmt: skip
    found = {row.name: row["sum(value)"] for row in metrics(pairs).groupBy("name").sum("value").collect()}
    assert found["rows_doubtful_unit"] == 80
