"""The settings of a join aggregate, and what can be derived from them alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.join_aggregate.functions import aggregates_of
from whenabouts.core.joins.how_names import how_of
from whenabouts.core.joins.sides import TwoSides
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.runtime.key_names import On, described_keys
from whenabouts.core.runtime.time_slots import TimeSlots
from whenabouts.core.times.clock_errors import Clock
from whenabouts.core.times.conditions import LEAST_CONFIDENCE, UNSAID, Condition, confidence_of
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.settings import TimingJoinSettings
from whenabouts.core.window_join.graph import edge_of

HOWS = ("left_outer", "inner")
FOLDINGS = ("auto", "always", "never")

_CHANGEABLE = frozenset({
    "left_time", "right_time", "condition", "aggregates", "how", "lateness", "rates", "min_confidence",
    "most_uncertain", "folding",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JoinAggregateSettings(TwoSides):
    """The validated settings of a join aggregate, used by its operator; `JoinAggregate` documents them.

    Times, keys, lateness and time slots are those of a timing join, which validates them (`reach`).
    """

    left_time: TimeSpec
    right_time: TimeSpec
    condition: Any
    aggregates: Any
    on: On = None
    how: str = "left_outer"
    lateness: Any = None
    time_slots: Duration | None = None
    rates: Any = ()
    min_confidence: float | None = None
    most_uncertain: int | None = None
    folding: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "aggregates", aggregates_of(self.aggregates))
        object.__setattr__(self, "how", how_of(self.how, HOWS))
        object.__setattr__(self, "condition", _condition_of(self.condition))
        if self.most_uncertain is not None:
            object.__setattr__(self, "most_uncertain", checks.whole_number("most_uncertain", self.most_uncertain))
        self._require_confidence()
        self._require_folding()
        reach, times = self.reach, () if self._shares_offset else ("left_time", "right_time")
        for name in ("on", "lateness", "time_slots", "rates", *times):
            object.__setattr__(self, name, getattr(reach, name))

    def _require_confidence(self) -> None:
        """Raise QueryError WA-2064 if the confidence is missing, WA-2001 for an invalid `min_confidence`."""
        if self.decided is None:
            if self.asks_decided:
                who = next((each.described for each in self.aggregates if each.decided), f"how={self.how!r}")
                raise QueryError(
                    Code.NO_CONFIDENCE,
                    f"{who} looks at pairs that reach a confidence, and the condition has none",
                    "give a condition with confidence=..., or ask chance functions only, as expected_count and p_none",
                )
            if self.min_confidence is not None:
                raise checks.refused("min_confidence", self.min_confidence, "the condition has no confidence")
        elif self.min_confidence is not None:
            least = confidence_of(self.min_confidence, "min_confidence")
            if least > self.decided.confidence:
                raise QueryError(
                    Code.BAD_CONFIDENCE,
                    f"min_confidence is {least}, above the confidence {self.decided.confidence}",
                    "it is the least confidence that the query may be changed to",
                )

    def _require_folding(self) -> None:
        """Raise QueryError WA-2006 for an unknown `folding`, and for rows that must be folded but cannot."""
        checks.one_of("folding", self.folding, FOLDINGS)
        needs = next((each for each in self.aggregates if not each.can_fold), None)
        if self.folding == "always" and needs is not None:
            raise checks.refused("folding", "always", f"{needs.described} needs all rows: leave it out, or folding=")

    @property
    def can_fold(self) -> bool:
        """Whether what right rows add to the answers can be kept in their place."""
        return all(each.can_fold for each in self.aggregates)

    @property
    def _shares_offset(self) -> bool:
        """Whether right rows share the offset of one clock, or of several, and it matters to a left row."""
        right = self.right_time
        return isinstance(right, Clock) and bool(right.offset) and self.reach.right_time != right.within_domain

    @cached_property
    def offsets_us(self) -> tuple[int, int] | None:
        """The offsets of the left and the right clock, if right rows share one that matters."""
        left, right = self.left_time, self.right_time
        if not (self._shares_offset and isinstance(right, Clock)):
            return None
        of_left = parse_duration(left.offset or 0) if isinstance(left, Clock) else 0
        return of_left, parse_duration(right.offset or 0)

    @property
    def clock_column(self) -> str | None:
        """The right column that says which clock made a reading, if right rows are readings of several."""
        right = self.right_time
        asked = self.asks_chance and self._shares_offset and isinstance(right, Clock)
        return right.domain_column if asked and isinstance(right, Clock) else None

    @cached_property
    def reach(self) -> TimingJoinSettings:
        """The timing join whose pairs are all right rows that can matter to a left row.

        Decided functions need the pairs that reach the least confidence, chance functions all possible ones.
        """
        decided, least = self.decided, self.min_confidence
        if decided is None or (self.asks_chance and not decided.possible):
            decided, least = replace(self.condition, confidence=LEAST_CONFIDENCE), None
        return TimingJoinSettings(
            left_time=self.left_time, right_time=self.right_time, condition=decided, on=self.on, how="left_outer",
            lateness=self.lateness, time_slots=self.time_slots, rates=self.rates, min_confidence=least,
        )  # fmt: skip

    @property
    def decided(self) -> Condition | None:
        """The condition that decided functions look at; None if it has no confidence."""
        condition: Condition = self.condition
        return condition if condition.says_confidence else None

    @property
    def asks_decided(self) -> bool:
        """Whether the pairs that reach the confidence matter."""
        return self.how == "inner" or any(each.decided for each in self.aggregates)

    @property
    def asks_chance(self) -> bool:
        """Whether all possible partners matter."""
        return not all(each.decided for each in self.aggregates)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the right input that the functions read."""
        return frozenset(each.column for each in self.aggregates if each.column is not None)

    @property
    def changeable(self) -> frozenset[str]:
        """Options that may change while the state is kept, as far as the state allows."""
        return _CHANGEABLE

    @property
    def slots(self) -> TimeSlots | None:
        """How the rows of a key are spread over buckets; None if they are not. Right rows are copied."""
        return self.reach.slots

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark a row's `t_max` is once no future row can match it."""
        return self.reach.kept_for_us(input)

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input, on average: more than one with time slots."""
        return self.reach.copies(input)

    @property
    def described(self) -> str:
        """Mode, keys, condition and aggregates in one line.

        >>> from whenabouts.core import Point
        >>> from whenabouts.core.join_aggregate.query import JoinAggregate
        >>> times, asked = {"left_time": Point("t"), "right_time": Point("t")}, {"n": "expected_count"}
        >>> JoinAggregate(**times, condition="1 s", on="k", aggregates=asked).described
        'left_outer join aggregate on k: n=expected_count over -1 s <= right - left <= 1 s'
        """
        asked = ", ".join(each.described for each in self.aggregates)
        condition: Condition = self.condition
        return f"{self.how} join aggregate{described_keys(self.key_columns)}: {asked} over {condition.described}"


def _condition_of(value: Any) -> Condition:
    """A condition, or a bare window: a duration, or bounds on right - left. Errors: as `edge_of`."""
    if isinstance(value, Condition):
        return value
    window = edge_of("left", "right", value)
    return Condition(window.lo_us, window.hi_us, UNSAID)
