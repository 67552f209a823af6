"""Spark Declarative Pipelines, with the files that docs/spark.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from infra.connect import needs_connect
from infra.processes import YOUNG

pytestmark = [pytest.mark.slow, needs_connect]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
INSIDE = """
@dp.materialized_view
def inside() -> DataFrame:
    return wa.timing_join(clicks, orders, **times)
"""


def _project(folder: Path, more: str = "", without: str = "\0") -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Declarative Pipelines\n")[2].partition("\n## ")[0]
    code, settings = re.findall(r"```\w+\n(.*?)```", section, re.DOTALL)
    (folder / "transformations").mkdir()
    (folder / "transformations" / "pairs.py").write_text(code + more)
    other = '  spark.sql.ansi.enabled: "true"\n'
    file = "".join(other if without in line else line for line in settings.splitlines(keepends=True))
    (folder / "spark-pipeline.yml").write_text(file.replace("/PATH", str(folder)))
    for number, name in enumerate(("clicks", "orders")):
        at = pa.array([(10 * k + number) * 1_000_000 for k in range(4)], pa.timestamp("us", "UTC"))
        (folder / name).mkdir()
        pq.write_table(pa.table({"t": at, "id": range(4)}), folder / name / "a.parquet")


def _pipelines(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).parent / "spark-pipelines"
    return subprocess.run(
        [str(tool), command, "--spec", "spark-pipeline.yml", "--conf", "spark.sql.shuffle.partitions=2"],
        env=os.environ
        | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": pyspark.__path__[0], "SPARK_SUBMIT_OPTS": YOUNG},
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def test_the_documented_pipeline_makes_its_tables(tmp_path: Path) -> None:
    _project(tmp_path)
    ran = _pipelines(tmp_path, "run")
    assert ran.returncode == 0, ran.stderr[-3000:]
    made = tmp_path / "spark-warehouse"
    for name in ("pairs", "pairs_so_far"):
        table = pq.read_table(made / name)
        assert sorted(zip(table["id_left"].to_pylist(), table["id_right"].to_pylist(), strict=True)) == [
            (k, k) for k in range(4)
        ]
    assert sorted(pq.read_table(made / "pairs_of_click")["count"].to_pylist()) == [1] * 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"more": INSIDE}, "may not ask Spark for the columns of its inputs"),
        ({"without": "providerClass"}, "set it under `configuration` in spark-pipeline.yml"),
    ],
)
def test_what_a_definition_may_not_do_is_refused_with_a_code(tmp_path: Path, change: dict[str, str], told: str) -> None:
    _project(tmp_path, **change)
    ran = _pipelines(tmp_path, "dry-run")
    assert ran.returncode != 0
    said = ran.stdout + ran.stderr
    assert "WA-2007" in said, said[-3000:]
    assert told in said
