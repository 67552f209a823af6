"""Rows as an exact multiset: what "the same result" means, and a diff that a person can read.

No tolerance: floats are compared by their bits (so -0.0 is not 0.0 and no digit of a probability may differ; all NaN
are one NaN, since Arrow, Parquet and the JVM do not keep its payload), integers are not booleans, null is only null.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]

SHOWN = 8
"""Rows of each kind that a failure message prints."""


class Bits:
    """A float that equals another one only if their bits are equal; all NaN are equal."""

    __slots__ = ("_bits", "value")

    def __init__(self, value: float) -> None:
        self.value = value
        self._bits = b"nan" if value != value else struct.pack("<d", value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bits) and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(self._bits)

    def __repr__(self) -> str:
        return repr(self.value)


class Whole:
    """An integer, or a boolean: Python's True == 1 must not hide a changed type."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whole) and self.value is other.value

    def __hash__(self) -> int:
        return hash((Whole, self.value))

    def __repr__(self) -> str:
        return repr(self.value)


def cell(value: object) -> Any:
    """A value in the form in which it is compared.

    >>> cell(0.0) == cell(-0.0), cell(float("nan")) == cell(float("nan")), cell(1) == cell(True), cell(1) == cell(1.0)
    (False, True, False, False)
    """
    if isinstance(value, float):
        return Bits(value)
    if isinstance(value, bool):
        return Whole(value)
    if isinstance(value, list):
        return tuple(map(cell, value))
    return value


def cells(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """A column's values in the form in which they are compared; timestamps as whole microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return [cell(value) for value in column.to_pylist()]


def rows(table: pa.Table, columns: Sequence[str] | None = None) -> Counter[Row]:
    """The rows of a table with their multiplicities, in `columns` (default: all, in order)."""
    names = table.column_names if columns is None else columns
    if not names:
        return Counter({(): table.num_rows} if table.num_rows else {})
    return Counter(zip(*(cells(table.column(name)) for name in names), strict=True))


def counted(expected: Iterable[Sequence[object]]) -> Counter[Row]:
    """Plain Python rows with their multiplicities, in the form of `rows`."""
    return Counter(tuple(map(cell, row)) for row in expected)


def assert_same(
    actual: Counter[Row], expected: Counter[Row], what: str, context: Mapping[str, object] | None = None
) -> None:
    """Fail with the missing and the extra rows unless both multisets are equal."""
    __tracebackhide__ = True
    if actual != expected:
        raise AssertionError("\n".join(_difference(actual, expected, what, context or {})))


def _difference(
    actual: Counter[Row], expected: Counter[Row], what: str, context: Mapping[str, object]
) -> Iterator[str]:
    missing, extra = expected - actual, actual - expected
    yield f"{what}: {actual.total()} rows, expected {expected.total()}"
    yield from (f"  {name} = {value!r}" for name, value in context.items())
    for title, found in (("missing", missing), ("too many", extra)):
        yield f"  {found.total()} {title}"
        for row, times in sorted(found.items(), key=lambda item: repr(item[0]))[:SHOWN]:
            yield f"  {title} x{times}: {row}"
        if len(found) > SHOWN:
            yield f"  ... and {len(found) - SHOWN} more kinds of row {title}"


def assert_same_columns(actual: pa.Schema, expected: pa.Schema, what: str) -> None:
    """Fail unless names, order and types of the columns are equal (nullability and metadata do not count)."""
    __tracebackhide__ = True
    told = [[f"{field.name}: {field.type}" for field in schema] for schema in (actual, expected)]
    assert told[0] == told[1], f"{what}: columns are\n  {told[0]}\nexpected\n  {told[1]}"
