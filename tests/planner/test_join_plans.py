"""Joins in a plan: the choices, their reasons and alternatives, and that the explained plan is the one that runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import Interval, Lateness, Point, QueryError, delay, within
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.costs.choices import Alternative, Workload, cheapest, decided
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.planner import CoalescingQuery, Plan, Registry, Statistics, Stream, parse_query, read_plan_file
from whenabouts.planner.plan_files import registry_of

SCHEMA = pa.schema({"k": pa.string(), "t_min": pa.timestamp("us"), "t_max": pa.timestamp("us"), "v": pa.float64()})
TIME = Interval("t_min", "t_max", max_uncertainty="500 ms")
STREAMS = {
    "a": Stream(SCHEMA, TIME, "1 s", rate=200.0, keys=20),
    "b": Stream(SCHEMA, TIME, "2 s", rate=50.0, keys=20),
    "c": Stream(SCHEMA, TIME, rate=5.0),
}
TEXT = "SELECT A.v FROM a A, b B WHERE A.k = B.k AND WINDOW(A, B) = '2 s' WITH THRESHOLD 0.6"


def timing(**options: Any) -> TimingJoin:
    given = {"left_time": TIME, "right_time": TIME, "condition": within("2 s", confidence=0.6), "on": "k"}
    return TimingJoin(**(given | {"lateness": Lateness("1 s", "2 s")} | options))


def window(**options: Any) -> WindowJoin:
    given = {
        "times": dict.fromkeys("abc", Point("t_max")),
        "windows": {("a", "b"): "2 s", ("b", "c"): "60 s"},
        "on": "k",
    }
    return WindowJoin(**(given | options))


def values(registry: Registry, name: str) -> dict[str, Any]:
    return next(join.values for join in registry.plan().joins if join.name == name)


def test_rows_wait_as_long_as_max_latency_allows_and_no_longer_than_pays() -> None:
    fast = Workload(rates={"left": 90_000.0, "right": 10_000.0}, keys=1e6)
    sizes = [timing(max_latency=limit).choices(fast)[1].value for limit in (None, "1 ms", "100 ms", "500 ms", "1 h")]
    assert sizes == [1, 100, 10_000, 50_000, 100_000]
    for query, load in ((timing(max_latency="100 ms"), fast), (timing(max_latency="2 s", strategy="lazy"), fast)):
        block = query.choices(load)[1]
        limit_s = query.max_latency / 1e6
        assert all((int(each.value) > 100_000 * limit_s) == bool(each.refused) for each in block.alternatives)
        assert block.cost is not None
        assert all(each.refused or each.cost > block.cost / 1.11 for each in block.rejected)
    assert timing(strategy="eager").choices(fast)[1].value == 1
    assert timing(strategy="lazy").choices()[1].value == 1000
    assert timing(strategy="lazy", block_size=7).choices(fast)[1].pinned
    assert timing(max_latency="10 s", rates={"left": 9.0, "right": 1.0}).choices()[1].value == 100


def test_rates_of_numpy_cost_what_those_of_python_do() -> None:
    def load(whole: type, real: type) -> Workload:
        sizes = {"left": whole(90), "right": real(300.5)}
        return Workload(rates=sizes, row_bytes=sizes, keys=real(16_777_217 / 3), parallelism=whole(2))

    given, python = load(np.int64, np.float64), load(int, float)
    assert repr(given) == repr(python)
    assert timing(max_latency="1 s").choices(given) == timing(max_latency="1 s").choices(python)


def test_the_strategies_of_the_papers_are_told_with_what_they_cost() -> None:
    for rate in (10.0, 10_000.0):
        strategy = timing().choices(Workload(rates={"left": rate, "right": rate}, keys=10))[0]
        assert strategy.value == "auto"
        assert [each.value for each in strategy.rejected] == ["eager", "lazy", "lazy_lookup", "ssort", "simple"]
        costs = {each.value: each.cost or 0.0 for each in strategy.alternatives}
        assert min(costs.values()) == costs["auto"]
        assert costs["eager"] < costs["simple"]
    one_sided = timing(condition=delay("1 s", confidence=0.5)).choices(Workload(rates={"left": 1.0, "right": 1.0}))
    assert one_sided[0].value == "auto"


def test_a_window_join_is_chosen_by_the_rates_of_its_streams() -> None:
    registry = Registry(streams=STREAMS)
    registry.register("path", window(), stream=["a", "b", "c"])
    registry.register("blind", window())
    registry.register("elsewhere", window(), stream=["x", "y", "z"])
    known, blind, elsewhere = registry.plan().joins
    assert known.statistics == {
        "rates": {"a": 200.0, "b": 50.0, "c": 5.0},
        "keys": 20,
        "every_us": 0,
        "source": "declared",
    }
    assert blind.statistics["rates"] == known.statistics["rates"]  # the inputs have the names of the streams
    assert (elsewhere.statistics["rates"], elsewhere.strategy) == ({}, "backward")
    costs = {each.value: each.cost or 0.0 for each in known.choices[1].alternatives}
    assert known.values["conservative"] == "none" == min(costs, key=lambda name: costs[name])
    registry.pin("path", {"strategy": "forward", "conservative": "gca"})
    pinned = registry.plan().joins[0]
    assert (pinned.values["strategy"], pinned.values["conservative"]) == ("forward", "gca")
    assert all(choice.pinned for choice in pinned.choices[:2])
    assert pinned.latency_us == 0
    ran = registry.query("path")
    assert isinstance(ran, WindowJoin)
    assert (ran.strategy, ran.conservative) == ("forward", "gca")


def test_registered_texts_join_over_the_streams_that_are_described() -> None:
    registry = Registry(streams=STREAMS, every="10 s", parallelism=4)
    registry.register("text", TEXT)
    registry.register(
        "bound", parse_query(TEXT).bind({"a": SCHEMA, "b": SCHEMA}, {"a": TIME, "b": TIME}), stream=["a", "b"]
    )
    text, bound = registry.plan().joins
    assert text.streams == bound.streams == ("a", "b")
    assert text.values == bound.values
    assert text.state is not None
    rows, size = text.state["left"]
    assert rows == pytest.approx(200 * (10 + 2 + 2 + 0.5 + 10 / 8), rel=0.05)
    assert size == pytest.approx(rows * (8 + 8 + 8 + 20))
    assert text.values["buckets"] == 4
    registry.pin("text", {"block_size": 50, "buckets": 8})
    assert registry.plan().decisions["text"]["buckets"] == 8
    with pytest.raises(QueryError, match="WA-2074: no join is named 'hot'"):
        registry.query("hot")
    with pytest.raises(QueryError, match="WA-2113: line 1, column 22: no stream 'd' is given"):
        registry.register("d", TEXT.replace("b B", "d B"))


def test_columns_are_checked_when_a_query_is_registered_over_a_stream_that_is_described() -> None:
    registry = Registry(streams={"a": Stream(SCHEMA, Point("t_max"))})
    with pytest.raises(QueryError, match=r"WA-2092: line 1, column 38: .* 'vv' \(hint: did you mean 'v'"):
        registry.register("hot", "SELECT * FROM a [ROWS 9] COALESCE ON vv")
    with pytest.raises(QueryError, match="WA-2112: line 1, column 15: this query has no window"):
        registry.register("hot", "SELECT * FROM a COALESCE ON v")
    registry.register("hot", "SELECT * FROM a [ROWS 9] COALESCE ON v")
    with pytest.raises(QueryError, match="WA-2073: a query named 'hot' is registered already"):
        registry.register("hot", timing())
    registry.register("pairs", timing())
    with pytest.raises(QueryError, match="WA-2073: a query named 'pairs' is registered already"):
        registry.register("pairs", "SELECT * FROM a [ROWS 9] COALESCE ON v")
    assert registry.register(timing()) == "query 1"


def test_plans_of_joins_survive_export_and_tell_what_changed() -> None:
    registry = Registry(streams=STREAMS)
    registry.register("pairs", timing(max_latency="5 s"), stream=["a", "b"])
    registry.register("hot", "SELECT * FROM s [ROWS 9] COALESCE ON v GROUP BY k", Statistics(0.8))
    plan = registry.plan()
    assert Plan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["choices"] == {"hot": "eager", "pairs": "auto"}
    registry.pin("pairs", {"strategy": "lazy", "block_size": 10})
    assert plan.diff(registry.plan()) == {"pairs": ("auto", "lazy"), "pairs.block_size": ("1250", "10")}
    registry.unregister("pairs")
    assert plan.diff(registry.plan()) == {"pairs": ("auto", None)}
    told = plan.explain()
    for part in (
        "pairs: timing join of a, b; left 200/s",
        "strategy = auto:",
        "lazy_lookup",
        "block_size = 1250: the smallest",
        "longer to fill than max_latency",
        "latency: 5 s",
        "hot: scheme = eager: its own extent",
        "buckets = 1",
    ):
        assert part in told, part


def test_measured_rates_change_a_plan_only_if_that_wins_clearly_and_pins_hold() -> None:
    registry = Registry(hysteresis=0.2)
    registry.register("pairs", timing(max_latency="1 s"), Workload(rates={"left": 500.0, "right": 500.0}, keys=1e6))
    current = registry.plan()
    assert current.decisions["pairs"]["block_size"] == 1000
    registry.observe("pairs", Workload(rates={"left": 575.0, "right": 575.0}, keys=1e6, source="measured"))
    assert registry.plan().decisions["pairs"]["block_size"] == 1150
    assert registry.replan(current).decisions == current.decisions
    registry.observe("pairs", Workload(rates={"left": 5000.0, "right": 5000.0}, keys=1e6, source="measured"))
    assert registry.replan(current).decisions["pairs"]["block_size"] == 10_000
    registry.observe("pairs", Workload(rates={"left": 5.0, "right": 5.0}, keys=1e6))
    assert registry.replan(current).decisions == current.decisions  # max_latency ends this wait like any other
    registry.pin_all(current)
    assert registry.plan().decisions["pairs"]["block_size"] == 1000
    with pytest.raises(QueryError, match="WA-2006: Statistics for 'pairs'"):
        registry.observe("pairs", Statistics())


@pytest.mark.parametrize(
    ("pin", "what"),
    [
        ("bewildered", "WA-2006: strategy is 'bewildered'"),
        ({"conservative": "gca"}, "WA-2006: query 'pairs' has no choice named 'conservative'"),
        ({"block_size": 0}, "WA-2006: block_size is 0"),
        ({"buckets": "many"}, "WA-2006: buckets is 'many'"),
    ],
)
def test_pins_that_cannot_be_are_refused_at_once(pin: Any, what: str) -> None:
    registry = Registry()
    with pytest.raises(QueryError, match=what):
        registry.register("pairs", timing(), pin=pin)
    registry.register("pairs", timing())  # the name is still free
    with pytest.raises(QueryError, match=what):
        registry.pin("pairs", pin)
    assert not any(choice.pinned for choice in registry.plan().joins[0].choices)


def test_the_buckets_of_coalescing_queries_are_pinned_too() -> None:
    registry = Registry(parallelism=4)
    registry.register("hot", "SELECT * FROM s [ROWS 9] COALESCE ON v GROUP BY k", pin={"scheme": "lazy", "buckets": 7})
    assert registry.plan().decisions == {"hot": {"scheme": "lazy", "buckets": 7}}
    registry.pin("hot", None)
    assert registry.plan().decisions == {"hot": {"scheme": "eager", "buckets": 4}}
    with pytest.raises(QueryError, match="WA-2006: query 'hot' has no option 'strategy'"):
        registry.pin("hot", {"strategy": "forward"})


def test_statistics_must_be_of_the_queries_kind_and_possible() -> None:
    registry = Registry()
    for name, query, statistics, what in [
        ("pairs", timing(), Statistics(), "WA-2006: a join is given Statistics"),
        (
            "hot",
            "SELECT * FROM s [ROWS 9] COALESCE ON v",
            Workload(),
            "WA-2006: a coalescing query is given a Workload",
        ),
        ("three", timing(), None, "WA-2006: 3 streams are named for 2 inputs"),
    ]:
        with pytest.raises(QueryError, match=what):
            registry.register(name, query, statistics, stream=["x", "y", "z"])
    for wrong in (
        {"rates": {"left": 0.0}},
        {"rates": {"left": float("nan")}},
        {"keys": -1},
        {"parallelism": True},
        {"row_bytes": {"left": float("inf")}},
    ):
        with pytest.raises(QueryError, match="WA-2072"):
            Workload(**wrong)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="WA-2072: the rate of the stream is -1"):
        Stream(rate=-1)


def test_a_choice_that_is_left_nothing_says_so() -> None:
    none = [Alternative(1, 5.0, "is too slow"), Alternative(2, 1.0, "is too large")]
    with pytest.raises(QueryError, match="WA-2161: no size is left: 1 is too slow; 2 is too large"):
        cheapest("size", none, "us")
    with pytest.raises(QueryError, match="WA-2161: size is pinned to 2: is too large"):
        cheapest("size", none, "us", pin=2)


def test_what_was_chosen_is_what_runs() -> None:
    query = timing(max_latency="1 s")
    load = Workload(rates={"left": 5000.0, "right": 5000.0}, keys=1e6)
    ran = decided(query, query.choices(load))
    assert (ran.strategy, ran.block_size) == ("auto", 10_000)
    assert ran.operator([SCHEMA, SCHEMA], streaming=True)._block_rows == 10_000
    text = parse_query(TEXT).bind({"a": SCHEMA, "b": SCHEMA}, {"a": TIME, "b": TIME}, max_latency="1 s")
    assert decided(text, text.choices(load)).query.block_size == 10_000


PLAN = """
every: 10 s
streams:
  a: {columns: {k: string, t_min: timestamp, t_max: timestamp}, time: "t_min,t_max", max_uncertainty: 1 s, rate: 9}
  b: {columns: {k: string, t: timestamp}, rate: 5, keys: 3, lateness: 2 s}
