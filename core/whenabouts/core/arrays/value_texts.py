"""Values of every Arrow type as text: ISO 8601 for times, JSON for nested values; of any size, and without pandas.

Python's times are limited to the years 1 to 9999 and to microseconds, and pyarrow needs pandas for finer ones. Here
times outside these years can be written too, with a signed year: `+55840-11-08T22:13:20.000000Z`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.plain_types import plain
from whenabouts.core.arrays.ticks import PER_SECOND, as_ticks
from whenabouts.core.arrays.typing import BoolArray, IntArray

_DAY_S = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""


def iso_texts(times: pa.Array) -> pa.Array:
    """Timestamps, dates and times of day as ISO 8601: instants in UTC with a `Z`, and with the digits of their unit.

    >>> iso_texts(pa.array([1, 1_700_000_000_000_000_000], pa.timestamp("us", "Europe/Paris"))).to_pylist()
    ['1970-01-01T00:00:00.000001Z', '+55840-11-08T22:13:20.000000Z']
    """
    odd, days, rest, per_second = _parts(times)
    if not odd.any():
        return _usual(times)
    written = np.array(_usual(pc.if_else(pa.array(odd), pa.scalar(None, times.type), times)).to_pylist(), object)
    at = np.flatnonzero(odd & np.asarray(times.is_valid()))
    write = _times_of_day if pa.types.is_time(times.type) else _instants
    written[at] = write(days[at], rest[at], per_second, times.type)
    return pa.array(written, pa.string())


def in_calendar(times: pa.Array) -> bool:
    """Whether all times are in the years 1 to 9999, dates are whole days, and times of day are within a day."""
    return not _parts(times)[0].any()


def _parts(times: pa.Array) -> tuple[BoolArray, IntArray, IntArray, int]:
    """Which times are outside the calendar, their days since 1970, ticks in the day, and ticks per second."""
    type_ = times.type
    ticks = np.asarray(as_ticks(times).fill_null(0)).astype(np.int64)
    if pa.types.is_date32(type_):
        return (ticks < _FIRST_DAY) | (ticks > _LAST_DAY), ticks, np.zeros(len(ticks), np.int64), 1
    per_second = 1_000 if pa.types.is_date64(type_) else PER_SECOND[type_.unit]
    days, rest = np.divmod(ticks, _DAY_S * per_second)
    if pa.types.is_time(type_):
        return days != 0, days, ticks, per_second
    odd = (days < _FIRST_DAY) | (days > _LAST_DAY)
    return odd | (rest != 0) if pa.types.is_date(type_) else odd, days, rest, per_second


def duration_texts(durations: pa.Array) -> list[str | None]:
    """Durations as exact decimal numbers of microseconds.

    >>> duration_texts(pa.array([1500, None], pa.duration("ms"))), duration_texts(pa.array([1500], pa.duration("ns")))
    (['1500000', None], ['1.5'])
    """
    per_second = PER_SECOND[durations.type.unit]
    ticks = as_ticks(durations).to_pylist()
    if per_second <= 1_000_000:
        return [None if each is None else str(each * (1_000_000 // per_second)) for each in ticks]
    signs = ["-" if each is not None and each < 0 else "" for each in ticks]
    parts = [None if each is None else divmod(abs(each), 1_000) for each in ticks]
    return [
        None if part is None else sign + (f"{part[0]}.{part[1]:03}".rstrip("0") if part[1] else str(part[0]))
        for sign, part in zip(signs, parts, strict=True)
    ]


def texts(column: pa.Array) -> list[str | None]:
    """Values in readable form, None for null: text unchanged, times as ISO 8601, bytes in hexadecimal, lists and
    structs as JSON.

    >>> texts(pa.array([b"a", None])), texts(pa.array([[1, None]]))
    (['61', None], ['[1, null]'])
    """
    column = plain(column)
    type_ = column.type
    if pa.types.is_floating(type_):
        return [None if value is None else repr(value) for value in column.cast(pa.float64()).to_pylist()]
    if pa.types.is_nested(type_) or pa.types.is_interval(type_):
        known = column.is_valid().to_pylist() if pa.types.is_nested(type_) else (v.is_valid for v in column)
        return [each if is_known else None for each, is_known in zip(json_texts(column), known, strict=True)]
    return _plain_texts(column)


def json_texts(column: pa.Array) -> list[str]:
    """Values as JSON: non-finite numbers are null, durations are numbers of microseconds, maps are lists of pairs."""
    column = plain(column)
    type_ = column.type
    for is_it, write in _JSON:
        if is_it(type_):
            return write(column)
    return ["null" if each is None else json.dumps(each, ensure_ascii=False) for each in _plain_texts(column)]


def json_lines(table: pa.Table) -> list[str]:
    """Every row as a JSON object.

    >>> json_lines(pa.table({"t": pa.array([1], pa.timestamp("us", "UTC")), "x": [float("nan")]}))
    ['{"t": "1970-01-01T00:00:00.000001Z", "x": null}']
    """
    columns = [[text for chunk in column.chunks for text in json_texts(chunk)] for column in table.columns]
    return _objects(table.schema.names, columns, table.num_rows)


def _objects(names: Iterable[str], columns: list[list[str]], rows: int) -> list[str]:
    if not columns:
        return ["{}"] * rows
    heads = [json.dumps(name, ensure_ascii=False) + ": " for name in names]
    members = [[head + text for text in column] for head, column in zip(heads, columns, strict=True)]
    return ["{" + ", ".join(row) + "}" for row in zip(*members, strict=True)]


def _plain_texts(column: pa.Array) -> list[str | None]:
    """Texts of values that are neither nested nor floats nor intervals."""
    type_ = column.type
    if pa.types.is_duration(type_):
        return duration_texts(column)
    if pa.types.is_temporal(type_):
        found: list[str | None] = iso_texts(column).to_pylist()
        return found
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    if any(is_it(type_) for is_it in binary):
        return [None if value is None else value.hex() for value in column.to_pylist()]
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        # Files written by other programs may have text that is not UTF-8.
        raw = column.cast(pa.large_binary() if pa.types.is_large_string(type_) else pa.binary()).to_pylist()
        return [None if value is None else value.decode(errors="backslashreplace") for value in raw]
    return (
        [None if value is None else str(value).lower() for value in column.to_pylist()]
        if pa.types.is_boolean(type_)
        else column.cast(pa.string()).to_pylist()
    )


def _usual(times: pa.Array) -> pa.Array:
    """Times inside the calendar."""
    type_ = times.type
    if not pa.types.is_timestamp(type_):
        return times.cast(pa.string())
    zoned = type_.tz is not None
    in_utc = times.cast(pa.timestamp(type_.unit, "UTC")) if zoned else times
    return pc.strftime(in_utc, format="%Y-%m-%dT%H:%M:%S" + ("Z" if zoned else ""), locale="C")


def _instants(days: IntArray, rest: IntArray, per_second: int, type_: pa.DataType) -> list[str]:
    dates = [_date(day) for day in days.tolist()]
    if pa.types.is_date(type_) and not rest.any():
        return dates
    end = "Z" if pa.types.is_timestamp(type_) and type_.tz is not None else ""
    clock = _times_of_day(days, rest, per_second, type_)
    return [f"{date}T{time}{end}" for date, time in zip(dates, clock, strict=True)]


def _times_of_day(days: IntArray, ticks: IntArray, per_second: int, type_: pa.DataType) -> list[str]:
    found = []
    for tick in ticks.tolist():
        seconds, fraction = divmod(abs(tick), per_second)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        digits = len(str(per_second)) - 1
        found.append(("-" if tick < 0 else "") + text + (f".{fraction:0{digits}}" if digits else ""))
    return found


def _date(day: int) -> str:
    """A day in the proleptic Gregorian calendar, which repeats every 400 years (an era)."""
    eras, day = divmod(day + 719_468, 146_097)  # eras begin on a 1st of March
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    year += 400 * eras + (month >= 10)
    sign = "" if 0 <= year <= 9999 else "+" if year > 0 else "-"
    return f"{sign}{abs(year):04}-{month + 3 if month < 10 else month - 9:02}-{day + 1:02}"


def _json_numbers(column: pa.Array) -> list[str]:
    return ["null" if each is None else each for each in _plain_texts(column)]


def _json_floats(column: pa.Array) -> list[str]:
    values = column.cast(pa.float64()).to_pylist()
    return [repr(value) if value is not None and abs(value) < float("inf") else "null" for value in values]


def _json_struct(column: Any) -> list[str]:
    children = [json_texts(column.field(i)) for i in range(column.type.num_fields)]
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    objects = _objects(names, children, len(column))
    return [text if known else "null" for text, known in zip(objects, column.is_valid().to_pylist(), strict=True)]


def _json_list(column: Any) -> list[str]:
    width = column.type.list_size if pa.types.is_fixed_size_list(column.type) else None
    starts = column.offset + np.arange(len(column) + 1)
    ends = np.asarray(column.offsets, np.int64) if width is None else starts * width
    return _lists(column, ends, lambda first, size: json_texts(column.values.slice(first, size)))


def _json_map(column: Any) -> list[str]:
    def pairs(first: int, size: int) -> list[str]:
        keys, items = json_texts(column.keys.slice(first, size)), json_texts(column.items.slice(first, size))
        return [f"[{key}, {item}]" for key, item in zip(keys, items, strict=True)]

    return _lists(column, np.asarray(column.offsets, np.int64), pairs)


def _lists(column: pa.Array, ends: IntArray, elements: Callable[[int, int], list[str]]) -> list[str]:
    if not len(column):
        return []
    first = int(ends[0])
    inside = elements(first, int(ends[-1]) - first)
    lists = ["[" + ", ".join(inside[start:end]) + "]" for start, end in pairwise((ends - first).tolist())]
    return [text if known else "null" for text, known in zip(lists, column.is_valid().to_pylist(), strict=True)]


def _json_union(column: Any) -> list[str]:
    column = column.take(pa.array(np.arange(len(column))))  # the column may be a slice
    children = [json_texts(column.field(i)) for i in range(column.type.num_fields)]
    child_of = {code: i for i, code in enumerate(column.type.type_codes)}
    codes = np.asarray(column.type_codes).tolist()
    rows = range(len(column)) if column.type.mode == "sparse" else np.asarray(column.offsets).tolist()
    return [children[child_of[code]][row] for code, row in zip(codes, rows, strict=True)]


def _json_interval(column: pa.Array) -> list[str]:
    return [json.dumps(value) for value in column.to_pylist()]


_JSON: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], list[str]]], ...] = (
    (pa.types.is_floating, _json_floats),
    (pa.types.is_boolean, _json_numbers),
    (pa.types.is_integer, _json_numbers),
    (pa.types.is_duration, _json_numbers),
    (pa.types.is_interval, _json_interval),
    (pa.types.is_struct, _json_struct),
    (pa.types.is_map, _json_map),
    (pa.types.is_union, _json_union),
    (pa.types.is_nested, _json_list),
)
"""The writers of types as JSON; values of other types are quoted text."""
