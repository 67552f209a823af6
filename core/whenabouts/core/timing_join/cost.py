"""The cost model of timing joins: what `auto` chooses as strategy and block size.

A step costs as much as thousands of rows, because it reads and writes segments and starts a correlation. So rows are
cheaper when more of them are processed together, but then they wait. `auto` lets rows wait only if `max_latency` says
how long, and then chooses the smallest block that costs at most a tenth more than the cheapest. Its strategy uses
ranges of sorted midpoints (`probability.midpoint_bounds`), which cost no more than any strategy of the papers; the
costs of these are reported too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from whenabouts.core.costs.choices import Alternative, Choice, Value, Workload, cheapest, ruled
from whenabouts.core.costs.prices import TimingJoinPrices
from whenabouts.core.durations import format_duration, parse_duration
from whenabouts.core.timing_join.settings import PER_ARRIVAL, WHOLE_BUFFER

if TYPE_CHECKING:
    from whenabouts.core.timing_join.settings import TimingJoinSettings

DEFAULT_BLOCK = 1000
"""The block size of a lazy strategy if neither rates nor `max_latency` are known."""

BLOCKS = (1, 10, 100, 1_000, 10_000, 100_000)
"""The block sizes that are compared."""

_ENOUGH = 1.1
"""The smallest block within this factor of the least cost is chosen."""

_UNIT = "ns a row"


def choices(query: TimingJoinSettings, load: Workload, pins: Mapping[str, Value]) -> list[Choice]:
    """Strategy and block size.

    >>> from whenabouts.core import Point, within
    >>> from whenabouts.core.timing_join.query import TimingJoin
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1), on="k")
    >>> [(each.what, each.value) for each in choices(query, Workload(), {})]
    [('strategy', 'auto'), ('block_size', 1)]
    >>> patient = replace(query, max_latency="5 s")
    >>> [each.value for each in choices(patient, Workload(rates={"left": 300.0, "right": 100.0}), {})]
    ['auto', 1000]
    """
    asked = {name: pins[name] for name in ("strategy", "block_size") if name in pins}
    if asked:
        query = replace(query, **asked)  # type: ignore[arg-type]  # checked by the query itself
    found = load.timing_prices or TimingJoinPrices()
    block = _block_size(query, load, found)
    return [_strategy(query, load, int(block.value), found), block]


def block_rows(query: TimingJoinSettings) -> int:
    """How many rows the operator lets wait: the block size chosen from the query alone."""
    return int(_block_size(query, load_of(query, Workload()), TimingJoinPrices()).value)


def load_of(query: TimingJoinSettings, load: Workload) -> Workload:
    """The load, with the rates that the query declares if none were measured."""
    declared = dict(query.rates)
    return replace(load, rates=declared, source="declared") if declared and not load.rates else load


def _block_size(query: TimingJoinSettings, load: Workload, prices: TimingJoinPrices) -> Choice:
    limit_us = None if query.max_latency is None else parse_duration(query.max_latency)
    given = query.block_size
    if query.strategy in PER_ARRIVAL:
        return ruled("block_size", 1, f"{query.strategy} processes each arrival by itself")
    if query.strategy == "auto" and limit_us is None:
        return ruled("block_size", 1, "rows do not wait, since there is no max_latency")
    if given is None and query.strategy != "auto" and limit_us is None and not load.rates:
        return ruled("block_size", DEFAULT_BLOCK, "neither rates nor max_latency are known")
    rate = sum(load.rates.values()) or None
    full = None if limit_us is None or rate is None else max(int(rate * limit_us / 1e6), 1)
    sizes = {*BLOCKS, *(size for size in (full, given) if size is not None)}
    # A block that max_latency ends before it is full costs as much as one of the size that it has reached.
    cost = {size: row_cost(query.strategy, query, load, min(size, full or size), prices) for size in sizes}
    weighed = [Alternative(size, cost[size], _too_long(size, rate, limit_us)) for size in sorted(sizes)]
    if given is not None:
        return Choice("block_size", given, "as the query says", _UNIT, tuple(weighed), pinned=True)
    best = cheapest("block_size", weighed, _UNIT)
    most = _ENOUGH * cost[int(best.value)]
    enough = next(each for each in weighed if not each.refused and cost[int(each.value)] <= most)
    bound = "" if limit_us is None else f", and none waits longer than {format_duration(limit_us)}"
    return replace(best, value=enough.value, why=f"the smallest within a tenth of the least cost{bound}")


def _too_long(size: int, rate: float | None, limit_us: int | None) -> str:
    """Why a block is too large (it takes longer to fill than a row may wait), or an empty text."""
    if rate is None or limit_us is None or size == 1:
        return ""
    fills_us = int(size / rate * 1e6)
    over = fills_us - limit_us
    return "" if over <= 0 else f"takes {format_duration(over)} longer to fill than max_latency"


def _strategy(query: TimingJoinSettings, load: Workload, block: int, prices: TimingJoinPrices) -> Choice:
    sizes = {"auto": block, "eager": 1, "lazy": block, "lazy_lookup": block, "ssort": 1, "simple": 1}
    weighed = [Alternative(name, row_cost(name, query, load, size, prices)) for name, size in sizes.items()]
    if query.strategy != "auto":
        return Choice("strategy", query.strategy, "as the query says", _UNIT, tuple(weighed), pinned=True)
    return cheapest("strategy", weighed, _UNIT, why="ranges of sorted midpoints need the fewest kernel calls")


def row_cost(strategy: str, query: TimingJoinSettings, load: Workload, block: int, prices: TimingJoinPrices) -> float:
    """Nanoseconds per row if `block` rows of both inputs are correlated at once; an unknown rate counts as one row per
    second and key."""
    per_key = [(load.rate(name) or load.keys) / load.keys for name in query.inputs]
    together = sum(load.rates.values()) * parse_duration(load.every) / 1e6
    pairs = probes = 0.0
    if not query.condition.one_sided:
        width_s = (query.condition.hi_us - query.condition.lo_us) / 1e6
        unsure_s = sum((spec.max_uncertainty_us or 0) / 1e6 for spec in (query.left_time, query.right_time))
        both = per_key[0] * per_key[1] / (per_key[0] + per_key[1])  # pairs per row and second of window
        pairs = both * width_s
        part = prices.probed_by_midpoints if strategy == "auto" else prices.probed_by_ends
        probes = both * unsure_s * part
        if strategy in WHOLE_BUFFER:
            probes = both * (width_s + unsure_s + (parse_duration(load.every) + max(query.lateness_us)) / 1e6)
    kernel = prices.kernel * (prices.looked_up if strategy == "lazy_lookup" else 1.0)
    return prices.step / max(block, together, 1.0) + prices.row + pairs * prices.pair + probes * kernel
