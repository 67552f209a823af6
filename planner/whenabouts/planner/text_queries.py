"""Queries as text, in the forms of the papers, become query objects that every engine runs.

    SELECT * FROM seismic A, acoustic B
    WHERE A.region = B.region AND WINDOW(A, B) = INTERVAL '2' SECOND WITH THRESHOLD 0.6

    SELECT A.id, B.id, C.id FROM gate A, hall B, exit C
    WHERE A.gas = B.gas AND B.gas = C.gas AND WINDOW(A, B) = '2 s' AND WINDOW(B, C) BETWEEN '0 s' AND '5 s'

    SELECT region, MAX(DURATION(VALID(s))) AS longest FROM s [RANGE 24 HOUR SLIDE 1 HOUR]
    COALESCE ON temperature > 100 GROUP BY region

    SELECT A.id, B.bid FROM trades A ASOF LEFT JOIN quotes B ON A.symbol = B.symbol AND A.ts >= B.ts

    SELECT o.id, SUM(p.amount), PROBABILITY(COUNT(p) = 0) FROM orders o, payments p
    WHERE WINDOW(o, p) BETWEEN '-5 minutes' AND '0 s' WITH THRESHOLD 0.9 GROUP BY o

PTJoin (section 3), W-join (section 2) and Al-Kateb et al. (section 1, Examples 1 and 2). A text does not
say where its streams come from and which columns have the times: that is given when it is bound to schemas.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.schemas import arrow_schema_of
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.times.time_specs import Interval, Point, TimeSpec
from whenabouts.planner.query_text import Clauses, place_of, take_apart
from whenabouts.planner.text_clauses import Place
from whenabouts.planner.text_scope import BoundStream, ParsedQuery, Scope, Source, conditions_of, is_window

if TYPE_CHECKING:
    from whenabouts.core.wrappers.select_project import SelectProject
    from whenabouts.planner.coalescing_queries import CoalescingQuery


MOST_STREAMS = 64
"""The most streams in FROM: the cost of implied windows grows with the cube of their number."""

_MODES: dict[tuple[str, str], str | None] = {
    **dict.fromkeys((("", ""), ("", "INNER"), ("", "CROSS"))),
    **{(side, kind): f"{side.lower()}_outer" for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")},
    **{(side, kind): f"left_{kind.lower()}" for side in ("", "LEFT") for kind in ("SEMI", "ANTI")},
}
"""By side and kind of a JOIN in sqlglot's tree: its `how`, None if it pairs rows only."""

_JOINS = "[LEFT | RIGHT | FULL] [OUTER], [LEFT] SEMI or [LEFT] ANTI"

TIME_NAMES = ("t", "ts", "time", "timestamp", "event_time")
"""Usual names of time columns, for streams whose types do not determine the time column."""


