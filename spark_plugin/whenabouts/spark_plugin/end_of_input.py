"""Signals the end of a stream that has one: files that are all read, a test, a replay.

Spark's watermark stays where the last rows left it, so that rows which wait for it (coalesced rows, outer rows, best
partners) would wait for ever. A marker stream reports the end in one more micro-batch.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class EndOfInput:
    """A folder in which a file appears once the inputs have ended; `stream` is what `run(end_of_input=...)` takes.

    Keep the folder beside the checkpoint: a restarted query asks for the same one.
    """

    def __init__(self, session: SparkSession, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.stream: DataFrame = session.readStream.schema("ended boolean").parquet(self._folder.absolute().as_uri())

    def declare(self) -> None:
        """The inputs have ended: the next micro-batch emits all final results and deletes the state."""
        unseen = self._folder / "_ended.parquet"  # Spark ignores names that begin with an underscore
        pq.write_table(pa.table({"ended": [True]}), unseen)
        unseen.rename(self._folder / "ended.parquet")


def run_to_end(query: StreamingQuery, end: EndOfInput) -> None:
    """Let a started query read all that its sources have now, signal the end of the input, and stop it.

    Blocks until the final results are written. Raises StreamingQueryException if the query fails.
    """
    query.processAllAvailable()
    end.declare()
    query.processAllAvailable()
    query.stop()
