"""Case-insensitive column names: a query's names, spelled as in its inputs.

Some engines treat `Region` and `region` as one column (Spark, unless `spark.sql.caseSensitive` is set). Names are
resolved once, before a query becomes an operator; from then on they are compared exactly, as everywhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeVar, cast

import pyarrow as pa

from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.coalescing.query import Coalesce, column_names
from whenabouts.core.errors import Code, LossyQueryWarning, QueryError
from whenabouts.core.expressions.letter_case import folded, same
from whenabouts.core.expressions.tree import Expression, rewritten
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.joins.output_columns import output_names
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.runtime.key_names import Key, of_input, shared
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.shared_coalescing.query import SharedCoalescing
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.deduplication import Deduplicated
from whenabouts.core.wrappers.payload_decoding import Decoded, decoded_schema
from whenabouts.core.wrappers.select_project import SelectProject, wider

Spelled = tuple[Query, tuple[pa.Schema, ...]]

_Spec = TypeVar("_Spec", bound=TimeSpec)


@dataclass(frozen=True)
class Columns:
    """Finds columns by name, whatever the case.

    >>> Columns(("Region", "t"))("REGION"), Columns(("Region", "t"))("none")
    ('Region', 'none')
    """

    names: tuple[str, ...]

    def __call__(self, name: str) -> str:
        """The column's own spelling; a name without a column stays, and the query reports it."""
        if name in self.names:
            return name
        return next((each for each in self.names if same(each, name)), name)


def as_spelled(query: Query, schemas: Sequence[pa.Schema]) -> Spelled:
    """The query with the names of its inputs' columns, and the schemas in which it runs.

    A column that inputs share by name (a key) is spelled as in the first of them; the returned schemas have that name
    in the same position. Names inside a function or an Arrow expression are not changed. Raises QueryError WA-2009 for
    an input with columns that differ by case only, and the query's own errors about columns.

    >>> from whenabouts.core import Point, within
    >>> query = TimingJoin(left_time=Point("T"), right_time=Point("t"), condition=within(1, confidence=1), on="KEY")
    >>> found, schemas = as_spelled(query, [pa.schema({"t": pa.int64(), "Key": pa.int64()})] * 2)
    >>> found.left_time, found.on, schemas[1].names
    (Point(t='t'), ('Key',), ['t', 'Key'])
    """
    for name, schema in zip(query.inputs, schemas, strict=True):
        check_distinct(schema.names, f"the {name} input has columns")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyQueryWarning)  # it came when the user made the query
        return _spelled(query, tuple(schemas))


def check_distinct(names: Iterable[str], what: str) -> None:
    """Raise QueryError WA-2009 for names that differ by case only."""
    found: dict[str, str] = {}
    for name in names:
        other = found.setdefault(folded(name), name)
        if other != name:
            raise QueryError(
                Code.COLUMN_CLASH,
                f"{what} {other!r} and {name!r}, one name where upper and lower case are alike",
                "rename one",
            )


def told_apart(names: Sequence[str]) -> list[str]:
    """The names, with a number added to those that differ from an earlier one by case only.

    >>> told_apart(["code", "Code", "code_1", "v"])
    ['code', 'Code_2', 'code_1', 'v']
    """
    taken, seen = {folded(name) for name in names}, set[str]()
    found = []
    for name in names:
        unique, numbers = name, count(1)
        while folded(unique) in (seen if unique == name else taken):
            unique = f"{name}_{next(numbers)}"
        seen.add(folded(name))
        taken.add(folded(unique))
        found.append(unique)
    return found


def _spelled(query: Query, schemas: tuple[pa.Schema, ...]) -> Spelled:
    for kind, spell in _BY_KIND.items():
        if isinstance(query, kind):
            return spell(query, schemas)
    spelled = getattr(query, "spelled", None)  # a query of a higher layer, with one input
    return (query if spelled is None else spelled(_columns(schemas)[0])), schemas


def _columns(schemas: Sequence[pa.Schema]) -> list[Columns]:
    return [Columns(tuple(schema.names)) for schema in schemas]


