"""`whenabouts learn-clock`, and a join with its clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.core.clocks.clock_files import read_clock

Cli = Callable[..., Result]

START, HOUR = 1_700_000_000_000_000, 3_600_000_000
LEARN = "learn-clock l.csv r.parquet --left-time t --right-time u --max-offset 10min"


def write(folder: Path, *, share: float) -> None:
    rng = np.random.default_rng(0)
    t = START + np.sort(rng.integers(0, 24 * HOUR, 2_000))
    partners = t[rng.random(2_000) < share] + 60_000_000
    u = np.concatenate([partners, START + rng.integers(0, 24 * HOUR, 2_000 - len(partners))])
    pa.csv.write_csv(pa.table({"k": np.arange(2_000) % 2, "t": t}), folder / "l.csv")
    pq.write_table(
        pa.table({"v": rng.integers(0, 2, 2_000), "u": u + rng.integers(0, 100_000, 2_000)}), folder / "r.parquet"
    )


def test_a_clock_is_learned_and_used(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, share=0.5)
    done = cli(f"{LEARN} -o clock.json --html page.html")
    assert done.exit_code == 0, done.stderr
    assert "has a partner" in done.stdout
    join = done.stdout.strip().splitlines()[-1]
    assert join.startswith("whenabouts join l.csv r.parquet --left-time t --right-time learned:clock.json:u --between")
    assert (tmp_path / "page.html").read_text().count("<svg") == 1
    clock = read_clock(tmp_path / "clock.json")
    assert abs(clock.offset_us - 60_050_000) < 20_000
    used = cli(f"{join.removeprefix('whenabouts ')} -o out.parquet")
    assert used.exit_code == 0, used.stderr
    assert 900 < pq.read_table(tmp_path / "out.parquet").num_rows < 1_300


def test_a_clock_without_a_delay_says_so(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, share=0.5)
    done = cli(f"{LEARN} --max-error 0.001")
    assert (done.exit_code, "WA-2222" in done.stderr, "whenabouts join" in done.stdout) == (0, True, False)


@pytest.mark.parametrize("more", ["", " --on k=v --unchecked"])
def test_a_refusal_exits_with_one_and_writes_its_report(cli: Cli, tmp_path: Path, more: str) -> None:
    write(tmp_path, share=0.0)
    done = cli(f"{LEARN} -o clock.json{more}")
    assert (done.exit_code, "No common clock was found" in done.stdout) == (1, True)
    assert read_clock(tmp_path / "clock.json").reason == "not_significant"
    used = cli("join l.csv r.parquet --left-time t --right-time learned:clock.json:u --within 1s -o out.parquet")
    assert (used.exit_code, "WA-2221" in used.stderr) == (2, True)


def test_bad_options(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, share=0.5)
    assert "WA-2006" in cli(f"{LEARN} --max-drift 3s").stderr
    assert "WA-1001" in cli(f"{LEARN} --on nothing").stderr
