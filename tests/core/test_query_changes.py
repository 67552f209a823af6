"""A running query continues with another confidence, or other templates, over its state (PTJoin Example 2)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.core import EngineError, Histogram, Interval, Lateness, Point, QueryError, within
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.local import run, run_stream
from whenabouts.core.probability.satisfaction_probability import satisfaction_probability
from whenabouts.core.times.clock_errors import from_clock
from whenabouts.core.times.time_specs import Distributed
from whenabouts.core.timing_join.query import TimingJoin

STEPS = 6


def files(seed: int) -> list[pa.Table]:
    """Rows of six steps, at most 300 us behind the greatest time so far; `step` says when a row came."""
    random = np.random.default_rng(seed)
    made = []
    for step in range(STEPS):
        t_max = 1_000 * step + random.integers(700, 1_000, 12)
        made.append(
            pa.table({"a": t_max - random.integers(0, 200, 12), "b": t_max, "step": np.full(12, step), "id": range(12)})
        )
    return made


def narrowing(seed: int, bounds: list[int]) -> tuple[list[int], list[int], list[list[pa.Table]]]:
    """By step the least and the greatest length, each step within those before, and rows of both sides within them."""
    random, bounds = np.random.default_rng(seed), sorted(bounds)
    least, most = bounds[:STEPS], bounds[STEPS:][::-1]
    sides: list[list[pa.Table]] = [[], []]
    for made in sides:
        for step in range(STEPS):
            t_max = 1_000 * step + random.integers(700, 1_000, 12)
            t_min = t_max - random.integers(least[step], most[step] + 1, 12)
            made.append(pa.table({"a": t_min, "b": t_max, "id": np.arange(12) + 12 * step}))
    return least, most, sides


def join(confidence: float, d: int = 900, **options: Any) -> TimingJoin:
    time = Interval("a", "b", max_uncertainty=200)
    return TimingJoin(
        left_time=time,
        right_time=time,
        condition=within(d, confidence=confidence),
        lateness=Lateness(left=1_000, right=1_000),
        **options,
    )


def rows(table: pa.Table) -> list[tuple[int | None, ...]]:
    columns = ("step_left", "id_left", "step_right", "id_right")
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True), key=str)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.8, 0.95, 1.0]), min_size=STEPS, max_size=STEPS),
    st.sampled_from(["auto", "eager", "simple", "ssort"]),
    st.sampled_from([900, 300, 60]),
)
def test_each_pair_is_judged_by_the_confidence_of_the_step_in_which_it_forms(
    seed: int, confidences: list[float], strategy: str, d: int
) -> None:
    """A full outer join shows that no row counts as unmatched too early for the least confidence, nor twice."""
    left, right = files(seed), files(seed + 1)
    least = min(confidences)
    queries = [join(c, d, strategy=strategy, how="full_outer", min_confidence=least) for c in confidences]
    told = run_stream(queries[0], [left, right], changes=dict(enumerate(queries)))
    every = [pa.concat_tables(side) for side in (left, right)]
    ends = [[table.column(name).to_numpy() for name in ("a", "b")] for table in every]
    n, m = (table.num_rows for table in every)
    sides = [*(np.repeat(end, m) for end in ends[0]), *(np.tile(end, n) for end in ends[1])]
    p = satisfaction_probability(*sides, -d, d).reshape(n, m)
    steps = [table.column("step").to_numpy() for table in every]
    match = p >= np.array(confidences)[np.maximum(steps[0][:, None], steps[1][None, :])]
    names = [list(zip(s.tolist(), (np.arange(len(s)) % 12).tolist(), strict=True)) for s in steps]
    expected: list[tuple[int | None, ...]] = [(*names[0][i], *names[1][j]) for i, j in np.argwhere(match).tolist()]
    expected += [(*names[0][i], None, None) for i in np.flatnonzero(~match.any(axis=1)).tolist()]
    expected += [(None, None, *names[1][j]) for j in np.flatnonzero(~match.any(axis=0)).tolist()]
    assert rows(told.output) == sorted(expected, key=str)
    assert told.rejects.num_rows == 0


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.8, 0.95]), min_size=STEPS, max_size=STEPS),
    st.lists(st.sampled_from([2_500, 900, 600, 300, 60]), min_size=STEPS, max_size=STEPS),
    st.booleans(),
    st.sampled_from(["inner", "left_outer", "right_outer", "full_outer"]),
    st.sampled_from(["left", "right", "both"]),
    st.sampled_from([None, 1, 4]),
)
def test_each_choice_is_among_the_pairs_that_formed_however_the_query_became_stricter(
    seed: int, confidences: list[float], windows: list[int], least: bool, how: str, best: str, restart: int | None
) -> None:
    left, right = files(seed), files(seed + 1)
    windows.sort(reverse=True)
    if not least:
        confidences.sort()
    queries = [
        join(c, d, how=how, best=best, min_confidence=min(confidences) if least else None)
        for c, d in zip(confidences, windows, strict=True)
    ]
    found = run_stream(
        queries[0], [left, right], changes=dict(enumerate(queries)), restart_after=restart, buckets=2 if restart else 1
    )
    every = [pa.concat_tables(side) for side in (left, right)]
    ends = [[table.column(name).to_numpy() for name in ("a", "b")] for table in every]
    n, m = (table.num_rows for table in every)
    sides = [*(np.repeat(end, m) for end in ends[0]), *(np.tile(end, n) for end in ends[1])]
    steps = [table.column("step").to_numpy() for table in every]
    formed = np.maximum(steps[0][:, None], steps[1][None, :])
    by_step = np.stack([satisfaction_probability(*sides, -d, d).reshape(n, m) for d in windows])
    p = np.take_along_axis(by_step, formed[None], 0)[0]
    p[p < np.array(confidences)[formed]] = 0

    def preferred(p: np.ndarray, side: int) -> list[int | None]:
        """Of each row the partner on a side: the most probable, then the earliest, then the one of lesser columns."""
        order = np.lexsort([every[side].column(name).to_numpy() for name in ("id", "step", "a", "b")])
        return [int(order[row[order].argmax()]) if row.any() else None for row in p]

    of_left, of_right = preferred(p, 1), preferred(p.T, 0)
    pairs = {(i, j) for i, j in enumerate(of_left) if j is not None} if best != "right" else set()
    if best != "left":
        others = {(i, j) for j, i in enumerate(of_right) if i is not None}
        pairs = pairs & others if best == "both" else others
    names = [list(zip(s.tolist(), (np.arange(len(s)) % 12).tolist(), strict=True)) for s in steps]
    expected: list[tuple[int | None, ...]] = [(*names[0][i], *names[1][j]) for i, j in pairs]
    if how in ("left_outer", "full_outer"):
        expected += [(*names[0][i], None, None) for i in set(range(n)) - {i for i, _ in pairs}]
    if how in ("right_outer", "full_outer"):
        expected += [(None, None, *names[1][j]) for j in set(range(m)) - {j for _, j in pairs}]
    assert rows(found.output) == sorted(expected, key=str)
    assert found.rejects.num_rows == 0


@pytest.mark.parametrize("other", [{"offset": "2 s"}, {"jitter": "9 ms"}], ids=str)
def test_a_clock_whose_offset_right_rows_share_stays(other: dict[str, str]) -> None:
    given: dict[str, Any] = {"offset": "1 s", "jitter": "5 ms"}
    first, then = (
        JoinAggregate(
            left_time=Point("t"), right_time=from_clock("t", **options), condition=within("1 s", confidence=0.5),
            aggregates={"n": "expected_count"}, lateness="9 s",
        )
        for options in (given, given | other)
    )  # fmt: skip
    schemas = [pa.schema({"t": pa.int64()})] * 2
    with pytest.raises(EngineError, match=r"WA-3032.*the clock of right_time was .*offset=.* and is "):
        identity_of(then, schemas, 4).check(identity_of(first, schemas, 4).to_json())
    steps = [pa.table({"t": [n]}) for n in range(2)]
    with pytest.raises(EngineError, match="WA-3032"):
        run_stream(first, [steps, steps], changes={1: then})


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 400), min_size=2 * STEPS, max_size=2 * STEPS),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    st.sampled_from(["auto", "eager", "simple", "ssort", "lazy"]),
    st.sampled_from([("full_outer", None), ("left_semi", None), ("left_anti", None), ("full_outer", "both")]),
    st.sampled_from([None, 2]),
)
def test_rows_in_state_keep_the_lengths_that_earlier_queries_declared(
    seed: int, bounds: list[int], confidence: float, strategy: str, mode: tuple[str, str | None], restart: int | None
) -> None:
    """Each query allows fewer lengths than the one before; rows of all of them meet."""
    (how, best), (least, most, sides) = mode, narrowing(seed, bounds)
    times = [
        Interval("a", "b", max_uncertainty=high, min_uncertainty=low) for low, high in zip(least, most, strict=True)
    ]
    options: dict[str, Any] = {"how": how, "best": best, "strategy": strategy}
    queries = [replace(join(confidence, 900, **options), left_time=time, right_time=time) for time in times]
    told = run_stream(
        queries[0], sides, changes=dict(enumerate(queries)), restart_after=restart, buckets=2 if restart else 1
    )
    every = [pa.concat_tables(side) for side in sides]
    whole = Interval("a", "b", max_uncertainty=400)
    expected = run(replace(join(confidence, 900, how=how, best=best), left_time=whole, right_time=whole), every).output
    assert told.rejects.num_rows == 0
    columns = expected.column_names
    assert sorted(told.output.select(columns).to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 1000),
    st.lists(st.integers(0, 400), min_size=2 * STEPS, max_size=2 * STEPS),
    st.sampled_from(["never", "auto"]),
)
def test_aggregates_count_partners_of_the_lengths_that_earlier_queries_declared(
    seed: int, bounds: list[int], folding: str
) -> None:
    least, most, sides = narrowing(seed, bounds)
    queries = [
        JoinAggregate(
            left_time=time, right_time=time, condition=within(900, confidence=0.5), lateness=1_000, folding=folding,
            aggregates={"n": "count", "expected": "expected_count", "ids": ("sum", "id")},
        )
        for low, high in [*zip(least, most, strict=True), (0, 400)]
        for time in [Interval("a", "b", max_uncertainty=high, min_uncertainty=low)]
    ]  # fmt: skip
    told = run_stream(queries[0], sides, changes=dict(enumerate(queries[:STEPS]))).output
    expected = run(queries[-1], [pa.concat_tables(side) for side in sides]).output
    columns = expected.column_names
    assert sorted(told.select(columns).to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


@pytest.mark.parametrize("strategy", ["eager", "lazy", "simple"])
@pytest.mark.parametrize("length", [10, 400, 2_000])
def test_rows_in_state_begin_where_their_new_template_does(length: int, strategy: str) -> None:
    """Rows of both sides that wait or are stored, of templates that become longer or shorter."""
    ms = 1_000
    left = [pa.table({"t": [7_000 * ms]}), pa.table({"t": [12_000 * ms]})]
    right = [pa.table({"t": [(5_030 + 90 * n) * ms for n in range(30)]}), pa.table({"t": [12_100 * ms]})]
    joins, aggregates = [], []
    for us in (100 * ms, length * ms):
        given: dict[str, Any] = {
            "left_time": Histogram("t", templates={"a": [(0, us, 1.0)]}),
            "right_time": Histogram("t", templates={"b": [(0, us, 1.0)]}),
            "lateness": "1 minute",
        }
        joins.append(TimingJoin(**given, condition=within("50 ms", confidence=0.001), strategy=strategy))
        aggregates.append(
            JoinAggregate(**given, condition=within("50 ms", confidence=0.001), aggregates={"n": "count"})
        )
    now = [pa.concat_tables(side) for side in (left, right)]
    # The aggregate decides all left rows by the new query, the join the pairs that form after the change.
    found = run_stream(aggregates[0], [left, right], changes={1: aggregates[1]}).output
    expected = run(aggregates[1], now).output
    assert sorted(found.select(expected.column_names).to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    late = [
        row
        for row in run(joins[1], now).output.to_pylist()
        if row["t_left"] == 12_000 * ms or row["t_right"] == 12_100 * ms
    ]
    joined = run_stream(joins[0], [left, right], changes={1: joins[1]}).output
    names = [name for name in joined.column_names if name != "event_time"]
    pairs = joined.select(names).to_pylist()
    assert all(row in pairs for row in late)
    if strategy == "lazy":  # all rows waited
        everything = run(joins[1], now).output
        assert sorted(pairs, key=str) == sorted(everything.select(names).to_pylist(), key=str)


def test_a_query_that_needs_dropped_rows_is_refused_and_one_that_needs_fewer_is_not() -> None:
    left, right = files(3), files(4)
    with pytest.raises(EngineError, match="WA-3006"):
        run_stream(join(0.9), [left, right], changes={4: join(0.5)})
    run_stream(join(0.5), [left, right], changes={4: join(0.9)})
    with pytest.raises(EngineError, match="WA-3006"):  # rows dropped in between do not come back
        run_stream(join(0.5), [left, right], changes={2: join(0.9), 5: join(0.5)})


def test_a_window_may_become_narrower_and_not_wider() -> None:
    left, right = files(9), files(10)
    with pytest.raises(EngineError, match="WA-3006"):
        run_stream(join(0.9, d=600), [left, right], changes={4: join(0.9, d=900)})
    run_stream(join(0.9, d=900), [left, right], changes={4: join(0.9, d=600)})


@pytest.mark.parametrize(("first", "then", "rejected"), [(300, 300, 0), (100, 300, 0), (300, 100, 2), (100, 100, 2)])
def test_lateness_may_change_either_way(first: int, then: int, rejected: int) -> None:
    """The row of 800 comes 200 behind that of 1000, after the change."""
    steps = [pa.table({"t": [t]}) for t in (0, 1_000, 800)]
    query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(50, confidence=1))
    queries = [replace(query, lateness=Lateness(us, us)) for us in (first, then)]
    told = run_stream(queries[0], [steps, steps], changes={1: queries[1]})
    assert told.rejects.num_rows == rejected
    assert told.output.num_rows == 3 - rejected // 2


def test_the_identity_tells_what_another_query_is_in_its_words() -> None:
    schemas = [table.schema for table in (files(0)[0], files(1)[0])]
    query = join(0.9)
    written = identity_of(query, schemas, 4).to_json()
    same = replace(query, condition=within(1, confidence=0.1), strategy="lazy", lateness=None, probability=False)
    identity_of(same, schemas, 4).check(written)
    told = [
        (identity_of(replace(query, how="left_anti"), schemas, 4), r"WA-3032.*how was 'inner' and is 'left_anti'"),
        (
            identity_of(query, [schemas[0].remove(2), schemas[1]], 4),
            r"column 'step' of the left input was int64 and is",
        ),
        (identity_of(query, schemas, 5), "WA-3003.*give buckets=4"),
    ]
    for other, what in told:
        with pytest.raises(EngineError, match=what):
            other.check(written)
    with pytest.raises(EngineError, match=r"WA-3003.*version 9 of the layout, this release reads 1.*the release that"):
        identity_of(query, schemas, 4).check(written.replace('"version": 1', '"version": 9'))


def test_before_anything_is_dropped_every_change_will_do() -> None:
    left, right = files(5)[:2], files(6)[:2]
    told = run_stream(join(0.9), [left, right], changes={1: join(0.2)}).output
    assert told.num_rows > run_stream(join(0.9), [left, right]).output.num_rows


@pytest.mark.parametrize("least", [0.9, 0.0, -1.0, float("nan")])
def test_the_least_confidence_is_a_confidence_not_above_the_confidence(least: float) -> None:
    with pytest.raises(QueryError, match="WA-2001"):
        join(0.8, min_confidence=least)


def histogram_join(templates: dict[str, list[tuple[int, int, float]]]) -> TimingJoin:
    return TimingJoin(
        left_time=Histogram("t", "kind", templates), right_time=Point("t"), condition=within(50, confidence=0.6)
    )


def test_templates_may_change_under_their_names_and_old_rows_take_the_new_shape() -> None:
    first = {"a": [(0, 40, 1.0)], "b": [(0, 10, 0.5), (10, 40, 0.5)]}
    later = first | {"a": [(0, 39, 0.1), (39, 40, 0.9)]}
    left = [pa.table({"t": [100], "kind": ["a"]}), pa.table({"t": [101], "kind": ["b"]})]
    right = [pa.table({"t": [10]}), pa.table({"t": [148]})]
    told = run_stream(histogram_join(first), [left, right], changes={1: histogram_join(later)}).output
    # 148 lies 48 after the anchor of row a: 0.05 of its first shape and 0.9 of its second one reach so far.
    assert [(row["t_left"], row["t_right"]) for row in told.to_pylist()] == [(100, 148)]
    assert run_stream(histogram_join(first), [left, right]).output.num_rows == 0


@pytest.mark.parametrize(("lo", "hi"), [(0, 30), (0, 50), (10, 50), (-60, 40), (10, 40)])
@pytest.mark.parametrize("strategy", ["eager", "simple"])
def test_rows_in_state_take_the_new_shape_where_it_lies_or_the_change_is_refused(
    lo: int, hi: int, strategy: str
) -> None:
    """State has the end of each row's support: about column `t` it may begin elsewhere, and not end elsewhere."""
    queries = [
        TimingJoin(
            left_time=Distributed("t", templates={"a": [(*ends, 1.0)]}),
            right_time=Point("t"),
            condition=within(2, confidence=0.01),
            lateness=1000,
            strategy=strategy,
        )
        for ends in ((0, 40), (lo, hi))
    ]
    left, right = [pa.table({"t": [100]})] * 2, [pa.table({"t": [0]}), pa.table({"t": list(range(0, 200, 3))})]
    schemas = [left[0].schema, right[0].schema]
    written = identity_of(queries[0], schemas, 4).to_json()
    if hi != 40:
        what = rf"WA-3032.*the end of each template of left_time was a at 40 us and is a at {hi} us"
        with pytest.raises(EngineError, match=what):
            identity_of(queries[1], schemas, 4).check(written)
        with pytest.raises(EngineError, match=what):
            run_stream(queries[0], [left, right], changes={1: queries[1]})
        return
    identity_of(queries[1], schemas, 4).check(written)
    found = run_stream(queries[0], [left[:1], right], changes={1: queries[1]}).output
    expected = run(queries[1], [left[0], pa.concat_tables(right)]).output
    assert found.num_rows > 0
    columns = expected.column_names
    assert sorted(found.select(columns).to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)


