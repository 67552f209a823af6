"""Running plans: registered queries share an operator, are measured, planned again, and switched at run time."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.core import Point as PointInTime
from whenabouts.core import QueryError, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.choices import Workload, decided
from whenabouts.core.costs.eager_lazy_cost import scheme_costs
from whenabouts.core.costs.prices import SchemePrices, TimingJoinPrices
from whenabouts.core.local import coalesce, run_stream
from whenabouts.core.shared_coalescing.columns import QUERY
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.planner import AtomicCosts, CoalescingQuery, PlanChangedWarning, Registry, Statistics, parse_query
from whenabouts.planner.calibration import (
    CP,
    OOP,
    Calibration,
    GridPoint,
    sizes_of,
    solved,
    store,
    stored_calibration,
    synthetic_stream,
)
from whenabouts.planner.measured_statistics import measured_statistics
from whenabouts.planner.plan_files import read_plan_file, registry_of
from whenabouts.planner.scheme_measurements import Expiry, SchemeMeasurement, measure_expiry

SECOND = 1_000_000
HOT = (
    "SELECT k, MAX(DURATION(VALID(s))) AS longest FROM s [RANGE 60 SECOND SLIDE 10 SECOND] COALESCE ON v > 1 GROUP BY k"
)
LEVEL = "SELECT * FROM s [RANGE 40 SECOND SLIDE 10 SECOND] COALESCE ON FLOOR(v / 2) GROUP BY k"

TEXTS = {"hot": HOT, "level": LEVEL}


def _stream(rows: int = 600) -> pa.Table:
    draw = random.Random(4)
    at = sorted((second + draw.randrange(4), second) for second in (draw.randrange(240) for _ in range(rows)))
    return pa.table(
        {
            "ts": pa.array([second * SECOND + n for n, (_, second) in enumerate(at)], pa.timestamp("us")),
            "k": [draw.choice("ab") for _ in at],
            "v": [draw.choice([0, 2, 2, 2]) for _ in at],
        }
    )


def test_a_schema_that_no_loaded_adapter_reads_is_refused() -> None:
    registry = Registry()
    registry.register("hot", HOT)
    for schema in ("ts timestamp", None, object):
        with pytest.raises(QueryError, match=r"WA-2006: the schema of 's' is a builtins\..*whenabouts\.spark_plugin"):
            registry.share(schema)
        with pytest.raises(QueryError, match="WA-2006: the schema of 's' is a builtins"):
            parse_query(HOT).bind({"s": schema})


def test_registered_texts_and_objects_run_as_one_query_and_are_switched_while_they_run() -> None:
    table = _stream()
    plain = Coalesce(time="ts", group="k", values="v", window="30 s", slide="10 s", lateness="5 s")
    registry = Registry(hysteresis=0.0)
    registry.register("hot", HOT, Statistics(0.9))
    registry.register("level", LEVEL, Statistics(0.9))
    assert registry.register(plain, Statistics(0.9)) == "query 1"
    with pytest.raises(QueryError, match="WA-2074: which stream: None"):
        registry.share(table.schema)  # an object does not describe its stream
    registry.unregister("query 1")
    registry.register("plain", plain, Statistics(0.9), stream="s")
    first = registry.plan()
    assert set(first.choices.values()) == {"eager"}
    shared = registry.share(table.schema, lateness="5 s")
    for name in ("hot", "level"):
        registry.pin(name, "lazy")
    lazy = registry.share(table.schema, lateness="5 s", plan=registry.replan(first))
    files = [table.slice(start, 50) for start in range(0, len(table), 50)]
    outcome = run_stream(shared, [files], changes={3: lazy, 8: shared})
    texts = {name: parse_query(text).bind({"s": table.schema}, lateness="5 s") for name, text in TEXTS.items()}
    for name, query in (texts | {"plain": plain}).items():
        alone = run_stream(query, [files]).output
        mine = outcome.output.filter(pc.equal(outcome.output[QUERY], name)).select(alone.column_names)
        assert alone.num_rows > 20
        assert sorted(map(repr, mine.to_pylist())) == sorted(map(repr, alone.to_pylist()))


def test_statistics_are_measured_by_the_running_queries() -> None:
    table = _stream()
    registry = Registry()
    registry.register("level", LEVEL)
    registry.register("lazy", LEVEL.replace("40", "60"), pin="lazy")
    counts = run_stream(registry.share(table.schema, lateness="5 s"), [[table.slice(0, 300), table.slice(300)]]).metrics
    registry.observe_counts(counts, 240.0)
    every = coalesce(
        table.append_column("level", pc.floor(pc.divide(table["v"].cast(pa.float64()), 2.0))),
        time="ts", group="k", values="level", lateness="5 s",
    )  # fmt: skip
    tuples = pc.sum(every["n"]).as_py()
    cp = 1 - (every.num_rows - 2) / (tuples - 2)
    for query in registry.plan().queries:
        found = query.statistics
        assert found["source"] == "measured"
        assert found["cp"] == pytest.approx(cp, abs=0.05)
        assert found["rate"] == pytest.approx(600 / 240)
        assert 0.2 < found["oop"] < 0.9
    registry.observe_counts({"rows_processed": 10, "coalesced.level": 0, "neighbours.level": 9}, 1.0, weight=0.5)
    assert registry.plan().queries[0].statistics["cp"] == pytest.approx(cp / 2, abs=0.03)
    for seconds, weight in ((0.0, 0.5), (1.0, 0.0)):
        with pytest.raises(QueryError, match="WA-2072"):
            registry.observe_counts(counts, seconds, weight=weight)
    assert measured_statistics({}, 1.0, ["level"]) == {}


def test_what_cannot_be_registered_or_shared() -> None:
    registry = Registry()
    query = CoalescingQuery(("v",), ("k",), rows=10, stream="s")
    registry.register("planned", query)
    with pytest.raises(QueryError, match="WA-2006: query 'planned' can be planned but not run"):
        registry.share(_stream().schema)
    with pytest.raises(QueryError, match="WA-2006: a TemporalJoin cannot be planned"):
        registry.register("join", TemporalJoin.__new__(TemporalJoin))
    with pytest.raises(QueryError, match="WA-2006: no query is given for the name 'b'"):
        registry.register("b", Statistics())
    with pytest.raises(QueryError, match="WA-2113: line 1, column 15: no stream 'a' is given"):
        registry.register("c", "SELECT * FROM a, b WHERE WINDOW(a, b) = '2 s'")


def test_a_plan_of_another_release_is_kept_by_pins_and_its_changes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(hysteresis=0.9)
    registry.register("hot", CoalescingQuery(("v",), ("k",), rows=10), Statistics(0.8))
    registry.register("wet", CoalescingQuery(("w",), ("k",), rows=10), Statistics(0.1))
    before = registry.plan()
    monkeypatch.setattr("whenabouts.planner.coalescing_plans.release", lambda: "99.0")
    registry.observe("hot", Statistics(0.0))
    with pytest.warns(PlanChangedWarning, match="release 99.0 would decide: hot: eager -> lazy, wet: eager -> lazy"):
        assert registry.replan(before).choices == before.choices
    with pytest.warns(PlanChangedWarning, match="release 99.0 would decide"):
        adopted = registry.adopt(before.to_json())
    assert (adopted.choices, adopted.release) == (before.choices, "99.0")
    assert registry.replan(adopted).choices == before.choices  # declared once, then its own
    registry.pin_all(before)
    assert registry.plan().choices == before.choices


def test_a_sql_file_is_a_plan_file_and_its_mistakes_have_their_place(tmp_path: Path) -> None:
    file = tmp_path / "queries.sql"
    file.write_text(f"-- name: hot\n{HOT};\n\n-- a remark; with a semicolon\n{LEVEL} ;\n-- the end\n")
    registry = read_plan_file(file)
    assert list(registry.plan().choices) == ["hot", "query 1"]
    file.write_text(f"{HOT};\nSELECT * FROM s\n  [RANGE soon]\nCOALESCE ON v;")
    with pytest.raises(QueryError, match="WA-2111: line 3, column 10: found 'soon'"):
        read_plan_file(file)
    file = tmp_path / "queries.yaml"
    file.write_text(f'queries: [{{name: hot, query: "{HOT}", statistics: {{cp: 0.5}}}}]')
    assert read_plan_file(file).plan().choices == {"hot": "eager"}
    file.write_text("queries: [{name: hot, query: SELECT, window: {rows: 5}}]")
    with pytest.raises(QueryError, match=r"WA-2075: .*queries\[0\]: query is given together with window"):
        read_plan_file(file)


SIZE, STEPS = 100, (50.0, 10.0)


def _measured(cp: float, oop: float, row: float = 3.0) -> GridPoint:
    """Invented costs: 1 per row, 4 per eager step, 2 per lazy step; a sort costs 0.9 per tuple."""
    eager = [
        SchemeMeasurement(SIZE * (60 - 40 * cp), row + 2 * oop - cp + 4 / rows, 4 + SIZE * (3 - cp), SIZE, rows)
        for rows in STEPS
    ]
    lazy = [SchemeMeasurement(SIZE * 70, 1 + oop + 2 / rows, 0.0, SIZE, rows) for rows in STEPS]
    several = [replace(each, scan=2 / 4 + SIZE * (1.5 + cp + 0.9 / 4)) for each in lazy]
    alone = replace(lazy[0], scan=2 + SIZE * (1.5 + cp + 0.9))
    return GridPoint((eager[0], eager[1]), (several[0], several[1]), alone, Expiry(0.2 + 0.1 * cp, 0.05))


def _made_up() -> Calibration:
    """Costs from invented measurements."""
    found = {(cp, oop): _measured(cp, oop) for cp in CP for oop in OOP}
    return Calibration(*solved(found), TimingJoinPrices(step=7.0), machine="a made-up one", release="1")


@pytest.mark.parametrize("cp", CP)
@pytest.mark.parametrize("oop", OOP)
@pytest.mark.parametrize("step_rows", [*STEPS, 1.0])
def test_the_model_says_what_was_measured_at_the_points_that_were(cp: float, oop: float, step_rows: float) -> None:
    found = _made_up()
    for sharing in (1, 4):
        both = scheme_costs(SIZE, Statistics(cp, oop, step_rows=step_rows), found.costs, found.sizes, sharing=sharing)
        eager = SIZE * (60 - 40 * cp), 3 + 2 * oop - cp + 4 / step_rows, 4 + SIZE * (3 - cp)
        lazy = SIZE * 70, 1 + oop + 2 / step_rows, SIZE * (1.5 + cp + 0.9 / sharing)
        for cost, expected in ((both.eager, eager), (both.lazy, lazy)):
            assert (cost.memory, cost.update, cost.scan) == pytest.approx(expected)
    single = found.costs.at(cp, oop)
    assert single["delete"] == pytest.approx(0.05)
    assert cp * single["detach"] + (1 - cp) * 0.05 == pytest.approx(0.2 + 0.1 * cp)
    assert single["split"] == pytest.approx(1 / (1 - cp))  # late tuples cost an eager extent 1 more than a lazy one
    assert single["keep"] == pytest.approx(3 - cp - (1 - 0.05) - (0.2 + 0.1 * cp))


@pytest.mark.parametrize("cp", CP)
@pytest.mark.parametrize("oop", OOP)
def test_an_eager_update_that_costs_less_than_a_lazy_one_is_reproduced_too(cp: float, oop: float) -> None:
    """An eager extent has fewer columns: merge then costs less than insert."""
    costs, sizes = solved({(cp, oop): _measured(cp, oop, 1.7) for cp in CP for oop in OOP})
    both = scheme_costs(SIZE, Statistics(cp, oop, step_rows=10.0), costs, sizes)
    assert (both.eager.update, both.lazy.update) == pytest.approx((1.7 + 2 * oop - cp + 0.4, 1 + oop + 0.2))
    assert costs.at(0.95, 0.0)["merge"] < costs.at(0.95, 0.0)["insert"]


def test_expiry_and_order_of_arrival_have_prices_on_this_machine() -> None:
    """Delete, detach and split used to be zero, their work counted under other names."""
    query = Coalesce(time="t", group="g", values="v0", window="8 s", slide="1 s", lateness="500 ms")
    found = measure_expiry(query, synthetic_stream(0.6, 0.3, 200_000))
    assert found.eager > 0.0
    assert found.lazy >= 0.0


def test_calibrated_costs_are_stored_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHENABOUTS_COSTS", str(tmp_path / "in" / "costs.json"))
    assert stored_calibration() is None
    found = _made_up()
    store(found)
    assert stored_calibration() == found
    (tmp_path / "in" / "costs.json").write_text('{"format": 1}')
    with pytest.raises(QueryError, match="WA-2075: not calibrated costs: it is of format 1"):
        stored_calibration()
    wide = pa.schema({"t": pa.int64(), "g": pa.int32(), "v": pa.int16(), "name": pa.string()})
    sizes = sizes_of(found, wide, ["g", "v"])
    assert sizes.eager_row < found.sizes.eager_row
    assert AtomicCosts().expand == 0.0


def test_a_synthetic_stream_has_the_probabilities_that_were_asked_for() -> None:
    table = synthetic_stream(0.6, 0.3, 20_000)
    runs = coalesce(table, time="t", group="g", values="v1")
    assert 1 - (runs.num_rows - 50) / (20_000 - 50) == pytest.approx(0.6, abs=0.02)
    at = table["t"].to_numpy()
    late = (at < pc.cumulative_max(table["t"]).to_numpy()).mean()
    assert late == pytest.approx(0.3, abs=0.02)


def test_what_is_left_open_is_chosen_at_calibrated_prices() -> None:
    given = {"left_time": PointInTime("t"), "right_time": PointInTime("t"), "condition": within("1 s", confidence=1)}
    join, rates = TimingJoin(**given, on="k", max_latency="5 s"), Workload(rates={"left": 300.0, "right": 100.0})
    cheap = replace(_made_up(), timing=TimingJoinPrices(step=1.0))  # a step that costs nothing need not wait for rows
    for prices, block in ((None, 1000), (cheap.timing, 1)):
        registry = Registry(timing_prices=prices)
        registry.register("pairs", join, rates, stream=["a", "b"])
        assert registry.plan().decisions["pairs"]["block_size"] == block
        known = replace(rates, timing_prices=prices)
        assert decided(join, join.choices(known)).block_size == block
    stream = {"columns": {"k": "string", "t": "timestamp"}, "time": "t", "rate": 200}
    asked = {"name": "pairs", "join": ["a", "b"], "on": "k", "within": "1 s", "confidence": 1, "max_latency": "5 s"}
    told = {"streams": {"a": stream, "b": stream}, "queries": [asked]}
    assert registry_of(told).plan().decisions["pairs"]["block_size"] == 1000
    assert registry_of(told, calibrated=cheap).plan().decisions["pairs"]["block_size"] == 1


def test_a_lone_query_asks_the_cost_model_too() -> None:
    query = Coalesce(time="t", group="k", values="v", window="1 h", slide="10 s")
    dear = SchemePrices(costs=replace(AtomicCosts(), eager_step=1e9))
    assert query.choices()[0].value == "eager"
    (choice,) = query.choices(Workload(rates={"events": 5.0}, scheme_prices=dear))
    assert (choice.value, len(choice.alternatives)) == ("lazy", 2)
    assert decided(query, [choice]).scheme == "lazy"
    assert query.choices(Workload(scheme_prices=dear), {"scheme": "eager"})[0].value == "eager"
    past = Coalesce(time="t", group="k", values="v")
    assert past.choices(Workload(scheme_prices=dear))[0].value == "eager"


def test_few_rows_a_step_and_a_grouping_of_its_own_tell_for_the_shared_extent_or_against_it() -> None:
    found = _made_up()
    small, large = (
        scheme_costs(SIZE, Statistics(0.35, 0.0, step_rows=rows), found.costs, found.sizes) for rows in (1.0, 100.0)
    )
    assert small.eager.update - large.eager.update > small.lazy.update - large.lazy.update > 0
    registry = Registry(costs=found.costs, sizes=found.sizes)
    for name in ("a", "b"):
        registry.register(name, CoalescingQuery((name,), ("k",), rows=SIZE), Statistics(0.35, step_rows=10.0))
    together = {each.name: each.lazy_cost for each in registry.plan().queries}
    registry.unregister("b")
    assert registry.plan().queries[0].lazy_cost > together["a"]  # alone it pays for the sort
    whole = CoalescingQuery.of(TemporalAggregate(**AGGREGATED)), CoalescingQuery.of(Coalesce(**_without(AGGREGATED)))
    assert [each.eager_part for each in whole] == [0.5, 1.0]
    texts = (f"SELECT k, {what} FROM s [RANGE 40 SECOND SLIDE 10 SECOND] COALESCE ON v GROUP BY k" for what in (
        "MAX(DURATION(VALID(s))) AS longest", "v"))  # fmt: skip
    assert [parse_query(text).distinct().eager_part for text in texts] == [0.5, 1.0]


AGGREGATED: dict[str, Any] = {
    "time": "t", "group": "k", "values": "v", "window": "40 s", "slide": "10 s", "aggregates": {"n": "count"},
}  # fmt: skip


def _without(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "aggregates"}
