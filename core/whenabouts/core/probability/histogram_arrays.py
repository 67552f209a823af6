"""Shapes: distributions of time before an anchor, as flat arrays for kernels.

A shape is a template, or a uniform of some length, with its anchor (`t_max`) at 0. A catalogue holds the shapes of one
side of a join; a row is then (anchor, number of its shape).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whenabouts.core.times.templates import Template


class Shapes(NamedTuple):
    """Shapes one after the other: shape s takes the places `start[s] : start[s + 1]`, one more than it has buckets.

    `edge`: int64 microseconds from the anchor to the bucket's start (at the last place: to the end of the last bucket).
    `mass`: probability of the bucket, correctly rounded (0 at the last place). `below`: probability of the buckets
    before it, rounded from the exact sum (1 at the last place).
    """

    edge: NDArray[np.int64]
    mass: NDArray[np.float64]
    below: NDArray[np.float64]
    start: NDArray[np.int64]

    @property
    def buckets(self) -> int:
        """Buckets of the shape that has most of them."""
        return int(np.diff(self.start).max()) - 1


@lru_cache(maxsize=64)
def template_shapes(templates: tuple[Template, ...]) -> Shapes:
    """The catalogue of registered templates, numbered in their order.

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
    """The catalogue of uniform times of these lengths in microseconds (0: points).

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
"""The catalogue of a side whose rows are uniform between their own `t_min` and `t_max`."""


def shapes_of(templates: tuple[Template, ...]) -> Shapes:
    """The catalogue of a side: of its templates, or none."""
    return template_shapes(templates) if templates else NO_SHAPES
