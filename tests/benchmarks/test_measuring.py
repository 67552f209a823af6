"""Benchmarks are honest: contenders that disagree give no figure, and no promise disappears."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks"

pytest.importorskip("pyperf")
pytest.importorskip("tabulate")


@pytest.fixture
def measuring() -> ModuleType:
    return importlib.import_module("measuring")


@pytest.fixture
def page(measuring: ModuleType) -> Iterator[ModuleType]:
    return importlib.import_module("page")


def test_the_digest_is_of_the_multiset(measuring: ModuleType) -> None:
    table = pa.table({"a": [3, 1, 2, 1], "b": [0.5, -0.0, 0.25, 1.5]})
    order = np.array([2, 0, 3, 1])
    digest = measuring.digest_of_table
    assert digest(table.take(order)) == digest(table)
    assert digest(pa.concat_tables([table.slice(2), table.slice(0, 2)])) == digest(table)
    others = [
        table.slice(1),
        pa.concat_tables([table, table.slice(0, 1)]),
        table.set_column(0, "a", pa.array([1, 3, 2, 1])),
        table.set_column(1, "b", pa.array([0.5, 0.0, 0.25, np.nextafter(1.5, 2)])),
    ]
    assert all(digest(other) != digest(table) for other in others)


def test_contenders_that_disagree_leave_no_figure(measuring: ModuleType, tmp_path: Path) -> None:
    suite = measuring.Suite("honest", rounds=2)
    same = {"ours": lambda: pa.table({"a": [1, 2]}), "peer": lambda: pa.table({"a": [2, 1]})}
    assert set(suite.compare("equal", same, measuring.digest_of_table)) == {"ours", "peer"}
    with pytest.raises(measuring.DisagreementError, match="disagree"):
        suite.compare("other", same | {"wrong": lambda: pa.table({"a": [2, 2]})}, measuring.digest_of_table)
    suite.save(tmp_path)
    written = (tmp_path / "honest.json").read_text()
    assert "equal / peer" in written
    assert "other" not in written
    assert str(Path.home()) not in written


def test_a_slow_contender_runs_once_and_a_limit_need_not_agree(measuring: ModuleType) -> None:
    suite, calls = measuring.Suite("few", rounds=3), []

    def slow() -> pa.Table:
        calls.append(1)
        return pa.table({"a": [1]})

    limit = {"limit": lambda: pa.table({"a": [7]})}
    contenders = {"ours": lambda: pa.table({"a": [1]}), "slow": slow} | limit
    suite.compare("w", contenders, measuring.digest_of_table, once=["slow"], incomparable=["limit"])
    assert len(calls) == 1


def test_a_promise_that_was_not_measured_is_shown(page: ModuleType, measuring: ModuleType, tmp_path: Path) -> None:
    suite = measuring.Suite("s", rounds=1)
    suite.record("w / ours", [1.0, 1.0])
    suite.record("w / fast", [4.0, 6.0])
    suite.record("w / slow", [9.0, 9.0])
    suite.claim("Figure 1", "It grows.", holds=False, why="It does not.")
    suite.save(tmp_path)
    peers = ["w / fast", "w / slow"]
    promises = [
        page.Promise("kept", "s", "w / ours", peers, at_least=5),
        page.Promise("broken", "s", "w / ours", peers, at_least=6, elsewhere="AMD: 7"),
        page.Promise("turned round", "s", "w / ours", peers, at_most=0.5),
        page.Promise("missing", "s", "w / other", peers, at_least=1),
    ]
    suites = page.read_suites(tmp_path)
    rows = {
        line.split("|")[1].strip(): line for line in page.promises_part(promises, suites).splitlines() if "|" in line
    }
    assert "5 (4 to 6)" in rows["kept"]
    assert "yes" in rows["kept"]
    assert "**no**" in rows["broken"]
    assert "0.2 (0.167 to 0.25)" in rows["turned round"]
    assert "not measured" in rows["missing"]
    summary = page.summary_part(promises, suites)
    assert "2 of 4 promised ratios are met" in summary.replace("**", "")
    assert "- broken: 5 (4 to 6), promised is at least 6 (on another machine, AMD: 7)." in summary
    assert "- missing: not measured" in summary
    assert "kept" not in summary
    assert page.summary_part(promises[:1], suites) == "**1 of 1 promised ratios are met.**\n"
    assert "**Does not hold.** It does not." in page.claims_part(tmp_path)
    assert "- Figure 1: *It grows.*" in page.doubts_part(tmp_path)
    assert "w / ours" not in page.suite_part("s", suites["s"])  # the workload heads the table
    assert "| fast" in page.suite_part("s", suites["s"])


def test_a_chart_has_the_measured_ratios_of_its_engine(page: ModuleType, measuring: ModuleType, tmp_path: Path) -> None:
    suite = measuring.Suite("s", rounds=1)
    suite.record("w / ours", [1.0, 1.0])
    suite.record("w / fast", [4.0, 6.0])
    suite.save(tmp_path)
    promises = [
        page.Promise(says, "s", "w / ours", [peer], **bound)
        for says, peer, bound in (
            ("here", "w / fast", {"at_least": 5}), ("here, the other way", "w / fast", {"at_most": 0.1}),
            ("on Spark", "w / fast", {"at_least": 9}), ("on Flink", "w / missing", {"at_least": 9}),
        )
    ]  # fmt: skip
    text = page.charts_part(promises, page.read_suites(tmp_path), tmp_path)
    assert text.count("![") == 2
    assert [path.name for path in sorted(tmp_path.glob("*.svg"))] == ["promises_local.svg", "promises_spark.svg"]
    chart = importlib.import_module("ratio_chart")
    local, spark = ((tmp_path / f"promises_{name}.svg").read_text() for name in ("local", "spark"))
    assert local.count("<!-- here") == 2
    assert local.count(f"fill: {chart.MET}") == 1
    assert local.count(f"fill: {chart.NOT_MET}") == 1
    assert "<!-- on Spark -->" in spark


def test_every_promise_is_well_formed(page: ModuleType) -> None:
    promises = page.read_promises(SCRIPTS / "promises.toml")
    assert len({promise.says for promise in promises}) == len(promises)
    for promise in promises:
        assert (promise.at_least is None) != (promise.at_most is None)
        assert (SCRIPTS / f"{promise.suite}.py").is_file()
        assert promise.peer
    assert tomllib.loads((SCRIPTS / "promises.toml").read_text()).keys() == {"promise"}
