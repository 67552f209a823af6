"""Columns that are text in their files and meet columns of other files and inputs: the type that all are read in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    pass

Column = tuple[pa.DataType, bool]
"""The type of a column, and whether it is free: text in a file, whose type is what the text says."""


def typed_alike(columns: Sequence[Column], go_together: Callable[[Sequence[pa.DataType]], bool]) -> list[pa.DataType]:
    """The types in which columns are read so that they go together, those that are free as the others want them.

    They are text where nothing says otherwise: "7" in one file is the text "7" if another one holds "007". Where the
    others are numbers free columns are numbers too, or reading them says which value is none.

    >>> alike = lambda types: len(set(types)) == 1
    >>> typed_alike([(pa.int64(), True), (pa.string(), True)], alike)
    [DataType(string), DataType(string)]
    >>> typed_alike([(pa.int32(), False), (pa.string(), True)], alike)
    [DataType(int32), DataType(int64)]
    """
    types = [type_ for type_, _ in columns]
    known = [type_ for type_, free in columns if not free and not pa.types.is_null(type_)]
    if go_together(types):
        return types
    if not known or any(pa.types.is_string(type_) or pa.types.is_large_string(type_) for type_ in known):
        wanted = pa.string()
    elif all(map(pa.types.is_integer, known)):
        wanted = pa.uint64() if all(map(pa.types.is_uint64, known)) else pa.int64()
    elif all(map(pa.types.is_floating, known)):
        wanted = pa.float64()
    else:
        return types
    return [wanted if free else type_ for type_, free in columns]
