"""Places of a stream where a worker waits to be killed, so that its micro-batch cannot be committed.

A trap is a file FOLDER/trap/BATCH-PLACE, which a test makes. The first worker that reaches this place in this
micro-batch renames it to FOLDER/held and waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from time import sleep

import pyarrow as pa
from pyspark import TaskContext

PATIENCE_S = 300

Pass = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def passing(folder: str) -> Pass:
    """The same rows, with the places `output` (at the first of a task) and `done` (after its last)."""

    def go_by(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stop_if_trapped(folder, "output")
            yield batch
        stop_if_trapped(folder, "done")

    return go_by


def stop_if_trapped(folder: str, place: str) -> None:
    """Wait to be killed if a trap is set for this place of this micro-batch."""
    task = TaskContext.get()
    assert task is not None
    try:
        os.rename(f"{folder}/trap/{task.getLocalProperty('streaming.sql.batchId')}-{place}", f"{folder}/held")
    except FileNotFoundError:
        return
    sleep(PATIENCE_S)
    raise TimeoutError("nobody killed this worker")
