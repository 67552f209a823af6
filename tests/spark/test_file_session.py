"""The Spark of queries over files: settings for brief runs, a JVM that does not start, and the progress of streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from whenabouts.core.hosting.stream_progress import StreamProgress
from whenabouts.spark_plugin import file_session as module
from whenabouts.spark_plugin.observing import VALUES, watched

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


def test_a_stream_is_watched_while_it_runs_and_no_longer() -> None:
    """Spark delivers late events to listeners that were removed, and those of other queries to all."""
    listeners: list[Any] = []
    session: Any = SimpleNamespace(
        streams=SimpleNamespace(addListener=listeners.append, removeListener=lambda listener: None)
    )
    seen: list[StreamProgress] = []

    def event(run: str, watermark: str, **counts: int) -> Any:
        row = SimpleNamespace(asDict=lambda: {VALUES: counts})
        progress = SimpleNamespace(
            runId=run, observedMetrics={"whenabouts 1: join": row, "other": None}, eventTime={"watermark": watermark}
        )
        return SimpleNamespace(progress=progress)

    with watched(session, SimpleNamespace(runId="mine"), seen.append):  # type: ignore[arg-type]
        (listener,) = listeners
        listener.onQueryProgress(event("mine", "1970-01-01T00:00:00.000Z", rows_in=5, rows_stored=3))
        listener.onQueryProgress(event("another", "1970-01-01T00:00:00.000Z", rows_in=7))
        listener.onQueryProgress(event("mine", "2024-05-01T10:00:00.000Z", rows_in=4, matched=2, rows_evicted=1))
    listener.onQueryProgress(event("mine", "2024-05-01T10:00:00.000Z", rows_in=1))
    assert seen == [StreamProgress(5, 0, 0, 3, None), StreamProgress(9, 2, 0, 2, 1_714_557_600_001_000)]
