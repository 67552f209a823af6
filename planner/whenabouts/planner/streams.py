"""Descriptions of the streams that queries are registered over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from whenabouts.core.costs.choices import Source, Workload
from whenabouts.core.durations import Duration
from whenabouts.core.hosting.schemas import arrow_schema_of
from whenabouts.core.times.lateness import Lateness
from whenabouts.core.times.time_specs import TimeSpec


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream: its columns, times, lateness and rate.

    ``schema``: Arrow's or an engine's (see `Registry.share`); queries as text that join need it. ``time`` may be left
    out if the columns determine it (`time_of`). ``lateness`` None: not declared; Spark refuses to run a query over
    such a stream. ``rate``: rows per second of event time. ``keys``: the number of keys, for joins. ``source``: where
    the rate comes from.

    Raises: QueryError WA-2072 for a rate or a number of keys that is not above 0.
    """

    schema: Any = None
    time: TimeSpec | None = None
    lateness: Duration | None = None
    rate: float | None = None
    keys: float = 1.0
    source: Source = "declared"

    def __post_init__(self) -> None:
        if self.schema is not None:
            object.__setattr__(self, "schema", arrow_schema_of(self.schema, "the stream"))
        Workload(rates={} if self.rate is None else {"the stream": self.rate}, keys=self.keys)


def load_over(inputs: Mapping[str, str], streams: Mapping[str, Stream], known: Workload) -> Workload:
    """The workload of a query: `known`, with rates and keys of its streams (input -> stream) if it has no rates.

    >>> load_over({"left": "a", "right": "a"}, {"a": Stream(rate=5.0)}, Workload()).rates
    {'left': 5.0, 'right': 5.0}
    """
    mine = {input: streams[name] for input, name in inputs.items() if name in streams}
    rates = {input: stream.rate for input, stream in mine.items() if stream.rate is not None}
    if known.rates or len(rates) < len(inputs):
        return known
    source: Source = "measured" if all(stream.source == "measured" for stream in mine.values()) else "declared"
    keys = max(stream.keys for stream in mine.values()) if known.keys == 1.0 else known.keys
    return replace(known, rates=rates, keys=keys, source=source)


def lateness_of_sides(left: Duration | None, right: Duration | None) -> Lateness | None:
    """The lateness of a join of two streams; None if neither stream declares one.

    >>> lateness_of_sides(None, "2 s"), lateness_of_sides(None, None)
    (Lateness(left=0, right=2000000, idle_after=None), None)
    """
    return None if left is None and right is None else Lateness(left or 0, right or 0)


def lateness_of_streams(by_name: Mapping[str, Duration | None]) -> dict[str, Duration] | None:
    """The lateness by stream; None if no stream declares one.

    >>> lateness_of_streams({"a": None, "b": "2 s"}), lateness_of_streams({"a": None})
    ({'b': '2 s'}, None)
    """
    return {name: each for name, each in by_name.items() if each is not None} or None
