"""Coalescing queries as they are planned: what makes two of them one, and how many tuples their windows hold."""

from __future__ import annotations

from dataclasses import dataclass

from whenabouts.core.coalescing.operator import Coalesce
from whenabouts.core.costs.eager_lazy_cost import Statistics, eager_part
from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError

DEFAULT_ROWS_PER_SECOND = 1.0
"""Arrival rate where none is known: a window in time then holds as many tuples as it has seconds."""


@dataclass(frozen=True, slots=True)
class CoalescingQuery:
    """What tells coalescing queries apart: value columns, grouping, equivalence and window, over one stream.

    The window is ``rows`` tuples or a ``range`` of time. Two queries that are equal in all of this share one extent
    under either scheme (a *distinct coalescing query*, section 6.2).

    ``eager_part``: through which part of its extent an eager scan goes. An aggregate of a window that slides is kept
    from slide to slide, so that only the tuples that come and go count.

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
            raise QueryError(Code.BAD_OPTION, "no column is coalesced on", "name at least one value column")
        for what, text in {"equivalence": self.equivalence, "stream": self.stream}.items():
            given: object = text  # a file may say anything
            if not isinstance(given, str):
                raise QueryError(Code.BAD_OPTION, f"{what} is {text!r}", "give a name")
        if (self.rows is None) == (self.range is None):
            raise QueryError(Code.BAD_OPTION, "a window is rows or range, one of the two", 'as rows=100 or range="24h"')
        if self.rows is not None and self.rows < 1:
            raise QueryError(Code.BAD_OPTION, f"the window has {self.rows} rows", "give at least 1")
        if self.range is not None and parse_duration(self.range, name="range") < 1:
            raise QueryError(Code.BAD_OPTION, f"the window's range is {self.range}", "give at least a microsecond")

    @property
    def distinct(self) -> tuple[object, ...]:
        """Equal for queries that are one distinct coalescing query (the order of columns does not matter)."""
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
        """How many tuples the window holds."""
        if self.rows is not None:
            return float(self.rows)
        rate = DEFAULT_ROWS_PER_SECOND if statistics.rate is None else statistics.rate
        return max(parse_duration(self.range or 0) / 1e6 * rate, 1.0)

    @classmethod
    def of(cls, query: Coalesce, stream: str = "stream") -> CoalescingQuery:
        """A query object over a stream, as it is planned.

        >>> CoalescingQuery.of(Coalesce(time="t", values="v", window="1 s")).range
        1000000
        """
        how, width = query.coalescing, query.extents.window.width_us
        part = eager_part(width, query.extents.slide_us, aggregated=query.keeps_aggregates)
        return cls(how.values, how.group, query.rows, width, str(query.equivalence), stream, part)
