"""The replay under the admission control that sources in Python have from Spark 4.2 on."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (  # type: ignore[import-not-found,unused-ignore]  # not in Spark 4.1
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from whenabouts.spark_plugin.replay_readers import StreamReader


class AdmittedReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc,unused-ignore]
    """Spark says where it stands and how much it will take."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override,unused-ignore]  # noqa: N802
        """What is out by now, within the limit."""
        return self._due(self._row(start), limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """maxRowsPerTrigger, or no limit."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The end of the files: progress tells how far the replay is behind it."""
        return self._offset(len(self._known().at_us))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Everything is available: the pace is left aside."""
        self._paced = False
