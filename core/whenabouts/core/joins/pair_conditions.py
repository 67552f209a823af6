"""Conditions on a row of each of two inputs, in SQL or as a function, and the aligned rows that they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_rows
from whenabouts.core.arrays.typing import Positions
from whenabouts.core.expressions.tree import Expression, check_condition, evaluate
from whenabouts.core.runtime.blocks import PREFIX

PairFunction: TypeAlias = Callable[[Any, Any], Any]
"""Takes aligned rows of two inputs, and returns a boolean array."""

PairPredicate: TypeAlias = PairFunction | str
"""A function, or an SQL condition."""


class RowsAt:
    """Some rows of a table, with what a `pa.Table` has; but each column is one array, `rows["name"]` or
    `rows.column("name")`, and is taken when a predicate asks for it.

    >>> rows = RowsAt(pa.table({"a": [7, 8], "b": ["x", "y"]}), np.array([1, 1], np.int32))
    >>> rows["a"].to_pylist(), rows.num_rows, rows.column_names, rows.to_pylist()[0]
    ([8, 8], 2, ['a', 'b'], {'a': 8, 'b': 'y'})
    """

    def __init__(self, table: pa.Table, at: Positions) -> None:
        self._table, self._at = table, at
        self._taken: dict[str, pa.Array] = {}

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, name: str) -> pa.Array:
        if name not in self._taken:
            self._taken[name] = take_rows(self._table.column(name), self._at)
        return self._taken[name]

    def __getattr__(self, name: str) -> Any:
        """Anything else of a table. (Not what Python asks for by itself, such as for copies.)"""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.to_table(), name)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self)

    @property
    def column_names(self) -> list[str]:
        """The columns of the input, in its order."""
        return [name for name in self._table.column_names if not name.startswith(PREFIX)]

    def column(self, name: str) -> pa.Array:
        """A column."""
        return self[name]

    def to_table(self) -> pa.Table:
        """All columns, taken now."""
        return pa.table({name: self[name] for name in self.column_names})


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
