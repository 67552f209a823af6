"""The rows of a step of the window join, sorted for the search, and as predicates see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, IntArray, Positions
from whenabouts.core.errors import Code
from whenabouts.core.expressions.row_predicates import call_predicate
from whenabouts.core.joins.pair_conditions import PairFunction, RowsAt
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.runtime.keys import Keys

if TYPE_CHECKING:
    from whenabouts.core.window_join.expansion import PairTest, StreamRows


class StreamViews:
    """The rows of every stream by (key, anchor), sorted on first use. `nested`: sorted under one key."""

    def __init__(self, rows: Sequence[SideRows], keys: Keys, *, nested: bool) -> None:
        self._rows = rows
        codes = keys.codes([side.table for side in rows]) if keys.names else [None] * len(rows)
        self._codes, self._nested = codes, nested and bool(keys.names)
        greatest = max((int(code.max(initial=0)) for code in codes if code is not None), default=0)
        self._keys = 1 if self._nested else greatest + 1
        self._ordered: dict[int, StreamRows] = {}

    def rates(self) -> list[float]:
        """Rows per second and key of each stream, over the time span of all streams; every stream must have rows."""
        ends = [(int(side.t_max.min()), int(side.t_max.max())) for side in self._rows]
        seconds = max((max(last for _, last in ends) - min(first for first, _ in ends)) / 1e6, 1e-6)
        code = None if self._nested else self._codes[0]
        keys = 1 if code is None else int(np.count_nonzero(np.bincount(code)))  # codes are small: no need to sort them
        return [len(side.t_max) / seconds / keys for side in self._rows]

    def every(self) -> list[StreamRows]:
        """All rows of all streams."""
        return [self.all(stream) for stream in range(len(self._rows))]

    def all(self, stream: int) -> StreamRows:
        """All rows of a stream."""
        if stream not in self._ordered:
            from whenabouts.core.arrays.key_time_order import Times, order_rows
            from whenabouts.core.window_join.expansion import stream_rows  # numba: imported when first needed

            side, code = self._rows[stream], self._codes[stream]
            ordered = order_rows(Times(side.t_min, side.t_max, None if self._nested else code), "t_max", self._keys)
            self._ordered[stream] = stream_rows(ordered, code if self._nested else None)
        return self._ordered[stream]

    def in_time_order(self, stream: int) -> tuple[IntArray, IntArray]:
        """The anchors of all rows of a stream in time order, and the key of each as `all` groups them."""
        from whenabouts.core.arrays.key_time_order import Times, order_rows  # numba: imported when first needed

        side, code = self._rows[stream], self._codes[stream]
        if code is None or self._keys == 1:
            return self.all(stream).anchor, np.zeros(len(side.t_max), np.int64)
        ordered = order_rows(Times(side.t_min, side.t_max), "t_max", 1)
        return ordered.axis, code[ordered.position]

    def stored(self, stream: int) -> StreamRows:
        """The rows of a stream that came in an earlier step."""
        every, stored = self.all(stream), self._rows[stream].stored
        return every.only(every.position < stored) if stored else every.none()

    def new(self, stream: int) -> StreamRows:
        """The rows of a stream that came in this step."""
        every, stored = self.all(stream), self._rows[stream].stored
        return every.only(every.position >= stored) if stored else every


_HINT = "it is called with rows of both streams, whose columns are Arrow arrays, and gives one boolean for each pair"


def pair_test(
    pair: tuple[str, str], predicate: PairFunction, tables: Sequence[pa.Table], levels: Sequence[int]
) -> PairTest:
    """A predicate as a test of positions by level, which raises QueryError WA-2065 unless it gets one boolean each."""

    def test(at: Sequence[Positions]) -> BoolArray:
        rows = [RowsAt(table, at[level]) for table, level in zip(tables, levels, strict=True)]
        what = f"the predicate of {', '.join(pair)}"
        return call_predicate(predicate, *rows, code=Code.BAD_PREDICATE, what=what, hint=_HINT)

    return test
