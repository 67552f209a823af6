"""Checkpoints at any path are read before a restart, and one that cannot be read is never taken for another query's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from whenabouts.core import EngineError, Point, QueryError, within
from whenabouts.spark_plugin import checkpoints, timing_join, write_stream, write_with_rejects

pytestmark = pytest.mark.slow

StreamOf = Callable[[Sequence[pa.Table]], DataFrame]
ROWS = pa.table({"t": pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC")), "k": [1, 1]})


def pairs(stream: DataFrame, **options: Any) -> DataFrame:
    given: dict[str, Any] = {"on": "k", "condition": within("1 s", confidence=1), "lateness": "1 s", "buckets": 2}
    joined: DataFrame = timing_join(stream, stream, left_time=Point("t"), right_time=Point("t"), **(given | options))
    return joined


def run_from(checkpoint: Path, rows: DataFrame) -> None:
    write_stream(rows, checkpoint).format("noop").trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("name", ["a b%20#?ö", "[ab]{c}*\\"])
def test_a_query_starts_again_whatever_the_name_of_its_checkpoint(
    stream_of: StreamOf, tmp_path: Path, name: str
) -> None:
    stream, checkpoint = stream_of([ROWS]), tmp_path / name
    run_from(checkpoint, pairs(stream))
    assert (checkpoint / "commits").is_dir()
    run_from(checkpoint, pairs(stream))
    with pytest.raises(EngineError, match=r"WA-3032: .*how was 'inner' and is 'left_outer'"):
        write_stream(pairs(stream, how="left_outer"), checkpoint)


def test_a_checkpoint_that_cannot_be_read_is_not_of_another_query(
    stream_of: StreamOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, checkpoint = stream_of([ROWS]), tmp_path / "checkpoint"
    run_from(checkpoint, pairs(stream))
    with monkeypatch.context() as away:  # as on a file system that Spark's driver does not share with Python
        away.setattr(checkpoints, "_committed", lambda *_: "hdfs://host/a%20b")
        with pytest.raises(EngineError, match=r"WA-3005: Spark cannot read state in hdfs://host/a%20b"):
            write_stream(pairs(stream), checkpoint)
    for partition in (checkpoint / "state" / "0").glob("[0-9]*"):
        rmtree(partition)
    with pytest.raises(EngineError, match=r"WA-3005: the checkpoint .* cannot be read"):
        write_stream(pairs(stream), checkpoint)


def test_a_checkpoint_without_any_row_yet_is_ours(stream_of: StreamOf, tmp_path: Path) -> None:
    stream, checkpoint = stream_of([ROWS[:0]]), tmp_path / "checkpoint"
    run_from(checkpoint, pairs(stream))
    assert list((checkpoint / "commits").glob("[0-9]*"))
    run_from(checkpoint, pairs(stream))


@pytest.mark.parametrize("wrong", [None, "", " ", b"x", 4])
def test_what_is_no_path_is_said_to_be_none(stream_of: StreamOf, wrong: Any) -> None:
    rows = pairs(stream_of([ROWS]))
    with pytest.raises(QueryError, match=r"WA-2006: checkpoint is .*, which is no path"):
        write_stream(rows, wrong)
    if wrong is not None:
        with pytest.raises(QueryError, match=r"WA-2006: checkpoint is .*, which is no path"):
            write_with_rejects(rows, print, print, checkpoint=wrong)


def test_rows_and_rejects_need_functions(stream_of: StreamOf) -> None:
    rows = pairs(stream_of([ROWS]))
    wrong: Any = None
    for given, name in (
        ((wrong, print), "write_rows"),
        ((print, wrong), "write_rejects"),
        ((print, print, 3), "counts"),
    ):
        with pytest.raises(QueryError, match=rf"WA-2006: .*{name} is .*, which is no function"):
            write_with_rejects(rows, *given)
