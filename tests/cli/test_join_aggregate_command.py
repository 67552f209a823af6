"""`whenabouts join --aggregate` as users see it, and its rows against the library's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import whenabouts as wa
from whenabouts.cli import aggregates
from whenabouts.core.local import run

Cli = Callable[..., Result]

ASKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "--confidence 0.6 --aggregate n=count --aggregate total=sum:w:x --aggregate none=p_none": (
        {"n": "count", "total": ("sum", "w:x"), "none": "p_none"},
        {"condition": wa.within("1500 ms", confidence=0.6)},
    ),
    "--aggregate e=expected_count --aggregate two=p_at_least:2 --max-uncertain-per-row 99": (
        {"e": "expected_count", "two": ("p_at_least", 2)},
        {"condition": "1500 ms", "most_uncertain": 99},
    ),
    "--confidence 0.9 --how inner --aggregate all=collect:v --max-pairs 1000 --max-pairs-per-row 30": (
        {"all": "collect:v"},
        {"condition": wa.within("1500 ms", confidence=0.9), "how": "inner"},
    ),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("stream", ["", "--stream --lateness 60s"])
def test_rows_are_those_of_the_library_call(cli: Cli, tmp_path: Path, asked: str, stream: str) -> None:
    random = np.random.default_rng(len(asked))
    for side in ("left", "right"):
        second = pa.array((1_700_000_000 + random.integers(0, 40, 30)) * 1_000_000, pa.timestamp("us", "UTC"))
        later = pa.array(np.asarray(second.cast(pa.int64())) + 500_000 * random.integers(0, 3, 30))
        columns = {"k": random.integers(0, 3, 30), "a": second, "b": later.cast(second.type), "v": np.arange(30)}
        columns |= {"w:x": random.normal(size=30)} if side == "right" else {}
        pq.write_table(pa.table(columns), tmp_path / f"{side}.parquet")
    aggregates, given = ASKED[asked]
    time = wa.Interval("a", "b", max_uncertainty="1 s")
    tables = [pq.read_table(tmp_path / f"{side}.parquet") for side in ("left", "right")]
    expected = wa.join_aggregate(*tables, on="k", left_time=time, right_time=time, aggregates=aggregates, **given)
    assert expected.num_rows
    times = "--left-time a,b --right-time a,b --max-uncertainty 1s --within 1500ms"
    done = cli(f"join left.parquet right.parquet --on k {times} {asked} {stream} -o out.parquet")
    assert done.exit_code == 0, done.stderr
    assert f"rows {expected.num_rows} -> out.parquet" in done.stderr
    found = pq.read_table("out.parquet")
    assert ("event_time" in found.column_names) == bool(stream)
    assert sorted(map(str, found.select(expected.column_names).to_pylist())) == sorted(map(str, expected.to_pylist()))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("k,t\n1,2024-01-01T00:00:04Z\n1,2024-01-01T00:00:40Z\n,2024-01-01T00:00:04Z\n")
    (tmp_path / "b.csv").write_text(
        "k,lo,hi\n1,2024-01-01T00:00:02Z,2024-01-01T00:00:03Z\n1,2024-01-01T00:00:02Z,2024-01-01T00:00:09Z\n"
        "1,2024-01-01T00:00:05Z,2024-01-01T00:00:08Z\n"
    )
    return tmp_path


TIMES = "--left-time t --right-time lo,hi --within 2s"
SWAPPED = "--left-time lo,hi --right-time t --within 2s"


@pytest.mark.usefixtures("files")
def test_the_limit_of_a_row_counts_what_a_left_row_collects(cli: Cli) -> None:
    """Three left rows share each right row, which does not matter."""
    options = "--aggregate n=collect:t --confidence 1 --max-pairs-per-row 1 -o out.parquet"
    done = cli(f"join b.csv a.csv --on k {SWAPPED} {options}")
    assert done.exit_code == 0, done.stderr
    assert [len(values) for values in pq.read_table("out.parquet")["n"].to_pylist()] == [1, 0, 0]
    assert cli(f"join b.csv a.csv --on k {SWAPPED} --confidence 1 --max-pairs-per-row 1 -o out.csv").exit_code == 2


@pytest.mark.usefixtures("files")
def test_explain_counts_sure_rows_and_rows_that_cost_a_probability(cli: Cli) -> None:
    for within, sure, beside in (("2s", 0, 3), ("30s", 3, 0)):
        times = TIMES.replace("2s", within)
        done = cli(f"join a.csv b.csv --on k {times} --aggregate n=p_none --explain")
        assert done.exit_code == 0, done.stderr
        assert f"partners: {sure} right rows in sure ranges" in done.stderr
        assert f"beside these {beside} whose probability is computed, at most {beside} for a left row" in done.stderr


@pytest.mark.parametrize(("sampled", "near"), [(500, 0.0), (20, 0.3)])
def test_explain_tells_the_chance_terms(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled: int, near: float
) -> None:
    """As many as the run counts, or an estimate from some of the left rows; decided functions have none."""
    monkeypatch.setattr(aggregates, "SAMPLED", sampled)
    first = 1_700_000_000_000_000 + 137_000 * np.arange(100)
    table = pa.table({"k": np.arange(100) % 2, "a": first, "b": first + 900_000, "v": np.arange(100)})
    pq.write_table(table, tmp_path / "a.parquet")
    time = wa.Interval("a", "b")
    asked = {"n": "p_none", "s": "sum_variance:v", "c": "count"}
    given: Any = {"left_time": time, "right_time": time, "condition": wa.within("2 s", confidence=0.5)}
    counts = run(wa.JoinAggregate(**given, on="k", aggregates=asked), [table, table]).metrics["chance_terms"]
    call = "join a.parquet a.parquet --on k --left-time a,b --right-time a,b --within 2s --confidence 0.5 --explain"
    chances = "--aggregate n=p_none --aggregate s=sum_variance:v --max-uncertain-per-row 1"
    found = cli(f"{call} {chances} --aggregate c=count")
    told = re.search(r"^chance terms: ([\d,]+), .*partners(.*)$", found.stderr, re.MULTILINE)
    assert told, found.stderr
    assert abs(int(told[1].replace(",", "")) - counts) <= near * counts
    assert told[2] == ("" if sampled > 100 else ", estimated from 20 left rows")
    assert "chance terms" not in cli(f"{call} --aggregate c=count").stderr


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--aggregate n=count", "WA-2064: n=count looks at pairs that reach a confidence"),
        ("--aggregate n=p_none --best left", "WA-2006: --best is given with --aggregate"),
        ("--aggregate n=p_none --no-probability", "WA-2006: --no-probability is given with --aggregate"),
        ("--aggregate n=p_none --why 0,0", "WA-2006: --why is given with --aggregate"),
        ("--aggregate n=p_none --how left_anti", "WA-2006: how is 'left_anti'"),
        ("--aggregate n=p_none --max-pairs 9", "WA-2006: --max-pairs is given, and no pair is written"),
        ("--aggregate n=p_none --max-pairs-per-row 9", "WA-2006: --max-pairs-per-row is given, and no pair is written"),
        (
            "--aggregate n=collect:lo --confidence 1 --max-pairs-per-row 2",
            "WA-2006: one row can have 3 partners, over --max-pairs-per-row 2",
        ),
        ("--aggregate n=p_none --aggregate n=p_any", "WA-2009: --aggregate names 'n' twice"),
        ("--aggregate n=p_nine", "WA-2006: aggregate 'n' has the unknown function 'p_nine'"),
        ("--aggregate n=sum:v --confidence 1", "WA-1001: "),
        ("--aggregate n=p_none --max-uncertain-per-row 1", "WA-2182: "),
        ("--aggregate p_none", "'p_none' is not NAME=FUNCTION or NAME=FUNCTION:ARG"),
        ("--confidence 1 --max-uncertain-per-row 3", "--max-uncertain-per-row needs --aggregate"),
    ],
)
def test_what_cannot_be_is_said(cli: Cli, options: str, told: str) -> None:
    done = cli(f"join a.csv b.csv --on k {TIMES} {options}")
    assert done.exit_code in (2, 3), done.stderr
    assert told in done.stderr
