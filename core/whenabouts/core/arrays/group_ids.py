"""Small integer ids for groups that are added and dropped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.row_pool import RowPool
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.ticks import as_ticks
from whenabouts.core.arrays.typing import BoolArray, IntArray


class GroupIds:
    """The values of group columns and their ids; the ids of dropped groups are reused.

    Groups are equal as keys are: NaN equals NaN, and -0.0 equals 0.0 (the one seen first is shown).

    >>> groups = GroupIds(pa.schema({"g": pa.string()}))
    >>> groups.ids_of(pa.table({"g": ["b", "a"]}), 2)[0].tolist(), groups.ranks.tolist()
    ([0, 1], [1, 0])
    >>> groups.drop(np.array([0])); groups.ids_of(pa.table({"g": ["a", "c"]}), 2)
    (array([1, 0]), array([False,  True]))
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._rows = RowPool(schema)
        self._ids: dict[object, int] = {}
        self._keys: dict[int, object] = {}
        self._in_use: IntArray | None = None
        self._ranks: IntArray | None = None

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> IntArray:
        """The ids in use."""
        if self._in_use is None:
            self._in_use = np.fromiter(self._keys, np.int64, len(self._keys))
        return self._in_use

    @property
    def ranks(self) -> IntArray:
        """By id, the rank of a group among all. O(groups log groups) after a group was added."""
        if self._ranks is None:
            ids = self.ids
            self._ranks = np.zeros(int(ids.max(initial=-1)) + 1, np.int64)
            self._ranks[ids] = ranks_of_rows(self.table(ids)) if len(self.schema) else 0
        return self._ranks

    def ids_of(self, groups: pa.Table, count: int) -> tuple[IntArray, BoolArray]:
        """The ids of `count` distinct groups, which are added if necessary; and which of them are new. O(groups)."""
        keys = _keys_of(groups, count)
        ids = np.fromiter(map(self._ids.get, keys, repeat(-1)), np.int64, count)
        new = ids < 0
        added = np.flatnonzero(new)
        if len(added):
            self._ranks = self._in_use = None
            slots = self._rows.put(take_table(groups, added)) if len(self.schema) else np.zeros(1, np.int64)
            ids[added] = slots
            for i, id_ in zip(added.tolist(), slots.tolist(), strict=True):
                self._ids[keys[i]] = id_
                self._keys[id_] = keys[i]
        return ids, new

    def drop(self, ids: IntArray) -> None:
        """Drop groups; their ids become free."""
        if len(ids):
            self._in_use = None
        for id_ in ids.tolist():
            del self._ids[self._keys.pop(id_)]
        if len(self.schema):
            self._rows.free(ids)

    def table(self, ids: IntArray) -> pa.Table:
        """The group columns of ids."""
        return self._rows.table(ids)


def _keys_of(groups: pa.Table, count: int) -> Sequence[object]:
    """What identifies each group in a dict: its value, or a tuple of them."""
    columns = []
    for column in groups.columns:
        if pa.types.is_floating(column.type):
            values = column.cast(pa.float64()).to_pylist()
            columns.append([None if value != value else value + 0.0 for value in values])  # NaN as None: no null groups
            continue
        ticks = as_ticks(column)
        if pa.types.is_integer(ticks.type) and not ticks.null_count:
            columns.append(ticks.to_numpy().tolist())  # a tenth of the time of to_pylist
        else:
            columns.append(ticks.to_pylist())
    if len(columns) == 1:
        return columns[0]
    return list(zip(*columns, strict=True)) if columns else [()] * count
