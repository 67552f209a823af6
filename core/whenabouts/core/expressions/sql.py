"""Parses SQL text into an `Expression`, with sqlglot (extra `sql`). Nothing is evaluated as code.

Supported: columns (`a.x`, `"odd name"`), numbers, text, `TRUE`, `FALSE`, `NULL`, `TIMESTAMP '...'`, `DATE '...'` and
`INTERVAL '5' SECOND`; `AND OR NOT = <> < <= > >= IS [NOT] NULL|TRUE|FALSE IS [NOT] DISTINCT FROM [NOT] IN (...) [NOT]
BETWEEN [NOT] LIKE ILIKE + - * / ||`; `CASE`, `CAST`, `ABS SQRT FLOOR CEIL LEAST GREATEST COALESCE LOWER UPPER LENGTH`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeAlias

import pyarrow as pa

from whenabouts.core.durations import parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.tree import TIME, Expression, joined

Node: TypeAlias = Any
"""A node of sqlglot's tree, `sqlglot.exp.Expression`; its attributes differ from class to class."""

Place: TypeAlias = tuple[int, int]
"""Line and column, from 1."""

_BINARY = ("this", "expression")
_UNARY = ("this",)
_LIST = ("this", "expressions")
_OPERATIONS = {
    "EQ": ("eq", _BINARY), "NEQ": ("ne", _BINARY), "LT": ("lt", _BINARY), "LTE": ("le", _BINARY),
    "GT": ("gt", _BINARY), "GTE": ("ge", _BINARY), "Is": ("same", _BINARY), "NullSafeEQ": ("same", _BINARY),
    "Add": ("add", _BINARY), "Sub": ("subtract", _BINARY), "Mul": ("multiply", _BINARY), "Div": ("divide", _BINARY),
    "DPipe": ("concat", _BINARY), "Not": ("not", _UNARY), "Abs": ("abs", _UNARY), "Sqrt": ("sqrt", _UNARY),
    "Floor": ("floor", _UNARY), "Ceil": ("ceil", _UNARY), "Lower": ("lower", _UNARY), "Upper": ("upper", _UNARY),
    "Length": ("length", _UNARY), "Least": ("least", _LIST), "Greatest": ("greatest", _LIST),
    "Coalesce": ("coalesce", _LIST),
}  # fmt: skip
"""By sqlglot's class: the operation, and which arguments are its operands."""

_DIALECT_FLAGS = {"typed", "safe", "ignore_nulls", "is_nvl", "is_null"}
"""Arguments of sqlglot's nodes that do not matter for the operations above."""

_TYPES = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "TEXT": pa.string(), "VARCHAR": pa.string(), "DATE": pa.date32(),
    "TIMESTAMP": TIME, "TIMESTAMPTZ": TIME, "TIMESTAMPLTZ": TIME,
}  # fmt: skip

_GREATEST = 2**63 - 1
_DIGITS = 4_000
"""The longest integer literal; Python refuses to parse much longer ones."""

MOST_CHARACTERS = 300_000
"""The longest text of a query or a condition."""

MOST_TOKENS = 50_000
"""The most words, numbers and operators of a text."""

DEEPEST = 32
"""The deepest nesting of parentheses; sqlglot needs some twenty recursive calls for each."""

DEEPEST_EXPRESSION = 200
"""The deepest nesting of operations; workers walk these trees recursively, too."""

_OPENING = frozenset({"L_PAREN", "L_BRACKET", "L_BRACE", "CASE"})
_CLOSING = frozenset({"R_PAREN", "R_BRACKET", "R_BRACE", "END"})
_PREFIXES = frozenset({"NOT", "DASH", "PLUS", "TILDE"})
_TOO_DEEP = f"parentheses are nested too deeply: more than {DEEPEST}"
_SHOWN = 500
"""How many characters of a text an error repeats."""


def parse_expression(text: str) -> Expression:
    """Parse a text into an expression. Raises QueryError: WA-2091 with line and column for text that is not an SQL
    expression or not supported; WA-2007 without sqlglot.

    >>> parse_expression("a.x < 3 AND NOT b.s LIKE 'u%'").operation
    'and'
    >>> parse_expression("a.x<avg(b.y)")
    Traceback (most recent call last):
    whenabouts.core.errors.QueryError: WA-2091: line 1, column 5: `AVG(b.y)` is not supported (hint: in 'a.x<avg(b.y)')
    """
    sqlglot = _sqlglot()
    try:
        dialect = sqlglot.Dialect.get_or_raise("")
        check_length(text)
        tokens = list(dialect.tokenize(text))
        check_size(tokens, text)
        found = [node for node in dialect.parser().parse(tokens, text) if node is not None]
        if len(found) != 1:
            raise _refused((1, 1), f"expected one condition, found {len(found)}", text)
        return from_sqlglot(found[0], text)
    except sqlglot.errors.SqlglotError as error:
        problems = getattr(error, "errors", None) or [{"description": str(error), "line": 1, "col": 1}]
        problem = problems[0]["description"]
        if "Required keyword" in problem:  # it names sqlglot's classes
            problem = f"something is missing near {problems[0]['highlight']!r}"
        raise _refused((problems[0]["line"], problems[0]["col"]), problem, text) from error
    except RecursionError as error:
        raise _refused((1, 1), _TOO_DEEP, text) from error


