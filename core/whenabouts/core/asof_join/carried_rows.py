"""Right rows that lie before every left row to come, of which an as-of join needs the prevailing ones, however old.

Right rows enter the state by time. Once all future left rows begin at or after a time A, the rows that end before A are
*folded*: of each key only those stay that can still prevail, or share a world with one that does. They are carried by
key (`state.hashed_slots`), so that a step reads only those of its keys.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import no_rows, one_batch, table_of
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.asof_join.right_order import ties_of
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import NO_WATERMARK, SegmentStore
from whenabouts.core.state.hashed_slots import HashedSlots, Size

RIGHT, CARRIED = 1, 2
"""Inputs: the query's right one, and the operator's own, whose segments are slots of hashes."""


class Carried(NamedTuple):
    """What the directory keeps of the carried rows.

    `next_slot`, `swept_us`: where the search for rows that a tolerance has put out of reach has come to, and the A of
    that search.
    """

    slots: int = 1
    rows: int = 0
    bytes: int = 0
    next_slot: int = 0
    swept_us: int = NO_WATERMARK


class CarriedRows:
    """The carried rows of a bucket during one step. `order_by`: right columns that decide between equal instants."""

    def __init__(
        self,
        store: SegmentStore,
        schema: pa.Schema,
        keys: Keys,
        *,
        order_by: tuple[str, ...],
        tolerance_us: int | None,
        carried: Carried,
    ) -> None:
        self._keys, self._order_by, self._tolerance_us = keys, order_by, tolerance_us
        self._schema = schema
        self._next_slot, self._swept_us = carried.next_slot, carried.swept_us
        size = Size(carried.slots, carried.rows, carried.bytes)
        self._slots = HashedSlots(store, CARRIED, schema, lambda rows: keys.hashes(rows, RIGHT)[0], size)

    @property
    def carried(self) -> Carried:
        """What the directory has to keep."""
        return Carried(*self._slots.size, self._next_slot, self._swept_us)

    def of(self, left: pa.RecordBatch) -> pa.RecordBatch:
        """The carried rows of the keys of left rows; rows of other keys may be among them."""
        if not self._slots.size.rows:
            return no_rows(self._schema)  # without a look at the store
        return self._slots.read(self._slots.of(self._keys.hashes(left, 0)[0]))

    def fold(self, rows: pa.RecordBatch, before_us: int) -> int:
        """Take in right rows that end before A = `before_us`; returns how many rows are not needed any more."""
        if not rows.num_rows:
            return 0
        slots = self._slots.of(self._keys.hashes(rows, RIGHT)[0])
        return self._prune(slots, rows, before_us)

    def sweep(self, before_us: int) -> int:
        """Drop rows of silent keys that `tolerance` has put out of reach of all left rows from A = `before_us` on.

        Slots are swept in turn, as many as A has advanced in relation to the tolerance: all of them within one
        tolerance. Returns how many rows were dropped.
        """
        if self._tolerance_us is None or not self._slots.size.rows or before_us <= self._swept_us:
            if not self._slots.size.rows:
                self._swept_us = max(self._swept_us, before_us)
            return 0
        count = self._slots.size.slots
        share = -(-count * (before_us - self._swept_us) // max(self._tolerance_us, 1))
        slots = np.unique((self._next_slot + np.arange(min(share, count))) % count)
        self._next_slot = (self._next_slot + len(slots)) % count
        self._swept_us = before_us
        return self._prune(slots, no_rows(self._schema), before_us)

    @property
    def next_sweep_us(self) -> int | None:
        """The A at which a sweep reaches every slot, None if there is nothing to sweep."""
        if self._tolerance_us is None or not self._slots.size.rows or self._swept_us == NO_WATERMARK:
            return None
        return self._swept_us + max(self._tolerance_us, 1)

    def _prune(self, slots: IntArray, rows: pa.RecordBatch, before_us: int) -> int:
        held = self._slots.read(slots)
        whole = one_batch(table_of([held, rows], self._schema))
        codes = self._keys.codes([whole], RIGHT)[0]
        needed = still_needed(codes, whole, self._order_by, before_us, self._tolerance_us)
        if rows.num_rows or not needed.all():
            self._slots.replace(slots, whole.filter(pa.array(needed)))
        return int(len(needed) - needed.sum())


def still_needed(
    codes: IntArray, rows: pa.RecordBatch, order_by: tuple[str, ...], before_us: int, tolerance_us: int | None
) -> BoolArray:
    """Which rows, all of which end before A = `before_us`, left rows from A on still need.

    Of each key: the row that begins last and those that overlap it; of points at one instant the last in order; with a
    tolerance no row that ends before A - tolerance. Removing the others changes no probability (the row that begins
    last prevails over each of them in every world). `codes`: the rows' keys. O(rows), and a sort of tied points.
    """
    begins, ends = times(rows)
    last_begin = np.full(int(codes.max(initial=-1)) + 1, NO_WATERMARK)
    np.maximum.at(last_begin, codes, begins)
    needed: BoolArray = ends >= last_begin[codes]
    if tolerance_us is not None:
        needed &= ends >= before_us - tolerance_us
    ties = ties_of(pa.Table.from_batches([rows]), codes, order_by)
    followed = ties.row[np.flatnonzero(ties.group[1:] == ties.group[:-1])]
    needed[followed[begins[followed] == ends[followed]]] = False
    return needed
