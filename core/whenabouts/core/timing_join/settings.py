"""The settings of a timing join, and what can be derived from them alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.joins.sides import LEFT, RIGHT, TwoSides
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.runtime.key_names import On, described_keys, key_names
from whenabouts.core.runtime.time_slots import LEAST_WIDTH_US, TimeSlots
from whenabouts.core.times.clock_errors import resolve_clocks
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.lateness import Lateness
from whenabouts.core.times.learned import check_one_side
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.modes import Mode, home_input
from whenabouts.core.timing_join.where import described_where, where_of

STRATEGIES = ("auto", "simple", "ssort", "eager", "lazy", "lazy_lookup")
"""The strategies of the papers; `auto` correlates by sorted midpoints, which is the fastest known."""

WHOLE_BUFFER = frozenset({"simple", "ssort"})
"""Strategies without bounds: they compare every row with the whole buffer of the other input."""

PER_ARRIVAL = WHOLE_BUFFER | {"eager"}
"""Strategies that process each arrival by itself."""

_CHANGEABLE = frozenset(
    {
        "left_time", "right_time", "condition", "strategy", "lateness", "suffixes", "probability", "block_size",
        "max_latency", "rates", "min_confidence",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TimingJoinSettings(TwoSides):
    """The validated settings of a timing join, used by its operator and cost model; `TimingJoin` documents them."""

    left_time: TimeSpec
    right_time: TimeSpec
    condition: Condition
    on: On = None
    how: str = "inner"
    best: str | None = None
    ties: str = "earliest"
    strategy: str = "auto"
    lateness: Any = None
    suffixes: tuple[str, str] = ("_left", "_right")
    probability: bool = True
    block_size: int | None = None
    max_latency: Duration | None = None
    rates: Any = ()
    min_confidence: float | None = None
    time_slots: Duration | None = None
    where: Any = None

    recorded_if_given: ClassVar[frozenset[str]] = frozenset({"where", "ties"})
    """Options that checkpoints of earlier releases do not know."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", key_names(self.on, self.inputs))
        object.__setattr__(self, "lateness", Lateness.of(self.lateness))
        if self.max_latency is not None:
            object.__setattr__(self, "max_latency", parse_non_negative(self.max_latency, name="max_latency"))
        checks.one_of("strategy", self.strategy, STRATEGIES)
        checks.flag("probability", self.probability)
        checks.condition_of("condition", self.condition)
        checks.suffixes("suffixes", self.suffixes)
        object.__setattr__(self, "where", where_of(self.where))
        object.__setattr__(self, "how", self.mode.how)
        left, right = (checks.time_of(f"{side}_time", getattr(self, f"{side}_time")) for side in self.inputs)
        check_one_side(left, right)
        left, right = resolve_clocks(left, right)
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
        slots = checks.slots_of(self.time_slots)
        if slots not in (None, "auto"):
            object.__setattr__(self, "time_slots", slots)
            self._require_slots()
        if self.block_size is not None:
            object.__setattr__(self, "block_size", checks.whole_number("block_size", self.block_size))
        rates = checks.rates_of(self.rates, self.inputs)
        object.__setattr__(self, "rates", tuple(rates.items()))

    @property
    def changeable(self) -> frozenset[str]:
        """Options that may change while the state is kept, as far as the state allows (docs/changing-a-query.md)."""
        return _CHANGEABLE | {"where"} if self.mode.plain else _CHANGEABLE

    @property
    def mode(self) -> Mode:
        """`how`, `best` and `ties`."""
        return Mode(self.how, self.best, self.ties)

    @property
    def described(self) -> str:
        """Mode, keys and condition in one line.

        >>> from whenabouts.core import Point, within
        >>> from whenabouts.core.timing_join import TimingJoin
        >>> t = Point("t")
        >>> TimingJoin(left_time=t, right_time=t, condition=within("1s", confidence=0.5), on="k", best="left").described
        'inner timing join (best=left) on k: -1 s <= right - left <= 1 s with confidence 0.5'
        """
        ties = "" if self.ties == "earliest" else f", ties={self.ties}"
        best = "" if self.best is None else f" (best={self.best}{ties})"
        keys = described_keys(self.key_columns)
        where = "" if self.where is None else f", where {described_where(self.where)}"
        return f"{self.how} timing join{best}{keys}: {self.condition.described}{where}"

    @property
    def decided_by(self) -> Condition:
        """The condition by whose probability pairs are decided (`Condition.decided_by`)."""
        return self.condition.decided_by(instants=self.instants)

    @property
    def instants(self) -> bool:
        """Whether all times of both sides are exact."""
        return self.left_time.max_uncertainty_us == self.right_time.max_uncertainty_us == 0

    @property
    def slots(self) -> TimeSlots | None:
        """How the rows of a key are spread over buckets; None if they are not."""
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
        """Raise QueryError WA-2041 if slots are impossible."""
        home = home_input(self.mode)
        longest = (self.left_time, self.right_time)[home].max_uncertainty_us
        if self.condition.one_sided or longest is None:
            raise QueryError(
                Code.NOT_SLOTTED,
                "time slots are asked for, but nothing bounds how far apart partners are",
                "give a condition with two ends, and max_uncertainty= for intervals",
            )

    def require_bounds(self) -> None:
        """Refuse what would keep every row of a stream: WA-2004 for a one-sided condition, WA-2010 for intervals."""
        self.condition.require_two_sided()
        for name, time in zip(self.inputs, (self.left_time, self.right_time), strict=True):
            if time.max_uncertainty_us is None:
                raise QueryError(
                    Code.UNBOUNDED_STATE,
                    f"the {name} intervals have no declared greatest length",
                    "give Interval(..., max_uncertainty=...): it bounds the state of a stream",
                )

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark a row's `t_max` is once no future row can match it."""
        return -self.least_difference(input)

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input, on average: more than one with time slots."""
        return 1.0 if self.slots is None else self.slots.copies(input)

    def least_difference(self, input: int) -> int:
        """The least `t_max` of `input` minus that of the other with which rows can match (`match_thresholds`)."""
        from whenabouts.core.probability.match_thresholds import least_difference  # numba: imported when first needed

        specs = (self.left_time, self.right_time)
        kinds = [
            tuple(template for _, template in spec.templates)
            or ((spec.min_uncertainty_us, spec.max_uncertainty_us or 0),)
            for spec in specs
        ]
        confidence = self.min_confidence or self.decided_by.confidence
        return least_difference(kinds[1 - input], kinds[input], *self.window_from(1 - input), confidence)

    def window_from(self, base: int) -> tuple[int, int]:
        """Bounds on (target time - base time) when `base` is the base input."""
        condition = self.decided_by
        return (condition.lo_us, condition.hi_us) if base == LEFT else (-condition.hi_us, -condition.lo_us)
