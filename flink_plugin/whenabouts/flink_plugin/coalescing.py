"""Coalescing and the queries on it, as a user of Flink calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.compute as pc

from whenabouts.core.coalescing import Coalesce
from whenabouts.core.durations import Duration
from whenabouts.core.extents import Instant
from whenabouts.core.temporal_aggregate import TemporalAggregate
from whenabouts.core.temporal_join import Matches, TemporalJoin
from whenabouts.core.timestamps import TimeSpec
from whenabouts.core.value_equivalence import Equivalence, Predicate
from whenabouts.flink_plugin.api import Form, run


def coalesce(
    stream: Form,
    *,
    time: str | TimeSpec,
    group: str | Sequence[str] = (),
    values: str | Sequence[str],
    window: Duration | None = None,
    rows: int | None = None,
    per_group: bool = False,
    slide: Duration | None = None,
    at: Instant | None = None,
    equivalence: str | Equivalence | Predicate = "equal",
    scheme: str = "auto",
    closed: str = "both",
    lateness: Duration = 0,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "coalesce",
) -> Form:
    """Consecutive rows of a group whose values are equivalent, merged to one, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.coalesce`; `lateness`, `buckets`, `watermarks`, `name`,
    the forms of streams and rejected rows as in `timing_join`. On a stream an extent comes out once the watermark has
    passed its `window_end`, and without a window a run once the next one has begun. A window of `rows` of all groups
    together goes through one bucket.

    Raises: as `timing_join`; QueryError WA-2006, WA-2021, WA-2022, InputError WA-1023. Cost: packing once, then as
    `whenabouts.core.local.coalesce` in parallel over the buckets.
    """
    query = Coalesce(
        time=time,
        group=group,
        values=values,
        window=window,
        rows=rows,
        per_group=per_group,
        slide=slide,
        at=at,
        equivalence=equivalence,
        scheme=scheme,
        closed=closed,
        lateness=lateness,
    )
    return run(query, [stream], buckets=buckets, watermarks=watermarks, name=name)


def temporal_aggregate(
    stream: Form,
    *,
    time: str | TimeSpec,
    group: str | Sequence[str] = (),
    values: str | Sequence[str],
    aggregates: Mapping[str, str | tuple[str, str]],
    where: pc.Expression | None = None,
    window: Duration | None = None,
    rows: int | None = None,
    per_group: bool = False,
    slide: Duration | None = None,
    at: Instant | None = None,
    equivalence: str | Equivalence | Predicate = "equal",
    scheme: str = "auto",
    closed: str = "both",
    lateness: Duration = 0,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "temporal-aggregate",
) -> Form:
    """For each group, how long its coalesced tuples last in the extents of a window, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.temporal_aggregate` (`where` is an Arrow expression, which
    travels to the workers by pickle); `lateness`, `buckets`, `watermarks`, `name`, rejected rows and when rows
    come out as in `coalesce`.
    """
    query = TemporalAggregate(
        time=time,
        group=group,
        values=values,
        aggregates=aggregates,
        where=where,
        window=window,
        rows=rows,
        per_group=per_group,
        slide=slide,
        at=at,
        equivalence=equivalence,
        scheme=scheme,
        closed=closed,
        lateness=lateness,
    )
    return run(query, [stream], buckets=buckets, watermarks=watermarks, name=name)


def temporal_join(
    left: Form,
    right: Form,
    *,
    time: str | TimeSpec,
    group: str | Sequence[str] = (),
    values: str | Sequence[str],
    on: str | Sequence[str] = (),
    relation: str = "overlaps",
    matches: Matches | None = None,
    min_duration: Duration | None = None,
    suffixes: tuple[str, str] = ("_left", "_right"),
    window: Duration | None = None,
    rows: int | None = None,
    per_group: bool = False,
    slide: Duration | None = None,
    at: Instant | None = None,
    equivalence: str | Equivalence | Predicate = "equal",
    scheme: str = "auto",
    closed: str = "both",
    lateness: Duration = 0,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "temporal-join",
) -> Form:
    """Pairs of coalesced tuples of two windows by when they hold, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.temporal_join` (`matches` travels to the workers by
    pickle); `lateness` (of either side), `buckets`, `watermarks`, `name`,
    rejected rows and when rows come out as in `coalesce`. Tuples are
    spread over buckets by the group columns that `on` names; without any, one bucket does the work.
    """
    query = TemporalJoin(
        time=time,
        group=group,
        values=values,
        on=on,
        relation=relation,
        matches=matches,
        min_duration=min_duration,
        suffixes=suffixes,
        window=window,
        rows=rows,
        per_group=per_group,
        slide=slide,
        at=at,
        equivalence=equivalence,
        scheme=scheme,
        closed=closed,
        lateness=lateness,
    )
    return run(query, [left, right], buckets=buckets, watermarks=watermarks, name=name)
