"""Join aggregates as text: ``GROUP BY`` names a stream, and each of its rows is a group.

SELECT o.id, COUNT(p), SUM(p.amount), EXPECTED(COUNT(p)), PROBABILITY(COUNT(p) = 0) FROM orders o, payments p
WHERE o.account = p.account AND WINDOW(o, p) BETWEEN '-5 minutes' AND '0 s' WITH THRESHOLD 0.9 GROUP BY o
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.join_aggregate.functions import Asked, aggregates_of
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.runtime.key_names import Key
from whenabouts.core.times.conditions import UNSAID, Condition
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.query_text import Clauses, place_of
from whenabouts.planner.streams import lateness_of_sides
from whenabouts.planner.text_durations import number_of
from whenabouts.planner.text_join_columns import JoinColumns, selected
from whenabouts.planner.text_join_parts import Parts, bounds_of, keys_of, parts_of
from whenabouts.planner.text_joins import of_rows
from whenabouts.planner.text_scope import (
    Scope,
    Source,
    conditions_of,
    is_call,
    name_in,
    of_on,
    of_where,
    query_of,
    with_options,
)

_DECIDED = {
    "Count": "count", "Sum": "sum", "Avg": "mean", "Min": "min", "Max": "max", "First": "first", "Last": "last",
    "ArrayAgg": "collect",
}  # fmt: skip
"""By sqlglot's class."""

_CHANCE = ("EXPECTED", "PROBABILITY", "COUNT_AT")
_AROUND = ("Filter", "Window", "WithinGroup", "IgnoreNulls", "RespectNulls")
_MIRRORED = {"LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE", "EQ": "EQ", "NEQ": "NEQ"}
_FUNCTIONS = (
    "COUNT, SUM, AVG, MIN, MAX, FIRST, LAST, ARRAY_AGG; EXPECTED and VARIANCE of COUNT and SUM; "
    "PROBABILITY(COUNT(p) >= 3); COUNT_AT(p, 0.9)"
)
_SHOWN = 200


def is_grouped(text: str, clauses: Clauses, sources: Sequence[Source]) -> bool:
    """Whether a join of two streams is grouped by the first one.

    Raises QueryError WA-2112 for any other ``GROUP BY`` of a join, and for aggregates without it.
    """
    group = clauses.select.args.get("group")
    if group is None:
        for node in _aggregates(clauses.select.expressions):
            raise place_of(text, node).wrong(
                f"found {place_of(text, node).words!r} in a join without GROUP BY",
                f"GROUP BY {sources[0].alias}: each row of {sources[0].alias} is then a group", Code.UNSUPPORTED_TEXT,
            )  # fmt: skip
        return False
    place = place_of(text, group)
    aliases = [source.alias for source in sources]
    names = [each.name for each in group.expressions if type(each).__name__ == "Column" and not each.table]
    plain = len(names) == len(group.expressions) == 1 and len([part for part in group.args.values() if part]) == 1
    named = name_in(names[0], aliases) if plain else None
    expected = f"GROUP BY {aliases[0]}: each row of {aliases[0]} is a group"
    if len(aliases) != 2:
        raise place.wrong(f"GROUP BY in a join of {len(sources)} streams", "two streams", Code.UNSUPPORTED_TEXT)
    if named == aliases[0]:
        return True
    if named == aliases[1]:
        expected = f"{named} first in FROM: the grouped stream is the first one"
    raise place.wrong(f"{group.sql().strip()} in a join", expected, Code.UNSUPPORTED_TEXT)


def bind_aggregates(scope: Scope, options: dict[str, Any]) -> SelectProject:
    """The join aggregate of a text over streams with known columns."""
    clauses = scope.query.clauses
    left, right = scope.streams.values()
    aliases = left.source.alias, right.source.alias
    how = _how(scope, options)
    parts = _parts(scope, aliases)
    if len(parts.edges) != 1:
        raise clauses.place.wrong(
            f"{len(parts.edges)} windows in a grouped join", f"one WINDOW({', '.join(aliases)}) = ...",
            Code.UNSUPPORTED_TEXT,
        )  # fmt: skip
    (edge,) = parts.edges
    chosen, asked = _Replaced(scope, aliases).items(clauses.select.expressions)
    confidence = edge.confidence
    if confidence is None and all(stream.time.max_uncertainty_us == 0 for stream in (left, right)):
        confidence = 1.0
    decided = how == "inner" or any(each.decided for each in aggregates_of(asked))
    if confidence is None and decided:
        raise clauses.place.wrong(
            "a window of uncertain times, and functions of the pairs in it",
            "WITH THRESHOLD p after the window, or EXPECTED, VARIANCE and PROBABILITY alone", Code.NO_CONFIDENCE,
        )  # fmt: skip
    said = {
        "left_time": left.time,
        "right_time": right.time,
        "condition": Condition(*bounds_of(edge, aliases[0]), UNSAID if confidence is None else confidence),
        "aggregates": asked,
        "on": _keys(parts, aliases),
        "lateness": lateness_of_sides(left.lateness, right.lateness),
    }
    query = query_of(JoinAggregate, said, options | {"how": how})
    names = {(aliases[0], name): name for name in left.schema.names}
    inputs = dict(zip(aliases, query.inputs, strict=True))
    return SelectProject(
        query=query,
        where={inputs[alias]: of_rows(found) for alias, found in parts.of_one.items()},
        columns=selected(scope, JoinColumns(names, list(asked), (), {}), chosen),
    )


