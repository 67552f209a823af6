"""Precision, recall and reliability are computed right, and the page shows what was measured."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "benchmarks"
PAGE = ROOT / "docs" / "better-answers.md"

pytest.importorskip("pyperf")
pytest.importorskip("tabulate")


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module(name)


@pytest.fixture
def scoring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("scoring", monkeypatch)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("answer_streams", monkeypatch)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("answers", monkeypatch)


def test_precision_and_recall_count_what_was_never_found(scoring: ModuleType) -> None:
    found = scoring.score(np.array([1, 2, 3, 4]), np.array([2, 3, 9]))
    assert (found.precision, found.recall) == (2 / 4, 2 / 3)
    assert found.f1 == pytest.approx(2 / (1 / found.precision + 1 / found.recall))
    nothing = scoring.score(np.array([], int), np.array([2]))
    assert (nothing.precision, nothing.recall, nothing.f1) == (1, 0, 0)


def test_pairs_within_are_those_of_brute_force(scoring: ModuleType) -> None:
    random = np.random.default_rng(3)
    left, right = random.integers(0, 40, 25), random.integers(0, 40, 30)
    rows = scoring.pairs_within(left, right, -2, 5)
    wanted = {(i, j) for i in range(25) for j in range(30) if -2 <= right[j] - left[i] <= 5}
    assert len(rows[0]) == len(wanted)
    assert set(zip(*(each.tolist() for each in rows), strict=True)) == wanted


def test_too_many_pairs_are_refused_before_they_are_listed(scoring: ModuleType) -> None:
    same = np.zeros(10_000, np.int64)
    with pytest.raises(ValueError, match="100,000,000 pairs"):
        scoring.pairs_within(same, same, 0, 0)


def test_the_answer_at_each_confidence(scoring: ModuleType) -> None:
    probability, is_true = np.array([0.2, 0.5, 0.9, 0.9]), np.array([True, False, True, True])
    scores = scoring.by_confidence(probability, is_true, 4, [0.1, 0.5, 0.9, 1.0])
    assert [(one.found, one.right, one.true) for one in scores] == [(4, 3, 4), (3, 2, 4), (2, 2, 4), (0, 0, 4)]
    assert scoring.best(scores) == (0, scores[0])


def test_no_window_is_better_than_the_best(scoring: ModuleType) -> None:
    random = np.random.default_rng(5)
    difference = random.integers(-10, 10, 60)
    is_true = random.random(60) < np.where(np.abs(difference - 3) < 4, 0.8, 0.1)
    edges = np.arange(-10, 11)
    chosen, low, high = scoring.best_window(difference, is_true, 40, edges)

    def tried(first: int, last: int) -> float:
        inside = (difference >= first) & (difference <= last)
        found: float = scoring.Score(int(inside.sum()), int(is_true[inside].sum()), 40).f1
        return found

    assert chosen.f1 == max(tried(first, last) for first in edges for last in edges if first <= last)
    assert chosen.f1 == tried(int(low), int(high))


def test_reliability_of_a_tiny_case(scoring: ModuleType) -> None:
    probability = np.array([0.1, 0.3, 0.8, 0.8, 1.0])
    is_true = np.array([False, True, True, False, True])
    bins = scoring.reliability(probability, is_true, bins=2)
    assert [one.pairs for one in bins] == [2, 3]
    assert [one.probability for one in bins] == pytest.approx([0.2, 2.6 / 3])
    assert [one.share for one in bins] == pytest.approx([1 / 2, 2 / 3])
    assert scoring.calibration_error(bins) == pytest.approx((2 * 0.3 + 3 * 0.2) / 5)
    assert scoring.calibration_error([]) == 0


def test_runs_pool_as_if_they_were_one(scoring: ModuleType) -> None:
    random = np.random.default_rng(7)
    probability = random.random(400)
    is_true = random.random(400) < probability
    halves = [scoring.reliability(probability[at], is_true[at]) for at in (slice(0, 150), slice(150, 400))]
    together = scoring.reliability(probability, is_true)
    merged = scoring.pooled(halves)
    assert [one.pairs for one in merged] == [one.pairs for one in together]
    assert [one.probability for one in merged] == pytest.approx([one.probability for one in together])
    assert [one.share for one in merged] == pytest.approx([one.share for one in together])


def test_the_declared_time_contains_the_true_one(streams: ModuleType) -> None:
    for name in ("truncated", "polls", "mixture"):
        made = streams.simulate(streams.SCENARIOS[name], 300, 1.0, seed=2)
        for side in (made.left, made.right):
            reach = np.abs(side.middle_us - side.true_us)
            length = 2 * np.abs(side.middle_us - side.recorded_us)
            assert (reach <= length / 2 + 1).all()
    skewed = streams.simulate(streams.SCENARIOS["skewed clocks"], 300, 1.0, seed=2)
    assert np.abs(skewed.left.recorded_us - skewed.left.true_us).max() <= 5.25 * streams.SECOND


def test_effects_follow_their_causes(streams: ModuleType) -> None:
    made = streams.simulate(streams.SCENARIOS["exact"], 500, 1.0, seed=2)
    causes, effects = made.related
    delay = made.right.true_us[effects] - made.left.true_us[causes]
    assert delay.min() >= 0
    assert delay.mean() == pytest.approx(made.d_us / 3, rel=0.2)
    assert len(set(effects.tolist())) == len(effects)


def test_exact_clocks_and_a_true_window_leave_nothing_to_gain(answers: ModuleType, streams: ModuleType) -> None:
    made = streams.simulate(streams.SCENARIOS["exact"], 300, 1.0, seed=2)
    found = answers.compare(made, -made.d_us, made.d_us, answers.close(made))["scores"]
    assert {found[name]["f1"] for name in ("window d", "middles d", "window", "join", "half")} == {1.0}


def test_one_join_thresholded_is_the_join_at_each_confidence(answers: ModuleType, streams: ModuleType) -> None:
    """The scores at all confidences come from one join at the lowest, also those of the best partners."""
    made = streams.simulate(streams.SCENARIOS["mixture"], 200, 2.0, seed=2)
    codes = np.array([], np.int64)
    for best in (None, "both"):
        probability, _ = answers._joined(made, -made.d_us, made.d_us, codes, best)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(answers, "CONFIDENCES", (0.5,))
            higher, _ = answers._joined(made, -made.d_us, made.d_us, codes, best)
        assert sorted(probability[probability >= 0.5]) == sorted(higher)
        assert 0 < len(higher) < len(probability)


def test_a_wrong_declaration_costs_calibration(answers: ModuleType, streams: ModuleType) -> None:
    """The measure can fail: half the truncation declared gives a greater error than what is true."""
    errors = []
    for declared in (1.0, 0.5):
        made = streams.simulate(streams.SCENARIOS["polls"], 400, 5.0, seed=2, declared=declared)
        errors.append(answers.summed([answers.compare(made, -made.d_us, made.d_us, answers.close(made))]))
    right, wrong = (one["calibration_error"] for one in errors)
    assert right < 0.05 < wrong


def test_real_rows_are_read_with_their_truth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made-up files of the same columns: two phones 50 ms apart, and a pick whose event is catalogued."""
    answer_data = module("answer_data", monkeypatch)
    number = np.tile(np.arange(answer_data.MEASURED + 2), 2)
    phone = np.repeat([0, 1], answer_data.MEASURED + 2)
    send = 1_700_000_000_000 + 500 * number + 50 * phone
    times = {"send": send, "server_recv": send + 60, "server_done": send + 61, "ack": send + 101}
    columns = {name: pa.array(values, pa.timestamp("ms")) for name, values in times.items()}
    messages = pa.table({"device": pa.array(np.array(["a", "b"])[phone]), "seq": number, **columns})
    pq.write_table(messages, tmp_path / "s9_d1_ooo_events.parquet")
    for measured, length in ((False, 100_000), (True, 0)):
        made, low_us, (left, right) = answer_data.messages(tmp_path, measured=measured)
        assert low_us == -made.d_us
        assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(0, 0), (1, 1)]
        reach = made.left.columns["t_max"] - made.left.columns["t_min"]
        assert np.abs(reach - length).max() <= 1
        assert (made.left.recorded_us - made.left.true_us == 60_000).all()

    second = pa.timestamp("us")
    picks = {"sta_ot": pa.array([5_000_000, 9_000_000], second), "pal_event": pa.array([7, None], pa.int32())}
    catalogs = {"catalog": ["PAL", "PAL_HYPOINVERSE", "PAL_HYPOINVERSE"], "event_id": pa.array([7, 8, 7], pa.int32())}
    origins = pa.array([1, 2_000_000, 5_100_000], second)
    pq.write_table(pa.table(picks), tmp_path / "ridgecrest_pal_picks.parquet")
    pq.write_table(pa.table({**catalogs, "t": origins}), tmp_path / "ridgecrest_catalogs.parquet")
    made, _, (left, right) = answer_data.picks(tmp_path)
    assert (left.tolist(), made.right.true_us[right].tolist()) == ([0], [5_100_000])


def test_the_page_shows_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    answers_page = module("answers_page", monkeypatch)
    results = json.loads((SCRIPTS / "results" / "answers" / "answers.json").read_text())
    page = PAGE.read_text()
    assert answers_page.filled(page, results) == page
    assert page.count("<!-- table: ") == len(answers_page.tables(results))


@pytest.mark.slow
def test_the_quick_mode_runs_without_the_real_rows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(SCRIPTS / "answers.py"), "--quick", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "no real data: --data needs a folder with" in done.stderr
    results = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert results["real"] == []
    assert {case["question"] for case in results["simulated"]} == {"close", "caused"}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"answers_close.svg", "answers_caused.svg", "answers_reliability.svg"} < names
