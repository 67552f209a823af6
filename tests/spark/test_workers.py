"""The memory of a worker, and its actions before each task."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Iterator
from io import BytesIO
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.util import handle_worker_exception

from whenabouts.core.errors import Code, EngineError
from whenabouts.spark_plugin import workers
from whenabouts.spark_plugin.pyspark_archive import without_archive
from whenabouts.spark_plugin.sessions import WORKER_DAEMON


class Knot:
    """Refers to itself: only the garbage collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_lasting_objects_are_set_aside_and_garbage_among_them_is_not_kept_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Objects are frozen in tasks 2, 4, 8: a knot that was alive in task 4 and then dropped is gone after the first
    such task from `_UNFREEZES` on."""
    monkeypatch.setattr(workers, "_tasks", count(1))
    monkeypatch.setattr(workers, "_UNFREEZES", 8)
    before = gc.get_freeze_count()
    try:
        workers.begin_task()
        assert gc.get_freeze_count() == before, "a process with one task has no use for it"
        workers.begin_task()
        assert gc.get_freeze_count() > 1000
        knot = Knot()
        seen = weakref.ref(knot)
        for _ in (3, 4):
            workers.begin_task()
        del knot
        gc.collect()
        for _ in (5, 6, 7):
            workers.begin_task()
        assert seen() is not None, "it was set aside"
        workers.begin_task()
        assert seen() is None
    finally:
        gc.unfreeze()


def test_what_a_forked_worker_shares_is_not_touched_before_its_first_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon has frozen it: a collection in each early task would copy its pages and take as long as Spark's."""
    monkeypatch.setattr(workers, "_tasks", count(1))
    unfrozen: list[int] = []
    monkeypatch.setattr(workers.gc, "unfreeze", lambda: unfrozen.append(1))
    monkeypatch.setattr(workers.gc, "freeze", lambda: None)
    monkeypatch.setattr(workers.gc, "collect", lambda: 0)
    for _ in range(255):
        workers.begin_task()
    assert not unfrozen
    workers.begin_task()
    assert unfrozen


@pytest.mark.parametrize("simplified", ["", "1"])
def test_an_error_is_reported_with_its_code_first(simplified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function with which Spark's workers report errors; other errors keep their tracebacks."""
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)

    def reported(error: Exception) -> str:
        told = BytesIO()
        try:
            with workers.code_first():
                raise error
        except Exception as raised:  # as Spark's workers catch it
            handle_worker_exception(raised, told)
        return told.getvalue()[8:].decode()

    assert reported(ValueError("of others")).startswith("Traceback")
    lacking = reported(EngineError(Code.STATE_LACKS_ROWS, "rows are gone"))
    assert lacking == "whenabouts.core.errors.EngineError: WA-3006: rows are gone\n"


def test_the_environment_of_a_driver_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions for `foreachBatch` run there; the next session's workers would report no tracebacks at all."""
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", object())
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    ours = "Job aborted. whenabouts.core.errors.EngineError: WA-3006: rows are gone"
    with pytest.raises(EngineError, match="WA-3006: rows are gone"), workers.code_of_worker_first():
        raise RuntimeError(ours)
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_an_archive_of_pyspark_is_left_out_where_its_package_would_be_imported(tmp_path: Path) -> None:
    installed, other = (tmp_path / name / "pyspark" for name in ("site-packages", "other"))
    archive = str(installed / "python" / "lib" / "pyspark.zip")
    path = [archive, "py4j.zip", str(tmp_path / "spark/python/lib/pyspark.zip"), str(installed.parent)]
    assert without_archive(path) == path, "there is no package"
    for package in (installed, other):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    assert without_archive(path) == path[1:]
    assert without_archive(path[:-1]) == path[:-1], "it is not on the path"
    before = [archive, str(other.parent), str(installed.parent)]
    assert without_archive(before) == before, "another one comes before it"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at threads in /proc")
def test_workers_are_forked_with_all_kernels_in_memory(spark: SparkSession) -> None:
    """From a process with one thread besides the allocator's, which handles forks: no lock is held forever."""

    def origin(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec = sys.modules["__main__"].__spec__
        threads = [file.read_text().strip() for file in Path(f"/proc/{os.getppid()}/task").glob("*/comm")]
        told = {"main": [spec.name if spec else ""], "aside": [gc.get_freeze_count()], "threads": [threads]}
        yield pa.record_batch(told | {"pyspark": [sys.modules["pyspark"].__file__]})

    schema = "main string, aside bigint, threads array<string>, pyspark string"
    (row,) = spark.range(1, numPartitions=1).mapInArrow(origin, schema).collect()
    assert row.main == WORKER_DAEMON
    assert row.aside > 100_000
    assert Path(row.pyspark) == Path(pyspark.__file__), "from the package with its bytecode, not from Spark's archive"
    assert len([name for name in row.threads if name != "jemalloc_bg_thd"]) == 1, row.threads
