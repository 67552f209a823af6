"""Case-insensitive names: every kind of query finds its columns, and gives the same result as with exact names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.conformance import multiset
from whenabouts.core import Histogram, Interval, JsonPayload, Point, QueryError, from_granularity, within
from whenabouts.core.clocks.watching.query import ClockOfKey, WatchClock
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.errors import LossyQueryWarning
from whenabouts.core.expressions.letter_case import same
from whenabouts.core.expressions.tree import Expression, column
from whenabouts.core.hosting.column_case import as_spelled, check_distinct
from whenabouts.core.hosting.columns_compared import columns_compared
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.local import run
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.times.clock_errors import from_clock
from whenabouts.core.times.distributions import uniform
from whenabouts.core.times.learned import Learned
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import deduplicated
from whenabouts.core.wrappers.payload_decoding import decoded
from whenabouts.core.wrappers.select_project import SelectProject

ROWS = pa.table({"t": [1, 2, 3, 9], "u": [2, 3, 4, 9], "k": [1, 1, 2, 2], "v": [5, 5, 6, 7], "kind": ["a"] * 4})
MASSES = {"a": [(0, 10, 1.0)]}
WITHIN = {"condition": within(3, confidence=0.2)}
MORE = Expression("gt", (column("V"), Expression("literal", value=5)))
EXACT = Expression("gt", (column("v"), Expression("literal", value=5)))


def _join(up: bool, **options: Any) -> TimingJoin:
    t = "T" if up else "t"
    return TimingJoin(**({"left_time": Point(t), "right_time": Point(t), "on": "K" if up else "k"} | WITHIN | options))


CASES: dict[str, tuple[Query, Query]] = {
    "join": (_join(False), _join(True)),
    "intervals": (
        _join(False, left_time=Interval("t", "u"), right_time=from_granularity("t", 1)),
        _join(True, left_time=Interval("T", "U"), right_time=from_granularity("T", 1)),
    ),
    "templates": (
        _join(False, left_time=Histogram("t", "kind", MASSES)), _join(True, left_time=Histogram("T", "Kind", MASSES))
    ),
    "pair": (_join(False, on=[("k", "u")]), _join(False, on=[("K", "U")])),
    "pair of one name": (_join(False, on="k"), _join(False, on=[("K", "k")])),
    "dedupe": (deduplicated(_join(False), ["v"]), deduplicated(_join(True), ["V"])),
    "window join": (
        WindowJoin(times={"a": Point("t"), "b": Point("t")}, windows={("a", "b"): 3}, on="k",
                   predicates={("a", "b"): "a.v <= b.v"}),
        WindowJoin(times={"a": Point("T"), "b": Point("T")}, windows={("a", "b"): 3}, on="K",
                   predicates={("a", "b"): "a.v <= b.v"}),
    ),
    "clocks by name": (
        JoinAggregate(left_time=Point("t"), right_time=from_clock("t", offset=900, jitter=300, domain_column="kind"),
                      aggregates={"nobody": "p_none"}, condition=(0, 3)),
        JoinAggregate(left_time=Point("T"), right_time=from_clock("T", offset=900, jitter=300, domain_column="Kind"),
                      aggregates={"nobody": "p_none"}, condition=(0, 3)),
    ),
    "coalesce": (Coalesce(time="t", group="k", values="v"), Coalesce(time="T", group="K", values="V")),
    "aggregate": (
        TemporalAggregate(time="t", group="k", values="v", window=9, slide=3, where=EXACT,
                          aggregates={"m": "max", "w": ("time_weighted", "v")}),
        TemporalAggregate(time="T", group="K", values="V", window=9, slide=3, where=MORE,
                          aggregates={"m": "max", "w": ("time_weighted", "V")}),
    ),
    "temporal join": (
        TemporalJoin(time="t", group="k", values="v", on="k", window=9, slide=3),
        TemporalJoin(time="T", group="k", values="V", on="K", window=9, slide=3),
    ),
    "shared": (
        SharedCoalescing(queries={"a": Coalesce(time="t", group="k", values="v", window=9, slide=3)}),
        SharedCoalescing(queries={"a": Coalesce(time="T", group="K", values="V", window=9, slide=3)}),
    ),
    "selection": (
        SelectProject(query=Coalesce(time="t", group="k", values="big"), where={"events": EXACT}, having=column("big"),
                      derived={"events": (("big", EXACT),)}, columns=(("key", column("k")), ("n", column("n")))),
        SelectProject(query=Coalesce(time="T", group="K", values="BIG"), where={"events": MORE}, having=column("BIG"),
                      derived={"events": (("big", MORE),)}, columns=(("key", column("K")), ("n", column("N")))),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.RejectedRowsWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_query_in_other_case_becomes_the_query_itself(case: str) -> None:
    exact, other = CASES[case]
    schemas = [ROWS.schema] * len(exact.inputs)
    found, named = as_spelled(other, schemas)
    assert [schema.names for schema in named] == [ROWS.column_names] * len(schemas)
    assert identity_of(found, named, 4) == identity_of(exact, schemas, 4), "a checkpoint takes them for one"
    assert identity_of(as_spelled(exact, schemas)[0], schemas, 4) == identity_of(exact, schemas, 4)
    tables = [ROWS] * len(exact.inputs)
    assert run(exact, tables).output.num_rows
    multiset.assert_same(
        multiset.rows(run(found, tables).output), multiset.rows(run(exact, tables).output), f"{case} in other case"
    )


@pytest.mark.parametrize("case", ["join", "window join", "temporal join", "dedupe"])
def test_inputs_that_spell_a_shared_column_differently_join_on_it(case: str) -> None:
    exact = CASES[case][0]
    shouted = ROWS.rename_columns([name.upper() for name in ROWS.column_names])
    found, named = as_spelled(exact, [ROWS.schema, shouted.schema])
    outcome = run(found, [ROWS, shouted.rename_columns(named[1].names)])
    assert outcome.output.num_rows == run(exact, [ROWS, ROWS]).output.num_rows
    assert outcome.output.column_names.count("k") == 1
    assert "K" not in outcome.output.column_names


def test_predicates_name_columns_in_any_case() -> None:
    """Their text is part of a checkpoint's identity, so it is kept as written."""
    exact, other = (
        WindowJoin(times=dict.fromkeys("ab", Point("t")), windows={("a", "b"): 3}, predicates={("a", "b"): text})
        for text in ("a.v <= b.v", "a.V <= b.V")
    )
    found, _ = as_spelled(other, [ROWS.schema] * 2)
    assert run(found, [ROWS, ROWS]).output.equals(run(exact, [ROWS, ROWS]).output)
    assert identity_of(as_spelled(exact, [ROWS.schema] * 2)[0], [ROWS.schema] * 2, 4) == identity_of(
        exact, [ROWS.schema] * 2, 4
    )


