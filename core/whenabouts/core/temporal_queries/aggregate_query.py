"""Aggregates of durations over coalesced extents (Al-Kateb 2010, Example 2): one row per group and instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Required

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.coalescing.query import Coalesce, CoalesceOptions
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.tree import Expression
from whenabouts.core.runtime import option_checks as checks

if TYPE_CHECKING:
    from whenabouts.core.temporal_queries.aggregate import AggregateOperator

FUNCTIONS = ("max", "min", "sum", "avg", "count", "median")
"""Functions of the durations of the coalesced tuples, in microseconds: int64, but `avg` and `median` float64."""

WEIGHTED = "time_weighted"
"""(WEIGHTED, column): the mean of a column, each coalesced tuple weighted by its duration; float64."""


class TemporalAggregateOptions(CoalesceOptions, total=False):
    """The fields of `TemporalAggregate`, as functions take them."""

    aggregates: Required[Mapping[str, str | tuple[str, str]]]
    where: pc.Expression | None


@dataclass(frozen=True, kw_only=True)
class TemporalAggregate(Coalesce):
    """A `Coalesce` whose extents are aggregated.

    `aggregates`: output name -> one of `FUNCTIONS`, or `("time_weighted", column)`. `where`: an Arrow expression or one
    of `whenabouts.core.expressions`, over the group and value columns; only coalesced tuples that pass it count, and a
    group without any has no row.
    Raises QueryError WA-2006 besides what `Coalesce` raises.

    >>> TemporalAggregate(time="t", group="region", values="high", window="24h", slide="1h",
    ...                   aggregates={"longest": "max"}, where=pc.field("high")).aggregates
    {'longest': 'max'}
    """

    aggregates: Mapping[str, str | tuple[str, str]]
    where: pc.Expression | Expression | None = None

    kind: ClassVar[str] = "temporal aggregate"
    keeps_aggregates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        named: object = self.aggregates
        if not isinstance(named, Mapping):
            raise checks.refused("aggregates", named, "give for example aggregates={'longest': 'max'}")
        if self.where is not None and not isinstance(self.where, (pc.Expression, Expression)):
            raise checks.refused("where", self.where, "give an Arrow expression over the columns: pc.field('v') > 3")
        if not self.aggregates:
            raise QueryError(
                Code.BAD_OPTION, "no aggregates are given", "give for example aggregates={'longest': 'max'}"
            )
        for name, asked in named.items():
            weighted = isinstance(asked, tuple) and len(asked) == 2 and asked[0] == WEIGHTED
            if not isinstance(name, str) or (not weighted and not (isinstance(asked, str) and asked in FUNCTIONS)):
                raise QueryError(
                    Code.BAD_OPTION,
                    f"aggregate {name!r} is {asked!r}",
                    f"choose one of {', '.join(FUNCTIONS)}, or ({WEIGHTED!r}, column)",
                )

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> AggregateOperator:
        """The operator for a schema.

        Without a window a group's row would only be final at the end of the input; on a stream that is refused
        (QueryError WA-2010).
        """
        from whenabouts.core.temporal_queries.aggregate import AggregateOperator

        if streaming and self.extents.is_history:
            raise QueryError(Code.UNBOUNDED_STATE, "a stream is aggregated without a window", "give window= or rows=")
        self.warn_of_one_bucket(streaming)
        return AggregateOperator(self, schemas[0])
