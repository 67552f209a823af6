"""Results that are larger than memory: batch by batch, the same rows."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whenabouts as wa
from whenabouts.core import QueryError
from whenabouts.core.arrays import threads
from whenabouts.core.errors import Code, RejectedRowsWarning
from whenabouts.core.expressions.tree import Expression, column
from whenabouts.core.hosting import batch_output
from whenabouts.core.hosting.time_order import TimeOrder, pieces
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.protocol import NO_WATERMARK
from whenabouts.core.wrappers.payloads import JsonPayload
from whenabouts.core.wrappers.select_project import SelectProject


def rows(seed: int, count: int, name: str) -> pa.Table:
    rng = np.random.default_rng(seed)
    t = rng.integers(0, 4 * count + 1, count)
    return pa.table(
        {
            "from": t,
            "to": t + rng.integers(0, 30, count),
            "k": rng.integers(0, 3, count),
            "v": t % 2,
            name: np.arange(count),
        }
    )


SPAN = wa.Interval("from", "to", max_uncertainty=30)
NEAR: dict[str, Any] = {"left_time": SPAN, "right_time": SPAN, "on": "k"}
WITHIN = wa.within(40, confidence=0.5)


def windows(left: Any, right: Any, **more: Any) -> Any:
    return wa.window_join({"a": left, "b": right}, time=SPAN, on="k", windows={("a", "b"): WITHIN}, **more)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "timing_join": lambda left, right, **more: wa.timing_join(left, right, condition=WITHIN, **NEAR, **more),
    "full_outer": lambda left, right, **more: wa.timing_join(
        left, right, condition=WITHIN, how="full_outer", **NEAR, **more
    ),
    "left_anti": lambda left, right, **more: wa.timing_join(
        left, right, condition=wa.within(2, confidence=0.5), how="left_anti", **NEAR, **more
    ),
    "asof_join": lambda left, right, **more: wa.asof_join(left, right, tolerance=50, confidence=0.3, **NEAR, **more),
    "join_aggregate": lambda left, right, **more: wa.join_aggregate(
        left, right, condition=WITHIN, aggregates={"n": "count", "p": "p_none", "most": "max:b"}, **NEAR, **more
    ),
    "window_join": windows,
    "coalesce": lambda left, _, **more: wa.coalesce(left, time="a", group="k", values="v", **more),
    "early": lambda left, _, **more: wa.coalesce(
        left, time="a", group="k", values="v", window=40, slide=20, emit="early", **more
    ),
    "temporal_aggregate": lambda left, _, **more: wa.temporal_aggregate(
        left, time="a", group="k", values="v", aggregates={"n": "count"}, **more
    ),
}


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps over few rows."""
    monkeypatch.setattr(batch_output, "ROWS", 50)
    monkeypatch.setattr(batch_output, "_FIRST_STEP", 7)
    monkeypatch.setattr(batch_output, "_LEAST_STEP", 5)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_rows_are_those_of_one_table(name: str) -> None:
    left, right = rows(1, 150, "a"), rows(2, 200, "b")
    reader = OPERATIONS[name](left, right, batches=True)
    assert isinstance(reader, pa.RecordBatchReader)
    batches = list(reader)
    whole = OPERATIONS[name](left, right)
    assert all(0 < batch.num_rows <= 50 for batch in batches)
    found = pa.Table.from_batches(batches)
    assert found.schema.equals(whole.schema)
    assert in_order(found) == in_order(whole)
    assert found.num_rows > 0
    assert wa.rejects(reader).num_rows == 0


