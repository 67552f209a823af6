"""The picture of one pair: when each row may have happened, and how likely the condition holds.

matplotlib draws it (`pip install 'whenabouts[plot]'`); it is imported when a picture is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from typing import Any

import numpy as np

from whenabouts.core.arrays.typing import FloatArray
from whenabouts.core.durations import format_duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.limits import UNBOUNDED_US

Bucket = tuple[int, int, float]
"""Where a time may lie, as two offsets in microseconds, and with what probability."""

LEFT_COLOUR, RIGHT_COLOUR, MATCH_COLOUR = "#1f6fb2", "#d1741f", "#3a8f4d"


@dataclass(frozen=True, slots=True)
class PairPicture:
    """What a picture of a pair shows.

    `left`, `right`: the buckets of both times, in microseconds. `lo_us`, `hi_us`: the condition's
    bounds of right minus left. `title`: the answer in words.
    """

    left: tuple[Bucket, ...]
    right: tuple[Bucket, ...]
    lo_us: int
    hi_us: int
    title: str

    def figure(self) -> Any:
        """A `matplotlib.figure.Figure` of two panels: the two densities, and that of right minus left.

        Each density is drawn at the same height. In the second panel the condition's window is marked, and the area in
        it, which is the probability, is shaded.
        """
        figure = new_figure((8, 4.2))
        above, below = figure.subplots(2, 1)
        start = min(lo for lo, _, _ in (*self.left, *self.right))
        unit, per_unit = unit_of(max(hi for _, hi, _ in (*self.left, *self.right)) - start)
        for buckets, colour, label in ((self.left, LEFT_COLOUR, "left"), (self.right, RIGHT_COLOUR, "right")):
            at, height = outline(buckets)
            _draw(above, (at - start) / per_unit, height / height.max(), colour, label)
        above.set(xlabel=f"{unit} after the earliest instant", ylabel="density", yticks=[], ylim=(0, 1.45))
        above.legend(loc="upper right", ncols=2, frameon=False)

        at, height = difference(self.left, self.right)
        height = height / height.max()
        _draw(below, at / per_unit, height, "#777777", "right minus left")
        lo, hi = max(self.lo_us, min(at[0], self.hi_us)), min(self.hi_us, max(at[-1], self.lo_us))
        below.axvspan(lo / per_unit, hi / per_unit, color=MATCH_COLOUR, alpha=0.12, label=self._window())
        inside_at, inside = clipped(at, height, lo, hi)
        below.fill_between(inside_at / per_unit, inside, color=MATCH_COLOUR, alpha=0.6, lw=0)
        below.set(xlabel=f"right minus left ({unit})", ylabel="density", yticks=[], ylim=(0, 1.45))
        below.legend(loc="upper right", ncols=2, frameon=False)
        figure.suptitle(self.title, fontsize="medium", wrap=True)
        return figure

    def _window(self) -> str:
        if self.lo_us <= -UNBOUNDED_US:
            return f"at most {format_duration(self.hi_us)}"
        if self.hi_us >= UNBOUNDED_US:
            return f"at least {format_duration(self.lo_us)}"
        return f"{format_duration(self.lo_us)} to {format_duration(self.hi_us)}"


def matplotlib(module: str) -> Any:
    """A module of matplotlib. Raises QueryError WA-2007 where it is not installed."""
    try:
        return import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise QueryError(Code.NOT_AVAILABLE, "pictures need matplotlib", "pip install 'whenabouts[plot]'") from error


def new_figure(size: tuple[float, float]) -> Any:
    """An empty figure of a size in inches, which notebooks show; matplotlib's own they show only with pyplot."""

    class ShownFigure(matplotlib("figure").Figure):  # type: ignore[misc]
        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png")
            return file.getvalue()

    return ShownFigure(figsize=size, layout="constrained")


