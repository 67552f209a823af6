"""The end of a stream that does have one: files that are used up, a test, a replay.

Spark's watermark stays where the last rows left it, so that what waits for it (runs, outer rows, best partners) would
wait for ever. A marker stream says in one more micro-batch that nothing will follow.
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
        """The inputs have ended: the next micro-batch gives all final results and drops the state."""
        unseen = self._folder / "_ended.parquet"  # Spark does not look at names with an underscore in front
        pq.write_table(pa.table({"ended": [True]}), unseen)
        unseen.rename(self._folder / "ended.parquet")


def run_to_end(query: StreamingQuery, end: EndOfInput) -> None:
    """Let a started query use up what its sources have now, tell it that this was all, and stop it.

    Blocks until the final results are written. Raises StreamingQueryException if the query fails.
    """
    query.processAllAvailable()
    end.declare()
    query.processAllAvailable()
    query.stop()