def notes_of(clauses: Clauses, sources: Sequence[Source]) -> list[str]:
    """What a reader of the text may expect otherwise: rows without a partner stay."""
    (join,) = clauses.select.args["joins"]
    if join.side or join.kind == "INNER":
        return []
    left, right = (source.alias for source in sources)
    return [f"rows of {left} without a row of {right} stay, since each is a group; INNER JOIN drops them"]


def _how(scope: Scope, options: dict[str, Any]) -> str:
    """What becomes of left rows without a partner: as the text says; else each row of the grouped stream stays."""
    (join,) = scope.query.clauses.select.args["joins"]
    said = scope.query.mode or ("inner" if join.kind == "INNER" else None)
    how = with_options({} if said is None else {"how": said}, options).get("how")
    if said not in (None, "inner", "left_outer"):
        raise scope.place(join).wrong(
            f"{said} in a grouped join", "a comma, [INNER] JOIN or LEFT JOIN", Code.UNSUPPORTED_TEXT
        )
    return str(how or "left_outer")


def _parts(scope: Scope, aliases: tuple[str, str]) -> Parts:
    """The conditions by kind. After LEFT JOIN they are those of ON, and WHERE filters left rows."""
    clauses, (left, right) = scope.query.clauses, aliases
    if scope.query.mode is None:
        return parts_of(scope, conditions_of(clauses))
    parts = parts_of(scope, of_on(clauses))
    if left in parts.of_one:
        raise clauses.place.wrong(
            f"a condition on {left} alone in ON", f"it in WHERE, where it filters rows of {left}", Code.UNSUPPORTED_TEXT
        )
    for node in of_where(clauses):
        condition = scope.expression(node)
        if {each.value[0] for each in condition.columns()} != {left}:
            raise scope.place(node).wrong(
                f"found {scope.place(node).words!r} in WHERE", f"conditions on {left} alone; those on {right} in ON",
                Code.UNSUPPORTED_TEXT,
            )  # fmt: skip
        parts.of_one.setdefault(left, []).append(condition)
    return parts


def _keys(parts: Parts, aliases: tuple[str, str]) -> tuple[Key, ...]:
    """Equal columns of both streams. Raises QueryError WA-2112 for any other condition on both."""
    keys = keys_of(parts, aliases)
    for condition in (each for found in parts.of_two.values() for each in found):
        raise condition.error(
            Code.UNSUPPORTED_TEXT,
            f"a condition on {aliases[0]} and {aliases[1]} beside the window",
            "expected equal columns, and conditions on one stream, which filter its rows before",
        )
    return keys


