"""Lets Spark find `format("whenabouts")` by itself: it looks for modules `pyspark_*` with a `DefaultSource`.

Spark imports each of them when a session first looks up a data source: this one must be light and must not fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Event files as a batch, or replayed as a stream; see `whenabouts.spark_plugin.replay_source`."""

    @classmethod
    def name(cls) -> str:
        """The name to pass to `format`."""
        return "whenabouts"

    def schema(self) -> StructType:
        """The columns of the files, and those that a clock model adds."""
        from whenabouts.spark_plugin.replay_source import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from whenabouts.spark_plugin.replay_source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """For `spark.readStream`."""
        from whenabouts.spark_plugin.replay_source import stream_reader

        return stream_reader(self.options, schema)
