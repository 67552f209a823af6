"""Shapes: distributions of time before an anchor, as flat arrays for kernels.

A shape is a template, or a uniform distribution of some length, with its anchor (`t_max`) at 0. A catalogue holds the
shapes of one side of a join; a row is then an anchor and a shape number.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.times.templates import Template


class Shapes(NamedTuple):
    """Concatenated shapes: shape s has the entries `start[s] : start[s + 1]`, one per bucket and one for the end.

    `edge`: int64 microseconds from the anchor to the bucket's start (last entry: to the end of the last bucket).
    `mass`: the bucket's probability, correctly rounded (last entry: 0). `below`: the probability of all buckets before
    it, rounded from the exact sum (last entry: 1).
    """

    edge: IntArray
    mass: FloatArray
    below: FloatArray
    start: IntArray

    @property
    def buckets(self) -> int:
        """The largest number of buckets of any shape."""
        return int(np.diff(self.start).max()) - 1


@lru_cache(maxsize=64)
def template_shapes(templates: tuple[Template, ...]) -> Shapes:
    """The catalogue of registered templates, numbered in the given order.

    >>> template_shapes((Template(((0, 20, .1), (20, 30, .3), (30, 40, .6))),)).below.round(9).tolist()
    [0.0, 0.1, 0.4, 1.0]
    """
    mass, below = [], []
    for template in templates:
        total = Fraction(0)
        for *_, p in template.exact:
            mass.append(float(p))
            below.append(float(total))
            total += p
        mass.append(0.0)
        below.append(float(total))
    edges = [template.edges for template in templates]
    start = np.cumsum([0, *map(len, edges)], dtype=np.int64)
    return _shapes([us for row in edges for us in row], mass, below, start)


def uniform_shapes(lengths: Sequence[int]) -> Shapes:
    """The catalogue of uniform times with these lengths in microseconds (0: points).

    >>> uniform_shapes([0, 10]).edge.tolist()
    [0, 0, -10, 0]
    """
    n = len(lengths)
    edge = np.zeros(2 * n, np.int64)
    edge[::2] = -np.asarray(lengths, np.int64)
    return _shapes(edge, [1.0, 0.0] * n, [0.0, 1.0] * n, np.arange(0, 2 * n + 1, 2))


def _shapes(edge: ArrayLike, mass: ArrayLike, below: ArrayLike, start: ArrayLike) -> Shapes:
    shapes = Shapes(np.array(edge, np.int64), np.array(mass, float), np.array(below, float), np.array(start, np.int64))
    for column in shapes:
        column.setflags(write=False)
    return shapes


NO_SHAPES = _shapes([], [], [], [0])
"""The empty catalogue: every row is uniform between its own `t_min` and `t_max`."""


def shapes_of(templates: tuple[Template, ...]) -> Shapes:
    """The catalogue of a side's templates; empty without templates."""
    return template_shapes(templates) if templates else NO_SHAPES
