"""Runs over the whole history of finite input without an extent: one value column of numbers or times, and `equal`.

Rows whose times increase in each group take one pass. Others are sorted by group and time, each with its value, so that
nothing is looked up in the order of arrival afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.record_batches import one_chunk, take_table
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.coalescing.equivalence import comparable
from whenabouts.core.coalescing.extents import Runs
from whenabouts.core.coalescing.tuples import Groups, groups_of
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.keys import Keys

_ROWS_A_PART = 1 << 14
_MOST_PARTS = 1 << 12
"""As in `arrays.grouped_sort`, but for words of half the size."""

_NONE = np.zeros(0, np.int64)


class RunsOfRows(NamedTuple):
    """Runs, and for each the index of a row of its group, in `groups` if given. `value`: the values that are shown;
    None: those of `row`. `group`: the only group column; then there is no `row`.

    `neighbours`: how many rows have a predecessor in their group; None if they were not counted.
    """

    runs: Runs
    row: Positions
    value: pa.Array | None = None
    neighbours: int | None = None
    groups: pa.Table | None = None
    group: pa.Array | None = None


def runs_of_history(
    table: pa.Table, keys: Keys, values: Sequence[str], *, with_last: bool = False
) -> RunsOfRows | None:
    """Runs of equal values, one for each group and stretch of time; None if an extent is needed. O(n).

    It is for several rows of a group at one time, null groups, several value columns, and a value column that has nulls
    or is not numeric; out of order also for groups and values that can be equal with other bits. The order is that of
    an extent, but that of first rows where rows are in order. `with_last`: whether the time of the last row is asked
    for.
    """
    if len(values) != 1 or any(table.column(name).null_count for name in (*keys.of(0), *values)):
        return None
    column = one_chunk(table.column(values[0]))
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)):
        return None
    rows = _Rows(times(table)[0], groups_of(keys, table), comparable(column).values, column.type, with_last)
    shown = table.select(keys.of(0))
    alike = all(map(_has_one_form, shown))
    found = _in_order(rows, shown if alike else None)
    if found is None and alike and _is_comparable_as_stored(column.type):
        found = _in_any_order(rows)
    return found


class _Rows(NamedTuple):
    """Rows as they came, and the type of their values. `with_last`: as for `runs_of_history`."""

    us: IntArray
    groups: Groups
    values: NDArray[Any]
    type: pa.DataType
    with_last: bool


def _in_order(rows: _Rows, shown: pa.Table | None) -> RunsOfRows | None:
    """`shown`: the group columns, if any row of a group shows it."""
    from whenabouts.core.coalescing.kernels import runs_in_order_of_floats, runs_in_order_of_integers

    us, groups, values, type_, with_last = rows
    room, first_of, as_stored = len(us) + 1, np.zeros(groups.size, np.int32), _is_comparable_as_stored(type_)
    start, end, n, last = _columns(room, with_last)
    value = large_array(room if as_stored else 0, values.dtype)
    by_code = as_stored and shown is not None and groups.are_values and pa.types.is_int64(shown.schema.types[0])
    code, row = large_array(room * by_code, np.int64), large_array(room * (not by_code), np.int32)
    kernel = runs_in_order_of_floats if values.dtype == np.float64 else runs_in_order_of_integers
    if by_code or not as_stored or 4 * groups.size > len(us):
        shown = None
    found = kernel(
        us, groups.codes, groups.low, values, shown is not None, first_of, row, start, end, n, last, code, value
    )
    if found < 0:
        return None
    at = slice(1, found + 1)
    return RunsOfRows(
        Runs(_NONE, _NONE, *(each[at] for each in (start, end, n, last))),
        row[at],
        _as_type(value[at], type_) if as_stored else None,
        groups=None if shown is None else take_table(shown, first_of),
        group=pa.array(code[at]) if by_code else None,
    )


class _Parts(NamedTuple):
    """Rows as pairs of a time and the bits of a value, by group in `slices` parts each: part p is
    `pairs[starts[p] : starts[p + 1]]`. `in_order`: whether the parts are sorted."""

    pairs: IntArray
    starts: IntArray
    slices: int
    in_order: bool = False


def _in_any_order(rows: _Rows) -> RunsOfRows | None:
    from whenabouts.core.arrays.grouped_sort import sorted_in_groups
    from whenabouts.core.coalescing.unordered_kernels import CROWDED, TIES, rows_of_groups, runs_of_parts

    us, groups, values, type_, with_last = rows
    parts = _parts(rows)
    row_of, filled = np.full(groups.size, -1, np.int32), np.count_nonzero(np.diff(parts.starts[:: parts.slices]))
    rows_of_groups(groups.codes, groups.low, filled, row_of)
    row, bits = large_array(len(us), np.int32), large_array(len(us), np.int64)
    start, end, n, last = _columns(len(us), with_last)

    def runs_of(parts: _Parts) -> int:
        as_floats, floats = parts.pairs.view(np.float64), values.dtype == np.float64
        outputs = row, start, end, n, last, bits
        return int(
            runs_of_parts(parts.pairs, as_floats, floats, parts.in_order, parts.starts, parts.slices, row_of, *outputs)
        )

    found = runs_of(parts)
    if found == CROWDED:
        del parts
        pairs, starts, has_ties = sorted_in_groups(us, values.view(np.int64), groups.codes, groups.low, groups.size)
        found = TIES if has_ties else runs_of(_Parts(pairs, starts, 1, in_order=True))
    if found == TIES:
        return None
    runs = Runs(_NONE, _NONE, *(each[:found] for each in (start, end, n, last)))
    return RunsOfRows(runs, row[:found], _as_type(bits[:found].view(values.dtype), type_), len(us) - int(filled))


def _parts(rows: _Rows) -> _Parts:
    from whenabouts.core.arrays.grouped_sort import partition

    us, groups, values = rows[:3]
    slices, least, shift = 1, 0, 0
    while 2 * groups.size * slices <= _MOST_PARTS and len(us) > _ROWS_A_PART * groups.size * slices:
        slices *= 2
    if slices > 1:
        least, greatest = extremes(us)
        shift = max((greatest - least).bit_length() - slices.bit_length() + 1, 0)
    starts = np.zeros(groups.size * slices + 1, np.int64)
    pairs = large_array(2 * len(us), np.int64).reshape(len(us), 2)
    partition(us, values.view(np.int64), groups.codes, groups.low, least, slices, shift, starts, pairs)
    return _Parts(pairs, starts, slices)


def _columns(rows: int, with_last: bool) -> list[NDArray[Any]]:
    return [large_array(rows if wanted else 0, np.int64) for wanted in (True, True, True, with_last)]


def _as_type(values: NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Values that are comparable as stored, as a column of their type."""
    shown = pa.array(values)
    return shown.cast(type_) if pa.types.is_integer(type_) else shown.view(type_)


def _is_comparable_as_stored(type_: pa.DataType) -> bool:
    """Whether `comparable` keeps the values of a type, so that they can be given out."""
    if pa.types.is_integer(type_):
        return not pa.types.is_uint64(type_)
    of_8_bytes = (pa.types.is_float64, pa.types.is_timestamp, pa.types.is_duration, pa.types.is_date64)
    return any(is_it(type_) for is_it in of_8_bytes)


def _has_one_form(group: pa.ChunkedArray) -> bool:
    """Whether equal values of a group column look alike: 0.0 and -0.0 do not."""
    return not (pa.types.is_floating(group.type) or pa.types.is_nested(group.type))
