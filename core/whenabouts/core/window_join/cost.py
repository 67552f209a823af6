"""The cost model of window joins: `strategy="auto"` chooses by expected operations.

The model assumes that rows of one key arrive at a constant rate in each stream, independently. Then a period of length
l holds `rate * l` rows on average, and none with probability `exp(-rate * l)`. In a uniform clique with window w, the
range that m rows leave for another one is `w (m + 1) / m` long on average, so that a clique of k streams has
`k w^(k-1)` combinations per unit of time and rates, which is exact. Each kind of operation has a price. Forward
evaluation looks at each row once in each stream's turn, and tries for a row all that the windows of the others hold. It
writes whole combinations only, where nothing is tested between, and on a stream it reads each row again from the state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whenabouts.core.costs.choices import Alternative, Choice, Value, Workload, cheapest, ruled
from whenabouts.core.window_join.graph import OPEN_US, WindowGraph
from whenabouts.core.window_join.join_orders import ANY, JoinOrder, newest_last, order_from

if TYPE_CHECKING:
    from whenabouts.core.window_join.settings import WindowJoinSettings


@dataclass(frozen=True, slots=True)
class WindowJoinPrices:
    """Nanoseconds for one operation; the defaults were measured with benchmarks/window_join_prices.py."""

    row: float = 40.0
    """Sorting and gathering one row that starts combinations."""
    period: float = 12.0
    """One search for a period's range in another stream."""
    tuple_test: float = 5.0
    """Writing one candidate."""
    window_test: float = 12.0
    """Testing one window on one combination."""
    period_test: float = 14.0
    """Testing one time against the period of forward evaluation, with its part of keeping the chains."""
    wait: float = 44.0
    """Reading one row again, for which forward evaluation has waited."""


