"""Joins and streams in plan files, as query objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.join_aggregate.query import JoinAggregate
from whenabouts.core.times.condition_keywords import CONDITION_KEYWORDS, condition_of
from whenabouts.core.times.time_specs import Interval, Point, TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.graph import Edge, edge_of
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.planner.plan_text import shown
from whenabouts.planner.streams import Stream, lateness_of_sides, lateness_of_streams
from whenabouts.planner.text_queries import time_of

STREAM_KEYS = frozenset({"columns", "time", "max_uncertainty", "min_uncertainty", "lateness", "rate", "keys"})
OF_BOTH = frozenset({"name", "on", "strategy", "statistics", "pin", "time_slots"})
JOIN_KEYS = OF_BOTH | {
    "join", *CONDITION_KEYWORDS, "how", "best", "ties", "where", "block_size", "max_latency",
}  # fmt: skip
ASOF_OPTIONS = (
    "direction",
    "tolerance",
    "allow_exact_matches",
    "confidence",
    "keep",
    "how",
    "order_by",
    "max_candidates",
)
ASOF_JOIN_KEYS = (OF_BOTH - {"strategy"}) | {"asof_join", *ASOF_OPTIONS}
JOIN_AGGREGATE_KEYS = (OF_BOTH - {"strategy"}) | {
    "join_aggregate", *CONDITION_KEYWORDS, "aggregates", "how", "most_uncertain", "folding",
}  # fmt: skip
WINDOW_JOIN_KEYS = OF_BOTH | {"window_join", "windows", "conservative", "method"}


def stream_of(found: Mapping[str, Any], at: str, known: Stream | None = None) -> Stream:
    """A stream as a file describes it; `known` supplies what the file leaves out.

    >>> stream_of({"time": "t_min,t_max", "max_uncertainty": "2 s", "rate": 5}, "streams.s").time.max_uncertainty_us
    2000000
    """
    base = known or Stream()
    columns = found.get("columns")
    schema = base.schema if columns is None else _schema(columns, at)
    time = _time(found, at) if "time" in found else base.time
    rate, keys = found.get("rate", base.rate), found.get("keys", base.keys)
    for what, number in (("rate", rate), ("keys", keys)):
        if number is not None and not isinstance(number, int | float):
            raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {what} is {shown(number)}", "give a number")
    source = "declared" if "rate" in found else base.source
    return replace(
        base,
        schema=schema,
        time=time,
        lateness=found.get("lateness", base.lateness),
        rate=rate,
        keys=keys,
        source=source,
    )


def _schema(columns: Any, at: str) -> pa.Schema:
    if not isinstance(columns, Mapping):
        raise QueryError(
            Code.BAD_PLAN_FILE, f"{at}: columns is {shown(columns)}", "give names with types, as {id: int64}"
        )
    fields = []
    for name, type_name in columns.items():
        try:
            kind = pa.timestamp("us") if type_name == "timestamp" else pa.type_for_alias(str(type_name))
        except ValueError:
            raise QueryError(
                Code.BAD_PLAN_FILE,
                f"{at}: column {name} is of type {shown(type_name)}",
                "as int64, double, string, timestamp",
            ) from None
        fields.append(pa.field(str(name), kind))
    return pa.schema(fields)


def _time(found: Mapping[str, Any], at: str) -> TimeSpec:
    columns = [part.strip() for part in str(found["time"]).split(",")]
    if len(columns) == 1:
        return Point(columns[0])
    if len(columns) != 2:
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: time is {shown(found['time'])}", "give t, or t_min,t_max")
    longest, shortest = found.get("max_uncertainty"), found.get("min_uncertainty", 0)
    return Interval(columns[0], columns[1], max_uncertainty=longest, min_uncertainty=shortest)


def timing_join_of(query: Mapping[str, Any], at: str, streams: Mapping[str, Stream]) -> TimingJoin:
    """``join: [a, b]`` with the keywords of a condition."""
    names = _two_streams(query, "join", at)
    if not isinstance(query.get("where", ""), str):
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: where is {shown(query['where'])}", "give an SQL condition")
    left, right = (_described(name, at, streams) for name in names)
    plain = ("how", "best", "ties", "where", "strategy", "block_size", "max_latency", "time_slots")
    return TimingJoin(
        left_time=time_in(names[0], left, at),
        right_time=time_in(names[1], right, at),
        condition=condition_of(query),
        on=query.get("on"),
        lateness=lateness_of_sides(left.lateness, right.lateness),
        **{name: query[name] for name in plain if name in query},
    )


def asof_join_of(query: Mapping[str, Any], at: str, streams: Mapping[str, Stream]) -> AsofJoin:
    """``asof_join: [trades, quotes]`` with its options."""
    names = _two_streams(query, "asof_join", at)
    left, right = (_described(name, at, streams) for name in names)
    return AsofJoin(
        left_time=time_in(names[0], left, at),
        right_time=time_in(names[1], right, at),
        on=query.get("on"),
        lateness=lateness_of_sides(left.lateness, right.lateness),
        **{name: query[name] for name in (*ASOF_OPTIONS, "time_slots") if name in query},
    )


def join_aggregate_of(query: Mapping[str, Any], at: str, streams: Mapping[str, Stream]) -> JoinAggregate:
    """``join_aggregate: [orders, payments]`` with the keywords of a condition and ``aggregates: {n: count}``."""
    names = _two_streams(query, "join_aggregate", at)
    left, right = (_described(name, at, streams) for name in names)
    return JoinAggregate(
        left_time=time_in(names[0], left, at),
        right_time=time_in(names[1], right, at),
        condition=condition_of(query, needs_confidence=False),
        aggregates=query.get("aggregates"),
        on=query.get("on"),
        lateness=lateness_of_sides(left.lateness, right.lateness),
        **{name: query[name] for name in ("how", "most_uncertain", "folding", "time_slots") if name in query},
    )


def window_join_of(query: Mapping[str, Any], at: str, streams: Mapping[str, Stream]) -> WindowJoin:
    """``window_join: [a, b]`` with ``windows: {"a,b": 2 s}``, or ``[lo, hi]``, or ``{within: 2 s, confidence: 1}``."""
    names = _names(query["window_join"], f"{at}: window_join")
    windows = query.get("windows")
    if not isinstance(windows, Mapping):
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: windows is {shown(windows)}", 'give {"a,b": 2 s}')
    described = {name: _described(name, at, streams) for name in names}
    plain = ("strategy", "conservative", "method", "time_slots")
    return WindowJoin(
        times={name: time_in(name, stream, at) for name, stream in described.items()},
        windows=tuple(_edge(str(pair), window, f"{at}: windows") for pair, window in windows.items()),
        on=query.get("on"),
        lateness=lateness_of_streams({name: stream.lateness for name, stream in described.items()}),
        **{name: query[name] for name in plain if name in query},
    )


def _edge(pair: str, window: Any, at: str) -> Edge:
    names = [name.strip() for name in pair.split(",")]
    if len(names) != 2:
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {shown(pair)}", "name two streams, as a,b")
    if isinstance(window, Mapping):
        unknown = [str(name) for name in window if name not in CONDITION_KEYWORDS]
        if unknown:
            known = ", ".join(CONDITION_KEYWORDS)
            raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {pair}: unknown {', '.join(unknown)}", f"known are {known}")
        return edge_of(names[0], names[1], condition_of(window))
    return edge_of(names[0], names[1], _two(window, at) if isinstance(window, list) else window)


def time_in(name: str, stream: Stream, at: str) -> TimeSpec:
    """The time of a stream. Raises: QueryError WA-2114 if it is not known."""
    if stream.time is not None:
        return stream.time
    if stream.schema is None:
        raise QueryError(
            Code.NO_TIME,
            f"{at}: the times of stream {name!r} are not known",
            f"declare them in streams: {name}: {{time: t}}",
        )
    return time_of(name, stream.schema)


def _described(name: str, at: str, streams: Mapping[str, Stream]) -> Stream:
    if name not in streams:
        raise QueryError(
            Code.UNKNOWN_STREAM, f"{at}: no stream {name!r} is described", f"one of {', '.join(streams) or 'none'}"
        )
    return streams[name]


def _names(value: Any, at: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise QueryError(Code.BAD_PLAN_FILE, f"{at} is {shown(value)}", "give a list of names")
    return tuple(names)


def _two_streams(query: Mapping[str, Any], kind: str, at: str) -> tuple[str, ...]:
    names = _names(query[kind], f"{at}: {kind}")
    if len(names) != 2:
        raise QueryError(Code.BAD_PLAN_FILE, f"{at}: {kind} is {shown(query[kind])}", "name two streams")
    return names


def _two(value: Any, at: str) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise QueryError(Code.BAD_PLAN_FILE, f"{at} is {shown(value)}", "give [lo, hi]")
    return value[0], value[1]


Reader = Callable[[Mapping[str, Any], str, Mapping[str, Stream]], Any]

JOINS: dict[str, tuple[frozenset[str], Reader]] = {
    "join": (JOIN_KEYS, timing_join_of),
    "asof_join": (ASOF_JOIN_KEYS, asof_join_of),
    "join_aggregate": (JOIN_AGGREGATE_KEYS, join_aggregate_of),
    "window_join": (WINDOW_JOIN_KEYS, window_join_of),
}
"""By the key that names the streams of a join: its keys, and what reads it."""
