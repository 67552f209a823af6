"""What is planned, what is explained and what runs are the same, on random registries."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from infra.operators import OperatorDriver
from whenabouts.core import QueryError
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import run, run_stream
from whenabouts.core.shared_coalescing.catalog import FIRST_OWN, PARTS, Catalog
from whenabouts.core.shared_coalescing.columns import QUERY
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner import Plan, Registry, Statistics

REGISTRIES = 1000
RUN = 25
"""How many of the registries also run over a whole stream."""

SECOND = 1_000_000
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::whenabouts.core.errors.SingleBucketWarning")]


def _near(before: pa.Table, now: pa.Table) -> Any:
    return pc.less_equal(pc.abs(pc.subtract(now[0], before[0])), 1)


def _same_parity(before: pa.Table, now: pa.Table) -> Any:
    return pc.equal(pc.bit_wise_and(now[0], 1), pc.bit_wise_and(before[0], 1))


LAMBDAS = [lambda before, now: _near(before, now), lambda before, now: _same_parity(before, now)]
"""Two predicates of one name."""
EQUIVALENCES: list[Any] = ["equal", "equal", "absolute_tolerance:1", "non_decreasing", *LAMBDAS]


@lru_cache
def stream(rows: int = 240) -> pa.Table:
    draw = random.Random(22)
    at = sorted((second + draw.randrange(4), second) for second in (draw.randrange(120) for _ in range(rows)))
    return pa.table(
        {
            "t": pa.array([second * SECOND for _, second in at], pa.int64()),
            "k": pa.array([draw.choice(["a", "b", "c", None]) for _ in at]),
            "g": pa.array([draw.choice("xy") for _ in at]),
            "v": [draw.choice([0, 2, 2, 3]) for _ in at],
            "w": [draw.choice([1, 1, 5]) for _ in at],
        }
    )


def random_query(draw: random.Random) -> Coalesce:
    given: dict[str, Any] = {
        "time": "t",
        "lateness": "5 s",
        "group": draw.choice([(), ("k",), ("g",), ("k", "g"), ("g", "k")]),
        "values": draw.choice(["v", "w", ["v", "w"], ["w", "v"]]),
        "equivalence": draw.choice(EQUIVALENCES),
        "scheme": draw.choice(["auto"] * 6 + ["eager", "lazy"]),
    }
    if draw.random() < 0.5:
        given |= {"window": draw.choice(["20 s", "40 s"]), "closed": draw.choice(["both", "both", "right"])}
        given |= draw.choice([{"slide": "10 s"}, {"slide": "5 s"}, {}, {"at": 60 * SECOND}])
    else:
        given |= {"rows": draw.choice([9, 20, 50]), "per_group": draw.random() < 0.4}
        given |= draw.choice([{"slide": 7}, {"slide": "10 s"}, {}, {"at": 60 * SECOND}])
    if draw.random() < 0.25:
        return TemporalAggregate(
            **given,
            aggregates=draw.choice([{"longest": "max"}, {"middle": "median"}]),
            where=draw.choice([None, pc.field(_first(given["values"])) > 1]),
        )
    return Coalesce(**given)


def _first(values: str | list[str]) -> str:
    return values if isinstance(values, str) else values[0]


def random_registry(seed: int) -> Registry:
    """Queries of all kinds, some twice, with pins, limits and budgets."""
    draw = random.Random(seed)
    weights, part = draw.choice([(1, 1, 2), (0, 1, 1), (1, 1, 1)]), draw.choice([None, None, 0.4, 0.7, 0.9])
    known: list[Coalesce] = []
    registered: list[dict[str, Any]] = []
    for number in range(draw.randrange(1, 7)):
        query = draw.choice(known) if known and draw.random() < 0.25 else random_query(draw)
        known.append(query)
        statistics = Statistics(draw.random(), draw.choice([0.0, draw.random()]), rate=draw.choice([None, 2.0]))
        pin, limit = draw.choice([None] * 8 + ["eager", "lazy"]), draw.choice([None] * 30 + [60.0])
        given = {"name": f"q{number}", "query": query, "statistics": statistics, "pin": pin, "max_scan_time": limit}
        registered.append(given)
    free = _registered(registered, weights=weights)
    if part is None:
        return free
    try:
        plan = free.plan()
    except QueryError:
        return free
    return _registered(registered, weights=weights, memory_budget=part * plan.bytes_beside("none"))


def _registered(registered: list[dict[str, Any]], **options: Any) -> Registry:
    registry = Registry(**options)
    for each in registered:
        registry.register(**each, stream="s")
    return registry


def _parts(plan: Plan) -> tuple[dict[str, str], set[frozenset[str]], bool]:
    """Schemes, the sets of queries that have an extent of their own, and whether there is a shared one, as planned."""
    own = {frozenset((each.name, *each.shares_with)) for each in plan.queries if not each.shared}
    return dict(plan.schemes), own, bool(plan.shared_bytes)


def _explained(text: str) -> tuple[dict[str, str], set[frozenset[str]], bool]:
    """The same, as the explanation says."""
    schemes, own = {}, set()
    for line in text.splitlines()[1:]:
        found = re.match(r"(q\d+) +(eager|lazy) +[\d.]+ +[\d.]+ +(shared|[\d.]+ \w+) ", line)
        if found is None:
            continue
        schemes[found[1]] = found[2]
        if found[3] != "shared":
            others = re.search(r"one extent with ([q\d, ]+)", line)
            own.add(frozenset((found[1], *(others[1].split(", ") if others else ()))))
        assert f"{found[1]}: scheme = {found[2]}: " in text
    return schemes, own, "one lazy extent over s: " in text


def _run(query: SharedCoalescing) -> tuple[dict[str, str], set[frozenset[str]], bool]:
    """The same, as a running operator stores it."""
    driver = OperatorDriver(query, stream().schema)
    for start in (0, 60, 120):
        driver.feed({query.inputs[0]: stream().slice(start, 60).combine_chunks()}, (start // 2 - 5) * SECOND)
    store = driver.store
    catalog = Catalog.read(StorePart(store, 0, PARTS))
    equal = {name: [other for other, one in query.same if one == name] for name in catalog.queries}
    schemes = {each: entry.scheme for name, entry in catalog.queries.items() for each in (name, *equal[name])}
    parts = {input % PARTS for input, _ in store._segments}
    own = set()
    for name, entry in catalog.queries.items():
        if entry.own is not None:
            assert entry.own == entry.scheme
            assert entry.number in parts
            own.add(frozenset((name, *equal[name])))
    assert {part for part in parts if part >= FIRST_OWN} == {
        entry.number for entry in catalog.queries.values() if entry.own is not None
    }
    return schemes, own, 1 in parts


@pytest.mark.parametrize("part", range(4))
def test_plan_explanation_and_run_agree_on_random_registries(part: int) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(part, REGISTRIES, 4):
        registry = random_registry(seed)
        try:
            plan = registry.plan()
        except QueryError as error:
            for again in (registry.explain, lambda r=registry: r.share(stream().schema)):
                with pytest.raises(QueryError, match=re.escape(str(error))):
                    again()
            kinds["refused"] += 1
            continue
        shared: SelectProject = registry.share(stream().schema)
        asked = _parts(plan)
        kinds.update([plan.solver, *{f"{each.scheme} {each.shared}" for each in plan.queries}])
        kinds["equal"] += any(each.shares_with for each in plan.queries)
        entries = registry._coalescing
        for each in plan.queries:
            if entries[each.name].pinned is not None:
                assert each.pinned
                assert each.scheme == entries[each.name].pinned
        assert _explained(plan.explain()) == asked, seed
        assert _run(shared.query) == asked, seed
    assert all(kinds[kind] >= 5 for kind in ("closed form", "program", "refused", "equal")), kinds
    assert all(kinds[kind] >= 10 for kind in ("eager False", "lazy True", "lazy False")), kinds


@pytest.mark.parametrize("seed", range(RUN))
def test_registries_give_the_rows_of_their_queries_alone(seed: int) -> None:
    registry = random_registry(seed)
    while True:
        try:
            shared = registry.share(stream().schema)
            break
        except QueryError:
            seed += REGISTRIES
            registry = random_registry(seed)
    files = [stream().slice(start, 30) for start in range(0, stream().num_rows, 30)]
    outcome = run_stream(shared, [files], restart_after=3)
    for name, entry in registry._coalescing.items():
        alone = run(entry.runs, [stream()]).output
        mine = outcome.output.filter(pc.equal(outcome.output[QUERY], name)).select(alone.column_names)
        assert Counter(map(repr, mine.to_pylist())) == Counter(map(repr, alone.to_pylist())), (name, entry.runs)