@pytest.mark.parametrize("names", [("b", "a"), ("a", "c"), ("a", "b", "c")])
def test_other_names_of_templates_are_refused(names: tuple[str, ...]) -> None:
    old = {"a": [(0, 10, 1.0)], "b": [(0, 40, 1.0)]}
    left = [pa.table({"t": [100], "kind": ["a"]}), pa.table({"t": [120], "kind": ["b"]})]
    right = [pa.table({"t": [110]}), pa.table({"t": [130]})]
    new = {name: [(0, 10, 1.0)] for name in names}
    with pytest.raises(EngineError, match="WA-3003"):
        run_stream(histogram_join(old), [left, right], changes={1: histogram_join(new)})


def test_a_change_survives_a_crash_in_the_step_that_makes_it() -> None:
    left, right = files(7), files(8)
    first, second = (
        join(0.9, min_confidence=0.4),
        replace(join(0.9, min_confidence=0.4), condition=within(900, confidence=0.4)),
    )
    usual = run_stream(first, [left, right], changes={2: second}).output
    crashed = run_stream(first, [left, right], changes={2: second}, restart_after=2, buckets=3).output
    assert rows(crashed) == rows(usual)


@pytest.mark.parametrize("other", [{"probability": False}, {"suffixes": ("_a", "_b")}])
def test_a_local_run_keeps_its_output_columns(other: dict[str, Any]) -> None:
    left, right = files(1), files(2)
    with pytest.raises(QueryError, match=r"WA-2007: the query that continues has the columns a_"):
        run_stream(join(0.5), [left, right], changes={2: join(0.5, **other)})
