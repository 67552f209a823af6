"""The functions of a join aggregate: what users write, which argument each takes, and the types of the answers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.joins.output_columns import EVENT_TIME
from whenabouts.core.runtime.option_checks import columns_shown, refused

_NOTHING, _MAYBE_COLUMN, _COLUMN, _NUMBER, _SHARE = range(5)

_DECIDED = {
    "count": _MAYBE_COLUMN, "any": _NOTHING, "sum": _COLUMN, "mean": _COLUMN, "min": _COLUMN, "max": _COLUMN,
    "first": _COLUMN, "last": _COLUMN, "count_distinct": _COLUMN, "collect": _COLUMN,
}  # fmt: skip
_CHANCE = {
    "expected_count": _NOTHING, "expected_sum": _COLUMN, "count_variance": _NOTHING, "sum_variance": _COLUMN,
    "p_none": _NOTHING, "p_any": _NOTHING, "p_at_least": _NUMBER, "count_at": _SHARE,
}  # fmt: skip
_TAKES = _DECIDED | _CHANCE

_SUMS = frozenset({"sum", "mean", "expected_sum", "sum_variance"})
_OF_VALUES = frozenset({"min", "max", "first", "last"})
_WHOLE = frozenset({"count", "count_distinct", "count_at"})

_NEED_ROWS = frozenset({
    "count_distinct", "collect", "count_variance", "sum_variance", "p_none", "p_any", "p_at_least", "count_at",
})  # fmt: skip

_NO_EXPECTED_MEAN = (
    "the expected mean is not the expected sum over the expected count: give expected_sum and expected_count, or mean "
    "at a confidence"
)
_MEANT = {
    "expected_mean": _NO_EXPECTED_MEAN, "expected_avg": _NO_EXPECTED_MEAN, "avg": "give mean:column",
    "variance": "give count_variance, or sum_variance:column", "list": "give collect:column",
    "nunique": "give count_distinct:column",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One output column: a function, with a column of the right input, a number, or no argument."""

    name: str
    function: str
    argument: Any = None

    @property
    def decided(self) -> bool:
        """Whether it looks at the pairs that reach the confidence, not at all possible partners."""
        return self.function in _DECIDED

    @property
    def column(self) -> str | None:
        """The column of the right input that it reads."""
        return self.argument if _TAKES[self.function] in (_MAYBE_COLUMN, _COLUMN) else None

    @property
    def can_fold(self) -> bool:
        """Whether partners can be replaced by a number or a row of a fixed size, whatever partners come later."""
        return self.function not in _NEED_ROWS

    @property
    def described(self) -> str:
        """As users write it.

        >>> Aggregate("total", "sum", "amount").described
        'total=sum:amount'
        """
        return f"{self.name}={self.function}" + ("" if self.argument is None else f":{self.argument}")

    def of_column(self, column: str) -> Aggregate:
        """The same function of another column."""
        return replace(self, argument=column)

    def type_from(self, right: pa.Schema) -> pa.DataType:
        """The type of the answers.

        Raises InputError WA-1001 for a column that the right input lacks, WA-1023 for a sum of what is no number.
        """
        of = None if self.column is None else _type_of(self, right)
        if self.function in _WHOLE:
            return pa.int64()
        if self.function == "any":
            return pa.bool_()
        if self.function in _OF_VALUES:
            return of
        if self.function == "collect":
            return pa.list_(of)
        if self.function == "sum":
            return _type_of_sum(self, of)
        if self.function in _SUMS:
            _type_of_sum(self, of)
        return pa.float64()


Asked = str | tuple[str, Any]
"""An aggregate as users write it: a function, `"function:argument"`, or `(function, argument)`."""


