"""The operator by itself: when rows wait, what it keeps, what it requests from its host. The suite checks its pairs."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from infra.operators import OperatorDriver, SecondsDriver
from whenabouts.core import Interval, Lateness, Point, QueryError, within
from whenabouts.core.errors import InputError
from whenabouts.core.runtime.protocol import END_OF_TIME, FlushMode, Step
from whenabouts.core.times.conditions import deadline
from whenabouts.core.timing_join import operator as timing_join_operator
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

SECOND = 1_000_000
SCHEMA = pa.schema({"t": pa.int64(), "id": pa.string()})


def query(**changes: object) -> TimingJoin:
    options = {"left_time": Point("t"), "right_time": Point("t"), "condition": within("1s", confidence=1)} | changes
    return TimingJoin(**options)  # type: ignore[arg-type]


def bucket_of(**changes: object) -> SecondsDriver:
    return SecondsDriver(query(**changes), SCHEMA)


def pairs(step: Step) -> list[str]:
    return sorted(row["id_left"] + row["id_right"] for batch in step.output for row in batch.to_pylist())


def test_left_and_right_meet_across_steps_once() -> None:
    bucket = bucket_of()
    assert pairs(bucket.step(left={"a": 10})) == []
    assert pairs(bucket.step(right={"x": 10.5, "y": 20})) == ["ax"]
    assert pairs(bucket.step(left={"b": 19.5}, right={"z": 9})) == ["az", "by"]
    assert pairs(bucket.step(demand=FlushMode.END)) == []


def test_output_columns_on_a_stream() -> None:
    step = bucket_of(), bucket_of(probability=False)
    assert step[0].operator.output_schema.names == [
        "t_left",
        "id_left",
        "t_right",
        "id_right",
        "probability",
        "event_time",
    ]
    assert step[1].operator.output_schema.names == ["t_left", "id_left", "t_right", "id_right", "event_time"]
    (row,) = step[0].step(left={"a": 10}, right={"x": 10.5}).output[0].to_pylist()
    assert row["event_time"].timestamp() == 10.5
    assert row["probability"] == 1.0


def test_late_rows_are_rejected_and_the_row_on_the_watermark_is_not() -> None:
    bucket = bucket_of()
    bucket.step(left={"a": 10})
    step = bucket.step(watermark=10, right={"x": 9.999999, "y": 10})
    assert pairs(step) == ["ay"]
    assert [(str(r.code), r.input, r.rows.to_pylist()) for r in step.rejected] == [
        ("WA-1010", 1, [{"t": 9_999_999, "id": "x"}])
    ]
    assert step.metrics["rows_late"] == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_are_kept_exactly_as_long_as_a_partner_can_come(strategy: str) -> None:
    """left a at 10 | watermark 11: a partner at 11 is possible; watermark 11.000001: it is not.

    ::

        left     a(10)---------11|
        right                 x(11)
    """
    for watermark, expected in ((11.0, ["ax"]), (11.000001, [])):
        bucket = bucket_of(strategy=strategy)
        bucket.step(left={"a": 10}, demand=FlushMode.FLUSH)
        bucket.step(watermark=watermark, demand=FlushMode.FLUSH)
        assert pairs(bucket.step(right={"x": 11}, demand=FlushMode.FLUSH)) == expected


@pytest.mark.parametrize("strategy", ["auto", "eager", "lazy", "simple"])
def test_stored_rows_of_other_keys_may_be_left_out_as_they_are_read(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pairs and counts are the same, whether a step reads all stored rows or looks up those of its keys."""
    schema, found = pa.schema({"t": pa.int64(), "k": pa.int64(), "id": pa.int64()}), []
    joined = query(condition=deadline("100 s", since="0 s", confidence=1), on="k", strategy=strategy)
    for many in (0, 10**9):
        monkeypatch.setattr(timing_join_operator, "MANY_ROWS", many)
        monkeypatch.setattr(timing_join_operator, "MANY_TIMES", 0)
        driver, draw, counts = OperatorDriver(joined, schema), np.random.default_rng(1), Counter[str]()
        rows: list[tuple[int, ...]] = []
        for second in range(0, 300, 10):
            sides = {}
            for side, size in (("left", 200), ("right", 5)):
                t = np.sort(draw.integers(second, second + 10, size)) * SECOND
                columns = [t, draw.integers(0, 50, size), second * 1_000 + np.arange(size)]
                sides[side] = pa.record_batch([pa.array(column) for column in columns], schema=schema)
            step = driver.feed(sides, max(second - 10, 0) * SECOND, FlushMode.FLUSH)
            rows += [tuple(row.values()) for batch in step.output for row in batch.to_pylist()]
            counts.update({name: step.metrics[name] for name in ("matched", "rows_stored", "rows_evicted")})
        found.append((sorted(rows, key=repr), counts))
    assert found[0] == found[1]
    assert found[0][1]["matched"] > 1_000


def test_eviction_frees_the_store_and_asks_for_a_timer() -> None:
    bucket = bucket_of()
    step = bucket.step(left={"a": 10})
    assert step.timer_us is not None
    assert len(bucket.store.copy()._segments) == 2  # the slot and the directory
    assert bucket.step(watermark=step.timer_us / SECOND - 0.000001).metrics["rows_evicted"] == 0
    last = bucket.step(watermark=step.timer_us / SECOND)
    assert last.metrics["rows_evicted"] == 1
    assert last.timer_us is None
    assert len(bucket.store.copy()._segments) == 1


