"""Which right row prevails over a left time that is a point: one integral over the distance d from it.

With the left time y, right times X_k with distribution functions F_k and densities f_k, independent, backward,

    G_k(d) = 1 - P(y - d < X_k <= y) = 1 - F_k(y) + F_k(y - d)
    P_j    = integral over [0, tolerance] of f_j(y - d) * product over k != j of G_k(d)

and to both sides the same with `F_k(y + d)` for F_k(y) and `f_j(y - d) + f_j(y + d)`. A point ends the integral at its
distance, and has what the product is there. Between the distances of the edges of all right times the integrand is a
polynomial; all P_j come from one pass, as `f_j T / G_j` with T the product over all.
"""

from __future__ import annotations

from whenabouts.core.arrays.integer_powers import power
from whenabouts.core.arrays.jit import BOOL, FLOAT64, INT64, compiled
from whenabouts.core.asof_join.candidates import INFINITE
from whenabouts.core.asof_join.classes import CLASSES, UNIFORM, Classes, distribution_at
from whenabouts.core.asof_join.quadrature import STOP_BELOW, nodes_for, parts_for
from whenabouts.core.asof_join.workspace import WORKSPACE, Workspace, sort_distinct
from whenabouts.core.probability.gauss_legendre import NODES, START, WEIGHTS
from whenabouts.core.probability.histogram_arrays import Shapes
from whenabouts.core.probability.histogram_probability import SHAPES


@compiled(FLOAT64(INT64, INT64, CLASSES, INT64, BOOL, SHAPES, WORKSPACE))
def integrate_line(
    y: int, tolerance: int, classes: Classes, m: int, nearest: bool, shapes: Shapes, work: Workspace
) -> float:
    """Fill the probabilities of the m classes for a left time y; returns the probability that no row prevails.

    O(edges x classes), times the classes that overlap at a place where they are many.
    """
    begin, end, shape, first = classes.begin, classes.end, classes.shape, classes.first
    below, above = classes.below, classes.above
    # The nearest point, of equal ones the one before y, and the distances of the others' edges.
    ints = work.ints
    member, varying, cuts = ints[:m], ints[m : 2 * m], ints[2 * m :]  # `member`: the classes that are no points
    reach, atom, count = tolerance, -1, 0
    for k in range(m):
        below[k] = above[k] = 0.0
        if begin[k] < end[k]:
            member[count] = k
            count += 1
        elif begin[k] <= y:
            if y - begin[k] <= reach:
                reach, atom = y - begin[k], k
        elif nearest and (begin[k] - y < reach or (atom < 0 and begin[k] - y == reach)):
            reach, atom = begin[k] - y, k
    cuts[0] = 0
    n = 1
    if 0 < reach < INFINITE:
        cuts[1] = reach
        n = 2
    for c in range(count):
        k = member[c]
        start, beyond, anchor = 0, 2, end[k]
        if shape[k] != UNIFORM:
            start, beyond = shapes.start[shape[k]], shapes.start[shape[k] + 1]
            anchor = end[k] - shapes.edge[beyond - 1]
        for i in range(start, beyond):
            edge = (begin[k] if i == 0 else end[k]) if shape[k] == UNIFORM else anchor + shapes.edge[i]
            distance = y - edge
            if nearest and distance < 0:
                distance = -distance
            if 0 < distance < reach:
                cuts[n] = distance
                n += 1
    n = sort_distinct(cuts[:n])
    # Of each member: G_k where the integral has come to, F_k(y + d) or backward F_k(y), f_k(y + d), and on a piece the
    # slope of G_k and its value at the far end.
    floats = work.floats
    value, at_y, ahead = floats[:m], floats[m : 2 * m], floats[2 * m : 3 * m]
    slope, far = floats[3 * m : 4 * m], floats[4 * m : 5 * m]
    for c in range(count):
        k = member[c]
        value[c], ahead[c] = 1.0, 0.0
        at_y[c] = distribution_at(y, begin[k], end[k], shape[k], shapes)[0]
    left = 1.0  # the product where the integral has come to
    for piece in range(n - 1):
        d0, d1 = cuts[piece], cuts[piece + 1]
        length = float(d1 - d0)
        constant, degree, change, active = 1.0, 0, 0.0, 0
        for c in range(count):
            k = member[c]
            if end[k] <= y - d1 or begin[k] >= y + (d1 if nearest else 0):
                continue
            low, density = distribution_at(y - d1, begin[k], end[k], shape[k], shapes)
            if nearest:
                high, ahead[c] = distribution_at(y + d0, begin[k], end[k], shape[k], shapes)
                at_y[c] = high + ahead[c] * length
            if density + ahead[c] > 0.0:
                u = first[k + 1] - first[k]
                slope[c] = density + ahead[c]
                far[c] = max((1.0 - at_y[c]) + low, 0.0)
                degree += u
                change += 0.5 * float(u) * slope[c] * length
                varying[active] = c
                active += 1
            else:
                constant *= power(value[c], first[k + 1] - first[k])
        if active:
            parts = parts_for(change)
            nodes = nodes_for(degree - 1, change / float(parts))
            for node in range(parts * nodes):
                part, i = node // nodes, START[nodes] + node % nodes
                # From the far end, whose value is exact where the product vanishes.
                rest = length * ((float(parts - part) - NODES[i]) / float(parts))
                product = constant
                for v in range(active):
                    c = varying[v]
                    k = member[c]
                    product *= power(far[c] + slope[c] * rest, first[k + 1] - first[k])
                if product < STOP_BELOW:
                    break
                product *= length * WEIGHTS[i] / float(parts)
                for v in range(active):
                    c = varying[v]
                    below[member[c]] += product * slope[c] / (far[c] + slope[c] * rest)
        left = constant
        for v in range(active):
            c = varying[v]
            k = member[c]
            value[c] = far[c]
            left *= power(far[c], first[k + 1] - first[k])
        if left < STOP_BELOW:
            left = 0.0
            break
    if atom < 0:
        return left
    if begin[atom] <= y:
        below[atom] = left
    else:
        above[atom] = left
    return 0.0
