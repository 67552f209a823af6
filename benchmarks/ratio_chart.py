"""The chart of promised ratios: bars from 1 on a logarithmic axis, those to be large above those to be small."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

MET, NOT_MET = "#2a9d8f", "#c0392b"
PANELS = {"at_least": "times as good: to the right is better", "at_most": "times as much: to the left is better"}


class Ratio(NamedTuple):
    """A measured ratio, its least and greatest round, and the promise: `at_least`, or `at_most`."""

    says: str
    median: float
    least: float
    greatest: float
    at_least: float | None
    at_most: float | None


def draw_ratios(ratios: Sequence[Ratio], path: Path) -> None:
    """Draw a panel for each kind of promise that there is."""
    panels = {kind: [one for one in ratios if getattr(one, kind) is not None] for kind in PANELS}
    panels = {kind: found for kind, found in panels.items() if found}
    with rc_context({"svg.hashsalt": "whenabouts", "font.size": 8}):
        heights = [len(found) + 1.2 for found in panels.values()]
        figure = Figure(figsize=(9, 0.36 * sum(heights) + 0.3), layout="constrained")
        for axes, (kind, found) in zip(
            figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0] if panels else (),
            panels.items(),
            strict=True,
        ):
            _panel(axes, found, kind)
        figure.savefig(path, metadata={"Date": None})


def _panel(axes: Any, ratios: Sequence[Ratio], kind: str) -> None:
    for place, one in enumerate(reversed(ratios)):
        wanted = getattr(one, kind)
        met = one.median >= wanted if kind == "at_least" else one.median <= wanted
        axes.barh(place, one.median - 1, left=1, color=MET if met else NOT_MET, height=0.55)
        axes.plot([one.least, one.greatest], [place, place], color="#00000066", lw=1)
        axes.plot([wanted, wanted], [place - 0.4, place + 0.4], color="black", lw=2)
        end = max(one.median, one.greatest, wanted)
        axes.annotate(f"{one.median:.3g}", (end, place), (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(ratios)), [fill(one.says, 62) for one in reversed(ratios)])
    axes.set(xscale="log", xlabel=PANELS[kind], ylim=(-0.6, len(ratios) - 0.4))
    axes.margins(x=0.08)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.9 if kind == "at_least" else 0.5), max(high, 2))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color="black", lw=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
