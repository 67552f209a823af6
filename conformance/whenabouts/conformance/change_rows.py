"""Early answers, read as what they change: the rows that remain once every change is applied by its key."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from whenabouts.conformance import multiset
from whenabouts.conformance.multiset import Row
from whenabouts.core.coalescing.columns import OP, VALID_FROM, WINDOW_END
from whenabouts.core.runtime.changes import OPS

_SIGN = dict(zip(OPS, (1, -1, 1, -1), strict=True))


def applied(changes: pa.Table) -> Counter[Row]:
    """What remains of changes in any order: rows added less rows taken away. Fails if one was never added."""
    names = [name for name in changes.column_names if name != OP]
    total: Counter[Row] = Counter()
    for row, times in multiset.rows(changes, [OP, *names]).items():
        total[row[1:]] += _SIGN[row[0]] * times
    taken = {row: times for row, times in total.items() if times < 0}
    assert not taken, f"rows are taken away that are not there: {taken}"
    return +total


class ChangedRows:
    """A table that changes are applied to by key, in their order, as a database would.

    The key is (end of the window, group, start). An insertion must find no row, and the others the row they expect.
    """

    def __init__(self, group: tuple[str, ...]) -> None:
        self._group = group
        self.rows: dict[Row, Row] = {}
        self._expected: tuple[Row, Row] | None = None

    def apply(self, changes: pa.Table) -> None:
        """Apply the changes of one step."""
        names = [name for name in changes.column_names if name != OP]
        key = [name for name in names if name in (WINDOW_END, *self._group, VALID_FROM)]
        columns = [multiset.cells(changes.column(name)) for name in (OP, *names)]
        at = [1 + names.index(name) for name in key]
        for op, *row in zip(*columns, strict=True):
            of, whole = tuple([op, *row][i] for i in at), tuple(row)
            of = tuple(0.0 if isinstance(cell, multiset.Bits) and cell.value == 0 else cell for cell in of)
            if op == "insert":
                assert of not in self.rows, f"inserted twice: {whole}"
            elif op != "update_after":
                assert self.rows.pop(of) == whole, f"{op} of another row: {whole}"
                self._expected = (of, whole) if op == "update_before" else None
            else:
                assert self._expected is not None, f"nothing was before {whole}"
                assert self._expected[0] == of, f"an update changes its key: {whole}"
                assert self._expected[1] != whole, f"an update changes nothing: {whole}"
            if op in ("insert", "update_after"):
                self.rows[of] = whole

    @property
    def counted(self) -> Counter[Row]:
        """The rows."""
        return Counter(self.rows.values())
