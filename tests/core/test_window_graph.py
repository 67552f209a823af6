"""The window graph: implied windows, horizons and refusals, worked by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from whenabouts.core import Interval, Point, QueryError, between, within
from whenabouts.core.durations import parse_duration
from whenabouts.core.window_join.graph import OPEN_US, WindowGraph, edges_of
from whenabouts.core.window_join.join_orders import order_from, pair_bounds
from whenabouts.core.window_join.query import WindowJoin


def _graph(streams: str, windows: Mapping[tuple[str, str], Any]) -> WindowGraph:
    edges = edges_of(windows)
    return WindowGraph(tuple(streams), edges, [(edge.lo_us, edge.hi_us) for edge in edges])


def _graph_or_code(streams: str, windows: Mapping[tuple[str, str], Any]) -> tuple[WindowGraph | None, str]:
    try:
        return _graph(streams, windows), ""
    except QueryError as error:
        return None, error.code.value


def _refused(streams: str, windows: Mapping[tuple[str, str], Any], spec: Any = None) -> QueryError:
    with pytest.raises(QueryError) as refused:
        WindowJoin(times=dict.fromkeys(streams, spec or Point("t")), windows=windows)
    return refused.value


FIGURE: dict[tuple[str, str], Any] = {
    ("A", "B"): 3, ("B", "C"): 4, ("C", "D"): 5, ("D", "E"): 2, ("A", "E"): 20, ("C", "E"): 9,
}  # fmt: skip
"""Five streams as in the paper's drawing of forms, with widths of our own.

    A --3-- B --4-- C --5-- D
    |               |9      |2
    +------20------ E ------+
