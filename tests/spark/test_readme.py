"""The README's call for streams, as it is written there, on a stream of Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import whenabouts as wa

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_block_for_engines_runs_on_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """It gives the pairs of the rows of a file each."""
    schema = "region string, t_min timestamp, t_max timestamp"
    names: dict[str, Any] = {"wa": wa}
    for side in ("seismic", "acoustic"):
        folder = tmp_path / side
        for number, second in enumerate((10, 50)):
            at = f"timestamp '2024-05-01 10:00:{second}'"
            rows = spark.sql(f"SELECT 'a' AS region, {at} AS t_min, {at} AS t_max")
            rows.coalesce(1).write.mode("append").parquet(f"{folder}/{number}")
        names[side] = spark.readStream.schema(schema).parquet(f"{folder}/*")
    block = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[1]
    exec(block, names)
    running = (
        names["pairs"].writeStream.format("memory").queryName("readme").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    running.awaitTermination()
    assert spark.table("readme").count() == 2
    assert names["late_or_malformed"].isStreaming
