"""What changed between two steps: coalesced tuples before and after, as insertions, updates and deletions by key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.columns import OP, time_array
from whenabouts.core.coalescing.early_index import AT, FROM, LIST, TO, VALUES, EarlyIndex, N
from whenabouts.core.coalescing.output import RunOutput
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.changes import OPS, changes_field

INSERT, BEFORE, AFTER, DELETE = range(4)
"""Indices into `OPS`."""


def net_changes(
    old: IntArray, new: IntArray, alike: Callable[[IntArray, IntArray], BoolArray]
) -> tuple[IntArray, IntArray]:
    """The rows that differ, and what each one is: an index into `OPS`. Equal rows are left out.

    `old`, `new`: coalesced tuples as `EarlyIndex.within` gives them, each key (list, end of the extent, start) once.
    `alike`: whether rows of values are the same. An update is two rows, the one before and the one after it.
    O(rows log rows).
    """
    rows = np.concatenate([old, new])
    is_new = np.arange(len(rows)) >= len(old)
    order = np.lexsort((is_new, rows[:, FROM], rows[:, AT], rows[:, LIST]))
    rows, is_new = rows[order], is_new[order]
    key = rows[:, [LIST, AT, FROM]]
    pairs = np.flatnonzero((key[1:] == key[:-1]).all(axis=1))  # the row before an update, of each pair
    same = (rows[pairs][:, [TO, N]] == rows[pairs + 1][:, [TO, N]]).all(axis=1)
    doubtful = np.flatnonzero(same & (rows[pairs, VALUES] != rows[pairs + 1, VALUES]))
    if len(doubtful):
        same[doubtful] = alike(rows[pairs[doubtful], VALUES], rows[pairs[doubtful] + 1, VALUES])
    op = np.where(is_new, INSERT, DELETE)
    op[pairs], op[pairs + 1] = BEFORE, AFTER
    keep = np.ones(len(rows), bool)
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
            columns.append(time_array(rows[:, AT].copy(), self._final.schema.field(0).type))
        columns += index.columns(rows)
        columns += [time_array(rows[:, at].copy(), self._final.time) for at in (FROM, TO)]
        columns.append(pa.array(rows[:, N].copy()))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def inserted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Final rows as insertions."""
        op = self._names.take(pa.array(np.full(rows.num_rows, INSERT)))
        return pa.RecordBatch.from_arrays([op, *rows.columns], schema=self.schema)
