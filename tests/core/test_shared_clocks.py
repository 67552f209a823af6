"""Window joins of streams of which some share a clock: what cancels in a window, and the joint probability."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance.oracle import Event
from whenabouts.conformance.window_join_oracle import joint_probability
from whenabouts.core.probability.joint_probability import Densities, both_directions
from whenabouts.core.probability.shared_clocks import corrections_of, evaluations, joint_probabilities_of_clocks
from whenabouts.core.window_join.graph import Edge
from whenabouts.core.window_join.query import WindowJoin

Window = tuple[int, int, int, int]
Clocks = list[tuple[str, int] | None]

A, B = ("a", 2), ("b", 1)
TRIANGLE: list[Window] = [(0, 1, -2, 3), (1, 2, -1, 2), (2, 0, -3, 2)]
RING: list[Window] = [(0, 1, -2, 3), (1, 2, -1, 2), (2, 3, -3, 2), (0, 3, -2, 4)]
ACROSS: list[Window] = [(0, 2, -2, 1), (1, 4, -1, 2), (2, 4, -3, 2), (3, 1, -2, 1)]

CASES: dict[str, tuple[Clocks, list[Window], int]] = {
    "two of three": ([A, A, None], TRIANGLE, 30),
    "the third on another clock's way": ([A, None, A, None], RING, 8),
    "three of four": ([B, B, B, None], RING, 8),
    "two clocks for all": ([B, B, A, A], RING, 8),
    "two clocks and one without": ([B, B, A, A, None], ACROSS, 6),
}


def found(ends: list[tuple[int, int]], clocks: Clocks, windows: list[Window]) -> float:
    densities = [Densities(np.array([end], float), np.ones((1, 1))) for end in ends]
    return float(joint_probabilities_of_clocks(densities, both_directions(windows), corrections_of(clocks))[0])


def exact(ends: list[tuple[int, int]], clocks: Clocks, windows: list[Window]) -> Fraction:
    edges = [Edge(str(i), str(j), lo, hi, 0.5) for i, j, lo, hi in windows]
    placed = {str(i): Event(*end, (), ()) for i, end in enumerate(ends)}
    domains = {str(i): clock[0] for i, clock in enumerate(clocks) if clock}
    return joint_probability(edges, placed, 1, domains, dict(clock for clock in clocks if clock))


@pytest.mark.parametrize("name", CASES)
def test_the_mixture_over_offsets(name: str) -> None:
    clocks, windows, trials = CASES[name]
    random, seen = np.random.default_rng(len(name)), set()
    for _ in range(trials):
        starts, lengths = (
            random.integers(-2, 3, len(clocks)),
            random.integers(0, 3 if len(clocks) < 5 else 2, len(clocks)),
        )
        ends = [(int(s), int(s + n)) for s, n in zip(starts, lengths, strict=True)]
        p = exact(ends, clocks, windows)
        seen.add(p)
        assert abs(Fraction(found(ends, clocks, windows)) - p) <= Fraction(1, 10**12), ends
    assert len(seen - {Fraction(0), Fraction(1)}) > 1


def test_worked_numbers() -> None:
    """Readings 0 and 1 of one clock, at most 1 wrong, and an exact 0: both lie 0 to 2 after it if the clock is slow.

    With a clock each, X0 is after 0 with probability 1/2, and X1 always.
    """
    after: list[Window] = [(2, 0, 0, 2), (2, 1, 0, 2)]
    points = [(0, 0), (1, 1), (0, 0)]
    assert found(points, [("a", 1), ("a", 1), None], after) == 0.5
    assert found(points, [("a", 2), ("a", 2), None], after) == 0.25  # X0 >= 0 and X1 <= 2: corrections from 0 to 1
    assert exact([(-1, 1), (0, 2), (-1, 2)], [A, A, None], [(0, 2, -2, 2), (1, 2, -2, 2), (0, 1, -1, 3)]) == Fraction(
        181, 288
    )


def test_windows_of_one_clock_do_not_move() -> None:
    """Readings that are exactly as far apart as their window allows, whatever the clock's offset."""
    windows: list[Window] = [(0, 1, 0, 5), (1, 2, -9, 9)]
    points = [(3_333_333, 3_333_333), (3_333_338, 3_333_338), (3_333_337, 3_333_337)]
    assert found(points, [("a", 3), ("a", 3), None], windows) == 1.0