@dataclass(frozen=True, slots=True)
class TextQuery(ParsedQuery):
    """A parsed query. Its form and streams are known; its columns have not been checked."""

    def bind(
        self,
        schemas: Mapping[str, Any],
        times: Mapping[str, TimeSpec] | None = None,
        lateness: Duration | Mapping[str, Duration] | None = None,
        **options: Any,
    ) -> SelectProject:
        """The query over streams of these schemas; its inputs are the streams of FROM, in that order.

        ``schemas``: Arrow's or an engine's, see `Registry.share`. ``times`` and ``lateness``: by alias or stream; a
        missing time is determined by `time_of`, and without a lateness the query declares none. ``options`` go to
        the query itself (``strategy``, ``scheme``, ``conservative``, ``time_slots``, ...).

        Raises: QueryError WA-2006 for a time or a lateness of no stream, for an option that the text says, and for
        wrong objects; WA-2092 for an unknown column, WA-2113 for a stream without a schema, WA-2114 for an unknown
        time, WA-2111 and WA-2112 for anything that the form does not support, each with line and column; and what the
        query itself raises. TypeError for an option that the query lacks.

        >>> text = "SELECT room, n FROM s COALESCE ON lamp GROUP BY room"
        >>> query = parse_query(text).bind({"s": pa.schema({"t": pa.int64(), "room": pa.int64(), "lamp": pa.bool_()})})
        >>> query.query.values, [name for name, _ in query.columns]
        (('lamp',), ['room', 'n'])
        """
        from whenabouts.planner.text_aggregates import bind_aggregates
        from whenabouts.planner.text_asof import bind_asof
        from whenabouts.planner.text_coalescing import bind_coalescing
        from whenabouts.planner.text_joins import bind_join
        from whenabouts.planner.text_temporal_joins import bind_temporal_join

        schemas = dict(checks.items_of("schemas", schemas, "give the schema of each stream by its name"))
        given, late = self._by_stream("times", {} if times is None else times), lateness
        if isinstance(late, Mapping):
            late = self._by_stream("lateness", late)
        streams: dict[str, BoundStream] = {}
        for source in self.sources:
            if source.stream not in schemas:
                only = f", only {', '.join(schemas)}" if schemas else ""
                raise source.place.placed(
                    QueryError(
                        Code.UNKNOWN_STREAM,
                        f"no stream {source.stream!r} is given{only}",
                        f"give a schema for {source.stream!r}",
                    )
                )
            schema = arrow_schema_of(schemas[source.stream], source.stream)
            time = given.get(source.alias, given.get(source.stream)) or time_of(source.stream, schema)
            of_stream = late.get(source.alias, late.get(source.stream)) if isinstance(late, Mapping) else late
            streams[source.alias] = BoundStream(source, schema, time, of_stream)
        scope = Scope(self, streams)
        with not_too_deep(self.text):
            forms = {
                "join": bind_join, "join aggregate": bind_aggregates, "as-of join": bind_asof,
                "coalesce": bind_coalescing, "temporal join": bind_temporal_join,
            }  # fmt: skip
            return forms[self.form](scope, options)

    def _by_stream(self, what: str, given: Any) -> dict[str, Any]:
        """What is given by alias or stream. Raises: QueryError WA-2006 for names that the text does not have."""
        hint = "give a time by the name of its stream" if what == "times" else "give a duration, or one by stream"
        found: dict[Any, Any] = dict(checks.items_of(what, given, hint))
        known = list(dict.fromkeys(name for source in self.sources for name in (source.alias, source.stream)))
        for name, value in found.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
                told = f"did you mean {near[0]!r}?" if near else "give one of these names, or leave it out"
                raise QueryError(
                    Code.BAD_OPTION, f"{what} names {name!r}, and the streams are {', '.join(known)}", told
                )
            if what == "times" and value is not None:
                checks.time_of(f"times[{name!r}]", value)
        return found

    @property
    def notes(self) -> list[str]:
        """What a reader of the text may expect otherwise: how a join treats left rows without a partner.

        >>> parse_query("SELECT * FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t").notes
        ['ASOF JOIN drops left rows without a partner, as in DuckDB and ClickHouse; ASOF LEFT JOIN keeps them']
        """
        if self.form == "join aggregate":
            from whenabouts.planner.text_aggregates import notes_of

            return notes_of(self.clauses, self.sources)
        if self.form != "as-of join":
            return []
        (join,) = self.clauses.select.args["joins"]
        if join.side or join.kind:
            return []
        if self.clauses.match is not None:
            return ["MATCH_CONDITION keeps left rows without a partner, as in Snowflake; ASOF INNER JOIN drops them"]
        return ["ASOF JOIN drops left rows without a partner, as in DuckDB and ClickHouse; ASOF LEFT JOIN keeps them"]

    def distinct(self) -> CoalescingQuery:
        """The planner's view of this coalescing query.

        Raises: QueryError WA-2112 for a query of another form.

        >>> parse_query("SELECT * FROM s [ROWS 9] COALESCE ON a, b GROUP BY k").distinct().coalesce
        ('a', 'b')
        """
        from whenabouts.planner.text_coalescing import distinct_query

        return distinct_query(self)


def parse_query(text: str) -> TextQuery:
    """Parse a query of one of the forms: a join, a join grouped by its first stream, an as-of join, or coalescing.

    Raises: QueryError WA-2111 for syntax errors and WA-2112 for SQL of another form, both with line, column and what
    was expected; WA-2007 if sqlglot is not installed.

    >>> parse_query("SELECT * FROM a, b WHERE WINDOW(a, b) = '2 s'").form
    'join'
    >>> parse_query("SELECT * FROM a WHERE")
    Traceback (most recent call last):
        ...
    whenabouts.core.errors.QueryError: WA-2111: line 1, column 17: something is missing near 'WHERE' \
(hint: expected an expression or a name there)
    """
    given: object = text
    if not isinstance(given, str):
        raise checks.refused("the query", given, "give a SELECT as text")
    with not_too_deep(text):
        return _parsed(text)


