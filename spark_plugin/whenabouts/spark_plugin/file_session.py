"""The Spark that runs queries over files: quiet, and quick to start if there is little to do."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from whenabouts.core.hosting.engine_output import output_file
from whenabouts.core.hosting.machine import usable_cores
from whenabouts.spark_plugin.sessions import local_session
from whenabouts.spark_plugin.workers import Batches, Stage

BRIEF_ROWS = 2_000_000
"""Up to so many rows a run is brief."""

_BRIEF = {
    "spark__driver__extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
}
"""A brief run is over before the JVM's second compiler and generated code pay off: they take a third of its CPU."""

CHECKPOINTS: dict[str, Any] = {
    "spark__sql__streaming__checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark__sql__streaming__checkpoint__fileChecksum__enabled": "false",
    "spark__sql__streaming__stateStore__rocksdb__changelogCheckpointing__enabled": "true",
}
"""Checkpoints on this machine's own disk. Without native code Hadoop starts a process (`chmod`, `readlink`) for each
permission that it sets and each link that it looks for, some 110 in a micro-batch, 2 ms of CPU each. Renaming a file
replaces another at once here, so that no links need be looked for; and fewer files are written."""

_OURS = {
    **CHECKPOINTS,
    "spark__sql__caseSensitive": "true",  # names are exact, as on every engine of the command line
    "spark__sql__maxConcurrentOutputFileWriters": "4",  # with a writer for each tag, Spark need not sort by tag
}

_starting = Lock()


def file_session(rows: int | None) -> SparkSession:
    """The session for a run over so many rows (None: nobody knows), or the running one. Raises as `local_session`."""
    with _starting:
        new = SparkContext._active_spark_context is None
        brief = _BRIEF if new and rows is not None and rows <= BRIEF_ROWS else {}
        return local_session(cores=usable_cores(), output=output_file() if new else None, **_OURS, **brief)


def start(rows: int | None) -> None:
    """Start what a run over so many rows needs: the JVM, and the process from which it forks its Python workers."""
    session = file_session(rows)
    session.range(1).mapInArrow(Stage("warm-up", _same), "id long").collect()


def _same(batches: Batches) -> Iterator[pa.RecordBatch]:
    yield from batches
