"""Where `benchmarks/crossing_points*.py` see an engine's own join become the dearer one; how Flink's is measured."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("pyperf")


@pytest.fixture
def crossings() -> ModuleType:
    return importlib.import_module("crossings")


@pytest.fixture
def flink(crossings: ModuleType) -> ModuleType:
    pytest.importorskip("pyflink")
    return importlib.import_module("crossing_points_flink")


def test_a_line_crosses_where_it_rises_above_one(crossings: ModuleType) -> None:
    assert crossings.crossing([(1_000, 0.25), (4_000, 0.5), (16_000, 2)]) == pytest.approx(8_000)
    assert crossings.crossing([(1_000, 1), (4_000, 4)]) == pytest.approx(1_000)
    assert crossings.crossing([(1_000, 2), (4_000, 0.5)]) is None
    assert crossings.crossing([(1_000, 0.5), (4_000, 1)]) is None


def test_a_verdict_names_the_side_that_costs_less(crossings: ModuleType) -> None:
    points = {
        "from": [(1_000, 0.5), (4_000, 2)],
        "between": [(1_000, 0.5), (4_000, 2), (16_000, 0.9), (64_000, 1.1)],
        "always": [(1_000, 1.5), (4_000, 3)],
        "never": [(1_000, 0.1), (4_000, 0.5)],
    }
    told = {name: crossings.verdict(name, line, "Flink's", "rows a second") for name, line in points.items()}
    assert told == {
        "from": "from: ours costs less from 2,000 rows a second on",
        "between": "between: ours costs less from 2,000 rows a second on, but not at 16,000",
        "always": "always: ours costs less at 1,000 rows a second already (1.5 times)",
        "never": "never: Flink's own costs less up to 4,000 rows a second (2.0 times)",
    }


def test_the_picture_has_each_line_and_that_of_equal_costs(
    crossings: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        crossings, "draw", lambda *args, **kw: importlib.import_module("curves").draw(*args, tmp_path, **kw)
    )
    found = {"8 keys": [(1_000, 0.5), (4_000, 2)], "100 keys": [(1_000, 0.7), (16_000, 3)]}
    text = (tmp_path / crossings.picture("crossed", found, "Flink's", "rows", (0.5, 1, 2))).read_text()
    for label in ("8 keys", "100 keys", "equal", "CPU of Flink's own join over ours", "rows"):
        assert f">{label}</text>" in text


def test_state_is_full_before_the_clock_begins_and_each_rate_lasts(flink: ModuleType) -> None:
    case = flink.Case(10_000, "60 seconds")
    fill, warm, *each = case.phases([4_000, 1_000], rounds=2, seconds=6)
    assert fill.numbers == 2 * 744_000
    assert fill.seconds == 0
    assert warm.per_second == 8_000
    assert [phase.per_second for phase in each] == [8_000, 2_000] * 2
    assert {phase.seconds for phase in each} == {6 + flink.SETTLING_S}
    assert flink.Case(8, "1 second").phases([1_000], 1, 6)[0].numbers == 2 * flink.WARMING


def test_a_job_that_falls_behind_is_noticed(flink: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    paced = flink.Paced([flink.Phase(5_000), flink.Phase(2_000, 1_000), flink.Phase(2_000, 1_000)])
    monkeypatch.setattr(paced, "begun", lambda: [0.0, 7.0, 9.1, 11.4])
    assert paced.behind() == [False, False, True]


def test_a_rate_that_one_cannot_keep_has_no_point(flink: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {flink.OURS: {8_000: 0.5, 1_000: 0.2}, flink.NATIVE_JOIN: {1_000: 0.1}}
    measured = lambda who, *_: {rate: [{"JVM": cpu, "JIT": 9.0}] for rate, cpu in cost[who].items()}  # noqa: E731
    monkeypatch.setattr(flink, "answer", lambda _: 3)
    monkeypatch.setattr(flink, "spent", measured)
    suite = flink.Suite("some")
    assert flink.line(suite, flink.Case(8, "1 second"), [1_000, 8_000], 1, 1) == [(1_000, 0.5)]
    cost[flink.NATIVE_JOIN].clear()
    with pytest.raises(flink.click.ClickException, match="too late at every rate"):
        flink.line(suite, flink.Case(8, "1 second"), [1_000, 8_000], 1, 1)


def test_joins_that_disagree_are_not_measured(flink: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([(3, 17), (3, 18), (0, 0), (0, 0), (3, 17), (3, 17)])
    monkeypatch.setattr(flink, "tables_of", lambda *_, **__: None)
    monkeypatch.setattr(flink, "pairs_of", lambda *_: "")
    monkeypatch.setattr(flink, "run_sql", lambda *_, **__: next(answers))
    case = flink.Case(8, "1 second")
    for _ in ("other pairs", "no pairs"):
        with pytest.raises(flink.DisagreementError, match="8 keys, 1 second late"):
            flink.answer(case)
    assert flink.answer(case) == 3


def test_the_cost_is_without_the_look_at_it(flink: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.25])
    monkeypatch.setattr(flink.time, "thread_time", lambda: next(clock))
    monkeypatch.setattr(flink.time, "perf_counter", iter([10.0, 12.0]).__next__)
    monkeypatch.setattr(flink.time, "sleep", lambda _: None)
    monkeypatch.setattr(flink, "cpu_of_tree", dict)
    monkeypatch.setattr(flink, "cpu_since", lambda _: {"driver": 0.75, "JVM": 3.0, "JIT": 1.0})
    cost = flink.cost_of(2)
    assert cost == {"driver": 0.25, "JVM": 1.5, "JIT": 0.5}
    assert flink.hot(cost) == 1.75
