"""`valid_last`: the time of the last reading of a coalesced row, as a column on request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.conformance import multiset
from whenabouts.conformance.coalescing_answers import answer
from whenabouts.core import QueryError
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import coalesce, run, temporal_aggregate, temporal_join
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.planner import CoalescingQuery

READINGS = pa.table({"room": [1, 1, 2, 1, 1, 2, 1], "t": [1, 2, 2, 4, 5, 7, 9], "v": [7, 7, 3, 7, 8, 3, 8]})
GIVEN: dict[str, Any] = {"time": "t", "group": "room", "values": "v"}


def test_the_column_stands_before_n_and_has_the_type_of_the_time() -> None:
    stamps = READINGS.set_column(1, "t", READINGS["t"].cast(pa.timestamp("us", "UTC")))
    found = coalesce(stamps, valid_last=True, **GIVEN)
    assert found.column_names == ["room", "v", "valid_from", "valid_to", "valid_last", "n"]
    assert found.schema.field("valid_last").type == stamps.schema.field("t").type
    assert coalesce(stamps, **GIVEN).column_names == ["room", "v", "valid_from", "valid_to", "n"]


@pytest.mark.parametrize(
    "options", [{}, {"window": 6, "slide": 3}, {"rows": 3, "slide": 2}, {"equivalence": "increasing"}]
)
@pytest.mark.parametrize("ordered", [True, False])
def test_it_is_the_time_of_the_last_reading(options: dict[str, Any], ordered: bool) -> None:
    """In one pass over rows in order, and in general; of numbers and of floats."""
    rows = READINGS if ordered else READINGS.take([3, 0, 6, 2, 5, 1, 4])
    for table in (rows, rows.set_column(2, "v", rows["v"].cast(pa.float64()))):
        query = Coalesce(**GIVEN, valid_last=True, **options)
        found = run(query, [table]).output
        multiset.assert_same(multiset.rows(found), answer(query, table).rows, "tuples")
    if not options:
        assert (1, 7, 1, 5, 4, 3) in [tuple(row.values()) for row in found.to_pylist()]


def test_it_is_no_part_of_the_state() -> None:
    query = Coalesce(**GIVEN)
    asked, plain = (identity_of(each, [READINGS.schema], 4) for each in (replace(query, valid_last=True), query))
    assert asked == plain


def test_queries_that_share_an_extent_have_it_each_for_itself() -> None:
    """A lazy and an eager query, of which one asks for it; the planner does not take them for the same."""
    window: dict[str, Any] = {"window": 6, "slide": 3}
    with_last, without = Coalesce(**GIVEN, **window, valid_last=True), Coalesce(**GIVEN, **window)
    for scheme in ("eager", "lazy"):
        queries = {"with": with_last, "without": without}
        shared = SharedCoalescing(queries=queries, schemes=dict.fromkeys(queries, scheme))
        found = run(shared, [READINGS]).output
        mine = found.filter(pa.compute.equal(found["query"], "with")).drop_columns("query")
        multiset.assert_same(multiset.rows(mine), answer(with_last, READINGS).rows, scheme)
        assert found["valid_last"].null_count == found.num_rows - mine.num_rows
    assert CoalescingQuery.of(with_last).distinct != CoalescingQuery.of(without).distinct


def test_where_there_is_no_such_column() -> None:
    with pytest.raises(QueryError, match="WA-2006: valid_last is 1"):
        Coalesce(**GIVEN, valid_last=1)  # type: ignore[arg-type]
    renamed = READINGS.rename_columns(["room", "t", "valid_last"])
    with pytest.raises(QueryError, match=r"WA-2009.*valid_from, valid_to, valid_last and n are computed"):
        coalesce(renamed, time="t", group="room", values="valid_last", valid_last=True)
    assert coalesce(renamed, time="t", group="room", values="valid_last").num_rows == 3
    for operation, frames, more in (
        (temporal_aggregate, [READINGS], {"window": 6, "at": 9, "aggregates": {"n": "count"}}),
        (temporal_join, [READINGS, READINGS], {"window": 6, "at": 9, "on": "room"}),
    ):
        with pytest.raises((QueryError, TypeError), match="valid_last"):
            operation(*frames, valid_last=True, **GIVEN, **more)
