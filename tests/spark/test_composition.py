"""Operations beside each other and beside Spark's own tables, as docs/spark.md shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import whenabouts as wa
from whenabouts.conformance import multiset
from whenabouts.spark_plugin import register_sql, write_stream

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
START_US = 1_600_000_000_000_000

StreamOf = Callable[[Sequence[pa.Table]], DataFrame]


def code_of(section: str) -> list[str]:
    """The Python blocks of a section of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(spark: SparkSession, code: str, folder: Path, **names: Any) -> dict[str, Any]:
    """Run a block with FOLDER in the place of /data, each stream to the end of its input."""
    code = code.replace("/data", str(folder)).replace(".start(", ".trigger(availableNow=True).start(")
    for part in re.split(r"(?<=\))\n(?=again = spark)", code):  # what reads a table comes after what writes it
        exec(part, names := {"spark": spark, "wa": wa, "write_stream": write_stream} | names)
        for query in spark.streams.active:
            query.awaitTermination()
    return names


def same(written: pa.Table, batch: pa.Table) -> None:
    assert batch.num_rows > 10
    rows = written.select(batch.column_names).cast(batch.schema)
    multiset.assert_same(multiset.rows(rows), multiset.rows(batch), "against a batch")


def events(seed: int, seconds: Sequence[float], **columns: Any) -> pa.Table:
    """Events in disorder of less than five seconds."""
    draw = np.random.default_rng(seed)
    t = START_US + (np.array(seconds) * 1_000_000).astype(np.int64) + draw.integers(0, 4_000_000, len(seconds))
    ids = np.arange(len(seconds)) + 1000 * seed
    return pa.table({"t": pa.array(t, pa.timestamp("us", "UTC")), "id": ids} | columns)


@pytest.mark.full
def test_a_stream_is_looked_up_in_a_table(spark: SparkSession, stream_of: StreamOf, tmp_path: Path) -> None:
    (code,) = code_of("A stream and a table")
    symbols = np.array(["a", "b", "c"])
    trades = [events(n, range(10 * n, 10 * n + 10), symbol=symbols[np.arange(10) % 3]) for n in range(3)]
    trades = [table.rename_columns(["ts", "id", "symbol"]) for table in trades]
    quotes = events(9, range(0, 30, 2), symbol=symbols[np.arange(15) % 2]).rename_columns(["ts", "bid", "symbol"])
    pq.write_table(quotes, tmp_path / "quotes.parquet")
    spark.read.parquet(str(tmp_path / "quotes.parquet")).createOrReplaceTempView("quotes")
    stream = stream_of(trades)
    point = wa.Point("ts")
    with pytest.raises(wa.EngineError, match=r"WA-3004.*foreachBatch") as refused:
        wa.asof_join(stream, spark.table("quotes"), on="symbol", left_time=point, right_time=point)
    assert refused.value.code is wa.Code.MIXED_INPUTS
    run(spark, code, tmp_path / "out", trades=stream)
    assert len(list((tmp_path / "out" / "priced").glob("number=*"))) == len(trades)
    written = pq.read_table(tmp_path / "out" / "priced")
    batch = wa.asof_join(
        pa.concat_tables(trades), quotes, on="symbol", left_time=point, right_time=point, suffixes=("", "_quote")
    )
    same(written, batch)


