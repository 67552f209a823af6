"""The pages for those who come from Spark's joins and from Tempo show what both print."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.pages import run_blocks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.full
def test_streams_of_spark(spark: SparkSession) -> None:
    assert run_blocks("coming-from-spark.md", {"spark": spark}) == 2


def test_as_of_joins(spark: SparkSession) -> None:
    """Tempo itself is no dependency: its block gives only the inputs here."""
    names = {"spark": spark}
    page = Path(__file__).parents[2] / "docs" / "coming-from-tempo.md"
    inputs = page.read_text().partition("from tempo import TSDF\n")[2].partition("\nleft, right")[0]
    exec(inputs, names)
    assert run_blocks("coming-from-tempo.md", names, without="TSDF") == 2
