"""The Spark of queries over files: settings for brief runs, and a JVM that does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from whenabouts.spark_plugin import file_session as module

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
