"""The delay between paired rows: simulated clocks are found within their errors, unsound ones are refused."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import whenabouts as wa
from whenabouts.core.clocks.calibration import held_out
from whenabouts.core.clocks.learn_delay import KEPT_FROM
from whenabouts.core.clocks.learned_clock import LearnedClock
from whenabouts.core.clocks.robust_lines import errors_like, fit_line
from whenabouts.core.errors import WhenaboutsError

START, HOUR = 1_700_000_000_000_000, 3_600_000_000
NAMES: dict[str, Any] = {"on": "id", "left_time": "t", "right_time": "u"}
REAL = Path(os.environ.get("WHENABOUTS_DATA", "")) / "s9_d1_ooo_events.parquet"


def streams(
    seed: int, n: int = 500, *, offset: int = 5_000_000, drift: float = 30e-6, mean: float = 50_000
) -> tuple[pa.Table, pa.Table]:
    """A day of rows whose right times are late by an exponential delay; the right side is in another order."""
    rng = np.random.default_rng(seed)
    t = START + np.sort(rng.integers(0, 24 * HOUR, n))
    delay = rng.exponential(mean, n)
    u = t + offset + np.floor((t - START) * drift + delay).astype(np.int64)
    order = rng.permutation(n)
    return pa.table({"id": np.arange(n), "t": t}), pa.table({"id": np.arange(n)[order], "u": u[order]})


def learned(rows: int = 0, *, changes: dict[str, Any] | None = None, **asked: Any) -> LearnedClock:
    return wa.learn_delay(*streams(rows, **(changes or {})), **{**NAMES, **asked})


def test_offset_and_drift_are_found() -> None:
    clock = learned()
    middle = (clock.t_ref_us - START) * 30e-6
    assert clock.found
    assert abs(clock.drift_ppb - 30_000) < 4 * clock.drift_error_ppb < 4_000
    assert abs(clock.offset_us - 5_000_000 - middle - 50_000 * np.log(2)) < 4 * clock.offset_error_us < 40_000
    assert clock.calibration is not None
    assert clock.calibration.verdict == "calibrated"
    assert "30" in clock.sentence


@pytest.mark.parametrize("trials", [60, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_standard_errors_are_those_of_the_estimates(trials: int) -> None:
    """Skewed delays with 2 % gross errors, in bursts: the errors divided by their estimates have deviation 1."""
    pulls = []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(-5e9, 5e9, 500))
        y = rng.exponential(50_000, 500) + np.where(rng.random(500) < 0.02, rng.uniform(1e6, 1e7, 500), 0) + 30e-6 * x
        line = fit_line(x, y)
        true = -50_000 * np.log(1 - 0.5 / 0.98)
        pulls.append(((line.slope - 30e-6) / line.slope_error, (line.median - true) / line.covariance[0][0] ** 0.5))
    assert all(0.8 < deviation < 1.25 for deviation in np.std(pulls, axis=0))
    assert all(0.85 < share < 0.995 for share in np.mean(np.abs(pulls) < 1.96, axis=0))


def test_a_clock_without_drift_has_none() -> None:
    kept = [learned(seed, changes={"drift": 0.0, "n": 200}).drift_ppb for seed in range(20)]
    assert kept.count(0) >= 19
    assert learned(changes={"drift": 0.0}, drift="fit").drift_ppb != 0
    assert learned(drift="none").drift_ppb == 0


@pytest.mark.parametrize(
    ("rows", "trials"), [(20, 400), (100, 400), pytest.param(20, 4_000, marks=pytest.mark.exhaustive)]
)
def test_errors_hold_for_few_pairs_and_a_drift_of_chance_is_not_kept(rows: int, trials: int) -> None:
    """Student's distribution: three deviations of a normal one are 0.27 %."""
    pulls = []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        x = np.sort(rng.uniform(-5e9, 5e9, rows))
        line, flat = fit_line(x, y := rng.normal(0, 50_000, rows)), fit_line(x, y, slope=0.0)
        pulls.append((line.slope / line.slope_error, flat.median / flat.covariance[0][0] ** 0.5))
    assert all(share > 0.88 for share in np.mean(np.abs(pulls) < 1.96, axis=0))
    kept = np.mean(np.abs([slope for slope, _ in pulls]) > errors_like(KEPT_FROM, rows))
    assert kept < 0.0027 + 3 * (0.0027 / trials) ** 0.5


