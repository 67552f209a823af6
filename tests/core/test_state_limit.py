"""State stays within its limit; every shed row is counted, and nothing else changes."""

from __future__ import annotations

import itertools
from collections import Counter
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.operators import OperatorDriver
from whenabouts.core import EngineError, Interval, Lateness, Point, QueryError, within
from whenabouts.core.arrays.record_batches import one_batch
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.expressions.sql import parse_expression
from whenabouts.core.local import run_stream
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, Query
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_directory import rows_in_state
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.payload_decoding import decoded
from whenabouts.core.wrappers.payloads import JsonPayload
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.core.wrappers.state_limit import StateLimit, limited

STEPS = 8
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "id": pa.int64()})


def files(seed: int, *, earliest: int = -1_500) -> list[pa.Table]:
    """Steps of up to 13 rows; some are late, unless the earliest of them are not."""
    draw = np.random.default_rng(seed)
    made = []
    for step in range(STEPS):
        n = int(draw.integers(0, 14))
        b = 1_000 * step + draw.integers(earliest, 1_000, n)
        made.append(pa.table([b - draw.integers(0, 200, n), b, np.arange(n) + 100 * step], schema=SCHEMA))
    return made


def join(**options: Any) -> TimingJoin:
    time = Interval("a", "b", max_uncertainty=200)
    return TimingJoin(
        left_time=time, right_time=time, condition=within(900, confidence=0.7), lateness=Lateness(800, 800), **options
    )


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


MODES: list[dict[str, Any]] = [
    {}, {"how": "full_outer"}, {"best": "left"}, {"best": "both", "how": "full_outer"},
    {"strategy": "lazy", "block_size": 5}, {"how": "left_anti"},
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 500), st.sampled_from(MODES), st.integers(1, 60))
def test_state_never_exceeds_its_bound_and_every_shed_row_is_counted(
    seed: int, mode: dict[str, Any], most: int
) -> None:
    query, sides = join(**mode), [files(seed), files(seed + 1)]
    driver = OperatorDriver(query, SCHEMA, limit=StateLimit(most, "shed"))
    counts, rejected, watermark = Counter[str](), 0, NO_WATERMARK
    for step in range(STEPS):
        done = driver.feed({"left": sides[0][step], "right": sides[1][step]}, watermark)
        assert rows_in_state(driver.store, 2) <= most
        counts += done.metrics
        rejected += sum(each.rows.num_rows for each in done.rejected)
        watermark = 1_000 * step - 800
    came = sum(table.num_rows for side in sides for table in side)
    assert came == counts["rows_processed"] + counts["rows_rejected"]
    assert counts["rows_rejected"] == counts["rows_shed"] + counts["rows_late"] == rejected


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 500), st.sampled_from(MODES), st.integers(5, 60))
def test_the_rows_that_are_not_shed_give_what_they_give_without_a_bound(
    seed: int, mode: dict[str, Any], most: int
) -> None:
    """Only shed rows are missing: a run over the others, step by step, has the same output."""
    sides = [files(seed, earliest=250), files(seed + 1, earliest=250)]
    told = run_stream(join(**mode), sides, state_limit=StateLimit(most, "shed"))
    shed = {(r["input"], r["id"]) for r in told.rejects.to_pylist()}
    assert len(shed) == told.metrics["rows_shed"] == told.metrics["rows_rejected"]
    others = [
        [table.filter(pa.array([(name, i) not in shed for i in table["id"].to_pylist()], pa.bool_())) for table in side]
        for name, side in zip(("left", "right"), sides, strict=True)
    ]
    assert rows(told.output) == rows(run_stream(join(**mode), others).output)


@pytest.mark.parametrize("on_full", ["fail", "shed"])
@pytest.mark.parametrize("mode", MODES)
def test_a_bound_that_is_not_reached_changes_nothing(mode: dict[str, Any], on_full: str) -> None:
    sides = [files(3), files(4)]
    free, kept = (run_stream(join(**mode), sides, state_limit=limit) for limit in (None, StateLimit(1_000, on_full)))
    assert rows(free.output) == rows(kept.output)
    assert rows(free.rejects) == rows(kept.rejects)
    assert free.metrics == kept.metrics


