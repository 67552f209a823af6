"""The probability that all windows of a combination hold together.

The windows of one combination are not independent - two of them share an event - so their probabilities must not be
multiplied. With X_i independent and of densities that are constant between their edges, P is the integral of the
product of the densities over the polytope `lo_ij <= X_j - X_i <= hi_ij`. One variable after another is integrated out;
fixing one splits the rest into parts that no window connects, and these multiply. Along one variable the integrand is a
polynomial between breakpoints, of degree less than the number of variables that remain: a breakpoint is where a chain
of windows at their ends links the variable to an edge of another density, or to a variable that is fixed. Gauss and
Legendre's rule is exact on such a piece. So no error of integration remains, only rounding: below 1e-9, and 1e-6 is
what is promised.

Of a uniform clique (all pairs, one window w) the least event is integrated over alone (order statistics of independent
variables): `P = sum_i integral f_i(x) prod_{j != i} (F_j(x + w) - F_j(x)) dx`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.probability.histogram_arrays import Shapes

ELEMENTS_AT_ONCE = 1 << 21
"""Points of integration that are in memory at one time, about."""

MOST_POINTS = 1_000_000
"""Points of integration for one combination beyond which a graph is refused: some tenths of a second."""


class Spread(NamedTuple):
    """Densities of n times: `edges` [n, buckets + 1] ascending, `mass` [n, buckets]; of a point, all edges are equal.

    In microseconds from a reference that belongs to the combination.
    """

    edges: FloatArray
    mass: FloatArray

    def at(self, rows: IntArray | NDArray[np.bool_]) -> Spread:
        """Those of some rows."""
        return Spread(self.edges[rows], self.mass[rows])

    @property
    def points(self) -> NDArray[np.bool_]:
        """Which times are exact."""
        exact: NDArray[np.bool_] = self.edges[:, 0] == self.edges[:, -1]
        return exact


def spread_of(
    t_min: IntArray, t_max: IntArray, reference: IntArray, shapes: Shapes, number: NDArray[np.int32] | None
) -> Spread:
    """The densities of rows: uniform between their ends, or of the catalogue's shape `number`, ending at `t_max`."""
    end = (t_max - reference).astype(np.float64)
    if number is None:
        return Spread(np.stack([(t_min - reference).astype(np.float64), end], axis=1), np.ones((len(end), 1)))
    buckets = shapes.buckets
    places = np.minimum(shapes.start[number][:, None] + np.arange(buckets + 1), shapes.start[number + 1][:, None] - 1)
    mass = np.where(places[:, 1:] > places[:, :-1], shapes.mass[places[:, :-1]], 0.0)
    return Spread(end[:, None] + shapes.edge[places], mass)


Windows = Mapping[tuple[int, int], tuple[float, float]]
"""By pair (i, j): the range of X_j - X_i, infinite where a window is open. Both directions are there."""


def both_directions(windows: Sequence[tuple[int, int, float, float]]) -> dict[tuple[int, int], tuple[float, float]]:
    """The intersection of all windows of each pair, seen from either side.

    >>> both_directions([(0, 1, 0.0, 5.0), (1, 0, -3.0, 9.0)])
    {(0, 1): (0.0, 3.0), (1, 0): (-3.0, 0.0)}
    """
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for i, j, lo, hi in windows:
        for pair, low, high in (((i, j), lo, hi), ((j, i), -hi, -lo)):
            known = found.get(pair, (-np.inf, np.inf))
            found[pair] = max(known[0], low), min(known[1], high)
    return {pair: (lo + 0.0, hi + 0.0) for pair, (lo, hi) in found.items()}


