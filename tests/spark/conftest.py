"""One Spark session for all tests of an engine; the conformance harness shares it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from whenabouts.spark_plugin.file_session import CHECKPOINTS
from whenabouts.spark_plugin.sessions import local_session

StreamOf = Callable[[Sequence[pa.Table]], DataFrame]
BatchOf = Callable[[pa.Table], DataFrame]


def pytest_configure(config: pytest.Config) -> None:
    # pyspark leaves the sockets of collect() and of its JVM to the garbage collector, which may run in any test.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("whenabouts tests", **CHECKPOINTS)
    yield session
    session.stop()


@pytest.fixture
def batch_of(spark: SparkSession, tmp_path: Path) -> BatchOf:
    """A batch DataFrame over a Parquet file of the table."""

    def make(table: pa.Table) -> DataFrame:
        folder = tmp_path / f"batch{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        pq.write_table(table, folder / "rows.parquet")
        return spark.read.parquet(folder.as_uri())

    return make


@pytest.fixture
def stream_of(spark: SparkSession, tmp_path: Path) -> StreamOf:
    """A streaming DataFrame that takes in one of the tables in every micro-batch."""

    def make(tables: Sequence[pa.Table]) -> DataFrame:
        folder = tmp_path / f"stream{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for number, table in enumerate(tables):
            path = folder / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        schema = spark.read.parquet(folder.as_uri()).schema
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder.as_uri())

    return make
