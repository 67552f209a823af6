"""The columns of a table that a profile looks at, as numbers: times, groups, arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.plain_types import plain
from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.profile.findings import Finding, examples, percent
from whenabouts.core.clocks.profile.group_keys import key_values, one_zero
from whenabouts.core.clocks.profile.scattered_columns import (
    Counted,
    Known,
    Look,
    Looked,
    Tally,
    read_bytes,
    rows_of,
    stretches_of,
    total_of,
    verdict_of,
)
from whenabouts.core.clocks.profile.units import Verdict, raw_times, settled
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.frames.kinds import Frame, GivenFrames, arrow_table, is_dataset
from whenabouts.core.frames.scattered import Scattered
from whenabouts.core.hosting.column_case import Columns, check_distinct
from whenabouts.core.hosting.engine import engine_of
from whenabouts.core.hosting.input_checks import check_input
from whenabouts.core.runtime.option_checks import columns_shown, text
from whenabouts.core.runtime.time_columns import microseconds
from whenabouts.core.times.time_specs import TimeSpec

ROW_ORDER = "row order"
GROUPS = 200
"""So many groups, the greatest, are profiled each."""

LEAST_ROWS = 20
LEAST_DISTINCT = 10
"""So many times are all multiples of twice their granularity in 0.1 % of cases; equal rows say no more than one."""

FEW = "few"

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Readings:
    """The usable rows of a column: times in microseconds, row numbers, group numbers, in the order of arrival.

    `keys`: the groups by number; group number `len(keys)`, if any row has it, holds the small groups together.
    `arrival_us`: None if the order of arrival is that of the rows, or (`ordered` is False) unknown. `ranks` ranks
    rows, given by their numbers, by their other columns. `numbered`: whether users know these numbers. `sample`: what
    is known of all rows if these are a sample.
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
    ordered: bool = True
    numbered: bool = True
    sample: Sample | None = None


class Sample(NamedTuple):
    """What is known of all rows of which some stretches of time were read, and of those of each group number; and the
    group numbers of the times of the uniform sample, `whole.uniform`."""

    whole: Known
    groups: tuple[Known, ...]
    drawn: IntArray


def readings(table: Any, time: str, group: Sequence[str], arrival: str, max_rows: int, seed: int) -> Readings:
    """The usable rows of a frame, or of more than `max_rows` a sample. A Dataset, a reader and a frame of an engine are
    read by parts, and only the columns that are named.

    Raises InputError WA-1001 for a missing column, WA-1002 for one that is no time, WA-1062 for what is no frame.
    """
    named = tuple(dict.fromkeys([time, *([arrival] if arrival != ROW_ORDER else []), *group]))
    if isinstance(table, pa.RecordBatchReader):
        return _read(*_first_rows(table, named, max_rows), time, group, arrival)
    here = arrow_table("profiled", table) if _is_here(table) else None
    if here is not None and here.num_rows <= max_rows:
        return _read(here, here.num_rows, time, group, arrival)  # with all columns, to find equal rows
    source = _source(table if here is None else here)
    if source.ignores_case:
        check_distinct(source.columns.names, "the table has columns")
        find = Columns(tuple(source.columns.names))
        time, group, named = find(time), tuple(map(find, group)), tuple(map(find, named))
        arrival = arrival if arrival == ROW_ORDER else find(arrival)
    _check(source.columns, named, group)
    times = (time,) if arrival == ROW_ORDER else tuple(dict.fromkeys((time, arrival)))
    empty = {name: raw_times(source.columns.empty_table().column(name), name) for name in times}
    if source.count() > max_rows:
        look = Look(times, seed)
        looked = look.merged(source.apply([*times, *group], look))
        if all(each.valid for each in looked.values()):
            how = {name: verdict_of(looked[name], empty[name], name) for name in times}
            return _sampled(source, looked[time], how, time, group, max_rows)
    schema = pa.schema([source.columns.field(name) for name in named])
    parts = [read_bytes(data).rename_columns(list(named)).cast(schema) for data in source.apply(named, rows_of)]
    rows = pa.concat_tables([schema.empty_table(), *parts])
    ordered = source.ordered or arrival != ROW_ORDER
    rows = rows if ordered else rows.sort_by(time)
    return replace(_read(rows, rows.num_rows, time, group, arrival), ordered=ordered, numbered=source.ordered)


