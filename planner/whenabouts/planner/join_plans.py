"""Plans joins: each makes its open choices by its own cost model, from the workload of its streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.costs.choices import Choice, Value, Workload
from whenabouts.core.durations import format_duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.byte_sizes import format_bytes
from whenabouts.planner.state_forecast import buckets, expected_state

Joining = TimingJoin | AsofJoin | JoinAggregate | WindowJoin | SelectProject


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """One join's part of a plan.

    ``choices``: for every option the chosen value, the alternatives with their costs, and the reason. ``state``: the
    expected rows and bytes by input (None: unbounded, or the rate is not known). ``latency_us``: how long a result may
    wait after its newest row, in event time. ``statistics``: what the choices are based on, and its source.
    """

    name: str
    kind: str
    streams: tuple[str, ...]
    choices: tuple[Choice, ...]
    state: dict[str, tuple[float, float]] | None
    latency_us: int
    statistics: dict[str, Any]

    @property
    def strategy(self) -> str:
        """The chosen strategy; of as-of joins and join aggregates the algorithm."""
        return str(self.choices[0].value)

    @property
    def values(self) -> dict[str, Value]:
        """The value of every option."""
        return {choice.what: choice.value for choice in self.choices}

    @property
    def state_bytes(self) -> float | None:
        """Expected bytes of all inputs."""
        return None if self.state is None else sum(size for _, size in self.state.values())


def inner_of(query: Any) -> Any:
    """The join itself, without a selection around it."""
    return query.query if isinstance(query, SelectProject) else query


def is_join(query: Any) -> bool:
    """Whether a query is a join or a join aggregate, perhaps with a selection around it."""
    return isinstance(inner_of(query), tuple(_KINDS))


def plan_join(
    name: str, query: Joining, streams: tuple[str, ...], load: Workload, pins: Mapping[str, Value]
) -> JoinPlan:
    """Choose for a join. Raises: QueryError WA-2161 for impossible pins, and what the query raises for them."""
    inner = inner_of(query)
    known = _declared(inner, load)
    kind, pinnable = _KINDS[type(inner)]
    unknown = [what for what in pins if what not in pinnable]
    if unknown:
        raise QueryError(
            Code.BAD_OPTION,
            f"query {name!r} has no choice named {unknown[0]!r}",
            f"it has {', '.join(pinnable)}",
        )
    choices = inner.choices(known, pins)
    state = _state(inner, known)
    size = sum(size for _, size in state.values()) if state is not None else 0.0
    spread = bool(inner.key_columns) or inner.slots is not None
    return JoinPlan(
        name=name,
        kind=kind,
        streams=streams,
        choices=(*choices, _slots(inner), buckets(size, known, spread=spread, pins=pins)),
        state=state,
        latency_us=_latency_us(inner, known, {each.what: each.value for each in choices}),
        statistics={
            "rates": dict(known.rates), "keys": known.keys, "every_us": known.every, "source": known.source
        },
    )  # fmt: skip


DECISIONS = ("strategy", "block_size", "conservative", "method", "buckets")
"""The options that are decided. Everything else in a join's plan follows from them and from the query."""

_KINDS: dict[type, tuple[str, tuple[str, ...]]] = {
    TimingJoin: ("timing join", ("strategy", "block_size", "buckets")),
    AsofJoin: ("as-of join", ("buckets",)),
    JoinAggregate: ("join aggregate", ("buckets",)),
    WindowJoin: ("window join", ("strategy", "conservative", "method", "buckets")),
}
"""Names of the kinds of joins, and the choices that can be pinned."""


def pins_of(plan: JoinPlan) -> dict[str, Value]:
    """The decisions of a plan, as pins."""
    return {choice.what: choice.value for choice in plan.choices if choice.what in DECISIONS}


def with_pins_of(kept: JoinPlan, free: JoinPlan) -> JoinPlan:
    """A plan whose decisions were kept for stability: only those that are pinned in `free` count as pinned."""
    choices = (
        choice if choice.pinned == other.pinned else replace(choice, pinned=other.pinned, why="as decided before")
        for choice, other in zip(kept.choices, free.choices, strict=True)
    )
    return replace(kept, choices=tuple(choices))