def test_obsolete_rows_make_room_before_any_is_shed() -> None:
    """A bound that holds the rows of one window (and of its slots) holds for a stream of any length."""
    steps = [pa.table({"t": [second * 1_000_000]}) for second in range(100)]
    query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("900 ms", confidence=1))
    told = run_stream(query, [steps, steps], state_limit=StateLimit(8, "fail"))
    assert told.output.num_rows == 100
    with pytest.raises(EngineError, match=r"WA-3033: 2 rows arrive in a bucket that has room for 1 of its 3.*shed"):
        run_stream(query, [steps, steps], state_limit=StateLimit(3))


@pytest.mark.parametrize("on_full", ["fail", "shed"])
def test_rows_that_are_left_out_before_the_operator_need_no_room(on_full: str) -> None:
    """Rows that are not selected, and repeats: no state holds them."""
    table = pa.table({"t": list(range(20)), "v": [0] * 18 + [1] * 2, "id": [str(n) for n in range(20)]})
    point = Point("t")
    query = TimingJoin(left_time=point, right_time=point, condition=within(1, confidence=1), lateness="1 s")
    some = SelectProject(query=query, where=dict.fromkeys(query.inputs, parse_expression("v > 0")))
    steps, limit = [table, table.slice(18)], StateLimit(4, on_full)
    outcome = run_stream(deduplicated(some, "id"), [steps, steps], state_limit=limit)
    assert (outcome.output.num_rows, outcome.rejects.num_rows) == (4, 0)
    assert outcome.metrics["rows_replayed"] == 4
    values = pa.table(
        {"value": [f'{{"t": {t}, "v": {v}}}' for t, v in zip(range(20), [0] * 14 + [1] * 6, strict=True)]}
    )
    topics = decoded(some, JsonPayload({"t": "int64", "v": "int64"}))
    if on_full == "fail":
        with pytest.raises(EngineError, match="WA-3033: 12 rows arrive"):
            run_stream(topics, [[values], [values]], state_limit=limit)
    else:
        outcome = run_stream(topics, [[values], [values]], state_limit=limit)
        assert outcome.rejects.select(["t", "v", "value"]).to_pylist() == [
            {"t": t, "v": 1, "value": None} for t in (*range(16, 20), *range(16, 20))
        ]


@given(st.permutations(range(9)), st.sets(st.integers(1, 8)), st.integers(1, 9))
def test_which_rows_are_shed_does_not_depend_on_their_order(order: list[int], cuts: set[int], most: int) -> None:
    """The latest of a step are: by time, then the other input's, then by their columns."""
    time = Interval("a", "b", max_uncertainty=20)
    query = TimingJoin(left_time=time, right_time=time, condition=within(5, confidence=1), lateness=9)
    rows = pa.table({"a": [1, 1, 1, 1, 2, 0], "b": [5, 5, 5, 5, 5, 9], "v": [2.0, None, -0.0, 0.0, 1.0, 1.0]})
    schema, few = rows.schema, rows.slice(0, 3)
    came = [(0, n, few.slice(n, 1)) for n in range(3)] + [(1, n, rows.slice(n, 1)) for n in range(6)]
    operator = limited(query.operator([schema, schema], streaming=True), StateLimit(most, "shed"))
    arrivals = [
        Arrival(input, operator.readers[input].read(one_batch(pa.concat_tables(row for _, _, row in of))).block)
        for first, last in itertools.pairwise([0, *sorted(cuts), 9])
        for input, of in itertools.groupby([came[n] for n in order[first:last]], key=itemgetter(0))
    ]
    step = operator.step(DictStore(), arrivals, NO_WATERMARK)
    ordered = [(0, 1), (0, 2), (0, 0), (1, 1), (1, 2), (1, 3), (1, 0), (1, 4), (1, 5)]
    want = Counter((input, repr(row.to_pylist())) for input, n, row in came if (input, n) in ordered[most:])
    assert want == Counter((each.input, repr([row])) for each in step.rejected for row in each.rows.to_pylist())


