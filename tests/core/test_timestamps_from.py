"""Builders of time specifications: where each one places the event, as a value and in a join."""

import doctest
import math
import pickle
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import oracle
from whenabouts.core import (
    Interval,
    Lateness,
    Point,
    QueryError,
    Template,
    WhenaboutsError,
    between,
    exponential,
    from_clock,
    from_distribution,
    from_granularity,
    from_latency,
    from_polling,
    normal,
    uniform,
    within,
)
from whenabouts.core.local import rejects, run, run_stream, timing_join
from whenabouts.core.runtime.blocks import TEMPLATE, times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US
from whenabouts.core.times.clock_errors import Clock, resolve_clocks
from whenabouts.core.times.time_specs import Around, Distributed, Histogram, TimeSpec
from whenabouts.core.timing_join.query import TimingJoin

DOCS = Path(__file__).parents[2] / "docs"


def ends(spec: TimeSpec, readings: list[int], **columns: Any) -> list[tuple[int, int]]:
    batch = pa.record_batch({"t": pa.array(readings, pa.int64()), **columns})
    block, rejected = EventReader(0, "left", batch.schema, spec).read(batch)
    assert not rejected
    t_min, t_max = times(block)
    return list(zip(t_min.tolist(), t_max.tolist(), strict=True))


