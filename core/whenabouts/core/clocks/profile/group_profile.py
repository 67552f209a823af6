"""What is known of the times of one group: granularities, polling, silence, order; and the specification it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.clocks.profile.findings import percent
from whenabouts.core.clocks.profile.gaps import Outage, outages
from whenabouts.core.clocks.profile.granules import MS, Share, dust, the_lattice
from whenabouts.core.clocks.profile.order import Order
from whenabouts.core.clocks.profile.polling import Polling, polling, tick
from whenabouts.core.clocks.profile.scattered_columns import Counted, Known
from whenabouts.core.durations import format_duration, parse_duration
from whenabouts.core.times.spec_builders import from_granularity, from_polling
from whenabouts.core.times.time_specs import Point, TimeSpec

_COUNTS = 0.005
"""A coarser granularity of fewer rows does not widen the specification."""

_ALMOST_ALL = 0.9
_EARLY = 0.001
_SEEN = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class GroupProfile:
    """The times of one group, or of all rows.

    `granules`: the granularities and their shares, coarsest first. `tick_us`: a tick that is on no ladder, or None.
    `rounding`: "nearest" if times lie ahead of their arrival by up to half a granule, else "down". `polling`: the poll
    that found the events, or None. `dust`: the share of rows within 2 us of a coarser granularity, taken to be on it.
    `distinct`: how many different times there are, at least.
    """

    key: tuple[Any, ...]
    rows: int
    span_us: tuple[int, int]
    granules: tuple[Share, ...]
    tick_us: float | None
    rounding: str
    polling: Polling | None
    dust: float
    outages: tuple[Outage, ...]
    order: Order
    distinct: int

    @classmethod
    def of(
        cls,
        key: tuple[Any, ...],
        us: IntArray,
        arrival_us: IntArray | None,
        tick_us: float,
        known: Known | None = None,
    ) -> GroupProfile:
        """The profile of times in the order of arrival; `tick_us`: what the type of the column can tell apart.

        `known`: what is known of all times if these are those of some stretches only.
        """
        lattice = the_lattice()
        ordered = np.sort(us)
        distinct = ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(us) else ordered
        span_us = (int(ordered[0]), int(ordered[-1])) if len(us) else (0, 0)
        if known is None:
            counted = Counted(len(us), span_us, np.bincount(lattice.classes(us), minlength=len(lattice.multiples)))
            silences = outages(distinct, len(us))
            unbroken = distinct
        else:
            counted = known.counted
            silences = known.outages(distinct)
            unbroken = known.fullest(distinct)
        shares = lattice.mixture(counted.classes)
        near = dust(us, shares)
        if near is not None:
            coarse = min(s.granule_us for s in shares if s.granule_us >= MS and s.share > _SEEN)
            snapped = np.where(near, (us + 2) // coarse * coarse, us)
            shares = lattice.mixture(np.bincount(lattice.classes(snapped), minlength=len(lattice.multiples)))
        fine = bool(shares) and shares[-1].granule_us == 1 and shares[-1].share > _ALMOST_ALL
        found_tick = tick_us or (tick(unbroken) if fine else None) or None
        granules = [share.granule_us for share in shares if share.share > _SEEN]
        return cls(
            key,
            counted.rows,
            counted.span_us if counted.rows else (0, 0),
            tuple(shares),
            found_tick,
            _rounding(us, arrival_us, max(granules, default=1)),
            None if found_tick else polling(unbroken, granules, silences),
            0.0 if near is None else float(near.mean()),
            tuple(silences),
            Order.of(us),
            len(distinct) if known is None else len(np.union1d(distinct, known.uniform)),
        )

    @property
    def granule_us(self) -> int:
        """The coarsest granularity that more than 0.5 % of the rows have, in microseconds; at least 1."""
        if self.tick_us:
            return math.ceil(self.tick_us)
        return next((share.granule_us for share in self.granules if share.share > _COUNTS), 1)

    @property
    def mixed(self) -> bool:
        """Whether several granularities occur in more than 0.5 % of the rows; a poll makes such patterns by itself."""
        return not self.tick_us and self.polling is None and sum(share.share > _COUNTS for share in self.granules) > 1

    def spec(self, time: str) -> TimeSpec:
        """The time specification of a reading in column `time`."""
        kind, length_us = self._uncertainty()
        if kind == "polling":
            return from_polling(time, length_us)
        if kind == "point":
            return Point(time)
        return from_granularity(time, length_us, rounding=self.rounding)

    def spec_text(self, time: str) -> str:
        """The specification as Python."""
        kind, length_us = self._uncertainty()
        if kind == "point":
            return f'wa.Point("{time}")'
        rounding = ', rounding="nearest"' if kind == "granularity" and self.rounding == "nearest" else ""
        return f'wa.from_{kind}("{time}", "{exact(length_us)}"{rounding})'

    def option(self, time: str) -> str:
        """The specification as a value of `--left-time`."""
        kind, length_us = self._uncertainty()
        if kind == "point":
            return time
        rounding = ":nearest" if kind == "granularity" and self.rounding == "nearest" else ""
        return f"{kind}{rounding}:{exact(length_us).replace(' ', '')}:{time}"

    def _uncertainty(self) -> tuple[str, int]:
        """What makes a reading uncertain, and by how much."""
        if self.polling is not None:
            return "polling", self.polling.longest_us
        granule = self.granule_us
        if granule <= 1:
            return "point", 0
        return "granularity", granule + (granule % 2 if self.rounding == "nearest" else 0)

    def granularity(self) -> str:
        """The granularities in words."""
        if self.tick_us:
            return f"a tick of {format_duration(self.tick_us)}"
        return ", ".join(
            f"{format_duration(share.granule_us)}" + ("" if share.share > 0.9995 else f" ({percent(share.share)})")
            for share in self.granules
        )

    def to_dict(self, time: str) -> dict[str, Any]:
        """The profile as JSON-safe values, times in microseconds."""
        return {
            "key": [each if isinstance(each, (str, int, bool, type(None))) else str(each) for each in self.key],
            "rows": self.rows,
            "span_us": list(self.span_us),
            "granules": [{"granule_us": share.granule_us, "share": share.share} for share in self.granules],
            "tick_us": self.tick_us,
            "rounding": self.rounding,
            "polling": None if self.polling is None else self.polling._asdict(),
            "dust": self.dust,
            "outages": [list(outage) for outage in self.outages],
            "order": self.order.to_dict(),
            "spec": self.spec_text(time),
        }  # fmt: skip


def exact(us: int) -> str:
    """A duration for people if that is exact, else in microseconds.

    >>> exact(60_000_000), exact(30_000_501)
    ('1 min', '30000501 us')
    """
    text = format_duration(us)
    try:
        return text if parse_duration(text) == us else f"{us} us"
    except ValueError:
        return f"{us} us"


def _rounding(us: IntArray, arrival_us: IntArray | None, granule_us: int) -> str:
    """Times are ahead of their arrival only if they were rounded, and then by half a granule at most."""
    if arrival_us is None or granule_us < 2 or not len(us):
        return "down"
    ahead = us - arrival_us
    early = ahead > 0
    if early.mean() > _EARLY and int(ahead.max()) <= granule_us // 2 + 1:
        return "nearest"
    return "down"
