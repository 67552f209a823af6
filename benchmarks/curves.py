"""Curves as SVG files, reproducible byte for byte from the same points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import RESULTS

Curve = Mapping[str, Sequence[tuple[float, float]]]


def draw(name: str, series: Curve, x_label: str, y_label: str, folder: Path = RESULTS, **axes_options: Any) -> str:
    """One picture with a line for each series; axes are logarithmic by default. Returns the file's name."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure = Figure(figsize=(5, 3.4), layout="constrained")
        axes = figure.subplots()
        for marker, (label, points) in zip("os^vDP*X" * 4, series.items(), strict=False):
            axes.plot(*zip(*points, strict=True), marker=marker, label=label)
        axes.set(xlabel=x_label, ylabel=y_label, **{"xscale": "log", "yscale": "log"} | axes_options)
        if "yticks" in axes_options:
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(fontsize=8)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return f"{name}.svg"


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of a line through the points on logarithmic axes: y grows as x to this power.

    >>> round(exponent([(1, 2), (10, 200), (100, 20_000)]), 6)
    2.0
    """
    import numpy as np

    x, y = np.log(np.array(points, float)).T
    return float(np.polyfit(x, y, 1)[0])
