"""A time whose rows in state may be longer or shorter than a query declares now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.times.templates import Template
from whenabouts.core.times.time_specs import TimeSpec


@dataclass(frozen=True)
class Widened:
    """A time with other bounds on the lengths of its intervals: those of all rows that a bucket's state may hold.

    >>> from whenabouts.core.times.time_specs import Point
    >>> Widened(Point("t"), 0, 50).max_uncertainty_us, Widened(Point("t"), 0, 50).columns
    (50, ('t',))
    """

    time: TimeSpec
    least_us: int
    most_us: int

    @property
    def min_uncertainty_us(self) -> int:
        """The least length of a row in state or to come."""
        return self.least_us

    @property
    def max_uncertainty_us(self) -> int | None:
        """The greatest one."""
        return self.most_us

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the time reads."""
        return self.time.columns

    @property
    def template_column(self) -> str | None:
        """The column that names each row's template."""
        return self.time.template_column

    @property
    def templates(self) -> tuple[tuple[str, Template], ...]:
        """The registered templates."""
        return self.time.templates

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """The columns that hold the ends unchanged."""
        return self.time.end_columns

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """The ends of rows."""
        return self.time.ends(times, template)


def lengths_of(*times: TimeSpec) -> list[tuple[int, int]]:
    """The least and the greatest length of each time; (0, 0) with templates, which say it of each row."""
    return [(0, 0) if time.templates else (time.min_uncertainty_us, time.max_uncertainty_us or 0) for time in times]


def template_lengths(times: Sequence[TimeSpec]) -> dict[int, tuple[int, ...]]:
    """By number of the time, the lengths of its templates; times without any are left out."""
    return {
        number: tuple(template.length_us for _, template in time.templates)
        for number, time in enumerate(times)
        if time.templates
    }


def widened(query: Any, lengths: Sequence[tuple[int, int]]) -> Any:
    """The join, with these lengths of its times (`lengths_of`)."""
    times = query.left_time, query.right_time
    every = zip(times, lengths, lengths_of(*times), strict=True)
    left, right = (time if bounds == declared else Widened(time, *bounds) for time, bounds, declared in every)
    return replace(query, left_time=left, right_time=right)
