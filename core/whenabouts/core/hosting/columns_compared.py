"""The columns that a query compares, for adapters of engines that have an equality of their own for a type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.coalescing.query import Coalesce, column_names
from whenabouts.core.expressions.time_values import COMPARISONS
from whenabouts.core.expressions.tree import Expression
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.runtime.key_names import of_input
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import Deduplicated
from whenabouts.core.wrappers.payload_decoding import Decoded
from whenabouts.core.wrappers.select_project import SelectProject


def columns_compared(query: Query) -> list[set[str]]:
    """By input the columns whose values are compared: keys, groups, values, templates, identities, and in SQL.

    Columns that a Python function or an Arrow expression uses are not known, nor those of other kinds of queries.

    >>> from whenabouts.core import Point, within
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(1, confidence=1), on="k")
    >>> columns_compared(query)
    [{'k'}, {'k'}]
    """
    if isinstance(query, TimingJoin):
        found = _of_join(query, [query.left_time, query.right_time])
        for side, name in _named(query.where.condition) if isinstance(query.where, SqlPredicate) else ():
            for index, suffix in enumerate(query.suffixes):  # without a side, it is a name of the output
                if side is None:
                    found[index] |= {name, name.removesuffix(suffix)}
                elif side.lower() == query.inputs[index]:
                    found[index].add(name)
        return found
    if isinstance(query, AsofJoin):
        found = _of_join(query, [query.left_time, query.right_time])
        found[1] |= set(query.ordered_by)
        return found
    if isinstance(query, JoinAggregate):
        found = _of_join(query, [query.left_time, query.right_time])
        found[1] |= query.columns | {*filter(None, [query.clock_column])}
        return found
    if isinstance(query, WindowJoin):
        found = _of_join(query, [spec for _, spec in query.times])
        for _, predicate in query.predicates:
            for stream, name in _named(predicate.condition) if isinstance(predicate, SqlPredicate) else ():
                found[query.inputs.index(stream or "")].add(name)
        return found
    if isinstance(query, Coalesce):
        names = {*column_names(query.group), *column_names(query.values)}
        if isinstance(query, TemporalAggregate) and isinstance(query.where, Expression):
            names |= {name for _, name in _named(query.where)}
        return [set(names) for _ in query.inputs]
    if isinstance(query, SharedCoalescing):
        return [set[str]().union(*(columns_compared(each)[0] for _, each in query.queries))]
    if isinstance(query, Deduplicated):
        return [own | set(by) for own, by in zip(columns_compared(query.query), query.by, strict=True)]
    if isinstance(query, Decoded):
        return columns_compared(query.query)
    if isinstance(query, SelectProject):
        return _of_selection(query)
    return [set(getattr(query, "compared", ())) for _ in query.inputs]


def times_compared(query: Query, schemas: Sequence[pa.Schema], output: pa.Schema) -> Iterator[dict[str, pa.DataType]]:
    """By comparison of its SQL conditions, the columns of times in it. `output`: what the query's operator gives.

    >>> from whenabouts.core import Point, within
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within(1, confidence=1),
    ...                    where="left.u < right.u AND v = 1")
    >>> here = pa.schema({"t": pa.int64(), "u": pa.timestamp("us")})
    >>> list(times_compared(query, [here, here.append(pa.field("v", pa.int64()))], here))
    [{'left.u': TimestampType(timestamp[us]), 'right.u': TimestampType(timestamp[us])}]
    """
    tables: dict[str | None, pa.Schema] = {**dict(zip(query.inputs, schemas, strict=True)), None: output}
    for condition, table in _conditions(query):
        for node in _comparisons(condition):
            found = {}
            for column in node.columns():
                of, name = column.value
                schema = tables.get(of if of is not None else table)
                if schema is not None and name in schema.names and pa.types.is_timestamp(schema.field(name).type):
                    found[".".join(filter(None, (of, name)))] = schema.field(name).type
            if found:
                yield found


def _conditions(query: Query) -> Iterator[tuple[Expression, str | None]]:
    """All SQL conditions, and the table of columns that name none; None: the output."""
    if isinstance(query, Deduplicated | Decoded | SelectProject):
        yield from _conditions(query.query)
    if isinstance(query, SelectProject):
        yield from ((condition, name) for name, condition in query.where)
    elif isinstance(query, TimingJoin) and isinstance(query.where, SqlPredicate):
        yield query.where.condition, None
    elif isinstance(query, WindowJoin):
        yield from ((each.condition, None) for _, each in query.predicates if isinstance(each, SqlPredicate))
    elif isinstance(query, TemporalAggregate) and isinstance(query.where, Expression):
        yield query.where, query.inputs[0]


def _comparisons(expression: Expression) -> Iterator[Expression]:
    if expression.operation in COMPARISONS or expression.operation == "same":
        yield expression
    for operand in expression.operands:
        yield from _comparisons(operand)


def _of_join(query: TimingJoin | AsofJoin | JoinAggregate | WindowJoin, specs: Sequence[TimeSpec]) -> list[set[str]]:
    return [
        {*of_input(query.key_columns, index), *filter(None, [spec.template_column])} for index, spec in enumerate(specs)
    ]


def _of_selection(query: SelectProject) -> list[set[str]]:
    found = columns_compared(query.query)
    where, derived = dict(query.where), dict(query.derived)
    for name, own in zip(query.inputs, found, strict=True):
        asked = [*([where[name]] if name in where else []), *(expression for _, expression in derived.get(name, ()))]
        own |= {column for expression in asked for _, column in _named(expression)}
    return found


def _named(expression: Expression) -> set[tuple[str | None, str]]:
    return {node.value for node in expression.columns()}
