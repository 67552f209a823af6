"""Choices for the options that a query leaves open, in one form for operators and the planner.

Every query has `choices(load)`: for each option that is `auto` the value chosen, the cost of the alternatives, and the
reason. The cost models are next to their operators (`timing_join.cost`, `window_join.cost`, `coalescing.query`). An
operator asks with only what its query says; the planner adds what it knows about the streams (`Workload`). Both get the
same `Choice`, so that the explanation matches what runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from whenabouts.core.durations import Duration, number_of, parse_non_negative
from whenabouts.core.errors import Code, QueryError

if TYPE_CHECKING:
    from whenabouts.core.costs.prices import SchemePrices, TimingJoinPrices

Value: TypeAlias = str | int
"""The value of an option."""

Source = Literal["measured", "declared", "default"]
"""The source of a figure."""

DEFAULT_ROW_BYTES = 100.0
"""The assumed bytes of a row with unknown columns."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is known about a query's inputs and the machine it runs on.

    `rates`: rows per second of event time by input, of all keys together; empty: unknown. `keys`: the number of keys.
    `every`: the event time that one micro-batch covers; 0: each row is processed when it arrives. `parallelism`: how
    many tasks run at once. `row_bytes`: bytes of a stored row by input. `source`: the source of the rates.
    `timing_prices` and `scheme_prices`: the prices of a timing join and of coalescing (`whenabouts calibrate`).

    Raises: QueryError WA-2072 for invalid numbers.

    >>> Workload(rates={"left": 5.0}, keys=10).rate("left"), Workload().rate("left")
    (5.0, None)
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    keys: float = 1.0
    every: Duration = 0
    parallelism: int = 1
    row_bytes: Mapping[str, float] = field(default_factory=dict)
    source: Source = "default"
    timing_prices: TimingJoinPrices | None = None
    scheme_prices: SchemePrices | None = None

    def __post_init__(self) -> None:
        for what, by_input in (("rates", self.rates), ("row_bytes", self.row_bytes)):
            given: object = by_input  # users may pass any type
            if not isinstance(given, Mapping):
                raise QueryError(Code.BAD_STATISTICS, f"{what} is {given!r}", "give numbers by input")
        numbers = {f"the rate of {name}": rate for name, rate in self.rates.items()}
        numbers |= {f"the bytes of a row of {name}": size for name, size in self.row_bytes.items()}
        for what, number in {**numbers, "keys": self.keys, "parallelism": self.parallelism}.items():
            if not 0.0 < (number_of(number) or 0.0) < math.inf:
                raise QueryError(Code.BAD_STATISTICS, f"{what} is {number!r}", "give a number above 0")
        for what in ("rates", "row_bytes"):
            object.__setattr__(self, what, {name: number_of(each) for name, each in getattr(self, what).items()})
        for what in ("keys", "parallelism"):
            object.__setattr__(self, what, number_of(getattr(self, what)))
        object.__setattr__(self, "every", parse_non_negative(self.every, name="every"))

    def rate(self, input: str) -> float | None:
        """Rows per second of an input, None if unknown."""
        return self.rates.get(input)

    def bytes_of(self, input: str) -> float:
        """Bytes of a row of an input in state."""
        return self.row_bytes.get(input, DEFAULT_ROW_BYTES)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A possible value of an option, its cost in the unit of the choice (None: unknown), and the rule that it breaks,
    if any."""

    value: Value
    cost: float | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen value of an option, and why. `pinned`: the user chose it. `alternatives` include the chosen value.

    >>> print(cheapest("strategy", [Alternative("forward", 20.0), Alternative("backward", 10.0)], "ns a row"))
    strategy = backward: least cost, ns a row: forward 20, backward 10
    """

    what: str
    value: Value
    why: str
    unit: str = ""
    alternatives: tuple[Alternative, ...] = ()
    pinned: bool = False

    @property
    def cost(self) -> float | None:
        """The cost of the chosen value, None if no costs were compared."""
        return next((each.cost for each in self.alternatives if each.value == self.value), None)

    @property
    def rejected(self) -> tuple[Alternative, ...]:
        """The alternatives that were not chosen."""
        return tuple(each for each in self.alternatives if each.value != self.value)

    def __str__(self) -> str:
        weighed = ", ".join(_described(each) for each in self.alternatives)
        return f"{self.what} = {self.value}: {self.why}" + (f", {self.unit}: {weighed}" if weighed else "")


