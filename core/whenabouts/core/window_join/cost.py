"""Which algorithm a window join runs: `strategy="auto"` by expected operations.

Rows of one key are taken to arrive at a steady rate in each stream, independently. Then a period of length l holds
`rate * l` rows on average, and none with probability `exp(-rate * l)`; a range that m rows of a uniform clique with
window w leave to another one is `w (m + 1) / m` long on average, so that a clique of k streams has `k w^(k-1)`
combinations per unit of time and rates, as it must. Operations are weighed with what they cost one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whenabouts.core.costs.choices import Alternative, Choice, Value, Workload, cheapest, ruled
from whenabouts.core.window_join.graph import OPEN_US, WindowGraph
from whenabouts.core.window_join.join_orders import ANY, Walk, walk_from

if TYPE_CHECKING:
    from whenabouts.core.window_join.settings import WindowJoinSettings


@dataclass(frozen=True, slots=True)
class WindowJoinPrices:
    """Nanoseconds for one operation; the defaults were measured with benchmarks/window_join.py."""

    row: float = 40.0
    """A row that begins combinations: put in order, and gathered for the walk."""
    period: float = 30.0
    """A place looked for in another stream."""
    tuple_test: float = 6.0
    """A candidate written down."""
    window_test: float = 12.0
    """A window tested on one combination."""


@dataclass(frozen=True, slots=True)
class Operations:
    """What is expected of an algorithm for each second of event time and key."""

    rows: float = 0.0
    periods: float = 0.0
    tuple_tests: float = 0.0
    window_tests: float = 0.0

    def __add__(self, other: Operations) -> Operations:
        return Operations(
            self.rows + other.rows,
            self.periods + other.periods,
            self.tuple_tests + other.tuple_tests,
            self.window_tests + other.window_tests,
        )

    def cost(self, prices: WindowJoinPrices) -> float:
        """Nanoseconds."""
        return (
            self.rows * prices.row
            + self.periods * prices.period
            + self.tuple_tests * prices.tuple_test
            + self.window_tests * prices.window_test
        )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What runs. `base`: on finite input, the stream that `backward` takes to arrive last."""

    strategy: str
    conservative: str
    base: int
    cost: float = math.nan


def choose(query: WindowJoinSettings, *, streaming: bool) -> Algorithm:
    """What is known before any row: on a stream `auto` takes `backward`, which makes nobody wait and whose output
    carries the watermark, unless `rates` say that `forward` is cheaper; `none` is the cheapest of the conservative
    approaches at any rates. On finite input rates are measured in the rows themselves, and `cheapest_algorithm`
    decides."""
    last = len(query.inputs) - 1
    rates = dict(query.rates)
    if streaming and rates:
        return cheapest_algorithm(query, query.graph(), [rates[name] for name in query.inputs], streaming=True)
    strategy = query.strategy if query.strategy != "auto" else "backward"
    return Algorithm(strategy, query.conservative if query.conservative != "auto" else "none", last)


def choices(
    query: WindowJoinSettings, load: Workload, pins: Mapping[str, Value], prices: WindowJoinPrices | None = None
) -> list[Choice]:
    """Strategy, conservative approach and method on a stream, and in which order the streams are walked.

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
        method = replace(method, why="candidates are found by the place of their times, and never by trying all rows")
    found = [
        _of_algorithm("strategy", query.strategy, chosen.strategy, weighed, chosen.conservative),
        _of_algorithm("conservative", query.conservative, chosen.conservative, weighed, chosen.strategy),
        method,
    ]
    walks = [walk_from(base, graph, "forward", chosen.conservative) for base in range(len(query.inputs))]
    orders = "; ".join(", ".join(query.inputs[stream] for stream in walk.order) for walk in walks)
    return [
        *found,
        ruled("order", orders, "from the row that is newest, each next stream where the bound is narrowest"),
    ]


_BLIND: dict[str, str] = {
    "strategy": "no rates are known, and it makes nobody wait",
    "conservative": "every step keeps to the windows themselves, whatever the rates",
}


def _of_algorithm(what: str, asked: str, chosen: str, weighed: Sequence[Algorithm], other: str) -> Choice:
    """One option of the algorithm, the other one being as it was chosen."""
    if not weighed:
        return ruled(what, chosen, _BLIND[what], pinned=asked != "auto")
    beside = "conservative" if what == "strategy" else "strategy"
    of_option = [Alternative(str(getattr(a, what)), a.cost) for a in weighed if getattr(a, beside) == other]
    return cheapest(what, of_option, "ns a second and key", pin=None if asked == "auto" else asked)


def cheapest_algorithm(
    query: WindowJoinSettings,
    graph: WindowGraph,
    rates: Sequence[float],
    *,
    streaming: bool,
    prices: WindowJoinPrices | None = None,
) -> Algorithm:
    """The cheapest of the algorithms that the query allows; `rates`: rows per second and key, by stream.

    Of equal ones the first of `alternatives`.
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
    """Every algorithm that the query allows with its cost: what an explanation shows.

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
            if streaming or strategy == "forward":
                # On a stream in order the row that came last is the newest: `backward` walks what `forward` walks.
                walks = [walk_from(base, graph, "forward", conservative) for base in range(last + 1)]
                asks = strategy == "forward"
                work = sum((expected(walk, rates, asks_first=asks) for walk in walks), Operations())
                yield Algorithm(strategy, conservative, last, work.cost(prices or WindowJoinPrices()))
                continue
            for base in range(last, -1, -1) if query.strategy == "auto" else (last,):
                work = expected(walk_from(base, graph, strategy, conservative), rates)
                yield Algorithm(strategy, conservative, base, work.cost(prices or WindowJoinPrices()))


def expected(walk: Walk, rates: Sequence[float], *, asks_first: bool = True) -> Operations:
    """The operations of one walk per second and key.

    `asks_first`: where one period serves the whole combination each stream is asked in turn until one has nobody
    (mode 1 of `forward`), and nothing is written down before.
    """
    lengths = [_length(bounds) for bounds in walk.bounds]
    held = [rates[stream] * us / 1e6 for stream, us in zip(walk.order, lengths, strict=True)]
    asks_first = asks_first and walk.from_base
    begun = rates[walk.base]
    periods = tuple_tests = window_tests = 0.0
    if asks_first:
        partial = begun
        for rows in held[1:]:
            periods += partial
            partial *= -math.expm1(-rows)
        held = [1.0, *(rows / max(-math.expm1(-rows), 1e-9) for rows in held[1:])]
    else:
        partial = begun
    for level in range(1, len(held)):
        periods += 0.0 if asks_first else partial
        partial *= held[level]
        tuple_tests += partial
        window_tests += partial * len(walk.tests[level])
    return Operations(begun, periods, tuple_tests, window_tests)


def _length(bounds: Sequence[tuple[int, int]]) -> float:
    """The mean length of the range that some members leave, in microseconds."""
    lengths = sorted(max(hi - lo, 0) for lo, hi in bounds if (lo, hi) != ANY)
    if not lengths:
        return 2.0 * OPEN_US if bounds else 0.0
    members = sum(length <= 2 * lengths[0] for length in lengths)
    return lengths[0] * (members + 1) / (2 * members)
