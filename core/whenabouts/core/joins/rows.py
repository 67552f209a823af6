"""The rows of one input of a join: its blocks as one table, with its times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray
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

    def marks(self, schema: pa.Schema) -> pa.Table:
        """Marks of the stored rows."""
        return pa.Table.from_batches([held.rows.select(schema.names) for held in self.held], schema)
