"""Forecasts the state of a query before it runs, from the query, the rates and the size of a step.

A row is kept as long as a later row can need it: until the watermark has passed its `t_max` by `kept_for_us`. After a
step that spans `every` of event time, the watermark in force is that of the step before, `lateness` behind its last
row. So the rows of the last `every + lateness + kept` are held. Segments, four for each step, are deleted as a whole:
on average an eighth of a step's rows is held longer. With time slots a row counts once for each copy. An as-of join
holds rows of each key beside these (`costs.choices.Holding`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.costs.choices import Choice, Choosing, Value, Workload, held_of, ruled
from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.input_checks import check_query
from whenabouts.core.hosting.schemas import arrow_schema_of
from whenabouts.core.html_tables import html_table
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.state.segment_codec import stored_fields
from whenabouts.core.state.segment_layout import SEGMENTS_PER_STEP
from whenabouts.planner.byte_sizes import format_bytes

BYTES_OF_TEXT = 16
"""Mean bytes of a column of variable width, unless the caller knows better, besides four bytes for its offset."""

BYTES_PER_BUCKET = 64 << 20
"""The most state that a bucket should have: a step loads the part that its rows can reach."""


class StateForecast(NamedTuple):
    """Rows of an input that are held after a step, and their bytes."""

    rows: float
    bytes: float


class StateForecasts(dict[str, StateForecast]):
    """Forecasts by input. In a notebook a table, with the sums."""

    def _repr_html_(self) -> str:
        return state_table("Expected state", self)


def state_table(title: str, inputs: Mapping[str, tuple[float, float]]) -> str:
    """Rows and bytes by input as HTML, and their sums.

    >>> "3 KiB in all" in state_table("State", {"left": (10.0, 1024.0), "right": (20.4, 2048.0)})
    True
    """
    rows = [(name, f"{held:,.0f}", format_bytes(size)) for name, (held, size) in inputs.items()]
    held, size = (sum(each[at] for each in inputs.values()) for at in (0, 1))
    return html_table(title, ["input", "rows", "bytes"], rows, f"{held:,.0f} rows, {format_bytes(size)} in all")


def forecast_state(
    query: Query,
    schemas: Sequence[pa.Schema],
    rates: Sequence[float] | Mapping[str, float],
    *,
    every: Duration,
    keys: float = 1.0,
    text: Mapping[str, float] | None = None,
) -> StateForecasts:
    """The state of a streaming query by input, at `rates` rows per second in steps of `every`.

    For timing joins that are plain inner ones (other modes keep marks or notes on top of it), as-of joins, join
    aggregates, window joins, and lazy coalescing over a window of time. `rates`: in the order of the inputs, or by
    input. `keys`: the number of keys, for each of which an as-of join keeps rows. `text`: mean bytes of columns whose
    width varies (16 otherwise). Raises QueryError WA-2006 for another query, or another number of schemas or rates,
    WA-2072 for rates that are no numbers above 0, and what `query.operator` raises for a stream.

    >>> from whenabouts.core import Lateness, Point, within
    >>> from whenabouts.core.timing_join.query import TimingJoin
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("5 s", confidence=1),
    ...                    lateness=Lateness("2 s", "2 s"))
    >>> schema = pa.schema({"t": pa.timestamp("us"), "id": pa.int64()})
    >>> forecast_state(query, [schema, schema], [100, 10], every="8 s")["left"]
    StateForecast(rows=1600.0, bytes=25600.0)
    """
    check_query(query)
    if not isinstance(query, Choosing):
        raise refused("query", query, "give a join, or a coalescing query over a window of time")
    each = f"for each of {', '.join(query.inputs)}"
    if not _is_list(schemas) or len(schemas) != len(query.inputs):
        raise refused("schemas", schemas, f"give a list with one {each}")
    if not isinstance(rates, Mapping):
        if not _is_list(rates) or len(rates) != len(query.inputs):
            raise refused("rates", rates, f"give rows per second {each}")
        rates = dict(zip(query.inputs, rates, strict=True))
    if set(rates) != set(query.inputs):
        raise refused("rates", rates, f"give rows per second {each}")
    known = [arrow_schema_of(schema, name) for name, schema in zip(query.inputs, schemas, strict=True)]
    size = row_bytes(query, known, text)
    return expected_state(query, Workload(rates=rates, keys=keys, every=every, row_bytes=size))


def _is_list(given: object) -> bool:
    return isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, (str, bytes))


def row_bytes(query: Query, schemas: Sequence[pa.Schema], text: Mapping[str, float] | None = None) -> dict[str, float]:
    """Bytes of a row of each input in state. Raises what `query.operator` raises for a stream."""
    operator = query.operator(schemas, streaming=True)
    if isinstance(query, Coalesce):  # both ends of a time, and what makes runs: see `coalescing.tuple_codec`
        names = (*query.coalescing.group, *query.coalescing.values)
        size = [16.0 + sum(_bytes(schema.field(name), text or {}) for name in names) for schema in schemas]
        return dict(zip(query.inputs, size, strict=True))
    fields = [stored_fields(reader.block_schema) for reader in operator.readers]
    return {
        name: sum(_bytes(field, text or {}) for field in mine) for name, mine in zip(query.inputs, fields, strict=True)
    }


def expected_state(query: Query, load: Workload) -> StateForecasts:
    """`forecast_state` for a workload; an unknown rate counts as one row per second."""
    assert isinstance(query, Choosing)
    step_us = parse_duration(load.every)
    found = StateForecasts()
    for input, name in enumerate(query.inputs):
        held = held_of(query, input, load)
        held_us = step_us + max(query.lateness_us) + held.behind_us + step_us / (2 * SEGMENTS_PER_STEP)
        rows = (load.rate(name) or 1.0) * max(held_us, 0) / 1_000_000 + held.rows
        rows *= query.copies(input)
        found[name] = StateForecast(rows, rows * load.bytes_of(name))
    return found


def buckets(size: float, load: Workload, *, spread: bool, pins: Mapping[str, Value] | None = None) -> Choice:
    """The number of buckets for `size` bytes of state: a multiple of the tasks that run at once.

    `spread`: whether a key or time slots can spread the rows.

    >>> [buckets(size, Workload(parallelism=8), spread=True).value for size in (1e6, 1e9)]
    [8, 16]
    """
    if pins is not None and "buckets" in pins:
        number = pins["buckets"]
        if not isinstance(number, int) or number < 1:
            raise QueryError(Code.BAD_OPTION, f"buckets is {number!r}", "give one or more")
        return ruled("buckets", number, "", pinned=True)
    if not spread:
        return ruled("buckets", 1, "neither a key nor time slots can spread the rows")
    rounds = max(math.ceil(size / (load.parallelism * BYTES_PER_BUCKET)), 1)
    told = "one for each task" if rounds == 1 else f"{rounds} for each task, so that none holds more than 64 MiB"
    return ruled("buckets", load.parallelism * rounds, told)


def _bytes(field: pa.Field, text: Mapping[str, float]) -> float:
    if pa.types.is_boolean(field.type):
        return 1 / 8
    if pa.types.is_fixed_size_binary(field.type) or pa.types.is_primitive(field.type):
        return float(field.type.bit_width) / 8
    return text.get(field.name, BYTES_OF_TEXT) + 4
