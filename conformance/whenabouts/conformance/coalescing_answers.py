"""The expected output and rejects of a coalescing query over a table, from the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from whenabouts.conformance import coalescing_oracle as scratch
from whenabouts.conformance import multiset, oracle
from whenabouts.conformance.coalescing_oracle import CoalescedTuple, Reading
from whenabouts.conformance.multiset import Row
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.coalescing.window_spec import Extents


class CoalescingAnswer(NamedTuple):
    """Output rows, rejected rows with their codes, and the number of repeated rows."""

    rows: Counter[Row]
    rejects: Counter[Row]
    replayed: int


def answer(query: Coalesce, table: pa.Table) -> CoalescingAnswer:
    """The answer, computed from scratch; times are int64 or timestamps in microseconds."""
    how, time = query.coalescing, query.point.t
    good, rejects = [], []
    cells = zip(*(multiset.cells(column) for column in table.columns), strict=True)
    for row, values in zip(oracle.plain_rows(table), cells, strict=True):
        if row[time] is None:
            rejects.append(("WA-1003", *values))
        elif any(row[name] is None for name in how.group):
            rejects.append(("WA-1021", *values))
        else:
            good.append(row)
    settled = scratch.settle(good, time, how.group)
    rejects += [("WA-1022", *map(multiset.cell, row.values())) for row in settled.duplicates]
    kind, bound = how.equivalence.kind, how.equivalence.bound
    goes_on = scratch.all_equivalent(kind, bound, how.values)
    if how.equivalence.predicate is not None:
        goes_on = scratch.pair_by_pair(how.equivalence.predicate, table.schema)
    found: list[tuple[object, ...]] = []
    for at, extent in extents(how.extents, settled.readings):
        runs = scratch.coalesced(extent, lambda a, b: goes_on(*({n: r[n] for n in how.values} for r in (a, b))))
        found += [(*([at] if how.extents.slides else []), *_columns(query, run)) for run in runs]
    return CoalescingAnswer(multiset.counted(found), Counter(rejects), settled.replayed)


def extents(how: Extents, readings: tuple[Reading, ...]) -> Iterator[tuple[int, Iterable[Reading]]]:
    """The extents that the query asks for, with their instants."""
    if not readings:
        return
    window, latest = how.window, max(reading.ts for reading in readings)
    if how.slide_rows is not None:
        assert window.rows is not None
        for reading in scratch.row_instants(readings, how.slide_rows, per_group=window.per_group):
            mine = [r for r in readings if r.group == reading.group] if window.per_group else list(readings)
            yield reading.ts, scratch.extent_by_rows(mine, (reading.ts, reading.group), window.rows)
        return
    instants: Iterable[int] = [latest if how.at_us is None else how.at_us]
    if how.slide_us is not None:
        instants = scratch.instants(readings, how.slide_us)
    for at in instants:
        if window.width_us is not None:
            yield at, scratch.extent_by_time(readings, at, window.width_us, closed=window.closed)
        elif window.rows is not None:
            yield at, scratch.extent_by_rows(readings, at, window.rows, per_group=window.per_group)
        else:
            yield at, [reading for reading in readings if reading.ts <= at]


def _columns(query: Coalesce, run: CoalescedTuple) -> tuple[object, ...]:
    names = (*query.coalescing.group, *query.coalescing.values)
    last = [run.rows[-1][query.point.t]] if query.valid_last else []
    return (*(run.rows[0][name] for name in names), run.start, run.end, *last, run.n)
