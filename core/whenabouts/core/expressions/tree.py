"""Expressions over columns, evaluated on Arrow arrays, so that an SQL condition means the same on every engine.

A tree of `Expression` nodes is data: it can be compared, hashed and sent to workers, and contains no code. Nulls follow
SQL (`AND` and `OR` are Kleene's, a comparison with null is null), and a column without any value is NULL of any type.
Integer overflow is an error. An integer beside a float is rounded to a double, as `CAST` does. `/` gives a float64, and
null for a divisor of 0. Floats compare as in IEEE 754. Times without a zone are read as UTC. Times and durations of any
units compare exactly; other operations on mixed units give the finer one. `expressions.sql` parses text.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.common_types import alike, as_instants, comparable, is_number, rounded, typed
from whenabouts.core.expressions.time_values import COMPARISONS, MICROSECOND, counts_in, in_unit_of, scale_of

Values: TypeAlias = Any
"""A `pa.Array`, or a `pa.Scalar` if no column is involved."""

Lookup: TypeAlias = Callable[["Expression"], Values]
"""Gives the values of a column node."""

TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Expression:
    """A node: an operation on operands. `value`: of a literal its value, of a column (table or None, column name), of
    `like` the pattern, of `cast` the Arrow type. `place`: line and column in the text, both from 1.

    >>> x = Expression("column", value=("a", "x"))
    >>> less = Expression("lt", (x, Expression("literal", value=3)))
    >>> evaluate(less, lambda column: pa.array([2, None, 4])).to_pylist()
    [True, None, False]
    """

    operation: str
    operands: tuple[Expression, ...] = ()
    value: Any = None
    place: tuple[int, int] = field(default=(1, 1), compare=False)

    def columns(self) -> Iterator[Expression]:
        """All column nodes, from left to right."""
        if self.operation == "column":
            yield self
        for operand in self.operands:
            yield from operand.columns()

    def depth(self) -> int:
        """The depth of the tree, computed without recursion."""
        level, depth = [self], 0
        while level:
            level, depth = [operand for node in level for operand in node.operands], depth + 1
        return depth

    def error(self, code: Code, problem: str, hint: str = "") -> QueryError:
        """An error with this node's line and column."""
        return QueryError(code, f"line {self.place[0]}, column {self.place[1]}: {problem}", hint)


def rewritten(expression: Expression, column: Callable[[Expression], Expression]) -> Expression:
    """The expression with every column node replaced."""
    if expression.operation == "column":
        return column(expression)
    return replace(expression, operands=tuple(rewritten(each, column) for each in expression.operands))


def evaluate(expression: Expression, column: Lookup) -> Values:
    """The values of an expression, row by row. O(nodes * rows), without a Python loop over rows.

    Raises QueryError WA-2093 for types that an operation does not accept, and for values (overflow, a failed cast).
    """
    if expression.operation == "column":
        return _normal(column(expression))
    if expression.operation == "literal":
        return pa.scalar(expression.value)
    operands = [evaluate(operand, column) for operand in expression.operands]
    given = operands if expression.value is None else [*operands, expression.value]
    try:
        return _normal(OPERATIONS[expression.operation](*given))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError) as cause:
        types = ", ".join(str(operand.type) for operand in operands)
        raise expression.error(
            Code.SQL_TYPES,
            f"`{expression.operation}` of {types}: {str(cause).splitlines()[0]}",
            "cast(... AS ...) converts types",
        ) from cause


def check_condition(expression: Expression, schemas: Mapping[str | None, pa.Schema]) -> None:
    """Check that an expression is a condition over tables with these schemas (key None: columns without a table name).

    Raises QueryError: WA-2092 for an unknown column, WA-2093 for types. Needs no rows.
    """

    def no_rows(node: Expression) -> Values:
        table, name = node.value
        if table not in schemas:
            known = ", ".join(str(known) for known in schemas if known is not None)
            if table is None:
                raise node.error(Code.SQL_COLUMN, f"{name!r} does not name its table", f"the tables are {known}")
            raise node.error(Code.SQL_COLUMN, f"there is no table {table!r}", f"the tables are {known}")
        names = schemas[table].names
        if name not in names:
            raise no_such_column(node, names, f" in {table}" if table else "")
        return pa.array([], schemas[table].field(name).type)

    found = evaluate(expression, no_rows).type
    if not (pa.types.is_boolean(found) or pa.types.is_null(found)):
        raise expression.error(Code.SQL_TYPES, f"expected a condition, this gives {found}", "compare it")


