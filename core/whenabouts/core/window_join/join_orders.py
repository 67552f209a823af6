"""Join orders: in which order the streams are joined, between which bounds, and what is tested at each level.

Every algorithm of the W-join paper (Hammad et al., SSDBM 2003) is such a plan for one expansion
(`window_join.expansion`):

- **Backward evaluation** (`backward`; BEW in the paper) processes rows as they arrive. The period of a partial
  combination is the intersection of what its members allow, and each stream is scanned inside it.
- **Forward evaluation** (`forward`; FEW) keeps buffers in which everything lies in the window of the next row in time
  order (`window_join.forward_evaluation`). That row joins the buffers of the others without a search or a window test.
- The **global conservative approach** (`gca`) bounds all pairs by the widest window of the graph, the **local** one
  (`lca`) each pair by the lesser of the two streams' widest windows; both refine the result at the end. `none` is the
  paper's modified BEW: every step uses the windows themselves, and a row that fits no partial combination is skipped
  but remains for others. Forward evaluation needs one window for each stream: on a graph that is not a uniform clique
  it is conservative.

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
    at level m), for m < l; `ANY` if unused. `tests[l]`: edges to test once level l is filled.
    """

    streams: tuple[int, ...]
    bounds: tuple[tuple[Range, ...], ...]
    tests: tuple[tuple[int, ...], ...]

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
    widest = _widest(graph)
    if conservative == "gca":
        return [[(-max(widest), max(widest)) for _ in k] for _ in k]
    return [[(-min(widest[i], widest[j]), min(widest[i], widest[j])) for j in k] for i in k]


def order_from(base: int, graph: WindowGraph, strategy: str, conservative: str) -> JoinOrder:
    """The join order of an algorithm (`backward`, `forward`) with a conservative approach (`gca`, `lca`, `none`).

    `forward` takes the other streams by the width of their windows; ties: the first stream.

    >>> from whenabouts.core.window_join.graph import edges_of
    >>> edges = edges_of({("a", "b"): 2, ("b", "c"): 7})
    >>> graph = WindowGraph("abc", edges, [(edge.lo_us, edge.hi_us) for edge in edges])
    >>> order_from(0, graph, "backward", "none").bounds, order_from(0, graph, "forward", "gca").bounds[2]
    (((), ((-2, 2),), ((-9, 9), (-7, 7))), ((-9, -1), (-4611686018427387904, 4611686018427387904)))
    """
    if strategy == "forward":
        windows = forward_windows(graph, conservative)
        others = sorted((s for s in range(len(windows)) if s != base), key=lambda stream: windows[stream])
        order = (base, *others)
        buffered = [(-windows[s], 0 if s < base else -1) for s in others]
        bounds: tuple[tuple[Range, ...], ...] = ((), *((lies, *(ANY,) * at) for at, lies in enumerate(buffered)))
    else:
        pairs = pair_bounds(graph, conservative)
        order = _nearest_first(base, pairs)
        bounds = tuple(tuple(pairs[order[m]][order[level]] for m in range(level)) for level in range(len(order)))
    early = strategy == "backward" and conservative == "none"
    return JoinOrder(order, bounds, _tests(graph, order, bounds, at_the_end=not early))


def forward_windows(graph: WindowGraph, conservative: str) -> list[int]:
    """The window of each stream in forward evaluation: the widest of the graph, or with `lca` the stream's own widest.

    >>> from whenabouts.core.window_join.graph import edges_of
    >>> edges = edges_of({("a", "b"): 2, ("b", "c"): 7})
    >>> graph = WindowGraph("abc", edges, [(edge.lo_us, edge.hi_us) for edge in edges])
    >>> forward_windows(graph, "gca"), forward_windows(graph, "lca")
    ([9, 9, 9], [9, 7, 9])
    """
    widest = _widest(graph)
    return widest if conservative == "lca" else [max(widest)] * len(widest)


def newest_last(base: int, graph: WindowGraph, conservative: str) -> JoinOrder:
    """The order of `backward` on streams that arrive in time order: no row is newer than the base row.

    Of equal times, the later stream's is the newer. For estimates: it says what then lies between the bounds.
    """
    pairs = pair_bounds(graph, conservative)
    order = _nearest_first(base, pairs)
    bounds = _before_the_base(order, pairs, conservative)
    return JoinOrder(order, bounds, _tests(graph, order, bounds, at_the_end=conservative != "none"))


def _widest(graph: WindowGraph) -> list[int]:
    """The widest window of each stream."""
    k = range(len(graph.streams))
    return [max(max(abs(graph.reach[i][j]), abs(graph.reach[j][i])) for j in k if j != i) for i in k]


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
    """No row is newer than the base row; of equal anchors, the later stream's is newer."""
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
    graph: WindowGraph, order: tuple[int, ...], bounds: tuple[tuple[Range, ...], ...], *, at_the_end: bool
) -> tuple[tuple[int, ...], ...]:
    """The edges that the bounds do not imply, at the level where both ends are known, or all at the last level."""
    tests: list[list[int]] = [[] for _ in order]
    for number, (edge, (i, j), window) in enumerate(zip(graph.edges, graph.ends, graph.ranges, strict=True)):
        level, m = max(order.index(i), order.index(j)), min(order.index(i), order.index(j))
        if order[m] != i:
            window = (-window[1], -window[0])
        bound = bounds[level][m]
        if bound == ANY and m:
            bound = (bounds[level][0][0] - bounds[m][0][1], bounds[level][0][1] - bounds[m][0][0])
        if edge.confidence is not None or not _lies_in(bound, window):
            tests[-1 if at_the_end else level].append(number)
    return tuple(map(tuple, tests))


def _lies_in(inner: Range, outer: Range) -> bool:
    return inner[0] > inner[1] or (outer[0] <= inner[0] and inner[1] <= outer[1])
