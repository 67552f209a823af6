"""Blocks become a Table's columns without loss: of Flink, only its conversion between pandas and Arrow runs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyflink.table.types import create_arrow_schema
from pyflink.table.utils import pandas_to_arrow

from whenabouts.core.errors import EngineError
from whenabouts.core.state.segment_codec import encode
from whenabouts.flink_plugin.blocks import ReadBlob
from whenabouts.flink_plugin.column_types import table_type
from whenabouts.flink_plugin.table_rows import EVENT_TIME, LATER_DAYS, _NotNumbers, _Spread, _Values

INSTANT = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [2**60 + 1, None, -1]),
    "small": (pa.int16(), [1, 2, 3]),
    "real": (pa.float64(), [float("nan"), None, -0.0]),
    "truth": (pa.bool_(), [True, None, False]),
    "text": (pa.string(), ["ä", "", None]),
    "bytes": (pa.binary(), [b"\0", None, b""]),
    "day": (pa.date32(), [dt.date(1900, 2, 3), None, dt.date(2024, 5, 1)]),
    "wall": (pa.timestamp("us"), [dt.datetime(2200, 1, 1, 0, 0, 0, 1), None, dt.datetime(1900, 1, 1)]),
    "instant": (pa.timestamp("us", "UTC"), [INSTANT, None, INSTANT]),
    "money": (pa.decimal128(10, 2), [Decimal("1.25"), None, Decimal("-3.00")]),
}
SCHEMA = pa.schema({name: type_ for name, (type_, _) in COLUMNS.items()})
ROWS = pa.record_batch([pa.array(values, type_) for type_, values in COLUMNS.values()], schema=SCHEMA)


BLOB = encode(ROWS, SCHEMA)


def filled(function: Any, type_: Any, calls: list[list[bytes]]) -> list[Any]:
    """Flink's conversion of a function's results, in a session whose clocks skip an hour a year."""
    schema = create_arrow_schema(["c"], [type_])
    values = []
    for blobs in calls:
        answer = function(pd.Series(blobs, dtype=object))
        assert type(answer) is pd.Series
        values += pandas_to_arrow(schema, "Europe/Berlin", [type_], [answer]).column(0).to_pylist()
    later = dt.timedelta(days=LATER_DAYS)  # what SQL truncates from times
    return [value - later if isinstance(value, dt.datetime) else value for value in values]


@given(blocks=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=6), sizes=st.lists(st.integers(1, 7)))
def test_whatever_calls_a_spread_block_is_cut_into_its_columns_come_back(
    blocks: list[tuple[int, int]], sizes: list[int]
) -> None:
    batches = [rows for start, length in blocks if (rows := ROWS.slice(start, length)).num_rows]
    spread = _Spread(SCHEMA, ReadBlob(SCHEMA))
    spread.open(None)  # type: ignore[arg-type]  # it asks nothing of Flink
    given = [element for rows in batches for element in spread.flat_map(encode(rows, SCHEMA))]
    elements = [blob for blob, times in given for _ in range(times)]
    assert len(elements) == sum(rows.num_rows for rows in batches)
    calls = []
    for size in [*sizes, len(elements)]:
        calls.append(elements[:size])
        elements = elements[size:]
    calls = [blobs for blobs in calls if blobs]
    for place, column in enumerate(SCHEMA):
        found = filled(_Values(SCHEMA, place), table_type(column), calls)
        wanted = [value for rows in batches for value in rows.column(place).to_pylist()]
        if column.name == "real":
            nan = filled(_NotNumbers(SCHEMA, place), table_type(pa.field("nan", pa.string())), calls)
            found = [value if text is None else float(text) for value, text in zip(found, nan, strict=True)]
        if column.name == "instant":  # for Flink the number of microseconds is the instant
            wanted = [None if value is None else value.replace(tzinfo=None) for value in wanted]
        assert list(map(repr, found)) == list(map(repr, wanted)), column


def test_event_time_is_rounded_down_to_milliseconds() -> None:
    found = filled(_Values(SCHEMA, SCHEMA.get_field_index("instant"), whole_ms=True), EVENT_TIME, [[BLOB, b"", b""]])
    before_1970 = INSTANT.replace(tzinfo=None, microsecond=999_000)
    assert found == [before_1970, None, before_1970]


def test_rows_that_are_missing_are_noticed() -> None:
    with pytest.raises(EngineError, match="rows of a block have been lost"):
        _Values(SCHEMA, 0)(pd.Series([b"", b""], dtype=object))
