"""What a query leaves open and what is chosen for it: one form for every choice, of operators and of the planner.

Every query has `choices(load)`: of each option that is `auto`, what is chosen, what the alternatives would cost, and
why. The cost models stand beside their operators (`timing_join.cost`, `window_join.cost`, `coalescing.window_spec`); an
operator resolves `auto` with what its query declares, the planner with what it knows besides (`Workload`). Both get the
same `Choice`, so that the explanation says what runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError

if TYPE_CHECKING:
    from whenabouts.core.costs.prices import SchemePrices, TimingJoinPrices

Value: TypeAlias = str | int
"""What an option is set to."""

Source = Literal["measured", "declared", "default"]
"""Where a figure comes from."""

DEFAULT_ROW_BYTES = 100.0
"""Of a row of which nobody knows the columns."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is known of a query's inputs and of where it runs.

    `rates`: rows per second of event time by input, of all keys together; empty: not known. `keys`: how many keys share
    them. `every`: how much event time is taken in at a time (a micro-batch); 0: each row when it comes. `parallelism`:
    how many tasks run at once. `row_bytes`: bytes of a stored row by input. `source`: where the rates come from.
    `timing_prices` and `scheme_prices`: what a timing join and coalescing cost here (`whenabouts calibrate`).

    Raises: QueryError WA-2072 for what can be none of this.

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
        numbers = {f"the rate of {name}": rate for name, rate in self.rates.items()}
        numbers |= {f"the bytes of a row of {name}": size for name, size in self.row_bytes.items()}
        for what, number in {**numbers, "keys": self.keys, "parallelism": self.parallelism}.items():
            if isinstance(number, bool) or not 0.0 < number < math.inf:
                raise QueryError(Code.BAD_STATISTICS, f"{what} is {number!r}", "give a number above 0")
        object.__setattr__(self, "every", parse_non_negative(self.every, name="every"))

    def rate(self, input: str) -> float | None:
        """Rows per second of an input, None where it is not known."""
        return self.rates.get(input)

    def bytes_of(self, input: str) -> float:
        """Bytes of a row of an input in state."""
        return self.row_bytes.get(input, DEFAULT_ROW_BYTES)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One value that an option could have, its cost in the unit of the choice (None: nobody knows), and the rule that
    it breaks, if any."""

    value: Value
    cost: float | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What an option is set to, and why. `pinned`: the user said so. `alternatives` include what was chosen.

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
        """What the chosen value costs, None where nothing was weighed."""
        return next((each.cost for each in self.alternatives if each.value == self.value), None)

    @property
    def rejected(self) -> tuple[Alternative, ...]:
        """The alternatives that were not chosen."""
        return tuple(each for each in self.alternatives if each.value != self.value)

    def __str__(self) -> str:
        weighed = ", ".join(_told(each) for each in self.alternatives)
        return f"{self.what} = {self.value}: {self.why}" + (f", {self.unit}: {weighed}" if weighed else "")


def _told(alternative: Alternative) -> str:
    known = alternative.cost
    cost = "" if known is None else f" {known:,.0f}" if abs(known) >= 1000 else f" {known:.4g}"
    return f"{alternative.value}{cost}" + (f" ({alternative.refused})" if alternative.refused else "")


def cheapest(
    what: str, alternatives: Iterable[Alternative], unit: str, *, pin: Value | None = None, why: str = "least cost"
) -> Choice:
    """The cheapest of the alternatives that break no rule, the first of equals; with a pin, that one.

    Raises: QueryError WA-2161 where none is left, or the pinned one breaks a rule: which one is said.

    >>> cheapest("size", [Alternative(1, 9.0), Alternative(9, 1.0, "waits too long")], "us").value
    1
    """
    every = tuple(alternatives)
    if pin is not None:
        asked = next((each for each in every if each.value == pin), Alternative(pin))
        if asked.refused:
            raise QueryError(Code.CHOICE_REFUSED, f"{what} is to be {pin}: {asked.refused}", "allow more, or unpin it")
        return Choice(what, pin, "as the query says", unit, every, pinned=True)
    open_ones = [each for each in every if not each.refused]
    if not open_ones:
        told = "; ".join(f"{each.value} {each.refused}" for each in every)
        raise QueryError(Code.CHOICE_REFUSED, f"no {what} is left: {told}", "allow more")
    best = min(open_ones, key=lambda each: math.inf if each.cost is None else each.cost)
    return Choice(what, best.value, why, unit, every)


def ruled(what: str, value: Value, why: str, *, pinned: bool = False) -> Choice:
    """What follows from a rule, without costs."""
    return Choice(what, value, "as the query says" if pinned else why, pinned=pinned)


@runtime_checkable
class Choosing(Protocol):
    """A query that says what is chosen for it, and for how long it keeps rows."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs."""

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness by input."""

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What is chosen where the query says `auto`, and why. `pins`: decided by hand.

        Raises: QueryError WA-2161 for a pin that breaks a rule, and what the query raises for a value that it has not.
        """

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark a row's `t_max` is when it is needed no longer."""

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input on average: more than one with time slots."""


Query = TypeVar("Query")

_OPTIONS = ("strategy", "block_size", "conservative", "method", "scheme")


def decided(query: Query, found: Iterable[Choice]) -> Query:
    """The query with what was chosen in place of `auto`: what runs is then what was explained.

    >>> from whenabouts.core.coalescing.query import Coalesce
    >>> query = Coalesce(time="t", values="v")
    >>> decided(query, query.choices()).scheme
    'eager'
    """
    inner: Any = getattr(query, "query", query)  # of a selection around it
    known = {each.what: each.value for each in found if each.what in _OPTIONS and hasattr(inner, each.what)}
    changed = replace(inner, **known)
    return changed if inner is query else replace(query, query=changed)  # type: ignore[type-var]  # a SelectProject