def test_few_pairs_give_an_offset_and_no_specification() -> None:
    clock = learned(changes={"n": 46})
    assert (clock.found, clock.delays) == (True, ())
    assert "known to within 0.2 only, max_error is 0.2: there is no specification" in clock.sentence
    for use in (clock.spec, clock.condition, clock.plot, lambda: clock.spec(accept="uncalibrated")):
        with pytest.raises(WhenaboutsError, match="WA-2222"):
            use()
    assert clock.correct(streams(0, 46)[1]).num_rows == 46
    assert learned(changes={"n": 46}, max_error=0.3).spec().t == "u"
    assert learned(changes={"n": 47}).spec().t == "u"
    left, right = streams(0, 200)
    kinds = right.append_column("k", pa.array(["a"] * 160 + ["b"] * 40))
    assert wa.learn_delay(left, kinds, kind="k", **NAMES).delays == ()


@pytest.mark.parametrize("share", [0.8, 0.9, 0.99])
@pytest.mark.parametrize("side", ["right", "left"])
def test_the_specification_and_the_condition_find_that_share_of_true_pairs(share: float, side: str) -> None:
    left, right = streams(1, 4000)
    clock = wa.learn_delay(left, right, **NAMES)
    times: dict[str, Any] = {"left_time": wa.Point("t"), "right_time": wa.Point("u"), f"{side}_time": clock.spec(side)}
    fresh = streams(2, 4000)
    pairs = wa.timing_join(*fresh, on="id", condition=clock.condition(share), **times)
    assert abs(pairs.num_rows / 4000 - share) < 0.02


def test_swapping_the_sides_turns_the_answer_round() -> None:
    left, right = streams(3)
    forth = wa.learn_delay(left, right, **NAMES)
    back = wa.learn_delay(right, left, on="id", left_time="u", right_time="t")
    assert abs(forth.drift_ppb / (1 + forth.drift_ppb / 1e9) + back.drift_ppb) < forth.drift_error_ppb
    shift = (back.t_ref_us - forth.t_ref_us - forth.offset_us) * forth.drift_ppb / 1e9
    assert abs(forth.offset_us + back.offset_us + shift) < forth.offset_error_us


def test_a_constant_on_one_side_moves_the_offset_by_it_and_the_order_of_rows_changes_nothing() -> None:
    left, right = streams(4)
    one = wa.learn_delay(left, right, **NAMES)
    moved = right.set_column(1, "u", pa.array(right["u"].to_numpy() + 777_777))
    two = wa.learn_delay(left.take(np.random.default_rng(0).permutation(500)), moved, **NAMES)
    assert two == replace(one, offset_us=one.offset_us + 777_777, sentence=two.sentence)


def test_each_kind_has_its_own_delays() -> None:
    left, right = streams(5, 900)
    slow = right["id"].to_numpy() % 3 == 0
    right = right.set_column(1, "u", pa.array(right["u"].to_numpy() + np.where(slow, 2_000_000, 0)))
    right = right.append_column("channel", pa.array(np.where(slow, "slow", "fast")))
    clock = wa.learn_delay(left, right, kind="channel", **NAMES)
    assert [name for name, _ in clock.delays] == ["fast", "slow"]
    assert clock.delay is None
    assert abs(clock.drift_ppb - 30_000) < 4 * clock.drift_error_ppb
    pairs = wa.timing_join(
        left, right, on="id", left_time=wa.Point("t"), right_time=clock.spec(), condition=clock.condition(0.9)
    )
    assert 0.88 < pairs.num_rows / 900 <= 1


def test_gross_errors_are_reported_and_dropped_when_asked() -> None:
    left, right = streams(6)
    u = right["u"].to_numpy().copy()
    u[:10] += 100_000_000
    right = right.set_column(1, "u", pa.array(u))
    kept, dropped = (wa.learn_delay(left, right, outliers=outliers, **NAMES) for outliers in ("keep", "drop"))
    assert kept.gross == dropped.gross == 0.02
    assert "0.02 of the differences are gross errors" in kept.sentence
    assert kept.delay is not None
    assert dropped.delay is not None
    assert kept.delay.length_us > 90_000_000 > 2_000_000 > dropped.delay.length_us


def refusal(left: pa.Table, right: pa.Table, **asked: Any) -> str | None:
    clock = wa.learn_delay(left, right, **{**NAMES, **asked})
    assert not clock.found
    assert clock.sentence
    for use in (clock.spec, clock.condition, lambda: clock.correct(right)):
        with pytest.raises(WhenaboutsError, match=f"WA-2221: {clock.reason}"):
            use()
    return clock.reason


