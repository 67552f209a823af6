"""`whenabouts learn-delay`, and joins with `learned:CLOCK.json:t`."""

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

from whenabouts.core.clocks.clock_files import read_clock
from whenabouts.core.times.learned import Learned

Cli = Callable[..., Result]

START, HOUR = 1_700_000_000_000_000, 3_600_000_000
LEARN = "learn-delay l.csv r.parquet --on id=ref --left-time t --right-time u"
JOIN = "join l.csv r.parquet --on id=ref --between -1s,1s --confidence 0.5 -o out.parquet"


def write(folder: Path, *, days: int = 0, seed: int = 0, drifts: bool = True) -> None:
    rng = np.random.default_rng(seed)
    t = START + days * 24 * HOUR + np.sort(rng.integers(0, HOUR, 400))
    u = t + 60_000_000 + drifts * (t - START) // 20_000 + rng.integers(0, 200_000, 400)
    pa.csv.write_csv(pa.table({"id": np.arange(400), "t": t}), folder / "l.csv")
    pq.write_table(pa.table({"ref": np.arange(400), "u": u}), folder / "r.parquet")


def test_a_clock_is_learned_and_used(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    done = cli(f"{LEARN} -o clock.json --html page.html")
    assert done.exit_code == 0, done.stderr
    assert "ahead of the left one" in done.stdout
    assert "--right-time learned:clock.json:u --between" in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 1
    assert "<script" not in page
    assert "href" not in page
    clock = read_clock(tmp_path / "clock.json")
    assert abs(clock.drift_ppb - 50_000) < 4 * clock.drift_error_ppb
    used = cli(f"{JOIN} --left-time t --right-time learned:clock.json:u")
    assert (used.exit_code, "was learned" in used.stderr) == (0, False)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 400
    other = cli(f"{JOIN} --left-time learned:clock.json:t --right-time u")
    assert other.exit_code == 0
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 400
    asof = cli(
        "asof-join l.csv r.parquet --left-time t --right-time learned:clock.json:u --confidence 0.5 -o a.parquet"
    )
    assert asof.exit_code == 0, asof.stderr


def test_what_no_pair_may_pass_is_told_with_the_options(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    done = cli(f"{LEARN} --shortest 2h")
    assert done.exit_code == 2
    assert "(hint: widen it, or leave out the wrong rows (--outliers drop may do))" in done.stderr


def test_a_join_says_how_old_its_clock_is(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    assert cli(f"{LEARN} -o clock.json").exit_code == 0
    write(tmp_path, days=40, seed=1)
    used = cli(f"{JOIN} --left-time t --right-time learned:clock.json:u")
    assert used.exit_code == 0
    assert "clock.json was learned on rows that end 40 days before these do: drift alone may be" in used.stderr
    write(tmp_path, days=-2)
    before = cli(f"{JOIN} --left-time t --right-time learned:clock.json:u")
    assert "begin 2 days after these do" in before.stderr
    write(tmp_path, drifts=False)
    assert cli(f"{LEARN} --drift none -o clock.json").exit_code == 0
    write(tmp_path, days=1, drifts=False)
    assert "its drift is not known" in cli(f"{JOIN} --left-time t --right-time learned:clock.json:u").stderr


def test_a_clock_that_does_not_hold_is_reported_and_no_join_takes_it(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    done = cli(f"{LEARN} --drift none -o clock.json")
    assert done.exit_code == 0
    assert "held out: drifts" in done.stdout.lower().replace("held out by stretches of time", "held out")
    assert "WA-2222" in done.stderr
    used = cli(f"{JOIN} --left-time t --right-time learned:clock.json:u")
    assert (used.exit_code, "WA-2222" in used.stderr) == (2, True)
    assert "learned:uncalibrated:clock.json:u" in done.stderr
    forced = cli(f"{JOIN} --left-time t --right-time learned:uncalibrated:clock.json:u")
    assert forced.exit_code == 0, forced.stderr


def test_a_refusal_is_reported_and_exits_with_1(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "l.csv").write_text("id,t\n1,5\n2,7\n")
    done = cli(f"{LEARN} -o clock.json --html page.html")
    assert done.exit_code == 1
    assert "20 pairs are needed" in done.stdout
    assert "20 pairs are needed" in (tmp_path / "page.html").read_text()
    used = cli(f"{JOIN} --left-time t --right-time learned:clock.json:u")
    assert (used.exit_code, "WA-2221: too_few" in used.stderr) == (2, True)


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        ("learned:no.json:u", 3, "WA-1008"),
        ("learned:bad.json:u", 3, "WA-1012: bad.json"),
        ("learned:broken.json:u", 3, "WA-1008"),
        ("learned:u", 2, "is not 'learned:CLOCK.json:t'"),
        ("learned:bad.json:a,b", 2, "is not 'learned:CLOCK.json:t'"),
    ],
)
def test_bad_clocks_are_refused(cli: Cli, tmp_path: Path, spec: str, code: int, text: str) -> None:
    write(tmp_path)
    (tmp_path / "bad.json").write_text(json.dumps({"format": "whenabouts clock", "version": 99}))
    (tmp_path / "broken.json").write_text("{")
    done = cli(f"{JOIN} --left-time t --right-time {spec}")
    assert (done.exit_code, text in done.stderr) == (code, True), done.stderr


def test_no_input_is_written_to(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path)
    assert "WA-2006" in cli(f"{LEARN} -o l.csv").stderr
    assert cli(f"{LEARN} -o clock.csv").exit_code == 0  # a name that a join could write to
    again = cli(JOIN.replace("out.parquet", "clock.csv") + " --left-time t --right-time learned:clock.csv:u")
    assert (again.exit_code, "clock.csv is the input" in again.stderr) == (2, True)
    assert isinstance(read_clock(tmp_path / "clock.csv").spec(), Learned)
