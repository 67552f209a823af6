"""As-of joins of streams, step by step: when rows come out, what state holds, and what a changed query may continue."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import run, run_stream
from whenabouts.core.runtime.protocol import Arrival, FlushMode
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_codec import unwrap, wrap
from whenabouts.core.state.segment_layout import DIRECTORY

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


@pytest.mark.parametrize(
    ("direction", "first", "then"),
    [("backward", None, 10), ("backward", 60, 7), ("forward", 60, 7), ("forward", 7, 60), ("nearest", 60, 7)],
)
def test_each_left_row_has_the_tolerance_of_the_step_that_settles_it(
    direction: str, first: int | None, then: int
) -> None:
    """When a row is settled, and with what, is a function of the data and the tolerance, which two plain runs show."""
    left, right = _side(1, 240), _side(2, 120)  # the right input falls silent
    queries = [_query(direction=direction, tolerance=tolerance) for tolerance in (first, then)]
    schemas = [left.schema, right.schema]
    answers = [_answers(query, left, right) for query in queries]
    for at in range(1, 12):
        store, seen, out, watermark = DictStore(), [-(1 << 60)] * 2, [], -(1 << 60)
        for number in range(12):
            query = queries[number >= at]
            operator = query.operator(schemas, streaming=True)
            cut = [left.slice(20 * number, 20), right.slice(20 * number, 20)]
            arrivals = []
            for input, rows in enumerate(cut):
                if rows.num_rows:
                    arrivals.append(Arrival(input, operator.readers[input].read(rows.to_batches()[0]).block))
                    seen[input] = max(seen[input], max(rows["t1"].to_pylist()))
            before = watermark
            watermark = min(seen) - 5 if right.num_rows > 20 * number else seen[0] - 5
            expected = {
                row: answer
                for row, (event_time, answer) in answers[number >= at].items()
                if event_time <= watermark and row < 20 * (number + 1) and row not in {each for each, _ in out}
            }
            found = []
            for given, us in ((arrivals, before), ([], watermark)):
                step = operator.step(store, given, us)
                assert step.timer_us is None or step.timer_us > us
                found += [row for batch in step.output for row in pa.table(batch).to_pylist()]
            assert {row["id1"]: _answer(row) for row in found} == expected
            assert len(found) == len(expected)
            out += expected.items()
        end = queries[1].operator(schemas, streaming=True).step(store, [], watermark, FlushMode.END)
        out += [(row["id1"], _answer(row)) for batch in end.output for row in batch.to_pylist()]
        assert sorted(row for row, _ in out) == list(range(240))
        assert all(answer in (answers[0][row][1], answers[1][row][1]) for row, answer in out)


def _answers(query: AsofJoin, left: pa.Table, right: pa.Table) -> dict[int, tuple[int, tuple[object, ...]]]:
    """Of each left row the instant at which it is settled, and its answer."""
    store, operator = DictStore(), query.operator([left.schema, right.schema], streaming=True)
    arrivals = [
        Arrival(input, operator.readers[input].read(rows.to_batches()[0]).block)
        for input, rows in enumerate((left, right))
    ]
    operator.step(store, arrivals, -(1 << 60))
    step = operator.step(store, [], 1 << 40)
    rows = [row for batch in step.output for row in batch.to_pylist()]
    times = [us for batch in step.output for us in batch.column("event_time").cast(pa.int64()).to_pylist()]
    return {row["id1"]: (us, _answer(row)) for row, us in zip(rows, times, strict=True)}


def _answer(row: dict[str, object]) -> tuple[object, ...]:
    return row["id2"], row["probability"], row["none_probability"]


@pytest.mark.parametrize("direction", ["forward", "nearest"])
def test_a_shorter_tolerance_keeps_the_rows_that_wait_where_no_right_row_comes(direction: str) -> None:
    """Row (a, 0) waits 10 s from step 0; from step 2 on 4 s, and its bucket gets no right row."""
    s, fillers = 1_000_000, (0, 1, 5, 6, 30)
    left = [pa.table({"k": ["z"] + ["a"] * (n == 0), "t": [at * s] + [0] * (n == 0)}) for n, at in enumerate(fillers)]
    right = [pa.table({"k": ["z"], "t": [at * s]}) for at in fillers[:2]]
    given = {"left_time": wa.Point("t"), "right_time": wa.Point("t"), "on": "k", "direction": direction}
    first, then = (AsofJoin(**given, tolerance=tolerance, lateness=0) for tolerance in ("10 s", "4 s"))  # type: ignore[arg-type]
    for buckets in (1, 3):
        for step in range(5):
            found = run_stream(first, [left, right], changes={step: then}, buckets=buckets).output
            assert sorted(found["t_left"].to_pylist()) == [0, 0, s, 5 * s, 6 * s, 30 * s]


def test_a_longer_tolerance_counts_for_the_rows_that_still_wait() -> None:
    """Row (a, 0) is open when the tolerance changes from 4 s to 10 s, and (a, 8) comes after 4 s."""
    s, fillers = 1_000_000, (0, 1, 5, 6, 30)
    left, right = (
        [
            pa.table({"k": ["z"] + ["a"] * (n == row), "t": [x * s] + [at * s] * (n == row)})
            for n, x in enumerate(fillers)
        ]
        for row, at in ((0, 0), (4, 8))
    )
    given = {"left_time": wa.Point("t"), "right_time": wa.Point("t"), "on": "k", "direction": "forward", "lateness": 0}
    first, then = (AsofJoin(**given, tolerance=tolerance) for tolerance in ("4 s", "10 s"))  # type: ignore[arg-type]
    partners = []
    for changes in ({}, {4: then}, {3: then}, {0: then}):
        found = run_stream(first, [left, right], changes=changes).output.to_pylist()
        partners += [row["t_right"] for row in found if row["k"] == "a"]
    assert partners == [None, None, 8 * s, 8 * s]  # it is settled in step 3


def test_a_tolerance_may_become_longer_only_while_no_right_row_was_dropped() -> None:
    left, right = _side(1), _side(2)
    files = [[table.slice(40 * n, 40) for n in range(10)] for table in (left, right)]
    for direction in ("backward", "nearest"):
        short, long = (_query(direction=direction, tolerance=tolerance) for tolerance in (10, 500))
        with pytest.raises(wa.EngineError, match="WA-3006"):
            run_stream(short, files, changes={5: long}, restart_after=5)


def test_a_state_of_an_earlier_release_gets_its_marks_again() -> None:
    """It did not say the tolerance by which it had made them."""
    left, right = _side(1), _side(2)
    query, store = _query(**OPTIONS["forward"]), DictStore()
    operator = query.operator([left.schema, right.schema], streaming=True)
    blocks = [operator.readers[n].read(table.to_batches()[0]).block for n, table in enumerate((left, right))]
    operator.step(store, [Arrival(0, blocks[0]), Arrival(1, blocks[1])], -(1 << 60))
    operator.step(store, [], 100)
    directory = json.loads(bytes(unwrap(store.get(DIRECTORY, 0))))
    assert directory["notes"][6:] == [20, PI, PI]
    directory["notes"] = directory["notes"][:6]
    store.put(DIRECTORY, 0, wrap(json.dumps(directory).encode()))
    shorter = _query(direction="forward", tolerance=7).operator([left.schema, right.schema], streaming=True)
    step = shorter.step(store, [], 5_000)
    expected = {row: answer for row, (us, answer) in _answers(shorter.query, left, right).items() if us > 100}
    found = {row["id1"]: _answer(row) for batch in step.output for row in batch.to_pylist()}
    assert expected.items() <= found.items()
    assert len(found) < left.num_rows


@pytest.mark.parametrize(
    "other",
    [
        {"direction": "nearest"}, {"allow_exact_matches": False}, {"how": "inner"}, {"order_by": "id2"}, {"on": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_decides_the_state_may_not_change(other: dict[str, object]) -> None:
    sides = [_side(1), _side(2)]
    schemas, first, then = [side.schema for side in sides], _query(tolerance=20), _query(tolerance=20, **other)
    before = identity_of(first, schemas, 4).to_json()
    with pytest.raises(wa.EngineError, match=f"WA-3032.*{next(iter(other))} was"):
        identity_of(then, schemas, 4).check(before)
    with pytest.raises(wa.EngineError, match=f"WA-3032.*{next(iter(other))} was"):
        run_stream(first, [[side, side] for side in sides], changes={1: then})
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


class _CountingStore(DictStore):
    """Counts the segments that are read."""

    reads = 0

    def get(self, input: int, slot: int) -> bytes | None:
        self.reads += 1
        return super().get(input, slot)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("ahead", ["left", "right"])
def test_a_step_reads_the_rows_around_those_that_arrive_however_many_wait(direction: str, ahead: str) -> None:
    """One input is a day ahead of the other one."""
    second, steps = 1_000_000, 40
    schema = pa.schema({"t": pa.int64()})
    query = AsofJoin(
        left_time=wa.Point("t"), right_time=wa.Point("t"), direction=direction, tolerance="2 s", lateness=0
    )
    operator, store = query.operator([schema] * 2, streaming=True), _CountingStore()
    blocks = [
        operator.readers[0].read(pa.record_batch({"t": np.arange(100 * n, 100 * (n + 1)) * second})).block
        for n in range(steps)
    ]
    first = 0 if ahead == "left" else 1
    for block in blocks:
        operator.step(store, [Arrival(first, block)], -(1 << 60))
    reads, out = [], 0
    for number, block in enumerate(blocks):
        store.reads = 0
        for arrivals, watermark in (
            ([Arrival(1 - first, block)], 100 * number * second),
            ([], 100 * (number + 1) * second),
        ):
            step = operator.step(store, arrivals, watermark)
            out += sum(batch.num_rows for batch in step.output)
        reads.append(store.reads)
    assert out > 100 * (steps - 2)
    assert max(reads) < 30
