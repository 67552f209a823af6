"""Early answers step by step: what can be read between steps, what survives a restart, what is counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.conformance import coalescing_oracle as scratch
from whenabouts.conformance import multiset
from whenabouts.conformance.change_rows import ChangedRows, applied
from whenabouts.conformance.coalescing_answers import answer
from whenabouts.conformance.coalescing_generators import CoalescingExample, arrivals, coalescings
from whenabouts.core import EngineError, Point, QueryError
from whenabouts.core.coalescing import early_evaluator, early_index
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import run
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Step
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.window_cache import window_cache
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::whenabouts.core.SingleBucketWarning"),
    pytest.mark.filterwarnings("ignore::whenabouts.core.LossyQueryWarning"),
]


class Stream:
    """One bucket of a stream, step by step; the watermark follows the rows that came before."""

    def __init__(self, query: Coalesce, schema: pa.Schema) -> None:
        self.query = query
        self.operator = query.operator([schema], streaming=True)
        self.store, self.greatest, self.watermark_us = DictStore(), NO_WATERMARK, NO_WATERMARK
        self.metrics: Counter[str] = Counter()
        self.gauges: dict[str, int] = {}

    def take(self, rows: pa.Table, *, ends: bool = False) -> pa.Table:
        """What a step gives."""
        blocks = [self.operator.readers[0].read(batch).block for batch in rows.to_batches()]
        arrived = [Arrival(0, block) for block in blocks if block.num_rows]
        latest = [int(value) for block in blocks for value in block.column(1).to_pylist()]
        self.greatest = max([self.greatest, *latest])
        demand = FlushMode.END if ends else FlushMode.NOTHING
        step: Step = self.operator.step(self.store, arrived, self.watermark_us, demand, self.greatest)
        self.metrics += step.metrics
        self.gauges = step.gauges
        if self.greatest != NO_WATERMARK:
            self.watermark_us = max(self.watermark_us, self.greatest - self.query.lateness_us[0])
        return pa.Table.from_batches(step.output, self.operator.output_schema)


def early(query: Coalesce) -> Coalesce | None:
    """The query with early answers, if it can have them."""
    return None if query.extents.slide_rows is not None else replace(query, emit="early", scheme="auto")


def final_so_far(query: Coalesce, files: Sequence[pa.Table]) -> Counter[Any]:
    """The final rows if the stream ended after these files."""
    stream = Stream(replace(query, emit="final"), files[0].schema)
    rows: Counter[Any] = Counter()
    for file in files:
        rows += multiset.rows(stream.take(file))
    return rows + multiset.rows(stream.take(files[0].slice(0, 0), ends=True))


@contextmanager
def rows_kept(most: int, least: int) -> Iterator[None]:
    """Settled tuples are kept as rows, and not written a second time, while they are few: these are few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early_evaluator, "_ROWS_KEPT", most)
        patch.setattr(early_evaluator, "LEAST_ROWS", least)
        yield


@settings(max_examples=150, deadline=None)
@given(st.data(), coalescings(), st.integers(0, 2**16))
def test_at_each_step_the_rows_are_those_of_a_stream_that_ends_there(
    data: st.DataObject, example: CoalescingExample, seed: int
) -> None:
    """Whatever is lost in memory, and whichever steps are done twice."""
    query, draw = early(example.query), random.Random(seed)
    if query is None:
        return
    files = data.draw(arrivals(example))["events"]
    stream, table = Stream(query, files[0].schema), ChangedRows(query.coalescing.group)
    for number, file in enumerate(files):
        if draw.random() < 0.3:
            window_cache().clear()
        if draw.random() < 0.3:
            before = stream.store.copy(), stream.greatest, stream.watermark_us
            stream.take(file.slice(0, draw.randint(0, file.num_rows)))  # lost before the commit
            stream.store, stream.greatest, stream.watermark_us = before
        with rows_kept(*draw.choice(((3, 256), (1, 0), (2, 4)))):
            table.apply(stream.take(file))
        expected = final_so_far(query, files[: number + 1])
        multiset.assert_same(table.counted, expected, f"rows after step {number}", {"query": query, "files": files})
    table.apply(stream.take(files[0].slice(0, 0), ends=True))
    expected = answer(replace(query, emit="final"), example.table).rows
    multiset.assert_same(table.counted, expected, "rows at the end", {"query": query, "files": files})


OPTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "all, near values": {"equivalence": "absolute_tolerance:1", "valid_last": True},
    "all, rising": {"equivalence": "non_decreasing", "group": ()},
    "all, up to an instant": {"at": 300},
    "slides": {"window": 60, "slide": 25},
    "slides, near values": {"window": 60, "slide": 25, "closed": "right", "equivalence": "absolute_tolerance:1"},
    "slides with gaps": {"window": 10, "slide": 40, "valid_last": True},
    "at an instant": {"window": 120, "at": 300},
    "last window": {"window": 60},
    "rows": {"rows": 20, "slide": "25us", "valid_last": True},
    "rows of each group": {"rows": 6, "per_group": True, "slide": "25us"},
    "last rows": {"rows": 20},
    "last rows of each group": {"rows": 6, "per_group": True},
    "rows at an instant": {"rows": 20, "at": 300},
}
LATENESS_US = 40


def query_of(name: str, **options: Any) -> Coalesce:
    """A query of `OPTIONS`."""
    by_group = {"group": "g", "time": "t", "values": "v", "lateness": LATENESS_US}
    return Coalesce(**(by_group | OPTIONS[name] | options))


def readings(seed: int, files: int = 25, rows: int = 24) -> list[pa.Table]:
    """Files of a stream: runs of values, rows out of order within the lateness, repeats and conflicts."""
    draw = random.Random(seed)
    found: list[tuple[int, str, int, float, int]] = []
    for id_ in range(files * rows):
        at = id_ + draw.choice((0, 0, 0, 40)) * (id_ % 97 == 0)
        group = draw.choice("bbc" if id_ < 100 else "abb")  # groups do not appear in their order
        value = draw.choice((0.0, -0.0, 1.0, 2.0)) if draw.random() < 0.15 else float(id_ // 31 % 3)
        comes = at + draw.randint(0, LATENESS_US - 1) * (draw.random() < 0.3)
        found += [(comes, group, at, value, id_)] * draw.choice((1, 1, 1, 1, 1, 1, 2))
        if draw.random() < 0.04:
            found.append((comes + 1, group, at, value + 1, -id_))
    found.sort(key=lambda row: row[0])
    size = -(-len(found) // files)
    schema = pa.schema({"id": pa.int64(), "g": pa.string(), "t": pa.int64(), "v": pa.float64()})
    cut = [found[start : start + size] for start in range(0, len(found), size)]
    return [
        pa.Table.from_pylist([{"id": id_, "g": g, "t": t, "v": v} for _, g, t, v, id_ in part], schema) for part in cut
    ]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_longer_stream_can_be_read_at_any_time(name: str, seed: int) -> None:
    """At each step the rows are those from scratch over what has arrived, with and without what memory holds."""
    draw, files, query = random.Random(seed), readings(seed), query_of(name, emit="early")
    stream, table = Stream(query, files[0].schema), ChangedRows(query.coalescing.group)
    for number, file in enumerate(files):
        if draw.random() < 0.2:
            window_cache().clear()
        if draw.random() < 0.2:
            before = stream.store.copy(), stream.greatest, stream.watermark_us
            stream.take(file.slice(draw.randint(0, file.num_rows)))  # lost before the commit
            stream.store, stream.greatest, stream.watermark_us = before
        with rows_kept(*((3, 256) if seed == 1 else draw.choice(((1, 0), (2, 30), (3, 256))))):
            table.apply(stream.take(file))
        expected = answer(replace(query, emit="final"), pa.concat_tables(files[: number + 1])).rows
        multiset.assert_same(table.counted, expected, f"rows after step {number}")
    assert stream.metrics["rows_late"] == 0
    assert table.rows
    assert not stream.take(files[0].slice(0, 0), ends=True).num_rows, "the end changes nothing"


@pytest.mark.parametrize("name", ["last rows", "rows at an instant"])
def test_of_tuples_at_one_time_the_last_groups_are_in_a_window_of_rows(name: str) -> None:
    """The window begins between groups, and moves on from there; the groups come in no order."""
    files = [
        pa.table(
            {
                "g": ["c", "a", "d", "b"][: 4 - step % 3],
                "t": [step * 10] * (4 - step % 3),
                "v": [step // 2] * (4 - step % 3),
            }
        )
        for step in (0, 1, 2, 3, 4, 6, 5, 7, 8, 10, 9, 11)
    ]
    query = query_of(name, emit="early", **{"rows": 6, **({"at": 90} if "at" in OPTIONS[name] else {})})
    stream, table = Stream(query, files[0].schema), ChangedRows(query.coalescing.group)
    for number, file in enumerate(files):
        table.apply(stream.take(file))
        multiset.assert_same(table.counted, final_so_far(query, files[: number + 1]), f"rows after step {number}")


@pytest.mark.parametrize("name", ["all", "at an instant", "rows at an instant", "last rows of each group"])
def test_a_smaller_row_at_the_time_of_another_takes_its_place(name: str) -> None:
    """Also if nothing else arrives."""
    query = query_of(name, emit="early")
    schema = pa.schema({"id": pa.int64(), "g": pa.string(), "t": pa.int64(), "v": pa.int64()})
    first = pa.table({"id": [2, 3], "g": ["a"] * 2, "t": [290, 291], "v": [0, 0]}, schema=schema)
    second = pa.table({"id": [1], "g": ["a"], "t": [291], "v": [7]}, schema=schema)
    stream, table = Stream(query, schema), ChangedRows(query.coalescing.group)
    for file in (first, second):
        table.apply(stream.take(file))
    multiset.assert_same(table.counted, final_so_far(query, [first, second]), "rows")
    assert sorted(row[1] for row in table.rows.values()) == [0, 7]


class ScalarExtent:
    """Algorithm 2 of Al-Kateb 2010 for a time-based window, tuple by tuple, with its slips corrected.

    A run is its time vector with the values; `counts` are the calls of `mergeTuples` and `splitTuple`, and the times
    that are attached to a vector and detached from one.
    """

    def __init__(self, goes_on: Any) -> None:
        self.goes_on = goes_on
        self.groups: dict[str, list[list[tuple[int, float]]]] = {}
        self.counts = Counter(runs_merged=0, runs_split=0, tuples_attached=0, tuples_detached=0)

    def arrive(self, group: str, time: int, value: float) -> None:
        """A new tuple, whose time no other tuple of its group has."""
        runs = self.groups.setdefault(group, [])
        new = (time, value)
        at = sum(run[0][0] < time for run in runs) - 1  # the run that begins before it
        if at >= 0 and time < runs[at][-1][0]:
            target = runs[at]
            cut = sum(t < time for t, _ in target)
            if self.goes_on(target[cut - 1][1], value) and self.goes_on(value, target[cut][1]):
                self._merge(target, cut, new)
                return
            runs[at : at + 1] = [target[:cut], target[cut:]]
            self.counts["runs_split"] += 1
        before, after = runs[at] if at >= 0 else None, runs[at + 1] if at + 1 < len(runs) else None
        follows = before is not None and self.goes_on(before[-1][1], value)
        leads = after is not None and self.goes_on(value, after[0][1])
        if before is not None and follows:
            self._merge(before, len(before), new)
            if after is not None and leads:
                runs[at : at + 2] = [before + after]
                self.counts["runs_merged"] += 1
        elif after is not None and leads:
            self._merge(after, 0, new)
        else:
            runs.insert(at + 1, [new])

    def _merge(self, run: list[tuple[int, float]], at: int, new: tuple[int, float]) -> None:
        run.insert(at, new)
        self.counts["runs_merged"] += 1
        self.counts["tuples_attached"] += 1

    def expire(self, before: int) -> None:
        """The oldest tuples leave."""
        for runs in self.groups.values():
            while runs and runs[0][0][0] < before:
                self.counts["tuples_detached"] += len(runs[0]) > 1
                runs[0].pop(0)
                if not runs[0]:
                    runs.pop(0)


@pytest.mark.parametrize("equivalence", ["equal", "absolute_tolerance:1", "increasing"])
def test_merges_splits_and_detached_tuples_are_those_of_the_papers_algorithm(equivalence: str) -> None:
    draw = random.Random(7)
    at = sorted(draw.sample(range(2_000), 700), key=lambda t: t + draw.choice((0, 0, 35)))
    rows = [(draw.choice("ab"), t, float(draw.choice((t // 90, t // 90, draw.randint(0, 3))))) for t in at]
    query = query_of("slides", emit="early", equivalence=equivalence)
    kind, bound = query.coalescing.equivalence.kind, query.coalescing.equivalence.bound
    paper = ScalarExtent(lambda a, b: scratch.equivalent(kind, bound, a, b))
    stream = Stream(query, pa.schema({"g": pa.string(), "t": pa.int64(), "v": pa.float64()}))
    for g, t, v in rows:
        until = stream.watermark_us
        stream.take(pa.table({"g": [g], "t": [t], "v": [v]}))
        paper.arrive(g, t, v)
        if until != NO_WATERMARK:
            paper.expire(-(-until // 25) * 25 - 60)  # the oldest extent that is open
    assert all(paper.counts.values())
    assert {name: stream.metrics[name] for name in paper.counts} == paper.counts


def test_tuples_that_arrive_together_are_counted_by_their_net_effect() -> None:
    """A tuple that would split a run is not counted as a split if the next one of its step ends it."""
    schema = pa.schema({"g": pa.string(), "t": pa.int64(), "v": pa.float64()})
    one, two = (Stream(query_of("all", emit="early", equivalence="increasing"), schema) for _ in range(2))
    for stream in (one, two):
        stream.take(pa.table({"g": ["a", "a"], "t": [0, 9], "v": [0.0, 5.0]}))
    late = pa.table({"g": ["a", "a"], "t": [4, 5], "v": [1.0, 2.0]})
    changes = one.take(late)
    assert (one.metrics["runs_split"], one.metrics["tuples_attached"]) == (0, 3)
    for row in (1, 0):
        changes = two.take(late.slice(row, 1))
    assert (two.metrics["runs_split"], two.metrics["tuples_attached"]) == (0, 3)
    assert changes["op"].to_pylist() == ["update_before", "update_after"]


def test_changes_that_a_step_reverts_are_not_emitted() -> None:
    """Values that are replaced by equal ones, and repeats, change nothing."""
    query = query_of("slides", emit="early")
    files = readings(3, files=2)
    stream = Stream(query, files[0].schema)
    stream.take(files[0])
    repeated = files[0].filter(pa.array([t >= stream.watermark_us for t in files[0]["t"].to_pylist()]))
    assert repeated.num_rows
    assert not stream.take(repeated).num_rows
    row = {"id": 5, "g": "a", "t": stream.greatest, "v": 9.0}
    stream.take(pa.Table.from_pylist([row], files[0].schema))
    same = stream.take(pa.Table.from_pylist([row | {"id": 4}], files[0].schema))
    assert not same.num_rows, "the smaller row replaces it, and looks the same"


@pytest.mark.parametrize("name", ["all", "slides", "rows of each group", "last window"])
def test_state_and_memory_are_bounded_by_what_is_open(name: str) -> None:
    query = query_of(name, emit="early")
    final, sizes, held = Stream(replace(query, emit="final"), readings(1)[0].schema), [], []
    stream = Stream(query, readings(1)[0].schema)
    for file in readings(1, files=60):
        stream.take(file)
        final.take(file)
        if query.rows is None:  # the log of a window of rows is rewritten when it has doubled
            least = early_evaluator.LEAST_ROWS  # up to which rows are not written as runs
            assert stream.gauges["state_rows_events"] <= 1.2 * final.gauges["state_rows_events"] + least
        sizes.append(stream.store.bytes_held)
        held.append(window_cache().nbytes)
        window_cache().clear()
    assert max(sizes[30:]) <= 1.2 * max(sizes[:30])
    assert max(held[30:]) <= 1.2 * max(held[:30])


@pytest.mark.parametrize("name", ["all", "slides"])
def test_a_window_in_memory_after_other_rows_is_not_used(name: str) -> None:
    """Two steps from one checkpoint leave the same progress; what waits differs, and so do the windows."""
    first = readings(4)[0]
    stream = Stream(query_of(name, emit="early"), first.schema)

    def step(t: int, v: float) -> Counter[Any]:
        return multiset.rows(stream.take(pa.Table.from_pylist([{"id": 1, "g": "a", "t": t, "v": v}], first.schema)))

    stream.take(first)
    at, begun, watermark_us = stream.greatest, stream.store.copy(), stream.watermark_us
    step(at + 1, 1.0)
    kept = stream.store.copy()
    stream.store, stream.greatest, stream.watermark_us = begun, at, watermark_us
    step(at + 1, 2.0)
    found = []
    for forgets in (False, True):
        if forgets:
            window_cache().clear()
        stream.store, stream.greatest, stream.watermark_us = kept.copy(), at + 1, watermark_us
        found.append(step(at + 2, 1.0))
    assert found[0] == found[1]


def test_rows_outside_of_the_only_window_are_not_held_in_memory() -> None:
    """They are in no extent: nothing is compared, attached or detached."""
    query = query_of("at an instant", emit="early")
    stream = Stream(query, readings(1)[0].schema)
    outside = [row for file in readings(1, files=2) for row in file.to_pylist() if row["t"] < 180]
    stream.take(pa.Table.from_pylist(outside, readings(1)[0].schema))
    names = ("compared", "tuples_attached", "tuples_detached")
    assert outside
    assert not any(stream.metrics[name] for name in names)


def test_two_runs_before_the_first_watermark_have_no_extent() -> None:
    """The number of the last open extent is then the least integer: nothing may be added to it."""
    first = 1_704_067_200_000_000
    file = pa.table({"t": [first, first + 1], "v": ["on", "off"]})
    query = Coalesce(time=Point("t"), values="v", window=1, slide=1, lateness=0, emit="early")
    stream, table = Stream(query, file.schema), ChangedRows(query.coalescing.group)
    table.apply(stream.take(file))
    assert table.counted == final_so_far(query, [file])


def test_many_rows_at_once_are_counted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that writes more rows than are written without counting gives the same ones."""
    found = []
    for at_once in (early_index._AT_ONCE, 3):
        monkeypatch.setattr(early_index, "_AT_ONCE", at_once)
        stream = Stream(query_of("slides", emit="early"), readings(1)[0].schema)
        found.append([multiset.rows(stream.take(file)) for file in readings(1)])
    assert found[0] == found[1]


def test_finite_input_has_nothing_to_correct() -> None:
    table = pa.concat_tables(readings(2))
    for name in OPTIONS:
        found, final = (run(query_of(name, emit=emit), [table]).output for emit in ("early", "final"))
        assert found["op"].to_pylist() == ["insert"] * final.num_rows
        assert found.drop_columns(["op"]).equals(final)
        assert applied(found) == multiset.rows(final)


@pytest.mark.parametrize(
    "options", [{"scheme": "lazy"}, {"rows": 5, "slide": 2}, {"rows": 5, "slide": 2, "per_group": True}]
)
def test_what_has_no_early_answers(options: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match="WA-2023"):
        query_of("all", emit="early", **options)
    with pytest.raises(QueryError, match="WA-2006"):
        query_of("all", emit="eventually")
    with pytest.raises(QueryError, match="WA-2023"):
        TemporalAggregate(time="t", group="g", values="v", window=5, at=9, aggregates={"n": "count"}, emit="early")
    with pytest.raises(QueryError, match="WA-2023"):
        SharedCoalescing(queries={"one": query_of("slides", emit="early")})
    with pytest.raises(QueryError, match="WA-2009"):
        Coalesce(time="t", values="op", emit="early").operator(
            [pa.schema({"t": pa.int64(), "op": pa.int64()})], streaming=True
        )


def test_a_checkpoint_of_final_rows_is_not_continued_with_early_ones() -> None:
    """What was emitted so far follows from the state, so the option belongs to it; older checkpoints lack it."""
    schema = readings(1, files=1)[0].schema
    final, changed = (identity_of(query_of("slides", emit=emit), [schema], 1) for emit in ("final", "early"))
    assert "emit" not in final.settings
    with pytest.raises(EngineError, match="emit was absent"):
        changed.check(final.to_json())
