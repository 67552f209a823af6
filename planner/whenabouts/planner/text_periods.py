"""Periods in a text: ``VALID(s)`` of one stream, ``INTERSECT(VALID(a), VALID(b))`` of two, and ``DURATION`` of either.

The tuples of a result have one period, and only this one can be asked for: that of a coalesced tuple, or the
intersection of the periods of a joined pair.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from whenabouts.core.coalescing.columns import VALID_FROM, VALID_TO
from whenabouts.core.errors import Code
from whenabouts.core.expressions.tree import Expression, column
from whenabouts.planner.text_scope import Scope, conditions_of, is_call, name_in

PERIOD = (VALID_FROM, VALID_TO)
"""The columns that have the period of a tuple."""


def check_periods(scope: Scope) -> None:
    """Check every period of SELECT and of the conditions.

    Raises: QueryError WA-2111 for a ``VALID`` of no stream, WA-2112 for another period than that of the result.
    """
    clauses, period = scope.query.clauses, written_period(scope)
    nodes = [part for each in (*clauses.select.expressions, *conditions_of(clauses)) for part in each.walk()]
    for node in nodes:
        if is_call(node, "VALID") and _stream_of(scope, node) is None:
            place = scope.place(node)
            raise place.wrong(f"found {place.words!r}", f"VALID of one of the streams {', '.join(scope.streams)}")
    for node in nodes:
        place = scope.place(node)
        of_valid = any(is_call(part, "VALID") for part in node.walk())
        code = Code.UNSUPPORTED_TEXT if of_valid else Code.BAD_QUERY_TEXT
        if is_call(node, "DURATION"):
            if len(node.expressions) != 1 or not is_period(scope, node.expressions[0]):
                raise place.wrong(f"found {place.words!r}", f"DURATION({period})", code)
        elif is_call(node, "INTERSECT"):
            if not is_period(scope, node):
                raise place.wrong(f"found {place.words!r}", period, code)
        elif is_call(node, "VALID") and len(scope.streams) == 2 and not is_call(node.parent, "INTERSECT"):
            raise place.wrong(f"{node.sql()} alone, where a pair has the intersection of its periods", period, code)


def is_period(scope: Scope, node: Any) -> bool:
    """Whether this is the period that the result has."""
    if len(scope.streams) == 1:
        return _stream_of(scope, node) is not None
    parts = node.expressions if is_call(node, "INTERSECT") else ()
    return len(parts) == 2 and {_stream_of(scope, part) for part in parts} == set(scope.streams)


def written_period(scope: Scope) -> str:
    """The period that the result has, as texts write it."""
    each = [f"VALID({alias})" for alias in scope.streams]
    return each[0] if len(each) == 1 else f"INTERSECT({', '.join(each)})"


def duration_of_period() -> Expression:
    """How long the period of a tuple is, in microseconds."""
    return Expression("cast", (Expression("subtract", (column(VALID_TO), column(VALID_FROM))),), pa.int64())


def _stream_of(scope: Scope, node: Any) -> str | None:
    """The stream of ``VALID(stream)``; None for anything else."""
    of = node.expressions if is_call(node, "VALID") else ()
    found = [each.name for each in of if type(each).__name__ == "Column" and not each.table]
    return name_in(found[0], scope.streams) if len(of) == len(found) == 1 else None