def test_a_row_that_was_shed_is_not_taken_in_when_it_is_delivered_again() -> None:
    point = Point("t")
    query = TimingJoin(left_time=point, right_time=point, condition=within(0, confidence=1), lateness="1 s")
    steps = [pa.table({"t": [5, 6], "id": [5, 6]})] * 2
    outcome = run_stream(deduplicated(query, "id"), [steps, steps], state_limit=StateLimit(2, "shed"))
    counts = [outcome.metrics[name] for name in ("rows_processed", "rows_shed", "rows_replayed")]
    assert counts == [2, 2, 4]


OTHERS: dict[str, Query] = {
    "window join": WindowJoin.of(("a", "b", "c"), Point("t"), windows={("a", "b"): 40, ("b", "c"): 40}, on="k"),
    "coalesce, eager": Coalesce(time="t", values="v", group="k", window=200, slide=50, scheme="eager"),
    "coalesce, lazy": Coalesce(time="t", values="v", group="k", window=200, slide=50, scheme="lazy", lateness=30),
    "best of both": TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=within(90, confidence=1), how="full_outer", best="both"
    ),
    "the other side of best": TimingJoin(
        left_time=Point("t"), right_time=Point("t"), condition=within(90, confidence=1), how="full_outer", best="left"
    ),
    "temporal join": TemporalJoin(time="t", values="v", group="k", on="k", window=200, slide=50),
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_operator_tells_what_it_holds_and_keeps_to_a_bound(name: str) -> None:
    """`rows_held` between steps equals the gauges in the step, and a limit fails or sheds."""
    query = OTHERS[name]
    random = np.random.default_rng(1)

    def table(step: int) -> pa.Table:
        t = step * 100 + np.arange(0, 100, 5)
        return pa.table({"t": t, "k": random.integers(0, 2, len(t)), "v": random.integers(0, 2, len(t)), "id": t})

    files = [[table(step) for step in range(6)] for _ in query.inputs]
    driver, held = OperatorDriver(query, files[0][0].schema), 0
    for number in range(6):
        step = driver.feed(dict(zip(query.inputs, (each[number] for each in files), strict=True)), number * 100 - 50)
        told = sum(value for gauge, value in step.gauges.items() if gauge.startswith("state_rows_"))
        size = sum(value for gauge, value in step.gauges.items() if gauge.startswith("state_bytes_"))
        assert told == driver.operator.rows_held(driver.store)
        assert set(step.gauges) == {f"state_{what}_{input}" for what in ("rows", "bytes") for input in query.inputs}
        assert 0 < size <= driver.store.bytes_held
        held = max(held, told)
    free, kept = (run_stream(query, files, state_limit=limit) for limit in (None, StateLimit(10_000)))
    assert rows(free.output) == rows(kept.output)
    with pytest.raises(EngineError, match="WA-3033"):
        run_stream(query, files, state_limit=StateLimit(held // 3))
    shed = run_stream(query, files, state_limit=StateLimit(held // 3, "shed")).metrics
    assert shed["rows_shed"] > 0
    assert shed["rows_in"] == shed["rows_processed"] + shed["rows_rejected"] + shed["rows_replayed"]


def test_rows_that_are_spread_by_time_slots_are_not_shed() -> None:
    """A copy that is shed would lose pairs of a row that is not rejected."""
    query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(5, confidence=1), time_slots=10)
    one = pa.table({"t": [1]})
    with pytest.raises(QueryError, match=r"WA-2007: .*time slots"):
        run_stream(query, [[one], [one]], state_limit=StateLimit(20, "shed"))
    assert run_stream(query, [[one], [one]], state_limit=StateLimit(20)).output.num_rows == 1


@pytest.mark.parametrize(("most", "on_full"), [(0, "fail"), (5, "drop")])
def test_what_is_no_bound_is_refused(most: int, on_full: str) -> None:
    with pytest.raises(QueryError, match="WA-2006"):
        StateLimit(most, on_full)
