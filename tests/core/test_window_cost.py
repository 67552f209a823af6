"""The cost function of window joins: expected operations against counted ones, and the choices of `auto`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import Point, QueryError
from whenabouts.core.local import run, run_stream
from whenabouts.core.window_join.cost import (
    OperationRates,
    WindowJoinPrices,
    alternatives,
    choose,
    expected,
    expected_forward,
)
from whenabouts.core.window_join.cost import cheapest_algorithm as cheapest
from whenabouts.core.window_join.join_orders import order_from
from whenabouts.core.window_join.query import WindowJoin

SECOND = 1_000_000
KEYS, SECONDS = 40, 400


def _query(windows: dict[tuple[str, str], Any], **options: Any) -> WindowJoin:
    names = sorted({name for pair in windows for name in pair})
    return WindowJoin(times=dict.fromkeys(names, Point("t")), windows=windows, on="k", **options)


def _tables(rates: dict[str, float]) -> list[pa.Table]:
    """Poisson streams with these rows per second and key."""
    random = np.random.default_rng(11)
    tables = []
    for rate in rates.values():
        n = int(rate * KEYS * SECONDS)
        tables.append(
            pa.table({"k": random.integers(0, KEYS, n), "t": np.sort(random.integers(0, SECONDS * SECOND, n))})
        )
    return tables


CLIQUE = dict.fromkeys(itertools.combinations("abc", 2), "2 s")
CASES = {
    "clique": (CLIQUE, {"a": 0.5, "b": 0.5, "c": 0.5}),
    "wide clique": (dict.fromkeys(itertools.combinations("abcd", 2), "2 s"), dict.fromkeys("abcd", 0.3)),
    "clique of five": (dict.fromkeys(itertools.combinations("abcde", 2), "2 s"), dict.fromkeys("abcde", 0.4)),
    "uneven rates": (CLIQUE, {"a": 0.1, "b": 1.0, "c": 0.4}),
    "path": ({("a", "b"): "1 s", ("b", "c"): "3 s"}, {"a": 0.6, "b": 0.3, "c": 0.5}),
}


@pytest.mark.parametrize("strategy", ["backward", "forward"])
@pytest.mark.parametrize("case", CASES)
def test_expected_operations_are_about_the_counted_ones(case: str, strategy: str) -> None:
    windows, rates = CASES[case]
    conservative = "none" if strategy == "backward" else "gca"
    query = _query(windows, strategy=strategy, conservative=conservative)
    counted = run(query, _tables(rates)).metrics
    places = range(len(rates)) if strategy == "forward" else [len(rates) - 1]
    of_one = expected_forward if strategy == "forward" else expected
    join_orders = [order_from(base, query.graph(), strategy, conservative) for base in places]
    work = sum((of_one(join_order, list(rates.values())) for join_order in join_orders), OperationRates())
    for name in ("tuple_tests", "period_tests" if strategy == "forward" else "periods"):
        told = getattr(work, name) * KEYS * SECONDS
        assert told == pytest.approx(counted[name], rel=0.2), name
    if strategy == "forward" and query.graph().uniform_us is not None:  # nothing is tested: it writes what it gives
        assert work.written * KEYS * SECONDS == pytest.approx(counted["matched"], rel=0.2)
        assert work.written < work.tuple_tests


@pytest.mark.slow
@pytest.mark.parametrize("streams", [3, 4, 5])
@pytest.mark.parametrize("held", [0.5, 2, 4])
def test_what_auto_chooses_on_a_stream_costs_least_by_the_counted_operations(streams: int, held: float) -> None:
    """On cliques whose windows hold `held` rows of a key: within a quarter, for a step has rows of many instants."""
    names, rate = "abcde"[:streams], held / 2
    windows = dict.fromkeys(itertools.combinations(names, 2), "2 s")
    tables = _tables(dict.fromkeys(names, rate * min(1.0, 1.5 / held**2)))  # fewer keys where there are more rows
    faster = rate / (tables[0].num_rows / KEYS / SECONDS)
    tables = [table.set_column(1, "t", pa.array(table["t"].to_numpy() // faster, pa.int64())) for table in tables]
    files = [[table.slice(at, 200) for at in range(0, table.num_rows, 200)] for table in tables]
    prices, rows, costs = WindowJoinPrices(), streams * tables[0].num_rows, {}
    for strategy in ("backward", "forward"):
        counted = run_stream(_query(windows, strategy=strategy, lateness="1 s"), files).metrics
        waits = rows if strategy == "forward" else 0
        written = counted["matched" if strategy == "forward" else "tuple_tests"]
        costs[strategy] = (
            rows * prices.row + waits * prices.wait + written * prices.tuple_test
            + counted["periods"] * prices.period * (strategy == "backward")
            + counted["period_tests"] * prices.period_test
        )  # fmt: skip
    chosen = choose(_query(windows, rates=dict.fromkeys(names, rate)), streaming=True).strategy
    assert costs[chosen] <= 1.25 * min(costs.values()), costs
    if held == 0.5 or streams == 3:
        assert chosen == "backward"
    elif held == 4:
        assert chosen == "forward"


def test_partial_combinations_that_are_tested_are_written() -> None:
    """By keys in nested loops, or by a predicate before the last stream of an order."""
    rates = [2.0] * 4

    def cost(**options: Any) -> float:
        query = _query(dict.fromkeys(itertools.combinations("abcd", 2), "2 s"), strategy="forward", **options)
        (found,) = {each.cost for each in alternatives(query, query.graph(), rates, streaming=True)
                    if each.conservative == "none"}  # fmt: skip
        return found

    first, last = ({pair: f"{pair[0]}.v < {pair[1]}.v"} for pair in (("a", "b"), ("c", "d")))
    assert cost() == cost(predicates=last) < cost(predicates=first) == cost(method="nested")


def test_conservative_bounds_cost_what_they_are_wider() -> None:
    query = _query({("a", "b"): "1 s", ("b", "c"): "60 s"})
    for streaming in (False, True):
        found = list(alternatives(query, query.graph(), [1.0, 1.0, 1.0], streaming=streaming))
        assert min(found, key=lambda choice: choice.cost).conservative == "none"
        worst = {how: min(c.cost for c in found if c.conservative == how) for how in ("none", "lca", "gca")}
        assert worst["none"] < worst["lca"] <= worst["gca"]


def test_the_base_of_finite_input_is_where_least_is_tried() -> None:
    """A rare stream in the middle of a path is the base."""
    query = _query({("a", "b"): "5 s", ("b", "c"): "5 s"})
    assert cheapest(query, query.graph(), [5.0, 0.01, 5.0], streaming=False).base == 1
    declared = _query({("a", "b"): "5 s", ("b", "c"): "5 s"}, strategy="backward", conservative="none")
    assert cheapest(declared, declared.graph(), [5.0, 0.01, 5.0], streaming=False).base == 2  # as requested


def test_prices_decide() -> None:
    query = _query(CLIQUE)
    graph, rates = query.graph(), [0.2, 0.2, 0.2]
    dear = cheapest(query, graph, rates, streaming=True, prices=WindowJoinPrices(period=1e6, tuple_test=1.0))
    assert dear.strategy == "forward"  # it searches for no period
    assert (
        cheapest(query, graph, rates, streaming=True, prices=WindowJoinPrices(row=0, period=1e6, tuple_test=1)).cost > 0
    )


def test_streams_wait_for_nobody_unless_rates_are_declared() -> None:
    assert choose(_query(CLIQUE), streaming=True).strategy == "backward"
    declared = _query(CLIQUE, rates={"a": 50.0, "b": 50.0, "c": 50.0})
    costs = {c.strategy: c.cost for c in alternatives(declared, declared.graph(), [50.0] * 3, streaming=True)}
    assert choose(declared, streaming=True).strategy == min(costs, key=lambda name: costs[name])
    assert choose(_query(CLIQUE, strategy="forward"), streaming=True).strategy == "forward"


def test_auto_gives_the_same_rows_from_any_base() -> None:
    windows, rates = CASES["uneven rates"]
    tables = _tables(rates)
    found = [
        run(_query(windows, strategy=s), tables).output.sort_by([(f"t_{n}", "ascending") for n in "abc"])
        for s in ("auto", "backward", "forward")
    ]
    assert found[0] == found[1] == found[2]
    assert found[0].num_rows > 100


def test_rates_may_be_numbers_of_numpy() -> None:
    times = {"a": Point("t"), "b": Point("t")}
    query = WindowJoin(times=times, windows={("a", "b"): 5}, rates={"a": np.int64(5), "b": np.float32(0.5)})
    assert query.rates == (("a", 5.0), ("b", 0.5))
    assert [type(rate) for _, rate in query.rates] == [float, float]
    for wrong in (np.float64("nan"), np.True_, 0):
        with pytest.raises(QueryError, match="WA-2006: rates"):
            WindowJoin(times=times, windows={("a", "b"): 5}, rates={"a": wrong, "b": 1})
