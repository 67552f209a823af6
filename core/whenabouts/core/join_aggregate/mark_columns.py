"""The columns of marks: what folded right rows have added to open left rows (`folded`), as state keeps it.

They are null where nothing was folded yet:

    count, possible            partners that reach the confidence, and possible ones
    values:COLUMN              those with a value
    sum:COLUMN, expected_sum:COLUMN, expected_count     exact sums (`ExactSums.to_lists`)
    min:COLUMN, max:COLUMN     a value
    first, last                a right row: its times, and the aggregated columns
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.core.join_aggregate.functions import Aggregate
from whenabouts.core.runtime.blocks import PREFIX, T_MAX, T_MIN

COUNT, POSSIBLE = "count", "possible"
NAME = PREFIX + "folded "
"""The beginning of the columns' names."""

_SUM = pa.list_(pa.int64())
_SUMS = {"sum": "sum", "mean": "sum", "expected_sum": "expected_sum"}


def marks_of(aggregates: Sequence[Aggregate], right: pa.Schema, *, decided: bool, chance: bool) -> pa.Schema:
    """The columns of marks. `right`: what state keeps of right rows; `decided`, `chance`: which pairs matter.

    >>> from whenabouts.core.join_aggregate.functions import aggregates_of
    >>> asked = aggregates_of({"n": "count", "total": "sum:v", "least": "min:v"})
    >>> marks_of(asked, pa.schema({"v": pa.float64()}), decided=True, chance=False).names
    ['_wa_folded count', '_wa_folded sum:v', '_wa_folded min:v']
    """
    found: dict[str, pa.DataType] = {}
    if decided:
        found[COUNT] = pa.int64()
    if chance:
        found[POSSIBLE] = pa.int64()
    for each in aggregates:
        name, column = each.function, each.column
        if name == "count" and column is not None:
            found[f"values:{column}"] = pa.int64()
        elif name in _SUMS:
            found[f"{_SUMS[name]}:{column}"] = _SUM
        elif name == "expected_count":
            found[name] = _SUM
        elif name in ("min", "max"):
            found[f"{name}:{column}"] = each.type_from(right)
        elif name in ("first", "last"):
            columns = {of.column for of in aggregates}
            own = [pa.field(of.name, of.type) for of in right if of.name in columns]
            found[name] = pa.struct([pa.field(T_MIN, pa.int64()), pa.field(T_MAX, pa.int64()), *own])
    return pa.schema([pa.field(NAME + name, type_) for name, type_ in found.items()])


def parts_of(marks: pa.Schema) -> list[str]:
    """The names of marks, as above."""
    return [name.removeprefix(NAME) for name in marks.names]


def is_of_chance(part: str) -> bool:
    """Whether a part is about all possible partners, not those that reach the confidence."""
    return part == POSSIBLE or part.startswith("expected_")
