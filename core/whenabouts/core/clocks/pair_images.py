"""Counts of pairs by left time and by right - left: the plane in which two clocks are a straight line.

Times are whole cells from a common origin. A pair of cells (i, j) counts at segment i // cells of a segment, and at the
difference j - i. Two ways give the same counts: enumeration of the pairs that are in the window, and, where these are
many, a product of Fourier transforms for each segment (Perkel, Gerstein and Moore 1967 for the cross-correlogram).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import FloatArray, IntArray

Streams = Sequence[tuple[IntArray, IntArray]]
"""Sorted left and right times by key: only rows of one key are pairs."""

PAIRS_AT_ONCE = 1 << 22
CELLS_AT_ONCE = 1 << 22
PAIR_COST, CELL_COST = 12.0, 8.0
"""Nanoseconds to enumerate a pair, and to transform a cell, for each doubling of the transform's length."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which pairs count: those of `segments` of `cells` each from cell 0, with one of `width` differences from `lo`."""

    segments: int
    cells: int
    lo: int
    width: int


def pair_image(left: IntArray, right: IntArray, window: Window) -> NDArray[np.float32]:
    """The number of pairs by segment and difference; `left` and `right` are sorted cells.

    Left cells outside the segments do not count. Cost: O(pairs in the window) or O(S M log M), the cheaper one.

    >>> pair_image(np.array([0, 1, 5]), np.array([1, 6]), Window(2, 4, 0, 3)).tolist()
    [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    """
    left = inside(left, window)
    way = by_pairs if _enumerated(left, right, window) else by_transforms
    return way(left, right, window)


def _enumerated(left: IntArray, right: IntArray, window: Window) -> bool:
    """Whether it is cheaper to enumerate the pairs."""
    first = np.searchsorted(right, left + window.lo)
    pairs = int(np.sum(np.searchsorted(right, left + window.lo + window.width) - first))
    length = _length(window)
    return pairs * PAIR_COST <= window.segments * length * math.log2(length) * CELL_COST


def image_of(streams: Streams, window: Window) -> NDArray[np.float32]:
    """The images of all keys added; cells as `pair_image` takes them.

    >>> image_of([(np.array([0]), np.array([1])), (np.array([3]), np.array([4]))], Window(2, 2, 0, 2)).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    if len(streams) == 1:
        return pair_image(*streams[0], window)
    image = np.zeros((window.segments, window.width), np.float32)
    held: list[IntArray] = []
    for left, right in streams:
        left = inside(left, window)
        if _enumerated(left, right, window):
            held += _cells_of_pairs(left, right, window)
            if sum(map(len, held)) > PAIRS_AT_ONCE:
                _add(image, held)
                held = []
        else:
            image += by_transforms(left, right, window)
    _add(image, held)
    return image


def inside(left: IntArray, window: Window) -> IntArray:
    """The left cells that lie in the segments."""
    return left[np.searchsorted(left, 0) : np.searchsorted(left, window.segments * window.cells)]


def _add(image: NDArray[np.float32], cells: list[IntArray]) -> None:
    if cells:
        image += np.bincount(np.concatenate(cells), minlength=image.size).reshape(image.shape).astype(np.float32)


def by_pairs(left: IntArray, right: IntArray, window: Window) -> NDArray[np.float32]:
    """The image by enumeration; left cells lie in the segments."""
    counts = np.zeros(window.segments * window.width, np.int64)
    for at in _cells_of_pairs(left, right, window):
        counts += np.bincount(at, minlength=len(counts))
    return counts.reshape(window.segments, window.width).astype(np.float32)


def _cells_of_pairs(left: IntArray, right: IntArray, window: Window) -> Iterator[IntArray]:
    """The cell of the image of each pair, some millions of pairs at once."""
    first = np.searchsorted(right, left + window.lo)
    many = np.searchsorted(right, left + window.lo + window.width) - first
    base = left // window.cells * window.width - left - window.lo
    for some, partner in in_pieces(first, many, PAIRS_AT_ONCE):
        yield np.repeat(base[some], many[some]) + right[partner]


def in_pieces(first: IntArray, many: IntArray, at_once: int) -> Iterator[tuple[slice, IntArray]]:
    """The partners of rows that have `many` in succession, from `first` on: rows with about `at_once` partners
    together, and these, row after row.

    A row with more is a piece of its own. Memory: one piece.

    >>> pieces = in_pieces(np.array([0, 1, 5]), np.array([2, 0, 3]), 3)
    >>> [(some.start, some.stop, partners.tolist()) for some, partners in pieces]
    [(0, 2, [0, 1]), (2, 3, [5, 6, 7])]
    """
    ends = np.cumsum(many)
    start = 0
    while start < len(many):
        done = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, done + at_once, side="right")), start + 1)
        some = slice(start, stop)
        partners = np.repeat(first[some] - (ends[some] - many[some]) + done, many[some])
        partners += np.arange(len(partners))
        yield some, partners
        start = stop


def by_transforms(left: IntArray, right: IntArray, window: Window) -> NDArray[np.float32]:
    """The image by transforms of each segment; left cells lie in the segments."""
    image = np.empty((window.segments, window.width), np.float32)
    length, reach = _length(window), window.cells + window.width - 1
    at_once = max(CELLS_AT_ONCE // length, 1)
    for start in range(0, window.segments, at_once):
        some = range(start, min(start + at_once, window.segments))
        events = np.stack([_histogram(left, s * window.cells, window.cells) for s in some])
        partners = np.stack([_histogram(right, s * window.cells + window.lo, reach) for s in some])
        product = np.conj(np.fft.rfft(events, length)) * np.fft.rfft(partners, length)
        image[start : start + len(some)] = np.rint(np.fft.irfft(product, length)[:, : window.width])
    return image


def _length(window: Window) -> int:
    """The least power of two at which nothing of a segment wraps round."""
    return 1 << (window.cells + window.width - 2).bit_length() if window.cells + window.width > 2 else 2


def _histogram(cells: IntArray, start: int, length: int) -> FloatArray:
    own = cells[np.searchsorted(cells, start) : np.searchsorted(cells, start + length)] - start
    return np.bincount(own, minlength=length).astype(float)
