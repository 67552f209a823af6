"""Sums along all straight lines through an image: the best one is the line of two clocks.

As in dedispersion (Taylor 1974) and the discrete Radon transform (Goetz and Druckmueller 1996, Brady 1998): lines of
two neighbouring blocks of rows are combined to lines of the double block, each of which shares its halves with others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray


@dataclass(frozen=True, slots=True)
class BestLine:
    """The line with the greatest sum `total`: its first and last column. `lines`, `columns`: how many were tried."""

    total: float
    first: int
    last: int
    lines: int
    columns: int

    def columns_of(self, rows: int) -> IntArray:
        """The column in each row."""
        rise = self.last - self.first
        return self.first + (line_path(rows, rise) if rise >= 0 else -line_path(rows, -rise))


def line_sums(image: NDArray[Any], most: int) -> NDArray[Any]:
    """Sums `[rise, first column]` along all lines that rise by 0 to `most` columns from the first row to the last.

    The number of rows is a power of two, `most` below it. What a line would take from beyond the last column counts as
    0. Cost: O(rows x columns x log rows), memory twice the image.

    >>> line_sums(np.array([[1.0, 0, 0], [0, 2.0, 0]]), 1).tolist()
    [[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]]
    """
    rows, width = image.shape
    blocks = image[:, None, :]
    levels = rows.bit_length() - 1
    for level in range(1, levels + 1):
        rises = (most >> (levels - level)) + 1
        above, below = blocks[0::2], blocks[1::2]
        blocks = np.empty((len(above), rises, width), image.dtype)
        for rise in range(rises):
            shift = (rise + 1) // 2
            blocks[:, rise] = above[:, rise // 2]
            blocks[:, rise, : max(width - shift, 0)] += below[:, rise // 2, shift:]
    return np.asarray(blocks[0])


def line_path(rows: int, rise: int) -> IntArray:
    """The columns of a line relative to its first, as `line_sums` takes them.

    >>> line_path(8, 3).tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    if rows == 1:
        return np.zeros(1, np.int64)
    half = line_path(rows // 2, rise // 2)
    return np.concatenate([half, half + (rise + 1) // 2])


def best_line(image: NDArray[Any], most: int) -> BestLine:
    """The best of the lines that rise or fall by up to `most` columns and stay inside the image."""
    width = image.shape[1]
    found = None
    for falling in (False, True):
        sums = line_sums(image[:, ::-1] if falling else image, most)
        sums[np.arange(width) >= width - np.arange(most + 1)[:, None]] = -np.inf  # they leave the image
        rise, column = np.unravel_index(int(np.argmax(sums)), sums.shape)
        total, first, last = float(sums[rise, column]), int(column), int(column + rise)
        if found is None or total > found.total:
            if falling:
                first, last = width - 1 - first, width - 1 - last
            found = BestLine(total, first, last, 2 * most + 1, width)
    assert found is not None
    return found