def outline(buckets: Sequence[Bucket]) -> tuple[FloatArray, FloatArray]:
    """The corners of the density of a time: positions, and heights per microsecond. A point becomes a thin bar.

    >>> at, height = outline([(0, 10, 0.25), (10, 20, 0.75)])
    >>> at.tolist(), height.tolist()
    ([0.0, 0.0, 10.0, 10.0, 20.0, 20.0], [0.0, 0.025, 0.025, 0.075, 0.075, 0.0])
    """
    wide = _widened(buckets, buckets)
    cuts = np.unique([edge for lo, hi, _ in wide for edge in (lo, hi)])
    height = np.zeros(len(cuts) - 1)
    for lo, hi, p in wide:
        height[(cuts[:-1] >= lo) & (cuts[1:] <= hi)] += p / (hi - lo)
    return np.repeat(cuts, 2), np.concatenate([[0.0], np.repeat(height, 2), [0.0]])


def difference(left: Sequence[Bucket], right: Sequence[Bucket]) -> tuple[FloatArray, FloatArray]:
    """The density of right minus left, for independent times: it is linear between the positions.

    Each pair of buckets gives a trapezium, with corners where two of their ends meet.

    >>> at, height = difference([(0, 10, 1.0)], [(0, 10, 1.0)])
    >>> at.tolist(), height.tolist()
    ([-10.0, 0.0, 10.0], [0.0, 0.1, 0.0])
    """
    both = [*left, *right]
    trapezia = []
    for lo, hi, p in _widened(left, both):
        for first, last, q in _widened(right, both):
            corners = np.sort([first - hi, first - lo, last - hi, last - lo])
            # Its area is 1 whatever its shape: half the sum of both bases, times the height.
            trapezia.append((corners, p * q * 2 / (corners[3] - corners[0] + corners[2] - corners[1])))
    at = np.unique(np.concatenate([corners for corners, _ in trapezia]))
    height = np.zeros(len(at))
    for corners, top in trapezia:
        height += np.interp(at, corners, [0.0, top, top, 0.0], left=0.0, right=0.0)
    return at, height


def clipped(at: FloatArray, height: FloatArray, lo: float, hi: float) -> tuple[FloatArray, FloatArray]:
    """The part of a polygon between two positions.

    >>> [part.tolist() for part in clipped(np.array([0.0, 10.0]), np.array([0.0, 1.0]), 5, 20)]
    [[5.0, 10.0], [0.5, 1.0]]
    """
    if hi < at[0] or lo > at[-1]:
        return np.empty(0), np.empty(0)
    ends = np.array([max(lo, at[0]), min(hi, at[-1])])
    inside = np.unique(np.concatenate([ends, at[(at > ends[0]) & (at < ends[1])]]))
    return inside, np.interp(inside, at, height)


def _widened(buckets: Sequence[Bucket], both: Sequence[Bucket]) -> list[tuple[float, float, float]]:
    """Points get a width that can be seen: a hundredth of what the picture shows."""
    extent = max(hi for _, hi, _ in both) - min(lo for lo, _, _ in both)
    least = max(extent / 100, 1)
    return [(float(lo), float(hi), p) if hi > lo else (lo - least / 2, lo + least / 2, p) for lo, hi, p in buckets if p]


def _draw(axes: Any, at: FloatArray, height: FloatArray, colour: str, label: str) -> None:
    axes.plot(at, height, color=colour, lw=1.5, label=label)
    axes.fill_between(at, height, color=colour, alpha=0.15, lw=0)


def unit_of(length_us: int) -> tuple[str, int]:
    """A unit of time in which a stretch has numbers of a readable size: its name, and how many microseconds it has.

    >>> unit_of(90_000_000), unit_of(3)
    (('seconds', 1000000), ('microseconds', 1))
    """
    units = (
        ("days", 86_400_000_000), ("hours", 3_600_000_000), ("minutes", 60_000_000), ("seconds", 1_000_000),
        ("milliseconds", 1000),
    )  # fmt: skip
    return next(((name, us) for name, us in units if length_us >= 2 * us), ("microseconds", 1))
