"""As-of joins of streams, step by step: when rows come out, what state holds, and what a changed query may continue."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import run, run_stream
from whenabouts.core.runtime.protocol import Arrival
from whenabouts.core.state.memory_store import DictStore

STEPS, PI = 40, 3


def _query(**options: object) -> AsofJoin:
    interval = wa.Interval("t0", "t1", max_uncertainty=PI)
    given = {"left_time": interval, "right_time": interval, "on": "k", "confidence": 0.4, "lateness": 5}
    return AsofJoin(**(given | options))  # type: ignore[arg-type]


def _side(seed: int, rows: int = 400, keys: int = 5) -> pa.Table:
    """Rows of keys in order of arrival, each at most 5 us late."""
    random = np.random.default_rng(seed)
    ends = np.sort(random.integers(0, 4 * rows, rows))
    ends = ends[np.argsort(ends + random.integers(0, 5, rows), kind="stable")]
    lengths = random.integers(0, PI + 1, rows) * random.integers(0, 2, rows)
    columns = {"k": random.integers(0, keys, rows), "t0": ends - lengths, "t1": ends, f"id{seed}": np.arange(rows)}
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


OPTIONS = {
    "backward": {},
    "backward tolerance": {"tolerance": 20},
    "forward": {"direction": "forward", "tolerance": 20},
    "nearest": {"direction": "nearest", "tolerance": 20},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_a_row_comes_out_in_the_first_step_whose_watermark_has_reached_its_event_time(options: str) -> None:
    left, right = _side(1), _side(2)
    query = _query(**OPTIONS[options])
    operator = query.operator([left.schema, right.schema], streaming=True)
    store, before, greatest, out = DictStore(), -(1 << 60), [-(1 << 60)] * 2, 0
    size = left.num_rows // STEPS
    for number in range(STEPS):
        arrivals = []
        for input, table in enumerate((left, right)):
            block = operator.readers[input].read(table.slice(number * size, size).to_batches()[0]).block
            greatest[input] = max(greatest[input], max(block.column("t1").to_pylist()))
            arrivals.append(Arrival(input, block))
        for rows, watermark in ((arrivals, before), ([], min(greatest) - 5)):
            step = operator.step(store, rows, watermark)
            times = [at for batch in step.output for at in batch.column("event_time").cast(pa.int64()).to_pylist()]
            assert all(before < at <= watermark for at in times)
            assert step.timer_us is None or step.timer_us > watermark
            out += len(times)
        before = watermark
    assert out > 0.9 * left.num_rows


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_a_step_at_each_timer_alone_gives_the_same_rows(options: str) -> None:
    left, right = _side(1), _side(2)
    query = _query(**OPTIONS[options])
    whole = run(query, [left, right]).output
    for files in (1, 7, 40):
        cut = [[table.slice(n * 400 // files, (n + 1) * 400 // files - n * 400 // files) for n in range(files)]
               for table in (left, right)]  # fmt: skip
        found = run_stream(query, cut, buckets=3).output
        assert multiset.rows(found, whole.column_names) == multiset.rows(whole)


@pytest.mark.parametrize("tolerance", [None, 5_000_000])
def test_state_holds_the_open_rows_and_for_each_key_the_last_one_with_those_that_overlap_it(
    tolerance: int | None,
) -> None:
    """Right rows of 100 keys, without end; then these keys fall silent."""
    random, keys, block, span = np.random.default_rng(3), 100, 5_000, 5_000_000
    right = pa.schema({"k": pa.int64(), "t": pa.int64()})
    query = AsofJoin(
        left_time=wa.Point("t"), right_time=wa.Point("t"), on="k", tolerance=tolerance, lateness={"left": 0, "right": 0}
    )
    operator, store = query.operator([right, right], streaming=True), DictStore()

    def step(times: np.ndarray, key: np.ndarray, watermark: int) -> int:
        rows = pa.record_batch({"k": pa.array(key, pa.int64()), "t": pa.array(times, pa.int64())}, schema=right)
        arrivals = [Arrival(1, operator.readers[1].read(rows).block)] if len(times) else []
        done = operator.step(store, arrivals, watermark)
        held = operator.rows_held(store)
        assert done.gauges["state_rows_left"] == 0
        assert done.gauges["state_rows_right"] == held
        return held

    for number in range(100):
        times = np.sort(random.integers(number * span, (number + 1) * span, block))
        held = step(times, random.integers(0, keys, block), number * span)
        assert held <= keys + 2 * block  # the last rows, those of this step, and those of the segments it shares
    quiet = step(np.array([]), np.array([]), 200 * span)
    assert quiet == (keys if tolerance is None else 0)
    assert tolerance is None or store.bytes_held < 2000


def test_rows_of_a_key_with_a_null_are_answered_at_once() -> None:
    rows = pa.table({"k": pa.array([None, 1]), "t": [5, 9]})
    query = AsofJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), on="k", lateness={"left": 0, "right": 0})
    operator = query.operator([rows.schema] * 2, streaming=True)
    step = operator.step(DictStore(), [Arrival(0, operator.readers[0].read(rows.to_batches()[0]).block)], 0)
    (row,) = [row for batch in step.output for row in batch.to_pylist()]
    assert (row["k"], row["t_right"], row["none_probability"]) == (None, None, 1.0)
    assert row["event_time"].microsecond == 5


def test_a_tolerance_may_become_shorter_and_longer_only_while_nothing_was_dropped() -> None:
    left, right = _side(1), _side(2)
    files = [[table.slice(40 * n, 40) for n in range(10)] for table in (left, right)]
    plain, short, long = (_query(tolerance=tolerance) for tolerance in (None, 10, 500))
    run_stream(plain, files, changes={5: short}, restart_after=5)
    with pytest.raises(wa.EngineError, match="WA-3006"):
        run_stream(short, files, changes={5: long}, restart_after=5)


@pytest.mark.parametrize(
    "other",
    [
        {"direction": "nearest"}, {"allow_exact_matches": False}, {"how": "inner"}, {"order_by": "id2"}, {"on": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_decides_the_state_may_not_change(other: dict[str, object]) -> None:
    schemas = [_side(1).schema, _side(2).schema]
    before = identity_of(_query(tolerance=20), schemas, 4).to_json()
    with pytest.raises(wa.EngineError, match=f"WA-3032.*{next(iter(other))} was"):
        identity_of(_query(tolerance=20, **other), schemas, 4).check(before)
    free = {"confidence": 0.9, "keep": "all", "probability": False, "lateness": 9, "max_candidates": 5, "tolerance": 5}
    identity_of(_query(**free, suffixes=("_l", "_r")), schemas, 4).check(before)


def test_answers_do_not_depend_on_the_step_in_which_their_form_changes() -> None:
    """`confidence`, `keep` and columns are no part of the state: the answers of each step are those of its query."""
    left, right = _side(1), _side(2)
    files = [[table.slice(40 * n, 40) for n in range(10)] for table in (left, right)]
    before, after = _query(confidence=0.4), _query(confidence=0.1, keep="all", lateness=6)
    found = run_stream(before, files, changes={5: after}).output
    whole = [multiset.rows(run(query, [left, right]).output) for query in (before, after)]
    names = run(before, [left, right]).output.column_names
    assert not multiset.rows(found, names) - (whole[0] | whole[1])
    assert set(found.column("id1").to_pylist()) == set(range(400))


def test_a_full_state_fails_or_sheds_arriving_rows_and_never_a_key_s_last_one() -> None:
    """What it sheds is rejected; the answers are those of the rows that it took."""
    keys, n = 30, 300
    right = pa.table({"k": [k % keys for k in range(n)], "t": [10_000_000 * k for k in range(n)], "v": range(n)})
    left = pa.table({"k": [(7 * k) % keys for k in range(n)], "t": [10_000_000 * k + 5 for k in range(n)]})
    query = AsofJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), on="k", lateness=0)
    files = [[table.slice(20 * number, 20) for number in range(n // 20)] for table in (left, right)]
    with pytest.raises(wa.EngineError, match="WA-3033"):
        run_stream(query, files, state_limit=wa.StateLimit(keys + 10))
    found = run_stream(query, files, state_limit=wa.StateLimit(keys + 10, on_full="shed"))
    shed = found.rejects.to_pylist()
    assert {row["code"] for row in shed} == {"WA-1042"}
    assert found.metrics["rows_in"] == found.metrics["rows_processed"] + len(shed)
    gone = {side: {row["t"] for row in shed if row["input"] == side} for side in ("left", "right")}
    taken = [
        table.filter(pa.array([t not in gone[side] for t in table["t"].to_pylist()]))
        for side, table in (("left", left), ("right", right))
    ]
    expected = run(query, taken).output
    assert expected.num_rows > n // 4
    assert multiset.rows(found.output, expected.column_names) == multiset.rows(expected)


def test_an_input_column_called_event_time_clashes_on_a_stream() -> None:
    rows = pa.schema({"t": pa.int64(), "event_time": pa.int64()})
    query = AsofJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), lateness=0, how="left_anti")
    with pytest.raises(wa.QueryError, match="WA-2009"):
        query.operator([rows, rows], streaming=True)
    assert query.operator([rows, rows], streaming=False).output_schema.names[-1] == "none_probability"


def test_a_row_ten_years_old_answers_after_a_million_rows_of_other_keys() -> None:
    """From a state that is bytes, and has one right row of each key beside those of the last step."""
    years, blocks, size, keys = 10 * 365 * 86_400_000_000, 100, 10_000, 1_000
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})
    query = AsofJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), on="k", lateness=0)
    operator, store, random = query.operator([schema] * 2, streaming=True), DictStore(), np.random.default_rng(5)

    def step(input: int, key: object, times: object, watermark: int) -> list[dict[str, object]]:
        rows = pa.record_batch([pa.array(key, pa.int64()), pa.array(times, pa.int64())], schema=schema)
        done = operator.step(store, [Arrival(input, operator.readers[input].read(rows).block)], watermark)
        return [row for batch in done.output for row in batch.to_pylist()]

    step(1, [-1], [0], -1)
    for number in range(blocks):
        times = np.sort(random.integers(number * years // blocks, (number + 1) * years // blocks, size))
        step(1, random.integers(0, keys, size), times, number * years // blocks)
        assert operator.rows_held(store) <= 1 + keys + 2 * size
    step(0, [-1], [years], years)
    (row,) = step(1, [0], [years + 2], years + 1)
    assert (row["k"], row["t_left"], row["t_right"]) == (-1, years, 0)
