"""`whenabouts plan` as users see it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from whenabouts.cli.app import main
from whenabouts.planner import Plan

PLAN = """
queries:
  - {name: hot, coalesce: [temperature], group: [region], window: {rows: 100}, statistics: {cp: 0.8}}
  - {name: wet, coalesce: [humidity], group: [region], window: {rows: 100}, statistics: {cp: 0.1}, pin: lazy}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "queries.yaml").write_text(PLAN)
    return tmp_path / "queries.yaml"


def test_choices_are_printed_and_exported(file: Path) -> None:
    out = file.with_name("plan.json")
    run = CliRunner().invoke(main, ["plan", str(file), "-o", str(out)])
    assert (run.exit_code, run.output) == (0, "hot\teager\nwet\tlazy\n")
    found = json.loads(out.read_text())
    assert found["choices"] == {"hot": "eager", "wet": "lazy"}
    assert set(found["alternatives"]) == {"all_eager", "all_lazy"}
    file.write_text(PLAN.replace("pin: lazy", "pin: eager"))
    again = CliRunner().invoke(main, ["plan", str(file), "--compare", str(out)])
    assert "wet: lazy before, eager now" in again.output


def test_an_exported_plan_is_kept_and_a_release_that_would_decide_otherwise_says_so(file: Path) -> None:
    out = file.with_name("plan.json")
    file.write_text(PLAN.replace(", pin: lazy", ""))
    CliRunner().invoke(main, ["plan", str(file), "-o", str(out)])
    before = json.loads(out.read_text())
    assert before["choices"] == {"hot": "eager", "wet": "eager"}
    out.write_text(json.dumps(before | {"release": "0.0.1"}))
    changed = "hysteresis: 0.99\nweights: {memory: 0, update: 1, scan: 0}\n"
    file.write_text(changed + PLAN.replace(", pin: lazy", ""))
    run = CliRunner().invoke(main, ["plan", str(file), "--keep", str(out)])
    assert run.exit_code == 0, run.output
    assert run.stdout == "hot\teager\nwet\teager\n"
    assert "note: the plan was made by release 0.0.1; release" in run.stderr
    assert "would decide: hot: eager -> lazy, wet: eager -> lazy" in run.stderr


def test_the_explanation(file: Path) -> None:
    run = CliRunner().invoke(main, ["plan", str(file), "--explain"])
    assert run.exit_code == 0
    assert "pinned" in run.output
    assert "one lazy extent over stream" in run.output


def test_wrong_input(file: Path) -> None:
    assert CliRunner().invoke(main, ["plan", str(file.with_name("none.yaml"))]).exit_code == 3
    file.write_text("queries: 5")
    wrong = CliRunner().invoke(main, ["plan", str(file)])
    assert wrong.exit_code == 2
    assert "WA-2075" in wrong.output
    file.write_text(PLAN)
    timed = CliRunner().invoke(main, ["plan", str(file), "--time", "t"])
    assert timed.exit_code == 2
    assert "WA-2006: --time t is of no input: none is given" in timed.stderr
    for option, code in (("-o", 2), ("--compare", 3)):
        none = str(file.parent / "no" / "x.json")
        assert CliRunner().invoke(main, ["plan", str(file), option, none]).exit_code == code


def test_the_plan_goes_to_stdout_and_what_is_told_to_stderr(file: Path) -> None:
    told = CliRunner().invoke(main, ["plan", str(file)])
    run = CliRunner().invoke(main, ["plan", str(file), "-o", "-"])
    assert run.exit_code == 0
    assert Plan.from_json(run.stdout).choices
    assert run.stderr == told.stdout
    explained = CliRunner().invoke(main, ["plan", str(file), "--explain", "-o", "-"])
    assert explained.stdout == run.stdout
    assert "one lazy extent over stream" in explained.stderr


def test_a_plan_that_cannot_be_written_leaves_the_one_before(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = file.with_name("plan.json")
    CliRunner().invoke(main, ["plan", str(file), "-o", str(out)])
    before = out.read_text()
    write = Path.open

    def full(path: Path, *arguments: object, **named: object) -> object:
        opened = write(path, *arguments, **named)  # type: ignore[arg-type]
        if "w" in str(arguments):
            opened.write(b"half")
            opened.close()
            raise OSError(28, "No space left on device")
        return opened

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr(Path, "write_text", lambda path, text, **_: full(path, "wb"))
    run = CliRunner().invoke(main, ["plan", str(file), "-o", str(out)])
    monkeypatch.undo()
    assert run.exit_code == 4
    assert "No space left on device" in run.output
    assert out.read_text() == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["plan.json", "queries.yaml"]


@pytest.mark.parametrize("number", [0, 1])
def test_the_documented_examples_are_planned(tmp_path: Path, number: int) -> None:
    page = (Path(__file__).parents[2] / "docs" / "planner.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    (tmp_path / "queries.yaml").write_text(examples[number])
    uncalibrated = CliRunner(env={"WHENABOUTS_COSTS": str(tmp_path / "none")})
    run = uncalibrated.invoke(main, ["plan", str(tmp_path / "queries.yaml")])
    assert run.exit_code == 0, run.output


def test_a_text_without_its_files_is_told_which_to_give(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT A.id, B.id FROM gate A, hall B WHERE A.k = B.k AND WINDOW(A, B) = '2 s'")
    done = CliRunner().invoke(main, ["plan", str(tmp_path / "q.sql")])
    assert done.exit_code == 2
    assert "no stream 'gate' is given (hint: write --input NAME=PATH for 'gate')" in done.stderr


def test_what_a_file_says_wrong_is_told_in_its_words(tmp_path: Path) -> None:
    """`plan` has no option for it."""
    streams = "streams: {a: {time: t}, b: {time: t}}"
    (tmp_path / "q.yaml").write_text(f"queries: [{{name: x, join: [a, b], within: 1 s}}]\n{streams}\n")
    done = CliRunner().invoke(main, ["plan", str(tmp_path / "q.yaml")])
    assert done.exit_code == 2
    assert "no confidence is given (hint: give confidence, in (0, 1], or possibly)" in done.stderr


@pytest.mark.parametrize("asked", ["--window 100", "--window -1", "--repeat 0"])
def test_calibrate_refuses_numbers_that_it_cannot_measure_with(asked: str) -> None:
    done = CliRunner().invoke(main, ["calibrate", *asked.split()])
    assert done.exit_code == 2
    assert f"Invalid value for '{asked.split()[0]}'" in done.stderr
    told = CliRunner().invoke(main, ["calibrate", "--help"]).stdout
    assert "64000; x>=1000]" in told
    assert "3; x>=1]" in told