def test_many_combinations_at_once() -> None:
    """Points and intervals mixed, each as if alone."""
    random = np.random.default_rng(3)
    starts, lengths = random.integers(-2, 3, (40, 3)), random.integers(0, 3, (40, 3))
    densities = [
        Densities(np.stack([starts[:, i], starts[:, i] + lengths[:, i]], axis=1).astype(float), np.ones((40, 1)))
        for i in range(3)
    ]
    windows, corrections = both_directions(TRIANGLE), corrections_of([A, A, None])
    together = joint_probabilities_of_clocks(densities, windows, corrections)
    alone = [
        joint_probabilities_of_clocks([d.at(np.array([i])) for d in densities], windows, corrections)[0]
        for i in range(40)
    ]
    assert together.tolist() == pytest.approx(alone, abs=1e-15)


def test_evaluations_count_pieces_and_nodes() -> None:
    windows = both_directions(TRIANGLE)
    assert evaluations(windows, 3, corrections_of([A, A, None]), [1, 1, 1]) < 200
    assert evaluations(windows, 3, [], [1, 1, 1]) == 1.0


CAMERA: dict[str, Any] = {"offset": "2 s", "domain": "camera"}


def query(times: dict[str, Any], **options: Any) -> WindowJoin:
    windows = {(a, b): wa.within("3 s", confidence=0.1) for a, b in (("a", "b"), ("b", "c"))}
    return WindowJoin(times=times, windows=options.pop("windows", windows), **options)


def test_a_window_within_a_domain_needs_no_confidence_without_own_errors() -> None:
    windows = {("a", "b"): "3 s", ("b", "c"): wa.within("3 s", confidence=0.1)}
    clock = wa.from_clock("t", **CAMERA)
    asked = query({"a": clock, "b": clock, "c": wa.Point("t")}, windows=windows, joint=True)
    tables = {
        name: pa.table({"t": [second * 1_000_000], "id": [1]}) for name, second in zip("abc", (10, 13, 14), strict=True)
    }
    result = wa.window_join(tables, time={"a": clock, "b": clock, "c": wa.Point("t")}, windows=windows, joint=True)
    assert result["probability"].to_pylist() == result["probability_b_c"].to_pylist() == [1.0]
    assert asked.operator([tables[name].schema for name in "abc"], streaming=True)
    tables["b"] = pa.table({"t": [13_000_001], "id": [1]})
    assert len(wa.window_join(tables, time={"a": clock, "b": clock, "c": wa.Point("t")}, windows=windows)) == 0


def test_refusals() -> None:
    clock, other = wa.from_clock("t", **CAMERA), wa.from_clock("t", offset="3 s", domain="camera")
    with pytest.raises(wa.QueryError, match=r"WA-2006: domain 'camera' has the offsets"):
        query({"a": clock, "b": other, "c": wa.Point("t")})
    loose = wa.from_clock("t", jitter="1 s", domain="camera")
    with pytest.raises(wa.QueryError, match=r"WA-2011: a: the offset of the clock of 't' is not declared"):
        query({"a": loose, "b": loose, "c": wa.Point("t")})
    with pytest.raises(wa.QueryError, match="WA-2064"):
        query({"a": clock, "b": clock, "c": wa.Point("t")}, windows={("a", "b"): "3 s", ("b", "c"): "3 s"})
    names = "abcdef"
    clocks = {name: wa.from_clock("t", offset="2 s", jitter="1 s", domain="camera") for name in names[:3]}
    clocks |= dict.fromkeys(names[3:], wa.Interval("t", "u", max_uncertainty="3 s"))
    windows = {
        (a, b): wa.between(f"-{3 + i} s", f"{4 + j} s", confidence=0.1)
        for i, a in enumerate(names) for j, b in enumerate(names) if i < j <= i + 2
    }  # fmt: skip
    with pytest.raises(wa.QueryError, match=r"WA-2007: the joint probability of this graph"):
        WindowJoin(times=clocks, windows=windows, joint=True)
    WindowJoin(times=clocks, windows=windows)


def test_a_clock_without_an_offset_is_shared_by_nobody() -> None:
    clock = wa.from_clock("t", offset=0, jitter="1 s", domain="camera")
    assert query({"a": clock, "b": clock, "c": wa.Point("t")}).shared_offsets_us == {}