"""


def test_missing_windows_are_shortest_paths() -> None:
    graph = _graph("ABCDE", FIGURE)
    implied = {pair: graph.reach["ABCDE".index(pair[0])]["ABCDE".index(pair[1])] for pair in ("AC", "AD", "BD", "BE")}
    assert implied == {"AC": 7, "AD": 12, "BD": 9, "BE": 11}
    assert graph.reach[0][4] == 14  # A-E of 20 is tightened by A-B-C-D-E
    assert graph.reach[2][4] == 7  # and C-E of 9 by C-D-E
    assert [graph.horizon_us(stream) for stream in range(5)] == [14, 11, 7, 12, 14]
    assert graph.form == "graph"


def test_a_directed_path_keeps_directions() -> None:
    """a --[1, 4]--> b --[2, 3]--> c: c comes 3 to 7 after a, and a row of c can match no later row."""
    graph = _graph("abc", {("a", "b"): (1, 4), ("b", "c"): (2, 3)})
    assert (graph.reach[0][2], -graph.reach[2][0]) == (7, 3)
    assert [graph.horizon_us(stream) for stream in range(3)] == [7, 3, -2]


@pytest.mark.parametrize(
    ("streams", "windows", "form"),
    [
        ("ab", {("a", "b"): 1}, "binary"),
        ("abc", {("a", "b"): 1, ("c", "b"): 2}, "path"),
        ("abcd", {("a", "b"): 1, ("a", "c"): 2, ("a", "d"): 2}, "graph"),
        ("abc", {("a", "b"): 1, ("c", "b"): 2, ("a", "c"): 2}, "clique"),
        ("abc", {("a", "b"): 2, ("c", "b"): 2, ("a", "c"): 2}, "uniform clique"),
        ("abc", {("a", "b"): 2, ("c", "b"): 2, ("a", "c"): (-2, 1)}, "clique"),
    ],
)
def test_forms(streams: str, windows: dict[tuple[str, str], Any], form: str) -> None:
    assert _graph(streams, windows).form == form


@pytest.mark.parametrize("seed", range(40))
def test_tightened_bounds_are_attained_and_necessary(seed: int) -> None:
    """Over small integer times: a difference occurs in some assignment that meets all edges iff the graph admits it."""
    random = np.random.default_rng(seed)
    streams = "abcd"[: int(random.integers(2, 5))]
    pairs = [(a, b) for a, b in itertools.permutations(streams, 2)]
    chosen = [
        pairs[at] for at in random.permutation(len(pairs))[: int(random.integers(len(streams) - 1, len(pairs) + 1))]
    ]
    windows = {}
    for pair in chosen:
        lo = int(random.integers(-2, 2))
        windows[pair] = (lo, lo + int(random.integers(0, 2)))
    graph, code = _graph_or_code(streams, windows)
    if code == "WA-2062":
        return
    seen = {
        times
        for times in itertools.product([0], *[range(-9, 10)] * (len(streams) - 1))
        if all(lo <= times[streams.index(b)] - times[streams.index(a)] <= hi for (a, b), (lo, hi) in windows.items())
    }
    assert (code == "WA-2063") == (not seen)
    if graph is not None:
        for i, j in itertools.permutations(range(len(streams)), 2):
            assert max(times[j] - times[i] for times in seen) == graph.reach[i][j]


def test_refusals_say_what_is_wrong() -> None:
    assert str(_refused("ab", {("a", "x"): 1})) == (
        "WA-2061: a window names the unknown stream 'x' (hint: the streams are a, b)"
    )
    apart = _refused("abcde", {("a", "b"): 1, ("c", "e"): 1})
    assert apart.code.value == "WA-2062"
    assert "{a, b} and {c, e} and {d}" in apart.problem
    round_trip = _refused("abc", {("a", "b"): ("1 s", "5 s"), ("b", "c"): ("0 s", "9 s"), ("c", "a"): ("0 s", "9 s")})
    assert round_trip.code.value == "WA-2063"
    assert "1 s <= b - a <= 5 s; 0 us <= c - b <= 9 s; 0 us <= a - c <= 9 s" in round_trip.problem
    assert _refused("ab", {("a", "b"): "-2 s"}).code.value == "WA-2003"
    assert _refused("ab", {("a", "b"): (2, 1)}).code.value == "WA-2005"
    assert _refused("ab", {("a", "a"): 1}).code.value == "WA-2061"
    assert _refused("a", {}).code.value == "WA-2006"
    assert _refused("ab", {}).code.value == "WA-2062"
    assert _refused("ab", {("a", "b"): 1}, Interval("x", "y")).code.value == "WA-2064"


def test_before_and_after_with_confidence_is_no_contradiction() -> None:
    """Spec 2: "A before B" and "B before A", each with P >= 0.4, can both hold; exact times cannot."""
    both = {
        ("a", "b"): between(1, "5 s", confidence=0.4), ("b", "a"): between(1, "5 s", confidence=0.4),
    }  # fmt: skip
    spec = Interval("x", "y", max_uncertainty="10 s")
    graph = WindowJoin(times={"a": spec, "b": spec}, windows=both).graph()
    assert graph.reach[0][1] > 0
    assert graph.reach[1][0] > 0
    assert _refused("ab", both).code.value == "WA-2063"
    certain = {pair: between(1, "5 s", confidence=1) for pair in both}
    assert _refused("ab", certain, spec).code.value == "WA-2063"


def test_a_window_that_no_pair_can_meet_is_no_cycle() -> None:
    spec = Interval("x", "y", min_uncertainty="10 us", max_uncertainty="10 us")
    told = str(_refused("ab", {("a", "b"): within("3us", confidence=1)}, spec))
    assert "no times of a and b satisfy their window: -3 us <= b - a <= 3 us with confidence 1" in told
    assert "too uncertain" in told
    assert "cycle" not in told


def test_windows_with_a_confidence_reach_farther_than_their_sum() -> None:
    spec = Interval("x", "y", max_uncertainty="10 s")
    windows = {("a", "b"): within("2 s", confidence=0.1), ("b", "c"): within("2 s", confidence=0.1)}
    graph = WindowJoin(times=dict.fromkeys("abc", spec), windows=windows).graph()
    assert graph.reach[0][2] > 4 * 1_000_000
    exact = {("a", "b"): within("2 s", confidence=0.1), ("b", "c"): within("2 s", confidence=0.1)}
    assert WindowJoin(times=dict.fromkeys("abc", Point("t")), windows=exact).graph().reach[0][2] == 4_000_000


def test_streams_need_both_ends() -> None:
    from whenabouts.core import deadline

    query = WindowJoin(
        times=dict.fromkeys("abc", Point("t")), windows={("a", "b"): 5, ("b", "c"): deadline("1 s", confidence=1)}
    )
    assert query.graph().reach[2][1] == OPEN_US
    import pyarrow as pa

    schema = pa.schema({"t": pa.int64()})
    query.operator([schema] * 3, streaming=False)
    with pytest.raises(QueryError, match="WA-2004"):
        query.operator([schema] * 3, streaming=True)
    long = WindowJoin(times=dict.fromkeys("ab", Interval("t", "t")), windows={("a", "b"): within(5, confidence=1)})
    with pytest.raises(QueryError, match="WA-2010"):
        long.operator([schema] * 2, streaming=True)


def test_conservative_bounds() -> None:
    """Of the figure's graph: GCA takes the longest path, 14; LCA for B-C the lesser of 11 and 7."""
    graph = _graph("ABCDE", FIGURE)
    assert pair_bounds(graph, "gca")[1][2] == (-14, 14)
    assert pair_bounds(graph, "lca")[1][2] == (-7, 7)
    assert pair_bounds(graph, "none")[1][2] == (-4, 4)


def test_walks_follow_narrow_windows_and_spare_tests() -> None:
    graph = _graph("ABCDE", FIGURE)
    assert order_from(0, graph, "backward", "none").streams == (0, 1, 2, 3, 4)
    assert order_from(4, graph, "backward", "none").streams == (4, 3, 2, 1, 0)
    assert not any(order_from(0, graph, "backward", "none").tests)
    assert order_from(0, graph, "backward", "gca").tests[-1] == (0, 1, 2, 3, 5)  # A-E of 20 is wider
    uniform = _graph("abc", {("a", "b"): 5, ("b", "c"): 5, ("a", "c"): 5})
    for strategy, conservative in itertools.product(("backward", "forward"), ("none", "lca", "gca")):
        join_order = order_from(1, uniform, strategy, conservative)
        assert not any(join_order.tests)


def test_durations_keep_their_units() -> None:
    assert edges_of({("a", "b"): ("-1 s", "5 ms")})[0].hi_us == parse_duration("5 ms")
