"""Time columns in microseconds: conversion from other units, the calendar, and digits that are lost."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.ticks import PER_SECOND
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.callers import users_level
from whenabouts.core.errors import Code, DigitsCutWarning
from whenabouts.core.runtime.option_checks import counted
from whenabouts.core.runtime.protocol import Reader

FIRST_US = -62_135_596_800_000_000
"""0001-01-01 UTC. With `LAST_US` it keeps every difference of times far inside int64."""
LAST_US = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999 UTC."""


class TimeColumn(NamedTuple):
    """A time column in microseconds. `null` and `outside` mark null times and times outside the years 1 to 9999, which
    have the value 0; None if there are none. `extremes`: the least and the greatest number as given, 0 for a null."""

    us: IntArray
    null: BoolArray | None
    outside: BoolArray | None
    extremes: tuple[int, int] = (0, 0)


def microseconds(column: pa.Array) -> TimeColumn:
    """The times of a column in microseconds; finer digits are cut."""
    null = np.asarray(column.is_null()) if column.null_count else None
    if pa.types.is_null(column.type):
        return TimeColumn(np.zeros(len(column), np.int64), null, None)
    numbers = column if pa.types.is_int64(column.type) else column.cast(pa.int64())
    ticks = np.asarray((numbers if null is None else numbers.fill_null(0)).to_numpy(), np.int64)
    per_second = PER_SECOND[column.type.unit] if pa.types.is_timestamp(column.type) else PER_SECOND["us"]
    first, last = _scaled(FIRST_US, per_second), _scaled(LAST_US, per_second)
    outside, found = None, extremes(ticks)
    if found[0] < first or found[1] > last:
        outside = (ticks < first) | (ticks > last)
        ticks = np.where(outside, 0, ticks)
    if per_second > 1_000_000:
        return TimeColumn(ticks // (per_second // 1_000_000), null, outside, found)
    return TimeColumn(ticks if per_second == 1_000_000 else ticks * (1_000_000 // per_second), null, outside, found)


def digits_cut(column: pa.Array | pa.ChunkedArray) -> int:
    """How many times of a column are finer than a microsecond, so that reading cuts digits. O(1) except for ns.

    >>> digits_cut(pa.array([1_000, 1_001, None], pa.timestamp("ns"))), digits_cut(pa.array([1], pa.timestamp("us")))
    (1, 0)
    """
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return 0
    ticks = column.cast(pa.int64())
    whole = pc.equal(pc.multiply(pc.divide(ticks, 1_000), 1_000), ticks)
    return int(pc.sum(pc.invert(whole)).as_py() or 0)


def times_cut(reader: Reader, block: pa.RecordBatch) -> int:
    """How many times of a reader's block lost digits. O(rows) if a time column has nanoseconds."""
    names = [name for name in reader.time.columns if name in block.schema.names]
    return sum(digits_cut(block.column(name)) for name in names)


def warn_of_digits(n: int, where: str) -> None:
    """Warn (`DigitsCutWarning`, WA-1075) about times that lost digits, if there are any."""
    if n:
        finer = f"{counted(n, 'time')}{where} {'is' if n == 1 else 'are'} finer than a microsecond"
        warnings.warn(
            f"{Code.DIGITS_CUT}: {finer}: finer digits were cut, so that times less "
            "than a microsecond apart count as equal",
            DigitsCutWarning,
            stacklevel=users_level(),
        )


def _scaled(microseconds: int, per_second: int) -> int:
    """A time in another unit, clamped to int64."""
    scaled = microseconds * per_second // 1_000_000
    return max(min(scaled, 2**63 - 1), -(2**63))
