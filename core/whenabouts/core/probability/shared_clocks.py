"""The joint probability of windows where some streams are stamped by one clock.

The readings of a clock share its offset O, so their times are not independent: `X_i = t_i - E_i + D`, where D = -O, the
clock's *correction*, is one number for all of them. Given the corrections the times are independent, and P is the
expected value of the joint probability J over them. J is a piecewise polynomial in each correction, of a degree that is
at most the number of uncertain streams. A breakpoint is where a chain of windows, each at one of its ends, links an
edge of one density that moves with the correction to an edge of one that does not. Where other corrections are still to
be integrated out, a chain may pass through them, or end where one of them does. Gauss-Legendre quadrature is exact on
each piece, as in `joint_probability`, which this module builds on.

Only differences count. So if two clocks stamp all streams, one correction stays: the difference of both, whose density
is a trapezoid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import BoolArray, FloatArray
from whenabouts.core.probability.joint_probability import (
    ELEMENTS_AT_ONCE,
    Densities,
    Windows,
    chains,
    joint_probabilities,
    nodes_between,
)


class Correction(NamedTuple):
    """What is added to the readings of some streams: a density that is linear between its edges (microseconds)."""

    streams: frozenset[int]
    edges: tuple[float, ...]
    density: tuple[float, ...]

    @property
    def degree(self) -> int:
        """Of the density on each piece."""
        return int(len(set(self.density)) > 1)


def corrections_of(clocks: Sequence[tuple[str, int] | None]) -> list[Correction]:
    """The corrections of clocks that stamp two or more streams, from each stream's clock and its offset above zero.

    None if a single clock stamps all streams: then the offset cancels.

    >>> corrections_of([("a", 5), ("a", 5), None])
    [Correction(streams=frozenset({0, 1}), edges=(-5.0, 5.0), density=(0.1, 0.1))]
    >>> corrections_of([("a", 5), ("a", 5), ("b", 2), ("b", 2)])[0].edges
    (-7.0, -3.0, 3.0, 7.0)
    """
    offsets: dict[str, float] = {}
    streams: dict[str, list[int]] = {}
    for number, clock in enumerate(clocks):
        if clock is not None:
            offsets[clock[0]] = float(clock[1])
            streams.setdefault(clock[0], []).append(number)
    names = [name for name, of in streams.items() if len(of) >= 2]
    if sum(len(streams[name]) for name in names) == len(clocks):
        if len(names) == 1:
            return []
        if len(names) == 2:
            narrow, wide = sorted(offsets[name] for name in names)
            ends, height = (wide + narrow, wide - narrow), 0.5 / wide
            edges = (-ends[0], -ends[1], ends[1], ends[0])
            return [Correction(frozenset(streams[names[1]]), edges, (0.0, height, height, 0.0))]
    return [
        Correction(frozenset(streams[name]), (-offsets[name], offsets[name]), (0.5 / offsets[name],) * 2)
        for name in names
    ]


def joint_probabilities_of_clocks(
    densities: Sequence[Densities], windows: Windows, corrections: Sequence[Correction]
) -> FloatArray:
    """P(all windows hold) for each of n combinations; the densities of readings have own errors only.

    Error as in `joint_probabilities`. Cost: that of `joint_probabilities` times `evaluations`.

    Two readings at 0 of a clock that is wrong by 1 at most, both 0 to 2 after an exact 0: 1/2, where two clocks would
    give 1/4:

    >>> at = [Densities(np.array([[0, 0]], float), np.ones((1, 1)))] * 3
    >>> after = {(2, 0): (0.0, 2.0), (0, 2): (-2.0, 0.0), (2, 1): (0.0, 2.0), (1, 2): (-2.0, 0.0)}
    >>> joint_probabilities_of_clocks(at, after, corrections_of([("a", 1), ("a", 1), None])).tolist()
    [0.5]
    """
    if not corrections:
        return joint_probabilities(densities, windows)
    n = len(densities[0].edges)
    exact = np.stack([density.points for density in densities], axis=1)
    out = np.zeros(n)
    patterns, which = np.unique(exact, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(which.reshape(-1) == number)
        fixed = frozenset(np.flatnonzero(pattern).tolist())
        within = {
            (i, j) for i, j in windows if i in fixed and j in fixed and _clock(corrections, i) == _clock(corrections, j)
        }
        rows = rows[_all_hold([density.at(rows) for density in densities], {at: windows[at] for at in within})]
        others = {pair: ends for pair, ends in windows.items() if pair not in within}
        mixture = _Mixture(others, fixed, len(densities))
        buckets = [int(density.mass.shape[1]) for density in densities]
        pieces = max(mixture.cuts(corrections[0], corrections[1:], buckets), 1.0)
        at_once = max(int(ELEMENTS_AT_ONCE / (8 * pieces)), 1)
        for start in range(0, len(rows), at_once):
            piece = rows[start : start + at_once]
            out[piece] = mixture.over(corrections, [density.at(piece) for density in densities])
    return np.clip(out, 0.0, 1.0)


def evaluations(windows: Windows, streams: int, corrections: Sequence[Correction], buckets: Sequence[int]) -> float:
    """Roughly how many times the joint probability of one combination is evaluated, if no time is exact."""
    mixture, total = _Mixture(windows, frozenset(), streams), 1.0
    for number, correction in enumerate(corrections):
        rest = corrections[number + 1 :]
        total *= mixture.cuts(correction, rest, buckets) * mixture.nodes(correction, rest)
    return total


@dataclass(frozen=True)
class _Mixture:
    """The expected value of J over the corrections, where the times of the streams `fixed` have no own error."""

    windows: Windows
    fixed: frozenset[int]
    streams: int

    def over(self, corrections: Sequence[Correction], densities: Sequence[Densities]) -> FloatArray:
        """P of each combination."""
        if not corrections:
            return joint_probabilities(densities, self.windows)
        first, rest = corrections[0], corrections[1:]
        n, own = len(densities[0].edges), np.array(first.edges)
        breakpoints = [np.tile(own, (n, 1)), *self._breakpoints(first, rest, densities)]
        cuts = np.clip(np.sort(np.concatenate(breakpoints, axis=1), axis=1), own[0], own[-1])
        total = np.zeros(n)
        for rows, (x, _), weight in nodes_between(cuts, self._degree(first, rest)):
            corrected = [
                Densities(density.edges[rows] + x[:, None], density.mass[rows])
                if stream in first.streams
                else density.at(rows)
                for stream, density in enumerate(densities)
            ]
            value = weight * np.interp(x, own, first.density) * self.over(rest, corrected)
            total += np.bincount(rows, value, minlength=n)
        return total

    def nodes(self, first: Correction, rest: Sequence[Correction]) -> int:
        """Nodes on each piece."""
        return self._degree(first, rest) // 2 + 1

    def cuts(self, first: Correction, rest: Sequence[Correction], buckets: Sequence[int]) -> float:
        """Roughly how many pieces there are. Half of the breakpoints lie outside the correction's range."""
        edges = [1 if stream in self.fixed else count + 1 for stream, count in enumerate(buckets)]
        links = {of: self._links(of) for of in (first, *rest)}

        def count(of: Correction, passed: tuple[Correction, ...]) -> float:
            found = 0.0
            for i, j, _ in links[of]:
                through = _clock((first, *rest), j)
                if through is None:
                    found += edges[i] * edges[j]
                elif through not in passed:
                    found += edges[i] * edges[j] * (len(through.edges) + count(through, (*passed, through)))
            return found

        return len(first.edges) - 1 + count(first, (first,)) / 2

    def _degree(self, first: Correction, rest: Sequence[Correction]) -> int:
        return self.streams - len(self.fixed) + first.degree + sum(1 + other.degree for other in rest)

    def _links(self, of: Correction) -> list[tuple[int, int, float]]:
        """The chains of window ends from a stream i of a clock to a stream j of another or of none."""
        found = []
        for i in of.streams:
            through = tuple(k for k in range(self.streams) if k != i and k not in self.fixed)
            ends = set(chains(self.windows, i, through, self.fixed - {i}))
            found += [(i, j, length) for j, length in sorted(ends) if j not in of.streams]
        return found

    def _breakpoints(
        self, first: Correction, rest: Sequence[Correction], densities: Sequence[Densities]
    ) -> Iterator[FloatArray]:
        """Where J, with the corrections `rest` integrated out, may change its polynomial: columns of corrections."""
        edges = [
            density.edges[:, :1] if stream in self.fixed else density.edges for stream, density in enumerate(densities)
        ]
        links = {of: self._links(of) for of in (first, *rest)}

        def found(of: Correction, passed: tuple[Correction, ...]) -> Iterator[FloatArray]:
            for i, j, length in links[of]:
                apart = _sums(edges[j] - length, -edges[i])
                through = _clock((first, *rest), j)
                if through is None:
                    yield apart
                elif through not in passed:
                    yield _sums(apart, np.array([through.edges]))
                    for more in found(through, (*passed, through)):
                        yield _sums(apart, more)

        return found(first, (first,))


def _clock(corrections: Sequence[Correction], stream: int) -> Correction | None:
    return next((correction for correction in corrections if stream in correction.streams), None)


def _sums(one: FloatArray, other: FloatArray) -> FloatArray:
    """All sums of an element of `one` [n, a] and one of `other` [n or 1, b], as [n, a b]."""
    sums = one[:, :, None] + other[:, None, :]
    return sums.reshape(len(sums), -1)


def _all_hold(densities: Sequence[Densities], windows: Mapping[tuple[int, int], tuple[float, float]]) -> BoolArray:
    """Which combinations of readings without own errors meet windows within one clock; not shifted, so exactly."""
    holds = np.ones(len(densities[0].edges), bool)
    for (i, j), (lo, hi) in windows.items():
        apart = densities[j].edges[:, 0] - densities[i].edges[:, 0]
        holds &= (apart >= lo) & (apart <= hi)
    return holds