def test_a_burst_that_exceeds_the_memory_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows far apart, so that a step takes many, and then all at once."""
    far, burst = np.arange(3_000) * 1_000_000, np.full(2_000, 3_000_000_000)
    sides = [pa.table({"t": np.concatenate([far, burst]), name: np.arange(5_000)}) for name in ("a", "b")]
    options: dict[str, Any] = {"left_time": wa.Point("t"), "right_time": wa.Point("t"), "probability": False}
    options["condition"] = wa.within(0, confidence=1)
    monkeypatch.setattr(batch_output, "_FIRST_STEP", 5_000)
    monkeypatch.setenv("WHENABOUTS_OUTPUT_MEMORY", "70")
    with pytest.raises(QueryError, match="WA-2201"):
        wa.timing_join(*sides, **options)
    found = 0
    for batch in wa.timing_join(*sides, batches=True, **options):
        found += batch.num_rows
        assert batch.column("t_left").equals(batch.column("t_right"))
    assert found == 3_000 + 2_000 * 2_000


@pytest.mark.usefixtures("small_steps")
def test_a_limit_on_state_changes_nothing() -> None:
    left, right = rows(1, 150, "a"), rows(2, 200, "b")
    limited = OPERATIONS["timing_join"](left, right, batches=True, state_limit=wa.StateLimit(1)).read_all()
    assert in_order(limited) == in_order(OPERATIONS["timing_join"](left, right))


@pytest.mark.usefixtures("small_steps")
def test_datasets_of_files_that_overlap_in_time(tmp_path: Path) -> None:
    left, right = rows(3, 300, "a"), rows(4, 300, "b")
    for name, table in (("left", left), ("right", right)):
        (tmp_path / name).mkdir()
        for number in range(3):
            pq.write_table(
                table[number * 100 : number * 100 + 100], tmp_path / name / f"{number}.parquet", row_group_size=33
            )
    read = [ds.dataset(tmp_path / name) for name in ("left", "right")]
    reader = OPERATIONS["full_outer"](*read, batches=True)
    assert in_order(reader.read_all()) == in_order(OPERATIONS["full_outer"](left, right))


@pytest.mark.usefixtures("small_steps")
def test_a_dataset_with_a_filter(tmp_path: Path) -> None:
    left, right = rows(5, 300, "a"), rows(6, 300, "b")
    pq.write_table(left, tmp_path / "left.parquet", row_group_size=33)
    even = pc.equal(pc.bit_wise_and(pc.field("from"), 1), 0)
    filtered = ds.dataset(tmp_path / "left.parquet").filter(even)
    reader = OPERATIONS["full_outer"](filtered, right, batches=True)
    assert in_order(reader.read_all()) == in_order(OPERATIONS["full_outer"](left.filter(even), right))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.filterwarnings("ignore::whenabouts.RejectedRowsWarning")
@pytest.mark.parametrize("written", [False, True])
def test_payloads_have_the_times(tmp_path: Path, written: bool) -> None:
    left, right = ([*rows(seed, 200, "a").to_pylist(), None, {"from": None, "to": 5}] for seed in (7, 8))
    topics = [pa.table({"value": [json.dumps(row).encode() for row in side]}) for side in (left, right)]
    payload = JsonPayload(dict.fromkeys(["from", "to", "k", "v", "a"], "int64"))
    whole = OPERATIONS["full_outer"](*topics, payloads=payload)
    given: list[Any] = topics
    if written:
        for number, topic in enumerate(topics):
            pq.write_table(topic, tmp_path / f"{number}.parquet", row_group_size=33)
        given = [ds.dataset(tmp_path / f"{number}.parquet") for number in range(2)]
    reader = OPERATIONS["full_outer"](*given, payloads=payload, batches=True)
    assert in_order(reader.read_all()) == in_order(whole)
    assert in_order(wa.rejects(reader)) == in_order(wa.rejects(whole))
    assert wa.rejects(whole).num_rows == 4


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("time", ["from", "late"])
def test_computed_columns_of_a_dataset(tmp_path: Path, time: str) -> None:
    table = rows(9, 200, "a")
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=33)
    late = Expression("add", (column("to"), Expression("literal", value=7)))
    odd = Expression("add", (column("v"), Expression("literal", value=1)))
    query = SelectProject(
        query=wa.TimingJoin(left_time=wa.Point(time), right_time=wa.Point(time), condition=WITHIN, on="odd"),
        derived=dict.fromkeys(("left", "right"), (("odd", odd), ("late", late))),
    )
    dataset = ds.dataset(tmp_path / "rows.parquet")
    reader = wa.run(query, [dataset, dataset], batches=True)
    assert in_order(reader.read_all()) == in_order(wa.run(query, [table, table]))


def test_ranges_of_pairs_have_no_batches() -> None:
    with pytest.raises(wa.QueryError, match=r"WA-2006: batches is True.*pairs='ranges' writes no rows"):
        OPERATIONS["timing_join"](rows(1, 5, "a"), rows(2, 5, "b"), batches=True, pairs="ranges")


@pytest.mark.usefixtures("small_steps")
def test_inputs_without_rows(tmp_path: Path) -> None:
    left, right = rows(5, 20, "a"), rows(6, 0, "b")
    pq.write_table(right, tmp_path / "right.parquet")
    empty = ds.dataset(tmp_path / "right.parquet")
    assert OPERATIONS["timing_join"](left, empty, batches=True).read_all().num_rows == 0
    assert OPERATIONS["full_outer"](left, empty, batches=True).read_all().num_rows == 20
    with pytest.warns(wa.EmptyInputWarning, match="right"):
        assert OPERATIONS["asof_join"](left, empty, batches=True).read_all().num_rows == 20


def test_rejected_rows_are_known_after_the_last_batch() -> None:
    left, right = rows(7, 20, "a"), rows(8, 20, "b")
    left = left.append_column("t", pa.array([None, *range(19)], pa.int64()))
    options: dict[str, Any] = {"left_time": wa.Point("t"), "right_time": SPAN, "condition": WITHIN, "on": "k"}
    reader = wa.timing_join(left, right, batches=True, **options)
    with pytest.raises(QueryError, match="not all batches"):
        wa.rejects(reader)
    with pytest.warns(RejectedRowsWarning, match="1 row was rejected"):
        reader.read_all()
    assert wa.rejects(reader).column("code").to_pylist() == [str(Code.NULL_TIME)]
    del reader
    gc.collect()


def test_an_error_of_a_later_step_has_its_code() -> None:
    huge = pa.table({"t": [0, 0], "n": pa.array([2**62, 2**62])})
    left = huge.select(["t"])
    point = wa.Point("t")
    reader = wa.join_aggregate(
        left, huge, left_time=point, right_time=point, condition=wa.within(0, confidence=1),
        aggregates={"n": "sum:n"}, batches=True,
    )  # fmt: skip
    with pytest.raises(wa.InputError, match="WA-1024"):
        reader.read_all()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", ["asof_join", "best"])
def test_payload_of_unions_is_kept_in_state(name: str) -> None:
    """pyarrow makes no array of them from values, not even an empty one."""
    left, right = rows(1, 50, "a"), rows(2, 50, "b")
    number = pa.array(range(50))
    union = pa.UnionArray.from_dense(pa.array([0] * 50, pa.int8()), number.cast(pa.int32()), [number])
    right = right.append_column("u", union)
    calls = OPERATIONS | {
        "best": lambda left, right, **more: wa.timing_join(left, right, condition=WITHIN, best="both", **NEAR, **more)
    }
    assert in_order(calls[name](left, right, batches=True).read_all()) == in_order(calls[name](left, right))


@pytest.mark.usefixtures("small_steps")
def test_readers_are_read_in_turn_and_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a query that runs at once: an interval may have any length."""
    monkeypatch.setattr(threads, "LEAST_ROWS", 5)
    left, right = rows(1, 150, "a"), rows(2, 200, "b")
    times: dict[str, Any] = {"left_time": wa.Interval("from", "to"), "right_time": wa.Interval("from", "to")}

    def join(**more: Any) -> Any:
        return wa.timing_join(left, right, condition=WITHIN, threads=2, **times, **more)

    whole = in_order(join())
    first, second, third = (join(batches=True) for _ in range(3))
    begun = [[reader.read_next_batch()] for reader in (first, second, third)]
    assert in_order(join()) == whole, "while readers are open"
    with ThreadPoolExecutor(1) as pool:
        begun[0] += pool.submit(list, first).result()
    begun[1] += list(second)
    assert [in_order(pa.Table.from_batches(batches)) for batches in begun[:2]] == [whole, whole]
    del third
    gc.collect()
    assert in_order(join()) == whole
    assert max(batch.num_rows for batch in begun[0]) <= 50


