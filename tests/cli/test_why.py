"""`--why`: the answer for two rows, by their numbers in the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

Cli = Callable[..., Result]

JOIN = "join l.csv r.jsonl --on k --left-time t_min,t_max --right-time t --confidence 0.6 --within 6s"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            "0,0",
            "match: probability 1 >= 0.6: right minus left lies between -5 s and 5 s, the condition asks for -6 s to",
        ),
        ("1,1", "probability 0.5 < 0.6: right minus left lies between 1 s and 11 s"),
        ("0,1", "key: left has k='a', right has k='b'"),
        ("2,0", "malformed: the left row is rejected with WA-1009, a time could not be read"),
        ("3,0", "malformed: the left row is rejected with WA-1004, t_min is after t_max"),
        ("0,2", "malformed: the right row is rejected with WA-1003, a time is null"),
        ("2,2", "malformed: the left row is rejected with WA-1009"),
    ],
)
def test_the_answer_is_on_stdout_below_the_rows(cli: Cli, pair_of_files: Path, rows: str, told: str) -> None:
    done = cli(f"{JOIN} --why {rows} -o out.csv")
    assert done.exit_code == 0, done.stderr
    left, right, answer = done.stdout.splitlines()
    number, other = rows.split(",")
    assert left.startswith(f'left row {number}: {{"id": {int(number) + 1}, "k": ')
    assert right.startswith(f'right row {other}: {{"')
    assert answer.startswith(told)
    assert not (pair_of_files / "out.csv").exists()


def test_rows_are_shown_as_the_files_have_them(cli: Cli, pair_of_files: Path) -> None:
    done = cli(f"{JOIN} --why 2,0")
    assert done.stdout.splitlines()[0] == (
        'left row 2: {"id": 3, "k": "a", "t_min": "soon", "t_max": "2024-01-01T00:00:10Z"}'
    )


def test_rows_are_counted_over_files_with_unreadable_rows_in_between(cli: Cli, tmp_path: Path) -> None:
    """Row numbers are those of the files: a row whose time cannot be read still counts."""
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "1.csv").write_text("id,t\na,soon\nb,2024-01-01T00:00:00Z\n")
    (tmp_path / "l" / "2.csv").write_text("id,t\n")
    (tmp_path / "l" / "3.csv").write_text("id,t\nc,2024-01-01T00:00:01Z\nd,later\ne,2024-01-01T00:00:02Z\nf,never\n")
    (tmp_path / "r.csv").write_text("t\n2024-01-01T00:00:02Z\n")
    for number, (id_, told) in enumerate(
        [("a", "WA-1009"), ("b", "is 2 s"), ("c", "is 1 s"), ("d", "WA-1009"), ("e", "is 0 us"), ("f", "WA-1009")]
    ):
        done = cli(f"join l r.csv --left-time t --right-time t --within 1s --confidence 1 --why {number},0")
        assert done.exit_code == 0, done.stderr
        assert f'left row {number}: {{"id": "{id_}", ' in done.stdout
        assert told in done.stdout
    assert cli("join l r.csv --left-time t --right-time t --within 1s --confidence 1 --why 6,0").exit_code == 2


def test_an_input_without_rows_has_none_to_ask_about(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("t\n")
    done = cli("join e.csv e.csv --left-time t --right-time t --within 1s --confidence 1 --why 0,0")
    assert (done.exit_code, "the left input has no row 0 (hint: it has none)" in done.stderr) == (2, True)


def test_on_a_stream_rows_can_be_late_or_come_after_their_partner_was_dropped(cli: Cli, tmp_path: Path) -> None:
    """File n of both sides arrives in step n; the watermark in force is the greatest t_max of the steps before."""
    for side in ("l", "r"):
        (tmp_path / side).mkdir()
        for number, t in enumerate([1_000, 1_000_000, 1_500, 2_000_000]):
            (tmp_path / side / f"{number}.csv").write_text(f"t\n{t}\n")
    base = "join l r --left-time t --right-time t --within 1ms --confidence 1"
    asked = {rows: cli(f"{base} --stream --why {rows}") for rows in ("0,0", "0,2", "0,3", "3,3")}
    told = {rows: done.stdout.splitlines()[-1] for rows, done in asked.items()}
    assert told["0,0"].startswith("match: ")
    assert told["0,2"] == (
        "late: the right row's t_max 1500 us was 998.5 ms behind the watermark when it came (WA-1010); "
        "in time it would have met the condition (probability 1)"
    )
    assert told["0,3"].startswith("evicted: no right row from watermark 2001 us on could match the left row")
    assert told["3,3"].startswith("match: ")
    assert cli(f"{base} --why 0,2").stdout.splitlines()[-1].startswith("match: "), "in batch no row is late"
    patient = cli(f"{base} --stream --lateness 1s --why 0,2").stdout
    assert patient.splitlines()[-1].startswith("match: ")


def test_explain_counts_the_pairs_of_chance(cli: Cli, tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 3)):
        pq.write_table(pa.table({"t": pa.array(range(first, 10_000, 10), pa.int64())}), tmp_path / f"{name}.parquet")
    done = cli("join a.parquet b.parquet --left-time t --right-time t --within 20us --confidence 1 --explain")
    assert done.exit_code == 0, done.stderr
    assert "chance: By chance alone about 3,9" in done.stderr
    assert "10 time slides give 3,996 ± 0." in done.stderr
    assert "not run" in done.stderr


def test_a_picture_of_the_pair(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "l.csv").write_text("t\n2024-01-01 00:00:00\n")
    (tmp_path / "r.csv").write_text("a,b\n2024-01-01 00:00:01,2024-01-01 00:00:04\n")
    line = "join l.csv r.csv --left-time t --right-time a,b --within 2s --confidence 0.5"
    done = cli(f"{line} --why 0,0 --picture pair.svg")
    assert done.exit_code == 0, done.output
    assert "right minus left" in (tmp_path / "pair.svg").read_text()
    assert "WA-2006" in cli(f"{line} --picture pair.svg").output
    assert "use .png, .svg or .pdf" in cli(f"{line} --why 0,0 --picture pair.txt").output
