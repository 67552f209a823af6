"""Array types for annotations."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
"""Microseconds, codes, counts."""

BoolArray: TypeAlias = NDArray[np.bool_]
"""Masks: which rows."""

FloatArray: TypeAlias = NDArray[np.float64]
"""Probabilities, masses."""

Positions: TypeAlias = NDArray[np.int32]
"""Indices of rows."""
