"""Every engine gives the rows, rejects and counts of `--engine local`, in batch and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
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
    """Two folders of shuffled files with keys, nulls, bad intervals, and columns of types that Spark lacks."""
    draw = np.random.default_rng(7)
    for name in ("left", "right"):
        (folder / name).mkdir()
        start = draw.integers(1, 3_000_000, n)
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


ENGINES = ("spark", *(["flink"] if find_spec("pyflink") else []))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # a client in this process leaves sockets and pipes to the garbage collector
@pytest.mark.parametrize("mode", [pytest.param("", marks=pytest.mark.full), "--stream --lateness 5s"])
@pytest.mark.parametrize("other", ENGINES)
def test_an_engine_gives_what_local_gives(cli: Cli, tmp_path: Path, other: str, mode: str) -> None:
    sides(tmp_path)
    outcomes = {}
    for engine in ("local", other):
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
    assert outcomes[other] == outcomes["local"]


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize("mode", ["", "--stream --lateness 5s"])
@pytest.mark.parametrize("other", ENGINES)
def test_keys_of_text_files_are_equal_as_they_are_written_on_every_engine(
    cli: Cli, tmp_path: Path, other: str, mode: str
) -> None:
    """Leading zeros, integers of 20 digits, numbers on one side only, a row outside the calendar."""
    keys = ["007", "7", "12345678901234567890", "12345678901234567891"]
    lines = [f"{key},{t}" for t, key in enumerate(keys, 10)]
    for name, order in (("l", lines), ("r", lines[::-1])):
        (tmp_path / name).mkdir()
        for number in range(2):
            half = "\n".join(["k,t", *order[2 * number : 2 * number + 2], f"7,{2**63 - 1}"])
            (tmp_path / name / f"{number}.csv").write_text(half + "\n")
    for engine in ("local", other):
        done = cli(
            f"join l r --on k --left-time t --right-time t --within 1s --confidence 1 {mode} "
            f"--engine {engine} -o {engine}.parquet --rejects {engine}.csv"
        )
        assert done.exit_code == 0, done.output
        assert sorted(row["k"] for row in rows(f"{engine}.parquet")) == sorted(keys)
        assert "rejected: 4 x WA-1007" in done.stderr
    assert sorted(Path("local.csv").read_text().splitlines()) == sorted(Path(f"{other}.csv").read_text().splitlines())


TEXTS = {
    "--streaming --lateness 5s": (
        "SELECT A.small AS one, B.small AS other, probability FROM l A, r B "
        "WHERE A.k = B.k AND WINDOW(A, B) = '30 ms' WITH THRESHOLD 0.4 AND A.small < 150 AND A.small <> B.small"
    ),
    "": (
        "SELECT A.small AS x, B.small AS y, C.small AS z, t_first FROM l A, r B, l C WHERE A.k = B.k AND B.k = C.k "
        "AND WINDOW(A, B) = '100 ms' WITH THRESHOLD 0.5 AND WINDOW(B, C) BETWEEN '0 s' AND '90 ms' WITH THRESHOLD 0.5"
    ),
}


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize("mode", TEXTS)
@pytest.mark.parametrize("other", ENGINES)
def test_texts_that_join_run_on_every_engine(cli: Cli, tmp_path: Path, other: str, mode: str) -> None:
    """A timing join as a stream, and a window join in batch; the planner plans the queries that the engines run."""
    sides(tmp_path)
    streams = "--input l=left --input r=right --time t_min,t_max"
    found = {}
    for engine in ("local", other):
        line = f"{streams} --engine {engine} -o {engine}.parquet --rejects {engine}-bad.parquet {mode}"
        done = cli("query", TEXTS[mode], *line.split())
        assert done.exit_code == 0, done.output
        found[engine] = rows(f"{engine}.parquet"), rows(f"{engine}-bad.parquet")
    assert len(found["local"][0]) > 10
    assert found[other] == found["local"]
    (tmp_path / "query.sql").write_text(TEXTS[mode])
    planned = cli("plan", "query.sql", "--explain", *streams.split())
    assert planned.exit_code == 0, planned.output
    for part in ("(measured)", "strategy = ", "buckets = ", "state: ", "latency: "):
        assert part in planned.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.full
@pytest.mark.parametrize("mode", ["", "--stream --lateness 5s"])
def test_spark_reads_parquet_files_itself(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Files of one schema whose times have a zone are never read by the command, and the rows are those of `local`."""
    for number in range(2):
        at = pa.array([(number * 10_000 + n * 700) * 1000 for n in range(12)], pa.timestamp("us", "Europe/Paris"))
        table = pa.table({"k": [n % 3 for n in range(12)], "t": at, "id": range(12 * number, 12 * number + 12)})
        (tmp_path / "events").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "events" / f"{number}.parquet")
    line = f"join events events --on k --left-time t --right-time t --within 2s --confidence 1 --how full_outer {mode}"
    assert cli(f"{line} -o local.parquet").exit_code == 0
    for module in ("tables", "inputs"):
        monkeypatch.setattr(f"whenabouts.cli.{module}.read_file", None)
    done = cli(f"{line} --engine spark -o spark.parquet")
    assert done.exit_code == 0, done.stderr
    assert rows("spark.parquet") == rows("local.parquet")
    assert pq.read_schema("spark.parquet").equals(pq.read_schema("local.parquet"))


@pytest.mark.parametrize("engine", ["spark", "flink"])
def test_what_an_engine_raises_ends_with_4(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    (tmp_path / "a.csv").write_text("t\n1\n")
    line = f"join a.csv a.csv --left-time t --right-time t --within 1s --confidence 1 --engine {engine}"

    def wrong_version() -> None:
        raise EngineError(Code.ENGINE_VERSION, f"{engine} is 0.5.0, a newer one is needed", "pip install it")

    def crash() -> None:
        raise RuntimeError("JVM exited")

    for check, told in (
        (wrong_version, f"WA-3002: {engine} is 0.5.0"),
        (crash, f"WA-3005: the run on engine {engine} failed"),
    ):
        monkeypatch.setattr(f"whenabouts.{engine}_plugin.check_environment", check)
        done = cli(line)
        assert done.exit_code == 4
        assert done.stderr.startswith(f"error: {told}")
