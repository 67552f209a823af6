"""Queries registered over streams: coalescing ones are grouped and planned together, joins each by itself."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from whenabouts.core.coalescing.operator import Coalesce
from whenabouts.core.costs.choices import Choice, Load, Value, decided
from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.costs.operation_costs import AtomicCosts
from whenabouts.core.costs.prices import Sizes, TimingJoinPrices, Weights
from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.schemas import arrow_schema_of
from whenabouts.core.shared_coalescing.operator import share
from whenabouts.core.temporal_queries.join import TemporalJoin
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.adaptive import Adaptive, check_weight, observed
from whenabouts.planner.byte_sizes import parse_bytes
from whenabouts.planner.coalescing_plans import Given, Registered, plan_coalescing
from whenabouts.planner.coalescing_queries import CoalescingQuery
from whenabouts.planner.join_plans import DECISIONS, Joining, JoinPlan, inner_of, is_join, plan_join
from whenabouts.planner.plans import Plan, Scheme
from whenabouts.planner.state_forecast import row_bytes
from whenabouts.planner.streams import Stream, lateness_of_streams, load_over

if TYPE_CHECKING:
    from whenabouts.planner.text_queries import TextQuery

Registrable: TypeAlias = "str | TextQuery | Coalesce | CoalescingQuery | TimingJoin | WindowJoin | SelectProject"


class PlanChangedWarning(UserWarning):
    """This release would decide otherwise than the one that made the plan in force."""


_SCHEMES: dict[str, Scheme] = {"eager": "eager", "lazy": "lazy"}


@dataclass(frozen=True, slots=True)
class _Join:
    query: Joining
    streams: tuple[str, ...]
    load: Load
    pins: dict[str, Value]


class Registry:
    """Register and unregister queries at any time; `plan` decides what they leave open.

    Coalescing queries are decided eager or lazy all together, joins each by its own costs. ``streams``: what is known
    of the streams by name. ``every``: how much event time a step takes in (a micro-batch), ``parallelism``: how many
    tasks run at once. ``weights`` of memory, update and scan; ``costs`` and ``sizes`` of atomic operations and tuples;
    ``memory_budget`` for all extents together (bytes, or text such as "2 GiB"); ``time_limit`` of the solver in
    seconds. ``timing_prices``: of timing joins, as calibrated. ``hysteresis``: by what part a new plan must be cheaper
    than the decisions in force before `replan`, or a running query, adopts it.

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
        tasks: object = parallelism  # a file may say anything
        if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
            raise QueryError(Code.BAD_OPTION, f"parallelism is {parallelism!r}", "give a number of tasks, 1 or more")
        self._weights = weights if isinstance(weights, Weights) else Weights(*weights)
        self._costs = costs or AtomicCosts()
        self._sizes = sizes or Sizes()
        self._budget = None if memory_budget is None else parse_bytes(memory_budget, name="memory_budget")
        self._time_limit = time_limit
        self._hysteresis = hysteresis
        self._streams = dict(streams or {})
        self._load = Load(every=every, parallelism=parallelism, timing_prices=timing_prices)
        self._registered: dict[str, Registered] = {}
        self._joins: dict[str, _Join] = {}

    @property
    def every(self) -> Duration:
        """How much event time a step takes in."""
        return self._load.every

    def register(
        self,
        name: str | Registrable,
        query: Registrable | Statistics | Load | None = None,
        statistics: Statistics | Load | None = None,
        *,
        stream: str | Sequence[str] | None = None,
        max_scan_time: float | None = None,
        pin: str | Mapping[str, Value] | None = None,
    ) -> str:
        """Add a query: its text, a query object, or a `CoalescingQuery` that is planned only; gives its name.

        ``register("hot", query)``, or ``register(query)``, which names it ``query 1``, ``query 2``. ``statistics``: of
        a coalescing query `Statistics`, of a join `Load`. ``stream``: what a query object is over, which it does not
        say itself (of a join one name for each input). ``max_scan_time``: the longest that one scan may take, in the
        unit of the atomic costs. ``pin``: see `pin`.

        Raises: QueryError WA-2073 for a name that is in use, WA-2006 for what cannot be planned; for text, what
        `parse_query` raises, and for a text that joins WA-2113 and WA-2114 where its streams are not described.
        """
        if not isinstance(name, str) or (query is None and statistics is None):
            given, name, query = query, self._new_name(), name
            statistics = given if isinstance(given, Statistics | Load) else statistics
        if isinstance(query, Statistics | Load) or query is None:
            raise QueryError(Code.BAD_OPTION, f"no query is given for the name {name!r}", "give a name and a query")
        if name in self._registered or name in self._joins:
            raise QueryError(Code.NAME_TAKEN, f"a query named {name!r} is registered already", "unregister it first")
        _check_number("max_scan_time", 0.0 if max_scan_time is None else max_scan_time)
        read = self._read(query)
        if is_join(read):
            self._joins[name] = self._join(read, query, statistics, stream)
        else:
            self._registered[name] = self._coalescing(read, statistics, stream, max_scan_time)
        try:
            self.pin(name, pin)
        except QueryError:
            self.unregister(name)
            raise
        return name

    def _new_name(self) -> str:
        numbers = (f"query {number}" for number in count(1))
        return next(name for name in numbers if name not in self._registered and name not in self._joins)

    def _read(self, query: Any) -> Any:
        """Text as a query; one that joins is bound to what is known of its streams."""
        from whenabouts.planner.text_queries import TextQuery, parse_query

        if isinstance(query, str):
            query = parse_query(query)
        if not isinstance(query, TextQuery) or query.form != "join":
            return query
        schemas = {name: each.schema for name, each in self._streams.items() if each.schema is not None}
        lateness = lateness_of_streams({name: each.lateness for name, each in self._streams.items()})
        return query.bind(schemas, self._times(), lateness)

    def _times(self) -> dict[str, TimeSpec]:
        """How the rows of streams say when they happened, where that was described."""
        return {name: each.time for name, each in self._streams.items() if each.time is not None}

    def _join(self, query: Joining, given: Any, statistics: Any, stream: str | Sequence[str] | None) -> _Join:
        if isinstance(statistics, Statistics):
            raise QueryError(Code.BAD_OPTION, "statistics of a join are given as of coalescing", "give a Load of rates")
        from whenabouts.planner.text_queries import TextQuery, parse_query

        inputs = inner_of(query).inputs
        over: Sequence[str] = inputs if stream is None else (stream,) if isinstance(stream, str) else tuple(stream)
        if isinstance(given, str | TextQuery):
            read = parse_query(given) if isinstance(given, str) else given
            over = [source.stream for source in read.sources]
        if len(over) != len(inputs):
            raise QueryError(
                Code.BAD_OPTION, f"{len(over)} streams are named for {len(inputs)} inputs", "name one for each"
            )
        load = load_over(dict(zip(inputs, over, strict=True)), self._streams, self._here(statistics))
        return _Join(query, tuple(over), self._with_sizes(query, tuple(over), load), {})

    def _here(self, known: Load | None) -> Load:
        """What is known of a join, with the step and the tasks of this registry where it does not say others."""
        if known is None:
            return self._load
        every, parallelism = known.every or self._load.every, max(known.parallelism, self._load.parallelism)
        prices = known.timing_prices or self._load.timing_prices
        return replace(known, every=every, parallelism=parallelism, timing_prices=prices)

    def _with_sizes(self, query: Joining, over: tuple[str, ...], load: Load) -> Load:
        """The load with the bytes of the streams' rows, where their columns are known."""
        schemas = [self._streams[name].schema for name in over if name in self._streams]
        known = [schema for schema in schemas if schema is not None]
        if load.row_bytes or len(known) < len(over):
            return load
        try:
            return replace(load, row_bytes=row_bytes(query, known))
        except QueryError:  # it cannot be run as a stream: its state is not told either
            return load

    def _coalescing(
        self, query: Any, statistics: Any, stream: str | Sequence[str] | None, max_scan_time: float | None
    ) -> Registered:
        if isinstance(statistics, Load):
            raise QueryError(Code.BAD_OPTION, "a Load is given for a query that coalesces", "give Statistics")
        from whenabouts.planner.text_queries import TextQuery

        runs = query
        if isinstance(query, CoalescingQuery):
            planned, runs = query, None
        elif isinstance(query, TextQuery):
            described = self._streams.get(query.streams[0])
            if described is not None and described.schema is not None:  # its columns can be checked already
                query.bind({query.streams[0]: described.schema}, self._times(), described.lateness)
            planned = query.distinct()
        elif isinstance(query, Coalesce) and not isinstance(query, TemporalJoin):
            planned = CoalescingQuery.of(query, stream if isinstance(stream, str) else "stream")
        else:
            raise QueryError(
                Code.BAD_OPTION, f"{type(query).__name__} is nothing that can be planned",
                "give text, a Coalesce, a TemporalAggregate, a CoalescingQuery, a TimingJoin or a WindowJoin",
            )  # fmt: skip
        known = statistics
        if known is None:
            described = self._streams.get(planned.stream)
            known = Statistics(rate=None if described is None else described.rate, source="default")
        return Registered(planned, runs, known, max_scan_time, None)

    def unregister(self, name: str) -> None:
        """Remove a query. Raises: QueryError WA-2074 for an unknown name."""
        if self._joins.pop(name, None) is None:
            self._at(name)
            del self._registered[name]

    def pin(self, name: str, choice: str | Mapping[str, Value] | None) -> None:
        """Decide for a query by hand, None to leave it to the planner again.

        ``choice``: the scheme of a coalescing query, the strategy of a join, or values by option
        (``{"strategy": "forward", "conservative": "gca", "buckets": 8}``).

        Raises: QueryError WA-2074 for an unknown name, WA-2006 for an option that there is not, and what the query
        raises for a value that it has not.
        """
        join = self._joins.get(name)
        if join is not None:
            pins: dict[str, Value] = {"strategy": choice} if isinstance(choice, str) else dict(choice or {})
            plan_join(name, join.query, join.streams, join.load, pins)  # refuses what cannot be
            self._joins[name] = replace(join, pins=pins)
            return
        pins = dict(choice) if isinstance(choice, Mapping) else {"scheme": choice} if choice is not None else {}
        registered, scheme, parts = self._at(name), pins.pop("scheme", None), pins.pop("buckets", None)
        if pins or (scheme is not None and scheme not in _SCHEMES):
            told = f"{next(iter(pins))} of query {name!r}" if pins else f"the scheme of {name!r} is to be {scheme!r}"
            raise QueryError(Code.BAD_OPTION, told, "a coalescing query has a scheme, eager or lazy, and buckets")
        pinned = None if scheme is None else _SCHEMES[str(scheme)]
        self._registered[name] = replace(registered, pinned=pinned, buckets=parts)

    def observe(self, name: str, statistics: Statistics | Load) -> None:
        """Replace what is known of a query by what was measured. Raises: QueryError WA-2074, WA-2006 for the other kind
        of statistics."""
        join = self._joins.get(name)
        if (join is not None) != isinstance(statistics, Load):
            raise QueryError(
                Code.BAD_OPTION, f"{type(statistics).__name__} is observed of {name!r}",
                "give a join a Load, and a coalescing query Statistics",
            )  # fmt: skip
        if join is not None and isinstance(statistics, Load):
            known = self._here(statistics)
            known = known if known.row_bytes else replace(known, row_bytes=join.load.row_bytes)
            self._joins[name] = replace(join, load=known)
        elif isinstance(statistics, Statistics):
            self._registered[name] = replace(self._at(name), statistics=statistics)

    def observe_counts(self, counts: Mapping[str, int], seconds: float, *, weight: float = 0.3) -> None:
        """Take in what running queries counted in a stretch of event time; see `measured_statistics`.

        Measured before, a new figure counts with ``weight`` and the old one with the rest; else it stands alone.
        Queries of which nothing was counted keep their statistics. Raises: QueryError WA-2072 for a weight
        outside (0, 1].
        """
        check_weight(weight)
        self._registered = observed(self._registered, counts, seconds, weight)

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
        """The registered queries over one stream as one query, under a plan's schemes (default: the plan of now).

        ``adapt_every``: plan again after so much event time, while the query runs, in every bucket of keys by itself
        (see `Adaptive`; ``weight`` as in `observe_counts`); None: the schemes stay. With a memory budget ``buckets``
        says among how many it is shared.

        ``schema``: that of the stream, Arrow's or an engine's (`df.schema` of Spark, `table.get_resolved_schema()` of
        Flink, where their adapters are imported). ``time`` and ``lateness`` are for queries from text, which say
        neither. ``stream`` may be left out where there
        is one. What comes out: see `SharedCoalescing`. To change the plan by hand, go on with what this gives for the
        new plan over the same state. Raises: QueryError WA-2074 for an unknown stream, WA-2006 for queries that are
        planned only, and for a budget without ``buckets``; WA-2021 unless ``adapt_every`` is above zero, WA-2072 for a
        weight outside (0, 1]; what binding and sharing raise.
        """
        plan = plan or self.plan()
        schemes = plan.schemes
        streams = dict.fromkeys(each.query.stream for each in self._registered.values())
        named = stream if stream is not None else next(iter(streams), "")
        if named not in streams or (stream is None and len(streams) > 1):
            raise QueryError(
                Code.UNKNOWN_NAME, f"which stream: {stream!r}", f"there are {', '.join(streams) or 'none'}"
            )
        schema = arrow_schema_of(schema, named)
        queries: dict[str, Any] = {}
        for name, each in self._registered.items():
            if each.query.stream != named:
                continue
            if each.runs is None:
                raise QueryError(Code.BAD_OPTION, f"query {name!r} is planned only", "register its text or a Coalesce")
            times = {} if time is None else {named: time}
            runs = each.runs
            queries[name] = runs if isinstance(runs, Coalesce) else runs.bind({named: schema}, times, lateness)
        adapting = None
        if adapt_every is not None:
            mine = {name: self._registered[name] for name in queries}
            given = self._given
            if given.budget is not None:  # what the plan leaves to this stream
                given = given._replace(budget=max(given.budget - plan.bytes_beside(named), 0.0))
            adapting = Adaptive.of(mine, given, self._hysteresis, adapt_every, weight, buckets)
        return share(queries, {name: schemes[name] for name in queries if name in schemes}, adapting)

    def query(self, name: str, plan: Plan | None = None) -> Joining:
        """A registered join with what a plan chose for it (default: the plan of now) in place of `auto`.

        Raises: QueryError WA-2074 for an unknown name, or that of a coalescing query (`share` has these).
        """
        if name not in self._joins:
            raise QueryError(Code.UNKNOWN_NAME, f"no join is named {name!r}", f"joins: {', '.join(self._joins)}")
        chosen = next(join for join in (plan or self.plan()).joins if join.name == name)
        return decided(self._joins[name].query, chosen.choices)

    def pin_all(self, plan: Plan) -> None:
        """Pin every registered query to what a plan decides: nothing changes until `pin(name, None)`."""
        for name, scheme in plan.schemes.items():
            if name in self._registered:
                self.pin(name, scheme)
        for join in plan.joins:
            if join.name in self._joins:
                self.pin(join.name, _pinnable(join))

    def adopt(self, plan: Plan | str) -> Plan:
        """Go on with the decisions of an exported plan (its text, or read already), as `replan` does.

        Raises: QueryError WA-2075 for text that is no plan. Warns: as `replan`.
        """
        return self.replan(Plan.from_json(plan) if isinstance(plan, str) else plan)

    def _at(self, name: str) -> Registered:
        if name not in self._registered:
            known = ", ".join([*self._registered, *self._joins]) or "none"
            raise QueryError(Code.UNKNOWN_NAME, f"no query is named {name!r}", f"registered are: {known}")
        return self._registered[name]

    def plan(self) -> Plan:
        """Decide for all registered queries at the least total cost.

        Raises: QueryError WA-2071 where the budget, the scan times and the pins cannot hold together: which, and by how
        much, is said; WA-2161 where a choice of a join is left nothing that its constraints allow.
        """
        joins = tuple(self._plan_join(name, join.pins) for name, join in self._joins.items())
        return replace(self._planned(None), joins=joins)

    def replan(self, current: Plan) -> Plan:
        """A new plan if it is cheaper than ``current``'s decisions by more than the hysteresis, else those again.

        Coalescing queries are decided together, each join by itself; queries registered since are decided anew in any
        case. Warns (`PlanChangedWarning`) where the plan was made by another release and this one would decide
        otherwise. Raises: as `plan`.
        """
        best = self.plan()
        kept = self._keeping(current, best)
        other = {name: pair for name, pair in kept.diff(best).items() if current.release != best.release}
        if other:
            told = ", ".join(f"{name}: {then} -> {now}" for name, (then, now) in other.items())
            warnings.warn(
                f"the plan is of release {current.release}, release {best.release} would decide: {told}",
                PlanChangedWarning,
                stacklevel=2,
            )
        joins = tuple(self._cheaper(old, new) for old, new in zip(kept.joins, best.joins, strict=True))
        return replace(best if best.beats(kept, self._hysteresis) else kept, joins=joins)

    def _keeping(self, current: Plan, best: Plan) -> Plan:
        """The plan of now under the decisions in force, as far as they can be kept."""
        joins = []
        in_force = {join.name: join for join in current.joins}
        for join in best.joins:
            pins = {**_pinnable(in_force[join.name]), **self._joins[join.name].pins} if join.name in in_force else {}
            try:
                again = self._plan_join(join.name, pins) if pins else join
            except QueryError:  # the decisions in force break a rule by now
                again = join
            joins.append(replace(again, choices=tuple(map(_unpinned, again.choices, join.choices))))
        if any(name not in current.schemes for name in self._registered):
            return replace(best, joins=tuple(joins))
        try:
            return replace(self._planned(current.schemes), joins=tuple(joins))
        except QueryError:  # likewise
            return replace(best, joins=tuple(joins))

    def _cheaper(self, kept: JoinPlan, best: JoinPlan) -> JoinPlan:
        """The new decisions for a join if they win by more than the hysteresis."""
        then, now = (sum(choice.cost or 0.0 for choice in plan.choices) for plan in (kept, best))
        return best if now < then - self._hysteresis * abs(then) else kept

    def _plan_join(self, name: str, pins: Mapping[str, Value]) -> JoinPlan:
        join = self._joins[name]
        return plan_join(name, join.query, join.streams, join.load, pins)

    def explain(self) -> str:
        """The plan of now, as text."""
        return self.plan().explain()

    def _planned(self, in_force: Mapping[str, Scheme] | None) -> Plan:
        """The coalescing queries, decided together; with decisions in force, under these."""
        return plan_coalescing(self._registered, self._given, in_force)

    @property
    def _given(self) -> Given:
        return Given(self._weights, self._costs, self._sizes, self._budget, self._time_limit, self._load)


def _check_number(what: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise QueryError(Code.BAD_OPTION, f"{what} is {number!r}", "give a number of zero or more")


def _pinnable(join: JoinPlan) -> dict[str, Value]:
    """What a join's plan decides, as pins."""
    return {choice.what: choice.value for choice in join.choices if choice.what in DECISIONS}


def _unpinned(choice: Choice, free: Choice) -> Choice:
    """A decision that is kept for stability is not pinned."""
    return choice if choice.pinned == free.pinned else replace(choice, pinned=free.pinned, why="as it was decided")