def check_length(text: str) -> None:
    """Refuse a text that is too long to parse (QueryError WA-2091)."""
    if len(text.lstrip()) > MOST_CHARACTERS:  # a file may have blank lines before a query
        raise _refused((1, 1), f"the text has {len(text):,} characters, more than {MOST_CHARACTERS:,}", text)


def check_size(tokens: Sequence[Any], text: str) -> None:
    """Refuse a text with too many tokens or nested too deeply (QueryError WA-2091).

    Parsers and functions that walk an expression are recursive. A long list of values belongs in a table to join with.
    """
    if len(tokens) > MOST_TOKENS:
        raise _refused(line_and_column(text, tokens[MOST_TOKENS].start), f"more than {MOST_TOKENS:,} words", text)
    depth, prefixes = 0, 0
    for token in tokens:
        kind = token.token_type.name
        prefixes = prefixes + 1 if kind in _PREFIXES else 0
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth > DEEPEST or prefixes > DEEPEST:
            raise _refused(line_and_column(text, token.start), _TOO_DEEP, text)


def from_sqlglot(node: Node, text: str) -> Expression:
    """Convert a node that sqlglot parsed from `text`, for parsers of whole queries. Raises QueryError WA-2091."""
    if _levels(node) <= DEEPEST_EXPRESSION:
        found = _expression(node, text)
        if found.depth() <= DEEPEST_EXPRESSION:  # a CASE with many branches is deep only in our tree
            return found
    raise _refused(_place(node, text), f"more than {DEEPEST_EXPRESSION} nested operations", text)


def _levels(node: Node) -> int:
    """The nesting depth of operations; chains of AND or OR do not count, since they become balanced trees."""
    waiting, deepest = [(node, 1)], 1
    while waiting:
        each, level = waiting.pop()
        deepest = max(deepest, level)
        below = level + (type(each).__name__ not in ("And", "Or", "Paren"))
        waiting += [(part, below) for part in each.iter_expressions()]
    return deepest


def _expression(node: Node, text: str) -> Expression:
    name, place = type(node).__name__, _place(node, text)
    used = {part for part, value in node.args.items() if value} - _DIALECT_FLAGS
    if name in _OPERATIONS and used <= set(_OPERATIONS[name][1]):
        operation, parts = _OPERATIONS[name]
        operands = [node.this, *(node.expressions if parts == _LIST else [node.expression][: len(parts) - 1])]
        return Expression(operation, tuple(_expression(operand, text) for operand in operands), place=place)
    if name in _FORMS and used <= set(_FORMS[name][1].split()):
        return _FORMS[name][0](node, text, place)
    raise _unsupported(node, text)


def _column(node: Node, text: str, place: Place) -> Expression:
    if type(node.this).__name__ != "Identifier":
        raise _unsupported(node, text)
    return Expression("column", value=(node.table or None, node.name), place=place)


def _literal(node: Node, text: str, place: Place) -> Expression:
    if node.is_string:
        return Expression("literal", value=node.this, place=place)
    whole = node.this.isdecimal()
    if whole and (len(node.this) > _DIGITS or int(node.this) > _GREATEST):
        raise _refused(place, f"{node.this[:_SHOWN]} does not fit into 64 bits", text)
    try:
        value = int(node.this) if whole else float(node.this)
    except ValueError as error:
        raise _refused(place, f"{node.this[:_SHOWN]} is no number", text) from error
    return Expression("literal", value=value, place=place)


def _interval(node: Node, text: str, place: Place) -> Expression:
    if type(node.this).__name__ != "Literal" or type(node.args.get("unit")).__name__ != "Var":
        raise _unsupported(node, text)
    us = parse_duration(f"{node.this.name} {node.text('unit').lower()}", name="an INTERVAL")
    return Expression("literal", value=timedelta(microseconds=us), place=place)


