"""The probability that all windows of a combination hold together.

The windows of one combination are not independent, because two of them can share an event, so their probabilities must
not be multiplied. With independent X_i whose densities are constant between their edges, P is the integral of the
product of the densities over the polytope `lo_ij <= X_j - X_i <= hi_ij`. The variables are integrated out one by one.
Fixing one splits the rest into parts that no window connects, and the integrals of the parts multiply. Along one
variable the integrand is a piecewise polynomial, of degree less than the number of remaining variables. A breakpoint is
where a chain of windows, each at one of its ends, links the variable to an edge of another density or to a fixed
variable. Gauss-Legendre quadrature is exact on each piece, so there is no integration error, only rounding: below 1e-9,
and 1e-6 is guaranteed.

For a uniform clique (all pairs, one window w) it is enough to integrate over the earliest event (order statistics of
independent variables): `P = sum_i integral f_i(x) prod_{j != i} (F_j(x + w) - F_j(x)) dx`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.probability.gauss_legendre import MOST_NODES, NODES, START, WEIGHTS
from whenabouts.core.probability.histogram_arrays import Shapes

ELEMENTS_AT_ONCE = 1 << 21
"""Roughly how many integration points are in memory at once."""

MOST_POINTS = 1_000_000
"""A graph that needs more integration points for one combination is refused; these take some tenths of a second."""


class Densities(NamedTuple):
    """Densities of n times: `edges` [n, buckets + 1] ascending, `mass` [n, buckets]; all edges of a point are equal.

    Edges are in microseconds from the combination's reference time.
    """

    edges: FloatArray
    mass: FloatArray

    def at(self, rows: IntArray | BoolArray) -> Densities:
        """The densities of some rows."""
        return Densities(self.edges[rows], self.mass[rows])

    @property
    def points(self) -> BoolArray:
        """Which times are exact."""
        exact: BoolArray = self.edges[:, 0] == self.edges[:, -1]
        return exact


def densities_of(
    t_min: IntArray, t_max: IntArray, reference: IntArray, shapes: Shapes, number: NDArray[np.int32] | None
) -> Densities:
    """The densities of rows: uniform between their ends, or the catalogue's shape `number`, ending at `t_max`."""
    end = (t_max - reference).astype(np.float64)
    if number is None:
        return Densities(np.stack([(t_min - reference).astype(np.float64), end], axis=1), np.ones((len(end), 1)))
    buckets = shapes.buckets
    entry = np.minimum(shapes.start[number][:, None] + np.arange(buckets + 1), shapes.start[number + 1][:, None] - 1)
    mass = np.where(entry[:, 1:] > entry[:, :-1], shapes.mass[entry[:, :-1]], 0.0)
    return Densities(end[:, None] + shapes.edge[entry], mass)


Windows = Mapping[tuple[int, int], tuple[float, float]]
"""The range of X_j - X_i by pair (i, j), with infinite ends where a window is open. Holds both directions."""


def both_directions(windows: Sequence[tuple[int, int, float, float]]) -> dict[tuple[int, int], tuple[float, float]]:
    """The intersection of all windows of each pair, in both directions.

    >>> both_directions([(0, 1, 0.0, 5.0), (1, 0, -3.0, 9.0)])
    {(0, 1): (0.0, 3.0), (1, 0): (-3.0, 0.0)}
    """
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for i, j, lo, hi in windows:
        for pair, low, high in (((i, j), lo, hi), ((j, i), -hi, -lo)):
            known = found.get(pair, (-np.inf, np.inf))
            found[pair] = max(known[0], low), min(known[1], high)
    return {pair: (lo + 0.0, hi + 0.0) for pair, (lo, hi) in found.items()}


