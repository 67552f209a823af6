"""Rows of a bucket by key, however old: slots of hashes, so that a step reads and writes only those of its keys.

Linear hashing (Litwin, VLDB 1980): the number of slots grows by one whenever the rows exceed `ROWS_PER_SLOT` on
average, and each time the rows of a single slot are divided. So no step rewrites everything, and none lists the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import no_rows, one_batch, table_of
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.runtime.protocol import SegmentStore
from whenabouts.core.state.segment_codec import decode, encode

ROWS_PER_SLOT = 512
"""On average: fewer would cost more round trips to the host's store, more would rewrite more rows of other keys."""

Hashes = NDArray[np.uint64]


class Size(NamedTuple):
    """What the operator keeps in its directory between steps: how many slots, rows and bytes there are."""

    slots: int = 1
    rows: int = 0
    bytes: int = 0


class HashedSlots:
    """Rows of the store's input `input`, in the slots of their hashes. `hash_of` gives the hashes of rows.

    >>> from whenabouts.core.state.memory_store import DictStore
    >>> schema = pa.schema({"key": pa.uint64(), "value": pa.string()})
    >>> slots = HashedSlots(DictStore(), 2, schema, lambda rows: rows.column("key").to_numpy())
    >>> slots.replace(np.array([0]), pa.record_batch([[7, 9], ["a", "b"]], schema=schema))
    >>> slots.read(slots.of(np.array([9], np.uint64))).column("value").to_pylist(), slots.size.rows
    (['a', 'b'], 2)
    """

    def __init__(
        self,
        store: SegmentStore,
        input: int,
        schema: pa.Schema,
        hash_of: Callable[[pa.RecordBatch], Hashes],
        size: Size = Size(),  # noqa: B008 (immutable)
    ) -> None:
        self._store, self._input, self._schema, self._hash_of = store, input, schema, hash_of
        self.size = size
        self._read: dict[int, tuple[pa.RecordBatch, int]] = {}  # rows and bytes

    def of(self, hashes: Hashes) -> IntArray:
        """The distinct slots of rows with these hashes, ascending."""
        return np.unique(self._slots(hashes, self.size.slots))

    def read(self, slots: IntArray) -> pa.RecordBatch:
        """All rows of some slots; of keys that share them, too. One `get` for each slot that was not read before."""
        return one_batch(table_of([self._slot(slot) for slot in slots.tolist()], self._schema))

    def replace(self, slots: IntArray, rows: pa.RecordBatch) -> None:
        """Replace all rows of some slots by `rows`, which belong there, and divide slots that are too full."""
        at = self._slots(self._hash_of(rows), self.size.slots)
        order = np.argsort(at, kind="stable")
        starts, stops = (np.searchsorted(at[order], slots, side).tolist() for side in ("left", "right"))
        for slot, start, stop in zip(slots.tolist(), starts, stops, strict=True):
            self._write(slot, rows.take(pa.array(order[start:stop])))
        while self.size.rows > ROWS_PER_SLOT * self.size.slots:
            self._divide_next()

    def _divide_next(self) -> None:
        """Add a slot: the slot that it has the lower bits in common with is divided."""
        number = self.size.slots
        lower = number - (1 << (number.bit_length() - 1))
        rows = self._slot(lower)
        self.size = self.size._replace(slots=number + 1)
        at = self._slots(self._hash_of(rows), self.size.slots)
        self._write(lower, rows.filter(pa.array(at == lower)))
        self._write(number, rows.filter(pa.array(at == number)))

    @staticmethod
    def _slots(hashes: Hashes, count: int) -> IntArray:
        """The slot of each hash among `count` slots. The upper bits decide, because the lower ones chose the bucket."""
        half = 1 << (count.bit_length() - 1)
        upper = (hashes >> np.uint64(32)).astype(np.int64)
        slots = upper & (2 * half - 1)
        return np.where(slots < count, slots, slots - half)

    def _slot(self, slot: int) -> pa.RecordBatch:
        if slot not in self._read:
            data = self._store.get(self._input, slot)
            if data is None:
                self._read[slot] = no_rows(self._schema), 0
            else:
                self._read[slot] = decode(data, self._schema), len(data)
        return self._read[slot][0]

    def _write(self, slot: int, rows: pa.RecordBatch) -> None:
        held = self._slot(slot)
        if held.num_rows == rows.num_rows == 0:
            return
        data = encode(rows, self._schema) if rows.num_rows else b""
        more_rows, more_bytes = rows.num_rows - held.num_rows, len(data) - self._read[slot][1]
        self.size = self.size._replace(rows=self.size.rows + more_rows, bytes=self.size.bytes + more_bytes)
        self._read[slot] = rows, len(data)
        if data:
            self._store.put(self._input, slot, data)
        else:
            self._store.delete(self._input, slot)