@pytest.mark.full
def test_one_query_follows_another_through_a_table(spark: SparkSession, stream_of: StreamOf, tmp_path: Path) -> None:
    """With the lateness of the page no pair is late in the second query, however the first one's rows arrive."""
    (code,) = code_of("One query after another")
    rooms = np.array(["a", "b"])
    inputs = {
        name: [events(seed, range(20 * n, 20 * n + 20), room=rooms[np.arange(20) // 2 % 2]) for n in range(4)]
        for seed, name in enumerate(("questions", "answers", "ratings"))
    }
    names = run(spark, code, tmp_path, **{name: stream_of(tables) for name, tables in inputs.items()})
    with pytest.raises(wa.QueryError, match=r"WA-2052.*write its rows to a table"):
        wa.timing_join(
            names["replies"], stream_of(inputs["ratings"]), left_time=wa.Point("event_time"), right_time=wa.Point("t"),
            condition=wa.within("1 s", confidence=1), lateness=wa.Lateness("1 s", "1 s"),
        )  # fmt: skip
    questions, answers, ratings = map(pa.concat_tables, inputs.values())
    replies = wa.timing_join(
        questions, answers, on="room", left_time=wa.Point("t"), right_time=wa.Point("t"),
        condition=wa.deadline("10 s", since="0 s", confidence=1),
    )  # fmt: skip
    same(pq.read_table(tmp_path / "replies"), replies)
    again = replies.select(["room", "id_left", "id_right"]).rename_columns(["room", "question", "answer"])
    first, last = replies["t_left"], replies["t_right"]
    again = again.append_column("replied", pa.compute.if_else(pa.compute.greater(first, last), first, last))
    rated = wa.timing_join(
        again, ratings, on="room", left_time=wa.Point("replied"), right_time=wa.Point("t"),
        condition=wa.deadline("1 minute", since="0 s", confidence=1),
    )  # fmt: skip
    same(pq.read_table(tmp_path / "rated"), rated)


@pytest.fixture
def views(spark: SparkSession, tmp_path: Path) -> dict[str, pa.Table]:
    tables = {"clicks": events(1, range(30), bot=[n % 5 == 0 for n in range(30)]), "orders": events(2, range(30))}
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    return tables


JOIN: dict[str, Any] = {
    "left_time": wa.Point("t"), "right_time": wa.Point("t"), "condition": wa.within("2 s", confidence=1)
}  # fmt: skip


def test_transform_takes_an_operation(spark: SparkSession, tmp_path: Path, views: dict[str, pa.Table]) -> None:
    (code,) = code_of("DataFrames, tables, and methods")
    pairs = run(spark, code, tmp_path)["pairs"].toArrow()
    people = views["clicks"].filter(pa.compute.invert(views["clicks"]["bot"]))
    same(pairs, wa.timing_join(people, views["orders"], **JOIN))


def test_two_tables_of_sql_are_a_view(spark: SparkSession, tmp_path: Path, views: dict[str, pa.Table]) -> None:
    (code,) = code_of("SQL")
    run(spark, code, tmp_path)
    batch = wa.timing_join(views["clicks"], views["orders"], **JOIN)
    same(spark.sql("SELECT * FROM pairs").toArrow(), batch)
    counted = spark.sql(code.partition('spark.sql("')[2].partition('")')[0]).toArrow()
    assert sum(counted["orders"].to_pylist()) == batch.num_rows
    register_sql(spark)
    for second in ("", "right => "):
        with pytest.raises(AnalysisException, match=r"WA-2006.*no other table.*UNION ALL"):
            spark.sql(f"SELECT * FROM timing_join(TABLE(clicks), {second}TABLE(orders), time => 't', within => '2 s')")


def test_sinks_that_get_rows_again_are_warned_of(stream_of: StreamOf, tmp_path: Path) -> None:
    """Others are not: their tests would fail, as a warning is an error there."""
    stream = stream_of([events(1, range(5))])
    pairs = wa.timing_join(stream, stream, **JOIN, lateness=wa.Lateness())
    checkpoint = str(tmp_path / "checkpoint")
    with (
        pytest.warns(wa.AtLeastOnceWarning, match=r"WA-2054: the sink 'kafka'.*each key once"),
        pytest.raises(AnalysisException),  # its connector is not here
    ):
        write_stream(pairs, checkpoint).format("Kafka").start()
    writer = write_stream(pairs, checkpoint).foreach(print).trigger(availableNow=True)
    with pytest.warns(wa.AtLeastOnceWarning, match=r"WA-2054: the sink 'foreach'.*foreachBatch"):
        writer.start().stop()