def test_what_cannot_be_known_is_refused() -> None:
    left, right = streams(7, 300)
    assert refusal(left.slice(0, 19), right) == "too_few"
    assert refusal(left.slice(0, 0), right) == "too_few"
    assert refusal(left, left.rename_columns(["id", "u"])) == "no_resolution"
    assert refusal(left, right.set_column(1, "u", pa.array(right["u"].to_numpy() // 1000))) == "at_bound"
    assert refusal(left, pa.concat_tables([right, right.slice(0, 30)])) == "ambiguous"
    kinds = right.append_column("k", pa.array(["a"] * 290 + ["b"] * 10))
    assert refusal(left, kinds, kind="k") == "too_few"
    few = wa.learn_delay(left, pa.concat_tables([right, right.slice(0, 10)]), **NAMES)
    assert (few.found, few.repeated, few.pairs) == (True, 10, 290)
    first = wa.learn_delay(left, pa.concat_tables([right, right.slice(0, 30)]), duplicates="first", **NAMES)
    assert (first.found, first.pairs) == (True, 300)


@pytest.mark.parametrize(
    ("verdict", "change"),
    [
        ("drifts", lambda d, at: d + 3_000_000 * (at > 0.7)),
        ("drifts", lambda d, at: d + 100_000 * np.sin(20 * at)),
        ("spread changes", lambda d, at: (d - 100_000) * (1 + 4 * (at > 0.7))),
        ("calibrated", lambda d, at: d),
        ("calibrated", lambda d, at: d * 0 + 1234),
        ("calibrated", lambda d, at: d // 10_000 * 10_000),
    ],
)
def test_what_does_not_hold_for_held_out_rows_is_not_calibrated(verdict: str, change: Any) -> None:
    rng = np.random.default_rng(8)
    t = START + np.sort(rng.integers(0, HOUR, 1000))
    late = change(rng.normal(100_000, 50_000, 1000), np.arange(1000) / 1000).astype(np.int64)
    rows = pa.table({"id": np.arange(1000), "t": t}), pa.table({"id": np.arange(1000), "u": t + late})
    clock = wa.learn_delay(*rows, drift="none", **NAMES)
    assert clock.calibration is not None
    assert clock.calibration.verdict == verdict
    assert clock.spec(accept="uncalibrated").t == "u"
    if verdict != "calibrated":
        with pytest.raises(WhenaboutsError, match=f"WA-2222.*{verdict}"):
            clock.spec()


@pytest.mark.parametrize(
    ("n", "trials"), [(25, 60), (1000, 20), (200_000, 1), pytest.param(1000, 500, marks=pytest.mark.exhaustive)]
)
def test_delays_from_one_distribution_are_calibrated(n: int, trials: int) -> None:
    verdicts = []
    for seed in range(trials):
        delays = np.floor(np.random.default_rng(seed).exponential(50_000, n)).astype(np.int64)
        verdicts.append(held_out(delays, np.zeros(n, np.int64), 5, 0).verdict)
    assert verdicts.count("calibrated") >= 0.93 * trials


def test_a_clock_is_a_value_that_json_keeps() -> None:
    for clock in (learned(), learned(changes={"n": 5})):
        assert clock == pickle.loads(pickle.dumps(clock))
        again = LearnedClock.from_dict(json.loads(json.dumps(clock.to_dict(), allow_nan=False)))
        assert again == clock
        assert str(again) == str(clock)
    assert learned().spec() == LearnedClock.from_dict(learned().to_dict()).spec()


@pytest.mark.parametrize("spoil", [{"format": "x"}, {"version": 2}, {"delays": [["a", [[0, 1, "x"]]]]}, {"span_us": 1}])
def test_a_spoilt_file_is_refused(spoil: dict[str, Any]) -> None:
    with pytest.raises(WhenaboutsError, match="WA-1012"):
        LearnedClock.from_dict({**learned().to_dict(), **spoil})
    with pytest.raises(WhenaboutsError, match="WA-1012"):
        LearnedClock.from_dict({"format": "whenabouts clock", "version": 1})


def test_corrected_times_are_a_column() -> None:
    left, right = streams(9)
    clock = wa.learn_delay(left, right, **NAMES)
    frame = right.to_pandas()
    done = clock.correct(frame)
    assert list(done.columns) == ["id", "u", "u_corrected"]
    expected = clock.spec().corrected(right["u"].to_numpy())
    assert (done["u_corrected"].astype("int64").to_numpy() == expected).all()
    late = np.abs(expected[np.argsort(right["id"].to_numpy())] - left["t"].to_numpy())
    assert np.median(late) < 60_000
    with pytest.raises(WhenaboutsError, match="WA-2009"):
        clock.correct(frame, name="id")
    assert clock.correct(pa.table({"u": pa.array([None, 5], pa.int64())}))["u_corrected"].null_count == 1


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"on": None}, "WA-2006"), ({"on": "no"}, "WA-1001"), ({"left_time": "no"}, "WA-1001"),
        ({"right_time": 7}, "WA-2006"), ({"drift": "3 s"}, "WA-2006"), ({"folds": 1}, "WA-2006"),
        ({"duplicates": "last"}, "WA-2006"), ({"outliers": "cut"}, "WA-2006"), ({"kind": "no"}, "WA-1001"),
        ({"longest": "soon"}, "WA-2002"), ({"longest": "1 ms"}, "WA-2006"), ({"seed": -1}, "WA-2006"),
        ({"max_error": 0}, "WA-2006"), ({"kind": "no"}, "the right input has no kind column 'no' .hint: it has id, u"),
        ({"shortest": "5 s", "longest": "1 s"}, "shortest is 5 s, longest 1 s"),
        ({"longest": "1 ms"}, r"longest is 1 ms, and right - left lies from 6\.\d+ s to 6\.\d+ s"),
        ({"shortest": "1 h"}, r"shortest is 1 h, and right - left lies from 6\.\d+ s to 6\.\d+ s"),
    ],
)  # fmt: skip
def test_bad_options_have_codes(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(WhenaboutsError, match=code):
        learned(**asked)


def test_a_missing_key_is_answered_with_the_columns_of_the_user() -> None:
    with pytest.raises(WhenaboutsError, match=r"no key column 'no' \(hint: it has [a-z]"):
        learned(on="no")


def test_bad_uses_have_codes() -> None:
    clock = learned()
    for use in (lambda: clock.condition(0.5), lambda: clock.condition(1), lambda: clock.spec("both")):
        with pytest.raises(WhenaboutsError, match="WA-2006"):
            use()
    assert clock.condition(np.float32(0.875)) == clock.condition(0.875)  # type: ignore[arg-type]  # of numpy, too


def test_the_error_grows_with_the_distance_from_the_data() -> None:
    clock = learned()
    near, far = (clock.error_at_us(clock.t_ref_us + days * 24 * HOUR) for days in (0, 40))
    assert near == pytest.approx(clock.offset_error_us)
    assert far == pytest.approx(40 * 24 * HOUR * clock.drift_error_ppb / 1e9, rel=0.05)


@pytest.mark.skipif(not REAL.is_file(), reason="WHENABOUTS_DATA names no folder with the s9 events")
def test_real_delays_of_mobile_clients_are_calibrated() -> None:
    """Eight devices over UMTS: one-way delays from sending to receiving, ten minutes each."""
    events = pq.read_table(REAL)
    for device in sorted(set(events["device"].to_pylist())):
        rows = events.filter(pa.compute.equal(events["device"], device))
        clock = wa.learn_delay(rows, rows, on="seq", left_time="send", right_time="server_recv")
        assert clock.found
        assert clock.calibration is not None
        assert clock.calibration.verdict == "calibrated"
        assert clock.calibration.distance < 0.039
        assert 0.87 < clock.calibration.coverage[1] < 0.91
        assert abs(clock.drift_ppb) < 60_000


def test_reports_as_page_and_figure(tmp_path: Path) -> None:
    left, right = streams(0, 400)
    right = right.append_column("k", pa.array(["<b>", "c"] * 200))
    clock = wa.learn_delay(left, right, kind="k", **NAMES)
    page = clock.to_html(tmp_path / "page.html").read_text()
    assert (page.count("<svg"), page.count("<b>&lt;"), "&lt;b&gt;" in page) == (2, 0, True)
    assert clock.sentence in clock._repr_html_().replace("&#x27;", "'")
    pytest.importorskip("matplotlib")
    assert [panel.get_title() for panel in clock.plot().axes] == ["<b>", "c"]
    with pytest.raises(WhenaboutsError, match="WA-2221"):
        learned(changes={"n": 5}).plot()