@contextmanager
def not_too_deep(text: str) -> Iterator[None]:
    """Refuse text that is nested too deeply for recursion (QueryError WA-2111)."""
    try:
        yield
    except RecursionError:
        raise Place(text, 0, len(text)).wrong("this is nested too deeply", "a shorter chain of operations") from None


def _parsed(text: str) -> TextQuery:
    clauses = take_apart(text)
    _refuse_the_rest(text, clauses)
    sources = _sources(text, clauses)
    if _is_asof(text, clauses):
        _refuse_group(text, clauses)
        return TextQuery(text, clauses, sources, "as-of join")
    query = TextQuery(text, clauses, sources, "join", _mode(text, clauses))
    if clauses.emit_at is not None and (clauses.coalesce_at is None or len(sources) > 1):
        raise clauses.emit_at.wrong(
            f"{clauses.emit_at.words} without one stream to coalesce", "FROM one stream and COALESCE ON",
            Code.UNSUPPORTED_TEXT,
        )  # fmt: skip
    if clauses.coalesce_at is not None:
        if len(sources) > 2:
            raise sources[2].place.wrong("a third stream", "one stream to coalesce, or two to relate")
        if (group := clauses.select.args.get("group")) is not None:
            _refuse_parts(text, group, ("expressions",), place_of(text, group))
        return replace(query, form="coalesce" if len(sources) == 1 else "temporal join")
    for source in sources:
        if source.window is not None:
            raise source.window.place.wrong(
                "a window of one stream", "COALESCE ON what, or WINDOW(A, B) = ... in WHERE"
            )
    if len(sources) < 2 or not any(is_window(part) for part in conditions_of(clauses)):
        raise clauses.place.wrong(
            "this correlates nothing", "WINDOW(A, B) = INTERVAL '2' SECOND in WHERE, or COALESCE ON columns",
            Code.UNSUPPORTED_TEXT,
        )  # fmt: skip
    from whenabouts.planner.text_aggregates import is_grouped

    return replace(query, form="join aggregate") if is_grouped(text, clauses, sources) else query


def time_of(stream: str, schema: pa.Schema) -> TimeSpec:
    """The time of a stream, from its columns: ``t_min`` and ``t_max``, else the only timestamp, else a usual name.

    Raises: QueryError WA-2114 if the columns do not determine it.

    >>> time_of("s", pa.schema({"ts": pa.int64(), "v": pa.int64()}))
    Point(t='ts')
    """
    if {"t_min", "t_max"} <= set(schema.names):
        return Interval("t_min", "t_max")
    stamps = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    usual = [name for name in TIME_NAMES if name in schema.names]
    for known in (stamps, usual):
        if len(known) == 1:
            return Point(known[0])
    raise QueryError(
        Code.NO_TIME,
        f"which column of stream {stream!r} holds its times cannot be told from {', '.join(schema.names)}",
        f"name it: --time {stream}=COLUMN, or times={{{stream!r}: Point(...)}}",
    )


def _sources(text: str, clauses: Clauses) -> tuple[Source, ...]:
    select = clauses.select
    origin = select.args.get("from_") or select.args.get("from")
    if origin is None:
        raise clauses.place.wrong("there is no FROM", "FROM stream")
    tables = [origin.this, *(join.this for join in select.args.get("joins") or ())]
    if len(tables) > MOST_STREAMS:
        raise place_of(text, tables[MOST_STREAMS]).wrong(
            f"this is stream {MOST_STREAMS + 1}", f"{MOST_STREAMS} streams at most", Code.UNSUPPORTED_TEXT
        )
    found: dict[str, Source] = {}
    windows = dict(clauses.windows)
    for table in tables:
        place = place_of(text, table)
        plain = (
            type(table).__name__ == "Table"
            and type(table.this).__name__ == "Identifier"
            and not table.alias_column_names
        )
        if not plain or any(part and name not in ("this", "alias") for name, part in table.args.items()):
            raise place.wrong(f"found {place.words!r}", "the name of a stream", Code.UNSUPPORTED_TEXT)
        mine = [windows.pop(start) for start in _starts(table) if start in windows]
        if len(mine) > 1:
            raise mine[1].place.wrong("a second window of one stream", "one window behind a stream")
        window = mine[0] if mine else None
        alias = table.alias or table.name
        if alias in found:
            raise place.wrong(f"two streams are called {alias!r}", f"another name: {table.name} AS ...")
        found[alias] = Source(alias, table.name, window, place)
    for window in windows.values():
        raise window.place.wrong("a window behind no stream", "it behind a stream in FROM")
    return tuple(found.values())


