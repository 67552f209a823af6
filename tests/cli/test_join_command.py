"""`whenabouts join` as users see it: stdout, stderr, files, and the exit code of every failure."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.cli import engines
from whenabouts.core.hosting.file_runs import FileEngine, OutcomeBatches

Cli = Callable[..., Result]

JOIN = "join l.csv r.jsonl --on k --left-time t_min,t_max --right-time t --confidence 0.5"
WITHIN = f"{JOIN} --within 6s"


@pytest.mark.parametrize("mode", ["", " --stream"])
def test_every_row_is_accounted_for(cli: Cli, pair_of_files: Path, mode: str) -> None:
    done = cli(f"{WITHIN}{mode} -o out.parquet --rejects bad.jsonl")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "rows in 7 (left 4, right 3) = processed 4 + rejected 3\npairs 2 -> out.parquet\n" in done.stderr
    assert "rejected: 1 x WA-1003 (a time is null), 1 x WA-1004 (t_min is after t_max), 1 x WA-1009" in done.stderr
    pairs = pq.read_table(pair_of_files / "out.parquet").to_pylist()
    assert sorted((row["id"], row["k"], row["v"], row["probability"]) for row in pairs) == [
        (1, "a", 1.5, 1.0),
        (2, "b", None, 0.5),
    ]
    rejects = [json.loads(line) for line in (pair_of_files / "bad.jsonl").read_text().splitlines()]
    assert [(row["input"], row["code"], row["id"], row["t_min"], row["v"]) for row in rejects] == [
        ("left", "WA-1009", 3, "soon", None),
        ("left", "WA-1004", 4, "2024-01-01T00:00:20.000000Z", None),
        ("right", "WA-1003", None, None, 2.0),
    ]


def test_a_condition_on_both_rows(cli: Cli, pair_of_files: Path) -> None:
    both, one = (cli(*WITHIN.split(), "-o", "-", "--where", sql) for sql in ("left.id < 9", "left.id > 1"))
    assert [len(done.stdout.splitlines()) for done in (both, one)] == [3, 2]
    refused = cli(*WITHIN.split(), "--where", "left.none > 1")
    assert refused.exit_code == 2
    assert "WA-2092" in refused.stderr


def test_stdout_carries_only_data(cli: Cli, pair_of_files: Path) -> None:
    done = cli(f"{WITHIN} -o - --progress --no-probability")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == '"id","k","t_min","t_max","t","v"'
    assert sorted(line.split(",")[0] for line in lines[1:]) == ["1", "2"]
    assert "reading left\nreading right\nrunning on local, 7 rows\nwriting\n" in done.stderr


def test_without_an_output_the_first_rows_are_shown(cli: Cli, pair_of_files: Path) -> None:
    done = cli(WITHIN)
    assert done.exit_code == 0
    assert "2 of 2 rows (-o FILE writes all)" in done.stdout
    assert "2024-01-01T00:00:05Z" in done.stdout


def test_strict_ends_with_1_and_names_the_first_rejected_row(cli: Cli, pair_of_files: Path) -> None:
    done = cli(f"{WITHIN} --strict -o out.csv")
    assert done.exit_code == 1
    assert "error: 3 rows were rejected and --strict was given" in done.stderr
    assert "the first: {'input': 'left', 'code': 'WA-1009'" in done.stderr
    assert (pair_of_files / "out.csv").exists()
    (pair_of_files / "l.csv").write_text("id,k,t_min,t_max\n1,a,2024-01-01T00:00:00Z,2024-01-01T00:00:10Z\n")
    (pair_of_files / "r.jsonl").write_text('{"k":"a","t":"2024-01-01T00:00:05Z"}\n')
    assert cli(f"{WITHIN} --strict").exit_code == 0


def test_late_rows_are_rejected_unless_lateness_lets_them_in(cli: Cli, tmp_path: Path) -> None:
    for side in ("l", "r"):
        (tmp_path / side).mkdir()
        for number, t in enumerate([1_000, 1_000_000, 1_500]):
            (tmp_path / side / f"{number}.csv").write_text(f"t\n{t}\n")
        (tmp_path / side / "3.csv").write_text("t\n3000000\n")
    base = "join l r --left-time t --right-time t --within 1ms --confidence 1 --stream -o out.parquet --rejects bad.csv"
    late = cli(base)
    assert "processed 6 + rejected 2" in late.stderr
    assert "2 x WA-1010 (t_max is behind the watermark) -> bad.csv" in late.stderr
    assert late.exit_code == 0
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 3
    patient = cli(f"{base} --lateness 1s")
    assert "processed 8 + rejected 0" in patient.stderr
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 6
    one_sided = cli(f"{base} --lateness 1s,0s")
    assert "rejected 0" in one_sided.stderr  # the watermark is the least of both sides' clocks


def test_a_stream_measures_the_uncertainty_that_nobody_declared(cli: Cli, pair_of_files: Path) -> None:
    done = cli(f"{WITHIN} --stream")
    assert (
        "note: the longest left interval in the files is 10,000,000 us: taken as --left-max-uncertainty" in done.stderr
    )
    assert "measured" not in cli(f"{WITHIN} --stream --left-max-uncertainty 10s").stderr
    short = cli(f"{WITHIN} --stream --max-uncertainty 9s")
    assert "2 x WA-1005" in short.stderr
    assert short.exit_code == 0


@pytest.mark.parametrize("form", [["--between", "-6s,6s"], ["--between=-6s,6s"], ["--delay", "-6s", "--until", "6s"]])
def test_durations_may_begin_with_a_minus(cli: Cli, pair_of_files: Path, form: list[str]) -> None:
    done = cli(*JOIN.split(), *form)
    assert done.exit_code == 0, done.stderr
    assert "pairs 2\n" in done.stderr


def test_equal_names_get_the_suffixes(cli: Cli, tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1], "v": [2]}), tmp_path / "a.parquet")
    done = cli("join a.parquet a.parquet --left-time t --right-time t --within 0s --confidence 1 --suffixes _x,_y -o -")
    assert done.stdout == '"t_x","v_x","t_y","v_y","probability"\n1,2,1,2,1\n'


def test_explain_says_what_would_run_and_does_not(cli: Cli, pair_of_files: Path) -> None:
    done = cli(f"{WITHIN} --explain -o out.csv")
    assert done.exit_code == 0
    assert "at most 2 pairs, at most 1 for one row" in done.stderr
    assert "strategy: auto" in done.stderr
    assert "chance: By chance alone about " in done.stderr
    assert done.stderr.endswith("not run (--explain)\n")
    assert not (pair_of_files / "out.csv").exists()


def test_ties_go_to_the_earliest_or_to_the_nearest(cli: Cli, tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [100]}), tmp_path / "l.parquet")
    pq.write_table(pa.table({"s": [95, 102]}), tmp_path / "r.parquet")
    base = (
        "join l.parquet r.parquet --left-time t --right-time s --within 9us --confidence 1 --best left -o out.parquet"
    )
    for options, chosen in (("", 95), ("--ties earliest", 95), ("--ties nearest", 102)):
        done = cli(f"{base} {options}")
        assert done.exit_code == 0, done.stderr
        assert pq.read_table(tmp_path / "out.parquet")["s"].to_pylist() == [chosen]


def test_modes_say_which_rows_come_out(cli: Cli, tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [0, 50], "u": [10, 60], "x": ["a", "b"]}), tmp_path / "l.parquet")
    pq.write_table(pa.table({"s": [12, 13], "y": ["near", "far"]}), tmp_path / "r.parquet")
    base = "join l.parquet r.parquet --left-time t,u --right-time s --within 5us --confidence 0.1 -o out.parquet"

    def rows(options: str) -> set[tuple[str | None, ...]]:
        done = cli(f"{base} {options}")
        assert done.exit_code == 0, done.stderr
        return {(row["x"], row.get("y")) for row in pq.read_table(tmp_path / "out.parquet").to_pylist()}

    both = {("a", "near"), ("a", "far")}
    assert rows("") == both
    assert rows("--how left_outer") == both | {("b", None)}
    assert rows("--best left") == {("a", "near")}
    assert rows("--best left --how left_outer") == {("a", "near"), ("b", None)}
    assert rows("--how left_anti") == {("b", None)}
    assert "right minus left" in cli(f"{base} --how left_anti --why 0,1").stdout


@pytest.mark.parametrize("mode", ["", " --stream"])
def test_the_account_calls_only_pairs_pairs(cli: Cli, pair_of_files: Path, mode: str) -> None:
    """Of two left rows one has a partner; a further right row has none."""
    for how, told in {
        "inner": "pairs 1",
        "inner --best left": "pairs 1",
        "left_outer": "rows 2 (pairs 1, unmatched 1)",
        "full_outer": "rows 3 (pairs 1, unmatched 2)",
        "full_outer --best both": "rows 3 (pairs 1, unmatched 2)",
        "left_semi": "rows 1",
        "left_anti": "rows 1",
        "left_outer --aggregate n=count": "rows 2",
    }.items():
        done = cli(f"{JOIN} --within 5s --how {how}{mode} -o out.csv")
        assert f"\n{told} -> out.csv\n" in done.stderr, (how, done.stderr)


def test_a_limit_on_pairs_stops_before_the_run(cli: Cli, pair_of_files: Path) -> None:
    assert cli(f"{WITHIN} --max-pairs 2 --max-pairs-per-row 1").exit_code == 0
    done = cli(f"{WITHIN} --max-pairs 1 -o out.csv")
    assert done.exit_code == 2
    assert "at most 2 pairs, at most 1 for one row" in done.stderr
    assert "error: WA-2006: at most 2 pairs are expected, over --max-pairs 1" in done.stderr
    assert not (pair_of_files / "out.csv").exists()


USAGE = [
    (JOIN, "WA-2006: no condition is given"),
    (f"{WITHIN} --delay 1s", "within and delay are given together"),
    (f"{WITHIN} --since 1s", "since is given without deadline"),
    (f"{JOIN} --deadline 1s --until 1s", "until is given without delay"),
    (f"{JOIN} --between 1s", "WA-2006: between is '1s'"),
    (
        "join l.csv r.jsonl --left-time t_min,t_max --right-time t --within 6s",
        "WA-2001: no confidence is given (hint: give --confidence P, in (0, 1], or --possibly)",
    ),
    (f"{JOIN} --within soon", "WA-2002"),
    (f"{JOIN} --within -1s", "WA-2003"),
    (f"{JOIN} --between 5s,1s", "WA-2005"),
    (f"{WITHIN} --confidence 0", "WA-2001"),
    (f"{WITHIN} --confidence 1.5", "WA-2001"),
    (f"{WITHIN} --confidence nan", "WA-2001"),
    (f"{WITHIN} --confidence high", "WA-2001"),
    (f"{JOIN} --deadline 1s --stream", "WA-2004"),
    (f"{WITHIN} --how sideways", "WA-2006"),
    (f"{WITHIN} --best both --how left_semi", "WA-2006"),
    (f"{WITHIN} --best worst", "is not one of"),
    (f"{WITHIN} --best left --ties latest", "WA-2006"),
    (f"{WITHIN} --ties nearest", "WA-2006"),
    (f"{WITHIN} --why 1", "is not LEFT_ROW,RIGHT_ROW"),
    (f"{WITHIN} --why 1,-2", "is not LEFT_ROW,RIGHT_ROW"),
    (f"{WITHIN} --why 1,two", "is not LEFT_ROW,RIGHT_ROW"),
    (f"{WITHIN} --why 4,0", "WA-2006: --why: the left input has no row 4 (hint: its rows are 0 to 3)"),
    (f"{WITHIN} --why 0,3", "the right input has no row 3"),
    (f"{WITHIN} --engine abacus", "is not one of"),
    (f"{WITHIN} --strategy quick", "WA-2006"),
    (f"{WITHIN} --left-time hist:t.json:sensor,t", "WA-1008"),
    (f"{WITHIN} --left-time hist:t.json", "is not 'hist:TEMPLATES.json:template_column,t_max'"),
    (f"{WITHIN} --left-time hist:t.json:a,b,c", "is not 'hist:TEMPLATES.json:template_column,t_max'"),
    (f"{WITHIN} --left-time hist:t.json:", "is not 'hist:TEMPLATES.json:template_column,t_max'"),
    (f"{WITHIN} --left-time a,b,c", "neither 't' nor 't_min,t_max'"),
    (f"{WITHIN} --right-max-uncertainty 1s", "need --right-time t_min,t_max"),
    (f"{WITHIN} --left-time a --max-uncertainty 1s --min-uncertainty 0s", "but no time is t_min,t_max"),
    (f"{WITHIN} --max-uncertainty 1s --min-uncertainty 2s", "WA-2006"),
    (f"{WITHIN} --lateness -1s", "WA-2003"),
    (f"{WITHIN} --lateness 5s,1m,3s", "'5s,1m,3s' is not one duration, or one for each input"),
    (f"{WITHIN} --suffixes _x", "is not two values"),
    (f"{WITHIN} --time-zone Mars/Olympus", "WA-2006"),
    (f"{WITHIN} -o out.xlsx", "WA-2006"),
    (f"{WITHIN} -o none/out.csv", "WA-2006"),
    (f"{WITHIN} --on id,k", "WA-1001"),
    ("join l.csv", "Missing argument 'RIGHT'"),
    ("juggle", "No such command"),
    ("timing-join l.csv r.csv", "No such command 'timing-join'. Did you mean 'join'?"),
    ("window_join l.csv", "No such command 'window_join'. Did you mean 'window-join'?"),
]
BAD_INPUT = {f"{WITHIN} --on id,k", f"{WITHIN} --left-time hist:t.json:sensor,t"}


@pytest.mark.parametrize(("line", "told"), USAGE)
def test_a_wrong_call_is_told_in_one_line(cli: Cli, pair_of_files: Path, line: str, told: str) -> None:
    done = cli(line)
    assert done.exit_code == (3 if line in BAD_INPUT else 2), done.stderr
    assert told in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.output
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("left", "content", "code", "told"),
    [
        ("gone.csv", None, "WA-1008", "gone.csv: there is no such file"),
        ("zero.csv", "", "WA-1008", "zero.csv: the file is empty (0 bytes)"),
        ("f.txt", "t\n", "WA-1008", "the extension '.txt' is not supported"),
        ("f.csv", "id,k,t_min\n1,a,5\n", "WA-1001", "the left input has no time column 't_max'"),
        ("f.csv", "k,t_min,t_max\na,1.5,2.5\n", "WA-1002", "decimal fractions"),
        ("f.jsonl", '{"k":"a","t_min":1.5,"t_max":2.5}\n', "WA-1002", "'t_min' of the left input is double"),
        ("f.csv", "k,t_min,t_max\na,1700000000,1700000001\n", "WA-1002", "give --time-unit s"),
        ("f.csv", "k,t_min,t_max,_wa_x\na,1,2,3\n", "WA-1011", "_wa_x"),
    ],
)
def test_bad_input_ends_with_3(
    cli: Cli, pair_of_files: Path, left: str, content: str | None, code: str, told: str
) -> None:
    if content is not None:
        (pair_of_files / left).write_text(content)
    done = cli(WITHIN.replace("l.csv", left))
    assert done.exit_code == 3
    assert done.stderr.startswith(f"error: {code}: ")
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_keys_of_different_types_are_a_wrong_query(cli: Cli, pair_of_files: Path) -> None:
    pq.write_table(pa.table({"k": [1], "t_min": [5], "t_max": [6]}), pair_of_files / "l.parquet")
    done = cli(WITHIN.replace("l.csv", "l.parquet"))
    assert (done.exit_code, "error: WA-2008: key 'k' is int64 and string" in done.stderr) == (2, True)


CSV, JSONL, INTEGERS, WORDS = "csv", "jsonl", "integers", "words"
BIG, BIGGER = "12345678901234567890", "12345678901234567891"  # one and the same float


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        ((CSV, [BIG, "1"]), (CSV, [BIGGER, "1"]), ["1"]),
        ((CSV, ["007", "8"]), (CSV, ["7", "8"]), ["8"]),
        ((CSV, ["00042"]), (CSV, ["00042", "42"]), ["00042"]),
        ((CSV, ["7", "8"]), (CSV, ["8", "9"]), [8]),
        ((CSV, ["7", "8"]), (JSONL, ["7", "007"]), ["7"]),
        ((CSV, ["7", "8"]), (JSONL, [8, 9]), [8]),
        ((CSV, ["1e5", "2"]), (CSV, ["100000", "2"]), ["2"]),
        ((CSV, ["7", "8"]), (WORDS, ["8", "08"]), ["8"]),
        ((CSV, ["7", "8"]), (INTEGERS, [8, 9]), [8]),
        ((CSV, ["2024-01-01", "x"]), (JSONL, ["2024-01-01"]), ["2024-01-01"]),
    ],
)
def test_keys_in_text_files_are_equal_as_they_are_written(
    cli: Cli, tmp_path: Path, left: tuple[str, list[Any]], right: tuple[str, list[Any]], pairs: list[Any]
) -> None:
    done = cli(f"{_keyed(tmp_path, left, right)} -o out.jsonl")
    assert done.exit_code == 0, done.stderr
    assert [json.loads(line)["k"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == pairs


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ((CSV, ["7", "007"]), (INTEGERS, [7]), "'007' in row 1 of column 'k' of l.csv does not fit int64"),
        ((CSV, ["7", BIG]), (INTEGERS, [7]), f"'{BIG}' in row 1 of column 'k' of l.csv does not fit int64"),
        ((CSV, ["7"]), (JSONL, [7, int(BIG)]), f"{BIG} in row 1 of column 'k' of r.jsonl does not fit int64"),
        (
            (CSV, ["7"]),
            (JSONL, [2**53 + 1, 0.5]),
            "9007199254740993 in row 0 of column 'k' of r.jsonl does not fit a double",
        ),
    ],
)
def test_a_number_that_does_not_fit_is_told_with_its_row_and_column(
    cli: Cli, tmp_path: Path, left: tuple[str, list[Any]], right: tuple[str, list[Any]], told: str
) -> None:
    done = cli(f"{_keyed(tmp_path, left, right)} -o out.jsonl")
    assert (done.exit_code, f"error: WA-1067: {told}" in done.stderr) == (3, True), done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def _keyed(folder: Path, *sides: tuple[str, list[Any]]) -> str:
    """The command that joins files of these keys."""
    names = []
    for side, (kind, keys) in zip("lr", sides, strict=True):
        name = f"{side}.{kind if kind in (CSV, JSONL) else 'parquet'}"
        if kind == CSV:
            (folder / name).write_text("k,t\n" + "".join(f"{key},5\n" for key in keys))
        elif kind == JSONL:
            (folder / name).write_text("".join(json.dumps({"k": key, "t": 5}) + "\n" for key in keys))
        else:
            pq.write_table(pa.table({"k": keys, "t": [5] * len(keys)}), folder / name)
        names.append(name)
    return f"join {' '.join(names)} --on k --left-time t --right-time t --within 1s --confidence 1"


PAYLOAD = "id,price,phone,when,ok,note,big\n00042,1.5,+4915112345678,2024-01-01,true,,0.1234567890123456789\n"


def test_what_text_files_hold_comes_out_as_it_came_in(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(PAYLOAD.replace("\n", ",t\n", 1).replace("6789\n", "6789,5\n"))
    (tmp_path / "r.jsonl").write_text(
        '{"t": 5, "day": "2024-01-01", "in": {"at": "2024-01-01", "of": ["2024-01-01"]}}\n'
    )
    join = "join l.csv r.jsonl --left-time t --right-time t --within 1s --confidence 1"
    assert cli(f"{join} -o out.jsonl").exit_code == 0
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert (row["id"], row["price"], row["phone"], row["ok"]) == ("00042", 1.5, "+4915112345678", True)
    assert (row["when"], row["note"], row["big"]) == ("2024-01-01", None, "0.1234567890123456789")
    assert (row["day"], row["in"]) == ("2024-01-01", {"at": "2024-01-01", "of": ["2024-01-01"]})
    (tmp_path / "r.csv").write_text("t\n5\n")
    assert cli(f"{join.replace('jsonl', 'csv')} --how left_semi -o out.csv").exit_code == 0
    _, line = (tmp_path / "out.csv").read_text().splitlines()
    assert line.replace('"', "") + "\n" == PAYLOAD.split("\n")[1] + ",5\n"


def test_what_an_engine_raises_ends_with_4(cli: Cli, pair_of_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("the cogs\nhave stopped")

    monkeypatch.setitem(engines._ENGINES, "local", lambda: FileEngine(broken))
    done = cli(WITHIN)
    assert done.exit_code == 4
    assert "error: WA-3005: the run on engine local failed: RuntimeError: the cogs (hint: " in done.stderr


def test_an_engine_that_loses_a_row_is_found_out(
    cli: Cli, pair_of_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(*arguments: Any, **options: Any) -> OutcomeBatches:
        outcome = local.run_files(*arguments, **options)
        outcome.rejects = (batch.slice(max(1 - number, 0)) for number, batch in enumerate(outcome.rejects))
        return outcome

    local = engines.engine_of("local")
    monkeypatch.setitem(engines._ENGINES, "local", lambda: FileEngine(forgetful))
    done = cli(WITHIN)
    assert done.exit_code == 4
    assert "7 rows went in, but 4 were processed and 2 rejected" in done.stderr


def test_an_interrupt_ends_with_130_and_no_traceback(
    cli: Cli, pair_of_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setitem(engines._ENGINES, "local", lambda: FileEngine(interrupted))
    done = cli(WITHIN)
    assert done.exit_code == 130
    assert done.stderr.endswith("interrupted\n")
    assert "Traceback" not in done.output


def test_a_bug_of_ours_is_no_rejected_row(cli: Cli, pair_of_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception ends with 4: 1 would mean that there is a result."""
    from whenabouts.cli import run

    def broken(*_: object, **options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(run, "read_input", broken)
    done = cli(WITHIN)
    assert done.exit_code == 4
    assert done.stderr.startswith("error: WA-3005: the command failed: ZeroDivisionError: oh")


@pytest.mark.parametrize("mode", ["", " --stream"])
def test_headers_alone_give_no_pairs(cli: Cli, tmp_path: Path, mode: str) -> None:
    (tmp_path / "a.csv").write_text("t,k\n")
    done = cli(f"join a.csv a.csv --on k --left-time t --right-time t --within 1s --confidence 1 -o -{mode}")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith('"t_left","k","t_right","probability"')
    assert "rows in 0 (left 0, right 0) = processed 0 + rejected 0\npairs 0" in done.stderr


def test_columns_that_may_not_be_null_join_and_are_rejected_like_others(cli: Cli, tmp_path: Path) -> None:
    strict = pa.schema([pa.field("t", pa.int64(), nullable=False), pa.field("u", pa.int64(), nullable=False)])
    (tmp_path / "a").mkdir()
    pq.write_table(pa.table({"t": [1, 9], "u": [2, 3]}, schema=strict), tmp_path / "a" / "1.parquet")
    pq.write_table(pa.table({"t": [5], "u": [6]}), tmp_path / "a" / "2.parquet")
    pq.write_table(pa.table({"v": [5]}), tmp_path / "b.parquet")
    done = cli(
        "join a b.parquet --left-time t,u --right-time v --within 9us --confidence 1 -o out.csv --rejects bad.csv"
    )
    assert done.exit_code == 0, done.stderr
    assert "processed 3 + rejected 1\npairs 2 ->" in done.stderr
    assert (tmp_path / "bad.csv").read_text().splitlines()[1] == '"left","WA-1004","t_min is after t_max",9,3,'


def test_two_columns_of_one_name_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,x,x\n1,2,3\n")
    done = cli("join a.csv a.csv --left-time t --right-time t --within 1s --confidence 1")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: WA-2009: a.csv has two columns 'x'")


def test_digits_finer_than_a_microsecond_are_told_of_once(cli: Cli, tmp_path: Path) -> None:
    """Nanoseconds of a column, of text and of numbers alike; zeros after the sixth digit are no loss."""
    pq.write_table(pa.table({"t": pa.array([1_000, 2_001], pa.timestamp("ns", "UTC"))}), tmp_path / "ns.parquet")
    (tmp_path / "text.csv").write_text("t\n1970-01-01T00:00:00.000001999Z\n1970-01-01T00:00:00.000002000Z\n")
    (tmp_path / "whole.csv").write_text("t\n1970-01-01T00:00:00.000001000Z\n")
    (tmp_path / "numbers.csv").write_text("t\n1700000000000000001\n1700000000000000000\n")
    shared = "--left-time t --right-time t --within 1us --confidence 1"
    done = cli(f"join ns.parquet text.csv {shared}")
    assert done.exit_code == 0, done.stderr
    for name in ("left", "right"):
        sentence = f"note: 1 time in column 't' of {name} is finer than a microsecond: finer digits were cut (WA-1075)"
        assert sentence in done.stderr
    assert done.stderr.count("WA-1075") == 2
    assert "WA-1075" not in cli(f"join whole.csv whole.csv {shared}").stderr
    assert cli(f"join numbers.csv numbers.csv {shared} --time-unit ns").stderr.count("note: 1 time in column 't'") == 2


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--on", "", "--on is empty"),
        ("--within", " ", "--within is empty"),
        ("--max-uncertainty", "", "--max-uncertainty is empty"),
        ("--how", "", "--how is empty"),
        ("--on", "k,", "--on 'k,' has an empty part"),
        ("--on", "k=", "--on 'k=' has an empty part"),
        ("--left-time", "t_min,", "--left-time 't_min,' has an empty part"),
        ("--lateness", "5s,", "--lateness '5s,' has an empty part"),
    ],
)
def test_empty_options_are_refused(cli: Cli, pair_of_files: Path, option: str, value: str, told: str) -> None:
    """An unset variable of the shell must not take the key away, or the other end of an interval."""
    done = cli(*WITHIN.split(), option, value, "--stream", "-o", "out.csv")
    assert done.exit_code == 2
    assert f"error: WA-2006: {told}" in done.stderr
    assert not (pair_of_files / "out.csv").exists()


def test_an_empty_path_is_told_of(cli: Cli, pair_of_files: Path) -> None:
    done = cli("join", "", *WITHIN.split()[2:])
    assert done.exit_code == 3
    assert "the path of the left input is empty" in done.stderr
