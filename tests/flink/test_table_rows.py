"""Blocks become a Table's columns and a Table's columns become blocks, without loss."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from whenabouts.core.state.segment_codec import encode
from whenabouts.flink_plugin.blocks import ReadBlob
from whenabouts.flink_plugin.rows_of_columns import _ToColumns, internal_meanings

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


def streams(blocks: list[pa.RecordBatch], event_time: str | None = None) -> list[pa.RecordBatch]:
    """What the operator in Java reads."""
    to_columns = _ToColumns(ReadBlob(SCHEMA), internal_meanings(SCHEMA), event_time)
    to_columns.open(None)  # type: ignore[arg-type]  # it asks nothing of Flink
    given = [stream for rows in blocks for stream in to_columns.flat_map(encode(rows, SCHEMA))]
    return [batch for stream in given for batch in pa.ipc.open_stream(stream)]


@given(cuts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=6))
def test_blocks_are_streams_of_arrow_with_times_in_microseconds(cuts: list[tuple[int, int]]) -> None:
    blocks = [ROWS.slice(start, length) for start, length in cuts]
    found = streams(blocks)
    assert [rows.num_rows for rows in found] == [rows.num_rows for rows in blocks if rows.num_rows]
    for rows, wanted in zip(found, [rows for rows in blocks if rows.num_rows], strict=True):
        for name, type_ in zip(SCHEMA.names, SCHEMA.types, strict=True):
            column = rows.column(name)
            if pa.types.is_timestamp(type_):
                assert column.type == pa.int64()
                column = column.cast(type_)
            assert repr(column.to_pylist()) == repr(wanted.column(name).to_pylist())  # a NaN equals none


def test_event_time_is_rounded_down_to_milliseconds() -> None:
    (rows,) = streams([ROWS], "instant")
    assert rows.column("instant").to_pylist() == [-1_000, None, -1_000]
    assert rows.column("wall").cast(SCHEMA.field("wall").type).equals(ROWS.column("wall"))