@pytest.mark.parametrize("wrong", [1, "yes", None])
def test_batches_is_true_or_false(wrong: Any) -> None:
    with pytest.raises(QueryError, match="WA-2006"):
        OPERATIONS["timing_join"](rows(1, 2, "a"), rows(2, 2, "b"), batches=wrong)


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_rows_come_in_the_order_of_time(parts: list[list[int]], count: int) -> None:
    """All of them once, and none before a watermark that was given with it or earlier."""
    schema = pa.schema({"t": pa.int64()})
    reader = EventReader(0, "left", schema, wa.Point("t"))
    tables = [pa.table({"t": pa.array(part, pa.int64())}) for part in parts]
    read: list[int] = []

    def block(number: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        read.append(number)
        return reader.read(batch)[0]

    order = TimeOrder([pieces(reader, table) for table in tables], block)
    seen: list[int] = []
    last = NO_WATERMARK
    while order:
        arrivals, watermark_us = order.take(count)
        come = [int(t) for arrival in arrivals for t in times(arrival.block)[1]]
        assert 1 <= len(come) <= count
        assert last <= watermark_us == min(come)
        last = watermark_us
        seen += come
    assert sorted(seen) == sorted(t for part in parts for t in part)
    assert sorted(read) == [number for number, part in enumerate(parts) if part]


def test_only_pieces_around_the_current_time_are_read() -> None:
    schema = pa.schema({"t": pa.int64()})
    reader = EventReader(0, "left", schema, wa.Point("t"))
    in_memory: list[int] = []

    def batches(number: int) -> Callable[[], Iterator[pa.RecordBatch]]:
        def read() -> Iterator[pa.RecordBatch]:
            in_memory.append(number)
            yield pa.record_batch({"t": [10 * number, 10 * number + 9]}, schema)

        return read

    from whenabouts.core.hosting.time_order import Piece

    order = TimeOrder([[Piece(10 * n, batches(n)) for n in (2, 0, 1)]], lambda _, batch: reader.read(batch)[0])
    order.take(1)
    assert in_memory == [0]
    order.take(2)
    assert in_memory == [0, 1]


def test_finite_input_is_not_warned_of_as_a_stream() -> None:
    """It is read as one, and would be twice: a window over the rows of all groups has one bucket."""
    table = pa.table({"t": [1, 2, 3], "k": ["a", "b", "a"], "v": [1, 1, 1]})
    options: dict[str, Any] = {"time": "t", "values": "v", "group": "k", "rows": 2, "slide": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = wa.coalesce(table, **options, batches=True).read_all()
        assert found.num_rows == wa.coalesce(table, **options).num_rows > 0
