"""`whenabouts profile`: reports of files, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts import profile
from whenabouts.cli import profile as module

Cli = Callable[..., Result]
SECOND = 1_000_000


@pytest.fixture
def rows() -> pa.Table:
    us = 1_700_000_000_000_000 + np.cumsum(np.random.default_rng(0).integers(0, 20, 1_000)) * SECOND
    us[[500, 501]] = us[[501, 500]]
    return pa.table({"t": us, "g": np.arange(1_000) % 2, "v": np.arange(1_000)})


def test_the_last_lines_are_the_specification_for_both(rows: pa.Table, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    done = cli("profile", str(path), "--time", "t", "--group", "g", "--strict", "--html", str(tmp_path / "page.html"))
    assert done.exit_code == 0
    found = profile(rows, "t", group="g")
    *report, options = done.stdout.splitlines()
    assert "\n".join(report) == str(found)
    assert options.startswith("--left-time granularity:1s:t --lateness ")
    assert "<svg" in (tmp_path / "page.html").read_text()
    joined = cli("join", str(path), str(path), *options.split(), "--right-time", "t", "--within", "1s",
                 "--confidence", "0.9", "-o", str(tmp_path / "pairs.parquet"))  # fmt: skip
    assert joined.exit_code == 0, joined.stderr
    assert pq.read_table(tmp_path / "pairs.parquet").num_rows >= 1_000


def test_text_and_numbers_of_another_unit_are_profiled(rows: pa.Table, tmp_path: Path, cli: Cli) -> None:
    texts = rows.set_column(0, "t", rows["t"].cast(pa.timestamp("us")).cast(pa.string()))
    pyarrow.csv.write_csv(texts, tmp_path / "texts.csv")
    done = cli("profile", str(tmp_path / "texts.csv"), "--time", "t", "--json")
    assert json.loads(done.stdout) == json.loads(json.dumps(profile(rows, "t").to_dict()))
    numbers = rows.set_column(0, "t", pa.array(rows["t"].to_numpy() // SECOND))
    pyarrow.csv.write_csv(numbers, tmp_path / "numbers.csv")
    wrong = cli("profile", str(tmp_path / "numbers.csv"), "--time", "t", "--strict")
    assert (wrong.exit_code, "look like seconds" in wrong.stdout) == (1, True)
    assert "Give --time-unit s." in wrong.stdout
    doubly = cli("profile", str(tmp_path / "numbers.csv"), "--time", "t", "--time-unit", "ms")
    assert "Give --time-unit s." in doubly.stdout
    pq.write_table(pa.table({"t": numbers["t"].cast(pa.timestamp("us", "UTC"))}), tmp_path / "stamps.parquet")
    stamps = cli("profile", str(tmp_path / "stamps.parquet"), "--time", "t")
    assert "Multiply its numbers by 1,000,000, or declare them as timestamp[s]." in stamps.stdout
    right = cli("profile", str(tmp_path / "numbers.csv"), "--time", "t", "--time-unit", "s", "--strict")
    assert right.exit_code == 0


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_large_files_are_read_by_chunks(
    rows: pa.Table, kind: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        part = rows.slice(500 * number, 500)
        path = tmp_path / f"{number}.{kind}"
        pq.write_table(part, path) if kind == "parquet" else pyarrow.csv.write_csv(part, path)
    whole = cli("profile", str(tmp_path), "--time", "t", "--group", "g", "--json")
    monkeypatch.setattr(module, "_AT_ONCE", 10)
    chunks = cli("profile", str(tmp_path), "--time", "t", "--group", "g", "--json")
    assert whole.exit_code == 0
    assert chunks.stdout == whole.stdout


@pytest.mark.parametrize("at_once", [10, 1_000_000])
@pytest.mark.parametrize("unit", [None, "us", "s"])
def test_times_that_cannot_be_read_are_wrong_and_counted(
    unit: str | None, at_once: int, rows: pa.Table, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two files, of ISO 8601 or of integers; the rows keep their numbers in both together."""
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    us = rows["t"].to_numpy()
    texts = np.array(
        [f"{time}Z" for time in us.astype("M8[us]")] if unit is None else us // (SECOND ** (unit == "s")), "U32"
    )
    seen = texts.copy()
    texts[[0, 1, 600]], texts[700] = "broken", "0" if unit else "1970-01-01T00:00:00Z"
    seen[[1, 999]] = "soon"
    for number in range(2):
        part = slice(500 * number, 500 * number + 500)
        pyarrow.csv.write_csv(pa.table({"t": texts[part], "seen": seen[part]}), tmp_path / f"{number}.csv")
    asked = [] if unit is None else ["--time-unit", unit]
    done = cli("profile", str(tmp_path), "--time", "t", "--arrival", "seen", "--json", "--strict", *asked)
    found = json.loads(done.stdout)
    assert (done.exit_code, found["rows"], found["nulls"], found["whole"]["rows"]) == (1, 1_000, 0, 995)
    wrong = [(each["kind"], each["where"], each["share"]) for each in found["findings"] if each["severity"] == "wrong"]
    assert wrong[:3] == [
        ("unreadable", [0, 1, 600], 0.003),
        ("unreadable", [1, 999], 0.002),
        ("sentinel", [700], pytest.approx(1 / 997)),
    ]
    assert "no readable time in column 't', such as 'broken'" in found["findings"][0]["sentence"]
    assert "'seen', such as 'soon'" in found["findings"][1]["sentence"]


