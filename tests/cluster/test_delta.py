"""Early answers of `coalesce` on Spark, merged into a real Delta table by the code of docs/coalescing.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.jars import NotFetchedError, delta_package, of_delta
from infra.processes import YOUNG
from whenabouts.conformance import multiset
from whenabouts.core.local import coalesce

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "coalescing.md"
FILES = [
    pa.table(
        {"room": rooms, "t": pa.array([s * 1_000_000 for s in t], pa.timestamp("us", "UTC")), "lamp": lamp},
    )
    for rooms, t, lamp in [
        (list("aaab"), [1, 2, 5, 2], ["on"] * 4),
        (list("a"), [4], ["off"]),
        (list("aab"), [3, 9, 1], ["off", "on", "on"]),
        (list("ab"), [8, 9], ["off", "off"]),
    ]
]


def test_the_documented_merge_keeps_a_delta_table(tmp_path: Path) -> None:
    """After each micro-batch, merged twice as after a failure, the table has the rows of a stream that ends there."""
    pytest.importorskip("pyspark")
    try:
        jars, package = of_delta(), delta_package()
    except NotFetchedError as missing:
        pytest.skip(str(missing))
    found = re.search(r"```python\n(def merge.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "merge.py").write_text(found[1], encoding="utf-8")
    for name in ("events", "tables"):
        (tmp_path / name).mkdir()
    for number, table in enumerate(FILES):
        path = tmp_path / "events" / f"{number}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_000_000_000 + number,) * 2)  # Spark takes files in the order of their times
    program = [sys.executable, str(TESTS / "infra" / "merge_into_delta.py"), str(tmp_path / "merge.py"), str(tmp_path)]
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": path, "SPARK_SUBMIT_OPTS": YOUNG}
    ran = subprocess.run(
        [*program, *map(str, jars)], env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    tables = sorted((tmp_path / "tables").iterdir(), key=lambda path: int(path.stem))
    held = [multiset.rows(pq.read_table(path)) for path in tables]
    assert len(held) >= len(FILES)
    for number in range(1, len(FILES) + 1):
        final = coalesce(pa.concat_tables(FILES[:number]), time="t", group="room", values="lamp")
        assert multiset.rows(final) in held, f"after file {number}"