def _read(rows: pa.Table, total: int, time: str, group: Sequence[str], arrival: str) -> Readings:
    _check(rows.schema, [time, *group, *([arrival] if arrival != ROW_ORDER else [])], group)
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
            findings.append(_without_arrival(1 - len(order) / len(row), examples(row, ~known[row])))
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
    codes, keys = _groups(take_table(rows.select(list(group)), row), len(row)) if group else _one(len(row))
    others = rows.drop_columns(list({time, *group}))
    ranks = (lambda numbers: ranks_of_rows(take_table(others, numbers))) if others.num_columns else None
    nulls = rows.num_rows - int(raw.valid.sum())
    return Readings(us, row, codes, keys, arrival_us, ranks, rows.num_rows, nulls, tuple(findings), times.tick_us)


def _without_arrival(share: float, where: tuple[int, ...]) -> Finding:
    sentence = f"{percent(share)} of the rows have no time of arrival: they are left out."
    return Finding("null", "note", share, where, sentence)


def _sampled(
    source: Scattered, looked: Looked, verdicts: dict[str, Verdict], time: str, group: Sequence[str], max_rows: int
) -> Readings:
    """Rows of stretches of time, with what is known of all."""
    how, *arrived = verdicts.values()
    uniform, kept, _ = how.read(looked.numbers)
    uniform = uniform[kept]
    stretches = stretches_of(uniform, min(1.0, max_rows / looked.rows)) if len(uniform) else ((0, 0),)
    tally = Tally(tuple(verdicts.items()), stretches)
    tallied = tally.merged(source.apply([*verdicts, *group], tally))
    findings = [*how.findings]
    _, _, odd = how.read(looked.numbers[:0])
    for at, each in enumerate(odd):
        if tallied.odd[at]:
            findings.append(how.finding(each.kind, each.what, tallied.odd[at] / looked.valid))
    groups = dict(tallied.by_group())
    whole = total_of(groups.values())
    if tallied.unknown:
        findings.append(_without_arrival(tallied.unknown / (tallied.unknown + whole.rows), ()))
    rows = tallied.sample
    us = np.asarray(rows.column("us").to_numpy())
    arrival_us = None if not arrived else np.asarray(rows.column("arrival").to_numpy())
    ordered = source.ordered or bool(arrived)
    order = np.arange(len(us))
    if arrival_us is not None or not ordered:
        order = np.argsort(us if arrival_us is None else arrival_us, kind="stable")
    of_drawn = looked.drawn.drop_columns(["priority", "number"])
    drawn = np.zeros(len(uniform), np.int64)
    if group:
        keys, counted, number = _counted_groups(groups)
        numbers, drawn = number(rows), number(of_drawn.filter(pa.array(kept)))
    else:
        (numbers, keys), counted = _one(len(us)), (whole,)
    findings.append(_of_a_sample(len(us), whole.rows, len(stretches), max_rows))
    return Readings(
        us[order], order, numbers[order], keys, None if arrival_us is None else arrival_us[order], None,
        looked.rows, looked.rows - looked.valid, tuple(findings), how.tick_us, ordered,
        False,
        Sample(Known(whole, stretches, uniform), tuple(Known(each, stretches, uniform[:0]) for each in counted), drawn),
    )  # fmt: skip


def _of_a_sample(rows: int, of: int, stretches: int, max_rows: int) -> Finding:
    return Finding(
        "sample", "note", rows / max(1, of), (),
        "All rows were counted (units, sentinels, granularities, groups, the span), but polls, duplicates, short "
        f"outages, order and steps were looked for in {rows:,} of {of:,} rows, those of {stretches} stretches of time, "
        "and zones in a random sample.",
        f"Raise max_rows (it is {max_rows:,}) to have more of them.",
    )  # fmt: skip


