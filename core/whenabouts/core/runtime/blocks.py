"""Blocks: the columns that a reader puts before the user's own, and access to them.

A *block* is a record batch whose first columns are the times (`T_MIN`, `T_MAX`) and, if the input has templates, each
row's template number (`TEMPLATE`). The user's columns follow, unchanged except for their layout (`plain_types`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray

PREFIX = "_wa_"
T_MIN = PREFIX + "t_min"
T_MAX = PREFIX + "t_max"
TEMPLATE = PREFIX + "template"


def templates_of(block: pa.RecordBatch | pa.Table) -> NDArray[np.int32] | None:
    """The template numbers of a block, None if its input has no templates."""
    return np.asarray(block.column(TEMPLATE).to_numpy()) if TEMPLATE in block.schema.names else None


def times(block: pa.RecordBatch | pa.Table) -> tuple[IntArray, IntArray]:
    """The two time columns of a block (or a table of blocks) as int64 arrays; no copy if there is one chunk.

    >>> times(pa.record_batch({T_MIN: [1], T_MAX: [2]}))
    (array([1]), array([2]))
    """
    return np.asarray(block.column(T_MIN).to_numpy()), np.asarray(block.column(T_MAX).to_numpy())
