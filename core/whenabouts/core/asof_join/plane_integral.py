"""Which right row prevails over an uncertain left time: an integral over two instants u <= v.

Nothing lies between u and v, and a right row j is at one of them: with independent right times X_k of distribution
functions F_k and densities f_k,

    G_k(u, v) = 1 - P(u < X_k <= v) = 1 - F_k(v) + F_k(u)

Backward v is the left time, of density f, and u the right row's; to both sides the left time is their middle:

    backward  P_j = integral of f(v) f_j(u) product over k != j of G_k(u, v)
    nearest   P_j = integral of f((u + v) / 2) / 2 (f_j(u) + f_j(v)) product over k != j of G_k(u, v)

over `v - u <= reach`, the tolerance, nearest twice it. Points among the right rows cut the plane, as none may lie
between u and v, and have what the product is on the line where u or v is theirs; where v - u = reach no row prevails.

The edges of the right times are a grid on both axes. In a cell every G_k is affine in u and in v. The outer integral
runs over pieces of v, between the edges and the instants at which a line such as u = v - reach crosses an edge; the
inner one from u = v downward, cell by cell: there the product only falls, so it ends where that is negligible, and
after the row that surely lies above. An instant is an int64 edge plus a float offset, so that lengths of 1 us and of 30
days meet without loss.
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.jit import BOOL, FLOAT64, INT64, READ_INT64, compiled
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.asof_join.candidates import INFINITE
from whenabouts.core.asof_join.classes import CLASSES, LEFT, UNIFORM, Classes, Left, distribution_at, power
from whenabouts.core.asof_join.quadrature import STOP_BELOW, nodes_for, parts_for
from whenabouts.core.probability.gauss_legendre import COMPLEMENTS, NODES, START, WEIGHTS
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.histogram_probability import SHAPES


@compiled(INT64(INT64, READ_INT64, INT64), inline=True)
def _cell_of(time: int, grid: IntArray, cells: int) -> int:
    # c with grid[c] <= time < grid[c + 1]; -1 before the grid, `cells` from its end on.
    if cells == 0 or time < grid[0]:
        return -1
    low, high = 0, cells
    while low < high:
        middle = (low + high + 1) >> 1
        if grid[middle] <= time:
            low = middle
        else:
            high = middle - 1
    return low


@compiled(FLOAT64(LEFT, INT64, INT64, INT64, CLASSES, INT64, BOOL, SHAPES, SHAPES))
def integrate_plane(
    left: Left,
    tolerance: int,
    low: int,
    high: int,
    classes: Classes,
    m: int,
    nearest: bool,
    left_shapes: Shapes,
    shapes: Shapes,
) -> float:
    """Fill the probabilities of the m classes; returns the probability that no row prevails.

    `low`, `high`: the stretch that the candidates meet. O(d^3) of the number d of classes that overlap.
    """
    begin, end, shape, first = classes.begin, classes.end, classes.shape, classes.first
    below, above = classes.below, classes.above
    reach = INFINITE if tolerance >= INFINITE else (2 * tolerance if nearest else tolerance)

    # The left time's buckets.
    buckets, first_bucket, anchor = 1, 0, left.end
    if left.shape != UNIFORM:
        first_bucket = left_shapes.start[left.shape]
        buckets = left_shapes.start[left.shape + 1] - 1 - first_bucket
        anchor = left.end - left_shapes.edge[first_bucket + buckets]
    y_edge = np.empty(buckets + 1, np.int64)
    y_density = np.empty(buckets)
    y_edge[0], y_edge[buckets] = left.begin, left.end
    for i in range(buckets):
        mass = 1.0
        if left.shape != UNIFORM:
            y_edge[i] = anchor + left_shapes.edge[first_bucket + i]
            mass = left_shapes.mass[first_bucket + i]
            y_edge[i + 1] = anchor + left_shapes.edge[first_bucket + i + 1]
        y_density[i] = mass / float(y_edge[i + 1] - y_edge[i])
        if nearest:
            y_density[i] *= 0.5

    # The grid: edges of the right times that are no points, within the stretch that counts.
    edges = points = 0
    for k in range(m):
        below[k] = above[k] = 0.0
        if begin[k] == end[k]:
            points += 1
        else:
            edges += 2 if shape[k] == UNIFORM else shapes.start[shape[k] + 1] - shapes.start[shape[k]]
    grid = np.empty(edges, np.int64)
    point = np.empty(points, np.int64)
    member = np.empty(m, np.int64)
    n = points = count = 0
    for k in range(m):
        if begin[k] == end[k]:
            point[points] = k
            points += 1
            continue
        member[count] = k
        count += 1
        start, beyond, anchor = 0, 2, end[k]
        if shape[k] != UNIFORM:
            start, beyond = shapes.start[shape[k]], shapes.start[shape[k] + 1]
            anchor = end[k] - shapes.edge[beyond - 1]
        for i in range(start, beyond):
            edge = (begin[k] if i == 0 else end[k]) if shape[k] == UNIFORM else anchor + shapes.edge[i]
            grid[n] = min(max(edge, low), high)
            n += 1
    cells = 0
    if n:
        grid.sort()
        for i in range(1, n):
            if grid[i] != grid[cells]:
                cells += 1
                grid[cells] = grid[i]

    # Each cell's rows: F_k at its start and f_k. A row stays in the list through its empty buckets.
    starts = np.zeros(cells + 1, np.int64)
    rate, weight = np.zeros(cells + 1), np.zeros(cells + 1, np.int64)  # sums of u_k f_k and of u_k where f_k > 0
    listed = np.empty(4 * cells + 4, np.int64)
    share, slope = np.empty(4 * cells + 4), np.empty(4 * cells + 4)
    active = np.empty(count, np.int64)
    n = entered = actives = 0
    for c in range(cells):
        starts[c] = n
        kept = 0
        for i in range(actives):
            if end[active[i]] > grid[c]:
                active[kept] = active[i]
                kept += 1
        actives = kept
        while entered < count and begin[member[entered]] <= grid[c]:
            if end[member[entered]] > grid[c]:
                active[actives] = member[entered]
                actives += 1
            entered += 1
        if n + actives > len(listed):
            size = 2 * (n + actives)
            listed = np.append(listed[:n], np.empty(size - n, np.int64))
            share, slope = np.append(share[:n], np.empty(size - n)), np.append(slope[:n], np.empty(size - n))
        for i in range(actives):
            k = active[i]
            listed[n] = k
            share[n], slope[n] = distribution_at(grid[c], begin[k], end[k], shape[k], shapes)
            if slope[n] > 0.0:
                rate[c] += float(first[k + 1] - first[k]) * slope[n]
                weight[c] += first[k + 1] - first[k]
            n += 1
    starts[cells] = n

    # The cuts of v.
    v_end = high if nearest else left.end
    cuts = np.empty((buckets + 1) * (2 + cells + 1 + points) + 2 * (cells + 1 + points) + 2, np.int64)
    cuts[0], cuts[1] = left.begin, v_end
    n = 2
    for i in range(buckets + 1):
        cuts[n] = y_edge[i]
        n += 1
        if nearest and reach < INFINITE:
            cuts[n] = y_edge[i] + tolerance
            n += 1
    for i in range((cells + 1 if cells else 0) + points):
        edge = begin[point[i]] if i < points else grid[i - points]
        cuts[n] = edge
        n += 1
        if reach < INFINITE:
            cuts[n] = edge + reach
            n += 1
        if nearest:
            for t in range(buckets + 1):
                cuts[n] = 2 * y_edge[t] - edge
                n += 1
    cuts = np.sort(cuts[:n])
    pieces = 0
    for i in range(1, n):
        if left.begin < cuts[i] <= v_end:
            if cuts[pieces] < left.begin:
                cuts[pieces] = left.begin
            if cuts[i] != cuts[pieces]:
                pieces += 1
                cuts[pieces] = cuts[i]
        elif cuts[i] <= left.begin:
            cuts[pieces] = cuts[i]

    # Pieces of v, and nearest also the lines where v is a point.
    beyond_v = np.ones(m)  # 1 - F_k(v)
    at_v = np.zeros(m)  # f_k(v), nearest
    near, grow = np.empty(count), np.empty(count)  # of G_k in a cell: at its low end, and per length of the cell
    done = np.empty(count, np.int64)  # classes that begin above u
    none = 0.0
    for piece in range(pieces + (points if nearest else 0)):
        line = -1
        if piece < pieces:
            v0, v1 = cuts[piece], cuts[piece + 1]
            cell = _cell_of(v0, grid, cells)
            latest = points - 1
            while latest >= 0 and begin[point[latest]] > v0:
                latest -= 1
        else:
            line = point[piece - pieces]
            v0 = v1 = begin[line]
            if v0 <= left.begin or v0 > v_end:
                continue
            cell = _cell_of(v0 - 1, grid, cells)
            latest = piece - pieces - 1
        length = float(v1 - v0)
        for i in range(count):
            k = member[i]
            beyond_v[k] = 0.0 if end[k] <= v0 else 1.0
            at_v[k] = 0.0
        v_from = v_to = 0
        if 0 <= cell < cells:
            v_from, v_to = starts[cell], starts[cell + 1]
            if nearest and line < 0:
                for i in range(v_from, v_to):
                    at_v[listed[i]] = slope[i]

        # The bottom of u: the latest point, the reach, or nothing.
        atom, bottom, bottom_slope = -1, -INFINITE, 0
        if reach < INFINITE:
            bottom, bottom_slope = v0 - reach, 1
        if latest >= 0 and (reach >= INFINITE or begin[point[latest]] + reach >= v1):
            atom, bottom, bottom_slope = point[latest], begin[point[latest]], 0
        # The top of u, in the left time's bucket `y_top`: u = v, or nearest the left time's end.
        top, top_slope, y_top, top_cell = v0, 1, buckets - 1, cell
        if nearest and v0 >= left.end:
            top, top_slope = 2 * left.end - v0, -1
            if bottom_slope == 0 and top <= bottom:
                continue
            top_cell = _cell_of(2 * left.end - v1, grid, cells)
        else:
            while y_edge[y_top] > v0 or (line >= 0 and y_edge[y_top] == v0):
                y_top -= 1
        if not nearest and y_density[y_top] == 0.0:
            continue

        # Nodes for v: what changes with it, directly and through the lines that end cells of u.
        change, degree = 0.5 * length * rate[max(cell, 0)], weight[max(cell, 0)]
        if cell < 0 or cell == cells:
            change, degree = 0.0, 0
        most, more = change, 0
        for i in range(-2, (y_top + 1) if nearest else 0):
            if i == -2:
                if top_slope == 1:
                    continue
                at = top_cell
            elif i == -1:
                if bottom_slope == 0:
                    continue
                at = _cell_of(bottom, grid, cells)
            else:
                at = _cell_of(2 * y_edge[i] - v1, grid, cells)
            if 0 <= at < cells:
                most = max(most, 0.5 * length * rate[at])
                if at != cell:
                    more = max(more, weight[at])
        change += most + 0.5
        v_parts = parts_for(change)
        v_nodes = nodes_for(degree + more, change / float(v_parts))
        if line >= 0:
            v_parts = v_nodes = 1

        for node in range(v_parts * v_nodes):
            part, i = node // v_nodes, START[v_nodes] + node % v_nodes
            offset = length * ((float(part) + NODES[i]) / float(v_parts))
            remaining = length * ((float(v_parts - part - 1) + COMPLEMENTS[i]) / float(v_parts))
            v_weight = 1.0 if line >= 0 else length * WEIGHTS[i] / float(v_parts)
            for i in range(v_from, v_to):
                if end[listed[i]] > v0:
                    beyond_v[listed[i]] = max(1.0 - (share[i] + slope[i] * (float(v0 - grid[cell]) + offset)), 0.0)

            # Down from the top. `c`: the cell of u, -1 below the grid. `over`: the product of classes that begin above.
            over, finished, product = 1.0, 0, 1.0
            c = cell
            y = y_top
            hi, hi_slope = top, top_slope
            reached = False
            while True:
                floor = grid[c] if c >= 0 else -INFINITE
                if c > top_cell:
                    lo, lo_slope = floor, 0
                else:
                    # The greatest of the cell's start, the bottom, and the line where the left time's bucket begins.
                    lo, lo_slope, kind = floor, 0, 0
                    if bottom >= floor and bottom > -INFINITE:
                        lo, lo_slope, kind = bottom, bottom_slope, 1
                    if nearest and 2 * y_edge[y] - v1 >= floor:
                        line_base = 2 * y_edge[y] - v0
                        # Lines of opposite slopes cross at cuts only, so either end of the piece compares them.
                        if kind == 0 or 2 * line_base - (v1 - v0) >= 2 * lo + lo_slope * (v1 - v0):
                            lo, lo_slope, kind = line_base, -1, 2
                    if c < 0 and not nearest:
                        # Nothing begins below the grid.
                        product = over
                        reached = True
                        break
                    # The length of this stretch of u, without cancellation.
                    turn = hi_slope - lo_slope
                    if turn == 0:
                        stretch = float(hi - lo)
                    elif turn > 0:
                        stretch = float(hi - lo) + float(turn) * offset
                    else:
                        stretch = float(hi - lo + turn * (v1 - v0)) - float(turn) * remaining
                    u_from = u_to = 0
                    if 0 <= c < cells:
                        u_from, u_to = starts[c], starts[c + 1]
                    into = float(lo - grid[c]) + float(lo_slope) * offset if c >= 0 else 0.0
                    s_change, s_degree = 0.0, 0
                    for i in range(u_from, u_to):
                        k, e = listed[i], i - u_from
                        near[e] = max(beyond_v[k] + (share[i] + slope[i] * into), 0.0)
                        grow[e] = slope[i] * stretch
                        if slope[i] > 0.0:
                            s_change += 0.5 * float(first[k + 1] - first[k]) * grow[e]
                            s_degree += first[k + 1] - first[k]
                    density = y_density[y] * v_weight
                    if density > 0.0 and stretch > 0.0 and (nearest or s_degree > 0):
                        parts = parts_for(s_change)
                        # Backward the factor of the row at u is missing; a row at v need not be one that changes.
                        nodes = nodes_for(s_degree if nearest else s_degree - 1, s_change / float(parts))
                        total = 0.0
                        for p in range(parts):
                            part_from = float(parts - 1 - p)
                            for i in range(START[nodes], START[nodes + 1]):
                                t = (part_from + COMPLEMENTS[i]) / float(parts)
                                value = over
                                for e in range(u_to - u_from):
                                    k = listed[u_from + e]
                                    value *= power(near[e] + grow[e] * t, first[k + 1] - first[k])
                                if value == 0.0:
                                    continue
                                value *= density * stretch * WEIGHTS[i] / float(parts)
                                total += value
                                if line < 0:
                                    for e in range(u_to - u_from):
                                        k = listed[u_from + e]
                                        rise = slope[u_from + e] + at_v[k]
                                        if rise > 0.0:
                                            below[k] += value * rise / (near[e] + grow[e] * t)
                        if line >= 0:
                            above[line] += total
                        elif nearest and total > 0.0:
                            for f in range(finished):
                                k = done[f]
                                if at_v[k] > 0.0:
                                    below[k] += total * at_v[k] / beyond_v[k]
                    hi, hi_slope = lo, lo_slope
                    if kind == 1:
                        product = over
                        for e in range(u_to - u_from):
                            k = listed[u_from + e]
                            product *= power(near[e], first[k + 1] - first[k])
                        reached = True
                        break
                    if kind == 2:
                        y -= 1
                        if y < 0:
                            break
                        continue
                    if c < 0:
                        break
                # The classes that begin at the start of this cell are done.
                if c < cells:
                    for i in range(starts[c], starts[c + 1]):
                        k = listed[i]
                        if begin[k] == floor:
                            over *= power(beyond_v[k], first[k + 1] - first[k])
                            done[finished] = k
                            finished += 1
                if over < STOP_BELOW:
                    break
                c -= 1
            if reached and line < 0:
                density = y_density[y] * v_weight
                if atom >= 0:
                    below[atom] += density * product
                elif nearest:
                    none += 2.0 * density * product
                else:
                    none += density * product
    return none
