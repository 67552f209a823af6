"""`--engine spark` gives the rows, rejects and account of `--engine local`, in batch and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.core import Code, EngineError

Cli = Callable[..., Result]


def sides(folder: Path, n: int = 60, files: int = 3) -> None:
    """Two folders of files with keys, nulls, bad intervals, and columns of types that Spark lacks."""
    draw = np.random.default_rng(7)
    for name in ("left", "right"):
        (folder / name).mkdir()
        start = np.sort(draw.integers(1, 3_000_000, n))
        table = pa.table(
            {
                "t_min": pa.array(start, mask=draw.random(n) < 0.05),
                "t_max": pa.array(start + draw.integers(-500, 20_000, n)),
                "k": pa.array(draw.choice(["x", "y", "z"], n)).dictionary_encode(),
                "small": pa.array(draw.integers(0, 200, n), pa.uint8()),
                "nothing": pa.nulls(n),
                "at": pa.array(start, pa.timestamp("ms", "Europe/Berlin")),
            }
        )
        for number in range(files):
            pq.write_table(table.slice(number * n // files, n // files), folder / name / f"{number}.parquet")


def rows(file: str) -> list[dict[str, Any]]:
    return sorted(pq.read_table(file).to_pylist(), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["", "--stream --lateness 5s"])
def test_spark_gives_what_local_gives(cli: Cli, tmp_path: Path, mode: str) -> None:
    sides(tmp_path)
    outcomes = {}
    for engine in ("local", "spark"):
        done = cli(
            f"join left right --on k --left-time t_min,t_max --right-time t_min,t_max --within 30ms --confidence 0.4 "
            f"--engine {engine} -o {engine}.parquet --rejects {engine}-bad.parquet {mode}"
        )
        assert done.exit_code == 0, done.output
        account = [line for line in done.stderr.splitlines() if line.startswith(("rows in", "rejected"))]
        schema = pq.read_schema(f"{engine}.parquet")
        outcomes[engine] = (
            rows(f"{engine}.parquet"),
            rows(f"{engine}-bad.parquet"),
            [line.partition(" ->")[0] for line in account],
            schema.names,
            schema.types,
        )
    assert len(outcomes["local"][0]) > 10
    assert len(outcomes["local"][1]) > 2
    assert outcomes["spark"] == outcomes["local"]


def test_what_spark_raises_ends_with_4(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whenabouts.cli import spark_engine

    (tmp_path / "a.csv").write_text("t\n1\n")
    line = "join a.csv a.csv --left-time t --right-time t --within 1s --confidence 1 --engine spark"

    def wrong_version() -> None:
        raise EngineError(Code.ENGINE_VERSION, "pyspark is 3.5.0, at least 4.1 is needed", "pip install it")

    def crash() -> None:
        raise RuntimeError("JVM exited")

    for check, told in (
        (wrong_version, "WA-3002: pyspark is 3.5.0"),
        (crash, "WA-3005: the run on engine spark failed"),
    ):
        monkeypatch.setattr(spark_engine, "check_environment", check)
        done = cli(line)
        assert done.exit_code == 4
        assert done.stderr.startswith(f"error: {told}")
