"""Plans coalescing queries: eager or lazy for all of them together, with the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from typing import Any, NamedTuple

from whenabouts.core.costs.choices import Alternative, Choice, Value, Workload
from whenabouts.core.costs.eager_lazy_cost import UNIT, SchemeCosts, Statistics, scheme_costs
from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.costs.prices import Sizes, Weights
from whenabouts.core.durations import parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.planner.coalescing_queries import DEFAULT_ROWS_PER_SECOND, CoalescingQuery
from whenabouts.planner.plans import Plan, QueryPlan, Scheme
from whenabouts.planner.releases import release
from whenabouts.planner.selection import Candidate, LazyExtent, Selection, solve
from whenabouts.planner.state_forecast import buckets


@dataclass(frozen=True, slots=True)
class CoalescingEntry:
    """A registered coalescing query. ``runs``: its executable form, None if it is planned only. ``pinned`` and
    ``buckets``: fixed by the user."""

    query: CoalescingQuery
    runs: Any
    statistics: Statistics
    max_scan_time: float | None
    pinned: Scheme | None
    buckets: Value | None = None


class PlanningInputs(NamedTuple):
    """The settings of a registry that a plan depends on."""

    weights: Weights
    costs: AtomicCosts
    sizes: Sizes
    budget: float | None
    time_limit: float | None
    load: Workload


class _Distinct(NamedTuple):
    """A distinct coalescing query: the names that share it, its first entry, its costs, and a scheme that is fixed."""

    names: tuple[str, ...]
    first: CoalescingEntry
    costs: SchemeCosts
    required: Scheme | None


def plan_coalescing(
    registered: Mapping[str, CoalescingEntry],
    given: PlanningInputs,
    in_force: Mapping[str, Scheme] | None = None,
    *,
    beside: float = 0.0,
) -> Plan:
    """Decide for all queries at the least total cost; with decisions in force, compute their current cost.

    `beside`: bytes of the budget that other queries, the joins, need in any case.

    Raises: QueryError WA-2071 if budget, scan limits and pins contradict each other.
    """
    groups = distinct_queries(registered)
    firsts = [registered[names[0]] for names in groups]
    tuples = [first.query.tuples(first.statistics) for first in firsts]
    most = max(tuples, default=1.0)
    sharers = [first for first in firsts if first.query.can_share]
    groupings = Counter((first.query.stream, frozenset(first.query.group)) for first in sharers)
    distinct = []
    for names, first, n in zip(groups, firsts, tuples, strict=True):
        sharing = groupings[first.query.stream, frozenset(first.query.group)] if first.query.can_share else 1
        known = _with_steps(first.statistics, given.load)
        costs = scheme_costs(
            n, known, given.costs, given.sizes, largest=most, sharing=sharing, part=first.query.eager_part
        )
        distinct.append(_Distinct(tuple(names), first, costs, _required(names, registered, costs, in_force)))
    streams = list(dict.fromkeys(first.query.stream for first in sharers))
    shared = _shared(firsts, tuples, streams, given, most)
    place = {stream: number for number, stream in enumerate(streams)}
    candidates = []
    for each in distinct:
        lazy = each.costs.lazy
        lazy_cost, stream = given.weights.scan * lazy.normalised[2], place.get(each.first.query.stream, 0)
        if not each.first.query.can_share:  # under the lazy scheme it has an extent of its own, too
            lazy_cost, stream = lazy.weighted(given.weights), len(shared)
            shared.append(LazyExtent(0.0, lazy.memory))
        fixed = None if each.required is None else each.required == "eager"
        eager = each.costs.eager
        candidates.append(Candidate(eager.weighted(given.weights), lazy_cost, eager.memory, stream, fixed))
    # To the solver, what is needed beside them is an extent that one more lazy query requires, at no cost.
    others = [Candidate(0.0, 0.0, stream=len(shared), fixed=False)] if beside else []
    extents = [*shared, *(LazyExtent(0.0, beside) for _ in others)]
    found = solve([*candidates, *others], extents, given.budget, time_limit=given.time_limit)
    selection = replace(found, eager=found.eager[: len(candidates)])
    return _plan(registered, distinct, candidates, shared, selection, given)


def distinct_queries(registered: Mapping[str, CoalescingEntry]) -> list[list[str]]:
    """The names of the queries of each distinct coalescing query, in order of registration."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, each in registered.items():
        groups.setdefault(each.query.distinct, []).append(name)
    return list(groups.values())


def _with_steps(known: Statistics, load: Workload) -> Statistics:
    """Statistics with the tuples per step, if these were not measured: those of the event time of a step."""
    every_s = parse_duration(load.every) / 1e6
    if known.step_rows is not None or not every_s:
        return known
    return replace(known, step_rows=max(every_s * (known.rate or DEFAULT_ROWS_PER_SECOND), 1.0))


