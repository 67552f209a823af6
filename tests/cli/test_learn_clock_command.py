"""`whenabouts learn-clock`, and a join with its clock."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.clock_files import read_clock
from whenabouts.core.clocks.learned_clock import LearnedClock

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


def test_the_printed_join_repeats_what_it_needs(cli: Cli, tmp_path: Path) -> None:
    """Its key, the zone and the unit of its times; a shell reads paths and columns with spaces as they are."""
    write(tmp_path, share=0.5)
    (tmp_path / "l.csv").rename(tmp_path / "my left.csv")
    learn = [*LEARN.split(), "--on", "k=v", "--unchecked", "--time-unit", "us", "-o", "my clock.json"]
    done = cli(*[word.replace("l.csv", "my left.csv") for word in learn])
    assert done.exit_code == 0, done.output
    words = shlex.split(done.stdout.strip().splitlines()[-1])
    assert words[:4] == ["whenabouts", "join", "my left.csv", "r.parquet"]
    assert "learned:my clock.json:u" in words
    assert words[-4:] == ["--on", "k=v", "--time-unit", "us"]
    used = cli(*words[1:], "-o", "out.parquet")
    assert used.exit_code == 0, used.stderr


def test_the_clock_goes_to_stdout_and_what_is_told_to_stderr(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, share=0.5)
    done = cli(f"{LEARN} -o -")
    assert done.exit_code == 0, done.stderr
    assert LearnedClock.from_dict(json.loads(done.stdout)).found
    assert "has a partner" in done.stderr
    assert "--right-time learned:CLOCK.json:u" in done.stderr
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("-o no/clock.json", "there is no folder no"),
        ("--html no/page.html", "there is no folder no"),
        ("-o .", "is a folder"),
        ("--html -", "stdout is reserved for the report"),
        ("-o same --html same", "are the same file"),
    ],
)
def test_targets_are_checked_before_the_work(cli: Cli, tmp_path: Path, option: str, told: str) -> None:
    done = cli(f"{LEARN} {option}")  # the inputs would be missed next
    assert done.exit_code == 2
    assert "WA-2006" in done.stderr
    assert told in done.stderr


def test_a_report_is_told_before_it_cannot_be_written(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    write(tmp_path, share=0.5)
    monkeypatch.setattr(Path, "write_text", full)
    done = cli(f"{LEARN} -o clock.json")
    assert (done.exit_code, "has a partner" in done.stdout) == (4, True)
    assert "WA-3005: clock.json could not be written" in done.stderr


def test_a_clock_without_a_delay_says_so(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, share=0.5)
    done = cli(f"{LEARN} --max-error 0.001")
    assert (done.exit_code, "WA-2222" in done.stderr, "whenabouts join" in done.stdout) == (0, True, False)


@pytest.mark.slow
def test_a_join_in_a_new_process_takes_the_file(cli: Cli, tmp_path: Path) -> None:
    """The line that `learn-clock` prints, as a shell runs it."""
    write(tmp_path, share=0.5)
    join = cli(f"{LEARN} -o clock.json").stdout.strip().splitlines()[-1]
    command = [
        sys.executable,
        "-c",
        "from whenabouts.cli import main; main()",
        *join.split()[1:],
        "-o",
        "pairs.parquet",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "learned on rows" not in done.stderr  # they are those that it was learned from
    assert pq.read_metadata(tmp_path / "pairs.parquet").num_rows > 900


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", " --on k=v --unchecked"])
def test_a_refusal_exits_with_one_and_writes_its_report(cli: Cli, tmp_path: Path, more: str) -> None:
    write(tmp_path, share=0.0)
    done = cli(f"{LEARN} -o clock.json{more}")
    assert (done.exit_code, "No common clock was found" in done.stdout) == (1, True)
    assert read_clock(tmp_path / "clock.json").reason == "not_significant"
    used = cli("join l.csv r.parquet --left-time t --right-time learned:clock.json:u --within 1s -o out.parquet")
    assert (used.exit_code, "WA-2221" in used.stderr) == (2, True)


def minutes(rng: np.random.Generator) -> IntArray:
    return np.asarray(np.arange(0, 24 * HOUR, 60_000_000) + rng.integers(0, 200_000, 24 * 60), np.int64)


def bent(left: IntArray) -> IntArray:
    return np.asarray(left + 9_000_000 + (left > 12 * HOUR) * 2_000_000, np.int64)


REFUSED: dict[str, tuple[Callable[[np.random.Generator, IntArray], IntArray], str, str, str]] = {
    "one table twice": (lambda rng, t: t, "", "no_resolution", "All 2,000 left times are among the right ones"),
    "hardly any overlap": (lambda rng, t: t + 24 * HOUR - 60_000_000, "", "too_few", "in common, and max_offset is 10"),
    "few rows": (lambda rng, t: t[:19], "", "too_few", "20 usable rows a side are needed; found: 2,000 left, 19 right"),
    "periodic": (lambda rng, t: minutes(rng) + 7_000_000, "", "ambiguous", "The offset is known modulo 1"),
    "a step": (lambda rng, t: bent(t), "", "wanders", "a step or kink at 2023-11-15T"),
    "offset at its bound": (lambda rng, t: t + 600_000_000, "", "at_bound", "max_offset is 10 min: widen"),
    "drift at its bound": (
        lambda rng, t: t + 9_000_000 + (t - 12 * HOUR) // 40_000, " --max-drift 20ppm", "at_bound", "max_drift is 20",
    ),
    "a coarse tick": (lambda rng, t: t + 1, " --tick 30min", "no_resolution", "narrow max_offset or max_drift"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_each_refusal_has_its_reason_and_number(cli: Cli, tmp_path: Path, what: str) -> None:
    make, more, reason, says = REFUSED[what]
    rng = np.random.default_rng(1)
    left = minutes(rng) if what == "periodic" else np.sort(rng.integers(0, 24 * HOUR, 2_000))
    jitter = 0 if reason in ("no_resolution", "ambiguous") else rng.integers(0, 50_000)
    right = make(rng, left) + jitter
    pa.csv.write_csv(pa.table({"t": START + left}), tmp_path / "l.csv")
    pq.write_table(pa.table({"u": START + right}), tmp_path / "r.parquet")
    done = cli(f"{LEARN} -o clock.json{more}")
    assert (done.exit_code, says in done.stdout) == (1, True), done.stdout + done.stderr
    assert read_clock(tmp_path / "clock.json").reason == reason


def test_a_column_with_a_sentinel_is_refused(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, share=0.5)
    t = pa.csv.read_csv(tmp_path / "l.csv")["t"].to_pylist()
    pa.csv.write_csv(pa.table({"t": t + [0] * 100}), tmp_path / "l.csv")
    done = cli(LEARN)
    assert (done.exit_code, "WA-1081: left column 't'" in done.stderr) == (3, True), done.stderr


def test_bad_options(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, share=0.5)
    assert "WA-2006" in cli(f"{LEARN} --max-drift 3s").stderr
    assert "WA-1001" in cli(f"{LEARN} --on nothing").stderr