def _starts(table: Any) -> list[int]:
    """Positions of the name and the alias of a stream: a window may follow either."""
    return [part.meta["start"] for part in table.walk() if "start" in part.meta]


def _refuse_the_rest(text: str, clauses: Clauses) -> None:
    """Refuse what no form supports: clauses of SQL, and words around ``*``."""
    from sqlglot import exp

    select = clauses.select
    _refuse_parts(text, select, ("expressions", "from_", "from", "joins", "where", "group"), clauses.place)
    for join in select.args.get("joins") or ():
        _refuse_parts(text, join, ("this", "on", "using", "method", "side", "kind"), place_of(text, join))
    for item in select.expressions:
        inner = item.this if type(item).__name__ == "Alias" else item
        starred = inner.this if type(inner).__name__ == "Column" else inner
        if type(starred).__name__ == "Star" and (item is not inner or inner.args.get("db")):
            raise place_of(text, item).wrong(f"found {item.sql()[:200]!r}", "* or stream.*", Code.UNSUPPORTED_TEXT)
    for star in select.find_all(exp.Star):
        if any(star.args.values()):  # EXCEPT and the like
            raise place_of(text, star).wrong(f"found {star.sql()[:200]!r}", "*", Code.UNSUPPORTED_TEXT)


def _refuse_parts(text: str, node: Any, known: Sequence[str], otherwise: Place) -> None:
    """Refuse a node of the syntax tree with other parts than the known ones."""
    for name, part in node.args.items():
        if part and name not in known:
            first = part[0] if isinstance(part, list) else part
            place = place_of(text, first) if hasattr(first, "walk") else otherwise
            raise place.wrong(
                f"{name.replace('_', ' ').upper()} is not available", "SELECT, FROM, WHERE, COALESCE ON and GROUP BY",
                Code.UNSUPPORTED_TEXT,
            )  # fmt: skip


def _refuse_group(text: str, clauses: Clauses) -> None:
    """Refuse GROUP BY in an as-of join."""
    group = clauses.select.args.get("group")
    if group is not None:
        raise place_of(text, group).wrong(
            "GROUP BY in an as-of join", "it without GROUP BY, or a join with WINDOW(A, B)", Code.UNSUPPORTED_TEXT
        )


def _is_asof(text: str, clauses: Clauses) -> bool:
    """Whether this is an as-of join of two streams."""
    joins = clauses.select.args.get("joins") or ()
    asof = [join for join in joins if join.method == "ASOF"]
    if not asof:
        for found, words in ((clauses.match_at, "MATCH_CONDITION"), (clauses.tolerance_at, "TOLERANCE")):
            if found is not None:
                raise found.wrong(f"{words} without ASOF JOIN", "FROM a ASOF JOIN b", Code.UNSUPPORTED_TEXT)
        return False
    place = place_of(text, asof[0])
    if len(joins) > 1 or clauses.coalesce_at is not None or clauses.emit_at is not None or clauses.windows:
        raise place.wrong("ASOF JOIN in this query", "one of two streams alone", Code.UNSUPPORTED_TEXT)
    if (asof[0].side, asof[0].kind) not in (("", ""), ("LEFT", ""), ("LEFT", "OUTER"), ("", "INNER")):
        words = " ".join(filter(None, ("ASOF", asof[0].side, asof[0].kind, "JOIN")))
        raise place.wrong(f"{words} is not available", "ASOF [LEFT | INNER] JOIN", Code.UNSUPPORTED_TEXT)
    return True


def _mode(text: str, clauses: Clauses) -> str | None:
    """`how` of an outer, semi or anti join of two streams; None for a comma and a plain JOIN."""
    joins = clauses.select.args.get("joins") or ()
    found = None
    for join in joins:
        place, words = place_of(text, join), " ".join(filter(None, (join.method, join.side, join.kind))) or "USING"
        how = _MODES.get((join.side, join.kind), "")
        if how == "" or join.method or any(part in join.args for part in ("using", "match_condition")):
            raise place.wrong(f"{words} is not available", f"a comma, or {_JOINS} JOIN ... ON", Code.UNSUPPORTED_TEXT)
        if how is None:
            continue
        found = how
        if len(joins) > 1 or clauses.coalesce_at is not None:
            raise place.wrong(f"{words} JOIN in this query", "one of two streams alone", Code.UNSUPPORTED_TEXT)
        if join.args.get("on") is None:
            raise place.wrong(f"{words} JOIN without ON", "ON WINDOW(A, B) = ...")
    return found
