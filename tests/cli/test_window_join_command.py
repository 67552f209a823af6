"""`whenabouts window-join` as users see it, and its rows against the library's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.core import Point
from whenabouts.core.local import window_join

Cli = Callable[..., Result]

GRAPHS = {
    "path": {("a", "b"): "4s", ("b", "c"): "0s..6s"},
    "graph": {("a", "b"): "4s", ("b", "c"): "-2s..6s", ("c", "d"): "5s", ("d", "a"): "5s"},
    "clique": {("a", "b"): "4s", ("b", "c"): "6s", ("a", "c"): "3s"},
    "uniform clique": {("a", "b"): "5s", ("b", "c"): "5s", ("a", "c"): "5s"},
}


def ids(table: pa.Table, streams: list[str]) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in table.select([f"id_{name}" for name in streams]).to_pylist())


@pytest.mark.parametrize("graph", GRAPHS)
def test_rows_are_those_of_the_library_call(cli: Cli, tmp_path: Path, graph: str) -> None:
    streams = sorted({name for pair in GRAPHS[graph] for name in pair})
    random = np.random.default_rng(len(graph))
    tables = {}
    for name in streams:
        key, second = random.integers(0, 2, 14), random.integers(0, 40, 14)
        time = pa.array((1_700_000_000 + second) * 1_000_000, pa.timestamp("us", "UTC"))
        tables[name] = pa.table({"k": key, "t": time, "id": np.arange(14)})
        pq.write_table(tables[name], tmp_path / f"{name}.parquet")
    windows: dict[tuple[str, str], Any] = {
        pair: tuple(window.split("..")) if ".." in window else window for pair, window in GRAPHS[graph].items()
    }
    expected = ids(window_join(tables, windows=windows, time=Point("t"), on="k"), streams)
    assert expected
    files = " ".join(f"{name}={name}.parquet" for name in streams)
    asked = " ".join(f"--window {a},{b}={w}" for (a, b), w in GRAPHS[graph].items())
    algorithms = [
        f"--strategy {s} --conservative {c} --method {m}"
        for s in ("backward", "forward")
        for c in ("gca", "lca", "none")
        if (s, c) != ("forward", "none")
        for m in ("hash", "nested")
    ]
    streams_of = [
        "--stream --lateness 60s --strategy forward",
        "--stream --lateness 60s",
        "--stream --lateness 60s --time-slots 4s",
    ]
    for how in ["", "--time-slots 3s", *streams_of, *algorithms]:
        done = cli(f"window-join {files} --on k --time t {asked} {how} -o out.parquet")
        assert done.exit_code == 0, done.stderr
        assert f"combinations {len(expected):,} -> out.parquet" in done.stderr
        assert ids(pq.read_table("out.parquet"), streams) == expected


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("k,t\n1,2024-01-01T00:00:00Z\n1,\n2,2024-01-01T00:00:09Z\n")
    (tmp_path / "b.csv").write_text("k,lo,hi\n1,2024-01-01T00:00:01Z,2024-01-01T00:00:05Z\n")
    (tmp_path / "c.csv").write_text("k,t\n1,2024-01-01T00:00:02Z\n")
    return tmp_path


MIXED = "window-join a=a.csv b=b.csv c=c.csv --on k --time t --time b=lo,hi"


@pytest.mark.parametrize("mode", ["", "--stream", "--stream --lateness 5s,1s,2s"])
def test_exact_and_uncertain_times_mix(cli: Cli, files: Path, mode: str) -> None:
    done = cli(f"{MIXED} --window a,b=4s@0.5 --window b,c=-9s..1s@0.2 --joint {mode} -o out.parquet --rejects bad.csv")
    assert done.exit_code == 0, done.stderr
    assert "rows in 5 (a 3, b 1, c 1) = processed 4 + rejected 1" in done.stderr
    (row,) = pq.read_table(files / "out.parquet").to_pylist()
    assert (row["probability_a_b"], row["probability_b_c"]) == (0.75, 1.0)
    assert row["probability"] == pytest.approx(0.75)  # c - b lies between -3 s and 1 s
    assert "WA-1003" in (files / "bad.csv").read_text()


def test_predicates_are_about_two_inputs(cli: Cli, files: Path) -> None:
    (files / "d.csv").write_text("k,t,id\n1,2024-01-01T00:00:00Z,1\n1,2024-01-01T00:00:01Z,2\n")
    joined = "window-join x=d.csv y=d.csv --on k --time t --window x,y=1s"
    for text, rows in (("x.id < y.id", 1), ("x.t <= y.t", 3), ("x.id = y.id AND y.k = 2", 0)):
        done = cli(*joined.split(), "--predicate", text, "-o", "out.csv")
        assert done.exit_code == 0, done.stderr
        assert f"combinations {rows} ->" in done.stderr
    for text, told in (
        ("x.id = 1", "does not compare two of the inputs"),
        ("x.id <", "WA-2091"),
        ("x.ID < y.k", "WA-2092"),
    ):
        done = cli(*joined.split(), "--predicate", text)
        assert done.exit_code == 2
        assert told in done.stderr


def test_explain_tells_what_the_windows_imply(cli: Cli, files: Path) -> None:
    done = cli(f"{MIXED} --window a,b=4s@0.5 --window a,c=0s..2s --explain")
    assert done.exit_code == 0, done.stderr
    assert "the windows form a path" in done.stderr
    assert "c - a: from 0 us to 2 s" in done.stderr
    assert "b - a: from no bound to no bound" in done.stderr  # no greatest length is declared
    assert "not run (--explain)" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("window-join a=a.csv c=c.csv --time t --window a,x=2s", 2, "WA-2061"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=-2s", 2, "WA-2003"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=2s..1s", 2, "WA-2005"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=1s..2s --window c,a=1s..2s", 2, "WA-2063"),
        ("window-join a=a.csv c=c.csv d=c.csv --time t --window a,c=1s", 2, "WA-2062"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=1s@2", 2, "WA-2001"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=1s@x", 2, "not a probability"),
        ("window-join a=a.csv c=c.csv --time t --window a=1s", 2, "is not A,B=D"),
        ("window-join a=a.csv a=c.csv --time t --window a,a=1s", 2, "two inputs are called"),
        ("window-join a.csv c=c.csv --time t --window a,c=1s", 2, "is not NAME=PATH"),
        ("window-join a=a.csv c=c.csv --time a=t --window a,c=1s", 2, "--time is missing for c"),
        ("window-join gate=a.csv c=c.csv --time t --time gat=u --window gate,c=1s", 2, "did you mean 'gate'?"),
        ("window-join a=a.csv c=c.csv --time t --time u --window a,c=1s", 2, "--time u is of no input: another one is"),
        ("window-join a=a.csv c=c.csv --time t --time a=t --time c=t --window a,c=1s", 2, "input: each has its own"),
        ("window-join a=a.csv c=c.csv --time t --time a=t --time a=u --window a,c=1s", 2, "is the second one of 'a'"),
        ("window-join a=a.csv b=b.csv --time t --time b=lo,hi --window a,b=1s", 2, "WA-2064"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=1s --lateness 1s,2s,3s", 2, "one for each input"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=1s --strategy quick", 2, "WA-2006"),
        ("window-join a=a.csv c=c.csv --time u --window a,c=1s", 3, "WA-1001"),
        ("window-join a=a.csv c=c.csv --on x --time t --window a,c=1s --stream", 3, "no key column 'x'"),
        ("window-join a=a.csv c=c.csv --time t --window a,c=1s --time-slots 0s", 2, "time_slots is 0"),
        ("window-join a=a.csv b=b.csv --time t --time b=lo,hi --window a,b=1s@0.5 --time-slots 1s", 2, "WA-2041"),
    ],
)
def test_what_is_wrong_is_said(cli: Cli, files: Path, arguments: str, code: int, told: str) -> None:
    done = cli(arguments)
    assert done.exit_code == code, done.stderr
    assert told in done.stderr


def test_an_input_without_rows_is_told_of(cli: Cli, files: Path) -> None:
    (files / "none.csv").write_text("k,t\n")
    done = cli("window-join a=a.csv c=none.csv --on k --time t --window a,c=1s -o out.csv")
    assert done.exit_code == 0, done.stderr
    assert "note: c has no rows" in done.stderr
    assert "combinations 0" in done.stderr