def joint_probabilities(spreads: Sequence[Spread], windows: Windows) -> FloatArray:
    """P(all windows hold) for each of n combinations, `spreads[i]` being the times of stream i in each of them.

    Error below 1e-6 (see the module's text). Cost: some tens of points for three streams on a path, some hundreds for a
    clique of three; it grows with the product over nested variables, and `check_joint` refuses what would take longer
    than `MOST_POINTS` for one combination.

    >>> spread = Spread(np.array([[0.0, 1.0]]), np.ones((1, 1)))
    >>> clique = both_directions([(0, 1, -.5, .5), (1, 2, -.5, .5), (0, 2, -.5, .5)])
    >>> joint_probabilities([spread] * 3, clique).round(12).tolist()  # 3 w^2 - 2 w^3
    [0.5]
    """
    n = len(spreads[0].edges)
    exact = np.stack([spread.points for spread in spreads], axis=1)
    out = np.empty(n)
    patterns, which = np.unique(exact, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(which.reshape(-1) == number)
        uncertain = tuple(np.flatnonzero(~pattern).tolist())
        width = _uniform_width(windows, uncertain) if len(uncertain) == len(spreads) else None
        at_once = max(int(ELEMENTS_AT_ONCE / max(_points_for(windows, uncertain, spreads, width), 1.0)), 1)
        for start in range(0, len(rows), at_once):
            piece = rows[start : start + at_once]
            here = [spread.at(piece) for spread in spreads]
            out[piece] = _uniform_clique(here, width) if width is not None else _Integral(here, windows).all(uncertain)
    return np.clip(out, 0.0, 1.0)


def check_joint(windows: Windows, streams: int, buckets: Sequence[int]) -> None:
    """Refuse a graph whose integral would take more than `MOST_POINTS` points a combination: QueryError WA-2007."""
    everyone = tuple(range(streams))
    if _uniform_width(windows, everyone) is not None:
        return
    points = _estimate(windows, everyone, frozenset(), buckets)
    if points > MOST_POINTS:
        raise QueryError(
            Code.NOT_AVAILABLE,
            f"the joint probability of this graph takes about {points:.0e} points of integration for one combination",
            "leave joint= out, use fewer windows between uncertain streams, or one window for all pairs",
        )


def _uniform_width(windows: Windows, streams: Sequence[int]) -> float | None:
    """The one symmetric window of all pairs of these streams; None where there is none, or few streams."""
    found = {windows.get((i, j)) for i in streams for j in streams if i != j}
    window = found.pop() if len(found) == 1 and len(streams) >= 3 else None
    return window[1] if window is not None and -window[0] == window[1] < np.inf else None


def _uniform_clique(spreads: Sequence[Spread], width: float) -> FloatArray:
    """The sum over who is least, each an integral over one variable."""
    n, degree = len(spreads[0].edges), len(spreads) - 1
    edges = np.concatenate([spread.edges for spread in spreads], axis=1)
    cuts = np.sort(np.concatenate([edges, edges - width], axis=1), axis=1)
    total = np.zeros(n)
    for i, spread in enumerate(spreads):
        for rows, x, weight in _nodes(np.clip(cuts, spread.edges[:, :1], spread.edges[:, -1:]), degree):
            value = weight * _density(spread.at(rows), x[1])
            for j, other in enumerate(spreads):
                if j != i:
                    here = other.at(rows)
                    value = value * (_below(here, x[0] + width) - _below(here, x[0]))
            total += np.bincount(rows, value, minlength=n)
    return total


@dataclass(frozen=True)
class _Integral:
    """The nested integral over combinations of one pattern of exact and uncertain times."""

    spreads: Sequence[Spread]
    windows: Windows

    def all(self, uncertain: tuple[int, ...]) -> FloatArray:
        """P for each combination; exact times are fixed from the start."""
        n = len(self.spreads[0].edges)
        fixed = {i: spread.edges[:, 0] for i, spread in enumerate(self.spreads) if i not in uncertain}
        value = np.ones(n)
        for (i, j), (lo, hi) in self.windows.items():
            if i in fixed and j in fixed:
                apart = fixed[j] - fixed[i]
                value *= (apart >= lo) & (apart <= hi)
        for part in _parts(self.windows, uncertain):
            value = value * self._of(part, fixed, np.arange(n))
        return value

    def _of(self, part: tuple[int, ...], fixed: Mapping[int, FloatArray], rows: IntArray) -> FloatArray:
        """The integral over the variables of one connected part, others being fixed (or of no concern to it)."""
        variable = _separator(self.windows, part)
        spread = self.spreads[variable].at(rows)
        low, high = self._range(variable, fixed, spread)
        if len(part) == 1:
            return np.maximum(_below(spread, high) - _below(spread, low), 0.0)
        rest = tuple(i for i in part if i != variable)
        cuts = np.sort(np.column_stack(list(self._breakpoints(variable, rest, fixed, rows))), axis=1)
        total = np.zeros(len(rows))
        for at, x, weight in _nodes(np.clip(cuts, low[:, None], np.maximum(high, low)[:, None]), len(rest)):
            value = weight * _density(spread.at(at), x[1])
            inside = {i: values[at] for i, values in fixed.items()} | {variable: x[0]}
            for inner in _parts(self.windows, rest):
                value = value * self._of(inner, inside, rows[at])
            total += np.bincount(at, value, minlength=len(rows))
        return total

    def _range(self, variable: int, fixed: Mapping[int, FloatArray], spread: Spread) -> tuple[FloatArray, FloatArray]:
        low, high = spread.edges[:, 0], spread.edges[:, -1]
        for other, x in fixed.items():
            if (other, variable) in self.windows:
                lo, hi = self.windows[other, variable]
                low, high = np.maximum(low, x + lo), np.minimum(high, x + hi)
        return low, high

    def _breakpoints(
        self, variable: int, rest: tuple[int, ...], fixed: Mapping[int, FloatArray], rows: IntArray
    ) -> Iterator[FloatArray]:
        """Where the integrand along a variable may change its polynomial: columns of instants."""
        yield self.spreads[variable].edges[rows]
        for target, offset in _chains(self.windows, variable, rest, frozenset(fixed)):
            ends = fixed[target][:, None] if target in fixed else self.spreads[target].edges[rows]
            yield ends - offset


def _chains(
    windows: Windows, start: int, through: tuple[int, ...], fixed: frozenset[int]
) -> Iterator[tuple[int, float]]:
    """Ends and lengths of all chains of windows at their ends, from a variable through unfixed ones."""
    for (i, j), ends in windows.items():
        if i != start or (j not in through and j not in fixed):
            continue
        for offset in {end for end in ends if np.isfinite(end)}:
            yield j, offset
            if j in through:
                rest = tuple(k for k in through if k != j)
                yield from ((k, offset + more) for k, more in _chains(windows, j, rest, fixed))


def _parts(windows: Windows, streams: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The parts of some streams that windows connect."""
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
    """The variable without which the greatest part that remains is smallest."""

    def greatest(variable: int) -> int:
        rest = _parts(windows, tuple(i for i in part if i != variable))
        return max((len(inner) for inner in rest), default=0)

    return min(part, key=greatest)


def _points_for(windows: Windows, uncertain: tuple[int, ...], spreads: Sequence[Spread], width: float | None) -> float:
    buckets = [int(spread.mass.shape[1]) for spread in spreads]
    if width is not None:
        return 2.0 * sum(b + 1 for b in buckets) * len(buckets)
    fixed = frozenset(range(len(spreads))) - frozenset(uncertain)
    return _estimate(windows, uncertain, fixed, buckets)


def _estimate(windows: Windows, streams: Sequence[int], fixed: frozenset[int], buckets: Sequence[int]) -> float:
    """About how many points of integration a combination takes; breakpoints outside a density's support cost none, so
    that half of them are counted at each level."""
    points = 0.0
    for part in _parts(windows, tuple(streams)):
        if len(part) == 1:
            points += 1.0
            continue
        variable = _separator(windows, part)
        rest = tuple(i for i in part if i != variable)
        chains = [target for target, _ in _chains(windows, variable, rest, fixed)]
        cuts = buckets[variable] + 1 + sum(1 if target in fixed else buckets[target] + 1 for target in chains) / 2
        points += cuts * ((len(part) + 1) // 2) * _estimate(windows, rest, fixed | {variable}, buckets)
    return points


def _nodes(cuts: FloatArray, degree: int) -> Iterator[tuple[IntArray, tuple[FloatArray, FloatArray], FloatArray]]:
    """Gauss and Legendre's points on every piece between cuts [n, c]: rows, (points, middles of their pieces), weights.

    Exact for polynomials of the degree.
    """
    width = np.diff(cuts, axis=1)
    rows, piece = np.nonzero(width > 0.0)
    start, width = cuts[rows, piece], width[rows, piece]
    for node, weight in zip(*_rule(degree), strict=True):
        yield rows, (start + width * node, start + 0.5 * width), width * weight


def _rule(degree: int) -> tuple[list[float], list[float]]:
    nodes, weights = np.polynomial.legendre.leggauss(degree // 2 + 1)
    return (0.5 * (nodes + 1.0)).tolist(), (0.5 * weights).tolist()


def _below(spread: Spread, x: FloatArray) -> FloatArray:
    """The distribution functions at x, one each."""
    total = np.zeros(len(x))
    for bucket in range(spread.mass.shape[1]):
        start, length = spread.edges[:, bucket], spread.edges[:, bucket + 1] - spread.edges[:, bucket]
        share = np.divide(x - start, length, out=np.zeros(len(x)), where=length > 0.0)
        total += spread.mass[:, bucket] * np.clip(share, 0.0, 1.0)
    return total


def _density(spread: Spread, x: FloatArray) -> FloatArray:
    """The densities at x, which is no edge, one each."""
    total = np.zeros(len(x))
    for bucket in range(spread.mass.shape[1]):
        start, end = spread.edges[:, bucket], spread.edges[:, bucket + 1]
        inside = (start < x) & (x < end)
        total[inside] += spread.mass[inside, bucket] / (end - start)[inside]
    return total
