"""A standalone cluster of the pip package whose Python has Flink and numba, but not whenabouts: `-pyfs` ships it.

It ships an archive, or the wheel that WHENABOUTS_WHEEL names.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.flink_cluster import running_flink
from whenabouts.core import Point, within
from whenabouts.core.hosting.worker_archive import build_worker_archive
from whenabouts.core.local import timing_join

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.filterwarnings("ignore")]


def test_two_task_managers_share_a_job_that_brings_the_package_along(tmp_path: Path) -> None:
    rows = 2000
    tables = {}
    for seed, name in enumerate(("left", "right")):
        draw = np.random.default_rng(seed)
        columns = {"id": np.arange(rows), "k": draw.integers(0, 50, rows), "t": draw.integers(0, 10**9, rows)}
        tables[name] = pa.table(columns)
        (tmp_path / name).mkdir()
        pq.write_table(tables[name], tmp_path / name / "rows.parquet", row_group_size=500)
    times: Any = {"left_time": Point("t"), "right_time": Point("t")}
    expected = timing_join(tables["left"], tables["right"], on="k", **times, condition=within("1 s", confidence=1))
    shipped = os.environ.get("WHENABOUTS_WHEEL") or build_worker_archive(tmp_path)
    with running_flink(tmp_path / "cluster") as cluster:
        cluster.run(
            Path(__file__).with_name("cluster_job.py"), str(tmp_path), shipped=shipped,
            python__fn_execution__bundle__size="1", execution__checkpointing__interval="500ms",
        )  # fmt: skip
        (done,) = cluster.rest("/jobs/overview")["jobs"]
        assert (done["name"], done["state"]) == ("shipped", "FINISHED")
    lines = [line.split() for part in (tmp_path / "out").glob("*/part-*") for line in part.read_text().splitlines()]
    ids = zip(expected["id_left"].to_pylist(), expected["id_right"].to_pylist(), strict=True)
    assert Counter((int(line[0]), int(line[1])) for line in lines) == Counter(ids)
    assert len({line[2] for line in lines}) == 2, "one task manager had it all"
    assert all("python-dist-" in line[3] for line in lines), lines[0]  # where Flink unpacks the files of a job
