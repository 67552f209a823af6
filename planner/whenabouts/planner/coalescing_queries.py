"""Coalescing queries as the planner sees them: which are equal, and how many tuples their windows hold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whenabouts.core.coalescing.aggregate_needs import AggregateNeeds
from whenabouts.core.coalescing.equivalence import Equivalence, parse_equivalence
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.coalescing.window_spec import CLOSED
from whenabouts.core.costs.eager_lazy_cost import Statistics, eager_part
from whenabouts.core.durations import Duration, number_of, parse_duration, whole_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.option_checks import columns_of, flag, one_of
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate

DEFAULT_ROWS_PER_SECOND = 1.0
"""The rate if none is known: a time window then holds one tuple for each second."""


class Evaluation(NamedTuple):
    """When an extent is evaluated, and for what: queries with the same evaluations of the same extent get its rows.

    ``slide_us`` or ``slide_rows``, or ``at_us``. ``aggregates``: what is computed, empty for coalesced tuples.
    ``computed``: the texts of values that are no columns. ``valid_last``: whether rows have this column.
    """

    slide_us: int | None = None
    slide_rows: int | None = None
    at_us: int | None = None
    aggregates: Hashable = ()
    computed: tuple[str, ...] = ()
    valid_last: bool = False


@dataclass(frozen=True, eq=False)
class _Filter:
    """Which coalesced tuples are aggregated, comparable whatever it is written in."""

    needs: AggregateNeeds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Filter) and self.needs.same(other.needs)

    def __hash__(self) -> int:
        return hash(type(self.needs.where))


@dataclass(frozen=True, slots=True)
class CoalescingQuery:
    """Value columns (one name or several), grouping, equivalence and window of a coalescing query over one stream.

    The window is ``rows`` tuples (of the whole stream, or ``per_group``) or a ``range`` of time (``closed``: "both" or
    "right"). Queries that are equal in all of this share one extent under either scheme (a *distinct coalescing query*,
    section 6.2). ``evaluation``: how the extent is evaluated, if that is known (`Evaluation`); queries that are
    evaluated at other instants or aggregate otherwise have another extent.

    ``eager_part``: the part of its extent that an eager scan reads. Aggregates of a sliding window are maintained
    between slides, so that only arriving and expiring tuples count.

    Raises: QueryError WA-2006 unless there is a value column and exactly one kind of window, of at least 1; WA-2022 for
    an unknown equivalence.

    >>> CoalescingQuery(("temperature",), ("region",), rows=100).tuples(Statistics())
    100.0
    >>> CoalescingQuery(("temperature",), range="1h").tuples(Statistics(rate=2.0))
    7200.0
    """

    coalesce: str | Sequence[str]
    group: str | Sequence[str] = ()
    rows: int | None = None
    range: Duration | None = None
    equivalence: str | Equivalence = "equal"
    stream: str = "stream"
    eager_part: float = 1.0
    per_group: bool = False
    closed: str = "both"
    evaluation: Hashable = None

    def __post_init__(self) -> None:
        for name in ("coalesce", "group"):
            object.__setattr__(self, name, columns_of(name, getattr(self, name)))
        if not self.coalesce:
            raise QueryError(Code.BAD_OPTION, "no value column is given", "name at least one column to coalesce")
        given: object = self.stream  # plan files may contain anything
        if not isinstance(given, str):
            raise QueryError(Code.BAD_OPTION, f"stream is {self.stream!r}", "give a name")
        how: object = self.equivalence
        if not isinstance(how, str | Equivalence):
            raise QueryError(Code.BAD_OPTION, f"equivalence is {how!r}", "give a name")
        parse_equivalence(how)
        one_of("closed", self.closed, CLOSED)
        flag("per_group", self.per_group)
        part = number_of(self.eager_part)
        if part is None or not 0.0 <= part <= 1.0:
            raise QueryError(Code.BAD_OPTION, f"eager_part is {self.eager_part!r}", "give a fraction, 0 to 1")
        object.__setattr__(self, "eager_part", part)
        if self.per_group and self.rows is None:
            raise QueryError(Code.BAD_OPTION, "per_group is given without rows", "only rows can be counted per group")
        if (self.rows is None) == (self.range is None):
            raise QueryError(Code.BAD_OPTION, "a window has either rows or range", 'as rows=100 or range="24h"')
        rows = whole_of(self.rows)
        if self.rows is not None and (rows or 0) < 1:
            raise QueryError(Code.BAD_OPTION, f"the window has {self.rows!r} rows", "give a whole number of at least 1")
        object.__setattr__(self, "rows", rows)
        if self.range is not None and parse_duration(self.range, name="range") < 1:
            raise QueryError(Code.BAD_OPTION, f"the window's range is {self.range}", "give at least a microsecond")

    @property
    def distinct(self) -> tuple[object, ...]:
        """Equal for queries that are one distinct coalescing query.

        The order of columns does not matter, except for groups where rows of the whole stream are counted: it decides
        which of two rows of an instant is the later one. Predicates are equal if they are the same object.
        """
        counts_all = self.rows is not None and self.can_share
        window: tuple[object, ...] = self.rows, self.per_group and bool(self.group)
        if self.range is not None:
            window = parse_duration(self.range), self.closed, "us"
        return (
            self.stream,
            frozenset(self.coalesce),
            self.group if counts_all else frozenset(self.group),
            parse_equivalence(self.equivalence),
            window,
            self.eager_part,
            self.evaluation,
        )

    @property
    def can_share(self) -> bool:
        """Whether lazy queries over the stream share an extent with it: not if it counts rows per group."""
        return not (self.per_group and self.group)

    def tuples(self, statistics: Statistics) -> float:
        """The number of tuples in the window."""
        if self.rows is not None:
            return float(self.rows)
        rate = DEFAULT_ROWS_PER_SECOND if statistics.rate is None else statistics.rate
        return max(parse_duration(self.range or 0) / 1e6 * rate, 1.0)

    @classmethod
    def of(cls, query: Coalesce, stream: str = "stream") -> CoalescingQuery:
        """The planner's view of a query over a stream.

        >>> CoalescingQuery.of(Coalesce(time="t", values="v", window="1 s")).range
        1000000
        """
        how, extents = query.coalescing, query.extents
        width = extents.window.width_us
        part = eager_part(width, extents.slide_us, aggregated=query.keeps_aggregates)
        aggregates: Hashable = ()
        if isinstance(query, TemporalAggregate):
            aggregates = frozenset(query.aggregates.items()), _Filter(AggregateNeeds(where=query.where))
        evaluation = Evaluation(
            extents.slide_us, extents.slide_rows, extents.at_us, aggregates, valid_last=query.valid_last
        )
        return cls(
            how.values, how.group, query.rows, width, how.equivalence, stream, part,
            extents.window.per_group, query.closed, evaluation,
        )  # fmt: skip
