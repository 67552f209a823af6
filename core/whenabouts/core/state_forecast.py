"""How large the state of a timing join will be, before it runs: from the query, the rates and the size of a step.

A row of an input stays while a future row of the other one can match it: until the watermark has passed its `t_max` by
`behind`, the operator's own bound. When a step that spans `every` of event time has been taken in, the watermark in
force was set by the step before it, `lateness` behind its last row: so rows of the last `every + lateness + behind` are
held. Segments go as a whole, a step's rows being cut into four: on average an eighth of a step's rows stays on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from whenabouts.core.durations import Duration, parse_duration
from whenabouts.core.segmented_state import SEGMENTS_PER_STEP
from whenabouts.core.segments import stored_fields
from whenabouts.core.timing_join import TimingJoin

BYTES_OF_TEXT = 16
"""Of a column whose width varies, unless the caller knows better; with it four bytes for where it ends."""


class StateForecast(NamedTuple):
    """Rows of an input that are held after a step, and their bytes."""

    rows: float
    bytes: float


def forecast_state(
    query: TimingJoin,
    schemas: Sequence[pa.Schema],
    rates: Sequence[float],
    *,
    every: Duration,
    text: Mapping[str, float] | None = None,
) -> dict[str, StateForecast]:
    """The state of a plain inner join by input, at `rates` rows a second taken in `every` so often.

    `text`: mean bytes of columns whose width varies (16 otherwise). Modes other than inner keep marks or notes on top
    of it. Raises what `query.operator` raises for a stream.

    >>> from whenabouts.core import Lateness, Point, within
    >>> query = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("5 s", confidence=1),
    ...                    lateness=Lateness("2 s", "2 s"))
    >>> schema = pa.schema({"t": pa.timestamp("us"), "id": pa.int64()})
    >>> forecast_state(query, [schema, schema], [100, 10], every="8 s")["left"]
    StateForecast(rows=1600.0, bytes=25600.0)
    """
    operator = query.operator(schemas, streaming=True)
    step_us, lateness_us = parse_duration(every), max(query.lateness_us)
    found = {}
    for input, name in enumerate(query.inputs):
        behind_us = -operator.obsolete_before(input, 0)
        held_us = step_us + lateness_us + behind_us + step_us / (2 * SEGMENTS_PER_STEP)
        rows = rates[input] * held_us / 1_000_000
        fields = stored_fields(operator.readers[input].block_schema)
        found[name] = StateForecast(rows, rows * sum(_bytes(field, text or {}) for field in fields))
    return found


def _bytes(field: pa.Field, text: Mapping[str, float]) -> float:
    if pa.types.is_boolean(field.type):
        return 1 / 8
    if pa.types.is_fixed_size_binary(field.type) or pa.types.is_primitive(field.type):
        return float(field.type.bit_width) / 8
    return text.get(field.name, BYTES_OF_TEXT) + 4