def no_such_column(node: Expression, names: Sequence[str], of: str = "") -> QueryError:
    """The error (WA-2092) for a column node that is none of `names`; `of`: of which table they are."""
    name = node.value[1]
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"its columns are {', '.join(names)}"
    return node.error(Code.SQL_COLUMN, f"there is no column {name!r}{of}", hint)


def _normal(values: Values) -> Values:
    """Values as one array, dictionaries decoded, and timestamps in UTC."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(values.type) and values.type.tz != "UTC":
        in_utc = pa.timestamp(values.type.unit, "UTC")
        values = values.cast(in_utc) if values.type.tz else pc.assume_timezone(values, "UTC")
    return values


def _nulls_as(kind: pa.DataType, function: Callable[..., Values]) -> Callable[..., Values]:
    """The function, to which untyped NULLs are of this type."""
    return lambda *values: function(*(typed(kind, each) for each in values))


def _on_doubles(compute: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """The function, to which integers are doubles."""
    return lambda values: compute(rounded(pa.float64(), values) if pa.types.is_integer(values.type) else values)


def _divide(left: Values, right: Values) -> Values:
    for each in (left, right):
        if pa.types.is_string(each.type) or pa.types.is_large_string(each.type):  # Arrow would read numbers in it
            raise TypeError("text is not divided")
    left, right = rounded(pa.float64(), left), rounded(pa.float64(), right)
    return pc.divide(left, pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right))


def _if(condition: Values, then: Values, otherwise: Values) -> Values:
    return pc.if_else(pc.coalesce(typed(pa.bool_(), condition), pa.scalar(False)), *alike([then, otherwise]))


def _compared(compare: Callable[..., Values]) -> Callable[..., Values]:
    return lambda left, right: compare(*comparable(left, right))


_COMPARISONS: Mapping[str, Callable[..., Values]] = {name: _compared(each) for name, each in COMPARISONS.items()}


def _same(left: Values, right: Values) -> Values:
    """Equal, or both null."""
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both, pc.coalesce(_COMPARISONS["eq"](left, right), pa.scalar(False)))


def _cast(values: Values, kind: pa.DataType) -> Values:
    """As in Spark and Flink, fractions and finer units are cut off, and numbers of times are microseconds."""
    if kind == TIME and pa.types.is_string(values.type):
        return _normal(pc.cast(values, pa.timestamp("us")))
    scale, asked = scale_of(values.type), scale_of(kind)
    if scale is not None and asked is not None and scale.measures == asked.measures:
        return in_unit_of(kind, values)
    if scale is not None and pa.types.is_integer(kind) and not pa.types.is_date(values.type):
        return pc.cast(counts_in(MICROSECOND, values), kind)
    if pa.types.is_timestamp(values.type) and values.type.unit in ("s", "ms"):
        values = in_unit_of(TIME, values)  # a text has the same digits for every unit, but for nanoseconds
    if pa.types.is_integer(kind) and pa.types.is_floating(values.type):
        values = pc.trunc(values)
    return rounded(kind, values) if pa.types.is_floating(kind) else pc.cast(values, kind)


def _chosen(choose: Callable[..., Values]) -> Callable[..., Values]:
    def chosen(*values: Values) -> Values:
        values = tuple(alike(values))
        kind = values[0].type
        if pa.types.is_null(kind):
            return pc.coalesce(*values)
        if pa.types.is_timestamp(kind):  # Arrow has this only for times without a zone
            values = tuple(pc.cast(each, pa.timestamp(kind.unit)) for each in values)
        return choose(*values, skip_nulls=True)

    return chosen


def _computed(compute: Callable[..., Values]) -> Callable[..., Values]:
    """Arithmetic; with an untyped NULL it gives NULL: a number beside a number, else untyped (a time or a duration)."""

    def computed(left: Values, right: Values) -> Values:
        values = alike([as_instants(left), as_instants(right)])
        if pa.types.is_null(left.type) or pa.types.is_null(right.type):
            kind = values[0].type if is_number(values[0].type) else pa.null()
            lengths = [len(each) for each in values if isinstance(each, pa.Array)]
            return pa.nulls(lengths[0], kind) if lengths else pa.scalar(None, kind)
        return compute(*values)

    return computed


def _concatenated(*texts: Values) -> Values:
    return pc.binary_join_element_wise(*alike([*texts, pa.scalar("")]))


OPERATIONS: Mapping[str, Callable[..., Values]] = {
    "and": _nulls_as(pa.bool_(), pc.and_kleene),
    "or": _nulls_as(pa.bool_(), pc.or_kleene),
    "not": _nulls_as(pa.bool_(), pc.invert),
    **_COMPARISONS,
    "is null": pc.is_null,
    "same": _same,
    "add": _computed(pc.add_checked),
    "subtract": _computed(pc.subtract_checked),
    "multiply": _computed(pc.multiply_checked),
    "divide": _divide,
    "negate": pc.negate_checked,
    "abs": pc.abs_checked,
    "sqrt": _on_doubles(pc.sqrt),
    "floor": _on_doubles(pc.floor),
    "ceil": _on_doubles(pc.ceil),
    "least": _chosen(pc.min_element_wise),
    "greatest": _chosen(pc.max_element_wise),
    "coalesce": lambda *values: pc.coalesce(*alike(values)),
    "if": _if,
    "like": lambda text, pattern: pc.match_like(typed(pa.string(), text), pattern),
    "ilike": lambda text, pattern: pc.match_like(typed(pa.string(), text), pattern, ignore_case=True),
    "lower": _nulls_as(pa.string(), pc.utf8_lower),
    "upper": _nulls_as(pa.string(), pc.utf8_upper),
    "length": _nulls_as(pa.string(), pc.utf8_length),
    "concat": _concatenated,
    "cast": _cast,
}
"""All operations by name; each takes its operands' values, and then the node's `value` if it has one."""


def joined(operation: str, operands: Sequence[Expression], place: tuple[int, int]) -> Expression:
    """Many operands under a binary operation, as a balanced tree, so that long lists do not make deep trees.

    >>> one = Expression("literal", value=True)
    >>> [len(joined("and", [one] * n, (1, 1)).operands) for n in (1, 2, 5)]
    [0, 2, 2]
    """
    if len(operands) == 1:
        return operands[0]
    middle = len(operands) // 2
    halves = joined(operation, operands[:middle], place), joined(operation, operands[middle:], place)
    return Expression(operation, halves, place=place)


def column(name: str) -> Expression:
    """A column as an expression.

    >>> column("a").value
    (None, 'a')
    """
    return Expression("column", value=(None, name))


def values_of(expression: Expression, rows: pa.RecordBatch | pa.Table) -> pa.Array:
    """One value for each row. Raises QueryError: WA-2092 for an unknown column, WA-2093 for types and values.

    >>> values_of(Expression("negate", (column("a"),)), pa.record_batch({"a": [1, None]})).to_pylist()
    [-1, None]
    """

    def given(node: Expression) -> pa.Array:
        name = node.value[1]
        if rows.schema.get_field_index(name) < 0 and name not in rows.schema.names:
            raise node.error(
                Code.SQL_COLUMN, f"there is no column {name!r}", f"there are {', '.join(rows.schema.names)}"
            )
        return rows.column(name)

    if expression.operation == "column":
        plain = given(expression)
        return plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain
    found = evaluate(expression, given)
    return pa.repeat(found, rows.num_rows) if isinstance(found, pa.Scalar) else found


def holds(expression: Expression, rows: pa.RecordBatch | pa.Table) -> BoolArray:
    """Which rows meet a condition (null does not). Raises QueryError WA-2092, WA-2093 as `values_of`.

    >>> holds(Expression("is null", (column("a"),)), pa.record_batch({"a": [1, None]})).tolist()
    [False, True]
    """
    found = typed(pa.bool_(), values_of(expression, rows))
    if not pa.types.is_boolean(found.type):
        raise expression.error(Code.SQL_TYPES, f"expected a condition, this gives {found.type}", "compare it")
    return np.asarray(found.fill_null(False))
