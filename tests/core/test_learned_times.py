"""Times of a clock that was compared with another one: exact integers, and the joins that use them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.errors import WhenaboutsError
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US
from whenabouts.core.times.learned import MOST_DRIFT_PPB, Learned, corrected

YEAR_1900, YEAR_2200 = -2_208_988_800_000_000, 7_258_118_400_000_000
DELAY = wa.Template(((-30, -10, ".25"), (-10, 5, ".75")))


def in_rationals(t: int, offset: int, drift: int, reference: int) -> int:
    return reference + math.floor(Fraction(t - reference - offset) / (1 + Fraction(drift, 10**9)))


def test_corrected_times_equal_rational_arithmetic() -> None:
    """10^5 times from 1900 to 2200, drifts of either sign up to the greatest, references inside and outside."""
    rng = np.random.default_rng(26)
    for drift in (0, 1, -1, 50_000, -3_000_000, 999_983, -77_777_777, MOST_DRIFT_PPB, -MOST_DRIFT_PPB, 12_345):
        offset, reference = (int(rng.integers(-(10**13), 10**13)), int(rng.integers(YEAR_1900, YEAR_2200)))
        t = rng.integers(YEAR_1900, YEAR_2200, 10_000)
        expected = [in_rationals(value, offset, drift, reference) for value in t.tolist()]
        assert corrected(t, offset, drift, reference).tolist() == expected


@pytest.mark.parametrize("drift", [MOST_DRIFT_PPB, -MOST_DRIFT_PPB, 1, -1])
@pytest.mark.parametrize("offset", [wa.core.times.limits.FARTHEST_US // 2, -(10**17)])
def test_corrected_times_do_not_overflow_at_the_ends_of_the_calendar(drift: int, offset: int) -> None:
    t = np.array([FIRST_US, FIRST_US + 1, -1, 0, 1, LAST_US])
    for reference in (FIRST_US, 0, LAST_US):
        expected = [in_rationals(value, offset, drift, reference) for value in t.tolist()]
        assert corrected(t, offset, drift, reference).tolist() == expected


def test_without_drift_it_is_a_distribution_shifted_by_the_offset() -> None:
    learned = Learned("t", 1_000, 0, 123_456, DELAY)
    shifted = wa.from_distribution("t", wa.Template(tuple((lo - 1_000, hi - 1_000, p) for lo, hi, p in DELAY.buckets)))
    batch = pa.record_batch({"t": [-5, 0, 7, 10**15]})
    blocks = [EventReader(0, "left", batch.schema, spec).read(batch).block for spec in (learned, shifted)]
    assert blocks[0] == blocks[1]
    assert learned.templates[0][1].exact == shifted.templates[0][1].exact


def test_it_is_a_value() -> None:
    one, same = (Learned("t", 1_000, number, 5, DELAY) for number in (-7, np.int64(-7)))
    assert one == same == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert repr(one) == repr(same)
    assert len(repr(one)) < 150
    assert one != Learned("t", 1_000, 7, 5, DELAY)
    assert len({repr(Learned("t", *numbers, DELAY)) for numbers in ((1, 2, 3), (-1, 2, 3), (1, -2, 3), (1, 2, 4))}) == 4


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"offset_us": 1.5}, "WA-2006"),
        ({"offset_us": True}, "WA-2006"),
        ({"drift_ppb": "50 ms"}, "WA-2006"),
        ({"drift_ppb": MOST_DRIFT_PPB + 1}, "WA-2006"),
        ({"t_ref_us": 2**60}, "WA-2006"),
        ({"templates": {"a": DELAY, "b": DELAY}}, "WA-2006"),
        ({"templates": {"a": [(0, 5, 0.5)]}}, "WA-1012"),
    ],
)
def test_bad_numbers_have_codes(change: dict[str, object], code: str) -> None:
    good = {"t": "t", "offset_us": 0, "drift_ppb": 0, "t_ref_us": 0, "templates": DELAY}
    with pytest.raises(WhenaboutsError, match=code):
        Learned(**{**good, **change})  # type: ignore[arg-type]


def test_a_time_corrected_past_the_calendar_is_rejected() -> None:
    batch = pa.record_batch({"t": pa.array([LAST_US, 0, FIRST_US], pa.int64())})
    block, (rejected,) = EventReader(0, "left", batch.schema, Learned("t", 0, -1_000, 0, DELAY)).read(batch)
    assert (block.num_rows, str(rejected.code), rejected.rows.num_rows) == (1, "WA-1007", 2)


def test_a_template_of_each_kind() -> None:
    spec = Learned("t", 100, 0, 0, {"a": wa.uniform(-10, 0), "b": wa.uniform(-50, -20)}, template="kind")
    batch = pa.record_batch({"t": [1_000, 1_000], "kind": ["b", "a"]})
    block = EventReader(0, "left", batch.schema, spec).read(batch).block
    assert [block.column(index).to_pylist() for index in (0, 1)] == [[850, 890], [880, 900]]


@pytest.mark.parametrize("drift", [40_000_000, -40_000_000])
def test_every_join_finds_the_pairs_of_the_corrected_times(drift: int) -> None:
    """A table with the corrected column, and `from_distribution` on it, has the same answers."""
    rng = np.random.default_rng(5)
    left = pa.table({"l": np.sort(rng.integers(0, 10**6, 300)), "a": np.arange(300)})
    true = np.sort(rng.integers(0, 10**6, 200))
    right = pa.table({"r": true + 5_000_000 + true * drift // 10**9, "b": np.arange(200)})
    clock = Learned("r", 5_000_000, drift, 0, wa.uniform(-300, 500))
    done = right.append_column("c", pa.array(clock.corrected(right["r"].to_numpy())))
    plain = wa.from_distribution("c", wa.uniform(-300, 500))
    point = wa.Point("l")
    answers = []
    window = {("x", "y"): wa.within(400, confidence=0.3)}
    for table, spec in ((right, clock), (done, plain)):
        found = (
            wa.timing_join(left, table, left_time=point, right_time=spec, condition=wa.within(400, confidence=0.3)),
            wa.asof_join(left, table, left_time=point, right_time=spec, confidence=0.5, tolerance=3_000),
            wa.window_join({"x": left, "y": table}, time={"x": point, "y": spec}, windows=window),
            wa.join_aggregate(
                left,
                table,
                left_time=point,
                right_time=spec,
                condition=wa.within(400, confidence=0.3),
                aggregates={"pairs": "count", "sum": "sum:b", "nobody": "p_none", "expected": "expected_count"},
            ),
        )
        answers.append([each.select([name for name in each.column_names if name not in "rc"]) for each in found])
    assert [each.num_rows > 50 for each in answers[0]] == [True] * 4
    assert answers[0] == answers[1]


@pytest.mark.parametrize("drift", [0.0, 50e-6])
def test_one_clock_for_both_sides_is_refused(drift: float) -> None:
    random, ids = np.random.default_rng(1), np.arange(400)
    sent = np.sort(random.integers(0, 86_400_000_000, 400)) + 1_700_000_000_000_000
    received = sent + 5_000_000 + random.integers(0, 90_000, 400) + (drift * (sent - sent[0])).astype(np.int64)
    sides = (pa.table({"id": ids, "t": pa.array(times, pa.timestamp("us"))}) for times in (sent, received))
    clock = wa.learn_delay(*sides, on="id", left_time="t", right_time="t")
    assert (clock.drift_ppb != 0) == (drift != 0)
    there, back, exact = clock.spec(), clock.spec("left"), wa.Point("t")
    condition = wa.within("1 s", confidence=0.5)
    joins: list[Callable[..., object]] = [
        lambda **times: wa.TimingJoin(condition=condition, **times),
        lambda **times: wa.AsofJoin(confidence=0.5, **times),
        lambda **times: wa.JoinAggregate(condition=condition, aggregates={"n": "count"}, **times),
    ]
    for join in joins:
        for left, right in ((back, there), (there, back)):
            with pytest.raises(wa.QueryError, match="WA-2006: one learned clock is given for both sides"):
                join(left_time=left, right_time=right)
        for left, right in ((exact, there), (back, exact), (there, there)):
            join(left_time=left, right_time=right)
