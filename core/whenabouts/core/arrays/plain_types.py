"""Converts columns to the layouts that Arrow's compute functions support, whatever layout another library chose.

Dictionary and run-end encoded columns become their values, `string_view` becomes `string`, `binary_view` `binary`, list
views lists, and extension types their storage, also within structs, lists and maps. State and other processes do not
share dictionaries, and pyarrow 16 cannot take rows of the other layouts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import chunks_of, one_chunk, take_values
from whenabouts.core.arrays.typing import BoolArray, IntArray


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of `plain` columns.

    >>> plain_type(pa.struct([("k", pa.dictionary(pa.int8(), pa.string_view())), ("n", pa.int64())]))
    StructType(struct<k: string, n: int64>)
    """
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return plain_type(type_.value_type)
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(type_.field(i)) for i in range(type_.num_fields)])
    if pa.types.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field), keys_sorted=type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if pa.types.is_large_list(type_) or pa.types.is_large_list_view(type_):
        return pa.large_list(_plain_field(type_.value_field))
    if pa.types.is_list(type_) or pa.types.is_list_view(type_):
        return pa.list_(_plain_field(type_.value_field))
    return type_


def plain(column: pa.Array) -> pa.Array:
    """The same values in the column's `plain_type`; the column itself if it has that type. O(values).

    Raises QueryError WA-2201 for text too long for one array.
    """
    type_, wanted = column.type, plain_type(column.type)
    if type_ == wanted:
        return column
    if isinstance(type_, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_dictionary(type_):
        return one_chunk(_decoded(column))
    if pa.types.is_run_end_encoded(type_):
        indices = column.offset + np.arange(len(column))
        at = np.searchsorted(np.asarray(column.run_ends), indices, side="right")
        return one_chunk(take_values(plain(column.values), at))
    if pa.types.is_struct(type_):
        children = [plain(column.field(i)) for i in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=column.is_null())
    if pa.types.is_fixed_size_list(type_):
        values = column.values.slice(column.offset * type_.list_size, len(column) * type_.list_size)
        return pa.FixedSizeListArray.from_arrays(plain(values), type=wanted, mask=column.is_null())
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        return _list_of_views(column, wanted)
    if pa.types.is_map(type_):
        offsets, values = _rebased(column)
        return pa.MapArray.from_arrays(offsets, plain(column.keys.slice(*values)), plain(column.items.slice(*values)))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        offsets, values = _rebased(column)
        kind = pa.LargeListArray if pa.types.is_large_list(type_) else pa.ListArray
        return kind.from_arrays(offsets, plain(column.values.slice(*values)), type=wanted)
    try:
        return column.cast(wanted)
    except pa.ArrowNotImplementedError:  # views, before pyarrow 18
        return pa.array(column.to_pylist(), wanted)


def plain_table(table: pa.Table) -> pa.Table:
    """A table with all columns converted by `plain`."""
    for i, field in enumerate(table.schema):
        wanted = plain_type(field.type)
        if wanted != field.type:
            chunks = [part for chunk in table.column(i).chunks for part in _parts(chunk)]
            table = table.set_column(i, field.with_type(wanted), pa.chunked_array(chunks, wanted))
    return table


def _parts(column: pa.Array) -> list[pa.Array]:
    """`plain`, in several arrays where the text of a dictionary needs them."""
    is_dictionary = pa.types.is_dictionary(column.type)
    return chunks_of(_decoded(column)) if is_dictionary else [plain(column)]


def _decoded(column: pa.DictionaryArray) -> pa.ChunkedArray:
    indices = np.asarray(column.indices.cast(pa.int64()).fill_null(-1))
    return take_values(plain(column.dictionary), indices)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def _list_of_views(column: Any, wanted: pa.DataType) -> pa.Array:
    """Views may overlap and be in any order, so each list gets its own copy of its values."""
    null = np.asarray(column.is_null())
    sizes = np.where(null, 0, np.asarray(column.sizes)).astype(np.int64)
    ends = np.cumsum(sizes)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(np.asarray(column.offsets) - (ends - sizes), sizes)
    offsets = _with_nulls(np.concatenate([[0], ends]), null, wanted)
    kind = pa.LargeListArray if pa.types.is_large_list(wanted) else pa.ListArray
    return kind.from_arrays(offsets, one_chunk(take_values(plain(column.values), at)), type=wanted)


def _rebased(column: Any) -> tuple[pa.Array, tuple[int, int]]:
    """Offsets of lists, starting at 0 and null for null lists; the index of their first value, and their number."""
    offsets = np.asarray(column.offsets, np.int64)
    if not len(column):
        return _with_nulls(np.zeros(1, np.int64), np.zeros(0, bool), column.type), (0, 0)
    null = np.asarray(column.is_null())
    return _with_nulls(offsets - offsets[0], null, column.type), (int(offsets[0]), int(offsets[-1] - offsets[0]))


def _with_nulls(offsets: IntArray, null: BoolArray, type_: pa.DataType) -> pa.Array:
    width = pa.int64() if pa.types.is_large_list(type_) else pa.int32()
    return pa.array(offsets, width, mask=np.append(null, False) if null.any() else None)
