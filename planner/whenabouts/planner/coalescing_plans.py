"""Eager or lazy for all coalescing queries together: from what is registered to a plan, with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from typing import Any, NamedTuple

from whenabouts.core.costs.choices import Alternative, Choice, Load, Value
from whenabouts.core.costs.eager_lazy_cost import UNIT, SchemeCosts, Statistics, scheme_costs
from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.costs.prices import Sizes, Weights
from whenabouts.core.durations import parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.planner.coalescing_queries import DEFAULT_ROWS_PER_SECOND, CoalescingQuery
from whenabouts.planner.plans import Plan, QueryPlan, Scheme
from whenabouts.planner.releases import release
from whenabouts.planner.selection import Candidate, Selection, SharedExtent, solve
from whenabouts.planner.state_forecast import buckets


@dataclass(frozen=True, slots=True)
class Registered:
    """A coalescing query as it was registered. ``runs``: what runs, None where it is planned only. ``pinned`` and
    ``buckets``: decided by hand."""

    query: CoalescingQuery
    runs: Any
    statistics: Statistics
    max_scan_time: float | None
    pinned: Scheme | None
    buckets: Value | None = None


class Given(NamedTuple):
    """What a registry plans by."""

    weights: Weights
    costs: AtomicCosts
    sizes: Sizes
    budget: float | None
    time_limit: float | None
    load: Load


class _Distinct(NamedTuple):
    """A distinct coalescing query: the names that share it, the first of which speaks for all, and its costs."""

    names: tuple[str, ...]
    first: Registered
    costs: SchemeCosts
    wish: Scheme | None


def plan_coalescing(
    registered: Mapping[str, Registered], given: Given, in_force: Mapping[str, Scheme] | None = None
) -> Plan:
    """Decide for all queries at the least total cost; with decisions in force, what these cost now.

    Raises: QueryError WA-2071 where the budget, the longest scans and the pins cannot hold together.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, each in registered.items():
        groups.setdefault(each.query.distinct, []).append(name)
    firsts = [registered[names[0]] for names in groups.values()]
    tuples = [first.query.tuples(first.statistics) for first in firsts]
    most = max(tuples, default=1.0)
    groupings = Counter((first.query.stream, frozenset(first.query.group)) for first in firsts)
    distinct = []
    for names, first, n in zip(groups.values(), firsts, tuples, strict=True):
        sharing = groupings[first.query.stream, frozenset(first.query.group)]
        known = _with_steps(first.statistics, given.load)
        costs = scheme_costs(
            n, known, given.costs, given.sizes, largest=most, sharing=sharing, part=first.query.eager_part
        )
        distinct.append(_Distinct(tuple(names), first, costs, _wish(names, registered, costs, in_force)))
    streams = list(dict.fromkeys(first.query.stream for first in firsts))
    shared = _shared(firsts, tuples, streams, given, most)
    place = {stream: number for number, stream in enumerate(streams)}
    candidates = [
        Candidate(
            each.costs.eager.weighted(given.weights),
            given.weights.scan * each.costs.lazy.normalised[2],
            each.costs.eager.memory,
            place[each.first.query.stream],
            None if each.wish is None else each.wish == "eager",
        )
        for each in distinct
    ]
    selection = solve(candidates, shared, given.budget, time_limit=given.time_limit)
    return _plan(registered, distinct, candidates, dict(zip(streams, shared, strict=True)), selection, given)


def _with_steps(known: Statistics, load: Load) -> Statistics:
    """How many tuples a step takes in, where that was not measured: what comes in the event time of a step."""
    every_s = parse_duration(load.every) / 1e6
    if known.step_rows is not None or not every_s:
        return known
    return replace(known, step_rows=max(every_s * (known.rate or DEFAULT_ROWS_PER_SECOND), 1.0))


def _shared(
    firsts: Sequence[Registered], tuples: Sequence[float], streams: Sequence[str], given: Given, most: float
) -> list[SharedExtent]:
    """By stream, the extent that its lazy queries would share: as long as the longest of their windows."""
    largest: dict[str, tuple[float, Statistics]] = {}
    for first, n in zip(firsts, tuples, strict=True):
        known = largest.get(first.query.stream, (0.0, first.statistics))
        largest[first.query.stream] = max(known[0], n), known[1]
    without_scan = replace(given.weights, scan=0.0) if given.weights.memory or given.weights.update else None
    found = []
    for stream in streams:
        n, statistics = largest[stream]
        extent = scheme_costs(n, _with_steps(statistics, given.load), given.costs, given.sizes, largest=most).lazy
        found.append(SharedExtent(extent.weighted(without_scan) if without_scan else 0.0, extent.memory))
    return found


