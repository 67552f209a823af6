"""Coalescing and the queries on it, as a user of Flink calls them."""

from __future__ import annotations

from typing import Unpack

from whenabouts.core.coalescing.operator import Coalesce, CoalesceOptions
from whenabouts.core.durations import Duration
from whenabouts.core.hosting.signatures import takes_options_of
from whenabouts.core.temporal_queries.aggregate import TemporalAggregate, TemporalAggregateOptions
from whenabouts.core.temporal_queries.join import TemporalJoin, TemporalJoinOptions
from whenabouts.core.wrappers.payload_decoding import Payloads
from whenabouts.flink_plugin.api import Form, run


@takes_options_of(Coalesce)
def coalesce(
    stream: Form,
    *,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "coalesce",
    max_latency: Duration | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[CoalesceOptions],
) -> Form:
    """Consecutive rows of a group whose values are equivalent, merged to one, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.coalesce`; `lateness`, `buckets`, `watermarks`, `name`,
    `max_latency`, the forms of streams and rejected rows as in `timing_join`. On a stream an extent comes out once
    the watermark has passed its `window_end`, and without a window a run once the next one has begun. A window of
    `rows` of all groups together goes through one bucket.

    Raises: as `timing_join`; QueryError WA-2006, WA-2021, WA-2022, InputError WA-1023. Cost: packing once, then as
    `whenabouts.core.local.coalesce` in parallel over the buckets.
    """
    return run(
        Coalesce(**options),
        [stream],
        buckets=buckets,
        watermarks=watermarks,
        name=name,
        max_latency=max_latency,
        payloads=payloads,
    )


@takes_options_of(TemporalAggregate)
def temporal_aggregate(
    stream: Form,
    *,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "temporal-aggregate",
    max_latency: Duration | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[TemporalAggregateOptions],
) -> Form:
    """For each group, how long its coalesced tuples last in the extents of a window, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.temporal_aggregate` (`where` is an Arrow expression, which
    travels to the workers by pickle); `lateness`, `buckets`, `watermarks`, `name`, `max_latency`, rejected
    rows and when rows come out as in `coalesce`.
    """
    return run(
        TemporalAggregate(**options),
        [stream],
        buckets=buckets,
        watermarks=watermarks,
        name=name,
        max_latency=max_latency,
        payloads=payloads,
    )


@takes_options_of(TemporalJoin)
def temporal_join(
    left: Form,
    right: Form,
    *,
    buckets: int | None = None,
    watermarks: str = "lateness",
    name: str = "temporal-join",
    max_latency: Duration | None = None,
    payloads: Payloads | None = None,
    **options: Unpack[TemporalJoinOptions],
) -> Form:
    """Pairs of coalesced tuples of two windows by when they hold, in batch or as a stream.

    Arguments and columns are those of `whenabouts.core.local.temporal_join` (`matches` travels to the workers by
    pickle); `lateness` (of either side), `buckets`, `watermarks`, `name`,
    `max_latency`, rejected rows and when rows come out as in `coalesce`. Tuples are
    spread over buckets by the group columns that `on` names; without any, one bucket does the work.
    """
    return run(
        TemporalJoin(**options),
        [left, right],
        buckets=buckets,
        watermarks=watermarks,
        name=name,
        max_latency=max_latency,
        payloads=payloads,
    )
