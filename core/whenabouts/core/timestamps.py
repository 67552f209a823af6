"""How a stream's rows say when they happened: a point, or an interval in which the time is uniform.

A specification names columns of the user's rows; it is turned into two int64 microsecond columns when rows enter
(`events`). Columns are TIMESTAMP of any unit (naive ones are UTC; finer than a microsecond is cut), or int64
microseconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError


@dataclass(frozen=True, slots=True)
class Point:
    """The exact time `t` of an event.

    >>> Point("ts").columns
    ('ts',)
    """

    t: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (self.t,)

    @property
    def min_uncertainty_us(self) -> int:
        """Least length of an interval: a point has length 0."""
        return 0

    @property
    def max_uncertainty_us(self) -> int | None:
        """Greatest length of an interval: a point has length 0."""
        return 0


@dataclass(frozen=True, slots=True)
class Interval:
    """A time uniform in `[t_min, t_max]`; where both are equal it is a point.

    `max_uncertainty` (the papers' pi) bounds the length of every interval, and `min_uncertainty` (rho) bounds it from
    below: rows outside are rejected (WA-1005, WA-1006). Streams need `max_uncertainty`, since it bounds their state.

    >>> Interval("t_min", "t_max", max_uncertainty="500 ms").max_uncertainty_us
    500000
    """

    t_min: str
    t_max: str
    max_uncertainty: Duration | None = None
    min_uncertainty: Duration = 0

    def __post_init__(self) -> None:
        if self.max_uncertainty is not None:
            object.__setattr__(
                self, "max_uncertainty", parse_non_negative(self.max_uncertainty, name="max_uncertainty")
            )
        object.__setattr__(self, "min_uncertainty", parse_non_negative(self.min_uncertainty, name="min_uncertainty"))
        longest = self.max_uncertainty_us
        if longest is not None and self.min_uncertainty_us > longest:
            raise QueryError(
                Code.BAD_OPTION,
                f"min_uncertainty {self.min_uncertainty_us} us exceeds max_uncertainty {longest} us",
                "swap them",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads."""
        return (self.t_min, self.t_max)

    @property
    def min_uncertainty_us(self) -> int:
        """Least length of an interval (rho)."""
        return parse_duration(self.min_uncertainty)

    @property
    def max_uncertainty_us(self) -> int | None:
        """Greatest length of an interval (pi), None where the user declared none."""
        return None if self.max_uncertainty is None else parse_duration(self.max_uncertainty)


TimeSpec: TypeAlias = Point | Interval


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far behind its side's greatest `t_max` a row may come and still count, for each side of a join.

    >>> Lateness(left="5 s")
    Lateness(left=5000000, right=0)
    """

    left: Duration = 0
    right: Duration = 0

    def __post_init__(self) -> None:
        for side in ("left", "right"):
            object.__setattr__(self, side, parse_non_negative(getattr(self, side), name=f"lateness of the {side} side"))

    @property
    def per_input_us(self) -> tuple[int, int]:
        """Microseconds for the left and the right input."""
        return parse_duration(self.left), parse_duration(self.right)
