"""The registry of queries: coalescing queries are planned together, each join by itself."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from math import fsum
from typing import Any

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.choices import Value, Workload, decided
from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.costs.prices import Sizes, TimingJoinPrices, Weights
from whenabouts.core.durations import Duration, number_of, whole_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.schemas import arrow_schema_of
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.shared_coalescing.query import share
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.adaptive import Adaptive, check_weight, observed
from whenabouts.planner.byte_sizes import parse_bytes
from whenabouts.planner.coalescing_plans import CoalescingEntry, PlanningInputs, distinct_queries, plan_coalescing
from whenabouts.planner.join_plans import Joining, JoinPlan, is_join, pins_of, plan_join, with_pins_of
from whenabouts.planner.plans import Plan, Scheme
from whenabouts.planner.registrations import (
    JoinEntry,
    Registrable,
    coalescing_entry,
    join_entry,
    read_query,
    scheme_of,
    with_defaults,
)
from whenabouts.planner.streams import Stream


class PlanChangedWarning(UserWarning):
    """The plan in force was made by another release, and this one would decide differently."""


_SCHEMES: dict[str, Scheme] = {"eager": "eager", "lazy": "lazy"}


class Registry:
    """Queries over streams, registered and unregistered at any time; `plan` makes the choices that they leave open.

    Coalescing queries are decided eager or lazy together; each join is decided by its own costs.

    ``streams``: descriptions of streams by name. ``every``: the event time of a step (a micro-batch).
    ``parallelism``: how many tasks run at once. ``weights`` of memory, update and scan. ``costs`` and ``sizes`` of
    atomic operations and tuples. ``memory_budget`` for all extents and the expected state of the joins together (bytes,
    or text such as "2 GiB"); a join whose rates are not known counts as nothing.
    ``time_limit`` of the solver in seconds. ``timing_prices``: of timing joins, as calibrated. ``hysteresis``: the
    fraction by which a new plan must be cheaper than the decisions in force before `replan`, or a running query,
    adopts it.

    >>> from whenabouts.planner import CoalescingQuery
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
        streams: Mapping[str, Stream] | None = None,
        every: Duration = 0,
        parallelism: int = 1,
        timing_prices: TimingJoinPrices | None = None,
    ) -> None:
        numbers = {"hysteresis": hysteresis, "time_limit": 0.0 if time_limit is None else time_limit}
        for what, number in numbers.items():
            _check_number(what, number)
        tasks = whole_of(parallelism)  # a file may say anything
        if tasks is None or tasks < 1:
            raise QueryError(Code.BAD_OPTION, f"parallelism is {parallelism!r}", "give a number of tasks, 1 or more")
        self._weights = weights if isinstance(weights, Weights) else _weights(weights)
        self._costs = costs or AtomicCosts()
        self._sizes = sizes or Sizes()
        self._budget = None if memory_budget is None else parse_bytes(memory_budget, name="memory_budget")
        self._time_limit = time_limit
        self._hysteresis = hysteresis
        self._streams = _described(streams or {})
        self._load = Workload(every=every, parallelism=tasks, timing_prices=timing_prices)
        self._coalescing: dict[str, CoalescingEntry] = {}
        self._joins: dict[str, JoinEntry] = {}

    @property
    def every(self) -> Duration:
        """The event time of a step."""
        return self._load.every

    def register(
        self,
        name: str | Registrable,
        query: Registrable | Statistics | Workload | None = None,
        statistics: Statistics | Workload | None = None,
        *,
        stream: str | Sequence[str] | None = None,
        max_scan_time: float | None = None,
        pin: str | Mapping[str, Value] | None = None,
    ) -> str:
        """Add a query and return its name: text, a query object, or a `CoalescingQuery`, which is planned but not run.

        ``register("hot", query)``, or ``register(query)``, which names it ``query 1``, ``query 2``. ``statistics``:
        `Statistics` of a coalescing query, a `Workload` of a join. ``stream``: the stream of a query object (for a join
        one for each input). ``max_scan_time``: the longest time of one scan, in the unit of the atomic costs. ``pin``:
        see `pin`.

        Raises: QueryError WA-2073 for a name in use, WA-2006 for what cannot be planned; for text, what `parse_query`
        raises, and for a text that joins WA-2113 and WA-2114 if its streams are not described.
        """
        if not isinstance(name, str) or (query is None and statistics is None):
            given, name, query = query, self._new_name(), name
            statistics = given if isinstance(given, Statistics | Workload) else statistics
        if isinstance(query, Statistics | Workload) or query is None:
            raise QueryError(Code.BAD_OPTION, f"no query is given for the name {name!r}", "give a name and a query")
        if name in self._coalescing or name in self._joins:
            raise QueryError(Code.NAME_TAKEN, f"a query named {name!r} is registered already", "unregister it first")
        _check_number("max_scan_time", 0.0 if max_scan_time is None else max_scan_time)
        read = read_query(query, self._streams)
        if is_join(read):
            self._joins[name] = join_entry(read, query, statistics, stream, self._streams, self._load)
        else:
            self._coalescing[name] = coalescing_entry(read, statistics, stream, self._streams, max_scan_time)
        try:
            self.pin(name, pin)
        except QueryError:
            self.unregister(name)
            raise
        return name

    def _new_name(self) -> str:
        numbers = (f"query {number}" for number in count(1))
        return next(name for name in numbers if name not in self._coalescing and name not in self._joins)

    def unregister(self, name: str) -> None:
        """Remove a query. Raises: QueryError WA-2074 for an unknown name."""
        if self._joins.pop(name, None) is None:
            self._at(name)
            del self._coalescing[name]

    def pin(self, name: str, choice: str | Mapping[str, Value] | None) -> None:
        """Fix the choice for a query; None leaves it to the planner again, or to the scheme of the query object.

        ``choice``: the scheme of a coalescing query, the strategy of a join, or values by option
        (``{"strategy": "forward", "conservative": "gca", "buckets": 8}``).

        Raises: QueryError WA-2074 for an unknown name, WA-2006 for an unknown option, and what the query raises for an
        unknown value.
        """
        join = self._joins.get(name)
        if join is not None:
            pins: dict[str, Value] = {"strategy": choice} if isinstance(choice, str) else dict(choice or {})
            plan_join(name, join.query, join.streams, join.load, pins)  # refuses impossible pins
            self._joins[name] = replace(join, pins=pins)
            return
        pins = dict(choice) if isinstance(choice, Mapping) else {"scheme": choice} if choice is not None else {}
        registered, scheme, parts = self._at(name), pins.pop("scheme", None), pins.pop("buckets", None)
        if pins or (scheme is not None and scheme not in _SCHEMES):
            problem = (
                f"query {name!r} has no option {next(iter(pins))!r}" if pins else f"scheme {scheme!r} for {name!r}"
            )
            raise QueryError(Code.BAD_OPTION, problem, "a coalescing query has a scheme, eager or lazy, and buckets")
        pinned = scheme_of(registered.runs) if scheme is None else _SCHEMES[str(scheme)]
        self._coalescing[name] = replace(registered, pinned=pinned, buckets=parts)

    def observe(self, name: str, statistics: Statistics | Workload) -> None:
        """Replace what is known of a query by measurements. Raises: QueryError WA-2074 for an unknown name, WA-2006 for
        the other kind of statistics."""
        join = self._joins.get(name)
        if (join is not None) != isinstance(statistics, Workload):
            raise QueryError(
                Code.BAD_OPTION, f"{type(statistics).__name__} for {name!r}",
                "give a join a Workload, and a coalescing query Statistics",
            )  # fmt: skip
        if join is not None and isinstance(statistics, Workload):
            known = with_defaults(statistics, self._load)
            known = known if known.row_bytes else replace(known, row_bytes=join.load.row_bytes)
            self._joins[name] = replace(join, load=known)
        elif isinstance(statistics, Statistics):
            self._coalescing[name] = replace(self._at(name), statistics=statistics)

    def observe_counts(self, counts: Mapping[str, int], seconds: float, *, weight: float = 0.3) -> None:
        """Update statistics by what running queries counted in ``seconds`` of event time; see `measured_statistics`.

        If a figure was measured before, the result is the average of both, the new one with ``weight``. Queries without
        counts keep their statistics. Raises: QueryError WA-2072 for a weight outside (0, 1].
        """
        check_weight(weight)
        self._coalescing = observed(self._coalescing, counts, seconds, weight)

    def share(
        self,
        schema: Any,
        *,
        stream: str | None = None,
        time: TimeSpec | None = None,
        lateness: Duration | None = None,
        plan: Plan | None = None,
        adapt_every: Duration | None = None,
        weight: float = 0.3,
        buckets: int | None = None,
    ) -> SelectProject:
        """The registered queries over one stream as one query, with the schemes of a plan (default: the current plan).

        ``schema``: that of the stream, Arrow's or an engine's (`df.schema` of Spark, `table.get_resolved_schema()` of
        Flink, where their adapters are imported). ``stream`` may be left out if there is only one. ``time`` and
        ``lateness`` are for queries from text, which declare neither. The output is that of `SharedCoalescing`.

        ``adapt_every``: plan again after this much event time while the query runs, in every bucket by itself (see
        `Adaptive`; ``weight`` as in `observe_counts`). None: the schemes are fixed. With a memory budget ``buckets``
        says how many buckets share it. To change the plan by hand, continue with what this returns for the new plan
        over the same state.

        Raises: QueryError WA-2074 for an unknown stream, WA-2006 for queries without an executable form and for a
        budget without ``buckets``; WA-2021 unless ``adapt_every`` is above zero, WA-2072 for a weight outside (0, 1];
        what binding and sharing raise.
        """
        plan = plan or self.plan()
        named = self._stream(stream)
        schema = arrow_schema_of(schema, named)
        mine = {name: entry for name, entry in self._coalescing.items() if entry.query.stream == named}
        queries: dict[str, Any] = {}
        for name, entry in mine.items():
            if entry.runs is None:
                raise QueryError(
                    Code.BAD_OPTION, f"query {name!r} can be planned but not run", "register its text or a Coalesce"
                )
            times = {} if time is None else {named: time}
            runs = entry.runs
            queries[name] = runs if isinstance(runs, Coalesce) else runs.bind({named: schema}, times, lateness)
        adapting = None
        if adapt_every is not None:
            given = self._inputs
            if given.budget is not None:  # the part of the budget that the plan leaves to this stream
                given = given._replace(budget=max(given.budget - plan.bytes_beside(named), 0.0))
            adapting = Adaptive.of(mine, given, self._hysteresis, adapt_every, weight, buckets)
        schemes = plan.schemes
        same = {name: names[0] for names in distinct_queries(mine) for name in names[1:]}
        return share(queries, {name: schemes[name] for name in queries if name in schemes}, adapting, same)

    def _stream(self, stream: str | None) -> str:
        """The stream of this name, or the only one. Raises: QueryError WA-2074."""
        streams = dict.fromkeys(entry.query.stream for entry in self._coalescing.values())
        named = stream if stream is not None else next(iter(streams), "")
        if named not in streams or (stream is None and len(streams) > 1):
            raise QueryError(
                Code.UNKNOWN_NAME, f"which stream: {stream!r}", f"there are {', '.join(streams) or 'none'}"
            )
        return named

    def query(self, name: str, plan: Plan | None = None) -> Joining:
        """A registered join with a plan's choices (default: the current plan) in place of `auto`.

        Raises: QueryError WA-2074 for an unknown name, or that of a coalescing query (see `share`).
        """
        if name not in self._joins:
            raise QueryError(Code.UNKNOWN_NAME, f"no join is named {name!r}", f"joins: {', '.join(self._joins)}")
        chosen = next(join for join in (plan or self.plan()).joins if join.name == name)
        return decided(self._joins[name].query, chosen.choices)

    def pin_all(self, plan: Plan) -> None:
        """Pin every registered query to a plan's decisions. Nothing changes until `pin(name, None)`."""
        for name, scheme in plan.schemes.items():
            if name in self._coalescing:
                self.pin(name, scheme)
        for join in plan.joins:
            if join.name in self._joins:
                self.pin(join.name, pins_of(join))

    def adopt(self, plan: Plan | str) -> Plan:
        """Continue with the decisions of an exported plan (its text, or a `Plan`), as `replan` does.

        Raises: QueryError WA-2075 for text that is not a plan. Warns: as `replan`.
        """
        return self.replan(Plan.from_json(plan) if isinstance(plan, str) else plan)

    def _at(self, name: str) -> CoalescingEntry:
        if name not in self._coalescing:
            known = ", ".join([*self._coalescing, *self._joins]) or "none"
            raise QueryError(Code.UNKNOWN_NAME, f"no query is named {name!r}", f"registered are: {known}")
        return self._coalescing[name]

    def plan(self) -> Plan:
        """Decide for all registered queries at the least total cost.

        Raises: QueryError WA-2071 if budget, scan times and pins contradict each other, with the amount that is
        missing; WA-2161 if the constraints of a join leave nothing to choose.
        """
        joins = tuple(self._plan_join(name, join.pins) for name, join in self._joins.items())
        return replace(self._planned(None, joins), joins=joins)

    def replan(self, current: Plan) -> Plan:
        """A new plan if it is cheaper than ``current``'s decisions by more than the hysteresis, else ``current``'s.

        This holds for all coalescing queries together and for each join by itself; queries registered since then are
        decided in any case. Warns (`PlanChangedWarning`) if another release made the plan and this one would decide
        differently. Raises: as `plan`, and QueryError WA-2006 for what is no plan.
        """
        if not isinstance(current, Plan):
            raise checks.refused("current", current, "give a plan: one of `plan`, or of a file")
        best = self.plan()
        kept = self._kept(current, best)
        other = {name: pair for name, pair in kept.diff(best).items() if current.release != best.release}
        if other:
            changes = ", ".join(f"{name}: {then} -> {now}" for name, (then, now) in other.items())
            warnings.warn(
                f"the plan was made by release {current.release}; release {best.release} would decide: {changes}",
                PlanChangedWarning,
                stacklevel=2,
            )
        joins = tuple(self._cheaper(old, new) for old, new in zip(kept.joins, best.joins, strict=True))
        return replace(best if best.beats(kept, self._hysteresis) else kept, joins=joins)

    def _kept(self, current: Plan, best: Plan) -> Plan:
        """A plan with the decisions in force, wherever they are still possible; the others are those of `best`."""
        joins = []
        in_force = {join.name: join for join in current.joins}
        for join in best.joins:
            pins = {**pins_of(in_force[join.name]), **self._joins[join.name].pins} if join.name in in_force else {}
            try:
                again = self._plan_join(join.name, pins) if pins else join
            except QueryError:  # the decisions in force break a rule now
                again = join
            joins.append(with_pins_of(again, join))
        try:
            known = all(name in current.schemes for name in self._coalescing)
            coalescing = self._planned(current.schemes, joins) if known else best
        except QueryError:  # likewise
            coalescing = best
        return replace(coalescing, joins=tuple(joins))

    def _cheaper(self, kept: JoinPlan, best: JoinPlan) -> JoinPlan:
        """The new decisions for a join if they are cheaper by more than the hysteresis."""
        then, now = (sum(choice.cost or 0.0 for choice in plan.choices) for plan in (kept, best))
        return best if now < then - self._hysteresis * abs(then) else kept

    def _plan_join(self, name: str, pins: Mapping[str, Value]) -> JoinPlan:
        join = self._joins[name]
        return plan_join(name, join.query, join.streams, join.load, pins)

    def explain(self) -> str:
        """The current plan as text."""
        return self.plan().explain()

    def _planned(self, in_force: Mapping[str, Scheme] | None, joins: Sequence[JoinPlan]) -> Plan:
        """A plan of the coalescing queries beside these joins; with decisions in force, the plan that keeps them."""
        beside = fsum(join.state_bytes or 0.0 for join in joins)
        return plan_coalescing(self._coalescing, self._inputs, in_force, beside=beside)

    @property
    def _inputs(self) -> PlanningInputs:
        return PlanningInputs(self._weights, self._costs, self._sizes, self._budget, self._time_limit, self._load)


def _check_number(what: str, number: object) -> None:
    given = number_of(number)
    if given is None or given < 0:
        raise QueryError(Code.BAD_OPTION, f"{what} is {number!r}", "give a number of zero or more")


def _described(streams: Any) -> dict[str, Stream]:
    """Descriptions of streams by name. Raises QueryError WA-2006 for other objects."""
    found: dict[str, Stream] = dict(
        checks.items_of("streams", streams, "give descriptions by name: {name: Stream(...)}")
    )
    for name, stream in found.items():
        if not isinstance(stream, Stream):
            raise checks.refused(f"streams[{name!r}]", stream, "give a Stream(...)")
    return found


def _weights(weights: Any) -> Weights:
    """Weights of three numbers. Raises QueryError WA-2006 for other objects."""
    try:
        return Weights(*weights)
    except (TypeError, QueryError):
        hint = "give three numbers >= 0, not all 0: of memory, update and scan"
        raise checks.refused("weights", weights, hint) from None
