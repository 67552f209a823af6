"""Watching clocks: the query; `watching.operator` runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict

from whenabouts.core import metrics
from whenabouts.core.clocks.learned_clock import LearnedClock
from whenabouts.core.clocks.learned_clocks import LearnedClocks
from whenabouts.core.durations import Duration, number_of, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.option_checks import columns_of, refused, text, whole_number
from whenabouts.core.times.learned import Learned

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.core.clocks.watching.operator import WatchOperator

MOST_ERROR = 0.25


class WatchClockOptions(TypedDict, total=False):
    """The fields of `WatchClock`, as functions take them."""

    reading: Required[str]
    against: Required[str]
    group: str | Sequence[str]
    clock: LearnedClock | LearnedClocks | Learned | None
    error: float | None
    every: int
    lateness: Duration | None


class ClockOfKey(NamedTuple):
    """The clock of the groups with a key's values, and the bound of its distribution's error."""

    key: tuple[Any, ...]
    clock: Learned
    error: float


@dataclass(frozen=True, kw_only=True)
class WatchClock:
    """A query that watches the clock of each group, validated.

    `reading`: the column of the clock's times. `against`: that of another clock's times for the same events: when they
    arrived, or the other side of a pair. `clock`: what was learned of the two, with the other clock on its left side;
    then `error` bounds the error of its distribution (by default `clock.delay_error`, or 0.05), and `every` is the
    least mean number of rows of a group to a false alarm. `LearnedClocks` are those of groups: `group` names their key
    columns, in their order. A group whose key has no clock, or none that gives a specification, has only its steps
    watched.

    Raises QueryError: WA-2006 for an invalid option, WA-2221 and WA-2222 as `LearnedClock.spec`, of `LearnedClocks` if
    no key has a specification.

    >>> WatchClock(reading="t", against="arrival", group="device").described
    'the clock of t against arrival by device'
    """

    reading: str
    against: str
    group: str | Sequence[str] = ()
    clock: LearnedClock | LearnedClocks | Learned | tuple[ClockOfKey, ...] | None = None
    error: float | None = None
    every: int = 1_000_000
    lateness: Duration | None = None

    inputs = ("rows",)
    idle_after_us = None
    own_counts = (metrics.CLOCK_STEPS, metrics.CLOCK_MISFITS)

    def __post_init__(self) -> None:
        text("reading", self.reading)
        text("against", self.against)
        object.__setattr__(self, "group", columns_of("group", self.group))
        object.__setattr__(self, "every", whole_number("every", self.every))
        if self.lateness is not None:
            parse_non_negative(self.lateness, name="lateness")
        if isinstance(self.clock, LearnedClocks):
            object.__setattr__(self, "clock", _of_keys(self.clock, self.reading, self.group))
        error: Any = self.error
        clock: Any = self.clock
        if isinstance(clock, tuple) and clock and all(isinstance(each, ClockOfKey) for each in clock):  # as made above
            if error is not None:
                object.__setattr__(self, "clock", tuple(each._replace(error=_checked(error)) for each in clock))
            return
        known = 0.05
        if isinstance(clock, LearnedClock):
            known = min(clock.delay_error, MOST_ERROR)
            clock = clock.spec("right", t=self.reading)
        if clock is not None:
            clock = _one(clock, self.reading)
        object.__setattr__(self, "clock", clock)
        object.__setattr__(self, "error", _checked(known if error is None else error))

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness."""
        return (parse_non_negative(self.lateness or 0, name="lateness"),)

    @property
    def says_lateness(self) -> bool:
        """Whether `lateness` was given."""
        return self.lateness is not None

    @property
    def single_bucket(self) -> str | None:
        """Why one bucket does all the work, if it does."""
        return None if self.group else "without group= all rows are of one clock, which one bucket watches"

    @property
    def described(self) -> str:
        """The columns, as text."""
        by = f" by {', '.join(self.group)}" if self.group else ""
        return f"the clock of {self.reading} against {self.against}{by}"

    @property
    def compared(self) -> frozenset[str]:
        """The columns whose values are compared (`hosting.columns_compared`)."""
        return frozenset(self.group)

    def spelled(self, find: Callable[[str], str]) -> WatchClock:
        """The query with the input's names, which `find` gives for its own (`hosting.column_case`)."""
        clock = self.clock
        if isinstance(clock, Learned):
            clock = replace(clock, t=find(clock.t))
        elif isinstance(clock, tuple):
            clock = tuple(each._replace(clock=replace(each.clock, t=find(each.clock.t))) for each in clock)
        group = tuple(map(find, self.group))
        return replace(self, reading=find(self.reading), against=find(self.against), group=group, clock=clock)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> WatchOperator:
        """The operator for a schema. Raises InputError WA-1001 and WA-1002 for its columns."""
        from whenabouts.core.clocks.watching.operator import WatchOperator

        return WatchOperator(self, schemas[0])


def _of_keys(clocks: LearnedClocks, reading: str, group: Sequence[str]) -> tuple[ClockOfKey, ...]:
    """The clocks of the keys that have a specification. Raises QueryError as `WatchClock`."""
    names = [of_input(clocks.on, side) for side in (0, 1)]
    if len(group) != len(clocks.on) or (tuple(group) not in names and any(set(group) == set(each) for each in names)):
        raise QueryError(
            Code.BAD_OPTION,
            f"group is {list(group)}, and the clocks are of keys of {', '.join(names[1])}",
            "name the columns of these keys, in their order",
        )
    found, refusal = [], None
    for key, clock in clocks.by_key:
        try:
            learned = _one(clock.spec("right", t=reading), reading)
        except QueryError as error:
            refusal = error
        else:
            found.append(ClockOfKey(key, learned, min(clock.delay_error, MOST_ERROR)))
    if not found:
        raise refusal or QueryError(Code.BAD_OPTION, "clock holds no clock", "give one of each key")
    return tuple(found)


def _one(clock: Any, reading: str) -> Learned:
    """A clock of the reading with one template. Raises QueryError WA-2006 for anything else."""
    if not isinstance(clock, Learned):
        raise refused("clock", clock, "give what learn_delay or learn_clock returned, or a Learned")
    if clock.t != reading or len(clock.templates) != 1:
        raise QueryError(
            Code.BAD_OPTION,
            f"the clock is of {clock.t!r} with {len(clock.templates)} templates, the reading is {reading!r}",
            "learn one of all kinds of rows, or watch each kind by itself: spec(t=...) names the column",
        )
    return clock


def _checked(error: Any) -> float:
    number = number_of(error)
    if number is None or not 0 <= number <= MOST_ERROR:
        raise refused("error", error, f"give a number from 0 to {MOST_ERROR}")
    return float(number)
