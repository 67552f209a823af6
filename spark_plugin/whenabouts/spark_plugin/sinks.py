"""A writer that warns, when its query starts, of a sink that a restarted query writes to again."""

from __future__ import annotations

import warnings
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from whenabouts.core.errors import AtLeastOnceWarning, Code

AT_LEAST_ONCE = {
    "console": "it is for looking at rows",
    "foreach": "foreachBatch gets the number of the micro-batch: count a repeated one, and do not write it",
    "kafka": "let consumers use each key once, or compact the topic: docs/kafka.md",
}
"""Spark's own sinks that write the rows of a repeated micro-batch again, and what to do about it. Of other sinks, and
of a function for `foreachBatch`, nothing is known."""


class _Warns:
    """What such a writer has besides Spark's own methods; each of these remembers or looks at the sink."""

    _sink = ""

    def format(self, source: str) -> Any:
        """Remember the sink."""
        self._sink = str(source).lower()
        return super().format(source)  # type: ignore[misc]

    def foreach(self, f: Any) -> Any:
        """Remember the sink."""
        self._sink = "foreach"
        return super().foreach(f)  # type: ignore[misc]

    def foreachBatch(self, func: Any) -> Any:  # noqa: N802  # Spark's name
        """Remember the sink."""
        self._sink = "foreachBatch"
        return super().foreachBatch(func)  # type: ignore[misc]

    def start(self, path: str | None = None, format: str | None = None, *more: Any, **options: Any) -> StreamingQuery:
        """Warn of the sink, and start the query."""
        sink = self._sink if format is None else str(format).lower()
        if sink in AT_LEAST_ONCE:
            warnings.warn(
                f"{Code.AT_LEAST_ONCE}: the sink {sink!r} gets rows again when a failure repeats a micro-batch "
                f"(hint: {AT_LEAST_ONCE[sink]}; files, Delta and Iceberg get each row once)",
                AtLeastOnceWarning,
                stacklevel=2,
            )
        started: StreamingQuery = super().start(path, format, *more, **options)  # type: ignore[misc]
        return started


def warning_writer(writer: DataStreamWriter) -> DataStreamWriter:
    """The same writer, Spark Connect's or not, that warns (WA-2054) at `start()`."""
    kind = type(writer)
    made: DataStreamWriter = object.__new__(type(kind.__name__, (_Warns, kind), {"__module__": kind.__module__}))
    vars(made).update(vars(writer))
    return made
