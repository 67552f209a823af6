"""`whenabouts query` as users see it: the forms, and the same rows as the command of each operator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Cli = Callable[..., Result]

JOIN = (
    "SELECT A.id, B.v, k, probability FROM seismic A, acoustic B "
    "WHERE A.k = B.k AND WINDOW(A, B) = INTERVAL '2' SECOND WITH THRESHOLD 0.6"
)


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text(
        "id,k,t_min,t_max\n1,a,2024-01-01T00:00:00Z,2024-01-01T00:00:01Z\n2,b,2024-01-01T00:00:05Z,2024-01-01T00:00:06Z\n"
    )
    (tmp_path / "b.csv").write_text("k,t,v\na,2024-01-01T00:00:02Z,1.5\nb,2024-01-01T00:00:09Z,2.5\n")
    return tmp_path


@pytest.mark.parametrize("how", ["", "--stream", "--streaming --lateness 1s,2s"])
def test_the_form_of_a_timing_join(cli: Cli, streams: Path, how: str) -> None:
    done = cli("query", JOIN, "--input", "seismic=a.csv", "--input", "acoustic=b.csv", "-o", "-", *how.split())
    assert done.exit_code == 0, done.stderr
    assert done.stdout == '"id","v","k","probability"\n1,1.5,"a",1\n'
    assert "the time of A is t_min,t_max" in done.stderr


def test_the_forms_of_window_joins_and_of_coalescing(cli: Cli, streams: Path) -> None:
    (streams / "query.sql").write_text("SELECT A.id FROM x A, y B WHERE A.k = B.k AND WINDOW(A, B) = '2 s'")
    done = cli("query @query.sql --input x=a.csv --input y=b.csv --time x=t_max --time t -o -")
    assert (done.exit_code, done.stdout) == (0, '"id"\n1\n'), done.stderr
    text = "SELECT k, COUNT(*) FROM s [RANGE 1 HOUR] COALESCE ON v > 2 GROUP BY k"
    done = cli("query", text, "--input", "s=b.csv", "-o", "-")
    assert (done.exit_code, done.stdout) == (0, '"k","count"\n"b",1\n'), done.stderr


def test_a_time_that_is_found_is_that_of_the_stream_though_another_has_its_alias(cli: Cli, streams: Path) -> None:
    for name, time in (("x", "t"), ("y", "ts")):
        (streams / f"{name}.csv").write_text(f"{time},k,{name}\n2024-05-01T10:00:00Z,a,1\n")
    text = "SELECT y.x, x.y FROM x y, y x WHERE y.k = x.k AND WINDOW(y, x) = '2 s'"
    done = cli("query", text, "--input", "x=x.csv", "--input", "y=y.csv", "-o", "-")
    assert (done.exit_code, done.stdout) == (0, '"x","y"\n1,1\n'), done.stderr


@pytest.mark.parametrize("how", ["", "--streaming --lateness 1s"])
def test_the_form_of_a_join_aggregate(cli: Cli, streams: Path, how: str) -> None:
    text = (
        "SELECT A.id, COUNT(B) AS n, SUM(B.v) AS total, PROBABILITY(COUNT(B) = 0) AS nobody FROM seismic A, "
        "acoustic B WHERE A.k = B.k AND WINDOW(A, B) = '1500 ms' WITH THRESHOLD 0.6 GROUP BY A"
    )
    files = ["--input", "seismic=a.csv", "--input", "acoustic=b.csv", "--max-uncertainty", "1s"]
    done = cli("query", text, *files, "-o", "-", *how.split())
    assert done.exit_code == 0, done.stderr
    assert sorted(done.stdout.split()) == ['"id","n","total","nobody"', "1,0,,0.5", "2,0,,1"]
    assert "note: rows of A without a row of B stay, since each is a group; INNER JOIN drops them" in done.stderr
    said = cli("query", text, *files, "--explain", *how.split())
    assert said.exit_code == 0, said.stderr
    assert "partners: 0 right rows in sure ranges" in said.output


@pytest.mark.parametrize("time", ["", "--time seismic=t_min,t_max"])
def test_lengths_of_intervals_are_checked_wherever_the_time_is_from(cli: Cli, streams: Path, time: str) -> None:
    files = ["--input", "seismic=a.csv", "--input", "acoustic=b.csv", "-o", "-"]
    done = cli("query", JOIN, *files, "--max-uncertainty", "100ms", *time.split())
    assert done.exit_code == 0, done.stderr
    assert "rejected: 2 x WA-1005" in done.stderr
    done = cli("query", JOIN, *files, "--max-uncertainty", "1s", "--time", "seismic=t_min")
    assert done.exit_code == 2
    assert "--max-uncertainty given, but no time is t_min,t_max" in done.stderr


def test_mistakes_are_told_in_one_line(cli: Cli, streams: Path) -> None:
    for words, code, told in [
        ((JOIN.replace("A.k", "A.kk"), "--input", "seismic=a.csv", "--input", "acoustic=b.csv"), 2,
         "error: WA-2092: line 1, column 67: there is no column 'kk' in A (hint: did you mean 'k'?)"),
        (
            (JOIN, "--input", "seismic=a.csv"), 2,
            "WA-2113: line 1, column 50: no stream 'acoustic' is given, only seismic "
            "(hint: write --input NAME=PATH for 'acoustic')",
        ),
        ((JOIN,), 2, "WA-2113: no stream is given (hint: write --input NAME=PATH for seismic, acoustic)"),
        ((JOIN, "--input", "seismic=a.csv", "--input", "acustic=b.csv"), 2,
         "WA-2006: --input names 'acustic', and the streams of the query are seismic, acoustic (hint: did you mean "
         "'acoustic'?)"),
        ((JOIN, "--input", "seismic=a.csv", "--input", "acoustic=b.csv", "--time", "bb=t"), 2,
         "WA-2006: --time names 'bb', and the inputs are A, B, seismic, acoustic"),
        ((JOIN, "--input", "seismic"), 2, "'seismic' is not NAME=PATH"),
        ((JOIN, "--input", "seismic=a.csv", "--input", "acoustic=none.csv"), 3, "WA-1008"),
        (("@none.sql",), 3, "WA-1008"),
        (("SELEC",), 2, "WA-2111: line 1, column 1: found 'SELEC' (hint: expected SELECT)"),
    ]:  # fmt: skip
        done = cli("query", *words)
        assert (done.exit_code, told in done.stderr) == (code, True), done.stderr


def test_times_are_found_in_text_files_of_every_kind(cli: Cli, tmp_path: Path) -> None:
    """Text in JSON lines is text, but a column that contains only times can still be the time, for `query` and for
    `plan`."""
    (tmp_path / "l.jsonl").write_text('{"at": "2024-01-01T00:00:01Z", "k": 1, "zip": "02134"}\n')
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a.csv").write_text("at,k,zip\n2024-01-01T00:00:01Z,1,94105\n")
    (tmp_path / "r" / "b.csv").write_text("at,k,zip\n2024-01-01T00:00:02Z,1,02134\n2024-01-01T00:00:03Z,1,none\n")
    text = (
        "SELECT A.zip, B.k FROM l A, r B WHERE A.k = B.k AND A.zip = B.zip AND WINDOW(A, B) = '5 s' WITH THRESHOLD 0.5"
    )
    streams = ["--input", "l=l.jsonl", "--input", "r=r"]
    done = cli("query", text, *streams, "-o", "out.csv")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out.csv").read_text() == '"zip","k"\n"02134",1\n'
    (tmp_path / "query.sql").write_text(text)
    planned = cli("plan", "query.sql", *streams)
    assert planned.exit_code == 0, planned.output


def test_the_former_name_of_input_still_works_with_a_note(cli: Cli, streams: Path) -> None:
    """`--stream NAME=PATH` names an input as `--input` does, and may be combined with it."""
    now = cli("query", JOIN, "--input", "seismic=a.csv", "--input", "acoustic=b.csv", "-o", "-")
    before = cli("query", JOIN, "--input", "seismic=a.csv", "--stream", "acoustic=b.csv", "-o", "-")
    assert now.exit_code == before.exit_code == 0, before.stderr
    assert before.stdout == now.stdout
    note = "note: --stream NAME=PATH is deprecated, write --input NAME=PATH"
    assert note in before.stderr
    assert note not in now.stderr
    (streams / "q.sql").write_text(JOIN)
    plans = [
        cli("plan", "q.sql", f"--{name}", "seismic=a.csv", f"--{name}", "acoustic=b.csv")
        for name in ("input", "stream")
    ]
    assert plans[0].exit_code == plans[1].exit_code == 0, plans[1].stderr
    assert plans[0].stdout == plans[1].stdout
    assert (note in plans[0].stderr, note in plans[1].stderr) == (False, True)


def test_two_inputs_of_one_name_are_refused(cli: Cli, streams: Path) -> None:
    done = cli("query", JOIN, "--input", "seismic=a.csv", "--input", "seismic=b.csv")
    assert done.exit_code == 2
    assert "two inputs are called 'seismic'" in done.stderr


@pytest.mark.parametrize("how", ["", "--streaming"])
def test_what_a_query_warns_of_is_a_note(cli: Cli, streams: Path, how: str, recwarn: pytest.WarningsRecorder) -> None:
    text = "SELECT k, v, VALID(s) FROM s [ROWS 2] COALESCE ON v GROUP BY k"
    done = cli("query", text, "--input", "s=b.csv", "-o", "-", *how.split())
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("note: WA-2081: rows=2 counts the rows of all groups") == (1 if how else 0)
    assert not [warning for warning in recwarn if "WA-2081" in str(warning.message)]


def test_what_the_text_of_a_query_is_warned_of_is_a_note(
    cli: Cli, streams: Path, recwarn: pytest.WarningsRecorder
) -> None:
    text = "SELECT k, v, VALID(s) FROM s [RANGE 1 HOUR SLIDE 2 HOUR] COALESCE ON v GROUP BY k"
    done = cli("query", text, "--input", "s=b.csv", "-o", "-")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count("note: WA-2082: the slide ") == 1
    assert not list(recwarn)
