"""Temporal aggregates against exact rationals over extents computed from scratch."""

from __future__ import annotations

import random
from dataclasses import fields
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from whenabouts.conformance import coalescing_oracle as scratch
from whenabouts.conformance import multiset, oracle
from whenabouts.conformance.coalescing_answers import extents
from whenabouts.conformance.coalescing_generators import CoalescingExample, arrivals, coalescings
from whenabouts.core import InputError, QueryError
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import run, run_stream
from whenabouts.core.temporal_queries.aggregate_query import FUNCTIONS, WEIGHTED, TemporalAggregate

AGGREGATES: dict[str, Any] = {f"the {name}": name for name in FUNCTIONS} | {"mean w": (WEIGHTED, "w")}


def summed(query: Coalesce, **more: Any) -> TemporalAggregate:
    given = {f.name: getattr(query, f.name) for f in fields(Coalesce)}
    if given["slide"] is not None and query.rows is not None and query.extents.slide_us is not None:
        given["slide"] = f"{query.extents.slide_us} us"
    return TemporalAggregate(**(given | {"values": ["v", "w"]} | more))


def expected(query: TemporalAggregate, table: pa.Table, above: float | None) -> list[tuple[Any, ...]]:
    how, found = query.coalescing, []
    rows = [row for row in oracle.plain_rows(table) if row["t"] is not None and None not in [row[g] for g in how.group]]
    readings = scratch.settle(rows, "t", how.group).readings
    goes_on = scratch.all_equivalent(how.equivalence.kind, how.equivalence.bound, how.values)
    for at, extent in extents(how.extents, readings):
        groups: dict[Any, list[scratch.CoalescedTuple]] = {}
        held = sorted(extent, key=lambda reading: reading.ts)
        first = {reading.group: reading.row for reading in reversed(held)}
        for each in scratch.coalesced(held, goes_on):
            if above is None or (each.rows[0]["w"] is not None and each.rows[0]["w"] > above):
                groups.setdefault(each.group, []).append(each)
        for group, runs in groups.items():
            durations, values = [r.duration for r in runs], [r.rows[0]["w"] for r in runs]
            row: list[Any] = [at] if how.extents.slides else []
            row += [first[group][name] for name in how.group]
            row += [scratch.aggregate(function, durations) for function in FUNCTIONS]
            row.append(scratch.aggregate("time_weighted", durations, values))
            found.append(tuple(float(cell) if isinstance(cell, Fraction) else cell for cell in row))
    return found


@pytest.mark.filterwarnings("ignore::whenabouts.core.LossyQueryWarning", "ignore::whenabouts.core.SingleBucketWarning")
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.data(), coalescings(units=(1, 1_000_000)), st.sampled_from([None, 0]), st.booleans())
def test_any_query_over_any_readings(
    data: st.DataObject, example: CoalescingExample, above: float | None, stream: bool
) -> None:
    assume(example.query.coalescing.equivalence.predicate is None)
    assume(example.table.schema.field("v").type != pa.string())
    assume(not (stream and example.query.extents.is_history))
    where = None if above is None else pc.field("w") > above
    query = summed(example.query, aggregates=AGGREGATES, where=where)
    if stream:
        output = run_stream(query, [data.draw(arrivals(example))["events"]], buckets=2).output
    else:
        output = run(query, [example.table], buckets=2).output
    want = []
    for row in expected(query, example.table, above):
        real = {len(row) - len(AGGREGATES) + list(AGGREGATES).index(f"the {name}") for name in ("avg", "median")}
        want.append(tuple(float(c) if at in real and c is not None else c for at, c in enumerate(row)))
    multiset.assert_same(multiset.rows(output), multiset.counted(want), "aggregates", {"query": query})


@pytest.mark.parametrize("name", AGGREGATES)
def test_each_function_alone_over_many_steps(name: str) -> None:
    """The window in memory keeps what one function needs: tuples leave it, and its blocks move."""
    draw = random.Random(1)
    times = sorted(draw.sample(range(20_000), 1_500))
    columns = {name: draw.choices(of, k=len(times)) for name, of in (("k", "ab"), ("v", range(9)), ("w", range(2)))}
    table = pa.table({"t": times, **columns})
    query = TemporalAggregate(
        time="t", group="k", values=["v", "w"], window=300, slide=20, lateness=0, aggregates={name: AGGREGATES[name]}
    )
    steps = [table.slice(start, 30) for start in range(0, 1_500, 30)]
    found = multiset.rows(run_stream(query, [steps]).output)
    multiset.assert_same(found, multiset.rows(run(query, [table]).output), "aggregates", {"query": query})


def test_example_2_of_the_paper() -> None:
    """The longest period of high temperature of each region in the past 24 hours, every hour."""
    hour = 3_600_000_000
    hot = [False] * 3 + [True] * 5 + [False] + [True] * 2 + [False] * 25
    table = pa.table({"t": [h * hour for h in range(len(hot))], "region": ["a"] * len(hot), "hot": hot})
    query = TemporalAggregate(
        time="t", group="region", values="hot", window="24h", slide="1h", aggregates={"longest": "max"},
        where=pc.field("hot"),
    )  # fmt: skip
    rows = run(query, [table]).output.sort_by("window_end").to_pylist()
    longest = {row["window_end"] // hour: row["longest"] // hour for row in rows}
    assert [longest.get(h) for h in (2, 3, 5, 8, 20, 27, 29, 31, 32, 34, 35)] == [None, 0, 2, 5, 5, 5, 3, 2, 2, 1, None]


def test_refusals() -> None:
    table = pa.table({"t": [1], "v": [1], "s": ["a"]})
    with pytest.raises(QueryError, match="WA-2006"):
        TemporalAggregate(time="t", values="v", window=1, aggregates={})
    with pytest.raises(QueryError, match="WA-2006"):
        TemporalAggregate(time="t", values="v", window=1, aggregates={"m": "mode"})
    with pytest.raises(InputError, match="WA-1001"):
        run(TemporalAggregate(time="t", values="v", window=1, aggregates={"m": (WEIGHTED, "s")}), [table])
    with pytest.raises(InputError, match="WA-1023"):
        run(TemporalAggregate(time="t", values="s", window=1, aggregates={"m": (WEIGHTED, "s")}), [table])
    with pytest.raises(QueryError, match="WA-2009"):
        run(TemporalAggregate(time="t", group="s", values="v", window=1, aggregates={"s": "max"}), [table])
    with pytest.raises(QueryError, match="WA-2010"):
        run_stream(TemporalAggregate(time="t", values="v", aggregates={"m": "max"}), [[table]])


def test_a_window_of_rows_that_slides_over_nothing() -> None:
    table = pa.table({"t": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
    query = Coalesce(time="t", values="v", rows=1, slide="1 us")
    assert run(query, [table]).output.num_rows == run_stream(query, [[table, table]]).output.num_rows == 0
