"""The rows of one input of a join: its blocks as one table, with its times."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import RowsAt
from whenabouts.core.arrays.typing import IntArray, Positions
from whenabouts.core.runtime.blocks import templates_of, times
from whenabouts.core.state.segment_layout import SegmentRows


class SideRows(NamedTuple):
    """All rows of one input in a step: first the `stored` many stored ones, then the new ones in arrival order.

    `held`: the stored ones again, by segment, with their marks.
    """

    table: pa.Table
    t_min: IntArray
    t_max: IntArray
    template: NDArray[np.int32] | None
    stored: int
    held: tuple[SegmentRows, ...] = ()

    def at(self, positions: Positions, without: Collection[str]) -> SideRows:
        """The rows at these positions as new ones, without these columns. O(positions)."""
        schema = pa.schema([field for field in self.table.schema if field.name not in without])
        table = pa.Table.from_arrays(RowsAt(self.table, positions).columns(schema.names), schema=schema)
        return SideRows(table, *times(table), templates_of(table), 0)

    def marks(self, schema: pa.Schema) -> pa.Table:
        """Marks of the stored rows."""
        return pa.Table.from_batches([held.rows.select(schema.names) for held in self.held], schema)