def test_payloads_are_found_and_their_own_names_too() -> None:
    topic = pa.table({"Value": [b'{"t": 1, "k": 1}', b'{"t": 2, "k": 1}'], "Part": [3, 4]})
    payload = JsonPayload({"t": "int64", "k": "int64"}, column="VALUE", keep=("PART",))
    query = decoded(_join(True, suffixes=("_l", "_r")), payload)
    found, named = as_spelled(query, [topic.schema] * 2)
    assert run(found, [topic, topic]).output.num_rows == 4
    assert columns_compared(found) == [{"k"}, {"k"}]
    assert [schema.names for schema in named] == [["Value", "Part"]] * 2


def test_names_that_differ_by_case_only_are_refused() -> None:
    schema = pa.schema({"t": pa.int64(), "k": pa.int64(), "K": pa.int64()})
    with pytest.raises(QueryError, match=r"WA-2009: the left input has columns 'k' and 'K'"):
        as_spelled(_join(False), [schema, ROWS.schema])
    check_distinct(["a", "b", "a"], "equal names are another check's, not")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Straße", "STRASSE", False), ("straße", "STRAßE", True), ("Äb", "äB", True), ("İ", "i", True),
        ("k", "\u212a", True), ("a", "b", False),
    ],
)  # fmt: skip
def test_case_is_folded_letter_by_letter(one: str, other: str, alike: bool) -> None:
    assert same(one, other) == alike


def test_a_watched_clock_finds_its_columns() -> None:
    clocks = [Learned(t, 0, 0, 0, uniform(-3, 3)) for t in ("t", "T")]
    exact = WatchClock(reading="t", against="u", group="k", clock=clocks[0], error=0.1)
    for other in (clocks[1], (ClockOfKey((1,), clocks[1], 0.1),)):
        query = WatchClock(reading="T", against="U", group="K", clock=other, error=0.1)
        found = as_spelled(query, [ROWS.schema])[0]
        expected = replace(exact, clock=(ClockOfKey((1,), clocks[0], 0.1),)) if isinstance(other, tuple) else exact
        assert found == expected
        assert columns_compared(found) == [{"k"}]


def test_what_is_compared_is_known_of_every_query() -> None:
    found = {name: columns_compared(exact)[0] for name, (exact, _) in CASES.items()}
    assert found == {
        "join": {"k"}, "intervals": {"k"}, "templates": {"k", "kind"}, "pair": {"k"}, "pair of one name": {"k"},
        "dedupe": {"k", "v"}, "window join": {"k", "v"}, "coalesce": {"k", "v"}, "aggregate": {"k", "v"},
        "temporal join": {"k", "v"}, "shared": {"k", "v"}, "selection": {"k", "big", "v"}, "clocks by name": set(),
    }  # fmt: skip


def test_a_query_that_is_spelled_otherwise_warns_once() -> None:
    """Of a slide that is longer than the window, when it is made."""
    with pytest.warns(LossyQueryWarning):
        query = Coalesce(time="T", values="V", window=1, slide=2)
    found, _ = as_spelled(query, [pa.schema({"t": pa.int64(), "v": pa.int64()})])
    assert found.values == ("v",)
