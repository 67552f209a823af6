"""The search for the line of two clocks among the pairs of two streams that nothing pairs: coarse cells first."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from whenabouts.core.clocks.line_significance import chance_of, scores, without_best
from whenabouts.core.clocks.line_sums import best_line
from whenabouts.core.clocks.pair_images import Streams, Window, image_of

CELLS_OF_RANGE = 900
FEWEST_OF_RANGE = 30
CELLS_OF_SPAN = 2**17
"""Cells of the coarsest level to the greatest offset: 900, and down to 30 as long as so many of them make the span."""
FINER = 4
LEAST_SEGMENTS = 32
MARGIN = 8
SURE = 1e-3
"""No finer level is searched once chance is this much below what is asked for."""
NOT_DOMINATED = 0.05


@dataclass(frozen=True, slots=True)
class Level:
    """One size of cells: its width in microseconds, its window, and the most cells that a line moves over it."""

    cell_us: int
    window: Window
    most: int

    @property
    def cells(self) -> int:
        """Cells of its image."""
        return self.window.segments * self.window.width


@dataclass(frozen=True, slots=True)
class FoundLine:
    """The best line: `offset_us` in the middle of the segments, `drift` (dimensionless), both to within a cell.

    `fap`: the probability that chance has a line as good anywhere in the search. `fap_without_best`: the same without
    its three best segments. `cell_us`: of its level, `levels`: how many were planned, `searched` how many were used.
    """

    offset_us: float
    drift: float
    fap: float
    fap_without_best: float
    cell_us: int
    levels: int
    searched: int

    def accepted(self, alpha: float) -> bool:
        """Whether chance is below alpha, and no single burst makes the line."""
        return self.fap < alpha and self.fap_without_best < NOT_DOMINATED


def coarsest_cell(span_us: int, max_offset_us: int, tick_us: int) -> int:
    """The width of the widest cells, in microseconds: delays may be as wide, however narrow the search is."""
    least = min(max_offset_us // FEWEST_OF_RANGE, span_us // CELLS_OF_SPAN)
    return max(max_offset_us // CELLS_OF_RANGE, least, 4 * tick_us, 1)


def plan_levels(span_us: int, max_offset_us: int, max_drift: float, tick_us: int, max_cells: int) -> list[Level]:
    """The levels within the budget, the coarsest first; none if even that is too large.

    >>> [level.cell_us for level in plan_levels(86_400_000_000, 3_600_000_000, 3e-3, 1, 2**26)]
    [4000000, 1000000, 250000]
    """
    levels: list[Level] = []
    cell = coarsest_cell(span_us, max_offset_us, tick_us)
    while True:
        segments = 1 << (max(LEAST_SEGMENTS, math.ceil(max_drift * span_us / cell)) - 1).bit_length()
        cells = max(-(-(span_us // cell + 1) // segments), 1)
        most = min(math.ceil(max_drift * segments * cells) + 1, segments - 1)
        reach = max_offset_us // cell + most // 2 + MARGIN
        level = Level(cell, Window(segments, cells, -reach, 2 * reach + 1), most)
        if level.cells > max_cells:
            return levels
        levels.append(level)
        if cell // FINER < max(4 * tick_us, 1) or cell // FINER < 1:
            return levels
        cell //= FINER


def search(streams: Streams, levels: list[Level], alpha: float) -> FoundLine:
    """The best line over the levels, at least one; times are sorted microseconds since the first left row.

    Levels after one with chance under `alpha / 1000` are not searched.
    """
    best = None
    for number, level in enumerate(levels, start=1):
        found = search_level(streams, level, len(levels), number)
        if best is None or found.fap < best.fap:
            best = found
        if best.accepted(SURE * alpha):
            break
    assert best is not None
    return replace(best, searched=number)


def search_level(streams: Streams, level: Level, levels: int = 1, number: int = 1) -> FoundLine:
    """The best line at one level."""
    # Cells of the right times have their own origin, so that a constant added to these moves the answer by it.
    phase = min(int(right[0]) for _, right in streams) % level.cell_us
    cells = [(left // level.cell_us, (right - phase) // level.cell_us) for left, right in streams]
    window = level.window
    counts = image_of(cells, window)
    counts = counts[:, :-1] + counts[:, 1:]  # cells of double width that overlap, so that no line is cut by a border
    segment = np.concatenate([left for left, _ in cells]) // window.cells
    rows = np.bincount(np.clip(segment, 0, window.segments - 1), minlength=window.segments)
    votes = scores(counts, rows)
    line = best_line(votes, level.most)
    trials = float(line.lines * line.columns * levels)
    columns = line.columns_of(window.segments)
    own = votes[np.arange(window.segments), columns].astype(float)
    rest, kept = without_best(float(own.sum()), own)
    middle = (line.first + line.last) / 2 + window.lo + 0.5
    return FoundLine(
        offset_us=middle * level.cell_us + phase,
        drift=(line.last - line.first) / max((window.segments - 1) * window.cells, 1),
        fap=chance_of(float(own.sum()), votes, trials),
        fap_without_best=chance_of(rest, votes[kept], trials),
        cell_us=level.cell_us,
        levels=levels,
        searched=number,
    )
