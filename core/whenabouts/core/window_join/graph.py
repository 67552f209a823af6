"""The window graph of a multi-way join: the windows between any two streams, and how long rows must be kept.

An edge bounds a difference of times, so the graph is a simple temporal network. Its shortest paths are the windows that
the edges imply between any two streams (W-join, Hammad et al., SSDBM 2003, section 5.2: "an upper bound for the missing
constraint is the shortest path"). A cycle of negative length is a contradiction. A stream's rows are kept for the
longest window that starts at it. Distances are between *anchors* (`t_max`); for exact times these are the times
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from whenabouts.core.durations import Duration, format_bounds, format_duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.option_checks import refused
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.limits import UNBOUNDED_US

Window: TypeAlias = "Duration | tuple[Duration, Duration] | Condition"
"""A symmetric window, a directed one (bounds on second - first), or a condition with a confidence."""

Windows: TypeAlias = "Mapping[tuple[str, str], Window] | Iterable[Edge]"

OPEN_US = UNBOUNDED_US
"""No bound: farther than any two times can be apart."""


@dataclass(frozen=True, slots=True)
class Edge:
    """`lo_us <= t_second - t_first <= hi_us`; with a confidence, at least with that probability.

    >>> edge_of("a", "b", "2 s"), edge_of("a", "b", (0, 5)).hi_us
    (Edge(first='a', second='b', lo_us=-2000000, hi_us=2000000, confidence=None), 5)
    """

    first: str
    second: str
    lo_us: int
    hi_us: int
    confidence: float | None = None

    @property
    def possible(self) -> bool:
        """Whether the window's condition is one of `possibly`."""
        return self.confidence is not None and Condition(self.lo_us, self.hi_us, self.confidence).possible

    def decided_by(self, *, instants: bool) -> Edge:
        """The window by whose probability combinations are decided (`Condition.decided_by`)."""
        if not self.possible or self.confidence is None:
            return self
        found = Condition(self.lo_us, self.hi_us, self.confidence).decided_by(instants=instants)
        return replace(self, lo_us=found.lo_us, hi_us=found.hi_us, confidence=found.confidence)

    def __str__(self) -> str:
        if self.possible:
            return f"possibly {replace(self, confidence=None)}"
        sure = "" if self.confidence is None else f" with confidence {self.confidence:g}"
        lo = None if self.lo_us <= -OPEN_US else self.lo_us
        hi = None if self.hi_us >= OPEN_US else self.hi_us
        return f"{format_bounds(f'{self.second} - {self.first}', lo, hi)}{sure}"


def edge_of(first: str, second: str, window: Window) -> Edge:
    """The edge of a window as users write it.

    Raises QueryError: WA-2003 for a negative symmetric window, WA-2005 for lo > hi, WA-2002 for an invalid duration.
    """
    name = f"the window of {first} and {second}"
    if isinstance(window, Condition):
        confidence = window.confidence if window.says_confidence else None
        return Edge(first, second, window.lo_us, window.hi_us, confidence)
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise QueryError(Code.BAD_EDGE, f"{name} has {len(window)} ends", "give (lo, hi): bounds on second - first")
        lo, hi = (parse_duration(end, name=name) for end in window)
        if lo > hi:
            raise QueryError(
                Code.EMPTY_CONDITION, f"{name} admits no difference: lo {lo} us > hi {hi} us", "swap the bounds"
            )
        return Edge(first, second, lo, hi)
    width = parse_non_negative(window, name=name)
    return Edge(first, second, -width, width)


def edges_of(windows: Windows) -> tuple[Edge, ...]:
    """All edges, in the given order. Raises QueryError WA-2061 for a key that is not a pair, and as `edge_of`."""
    if not isinstance(windows, Mapping):
        if not isinstance(windows, (tuple, list)) or not all(isinstance(edge, Edge) for edge in windows):
            raise refused("windows", windows, 'give {("a", "b"): "2 s"}', Code.BAD_EDGE)
        return tuple(windows)
    for pair in windows:
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
            raise QueryError(Code.BAD_EDGE, f"a window is given for {pair!r}", "name two streams: ('a', 'b')")
    return tuple(edge_of(first, second, window) for (first, second), window in windows.items())


def check_edges(streams: Sequence[str], edges: Sequence[Edge]) -> None:
    """Check that the edges form a connected graph over the streams.

    Raises QueryError: WA-2061 for an unknown stream, an edge from a stream to itself or two edges in one direction,
    WA-2062 for streams that no edges connect.
    """
    seen = set()
    for edge in edges:
        for name in (edge.first, edge.second):
            if name not in streams:
                raise QueryError(
                    Code.BAD_EDGE,
                    f"a window names the unknown stream {name!r}",
                    f"the streams are {', '.join(streams)}",
                )
        if edge.first == edge.second:
            raise QueryError(
                Code.BAD_EDGE,
                f"a window is given for {edge.first!r} and itself",
                "to join a stream with itself, give it two names",
            )
        if (edge.first, edge.second) in seen:
            raise QueryError(Code.BAD_EDGE, f"{edge.first},{edge.second} has two windows", "give their intersection")
        seen.add((edge.first, edge.second))
    parts = _parts(streams, edges)
    if len(parts) > 1:
        raise QueryError(
            Code.DISCONNECTED_GRAPH,
            f"no window connects {' and '.join('{' + ', '.join(part) + '}' for part in parts)}: all their rows would "
            "match each other, and no row could ever be dropped",
            "add a window between them",
        )


