"""Join modes step by step: the output of each step, the contents of state, and the choice among equal rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from infra.operators import CountingStore, SecondsDriver, arrivals_of
from whenabouts.conformance import case_tables, expectations, generators, join_modes_oracle, multiset
from whenabouts.conformance.generators import Example
from whenabouts.conformance.oracle import AmbiguousPairError
from whenabouts.core import EngineError, Histogram, Interval, Lateness, Point, between, deadline, local, within
from whenabouts.core.runtime.protocol import Arrival, FlushMode, Step
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_layout import MARKS
from whenabouts.core.timing_join.modes import BESTS, HOWS, TIES
from whenabouts.core.timing_join.operator import TimingJoinOperator
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

SECOND = 1_000_000
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "id": pa.string()})
MODES = [(how, best) for how in HOWS for best in BESTS if best is None or how not in ("left_semi", "left_anti")]


def query(**changes: Any) -> TimingJoin:
    options = {"left_time": Point("t"), "right_time": Point("t"), "condition": within("1s", confidence=1), "on": "k"}
    return TimingJoin(**(options | changes))


class Bucket(SecondsDriver):
    """Flushes in every step, unless told otherwise."""

    def __init__(self, store: DictStore | None = None, **changes: Any) -> None:
        super().__init__(query(**changes), SCHEMA, store)

    def step(
        self, watermark: float | None = None, demand: FlushMode = FlushMode.FLUSH, **sides: dict[str, float]
    ) -> Step:
        return super().step(watermark, demand, **sides)


def told(step: Step) -> list[str]:
    found = []
    for batch in step.output:
        for row in batch.to_pylist():
            ids = (row.get("id_left", row.get("id")), row.get("id_right") if "id_right" in row else "")
            found.append("".join("-" if each is None else each for each in ids))
    return sorted(found)


def times_of(step: Step) -> list[float]:
    return sorted(row["event_time"].timestamp() for batch in step.output for row in batch.to_pylist())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_row_without_a_partner_comes_out_with_the_watermark_that_proves_it(strategy: str) -> None:
    """Two rows of one segment, a tenth of a second apart: each has its own moment.

    ::

        left       a(10)  b(10.1)
        watermark  11 nothing | 11.000001 a | 11.1 nothing | 11.100001 b | end nothing
    """
    bucket = Bucket(how="left_anti", strategy=strategy)
    assert told(bucket.step(left={"a": 10, "b": 10.1})) == []
    assert bucket.last.timer_us == 11_000_001
    assert told(bucket.step(watermark=11)) == []
    step = bucket.step(watermark=11.000001)
    assert (told(step), times_of(step)) == (["a"], [11.000001])
    assert bucket.last.timer_us == 11_100_001
    assert told(bucket.step(watermark=11.1)) == []
    step = bucket.step(watermark=12)
    assert (told(step), times_of(step)) == (["b"], [11.100001])
    assert told(bucket.step(watermark=12, demand=FlushMode.END)) == []


def test_the_last_moment_partner_saves_a_row_from_being_alone() -> None:
    bucket = Bucket(how="full_outer")
    bucket.step(left={"a": 10, "b": 10})
    assert told(bucket.step(watermark=11, right={"x": 11, "y": 11.5})) == ["ax", "bx"]
    assert told(bucket.step(watermark=11.000001)) == []
    assert told(bucket.step(watermark=20)) == ["-y"]


def test_semi_rows_come_out_with_their_first_match_once() -> None:
    bucket = Bucket(how="left_semi")
    assert told(bucket.step(left={"a": 10, "b": 30}, right={"x": 10, "y": 10.5})) == ["a"]
    assert told(bucket.step(right={"z": 10.2})) == []
    step = bucket.step(right={"w": 29.5})
    assert (told(step), times_of(step)) == (["b"], [30.0])
    assert told(bucket.step(demand=FlushMode.END)) == []


def test_null_keys_come_out_at_once_with_their_own_time() -> None:
    bucket = Bucket(how="full_outer")
    step = bucket.step(left={"n1": 10}, right={"n2": 12})
    assert (told(step), times_of(step)) == (["-n2", "n1-"], [10.0, 12.0])
    assert bucket.store.bytes_held == 0
    step = Bucket(how="left_anti", strategy="lazy").step(demand=FlushMode.NOTHING, left={"n": 1}, right={"n": 1})
    assert told(step) == ["n"]


def test_lazy_rows_that_wait_hold_back_who_may_match_them() -> None:
    bucket = Bucket(how="left_anti", strategy="lazy", block_size=2)
    bucket.step(left={"a": 10})
    assert told(bucket.step(watermark=10.5, demand=FlushMode.NOTHING, right={"x": 10.5})) == []
    assert bucket.last.timer_us is None or bucket.last.timer_us > 11_000_001, (
        "no watermark settles what a waiting row decides"
    )
    assert told(bucket.step(watermark=50, demand=FlushMode.NOTHING)) == [], "x waits, and may match a"
    assert told(bucket.step(watermark=50)) == [], "x has matched a"


def test_a_choice_is_told_when_no_better_partner_can_come() -> None:
    """A later partner that ends earlier is better; a left row keeps one, and x, chosen by no row, comes last.

    ::

        right        y(9.5)  x(10.2)
        left            a(10)     b(11)     a chooses y; b has x alone, until z(10.1) comes
    """
    bucket = Bucket(how="full_outer", best="left")
    assert told(bucket.step(left={"a": 10, "b": 11}, right={"x": 10.2})) == []
    assert told(bucket.step(watermark=9.5, right={"y": 9.5})) == []
    assert told(bucket.step(watermark=10, right={"z": 10.1})) == []
    step = bucket.step(watermark=11.000001)
    assert (told(step), times_of(step)) == (["ay"], [11.000001])
    assert told(bucket.step(watermark=12)) == []
    step = bucket.step(watermark=12.000001)
    assert told(step) == ["-x", "bz"]
    assert times_of(step) == [12.000001, 12.000001], "x was settled when b, the last row that matched it, had chosen"
    assert bucket.last.timer_us is None or bucket.step(watermark=100).output == []


def test_a_chosen_row_stays_chosen_until_it_is_final() -> None:
    """Left rows come 5 to 10 s after their partners, so a is final on arrival, and x only much later.

    ::

        right    x(95)
        left            a(100)          105: the last left row that could match x
        steps         98      101     106   a chooses x at 98; at 106 x must still be known as chosen
    """
    bucket = Bucket(how="full_outer", best="left", condition=between("-10s", "-5s", confidence=1))
    bucket.step(right={"x": 95})
    assert told(bucket.step(watermark=98, left={"a": 100})) == ["ax"]
    assert told(bucket.step(watermark=101, left={"b": 120})) == []
    assert told(bucket.step(watermark=106)) == []
    assert told(bucket.step(demand=FlushMode.END)) == ["b-"]


def test_mutual_choices_wait_for_the_later_of_the_two() -> None:
    bucket = Bucket(how="left_outer", best="both")
    bucket.step(left={"a": 10, "b": 10.4}, right={"x": 10.8})
    assert told(bucket.step(watermark=11.5)) == [], "a and b are final, and x is not"
    step = bucket.step(watermark=11.800001)
    assert (told(step), times_of(step)) == (["ax", "b-"], [11.800001, 11.800001])
    assert told(bucket.step(demand=FlushMode.END)) == []
    assert bucket.step(watermark=100).metrics["rows_evicted"] <= 3


@pytest.mark.parametrize(("how", "best"), MODES)
def test_the_timer_alone_settles_everything_and_empties_the_state(how: str, best: str | None) -> None:
    bucket = Bucket(how=how, best=best)
    steps = [bucket.step(left={"a": 10, "b": 10.4, "c": 40}, right={"x": 10.8, "y": 60})]
    steps.append(bucket.step(watermark=10, left={"d": 11}, right={"z": 10.9}))
    for _ in range(50):
        if bucket.last.timer_us is None:
            break
        steps.append(bucket.step(watermark=bucket.last.timer_us / SECOND))
    assert bucket.last.timer_us is None
    assert len(bucket.store.copy()._segments) == 1, "the directory"
    total = sum((step.metrics for step in steps), Counter[str]())
    assert total["rows_stored"] == total["rows_evicted"]
    assert total["matched"] == sum(batch.num_rows for step in steps for batch in step.output)
    assert told(bucket.step(watermark=100, demand=FlushMode.END)) == []


@pytest.mark.parametrize(("how", "best"), MODES[1:])
def test_only_plain_inner_pairs_have_an_event_time_to_rely_on(how: str, best: str | None) -> None:
    operator = query(how=how, best=best).operator([SCHEMA, SCHEMA], streaming=True)
    assert operator.event_time is None
    assert operator.output_schema.names[-1] == "event_time"
    assert query().operator([SCHEMA, SCHEMA], streaming=True).event_time == "event_time"


def test_a_match_rewrites_marks_and_not_rows() -> None:
    store = CountingStore()
    bucket = Bucket(store, how="left_outer")
    bucket.step(left={"a": 10, "b": 20})
    store.calls.clear()
    bucket.step(right={"x": 10})
    puts = Counter(call.input for call in store.calls if call.kind == "put")
    assert puts[0] == 0
    assert puts[MARKS] == 1, "of two segments one has a new mark"


def test_semi_and_anti_keep_no_more_of_a_right_row_than_they_need() -> None:
    sizes = []
    for how in ("left_outer", "left_anti"):
        bucket = Bucket(how=how)
        bucket.step(right={f"a long name that nobody asks for {n}": n for n in range(50)})
        sizes.append(bucket.store.bytes_held)
    assert sizes[1] < 0.7 * sizes[0]


def test_state_of_another_mode_is_refused() -> None:
    bucket = Bucket(how="left_outer")
    bucket.step(left={"a": 10})
    bucket.operator = query(how="left_outer", best="left").operator([SCHEMA, SCHEMA], streaming=True)
    with pytest.raises(EngineError, match=r"WA-3003.*another mode"):
        bucket.step(right={"x": 10})


def test_right_keys_that_the_left_type_cannot_hold_survive() -> None:
    left = pa.table({"t": [1], "k": pa.array([1], pa.int32()), "v": pa.array([1], pa.int16())})
    right = pa.table({"t": [1], "k": pa.array([2**40], pa.int64()), "w": pa.array([2], pa.int8())})
    options: dict[str, Any] = {
        "left_time": Point("t"), "right_time": Point("t"), "condition": within(0, confidence=1), "on": "k"
    }  # fmt: skip
    joined = local.timing_join(left, right, how="full_outer", **options)
    assert [joined.schema.field(name).type for name in ("k", "v", "w")] == [pa.int64(), pa.int16(), pa.int8()]
    assert sorted(joined.column("k").to_pylist()) == [1, 2**40]
    assert sorted(joined.column("v").to_pylist(), key=str) == [1, None]
    assert local.timing_join(left, right, how="left_outer", **options).schema.field("k").type == pa.int32()


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, -1, 3]),
    (pa.float64(), [None, float("-inf"), -0.0, 0.0, float("inf"), float("nan")]),
    (pa.string(), [None, "", "Z", "a", "\u00e9"]),
    (pa.binary(), [None, b"", b"\x00", b"\xff"]),
    (pa.bool_(), [None, False, True]),
    (pa.list_(pa.int64()), [None, [], [None], [1], [1, 0], [2]]),
    (
        pa.struct({"a": pa.int64(), "b": pa.string()}),
        [None, {"a": 1, "b": None}, {"a": 1, "b": "x"}, {"a": 2, "b": ""}],
    ),
    (pa.map_(pa.string(), pa.float64()), [None, [], [("a", -0.0)], [("a", 0.0)], [("b", 0.0)]]),
]


@pytest.mark.parametrize(
    ("type_", "ascending"), VALUES, ids=lambda value: str(value) if "DataType" in str(type(value)) else ""
)
def test_ties_go_to_the_lesser_columns_nulls_first(type_: pa.DataType, ascending: list[Any]) -> None:
    """Two partners that differ in one value only: the lesser is chosen, whichever comes first."""
    for lesser, greater in pairwise(ascending):
        for order in ([lesser, greater], [greater, lesser]):
            left = pa.table({"t": [0]})
            right = pa.table({"t": [0, 0], "v": pa.array(order, type_, from_pandas=False)})
            (row,) = local.timing_join(
                left, right, left_time=Point("t"), right_time=Point("t"), condition=within(0, confidence=1), best="left"
            ).to_pylist()
            assert repr(row["v"]) == repr(pa.array([lesser], type_, from_pandas=False)[0].as_py())


def test_equals_are_one_choice() -> None:
    """Two equal left and two equal right rows: `left` pairs both left rows, `both` finds one mutual pair."""
    table = pa.table({"t": [5, 5], "v": [1, 1]})
    options: dict[str, Any] = {"left_time": Point("t"), "right_time": Point("t"), "condition": within(0, confidence=1)}
    count = {
        (how, best): local.timing_join(table, table, how=how, best=best, **options).num_rows
        for how in ("inner", "full_outer")
        for best in ("left", "right", "both")
    }
    assert count == {
        ("inner", "left"): 2, ("inner", "right"): 2, ("inner", "both"): 1,
        ("full_outer", "left"): 3, ("full_outer", "right"): 3, ("full_outer", "both"): 3,
    }  # fmt: skip


@pytest.mark.parametrize(("how", "best"), MODES)
def test_histograms_settle_as_in_batch(how: str, best: str | None) -> None:
    """Rows whose times have templates: a stream in several files gives the rows of the finite join."""
    time = Histogram(
        "t", template="kind",
        templates={"quick": [(0, SECOND, 1.0)], "slow": [(0, 2 * SECOND, 0.25), (2 * SECOND, 5 * SECOND, 0.75)]},
    )  # fmt: skip
    random = case_tables.rng("histograms", how, best)

    def rows() -> pa.Table:
        t = sorted((SECOND * random.integers(0, 60, 80)).tolist())
        kinds = [("quick", "slow")[n] for n in random.integers(0, 2, 80)]
        return pa.table({"t": t, "kind": kinds, "k": random.integers(0, 3, 80), "v": random.integers(0, 2, 80)})

    join = TimingJoin(
        left_time=time, right_time=time, condition=within("2 s", confidence=0.6), on="k", how=how, best=best,
        lateness=Lateness(left="60 s", right="60 s"),
    )  # fmt: skip
    tables = [rows(), rows()]
    finite = local.run(join, tables).output
    files = [[table.slice(start, 10) for start in range(0, 80, 10)] for table in tables]
    stream = local.run_stream(replace(join, lateness=Lateness(left="10 s", right="10 s")), files)
    assert stream.metrics["rows_late"] == 0
    told, expected = multiset.rows(stream.output, finite.column_names), multiset.rows(finite)
    multiset.assert_same(told, expected, "stream against batch")
    assert finite.num_rows > (0 if how == "left_anti" else 10)


def test_the_response_never_came() -> None:
    """The recipe of docs/modes.md: requests without a response within five seconds."""
    interval = Interval("t_min", "t_max", max_uncertainty="1 s")
    columns = {"id": pa.int64(), "t_min": pa.int64(), "t_max": pa.int64()}

    def rows(**ids: float) -> pa.Table:
        return pa.table(
            {"id": [int(name[1:]) for name in ids], "t_min": [round(t * SECOND) for t in ids.values()],
             "t_max": [round((t + 0.5) * SECOND) for t in ids.values()]}, pa.schema(columns)
        )  # fmt: skip

    join = TimingJoin(
        left_time=interval, right_time=interval, on="id", how="left_anti",
        condition=deadline("5 s", since="0 s", confidence=0.9),
    )  # fmt: skip
    requests, responses = [rows(q1=0, q2=1), rows(q3=20), rows(q4=40)], [rows(r1=3), rows(r2=21, r3=22), rows(r4=39)]
    silent = local.run_stream(join, [requests, responses]).output
    assert sorted(silent.column("id").to_pylist()) == [2, 4]


@st.composite
def _driven(draw: st.DrawFn) -> tuple[Example, dict[str, list[int]], list[int]]:
    """An example in order of arrival, the step of each row, and watermarks under which none is late."""
    example = draw(generators.joins(units=(SECOND,), finite=False))
    how, best = draw(st.sampled_from(MODES))
    ties = draw(st.sampled_from(TIES)) if best else "earliest"
    steps = draw(st.integers(1, 5))
    tables, arrival = {}, {}
    for side, table in example.tables.items():
        arrival[side] = sorted(draw(st.integers(0, steps - 1)) for _ in range(table.num_rows))
        tables[side] = table.take(pa.array(draw(st.permutations(range(table.num_rows))), pa.int64()))
    example = Example(replace(example.query, how=how, best=best, ties=ties), tables)
    events = expectations.read(example.query, tables).events
    watermarks: list[int] = []
    for step in range(steps):
        future = [e.t_max for side in arrival for e, s in zip(events[side], arrival[side], strict=True) if s >= step]
        reached = min(future, default=case_tables.YEAR_2024) - draw(st.integers(0, 3 * SECOND))
        watermarks.append(max([reached, *watermarks[-1:]]))
    return example, arrival, watermarks


def _expected_steps(example: Example, arrival: Mapping[str, list[int]], watermarks: list[int]) -> list[Counter[Any]]:
    """The expected output of each step, and finally of the end."""
    events = expectations.read(example.query, example.tables).events
    schemas = {side: table.schema for side, table in example.tables.items()}
    matches = join_modes_oracle.Matches(example.query, events)
    expected: list[Counter[Any]] = [Counter() for _ in range(len(watermarks) + 1)]
    for result in join_modes_oracle.results(example.query, schemas, events):
        rows = [(side, n) for side, n in (("left", result.left), ("right", result.right)) if n is not None]
        step = max(arrival[side][n] for side, n in rows)
        side, number = rows[0]
        if example.query.how == "left_semi":
            step = max(step, min(arrival["right"][n] for n in matches.of["left"][number]))
        elif (result.p is None or example.query.best) and not (events[side][number].key is None and example.query.on):
            step = next((n for n, us in enumerate(watermarks) if n >= step and us >= result.at_us), len(watermarks))
        expected[step][(*result.row, result.at_us)] += 1
    return expected


def _rows(operator: TimingJoinOperator, step: Step) -> Counter[Any]:
    return multiset.rows(pa.Table.from_batches(step.output, operator.output_schema))


@settings(deadline=None, max_examples=400 if generators.FULL else 120)
@given(_driven())
def test_nothing_comes_out_early_nothing_late_and_nothing_twice(
    driven: tuple[Example, dict[str, list[int]], list[int]],
) -> None:
    """A host calls the operator when rows arrive or its timer is due; every result comes in exactly the right step.

    After the last rows the watermark stops just before and at every instant at which a result becomes final in the
    oracle.
    """
    example, arrival, watermarks = driven
    schemas = {side: table.schema for side, table in example.tables.items()}
    events = expectations.read(example.query, example.tables).events
    try:
        instants = {result.at_us for result in join_modes_oracle.results(example.query, schemas, events)}
    except AmbiguousPairError:
        reject()  # the kernel's rounding picks the best partner
    late = {us for at_us in instants for us in (at_us - 1, at_us) if us > watermarks[-1]}
    watermarks = [*watermarks, *sorted(late)]
    operator = example.query.operator(list(schemas.values()), streaming=True)
    expected = _expected_steps(example, arrival, watermarks)
    store, timer = DictStore(), None
    for number, watermark in enumerate([*watermarks, watermarks[-1]]):
        end = number == len(watermarks)
        arrived = {}
        for input, side in enumerate(("left", "right")):
            at = [n for n, step in enumerate(arrival[side]) if step == number]
            arrived[input] = example.tables[side].take(pa.array(at, pa.int64())).combine_chunks()
        arrivals = arrivals_of(operator, arrived)
        output: list[pa.RecordBatch] = []
        if arrivals or end or (timer is not None and timer <= watermark):
            before = store.copy()
            demand = FlushMode.END if end else FlushMode.FLUSH
            step = operator.step(store, arrivals, watermark, demand)
            assert not step.rejected
            again = operator.step(before, arrivals, watermark, demand)
            assert _rows(operator, again) == _rows(operator, step), "a replayed step gives equal results"
            output, timer = step.output, step.timer_us
        table = pa.Table.from_batches(output, operator.output_schema)
        names = [name for name in table.column_names if name != "probability"]
        multiset.assert_same(
            multiset.rows(table, names), expected[number], f"step {number} of {watermarks}", {"query": example.query}
        )


ONE_SIDED = ("left_semi", "left_anti")
DECIDING = [strategy for strategy in STRATEGIES if strategy not in ("simple", "ssort")]


@pytest.mark.parametrize("how", ONE_SIDED)
@pytest.mark.parametrize("strategy", DECIDING)
def test_one_partner_decides_about_a_row(how: str, strategy: str) -> None:
    """10,000 x 10,000 rows of one key that all match each other: one pair each decides 10,000 rows.

    As a stream too, where the partners of the first half are there before it and those of the second half come later.
    """
    n = 10_000
    rows = [pa.table({"t": pa.array(range(start, start + n // 2)), "k": [1] * (n // 2)}) for start in (0, n // 2)]
    none = rows[0].slice(0, 0)
    asked = query(how=how, strategy=strategy, condition=within(n, confidence=1), lateness=Lateness(left=n, right=n))
    for told in (
        local.run(asked, [pa.concat_tables(rows)] * 2),
        local.run_stream(asked, [[none, *rows], [rows[0], none, none, rows[1]]]),
    ):
        assert told.output.num_rows == (n if how == "left_semi" else 0)
        assert (told.metrics["probed"], told.metrics["sure"]) == (0, n)


@pytest.mark.parametrize("how", ONE_SIDED)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_row_that_is_decided_leaves_the_state(how: str, strategy: str) -> None:
    """Left rows at 0, 1, ... 9 s; right rows decide the even ones, at once or later, before the watermark passes."""
    bucket = Bucket(how=how, strategy=strategy, condition=within("0.1 s", confidence=1))
    evens = {"r" + str(t): float(t) for t in range(0, 4, 2)}
    step = bucket.step(0, right=evens, left={str(t): float(t) for t in range(10)})
    assert step.gauges["state_rows_left"] == 8  # 0 and 2 have partners: they are not even written
    assert step.metrics["rows_stored"] == 8 + 2
    step = bucket.step(0, right={"r" + str(t): float(t) for t in (*range(4, 10, 2), 1, 3)})
    assert step.gauges["state_rows_left"] <= 2 * 3  # 5, 7, 9 are open; a segment is rewritten once half of it is done
    held = step.gauges["state_rows_left"]
    assert step.metrics["rows_evicted"] == 8 - held
    step = bucket.step(0, right={"r" + str(t): float(t) for t in (5, 7, 9)})
    assert step.gauges["state_rows_left"] == 0
    assert not any(input == MARKS for input, _ in bucket.store._segments)


def test_a_row_that_waits_for_the_choice_of_its_partner_counts_as_held() -> None:
    """a(0) is final after 1 s, when b(0.9) still may find a better one."""
    bucket = Bucket(best="both")
    bucket.step(left={"a": 0}, right={"b": 0.9})
    step = bucket.step(1.5)
    assert {name: step.gauges[f"state_rows_{name}"] for name in ("left", "right")} == {"left": 1, "right": 1}
    assert bucket.operator.rows_held(bucket.store) == 2
    assert told(bucket.step(2)) == ["ab"]


@pytest.mark.parametrize("how", ONE_SIDED)
def test_a_row_that_is_decided_leaves_the_state_while_further_ones_arrive(how: str) -> None:
    """The window is an hour, so all rows would fit into one segment; the right row of each comes in the next step."""
    schema = pa.schema({"k": pa.string(), "t": pa.int64()})
    operator = query(how=how, condition=within("1 h", confidence=1)).operator([schema] * 2, streaming=True)
    store, stored, evicted = DictStore(), 0, 0
    for n in range(40):
        sides = [
            pa.record_batch([[f"{step} {at}" for at in range(50)], [n * SECOND] * 50], schema=schema)
            for step in (n, n - 1)
        ]
        arrivals = [Arrival(input, operator.readers[input].read(rows).block) for input, rows in enumerate(sides)]
        step = operator.step(store, arrivals, n * SECOND)
        stored += step.metrics["rows_stored"] - 50
        evicted += step.metrics["rows_evicted"]
        assert step.gauges["state_rows_left"] == stored - evicted
        assert 50 <= step.gauges["state_rows_left"] <= 100


@pytest.mark.slow
@pytest.mark.parametrize("how", ONE_SIDED)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_dropping_decided_rows_changes_nothing(how: str, data: st.DataObject) -> None:
    """Rows in any order in any steps give the same as the slow strategy, which keeps all rows to the end in one
    step."""
    example = data.draw(generators.joins(units=(SECOND,), finite=False))
    files = data.draw(generators.arrivals(example))
    strategies = ("simple", *DECIDING)
    outcomes = [
        local.run_stream(replace(example.query, how=how, best=None, strategy=strategy), list(files.values()))
        for strategy in strategies
    ]
    for strategy, outcome in zip(strategies, outcomes, strict=True):
        multiset.assert_same(multiset.rows(outcome.output), multiset.rows(outcomes[0].output), strategy)
        held = outcome.metrics["rows_stored"] - outcome.metrics["rows_evicted"]
        assert held >= 0


@pytest.mark.parametrize("how", ONE_SIDED)
def test_state_that_holds_decided_rows_goes_on(how: str) -> None:
    """State as an earlier release wrote it: these rows have no effect, and are deleted with their segment."""
    changes = {"how": how, "condition": within("0.1 s", confidence=1)}
    before, after, throughout = (Bucket(**changes) for _ in range(3))
    before.operator._layout = replace(before.operator._layout, needed={})
    rows: dict[str, Any] = {"left": {str(t): float(t) for t in range(10)}, "right": {"r0": 0.0, "r2": 2.0}}
    first = [told(bucket.step(0, **rows)) for bucket in (before, throughout)]
    assert first[0] == first[1]
    after.store = before.store
    steps = [
        [bucket.step(at, **more) for bucket in (after, throughout)]
        for at, more in [(0.0, {"right": {"x0": 0.0, "x4": 4.0, "x6": 6.0}}), (7.0, {"right": {"x8": 8.0}}), (30.0, {})]
    ]
    for one, other in steps:
        assert (told(one), times_of(one)) == (told(other), times_of(other))
    assert all(step.gauges["state_rows_left"] == 0 for step in steps[-1])
