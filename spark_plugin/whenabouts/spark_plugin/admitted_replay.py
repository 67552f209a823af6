"""The replay with admission control, which Spark offers to Python sources from 4.2 on."""

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
    """Spark passes its position and the number of rows that it will read."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override,unused-ignore]  # noqa: N802
        """The offset of the rows that are due now, within the limit."""
        return self._due(self._row(start), limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """maxRowsPerTrigger, or no limit."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """The end of the files, so that progress shows how many rows remain."""
        return self._offset(self._end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """All rows are due: the pace is ignored."""
        self._paced = False
