"""Watched clocks: what raises an alarm, what does not, and that blocks do not matter."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.clocks.watching.clock_state import ClockState
from whenabouts.core.clocks.watching.fit_alarm import QUIET_ROWS, Capital, FitAlarm
from whenabouts.core.errors import QueryError

ROWS = 20_000
random = np.random.default_rng(5)
SEEN = np.cumsum(random.exponential(1_000_000, ROWS)).astype(np.int64)
DELAYS = {
    "normal": random.normal(0, 100_000, ROWS),
    "exponential": random.exponential(100_000, ROWS),
    "pareto": np.clip(random.pareto(1.5, ROWS) * 10_000, 0, 1e9),
    "none": np.zeros(ROWS),
}


@pytest.mark.parametrize("shape", DELAYS)
def test_a_step_is_found_once_and_nothing_else(shape: str) -> None:
    steady = SEEN + DELAYS[shape].astype(np.int64)
    assert list(ClockState().watch(steady, SEEN, None, None)) == []
    (found,) = ClockState().watch(steady - 2_000_000 * (np.arange(ROWS) >= 7_777), SEEN, None, None)
    assert (found.kind, found.by_us) == ("step", pytest.approx(-2_000_000, rel=0.05))
    assert abs(found.row - 7_778) <= 2


def test_the_same_rows_in_other_calls_give_the_same_alarms() -> None:
    readings = SEEN + DELAYS["normal"].astype(np.int64) + 3_000_000 * (np.arange(ROWS) >= 5_000)
    places = np.where(np.arange(ROWS) < 5_000, random.random(ROWS), 1 - random.random(ROWS) / 4)
    test = FitAlarm(0.02, 1_000_000)
    whole = list(ClockState().watch(readings, SEEN, places, test))
    assert {each.kind for each in whole} == {"step", "late"}
    for size in (1, 63, 1_000):
        state, found = ClockState(), []
        for at in range(4_000, 8_000, size) if size == 1 else range(0, ROWS, size):
            if size == 1 and at == 4_000:
                found += state.watch(readings[:at], SEEN[:at], places[:at], test)
            part = slice(at, at + size)
            found += state.watch(readings[part], SEEN[part], places[part], test)
        assert set(found) == {each for each in whole if size > 1 or each.row <= 8_000}
        assert len(set(found)) == len(found)


def test_alarms_of_a_clock_that_fits_are_as_rare_as_was_asked_for() -> None:
    """With `every` = 2,000 rows, 100 times as many rows have at most 100 false alarms on average; far fewer here."""
    test = FitAlarm(0.0, 2_000)
    _, found = test.alarms(Capital(), np.random.default_rng(0).random(200_000))
    assert 0 < len(found) <= 100


def test_after_an_alarm_there_is_none_for_a_while() -> None:
    _, found = FitAlarm(0.02, 1_000_000).alarms(Capital(), np.full(3_500, 0.9))
    rows = [row for row, _ in found]
    assert len(rows) == 4
    assert min(np.diff(rows)) > QUIET_ROWS


def test_a_learned_clock_is_watched_with_its_own_error() -> None:
    late = np.random.default_rng(1).exponential(80_000, 3_000).astype(np.int64)
    seen = SEEN[:3_000]
    rows = pa.table({"id": np.arange(3_000), "k": ["a"] * 3_000, "seen": seen, "t": seen + seen // 20_000 + late})
    clock = wa.learn_delay(rows, rows, on="id", left_time="seen", right_time="t")
    watched = {"reading": "t", "against": "seen", "group": "k"}
    assert wa.watch_clock(rows, clock=clock, **watched).num_rows == 0
    assert wa.WatchClock(clock=clock, **watched).error == clock.delay_error  # type: ignore[arg-type]
    drifted = rows.set_column(3, "t", pa.array(rows["t"].to_numpy() + seen // 5_000))
    assert set(wa.watch_clock(drifted, clock=clock, **watched)["kind"].to_pylist()) >= {"late"}
    assert wa.watch_clock(drifted, **watched).num_rows == 0, "it does not step"
    times = pa.table(
        {name: rows[name].cast(pa.timestamp("ms")) if name != "k" else rows[name] for name in ("k", "seen", "t")}
    )
    stepped = wa.watch_clock(pa.concat_tables([times.slice(0, 2_000), _ahead(times.slice(2_000))]), **watched)
    assert stepped.schema.field("time").type == pa.timestamp("ms")
    assert stepped.num_rows == 1


def test_sentences_say_earlier_by_a_duration_above_zero() -> None:
    late = np.random.default_rng(1).normal(0, 80_000, 3_000).astype(np.int64)
    rows = pa.table({"id": np.arange(3_000), "seen": SEEN[:3_000], "t": SEEN[:3_000] + 5_000_000 + late})
    clock = wa.learn_delay(rows, rows, on="id", left_time="seen", right_time="t")
    for by, kind, word in ((-40_000, "early", "earlier"), (40_000, "late", "later")):
        moved = rows.set_column(2, "t", pa.array(rows["t"].to_numpy() + by))
        alarm = wa.watch_clock(moved, reading="t", against="seen", clock=clock).to_pylist()[0]
        assert (alarm["kind"], alarm["by_us"] > 0) == (kind, by > 0)
        assert re.search(rf"readings are {word} than it says, by \d+(\.\d+)? ms in the median", alarm["sentence"])


def test_each_group_has_the_clock_of_its_key() -> None:
    """Two cameras whose clocks gain differently, and one that has no clock; then the second one gains more."""
    random = np.random.default_rng(2)
    left, right, seen = [], [], 1_700_000_000_000_000 + SEEN[:2_000]
    for key, drift, kept in (("a", 20, 1), ("b", -30, 1), ("c", 0, 150)):
        t = (seen + random.normal(0, 20_000, 2_000).astype(np.int64) + (seen - seen[0]) * drift // 1_000_000)[::kept]
        left.append(pa.table({"site": [key] * 2_000, "seen": seen}))
        right.append(pa.table({"place": [key] * len(t), "t": t}))
    sides = pa.concat_tables(left), pa.concat_tables(right)
    clocks = wa.learn_clock(
        *sides, left_time="seen", right_time="t", on=[("site", "place")], per_key=True, max_offset="2 min"
    )
    assert [clock.found for clock in clocks.values()] == [True, True, False]
    rows = pa.table({
        "site": ["a"] * 2_000 + ["b"] * 2_000 + ["c"] * 2_000, "seen": np.tile(seen, 3),
        "t": np.concatenate([
            right[0]["t"].to_numpy(), right[1]["t"].to_numpy() + (seen - seen[0]) // 1_000, seen + 10**9 * seen % 7
        ]),
    })  # fmt: skip
    watched = {"reading": "t", "against": "seen", "lateness": "1 min"}
    alarms = wa.watch_clock(rows, clock=clocks, group="site", **watched)
    assert {(row["site"], row["kind"]) for row in alarms.to_pylist()} == {("b", "late"), ("b", "scatter")}
    own = [clocks[key].delay_error for key in "ab"]
    query = wa.WatchClock(clock=clocks, group="site", **watched)  # type: ignore[arg-type]
    assert [(each.key, each.error) for each in query.clock] == [(("a",), own[0]), (("b",), own[1])]  # type: ignore
    assert wa.WatchClock(clock=clocks, group="place", error=np.float32(0.125), **watched).clock[0].error == 0.125  # type: ignore
    for group in ((), ("site", "t")):
        with pytest.raises(QueryError, match=r"WA-2006: group is .*, and the clocks are of keys of place"):
            wa.WatchClock(clock=clocks, group=group, **watched)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="WA-2221"):
        wa.WatchClock(clock=wa.LearnedClocks(clocks.on, clocks.by_key[2:]), group="site", **watched)  # type: ignore
    with pytest.raises(QueryError, match="WA-2008"):
        wa.watch_clock(rows.set_column(0, "site", pa.array(range(6_000))), clock=clocks, group="site", **watched)


def _ahead(rows: pa.Table) -> pa.Table:
    return rows.set_column(2, "t", pa.compute.add(rows["t"], pa.scalar(9_000_000, pa.duration("ms"))))


@pytest.mark.parametrize(
    "options",
    [
        {"every": 0}, {"error": 0.5}, {"error": "small"}, {"group": 4}, {"reading": None},
        {"clock": wa.Learned("u", 0, 0, 0, wa.uniform(-1, 1))},
        {"clock": wa.LearnedClocks((), ())}, {"clock": ("a", "b")}, {"clock": ()},
        {"clock": wa.Learned("t", 0, 0, 0, {"a": wa.uniform(-1, 1), "b": wa.uniform(0, 1)}, "k")},
    ],
)  # fmt: skip
def test_other_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match="WA-2006"):
        wa.WatchClock(**({"reading": "t", "against": "seen"} | options))
