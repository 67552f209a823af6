"""Batch: the results of the local engine in Spark's own types, and clear refusals."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from whenabouts.core import Code, EngineError, InputError, Interval, Point, QueryError, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import run as run_locally
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.planner import Registry, Stream
from whenabouts.spark_plugin import metrics, rejects, results, run, timing_join

BatchOf = Callable[[pa.Table], DataFrame]

TIMES: dict[str, Any] = {"left_time": Interval("t0", "t1"), "right_time": Interval("t0", "t1")}


def _events(rows: list[tuple[int | None, int | None, int | None]]) -> pa.Table:
    schema = pa.schema({"k": pa.int32(), "t0": pa.int64(), "t1": pa.int64()})
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


LEFT = _events([(1, 0, 10), (1, 100, 110), (2, 0, 10), (None, 0, 10), (1, 5, 5)])
RIGHT = _events([(1, 4, 14), (2, 200, 210), (3, 0, 10), (None, 0, 10)])


def _rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def test_pairs_are_those_of_the_local_engine(batch_of: BatchOf) -> None:
    query = TimingJoin(**TIMES, on="k", condition=within(10, confidence=0.5))
    want = run_locally(query, [LEFT, RIGHT])
    assert want.output.num_rows == 2
    got = run(query, [batch_of(LEFT), batch_of(RIGHT)], buckets=3)
    assert _rows(got.toArrow()) == _rows(want.output)


def test_an_operator_of_another_kind_runs_the_same_way(batch_of: BatchOf) -> None:
    query = Coalesce(time="t0", group="k", values="t1", window=60, slide=60)
    want = run_locally(query, [LEFT])
    got = run(query, [batch_of(LEFT)], buckets=2).toArrow().cast(want.output.schema)
    assert want.output.num_rows == 6
    assert _rows(got) == _rows(want.output)


@pytest.mark.parametrize(("left", "right"), [(LEFT[:0], RIGHT), (LEFT, RIGHT[:0]), (LEFT[:0], RIGHT[:0])])
def test_an_empty_side_gives_no_pair_and_no_error(batch_of: BatchOf, left: pa.Table, right: pa.Table) -> None:
    pairs = timing_join(batch_of(left), batch_of(right), **TIMES, on="k", condition=within(10, confidence=0.5))
    assert pairs.columns == ["k", "t0_left", "t1_left", "t0_right", "t1_right", "probability"]
    assert pairs.count() == 0
    counted = [row.value for row in metrics(pairs).where("name = 'rows_in'").collect()]
    assert sum(counted) == left.num_rows + right.num_rows


def test_rows_that_cannot_be_used_are_rejected_and_accounted_for(batch_of: BatchOf) -> None:
    bad = _events([(1, 0, 10), (1, None, 3), (1, 9, 3), (1, 0, 999)])
    times: dict[str, Any] = {"left_time": Interval("t0", "t1", max_uncertainty=100), "right_time": Interval("t0", "t1")}
    pairs = timing_join(batch_of(bad), batch_of(RIGHT), **times, on="k", condition=within(10, confidence=0.5))
    told = rejects(pairs).collect()
    assert {(r.input, r.code, r.k, r.t0, r.t1) for r in told} == {
        ("left", "WA-1003", 1, None, 3),
        ("left", "WA-1004", 1, 9, 3),
        ("left", "WA-1005", 1, 0, 999),
    }
    total = {r.name: r.value for r in metrics(pairs).groupBy("name").sum("value").toDF("name", "value").collect()}
    assert (total["rows_in"], total["rows_processed"], total["rows_rejected"]) == (8, 5, 3)
    assert pairs.count() == 1


# --- Columns --------------------------------------------------------------------------------------------------------

UTC = dt.UTC
AWKWARD: list[tuple[str, str, list[Any]]] = [
    ("byte", "tinyint", [-128, None]),
    ("a.dot", "smallint", [7, None]),
    ("a space", "int", [2**31 - 1, None]),
    ("back`tick", "bigint", [2**62 + 1, None]),  # a float in between would lose it
    ("float", "float", [0.5, None]),
    ("double", "double", [float("inf"), None]),
    ("money", "decimal(38,18)", [Decimal("1.000000000000000001"), None]),
    ("text", "string", ["ä\0b", None]),
    ("raw", "binary", [bytearray(b"\x00\xff"), None]),
    ("flag", "boolean", [True, None]),
    ("day", "date", [dt.date(1, 1, 1), None]),
    ("instant", "timestamp", [dt.datetime(1600, 1, 1, 0, 0, 0, 1, UTC), None]),
    ("wall", "timestamp_ntz", [dt.datetime(2015, 11, 1, 1, 30, 0, 1), None]),
    ("span", "interval day to second", [dt.timedelta(microseconds=1), None]),
    ("list", "array<timestamp>", [[dt.datetime(1600, 1, 1, 0, 0, 0, 1, UTC), None], None]),
    ("dict", "map<string,array<int>>", [{"x": [1, None], "y": None}, None]),
    ("nest", "struct<`in.ner`:int,when:timestamp_ntz>", [Row(**{"in.ner": None, "when": dt.datetime(1, 1, 1)}), None]),
]


@pytest.fixture
def new_york(spark: SparkSession) -> Any:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.usefixtures("new_york")
def test_columns_of_every_type_come_through_unchanged(spark: SparkSession) -> None:
    schema = StructType([StructField(name, _type(spark, ddl)) for name, ddl, _ in AWKWARD])
    values = [tuple(values[row] for _, _, values in AWKWARD) for row in range(2)]
    plain = spark.createDataFrame(values, schema)
    left = plain.selectExpr("*", "timestamp'2015-11-01 01:30:00' as t")
    right = spark.sql("select timestamp'2015-11-01 06:30:00 UTC' as t, 1 as one")  # 1:30, one hour later
    pairs = timing_join(
        left, right, left_time=Point("t"), right_time=Point("t"), condition=within("1h", confidence=1), buckets=1
    )
    got = pairs.select(*[f"`{name.replace('`', '``')}`" for name, _, _ in AWKWARD])
    assert [(f.name, f.dataType) for f in got.schema] == [(f.name, f.dataType) for f in schema]
    assert sorted(map(str, got.collect())) == sorted(map(str, plain.collect()))
    assert got.count() == 2


def _type(spark: SparkSession, ddl: str) -> Any:
    return spark.sql(f"select cast(null as {ddl}) as x").schema[0].dataType


@pytest.mark.usefixtures("new_york")
def test_the_session_time_zone_does_not_move_an_instant(spark: SparkSession) -> None:
    left = spark.sql("select timestamp'2020-01-01 00:00:00 UTC' as t")
    right = spark.sql("select 1577836800000000L as t")  # the same in microseconds since 1970
    pairs = timing_join(left, right, left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1))
    assert pairs.count() == 1


# --- Refusals -------------------------------------------------------------------------------------------------------


def _point_join(left: DataFrame, right: DataFrame, **options: Any) -> DataFrame:
    given: dict[str, Any] = {
        "left_time": Point("t"),
        "right_time": Point("t"),
        "condition": within(0, confidence=1),
    } | options
    return timing_join(left, right, **given)


def test_a_stream_and_a_batch_do_not_mix(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "t")
    batch = spark.sql("select timestamp'2020-01-01' as t")
    with pytest.raises(EngineError, match="left is a stream, right is a batch") as raised:
        _point_join(stream, batch)
    assert raised.value.code is Code.MIXED_INPUTS


def test_a_missing_column_is_refused_before_anything_runs(spark: SparkSession) -> None:
    frame = spark.sql("select 1L as x")
    with pytest.raises(InputError, match="no time column 't'") as raised:
        _point_join(frame, frame)
    assert raised.value.code is Code.MISSING_COLUMN


@pytest.mark.parametrize(
    ("column", "kind"),
    [("interval '1' month", "interval month"), ("array()", "array<void>"), ("map()", "map<void,void>")],
)
def test_a_type_that_cannot_leave_the_jvm_is_refused(spark: SparkSession, column: str, kind: str) -> None:
    frame = spark.sql(f"select 1L as t, {column} as m")
    with pytest.raises(InputError, match=f"column 'm' of the left input is {kind}") as raised:
        _point_join(frame, frame)
    assert raised.value.code is Code.WRONG_TYPE


def test_wrong_numbers_are_refused(spark: SparkSession) -> None:
    frame = spark.sql("select 1L as t")
    with pytest.raises(QueryError, match="buckets is 0"):
        _point_join(frame, frame, buckets=0)
    with pytest.raises(QueryError, match="2 inputs"):
        run(TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1)), [frame])


def test_shuffle_partitions_that_are_no_number_ask_for_buckets(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Databricks has "auto", which this Spark lets nobody set."""
    frame, get = spark.sql("select 1L as t"), type(spark.conf).get
    monkeypatch.setattr(
        type(spark.conf), "get", lambda conf, key, *more: "auto" if "shuffle" in key else get(conf, key, *more)
    )
    with pytest.raises(QueryError, match=r"WA-2151: spark\.sql\.shuffle\.partitions is 'auto'.*give buckets="):
        _point_join(frame, frame)


