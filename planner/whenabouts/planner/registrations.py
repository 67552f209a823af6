"""What is registered: a query as it is planned, with what is known of its streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.choices import Value, Workload
from whenabouts.core.costs.eager_lazy_cost import Statistics
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.temporal_queries.join_query import TemporalJoin
from whenabouts.core.wrappers.select_project import SelectProject
from whenabouts.planner.coalescing_plans import CoalescingEntry
from whenabouts.planner.coalescing_queries import CoalescingQuery
from whenabouts.planner.join_plans import Joining, inner_of
from whenabouts.planner.plans import Scheme
from whenabouts.planner.state_forecast import row_bytes
from whenabouts.planner.streams import Stream, lateness_of_streams, load_over
from whenabouts.planner.text_queries import TextQuery, parse_query

Registrable: TypeAlias = str | TextQuery | Coalesce | CoalescingQuery | Joining


@dataclass(frozen=True, slots=True)
class JoinEntry:
    """A registered join: its query, the stream of each input, what is known of them, and pinned options."""

    query: Joining
    streams: tuple[str, ...]
    load: Workload
    pins: dict[str, Value]


def read_query(query: Registrable, streams: Mapping[str, Stream]) -> Any:
    """Text as a query. A text that joins is bound to the descriptions of its streams."""
    if isinstance(query, str):
        query = parse_query(query)
    if not isinstance(query, TextQuery) or not query.joins:
        return query
    return _bound(query, streams)


def _bound(query: TextQuery, streams: Mapping[str, Stream]) -> SelectProject:
    """A text over the descriptions of its streams."""
    schemas = {name: each.schema for name, each in streams.items() if each.schema is not None}
    mine = {name: streams[name] for name in query.streams if name in streams}
    times = {name: each.time for name, each in mine.items() if each.time is not None}
    return query.bind(schemas, times, lateness_of_streams({name: each.lateness for name, each in mine.items()}))


def join_entry(
    query: Joining,
    registered: Registrable,
    statistics: Any,
    stream: str | Sequence[str] | None,
    streams: Mapping[str, Stream],
    defaults: Workload,
) -> JoinEntry:
    """A join to be planned. `registered` is what the user gave, and `query` what was read from it."""
    if isinstance(statistics, Statistics):
        raise QueryError(Code.BAD_OPTION, "a join is given Statistics, which describe coalescing", "give a Workload")
    inputs = inner_of(query).inputs
    over: Sequence[str] = inputs if stream is None else (stream,) if isinstance(stream, str) else tuple(stream)
    if isinstance(registered, str | TextQuery):
        text = parse_query(registered) if isinstance(registered, str) else registered
        over = [source.stream for source in text.sources]
    if len(over) != len(inputs):
        raise QueryError(
            Code.BAD_OPTION, f"{len(over)} streams are named for {len(inputs)} inputs", "name one for each input"
        )
    load = load_over(dict(zip(inputs, over, strict=True)), streams, with_defaults(statistics, defaults))
    return JoinEntry(query, tuple(over), _with_row_bytes(query, tuple(over), load, streams), {})


def with_defaults(known: Workload | None, defaults: Workload) -> Workload:
    """What is known of a join; step, tasks and prices are the registry's where it does not say."""
    if known is None:
        return defaults
    return replace(
        known,
        every=known.every or defaults.every,
        parallelism=max(known.parallelism, defaults.parallelism),
        timing_prices=known.timing_prices or defaults.timing_prices,
    )


def _with_row_bytes(query: Joining, over: tuple[str, ...], load: Workload, streams: Mapping[str, Stream]) -> Workload:
    """The workload with the bytes of the streams' rows, if all columns are known."""
    schemas = [streams[name].schema for name in over if name in streams]
    known = [schema for schema in schemas if schema is not None]
    if load.row_bytes or len(known) < len(over):
        return load
    try:
        return replace(load, row_bytes=row_bytes(query, known))
    except QueryError:  # it cannot run as a stream, so it has no state to forecast
        return load


def coalescing_entry(
    query: Any,
    statistics: Any,
    stream: str | Sequence[str] | None,
    streams: Mapping[str, Stream],
    max_scan_time: float | None,
) -> CoalescingEntry:
    """A coalescing query to be planned."""
    if isinstance(statistics, Workload):
        raise QueryError(Code.BAD_OPTION, "a coalescing query is given a Workload", "give Statistics")
    runs = query
    if isinstance(query, CoalescingQuery):
        planned, runs = query, None
    elif isinstance(query, TextQuery):
        described = streams.get(query.streams[0])
        if described is not None and described.schema is not None:  # report unknown columns now
            _bound(query, streams)
        planned = query.distinct()
    elif isinstance(query, Coalesce) and not isinstance(query, TemporalJoin):
        planned = CoalescingQuery.of(query, stream if isinstance(stream, str) else "stream")
    else:
        raise QueryError(
            Code.BAD_OPTION, f"a {type(query).__name__} cannot be planned",
            "give text, a Coalesce, a TemporalAggregate, a CoalescingQuery, a TimingJoin, an AsofJoin, a JoinAggregate "
            "or a WindowJoin",
        )  # fmt: skip
    known = statistics
    if known is None:
        described = streams.get(planned.stream)
        known = Statistics(rate=None if described is None else described.rate, source="default")
    return CoalescingEntry(planned, runs, known, max_scan_time, scheme_of(runs))


def scheme_of(runs: object) -> Scheme | None:
    """The scheme that a query object asks for: a pin, as any option that is not `auto`."""
    asked = runs.scheme if isinstance(runs, Coalesce) else "auto"
    return cast(Scheme, asked) if asked in ("eager", "lazy") else None
