"""Queries registered over streams, grouped into distinct coalescing queries, and planned together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.planner.atomic_costs import AtomicCosts
from whenabouts.planner.byte_sizes import parse_bytes
from whenabouts.planner.cost_model import SchemeCosts, Sizes, Statistics, Weights, scheme_costs
from whenabouts.planner.plans import Plan, QueryPlan, Scheme
from whenabouts.planner.selection import Candidate, SharedExtent, solve

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


@dataclass(frozen=True, slots=True)
class _Registered:
    query: CoalescingQuery
    statistics: Statistics
    max_scan_time: float | None
    pinned: Scheme | None


class Registry:
    """Register and unregister queries at any time; `plan` decides eager or lazy for all of them together.

    ``weights`` of memory, update and scan; ``costs`` and ``sizes`` of atomic operations and tuples; ``memory_budget``
    for all extents together (bytes, or text such as "2 GiB"); ``time_limit`` of the solver in seconds. ``hysteresis``:
    by what part a new plan must be cheaper than the decisions in force before `replan` adopts it.

    >>> registry = Registry(weights=(1, 1, 2))
    >>> registry.register("hot", CoalescingQuery(("temperature",), ("region",), rows=100), Statistics(cp=0.8))
    >>> registry.register("wet", CoalescingQuery(("humidity",), ("region",), rows=100), Statistics(cp=0.1))
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
        name: str,
        query: CoalescingQuery | str,
        statistics: Statistics | None = None,
        *,
        max_scan_time: float | None = None,
        pin: Scheme | None = None,
    ) -> None:
        """Add a query, as text or as an object.

        ``max_scan_time``: the longest that one scan may take, in the unit of the atomic costs. Raises: QueryError
        WA-2073 for a name that is in use; for text, what `parse_query` raises.
        """
        if isinstance(query, str):
            from whenabouts.planner.text_queries import parse_query

            query = parse_query(query).distinct()
        if name in self._registered:
            raise QueryError(Code.NAME_TAKEN, f"a query named {name!r} is registered already", "unregister it first")
        known = Statistics(source="default") if statistics is None else statistics
        self._registered[name] = _Registered(query, known, max_scan_time, pin)

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

        Queries registered since are decided anew in any case. Raises: as `plan`.
        """
        best = self._planned(None)
        if any(name not in current.choices for name in self._registered):
            return best
        try:
            kept = self._planned(current.choices)
        except QueryError:  # the decisions in force break a constraint by now
            return best
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
