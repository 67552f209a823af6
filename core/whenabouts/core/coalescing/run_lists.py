"""Tuples in sorted lists with their runs, for arrivals in any order: a tuple that arrives merges runs or splits one.

Al-Kateb 2010, section 4.2 (Algorithm 2), with its slips corrected (`tests/core/test_coalescing_paper.py` shows them).
Each group has one sorted list (`coalescing.sorted_lists`); a run begins where a tuple does not extend its predecessor,
which is decided when the tuple arrives (`eager`), or by whoever reads the lists.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.row_pool import RowPool
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.equivalence import Equivalence, neighbours_linked, same_bits
from whenabouts.core.coalescing.sorted_list_runs import share_data
from whenabouts.core.coalescing.sorted_lists import Neighbours, SortedLists
from whenabouts.core.coalescing.tuples import ListTuples, links_to_predecessors, predecessors


class RunLists:
    """Sorted lists of tuples, their values, and where runs begin.

    `schema`: the stored values, of which `compared` decide whether a tuple extends its predecessor; the others are only
    shown. Under the equivalence `equal` the tuples of a run share one row of values (`eager`). `comparisons` counts.
    """

    def __init__(
        self, schema: pa.Schema, compared: tuple[str, ...], equivalence: Equivalence, *, eager: bool = True
    ) -> None:
        self.lists = SortedLists()
        self.values = RowPool(schema)
        self.comparisons = 0
        self._eager, self._equivalence = eager, equivalence
        self._compared = [name for name in schema.names if name in compared]
        # Under `equal` a run shares one row of values; `uses` counts the tuples of each row.
        self.shares = eager and not equivalence.needs_all_values
        self.uses = np.zeros(0, np.int64)
        self._unused: list[IntArray] = []

    @property
    def nbytes(self) -> int:
        """Bytes held: times, directories, rows of values."""
        return self.lists.nbytes + self.values.nbytes + 8 * self.values.used * self.shares

    def append(self, new: ListTuples) -> int:
        """Append tuples that are later than the last ones of their lists; returns how many extend a run.

        O(1) amortised for each.
        """
        size = len(new.times)
        if not size:
            return 0
        if not self._eager:
            self.lists.insert(new.lists, new.times, self.values.put(new.values), np.ones(size, bool))
            return 0
        firsts = np.flatnonzero(np.append(True, np.diff(new.lists) != 0))
        continued = firsts[self.lists.sizes[new.lists[firsts]] > 0]  # those that directly follow a tuple held
        last = self.lists.last_data(new.lists[continued])
        held = self.values.table(last)
        extends, compared = links_to_predecessors(
            held.select(self._compared), new.values.select(self._compared), firsts, continued, self._equivalence
        )
        self.comparisons += compared
        data = self._slots_of(new, held, extends, continued, last)
        self.lists.insert(new.lists, new.times, data, ~extends)
        return int(extends.sum())

    def insert(self, new: ListTuples) -> Neighbours:
        """Insert tuples anywhere; no list has one at their times. Returns where they are.

        O(log n + the run that each one touches).
        """
        self.lists.insert(new.lists, new.times, self.put(new.values), np.full(len(new.times), True))
        found = self.lists.neighbours(new.lists, new.times)
        self._link_neighbours(new.lists, found)
        return found

    def replace(self, new: ListTuples, found: Neighbours) -> None:
        """Give the tuples at these times, which are where `found` says, other values."""
        old = self.lists.data[found.here]
        self.lists.data[found.here] = self.put(new.values)
        self.release(old)
        self._link_neighbours(new.lists, found)

    def release(self, data: IntArray) -> None:
        """Count one use less of each row of values. `sweep` frees those that no tuple uses any more."""
        self._unused.append(self.lists.count_uses(self.uses, data, -1) if self.shares else data)

    def sweep(self) -> None:
        """Free rows of values that are no longer in use. Until then they can be read."""
        for data in self._unused:
            self.values.free(data)
        self._unused = []

    def equal_rows(self, one: IntArray, other: IntArray) -> BoolArray:
        """Whether rows of values are shown alike, to the last bit."""
        rows = self.values.table(np.concatenate([one, other]))
        before, after = np.arange(len(one)), np.arange(len(one), 2 * len(one))
        return neighbours_linked(rows, Equivalence("equal"), before, after) & same_bits(rows, before, after)

    def _link_neighbours(self, lists: IntArray, found: Neighbours) -> None:
        """Decide which of these tuples and of their successors extend their predecessors."""
        if not self._eager:
            return
        with_before, with_after = np.flatnonzero(found.before >= 0), np.flatnonzero(found.after >= 0)
        n = len(lists)
        rows = self.values.table(self.lists.data[np.concatenate(found)])  # where there is none, any row
        earlier = np.concatenate([with_before, n + with_after])
        later = np.concatenate([n + with_before, 2 * n + with_after])

        def of_each(pairs: BoolArray) -> tuple[BoolArray, BoolArray]:
            to_before, to_after = np.zeros(n, bool), np.zeros(n, bool)
            to_before[with_before], to_after[with_after] = np.split(pairs, [len(with_before)])
            return to_before, to_after

        linked = neighbours_linked(rows.select(self._compared), self._equivalence, earlier, later)
        extends, is_extended = of_each(linked)
        same = same_bits(rows, earlier, later) if self.shares else np.zeros(len(later), bool)
        same_before, same_after = of_each(same)
        self.comparisons += len(later)
        freed = self.lists.link_neighbours(lists, found, extends, is_extended, same_before, same_after, self.uses)
        self._unused.append(freed)

    def _slots_of(
        self,
        new: ListTuples,
        held: pa.Table,
        extends: BoolArray,
        continued: IntArray,
        last: IntArray,
    ) -> IntArray:
        """The slot of each tuple's values: its own, or its predecessor's if runs share their values."""
        if not self.shares:
            return self.values.put(new.values)
        shared = np.flatnonzero(extends)
        shares = np.zeros(len(extends), bool)
        earlier = predecessors(len(last), len(extends), continued)[shared]
        shares[shared] = same_bits(pa.concat_tables([held, new.values]), earlier, len(last) + shared)
        own = self.put(take_table(new.values, np.flatnonzero(~shares)), uses=0)
        data = np.empty(len(shares), np.int64)
        share_data(shares, own, continued, last, self.uses, data)
        return data

    def put(self, values: pa.Table, uses: int = 1) -> IntArray:
        """Store rows of values, which have so many uses; returns their slots."""
        at = self.values.put(values)
        if self.shares:
            if self.values.room > len(self.uses):
                self.uses = np.concatenate([self.uses, np.zeros(self.values.room - len(self.uses), np.int64)])
            self.uses[at] = uses
        return at
