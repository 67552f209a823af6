"""Whatever bytes files contain, a command ends with one of our codes, and a terminal never interprets data as
commands."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from whenabouts.cli import main, outputs

EVIL = "\x1b]0;title\x07\x1b[31m\x9b2J\u202eevil\u2066\x00\x7f\r"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def assert_tame(text: str) -> None:
    assert not [char for char in text if (char < " " and char not in "\n\t") or "\x7f" <= char < "\xa0"], repr(text)
    assert not [char for char in text if "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069"], repr(text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)])
def test_changed_bytes_end_with_a_code(tmp_path: Path, seed: int) -> None:
    program = Path(__file__).with_name("fuzzed_files.py")
    done = subprocess.run(
        [sys.executable, str(program), str(seed), "200" if seed == 1 else "1500"], cwd=tmp_path, capture_output=True,
        text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout.splitlines()[-1:], done.stderr[-2000:])
    assert done.stdout.splitlines()[-1].startswith("ends {0: ")


def test_nothing_in_data_commands_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"t": [1, 2, 2], "v": [EVIL] * 3, EVIL: [1, 2, 3], f"[red]{EVIL}": [1, 2, 3]})
    pq.write_table(table, "x.parquet")
    shown = run("coalesce", "x.parquet", "--time", "t", "--values", f"v,{EVIL.strip()}")
    wrong = [
        run("coalesce", "x.parquet", "--time", f"no{EVIL}", "--values", "v"),
        run("coalesce", EVIL.replace("\x00", ""), "--time", "t", "--values", "v"),
        run("coalesce", "x.parquet", "--time", "t", "--values", "v", "-o", f"{EVIL}.csv"),
        run("join", "x.parquet", "x.parquet", "--left-time", "t", "--right-time", "t", "--within", EVIL,
            "--confidence", "1"),
        run("query", f"SELECT {EVIL}"),
        run(f"--{EVIL}"),
        run(EVIL),
        run("coalesce", f"--{EVIL}"),
        run("join", "x.parquet", "x.parquet", "--left-time", "t", "--right-time", "t", "--within", "1us",
            "--confidence", EVIL),
    ]  # fmt: skip
    why = run("join", "x.parquet", "x.parquet", "--left-time", "t", "--right-time", "t", "--within", "1us",
              "--confidence", "1", "--why", "0,1")  # fmt: skip
    many = run("coalesce", "x.parquet", "--time", "t", "--values", "t", "--strict")
    Path("plan.json").write_text(json.dumps({"queries": [{"name": EVIL, "coalesce": [EVIL], "window": {"rows": 9}}]}))
    plans = [run("plan", "plan.json"), run("plan", "plan.json", "--explain")]
    assert [each.exit_code for each in (why, many, *plans)] == [0, 1, 0, 0], many.output
    assert {each.exit_code for each in wrong} <= {2, 3}, [(each.exit_code, each.output) for each in wrong]
    for each in (shown, why, many, *plans, *wrong):
        assert_tame(each.output)
        assert_tame(each.stderr)
    assert "\\u001b[31m\\x9b2J" in why.output


def test_a_table_on_the_terminal_is_tame_and_in_a_pipe_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"v": [EVIL]})
    for terminal in (True, False):
        raw = io.BytesIO()
        stdout = io.TextIOWrapper(raw, encoding="utf-8", write_through=True, newline="")
        monkeypatch.setattr(stdout, "isatty", lambda terminal=terminal: terminal, raising=False)
        monkeypatch.setattr(outputs.sys, "stdout", stdout)
        outputs.write_table(table, "-")
        monkeypatch.undo()
        written = raw.getvalue().decode()
        if terminal:
            assert_tame(written)
        else:
            assert EVIL in written


@pytest.mark.slow
def test_thousands_of_columns_are_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"c{number}" for number in range(2000)]
    rows = ["t," + ",".join(names), *(",".join([str(row)] * 2001) for row in (1, 5))]
    Path("x.csv").write_text("\n".join(rows) + "\n")
    done = run("join", "x.csv", "x.csv", "--left-time", "t", "--right-time", "t", "--within", "1us",
               "--confidence", "1", "-o", "out.parquet")  # fmt: skip
    assert done.exit_code == 0, done.output
    out = pq.read_table("out.parquet")
    assert out.num_rows == 2
    assert out.schema.names[:2] == ["t_left", "c0_left"]
    assert out["c1999_right"].to_pylist() == [1, 5]