queries:
  - {name: pairs, join: [a, b], on: k, deadline: 2 s, since: 1 s, confidence: 0.6, max_latency: 5 s, how: left_outer,
     best: left, ties: nearest}
  - {name: trail, window_join: [a, b], on: [k], windows: {"a,b": {between: [0 s, 5 s], confidence: 1}}, pin: forward}
  - name: text
    query: SELECT * FROM a, b WHERE WINDOW(a, b) = '2 s' WITH THRESHOLD 0.6
    statistics: {rates: {left: 1, right: 2}}
  - {name: hot, coalesce: [v], group: [k], window: {rows: 9}, pin: {scheme: lazy}, stream: a}
"""


def test_a_plan_file_has_joins_beside_coalescing_queries(tmp_path: Path) -> None:
    file = tmp_path / "queries.yaml"
    file.write_text(PLAN)
    registry = read_plan_file(file)
    plan = registry.plan()
    pairs = registry.query("pairs")
    assert pairs.described.startswith("left_outer timing join (best=left, ties=nearest)")
    assert plan.choices == {"hot": "lazy", "pairs": "auto", "trail": "forward", "text": "auto"}
    assert [join.kind for join in plan.joins] == ["timing join", "window join", "timing join"]
    assert plan.joins[2].statistics["rates"] == {"left": 1, "right": 2}
    assert plan.queries[0].statistics["rate"] == 9
    assert plan.joins[0].latency_us > 10_000_000


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("{name: x, join: [a]}", r"WA-2075: plan: queries\[0\]: join is \['a'\]"),
        ("{name: x, join: [a, z], within: 1 s, confidence: 1}", r"WA-2113: plan: queries\[0\]: no stream 'z'"),
        ("{name: x, join: [a, b], within: 1 s}", r"WA-2001: plan: queries\[0\]: no confidence"),
        ("{name: x, join: [a, b], confidence: 1}", r"WA-2006: plan: queries\[0\]: no condition"),
        ("{name: x, join: [a, b], within: 1 s, delay: 1 s, confidence: 1}", r"WA-2006: .*within and delay"),
        ("{name: x, join: [a, b], within: -1 s, confidence: 1}", r"WA-2003: plan: queries\[0\]: "),
        ("{name: x, join: [a, b], between: 1 s, confidence: 1}", r"WA-2006: plan: queries\[0\]: between"),
        (
            "{name: x, join: [a, n], within: 1 s, confidence: 1}",
            r"WA-2114: .*queries\[0\]: the times of stream 'n'",
        ),
        ("{name: x, join: [a, b], within: 1 s, confidence: 1, window: {}}", r"WA-2075: .*unknown window"),
        ("{name: x, window_join: [a, b]}", r"WA-2075: plan: queries\[0\]: windows is None"),
        ("{name: x, window_join: [a, b], windows: {'a,b': {within: 1 s, untill: 1}}}", r"WA-2075: .*unknown untill"),
        ("{name: x, join: [a, b], within: 1 s, since: 1 s, confidence: 1}", r"WA-2006: .*since is given without"),
        ("{name: x, window_join: [a, b], windows: {a: 1 s}}", r"WA-2075: plan: queries\[0\]: windows: 'a'"),
        (
            "{name: x, join: [a, b], within: 1 s, confidence: 1, statistics: {rates: {left: 0}}}",
            r"WA-2072: .*rate of left",
        ),
        ("{name: x, join: [a, b], within: 1 s, confidence: 1, pin: 5}", r"WA-2075: .*pin"),
        ("{name: x, query: 'SELECT * FROM a, b WHERE WINDOW(a, z) = 5'}", r"line 1, column \d+"),
    ],
)
def test_mistakes_in_joins_are_named_with_their_place(query: str, what: str) -> None:
    import yaml

    streams = "{a: {time: t, columns: {t: timestamp}}, b: {time: t, columns: {t: timestamp}}, n: {}}"
    with pytest.raises(QueryError, match=what):
        registry_of(yaml.safe_load(f"streams: {streams}\nqueries: [{query}]"))


@pytest.mark.parametrize(
    ("stream", "what"),
    [
        ("{columns: {a: number}}", "column a is of type 'number'"),
        ("{columns: 5}", "columns is 5"),
        ("{time: 'a,b,c'}", "time is 'a,b,c'"),
        ("{rate: fast}", "rate is 'fast'"),
        ("{colums: {}}", "unknown colums"),
    ],
)
def test_mistakes_in_streams_are_named_with_their_place(stream: str, what: str) -> None:
    import yaml

    with pytest.raises(QueryError, match=f"WA-2075: plan: streams: s: {what}"):
        registry_of(yaml.safe_load(f"streams: {{s: {stream}}}\nqueries: []"))


def test_the_former_name_of_workload_still_works_and_warns() -> None:
    import whenabouts.planner

    with pytest.warns(DeprecationWarning, match=r"whenabouts\.planner\.Load is deprecated: use Workload"):
        former = whenabouts.planner.Load  # type: ignore[attr-defined]
    assert former is Workload


ASOF = AsofJoin(left_time=TIME, right_time=TIME, on="k", confidence=0.6, lateness=Lateness(left="1 s", right="2 s"))
ASOF_TEXT = "SELECT A.k FROM a A ASOF LEFT JOIN b B ON A.k = B.k AND TIME(A) >= TIME(B) WITH THRESHOLD 0.6"
ASOF_FILE = {
    "every": "4 s",
    "streams": {
        name: {"columns": {"k": "string", "t_min": "timestamp", "t_max": "timestamp"}, "time": "t_min,t_max",
               "max_uncertainty": "500 ms", "rate": rate, "keys": 20, "lateness": late}
        for name, rate, late in (("a", 200, "1 s"), ("b", 50, "2 s"))
    },
    "queries": [
        {"name": "file", "asof_join": ["a", "b"], "on": "k", "confidence": 0.6, "tolerance": "5 s", "how": "left_anti"},
        {"name": "text", "query": ASOF_TEXT},
    ],
}  # fmt: skip


def test_as_of_joins_are_planned_with_their_cost_and_state() -> None:
    registry = Registry(streams=STREAMS, every="4 s")
    registry.register("object", ASOF, stream=["a", "b"])
    registry.register("text", ASOF_TEXT)
    plan = registry.plan()
    assert plan.choices == {"object": "quadrature", "text": "quadrature"}
    found, text = plan.joins
    assert found.state is not None
    rows, _ = found.state["right"]
    per_key = 50 / 20
    recent_s = 4 + 4 / 8 + 2 + 0.5 + 0.5
    assert rows == pytest.approx(50 * recent_s + 20 * (1 + per_key * 0.25))
    assert found.latency_us == 6_500_000
    assert "algorithm = quadrature: times are uncertain: 2.25 right rows may prevail" in plan.explain()
    assert "  state: left " in plan.explain()
    assert text.state is not None
    assert text.state["right"][0] == pytest.approx(rows)
    assert Plan.from_json(plan.to_json()) == plan
    assert registry.replan(plan).diff(plan) == {}
    assert registry.query("object") == ASOF
    registry.pin_all(plan)
    assert registry.plan().decisions["object"]["buckets"] == plan.decisions["object"]["buckets"]


def test_as_of_joins_in_plan_files() -> None:
    registry = registry_of(ASOF_FILE)
    query = registry.query("file")
    assert isinstance(query, AsofJoin)
    assert (query.how, query.tolerance_us, query.lateness_us) == ("left_anti", 5_000_000, (1_000_000, 2_000_000))
    file, text = registry.plan().joins
    assert file.kind == text.kind == "as-of join"
    assert file.state is not None
    assert text.state is not None
    assert file.state["right"][0] < text.state["right"][0], "the tolerance frees no state"


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("{name: x, asof_join: [a]}", r"WA-2075: plan: queries\[0\]: asof_join is \['a'\]"),
        ("{name: x, asof_join: [a, b], direction: back}", r"WA-2006: plan: queries\[0\]: .*direction"),
        ("{name: x, asof_join: [a, b], tolerance: -1 s}", r"WA-2003: plan: queries\[0\]"),
        ("{name: x, asof_join: [a, b], strategy: eager}", r"WA-2075: .*unknown strategy"),
        ("{name: x, asof_join: [a, b], pin: eager}", r"WA-2006: .*no choice named 'strategy' \(hint: it has buckets"),
        ("{name: x, asof_join: [a, z]}", r"WA-2113: .*no stream 'z'"),
    ],
)
def test_mistakes_in_as_of_joins_are_named_with_their_place(query: str, what: str) -> None:
    import yaml

    streams = "{a: {time: t, columns: {t: timestamp}}, b: {time: t, columns: {t: timestamp}}}"
    with pytest.raises(QueryError, match=what):
        registry_of(yaml.safe_load(f"streams: {streams}\nqueries: [{query}]"))


def test_an_as_of_join_whose_state_nothing_bounds_has_no_forecast() -> None:
    registry = Registry(streams=STREAMS, every="4 s")
    registry.register("ahead", replace(ASOF, direction="forward"), stream=["a", "b"])
    (plan,) = registry.plan().joins
    assert plan.state is None
    assert "state: unknown without rates, a tolerance where it looks ahead and max_uncertainty" in registry.explain()


AGGREGATE_TEXT = (
    "SELECT A.k, COUNT(B) AS n FROM a A, b B WHERE A.k = B.k AND WINDOW(A, B) BETWEEN '0 s' AND '2 s' "
    "WITH THRESHOLD 0.6 GROUP BY A"
)
AGGREGATE_FILE = ASOF_FILE | {
    "queries": [
        {"name": "file", "join_aggregate": ["a", "b"], "on": "k", "between": ["0 s", "2 s"], "confidence": 0.6,
         "aggregates": {"n": "count"}, "how": "inner"},
        {"name": "chance", "join_aggregate": ["a", "b"], "on": "k", "within": "2 s", "aggregates": {"n": "p_none"}},
        {"name": "text", "query": AGGREGATE_TEXT},
    ]
}  # fmt: skip


def test_join_aggregates_are_planned_as_objects_texts_and_in_files() -> None:
    registry = registry_of(AGGREGATE_FILE)
    query = registry.query("file")
    assert isinstance(query, JoinAggregate)
    assert (query.how, query.lateness_us) == ("inner", (1_000_000, 2_000_000))
    registry.register("object", query, stream=["a", "b"])
    plan = registry.plan()
    assert {each.kind for each in plan.joins} == {"join aggregate"}
    assert plan.choices == {"file": "ranges", "chance": "ranges and pieces", "text": "ranges", "object": "ranges"}
    file, chance, text, made = plan.joins
    assert file.state is not None
    assert chance.state is not None
    assert file.state == text.state == made.state
    assert file.state["right"][0] < chance.state["right"][0]
    assert Plan.from_json(plan.to_json()) == plan
    assert registry.replan(plan).diff(plan) == {}
    assert "algorithm = ranges: no pairs are written" in plan.explain()


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("{name: x, join_aggregate: [a], within: 1 s}", r"WA-2075: plan: queries\[0\]: join_aggregate is \['a'\]"),
        ("{name: x, join_aggregate: [a, b], within: 1 s}", r"WA-2006: plan: queries\[0\]: aggregates is None"),
        ("{name: x, join_aggregate: [a, b], within: 1 s, aggregates: {n: count}}", r"WA-2064: plan: queries\[0\]"),
        ("{name: x, join_aggregate: [a, b], best: left}", r"WA-2075: .*unknown best"),
    ],
)
def test_mistakes_in_join_aggregates_are_named_with_their_place(query: str, what: str) -> None:
    import yaml

    streams = "{a: {time: t, columns: {t: timestamp}}, b: {time: t, columns: {t: timestamp}}}"
    with pytest.raises(QueryError, match=what):
        registry_of(yaml.safe_load(f"streams: {streams}\nqueries: [{query}]"))


def test_the_memory_budget_counts_the_state_of_joins() -> None:
    """What a join holds is not free for extents; and a budget that the joins alone exceed is refused."""
    hot = CoalescingQuery(("v",), ("k",), rows=1000, stream="a")
    registry = Registry(streams=STREAMS, every="4 s")
    registry.register("hot", hot, Statistics(cp=0.8))
    alone = registry.plan()
    registry.register("asof", ASOF, stream=["a", "b"])
    (join,) = registry.plan().joins
    assert join.state_bytes
    needs = alone.bytes_beside("none") + join.state_bytes
    for budget, code in ((needs + 1, None), (needs - 1, "WA-2071"), (join.state_bytes / 2, "WA-2071")):
        limited = Registry(streams=STREAMS, every="4 s", memory_budget=budget)
        limited.register("hot", hot, Statistics(cp=0.8), pin=alone.schemes["hot"])
        limited.register("asof", ASOF, stream=["a", "b"])
        if code is None:
            assert limited.plan().schemes == alone.schemes
        else:
            with pytest.raises(QueryError, match=code):
                limited.plan()
