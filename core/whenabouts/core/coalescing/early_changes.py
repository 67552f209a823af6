"""What changed between two steps: coalesced tuples before and after, as insertions, updates and deletions by key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.columns import OP, time_array
from whenabouts.core.coalescing.early_index import EarlyIndex, Held
from whenabouts.core.coalescing.early_kernels import (
    AFTER,
    BEFORE,
    COLUMNS,
    DOUBTFUL,
    EXTENT,
    FROM,
    INSERT,
    LATEST,
    TO,
    VALUES,
    N,
    merge_changes,
    range_changes,
)
from whenabouts.core.coalescing.output import RunOutput
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.changes import OPS, changes_field
from whenabouts.core.runtime.output_memory import require_room

_AT_ONCE = 2**18  # rows that are written without counting them first


def net_changes(
    old: IntArray, new: IntArray, alike: Callable[[IntArray, IntArray], BoolArray]
) -> tuple[IntArray, IntArray]:
    """The rows that differ, and what each one is: an index into `OPS`. Equal rows are left out.

    `old`, `new`: coalesced tuples as `EarlyIndex.within` gives them, each key (list, end of the extent, start) once, in
    the order of the keys. `alike`: whether rows of values are the same. An update is two rows, the one before and the
    one after it. O(rows).
    """
    rows, op = np.empty((len(old) + len(new), old.shape[1]), np.int64), np.empty(len(old) + len(new), np.int64)
    count = merge_changes(old, new, rows, op)
    return _shown(rows[:count], op[:count], alike)


def range_changes_of(
    old: Held,
    before: tuple[IntArray, IntArray],
    new: Held,
    after: tuple[IntArray, IntArray],
    extents: IntArray,
    alike: Callable[[IntArray, IntArray], BoolArray],
) -> tuple[IntArray, IntArray]:
    """As `net_changes`, of the runs of the same lists in ranges of tuples before and after. O(runs in the ranges).

    Range `i * len(extents) + k` is that of list i in the extent that ends at `extents[k]`, see `EarlyIndex.ranges`.
    """
    most = _AT_ONCE
    while True:
        rows, op = np.empty((most, len(COLUMNS)), np.int64), np.empty(most, np.int64)
        count = range_changes(new.lists, *old[1:4], *before, *new[1:4], *after, extents, rows, op)
        if count <= most:
            return _shown(rows[:count], op[:count], alike)
        require_room(count, len(COLUMNS) * 8, "coalesced rows of all extents")
        most = count


def _shown(rows: IntArray, op: IntArray, alike: Callable[[IntArray, IntArray], BoolArray]) -> tuple[IntArray, IntArray]:
    """Changes without those of which the rows look alike."""
    count = len(rows)
    pairs = np.flatnonzero(op == BEFORE + DOUBTFUL)
    if not len(pairs):
        return rows, op
    op[pairs], op[pairs + 1] = BEFORE, AFTER
    same = alike(rows[pairs, VALUES], rows[pairs + 1, VALUES])
    keep = np.ones(count, bool)
    keep[pairs[same]] = keep[pairs[same] + 1] = False
    return rows[keep], op[keep]


class ChangeOutput:
    """Builds the rows of changes: `op`, then the columns of the final rows.

    Raises QueryError WA-2009 if a column has the name of a computed one.
    """

    def __init__(self, final: RunOutput) -> None:
        self._final = final
        if OP in final.schema.names:
            raise QueryError(Code.COLUMN_CLASH, f"a column is called {OP!r}", f"{OP} is computed: rename yours")
        self.schema = pa.schema([changes_field(OP), *final.schema])
        self._names = pa.array(OPS)

    def of_rows(self, op: IntArray, rows: IntArray, index: EarlyIndex) -> pa.RecordBatch:
        """The changes of an index."""
        columns = [self._names.take(pa.array(op))]
        if self._final.slides:
            columns.append(time_array(rows[:, EXTENT].copy(), self._final.schema.field(0).type))
        columns += index.columns(rows)
        periods = (FROM, TO, LATEST) if self._final.last else (FROM, TO)
        columns += [time_array(rows[:, at].copy(), self._final.time) for at in periods]
        columns.append(pa.array(rows[:, N].copy()))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def inserted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Final rows as insertions."""
        op = self._names.take(pa.array(np.full(rows.num_rows, INSERT)))
        return pa.RecordBatch.from_arrays([op, *rows.columns], schema=self.schema)
