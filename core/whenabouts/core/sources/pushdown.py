"""Predicate pushdown: conditions that an engine hands to a source, on rows and on the row groups of Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.sources.files import open_parquet


class Predicate(NamedTuple):
    """A condition on one column: `op` is ==, <, <=, >, >=, in, null, or there (meaning not null)."""

    column: str
    op: str
    value: Any = None


def keep(table: pa.Table, predicates: Sequence[Predicate]) -> pa.Table:
    """The rows that meet all predicates that `expression` can decide.

    >>> keep(pa.table({"a": [1, 2, None]}), [Predicate("a", ">", 1)]).num_rows
    1
    """
    wanted = expression(predicates, table.schema)
    return table if wanted is None else table.filter(wanted)


def expression(predicates: Sequence[Predicate], schema: pa.Schema) -> pc.Expression | None:
    """The predicates as an Arrow expression, without those on unknown columns; None if none is left.

    Predicates on columns of most types are left to the engine, which filters the rows again: it compares other values
    than the file has (microseconds where the file has another unit, wider numbers), and engines disagree on NaN.
    """
    found: pc.Expression | None = None
    for column, op, value in predicates:
        if column not in schema.names or not _is_compared_alike(schema.field(column).type):
            continue
        field = pc.field(column)
        match op:
            case "null":
                one = field.is_null()
            case "there":
                one = ~field.is_null()
            case "in":
                one = field.isin(pa.array(value, schema.field(column).type))
            case _:
                one = _COMPARISONS[op](field, pa.scalar(value, schema.field(column).type))
        found = one if found is None else found & one
    return found


def _is_compared_alike(type_: pa.DataType) -> bool:
    """Whether engines have the same values of this type as Arrow, and compare them alike."""
    return type_ in _ALIKE or (pa.types.is_timestamp(type_) and type_.unit == "us")


_ALIKE = frozenset({pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.date32()})

_COMPARISONS: dict[str, Any] = {
    "==": lambda field, value: field == value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}


def groups_ruled_out(path: Path, predicates: Sequence[Predicate], schema: pa.Schema) -> set[int]:
    """The row groups of a Parquet file in which no row can meet the predicates, by their statistics."""
    from pyarrow import dataset

    written = open_parquet(path)
    same = {f.name for f in written.schema_arrow if f.name in schema.names and f.type == schema.field(f.name).type}
    wanted = expression([p for p in predicates if p.column in same], written.schema_arrow)
    if wanted is None:
        return set()
    (fragment,) = dataset.dataset(path, format="parquet").get_fragments()
    possible = {group.id for part in fragment.split_by_row_group(wanted) for group in part.row_groups}
    return set(range(written.metadata.num_row_groups)) - possible
