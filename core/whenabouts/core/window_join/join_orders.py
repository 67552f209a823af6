"""Join orders: in which order the streams are joined, between which bounds, and what is tested at each level.

Every algorithm of the W-join paper (Hammad et al., SSDBM 2003) is such a plan for one expansion
(`window_join.expansion`):

- **Backward evaluation** (`backward`; BEW in the paper) processes rows as they arrive. The period of a partial
  combination is the intersection of what its members allow, and each stream is scanned inside it.
- **Forward evaluation** (`forward`; FEW) processes rows in time order, once all streams have passed them. All other
  rows lie before the newest row, in one period that depends on that row alone. Rows whose period has no row of some
  stream are skipped (mode 1), and joining the others needs no window test (mode 2).
- The **global conservative approach** (`gca`) bounds all pairs by the widest window of the graph, the **local** one
  (`lca`) each pair by the lesser of the two streams' widest windows; both refine the result at the end. `none` is the
  paper's modified BEW: every step uses the windows themselves, and a row that fits no partial combination is skipped
  but remains for others.

A window that the bounds do not imply is tested on the combination. A window with a confidence is always tested, by the
kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from whenabouts.core.window_join.graph import OPEN_US, WindowGraph

STRATEGIES = ("auto", "backward", "forward")
OLD_STRATEGIES = {"bew": "backward", "few": "forward"}
"""Deprecated names, after the paper's abbreviations."""

CONSERVATIVE = ("auto", "gca", "lca", "none")
METHODS = ("hash", "nested")

Range: TypeAlias = tuple[int, int]

ANY: Range = (-OPEN_US, OPEN_US)


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """How rows of a base stream are expanded to whole combinations.

    `streams`: the base first. `bounds[l][m]`: range of (anchor of the row at level l) - (anchor of the row
    at level m), for m < l; `ANY` if unused. `tests[l]`: edges to test once level l is filled. `from_base`: all bounds
    are relative to the base row, so that one period bounds the whole combination.
    """

    streams: tuple[int, ...]
    bounds: tuple[tuple[Range, ...], ...]
    tests: tuple[tuple[int, ...], ...]
    from_base: bool

    @property
    def base(self) -> int:
        """The stream whose rows start the combinations."""
        return self.streams[0]


def pair_bounds(graph: WindowGraph, conservative: str) -> list[list[Range]]:
    """The range of (anchor of j) - (anchor of i) that is scanned, for each pair of streams (i, j).

    >>> from whenabouts.core.window_join.graph import edges_of
    >>> edges = edges_of({("a", "b"): 2, ("b", "c"): 7})
    >>> graph = WindowGraph("abc", edges, [(edge.lo_us, edge.hi_us) for edge in edges])
    >>> [pair_bounds(graph, how)[0][1] for how in ("none", "lca", "gca")], pair_bounds(graph, "lca")[1][2]
    ([(-2, 2), (-7, 7), (-9, 9)], (-7, 7))
    """
    k = range(len(graph.streams))
    if conservative == "none":
        return [[(-graph.reach[j][i], graph.reach[i][j]) for j in k] for i in k]
    widest = [max(max(abs(graph.reach[i][j]), abs(graph.reach[j][i])) for j in k if j != i) for i in k]
    if conservative == "gca":
        return [[(-max(widest), max(widest)) for _ in k] for _ in k]
    return [[(-min(widest[i], widest[j]), min(widest[i], widest[j])) for j in k] for i in k]


def order_from(base: int, graph: WindowGraph, strategy: str, conservative: str) -> JoinOrder:
    """The join order of an algorithm (`backward`, `forward`) with a conservative approach (`gca`, `lca`, `none`).

    >>> from whenabouts.core.window_join.graph import edges_of
    >>> edges = edges_of({("a", "b"): 2, ("b", "c"): 7})
    >>> graph = WindowGraph("abc", edges, [(edge.lo_us, edge.hi_us) for edge in edges])
    >>> order_from(0, graph, "backward", "none").bounds, order_from(0, graph, "forward", "gca").bounds[2]
    (((), ((-2, 2),), ((-9, 9), (-7, 7))), ((-9, -1), (-4611686018427387904, 4611686018427387904)))
    """
    pairs = pair_bounds(graph, conservative)
    order = _nearest_first(base, pairs)
    if strategy == "forward":
        bounds = _before_the_base(order, pairs, conservative)
    else:
        bounds = tuple(tuple(pairs[order[m]][order[level]] for m in range(level)) for level in range(len(order)))
    return JoinOrder(
        order, bounds, _tests(graph, order, bounds, conservative), all(b == ANY for row in bounds for b in row[1:])
    )


def _nearest_first(base: int, pairs: list[list[Range]]) -> tuple[int, ...]:
    """The next stream is always the one with the narrowest bound to any before it (ties: the first stream)."""
    order = [base]
    while len(order) < len(pairs):
        left = [stream for stream in range(len(pairs)) if stream not in order]
        order.append(min(left, key=lambda stream: min(pairs[m][stream][1] - pairs[m][stream][0] for m in order)))
    return tuple(order)


def _before_the_base(
    order: tuple[int, ...], pairs: list[list[Range]], conservative: str
) -> tuple[tuple[Range, ...], ...]:
    """The bounds of `forward`: no row is newer than the base row; of equal anchors, the later stream's is newer."""
    base = order[0]
    period = [(0, 0)]
    period += [(pairs[base][s][0], min(pairs[base][s][1], 0 if s < base else -1)) for s in order[1:]]
    bounds: list[tuple[Range, ...]] = [()]
    for level in range(1, len(order)):
        row = [period[level]]
        for m in range(1, level):
            window = pairs[order[m]][order[level]]
            implied = _lies_in((period[level][0] - period[m][1], period[level][1] - period[m][0]), window)
            row.append(ANY if implied or conservative != "none" else window)
        bounds.append(tuple(row))
    return tuple(bounds)


def _tests(
    graph: WindowGraph, order: tuple[int, ...], bounds: tuple[tuple[Range, ...], ...], conservative: str
) -> tuple[tuple[int, ...], ...]:
    """The edges that the bounds do not imply, at the level where both ends are known; GCA and LCA test at the end."""
    tests: list[list[int]] = [[] for _ in order]
    for number, (edge, (i, j), window) in enumerate(zip(graph.edges, graph.ends, graph.ranges, strict=True)):
        level, m = max(order.index(i), order.index(j)), min(order.index(i), order.index(j))
        if order[m] != i:
            window = (-window[1], -window[0])
        bound = bounds[level][m]
        if bound == ANY and m:
            bound = (bounds[level][0][0] - bounds[m][0][1], bounds[level][0][1] - bounds[m][0][0])
        if edge.confidence is not None or not _lies_in(bound, window):
            tests[level if conservative == "none" else -1].append(number)
    return tuple(map(tuple, tests))


def _lies_in(inner: Range, outer: Range) -> bool:
    return inner[0] > inner[1] or (outer[0] <= inner[0] and inner[1] <= outer[1])
