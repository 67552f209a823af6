"""Queries registered over streams, grouped into distinct coalescing queries, and planned together."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from whenabouts.core.coalescing import Coalesce
from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.select_project import SelectProject
from whenabouts.core.shared_coalescing import share
from whenabouts.core.temporal_join import TemporalJoin
from whenabouts.core.timestamps import TimeSpec
from whenabouts.planner.atomic_costs import AtomicCosts
from whenabouts.planner.byte_sizes import parse_bytes
from whenabouts.planner.cost_model import SchemeCosts, Sizes, Statistics, Weights, scheme_costs
from whenabouts.planner.measured_statistics import blended, measured_statistics
from whenabouts.planner.plans import Plan, QueryPlan, Scheme
from whenabouts.planner.releases import release
from whenabouts.planner.selection import Candidate, SharedExtent, solve

if TYPE_CHECKING:
    from whenabouts.planner.text_queries import TextQuery

DEFAULT_ROWS_PER_SECOND = 1.0
"""Arrival rate where none is known: a window in time then holds as many tuples as it has seconds."""


@dataclass(frozen=True, slots=True)
class CoalescingQuery:
    """What tells coalescing queries apart: value columns, grouping, equivalence and window, over one stream.

    The window is ``rows`` tuples or a ``range`` of time. Two queries that are equal in all of this share one extent
    under either scheme (a *distinct coalescing query*, section 6.2).

    Raises: QueryError WA-2006 unless there is a value column and exactly one kind of window, of at least 1.

    >>> CoalescingQuery(("temperature",), ("region",), rows=100).tuples(Statistics())
    100.0
    >>> CoalescingQuery(("temperature",), range="1h").tuples(Statistics(rate=2.0))
    7200.0
    """

    coalesce: tuple[str, ...]
    group: tuple[str, ...] = ()
    rows: int | None = None
    range: Duration | None = None
    equivalence: str = "equal"
    stream: str = "stream"

    def __post_init__(self) -> None:
        if not self.coalesce:
            raise QueryError(Code.BAD_OPTION, "no column is coalesced on", "name at least one value column")
        if (self.rows is None) == (self.range is None):
            raise QueryError(Code.BAD_OPTION, "a window is rows or range, one of the two", 'as rows=100 or range="24h"')
        if self.rows is not None and self.rows < 1:
            raise QueryError(Code.BAD_OPTION, f"the window has {self.rows} rows", "give at least 1")
        if self.range is not None and parse_duration(self.range, name="range") < 1:
            raise QueryError(Code.BAD_OPTION, f"the window's range is {self.range}", "give at least a microsecond")

    @property
    def distinct(self) -> tuple[object, ...]:
        """Equal for queries that are one distinct coalescing query (the order of columns does not matter)."""
        length = self.rows if self.range is None else parse_duration(self.range)
        kind = "rows" if self.range is None else "range"
        return self.stream, frozenset(self.coalesce), frozenset(self.group), self.equivalence, kind, length

    def tuples(self, statistics: Statistics) -> float:
        """How many tuples the window holds."""
        if self.rows is not None:
            return float(self.rows)
        rate = DEFAULT_ROWS_PER_SECOND if statistics.rate is None else statistics.rate
        return max(parse_duration(self.range or 0) / 1e6 * rate, 1.0)


Registrable: TypeAlias = "str | TextQuery | Coalesce | CoalescingQuery"


class PlanChangedWarning(UserWarning):
    """This release would decide otherwise than the one that made the plan in force."""


def _planned_as(query: Any) -> tuple[CoalescingQuery, Any]:
    """A query as it is planned, and as it runs (None: it is planned only)."""
    from whenabouts.planner.text_queries import TextQuery, parse_query

    if isinstance(query, CoalescingQuery):
        return query, None
    if isinstance(query, str):
        query = parse_query(query)
    if isinstance(query, TextQuery):
        return query.distinct(), query
    if not isinstance(query, Coalesce) or isinstance(query, TemporalJoin):
        raise QueryError(
            Code.BAD_OPTION, f"{type(query).__name__} is no coalescing query of one stream",
            "give text, a Coalesce, a TemporalAggregate or a CoalescingQuery",
        )  # fmt: skip
    how, width = query.coalescing, query.extents.window.width_us
    return CoalescingQuery(how.values, how.group, query.rows, width, str(query.equivalence)), query


@dataclass(frozen=True, slots=True)
class _Registered:
    query: CoalescingQuery
    runs: Any
    statistics: Statistics
    max_scan_time: float | None
    pinned: Scheme | None


class Registry:
    """Register and unregister queries at any time; `plan` decides eager or lazy for all of them together.

    ``weights`` of memory, update and scan; ``costs`` and ``sizes`` of atomic operations and tuples; ``memory_budget``
    for all extents together (bytes, or text such as "2 GiB"); ``time_limit`` of the solver in seconds. ``hysteresis``:
    by what part a new plan must be cheaper than the decisions in force before `replan` adopts it.

    >>> registry = Registry(weights=(1, 1, 2))
    >>> hot = CoalescingQuery(("temperature",), ("region",), rows=100)
    >>> registry.register("hot", hot, Statistics(cp=0.8))
    'hot'
    >>> registry.register("wet", replace(hot, coalesce=("humidity",)), Statistics(cp=0.1))
    'wet'
    >>> registry.plan().choices
    {'hot': 'eager', 'wet': 'eager'}
    >>> registry.pin("wet", "lazy")
    >>> registry.plan().choices
    {'hot': 'eager', 'wet': 'lazy'}
    """

    def __init__(
        self,
        *,
        weights: Weights | Sequence[float] = (1.0, 1.0, 2.0),
        costs: AtomicCosts | None = None,
        sizes: Sizes | None = None,
        memory_budget: float | str | None = None,
        time_limit: float | None = None,
        hysteresis: float = 0.05,
    ) -> None:
        self._weights = weights if isinstance(weights, Weights) else Weights(*weights)
        self._costs = costs or AtomicCosts()
        self._sizes = sizes or Sizes()
        self._budget = None if memory_budget is None else parse_bytes(memory_budget, name="memory_budget")
        self._time_limit = time_limit
        self._hysteresis = hysteresis
        self._registered: dict[str, _Registered] = {}

    def register(
        self,
        name: str | Registrable,
        query: Registrable | Statistics | None = None,
        statistics: Statistics | None = None,
        *,
        stream: str | None = None,
        max_scan_time: float | None = None,
        pin: Scheme | None = None,
    ) -> str:
        """Add a query: its text, a query object, or a `CoalescingQuery` that is planned only; gives its name.

        ``register("hot", query)``, or ``register(query)``, which names it ``query 1``, ``query 2``. ``stream``: the
        one that a query object is over, which it does not say itself. ``max_scan_time``: the longest that one scan may
        take, in the unit of the atomic costs. Raises: QueryError WA-2073 for a name that
        is in use, WA-2006 for what is no coalescing query of one stream; for text, what `parse_query` raises.
        """
        if not isinstance(name, str) or (query is None and statistics is None):
            known = query if isinstance(query, Statistics) else statistics
            return self._register(self._new_name(), name, known, (stream, max_scan_time, pin))
        if isinstance(query, Statistics) or query is None:
            raise QueryError(Code.BAD_OPTION, f"no query is given for the name {name!r}", "give a name and a query")
        return self._register(name, query, statistics, (stream, max_scan_time, pin))

    def _new_name(self) -> str:
        numbers = (f"query {number}" for number in count(1))
        return next(name for name in numbers if name not in self._registered)

    def _register(
        self,
        name: str,
        query: Registrable,
        statistics: Statistics | None,
        options: tuple[str | None, float | None, Scheme | None],
    ) -> str:
        if name in self._registered:
            raise QueryError(Code.NAME_TAKEN, f"a query named {name!r} is registered already", "unregister it first")
        stream, limit, pin = options
        known = Statistics(source="default") if statistics is None else statistics
        planned, runs = _planned_as(query)
        if stream is not None and isinstance(query, Coalesce):
            planned = replace(planned, stream=stream)
        self._registered[name] = _Registered(planned, runs, known, limit, pin)
        return name

    def unregister(self, name: str) -> None:
        """Remove a query. Raises: QueryError WA-2074 for an unknown name."""
        self._at(name)
        del self._registered[name]

    def pin(self, name: str, scheme: Scheme | None) -> None:
        """Decide for a query by hand, None to leave it to the planner again. Raises: QueryError WA-2074."""
        self._registered[name] = replace(self._at(name), pinned=scheme)

    def observe(self, name: str, statistics: Statistics) -> None:
        """Replace a query's statistics by what was measured. Raises: QueryError WA-2074."""
        self._registered[name] = replace(self._at(name), statistics=statistics)

    def observe_counts(self, counts: Mapping[str, int], seconds: float, *, weight: float = 0.3) -> None:
        """Take in what running queries counted in a stretch of event time; see `measured_statistics`.

        Measured before, a new figure counts with ``weight`` and the old one with the rest; else it stands alone.
        Queries of which nothing was counted keep their statistics. Raises: QueryError WA-2072 for a weight
        outside (0, 1].
        """
        if not 0.0 < weight <= 1.0:
            raise QueryError(Code.BAD_STATISTICS, f"weight is {weight}", "give a number in (0, 1]")
        for name, found in measured_statistics(counts, seconds, self._registered).items():
            self.observe(name, blended(self._registered[name].statistics, found, weight))

    def share(
        self,
        schema: pa.Schema,
        *,
        stream: str | None = None,
        time: TimeSpec | None = None,
        lateness: Duration = 0,
        plan: Plan | None = None,
    ) -> SelectProject:
        """The registered queries over one stream as one query, under a plan's schemes (default: the plan of now).

        ``time`` and ``lateness`` are for queries from text, which say neither. ``stream`` may be left out where there
        is one. What comes out: see `SharedCoalescing`. To change the plan while it runs, go on with what this gives for
        the new plan over the same state. Raises: QueryError WA-2074 for an unknown stream, WA-2006 for queries that are
        planned only; what binding and sharing raise.
        """
        schemes = (plan or self.plan()).choices
        streams = dict.fromkeys(each.query.stream for each in self._registered.values())
        named = stream if stream is not None else next(iter(streams), "")
        if named not in streams or (stream is None and len(streams) > 1):
            raise QueryError(
                Code.UNKNOWN_NAME, f"which stream: {stream!r}", f"there are {', '.join(streams) or 'none'}"
            )
        queries: dict[str, Any] = {}
        for name, each in self._registered.items():
            if each.query.stream != named:
                continue
            if each.runs is None:
                raise QueryError(Code.BAD_OPTION, f"query {name!r} is planned only", "register its text or a Coalesce")
            times = {} if time is None else {named: time}
            runs = each.runs
            queries[name] = runs if isinstance(runs, Coalesce) else runs.bind({named: schema}, times, lateness)
        return share(queries, {name: schemes[name] for name in queries if name in schemes})

    def pin_all(self, plan: Plan) -> None:
        """Pin every registered query to what a plan decides: nothing changes until `pin(name, None)`."""
        for name, scheme in plan.choices.items():
            if name in self._registered:
                self.pin(name, scheme)

    def _at(self, name: str) -> _Registered:
        if name not in self._registered:
            known = ", ".join(self._registered) or "none"
            raise QueryError(Code.UNKNOWN_NAME, f"no query is named {name!r}", f"registered are: {known}")
        return self._registered[name]

    def plan(self) -> Plan:
        """Decide for all registered queries at the least total cost.

        Raises: QueryError WA-2071 where the budget, the scan times and the pins cannot hold together: which, and by how
        much, is said.
        """
        return self._planned(None)

    def replan(self, current: Plan) -> Plan:
        """A new plan if it is cheaper than ``current``'s decisions by more than the hysteresis, else those again.

        Queries registered since are decided anew in any case. Warns (`PlanChangedWarning`) where the plan was made by
        another release and this one would decide otherwise. Raises: as `plan`.
        """
        best = self._planned(None)
        if any(name not in current.choices for name in self._registered):
            return best
        try:
            kept = self._planned(current.choices)
        except QueryError:  # the decisions in force break a constraint by now
            return best
        other = {name: pair for name, pair in kept.diff(best).items() if current.release != best.release}
        if other:
            told = ", ".join(f"{name}: {then} -> {now}" for name, (then, now) in other.items())
            warnings.warn(
                f"the plan is of release {current.release}, release {best.release} would decide: {told}",
                PlanChangedWarning,
                stacklevel=2,
            )
        return best if best.cost < kept.cost - self._hysteresis * abs(kept.cost) else kept

    def explain(self) -> str:
        """The plan of now, as text."""
        return self.plan().explain()

    def _planned(self, decided: dict[str, Scheme] | None) -> Plan:
        distinct: dict[tuple[object, ...], list[str]] = {}
        for name, registered in self._registered.items():
            distinct.setdefault(registered.query.distinct, []).append(name)
        streams = list(dict.fromkeys(registered.query.stream for registered in self._registered.values()))
        # Queries of one kind are one; the first to be registered speaks for the statistics of all.
        firsts = [self._registered[names[0]] for names in distinct.values()]
        tuples = [first.query.tuples(first.statistics) for first in firsts]
        largest = {
            stream: max(n for n, first in zip(tuples, firsts, strict=True) if first.query.stream == stream)
            for stream in streams
        }
        most = max(tuples, default=1.0)
        costs = [
            scheme_costs(n, first.statistics, self._costs, self._sizes, largest=most)
            for n, first in zip(tuples, firsts, strict=True)
        ]
        candidates = [
            Candidate(
                both.eager.weighted(self._weights),
                self._weights.scan * both.lazy.normalised[2],
                both.eager.memory,
                streams.index(first.query.stream),
                self._fixed(names, both, decided),
            )
            for names, first, both in zip(distinct.values(), firsts, costs, strict=True)
        ]
        without_scan = replace(self._weights, scan=0.0) if self._weights.memory or self._weights.update else None
        shared = []
        for stream in streams:
            of_stream = next(first.statistics for first in firsts if first.query.stream == stream)
            extent = scheme_costs(largest[stream], of_stream, self._costs, self._sizes, largest=most).lazy
            shared.append(SharedExtent(extent.weighted(without_scan) if without_scan else 0.0, extent.memory))
        selection = solve(candidates, shared, self._budget, time_limit=self._time_limit)
        schemes: list[Scheme] = ["eager" if chosen else "lazy" for chosen in selection.eager]
        queries = {
            name: self._query_plan(name, names, scheme, both, candidate)
            for names, scheme, both, candidate in zip(distinct.values(), schemes, costs, candidates, strict=True)
            for name in names
        }
        lazy_streams = {c.stream for c, chosen in zip(candidates, selection.eager, strict=True) if not chosen}
        return Plan(
            queries=tuple(queries[name] for name in self._registered),
            cost=selection.cost,
            alternatives={
                "all_eager": sum(candidate.eager for candidate in candidates),
                "all_lazy": sum(c.lazy_scan for c in candidates) + sum(extent.cost for extent in shared),
            },
            shared_bytes={streams[g]: shared[g].memory for g in sorted(lazy_streams)},
            status=selection.status,
            gap=selection.gap,
            release=release(),
        )

    def _fixed(self, names: list[str], costs: SchemeCosts, decided: dict[str, Scheme] | None) -> bool | None:
        """What is decided already for a distinct query: by hand, by the plan in force, by the longest scan allowed."""
        wishes = {name: self._registered[name].pinned for name in names}
        if decided is not None:
            wishes |= {name: decided[name] for name in names if wishes[name] is None}
        for name in names:
            limit = self._registered[name].max_scan_time
            if limit is None:
                continue
            fits = {"eager": costs.eager.scan <= limit, "lazy": costs.lazy.scan <= limit}
            if not any(fits.values()):
                raise QueryError(
                    Code.PLAN_INFEASIBLE,
                    f"query {name!r} may scan for {limit:g}, and needs {min(costs.eager.scan, costs.lazy.scan):g}",
                    "allow more, or shorten its window",
                )
            wish = wishes[name]
            if wish is not None and not fits[wish]:
                raise QueryError(
                    Code.PLAN_INFEASIBLE, f"query {name!r} is to be {wish}, which scans for longer than {limit:g}",
                    "unpin it, or allow more",
                )  # fmt: skip
            if not all(fits.values()):
                wishes[name] = "eager" if fits["eager"] else "lazy"
        schemes = {scheme for scheme in wishes.values() if scheme is not None}
        if len(schemes) > 1:
            raise QueryError(
                Code.PLAN_INFEASIBLE, f"queries {', '.join(names)} share one extent and are pinned differently",
                "pin one of them only",
            )  # fmt: skip
        return None if not schemes else schemes == {"eager"}

    def _query_plan(
        self, name: str, names: list[str], scheme: Scheme, costs: SchemeCosts, candidate: Candidate
    ) -> QueryPlan:
        registered = self._registered[name]
        chosen = costs.eager if scheme == "eager" else costs.lazy
        parts = ("memory", "update", "scan")
        return QueryPlan(
            name=name,
            stream=registered.query.stream,
            scheme=scheme,
            pinned=registered.pinned is not None,
            shares_with=tuple(other for other in names if other != name),
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