def joint_probabilities(densities: Sequence[Densities], windows: Windows) -> FloatArray:
    """P(all windows hold) for each of n combinations; `densities[i]` has the times of stream i in each of them.

    Error below 1e-6 (see the module's docstring). Cost: some tens of points for three streams on a path, some hundreds
    for a clique of three. It grows with the product over nested variables; `check_joint` refuses graphs that need more
    than `MOST_POINTS` for one combination.

    >>> density = Densities(np.array([[0.0, 1.0]]), np.ones((1, 1)))
    >>> clique = both_directions([(0, 1, -.5, .5), (1, 2, -.5, .5), (0, 2, -.5, .5)])
    >>> joint_probabilities([density] * 3, clique).round(12).tolist()  # 3 w^2 - 2 w^3
    [0.5]
    """
    n = len(densities[0].edges)
    exact = np.stack([density.points for density in densities], axis=1)
    out = np.empty(n)
    patterns, which = np.unique(exact, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(which.reshape(-1) == number)
        uncertain = tuple(np.flatnonzero(~pattern).tolist())
        width = _uniform_width(windows, uncertain) if len(uncertain) == len(densities) else None
        buckets = [int(density.mass.shape[1]) for density in densities]
        at_once = max(int(ELEMENTS_AT_ONCE / max(_points_for(windows, uncertain, buckets), 1.0)), 1)
        for start in range(0, len(rows), at_once):
            piece = rows[start : start + at_once]
            here = [density.at(piece) for density in densities]
            out[piece] = _uniform_clique(here, width) if width is not None else _Integral(here, windows).all(uncertain)
    return np.clip(out, 0.0, 1.0)


def check_joint(windows: Windows, streams: int, buckets: Sequence[int], evaluations: float = 1.0) -> None:
    """Refuse a graph whose integral needs more than `MOST_POINTS` points a combination: QueryError WA-2007.

    `evaluations`: how many times the integral is evaluated for one combination.
    """
    points = evaluations * _points_for(windows, tuple(range(streams)), buckets)
    if points > MOST_POINTS:
        raise QueryError(
            Code.NOT_AVAILABLE,
            f"the joint probability of this graph needs about {points:.0e} integration points for one combination",
            "leave joint= out, use fewer windows between uncertain streams, or one window for all pairs",
        )


def _uniform_width(windows: Windows, streams: Sequence[int]) -> float | None:
    """The symmetric window that all pairs of these streams share; None if there is none, or under three streams."""
    found = {windows.get((i, j)) for i in streams for j in streams if i != j}
    window = found.pop() if len(found) == 1 and len(streams) >= 3 else None
    return window[1] if window is not None and -window[0] == window[1] < np.inf else None


def _uniform_clique(densities: Sequence[Densities], width: float) -> FloatArray:
    """The sum over which event is the earliest; each term is an integral over one variable."""
    n, degree = len(densities[0].edges), len(densities) - 1
    edges = np.concatenate([density.edges for density in densities], axis=1)
    cuts = np.sort(np.concatenate([edges, edges - width], axis=1), axis=1)
    total = np.zeros(n)
    for i, density in enumerate(densities):
        for rows, x, weight in nodes_between(np.clip(cuts, density.edges[:, :1], density.edges[:, -1:]), degree):
            value = weight * _density(density.at(rows), x[1])
            for j, other in enumerate(densities):
                if j != i:
                    here = other.at(rows)
                    value = value * (_below(here, x[0] + width) - _below(here, x[0]))
            total += np.bincount(rows, value, minlength=n)
    return total


@dataclass(frozen=True)
class _Integral:
    """The nested integral over combinations in which the same streams have exact times."""

    densities: Sequence[Densities]
    windows: Windows

    def all(self, uncertain: tuple[int, ...]) -> FloatArray:
        """P of each combination; exact times are fixed from the start."""
        n = len(self.densities[0].edges)
        fixed = {i: density.edges[:, 0] for i, density in enumerate(self.densities) if i not in uncertain}
        value = np.ones(n)
        for (i, j), (lo, hi) in self.windows.items():
            if i in fixed and j in fixed:
                apart = fixed[j] - fixed[i]
                value *= (apart >= lo) & (apart <= hi)
        for part in _parts(self.windows, uncertain):
            value = value * self._of(part, fixed, np.arange(n))
        return value

    def _of(self, part: tuple[int, ...], fixed: Mapping[int, FloatArray], rows: IntArray) -> FloatArray:
        """The integral over the variables of one connected part; all variables linked to it are fixed."""
        variable = _separator(self.windows, part)
        density = self.densities[variable].at(rows)
        low, high = self._range(variable, fixed, density)
        if len(part) == 1:
            return np.maximum(_below(density, high) - _below(density, low), 0.0)
        rest = tuple(i for i in part if i != variable)
        cuts = np.sort(np.column_stack(list(self._breakpoints(variable, rest, fixed, rows))), axis=1)
        total = np.zeros(len(rows))
        for at, x, weight in nodes_between(np.clip(cuts, low[:, None], np.maximum(high, low)[:, None]), len(rest)):
            value = weight * _density(density.at(at), x[1])
            inside = {i: values[at] for i, values in fixed.items()} | {variable: x[0]}
            for inner in _parts(self.windows, rest):
                value = value * self._of(inner, inside, rows[at])
            total += np.bincount(at, value, minlength=len(rows))
        return total

    def _range(
        self, variable: int, fixed: Mapping[int, FloatArray], density: Densities
    ) -> tuple[FloatArray, FloatArray]:
        low, high = density.edges[:, 0], density.edges[:, -1]
        for other, x in fixed.items():
            if (other, variable) in self.windows:
                lo, hi = self.windows[other, variable]
                low, high = np.maximum(low, x + lo), np.minimum(high, x + hi)
        return low, high

    def _breakpoints(
        self, variable: int, rest: tuple[int, ...], fixed: Mapping[int, FloatArray], rows: IntArray
    ) -> Iterator[FloatArray]:
        """Where the integrand's polynomial may change along a variable: columns of instants."""
        yield self.densities[variable].edges[rows]
        for target, offset in chains(self.windows, variable, rest, frozenset(fixed)):
            ends = fixed[target][:, None] if target in fixed else self.densities[target].edges[rows]
            yield ends - offset


def chains(
    windows: Windows, start: int, through: tuple[int, ...], fixed: frozenset[int]
) -> Iterator[tuple[int, float]]:
    """The last variable and the length of every chain of window ends, from a variable through unfixed ones."""
    for (i, j), ends in windows.items():
        if i != start or (j not in through and j not in fixed):
            continue
        for offset in {end for end in ends if np.isfinite(end)}:
            yield j, offset
            if j in through:
                rest = tuple(k for k in through if k != j)
                yield from ((k, offset + more) for k, more in chains(windows, j, rest, fixed))


def _parts(windows: Windows, streams: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The connected components of some streams."""
    left, parts = list(streams), []
    while left:
        part, grown = [left[0]], True
        while grown:
            more = [j for j in left if j not in part and any((i, j) in windows for i in part)]
            part, grown = [*part, *more], bool(more)
        parts.append(tuple(sorted(part)))
        left = [i for i in left if i not in part]
    return parts


def _separator(windows: Windows, part: tuple[int, ...]) -> int:
    """The variable whose removal leaves the smallest largest component."""

    def greatest(variable: int) -> int:
        rest = _parts(windows, tuple(i for i in part if i != variable))
        return max((len(inner) for inner in rest), default=0)

    return min(part, key=greatest)


def _points_for(windows: Windows, uncertain: tuple[int, ...], buckets: Sequence[int]) -> float:
    """Roughly how many integration points a combination needs, if the streams `uncertain` are."""
    if len(uncertain) == len(buckets) and _uniform_width(windows, uncertain) is not None:
        return 2.0 * sum(b + 1 for b in buckets) * len(buckets)
    fixed = frozenset(range(len(buckets))) - frozenset(uncertain)
    return _estimate(windows, uncertain, fixed, buckets)


def _estimate(windows: Windows, streams: Sequence[int], fixed: frozenset[int], buckets: Sequence[int]) -> float:
    """Roughly how many integration points a combination needs. Breakpoints outside a density's support cost none, so
    half of them are counted at each level."""
    points = 0.0
    for part in _parts(windows, tuple(streams)):
        if len(part) == 1:
            points += 1.0
            continue
        variable = _separator(windows, part)
        rest = tuple(i for i in part if i != variable)
        targets = [target for target, _ in chains(windows, variable, rest, fixed)]
        cuts = buckets[variable] + 1 + sum(1 if target in fixed else buckets[target] + 1 for target in targets) / 2
        points += cuts * ((len(part) + 1) // 2) * _estimate(windows, rest, fixed | {variable}, buckets)
    return points


def nodes_between(
    cuts: FloatArray, degree: int
) -> Iterator[tuple[IntArray, tuple[FloatArray, FloatArray], FloatArray]]:
    """Gauss-Legendre points on every piece between cuts [n, c]: rows, (points, midpoints of their pieces), weights.

    Exact for polynomials up to the degree.
    """
    width = np.diff(cuts, axis=1)
    rows, piece = np.nonzero(width > 0.0)
    start, width = cuts[rows, piece], width[rows, piece]
    for node, weight in zip(*_rule(degree), strict=True):
        yield rows, (start + width * node, start + 0.5 * width), width * weight


def _rule(degree: int) -> tuple[list[float], list[float]]:
    count = degree // 2 + 1
    if count <= MOST_NODES:
        of = slice(START[count], START[count + 1])
        return NODES[of].tolist(), WEIGHTS[of].tolist()
    nodes, weights = np.polynomial.legendre.leggauss(count)  # 48 uncertain streams or more
    return (0.5 * (nodes + 1.0)).tolist(), (0.5 * weights).tolist()


def _below(density: Densities, x: FloatArray) -> FloatArray:
    """The distribution function of each row at its x."""
    total = np.zeros(len(x))
    for bucket in range(density.mass.shape[1]):
        start, length = density.edges[:, bucket], density.edges[:, bucket + 1] - density.edges[:, bucket]
        share = np.divide(x - start, length, out=np.zeros(len(x)), where=length > 0.0)
        total += density.mass[:, bucket] * np.clip(share, 0.0, 1.0)
    return total


def _density(density: Densities, x: FloatArray) -> FloatArray:
    """The density of each row at its x, which is not an edge."""
    total = np.zeros(len(x))
    for bucket in range(density.mass.shape[1]):
        start, end = density.edges[:, bucket], density.edges[:, bucket + 1]
        inside = (start < x) & (x < end)
        total[inside] += density.mass[inside, bucket] / (end - start)[inside]
    return total