def _alike(schemas: tuple[pa.Schema, ...], names: Iterable[str]) -> tuple[pa.Schema, ...]:
    """The schemas with these columns spelled as in the first of them."""
    found = list(schemas)
    for name in names:
        own = Columns(tuple(schemas[0].names))(name)
        for index, schema in enumerate(found):
            at = schema.get_field_index(Columns(tuple(schema.names))(name))
            if at >= 0 and own in schemas[0].names:
                found[index] = schema.set(at, schema.field(at).with_name(own))
    return tuple(found)


def _keys(keys: Sequence[Key], schemas: tuple[pa.Schema, ...]) -> tuple[list[Key], tuple[pa.Schema, ...]]:
    """Keys in the inputs' spelling; names of all inputs that differ by case only are one column."""
    single = [key if isinstance(key, str) else key[0] for key in keys]
    shared = [isinstance(key, str) or all(same(name, key[0]) for name in key) for key in keys]
    schemas = _alike(schemas, (name for name, alike in zip(single, shared, strict=True) if alike))
    columns = _columns(schemas)
    by_input = [[find(name) for name in of_input(keys, index)] for index, find in enumerate(columns)]
    found: list[Key] = [
        columns[0](name) if alike else names
        for name, alike, names in zip(single, shared, zip(*by_input, strict=True), strict=True)
    ]
    return found, schemas


def _time(spec: _Spec, find: Columns) -> _Spec:
    """A time specification with the inputs' spelling."""
    named = {f: getattr(spec, f, None) for f in ("t", "t_min", "t_max", "template", "domain_column")}
    changes = {field: find(name) for field, name in named.items() if isinstance(name, str) and find(name) != name}
    if not changes:
        return spec
    return cast(_Spec, replace(cast(Any, spec), **changes))


def _expression(expression: Expression, find: Callable[[Expression], str]) -> Expression:
    return rewritten(expression, lambda node: replace(node, value=(node.value[0], find(node))))


def _timing_join(query: TimingJoin, schemas: tuple[pa.Schema, ...]) -> Spelled:
    on, schemas = _keys(query.key_columns, schemas)
    left, right = _columns(schemas)
    changes: dict[str, Any] = {"on": on, "left_time": _time(query.left_time, left)}
    changes["right_time"] = _time(query.right_time, right)
    if isinstance(query.where, SqlPredicate):
        names = output_names(left.names, right.names, shared(on), query.suffixes)
        sides = {"left": left, "right": right, None: Columns(tuple(name for of in names for name in of.values()))}

        def find(node: Expression) -> str:
            side, name = node.value
            columns = sides.get(side and side.lower())
            return str(name) if columns is None else columns(name)

        changes["where"] = replace(query.where, condition=_expression(query.where.condition, find))
    return replace(query, **changes), schemas


def _asof_join(query: AsofJoin, schemas: tuple[pa.Schema, ...]) -> Spelled:
    on, schemas = _keys(query.key_columns, schemas)
    left, right = _columns(schemas)
    order_by = tuple(map(right, query.ordered_by))
    left_time, right_time = _time(query.left_time, left), _time(query.right_time, right)
    return replace(query, on=on, order_by=order_by, left_time=left_time, right_time=right_time), schemas


def _join_aggregate(query: JoinAggregate, schemas: tuple[pa.Schema, ...]) -> Spelled:
    on, schemas = _keys(query.key_columns, schemas)
    left, right = _columns(schemas)
    aggregates = tuple(each if each.column is None else each.of_column(right(each.column)) for each in query.aggregates)
    left_time, right_time = _time(query.left_time, left), _time(query.right_time, right)
    return replace(query, on=on, aggregates=aggregates, left_time=left_time, right_time=right_time), schemas


def _window_join(query: WindowJoin, schemas: tuple[pa.Schema, ...]) -> Spelled:
    on, schemas = _keys(query.key_columns, schemas)
    columns = dict(zip(query.inputs, _columns(schemas), strict=True))
    times = tuple((name, _time(spec, columns[name])) for name, spec in query.times)

    def find(node: Expression) -> str:
        stream, name = node.value
        return columns[stream](name) if stream in columns else str(name)

    def spelled(predicate: Any) -> Any:
        if not isinstance(predicate, SqlPredicate):
            return predicate
        return replace(predicate, condition=_expression(predicate.condition, find))

    predicates = tuple((pair, spelled(predicate)) for pair, predicate in query.predicates)
    return replace(query, on=on, times=times, predicates=predicates), schemas


