"""A learned clock as a page and as a figure."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from whenabouts.core.clocks.learned_clock import LearnedClock
from whenabouts.core.durations import format_duration
from whenabouts.core.explain.pair_picture import LEFT_COLOUR, new_figure, outline, unit_of
from whenabouts.core.html_tables import html_page, html_table
from whenabouts.core.times.templates import Template

WIDTH, HEIGHT = 640, 160
TAIL = 0.005
"""The share on either side that pictures leave out, since a single gross error would flatten the rest."""


def page(clock: LearnedClock) -> str:
    """A whole HTML page with inline pictures, without scripts or references."""
    pictures = [f"<h2>Delays: {escape(name)}</h2>\n{_svg(delay)}" for name, delay in clock.delays]
    body = "\n".join([html_table("Clock", ["", ""], clock.table(), clock.sentence), *pictures])
    return html_page("Clock", body)


def figure(clock: LearnedClock) -> Any:
    """The density of each kind's delays."""
    drawn = new_figure((8, 2.2 * len(clock.delays)))
    for panel, (name, delay) in zip(drawn.subplots(len(clock.delays), squeeze=False)[:, 0], clock.delays, strict=True):
        at, height = _middle(delay)
        unit, per_unit = unit_of(int(at[-1] - at[0]))
        panel.fill_between(at / per_unit, height / height.max(), color=LEFT_COLOUR, alpha=0.4)
        panel.set(xlabel=f"{unit} about the offset", yticks=[], title=name)
    return drawn


def _middle(delay: Template) -> tuple[Any, Any]:
    """The corners of the density, without its outermost tails."""
    below, kept = 0.0, []
    for lo, hi, p in delay.exact:
        if below + float(p) > TAIL and below < 1 - TAIL:
            kept.append((lo + delay.end_us, hi + delay.end_us, float(p)))
        below += float(p)
    return outline(kept)


def _svg(delay: Template) -> str:
    at, height = _middle(delay)
    across = 10 + (at - at[0]) / (at[-1] - at[0]) * (WIDTH - 20)
    down = HEIGHT - 30 - height / height.max() * (HEIGHT - 50)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
    marks = [(at[0], "start"), (at[-1], "end")]
    if at[0] < 0 < at[-1]:
        marks.append((0.0, "middle"))
    labels = "".join(
        f'<text x="{np.interp(value, at[[0, -1]], [10, WIDTH - 10]):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}"'
        f' font-size="12">{escape(format_duration(round(float(value))))}</text>'
        for value, anchor in marks
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="density">'
        f'<polygon points="{points}" fill="{LEFT_COLOUR}" fill-opacity="0.5"/>{labels}</svg>'
    )
