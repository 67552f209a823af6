"""Key columns of several inputs, read with comparable types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from whenabouts.cli.inputs import Input
from whenabouts.cli.text_columns import typed_alike
from whenabouts.core.errors import QueryError
from whenabouts.core.runtime.key_names import Key, of_input
from whenabouts.core.runtime.key_types import common_type


def with_keys_alike(inputs: Sequence[Input], keys: Sequence[Key]) -> list[Input]:
    """The inputs; key columns that are text in their files get types comparable with those of the other inputs."""
    asked: list[dict[str, pa.DataType]] = [{} for _ in inputs]
    for key in keys:
        names = [of_input([key], index)[0] for index in range(len(inputs))]
        if not all(name in source.schema.names for name, source in zip(names, inputs, strict=True)):
            continue  # the query reports it
        columns = [
            (source.schema.field(name).type, name in source.free) for name, source in zip(names, inputs, strict=True)
        ]
        for index, type_ in enumerate(typed_alike(columns, _compare)):
            if type_ != columns[index][0]:
                asked[index][names[index]] = type_
    return [
        source.retyped(types) if types and source.retyped is not None else source
        for source, types in zip(inputs, asked, strict=True)
    ]


def _compare(types: Sequence[pa.DataType]) -> bool:
    try:
        common_type("key", [pa.schema([("key", type_)]) for type_ in types], [""] * len(types))
    except QueryError:
        return False
    return True
