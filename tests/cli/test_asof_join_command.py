"""`whenabouts asof-join` as users see it, and its rows against the library's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import whenabouts as wa

Cli = Callable[..., Result]


def _rows(table: pa.Table, names: list[str]) -> list[str]:
    return sorted(map(str, table.select(names).to_pylist()))


ASKED: dict[str, dict[str, Any]] = {
    "": {},
    "--direction nearest --tolerance 3s --no-exact-matches": {
        "direction": "nearest", "tolerance": "3 s", "allow_exact_matches": False,
    },
    "--direction forward --tolerance 5s --how inner --order-by w,v": {
        "direction": "forward", "tolerance": "5 s", "how": "inner", "order_by": ["w", "v"],
    },
    "--keep all --confidence 0.2 --suffixes _l,_r": {"keep": "all", "confidence": 0.2, "suffixes": ("_l", "_r")},
    "--how left_anti --confidence 0.9 --tolerance 2s": {"how": "left_anti", "confidence": 0.9, "tolerance": "2 s"},
    "--no-probability --max-candidates 9": {"probability": False, "max_candidates": 9},
}  # fmt: skip


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("stream", ["", "--stream --lateness 60s"])
def test_rows_are_those_of_the_library_call(cli: Cli, tmp_path: Path, asked: str, stream: str) -> None:
    random = np.random.default_rng(len(asked))
    for side in ("left", "right"):
        second = pa.array((1_700_000_000 + random.integers(0, 40, 30)) * 1_000_000, pa.timestamp("us", "UTC"))
        later = pa.array(np.asarray(second.cast(pa.int64())) + 500_000 * random.integers(0, 3, 30))
        columns = {"k": random.integers(0, 3, 30), "a": second, "b": later.cast(second.type), "v": np.arange(30)}
        columns |= {"w": random.integers(0, 3, 30)} if side == "right" else {}
        pq.write_table(pa.table(columns), tmp_path / f"{side}.parquet")
    given = {"confidence": 0.5} | ASKED[asked]
    time = wa.Interval("a", "b", max_uncertainty="1 s")
    tables = [pq.read_table(tmp_path / f"{side}.parquet") for side in ("left", "right")]
    expected = wa.asof_join(*tables, on="k", left_time=time, right_time=time, **given)
    assert expected.num_rows
    more = "" if "--confidence" in asked else "--confidence 0.5"
    times = "--left-time a,b --right-time a,b --max-uncertainty 1s"
    done = cli(f"asof-join left.parquet right.parquet --on k {times} {more} {asked} {stream} -o out.parquet")
    assert done.exit_code == 0, done.stderr
    assert f"rows {expected.num_rows} -> out.parquet" in done.stderr
    found = pq.read_table("out.parquet")
    assert ("event_time" in found.column_names) == bool(stream)
    assert _rows(found, expected.column_names) == _rows(expected, expected.column_names)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(
        "k,t,lo,hi\n1,2024-01-01T00:00:04Z,2024-01-01T00:00:01Z,2024-01-01T00:00:05Z\n1,,,\n"
    )
    (tmp_path / "b.csv").write_text("k,t,v\n1,2024-01-01T00:00:02Z,7\n")
    return tmp_path


POINTS = "asof-join a.csv b.csv --on k --left-time t --right-time t"


@pytest.mark.usefixtures("files")
def test_rows_without_a_time_are_rejected_and_counted(cli: Cli) -> None:
    done = cli(f"{POINTS} --rejects bad.csv -o out.csv")
    assert done.exit_code == 0, done.stderr
    assert "rows in 3 (left 2, right 1) = processed 2 + rejected 1" in done.stderr
    assert "WA-1003" in Path("bad.csv").read_text()


@pytest.mark.usefixtures("files")
def test_why_counts_rows_that_could_not_be_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("k,t,v\n1,never,0\n1,2024-01-01T00:00:02Z,7\n1,2024-01-01T00:00:03Z,8\n")
    for stream in ("", "--stream"):
        for row, said in enumerate(("malformed", "cannot prevail: another row surely does", "match: it prevails with")):
            done = cli(f"{POINTS.replace('b.csv', 'c.csv')} --why 0,{row} {stream}")
            assert done.exit_code == 0, done.stderr
            assert said in done.stdout, done.stdout


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", "left rows wait until the watermark has passed them"),
        ("", "of right rows the last of each key is kept, however old"),
        ("--tolerance 2h", "of right rows the last of each key is kept, for 2 h"),
        ("--direction nearest --tolerance 2s", "left rows wait at most until the watermark has passed them by 2 s"),
        ("--direction forward --tolerance 2s", "right rows are kept until it has passed them"),
        (
            "",
            "at left 0.5 rows/s, right 0.5 rows/s, keys 1, in steps of 2 s: state left 1 rows 36 B, right 2 rows 51 B",
        ),
        ("", "of its right rows 1 are kept for their keys, 1 for each"),
        ("--tolerance 2s", "of its right rows 1 are kept for their keys, 0.632 for each"),
    ],
)
def test_explain_says_how_long_a_stream_keeps_rows(cli: Cli, asked: str, said: str) -> None:
    done = cli(f"{POINTS} --stream {asked} --explain")
    assert done.exit_code == 0, done.stderr
    assert said in done.stderr
    assert "not run" in done.stderr


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (f"{POINTS} --direction upward", 2, "Invalid value for '--direction'"),
        (f"{POINTS} --keep all --how left_anti", 2, "WA-2006"),
        (f"{POINTS} --how outer", 2, "WA-2006"),
        (f"{POINTS} --tolerance=-2s", 2, "WA-2003"),
        (f"{POINTS} --tolerance soon", 2, "WA-2002"),
        (f"{POINTS} --confidence 2", 2, "WA-2001"),
        (f"{POINTS} --time-slots 2s", 2, "WA-2041"),
        (f"{POINTS} --suffixes _l", 2, "is not two values"),
        (f"{POINTS} --left-max-uncertainty 1s", 2, "need --left-time t_min,t_max"),
        (f"{POINTS} --order-by w", 3, "WA-1001"),
        (f"{POINTS} --stream --direction forward", 2, "WA-2010"),
        ("asof-join a.csv b.csv --left-time lo,hi --right-time t", 2, "WA-2064"),
        ("asof-join a.csv none.csv --left-time t --right-time t", 3, "none.csv"),
    ],
)
def test_bad_input_is_refused_with_its_reason(cli: Cli, command: str, code: int, said: str) -> None:
    done = cli(command)
    assert (done.exit_code, said in done.stderr) == (code, True), done.stderr


@pytest.mark.usefixtures("files")
def test_a_stream_takes_the_greatest_lengths_from_the_files(cli: Cli) -> None:
    done = cli("asof-join a.csv b.csv --on k --left-time lo,hi --right-time t --confidence 0.5 --stream -o out.csv")
    assert done.exit_code == 0, done.stderr
    assert "the longest left interval in the files is 4,000,000 us: taken as --left-max-uncertainty" in done.stderr
    assert "rows 1 -> out.csv" in done.stderr


@pytest.mark.usefixtures("files")
def test_a_text_runs_as_a_stream_and_is_explained_with_its_state(cli: Cli) -> None:
    text = "SELECT A.k, B.v FROM a A ASOF JOIN b B ON A.k = B.k AND TIME(A) >= TIME(B)"
    streams = ["--input", "a=a.csv", "--input", "b=b.csv", "--time", "t", "--streaming", "--lateness", "0s"]
    done = cli("query", text, *streams, "-o", "out.csv")
    assert done.exit_code == 0, done.stderr
    assert Path("out.csv").read_text().splitlines() == ['"k","v"', "1,7"]
    done = cli("query", text, *streams, "--explain")
    assert done.exit_code == 0, done.stderr
    assert "of its right rows 1 are kept for their keys, 1 for each" in done.stderr
