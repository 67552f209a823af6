"""Parses the text of a query: clauses that SQL does not have are removed from the tokens, and sqlglot parses the rest.

Tokens keep their positions, so that errors can name line and column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from whenabouts.core.errors import QueryError
from whenabouts.planner.text_clauses import Cutter, Place, WindowClause


@dataclass(slots=True)
class Clauses:
    """The clauses of a query. ``windows``: by position of the stream's name. ``within``: the bound of ``WITHIN e``.

    ``emit``: "early" or "final" after ``EMIT``.
    """

    select: Any
    place: Place
    windows: dict[int, WindowClause] = field(default_factory=dict)
    coalesce: list[Any] = field(default_factory=list)
    coalesce_at: Place | None = None
    within: str | None = None
    emit: str | None = None
    emit_at: Place | None = None
    match: Any | None = None
    match_at: Place | None = None
    tolerance: str | None = None
    tolerance_at: Place | None = None
    threshold: float | None = None


def take_apart(text: str) -> Clauses:
    """Parse one SELECT and the clauses that SQL does not have.

    Raises: QueryError WA-2111 with line, column and what was expected; WA-2007 where sqlglot is not installed.

    >>> clauses = take_apart("SELECT * FROM s [RANGE 2 HOUR SLIDE 1 HOUR] COALESCE ON t GROUP BY k")
    >>> [window.range for window in clauses.windows.values()], [str(each) for each in clauses.coalesce]
    (['2 HOUR'], ['t'])
    """
    cutter = Cutter(text)
    cutter.cut()
    found = Clauses(_one_select(text, cutter.rest), Place(text, 0, len(text)), cutter.windows)
    if cutter.coalesce_at is not None:
        found.coalesce_at, found.within = cutter.coalesce_at, cutter.within
        found.coalesce = _expressions(text, cutter.coalesce, cutter.coalesce_at)
        if not found.coalesce:
            raise cutter.coalesce_at.wrong("COALESCE ON names nothing", "columns or a condition")
    found.emit, found.emit_at = cutter.emit, cutter.emit_at
    if cutter.match_at is not None:
        match, found.match_at = _expressions(text, cutter.match, cutter.match_at), cutter.match_at
        if len(match) != 1:
            raise cutter.match_at.wrong(f"{len(match)} conditions in MATCH_CONDITION", "one, as A.ts >= B.ts")
        found.match = match[0]
    found.tolerance, found.tolerance_at, found.threshold = cutter.tolerance, cutter.tolerance_at, cutter.threshold
    return found


def _expressions(text: str, tokens: list[Any], place: Place) -> list[Any]:
    """A list of expressions, parsed as one after SELECT. Raises: QueryError WA-2111 if anything else is in it."""
    select = _one_select(text, tokens)
    for name, part in select.args.items():
        if part and name != "expressions":
            raise place.wrong(f"{name.replace('_', ' ').upper()} in {place.words}", "expressions, joined by commas")
    return list(select.expressions)


def place_of(text: str, node: Any) -> Place:
    """The position of a part of the syntax tree in the text."""
    starts, ends = [], []
    for part in node.walk():
        if "start" in part.meta:
            starts.append(part.meta["start"])
            ends.append(part.meta["end"] + 1)
    return Place(text, min(starts, default=0), max(ends, default=len(text)))


def _one_select(text: str, tokens: list[Any]) -> Any:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError

    try:
        parsed = [each for each in Dialect.get_or_raise("").parser().parse(tokens, text) if each is not None]
    except ParseError as error:
        raise _as_ours(text, error) from None
    except RecursionError:
        raise Place(text, 0, len(text)).wrong("this is nested too deeply", "fewer parentheses") from None
    if len(parsed) != 1:
        semicolon = next((token for token in tokens if token.text == ";"), tokens[-1])
        raise Place(text, semicolon.start, semicolon.end + 1).wrong("more than one query", "one SELECT")
    if not isinstance(parsed[0], exp.Select):
        raise place_of(text, parsed[0]).wrong(f"this is a {type(parsed[0]).__name__.lower()}", "one plain SELECT")
    return parsed[0]


def _as_ours(text: str, error: Any) -> QueryError:
    """An error of sqlglot with our code, and its position from the line and the end of its token."""
    first = error.errors[0]
    lines = text.split("\n")
    end = sum(len(line) + 1 for line in lines[: first["line"] - 1]) + first["col"]
    highlight = first["highlight"] or ""
    place = Place(text, max(end - len(highlight), 0), end)
    description = str(first["description"])
    if description.startswith("Expecting "):
        return place.wrong(f"found {highlight!r}", description.removeprefix("Expecting "))
    if "Required keyword" in description:
        return place.wrong(f"something is missing near {highlight!r}", "an expression or a name there")
    return place.wrong(
        f"{highlight!r} cannot stand here", "a comma, AND, one of our clauses, WHERE, GROUP BY, or the end"
    )


def conjuncts(condition: Any) -> Iterator[Any]:
    """The parts of a condition that are joined by AND, in their order."""
    from sqlglot import exp

    waiting = [condition]
    while waiting:  # without recursion, since a long chain of AND is deeply nested
        each = waiting.pop()
        if isinstance(each, exp.And):
            waiting += [each.expression, each.this]
        elif isinstance(each, exp.Paren) and isinstance(each.this, exp.And):
            waiting.append(each.this)
        elif each is not None:
            yield each
