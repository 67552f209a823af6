"""`whenabouts coalesce` as users see it, and its rows against coalescing from scratch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.conformance import multiset
from whenabouts.conformance.coalescing_answers import answer
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.costs.prices import Sizes, TimingJoinPrices
from whenabouts.planner.calibration import Calibration, store

Cli = Callable[..., Result]

NOW = 1_700_000_000
COLUMNS = {"time": "t", "group": ["region"], "values": ["temperature"]}


@pytest.fixture
def readings(tmp_path: Path) -> pa.Table:
    """Out of order by 30 s at most, in three files; one has no time, one no region, one contradicts another one."""
    random = np.random.default_rng(4)
    n = 300
    second = np.arange(n) // 2 + 1
    table = pa.table(
        {
            "t": pa.array((NOW + second) * 1_000_000, pa.timestamp("us", "UTC"), mask=np.arange(n) == 250),
            "region": pa.array(random.choice(["north", "south"], n), mask=np.arange(n) == 260),
            "temperature": np.where(second % 20 < 13, 81.0, random.integers(79, 82, n)),
        }
    )
    order = np.argsort(second + random.random(n) * 30, kind="stable")
    table = table.take(pa.array(order))
    folder = tmp_path / "readings"
    folder.mkdir()
    for number, start in enumerate(range(0, n, 100)):
        pq.write_table(table.slice(start, 100), folder / f"{number}.parquet")
    return table


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ("", Coalesce(**COLUMNS)),
        ("--range 30s --slide 10s", Coalesce(**COLUMNS, window="30 s", slide="10 s")),
        ("--range 30s", Coalesce(**COLUMNS, window="30 s")),
        (f"--range 30s --at {NOW + 77}000000", Coalesce(**COLUMNS, window="30 s", at=(NOW + 77) * 1_000_000)),
        ("--rows 40", Coalesce(**COLUMNS, rows=40)),
        ("--rows 20 --per-group --slide 7", Coalesce(**COLUMNS, rows=20, per_group=True, slide=7)),
        ("--rows 20 --slide 15s", Coalesce(**COLUMNS, rows=20, slide="15 s")),
        (
            "--range 1m --slide 30s --equivalence absolute_tolerance:1 --closed right",
            Coalesce(**COLUMNS, window="1m", slide="30s", equivalence="absolute_tolerance:1", closed="right"),
        ),
    ],
)
def test_rows_are_those_from_scratch(
    cli: Cli, tmp_path: Path, readings: pa.Table, options: str, query: Coalesce
) -> None:
    expected = answer(query, readings)
    assert expected.rows
    for how in ("", "--stream --lateness 31s", "--stream --lateness 31s --scheme lazy"):
        done = cli(
            f"coalesce readings --time t --group region --values temperature {options} {how} -o out.parquet "
            "--rejects bad.parquet"
        )
        assert done.exit_code == 0, done.stderr
        out, bad = pq.read_table(tmp_path / "out.parquet"), pq.read_table(tmp_path / "bad.parquet")
        multiset.assert_same(multiset.rows(out), expected.rows, "coalesced tuples", {"options": options + how})
        multiset.assert_same(multiset.rows(bad, ["code", *readings.column_names]), expected.rejects, "rejects")
        assert "= processed" in done.stderr


def test_the_paper_figure_2_from_csv(cli: Cli, tmp_path: Path) -> None:
    lines = [f"2010-01-01T{13 + h}:00,{r},{t}" for r, ts in enumerate(((81,) * 3, (81, 79, 81), (81,) * 3), 1)
             for h, t in enumerate(ts)]  # fmt: skip
    (tmp_path / "fig2.csv").write_text("ts,region,temperature\n" + "\n".join(lines) + "\n")
    done = cli("coalesce fig2.csv --time ts --group region --values temperature --range 2h -o -")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[0] == '"region","temperature","valid_from","valid_to","n"'
    assert len(done.stdout.splitlines()) == 6
    assert '1,81,"2010-01-01T13:00:00.000000Z","2010-01-01T15:00:00.000000Z",3' in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ("--range 0s", 2, "WA-2021"),
        ("--range 1s --slide=-1s", 2, "WA-2021"),
        ("--rows 0", 2, "WA-2021"),
        ("--range 1s --rows 3", 2, "WA-2006"),
        ("--slide 1s", 2, "WA-2006"),
        ("--lateness 1s,2s", 2, "'1s,2s' is not one duration\n"),
        ("--equivalence same", 2, "WA-2022"),
        ("--range 1s --at noon", 2, "noon"),
        ("--equivalence absolute_tolerance:1 --values region --group temperature", 3, "WA-1023"),
        ("--values light", 3, "WA-1001"),
        ("--group temperature", 2, "WA-2009"),
        ("--strict --rejects bad.csv", 1, "WA-1022"),
    ],
)
def test_refusals(cli: Cli, readings: pa.Table, options: str, code: int, told: str) -> None:
    done = cli(f"coalesce readings --time t --group region --values temperature {options}")
    assert done.exit_code == code, done.stderr
    assert told in done.stderr


def test_a_slide_longer_than_the_window_is_told(cli: Cli, readings: pa.Table) -> None:
    done = cli("coalesce readings --time t --group region --values temperature --range 5s --slide 10s")
    assert done.exit_code == 0
    assert "note: WA-2082: the slide '10s' is longer than the window" in done.stderr


def test_a_stream_that_one_bucket_must_hold_is_told_once(cli: Cli, readings: pa.Table) -> None:
    done = cli("coalesce readings --time t --group region --values temperature --rows 5 --stream --lateness 31s -o -")
    assert done.exit_code == 0
    assert done.stderr.count("WA-2081") == 1


@pytest.mark.usefixtures("readings")
def test_a_stream_is_eager_or_lazy_at_the_prices_of_this_machine(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHENABOUTS_COSTS", str(tmp_path / "costs.json"))
    asked = (
        "coalesce readings --time t --group region --values temperature --range 30s --slide 10s --stream --lateness 1m"
    )
    for costs, scheme in ((None, "eager"), (AtomicCosts(eager_step=1e9), "lazy")):
        if costs is not None:
            store(Calibration(costs, Sizes(), TimingJoinPrices(), machine="this", release="1"))
        told = cli(f"{asked} --explain").stderr
        assert f"chosen: scheme = {scheme}: least cost of an extent of its own" in told
        assert cli(f"{asked} -o {scheme}.parquet").exit_code == 0
    found = [multiset.rows(pq.read_table(tmp_path / f"{scheme}.parquet")) for scheme in ("eager", "lazy")]
    assert found[0] == found[1]
