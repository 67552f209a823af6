"""Two streams joined by the periods of their coalesced tuples, as text: a `TemporalJoin` from COALESCE ON and VALID.

The relation of the periods is one condition of WHERE, the least duration of their intersection may be others.
"""

from __future__ import annotations

from typing import Any

from whenabouts.core.coalescing.columns import VALID_FROM, VALID_TO, WINDOW_END
from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.expressions.tree import Expression, joined
from whenabouts.core.joins.pair_conditions import SqlPredicate
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.text_coalescing import Coalescing, coalescing_of, columns_of, given_by
from whenabouts.planner.text_durations import duration_us
from whenabouts.planner.text_periods import check_periods, written_period
from whenabouts.planner.text_scope import BoundStream, Scope, conditions_of, is_call, no_column, query_of


def bind_temporal_join(scope: Scope, options: dict[str, Any]) -> SelectProject:
    """Pairs of coalesced tuples of two streams with the same columns."""
    found = coalescing_of(scope)
    check_periods(scope)
    (left, first), (right, second) = scope.streams.items()
    conditions = _conditions(scope, found)
    matching = conditions.pop("matching")
    if found.condition is not None:
        holds = found.condition.value[1]
        matching += [Expression("column", value=(alias, holds), place=found.condition.place) for alias in scope.streams]
    said = given_by(scope, found) | conditions | {"time": first.time, "lateness": _lateness(first, second)}
    said["suffixes"] = (f"_{left}", f"_{right}")
    if matching:
        condition = joined("and", matching, matching[0].place)
        said["matches"] = SqlPredicate((left, right), scope.query.text, condition)
    query = query_of(TemporalJoin, said, options)
    if first.time != second.time:
        raise second.source.place.wrong("the streams' times are in different columns", "one time column for both")
    mine = (*found.group, *found.values)
    own = {alias: {name: name if name in query.on else f"{name}_{alias}" for name in mine} for alias in scope.streams}
    slides = [WINDOW_END] if query.extents.slides else []
    names = dict.fromkeys([*slides, *(name for each in own.values() for name in each.values()), VALID_FROM, VALID_TO])
    return SelectProject(
        query=query,
        derived=dict.fromkeys(query.inputs, found.derived) if found.derived else (),
        columns=columns_of(scope, list(names), slides, own),
    )


def _conditions(scope: Scope, found: Coalescing) -> dict[str, Any]:
    """The conditions as arguments of a `TemporalJoin`; those on columns beside equal ones are in ``matching``."""
    left = next(iter(scope.streams))
    relations: list[str] = []
    durations: list[int] = []
    on: list[str] = []
    matching: list[Expression] = []
    for node in conditions_of(scope.query.clauses):
        place = scope.place(node)
        if is_call(node, "RELATION"):
            if relations:
                raise place.wrong("a second relation of periods", "one VALID(a) ... VALID(b)")
            relations.append(node.expressions[0].this)
            if [scope.alias(each) for each in node.expressions[1:]] != list(scope.streams):
                raise place.wrong("the periods stand in another order than FROM", f"VALID({left}) first")
        elif any(is_call(part, "DURATION") for part in node.walk()):
            if type(node).__name__ != "GTE" or not is_call(node.this, "DURATION"):
                raise place.wrong(f"found {place.words!r}", f"DURATION({written_period(scope)}) >= a duration")
            durations.append(duration_us(scope.query.text, node.expression))
        else:
            condition = scope.expression(node)
            columns = [each.value for each in condition.columns()]
            for each in condition.columns():
                if each.value[1] not in (*found.group, *found.values):
                    raise no_column(each, each.value[1], [*found.group, *found.values])
            of_both = condition.operation == "eq" and {alias for alias, _ in columns} == set(scope.streams)
            if of_both and columns == [each.value for each in condition.operands] and columns[0][1] == columns[1][1]:
                on.append(columns[0][1])
            else:
                matching.append(condition)
    if not relations:
        raise scope.query.clauses.place.wrong(
            "no relation of periods is asked for", "VALID(a) OVERLAPS VALID(b) in WHERE"
        )
    least = {"min_duration": max(durations)} if durations else {}
    return {"relation": relations[0], "on": tuple(dict.fromkeys(on)), "matching": matching} | least


def _lateness(*streams: BoundStream) -> Duration | None:
    """The lateness of both inputs: the greater one. None if neither stream declares one."""
    return max((each.lateness for each in streams if each.lateness is not None), key=parse_duration, default=None)
