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

from whenabouts.core.arrays.integer_powers import power
from whenabouts.core.arrays.jit import BOOL, FLOAT64, INT64, compiled
from whenabouts.core.asof_join.candidates import INFINITE
from whenabouts.core.asof_join.classes import CLASSES, LEFT, Classes, Left
from whenabouts.core.asof_join.plane_grid import cell_of, edges_within, fill_cells, left_buckets, outer_cuts
from whenabouts.core.asof_join.quadrature import STOP_BELOW, STOP_CHANGE, nodes_for, parts_for
from whenabouts.core.asof_join.workspace import WORKSPACE, Workspace
from whenabouts.core.probability.gauss_legendre import COMPLEMENTS, NODES, START, WEIGHTS
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.histogram_probability import SHAPES

_EDGE, _BOTTOM, _BUCKET = 0, 1, 2


@compiled(FLOAT64(LEFT, INT64, INT64, INT64, CLASSES, INT64, BOOL, SHAPES, SHAPES, WORKSPACE))
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
    work: Workspace,
) -> float:
    """Fill the probabilities of the m classes; returns the probability that no row prevails.

    `low`, `high`: the stretch that the candidates meet. O(d^3) of the number d of classes that overlap.
    """
    # The loops are in one function: a call with arrays counts references, which costs as much as a small integral.
    begin, end, first, below, above = classes.begin, classes.end, classes.first, classes.below, classes.above
    reach = INFINITE if tolerance >= INFINITE else (2 * tolerance if nearest else tolerance)
    buckets = left_buckets(left, nearest, left_shapes, work)
    y_edge, y_density = buckets.edge, buckets.density
    last = y_density.size - 1
    ints, floats = work.ints[last + 2 :], work.floats[last + 1 :]
    points = count = 0
    for k in range(m):
        below[k] = above[k] = 0.0
        if begin[k] == end[k]:
            ints[points] = k
            points += 1
    point, member = ints[:points], ints[points:m]
    for k in range(m):
        if begin[k] < end[k]:
            member[count] = k
            count += 1
    ints = ints[m:]
    edges = edges_within(classes, m, low, high, shapes, ints)
    edge, ints = ints[:edges], ints[edges:]
    cells = max(edges - 1, 0)
    # By class: 1 - F_k(v), and nearest f_k(v). By row of the cell of u: G_k at the low end of a stretch of u, and how
    # much more it is at the high end. The classes that begin above u.
    over_v, at_v, near, grow = floats[:m], floats[m : 2 * m], floats[2 * m : 3 * m], floats[3 * m : 4 * m]
    done = ints[:m]
    ints, floats = ints[m:], floats[4 * m :]
    pieces = outer_cuts(high if nearest else left.end, reach, y_edge, edge, point, classes, nearest, ints)
    cut, ints = ints[: pieces + 1], ints[pieces + 1 :]
    grid = fill_cells(classes, member, edge, cells, shapes, Workspace(ints, floats))
    starts, weight, listed = grid.starts, grid.weight, grid.listed
    rate, share, slope = grid.rate, grid.share, grid.slope

    none = 0.0
    latest = -1
    # Pieces of v, and nearest the lines where v is a point.
    for number in range(pieces + (points if nearest else 0)):
        line = -1
        if number < pieces:
            v0, v1 = cut[number], cut[number + 1]
            cell = cell_of(v0, edge, cells)
            while latest + 1 < points and begin[point[latest + 1]] <= v0:
                latest += 1
        else:
            line, latest = point[number - pieces], number - pieces - 1
            v0 = v1 = begin[line]
            if v0 <= left.begin or v0 > high:
                continue
            cell = cell_of(v0 - 1, edge, cells)
        length = v1 - v0
        # u ends at the latest point, at the reach, or nowhere.
        atom, bottom, bottom_slope = -1, -INFINITE, 0
        if reach < INFINITE:
            bottom, bottom_slope = v0 - reach, 1
        if latest >= 0 and (reach >= INFINITE or begin[point[latest]] + reach >= v1):
            atom, bottom, bottom_slope = point[latest], begin[point[latest]], 0
        # It starts at v, nearest at most where the middle is the left time's end; in bucket `y_top` of the left time.
        top, top_slope, top_cell, y_top = v0, 1, cell, last
        if nearest and v0 >= left.end:
            top, top_slope = 2 * left.end - v0, -1
            if bottom_slope == 0 and top <= bottom:
                continue
            top_cell = cell_of(2 * left.end - v1, edge, cells)
        else:
            while y_edge[y_top] > v0 or (line >= 0 and y_edge[y_top] == v0):
                y_top -= 1
            if not nearest and y_density[y_top] == 0.0:
                continue
        for i in range(count):
            k = member[i]
            over_v[k] = 0.0 if end[k] <= v0 else 1.0
            at_v[k] = 0.0
        v_from = v_to = 0
        if 0 <= cell < cells:
            v_from, v_to = starts[cell], starts[cell + 1]
            if nearest and line < 0:
                for i in range(v_from, v_to):
                    at_v[listed[i]] = slope[i]
        # Nodes for v. The product changes with v directly, and through the lines at which stretches of u end.
        v_parts = v_nodes = 1
        layer = float(length)
        if line < 0 and cells > 0:
            change, degree = 0.0, 0
            if 0 <= cell < cells:
                # From some depth in the cell on, the product vanishes within it: the inner integral is constant.
                depth = STOP_CHANGE / rate[cell] if rate[cell] > 0.0 else float(reach)
                if top_slope == 1 and depth < float(reach):
                    missing = depth - float(v0 - max(edge[cell], bottom if bottom_slope == 0 else edge[cell]))
                    if nearest:
                        missing = max(missing, 0.5 * depth - float(v0 - y_edge[y_top]))
                    layer = min(layer, max(missing, 0.0))
                change, degree = 0.5 * layer * rate[cell], weight[cell]
            most, more = change, 0
            for i in range(-2, y_top + 1 if nearest else 0):
                at = top_cell
                if i == -1:
                    if bottom_slope == 0:
                        continue
                    at = cell_of(bottom, edge, cells)
                elif i >= 0:
                    at = cell_of(2 * y_edge[i] - v1, edge, cells)
                if 0 <= at < cells and at != cell:
                    most = max(most, 0.5 * layer * rate[at])
                    more = max(more, weight[at])
            change += most + 0.5  # 1/2: the length of a stretch of u is a factor too
            v_parts = parts_for(change)
            v_nodes = nodes_for(degree + more, change / float(v_parts))

        beyond = float(length) - layer
        for node in range(0 if layer > 0.0 or line >= 0 else v_parts * v_nodes, v_parts * v_nodes + (beyond > 0.0)):
            part, at = node // v_nodes, START[v_nodes] + node % v_nodes
            # v = v0 + offset = v1 - remaining
            if node < v_parts * v_nodes:
                offset = layer * ((float(part) + NODES[at]) / float(v_parts))
                remaining = beyond + layer * ((float(v_parts - part - 1) + COMPLEMENTS[at]) / float(v_parts))
                v_weight = 1.0 if line >= 0 else layer * WEIGHTS[at] / float(v_parts)
            else:
                offset, remaining, v_weight = layer + 0.5 * beyond, 0.5 * beyond, beyond
            for i in range(v_from, v_to):
                k = listed[i]
                if end[k] > v0:
                    over_v[k] = max(1.0 - (share[i] + slope[i] * (float(v0 - edge[cell]) + offset)), 0.0)

            # Down from the top. `c`: the cell of u, -1 below the grid. `over`: the product of the classes in `done`.
            over, finished = 1.0, 0
            c, y = cell, y_top
            hi, hi_slope = top, top_slope
            while over >= STOP_BELOW:
                floor = edge[c] if c >= 0 else -INFINITE
                kind = _EDGE
                start = size = 0
                if 0 <= c < cells:
                    start = starts[c]
                    size = starts[c + 1] - start
                while c <= top_cell:
                    # A stretch of u ends at the start of the cell, the bottom, or where the left time's bucket does.
                    lo, lo_slope, kind = floor, 0, _EDGE
                    if bottom > -INFINITE and bottom >= floor:
                        lo, lo_slope, kind = bottom, bottom_slope, _BOTTOM
                    if nearest:
                        y_line = 2 * y_edge[y] - v0
                        # Lines cross at cuts of v only, so the middle of the piece compares them.
                        if y_line - length >= floor and (
                            kind == _EDGE or 2 * y_line - length >= 2 * lo + lo_slope * length
                        ):
                            lo, lo_slope, kind = y_line, -1, _BUCKET
                    elif c < 0:
                        kind = _BOTTOM  # nothing begins below the grid
                        break
                    turn = hi_slope - lo_slope
                    if turn >= 0:  # either way the terms have one sign
                        stretch = float(hi - lo) + float(turn) * offset
                    else:
                        stretch = float(hi - lo + turn * length) - float(turn) * remaining
                    into = float(lo - floor) + float(lo_slope) * offset
                    change, degree = 0.0, 0
                    for e in range(size):
                        i = start + e
                        k = listed[i]
                        near[e] = max(over_v[k] + (share[i] + slope[i] * into), 0.0)
                        grow[e] = slope[i] * stretch
                        if slope[i] > 0.0:
                            change += 0.5 * float(first[k + 1] - first[k]) * grow[e]
                            degree += first[k + 1] - first[k]
                    scale = y_density[y] * v_weight * stretch
                    if scale > 0.0 and (nearest or degree > 0):
                        parts = parts_for(change)
                        # Backward the factor of the row at u is missing; a row at v need not be one that changes.
                        nodes = nodes_for(degree if nearest else degree - 1, change / float(parts))
                        total = 0.0
                        for i in range(parts * nodes):
                            at = START[nodes] + i % nodes
                            t = (float(parts - 1 - i // nodes) + COMPLEMENTS[at]) / float(parts)
                            value = over
                            for e in range(size):
                                k = listed[start + e]
                                value *= power(near[e] + grow[e] * t, first[k + 1] - first[k])
                            if value < STOP_BELOW:
                                over = 0.0
                                break
                            value *= scale * WEIGHTS[at] / float(parts)
                            total += value
                            if line >= 0:
                                continue
                            for e in range(size):
                                k = listed[start + e]
                                rise = slope[start + e] + at_v[k]
                                if rise > 0.0:
                                    below[k] += value * rise / (near[e] + grow[e] * t)
                        if line >= 0:
                            above[line] += total
                        elif nearest and total > 0.0:
                            for i in range(finished):
                                k = done[i]
                                if at_v[k] > 0.0:
                                    below[k] += total * at_v[k] / over_v[k]
                    hi, hi_slope = lo, lo_slope
                    if kind == _BUCKET:
                        y -= 1
                        if y >= 0:
                            continue
                    elif kind == _BOTTOM:
                        for e in range(size):
                            k = listed[start + e]
                            over *= power(near[e], first[k + 1] - first[k])
                    break
                if kind == _BUCKET:
                    break
                if kind == _BOTTOM:
                    over *= y_density[y] * v_weight
                    if atom >= 0:
                        below[atom] += 0.0 if line >= 0 else over
                    elif line < 0:
                        none += 2.0 * over if nearest else over
                    break
                for i in range(start, start + size):
                    k = listed[i]
                    if begin[k] == floor:
                        over *= power(over_v[k], first[k + 1] - first[k])
                        done[finished] = k
                        finished += 1
                c -= 1
    return none
