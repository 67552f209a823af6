"""The rows of a step of the window join, sorted for the search, and as predicates see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.typing import BoolArray, Positions
from whenabouts.core.errors import Code
from whenabouts.core.expressions.row_predicates import as_mask
from whenabouts.core.expressions.tree import Expression, check_condition, evaluate
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.runtime.keys import Keys

if TYPE_CHECKING:
    from whenabouts.core.window_join.expansion import PairTest, StreamRows


PairFunction: TypeAlias = Callable[[Any, Any], Any]
"""Takes aligned rows of two streams, as mappings of column name to Arrow array, and returns a boolean array."""

PairPredicate: TypeAlias = PairFunction | str
"""A function, or an SQL condition."""


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
        keys = 1 if self._nested or self._codes[0] is None else len(np.unique(self._codes[0]))
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

    def stored(self, stream: int) -> StreamRows:
        """The rows of a stream that came in an earlier step."""
        every, stored = self.all(stream), self._rows[stream].stored
        return every.only(every.position < stored) if stored else every.none()

    def new(self, stream: int) -> StreamRows:
        """The rows of a stream that came in this step."""
        every, stored = self.all(stream), self._rows[stream].stored
        return every.only(every.position >= stored) if stored else every


class RowsAt:
    """Some rows of a table, each column taken when a predicate uses it: `rows["name"]` is an Arrow array.

    >>> RowsAt(pa.table({"a": [7, 8]}), np.array([1, 1], np.int32))["a"].to_pylist()
    [8, 8]
    """

    def __init__(self, table: pa.Table, at: Positions) -> None:
        self._table, self._at = table, pa.array(at)

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, name: str) -> pa.Array:
        taken = self._table.column(name).take(self._at)
        return pa.concat_arrays(taken.chunks) if isinstance(taken, pa.ChunkedArray) else taken


@dataclass(frozen=True)
class SqlPredicate:
    """An SQL condition on rows of two streams, with columns written `stream.column`; the same on every engine.

    >>> faster = SqlPredicate.of(("a", "b"), "a.speed < b.speed")
    >>> faster({"speed": pa.array([1, 2])}, {"speed": pa.array([2, None])}).to_pylist()
    [True, None]
    """

    pair: tuple[str, str]
    text: str
    condition: Expression

    @classmethod
    def of(cls, pair: tuple[str, str], text: str) -> SqlPredicate:
        """Parse the text. Raises QueryError WA-2091 if it is not a condition, WA-2007 without sqlglot."""
        from whenabouts.core.expressions.sql import parse_expression  # loads sqlglot: only if there is text

        return cls(pair, text, parse_expression(text))

    def check(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Check columns (QueryError WA-2092) and types (WA-2093) against the streams' schemas."""
        check_condition(self.condition, {name: schemas[name] for name in self.pair})

    def __call__(self, one: Any, other: Any) -> Any:
        """Whether it holds, row by row; null if unknown."""
        rows = dict(zip(self.pair, (one, other), strict=True))
        found = evaluate(self.condition, lambda column: rows[column.value[0]][column.value[1]])
        return np.full(len(one), found.as_py() is True) if isinstance(found, pa.Scalar) else found


def pair_test(
    pair: tuple[str, str], predicate: PairFunction, tables: Sequence[pa.Table], levels: Sequence[int]
) -> PairTest:
    """A predicate as a test of positions by level, which raises QueryError WA-2065 unless it gets one boolean each."""

    def test(at: Sequence[Positions]) -> BoolArray:
        rows = [RowsAt(table, at[level]) for table, level in zip(tables, levels, strict=True)]
        return as_mask(
            predicate(*rows),
            len(rows[0]),
            code=Code.BAD_PREDICATE,
            what=f"the predicate of {', '.join(pair)}",
            hint="give one boolean for each pair of rows",
        )

    return test