def _described(alternative: Alternative) -> str:
    known = alternative.cost
    cost = "" if known is None else f" {known:,.0f}" if abs(known) >= 1000 else f" {known:.4g}"
    return f"{alternative.value}{cost}" + (f" ({alternative.refused})" if alternative.refused else "")


def cheapest(
    what: str, alternatives: Iterable[Alternative], unit: str, *, pin: Value | None = None, why: str = "least cost"
) -> Choice:
    """The cheapest alternative that breaks no rule, the first among equals; or the pinned one.

    Raises: QueryError WA-2161 if all alternatives, or the pinned one, break a rule; the message names the rules.

    >>> cheapest("size", [Alternative(1, 9.0), Alternative(9, 1.0, "waits too long")], "us").value
    1
    """
    every = tuple(alternatives)
    if pin is not None:
        asked = next((each for each in every if each.value == pin), Alternative(pin))
        if asked.refused:
            raise QueryError(
                Code.CHOICE_REFUSED, f"{what} is pinned to {pin}: {asked.refused}", "allow more, or unpin it"
            )
        return Choice(what, pin, "as the query says", unit, every, pinned=True)
    open_ones = [each for each in every if not each.refused]
    if not open_ones:
        refusals = "; ".join(f"{each.value} {each.refused}" for each in every)
        raise QueryError(Code.CHOICE_REFUSED, f"no {what} is left: {refusals}", "allow more")
    best = min(open_ones, key=lambda each: math.inf if each.cost is None else each.cost)
    return Choice(what, best.value, why, unit, every)


def ruled(what: str, value: Value, why: str, *, pinned: bool = False) -> Choice:
    """A choice that follows from a rule, without costs."""
    return Choice(what, value, "as the query says" if pinned else why, pinned=pinned)


@runtime_checkable
class Choosing(Protocol):
    """A query whose open options can be chosen, and that knows how long it keeps rows."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness by input."""

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """The choices for the options that are `auto`. `pins`: values chosen by the user.

        Raises: QueryError WA-2161 for a pin that breaks a rule, and what the query raises for an invalid value.
        """

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark a row's `t_max` is when the row is no longer needed."""

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input on average: more than one with time slots."""


class Held(NamedTuple):
    """The rows of an input that state holds on average: those less than `behind_us` behind the watermark, and `rows`
    of any age."""

    behind_us: float
    rows: float = 0.0


@runtime_checkable
class Holding(Protocol):
    """A query that holds other rows than all those that `kept_for_us` says: their average depends on the workload."""

    def held(self, input: int, load: Workload) -> Held:
        """What state holds of an input."""


def held_of(query: Choosing, input: int, load: Workload) -> Held:
    """What state holds of an input on average."""
    return query.held(input, load) if isinstance(query, Holding) else Held(query.kept_for_us(input))


Query = TypeVar("Query")

_OPTIONS = ("strategy", "block_size", "conservative", "method", "scheme")


def decided(query: Query, found: Iterable[Choice]) -> Query:
    """The query with the chosen values in place of `auto`, so that what runs is what was explained.

    >>> from whenabouts.core.coalescing.query import Coalesce
    >>> query = Coalesce(time="t", values="v")
    >>> decided(query, query.choices()).scheme
    'eager'
    """
    inner: Any = getattr(query, "query", query)  # the query inside a SelectProject
    known = {each.what: each.value for each in found if each.what in _OPTIONS and hasattr(inner, each.what)}
    changed = replace(inner, **known)
    return changed if inner is query else replace(query, query=changed)  # type: ignore[type-var]  # a SelectProject
