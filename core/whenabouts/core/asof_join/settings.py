"""The settings of an as-of join, and what can be derived from them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whenabouts.core.durations import Duration, format_duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.joins.how_names import how_of
from whenabouts.core.joins.sides import LEFT, RIGHT, TwoSides
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.runtime.key_names import On, described_keys, key_names
from whenabouts.core.runtime.time_slots import LEAST_WIDTH_US, TimeSlots
from whenabouts.core.times.clock_errors import resolve_clocks_to_left
from whenabouts.core.times.conditions import confidence_of
from whenabouts.core.times.lateness import Lateness
from whenabouts.core.times.learned import check_one_side
from whenabouts.core.times.time_specs import Point, TimeSpec

DIRECTIONS = ("backward", "forward", "nearest")
KEEPS = ("best", "all")
HOWS = ("left_outer", "inner", "left_anti")

_IN_WORDS = {"backward": "at or before", "forward": "at or after", "nearest": "nearest to"}
_STRICTLY = {"backward": "before", "forward": "after", "nearest": "nearest to, but not at,"}


@dataclass(frozen=True, kw_only=True)
class AsofJoinSettings(TwoSides):
    """The validated settings of an as-of join, used by its operator; `AsofJoin` documents them."""

    left_time: TimeSpec
    right_time: TimeSpec
    on: On = None
    direction: str = "backward"
    tolerance: Duration | None = None
    allow_exact_matches: bool = True
    confidence: float | None = None
    keep: str = "best"
    how: str = "left_outer"
    order_by: str | Sequence[str] | None = None
    probability: bool = True
    suffixes: tuple[str, str] = ("_left", "_right")
    lateness: Any = None
    time_slots: Duration | None = None
    max_candidates: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "on", key_names(self.on, self.inputs))
        object.__setattr__(self, "lateness", Lateness.of(self.lateness))
        checks.one_of("direction", self.direction, DIRECTIONS)
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", parse_non_negative(self.tolerance, name="tolerance"))
        checks.flag("allow_exact_matches", self.allow_exact_matches)
        checks.flag("probability", self.probability)
        checks.suffixes("suffixes", self.suffixes)
        object.__setattr__(self, "how", how_of(self.how, HOWS))
        checks.one_of("keep", self.keep, KEEPS)
        if self.how == "left_anti" and self.keep != "best":
            raise QueryError(
                Code.BAD_OPTION,
                f"keep={self.keep!r} with how='left_anti', which emits no right row",
                "leave keep out, or use left_outer or inner",
            )
        object.__setattr__(self, "order_by", checks.columns_of("order_by", self.order_by or ()))
        if self.max_candidates is not None:
            object.__setattr__(self, "max_candidates", checks.whole_number("max_candidates", self.max_candidates))
        left, right = (checks.time_of(f"{side}_time", getattr(self, f"{side}_time")) for side in self.inputs)
        object.__setattr__(self, "confidence", self._confidence(left, right))
        check_one_side(left, right)
        left, right = resolve_clocks_to_left(left, right)
        object.__setattr__(self, "left_time", left)
        object.__setattr__(self, "right_time", right)
        slots = checks.slots_of(self.time_slots)
        if slots not in (None, "auto"):
            object.__setattr__(self, "time_slots", slots)
            self._require_slots()

    def _confidence(self, left: TimeSpec, right: TimeSpec) -> float:
        """The confidence; exact times need none. Raises QueryError WA-2001 for a bad one, WA-2064 for none."""
        if self.confidence is not None:
            return confidence_of(self.confidence)
        if isinstance(left, Point) and isinstance(right, Point):
            return 1.0
        raise QueryError(
            Code.NO_CONFIDENCE,
            "the as-of join has no confidence, and its times are uncertain",
            "give confidence=..., how probable it has to be that a right row prevails; only Point needs none",
        )

    @property
    def changeable(self) -> frozenset[str]:
        """Options that may change while the state is kept."""
        return frozenset({"confidence", "keep", "probability", "suffixes", "lateness", "tolerance", "max_candidates"})

    @property
    def state_depends_on(self) -> str:
        """Options on which it depends what state holds, and that cannot change while it is kept."""
        strict = "" if self.allow_exact_matches else " strict"
        return f"as-of {self.direction}{strict} {self.how} {self.ordered_by} {self.slots}"

    @property
    def needs_rows_of(self) -> dict[str, str]:
        """What it means if an input has no rows, where that deserves a warning."""
        return {"right": "no left row has a partner"}

    @property
    def single_bucket(self) -> str | None:
        """Why the rows cannot be spread over buckets, None if they can."""
        if self.key_columns or self.slots is not None:
            return None
        return (
            "the as-of join has no key, so one bucket, and one core, processes all rows; give on=, or a tolerance and "
            "time_slots"
        )

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """`order_by` as a tuple."""
        return checks.columns_of("order_by", self.order_by or ())

    @property
    def kept(self) -> list[str]:
        """How long a stream keeps rows, in words.

        >>> from whenabouts.core import Point
        >>> from whenabouts.core.asof_join.query import AsofJoin
        >>> AsofJoin(left_time=Point("t"), right_time=Point("t"), on="k").kept[1]
        'of right rows the last of each key is kept, however old'
        """
        longest = self.right_time.max_uncertainty_us or 0
        waits = longest if self.direction == "backward" else longest + (self.tolerance_us or 0)
        at_most = "" if self.direction == "backward" else "at most "
        beyond = f" by {format_duration(waits)}" if waits else ""
        left = f"left rows wait {at_most}until the watermark has passed them{beyond}"
        if self.direction == "forward":
            return [left, "right rows are kept until it has passed them, and all left rows that wait"]
        age = "however old" if self.tolerance_us is None else f"for {format_duration(self.tolerance_us)}"
        overlap = ", with those that overlap it" if longest else ""
        return [left, f"of right rows the last of each key{overlap} is kept, {age}"]

    @property
    def tie_columns(self) -> tuple[str, ...]:
        """The right columns that decide between rows of one instant first; none if no right row is emitted."""
        return () if self.how == "left_anti" else self.ordered_by

    @property
    def tolerance_us(self) -> int | None:
        """The greatest distance between a left row and its partner in microseconds; None: any."""
        return None if self.tolerance is None else parse_duration(self.tolerance)

    @property
    def least_probability(self) -> float:
        """The confidence."""
        assert self.confidence is not None, "validated when built"
        return self.confidence

    @property
    def described(self) -> str:
        """Mode, keys and direction in one line.

        >>> from whenabouts.core import Point
        >>> from whenabouts.core.asof_join.query import AsofJoin
        >>> AsofJoin(left_time=Point("t"), right_time=Point("t"), on="k", tolerance="2 s").described
        'left_outer as-of join on k: the right row at or before the left one, within 2 s, with confidence 1'
        """
        words = (_IN_WORDS if self.allow_exact_matches else _STRICTLY)[self.direction]
        tolerance = "" if self.tolerance_us is None else f", within {format_duration(self.tolerance_us)}"
        several = "all right rows that may be" if self.keep == "all" else "the right row"
        return (
            f"{self.how} as-of join{described_keys(self.key_columns)}: {several} {words} the left one{tolerance}, "
            f"with confidence {self.least_probability:g}"
        )

    @property
    def slots(self) -> TimeSlots | None:
        """How the rows of a key are spread over buckets; None if they are not.

        A left row's candidates lie between `t_min - tolerance` and `t_max + tolerance`, on the side or the sides of its
        direction: `before_us` and `after_us` are that range, seen from a right row.
        """
        if self.time_slots is None:
            return None
        if self.time_slots == "auto":
            try:
                self._require_slots()
            except QueryError:
                return None
            if self.key_columns:
                return None
        longest = self.left_time.max_uncertainty_us
        tolerance_us = self.tolerance_us
        assert longest is not None and tolerance_us is not None, "_require_slots"  # noqa: PT018
        before_us = 0 if self.direction == "backward" else tolerance_us
        after_us = (0 if self.direction == "forward" else tolerance_us) + longest
        if self.time_slots == "auto":
            width_us = max(before_us + after_us + (self.right_time.max_uncertainty_us or 0), LEAST_WIDTH_US)
        else:
            width_us = parse_duration(self.time_slots)
        return TimeSlots(width_us=width_us, home=LEFT, before_us=before_us, after_us=after_us)

    def _require_slots(self) -> None:
        """Raise QueryError WA-2041 if slots are impossible."""
        if self.tolerance is None or self.left_time.max_uncertainty_us is None:
            raise QueryError(
                Code.NOT_SLOTTED,
                "time slots are asked for, but nothing bounds how far the prevailing row may be away",
                "give tolerance=, and max_uncertainty= for left intervals",
            )

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark `t_max` of a row is at most before the row is settled, folded or dropped."""
        longest = [time.max_uncertainty_us or 0 for time in (self.left_time, self.right_time)]
        waits = longest[RIGHT] + (0 if self.direction == "backward" else self.tolerance_us or 0)
        return waits if input == LEFT else waits + longest[LEFT]

    def copies(self, input: int) -> float:
        """How many buckets hold a row of an input, on average: more than one with time slots."""
        return 1.0 if self.slots is None else self.slots.copies(input)
