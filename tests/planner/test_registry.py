"""CoalescingEntry queries are grouped, planned together, pinned, exported and planned again."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest

from whenabouts.core import QueryError
from whenabouts.core.coalescing.equivalence import Equivalence
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.planner import CoalescingQuery, Plan, Registry, Statistics, parse_query


def query(column: str, **more: object) -> CoalescingQuery:
    return CoalescingQuery((column,), ("region",), **({"rows": 100} | more))  # type: ignore[arg-type]


def six(cps: list[float], **options: object) -> Registry:
    registry = Registry(**options)  # type: ignore[arg-type]
    for number, cp in enumerate(cps):
        registry.register(f"q{number + 1}", query(f"c{number}"), Statistics(cp))
    return registry


MIXED = [0.8] * 3 + [0.1] * 3


def test_a_plan_is_never_dearer_than_all_eager_or_all_lazy() -> None:
    plan = six(MIXED).plan()
    assert list(plan.choices.values()) == ["eager"] * 3 + ["lazy"] * 3
    assert plan.cost < min(plan.alternatives.values())


def test_equal_queries_share_one_extent_and_are_paid_once() -> None:
    registry = six([0.8])
    alone = registry.plan().cost
    registry.register("again", CoalescingQuery(("c0",), ("region",), rows=100), Statistics(0.8))
    plan = registry.plan()
    assert plan.cost == alone
    assert plan.queries[1].shares_with == ("q1",)
    assert query("a").distinct != query("a", rows=99).distinct
    assert query("a").distinct != query("a", equivalence="increasing").distinct
    assert CoalescingQuery(("a", "b"), rows=1).distinct == CoalescingQuery(("b", "a"), rows=1).distinct
    assert CoalescingQuery("ab", "k", rows=1) == CoalescingQuery(["ab"], ["k"], rows=1)
    assert CoalescingQuery("ab", rows=1).distinct != CoalescingQuery("ba", rows=1).distinct
    assert query("a", rows=None, range="60s").distinct == query("a", rows=None, range="1m").distinct


def test_queries_that_differ_in_window_ends_counting_or_predicate_are_distinct() -> None:
    """They used to be one: the closed end, the counting, and all but the name of a predicate were left out."""
    given = {"time": "t", "group": "k", "values": "v"}
    lambdas = [Equivalence("predicate", predicate=each) for each in (lambda a, b: a, lambda a, b: b)]
    where = [pc.field("v") > 3, pc.field("v") > 3, pc.field("v") > 4]
    aggregates = [
        TemporalAggregate(**given, window="1 m", aggregates={"n": "count"}, where=each) for each in (*where, None)
    ]
    queries = [
        Coalesce(**given, window="1 m"),
        Coalesce(**given, window="1 m", closed="right"),
        Coalesce(**given, window="1 m", slide="10 s"),
        Coalesce(**given, window="1 m", at=5),
        Coalesce(**given, rows=9),
        Coalesce(**given, rows=9, per_group=True),
        *(Coalesce(**given, rows=9, equivalence=each) for each in lambdas),
        *aggregates[1:],
    ]
    found = [CoalescingQuery.of(each).distinct for each in queries]
    assert len(set(found)) == len(found)
    again = [CoalescingQuery.of(replace(each)).distinct for each in queries]
    assert again == found
    assert CoalescingQuery.of(aggregates[0]).distinct == CoalescingQuery.of(aggregates[1]).distinct
    by_time = [CoalescingQuery.of(Coalesce(**{**given, "group": g}, window="9 s")) for g in (["k", "g"], ["g", "k"])]
    assert by_time[0].distinct == by_time[1].distinct
    by_rows = [CoalescingQuery.of(Coalesce(**{**given, "group": g}, rows=9)) for g in (["k", "g"], ["g", "k"])]
    assert by_rows[0].distinct != by_rows[1].distinct  # the groups' order decides which of two rows is the later one
    texts = [
        parse_query(
            f"SELECT {what} FROM s [RANGE 9 SECOND SLIDE {slide} SECOND] COALESCE ON {on} GROUP BY k"
        ).distinct()
        for what, slide, on in (("*", 3, "v"), ("*", 1, "v"), ("*", 3, "v + 1 AS v"), ("COUNT(*)", 3, "v"))
    ]
    assert len({each.distinct for each in texts}) == 4
    same = CoalescingQuery.of(Coalesce(**given, window="9 s", slide="3 s"), "s")
    assert same.distinct == texts[0].distinct


def test_rows_counted_per_group_share_no_extent_and_are_decided_by_themselves() -> None:
    registry = six([0.1] * 6)
    alone = query("c0", per_group=True)
    registry.register("each", alone, Statistics(0.1))
    plan = registry.plan()
    assert (plan.schemes["each"], plan.queries[6].shared, plan.queries[5].shared) == ("eager", False, True)
    registry.pin("each", "lazy")
    plan = registry.plan()
    assert (plan.schemes["each"], plan.queries[6].shared) == ("lazy", False)
    assert plan.queries[6].state_bytes == plan.shared_bytes["stream"]
    assert plan.bytes_beside("stream") == 0.0
    assert plan.bytes_beside("other") == 2 * plan.shared_bytes["stream"]
    assert Plan.from_json(plan.to_json()) == plan
    older = re.sub(r',\s*"shared": (true|false)', "", plan.to_json())
    assert [each.shared for each in Plan.from_json(older).queries] == [True] * 7


def test_a_query_s_own_scheme_is_a_pin() -> None:
    """A plan of eager used to run an extent of plain tuples if the query said lazy."""
    registry = Registry()
    registry.register("a", Coalesce(time="t", values="v", window="9 s", scheme="lazy"), Statistics(0.9))
    plan = registry.plan()
    assert (plan.schemes, plan.queries[0].pinned) == ({"a": "lazy"}, True)
    registry.pin("a", "eager")
    assert registry.plan().schemes == {"a": "eager"}
    registry.pin("a", None)
    assert registry.plan().schemes == {"a": "lazy"}


def test_streams_have_extents_of_their_own() -> None:
    registry = Registry()
    for stream in ("north", "south"):
        for number in range(6):
            registry.register(f"{stream}{number}", query(f"c{number}", stream=stream), Statistics(0.1))
    plan = registry.plan()
    assert set(plan.shared_bytes) == {"north", "south"}
    assert plan.cost == pytest.approx(2 * six([0.1] * 6).plan().cost)


def test_a_budget_makes_queries_lazy_and_an_impossible_one_is_refused() -> None:
    free = six([0.8] * 6).plan()
    assert set(free.choices.values()) == {"eager"}
    needs = sum(each.state_bytes for each in free.queries)
    shared = six([0.1] * 6).plan().shared_bytes["stream"]
    tight = six([0.8] * 6, memory_budget=needs - 1).plan()
    assert "lazy" in tight.choices.values()
    used = sum(each.state_bytes for each in tight.queries if each.scheme == "eager") + tight.shared_bytes["stream"]
    assert used <= needs - 1
    least = min(shared, needs)
    with pytest.raises(QueryError, match=rf"WA-2071: the memory budget is .* needs at least {least:g}") as found:
        six([0.8] * 6, memory_budget=shared / 2).plan()
    more = float(found.value.hint.split("by ")[1].split(",")[0])
    assert six([0.8] * 6, memory_budget=shared / 2 + more).plan().status == "optimal"


def test_the_longest_scan_allowed_decides_or_is_refused() -> None:
    registry = Registry()
    registry.register("fast", query("a"), Statistics(0.1), max_scan_time=105.0)
    registry.pin("fast", "lazy")
    with pytest.raises(
        QueryError, match="WA-2071: query 'fast' is required to be lazy, which scans longer than 105 by 5"
    ):
        registry.plan()
    registry.pin("fast", None)
    assert registry.plan().choices == {"fast": "eager"}
    registry.register("never", query("b"), Statistics(0.1), max_scan_time=1.0)
    with pytest.raises(QueryError, match=r"WA-2071: query 'never' may scan for 1 and needs 93.3 .*by 92.3"):
        registry.plan()


def test_pins_hold_and_must_agree() -> None:
    registry = six(MIXED)
    registry.pin("q1", "lazy")
    plan = registry.plan()
    assert plan.choices["q1"] == "lazy"
    assert plan.queries[0].pinned
    registry.register("twin", CoalescingQuery(("c0",), ("region",), rows=100), pin="eager")
    with pytest.raises(QueryError, match="WA-2071: queries q1, twin share one extent"):
        registry.plan()


def test_names_are_unique_and_must_be_known() -> None:
    registry = six([0.5])
    with pytest.raises(QueryError, match=r"WA-2073: .*'q1'"):
        registry.register("q1", query("x"))
    for call in (registry.unregister, lambda name: registry.pin(name, None)):
        with pytest.raises(QueryError, match=r"WA-2074: .*'q9'.*registered are: q1"):
            call("q9")
    registry.unregister("q1")
    assert registry.plan().choices == {}
    assert registry.explain() == "no queries registered"


def test_a_plan_survives_export_and_shows_what_changed() -> None:
    plan = six(MIXED).plan()
    assert Plan.from_json(plan.to_json()) == plan
    other = six([0.1] * 6)
    other.unregister("q6")
    assert plan.diff(other.plan()) == {
        "q1": ("eager", "lazy"), "q2": ("eager", "lazy"), "q3": ("eager", "lazy"), "q6": ("lazy", None),
    }  # fmt: skip
    written = json.loads(plan.to_json())
    wrong = [
        {"name": ["q1"]},
        {"scheme": {}},
        {"scheme": "idle"},
        {"choices": [written["queries"][0]["choices"][0] | {"value": []}]},
    ]
    changed = [json.dumps(written | {"queries": [written["queries"][0] | each]}) for each in wrong]
    join = {"name": "j", "kind": "", "streams": [], "choices": [], "state": None, "latency_us": 0, "statistics": {}}
    changed.append(json.dumps(written | {"joins": [join]}))
    for text in ("", "[]", '{"format": 2, "choices": {}}', '{"format": 1}', *changed):
        with pytest.raises(QueryError, match="WA-2075"):
            Plan.from_json(text)


def test_a_new_plan_is_adopted_only_if_it_wins_clearly() -> None:
    registry = six(MIXED, hysteresis=0.05)
    current = registry.plan()
    registry.observe("q3", Statistics(0.42, source="measured"))  # lazy is a little cheaper now
    assert registry.plan().choices["q3"] != current.choices["q3"]
    assert registry.replan(current).choices == current.choices
    registry.observe("q3", Statistics(0.0, source="measured"))
    registry.observe("q2", Statistics(0.0, source="measured"))
    assert registry.replan(current).choices["q3"] == "lazy"
    registry.register("q7", query("c7"), Statistics(0.8))
    assert registry.replan(current).choices == registry.plan().choices


def test_only_a_plan_is_replanned() -> None:
    with pytest.raises(QueryError, match="WA-2006: current is None"):
        Registry().replan(None)  # type: ignore[arg-type]


def test_the_explanation_names_choice_costs_statistics_and_their_source() -> None:
    registry = six([0.8, 0.1])
    registry.register("guess", query("g"))
    registry.observe("q2", Statistics(0.1, 0.2, rate=5.0, source="measured"))
    text = registry.explain()
    for part in ("q1", "eager", "cp 0.8, oop 0 (declared)", "cp 0.1, oop 0.2, 5/s (measured)", "(default)", "all lazy"):
        assert part in text


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"coalesce": (), "rows": 1}, "no value column"),
        ({"coalesce": ("a",)}, "rows or range"),
        ({"coalesce": ("a",), "rows": 1, "range": "1s"}, "rows or range"),
        ({"coalesce": ("a",), "rows": 0}, "0 rows"),
        ({"coalesce": ("a",), "range": "0s"}, "range is 0s"),
    ],
)
def test_windows_that_are_none_are_refused(wrong: dict[str, object], what: str) -> None:
    with pytest.raises(QueryError, match=f"WA-2006: .*{what}"):
        CoalescingQuery(**wrong)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_decided_and_exported_as_those_of_python() -> None:
    def plan(whole: type, real: type) -> Plan:
        registry = Registry(weights=[real(1), real(1), real(2)], parallelism=whole(2), hysteresis=real(0.5))
        query = CoalescingQuery("v", "g", rows=whole(100), eager_part=real(0.5))
        registry.register("q", query, Statistics(cp=real(0.25), oop=real(0.5), rate=whole(5), step_rows=real(8)))
        return registry.plan()

    assert plan(np.int64, np.float32).to_json() == plan(int, float).to_json()