def _negative(node: Node, text: str, place: Place) -> Expression:
    inner = _expression(node.this, text)
    if inner.operation == "literal" and isinstance(inner.value, int | float | timedelta) and inner.value is not True:
        return replace(inner, value=-inner.value, place=place)
    return Expression("negate", (inner,), place=place)


def _all_of(node: Node, text: str, place: Place) -> Expression:
    return joined(type(node).__name__.lower(), [_expression(part, text) for part in node.flatten()], place)


def _in(node: Node, text: str, place: Place) -> Expression:
    if not node.expressions:
        raise _refused(place, "the list of IN is empty", text)
    one = _expression(node.this, text)
    found = [Expression("eq", (one, _expression(part, text)), place=place) for part in node.expressions]
    return joined("or", found, place)


def _between(node: Node, text: str, place: Place) -> Expression:
    one, low, high = (_expression(node.args[part], text) for part in ("this", "low", "high"))
    ends = Expression("ge", (one, low), place=place), Expression("le", (one, high), place=place)
    return Expression("and", ends, place=place)


def _like(node: Node, text: str, place: Place) -> Expression:
    if not node.expression.is_string:
        raise _refused(place, "the pattern of LIKE is not text in quotes", text)
    found = Expression(type(node).__name__.lower(), (_expression(node.this, text),), node.expression.name, place)
    return Expression("not", (found,), place=place) if node.args.get("negate") else found


def _case(node: Node, text: str, place: Place) -> Expression:
    otherwise = node.args.get("default")
    found = Expression("literal", place=place) if otherwise is None else _expression(otherwise, text)
    for branch in reversed(node.args["ifs"]):
        condition = _expression(branch.this, text)
        if node.this is not None:
            condition = Expression("eq", (_expression(node.this, text), condition), place=place)
        found = Expression("if", (condition, _expression(branch.args["true"], text), found), place=place)
    return found


def _cast(node: Node, text: str, place: Place) -> Expression:
    kind = _TYPES.get(node.to.this.name)
    if kind is None or node.to.expressions:
        raise _refused(place, f"{node.to} is not a supported type", text)
    return Expression("cast", (_expression(node.this, text),), kind, place)


def _distinct(node: Node, text: str, place: Place) -> Expression:
    operands = _expression(node.this, text), _expression(node.expression, text)
    return Expression("not", (Expression("same", operands, place=place),), place=place)


def _constant(node: Node, text: str, place: Place) -> Expression:
    return Expression("literal", value=node.args.get("this"), place=place)


def _inner(node: Node, text: str, place: Place) -> Expression:
    return _expression(node.this, text)


_FORMS: dict[str, tuple[Callable[[Node, str, Place], Expression], str]] = {
    "Column": (_column, "this table"),
    "Literal": (_literal, "this is_string"),
    "Boolean": (_constant, "this"),
    "Null": (_constant, ""),
    "Interval": (_interval, "this unit"),
    "Paren": (_inner, "this"),
    "Neg": (_negative, "this"),
    "And": (_all_of, "this expression"),
    "Or": (_all_of, "this expression"),
    "NullSafeNEQ": (_distinct, "this expression"),
    "In": (_in, "this expressions"),
    "Between": (_between, "this low high"),
    "Like": (_like, "this expression negate"),
    "ILike": (_like, "this expression negate"),
    "Case": (_case, "this ifs default"),
    "Cast": (_cast, "this to"),
}
"""By sqlglot's class: the converter of a form that is not a plain operation, and the arguments it supports."""


def _place(node: Node, text: str) -> Place:
    """Line and column of a node's first word; sqlglot records it for names, literals and most functions."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return line_and_column(text, min(starts, default=0))


def line_and_column(text: str, at: int) -> Place:
    """Line and column, from 1, of the character at an index. O(log lines) after the first call for a text."""
    starts = _line_starts(text)
    line = bisect_right(starts, at)
    return line, at - starts[line - 1] + 1


@lru_cache(maxsize=4)
def _line_starts(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def _unsupported(node: Node, text: str) -> QueryError:
    return _refused(_place(node, text), f"`{node.sql()[:_SHOWN]}` is not supported", text)


def _refused(place: Place, problem: str, text: str) -> QueryError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return QueryError(Code.BAD_SQL, f"line {place[0]}, column {place[1]}: {problem}", f"in {shown!r}")


def _sqlglot() -> ModuleType:
    try:
        import sqlglot
    except ImportError as error:
        raise QueryError(
            Code.NOT_AVAILABLE, "SQL text needs sqlglot", "pip install 'whenabouts[sql]', or give a function"
        ) from error
    return sqlglot
