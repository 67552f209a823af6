"""Coalescing queries as the planner sees them: which are equal, and how many tuples their windows hold."""

from __future__ import annotations

from dataclasses import dataclass

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.eager_lazy_cost import Statistics, eager_part
from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError

DEFAULT_ROWS_PER_SECOND = 1.0
"""The rate if none is known: a time window then holds one tuple for each second."""


@dataclass(frozen=True, slots=True)
class CoalescingQuery:
    """Value columns, grouping, equivalence and window of a coalescing query over one stream.

    The window is ``rows`` tuples or a ``range`` of time. Queries that are equal in all of this share one extent under
    either scheme (a *distinct coalescing query*, section 6.2).

    ``eager_part``: the part of its extent that an eager scan reads. Aggregates of a sliding window are maintained
    between slides, so that only arriving and expiring tuples count.

    Raises: QueryError WA-2006 unless there is a value column and exactly one kind of window, of at least 1.

    >>> CoalescingQuery(("temperature",), ("region",), rows=100).tuples(Statistics())
    100.0
    >>> CoalescingQuery(("temperature",), range="1h").tuples(Statistics(rate=2.0))
    7200.0
    """

    coalesce: tuple[str, ...]
    group: tuple[str, ...] = ()
    rows: int | None = None
    range: Duration | None = None
    equivalence: str = "equal"
    stream: str = "stream"
    eager_part: float = 1.0

    def __post_init__(self) -> None:
        if not self.coalesce:
            raise QueryError(Code.BAD_OPTION, "no value column is given", "name at least one column to coalesce")
        for what, text in {"equivalence": self.equivalence, "stream": self.stream}.items():
            given: object = text  # plan files may contain anything
            if not isinstance(given, str):
                raise QueryError(Code.BAD_OPTION, f"{what} is {text!r}", "give a name")
        if (self.rows is None) == (self.range is None):
            raise QueryError(Code.BAD_OPTION, "a window has either rows or range", 'as rows=100 or range="24h"')
        if self.rows is not None and self.rows < 1:
            raise QueryError(Code.BAD_OPTION, f"the window has {self.rows} rows", "give at least 1")
        if self.range is not None and parse_duration(self.range, name="range") < 1:
            raise QueryError(Code.BAD_OPTION, f"the window's range is {self.range}", "give at least a microsecond")

    @property
    def distinct(self) -> tuple[object, ...]:
        """Equal for queries that are one distinct coalescing query. The order of columns does not matter."""
        length = self.rows if self.range is None else parse_duration(self.range)
        kind = "rows" if self.range is None else "range"
        return (
            self.stream,
            frozenset(self.coalesce),
            frozenset(self.group),
            self.equivalence,
            kind,
            length,
            self.eager_part,
        )

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
        how, width = query.coalescing, query.extents.window.width_us
        part = eager_part(width, query.extents.slide_us, aggregated=query.keeps_aggregates)
        return cls(how.values, how.group, query.rows, width, str(query.equivalence), stream, part)
