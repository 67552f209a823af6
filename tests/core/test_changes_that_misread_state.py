"""A query that continues is refused where it would read the state of the one before it otherwise."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import (
    EngineError,
    Histogram,
    Interval,
    Point,
    QueryError,
    from_clock,
    from_distribution,
    from_granularity,
    within,
)
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.clocks.watching.query import WatchClock
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.local import run_stream
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.times.distributions import Template
from whenabouts.core.times.learned import Learned
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.planner import parse_query

ENDS: dict[str, list[Any]] = {
    "both": [Point("t"), Interval("t", "t", max_uncertainty="1 s")],
    "none": [
        from_granularity("t", "40 us"),
        from_clock("t", offset="20 us"),
        from_clock("t", offset="20 us", jitter="10 us"),
        from_distribution("t", Template([(0, 40, 1.0)])),
    ],
    "the later one": [Histogram("t", templates={"clock": [(0, 40, 1.0)]})],
}
"""Times of one column, by which of their ends are that column."""
LEFT, RIGHT = pa.table({"t": [100], "id": [7777], "s": ["seven"]}), pa.table({"t": [0, 120], "id": [1, 2]})
FILES = [[LEFT, LEFT[:0]], [RIGHT[:1], RIGHT[1:]]]
SCHEMAS = [LEFT.schema, RIGHT.schema]


def _join(time: Any) -> TimingJoin:
    condition = within("200 us", confidence=0.01)
    return TimingJoin(left_time=time, right_time=Point("t"), condition=condition, lateness="1 ms")


def _aggregate(time: Any) -> JoinAggregate:
    condition = within("200 us", confidence=0.01)
    return JoinAggregate(
        left_time=time, right_time=Point("t"), condition=condition, lateness="1 ms", aggregates={"n": "count"}
    )


@pytest.mark.parametrize(("one", "other"), [*permutations(ENDS, 2)])
def test_an_end_that_is_a_column_stays_one(one: str, other: str) -> None:
    for before in ENDS[one]:
        for after in ENDS[other]:
            for query in (_join, _aggregate):
                with pytest.raises(EngineError, match="WA-3032"):
                    run_stream(query(before), FILES, changes={1: query(after)})


@pytest.mark.parametrize("ends", ENDS)
def test_other_times_with_the_same_ends_continue(ends: str) -> None:
    """Rows in state keep their columns."""
    for before, after in product(ENDS[ends], repeat=2):
        try:
            found = run_stream(_join(before), FILES, changes={1: _join(after)}).output
        except EngineError:  # of templates that end elsewhere, say
            continue
        found.validate(full=True)
        assert {(row["t_left"], row["id_left"], row["s"]) for row in found.to_pylist()} <= {(100, 7777, "seven")}


@pytest.mark.parametrize("kind", ["LEFT", "FULL", "LEFT ANTI"])
def test_a_condition_on_pairs_stays_in_a_join_as_text(kind: str) -> None:
    columns = "A.id AS a" if kind == "LEFT ANTI" else "A.id AS a, B.id AS b"
    text = f"SELECT {columns} FROM l A {kind} JOIN r B ON WINDOW(A, B) = '200 us'"

    def asked(condition: str) -> Query:
        return parse_query(text + condition).bind(dict(zip("lr", SCHEMAS, strict=True)), lateness="1 ms")

    first = asked(" AND A.id > B.id")
    for other in (" AND A.id < B.id", ""):
        with pytest.raises(EngineError, match=r"WA-3032.*where of the join was"):
            run_stream(first, FILES, changes={1: asked(other)})
    run_stream(first, FILES, changes={1: asked(" AND  A.id  > B.id")})  # laid out otherwise


def test_a_condition_may_be_laid_out_otherwise() -> None:
    first, then, other = (
        WindowJoin(
            times={"a": Point("t"), "b": Point("t")}, windows={("a", "b"): "1 s"}, predicates={("a", "b"): text}
        )
        for text in ("a.id < b.id", "a.id  <  b.id", "a.id > b.id")
    )  # fmt: skip
    run_stream(first, FILES, changes={1: then})
    with pytest.raises(EngineError, match="WA-3032"):
        run_stream(first, FILES, changes={1: other})


def _template(first: float) -> Template:
    return Template([(0, 20, first), (20, 40, 1 - first)])


def _distributed(first: float) -> Any:
    return from_distribution("t", _template(first))


@pytest.mark.parametrize(
    "query",
    [
        lambda time: AsofJoin(left_time=time, right_time=Point("t"), tolerance="1 s", confidence=0.5),
        lambda time: WindowJoin(
            times={"a": time, "b": Point("t")}, windows={("a", "b"): within("1 s", confidence=0.5)}
        ),
    ],
    ids=["as-of join", "window join"],
)
def test_other_distributions_of_the_same_span_are_refused(query: Any) -> None:
    first, then = query(_distributed(0.1)), query(_distributed(0.9))
    assert repr(first) == repr(then)
    with pytest.raises(EngineError, match=r"WA-3032.*the distributions of .* was"):
        run_stream(first, FILES, changes={1: then})
    run_stream(first, FILES, changes={1: query(_distributed(0.1))})


def test_a_watched_clock_with_other_distributions_is_refused() -> None:
    schema = pa.schema({"t": pa.int64(), "u": pa.int64()})
    first, then = (
        identity_of(
            WatchClock(reading="t", against="u", clock=Learned("t", 0, 0, 0, (("a", _template(mass)),))), [schema], 1
        )
        for mass in (0.1, 0.9)
    )
    first.check(first.to_json())
    with pytest.raises(EngineError, match=r"WA-3032.*the distributions of clock was"):
        then.check(first.to_json())


def test_what_says_nothing_of_the_distributions_is_of_an_earlier_release() -> None:
    first, then = (identity_of(_join(time), SCHEMAS, 4) for time in (Point("t"), from_granularity("t", "1 s")))
    earlier = {name: text for name, text in first.implied.items() if "ends" not in name}
    then.check(type(first)(**{**vars(first), "implied": earlier}).to_json())


def test_time_slots_that_choose_none_may_be_written_in_two_ways() -> None:
    """Those of earlier releases, which did not say what "auto" chose, too."""
    auto, none = (
        identity_of(replace(_join(Point("t")), on="id", time_slots=slots), SCHEMAS, 4) for slots in ("auto", None)
    )
    for before in (auto, none):
        for implied in (before.implied, {}):
            auto.check(replace(before, implied=implied).to_json())
    none.check(auto.to_json())
    keyless = identity_of(replace(_join(Point("t")), time_slots="auto"), SCHEMAS, 4)
    keyless.check(replace(keyless, implied={}).to_json())
    for before in (none, replace(none, implied={})):
        with pytest.raises(EngineError, match=r"WA-3032.*time_slots was None and is 'auto'"):
            keyless.check(before.to_json())


def test_another_kind_of_query_is_refused_with_a_code() -> None:
    three = {name: Point("t") for name in "abc"}
    first = _join(Point("t"))
    for other in (
        WindowJoin(times=three, windows={("a", "b"): "1 s", ("b", "c"): "1 s"}),
        WindowJoin(times={"left": Point("t"), "right": Point("t")}, windows={("left", "right"): "1 s"}),
        _aggregate(Point("t")),
    ):
        with pytest.raises(EngineError, match="WA-3032"):
            run_stream(first, FILES, changes={1: other})
    with pytest.raises(QueryError, match="WA-2006"):
        run_stream(first, FILES, changes={1: "x"})  # type: ignore[dict-item]
