"""Counts of a stream as observed metrics of Spark's `StreamingQueryProgress`, and a line per micro-batch.

The names are those of `whenabouts.core.metrics`, the same on every engine. Spark itself reports the watermark.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import datetime
from itertools import count
from typing import Any, TextIO

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    aggregate,
    array_contains,
    coalesce,
    col,
    collect_list,
    from_json,
    lit,
    map_filter,
    map_zip_with,
    split,
    when,
)
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from whenabouts.core import metrics
from whenabouts.core.hosting.host import COUNTS
from whenabouts.core.hosting.micro_batch_watermark import MicroBatchWatermark
from whenabouts.core.hosting.stream_progress import ProgressCounter, Watch
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.runtime.protocol import Query
from whenabouts.spark_plugin.tagged_rows import BLOB, TAG

PREFIX = "whenabouts"
VALUES = "counts"
"""The only observed column: a map from names to numbers."""

_number = count(1)


def observe_counts(tagged: DataFrame, query: Query) -> DataFrame:
    """The same tagged rows, with their counts observed under the query's description, as a map without zeros.

    Each stream has a number of its own: Spark refuses one name for two operators of a query.
    """
    # One aggregate and one expression for all names: a sum for each name would be planned, and its code generated, in
    # every micro-batch and task, which took a seventh of the JVM's time in small micro-batches.
    said = collect_list(when(col(TAG) == COUNTS, col(BLOB).cast("string")))
    names = split(lit(_BETWEEN.join(metrics.shown_of(query))), _BETWEEN)
    sums = aggregate(said, _counts_of(lit("{}")), lambda total, text: _added(total, _counts_of(text)))
    nonzero = map_filter(sums, lambda name, number: (number != 0) & array_contains(names, name))
    return tagged.observe(f"{PREFIX} {next(_number)}: {query.described}", nonzero.alias(VALUES))


_BETWEEN = "\n"


def _counts_of(text: Column) -> Column:
    return from_json(text, "map<string, bigint>")


def _added(total: Column, counts: Column) -> Column:
    return map_zip_with(total, counts, lambda _, one, other: coalesce(one, lit(0)) + coalesce(other, lit(0)))


def metrics_of(progress: StreamingQueryProgress) -> Counter[str]:
    """The counts of a micro-batch, summed over the query's operators of this package; empty if there are none.

    `state_rows_*` and `state_bytes_*` are what the buckets that took part in the micro-batch hold after it.
    """
    observed = getattr(progress, "observedMetrics", None)
    if observed is None:
        raise refused("the progress", progress, "give query.lastProgress, or event.progress in a listener")
    total: Counter[str] = Counter()
    for name, row in observed.items():
        if name.startswith(PREFIX):
            total.update(row.asDict()[VALUES])
    return total


class PrintProgress(StreamingQueryListener):
    """Prints a line for each micro-batch with rows: `spark.streams.addListener(PrintProgress())`."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name, as below
        """Prints nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Prints nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Prints nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Print one line."""
        counts = metrics_of(event.progress)
        if counts[metrics.ROWS_IN]:
            print(line(event.progress, counts), file=self._file or sys.stderr, flush=True)


class Watcher:
    """Tells a function how far a query has come, between its micro-batches.

    A listener would be told of each micro-batch, too, but Python reads its events by so many calls to the JVM that they
    take a tenth of the CPU of a brief stream.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch, self._counter, self._seen = watch, ProgressCounter(), -1

    def look(self, query: StreamingQuery) -> None:
        """Call the function for each micro-batch that has ended since the last look."""
        last = query.lastProgress
        if last is None or last.batchId <= self._seen:
            return
        for progress in [last] if last.batchId == self._seen + 1 else query.recentProgress:
            if progress.batchId > self._seen:
                self._seen = progress.batchId
                self._counter.add(metrics_of(progress))
                watermark = progress.eventTime.get("watermark")
                ms = 0 if watermark is None else int(datetime.fromisoformat(watermark).timestamp() * 1000)
                self._watch(self._counter.now(MicroBatchWatermark(ms).us))


def line(progress: StreamingQueryProgress, counts: Counter[str]) -> str:
    """The line that `PrintProgress` prints."""
    rows, held = (
        sum(value for name, value in counts.items() if name.startswith(kind))
        for kind in (metrics.state_rows(""), metrics.state_bytes(""))
    )
    parts = [
        f"{progress.name or 'query'} {progress.batchId}: {counts[metrics.ROWS_IN]:,} rows in",
        f"{counts[metrics.MATCHED]:,} out",
        f"{counts[metrics.REJECTED]:,} rejected, {counts[metrics.LATE]:,} of them late",
        f"state {rows:,} rows, {held / 1e6:,.1f} MB",
    ]
    lag = _lag_s(progress.eventTime)
    return ", ".join(parts if lag is None else [*parts, f"watermark {lag:,.1f} s behind"])


def _lag_s(event_time: dict[str, str]) -> float | None:
    if "max" not in event_time or "watermark" not in event_time:
        return None
    latest, watermark = (datetime.fromisoformat(event_time[name]) for name in ("max", "watermark"))
    return (latest - watermark).total_seconds()
