"""Watching clocks: the query; `watching.operator` runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Required, TypedDict

from whenabouts.core.clocks.learned_clock import LearnedClock
from whenabouts.core.durations import Duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
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
    clock: LearnedClock | Learned | None
    error: float | None
    every: int
    lateness: Duration | None


@dataclass(frozen=True, kw_only=True)
class WatchClock:
    """A query that watches the clock of each group, validated.

    `reading`: the column of the clock's times. `against`: that of another clock's times for the same events: when they
    arrived, or the other side of a pair. `clock`: what was learned of the two, with the other clock on its left side;
    then `error` bounds the error of its distribution (by default `clock.delay_error`, or 0.05), and `every` is the
    least mean number of rows of a group to a false alarm.

    Raises QueryError: WA-2006 for an invalid option, WA-2221 and WA-2222 as `LearnedClock.spec`.

    >>> WatchClock(reading="t", against="arrival", group="device").described
    'the clock of t against arrival by device'
    """

    reading: str
    against: str
    group: str | Sequence[str] = ()
    clock: LearnedClock | Learned | None = None
    error: float | None = None
    every: int = 1_000_000
    lateness: Duration | None = None

    inputs = ("rows",)
    idle_after_us = None

    def __post_init__(self) -> None:
        text("reading", self.reading)
        text("against", self.against)
        object.__setattr__(self, "group", columns_of("group", self.group))
        whole_number("every", self.every)
        if self.lateness is not None:
            parse_non_negative(self.lateness, name="lateness")
        clock: Any = self.clock
        known = 0.05
        if isinstance(clock, LearnedClock):
            known = min(clock.delay_error, MOST_ERROR)
            clock = clock.spec("right", t=self.reading)
        if isinstance(clock, Mapping):  # LearnedClocks
            raise QueryError(
                Code.BAD_OPTION,
                f"clock holds {len(clock)} clocks, one for each key",
                "watch the rows of each key by themselves, with clock=clocks[key]",
            )
        if clock is not None and not isinstance(clock, Learned):
            raise refused("clock", clock, "give what learn_delay or learn_clock returned, or a Learned")
        if clock is not None and (clock.t != self.reading or len(clock.templates) != 1):
            raise QueryError(
                Code.BAD_OPTION,
                f"the clock is of {clock.t!r} with {len(clock.templates)} templates, the reading is {self.reading!r}",
                "learn one of all kinds of rows, or watch each kind by itself: spec(t=...) names the column",
            )
        error: Any = known if self.error is None else self.error
        if isinstance(error, bool) or not isinstance(error, (int, float)) or not 0 <= error <= MOST_ERROR:
            raise refused("error", error, f"give a number from 0 to {MOST_ERROR}")
        object.__setattr__(self, "clock", clock)
        object.__setattr__(self, "error", float(error))

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

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> WatchOperator:
        """The operator for a schema. Raises InputError WA-1001 and WA-1002 for its columns."""
        from whenabouts.core.clocks.watching.operator import WatchOperator

        return WatchOperator(self, schemas[0])