class _Replaced:
    """The items of SELECT with a column in place of each aggregate, and the aggregates by the name of that column."""

    def __init__(self, scope: Scope, aliases: tuple[str, str]) -> None:
        self._scope, (self._left, self._right) = scope, aliases
        self._taken = set(scope.streams[self._left].schema.names)
        self._asked: dict[Asked, str] = {}

    def items(self, chosen: Sequence[Any]) -> tuple[list[Any], dict[str, Asked]]:
        """The items, and the aggregates. Raises QueryError WA-2112 for what is neither a column of the left stream
        nor an aggregate of the right one."""
        items = [self._item(node) for node in chosen]
        if not self._asked:
            raise self._scope.query.clauses.place.wrong(
                f"GROUP BY {self._left} without an aggregate", _FUNCTIONS, Code.UNSUPPORTED_TEXT
            )
        return items, {name: asked for asked, name in self._asked.items()}

    def _item(self, node: Any) -> Any:
        from sqlglot import exp

        item = node.copy()  # a text may be bound again
        root = exp.Paren(this=item)
        waiting = [item]
        while waiting:
            each = waiting.pop()
            if is_aggregate(each):
                each.replace(self._column(each))
            elif type(each).__name__ in ("Column", "Star"):
                self._require_left(each)
            else:
                waiting += each.iter_expressions()
        return root.this

    def _require_left(self, node: Any) -> None:
        """Refuse a column of the right stream, which has many rows for a group."""
        place = self._scope.place(node)
        star = type(node).__name__ == "Star" or type(node.this).__name__ == "Star"
        if star:
            of = node.table if type(node).__name__ == "Column" else ""
            right = name_in(of, self._scope.streams) != self._left
        else:
            right = self._scope.expression(node).value[0] == self._right
        if right:
            raise place.wrong(
                f"found {place.words if not star else node.sql()!r} in SELECT",
                f"columns of {self._left}, {self._left}.*, and aggregates of {self._right}", Code.UNSUPPORTED_TEXT,
            )  # fmt: skip

    def _column(self, node: Any) -> Any:
        """The column of an aggregate, at its place in the text."""
        from sqlglot import exp

        asked, place = self._function(node), self._scope.place(node)
        if asked not in self._asked:
            name = node.sql()
            while name in self._taken:
                name += "'"
            try:
                aggregates_of({name: asked})
            except QueryError as error:
                raise place.placed(error) from None
            self._asked[asked] = name
            self._taken.add(name)
        column = exp.column(self._asked[asked])
        column.this.meta.update(next((part.meta for part in node.walk() if "start" in part.meta), {}))
        return column

    def _function(self, node: Any) -> Asked:
        """The function of the library, with its argument."""
        kind, of = type(node).__name__, node.this
        if is_call(node, "EXPECTED") and len(node.expressions) == 1:
            return self._of_count_or_sum(node, node.expressions[0], "expected_count", "expected_sum")
        if kind == "Variance":
            return self._of_count_or_sum(node, of, "count_variance", "sum_variance")
        if is_call(node, "PROBABILITY") and len(node.expressions) == 1:
            return self._probability(node, node.expressions[0])
        if is_call(node, "COUNT_AT") and len(node.expressions) == 2 and self._is_right(node.expressions[0]):
            return "count_at", number_of(self._scope.query.text, node.expressions[1])
        if kind == "List" and len(node.expressions) == 1:
            return "collect", self._argument(node, node.expressions[0])
        given = [name for name, value in node.args.items() if value and name not in ("this", "big_int")]
        if kind not in _DECIDED or given:
            raise self._unknown(node)
        if kind == "Count":
            if type(of).__name__ == "Distinct" and len(of.expressions) == 1:
                return "count_distinct", self._argument(node, of.expressions[0])
            if type(of).__name__ == "Star":
                raise self._scope.place(node).wrong(
                    "COUNT(*) is 1 in SQL for a row without a partner", f"COUNT({self._right})", Code.UNSUPPORTED_TEXT
                )
            if self._is_right(of):
                return "count"
        return _DECIDED[kind], self._argument(node, of)

    def _of_count_or_sum(self, node: Any, of: Any, of_count: str, of_sum: str) -> Asked:
        """``EXPECTED`` and ``VARIANCE`` of ``COUNT(p)`` or ``SUM(p.column)``."""
        inner = self._function(of) if type(of).__name__ in _DECIDED else None
        if inner == "count":
            return of_count
        if isinstance(inner, tuple) and inner[0] == "sum":
            return of_sum, inner[1]
        means = "; the expected mean is not the expected sum over the expected count"
        of_mean = means if isinstance(inner, tuple) and inner[0] == "mean" else ""
        raise self._unknown(node, f"it of COUNT({self._right}) or SUM({self._right}.column){of_mean}")

    def _probability(self, node: Any, of: Any) -> Asked:
        """``PROBABILITY(COUNT(p) = 0)``, ``> 0`` and ``>= k``."""
        kind, count, bound = type(of).__name__, of.this, of.args.get("expression")
        if kind in _MIRRORED and type(count).__name__ == "Literal":
            kind, count, bound = _MIRRORED[kind], bound, count
        of_rows = type(count).__name__ == "Count" and self._function(count) == "count"
        whole = type(bound).__name__ == "Literal" and not bound.is_string and bound.this.isdecimal()
        if kind in _MIRRORED and of_rows and whole and len(bound.this) < 18:
            k = int(bound.this)
            if (kind, k) in (("EQ", 0), ("LT", 1), ("LTE", 0)):
                return "p_none"
            if (kind, k) in (("GT", 0), ("NEQ", 0)):
                return "p_any"
            least = k if kind == "GTE" else k + 1 if kind == "GT" else 0
            if least:
                return "p_at_least", least
        raise self._unknown(
            node, f"COUNT({self._right}) = 0, > 0 or >= k in PROBABILITY; of the rest 1 - PROBABILITY(...)"
        )

    def _is_right(self, node: Any) -> bool:
        """Whether a node is the right stream by itself."""
        plain = type(node).__name__ == "Column" and not node.table and type(node.this).__name__ == "Identifier"
        return plain and name_in(node.name, self._scope.streams) == self._right

    def _argument(self, node: Any, of: Any) -> str:
        """The column of the right stream that a function takes."""
        if type(of).__name__ == "Column" and type(of.this).__name__ == "Identifier":
            alias, name = self._scope.expression(of).value
            if alias == self._right:
                return str(name)
        raise self._unknown(node, f"a column of {self._right} in it")

    def _unknown(self, node: Any, expected: str = _FUNCTIONS) -> QueryError:
        return self._scope.place(node).wrong(f"found {node.sql()[:_SHOWN]!r}", expected, Code.UNSUPPORTED_TEXT)


def is_aggregate(node: Any) -> bool:
    """Whether a node is an aggregate, known or not, or something around one."""
    from sqlglot import exp

    return isinstance(node, exp.AggFunc) or type(node).__name__ in (*_AROUND, "List") or any(
        is_call(node, name) for name in _CHANCE
    )  # fmt: skip


def _aggregates(items: Sequence[Any]) -> list[Any]:
    return [part for item in items for part in item.walk() if is_aggregate(part)]
