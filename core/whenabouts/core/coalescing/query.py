"""Temporal coalescing over window extents (Al-Kateb 2010): the query; `coalescing.operator` runs it.

A tuple is valid from its time to that of the next tuple of its group. Consecutive tuples with equivalent values are
merged into one. An extent at T is emitted once the watermark has passed T; without a window, a run once the tuple that
ends it is settled. `emit="early"` emits them at once, and what corrects them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Required, Self, TypedDict

from whenabouts.core.callers import users_level
from whenabouts.core.coalescing.equivalence import Equivalence, Predicate, parse_equivalence
from whenabouts.core.coalescing.settings import CoalescingSpec
from whenabouts.core.coalescing.window_spec import Extents, Instant, extents_of
from whenabouts.core.costs.choices import Choice, Value, Workload, ruled
from whenabouts.core.costs.eager_lazy_cost import Statistics, eager_part, lone_scheme
from whenabouts.core.costs.prices import SchemePrices
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError, SingleBucketWarning
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.times.time_specs import Point, TimeSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from whenabouts.core.coalescing.operator import CoalesceOperator

SCHEMES = ("auto", "eager", "lazy")
"""`eager` keeps runs and compares each tuple once; `lazy` keeps tuples and compares them in each evaluation. `auto`:
see `Coalesce.choices`."""

EMITS = ("final", "early")
"""`final`: rows once they cannot change any more. `early`: at once, with corrections (`coalescing.early_evaluator`)."""

_EARLY = "early answers correct runs, which it keeps"
_HISTORY = "over all of the past it keeps the last run of each group"


class CoalesceOptions(TypedDict, total=False):
    """The fields of `Coalesce`, as functions take them."""

    time: Required[str | TimeSpec]
    group: str | Sequence[str]
    values: Required[str | Sequence[str]]
    window: Duration | None
    rows: int | None
    per_group: bool
    slide: Duration | None
    at: Instant | None
    equivalence: str | Equivalence | Predicate
    scheme: str
    closed: str
    lateness: Duration | None


class EarlyCoalesceOptions(CoalesceOptions, total=False):
    """As `CoalesceOptions`, with those of `coalesce` alone."""

    emit: str
    valid_last: bool


@dataclass(frozen=True, kw_only=True)
class Coalesce:
    """A coalescing query, validated.

    `time`: a column, or Point. `group`: the columns that partition the stream (none: all rows are one group).
    `values`: the columns that are compared; all must be equivalent, see `coalescing.equivalence`. `window` (a duration)
    or `rows` (a count, over the whole stream or `per_group`) selects an extent; it is evaluated at every `slide`, at
    the instant `at`, or at the end of the input. Without a window the whole history is coalesced, and runs are emitted
    one by one. The slide of a window of rows is a number of tuples if it is an int, else a duration. `closed`: whether
    "both" ends of a window belong to it, or only the "right" one. `scheme`: see `SCHEMES`; all give the same result.
    `emit`: see `EMITS`. `valid_last`: adds a column of this name, the time of the last reading that a row coalesces
    (`valid_to` is the time of the reading after it, if there is one).

    Raises QueryError: WA-2006 for options that exclude each other, WA-2021 for a window or slide of zero or less,
    WA-2022 for an invalid equivalence, WA-2023 for early answers of a query that has none. Warns (`LossyQueryWarning`)
    of a slide longer than the window.

    >>> Coalesce(time="ts", group="mote", values="light", window="1h", slide="5m").extents.slide_us
    300000000
    """

    time: str | TimeSpec
    group: str | Sequence[str] = ()
    values: str | Sequence[str]
    window: Duration | None = None
    rows: int | None = None
    per_group: bool = False
    slide: Duration | None = None
    at: Instant | None = None
    equivalence: str | Equivalence | Predicate = "equal"
    scheme: str = "auto"
    closed: str = "both"
    lateness: Duration | None = None
    emit: str = "final"
    valid_last: bool = False

    kind: ClassVar[str] = "coalescing"
    """The name of this kind of query in `described`."""

    changeable: ClassVar[frozenset[str]] = frozenset({"lateness", "idle_after", "valid_last"})
    """Options that may change while the state is kept."""

    recorded_if_given: ClassVar[frozenset[str]] = frozenset({"emit"})
    """Checkpoints made before this option existed do not have it."""

    keeps_aggregates: ClassVar[bool] = False
    """Whether results of a sliding extent are maintained incrementally from one slide to the next."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", point_of(self.time))
        for name in ("group", "values"):
            object.__setattr__(self, name, checks.columns_of(name, getattr(self, name)))
        if not self.values:
            raise QueryError(Code.BAD_OPTION, "no value columns are given", "name the columns to compare")
        checks.one_of("scheme", self.scheme, SCHEMES)
        checks.flag("per_group", self.per_group)
        object.__setattr__(self, "equivalence", parse_equivalence(self.equivalence))
        if self.lateness is not None:
            object.__setattr__(self, "lateness", parse_non_negative(self.lateness, name="lateness"))
        extents = extents_of(self.window, self.rows, self.per_group, self.slide, self.at, self.closed)
        if not self.group:  # the whole stream is one group
            extents = replace(extents, window=replace(extents.window, per_group=False))
        object.__setattr__(self, "_extents", extents)
        checks.one_of("emit", self.emit, EMITS)
        checks.flag("valid_last", self.valid_last)
        if self.valid_last and self.kind != Coalesce.kind:
            raise QueryError(Code.BAD_OPTION, f"valid_last in a {self.kind}", "only coalesce has this column")
        if self.emit == "early":
            self._check_early()

    def _check_early(self) -> None:
        if self.kind != Coalesce.kind:
            raise QueryError(
                Code.NO_EARLY, f"emit is 'early' in a {self.kind}", "only coalesce gives early answers: leave emit out"
            )
        if self.scheme == "lazy":
            raise QueryError(
                Code.NO_EARLY,
                "emit is 'early' and scheme 'lazy'",
                "early answers correct runs, which only the eager scheme keeps: leave scheme out",
            )
        if self.extents.slide_rows is not None:
            raise QueryError(
                Code.NO_EARLY,
                f"emit is 'early' and the window slides by {self.extents.slide_rows} rows",
                "a row out of order renumbers all later ones, so no key would identify an extent: slide by a duration",
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """One input."""
        return ("events",)

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness."""
        return (parse_duration(self.lateness or 0),)

    @property
    def says_lateness(self) -> bool:
        """Whether `lateness` was given."""
        return self.lateness is not None

    @property
    def idle_after_us(self) -> int | None:
        """None: the watermark waits for a silent input."""
        return None

    @property
    def described(self) -> str:
        """The value columns, the groups and the window, as text.

        >>> Coalesce(time="ts", group="mote", values="light", window="1h", slide="5m").described
        'coalescing of light by mote, window 1 h, slide 5 min'
        """
        by = f" by {', '.join(self.group)}" if self.group else ""
        return f"{self.kind} of {', '.join(self.values)}{by}{self.extents.described}"

    @property
    def point(self) -> Point:
        """The time of a row."""
        assert isinstance(self.time, Point)
        return self.time

    @property
    def extents(self) -> Extents:
        """The window, and the instants at which it is evaluated."""
        extents: Extents = self.__dict__["_extents"]
        return extents

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns that say in which bucket a row is.

        A window over the last rows of the whole stream depends on all groups, so one bucket has to hold them all.
        """
        return () if self.extents.window.over_all_groups else self.coalescing.group

    @property
    def coalescing(self) -> CoalescingSpec:
        """What determines the extents of each input."""
        assert isinstance(self.equivalence, Equivalence)
        return CoalescingSpec(
            column_names(self.group),
            column_names(self.values),
            self.extents,
            self.equivalence,
            self.choices()[0].value == "eager",
            self.lateness_us[0],
        )

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """The scheme, if the query says `auto`, and the reason. `pins`: choices made by the user.

        For a query with a window `costs.eager_lazy_cost` compares both schemes under default statistics. A query over
        the whole history is eager: that keeps only the last run of each group. The planner decides for several queries
        over one stream together.

        >>> Coalesce(time="t", values="v", window="1 h").choices()[0].value
        'eager'
        >>> print(*Coalesce(time="t", values="v").choices())
        scheme = eager: over all of the past it keeps the last run of each group
        """
        asked = (pins or {}).get("scheme", self.scheme)
        pin = None if asked == "auto" else str(asked)
        if self.emit == "early":
            return [ruled("scheme", "eager", _EARLY, pinned=pin == "eager")]
        extents, rate = self.extents, (load or Workload()).rate(self.inputs[0])
        if extents.is_history or pin not in (None, *SCHEMES):
            return [ruled("scheme", pin or "eager", _HISTORY, pinned=pin is not None)]
        width_us, rows = extents.window.width_us, self.rows
        tuples = float(rows) if rows is not None else max((width_us or 0) / 1e6 * (rate or 1.0), 1.0)
        part = eager_part(width_us, extents.slide_us, aggregated=self.keeps_aggregates)
        prices = (load and load.scheme_prices) or SchemePrices()
        return [lone_scheme(tuples, Statistics(source="default"), prices, part=part, pin=pin)]

    def kept_for_us(self, input: int) -> int:
        """How far a row is behind the watermark when no later extent can contain it, on average over a slide.

        Zero if the state is not bounded by time: a window of rows, or no window.
        """
        extents = self.extents
        if extents.window.width_us is None:
            return 0
        return max(extents.window.reach_us - (extents.slide_us or 0) // 2, 0)

    def copies(self, input: int) -> float:
        """How many buckets hold each row: one."""
        return 1.0

    def warn_of_one_bucket(self, streaming: bool) -> None:
        """Warn (`SingleBucketWarning`, WA-2081) if a stream cannot be partitioned, since its window counts all rows."""
        if streaming and self.group and self.extents.window.over_all_groups:
            warnings.warn(
                f"{Code.SINGLE_BUCKET}: rows={self.rows} counts the rows of all groups together, so one bucket, and "
                "one core, processes the whole stream; per_group=True distributes it",
                SingleBucketWarning,
                stacklevel=users_level(),
            )

    def under(self, scheme: str) -> Self:
        """The same query under another scheme."""
        if scheme == self.scheme:
            return self
        other = copy(self)  # `replace` would warn again of what this query was warned of
        object.__setattr__(other, "scheme", scheme)
        return other

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> CoalesceOperator:
        """The operator for a schema.

        Raises InputError WA-1023 for values that the equivalence cannot compare. Warns (`SingleBucketWarning`) if one
        bucket has to process the whole stream, because a window counts the rows of all groups.
        """
        from whenabouts.core.coalescing.early_operator import EarlyCoalesceOperator
        from whenabouts.core.coalescing.operator import CoalesceOperator

        self.warn_of_one_bucket(streaming)
        operator = EarlyCoalesceOperator if self.emit == "early" else CoalesceOperator
        return operator(self, schemas[0], streaming=streaming)


def point_of(time: str | TimeSpec) -> Point:
    """The time column of a coalescing query. Raises QueryError WA-2006 for any time specification but a point."""
    if isinstance(time, str):
        return Point(time)
    if not isinstance(time, Point):
        raise QueryError(Code.BAD_OPTION, f"time is {time!r}", "coalescing needs exact times: give a column or Point")
    return time


def column_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, as a tuple.

    >>> column_names("a"), column_names(["a", "b"])
    (('a',), ('a', 'b'))
    """
    return (names,) if isinstance(names, str) else tuple(names)
