"""Key columns: equality of keys, the bucket of each row, and dense codes to join on.

Equality is that of SQL joins, with floats as in pandas and Spark: a null never equals anything, NaN equals NaN, and
-0.0 equals 0.0. Keys are compared in a common type that holds all values of all inputs (`key_types`), so that an int32
can equal an int64, and instants a nanosecond apart remain different.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.arrays.extremes import extremes
from whenabouts.core.arrays.large_arrays import large_array
from whenabouts.core.arrays.record_batches import MOST_ROWS, too_many
from whenabouts.core.arrays.threads import each
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.key_names import Key, of_input
from whenabouts.core.runtime.key_types import common_type, for_hash, in_one_type
from whenabouts.core.runtime.time_slots import BucketRows, Slots, group_by_bucket, partition_copies

NULL_KEY = -1
"""The code of a key with a null, which matches nothing."""


class Keys:
    """The key columns `names` of every input, with the type in which they are compared.

    A tuple has the key's name in each input. Without names, all rows have the same key. With `slots`, rows of one key
    go to many buckets. Raises InputError WA-1001 for a missing column and QueryError WA-2008 if two inputs' types
    cannot be compared.

    >>> keys = Keys(("k",), [pa.schema({"k": pa.int32()}), pa.schema({"k": pa.int64()})], ("left", "right"))
    >>> left, right = pa.record_batch({"k": pa.array([1, 7], pa.int32())}), pa.record_batch({"k": [7, None]})
    >>> [codes.tolist() for codes in keys.codes([left, right])]
    [[1, 7], [7, -1]]
    """

    def __init__(
        self,
        names: Sequence[Key],
        schemas: Sequence[pa.Schema],
        inputs: Sequence[str],
        slots: Slots | None = None,
    ) -> None:
        self.names = tuple(names)
        self.slots = slots
        self.types = tuple(common_type(name, schemas, inputs) for name in self.names)

    def of(self, input: int) -> tuple[str, ...]:
        """The key columns of an input."""
        return of_input(self.names, input)

    def buckets(self, rows: pa.RecordBatch, n: int, input: int = 0) -> IntArray:
        """The bucket 0..n-1 of each row: a function of the key's value alone, the same in every process.

        Rows with a null key go to bucket 0. O(rows), and one hash per distinct text. Ignores time slots.
        """
        if not self.names or n == 1:
            return np.zeros(rows.num_rows, np.int64)
        hashes, missing = self.hashes(rows, input)
        return np.where(missing, 0, hashes % np.uint64(n)).astype(np.int64)

    def partition(self, input: int, block: pa.RecordBatch, n: int) -> list[BucketRows]:
        """Partition a block of an input over `n` buckets, so that all rows that can match meet in a common bucket.

        Without slots, each row goes to its key's bucket. Rows with a null key match nothing and go to bucket 0.
        """
        if self.slots is None or n == 1:
            return group_by_bucket(self.buckets(block, n, input))
        hashes, missing = self.hashes(block, input)
        first, count = self.slots.of(input, *times(block), n)
        if missing.any():
            hashes, first, count = (np.where(missing, value, of) for value, of in ((0, hashes), (0, first), (1, count)))
        return partition_copies(hashes.astype(np.uint64), first, count, n)

    def hashes(self, rows: pa.RecordBatch, input: int) -> tuple[NDArray[np.uint64], BoolArray]:
        """A hash of each row's key, the same in every process, and which keys contain a null."""
        hashes, missing = np.zeros(rows.num_rows, np.uint64), np.zeros(rows.num_rows, bool)
        for name, type_ in zip(self.of(input), self.types, strict=True):
            column = rows.column(name)
            hashes = _mix(hashes + np.uint64(0x9E3779B97F4A7C15) + _hash_values(for_hash(column, type_)))
            missing |= np.asarray(column.is_null())
        return hashes, missing

    def among(self, input: int, blocks: Sequence[pa.RecordBatch], other: int) -> Callable[[pa.RecordBatch], BoolArray]:
        """Says which rows of an input may have the key of a row of another input's blocks: all that have, and some
        more. One look-up a row and column."""
        names = zip(self.of(other), self.types, strict=True)
        sought = [_Sought(in_one_type([block.column(name) for block in blocks], type_)) for name, type_ in names]

        def may(rows: pa.RecordBatch) -> BoolArray:
            found = np.ones(rows.num_rows, bool)
            for name, type_, values in zip(self.of(input), self.types, sought, strict=True):
                found &= values.among(in_one_type([rows.column(name)], type_))
            return found

        return may

    def codes(self, tables: Sequence[pa.RecordBatch | pa.Table], first: int = 0) -> list[IntArray]:
        """One int64 code per row of every table: equal codes mean equal keys, `NULL_KEY` a key with a null.

        The tables belong to input `first` and those after it. Codes are small (below about four times the number of
        rows), so that counting sorts are cheap.
        """
        narrow = self._narrow(tables, first)
        if narrow is not None:
            values, low, high = narrow
            in_place = low >= 0 and high < 4 * sum(map(len, values))  # they are their own codes, without a copy
            return values if in_place else [_less(of_table, low) for of_table in values]
        lengths = [table.num_rows for table in tables]
        combined = np.zeros(sum(lengths), np.int64)
        columns = zip(*(self.of(first + number) for number in range(len(tables))), strict=True)
        for key, (names, type_) in enumerate(zip(columns, self.types, strict=True)):
            found = zip(tables, names, strict=True)
            column = in_one_type([chunk for table, name in found for chunk in _chunks(table, name)], type_)
            combined = _dense(column) if key == 0 else _combine(combined, _dense(column))
        return list(np.split(combined, np.cumsum(lengths)[:-1]))

    def small_codes(self, tables: Sequence[pa.RecordBatch | pa.Table]) -> list[NDArray[np.int32]]:
        """As `codes`, as int32. In half the time for one integer key in a narrow range.

        Raises QueryError WA-2201 for more than 2^31 keys.
        """
        narrow = self._narrow(tables, 0)
        if narrow is not None and narrow[2] - narrow[1] < MOST_ROWS:
            columns, low, _ = narrow
            return [np.subtract(of, low, out=np.empty(len(of), np.int32), casting="unsafe") for of in columns]
        codes = self.codes(tables)
        if max(int(of.max(initial=0)) for of in codes) >= MOST_ROWS:
            distinct = np.setdiff1d(np.concatenate(codes), [NULL_KEY])
            if len(distinct) > MOST_ROWS:
                raise too_many(len(distinct), "keys")
            codes = [np.where(of == NULL_KEY, NULL_KEY, np.searchsorted(distinct, of)) for of in codes]
        return [of.astype(np.int32) for of in codes]

    def _narrow(
        self, tables: Sequence[pa.RecordBatch | pa.Table], first: int
    ) -> tuple[list[IntArray], int, int] | None:
        """The columns of one int64 key without nulls, and its least and greatest value, if that is a narrow range."""
        if len(self.names) != 1:
            return None
        columns = [table.column(self.of(first + number)[0]) for number, table in enumerate(tables)]
        if any(column.type != pa.int64() or column.null_count for column in columns):
            return None
        values = [np.asarray(column.to_numpy()) for column in columns]
        ends = each(extremes, filter(len, values), sum(map(len, values)))
        if not ends:
            return None
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        return (values, low, high) if high - low < 4 * sum(map(len, values)) else None


