"""The columns of a table that a profile looks at, as numbers: times, groups, arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.plain_types import plain
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.profile.findings import Finding, examples, percent
from whenabouts.core.clocks.profile.units import raw_times, settled
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.frames.kinds import GivenFrames, arrow_table, class_name
from whenabouts.core.runtime.option_checks import columns_shown
from whenabouts.core.runtime.time_columns import microseconds
from whenabouts.core.times.time_specs import TimeSpec

ROW_ORDER = "row order"
GROUPS = 200
"""So many groups, the greatest, are profiled each."""

LEAST_ROWS = 20
FEW = "few"

Key = tuple[Any, ...]


class Readings(NamedTuple):
    """The usable rows of a column: times in microseconds, row numbers, group numbers, in the order of arrival.

    `keys`: the groups by number; group number `len(keys)`, if any row has it, holds the small groups together.
    `arrival_us`: None if the order of arrival is that of the rows. `ranks` ranks
    rows, given by their numbers, by their other columns.
    """

    us: IntArray
    row: IntArray
    group: IntArray
    keys: tuple[Key, ...]
    arrival_us: IntArray | None
    ranks: Callable[[IntArray], IntArray] | None
    rows: int
    nulls: int
    findings: tuple[Finding, ...]
    tick_us: float


def readings(table: Any, time: str, group: Sequence[str], arrival: str, max_rows: int) -> Readings:
    """The usable rows of a frame. A Dataset or a reader is read by chunks, and only the columns that are named.

    Raises InputError WA-1001 for a missing column, WA-1002 for one that is no time, WA-1062 for what is no frame.
    """
    named = [time, *group, *([arrival] if arrival != ROW_ORDER else [])]
    rows, total = _rows(table, list(dict.fromkeys(named)), max_rows)
    _check(rows.schema, named, group)
    raw = raw_times(rows.column(time), time)
    valid = np.flatnonzero(raw.valid)
    times = settled(raw, valid, time)
    row = valid[times.kept]
    us, findings = times.us, list(times.findings)
    arrival_us = None
    if arrival != ROW_ORDER:
        arrived = raw_times(rows.column(arrival), arrival)
        at = settled(arrived, np.flatnonzero(arrived.valid), arrival)
        known = np.zeros(rows.num_rows, bool)
        known[np.flatnonzero(arrived.valid)[at.kept]] = True
        whole = np.zeros(rows.num_rows, np.int64)
        whole[known] = at.us
        order = np.argsort(whole[row], kind="stable")
        order = order[known[row[order]]]
        if len(order) < len(row):
            without = 1 - len(order) / len(row)
            findings.append(
                Finding(
                    "null", "note", without, examples(row, ~known[row]),
                    f"{percent(without)} of the rows have no time of arrival: they are left out.",
                )
            )  # fmt: skip
        row, us = row[order], us[order]
        arrival_us = whole[row]
    if total > rows.num_rows:
        findings.append(
            Finding(
                "first rows only", "note", rows.num_rows / total, (),
                f"Only the first {rows.num_rows:,} of {total:,} rows were read ({percent(rows.num_rows / total)}).",
                "Raise max_rows to read more.",
            )
        )  # fmt: skip
    codes, keys = _groups(rows.select(list(group)).take(pa.array(row)), len(row)) if group else _one(len(row))
    others = rows.drop_columns(list({time, *group}))
    ranks = (lambda numbers: ranks_of_rows(others.take(pa.array(numbers)))) if others.num_columns else None
    nulls = rows.num_rows - int(raw.valid.sum())
    return Readings(us, row, codes, keys, arrival_us, ranks, rows.num_rows, nulls, tuple(findings), times.tick_us)


def _check(schema: pa.Schema, named: Sequence[str], group: Sequence[str]) -> None:
    for name in named:
        found = schema.get_all_field_indices(name)
        if not found:
            raise InputError(Code.MISSING_COLUMN, f"the table has no column {name!r}", columns_shown(schema))
        if len(found) > 1:
            raise QueryError(Code.COLUMN_CLASH, f"the table has {len(found)} columns {name!r}", "rename one")
    for name in group:
        type_ = schema.field(name).type
        if pa.types.is_nested(type_):
            raise InputError(Code.WRONG_TYPE, f"group column {name!r} is {type_}", "group by text, numbers or times")


def _rows(table: Any, named: list[str], max_rows: int) -> tuple[pa.Table, int]:
    """At most `max_rows` rows, and how many there are in all."""
    class_ = class_name(table)
    if class_.startswith(("pyspark.", "pyflink.")):
        raise InputError(
            Code.NOT_AN_INPUT,
            f"the table is a {class_}, whose rows are not in this process",
            "pass rows of it as a local table, for instance frame.limit(1_000_000).toPandas(), or the files themselves",
        )
    chunks: Iterator[pa.RecordBatch] | None = None
    if class_.startswith("pyarrow._dataset.") and hasattr(table, "scanner"):
        known = [name for name in named if name in table.schema.names]
        if len(known) < len(named):
            return table.schema.empty_table(), 0  # the caller names the missing column
        chunks, schema = iter(table.scanner(columns=known).to_batches()), table.schema
        schema = pa.schema([schema.field(name) for name in known])
    elif isinstance(table, pa.RecordBatchReader):
        known = [name for name in named if name in table.schema.names]
        if len(known) < len(named):
            return table.schema.empty_table(), 0
        schema = pa.schema([table.schema.field(name) for name in known])
        chunks = (batch.select(known) for batch in table)
    if chunks is None:
        whole = arrow_table("profiled", table)
        return whole.slice(0, max_rows), whole.num_rows
    kept, held, total = [], 0, 0
    for batch in chunks:
        total += batch.num_rows
        if held < max_rows:
            kept.append(batch.slice(0, max_rows - held))
            held += kept[-1].num_rows
    return pa.Table.from_batches(kept, schema), total


def _one(rows: int) -> tuple[IntArray, tuple[Key, ...]]:
    return np.zeros(rows, np.int64), ((),)


def _groups(columns: pa.Table, rows: int) -> tuple[IntArray, tuple[Key, ...]]:
    """The group number of each row, and the keys in their order; the small groups have the last number."""
    codes, there = _coded(columns, rows)
    counts = np.bincount(codes, minlength=there.num_rows)
    rank = ranks_of_rows(there)
    enough = np.flatnonzero(counts >= LEAST_ROWS)
    largest = enough[np.lexsort((rank[enough], -counts[enough]))][:GROUPS]
    chosen = largest[np.argsort(rank[largest])]
    number = np.full(len(counts), len(chosen), np.int64)
    number[chosen] = np.arange(len(chosen))
    return number[codes], _keys(there.take(pa.array(chosen)))


def _coded(columns: pa.Table, rows: int) -> tuple[IntArray, pa.Table]:
    """A number for the values of each row, and the values by number."""
    codes = np.zeros(rows, np.int64)
    for column in columns.columns:
        encoded = column.combine_chunks()
        encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        indices = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64) + 1
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, columns.take(pa.array(first))


def _keys(columns: pa.Table) -> tuple[Key, ...]:
    return tuple(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def with_ends(
    table: Any,
    time: str,
    group: Sequence[str],
    specs: Mapping[Key, TimeSpec],
    other: TimeSpec,
    names: tuple[str, str],
) -> Any:
    """A frame with both ends of each row's time as columns more; `specs` by group, `other` for the remaining rows."""
    frames = GivenFrames({"profiled": table})
    (rows,) = frames.tables
    _check(rows.schema, [time, *group], group)
    raw_times(rows.column(time), time)  # refuses a column that holds no times
    for name in names:
        if name in rows.schema.names:
            raise QueryError(Code.COLUMN_CLASH, f"the table has a column {name!r} already", "give t_min= and t_max=")
    column = rows.column(time).combine_chunks()
    read = microseconds(plain(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column))
    low, high = read.us.copy(), read.us.copy()
    if group:
        codes, there = _coded(rows.select(list(group)), rows.num_rows)
        for number, key in enumerate(_keys(there)):
            at = np.flatnonzero(codes == number)
            low[at], high[at] = specs.get(key, other).ends([read.us[at]], None)
    else:
        low, high = other.ends([read.us], None)
    missing = np.zeros(rows.num_rows, bool)
    for mask in (read.null, read.outside):
        missing |= False if mask is None else mask
    zone = rows.schema.field(time).type
    type_ = pa.timestamp("us", zone.tz) if pa.types.is_timestamp(zone) else pa.int64()
    for name, ends in zip(names, (low, high), strict=True):
        rows = rows.append_column(name, pa.array(ends, mask=missing).cast(type_))
    return frames.like_first(rows)
