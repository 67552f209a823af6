"""The Spark of queries over files: settings for brief runs, a JVM that does not start, and the progress of streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from whenabouts.core.hosting.stream_progress import StreamProgress
from whenabouts.spark_plugin import file_session as module
from whenabouts.spark_plugin.file_runs import _PLAIN, _plain_schema
from whenabouts.spark_plugin.observing import VALUES, Watcher

COMMAND = "join x.csv x.csv --left-time t --right-time t --within 1s --confidence 1 --time-unit us --engine spark"


@pytest.mark.parametrize(
    ("rows", "running", "brief"),
    [(0, False, True), (2_000_000, False, True), (2_000_001, False, False), (None, False, False), (5, True, False)],
)
def test_brief_runs_have_their_own_settings(
    monkeypatch: pytest.MonkeyPatch, rows: int | None, running: bool, brief: bool
) -> None:
    """A running session keeps its own, and prints where it did."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(module, "local_session", lambda **options: asked.update(options))
    monkeypatch.setattr(SparkContext, "_active_spark_context", object() if running else None)
    module.file_session(rows)
    assert ("spark__driver__extraJavaOptions" in asked) is brief
    assert ("spark__sql__codegen__wholeStage" in asked) is brief
    assert (asked["output"] is None) is running
    assert asked["spark__sql__caseSensitive"] == "true"


@pytest.mark.slow
def test_a_jvm_that_does_not_start_says_why_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("t\n1\n")
    known = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "SPARK_SUBMIT_OPTS": "-Xms900g"}
    words = [sys.executable, "-c", "from whenabouts.cli import main; main()", *COMMAND.split()]
    done = subprocess.run(words, cwd=tmp_path, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("error: WA-3005: Spark's JVM did not start: ")
    assert "heap" in done.stderr
    assert done.stderr.count("\n") == 1


def test_each_micro_batch_of_a_stream_is_seen_once_however_many_ended_between_two_looks() -> None:
    seen: list[StreamProgress] = []
    progress: list[Any] = []

    def ended(batch: int, watermark: str, **counts: int) -> None:
        row = SimpleNamespace(asDict=lambda: {VALUES: counts})
        observed = {"whenabouts 1: join": row, "other": None}
        progress.append(SimpleNamespace(batchId=batch, observedMetrics=observed, eventTime={"watermark": watermark}))

    def look() -> None:
        last = progress[-1] if progress else None
        watcher.look(SimpleNamespace(lastProgress=last, recentProgress=list(progress)))  # type: ignore[arg-type]

    watcher = Watcher(seen.append)
    look()
    assert not seen
    ended(0, "1970-01-01T00:00:00.000Z", rows_in=5, rows_stored=3)
    look()
    look()
    assert seen == [StreamProgress(5, 0, 0, 3, None)]
    ended(1, "1970-01-01T00:00:00.000Z", rows_in=1)
    ended(2, "2024-05-01T10:00:00.000Z", rows_in=4, matched=2, rows_evicted=1)
    look()
    assert seen[1:] == [StreamProgress(6, 0, 0, 3, None), StreamProgress(10, 2, 0, 2, 1_714_557_600_001_000)]


@pytest.mark.slow
def test_schemas_of_staged_files_are_those_that_spark_infers(spark: SparkSession, tmp_path: Path) -> None:
    """Without the job in which Spark infers one; a type that only Spark can place is left to it."""
    types = [*_PLAIN, pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")]
    fields = [pa.field(f"{type_}{nullable}", type_, nullable) for type_ in types for nullable in (True, False)]
    pq.write_table(pa.schema(fields).empty_table(), tmp_path / "rows.parquet")
    assert _plain_schema(tmp_path) == spark.read.parquet(tmp_path.as_uri()).schema
    pq.write_table(pa.table({"d": pa.array([], pa.duration("us"))}), tmp_path / "rows.parquet")
    assert _plain_schema(tmp_path) is None