# --- Granularity and polls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (from_granularity("t", "1 minute"), (100, 60_000_100)),
        (from_granularity("t", 60, rounding="down"), (100, 160)),
        (from_granularity("t", 60, rounding="nearest"), (70, 130)),
        (from_granularity("t", 60, rounding="up"), (40, 100)),
        (from_polling("t", timedelta(milliseconds=1)), (-900, 100)),
    ],
)
def test_intervals_about_a_reading(spec: TimeSpec, expected: tuple[int, int]) -> None:
    assert ends(spec, [100]) == [expected]
    assert spec.min_uncertainty_us == spec.max_uncertainty_us == expected[1] - expected[0]


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6), st.sampled_from(["down", "nearest", "up"]))
def test_the_true_time_lies_where_granularity_says(true: int, half: int, rounding: str) -> None:
    granularity = 2 * half
    cut = {"down": true // granularity, "up": -(-true // granularity), "nearest": (true + half) // granularity}
    ((t_min, t_max),) = ends(from_granularity("t", granularity, rounding=rounding), [cut[rounding] * granularity])
    assert t_min <= true <= t_max


VALUES: list[tuple[TimeSpec, TimeSpec]] = [
    (from_granularity("t", "1 s"), from_granularity("t", 1_000_000)),
    (from_polling("t", "1 s"), from_polling("t", timedelta(seconds=1))),
    (from_latency("t", quantiles={0: 1, 1: "1 s"}), from_latency("t", quantiles={"0": 1, "1": 10**6})),
    (from_latency("t", samples=[1, 5]), from_latency("t", samples=np.array([5, 1]))),
    (from_distribution("t", normal(0, "1 s")), from_distribution("t", normal(0, 10**6))),
    (from_clock("t", offset="1 s", jitter=9, domain="a"), from_clock("t", offset=10**6, jitter=9, domain="a")),
]


@pytest.mark.parametrize(("one", "same"), VALUES)
def test_specifications_are_values(one: TimeSpec, same: TimeSpec) -> None:
    assert one == same == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert repr(one) == repr(same)
    assert len(repr(one)) < 150
    assert one not in [other for other, _ in VALUES if other is not one]
    with pytest.raises(AttributeError):
        one.t = "u"  # type: ignore[attr-defined]


# --- The end of the calendar --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reading", [FIRST_US, LAST_US, FIRST_US + 9, LAST_US - 9])
@pytest.mark.parametrize(
    "spec",
    [
        Around("t", 10, 10),
        Around("t", 2**57, 2**57),
        from_distribution("t", uniform(-10, 10)),
        from_clock("t", offset=10),
        from_clock("t", offset=1_000, jitter=1_000),
    ],
)
def test_a_time_shifted_past_the_calendar_is_rejected_not_wrapped(spec: TimeSpec, reading: int) -> None:
    batch = pa.record_batch({"t": pa.array([reading], pa.int64())})
    block, (rejected,) = EventReader(0, "left", batch.schema, spec).read(batch)
    assert (block.num_rows, str(rejected.code), rejected.rows.num_rows) == (0, "WA-1007", 1)


def test_a_time_shifted_just_to_the_end_of_the_calendar_is_kept() -> None:
    assert ends(Around("t", 10, 10), [FIRST_US + 10, LAST_US - 10]) == [
        (FIRST_US, FIRST_US + 20),
        (LAST_US - 20, LAST_US),
    ]
    assert ends(Histogram("t", templates=uniform(0, 10)), [FIRST_US + 10]) == [(FIRST_US, FIRST_US + 10)]


def test_a_histogram_that_begins_before_the_calendar_is_rejected() -> None:
    batch = pa.record_batch({"t": pa.array([FIRST_US + 9, FIRST_US + 10, None], pa.int64())})
    block, rejected = EventReader(0, "left", batch.schema, Histogram("t", templates=uniform(0, 10))).read(batch)
    assert block.num_rows == 1
    assert [str(r.code) for r in rejected] == ["WA-1003", "WA-1007"]


# --- Latencies and distributions ----------------------------------------------------------------------------------


def test_a_latency_is_taken_off_the_detection() -> None:
    spec = from_latency("t", quantiles={0: 10, "0.9": 30, 1: 100})
    assert ends(spec, [1_000]) == [(900, 990)]
    ((_, template),) = spec.templates
    assert template.exact == ((-90, -20, Fraction(1, 10)), (-20, 0, Fraction(9, 10)))


def test_distribution_and_latency_mirror_each_other() -> None:
    forward, back = (
        from_distribution("t", exponential("1 s", start=5)),
        from_latency("t", distribution=exponential("1 s", start=5)),
    )
    ((a, b),), ((c, d),) = ends(forward, [0]), ends(back, [0])
    assert (a, b) == (-d, -c)
    assert a == 5
    assert forward.templates[0][1].masses == back.templates[0][1].masses[::-1]


def test_a_template_of_each_kind_lies_about_its_own_rows() -> None:
    spec = from_latency("t", quantiles={"sms": {0: 1, 1: 5}, 7: {0: 100, 1: 300}}, kind="channel")
    batch = pa.record_batch({"t": [1_000] * 4, "channel": ["7", "sms", "fax", None]})
    block, (rejected,) = EventReader(0, "left", batch.schema, spec).read(batch)
    assert [column.tolist() for column in times(block)] == [[700, 995], [900, 999]]
    assert block.column(TEMPLATE).to_pylist() == [1, 0]
    assert (str(rejected.code), rejected.rows.num_rows) == ("WA-1013", 2)
    assert (spec.min_uncertainty_us, spec.max_uncertainty_us) == (4, 200)


def test_a_time_distributed_about_a_column_is_the_histogram_with_that_anchor() -> None:
    template = Template(((-30, -10, ".25"), (-10, 5, ".75")))
    left = pa.table({"t": [1_000, 1_050, 2_000]})
    right = pa.table({"u": [1_010, 1_020, 1_990]})
    asked = {"right_time": Point("u"), "condition": between(0, 15, confidence=0.4)}
    about = timing_join(left, right, left_time=from_distribution("t", template), **asked)  # type: ignore[arg-type]
    anchored = pa.table({"t": left["t"], "end": [1_005, 1_055, 2_005]})
    by_end = timing_join(anchored, right, left_time=Histogram("end", templates=template), **asked)  # type: ignore[arg-type]
    # u - X in [0, 15]: X in [995, 1010] and t = 1000 gives .25 * 0/20 + .75 * 10/15
    assert about.to_pylist() == [{"t": 1_000, "u": 1_010, "probability": 0.5}]
    assert by_end.drop_columns("end") == about


def test_specifications_work_through_the_whole_join() -> None:
    left = pa.table({"t": pa.array([0, 600, LAST_US, None], pa.int64())})
    right = pa.table({"u": pa.array([630, 10_000], pa.int64())})
    with pytest.warns(match="WA-1007"):
        pairs = timing_join(
            left,
            right,
            left_time=from_granularity("t", 60),
            right_time=from_polling("u", 60),
            condition=within(30, confidence=0.4),
        )
    # X1 in [600, 660], X2 in [570, 630]: X2 - X1 is a triangle over [-90, 30], and [-30, 30] is its upper half
    assert pairs.to_pylist() == [{"t": 600, "u": 630, "probability": 0.5}]
    assert rejects(pairs)["code"].to_pylist() == ["WA-1003", "WA-1007"]


STREAMED: list[tuple[TimeSpec, TimeSpec]] = [
    (from_granularity("t", 600), from_polling("t", 900)),
    (from_latency("t", distribution=exponential(400)), from_distribution("t", normal(0, 300))),
    (from_clock("t", offset=500, jitter=200), from_clock("t", offset=90)),
    (from_clock("t", jitter=200, domain="a"), from_clock("t", jitter=100, domain="a")),
    (
        from_latency("t", quantiles={"a": {0: 0, 1: 50}, "b": {0: 100, 0.5: 200, 1: 900}}, kind="kind"),
        from_granularity("t", 60, rounding="nearest"),
    ),
]


@pytest.mark.parametrize("specs", STREAMED)
@pytest.mark.parametrize("strategy", ["auto", "lazy_lookup"])
def test_a_stream_of_such_times_gives_the_pairs_of_the_batch(specs: tuple[TimeSpec, TimeSpec], strategy: str) -> None:
    rng = np.random.default_rng(3)
    query = TimingJoin(
        left_time=specs[0], right_time=specs[1], condition=within(500, confidence=0.4), strategy=strategy, block_size=7
    )
    sides = [
        pa.table(
            {"t": np.sort(rng.integers(0, 20_000, 120)), "kind": rng.choice(["a", "b"], 120), side: np.arange(120)}
        )
        for side in ("l", "r")
    ]
    files = [[side.slice(start, 10) for start in range(0, 120, 10)] for side in sides]
    # rows of one side are ordered by t: their t_max is behind by no more than their templates' ends differ
    streamed = run_stream(replace(query, lateness=Lateness(left=100, right=0)), files, buckets=2, restart_after=4)
    batch = run(query, sides).output.select(["l", "r", "probability"])
    assert not streamed.rejects.num_rows
    order = [("l", "ascending"), ("r", "ascending")]
    assert streamed.output.select(["l", "r", "probability"]).sort_by(order) == batch.sort_by(order)
    assert batch.num_rows > 50


# --- Clocks -------------------------------------------------------------------------------------------------------


def test_within_a_domain_the_offset_cancels() -> None:
    left = from_clock("t", offset="1 h", jitter=20, domain="plant")
    right = from_clock("t", jitter=50, domain="plant")
    assert resolve_clocks(left, right) == (Around("t", 20, 20), Around("t", 50, 50))


@pytest.mark.parametrize("other", [None, "b"])
def test_beyond_a_domain_offset_and_jitter_count_on_both_sides(other: str | None) -> None:
    left, right = from_clock("t", offset=3_000, jitter=200, domain="a"), from_clock("t", offset=70, domain=other)
    first, second = resolve_clocks(left, right)
    assert isinstance(first, Distributed)
    assert ends(first, [0]) == [(-3_200, 3_200)]
    assert second == Around("t", 70, 70)


def test_undeclared_domains_are_not_the_same_domain() -> None:
    clock = from_clock("t", offset=50)
    assert resolve_clocks(clock, clock) == (Around("t", 50, 50), Around("t", 50, 50))


@pytest.mark.parametrize("other", [Point("t"), from_polling("t", 5), from_clock("t", offset=1, domain="b")])
def test_an_offset_that_counts_must_be_declared(other: TimeSpec) -> None:
    clock = from_clock("t", jitter=20, domain="a")
    for side, (left, right) in (("left", (clock, other)), ("right", (other, clock))):
        with pytest.raises(QueryError, match=f"WA-2011: {side} side: .*offset=.*domain="):
            TimingJoin(left_time=left, right_time=right, condition=within(1, confidence=1))
    with pytest.raises(QueryError, match="WA-2011"):
        clock.ends([np.zeros(1, np.int64)], None)
    assert clock.columns == ("t",)


def test_a_domain_has_one_offset() -> None:
    with pytest.raises(QueryError, match=r"WA-2006.*two domains"):
        resolve_clocks(from_clock("t", offset=1, domain="a"), from_clock("t", offset=2, domain="a"))


def test_drift_widens_the_own_error_and_rounds_up() -> None:
    assert from_clock("t", jitter=5, drift=50, synchronised="1 minute").own_us == 3_005
    assert from_clock("t", drift="0.1", synchronised="1 s").own_us == 1
    assert from_clock("t", drift=0, synchronised="1 s").own_us == 0


def test_a_resolved_join_is_resolved_once() -> None:
    clock = from_clock("t", jitter=20, domain="a")
    query = TimingJoin(left_time=clock, right_time=clock, condition=within(1, confidence=1))
    assert query.left_time == query.right_time == Around("t", 20, 20)
    assert resolve_clocks(query.left_time, query.right_time) == (query.left_time, query.right_time)


@given(st.integers(-90, 90), st.integers(1, 30), st.integers(1, 30), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_a_join_within_a_domain_has_the_exact_probability(apart: int, j1: int, j2: int, d: int) -> None:
    p = oracle.probability((-j1, j1), (apart - j2, apart + j2), -d, d).exact
    pairs = timing_join(
        pa.table({"t": [0]}),
        pa.table({"u": [apart]}),
        left_time=from_clock("t", jitter=j1, domain="a", offset="1 day"),
        right_time=from_clock("u", jitter=j2, domain="a"),
        condition=within(d, confidence=1e-9),
    )
    assert pairs["probability"].to_pylist() == pytest.approx([float(p)] if p else [], abs=1e-12)


def simulated(
    rng: np.random.Generator, errors: list[tuple[int, int]], readings: tuple[int, int], d: int, *, shared: bool
) -> float:
    """How often |X2 - X1| <= d, the true times being the readings less offset and own error."""
    n = 400_000
    offsets = [rng.uniform(-offset, offset, n) for offset, _ in errors]
    if shared:
        offsets[1] = offsets[0]
    (x1, x2) = (
        reading - offset - rng.uniform(-jitter, jitter, n)
        for reading, offset, (_, jitter) in zip(readings, offsets, errors, strict=True)
    )
    return float((np.abs(x2 - x1) <= d).mean())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("apart", "d"), [(0, 3_000), (2_500, 3_000), (-6_000, 4_000)])
def test_joins_of_clocks_agree_with_simulated_clocks(shared: bool, apart: int, d: int) -> None:
    errors = [(5_000, 800), (5_000, 1_500)]
    clocks = [
        from_clock("t", offset=offset, jitter=jitter, domain="a" if shared else name)
        for name, (offset, jitter) in zip("ab", errors, strict=True)
    ]
    pairs = timing_join(
        pa.table({"t": [0]}),
        pa.table({"t": [apart]}),
        left_time=clocks[0],
        right_time=clocks[1],
        condition=within(d, confidence=1e-9),
    )
    seen = simulated(np.random.default_rng(11), errors, (0, apart), d, shared=shared)
    (p,) = pairs["probability"].to_pylist() or [0.0]
    assert abs(p - seen) <= 1e-3 + 4 * math.sqrt(0.25 / 400_000)


def test_latencies_agree_with_simulated_ones() -> None:
    rng = np.random.default_rng(5)
    left, right = rng.exponential(1e6, 400_000), rng.normal(3e6, 4e5, 400_000)
    pairs = timing_join(
        pa.table({"t": [0]}),
        pa.table({"t": [500_000]}),
        left_time=from_latency("t", distribution=exponential("1 s")),
        right_time=from_latency("t", samples=right.astype(np.int64)),
        condition=within("1 s", confidence=1e-9),
    )
    seen = float((np.abs((500_000 - right) - (0 - left)) <= 1e6).mean())
    assert abs(pairs["probability"][0].as_py() - seen) <= 5e-3


# --- Bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: from_granularity("t", "-1 s"), "WA-2003"),
        (lambda: from_granularity("t", 0), "WA-2006"),
        (lambda: from_granularity("t", "1 month"), "WA-2002"),
        (lambda: from_granularity("t", "1 s", rounding="even"), "WA-2006"),
        (lambda: from_granularity("t", 3, rounding="nearest"), "WA-2002"),
        (lambda: from_polling("t", "-1 s"), "WA-2003"),
        (lambda: from_polling("t", 0), "WA-2006"),
        (lambda: from_polling("t", 0.5), "WA-2002"),  # type: ignore[arg-type]
        (lambda: Around("t", -1, 0), "WA-2003"),
        (lambda: Around("t", 2**58, 1), "WA-2002"),
        (lambda: from_latency("t"), "WA-2006"),
        (lambda: from_latency("t", samples=[1], quantiles={0: 1, 1: 2}), "WA-2006"),
        (lambda: from_latency("t", samples=[]), "WA-2006"),
        (lambda: from_latency("t", samples=[1.0, math.nan]), "WA-2002"),
        (lambda: from_latency("t", samples=[-1, 5]), "WA-2003"),
        (lambda: from_latency("t", samples={"a": [1]}), "WA-2006"),
        (lambda: from_latency("t", samples=[1], kind="k"), "WA-2006"),
        (lambda: from_latency("t", samples={}, kind="k"), "WA-2006"),
        (lambda: from_latency("t", quantiles={0: 1, 1: 2}, kind="k"), "WA-2006"),
        (lambda: from_latency("t", quantiles={0: 2, 1: 1}), "WA-2006"),
        (lambda: from_latency("t", quantiles={0: -2, 1: 1}), "WA-2003"),
        (lambda: from_latency("t", quantiles={0.5: 1}, longest=2), "WA-2006"),
        (lambda: from_latency("t", distribution=normal(0, "1 s")), "WA-2003"),
        (lambda: from_latency("t", distribution=exponential("1 s"), longest="1 h"), "WA-2006"),
        (lambda: from_latency("t", distribution=5), "WA-2006"),
        (lambda: from_distribution("t", {"a": uniform(0, 1)}), "WA-2006"),
        (lambda: from_distribution("t", [(0, 10, 0.5)]), "WA-1012"),
        (lambda: from_clock("t", offset="-1 s"), "WA-2003"),
        (lambda: from_clock("t", jitter=-1), "WA-2003"),
        (lambda: from_clock("t", drift=50), "WA-2006"),
        (lambda: from_clock("t", drift=-1, synchronised="1 s"), "WA-2006"),
        (lambda: from_clock("t", drift=math.nan, synchronised="1 s"), "WA-2006"),
        (lambda: from_clock("t", drift="fast", synchronised="1 s"), "WA-2006"),
        (lambda: from_clock("t", drift=1e30, synchronised="1 week"), "WA-2002"),
        (lambda: from_clock("t", tolerance=0), "WA-2006"),
        (lambda: resolve_clocks(from_clock("t", offset=3, jitter=3), Point("t")), "WA-2006"),
    ],
)
def test_bad_input_is_refused_with_a_code_and_a_hint(call: Any, code: str) -> None:
    with pytest.raises(WhenaboutsError, match=code) as caught:
        call()
    assert caught.value.hint


def test_an_error_names_the_kind_that_it_is_about() -> None:
    with pytest.raises(QueryError, match="kind 'mail'"):
        from_latency("t", samples={"sms": [1], "mail": []}, kind="channel")


def test_a_clock_is_itself_a_specification() -> None:
    clock = from_clock("t", offset=40)
    assert isinstance(clock, Clock)
    assert ends(clock, [100]) == [(60, 140)]
    assert (clock.min_uncertainty_us, clock.max_uncertainty_us) == (80, 80)
    assert (clock.templates, clock.template_column) == ((), None)
    assert ends(Interval("t", "t"), [100]) == [(100, 100)]


def test_the_page_about_specifications_holds() -> None:
    told = doctest.testfile(str(DOCS / "timestamps.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert (told.failed, told.attempted > 10) == (0, True)
