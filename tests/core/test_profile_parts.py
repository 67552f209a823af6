"""The parts of a profile against brute force: classes of granularities, quantiles of lags, periods, steps."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from whenabouts.core.clocks.profile.gaps import outages
from whenabouts.core.clocks.profile.granules import DAY, HOUR, LADDER, MINUTE, MS, SECOND, Lattice, the_lattice
from whenabouts.core.clocks.profile.order import Order, _upper_rank
from whenabouts.core.clocks.profile.polling import polling, tick
from whenabouts.core.clocks.profile.profile import profile
from whenabouts.core.clocks.profile.steps import Step, backward_steps, level_steps, zones_of

DATA = Path(os.environ.get("WHENABOUTS_DATA", "/nonexistent"))
NOW = 1_700_000_000_000_000


@pytest.mark.parametrize("ladder", [(1, 2, 3), (1, 2, 4, 6, 10, 15), (1, 10, 100, 125, 864), (1, 5, 7, 35, 50)])
def test_oracle_class_probabilities_are_counts_over_a_full_period(ladder: tuple[int, ...]) -> None:
    lattice = Lattice(ladder)
    period = math.lcm(*ladder)
    for column, granule in enumerate(ladder):
        times = np.arange(0, period, granule)
        by_hand = [frozenset(member for member in ladder if time % member == 0) for time in times.tolist()]
        classes = lattice.classes(times)
        for row, multiple in enumerate(lattice.multiples):
            members = frozenset(member for member in ladder if multiple % member == 0)
            share = by_hand.count(members) / len(times)
            assert lattice.probabilities[row, column] == pytest.approx(share, abs=1e-12)
            assert np.count_nonzero(classes == row) == by_hand.count(members)


def test_oracle_the_ladder_itself_over_a_day_of_seconds() -> None:
    lattice = the_lattice()
    times = NOW // DAY * DAY + np.arange(0, DAY, SECOND)
    shares = np.bincount(lattice.classes(times), minlength=len(lattice.multiples)) / len(times)
    assert lattice.probabilities[:, LADDER.index(SECOND)] == pytest.approx(shares, abs=1e-12)
    assert lattice.probabilities.sum(axis=0) == pytest.approx(1)


def _shares(us: np.ndarray) -> dict[int, float]:
    lattice = the_lattice()
    found = lattice.mixture(np.bincount(lattice.classes(us), minlength=len(lattice.multiples)))
    return {share.granule_us: share.share for share in found}


def test_chance_multiples_are_taken_out_of_the_shares() -> None:
    random = np.random.default_rng(1)
    us = NOW + random.integers(0, 30 * DAY, 20_000)
    granule = random.choice([MS, SECOND, 5 * MINUTE], 20_000, p=[0.7, 0.25, 0.05])
    shares = _shares(us // granule * granule)
    assert set(shares) == {MS, SECOND, 5 * MINUTE}
    assert [shares[each] for each in (MS, SECOND, 5 * MINUTE)] == pytest.approx([0.7, 0.25, 0.05], abs=0.01)


@pytest.mark.parametrize("granule", LADDER)
def test_each_granularity_of_the_ladder_is_found_alone(granule: int) -> None:
    us = NOW + np.random.default_rng(granule % 1_000).integers(0, 900 * DAY, 100)
    assert _shares(us // granule * granule) == {granule: pytest.approx(1)}


def test_oracle_the_rank_of_a_lateness_is_the_binomial_bound() -> None:
    for rows, share in ((50, 0.9), (400, 0.99), (400, 0.999), (3_000, 0.999)):
        chosen = [math.log(math.comb(rows, k)) for k in range(rows + 1)]
        mass = [math.exp(c + k * math.log(share) + (rows - k) * math.log1p(-share)) for k, c in enumerate(chosen)]
        below = np.cumsum(mass)  # P(Binomial <= k)
        exact = next((rank for rank in range(1, rows + 1) if below[rank - 1] >= 0.99), rows)
        assert _upper_rank(rows, share) == exact


def test_oracle_lags_are_those_behind_the_running_maximum() -> None:
    us = np.random.default_rng(3).integers(0, 1_000, 200)
    lags = [max(us[: at + 1]) - us[at] for at in range(len(us))]
    order = Order.of(us)
    assert order.behind == np.mean(np.array(lags) > 0)
    assert [order.at(rank) for rank in range(1, 201)] == sorted(lags)


def test_a_poll_is_found_with_its_period_and_random_times_have_none() -> None:
    random = np.random.default_rng(2)
    beats = np.flatnonzero(random.random(3_000) < 0.7)  # three in ten polls find nothing
    found = polling(np.unique(NOW + (beats * 30_000_500.0).astype(int) + random.integers(0, SECOND, len(beats))), [1])
    assert found is not None
    assert found.period_us == pytest.approx(30_000_500, rel=1e-5)
    assert found.skipped == pytest.approx(0.3, abs=0.03)
    for n in (100, 1_000, 10_000):
        us = np.unique(NOW + random.integers(0, DAY, n))
        assert polling(us, [1]) is None
        assert tick(us) is None


@pytest.mark.parametrize("rows", [60, 199, 3_000])
@pytest.mark.parametrize("silence", [HOUR, 3 * DAY])
def test_a_stretch_without_polls_is_no_period(rows: int, silence: int) -> None:
    beats = np.arange(rows) * 30 * SECOND + np.where(np.arange(rows) < rows // 2, 0, silence)
    us = NOW + beats + np.random.default_rng(0).integers(0, SECOND, rows)
    found = profile(pa.table({"t": us}), "t")
    assert found.whole.polling is not None
    assert (found.whole.polling.longest_us, found.whole.polling.skipped) == (pytest.approx(30 * SECOND, rel=1e-3), 0)
    assert [each.kind for each in found.findings] == ["polling", "outage"]


def test_a_coarser_lattice_of_most_times_is_no_poll() -> None:
    random = np.random.default_rng(0)
    at = np.cumsum(np.where(random.random(5_000) < 0.8, 1, random.geometric(0.005, 5_000)))  # in bursts
    times = np.unique(NOW + 20 * MS * at + 10 * MS * (random.random(5_000) < 0.1))
    assert polling(times, [10 * MS]) is None
    assert profile(pa.table({"t": times}), "t").whole.polling is None


def test_a_tick_off_the_ladder_is_found() -> None:
    beats = np.cumsum(np.random.default_rng(0).geometric(0.2, 2_000))
    assert tick(NOW + np.rint(beats * 381.4756).astype(np.int64)) == pytest.approx(381.4756, rel=1e-6)


def test_a_stretch_without_rows_is_an_outage_and_poisson_gaps_are_none() -> None:
    us = NOW + np.cumsum(np.random.default_rng(0).exponential(SECOND, 5_000)).astype(np.int64)
    assert outages(us, len(us)) == []
    silent = np.concatenate([us[:2_000], us[2_000:] + 10 * MINUTE])
    assert outages(silent, len(us)) == [(silent[1_999], silent[2_000])]


def test_a_clock_that_goes_back_steps_and_late_rows_do_not() -> None:
    """Readings over arrivals; the clock goes back once, a block of rows arrives late.

      /|              /
     / | /     ____  /
    /  |/     /    \\/
    """
    us = NOW + np.cumsum(np.random.default_rng(0).exponential(SECOND, 3_000)).astype(np.int64)
    back = us - np.where(np.arange(3_000) >= 1_000, 10 * MINUTE, 0)
    (step,) = backward_steps(back)
    assert (step.at, step.by_us) == (1_000, pytest.approx(-10 * MINUTE, abs=30 * SECOND))
    late = np.concatenate([us[:1_000], us[1_100:1_900], us[1_000:1_100], us[1_900:]])
    assert backward_steps(late) == []
    assert backward_steps(us) == []


@pytest.mark.parametrize("by", [-HOUR, 2 * SECOND])
def test_a_change_of_level_against_the_arrival_is_a_step(by: int) -> None:
    random = np.random.default_rng(0)
    arrival = NOW + np.cumsum(random.exponential(SECOND, 2_000)).astype(np.int64)
    us = arrival - random.exponential(100 * MS, 2_000).astype(np.int64)
    assert level_steps(us, arrival) == []
    us[700:] += by
    (step,) = level_steps(us, arrival)
    assert (abs(step.at - 700) <= 2, step.by_us) == (True, pytest.approx(by, abs=100 * MS))


def test_an_hour_back_in_autumn_names_the_zones_whose_clocks_repeat_it() -> None:
    three = 1_730_000_000_000_000 // DAY * DAY + 3 * HOUR  # 2024-10-27 03:00, as Berlin's clocks showed it first
    zones = zones_of(Step(1, -HOUR, three - SECOND), 1)
    assert "Europe/Berlin" in zones
    assert "America/New_York" not in zones
    assert zones_of(Step(1, HOUR, three - SECOND), 1) == []  # no hour is missing there
    assert zones_of(Step(1, -HOUR, three + 90 * DAY), 1) == []


AUTUMN = 1_730_000_000_000_000 // DAY * DAY + HOUR  # 2024-10-27 01:00 UTC, when Berlin's clocks go back


def _in_berlin(utc: np.ndarray) -> np.ndarray:
    return np.asarray(utc + np.where(utc < AUTUMN, 2, 1) * HOUR)


@pytest.mark.parametrize("every", [SECOND, 10 * SECOND, MINUTE, 5 * MINUTE])
def test_an_hour_repeated_is_an_hour_however_far_apart_rows_are(every: int) -> None:
    (step,) = backward_steps(_in_berlin(np.arange(AUTUMN - 6 * HOUR, AUTUMN + 6 * HOUR, every)))
    assert (step.at, step.by_us, step.before_us) == (6 * HOUR // every, -HOUR, AUTUMN + 2 * HOUR - every)
    assert "Europe/Berlin" in zones_of(step, 1)


def test_an_hour_repeated_in_random_rows_is_known_to_a_few_of_their_gaps() -> None:
    found = []
    for seed in range(40):
        utc = np.sort(AUTUMN + np.random.default_rng(seed).integers(-6 * HOUR, 6 * HOUR, 1_000))
        found += backward_steps(_in_berlin(utc))
    assert len(found) == 40
    assert np.mean([step.by_us for step in found]) == pytest.approx(-HOUR, abs=2 * 12 * HOUR / 1_000)
    assert sum("Europe/Berlin" in zones_of(step, 1) for step in found) >= 36


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_any_rhythm_have_no_step(seed: int) -> None:
    random = np.random.default_rng(seed)
    us = NOW + np.cumsum(random.exponential(SECOND, 4_000)).astype(np.int64)
    bursts = np.sort(random.choice(us, 200)[random.integers(0, 200, 4_000)] + random.integers(0, MS, 4_000))
    mixed = us[np.argsort(us + random.exponential(5 * SECOND, 4_000))]
    for times in (us // MINUTE * MINUTE, bursts, mixed, np.concatenate([us, us[-1] + bursts - bursts[0]])):
        assert backward_steps(times) == []


HERE = pytest.mark.skipif(not DATA.is_dir(), reason="WHENABOUTS_DATA names no folder")


@HERE
def test_real_columns_have_the_granularities_that_are_known_of_them() -> None:
    picks = profile(pq.read_table(DATA / "italy_20161014_picks.parquet"), "t").whole
    assert {share.granule_us: round(share.share, 2) for share in picks.granules}[10 * MS] == 0.91
    assert picks.dust == pytest.approx(0.014, abs=0.001)
    bursts = profile(pq.read_table(DATA / "grb_gw_triggers.parquet"), "t").whole
    assert {share.granule_us: round(share.share, 2) for share in bursts.granules}[864 * MS] == 0.73
    lightning = profile(pq.read_table(DATA / "lightning_glm_events.parquet"), "t").whole
    assert lightning.tick_us == pytest.approx(381.4756, rel=1e-6)


@HERE
def test_real_devices_have_their_periods_and_lags() -> None:
    found = profile(pq.read_table(DATA / "s9_d1_ooo_events.parquet"), "detect", group="device")
    assert {round(each.polling.period_us / MS) for each in found.groups.values() if each.polling} == {500}
    assert len(found.groups) == 8
    assert found.whole.order.behind == pytest.approx(0.161, abs=0.001)
    assert (found.whole.order.lags_us[2], found.whole.order.lags_us[4]) == (219 * MS, 4_544 * MS)
    readings = pq.read_table(DATA / "intel_lab_20040304_20040308.parquet", columns=["recv_ts", "mote"])
    one = profile(readings.filter(pc.equal(readings["mote"], 1)), "recv_ts").whole.polling
    assert one is not None
    assert (one.period_us, one.local) == (pytest.approx(30.0006e6, rel=1e-5), pytest.approx(0.70, abs=0.02))
