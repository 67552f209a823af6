"""Readings of a clock whose offset and drift against another clock are known, with a template for the rest.

The model of two clocks: events that the reference clock reads as `v` are read by this one as
`t = v + offset + drift (v - t_ref) + D`, where D has a known distribution. A join against times of the reference clock
needs v, and `v = corrected(t) - D` to within `drift * D`, where `corrected` is the inverse of the model at D = 0.

**Integers.** The drift is a whole number of parts per billion, so that the inverse is a quotient of integers,
`corrected(t) = t_ref + floor((t - t_ref - offset) 10^9 / (10^9 + drift))`. The product exceeds 64 bits, its parts do
not: with `x = q (10^9 + drift) + r` the quotient is `q 10^9 + floor(r 10^9 / (10^9 + drift))`, and `r 10^9 < 2 10^18`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.durations import MAX_DURATION_US
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.times.limits import FARTHEST_US
from whenabouts.core.times.time_specs import Templated, TimeSpec

BILLION = 10**9

MOST_DRIFT_PPB = 10**8
"""A tenth: what drifts faster is no clock."""


def corrected(t: IntArray, offset_us: int, drift_ppb: int, t_ref_us: int) -> IntArray:
    """Readings on the scale of the reference clock, rounded down to a microsecond. Exact for all int64 times of the
    calendar.

    >>> corrected(np.array([0, 5_000_000, -5_000_000]), 1_000_000, 50_000, 0).tolist()
    [-999951, 3999800, -5999701]
    """
    rate = BILLION + drift_ppb
    periods, rest = np.divmod(t - np.int64(t_ref_us + offset_us), np.int64(rate))
    return np.asarray(t_ref_us + periods * BILLION + rest * BILLION // rate, np.int64)


@dataclass(frozen=True, repr=False)
class Learned(Templated):
    """Readings `t` of a clock that was compared with another one: the event is at `corrected(t) + phi` on that clock.

    `corrected(t) = t_ref_us + floor((t - t_ref_us - offset_us) * 10^9 / (10^9 + drift_ppb))`, in exact integer
    arithmetic: the same bits on every engine. `offset_us` is what this clock shows beyond the other one at `t_ref_us`
    (microseconds since 1970 on the other clock), `drift_ppb` how much it gains, in parts per billion; either may be
    negative. `phi` is a template about offset 0: the mirrored distribution of the delay D in `t = ... + D`. `templates`
    and `template`, the column that names each row's, are those of `Histogram`. Without drift it is
    `from_distribution("t", ...)` with its template shifted by `-offset_us`.

    A row whose corrected time leaves the years 1 to 9999 is rejected (WA-1007). Times of a stream's watermark are
    corrected ones.

    Raises QueryError WA-2006 for a drift beyond 10^8 ppb, an offset or reference that is no whole number, or several
    templates without a column, InputError WA-1012 for an invalid template.

    >>> from whenabouts.core.times.distributions import uniform
    >>> camera = Learned("t", 1_000_000, 50_000, 0, uniform(-30, 10))
    >>> camera
    Learned('t' is 1000000 us ahead at 0 us and gains 50000 ppb, template: 1 buckets in [u - 30, u + 10] us)
    >>> [end.tolist() for end in camera.ends([np.array([5_000_000])], None)]
    [[3999770], [3999810]]
    """

    t: str
    offset_us: int
    drift_ppb: int
    t_ref_us: int
    templates: Any
    template: str | None = None

    def __post_init__(self) -> None:
        for name, most in (
            ("offset_us", MAX_DURATION_US), ("drift_ppb", MOST_DRIFT_PPB), ("t_ref_us", FARTHEST_US),
        ):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or abs(int(value)) > most:
                raise QueryError(Code.BAD_OPTION, f"{name} is {value!r}", f"give a whole number within +-{most}")
            object.__setattr__(self, name, int(value))
        super().__post_init__()

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of readings."""
        return (self.t,)

    @property
    def end_columns(self) -> tuple[str | None, str | None]:
        """None: both ends are computed."""
        return None, None

    def corrected(self, t: IntArray) -> IntArray:
        """Readings on the scale of the other clock, in microseconds, before the template."""
        return corrected(t, self.offset_us, self.drift_ppb, self.t_ref_us)

    def ends(self, times: Sequence[IntArray], template: IntArray | None) -> tuple[IntArray, IntArray]:
        """The support of every row about its corrected time."""
        return self.ends_about(self.corrected(times[-1]), template)

    def __repr__(self) -> str:
        """All numbers, and what the templates span about the corrected time u."""
        ahead = f"{abs(self.offset_us)} us {'behind' if self.offset_us < 0 else 'ahead'} at {self.t_ref_us} us"
        gains = f"{'loses' if self.drift_ppb < 0 else 'gains'} {abs(self.drift_ppb)} ppb"
        return f"Learned({self.t!r} is {ahead} and {gains}, {self.described('u')})"


def check_one_side(left: TimeSpec, right: TimeSpec) -> None:
    """Raise QueryError WA-2006 where one clock was given for both sides: each puts the times of its side on the clock
    of the other, so that its offset would be in the differences twice.

    >>> from whenabouts.core.times.distributions import uniform
    >>> there, back = (Learned("t", offset, 0, at, uniform(-1, 1)) for offset, at in ((5, 100), (-5, 105)))
    >>> check_one_side(back, there)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    whenabouts.core.errors.QueryError: WA-2006: one learned clock is given for both sides: its offset would count ...
    """
    if not (isinstance(left, Learned) and isinstance(right, Learned)) or not left.offset_us:
        return
    if left.offset_us == -right.offset_us and left.t_ref_us + left.offset_us == right.t_ref_us:
        raise QueryError(
            Code.BAD_OPTION,
            "one learned clock is given for both sides: its offset would count twice",
            "give it for one of them, and a Point or another own specification for the other",
        )
