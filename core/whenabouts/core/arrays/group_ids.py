"""Numbers of groups that come and go: a small one for each group that is there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.row_pool import ValueRows
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.ticks import as_ticks
from whenabouts.core.arrays.typing import BoolArray, IntArray


class GroupNumbers:
    """Group columns' values and their numbers; the numbers of groups that were dropped are given again.

    Groups are equal as keys are: NaN equals NaN, and -0.0 equals 0.0 (the first that came is shown).

    >>> groups = GroupNumbers(pa.schema({"g": pa.string()}))
    >>> groups.numbers_of(pa.table({"g": ["b", "a"]}), 2)[0].tolist(), groups.ranks.tolist()
    ([0, 1], [1, 0])
    >>> groups.drop(np.array([0])); groups.numbers_of(pa.table({"g": ["a", "c"]}), 2)
    (array([1, 0]), array([False,  True]))
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._rows = ValueRows(schema)
        self._numbers: dict[tuple[object, ...], int] = {}
        self._keys: dict[int, tuple[object, ...]] = {}
        self._ranks: IntArray | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> IntArray:
        """Those in use."""
        return np.fromiter(self._keys, np.int64, len(self._keys))

    @property
    def ranks(self) -> IntArray:
        """By number, the place of a group in the order of all. O(groups log groups) where one is new."""
        if self._ranks is None:
            numbers = self.numbers
            self._ranks = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
            self._ranks[numbers] = ranks_of_rows(self.table(numbers)) if len(self.schema) else 0
        return self._ranks

    def numbers_of(self, groups: pa.Table, count: int) -> tuple[IntArray, BoolArray]:
        """The numbers of `count` groups that differ, and which of them are new. O(groups)."""
        keys = _keys_of(groups, count)
        new = np.array([key not in self._numbers for key in keys], bool)
        places = np.flatnonzero(new)
        if len(places):
            self._ranks = None
            given = self._rows.put(groups.take(pa.array(places))) if len(self.schema) else np.zeros(1, np.int64)
            for place, number in zip(places.tolist(), given.tolist(), strict=True):
                self._numbers[keys[place]] = number
                self._keys[number] = keys[place]
        return np.array([self._numbers[key] for key in keys], np.int64), new

    def drop(self, numbers: IntArray) -> None:
        """Forget groups."""
        for number in numbers.tolist():
            del self._numbers[self._keys.pop(number)]
        if len(self.schema):
            self._rows.free(numbers)

    def table(self, numbers: IntArray) -> pa.Table:
        """The group columns of numbers."""
        return self._rows.table(numbers)


def _keys_of(groups: pa.Table, count: int) -> list[tuple[object, ...]]:
    columns = []
    for column in groups.columns:
        if pa.types.is_floating(column.type):
            values = column.cast(pa.float64()).to_pylist()
            columns.append([None if value != value else value + 0.0 for value in values])  # no group is null
        else:
            columns.append(as_ticks(column).to_pylist())
    return list(zip(*columns, strict=True)) if columns else [()] * count
