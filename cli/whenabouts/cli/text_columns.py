"""The types of columns that are text in their files, chosen to fit the columns of other files and inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

Column = tuple[pa.DataType, bool]
"""The type of a column, and whether it is free: text in a file, from which the type was guessed."""


def typed_alike(columns: Sequence[Column], go_together: Callable[[Sequence[pa.DataType]], bool]) -> list[pa.DataType]:
    """Compatible types for columns: free columns adapt to the others.

    Free columns are text unless the others determine something else: "7" in one file is the text "7" if another file
    has "007". If the others are numbers, free columns are numbers, too, and reading them reports values that are not.

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