class _Sought:
    """Values of a key column. Integers are looked up by some bits of a product (Knuth's multiplicative hashing), so
    that up to one in sixteen others is taken for one of them."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._values = values.unique()
        numbers = _as_int64(self._values)
        if numbers is not None:
            bits = max(int(16 * len(numbers)).bit_length(), 8)
            self._shift = np.uint64(64 - bits)
            self._marked = np.zeros(1 << bits, bool)
            self._marked[self._place(numbers)] = True

    def among(self, column: pa.ChunkedArray) -> BoolArray:
        """Which values of a column may be among them."""
        if column.type != self._values.type:  # instants that do not fit the common type are compared in a wider one
            return np.ones(len(column), bool)
        numbers = _as_int64(column)
        if numbers is not None:
            return self._marked[self._place(numbers)]
        found = pc.is_in(column, value_set=self._values).combine_chunks()
        return np.asarray(found.to_numpy(zero_copy_only=False))

    def _place(self, numbers: IntArray) -> NDArray[np.int64]:
        return ((numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> self._shift).view(np.int64)


def _chunks(table: pa.RecordBatch | pa.Table, name: str) -> list[pa.Array]:
    column = table.column(name)
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _as_int64(column: pa.Array | pa.ChunkedArray) -> IntArray | None:
    """The values as int64 if the type is an integer of 8 bytes, otherwise None. Nulls become 0."""
    type_ = column.type
    if not (pa.types.is_int64(type_) or pa.types.is_timestamp(type_) or pa.types.is_duration(type_)):
        return None
    numbers = column.cast(pa.int64())
    filled = numbers.fill_null(0) if numbers.null_count else numbers
    return np.asarray(filled.to_numpy(), np.int64)


def _hash_values(column: pa.Array) -> NDArray[np.uint64]:
    numbers = _as_int64(column)
    if numbers is not None:
        return _mix(numbers.view(np.uint64))
    if pa.types.is_floating(column.type):
        return _mix(column.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.uint64))
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary if pa.types.is_binary(column.type) else encoded.dictionary.cast(pa.string())
    raw = distinct.cast(pa.binary()).to_pylist()  # text may be invalid UTF-8
    hashes = np.array([crc32(b"None" if value is None else value) for value in raw] or [0], np.uint64)
    indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    return _mix(hashes)[indices] if len(indices) else np.zeros(0, np.uint64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _dense(column: pa.ChunkedArray) -> IntArray:
    numbers = _as_int64(column)
    if numbers is not None and len(numbers):
        low, high = extremes(numbers)
        if high - low < 4 * len(numbers):  # integers in a narrow range are their own codes
            codes = _less(numbers, low)
            return codes if not column.null_count else np.where(np.asarray(column.is_null()), NULL_KEY, codes)
    found, begin = large_array(len(column), np.int64), 0
    for chunk in column.dictionary_encode().chunks:  # they share their dictionary
        end = begin + len(chunk)
        codes = chunk.indices.fill_null(NULL_KEY) if chunk.null_count else chunk.indices
        found[begin:end] = codes.to_numpy(zero_copy_only=False)
        begin = end
    return found


def _less(numbers: IntArray, low: int) -> IntArray:
    return np.subtract(numbers, low, out=large_array(len(numbers), np.int64))


def _combine(first: IntArray, second: IntArray) -> IntArray:
    """Dense codes of pairs of codes; a null on either side gives a null."""
    width = int(second.max(initial=0)) + 1
    pairs = pa.chunked_array([pa.array(first * width + second)])
    codes = _dense(pairs)
    return np.where((first == NULL_KEY) | (second == NULL_KEY), NULL_KEY, codes)
