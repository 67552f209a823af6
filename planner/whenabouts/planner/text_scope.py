"""Names in a parsed query: its streams by alias, and the columns that its conditions use."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import pyarrow as pa

from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.expressions.sql import from_sqlglot
from whenabouts.core.expressions.tree import Expression, rewritten
from whenabouts.core.hosting.signatures import check_known
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.planner.query_text import Clauses, conjuncts, place_of
from whenabouts.planner.text_clauses import Place, WindowClause

Query = TypeVar("Query")
Form = Literal["join", "join aggregate", "as-of join", "coalesce", "temporal join"]


@dataclass(frozen=True, slots=True)
class Source:
    """A stream of the FROM clause under its alias."""

    alias: str
    stream: str
    window: WindowClause | None
    place: Place


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed query. Its form and streams are known; its columns have not been checked."""

    text: str
    clauses: Clauses
    sources: tuple[Source, ...]
    form: Form
    mode: str | None = None
    """`how` of a timing join that the text asks for: LEFT JOIN and the like."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of the query, without duplicates."""
        return tuple(dict.fromkeys(source.stream for source in self.sources))

    @property
    def joins(self) -> bool:
        """Whether it is a join or a join aggregate, which is planned by itself."""
        return self.form in ("join", "join aggregate", "as-of join")


@dataclass(frozen=True, slots=True)
class BoundStream:
    """A stream with its columns, its times and its lateness."""

    source: Source
    schema: pa.Schema
    time: TimeSpec
    lateness: Duration | None
    known: tuple[dict[str, str], dict[str, list[str]]] = field(init=False, repr=False, compare=False)
    """Columns by name, and by name in lower case, for fast look-ups."""

    def __post_init__(self) -> None:
        alike: dict[str, list[str]] = {}
        for name in self.schema.names:
            alike.setdefault(name.lower(), []).append(name)
        object.__setattr__(self, "known", ({name: name for name in self.schema.names}, alike))

    def column(self, name: str) -> str | None:
        """The exact name of a column; case is ignored if that is unambiguous."""
        exact, alike = self.known
        found = alike.get(name.lower(), ())
        return exact.get(name) or (found[0] if len(found) == 1 else None)


@dataclass(frozen=True, slots=True)
class Scope:
    """The meaning of names in a query's text."""

    query: ParsedQuery
    streams: Mapping[str, BoundStream]

    def place(self, node: Any) -> Place:
        """The position of a part of the syntax tree."""
        return place_of(self.query.text, node)

    def alias(self, node: Any) -> str:
        """An alias by itself, as in ``WINDOW(A, B)``. Raises: QueryError WA-2111."""
        found = name_in(node.name, self.streams) if type(node).__name__ == "Column" and not node.table else None
        if found is None:
            place = self.place(node)
            raise place.wrong(f"found {place.words!r}", f"one of the streams {', '.join(self.streams)}")
        return found

    def expression(self, node: Any) -> Expression:
        """An expression with its columns resolved to (alias, name). Raises: QueryError WA-2091, WA-2092."""
        return rewritten(from_sqlglot(node, self.query.text), lambda each: self.resolved(each))

    def resolved(self, node: Expression) -> Expression:
        """A column node as (alias, name). Raises: QueryError WA-2092 for an unknown or ambiguous column."""
        table, name = node.value
        aliases = list(self.streams) if table is None else [name_in(table, self.streams)]
        if None in aliases:
            raise node.error(
                Code.SQL_COLUMN, f"there is no stream {table!r}", f"the streams are {', '.join(self.streams)}"
            )
        found = [
            (alias, own) for alias in aliases
            if alias is not None and (own := self.streams[alias].column(name)) is not None
        ]  # fmt: skip
        if len(found) == 1:
            return replace(node, value=found[0])
        if found:
            told = " or ".join(f"{alias}.{own}" for alias, own in found)
            raise node.error(Code.SQL_COLUMN, f"{name!r} does not say of which stream", f"expected {told}")
        known = [own for alias in aliases if alias is not None for own in self.streams[alias].schema.names]
        raise no_column(node, name, known, "" if table is None else f" in {table}")


def no_column(node: Expression, name: str, known: Sequence[str], where: str = "") -> QueryError:
    """The error for an unknown column, with a suggestion."""
    near = difflib.get_close_matches(name, known, 1, 0.5)
    told = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(dict.fromkeys(known))}"
    return node.error(Code.SQL_COLUMN, f"there is no column {name!r}{where}", told)


def conditions_of(clauses: Clauses) -> list[Any]:
    """All conditions: the parts of WHERE and ON that are joined by AND."""
    return [*of_on(clauses), *of_where(clauses)]


def of_on(clauses: Clauses) -> list[Any]:
    """The conditions of ON."""
    return [part for join in clauses.select.args.get("joins") or () for part in conjuncts(join.args.get("on"))]


def of_where(clauses: Clauses) -> list[Any]:
    """The conditions of WHERE."""
    where = clauses.select.args.get("where")
    return list(conjuncts(where.this if where else None))


def is_call(node: Any, name: str) -> bool:
    """Whether a node is a call of this function."""
    return type(node).__name__ == "Anonymous" and str(node.this).upper() == name


def is_window(node: Any) -> bool:
    """Whether a condition contains ``WINDOW(A, B)`` or ``OVERLAPS(A, B)``."""
    return any(is_call(part, "WINDOW") or is_call(part, "OVERLAPS") for part in node.walk())


def name_in(name: str, known: Any) -> str | None:
    """The exact name; case is ignored if that is unambiguous."""
    if name in known:
        return name
    alike = [each for each in known if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def with_options(said: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the text says, and the options of `bind`. Raises: QueryError WA-2006 for one that is both."""
    for name in options:
        if name in said and options[name] is not None:
            by_name = name.removeprefix("left_").removeprefix("right_") == "time"
            raise QueryError(
                Code.BAD_OPTION,
                f"{name} is given, and {'times' if by_name else 'the text'} says it",
                "give times={stream: time}" if by_name else "leave one of them out",
            )
    return {**options, **said}


def query_of(kind: Callable[..., Query], said: Mapping[str, Any], options: Mapping[str, Any]) -> Query:
    """The query of this class by what the text says and the options of `bind`.

    Raises: QueryError WA-2006 for an option that the text says, TypeError for one that the query lacks.
    """
    fields = list(inspect.signature(kind).parameters)
    has_window = "condition" in fields or "windows" in fields
    if options.get("confidence") is not None and "confidence" not in fields and has_window:
        raise QueryError(
            Code.BAD_OPTION, "the text says the confidence, not bind()", "write WITH THRESHOLD p after the window"
        )
    check_known("bind()", options, fields)
    return kind(**with_options(said, options))