def test_files_without_any_time_that_can_be_read(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "t.csv").write_text("t\n" + "yesterday\n" * 50)
    done = cli("profile", str(tmp_path / "t.csv"), "--time", "t", "--strict")
    assert done.exit_code == 1
    assert "Column 't' has no usable time in 50 rows: 1 wrong" in done.stdout
    done = cli("profile", str(tmp_path / "t.csv"), "--time", "t", "--arrival", "x")
    assert (done.exit_code, done.stderr) == (3, "error: WA-1001: the table has no column 'x' (hint: it has t)\n")
    (tmp_path / "t.csv").write_text("t\n" + "1700000000\n" * 49 + "9999999999999\n")
    done = cli("profile", str(tmp_path / "t.csv"), "--time", "t", "--time-unit", "s", "--strict")
    assert done.exit_code == 1
    assert "2 % of the rows lie outside the years 1 to 9999 in 't', such as '9999999999999'. (rows 49)" in done.stdout


def test_bad_input_and_usage_have_their_exit_codes(rows: pa.Table, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    assert cli("profile", str(path)).exit_code == 2
    assert cli("profile", str(path), "--time", "x").exit_code == 3
    assert cli("profile", str(tmp_path / "none.csv"), "--time", "t").exit_code == 3
    assert cli("profile", str(path), "--time", "t", "--lateness-share", "0").exit_code == 2
    assert cli("profile", str(path), "--time", "t", "--html", str(path)).exit_code == 2


@pytest.mark.parametrize(
    ("html", "said"), [("-", "stdout is reserved for the report"), ("none/page.html", "there is no folder none")]
)
def test_a_page_that_cannot_be_written_is_refused_before_the_work(
    html: str, said: str, rows: pa.Table, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(rows, "rows.parquet")
    done = cli("profile", "rows.parquet", "--time", "t", "--html", html)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize(
    "text", ["granularity:t", "granularity:up:nearest:1s:t", "polling:nearest:1s:t", "polling:1s:"]
)
def test_times_that_are_no_reading_are_refused(text: str, rows: pa.Table, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows, path)
    done = cli(
        "join", str(path), str(path), "--left-time", text, "--right-time", "t", "--within", "1s", "--confidence", "1"
    )
    assert done.exit_code == 2
    assert "is neither" in done.stderr