@dataclass(frozen=True, slots=True)
class OperationRates:
    """The expected operations of an algorithm per second of event time and key.

    `written`: the candidates among `tuple_tests` that are written; the paper's nested iteration has all of them.
    """

    rows: float = 0.0
    periods: float = 0.0
    tuple_tests: float = 0.0
    window_tests: float = 0.0
    period_tests: float = 0.0
    written: float = 0.0
    waits: float = 0.0

    def __add__(self, other: OperationRates) -> OperationRates:
        return OperationRates(
            self.rows + other.rows,
            self.periods + other.periods,
            self.tuple_tests + other.tuple_tests,
            self.window_tests + other.window_tests,
            self.period_tests + other.period_tests,
            self.written + other.written,
            self.waits + other.waits,
        )

    def cost(self, prices: WindowJoinPrices) -> float:
        """Nanoseconds."""
        return (
            self.rows * prices.row
            + self.periods * prices.period
            + self.written * prices.tuple_test
            + self.window_tests * prices.window_test
            + self.period_tests * prices.period_test
            + self.waits * prices.wait
        )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm with its cost. `base`: on finite input, the stream that `backward` treats as the last to arrive."""

    strategy: str
    conservative: str
    base: int
    cost: float = math.nan


def choose(query: WindowJoinSettings, *, streaming: bool) -> Algorithm:
    """The algorithm as far as it is known before any row.

    On a stream `auto` chooses `backward`, which does not wait and whose output carries event time, unless `rates` show
    that `forward` is cheaper. `none` is the cheapest conservative approach at any rates; `forward` has it on uniform
    cliques only, and is `gca` otherwise. On finite input, rates are measured in the rows themselves, and
    `cheapest_algorithm` decides.
    """
    last = len(query.inputs) - 1
    rates = dict(query.rates)
    if streaming and rates:
        return cheapest_algorithm(query, query.graph(), [rates[name] for name in query.inputs], streaming=True)
    strategy = query.strategy if query.strategy != "auto" else "backward"
    usual = "gca" if strategy == "forward" and query.graph().uniform_us is None else "none"
    return Algorithm(strategy, query.conservative if query.conservative != "auto" else usual, last)


def choices(
    query: WindowJoinSettings, load: Workload, pins: Mapping[str, Value], prices: WindowJoinPrices | None = None
) -> list[Choice]:
    """Strategy, conservative approach and method on a stream, and the order in which streams are joined.

    >>> from whenabouts.core import Point
    >>> from whenabouts.core.window_join.query import WindowJoin
    >>> query = WindowJoin(times=dict.fromkeys("abc", Point("t")), windows={("a", "b"): "1 s", ("b", "c"): "60 s"})
    >>> for each in choices(query, Workload(rates={"a": 20.0, "b": 20.0, "c": 20.0}), {"strategy": "backward"}):
    ...     print(each.what, "=", each.value)
    strategy = backward
    conservative = none
    method = hash
    order = a, b, c; b, a, c; c, b, a
    """
    asked = {name: pins[name] for name in ("strategy", "conservative", "method") if name in pins}
    query = replace(query, **asked) if asked else query  # type: ignore[arg-type]  # checked by the query itself
    graph, free = query.graph(), replace(query, strategy="auto", conservative="auto")
    rates = [(load.rate(name) or 0.0) / load.keys for name in query.inputs]
    weighed = list(alternatives(free, graph, rates, streaming=True, prices=prices)) if all(rates) else []
    chosen = choose(
        replace(query, rates=dict(zip(query.inputs, rates, strict=True)) if weighed else {}), streaming=True
    )
    method = ruled("method", query.method, "", pinned=query.method != "hash")
    if not method.pinned:
        method = replace(method, why="candidates are found by a search in time order, never by trying all rows")
    found = [
        _of_algorithm("strategy", query.strategy, chosen.strategy, weighed, query.conservative),
        _of_algorithm("conservative", query.conservative, chosen.conservative, weighed, chosen.strategy),
        method,
    ]
    join_orders = [_on_streams(base, graph, chosen.strategy, chosen.conservative) for base in range(len(query.inputs))]
    orders = "; ".join(", ".join(query.inputs[stream] for stream in join_order.streams) for join_order in join_orders)
    return [
        *found,
        ruled("order", orders, "from the newest row on, the next stream is the one with the narrowest bound"),
    ]


_BLIND: dict[str, str] = {
    "strategy": "no rates are known, and it does not wait",
    "conservative": "every step uses the windows themselves, whatever the rates",
}


def _of_algorithm(what: str, asked: str, chosen: str, weighed: Sequence[Algorithm], other: str) -> Choice:
    """The choice of one option, given a value of the other; `auto` stands for the value that is cheapest."""
    if not weighed:
        return ruled(what, chosen, _BLIND[what], pinned=asked != "auto")
    beside = "conservative" if what == "strategy" else "strategy"
    costs: dict[str, float] = {}
    for each in weighed:
        if other in ("auto", getattr(each, beside)):
            name = str(getattr(each, what))
            costs[name] = min(costs.get(name, math.inf), each.cost)
    of_option = [Alternative(name, cost) for name, cost in costs.items()]
    return cheapest(what, of_option, "ns a second and key", pin=None if asked == "auto" else asked)


def cheapest_algorithm(
    query: WindowJoinSettings,
    graph: WindowGraph,
    rates: Sequence[float],
    *,
    streaming: bool,
    prices: WindowJoinPrices | None = None,
) -> Algorithm:
    """The cheapest algorithm that the query allows; `rates`: rows per second and key, by stream.

    Ties go to the first of `alternatives`.
    """
    return min(alternatives(query, graph, rates, streaming=streaming, prices=prices), key=lambda choice: choice.cost)


def alternatives(
    query: WindowJoinSettings,
    graph: WindowGraph,
    rates: Sequence[float],
    *,
    streaming: bool,
    prices: WindowJoinPrices | None = None,
) -> Iterator[Algorithm]:
    """Every algorithm that the query allows, with its cost, as explanations show them.

    >>> from whenabouts.core import Point
    >>> from whenabouts.core.window_join.query import WindowJoin
    >>> query = WindowJoin(times=dict.fromkeys("abc", Point("t")), windows={("a", "b"): "1 s", ("b", "c"): "60 s"})
    >>> found = alternatives(query, query.graph(), [1.0, 1.0, 1.0], streaming=True)
    >>> costs = {(choice.strategy, choice.conservative): choice.cost for choice in found}
    >>> costs["backward", "none"] < costs["backward", "lca"] <= costs["backward", "gca"]
    True
    """
    last = len(query.inputs) - 1
    for strategy in ("backward", "forward") if query.strategy == "auto" else (query.strategy,):
        for conservative in ("none", "lca", "gca") if query.conservative == "auto" else (query.conservative,):
            if strategy == "forward" and conservative == "none" and graph.uniform_us is None:
                continue
            if streaming or strategy == "forward":
                join_orders = [_on_streams(base, graph, strategy, conservative) for base in range(last + 1)]
                each = (
                    expected_forward(order, rates, tested=_tests_between(query, order), waits=streaming)
                    if strategy == "forward"
                    else expected(order, rates)
                    for order in join_orders
                )
                work = sum(each, OperationRates())
                yield Algorithm(strategy, conservative, last, work.cost(prices or WindowJoinPrices()))
                continue
            for base in range(last, -1, -1) if query.strategy == "auto" else (last,):
                work = expected(order_from(base, graph, strategy, conservative), rates)
                yield Algorithm(strategy, conservative, base, work.cost(prices or WindowJoinPrices()))


def _on_streams(base: int, graph: WindowGraph, strategy: str, conservative: str) -> JoinOrder:
    """What rows of a stream are joined with as they come, if all streams are in order."""
    if strategy == "forward":
        return order_from(base, graph, strategy, conservative)
    return newest_last(base, graph, conservative)


def _tests_between(query: WindowJoinSettings, join_order: JoinOrder) -> bool:
    """Whether something is tested before the last stream of an order: keys in nested loops, or a predicate."""
    if query.method == "nested":
        return True
    last = query.inputs[join_order.streams[-1]]
    return any(last not in pair for pair, _ in query.predicates)


def expected_forward(
    join_order: JoinOrder, rates: Sequence[float], *, tested: bool = False, waits: bool = False
) -> OperationRates:
    """The expected operations of forward evaluation for the rows of one stream, per second and key.

    Each row becomes the oldest of a period once, in which every stream is looked at; one test admits it, and one ends
    its period. An upper bound where a stream is slow: mode 1 then drops rows before they are joined. `tested`: whether
    partial combinations are tested, so that all are written. `waits`: whether rows wait in the state of a stream.
    """
    rows = rates[join_order.base]
    partial, tuple_tests = rows, 0.0
    for stream, bounds in zip(join_order.streams[1:], join_order.bounds[1:], strict=True):
        partial *= rates[stream] * -bounds[0][0] / 1e6
        tuple_tests += partial
    return OperationRates(
        rows=rows,
        tuple_tests=tuple_tests,
        window_tests=partial * len(join_order.tests[-1]),
        period_tests=rows * (len(rates) + 1),
        written=tuple_tests if tested else partial,
        waits=rows if waits else 0.0,
    )


def expected(join_order: JoinOrder, rates: Sequence[float]) -> OperationRates:
    """The expected operations of one join order of backward evaluation per second and key."""
    lengths = [_length(bounds) for bounds in join_order.bounds]
    held = [rates[stream] * us / 1e6 for stream, us in zip(join_order.streams, lengths, strict=True)]
    begun = partial = rates[join_order.base]
    periods = tuple_tests = window_tests = 0.0
    for level in range(1, len(held)):
        periods += partial
        partial *= held[level]
        tuple_tests += partial
        window_tests += partial * len(join_order.tests[level])
    return OperationRates(begun, periods, tuple_tests, window_tests, written=tuple_tests)


def _length(bounds: Sequence[tuple[int, int]]) -> float:
    """The mean length of the range that some members of a combination leave for the next, in microseconds."""
    lengths = sorted(max(hi - lo, 0) for lo, hi in bounds if (lo, hi) != ANY)
    if not lengths:
        return 2.0 * OPEN_US if bounds else 0.0
    members = sum(length <= 2 * lengths[0] for length in lengths)
    return lengths[0] * (members + 1) / (2 * members)
