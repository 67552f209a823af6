"""`hist:TEMPLATES.json:template_column,t_max`: times that are distributed as a template."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from whenabouts.cli.options import time_spec
from whenabouts.cli.tables import read_input
from whenabouts.core import Histogram
from whenabouts.core.sources.time_parsing import ClockRules

Cli = Callable[..., Result]

PHI1 = [[0, 20, 0.1], [20, 30, 0.3], [30, 40, 0.6]]
PHI2 = [[0, 10, 0.15], [10, 20, 0.3], [20, 30, 0.4], [30, 40, 0.15]]


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    (tmp_path / "phi.json").write_text(json.dumps({"007": PHI1, "2": PHI2}))
    (tmp_path / "one.json").write_text(json.dumps({"only": [["0us", "40us", 1]]}))
    return tmp_path


def test_the_spec_names_a_file_a_column_and_the_anchor(templates: Path) -> None:
    spec = time_spec(f"hist:{templates}/phi.json:kind, t", "--left-time")
    assert isinstance(spec, Histogram)
    assert (spec.columns, spec.template_column, [name for name, _ in spec.templates]) == (("t",), "kind", ["007", "2"])
    alone = time_spec(f"hist:{templates}/one.json:t", "--left-time")
    assert (alone.columns, alone.template_column, alone.max_uncertainty_us) == (("t",), None, 40)


def test_the_last_colon_ends_the_path(templates: Path) -> None:
    odd = templates / "C:a,b"
    odd.mkdir()
    (odd / "phi.json").write_text((templates / "one.json").read_text())
    assert time_spec(f"hist:{odd}/phi.json:t", "--left-time").columns == ("t",)


def test_several_templates_need_a_column(cli: Cli, templates: Path) -> None:
    (templates / "l.csv").write_text("t\n5\n")
    done = cli("join l.csv l.csv --left-time hist:phi.json:t --right-time t --within 1s --confidence 0.5")
    assert (done.exit_code, "WA-2006: there are 2 templates" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "WA-1008"),
        ("[]", "WA-1012"),
        ('{"a": [[0, 1, 0.5]]}', "WA-1012"),
        ('{"a": [["0us", "5 parsecs", 1]]}', "WA-1012"),
    ],
)
def test_a_file_that_holds_no_templates_is_bad_input(cli: Cli, tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "l.csv").write_text("t\n5\n")
    (tmp_path / "bad.json").write_text(content)
    done = cli("join l.csv l.csv --left-time hist:bad.json:t --right-time t --within 1s --confidence 0.5")
    assert (done.exit_code, code in done.stderr) == (3, True)


@pytest.mark.parametrize("mode", ["", " --stream"])
def test_rows_join_by_their_templates_and_unknown_ones_are_rejected(cli: Cli, templates: Path, mode: str) -> None:
    """Example 3 of PTJoin: of a2 (phi2 at 110) and a3 (phi1 at 210), P(H3 - H2 <= 90) is 0.925 and for 100 more."""
    (templates / "l.csv").write_text("id,kind,t\n1,2,110\n2,none,110\n3,,110\n4,2,\n")
    (templates / "r.jsonl").write_text('{"name": "x", "kind": "007", "t": 210}\n{"name": "y", "kind": "7", "t": 210}\n')
    done = cli(
        "join l.csv r.jsonl --left-time hist:phi.json:kind,t --right-time hist:phi.json:kind,t --delay 90us "
        f"--until 10s --confidence 0.9 -o out.jsonl --rejects bad.jsonl{mode}"
    )
    assert done.exit_code == 0, done.stderr
    (pair,) = [json.loads(line) for line in (templates / "out.jsonl").read_text().splitlines()]
    assert (pair["id"], pair["name"], pair["kind_left"], pair["kind_right"]) == (1, "x", "2", "007")
    assert pair["probability"] == pytest.approx(0.925, abs=1e-12)
    rejects = [json.loads(line) for line in (templates / "bad.jsonl").read_text().splitlines()]
    assert [(row["input"], row["code"], row["id"], row["name"]) for row in rejects] == [
        ("left", "WA-1003", 4, None),
        ("left", "WA-1013", 2, None),
        ("left", "WA-1013", 3, None),
        ("right", "WA-1013", None, "y"),
    ]
    assert "1 x WA-1003 (a time is null), 3 x WA-1013 (the row names no registered template)" in done.stderr


def test_why_knows_templates(cli: Cli, templates: Path) -> None:
    (templates / "l.csv").write_text("kind,t\n2,110\n9,110\n")
    (templates / "r.csv").write_text("t\n210\n")
    base = (
        "join l.csv r.csv --left-time hist:phi.json:kind,t --right-time hist:one.json:t --within 100us --confidence 0.9"
    )
    assert "probability 0.5" in cli(f"{base} --why 0,0").stdout
    assert "malformed: the left row is rejected with WA-1013, the row names no reg" in cli(f"{base} --why 1,0").stdout
    assert cli(f"{base} --explain").exit_code == 0


def read(path: Path, **options: str) -> pa.Table:
    return pa.concat_tables(read_input("left", str(path), ("t",), ClockRules(), "kind").tables)


@pytest.mark.parametrize(
    ("written", "values"),
    [
        (["1", "20", "-3", ""], [1, 20, -3, None]),
        (["1", "007"], ["1", "007"]),
        (["1.5", "2"], ["1.5", "2"]),
        (["2024-01-01"], ["2024-01-01"]),
        (["true"], ["true"]),
        (["+1"], ["+1"]),
        (["99999999999999999999"], ["99999999999999999999"]),
        ([""], [None]),
    ],
)
def test_template_names_of_csv_stay_as_they_are_written(
    tmp_path: Path, written: list[str], values: list[object]
) -> None:
    (tmp_path / "f.csv").write_text("kind,t\n" + "".join(f"{name},5\n" for name in written))
    column = read(tmp_path / "f.csv")["kind"]
    assert column.to_pylist() == values
    assert pa.types.is_string(column.type) or pa.types.is_int64(column.type)


def test_template_names_have_one_type_over_all_files(tmp_path: Path) -> None:
    for name, kinds in (("a", ["1", "2"]), ("b", ["x"]), ("c", [])):
        (tmp_path / f"{name}.csv").write_text("kind,t\n" + "".join(f"{kind},5\n" for kind in kinds))
    assert read(tmp_path)["kind"].to_pylist() == ["1", "2", "x"]
    (tmp_path / "b.csv").unlink()
    assert read(tmp_path)["kind"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ('{"kind": "7", "t": "2024-01-01T00:00:00Z"}', ["7"]),
        ('{"kind": 7, "t": "2024-01-01T00:00:00Z"}', [7]),
        ('{"kind": "2024-01-01", "t": 5}', ["2024-01-01"]),
        ('{"kind": 7, "t": 5}', [7]),
        ('{"kind": null, "t": 5}', [None]),
    ],
)
def test_template_names_of_json_lines_stay_as_they_are(tmp_path: Path, line: str, values: list[object]) -> None:
    (tmp_path / "f.jsonl").write_text(line + "\n")
    table = read(tmp_path / "f.jsonl")
    assert table["kind"].to_pylist() == values
    assert table["t"].null_count == 0


def test_a_missing_template_column_is_told(cli: Cli, templates: Path) -> None:
    pq.write_table(pa.table({"t": [5]}), templates / "l.parquet")
    (templates / "l.csv").write_text("t\n5\n")
    for name in ("l.parquet", "l.csv"):
        done = cli(f"join {name} l.csv --left-time hist:phi.json:kind,t --right-time t --within 1s --confidence 0.5")
        assert (done.exit_code, "WA-1001" in done.stderr, "'kind'" in done.stderr) == (3, True, True), done.stderr
