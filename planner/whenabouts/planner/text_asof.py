"""As-of joins as text, in the forms that others have: ``ON`` with an inequality (DuckDB, ClickHouse), and
``MATCH_CONDITION`` (Snowflake).

    SELECT A.id, B.bid FROM trades A ASOF LEFT JOIN quotes B ON A.symbol = B.symbol AND A.ts >= B.ts TOLERANCE '2 s'
    SELECT A.id, B.bid FROM trades A ASOF JOIN quotes B MATCH_CONDITION (A.ts >= B.ts) ON A.symbol = B.symbol

Each form keeps its own treatment of left rows without a partner, unless LEFT or INNER says it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.errors import Code
from whenabouts.core.expressions.tree import Expression, joined
from whenabouts.core.runtime.key_names import Key, shared
from whenabouts.core.timing_join.modes import Mode
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.query_text import conjuncts
from whenabouts.planner.streams import lateness_of_sides
from whenabouts.planner.text_durations import text_duration_us
from whenabouts.planner.text_join_columns import join_columns, selected
from whenabouts.planner.text_joins import of_rows
from whenabouts.planner.text_scope import Scope, is_call, is_window, of_where, query_of, with_options

_DIRECTIONS = {
    "GTE": ("backward", True), "GT": ("backward", False), "LTE": ("forward", True), "LT": ("forward", False),
}  # fmt: skip
_MIRRORED = {"GTE": "LTE", "GT": "LT", "LTE": "GTE", "LT": "GT"}
_SHOWN = 200
_ONE_INEQUALITY = "one inequality of the streams' times, as A.ts >= B.ts"


class _Asked(NamedTuple):
    """Which right row the text asks for."""

    direction: str
    allow_exact_matches: bool


def bind_asof(scope: Scope, options: dict[str, Any]) -> SelectProject:
    """The as-of join of a text over streams with known columns."""
    clauses = scope.query.clauses
    (join,) = clauses.select.args["joins"]
    aliases = tuple(scope.streams)
    left, right = scope.streams.values()
    asked: list[_Asked] = []
    keys: list[Key] = [_same_name(scope, each, join) for each in join.args.get("using") or ()]
    of_one: dict[str, list[Expression]] = {}
    how = _how(scope, join, options)
    match = [] if clauses.match is None else [clauses.match]
    for node in [*match, *conjuncts(join.args.get("on"))]:
        found = _inequality(scope, node)
        if found is not None:
            asked.append(found)
            continue
        if is_window(node):
            raise scope.place(node).wrong("a window in an ASOF JOIN", _ONE_INEQUALITY, Code.UNSUPPORTED_TEXT)
        condition = scope.expression(node)
        of = list(dict.fromkeys(each.value[0] for each in condition.columns()))
        operands = condition.operands
        if len(of) == 2 and condition.operation == "eq" and all(each.operation == "column" for each in operands):
            first, second = sorted(operands, key=lambda each: aliases.index(each.value[0]))
            a, b = first.value[1], second.value[1]
            keys.append(a if a == b else (a, b))
        elif of == [aliases[1]] or (of == [aliases[0]] and how == "inner"):
            of_one.setdefault(of[0], []).append(condition)
        else:
            raise scope.place(node).wrong(
                f"found {scope.place(node).words!r}",
                f"{_ONE_INEQUALITY}, equal columns, and conditions on {aliases[1]} alone: others go into WHERE",
                Code.UNSUPPORTED_TEXT,
            )
    if len(asked) != 1:
        raise scope.place(join).wrong(
            f"{len(asked)} inequalities in this ASOF JOIN", _ONE_INEQUALITY, Code.UNSUPPORTED_TEXT
        )
    written: dict[str, Any] = {"direction": asked[0].direction, "allow_exact_matches": asked[0].allow_exact_matches}
    if clauses.tolerance_at is not None:
        written["tolerance"] = text_duration_us(str(clauses.tolerance), clauses.tolerance_at)
    if clauses.threshold is not None:
        written["confidence"] = clauses.threshold
    said = written | {
        "left_time": left.time,
        "right_time": right.time,
        "on": tuple(dict.fromkeys(keys)),
        "lateness": lateness_of_sides(left.lateness, right.lateness),
        "suffixes": (f"_{left.source.alias}", f"_{right.source.alias}"),
    }
    query = query_of(AsofJoin, said, options | {"how": how})
    after = []
    for node in of_where(clauses):
        condition = scope.expression(node)
        if {each.value[0] for each in condition.columns()} == {aliases[0]}:
            of_one.setdefault(aliases[0], []).append(condition)  # the same rows as after the join
        else:
            after.append(condition)
    computed = ["none_probability"] if query.how == "left_anti" else ["probability", "none_probability"]
    result = replace(
        join_columns(scope, shared(keys), (), Mode(query.how)), computed=computed if query.probability else ()
    )
    inputs = dict(zip(aliases, query.inputs, strict=True))
    return SelectProject(
        query=query,
        where={inputs[alias]: of_rows(found) for alias, found in of_one.items()},
        having=result.over_result(joined("and", after, after[0].place)) if after else None,
        columns=selected(scope, result),
    )


def _how(scope: Scope, join: Any, options: dict[str, Any]) -> str:
    """What becomes of left rows without a partner: as the text says, else as in the dialect of its form."""
    said = "left_outer" if join.side == "LEFT" else "inner" if join.kind == "INNER" else None
    how = with_options({} if said is None else {"how": said}, options).get("how")
    return str(how or ("inner" if scope.query.clauses.match is None else "left_outer"))


def _same_name(scope: Scope, node: Any, join: Any) -> Key:
    """The column of ``USING (name)`` in both streams."""
    name = node.name if type(node).__name__ == "Identifier" else node.sql()[:_SHOWN]
    left, right = (stream.column(name) for stream in scope.streams.values())
    if left is None or right is None:
        raise scope.place(join).wrong(f"USING names {name!r}", "a column that both streams have", Code.SQL_COLUMN)
    return left if left == right else (left, right)


def _inequality(scope: Scope, node: Any) -> _Asked | None:
    """``A.ts >= B.ts``, ``TIME(A) >= TIME(B)`` or ``NEAREST(A, B)``; None for any other condition."""
    aliases = list(scope.streams)
    if is_call(node, "NEAREST"):
        if sorted(scope.alias(each) for each in node.expressions) != sorted(aliases):
            raise scope.place(node).wrong(f"found {scope.place(node).words!r}", f"NEAREST({', '.join(aliases)})")
        return _Asked("nearest", allow_exact_matches=True)
    kind = type(node).__name__
    if kind not in _DIRECTIONS:
        return None
    of = [_stream_of_time(scope, each) for each in (node.this, node.expression)]
    if of == aliases[::-1]:
        kind = _MIRRORED[kind]
    elif of != aliases:
        return None
    return _Asked(*_DIRECTIONS[kind])


def _stream_of_time(scope: Scope, node: Any) -> str | None:
    """The stream whose time a side of an inequality is; None if it is something else.

    Raises QueryError WA-2114 for a column that is not the time of its stream, compared with one of the other stream.
    """
    if type(node).__name__ == "Time":
        if node.this is None or node.args.get("zone"):
            raise scope.place(node).wrong(f"found {node.sql()!r}", f"TIME of one of {', '.join(scope.streams)}")
        return scope.alias(node.this)
    if type(node).__name__ != "Column":
        return None
    alias, name = scope.expression(node).value
    time = scope.streams[alias].time
    if (name,) != tuple(time.columns):
        other = next(stream for each, stream in scope.streams.items() if each != alias)
        sides = node.parent.this, node.parent.expression
        if any(
            type(side).__name__ == "Column" and side is not node and side.table == other.source.alias for side in sides
        ):
            raise scope.place(node).wrong(
                f"{name!r} is not the time of {alias}, which is {', '.join(time.columns)}",
                f"TIME({alias})" if len(time.columns) > 1 else f"its time, or TIME({alias})",
                Code.NO_TIME,
            )
        return None
    return str(alias)