def _counted_groups(
    groups: dict[Key, Counted],
) -> tuple[tuple[Key, ...], tuple[Counted, ...], Callable[[pa.Table], IntArray]]:
    """The keys that are profiled each, the counts of each, and what gives rows their numbers; small groups have the
    last."""
    there = list(groups)
    rank = ranks_of_rows(pa.table({f"g{at}": pa.array(values) for at, values in enumerate(zip(*there, strict=True))}))
    counts = np.array([groups[key].rows for key in there], np.int64)
    chosen = _largest(counts, rank)
    numbers = {there[at]: number for number, at in enumerate(chosen.tolist())}
    few = [groups[key] for key in there if key not in numbers]
    counted = tuple(groups[there[at]] for at in chosen.tolist()) + ((total_of(few),) if few else ())

    def number(rows: pa.Table) -> IntArray:
        columns = rows.select([name for name in rows.column_names if name.startswith("g")])
        codes, keys = _coded(columns, rows.num_rows)
        return np.array([numbers.get(key, len(chosen)) for key in _keys(keys)], np.int64)[codes]

    return tuple(there[at] for at in chosen.tolist()), counted, number


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


def _source(table: Any) -> Scattered:
    """A frame as rows that are read in parts."""
    if isinstance(table, pa.Table) or is_dataset(table):
        return Scattered.of(table)
    engine = engine_of([("profiled", table)])
    check_input("profiled", table, engine.frames, engine.hint)
    if engine.scattered is None:  # frames of this process have become tables
        raise AssertionError(engine.name)
    return engine.scattered(table)


def _is_here(table: Any) -> bool:
    """Whether it is a frame of this process. DataFrames of Spark 4.3 have Arrow's C interface, too."""
    return isinstance(table, Frame) and not is_dataset(table) and Frame in engine_of([("profiled", table)]).frames


def _first_rows(table: pa.RecordBatchReader, named: Sequence[str], max_rows: int) -> tuple[pa.Table, int]:
    """At most `max_rows` rows of a reader, and how many there are in all."""
    known = [name for name in named if name in table.schema.names]
    if len(known) < len(named):
        return table.schema.empty_table(), 0  # the caller names the missing column
    kept, held, total = [], 0, 0
    for batch in table:
        total += batch.num_rows
        if held < max_rows:
            kept.append(batch.select(known).slice(0, max_rows - held))
            held += kept[-1].num_rows
    return pa.Table.from_batches(kept, pa.schema([table.schema.field(name) for name in known])), total


def _one(rows: int) -> tuple[IntArray, tuple[Key, ...]]:
    return np.zeros(rows, np.int64), ((),)


def _groups(columns: pa.Table, rows: int) -> tuple[IntArray, tuple[Key, ...]]:
    """The group number of each row, and the keys in their order; the small groups have the last number."""
    codes, there = _coded(columns, rows)
    counts = np.bincount(codes, minlength=there.num_rows)
    rank = ranks_of_rows(there)
    chosen = _largest(counts, rank)
    number = np.full(len(counts), len(chosen), np.int64)
    number[chosen] = np.arange(len(chosen))
    return number[codes], _keys(take_table(there, chosen))


def _largest(counts: IntArray, rank: IntArray) -> IntArray:
    """The groups that are profiled each, in their order."""
    enough = np.flatnonzero(counts >= LEAST_ROWS)
    largest = enough[np.lexsort((rank[enough], -counts[enough]))][:GROUPS]
    return np.asarray(largest[np.argsort(rank[largest])], np.int64)


def _coded(columns: pa.Table, rows: int) -> tuple[IntArray, pa.Table]:
    """A number for the values of each row, and the values by number."""
    codes = np.zeros(rows, np.int64)
    for column in columns.columns:
        encoded = one_zero(column).combine_chunks()
        encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        indices = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64) + 1
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, take_table(columns, first)


def _keys(columns: pa.Table) -> tuple[Key, ...]:
    return tuple(zip(*map(key_values, columns.columns), strict=True))


def with_ends(
    frame: Any,
    time: str,
    group: Sequence[str],
    specs: Mapping[Key, TimeSpec],
    other: TimeSpec,
    names: tuple[str, str],
) -> Any:
    """A frame with both ends of each row's time as columns more; `specs` by group, `other` for the remaining rows."""
    frames = GivenFrames({"profiled": frame})
    (rows,) = frames.tables
    _check(rows.schema, [time, *group], group)
    raw_times(rows.column(time), time)  # refuses a column that holds no times
    for option, name in zip(("t_min", "t_max"), names, strict=True):
        text(option, name)
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
