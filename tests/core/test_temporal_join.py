"""The temporal join against a loop over all pairs of coalesced tuples computed from scratch."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from whenabouts.conformance import coalescing_oracle as scratch
from whenabouts.conformance import multiset, oracle
from whenabouts.conformance.coalescing_generators import CoalescingExample, arrivals, coalescings
from whenabouts.conformance.coalescing_oracle import CoalescedTuple
from whenabouts.core import QueryError
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import run, run_stream
from whenabouts.core.temporal_queries.join_query import TemporalJoin

HOLDS: dict[str, Any] = {
    "overlaps": lambda a, b: max(a.start, b.start) < min(a.end, b.end),
    "contains": lambda a, b: a.start <= b.start and b.end <= a.end,
    "before": lambda a, b: a.start < b.start and a.end < b.start and a.end < b.end,
    "after": lambda a, b: b.start < a.start and b.end < a.start and b.end < a.end,
    "meets": lambda a, b: a.start < b.start and a.end == b.start and a.end < b.end,
    "equals": lambda a, b: (a.start, a.end) == (b.start, b.end),
    "during": lambda a, b: a.start > b.start and a.end < b.end,
}


def joined(query: Coalesce, **more: Any) -> TemporalJoin:
    given = {f.name: getattr(query, f.name) for f in fields(Coalesce)}
    if given["slide"] is not None and query.rows is not None and query.extents.slide_us is not None:
        given["slide"] = f"{query.extents.slide_us} us"
    return TemporalJoin(**(given | more))


def expected(query: TemporalJoin, tables: list[pa.Table], least: int) -> list[tuple[Any, ...]]:
    how, names = query.coalescing, (*query.coalescing.group, *query.coalescing.values)
    goes_on = scratch.all_equivalent(how.equivalence.kind, how.equivalence.bound, how.values)
    usable = [
        [row for row in oracle.plain_rows(t) if row["t"] is not None and None not in [row[g] for g in how.group]]
        for t in tables
    ]
    readings = [scratch.settle(rows, "t", how.group).readings for rows in usable]
    every = tuple(sorted({r for side in readings for r in ((x.ts) for x in side)}))
    if not every:
        return []
    clock = tuple(scratch.Reading(ts, (), {}) for ts in every)
    looks = [dict(_looks(how.extents, side, clock, readings[0])) for side in readings]
    found = []
    for at, *place in looks[0].keys() & looks[1].keys():
        left, right = (scratch.coalesced(look[at, *place], goes_on) for look in looks)

        def pairs(a: CoalescedTuple, b: CoalescedTuple) -> bool:
            same = all(_same(a.rows[0][name], b.rows[0][name]) for name in query.on)
            return same and HOLDS[query.relation](a, b) and min(a.end, b.end) - max(a.start, b.start) >= least

        for a, b, (start, end) in scratch.join(left, right, pairs):
            ends = (start, end) if start < end else (None, None)
            others = [b.rows[0][name] for name in names if name not in query.on]
            found.append((*([at] if how.extents.slides else []), *(a.rows[0][n] for n in names), *others, *ends))
    return found


def _looks(how: Any, side: Any, clock: Any, left: Any) -> Any:
    """Extents of one side at the instants of both, or at every n-th tuple of the left one."""
    if how.slide_rows is not None:
        for mark in scratch.row_instants(left, how.slide_rows):
            yield (mark.ts, mark.group), scratch.extent_by_rows(side, (mark.ts, mark.group), how.window.rows)
        return
    if how.slide_us is not None:
        instants: Any = scratch.instants(clock, how.slide_us)
    else:
        instants = [max(r.ts for r in clock) if how.at_us is None else how.at_us]
    for at in instants:
        if how.window.width_us is not None:
            yield (at,), scratch.extent_by_time(side, at, how.window.width_us, closed=how.window.closed)
        else:
            yield (at,), scratch.extent_by_rows(side, at, how.window.rows, per_group=how.window.per_group)


def _same(a: Any, b: Any) -> bool:
    return a is not None and b is not None and (a == b or (a != a and b != b))


@pytest.mark.filterwarnings("ignore::whenabouts.core.LossyQueryWarning", "ignore::whenabouts.core.SingleBucketWarning")
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.data(), coalescings(units=(1_000_000,)), st.sampled_from(sorted(HOLDS)), st.sampled_from(["", "g", "v"]),
    st.sampled_from([0, 2]), st.booleans(),
)  # fmt: skip
def test_any_query_over_any_readings(
    data: st.DataObject, example: CoalescingExample, relation: str, on: str, least: int, stream: bool
) -> None:
    query, table = example
    how = query.coalescing
    assume(how.equivalence.predicate is None and not how.extents.is_history)
    assume(how.extents.slide_rows is None or not how.extents.window.per_group)
    cut = data.draw(st.integers(0, table.num_rows))
    tables = [table.slice(0, cut), table.slice(cut)]
    on_columns = [on] if on in (*how.group, *how.values) else []
    least_us = least * 1_000_000 if relation == "overlaps" else None
    join = joined(query, relation=relation, on=on_columns, min_duration=least_us)
    if stream:
        files = [data.draw(arrivals(CoalescingExample(query, side)))["events"] for side in tables]
        output = run_stream(join, files, buckets=2).output
    else:
        output = run(join, tables, buckets=2).output
    want = multiset.counted(expected(join, tables, -(2**62) if least_us is None else least_us))
    multiset.assert_same(multiset.rows(output), want, "joined tuples", {"query": join})


def test_example_1_of_the_paper() -> None:
    """Any two regions of similar humidity for 4 minutes or longer in the past hour, at every minute."""
    minute = 60_000_000
    readings = {"a": [40, 40, 40, 40, 40, 55, 55, 55], "b": [70, 41, 41, 41, 41, 41, 70, 70], "c": [60] * 8}
    table = pa.table(
        {
            "region": [region for region in readings for _ in range(8)],
            "humidity": [value for values in readings.values() for value in values],
            "t": [at * minute for _ in readings for at in range(8)],
        }
    )

    def similar(a: pa.Table, b: pa.Table) -> Any:
        near = pc.less_equal(pc.abs(pc.subtract(a["humidity"], b["humidity"])), 2)
        return pc.and_(near, pc.less(a["region"], b["region"]))

    query = TemporalJoin(
        time="t", group="region", values="humidity", window="60m", slide="1m", matches=similar, min_duration="4m"
    )
    rows = run(query, [table, table]).output.to_pylist()
    assert {(row["region_left"], row["region_right"]) for row in rows} == {("a", "b")}
    assert {row["window_end"] // minute for row in rows} == {5, 6, 7}
    assert {(row["valid_from"] // minute, row["valid_to"] // minute) for row in rows} == {(1, 5)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": None},
        {"relation": "near"},
        {"window": None, "rows": 3, "slide": 2, "per_group": True},
        {"on": "u"},
        {"min_duration": "-1s"},
    ],
)
def test_refusals(wrong: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match=r"WA-200[36]"):
        TemporalJoin(**({"time": "t", "group": "g", "values": "v", "window": "1s"} | wrong))


@pytest.mark.parametrize("stream", [False, True])
def test_pairs_that_stay_are_not_put_to_the_test_again(stream: bool) -> None:
    """Two hours of runs of five minutes: most pairs of a minute are those of the minute before.

    On a stream every minute is a step of its own.
    """
    minute = 60_000_000
    table = pa.table({"t": [at * minute for at in range(120)], "v": [at // 5 for at in range(120)]})
    tested = 0

    def near(one: pa.Table, other: pa.Table) -> Any:
        nonlocal tested
        tested += one.num_rows
        return pc.less_equal(pc.abs(pc.subtract(one["v"], other["v"])), 2)

    query = TemporalJoin(time="t", values="v", window="60m", slide="1m", matches=near, relation="before")
    files = [table.slice(at, 1) for at in range(120)]
    output = run_stream(query, [files, files]).output if stream else run(query, [table, table]).output
    assert output.num_rows > 300
    assert tested < 2_500  # of some 9,000 pairs of periods, one before the other, in all extents together