def _shared(
    firsts: Sequence[CoalescingEntry],
    tuples: Sequence[float],
    streams: Sequence[str],
    given: PlanningInputs,
    most: float,
) -> list[LazyExtent]:
    """The extent that the lazy queries of each stream would share, as long as the longest of their windows."""
    largest: dict[str, tuple[float, Statistics]] = {}
    for first, n in zip(firsts, tuples, strict=True):
        if not first.query.can_share:
            continue
        known = largest.get(first.query.stream, (0.0, first.statistics))
        largest[first.query.stream] = max(known[0], n), known[1]
    without_scan = replace(given.weights, scan=0.0) if given.weights.memory or given.weights.update else None
    found = []
    for stream in streams:
        n, statistics = largest[stream]
        extent = scheme_costs(n, _with_steps(statistics, given.load), given.costs, given.sizes, largest=most).lazy
        found.append(LazyExtent(extent.weighted(without_scan) if without_scan else 0.0, extent.memory))
    return found


def _plan(
    registered: Mapping[str, CoalescingEntry],
    distinct: Sequence[_Distinct],
    candidates: Sequence[Candidate],
    shared: Sequence[LazyExtent],
    selection: Selection,
    given: PlanningInputs,
) -> Plan:
    schemes: list[Scheme] = ["eager" if chosen else "lazy" for chosen in selection.eager]
    shared_bytes: dict[str, float] = {}
    queries = {}
    for each, scheme, candidate in zip(distinct, schemes, candidates, strict=True):
        extent = shared[candidate.stream]
        if scheme == "lazy" and each.first.query.can_share:
            shared_bytes[each.first.query.stream] = extent.memory
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
            "all_lazy": fsum([*(c.lazy_scan for c in candidates), *(extent.cost for extent in shared)]),
        },
        shared_bytes=shared_bytes,
        status=selection.status,
        gap=selection.gap,
        solver=selection.solver,
        fitted=given.costs.are_fitted,
        release=release(),
    )


def _required(
    names: Sequence[str],
    registered: Mapping[str, CoalescingEntry],
    costs: SchemeCosts,
    in_force: Mapping[str, Scheme] | None,
) -> Scheme | None:
    """The scheme that pins, the plan in force or scan limits require of a distinct query; None if it is free."""
    required = {name: registered[name].pinned for name in names}
    if in_force is not None:
        required |= {name: in_force[name] for name in names if required[name] is None}
    for name in names:
        limit = registered[name].max_scan_time
        if limit is None:
            continue
        over = {scheme: scan - limit for scheme, scan in _scans(costs).items()}
        least, wish = min(over.values()), required[name]
        if least > 0:
            raise QueryError(
                Code.PLAN_INFEASIBLE,
                f"query {name!r} may scan for {limit:g} and needs {limit + least:g}",
                f"raise max_scan_time by {least:g}, or shorten the window",
            )
        if wish is not None and over[wish] > 0:
            raise QueryError(
                Code.PLAN_INFEASIBLE,
                f"query {name!r} is required to be {wish}, which scans longer than {limit:g} by {over[wish]:g}",
                "unpin it, or raise max_scan_time",
            )
        if max(over.values()) > 0:
            required[name] = "eager" if over["eager"] <= 0 else "lazy"
    schemes = {scheme for scheme in required.values() if scheme is not None}
    if len(schemes) > 1:
        raise QueryError(
            Code.PLAN_INFEASIBLE, f"queries {', '.join(names)} share one extent and are pinned differently",
            "pin one of them only",
        )  # fmt: skip
    return next(iter(schemes), None)


def _scans(costs: SchemeCosts) -> dict[Scheme, float]:
    return {"eager": costs.eager.scan, "lazy": costs.lazy.scan}


def _scheme_choice(
    registered: CoalescingEntry, each: _Distinct, scheme: Scheme, candidate: Candidate, extent: LazyExtent
) -> Choice:
    """The chosen scheme, the cost of both, and the reason."""
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
    elif each.required is not None:
        why = "as decided before, or as an equal query is pinned"
    elif not each.first.query.can_share:
        why = "the memory budget" if dearer else "it counts rows per group and shares no extent; plain tuples cost less"
    elif scheme == "eager":
        why = f"saves the shared extent, {extent.cost:.4g}" if dearer else "its own extent costs less than its scans"
    else:
        why = "the memory budget" if dearer else "its scans of the shared extent cost less than one of its own"
    weighed = tuple(Alternative(name, cost, refused[name]) for name, cost in found.items())  # type: ignore[index]
    return Choice("scheme", scheme, why, UNIT, weighed, pinned=pinned)


def _query_plan(
    name: str, each: _Distinct, scheme: Scheme, candidate: Candidate, registered: CoalescingEntry
) -> QueryPlan:
    costs = each.costs
    chosen = costs.eager if scheme == "eager" else costs.lazy
    parts = ("memory", "update", "scan")
    return QueryPlan(
        name=name,
        stream=registered.query.stream,
        scheme=scheme,
        shared=scheme == "lazy" and registered.query.can_share,
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
