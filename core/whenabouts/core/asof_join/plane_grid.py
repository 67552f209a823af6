"""The grid of cells on which the integrand of `plane_integral` is a polynomial."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from whenabouts.core.arrays.jit import BOOL, INT64, TWO_INT64, WRITE_FLOAT64, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.asof_join.candidates import INFINITE
from whenabouts.core.asof_join.classes import CLASSES, LEFT, UNIFORM, Classes, Left, distribution_at
from whenabouts.core.asof_join.workspace import WORKSPACE, Workspace, sort_distinct
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.histogram_probability import SHAPES


class Buckets(NamedTuple):
    """The left time: bucket i lies between `edge[i]` and `edge[i + 1]` and has a density."""

    edge: IntArray
    density: FloatArray


class Grid(NamedTuple):
    """The edges of the right times, and what is in the cells between them.

    Cell c is from `edge[c]` to `edge[c + 1]`. Its rows `starts[c] : starts[c + 1]` are the classes `listed` whose
    support covers it, with the distribution function `share` at its start and the density `slope`, 0 in empty buckets.
    `rate[c]`, `weight[c]`: the sums of u_k f_k and of u_k over the classes with a density there, of multiplicity u_k.
    """

    edge: IntArray
    starts: IntArray
    weight: IntArray
    listed: IntArray
    rate: FloatArray
    share: FloatArray
    slope: FloatArray


BUCKETS = types.NamedTuple((WRITE_INT64, WRITE_FLOAT64), Buckets)  # type: ignore[no-untyped-call]  # numba ships no types
GRID = types.NamedTuple(  # type: ignore[no-untyped-call]  # as above
    (WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, WRITE_FLOAT64, WRITE_FLOAT64, WRITE_FLOAT64), Grid
)


@compiled(TWO_INT64(INT64, INT64, INT64), inline=True)
def room_needed(left_edges: int, right_edges: int, m: int) -> tuple[int, int]:
    """The integers and floats of a workspace for a left time and m classes with so many edges."""
    cuts = (left_edges + 2) * (right_edges + m + 2)
    return left_edges + 7 * right_edges + 4 * m + cuts + 16, left_edges + 9 * right_edges + 5 * m + 16


@compiled(BUCKETS(LEFT, BOOL, SHAPES, WORKSPACE), inline=True)
def left_buckets(left: Left, nearest: bool, shapes: Shapes, work: Workspace) -> Buckets:
    """The left time; nearest its density by u + v, which is half of that by their middle."""
    count, first, anchor = 1, 0, left.end
    if left.shape != UNIFORM:
        first = shapes.start[left.shape]
        count = shapes.start[left.shape + 1] - 1 - first
        anchor = left.end - shapes.edge[first + count]
    edge, density = work.ints[: count + 1], work.floats[:count]
    edge[0], edge[count] = left.begin, left.end
    for i in range(count):
        mass = 1.0
        if left.shape != UNIFORM:
            mass = shapes.mass[first + i]
            edge[i + 1] = anchor + shapes.edge[first + i + 1]
        density[i] = mass / float(edge[i + 1] - edge[i])
        if nearest:
            density[i] *= 0.5
    return Buckets(edge, density)


@compiled(INT64(CLASSES, INT64, INT64, INT64, SHAPES, WRITE_INT64), inline=True)
def edges_within(classes: Classes, m: int, low: int, high: int, shapes: Shapes, edge: IntArray) -> int:
    """Fill in the distinct edges of the classes that are no points, moved into [low, high]; returns their number."""
    begin, end, shape = classes.begin, classes.end, classes.shape
    n = 0
    for k in range(m):
        if begin[k] == end[k]:
            continue
        if shape[k] == UNIFORM:
            edge[n], edge[n + 1] = max(begin[k], low), min(end[k], high)
            n += 2
            continue
        start, last = shapes.start[shape[k]], shapes.start[shape[k] + 1] - 1
        anchor = end[k] - shapes.edge[last]
        for i in range(start, last + 1):
            edge[n] = min(max(anchor + shapes.edge[i], low), high)
            n += 1
    return sort_distinct(edge[:n])


@compiled(GRID(CLASSES, WRITE_INT64, WRITE_INT64, INT64, SHAPES, WORKSPACE), inline=True)
def fill_cells(classes: Classes, member: IntArray, edge: IntArray, cells: int, shapes: Shapes, work: Workspace) -> Grid:
    """What is in the cells between the edges; `member`: the classes that are no points, ascending by begin."""
    begin, end, shape, first = classes.begin, classes.end, classes.shape, classes.first
    ints, floats = work.ints, work.floats
    starts, weight, active = ints[: cells + 1], ints[cells + 1 : 2 * cells + 1], ints[2 * cells + 1 :]
    rate = floats[:cells]
    room = 4 * cells
    listed, share, slope = active[member.size :], floats[cells : cells + room], floats[cells + room :]
    n = entered = actives = 0
    for c in range(cells):
        starts[c], weight[c], rate[c] = n, 0, 0.0
        kept = 0
        for i in range(actives):
            if end[active[i]] > edge[c]:
                active[kept] = active[i]
                kept += 1
        actives = kept
        while entered < member.size and begin[member[entered]] <= edge[c]:
            if end[member[entered]] > edge[c]:
                active[actives] = member[entered]
                actives += 1
            entered += 1
        if n + actives > room:
            room = 2 * room + actives
            more_ints, more_floats = np.empty(room, np.int64), np.empty(2 * room)
            for i in range(n):
                more_ints[i], more_floats[i], more_floats[room + i] = listed[i], share[i], slope[i]
            listed, share, slope = more_ints, more_floats[:room], more_floats[room:]
        for i in range(actives):
            k = active[i]
            listed[n] = k
            share[n], slope[n] = distribution_at(edge[c], begin[k], end[k], shape[k], shapes)
            if slope[n] > 0.0:
                rate[c] += float(first[k + 1] - first[k]) * slope[n]
                weight[c] += first[k + 1] - first[k]
            n += 1
    starts[cells] = n
    return Grid(edge, starts, weight, listed, rate, share, slope)


@compiled(INT64(INT64, INT64, WRITE_INT64, WRITE_INT64, WRITE_INT64, CLASSES, BOOL, WRITE_INT64), inline=True)
def outer_cuts(
    v_end: int,
    reach: int,
    y_edge: IntArray,
    edge: IntArray,
    point: IntArray,
    classes: Classes,
    nearest: bool,
    cut: IntArray,
) -> int:
    """Fill in the instants, ascending, between which v runs over pieces; returns how many pieces these are.

    They are the edges and points of both sides, and where the lines u = v - reach and, nearest, u + v = 2 y meet them.
    """
    v_begin = y_edge[0]
    cut[0], cut[1] = v_begin, v_end
    n = 2
    for i in range(y_edge.size):
        if v_begin < y_edge[i] < v_end:
            cut[n] = y_edge[i]
            n += 1
        if nearest and reach < INFINITE and v_begin < y_edge[i] + reach // 2 < v_end:
            cut[n] = y_edge[i] + reach // 2
            n += 1
    for i in range(edge.size + point.size):
        at = edge[i] if i < edge.size else classes.begin[point[i - edge.size]]
        if v_begin < at < v_end:
            cut[n] = at
            n += 1
        if reach < INFINITE and v_begin < at + reach < v_end:
            cut[n] = at + reach
            n += 1
        if nearest:
            for t in range(y_edge.size):
                if v_begin < 2 * y_edge[t] - at < v_end:
                    cut[n] = 2 * y_edge[t] - at
                    n += 1
    return sort_distinct(cut[:n]) - 1


@compiled(INT64(INT64, WRITE_INT64, INT64), inline=True)
def cell_of(time: int, edge: IntArray, cells: int) -> int:
    """c with edge[c] <= time < edge[c + 1]; -1 before the grid, `cells` from its end on."""
    if cells == 0 or time < edge[0]:
        return -1
    low, high = 0, cells
    while low < high:
        middle = (low + high + 1) >> 1
        if edge[middle] <= time:
            low = middle
        else:
            high = middle - 1
    return low