@pytest.mark.parametrize("strategy", ["lazy", "lazy_lookup"])
def test_lazy_rows_wait_for_a_full_block(strategy: str) -> None:
    bucket = bucket_of(strategy=strategy, block_size=3)
    assert pairs(bucket.step(left={"a": 10})) == []
    assert pairs(bucket.step(right={"x": 10})) == []
    full = bucket.step(right={"y": 11})
    assert pairs(full) == ["ax", "ay"]
    assert full.metrics["correlations"] == 2  # the left block, and the right one
    assert pairs(bucket.step(right={"z": 9})) == []
    assert pairs(bucket.step(demand=FlushMode.END)) == ["az"]


def test_waiting_rows_are_not_evicted_nor_are_their_partners() -> None:
    bucket = bucket_of(strategy="lazy", block_size=2)
    bucket.step(left={"a": 10}, demand=FlushMode.FLUSH)
    bucket.step(watermark=10, right={"x": 10})  # waits
    bucket.step(watermark=100)  # a is obsolete for future rows, but x has not met it yet
    assert pairs(bucket.step(watermark=100, demand=FlushMode.FLUSH)) == ["ax"]


@pytest.mark.parametrize("options", [{"strategy": "lazy", "block_size": 100}, {"strategy": "auto"}])
def test_max_latency_ends_the_wait(options: dict[str, object]) -> None:
    bucket = bucket_of(**options, max_latency="2s")
    assert bucket.operator.event_time is None  # the waiting row is below the watermark
    first = bucket.step(left={"a": 10}, right={"x": 10})
    assert first.timer_us == 12 * SECOND
    assert pairs(bucket.step(watermark=11.9)) == []
    assert pairs(bucket.step(watermark=12)) == ["ax"]


def test_a_step_can_be_replayed() -> None:
    bucket = bucket_of()
    bucket.step(left={"a": 10})
    before = bucket.store.copy()
    first = bucket.step(right={"x": 10})
    bucket.store = before
    assert bucket.step(right={"x": 10}).output == first.output


def test_null_keys_match_nothing_and_are_not_kept() -> None:
    schema = pa.schema({"t": pa.int64(), "k": pa.int64()})
    rows = pa.record_batch({"t": [1, 1], "k": pa.array([None, 5], pa.int64())})
    step = OperatorDriver(query(on="k"), schema).feed({"left": rows, "right": rows})
    assert [row["k"] for batch in step.output for row in batch.to_pylist()] == [5]
    assert (step.metrics["rows_processed"], step.metrics["rows_stored"]) == (4, 2)


def test_the_end_writes_no_state() -> None:
    bucket = bucket_of()
    assert pairs(bucket.step(left={"a": 1}, right={"x": 1}, demand=FlushMode.END)) == ["ax"]
    assert bucket.store.bytes_held == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"strategy": "fast"}, "WA-2006"),
        ({"how": "cross"}, "WA-2006"),
        ({"best": "most"}, "WA-2006"),
        ({"how": "left_anti", "best": "left"}, "WA-2006"),
        ({"how": "left_semi", "best": "both"}, "WA-2006"),
        ({"block_size": 0}, "WA-2006"),
        ({"max_latency": "-1s"}, "WA-2003"),
        ({"max_latency": "soon"}, "WA-2002"),
    ],
)
def test_options_are_checked(changes: dict[str, object], code: str) -> None:
    with pytest.raises(QueryError, match=code):
        query(**changes)


def test_streams_refuse_what_would_never_shrink() -> None:
    with pytest.raises(QueryError, match="WA-2004"):
        query(condition=deadline("1s", confidence=0.5)).operator([SCHEMA, SCHEMA], streaming=True)
    intervals = pa.schema({"a": pa.int64(), "b": pa.int64()})
    with pytest.raises(QueryError, match=r"WA-2010.*left"):
        query(left_time=Interval("a", "b"), right_time=Interval("a", "b")).operator(
            [intervals, intervals], streaming=True
        )
    query(condition=deadline("1s", confidence=0.5)).operator([SCHEMA, SCHEMA], streaming=False)


@pytest.mark.parametrize(
    ("changes", "schemas", "error"),
    [
        ({"on": "k"}, [SCHEMA, SCHEMA], InputError),
        ({"suffixes": ("", "")}, [SCHEMA, SCHEMA], QueryError),
        (
            {},
            [pa.schema({"t": pa.int64(), "probability": pa.float64()}), pa.schema({"t": pa.int64()})],
            QueryError,
        ),
    ],
)
def test_columns_are_checked(changes: dict[str, object], schemas: list[pa.Schema], error: type[Exception]) -> None:
    with pytest.raises(error):
        query(**changes).operator(schemas, streaming=False)


def test_lateness_reaches_the_host() -> None:
    assert query(lateness=Lateness(left="5s", right="1s")).lateness_us == (5 * SECOND, SECOND)
    assert query().lateness_us == (0, 0)


def test_watermark_at_the_end_of_time_drops_everything() -> None:
    bucket = bucket_of()
    bucket.step(left={"a": 10})
    step = bucket.operator.step(bucket.store, [], END_OF_TIME)
    assert step.metrics["rows_evicted"] == 1