def aggregates_of(value: Any) -> tuple[Aggregate, ...]:
    """Aggregates as users write them: by output name `"function"`, `"function:argument"` or `(function, argument)`.

    The first colon splits, so that names of columns may hold colons. Raises QueryError WA-2006 for no aggregate, an
    unknown function, a missing, spare or invalid argument; WA-2009 for `event_time`, and a name that is given twice.

    >>> aggregates_of({"n": "count", "three": "p_at_least:3", "total": ("sum", "amount")})[1:]
    (Aggregate(name='three', function='p_at_least', argument=3), Aggregate(name='total', function='sum', \
argument='amount'))
    """
    hint = 'give output names and functions, as {"n": "count", "total": ("sum", "amount")}'
    if isinstance(value, tuple) and value and all(isinstance(each, Aggregate) for each in value):
        found: tuple[Aggregate, ...] = value
    elif not isinstance(value, Mapping):
        raise refused("aggregates", value, hint)
    elif not value:
        raise QueryError(Code.BAD_OPTION, "no aggregates are given", hint)
    else:
        found = tuple(_aggregate(name, asked) for name, asked in value.items())
    names = [each.name for each in found]
    for name in names:
        if name == EVENT_TIME or names.count(name) > 1:
            taken = "is the name of a column of streams" if name == EVENT_TIME else "is the name of two aggregates"
            raise QueryError(Code.COLUMN_CLASH, f"{name!r} {taken}", "give another name")
    return found


def _aggregate(name: Any, asked: Any) -> Aggregate:
    what = f"aggregate {name!r}"
    if not isinstance(name, str) or not name:
        raise refused("the name of an aggregate", name, "give a text")
    if isinstance(asked, str):
        function, colon, text = asked.partition(":")
        argument: Any = text if colon else None
    elif isinstance(asked, (tuple, list)) and len(asked) == 2 and isinstance(asked[0], str):
        function, argument = asked
    else:
        raise refused(what, asked, 'give "function", "function:argument" or (function, argument)')
    if function not in _TAKES:
        raise QueryError(Code.BAD_OPTION, f"{what} has the unknown function {function!r}", _hint_for(function))
    return Aggregate(name, function, _argument(what, function, argument))


def _hint_for(function: str) -> str:
    if function in _MEANT:
        return _MEANT[function]
    near = difflib.get_close_matches(function, _TAKES, 1)
    known = f"choose one of {', '.join(_TAKES)}"
    return f"did you mean {near[0]!r}? {known}" if near else known


def _argument(what: str, function: str, argument: Any) -> Any:
    takes = _TAKES[function]
    if takes == _NOTHING or (takes == _MAYBE_COLUMN and argument is None):
        if argument is not None:
            raise refused(f"the argument of {what}", argument, f"{function} takes none")
        return None
    if takes in (_MAYBE_COLUMN, _COLUMN):
        if not isinstance(argument, str) or not argument:
            raise refused(f"the argument of {what}", argument, f"name a column of the right input: {function}:column")
        return argument
    if takes == _NUMBER:
        k = _number(argument, int)
        if k is None or not 1 <= k < 2**31:
            raise refused(f"the argument of {what}", argument, f"give a whole number from 1 to 2**31 - 1: {function}:3")
        return k
    c = _number(argument, float)
    if c is None or not 0.0 < c <= 1.0:
        raise refused(f"the argument of {what}", argument, f"give a probability in (0, 1]: {function}:0.9")
    return c


def _number(argument: Any, kind: type) -> Any:
    """The argument as a number of this kind, None if it is none."""
    known = (str, Integral) if kind is int else (str, Real)
    if isinstance(argument, bool) or not isinstance(argument, known):
        return None
    try:
        return kind(argument)
    except ValueError:
        return None


def _type_of(aggregate: Aggregate, right: pa.Schema) -> pa.DataType:
    if aggregate.column not in right.names:
        raise InputError(
            Code.MISSING_COLUMN,
            f"aggregate {aggregate.described} names {aggregate.column!r}, and the right input has no such column",
            columns_shown(right),
        )
    found = right.field(aggregate.column).type
    return found.value_type if pa.types.is_dictionary(found) else found


def _type_of_sum(aggregate: Aggregate, of: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(of):
        return pa.float64()
    if pa.types.is_integer(of) or pa.types.is_boolean(of):
        return pa.int64()
    if pa.types.is_duration(of):
        return of
    if pa.types.is_decimal(of) and of.scale <= 38:
        return pa.decimal128(38, of.scale)
    raise InputError(
        Code.INCOMPARABLE_VALUES,
        f"aggregate {aggregate.described}: values of type {of} have no sum",
        "cast them to a number",
    )
