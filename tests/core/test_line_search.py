"""The search for a line among accidental pairs: each step against its definition, then simulated streams."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.line_search import FoundLine, coarsest_cell, plan_levels, search, search_level
from whenabouts.core.clocks.line_significance import chance_of, cumulants, log_tail, scores
from whenabouts.core.clocks.line_sums import best_line, line_path, line_sums
from whenabouts.core.clocks.pair_images import Window, by_pairs, by_transforms, pair_image

DAY = 86_400_000_000
Stream = Callable[[np.random.Generator, int], IntArray]

# --- Counts of pairs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [by_pairs, by_transforms, pair_image])
@pytest.mark.parametrize("seed", range(6))
def test_images_equal_counts_by_brute_force(way: Callable[..., NDArray[np.float32]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    window = Window(*[(4, 25, -30, 61), (8, 1, -3, 7), (1, 100, 10, 5), (16, 7, -200, 90)][seed % 4])
    cells = window.segments * window.cells
    left = np.sort(rng.integers(0, cells, [300, 5, 0][seed % 3]))
    right = np.sort(rng.integers(-cells, 2 * cells, 300))
    expected = np.zeros((window.segments, window.width))
    for i, j in itertools.product(left.tolist(), right.tolist()):
        if 0 <= j - i - window.lo < window.width:
            expected[i // window.cells, j - i - window.lo] += 1
    assert (way(left, right, window) == expected).all()


def test_many_pairs_in_one_cell_are_counted_exactly() -> None:
    window = Window(2, 8, -4, 9)
    left, right = np.full(1_000, 3), np.full(3_000, 5)
    for way in (by_pairs, by_transforms):
        image = way(left, right, window)
        assert (image[0, 6], image.sum()) == (3_000_000, 3_000_000)


# --- Sums along lines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "width", "most"), [(1, 9, 0), (2, 5, 1), (8, 30, 7), (16, 23, 5), (32, 70, 31)])
def test_sums_equal_direct_sums_along_the_same_paths(rows: int, width: int, most: int) -> None:
    image = np.random.default_rng(rows).integers(-9, 9, (rows, width)).astype(float)
    sums = line_sums(image, most)
    for rise, first in itertools.product(range(most + 1), range(width)):
        columns = first + line_path(rows, rise)
        inside = columns < width
        assert sums[rise, first] == image[np.arange(rows)[inside], columns[inside]].sum()


@pytest.mark.parametrize("rows", [2, 8, 64])
def test_paths_are_straight(rows: int) -> None:
    for rise in range(rows):
        path = line_path(rows, rise)
        assert (path[0], path[-1]) == (0, rise)
        assert set(np.diff(path)) <= {0, 1}
        straight = np.arange(rows) * rise / (rows - 1)
        assert np.abs(path - straight).max() <= np.log2(rows) / 2


@pytest.mark.parametrize(("first", "last"), [(3, 9), (9, 3), (20, 20), (0, 7), (39, 32)])
def test_the_best_line_is_the_one_that_was_drawn(first: int, last: int) -> None:
    image = np.random.default_rng(3).random((8, 40))
    rise = last - first
    columns = first + np.sign(rise) * line_path(8, abs(rise))
    image[np.arange(8), columns] += 1
    found = best_line(image, 7)
    assert (found.first, found.last, found.lines, found.columns) == (first, last, 15, 40)
    assert found.columns_of(8).tolist() == columns.tolist()
    assert found.total == pytest.approx(image[np.arange(8), columns].sum())


# --- Chance -------------------------------------------------------------------------------------------------------


def every_turn(rows: FloatArray) -> FloatArray:
    """The sums of one cell of each row, over all choices."""
    return np.array([sum(choice) for choice in itertools.product(*rows)])


@pytest.mark.parametrize("eta", [0.0, 0.2, 1.0])
def test_cumulants_equal_those_over_all_rotations(eta: float) -> None:
    rows = np.random.default_rng(1).random((4, 8)) * 3
    sums = every_turn(rows)
    weight = np.exp(eta * sums)
    mean = float((weight * sums).sum() / weight.sum())
    expected = np.log(weight.mean()), mean, float((weight * sums**2).sum() / weight.sum()) - mean**2
    assert cumulants(eta, rows) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["smooth", "sparse"])
def test_the_tail_is_near_the_one_counted_over_all_rotations(kind: str) -> None:
    rng = np.random.default_rng(2)
    rows = rng.random((6, 8)) if kind == "smooth" else rng.poisson(0.3, (6, 8)) + rng.random((6, 8)) * 0.2
    sums = np.sort(every_turn(rows))
    for share in (1e-2, 1e-3, 1e-4):
        total = float(sums[int((1 - share) * len(sums))])
        exact = float(np.mean(sums >= total))
        assert 0.4 < np.exp(log_tail(total, rows)) / exact < 2.5


def test_tails_at_the_ends() -> None:
    rows = np.array([[0.0, 1.0, 1.0, 3.0], [0.0, 0.0, 0.0, 5.0]])
    assert np.exp(log_tail(8.0, rows)) == pytest.approx(1 / 16, rel=1e-6)
    assert log_tail(8.1, rows) == -np.inf
    assert log_tail(-4.0, rows) == 0.0
    assert chance_of(8.1, rows, 100) == 0
    assert 0 <= chance_of(2.6, rows, 1e9) <= 1


def test_scores_take_out_what_neighbours_share() -> None:
    """A common slope of the whole row scores near zero; a single excess scores high, and is cut."""
    rows = np.array([1000])
    slope = np.linspace(50, 90, 2001)[None, :].astype(np.float32)
    flat = scores(slope, rows)
    assert np.abs(flat[:, 100:-100]).max() < 0.2
    excess = []
    for height in (20, 1000, 100_000):
        raised = slope.copy()
        raised[0, 1000] += height
        excess.append(float(scores(raised, rows)[0, 1000]))
    assert excess[0] > 1
    assert excess[2] < 3 * excess[1]


# --- Streams of which all is known --------------------------------------------------------------------------------


def poisson(rng: np.random.Generator, n: int) -> IntArray:
    return np.sort(rng.integers(0, DAY, n))


def bursts(rng: np.random.Generator, n: int) -> IntArray:
    """Neyman-Scott: bursts of Pareto size, a few seconds to minutes long."""
    parts: list[IntArray] = []
    while sum(map(len, parts)) < n:
        size = min(int(1 + rng.pareto(1.2)), n // 20)
        parts.append(rng.integers(0, DAY) + (np.cumsum(rng.exponential(5e6, size)) * rng.random()).astype(np.int64))
    return np.sort(np.clip(np.concatenate(parts)[:n], 0, DAY - 1))


def daily(rng: np.random.Generator, n: int) -> IntArray:
    t = rng.integers(0, DAY, 4 * n)
    return np.sort(t[rng.random(4 * n) < 0.5 * (1 + np.sin(2 * np.pi * t / DAY))][:n])


def every_minute(rng: np.random.Generator, n: int) -> IntArray:
    ticks = np.arange(0, DAY, 60_000_000)
    return np.sort(ticks + rng.integers(0, 200_000, len(ticks)))


def linked(
    rng: np.random.Generator, stream: Stream, n: int, share: float, jitter: float
) -> tuple[IntArray, IntArray, float, float]:
    """Two streams, of which a share of the left rows has a partner on the right; and their offset and drift."""
    offset, drift = rng.uniform(-3e9, 3e9), rng.uniform(-2.5e-3, 2.5e-3)
    left = stream(rng, n)
    partners = left[rng.random(n) < share]
    partners = partners + offset + drift * (partners - DAY / 2) + rng.normal(0, jitter, len(partners))
    right = np.sort(np.concatenate([partners.astype(np.int64), stream(rng, n - len(partners))]))
    return left, right, offset, drift


COARSE = plan_levels(DAY, 3_600_000_000, 3e-3, 1, 2**23)
"""Cells of 4 s and 1 s."""


@pytest.mark.parametrize("trials", [1, pytest.param(100, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("stream", "n", "share", "jitter"),
    [
        (poisson, 100_000, 0.3, 50_000), (poisson, 100_000, 0.05, 50_000), (poisson, 1_000, 0.3, 1e6),
        (bursts, 20_000, 0.3, 200_000), (daily, 20_000, 0.3, 200_000),
    ],
)  # fmt: skip
def test_true_lines_are_found(trials: int, stream: Stream, n: int, share: float, jitter: float) -> None:
    good = 0
    for seed in range(trials):
        left, right, offset, drift = linked(np.random.default_rng(seed), stream, n, share, jitter)
        found = search([(left, right)], COARSE, 1e-4)
        near = abs(found.offset_us - offset) < 2 * found.cell_us and abs(found.drift - drift) < 3 * found.cell_us / DAY
        good += near and found.accepted(1e-4)
    assert good >= 0.95 * trials


PAIRS_BY_CHANCE: dict[str, tuple[Stream, Stream]] = {
    "poisson": (poisson, poisson),
    "bursts": (bursts, bursts),
    "daily, bursts": (daily, bursts),
    "daily": (daily, daily),
    "every minute": (every_minute, poisson),
}


@pytest.mark.parametrize("trials", [2, pytest.param(100, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", PAIRS_BY_CHANCE)
def test_unrelated_streams_have_no_line(trials: int, kind: str) -> None:
    streams = PAIRS_BY_CHANCE[kind]
    found: list[FoundLine] = []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        levels = COARSE if trials > 2 else COARSE[:1]
        found.append(search([(streams[0](rng, 4_000), streams[1](rng, 4_000))], levels, 1e-4))
    assert sum(each.accepted(1e-4) for each in found) <= trials // 200
    assert sum(each.fap <= 0.1 for each in found) <= max(2, 0.15 * trials)


def test_a_single_common_burst_is_no_line() -> None:
    """Two bursts of 300 rows each, in otherwise unrelated streams, make pairs without end, all in one segment."""
    rng = np.random.default_rng(4)
    burst = DAY // 3 + rng.integers(0, 2_000_000, 300)
    left, right = (np.sort(np.concatenate([poisson(rng, 3_000), burst + shift])) for shift in (0, 500_000_000))
    found = search_level([(left, right)], COARSE[0])
    assert not found.accepted(1e-4)


def test_adding_a_constant_moves_the_offset_by_it() -> None:
    left, right, _, _ = linked(np.random.default_rng(1), poisson, 5_000, 0.3, 200_000)
    one, two = (search_level([(left, right + shift)], COARSE[0]) for shift in (0, 10 * COARSE[0].cell_us))
    assert two.offset_us - one.offset_us == 10 * COARSE[0].cell_us
    assert (two.drift, two.fap < 1e-10) == (one.drift, True)


@pytest.mark.parametrize(("budget", "cells"), [(2**26, [4_000_000, 1_000_000, 250_000]), (2**20, [4_000_000]), (9, [])])
def test_levels_keep_to_the_budget(budget: int, cells: list[int]) -> None:
    levels = plan_levels(DAY, 3_600_000_000, 3e-3, 1, budget)
    assert [level.cell_us for level in levels] == cells
    for level in levels:
        assert level.cells <= budget
        assert level.window.segments * level.window.cells * level.cell_us >= DAY
        assert level.most / level.window.segments / level.window.cells >= 3e-3


def test_cells_of_a_narrow_search_are_as_wide_as_delays_may_be() -> None:
    """They are 900 to the greatest offset, or fewer, down to 30, if 131,072 of them would make the span."""
    for offset, cell in ((3_600_000_000, 4_000_000), (60_000_000, 659_179), (1_000_000, 33_333)):
        assert coarsest_cell(DAY, offset, 1) == plan_levels(DAY, offset, 1e-5, 1, 2**26)[0].cell_us == cell
    assert coarsest_cell(DAY, 1_000_000, 1_000_000) == 4_000_000
