"""Durations and numbers in a query's text."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from whenabouts.core.durations import parse_duration
from whenabouts.core.errors import QueryError
from whenabouts.planner.query_text import place_of
from whenabouts.planner.text_clauses import Place


def duration_us(text: str, node: Any) -> int:
    """Microseconds of ``INTERVAL '2' SECOND`` or ``'2 s'``, with a sign or without.

    Raises: QueryError WA-2111, with the position, for anything else; a bare number has no unit and is refused.
    """
    kind, place = type(node).__name__, place_of(text, node)
    expected = "a duration, as INTERVAL '2' SECOND or '2 s'"
    if kind == "Neg":
        return -duration_us(text, node.this)
    if kind == "Literal" and not node.is_string:
        raise place.wrong(
            f"{node.this} has no unit", f"{expected}; for milliseconds INTERVAL '{node.this}' MILLISECOND"
        )
    unit = node.args.get("unit")
    if kind == "Interval" and type(node.this).__name__ == "Literal" and type(unit).__name__ in ("Var", "NoneType"):
        return text_duration_us(f"{node.this.name} {unit.name if unit is not None else ''}".strip(), place)
    if kind == "Literal":
        return text_duration_us(node.this, place)
    raise place.wrong(f"found {place.words!r}", expected)


def text_duration_us(written: str, place: Place) -> int:
    """Microseconds of a duration as text. Raises: QueryError WA-2111."""
    try:
        return parse_duration(written)
    except QueryError:
        raise place.wrong(
            f"{written[:200]!r} is not a duration", "a number and a unit, as 2 SECOND or 24 HOUR"
        ) from None


def number_of(text: str, node: Any) -> float:
    """A plain number. Raises: QueryError WA-2111."""
    if type(node).__name__ == "Literal" and not node.is_string:
        with suppress(ValueError):  # sqlglot reads . 0.9 as 0.0.9
            return float(node.this)
    place = place_of(text, node)
    raise place.wrong(f"found {place.words!r}", "a number")
