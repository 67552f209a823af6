"""Queries over shared extents: changes of scheme at run time, added and removed queries, and the rows kept."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.operators import OperatorDriver
from whenabouts.conformance.random_policy import RandomPolicy
from whenabouts.core import EngineError, InputError, QueryError
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import Outcome, run, run_stream
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode
from whenabouts.core.shared_coalescing.catalog import PARTS, Catalog
from whenabouts.core.shared_coalescing.columns import QUERY
from whenabouts.core.shared_coalescing.operator import _definition
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.state.memory_store import DictStore, StorePart
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate

SECOND = 1_000_000
STEPS = 24


def _files(seed: int) -> list[pa.Table]:
    """Readings out of order by up to 4 s, in files of 10 s."""
    draw = random.Random(seed)
    rows = sorted((at + draw.randrange(5), at) for at in (draw.randrange(STEPS * 10) for _ in range(600)))
    files = []
    for number in range(STEPS):
        mine = [at for late, at in rows if number * 10 <= late < number * 10 + 10]
        n = len(mine)
        files.append(
            pa.table(
                {
                    "t": pa.array([at * SECOND for at in mine], pa.int64()),
                    "k": pa.array([draw.choice("ab") for _ in range(n)], pa.string()),
                    "v": pa.array([draw.choice([1, 1, 1, 2]) for _ in range(n)], pa.int64()),
                    "w": pa.array([draw.choice([1, 2]) for _ in range(n)], pa.int64()),
                }
            )
        )
    return files


GIVEN: dict[str, Any] = {"time": "t", "lateness": "5 s"}
QUERIES: dict[str, Coalesce] = {
    "short": Coalesce(**GIVEN, group="k", values="v", window="20 s", slide="5 s"),
    "long": Coalesce(**GIVEN, group="k", values="w", window="70 s", slide="10 s", equivalence="absolute_tolerance:0.5"),
    "sums": TemporalAggregate(
        **GIVEN, group="k", values=["v", "w"], window="40 s", slide="10 s", aggregates={"longest": "max"}
    ),
    "last": Coalesce(**GIVEN, group="k", values="v", window="30 s"),
    "again": Coalesce(**GIVEN, group="k", values="v", window="20 s", slide="5 s", closed="right"),
    "of each": Coalesce(**GIVEN, group="k", values="v", rows=9, per_group=True, slide=4),
}
ROWS: dict[str, Coalesce] = {
    "by rows": Coalesce(**GIVEN, group="k", values="v", rows=40, slide=7),
    "by time": Coalesce(**GIVEN, group=("k", "w"), values="v", rows=30, slide="10 s", equivalence="non_decreasing"),
    "sums": TemporalAggregate(**GIVEN, group="k", values="v", rows=25, slide=10, aggregates={"longest": "max"}),
    "last": Coalesce(**GIVEN, values="w", rows=50),
    "once": Coalesce(**GIVEN, group="k", values="v", rows=20, at=120 * SECOND),
    "of each": QUERIES["of each"],
    "in time": QUERIES["short"],
}
"""Windows that count rows, with different groupings, beside one that is a period of time."""


def _assert_alone(
    outcome: Outcome,
    files: list[pa.Table],
    names: tuple[str, ...] = tuple(QUERIES),
    queries: dict[str, Coalesce] = QUERIES,
) -> None:
    shared = SharedCoalescing(queries=queries)
    for name in names:
        alone = run(queries[name], [pa.concat_tables(files)]).output
        mine = outcome.output.filter(pc.equal(outcome.output[QUERY], name))
        columns = shared.columns_of(name, files[0].schema)
        assert sorted(map(repr, mine.select(columns).to_pylist())) == sorted(map(repr, alone.to_pylist())), name
    counts = outcome.metrics
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "buckets"), [(0, 1), (1, 2), (2, 1)])
def test_switching_schemes_loses_and_repeats_nothing(seed: int, buckets: int) -> None:
    files, draw = _files(seed), random.Random(seed)
    plans = [{name: draw.choice(["eager", "lazy"]) for name in QUERIES} for _ in range(STEPS)]
    queries = {
        n: SharedCoalescing(queries=QUERIES, schemes=plan) for n, plan in enumerate(plans) if draw.random() < 0.5
    }
    first = SharedCoalescing(queries=QUERIES, schemes=plans[0])
    outcome = run_stream(first, [files], buckets=buckets, changes=queries, restart_after=draw.randrange(STEPS))
    assert len(queries) > 5
    _assert_alone(outcome, files)


@pytest.mark.filterwarnings("ignore::whenabouts.core.LossyQueryWarning")
def test_another_scheme_warns_no_second_time_and_leaves_the_filters_of_warnings_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They belong to all threads: two that put them back in turn leave those of one of them for good."""
    query = Coalesce(time="t", values="v", window="1 s", slide="2 s")
    for name in ("catch_warnings", "simplefilter", "warn"):
        monkeypatch.setattr(warnings, name, None)
    lazy = query.under("lazy")
    assert (lazy.scheme, lazy.extents, query.scheme) == ("lazy", query.extents, "auto")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.SingleBucketWarning")
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_windows_that_count_rows_switch_too(seed: int) -> None:
    files, draw = _files(seed), random.Random(seed)
    plans = [{name: draw.choice(["eager", "lazy"]) for name in ROWS} for _ in range(STEPS)]
    changes = {n: SharedCoalescing(queries=ROWS, schemes=plan) for n, plan in enumerate(plans) if draw.random() < 0.5}
    first = SharedCoalescing(queries=ROWS, schemes=plans[0])
    outcome = run_stream(first, [files], changes=changes, restart_after=draw.randrange(STEPS))
    assert outcome.metrics["schemes_switched"] > 10
    _assert_alone(outcome, files, tuple(ROWS), ROWS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.SingleBucketWarning")
def test_lazy_windows_that_count_rows_share_one_extent_of_their_rows() -> None:
    """The pin of such a query used to be ignored: it kept an extent of its own."""
    files = _files(1)
    counted = {name: query for name, query in ROWS.items() if name not in ("in time", "of each")}
    lazy = SharedCoalescing(queries=counted, schemes=dict.fromkeys(counted, "lazy"))
    _, store = _after(lazy, lazy, files)
    assert {input % PARTS for input, _ in store} == {0, 1}
    driver, held, greatest = OperatorDriver(lazy, files[0].schema), [], 0
    for number, file in enumerate(files * 6):
        later = file.set_column(0, "t", pc.add(file["t"], number // STEPS * STEPS * 10 * SECOND))
        driver.feed({"events": later}, greatest - 5 * SECOND if number else NO_WATERMARK)
        greatest = max(greatest, pc.max(later["t"]).as_py())
        held.append(driver.operator.rows_held(driver.store))
    assert max(held[:STEPS]) > 100
    # "last" holds a tuple for each second, so 50 of them are 125 rows; beside them are 5 s that wait. The extent is
    # trimmed when it has doubled, but for 256 rows. In all there are 3,600.
    assert max(held) < 2 * 200 + 256
    each = SharedCoalescing(queries={"each": ROWS["of each"]}, schemes={"each": "lazy"})
    _, store = _after(each, each, files)
    assert {input % PARTS for input, _ in store} == {0, 2}


def test_equal_queries_have_one_extent_and_hand_it_on() -> None:
    files = _files(3)
    queries = {"one": QUERIES["short"], "two": QUERIES["short"]}
    both = SharedCoalescing(queries=queries, same={"two": "one"})
    two = SharedCoalescing(queries={"two": QUERIES["short"]}, schemes={"two": "lazy"})
    _, store = _after(both, both, files)
    assert len({input % PARTS for input, _ in store if input % PARTS > 1}) == 1
    outcome = run_stream(both, [files], changes={9: two})
    _assert_alone(outcome, files, ("two",), queries)
    found = run_stream(both, [files])
    _assert_alone(found, files, ("one", "two"), queries)
    assert found.metrics["coalesced.one"] == found.metrics["coalesced.two"] > 0


def test_an_extent_written_under_a_query_s_own_scheme_is_read() -> None:
    """Earlier releases did not write under which scheme an operator of its own had stored its state."""
    files = _files(2)
    asked = {"own": Coalesce(**GIVEN, group="k", values="v", window="20 s", slide="5 s", scheme="lazy")}
    lazy = SharedCoalescing(queries=asked)
    store, greatest, output = DictStore(), 0, []
    for number, file in enumerate(files):
        if number == 8:  # the state of the operator alone, as the part of a query that is eager by plan
            lazy = SharedCoalescing(queries=asked, schemes={"own": "eager"})
            catalog = Catalog.read(StorePart(store, 0, PARTS))
            catalog.queries["own"].own = None
            catalog.write()
        if number == 0:
            catalog = Catalog.read(StorePart(store, 0, PARTS))
            catalog.add("own", "eager", _definition(asked["own"]), None)
            catalog.write()
        driver = OperatorDriver(lazy, file.schema, store)
        output += driver.feed({"events": file}, greatest - 5 * SECOND if number else NO_WATERMARK).output
        greatest = max(greatest, pc.max(file["t"]).as_py())
    output += driver.feed({}, greatest, FlushMode.END).output
    assert Catalog.read(StorePart(store, 0, PARTS)).queries["own"].own == "eager"
    alone = run(asked["own"], [pa.concat_tables(files)]).output
    mine = pa.Table.from_batches(output).select(alone.column_names)
    assert sorted(map(repr, mine.to_pylist())) == sorted(map(repr, alone.to_pylist()))


@pytest.mark.slow
@given(
    st.integers(0, 2**16),
    st.integers(0, 2**16),
    st.sampled_from([1, 20 * SECOND, 90 * SECOND]),
    st.integers(1, 3),
    st.none() | st.integers(0, STEPS - 1),
)
@settings(max_examples=6, deadline=None)
def test_schemes_decided_in_the_buckets_lose_and_repeat_nothing(
    data: int, seed: int, every_us: int, buckets: int, restart_after: int | None
) -> None:
    files = _files(data)
    changing = SharedCoalescing(queries=QUERIES, adapting=RandomPolicy(seed, every_us))
    _assert_alone(run_stream(changing, [files], buckets=buckets, restart_after=restart_after), files)


@pytest.mark.slow
@pytest.mark.parametrize(("every_us", "switches"), [(1, 20), (20 * SECOND, 8), (1000 * SECOND, 0)])
def test_how_often_schemes_are_switched(every_us: int, switches: int) -> None:
    outcome = run_stream(SharedCoalescing(queries=QUERIES, adapting=RandomPolicy(5, every_us)), [_files(5)])
    assert outcome.metrics["schemes_switched"] >= switches
    assert switches or not outcome.metrics["schemes_switched"]


@pytest.mark.slow
def test_a_switch_frees_what_is_needed_no_longer() -> None:
    files = _files(1)
    queries = {name: query for name, query in QUERIES.items() if query.rows is None}
    lazy = SharedCoalescing(queries=queries, schemes=dict.fromkeys(queries, "lazy"))
    eager = SharedCoalescing(queries=queries)
    for start, end in ((lazy, eager), (eager, lazy)):
        counts, stores = zip(*(_after(first, end, files) for first in (end, start)), strict=True)
        assert (
            counts[0]["rows_stored"] - counts[0]["rows_evicted"] == counts[1]["rows_stored"] - counts[1]["rows_evicted"]
        )
        shared = [sum(len(data) for (input, _), data in store.items() if input % PARTS == 1) for store in stores]
        own = [sum(len(data) for (input, _), data in store.items() if input % PARTS > 1) for store in stores]
        if end is lazy:
            assert (own, shared[0] > 1000) == ([0, 0], True)
        else:
            assert shared[1] < 1000 < own[1]


def _after(first: SharedCoalescing, then: SharedCoalescing, files: list[pa.Table]) -> tuple[Any, dict[Any, bytes]]:
    """The counts and the segments of a run under one plan, which changes to another one at the ninth file."""
    store, counts, greatest = DictStore(), Counter[str](), 0
    for number, file in enumerate(files):
        driver = OperatorDriver(first if number < 8 else then, file.schema, store)
        counts += driver.feed({"events": file}, greatest - 5 * SECOND if number else NO_WATERMARK).metrics
        greatest = max(greatest, pc.max(file["t"]).as_py())
    return counts, store._segments


@pytest.mark.slow
def test_queries_come_and_go_without_touching_the_others() -> None:
    files = _files(2)
    some = {name: query for name, query in QUERIES.items() if name != "again"}
    for schemes in ({}, dict.fromkeys(QUERIES, "lazy")):
        few = SharedCoalescing(queries=some, schemes={name: s for name, s in schemes.items() if name in some})
        every = SharedCoalescing(queries=QUERIES, schemes=schemes)
        outcome = run_stream(every, [files], changes={6: few, 12: every})
        _assert_alone(outcome, files, tuple(some))
        again = outcome.output.filter(pc.equal(outcome.output[QUERY], "again"))["window_end"]
        assert pc.count_distinct(again).as_py() < 2 * STEPS - 8  # nothing for the time in between
        assert pc.max(again).as_py() >= (STEPS - 1) * 10 * SECOND


def test_queries_that_would_move_groups_to_other_buckets_are_refused() -> None:
    """Group columns that all queries have say in which bucket a row is, so that with several they must stay."""
    rows = {"t": [1, 2, 3], "k": [1, 2, 3], "g": [1, 2, 3], "v": [1, 2, 3]}
    files = [pa.table(rows), pa.table(rows | {"t": [4, 5, 6]})]
    by_both = Coalesce(time="t", group=("k", "g"), values="v", window=4, slide=2)
    by_one = Coalesce(time="t", group="k", values="v", window=4, slide=2)
    first = SharedCoalescing(queries={"both": by_both})
    then = SharedCoalescing(queries={"both": by_both, "one": by_one})
    with pytest.raises(EngineError, match=r"WA-3032: .* the group columns that all queries have was k, g and is k "):
        run_stream(first, [files], changes={1: then}, buckets=2)
    assert run_stream(first, [files], changes={1: then}).output.num_rows > 0


def test_what_cannot_share_is_refused() -> None:
    for queries, schemes, told in [
        ({}, {}, "no queries"),
        ({"a": 5}, {}, "query 'a' is 5"),
        ({"a": QUERIES["short"], "b": Coalesce(time="u", values="v", lateness="5 s")}, {}, "differ in time"),
        ({"a": QUERIES["short"], "b": Coalesce(time="t", values="v")}, {}, "differ in lateness"),
        ({"a": QUERIES["short"]}, {"a": "idle"}, "scheme of 'a' is 'idle'"),
        ({"a": QUERIES["short"]}, {"b": "lazy"}, "scheme of 'b'"),
        ({"a": Coalesce(**GIVEN, values="v", scheme="eager")}, {"a": "lazy"}, "no window"),
    ]:
        with pytest.raises(QueryError, match=f"WA-2006: .*{told}"):
            SharedCoalescing(queries=queries, schemes=schemes)
    with pytest.raises(InputError, match="WA-1001"):
        SharedCoalescing(queries=QUERIES).operator([pa.schema({"t": pa.int64()})], streaming=True)
    clash = {
        "a": QUERIES["short"],
        "b": TemporalAggregate(**GIVEN, group="k", values="w", window="1 s", aggregates={"n": "avg"}),
    }
    with pytest.raises(QueryError, match=r"WA-2009: column 'n' is double in query 'b'"):
        SharedCoalescing(queries=clash).operator([_files(1)[0].schema], streaming=True)


@pytest.mark.parametrize("scheme", ["lazy", "eager"])
@pytest.mark.parametrize("changes", [False, True])
def test_a_row_that_loses_outside_of_every_window_is_rejected(scheme: str, changes: bool) -> None:
    """A lazy query holds rows until the watermark has passed them, whether or not they are in its window. Which of two
    rows of an instant loses is decided then, under the current scheme."""
    by_room = Coalesce(time="t", group="room", values="v", window=10, at=100, lateness=5)
    by_both = Coalesce(time="t", group=("room", "side"), values="v", window=10, at=100, lateness=5)

    def query(scheme: str) -> SharedCoalescing:
        return SharedCoalescing(queries={"room": by_room, "both": by_both}, schemes={"room": scheme, "both": "eager"})

    def file(*t: int) -> pa.Table:
        return pa.table({"t": t, "room": ["a"] * len(t), "side": list("xyz"[: len(t)]), "v": range(len(t))})

    files = [file(1, 1, 3), file(4), file(50), file(120)]
    other = "eager" if scheme == "lazy" else "lazy"
    outcome = run_stream(query(scheme), [files], changes={1: query(other)} if changes else None)
    expected = run(query(scheme), [pa.concat_tables(files)])
    assert outcome.rejects.num_rows == expected.rejects.num_rows == 1
    assert outcome.rejects.equals(expected.rejects)