def test_rejects_of_a_foreign_frame_are_refused(spark: SparkSession) -> None:
    with pytest.raises(QueryError, match="did not come from whenabouts"):
        rejects(spark.sql("select 1L as t"))


def test_the_query_is_found_in_the_plan_of_what_is_made_of_its_result(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.sql("select * from values (1L, 'a'), (null, 'b') as rows(t, id)")
    pairs, others = _point_join(frame, frame), _point_join(frame, frame, how="left_outer")
    pairs.where("id_left = 'a'").createOrReplaceTempView("derived")
    derived = spark.table("derived").groupBy("id_left").count()
    del pairs
    assert Counter(row.id for row in rejects(derived).collect()) == {"b": 2}
    assert sum(row.value for row in metrics(derived).where("name = 'rows_in'").collect()) == 4
    both = derived.select("count").union(others.select("t_left"))
    with pytest.raises(QueryError, match=r"WA-2006: .* 2 queries: inner timing join: .*; left_outer timing join"):
        rejects(both)
    capsys.readouterr()
    derived.explain()
    told = capsys.readouterr().out
    words = "inner timing join: 0 us <= right - left <= 0 us with confidence 1"
    assert [f"MapInArrow {part}{words}(" in told for part in ("left of ", "right of ", "")] == [True] * 3


def test_the_same_query_made_again_and_again_is_remembered_once(spark: SparkSession) -> None:
    frame = spark.sql("select 1L as t")
    before = len(results._hostings)
    for _ in range(5):
        _point_join(frame, frame, probability=False)
    assert len(results._hostings) == before + 1


def test_the_planner_takes_the_schema_of_a_dataframe(spark: SparkSession) -> None:
    frame = spark.sql("select timestamp'2020-01-01 00:00:00Z' as ts, 1 as k, cast(1.5 as decimal(9, 2)) as v")
    text = "SELECT k, v FROM s [RANGE 60 SECOND SLIDE 10 SECOND] COALESCE ON v GROUP BY k"
    arrow = pa.schema({"ts": pa.timestamp("us", "UTC"), "k": pa.int32(), "v": pa.decimal128(9, 2)})
    flushed = frame.selectExpr("*", "false as _wa_end_of_input")
    for given in (frame.schema, flushed.schema, frame):
        registry = Registry(streams={"s": Stream(given)})
        registry.register("runs", text)
        assert registry.share(given) == registry.share(arrow)
        assert Stream(given).schema.types == arrow.types
    with pytest.raises(QueryError, match=r"WA-2006: a LongType is given.*give df\.schema"):
        registry.share(LongType())


def test_a_worker_says_what_is_wrong_with_a_query_in_its_code(spark: SparkSession) -> None:
    frame = spark.sql("select 1L as t")
    with pytest.raises(QueryError) as raised:
        _point_join(frame, frame, how="nearest")
    assert raised.value.code is Code.BAD_OPTION


def test_an_accidental_cross_join_is_stopped_with_its_number(spark: SparkSession) -> None:
    """400,000 x 400,000 points within each other's reach: more than a terabyte, which the worker reports before it
    makes a pair."""
    rows = spark.range(400_000).selectExpr("id", "timestamp_micros(id) AS t")
    times = Point("t")
    pairs = timing_join(rows, rows, left_time=times, right_time=times, condition=within("1s", confidence=1))
    with pytest.raises(Exception, match=r"WA-2201: at least 160,000,000,000 pairs of 400,000 x 400,000 rows"):
        pairs.count()