def _coalesce(query: Coalesce, schemas: tuple[pa.Schema, ...]) -> Spelled:
    group, values = column_names(query.group), column_names(query.values)
    schemas = _alike(schemas, (query.point.t, *group, *values))
    find = _columns(schemas)[0]
    changes: dict[str, Any] = {"time": _time(query.point, find)}
    changes |= {"group": tuple(map(find, group)), "values": tuple(map(find, values))}
    if isinstance(query, TemporalJoin):
        changes["on"] = tuple(map(find, column_names(query.on)))
    if isinstance(query, TemporalAggregate):
        changes["aggregates"] = {
            name: (asked[0], find(asked[1])) if isinstance(asked, tuple) else asked
            for name, asked in query.aggregates.items()
        }
        if isinstance(query.where, Expression):
            changes["where"] = _plain(query.where, find)
    return replace(query, **changes), schemas


def _shared(query: SharedCoalescing, schemas: tuple[pa.Schema, ...]) -> Spelled:
    queries = tuple((name, _spelled(each, schemas)[0]) for name, each in query.queries)
    return replace(query, queries=queries), schemas


def _deduplicated(query: Deduplicated, schemas: tuple[pa.Schema, ...]) -> Spelled:
    inner, schemas = _spelled(query.query, schemas)
    by = tuple(tuple(map(find, names)) for find, names in zip(_columns(schemas), query.by, strict=True))
    return replace(query, query=inner, by=by), schemas


def _decoded(query: Decoded, schemas: tuple[pa.Schema, ...]) -> Spelled:
    """Names inside payloads are taken literally: if sides spell a key differently there, the query reports it."""
    payloads, inside = [], []
    for name, payload, schema, find in zip(query.inputs, query.payloads, schemas, _columns(schemas), strict=True):
        if payload is not None:
            named: dict[str, Any] = {"column": find(payload.column), "keep": tuple(map(find, payload.keep))}
            named |= {} if payload.received is None else {"received": find(payload.received)}
            payload = replace(payload, **named)
        payloads.append(payload)
        inside.append(schema if payload is None else decoded_schema(schema, payload, name))
    inner, after = _spelled(query.query, tuple(inside))
    plain = zip(payloads, schemas, after, strict=True)
    schemas = tuple(found if payload is None else given for payload, given, found in plain)
    return replace(query, query=inner, payloads=tuple(payloads)), schemas


def _select_project(query: SelectProject, schemas: tuple[pa.Schema, ...]) -> Spelled:
    def of_inputs(columns: Sequence[Columns]) -> dict[str, Any]:
        find = dict(zip(query.inputs, columns, strict=True))
        return {
            "where": tuple((name, _plain(each, find[name])) for name, each in query.where),
            "derived": tuple(
                (name, tuple((as_, _plain(each, find[name])) for as_, each in named)) for name, named in query.derived
            ),
        }

    derived = dict(of_inputs(_columns(schemas))["derived"])
    wide = [wider(schema, derived.get(name, ())) for name, schema in zip(query.inputs, schemas, strict=True)]
    inner, after = _spelled(query.query, tuple(wide))
    schemas = tuple(pa.schema(list(found)[: len(given)]) for given, found in zip(schemas, after, strict=True))
    out = Columns(tuple(inner.operator(after, streaming=False).output_schema.names))
    columns = None if query.columns is None else tuple((name, _plain(each, out)) for name, each in query.columns)
    having = None if query.having is None else _plain(query.having, out)
    return replace(query, query=inner, having=having, columns=columns, **of_inputs(_columns(after))), schemas


def _plain(expression: Expression, find: Columns) -> Expression:
    return _expression(expression, lambda node: find(node.value[1]))


_BY_KIND: dict[type, Callable[[Any, tuple[pa.Schema, ...]], Spelled]] = {
    TimingJoin: _timing_join,
    AsofJoin: _asof_join,
    JoinAggregate: _join_aggregate,
    WindowJoin: _window_join,
    Coalesce: _coalesce,
    SharedCoalescing: _shared,
    Deduplicated: _deduplicated,
    Decoded: _decoded,
    SelectProject: _select_project,
}
