"""The operations on Spark: the declared ones, their host options, and one that the package does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame

import whenabouts.spark_plugin as on_spark
from infra import toy_operation
from infra.toy_operation import NUMBERED, TABLE, MyOperations
from whenabouts.core import InputError, Point, QueryError, local, operations, within
from whenabouts.core.hosting.operation_names import OPERATION_NAMES
from whenabouts.spark_plugin import run, write_stream
from whenabouts.spark_plugin.api import ENGINE

BatchOf = Callable[[pa.Table], DataFrame]
StreamOf = Callable[[Sequence[pa.Table]], DataFrame]

T = pa.table({"t": [1, 5, 9], "k": [1, 2, 1], "v": [1, 1, 2]})
RUNS: dict[str, Any] = {"time": "t", "values": "v", "group": "k"}
JOIN: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "condition": within(1, confidence=1)}


def rows(frame: DataFrame) -> Counter[Any]:
    return Counter(tuple(row) for row in frame.collect())


def local_rows(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture(autouse=True)
def _operation_of_ones_own() -> Iterator[None]:
    """Workers have no such module: it is pickled by value."""
    cloudpickle.register_pickle_by_value(toy_operation)
    yield
    cloudpickle.unregister_pickle_by_value(toy_operation)


def test_the_package_offers_the_declared_operations() -> None:
    for name in OPERATION_NAMES:
        function = getattr(on_spark, name)
        assert function.__func__ is getattr(operations, name).__func__
        assert name in dir(on_spark)
        assert (
            cloudpickle.loads(cloudpickle.dumps(getattr(on_spark, name))).__func__ is getattr(on_spark, name).__func__
        )


def test_an_operation_of_ones_own_runs_in_batch(batch_of: BatchOf) -> None:
    frame = batch_of(TABLE)
    for mine in (MyOperations(ENGINE), MyOperations()):
        assert set(rows(mine.numbered(frame, time="t", key="k", buckets=3))) == NUMBERED


def test_an_operation_of_ones_own_runs_as_a_stream(stream_of: StreamOf, tmp_path: Path) -> None:
    frame = stream_of([TABLE.slice(place, 2) for place in range(0, 6, 2)])
    numbered = MyOperations().numbered(frame, time="t", key="k", buckets=2)
    writer = write_stream(numbered, str(tmp_path / "checkpoint")).format("memory").queryName("numbered")
    writer.trigger(availableNow=True).start().awaitTermination()
    assert set(rows(frame.sparkSession.table("numbered"))) == NUMBERED


def test_a_dataframe_says_that_spark_runs_it(batch_of: BatchOf) -> None:
    found = operations.coalesce(batch_of(T), **RUNS)
    assert rows(found) == local_rows(local.coalesce(T, **RUNS))
    assert operations.rejects(found).count() == 0


def test_frames_of_two_engines_are_refused(batch_of: BatchOf) -> None:
    frame = batch_of(T)
    with pytest.raises(InputError, match=r"WA-1062: the left input belongs to Spark, the right .* local engine"):
        operations.timing_join(frame, T, **JOIN)
    with pytest.raises(InputError, match=r"WA-1062: the right input is .*give a DataFrame of Spark"):
        on_spark.timing_join(frame, T, **JOIN)


def test_repeats_are_taken_in_once_in_every_operation(batch_of: BatchOf) -> None:
    twice = batch_of(pa.concat_tables([T, T]))
    assert rows(on_spark.coalesce(twice, **RUNS, deduplicate_by="v")) == local_rows(local.coalesce(T, **RUNS))
    with pytest.warns(DeprecationWarning, match="dedupe= is deprecated: use deduplicate_by="):
        pairs = on_spark.timing_join(twice, twice, **JOIN, dedupe="v")
    assert pairs.count() == 3


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("watermarks", "source", "Spark has one watermark"),
        ("name", "mine", "queryName"),
        ("threads", 2, "executors' cores"),
        ("max_latency", "1 s", "set the writer's trigger"),
    ],
)
def test_what_spark_lacks_is_refused_and_why(batch_of: BatchOf, option: str, value: str | int, why: str) -> None:
    frame, given = batch_of(T), {option: value}
    with pytest.raises(QueryError, match=rf"WA-2007: Spark does not support {option} \(hint: .*{why}"):
        on_spark.coalesce(frame, **RUNS, **given)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=rf"WA-2007: Spark does not support {option}"):
        run(toy_operation.Numbered(time="t", key="k"), [frame], **given)  # type: ignore[arg-type]
    if option == "max_latency":  # where it is an option of the query, a strategy uses it
        assert on_spark.timing_join(frame, frame, **JOIN, max_latency="1 s").count() == 3
