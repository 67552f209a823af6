"""`where=`: a condition on the columns of both rows of a pair, evaluated on blocks of candidate pairs.

As in the `ON` of SQL: a pair that meets the timing condition but not this one is no pair, in every mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.long_text import fitting
from whenabouts.core.arrays.typing import BoolArray, Positions
from whenabouts.core.errors import Code
from whenabouts.core.expressions.row_predicates import as_mask, call_predicate
from whenabouts.core.expressions.tree import Expression, no_such_column, rewritten
from whenabouts.core.joins.output_columns import output_names
from whenabouts.core.joins.pair_conditions import PairFunction, RowsAt, SqlPredicate
from whenabouts.core.joins.sides import LEFT, RIGHT, SIDES
from whenabouts.core.runtime import option_checks as checks

WhereCondition: TypeAlias = SqlPredicate | PairFunction
"""A parsed SQL condition, or a function of two tables."""

PAIRS_AT_ONCE = 1 << 18
"""On how many candidate pairs a condition is evaluated at a time: 2 MB for each column of 8 bytes that it reads."""

_HINT = "it is called with two tables of as many rows and returns one boolean for each pair of rows"


def where_of(value: Any) -> WhereCondition | None:
    """The option as a condition. Raises QueryError: WA-2091 for text that is no SQL condition, WA-2006 for an object
    that is neither text nor a function, WA-2007 for text without sqlglot.

    >>> where_of("left.v < right.w").pair
    ('left', 'right')
    """
    if isinstance(value, str):
        return SqlPredicate.of(SIDES, value)
    if value is not None:
        checks.function("where", value, "give an SQL condition, as 'left.v < right.w', or a function of two tables")
    condition: WhereCondition | None = value
    return condition


def described_where(where: WhereCondition) -> str:
    """The condition in words: its text, or the name of the function."""
    return where.text if isinstance(where, SqlPredicate) else str(getattr(where, "__name__", "a function"))


class Where:
    """A condition over inputs with these columns.

    `keys`, `suffixes`: those of the output, in whose names columns may be written. `columns`: by input, the names of
    the columns that the condition reads; a function may read all of them. Raises QueryError WA-2092 for an SQL column
    that does not exist or could be of either side, WA-2093 for types.

    >>> import numpy as np
    >>> sides = pa.schema({"k": pa.int64(), "v": pa.int64()}), pa.schema({"k": pa.int64(), "v": pa.int64()})
    >>> where = Where(where_of("v_left < right.v"), sides, keys=("k",), suffixes=("_left", "_right"))
    >>> left, right = pa.table({"k": [1, 1], "v": [3, None]}), pa.table({"k": [1], "v": [4]})
    >>> where.columns, where.holds(left, right, np.array([0, 1], np.int32), np.array([0, 0], np.int32)).tolist()
    ((['v'], ['v']), [True, False])
    """

    def __init__(
        self,
        condition: WhereCondition,
        schemas: Sequence[pa.Schema],
        *,
        keys: Sequence[str],
        suffixes: tuple[str, str],
    ) -> None:
        self._condition, every = condition, [schema.names for schema in schemas]
        self.columns: tuple[list[str], list[str]] = (every[LEFT], every[RIGHT])
        if isinstance(condition, SqlPredicate):
            names = output_names(every[LEFT], every[RIGHT], keys, suffixes)
            condition = replace(condition, condition=rewritten(condition.condition, lambda node: _of_side(node, names)))
            condition.check(dict(zip(SIDES, schemas, strict=True)))
            read = {node.value for node in condition.condition.columns()}
            left, right = ([name for name in of if (side, name) in read] for side, of in zip(SIDES, every, strict=True))
            self._condition, self.columns = condition, (left, right)

    def holds(self, left: pa.Table, right: pa.Table, left_at: Positions, right_at: Positions) -> BoolArray:
        """Whether the condition is true for the pairs (left_at[i], right_at[i]); null is not true.

        O(pairs * columns read). Raises QueryError WA-2093 for values (overflow, a failed cast), WA-2065 for a function
        that fails or does not give one boolean for each pair.
        """
        sides = (left, left_at), (right, right_at)
        read = [(of.column(name), at) for (of, at), names in zip(sides, self.columns, strict=True) for name in names]
        parts = [
            self._holds(RowsAt(left, left_at[piece]), RowsAt(right, right_at[piece]))
            for piece in fitting([slice(0, len(left_at))], read)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _holds(self, *rows: RowsAt) -> BoolArray:
        if isinstance(self._condition, SqlPredicate):
            return as_mask(self._condition(*rows), len(rows[LEFT]), code=Code.BAD_PREDICATE, what="where", hint="")
        tables = [pa.table({name: of[name] for name in names}) for of, names in zip(rows, self.columns, strict=True)]
        return call_predicate(self._condition, *tables, code=Code.BAD_PREDICATE, what="where", hint=_HINT)


def _of_side(node: Expression, names: Sequence[Mapping[str, str]]) -> Expression:
    """A column as (side, column): it is written `left.x`, `right.x`, or as in the output."""
    table, name = node.value
    if table is not None:
        return replace(node, value=(table.lower() if table.lower() in SIDES else table, name))
    found = [(side, own) for side, of in zip(SIDES, names, strict=True) for own, out in of.items() if out == name]
    if len(found) == 1:
        return replace(node, value=found[0])
    if found or all(name in of for of in names):
        raise node.error(Code.SQL_COLUMN, f"{name!r} does not say of which side", f"write left.{name} or right.{name}")
    raise no_such_column(node, [out for of in names for out in of.values()])
