"""The join of the coalesced tuples of two windows by their validity periods (Al-Kateb 2010, Example 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import pyarrow as pa

from whenabouts.core.coalescing.query import Coalesce, CoalesceOptions
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.letter_case import same
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.temporal_queries.join_settings import not_compared
from whenabouts.core.temporal_queries.periods import PREDICATES

if TYPE_CHECKING:
    from whenabouts.core.temporal_queries.join import TemporalJoinOperator

Matches: TypeAlias = Callable[[pa.Table, pa.Table], Any]
"""Takes two aligned tables, the group and value columns of left and right tuples; returns a boolean for each pair
(Arrow or numpy)."""


class TemporalJoinOptions(CoalesceOptions, total=False):
    """The fields of `TemporalJoin`, as functions take them."""

    on: str | Sequence[str]
    relation: str
    matches: Matches | None
    min_duration: Duration | None
    suffixes: tuple[str, str]
    idle_after: Duration | None


@dataclass(frozen=True, kw_only=True)
class TemporalJoin(Coalesce):
    """A `Coalesce` of two inputs with the same columns, whose coalesced tuples are joined. It needs a window.

    `on`: group or value columns that must be equal. `relation`: one of `periods.PREDICATES`, between the left and the
    right period. `matches`: a further predicate, see `Matches`. `min_duration`: the least duration of the intersection.
    A slide by rows counts the rows of the left input: both windows end at each such tuple's (time, group).
    `idle_after`: how far an input may be behind before the watermark no longer waits for it (see
    `times.lateness.Lateness`). Raises QueryError WA-2006 besides what `Coalesce` raises.

    >>> TemporalJoin(time="t", group="region", values="humidity", window="1h", slide="1m", min_duration="4m").relation
    'overlaps'
    """

    on: str | Sequence[str] = ()
    relation: str = "overlaps"
    matches: Matches | None = None
    min_duration: Duration | None = None
    suffixes: tuple[str, str] = ("_left", "_right")
    idle_after: Duration | None = None

    kind: ClassVar[str] = "temporal join"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "on", checks.columns_of("on", self.on))
        checks.suffixes("suffixes", self.suffixes)
        if self.matches is not None:
            checks.function("matches", self.matches, "give a function of the left and the right tuples' columns")
        if self.extents.is_history:
            raise QueryError(Code.BAD_OPTION, "no window is given", "give window= or rows=")
        if self.extents.slide_rows is not None and self.extents.window.per_group:
            raise QueryError(
                Code.BAD_OPTION, "a join slides by rows of each group", "groups share no instants: slide by a duration"
            )
        checks.one_of("relation", self.relation, tuple(PREDICATES))
        for name in self.on:  # regardless of case: the operator checks again where case matters
            if not any(same(name, known) for known in (*self.group, *self.values)):
                raise not_compared(name)
        for name in ("min_duration", "idle_after"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, parse_non_negative(getattr(self, name), name=name))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The two inputs."""
        return ("left", "right")

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """A group is in one bucket only if the bucket depends on nothing but group columns."""
        groups = super().partitioned_by
        return tuple(name for name in self.on if name in groups)

    @property
    def described(self) -> str:
        """As the text of a `Coalesce`, plus the key columns and the relation."""
        on = f" on {', '.join(self.on)}" if self.on else ""
        return f"{super().described}{on}, {self.relation}"

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness, the same for both inputs."""
        return super().lateness_us * 2

    @property
    def min_duration_us(self) -> int | None:
        """Microseconds, None if any duration will do."""
        return None if self.min_duration is None else parse_non_negative(self.min_duration, name="min_duration")

    @property
    def idle_after_us(self) -> int | None:
        """Microseconds; None if the watermark waits for a silent input."""
        return None if self.idle_after is None else parse_duration(self.idle_after)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> TemporalJoinOperator:  # type: ignore[override]
        """The operator for a left and a right schema."""
        from whenabouts.core.temporal_queries.join import TemporalJoinOperator

        self.warn_of_one_bucket(streaming)
        return TemporalJoinOperator(self, schemas)