def _plan(
    registered: Mapping[str, Registered],
    distinct: Sequence[_Distinct],
    candidates: Sequence[Candidate],
    shared: Mapping[str, SharedExtent],
    selection: Selection,
    given: Given,
) -> Plan:
    schemes: list[Scheme] = ["eager" if chosen else "lazy" for chosen in selection.eager]
    lazy_streams = {each.first.query.stream for each, scheme in zip(distinct, schemes, strict=True) if scheme == "lazy"}
    queries = {}
    for each, scheme, candidate in zip(distinct, schemes, candidates, strict=True):
        extent = shared[each.first.query.stream]
        for name in each.names:
            found = _query_plan(name, each, scheme, candidate, registered[name])
            size = found.state_bytes if scheme == "eager" else extent.memory
            by_hand = registered[name].buckets
            pins = {} if by_hand is None else {"buckets": by_hand}
            spread = buckets(size, given.load, spread=bool(registered[name].query.group), pins=pins)
            choice = _scheme_choice(registered[name], each, scheme, candidate, extent)
            queries[name] = replace(found, choices=(choice, spread))
    return Plan(
        queries=tuple(queries[name] for name in registered),
        cost=selection.cost,
        alternatives={
            "all_eager": fsum(candidate.eager for candidate in candidates),
            "all_lazy": fsum([*(c.lazy_scan for c in candidates), *(extent.cost for extent in shared.values())]),
        },
        shared_bytes={stream: extent.memory for stream, extent in shared.items() if stream in lazy_streams},
        status=selection.status,
        gap=selection.gap,
        release=release(),
    )


def _wish(
    names: Sequence[str],
    registered: Mapping[str, Registered],
    costs: SchemeCosts,
    in_force: Mapping[str, Scheme] | None,
) -> Scheme | None:
    """What is decided already for a distinct query: by hand, by the plan in force, by the longest scan allowed."""
    wishes = {name: registered[name].pinned for name in names}
    if in_force is not None:
        wishes |= {name: in_force[name] for name in names if wishes[name] is None}
    for name in names:
        limit = registered[name].max_scan_time
        if limit is None:
            continue
        over = {scheme: scan - limit for scheme, scan in _scans(costs).items()}
        least, wish = min(over.values()), wishes[name]
        if least > 0:
            raise QueryError(
                Code.PLAN_INFEASIBLE,
                f"query {name!r} may scan for {limit:g}, and needs {limit + least:g}",
                f"allow {least:g} more, or shorten its window",
            )
        if wish is not None and over[wish] > 0:
            raise QueryError(
                Code.PLAN_INFEASIBLE,
                f"query {name!r} is to be {wish}, which scans for longer than {limit:g} by {over[wish]:g}",
                "unpin it, or allow more",
            )
        if max(over.values()) > 0:
            wishes[name] = "eager" if over["eager"] <= 0 else "lazy"
    schemes = {scheme for scheme in wishes.values() if scheme is not None}
    if len(schemes) > 1:
        raise QueryError(
            Code.PLAN_INFEASIBLE, f"queries {', '.join(names)} share one extent and are pinned differently",
            "pin one of them only",
        )  # fmt: skip
    return next(iter(schemes), None)


def _scans(costs: SchemeCosts) -> dict[Scheme, float]:
    return {"eager": costs.eager.scan, "lazy": costs.lazy.scan}


def _scheme_choice(
    registered: Registered, each: _Distinct, scheme: Scheme, candidate: Candidate, extent: SharedExtent
) -> Choice:
    """The scheme with what both would cost, and why it is this one."""
    limit, found = registered.max_scan_time, {"eager": candidate.eager, "lazy": candidate.lazy_scan}
    refused = {}
    for name, scan in _scans(each.costs).items():
        over = 0.0 if limit is None else scan - limit
        refused[name] = f"scans {over:.4g} longer than max_scan_time" if over > 0 else ""
    pinned = registered.pinned is not None
    dearer = found[scheme] > found["lazy" if scheme == "eager" else "eager"]
    if pinned:
        why = "pinned"
    elif any(refused.values()):
        why = "max_scan_time"
    elif each.wish is not None:
        why = "as it was decided, or as an equal query is pinned"
    elif scheme == "eager":
        why = f"saves the shared extent, {extent.cost:.4g}" if dearer else "its own extent costs less than its scans"
    else:
        why = "the memory budget" if dearer else "its scans of the shared extent cost less than one of its own"
    weighed = tuple(Alternative(name, cost, refused[name]) for name, cost in found.items())  # type: ignore[index]
    return Choice("scheme", scheme, why, UNIT, weighed, pinned=pinned)


def _query_plan(name: str, each: _Distinct, scheme: Scheme, candidate: Candidate, registered: Registered) -> QueryPlan:
    costs = each.costs
    chosen = costs.eager if scheme == "eager" else costs.lazy
    parts = ("memory", "update", "scan")
    return QueryPlan(
        name=name,
        stream=registered.query.stream,
        scheme=scheme,
        pinned=registered.pinned is not None,
        shares_with=tuple(other for other in each.names if other != name),
        eager_cost=candidate.eager,
        lazy_cost=candidate.lazy_scan,
        terms={
            "eager": dict(zip(parts, costs.eager.normalised, strict=True)),
            "lazy": dict(zip(parts, costs.lazy.normalised, strict=True)),
        },
        statistics=asdict(registered.statistics),
        state_bytes=chosen.memory,
        scan_time=chosen.scan,
    )
