"""The timing join: pairs of a left and a right event with `P(lo <= X2 - X1 <= hi) >= confidence`.

`TimingJoin` is the query; `timing_join_operator` runs it over blocks with its state in segments. Sources: ITC
(Lee 2010) section 4, PTJoin (Mok) section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Required, TypedDict

import pyarrow as pa

from whenabouts.core.choices import Choice, Load, Value
from whenabouts.core.clocks import resolve_clocks
from whenabouts.core.conditions import Condition
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.join_modes import LEFT, RIGHT, Mode
from whenabouts.core.time_slots import LEAST_WIDTH_US, TimeSlots, home_input
from whenabouts.core.timestamps import Lateness, TimeSpec
from whenabouts.core.timing_cost import choices, load_of

if TYPE_CHECKING:
    from whenabouts.core.timing_join_operator import TimingJoinOperator

STRATEGIES = ("auto", "simple", "ssort", "eager", "lazy", "lazy_lookup")
"""Names of spec and papers; `auto` correlates by sorted midpoints, the fastest form known."""


class TimingJoinOptions(TypedDict, total=False):
    """The fields of `TimingJoin`, as functions take them."""

    left_time: Required[TimeSpec]
    right_time: Required[TimeSpec]
    condition: Required[Condition]
    on: str | Sequence[str] | None
    how: str
    best: str | None
    strategy: str
    lateness: Lateness | None
    suffixes: tuple[str, str]
    probability: bool
    block_size: int | None
    max_latency: Duration | None
    rates: Mapping[str, float]
    min_confidence: float | None
    time_slots: Duration | None


@dataclass(frozen=True, kw_only=True)
class TimingJoin:
    """A timing join of two inputs, validated.

    `on`: key column(s) that must be equal; none means one key. `strategy`: see `STRATEGIES`. `block_size` rows wait at
    most in a lazy strategy, and none longer than `max_latency` of event time; `auto` lets rows wait where there is a
    `max_latency`. None: chosen by what a row costs (`timing_cost`), from `rates`, rows per second by input, where they
    are known. An engine that takes in batches of its own (Spark) lets none wait; where rows may wait, what comes out
    has no event time that an engine could rely on. `probability=False` leaves the column out. `lateness`: how far rows
    may lag behind their side's watermark. `how`, `best`: see `join_modes`.

    `time_slots`: the width of slots that spread the rows of a key over buckets (`time_slots`); "auto": where there is
    no key and the query allows it, as wide as the stretch in which partners lie.

    Clocks (`from_clock`) on either side are resolved here, so that `left_time` and `right_time` are what counts.

    Raises QueryError: WA-2001 for a `min_confidence` above the confidence, WA-2006 for an unknown option value, WA-2011
    for a clock whose offset counts and is not declared, WA-2041 for time slots in a mode that decides about both sides,
    with a one-sided condition, or where the lengths of intervals are not declared.

    >>> from whenabouts.core import Point, within
    >>> TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("1s", confidence=1), on="k").on
    ('k',)
    """

    left_time: TimeSpec
    right_time: TimeSpec
    condition: Condition
    on: str | Sequence[str] | None = None
    how: str = "inner"
    best: str | None = None
    strategy: str = "auto"
    lateness: Lateness | None = None
    suffixes: tuple[str, str] = ("_left", "_right")
    probability: bool = True
    block_size: int | None = None
    max_latency: Duration | None = None
    rates: Any = ()
    min_confidence: float | None = None
    time_slots: Duration | None = None

    changeable: ClassVar[frozenset[str]] = frozenset(
        {
            "left_time", "right_time", "condition", "strategy", "lateness", "suffixes", "probability", "block_size",
            "max_latency", "rates", "min_confidence",
        }
    )  # fmt: skip
    """What may change over the state, within what the state holds (see docs/changing-a-query.md)."""

    def __post_init__(self) -> None:
        on = (self.on,) if isinstance(self.on, str) else tuple(self.on or ())
        object.__setattr__(self, "on", on)
        if self.max_latency is not None:
            object.__setattr__(self, "max_latency", parse_non_negative(self.max_latency, name="max_latency"))
        if self.strategy not in STRATEGIES:
            raise QueryError(Code.BAD_OPTION, f"strategy is {self.strategy!r}", f"choose of {', '.join(STRATEGIES)}")
        _ = self.mode
        left, right = resolve_clocks(self.left_time, self.right_time)
        object.__setattr__(self, "left_time", left)
        object.__setattr__(self, "right_time", right)
        if self.min_confidence is not None:
            least = replace(self.condition, confidence=self.min_confidence).confidence
            if least > self.condition.confidence:
                raise QueryError(
                    Code.BAD_CONFIDENCE,
                    f"min_confidence is {least}, above the confidence {self.condition.confidence}",
                    "it is the least confidence that the query may be changed to",
                )
        if self.time_slots not in (None, "auto"):
            object.__setattr__(self, "time_slots", parse_duration(self.time_slots, name="time_slots"))
            self._require_slots()
        if self.block_size is not None and self.block_size < 1:
            raise QueryError(Code.BAD_OPTION, f"block_size is {self.block_size}", "give one row or more")
        rates = dict(self.rates)
        if rates and set(rates) != set(self.inputs):
            raise QueryError(Code.BAD_OPTION, f"rates are given for {', '.join(rates)}", "give left and right")
        Load(rates=rates)
        object.__setattr__(self, "rates", tuple(rates.items()))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The two inputs."""
        return ("left", "right")

    @property
    def mode(self) -> Mode:
        """`how` and `best`."""
        return Mode(self.how, self.best)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """`on` as a tuple."""
        return tuple(self.on or ())

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness, left and right."""
        return (self.lateness or Lateness()).per_input_us

    @property
    def says_lateness(self) -> bool:
        """Whether `lateness` was given."""
        return self.lateness is not None

    @property
    def idle_after_us(self) -> int | None:
        """How far a side may be behind the other before it is idle."""
        return (self.lateness or Lateness()).idle_after_us

    @property
    def slots(self) -> TimeSlots | None:
        """How the rows of a key are spread over buckets; None: they are not."""
        if self.time_slots is None:
            return None
        if self.time_slots == "auto":
            try:
                self._require_slots()
            except QueryError:
                return None
            if self.key_columns:
                return None
        home = home_input(self.mode)
        low, high = self.condition.lo_us, self.condition.hi_us
        lo, hi = (low, high) if home == RIGHT else (-high, -low)  # bounds on home time - the other's time
        longest = [spec.max_uncertainty_us or 0 for spec in (self.left_time, self.right_time)]
        reach = hi - lo + sum(longest)
        width = max(reach, LEAST_WIDTH_US) if self.time_slots == "auto" else parse_duration(self.time_slots)
        return TimeSlots(width_us=width, home=home, before_us=-lo, after_us=hi + longest[home])

    def _require_slots(self) -> None:
        """Raise QueryError WA-2041 where slots cannot be."""
        home = home_input(self.mode)
        longest = (self.left_time, self.right_time)[home].max_uncertainty_us
        if self.condition.one_sided or longest is None:
            raise QueryError(
                Code.NOT_SLOTTED,
                "time slots, and no bound on how far apart partners are",
                "give a condition with two ends, and max_uncertainty= for intervals",
            )
        if self.time_slots != "auto" and parse_duration(self.time_slots or 0) <= 0:
            raise QueryError(Code.BAD_OPTION, f"time_slots is {self.time_slots}", "give a width above zero")

    def choices(self, load: Load | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What is chosen where the query says `auto`, and why; see `choices`. `pins`: decided by hand."""
        return choices(self, load_of(self, load or Load()), pins or {})

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark the `t_max` of an input's row is when no row to come can match it any more."""
        return -self.least_difference(input)

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input on average: more than one with time slots."""
        return 1.0 if self.slots is None else self.slots.copies(input)

    def least_difference(self, input: int) -> int:
        """The least t_max of `input` less that of the other with which rows can match (`shape_thresholds`)."""
        from whenabouts.core.shape_thresholds import least_difference  # numba: imported when first needed

        specs = (self.left_time, self.right_time)
        kinds = [
            tuple(template for _, template in spec.templates)
            or ((spec.min_uncertainty_us, spec.max_uncertainty_us or 0),)
            for spec in specs
        ]
        confidence = self.min_confidence or self.condition.confidence
        return least_difference(kinds[1 - input], kinds[input], *self.window_from(1 - input), confidence)

    def window_from(self, base: int) -> tuple[int, int]:
        """Bounds on (target time - base time) when `base` is the base input."""
        condition = self.condition
        return (condition.lo_us, condition.hi_us) if base == LEFT else (-condition.hi_us, -condition.lo_us)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> TimingJoinOperator:
        """The operator for a left and a right schema.

        On a stream a one-sided condition (WA-2004) or a missing `max_uncertainty` (WA-2010) is refused: state would
        never shrink.
        """
        if streaming:
            self.condition.require_two_sided()
            for name, time in zip(self.inputs, (self.left_time, self.right_time), strict=True):
                if time.max_uncertainty_us is None:
                    raise QueryError(
                        Code.UNBOUNDED_STATE,
                        f"the {name} intervals have no declared greatest length",
                        "give Interval(..., max_uncertainty=...): it bounds the state of a stream",
                    )
        from whenabouts.core.timing_join_operator import TimingJoinOperator

        return TimingJoinOperator(self, schemas, streaming=streaming)