def _declared(query: Any, load: Workload) -> Workload:
    """The workload, with the rates that the query itself declares if no others are given."""
    if load.rates or not getattr(query, "rates", ()):
        return load
    per_key = load.keys if isinstance(query, WindowJoin) else 1.0
    return replace(load, rates={name: rate * per_key for name, rate in query.rates}, source="declared")


def _state(query: Query, load: Workload) -> dict[str, tuple[float, float]] | None:
    if not load.rates:
        return None
    inner: Any = query
    try:
        if isinstance(query, TimingJoin):
            query.condition.require_two_sided()
            bounded = all(spec.max_uncertainty_us is not None for spec in (query.left_time, query.right_time))
        elif isinstance(query, AsofJoin):
            query.require_bounded()
            bounded = True
        elif isinstance(query, JoinAggregate):
            query.reach.require_bounds()
            bounded = True
        else:
            inner.graph().require_bounded()
            bounded = all(spec.max_uncertainty_us is not None for _, spec in inner.times)
    except QueryError:
        bounded = False
    if not bounded:
        return None
    return {name: (held.rows, held.bytes) for name, held in expected_state(query, load).items()}


def _slots(query: Any) -> Choice:
    """Whether time slots spread the rows."""
    slots = query.slots
    pinned = query.time_slots not in (None, "auto")
    if slots is not None:
        why = "as the query says" if pinned else "no key spreads the rows: the width is that of the window of partners"
        return Choice("time_slots", format_duration(slots.width_us), why, pinned=pinned)
    bounded = "the window of partners is unbounded" if query.time_slots else "time_slots='auto' is not given"
    return Choice("time_slots", "none", "a key spreads the rows" if query.key_columns else bounded)


def _latency_us(query: Any, load: Workload, chosen: Mapping[str, Value]) -> int:
    """The event time of a step, and the waiting time that the choices add."""
    waits = parse_duration(load.every)
    if isinstance(query, WindowJoin):
        return waits + (max(query.lateness_us) if chosen["strategy"] == "forward" else 0)
    if isinstance(query, AsofJoin | JoinAggregate):
        return waits + max(query.lateness_us) + query.kept_for_us(0)
    rows, rate = int(chosen["block_size"]), sum(load.rates.values())
    if rows > 1:
        fills_us = int(rows / rate * 1e6) if rate else None
        bounds = [us for us in (fills_us, query.max_latency) if us is not None]
        waits += int(min(bounds)) if bounds else 0
    if not query.mode.plain:
        waits += max(query.lateness_us) + max(query.kept_for_us(input) for input in (0, 1))
    return waits


_BOUNDS = {"as-of join": "a tolerance where it looks ahead"}


def explain_join(plan: JoinPlan) -> list[str]:
    """The lines of a join in an explanation."""
    rates = ", ".join(f"{name} {rate:g}/s" for name, rate in plan.statistics["rates"].items()) or "no rates known"
    source = plan.statistics["source"]
    lines = [
        f"{plan.name}: {plan.kind} of {', '.join(plan.streams)}; {rates}, keys {plan.statistics['keys']:g} ({source})"
    ]
    lines += [f"  {choice}" for choice in plan.choices]
    if plan.state is None:
        lines.append(
            f"  state: unknown without rates, {_BOUNDS.get(plan.kind, 'a two-sided condition')} and max_uncertainty"
        )
    else:
        held = ", ".join(f"{name} {rows:,.0f} rows {format_bytes(size)}" for name, (rows, size) in plan.state.items())
        parts = int(plan.values["buckets"])
        lines.append(f"  state: {held}; {format_bytes((plan.state_bytes or 0.0) / parts)} in each of {parts} buckets")
    lines.append(f"  latency: {format_duration(plan.latency_us)} of event time beyond the newest row")
    return lines