def _parts(streams: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """The connected components, in the order of the streams."""
    of = {name: {name} for name in streams}
    for edge in edges:
        if of[edge.first] is not of[edge.second]:
            of[edge.first] |= of[edge.second]
            for name in of[edge.second]:
                of[name] = of[edge.first]
    parts: list[list[str]] = []
    for name in streams:
        if not any(name in part for part in parts):
            parts.append([other for other in streams if other in of[name]])
    return parts


class WindowGraph:
    """The tightened graph: `reach[i][j]` is the most by which an anchor of stream j can exceed one of stream i.

    `ranges`: for each edge the range of (anchor of second - anchor of first) that it admits, open ends at `OPEN_US`.
    Raises QueryError WA-2063 if no times satisfy all edges, naming a cycle that shows it. O(streams^3).

    >>> edges = edges_of({("a", "b"): "2 s", ("b", "c"): ("0 s", "5 s")})
    >>> graph = WindowGraph("abc", edges, [(edge.lo_us, edge.hi_us) for edge in edges])
    >>> graph.reach[0][2], graph.reach[2][0], [graph.horizon_us(stream) for stream in range(3)], graph.form
    (7000000, 2000000, [7000000, 5000000, 2000000], 'path')
    """

    def __init__(self, streams: Sequence[str], edges: Sequence[Edge], ranges: Sequence[tuple[int, int]]) -> None:
        check_edges(streams, edges)
        self.streams = tuple(streams)
        self.edges = tuple(edges)
        self.ranges = tuple((max(lo, -OPEN_US), min(hi, OPEN_US)) for lo, hi in ranges)
        self.ends = tuple((self.streams.index(edge.first), self.streams.index(edge.second)) for edge in edges)
        self.reach = self._tightened()

    def _tightened(self) -> list[list[int]]:
        """All shortest paths (Floyd-Warshall), on Python's integers, which do not overflow."""
        k = len(self.streams)
        reach = [[0 if i == j else OPEN_US for j in range(k)] for i in range(k)]
        step = [list(range(k)) for _ in range(k)]  # the first stream on the shortest path from i to j
        for edge, (i, j), (lo, hi) in zip(self.edges, self.ends, self.ranges, strict=True):
            if lo > hi:
                raise QueryError(
                    Code.CONTRADICTORY_WINDOWS,
                    f"no times of {edge.first} and {edge.second} satisfy their window: {edge}",
                    "their times are too uncertain for it: widen it, or ask for a lower confidence",
                )
            reach[i][j], reach[j][i] = min(reach[i][j], hi), min(reach[j][i], -lo)
        for i in range(k):
            for j in range(k):
                if i != j and reach[i][j] + reach[j][i] < 0:
                    self._contradiction([i, j], reach)
        for via in range(k):
            for i in range(k):
                for j in range(k):
                    through = reach[i][via] + reach[via][j]
                    if reach[i][via] < OPEN_US and reach[via][j] < OPEN_US and through < reach[i][j]:
                        reach[i][j], step[i][j] = through, step[i][via]
                        if i == j:
                            self._contradiction(_cycle(step, i), reach)
        return reach

    def _contradiction(self, cycle: Sequence[int], reach: list[list[int]]) -> None:
        """Refuse a cycle of negative length: in the opposite direction its length would have to be above 0."""
        longer = -sum(reach[i][j] for i, j in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        back = list(reversed(cycle))
        start = back.index(min(back))
        names = [self.streams[stream] for stream in back[start:] + back[:start]]
        windows = [str(edge) for edge in self.edges if edge.first in names and edge.second in names]
        raise QueryError(
            Code.CONTRADICTORY_WINDOWS,
            f"no times satisfy the windows of {', '.join(names)} together: {'; '.join(windows)}",
            f"the cycle {' -> '.join([*names, names[0]])} would take at least {format_duration(longer)} instead of 0: "
            "widen or reverse a window",
        )

    def horizon_us(self, stream: int) -> int:
        """How long a row of a stream must be kept: matching rows of other streams are at most this far ahead of it.

        Negative if all others must come before it. The bound is tight: in the tightened graph every bound is attained.
        """
        return max(reach for other, reach in enumerate(self.reach[stream]) if other != stream)

    def require_bounded(self) -> None:
        """Refuse a graph (on a stream) that leaves two streams without a bound: QueryError WA-2004."""
        for i, name in enumerate(self.streams):
            for j, other in enumerate(self.streams):
                if self.reach[i][j] >= OPEN_US:
                    raise QueryError(
                        Code.ONE_SIDED_ON_STREAM,
                        f"no window bounds how long after a row of {name!r} one of {other!r} may come: rows would be "
                        "kept for ever",
                        "give the windows two ends (on streams), and intervals a max_uncertainty",
                    )

    @property
    def uniform_us(self) -> int | None:
        """The window of a uniform clique, None for other graphs."""
        found = {reach for i, row in enumerate(self.reach) for j, reach in enumerate(row) if i != j}
        joined = {frozenset(ends) for ends in self.ends}
        k = len(self.streams)
        return found.pop() if len(found) == 1 and len(joined) == k * (k - 1) // 2 else None

    @property
    def form(self) -> str:
        """`binary`, `path`, `graph`, `clique` or `uniform clique` (W-join, section 2)."""
        k, joined = len(self.streams), {frozenset(ends) for ends in self.ends}
        if k == 2:
            return "binary"
        if len(joined) == k * (k - 1) // 2:
            return "clique" if self.uniform_us is None else "uniform clique"
        degrees = [sum(stream in pair for pair in joined) for stream in range(k)]
        return "path" if len(joined) == k - 1 and max(degrees) <= 2 else "graph"


def _cycle(step: list[list[int]], start: int) -> list[int]:
    """The streams on the shortest cycle through a stream."""
    cycle, at = [start], step[start][start]
    while at != start and len(cycle) <= len(step):
        cycle.append(at)
        at = step[at][start]
    return list(dict.fromkeys(cycle))
