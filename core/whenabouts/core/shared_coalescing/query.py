"""Many coalescing queries over one stream as one query: one extent for all lazy queries, and one per eager query.

Al-Kateb, Kunta, Lee 2010, section 6.2. `shared_coalescing.operator` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.tree import Expression
from whenabouts.core.shared_coalescing.catalog import EAGER, FIRST_OWN, LAZY, PARTS
from whenabouts.core.shared_coalescing.columns import common_groups
from whenabouts.core.shared_coalescing.scheme_policy import SchemePolicy
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.wrappers.select_project import SelectProject, finished

if TYPE_CHECKING:
    from whenabouts.core.shared_coalescing.operator import SharedOperator


@dataclass(frozen=True, kw_only=True)
class SharedCoalescing:
    """Several coalescing queries (`Coalesce`, `TemporalAggregate`) over one stream, validated.

    `queries`: name -> query; all have the same time column and lateness. `schemes`: name -> `eager` or `lazy`; other
    queries run under their own scheme (`auto` is eager). The output has the column `query` and the columns of all
    queries, null where a query has no such column; `columns_of` names the columns of a query.

    `same`: name -> name of an equal query, whose rows it gets; the two have one extent under either scheme. They must
    have the same rows: the registry of the planner knows which queries have.

    `results`: name -> (condition on its rows or None, columns or None), as in `SelectProject`; see `share`.

    `schemes` and the set of queries may change between runs: a query that is added, or redefined under its name, starts
    at the next instant; the state of a query that is removed is dropped. With several buckets the group columns that
    all queries have must stay (WA-3032): they say in which bucket a row is.

    `adapting`: changes the schemes in each bucket while it runs (`shared_coalescing.scheme_policy.SchemePolicy`; the
    planner's `Registry.share` provides one). A bucket starts with `schemes`.

    A row is rejected once if any query alone would reject it, because it has no group there or is a duplicate of its
    instant. If groupings differ, the end of the input is the time of its last row for all queries, even for one in
    which that row has no group.

    Lazy queries share one extent, whether their windows are periods of time or numbers of rows of the whole stream. One
    that counts rows per group has an extent of its own under either scheme: rows of quiet groups matter for ever. A
    query without a window keeps its own scheme.

    Raises QueryError: WA-2006 for anything but a mapping of names to such queries, for different times or latenesses,
    for an unknown scheme or name, and for `lazy` if the query has no window and is eager itself.

    >>> queries = {name: Coalesce(time="t", values=name, window=10, slide=5) for name in ("a", "b")}
    >>> SharedCoalescing(queries=queries, schemes={"b": "lazy"}).scheme_of("b")
    'lazy'
    """

    queries: Any
    schemes: Any = ()
    results: Any = ()
    same: Any = ()
    adapting: SchemePolicy | None = None

    changeable: ClassVar[frozenset[str]] = frozenset({"queries", "schemes", "results", "same", "adapting"})

    def __post_init__(self) -> None:
        queries = dict(self.queries)
        for name, query in queries.items():
            if not isinstance(query, Coalesce) or isinstance(query, TemporalJoin):
                raise _bad(f"query {name!r} is {query!r}", "one input each: Coalesce or TemporalAggregate")
            if query.emit != "final":
                raise QueryError(
                    Code.NO_EARLY,
                    f"query {name!r} has emit={query.emit!r}",
                    "queries that share an extent give final rows: run it on its own",
                )
        if not 0 < len(queries) <= PARTS - FIRST_OWN:
            raise _bad(f"{len(queries) or 'no'} queries are given", f"give from one to {PARTS - FIRST_OWN}")
        for what in ("time", "lateness_us"):
            found = {repr(getattr(query, what)) for query in queries.values()}
            if len(found) > 1:
                raise _bad(f"the queries differ in {what}: {', '.join(sorted(found))}", "they share one stream")
        object.__setattr__(self, "queries", tuple(queries.items()))
        schemes = dict(self.schemes)
        for name, scheme in schemes.items():
            if name not in queries or scheme not in (EAGER, LAZY):
                raise _bad(f"scheme of {name!r} is {scheme!r}", f"eager or lazy, of {', '.join(queries)}")
            if scheme == LAZY and queries[name].scheme == EAGER and queries[name].extents.is_history:
                raise _bad(f"query {name!r} has no window and is eager", "set scheme='lazy' in that query")
        object.__setattr__(self, "schemes", tuple(schemes.items()))
        object.__setattr__(self, "results", tuple(dict(self.results).items()))
        same = dict(self.same)
        for name, other in same.items():
            if name not in queries or other not in queries or other in same:
                raise _bad(f"query {name!r} is the same as {other!r}", f"two of {', '.join(queries)}")
        object.__setattr__(self, "same", tuple(same.items()))

    @property
    def inputs(self) -> tuple[str, ...]:
        """One input."""
        return ("events",)

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """The lateness of all queries."""
        first: Coalesce = self.queries[0][1]
        return first.lateness_us

    @property
    def says_lateness(self) -> bool:
        """Whether all queries give it."""
        return all(query.says_lateness for _, query in self.queries)

    @property
    def described(self) -> str:
        """The queries by name, as text."""
        return "; ".join(f"{name}: {query.described}" for name, query in self.queries)

    @property
    def idle_after_us(self) -> int | None:
        """None: the watermark waits for a silent input."""
        return None

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The columns that say in which bucket a row is: the group columns that all queries have."""
        return common_groups(query.partitioned_by for _, query in self.queries)

    def scheme_of(self, name: str) -> str:
        """The scheme that a query starts with."""
        own: Coalesce = dict(self.queries)[name]
        return str(dict(self.schemes).get(name, LAZY if own.scheme == LAZY else EAGER))

    def columns_of(self, name: str, schema: pa.Schema) -> list[str]:
        """The output columns of one query over a stream of this schema."""
        operator = dict(self.queries)[name].operator([schema], streaming=False)
        names: list[str] = self.result_schema(name, operator.output_schema).names
        return names

    def result_schema(self, name: str, schema: pa.Schema) -> pa.Schema:
        """The output columns of a query, whose operator's output has this schema."""
        having, columns = dict(self.results).get(name, (None, None))
        return finished(_no_rows(schema), having, columns).schema

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> SharedOperator:
        """The operator for a schema.

        Raises what the queries raise, and WA-2009 for an output column with two types. Warns (`SingleBucketWarning`)
        if one bucket has to process the whole stream, because the queries have no group column in common.
        """
        from whenabouts.core.shared_coalescing.operator import SharedOperator

        return SharedOperator(self, schemas[0], streaming=streaming)


def share(
    queries: Mapping[str, Any],
    schemes: Mapping[str, str] | None = None,
    adapting: SchemePolicy | None = None,
    same: Mapping[str, str] | None = None,
) -> SelectProject:
    """Coalescing queries, including those parsed from text (`SelectProject`), as one query over their stream.

    Raises QueryError: as `SharedCoalescing`, WA-2009 if two queries compute different columns of one name.

    >>> share({"a": Coalesce(time="t", values="a"), "b": Coalesce(time="t", values="b")}).inputs
    ('events',)
    """
    plain: dict[str, Any] = {}
    results: dict[str, Any] = {}
    derived: dict[str, Expression] = {}
    for name, query in queries.items():
        plain[name] = query.query if isinstance(query, SelectProject) else query
        if not isinstance(query, SelectProject):
            continue
        if query.where:
            raise _bad(f"query {name!r} selects rows", "queries that share an extent use all rows of their stream")
        results[name] = query.having, query.columns
        for column, expression in dict(query.derived).get("events", ()):
            if derived.setdefault(column, expression) != expression:
                raise QueryError(Code.COLUMN_CLASH, f"two queries compute {column!r} in two ways", "rename one")
    shared = SharedCoalescing(queries=plain, schemes=schemes or {}, results=results, same=same or {}, adapting=adapting)
    return SelectProject(query=shared, derived={"events": tuple(derived.items())} if derived else ())


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _bad(problem: str, hint: str) -> QueryError:
    return QueryError(Code.BAD_OPTION, problem, hint)
