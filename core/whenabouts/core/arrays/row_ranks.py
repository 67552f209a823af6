"""A total order of rows by all their columns, so that a choice between rows never depends on their order of arrival.

Values compare by type: numbers, times and dates by size, text and binary by their bytes, false before true. Nulls come
first. Rows that differ in any bit differ in rank: -0.0 comes before 0.0, and NaN (of any payload) after all numbers.
Types without an order get one here: structs compare field by field, lists and maps lexicographically (a prefix first),
anything else by its text in Python.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.record_batches import doubles, one_chunk
from whenabouts.core.arrays.ticks import as_ticks
from whenabouts.core.arrays.typing import FloatArray, IntArray

_NULL = -1
_LARGEST = np.iinfo(np.int64).max
_NAN = np.int64(0x7FF8000000000000)


def ranks_of_rows(rows: pa.Table) -> IntArray:
    """Dense ranks of the rows of a table: equal rows have equal ranks. O(n log n) per column.

    >>> ranks_of_rows(pa.table({"a": [2, None, 2], "b": [[1], [0], [0, 5]]})).tolist()
    [2, 0, 1]
    """
    ranks = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        ranks = _refined(ranks, ranks_of_column(column))
    return ranks


def _refined(ranks: IntArray, further: IntArray) -> IntArray:
    """Ranks by the first argument, and among equals by the second."""
    order = np.lexsort((further, ranks))
    new = np.zeros(len(order), bool)
    new[1:] = (np.diff(ranks[order]) != 0) | (np.diff(further[order]) != 0)
    dense = np.empty(len(order), np.int64)
    dense[order] = np.cumsum(new)
    return dense


def ranks_of_column(column: pa.Array | pa.ChunkedArray) -> IntArray:
    """Ranks of a column's values: equal values have equal ranks, some numbers may be left out; a null has -1.

    >>> ranks_of_column(pa.array(["b", None, "a"])).tolist()
    [1, -1, 0]
    """
    if isinstance(column, pa.ChunkedArray):
        column = one_chunk(column)
    type_ = column.type
    if pa.types.is_null(type_):
        return np.full(len(column), _NULL)
    if pa.types.is_floating(type_):
        ranks = _ranks_of_floats(column)
    elif pa.types.is_struct(type_):
        ranks = np.zeros(len(column), np.int64)
        for child in column.flatten():
            ranks = _refined(ranks, ranks_of_column(child))
    elif _is_list(type_):
        ranks = _ranks_of_lists(column)
    else:
        ranks = _ranks_of_values(column)
    return np.where(np.asarray(column.is_null()), _NULL, ranks)


def _ranks_of_floats(column: pa.Array) -> IntArray:
    return _dense(float_keys(column))


def float_keys(column: pa.Array) -> IntArray:
    """Integers in the order of a column of floats; those of all NaN are equal, a null has that of 0.0. O(n).

    `floats_of_keys` is the inverse.

    >>> float_keys(pa.array([-0.0, 0.0, -5e-324])).tolist()
    [-1, 0, -2]
    """
    values = doubles(column)
    keys, nan = _ordered(values.view(np.int64)), np.isnan(values)
    if nan.any():
        keys[nan] = _NAN
    return keys


def floats_of_keys(keys: IntArray) -> FloatArray:
    """The doubles with these keys.

    >>> floats_of_keys(float_keys(pa.array([1.5, -0.0, float("-inf")])))
    array([ 1.5, -0. , -inf])
    """
    return _ordered(keys).view(np.float64)


def _ordered(bits: IntArray) -> IntArray:
    """IEEE totalOrder of the bits of doubles, and back: the bits of negative numbers are inverted, but for the sign."""
    found = np.right_shift(bits, 63, out=large_array(len(bits), np.int64))
    found &= _LARGEST
    found ^= bits
    return found


def _is_list(type_: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)
    return any(is_it(type_) for is_it in lists)


def _ranks_of_lists(column: pa.Array) -> IntArray:
    if pa.types.is_map(column.type):
        column = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    parents = np.asarray(pc.list_parent_indices(column))
    elements = ranks_of_column(pc.list_flatten(column))
    ends = np.searchsorted(parents, np.arange(len(column) + 1))
    lists = [tuple(elements[start:end].tolist()) for start, end in pairwise(ends)]
    ranks = {value: rank for rank, value in enumerate(sorted(set(lists)))}
    return np.array([ranks[value] for value in lists], np.int64)


def _ranks_of_values(column: pa.Array) -> IntArray:
    column = as_ticks(column)
    try:
        return np.asarray(pc.rank(column, tiebreaker="dense"), np.int64) - 1
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        texts = pa.array([repr(value) for value in column.to_pylist()], pa.string())
        return np.asarray(pc.rank(texts, tiebreaker="dense"), np.int64) - 1


def _dense(values: IntArray) -> IntArray:
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
