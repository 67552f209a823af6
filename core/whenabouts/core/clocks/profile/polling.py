"""Periods in a column of times: a poll that finds events every so often, or a tick that the ladder does not have.

Candidates are the most frequent differences of neighbouring times. Each is refined by the advance of the phase over
ever longer blocks, and judged by how the phases concentrate (Rayleigh's statistic), over all times and locally: a
poller that drifts concentrates locally only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.profile.gaps import MANY, Outage

ComplexArray: TypeAlias = NDArray[np.complex128]

LEAST_ROWS = 50

_BLOCKS = (8, 32, 128, 512, 2048, 8192)
_NEIGHBOURS = 64
_LOCALLY = 0.5
_SEARCHED = 1 << 13
_SCREENED = 1 << 10
"""A contiguous run of so many distinct times is searched."""

_SELDOM = 0.9
"""If more polls find nothing, the period is that of a lattice of times and no poll."""

_REGULAR = 0.995
_MODES = 4
_TICK_R = 0.99
_SHORTEST_TICK, _LONGEST_TICK = 3, 10_000


class Polling(NamedTuple):
    """A poll: its period, how the phases concentrate (1: all equal) over 64 neighbours and over all times, the share of
    polls without a row, and the gap that 99.5 % of rows do not exceed, rounded up to four digits; outages aside."""

    period_us: float
    local: float
    overall: float
    skipped: float
    longest_us: int

    @property
    def least_us(self) -> int:
        """The period, rounded up to four digits."""
        return _up(self.period_us)


def polling(distinct: IntArray, granules: Sequence[int], silences: Sequence[Outage] = ()) -> Polling | None:
    """The polling period of sorted, distinct times, None if there is none.

    `granules`: granularities of the column in microseconds: what they explain is no poll. `silences`: outages, during
    which nobody polled; of bursts, which have very many, they count as polls without a row. O(n) per candidate, for at
    most 8,192 times.
    """
    times = _middle(distinct)
    if len(times) < LEAST_ROWS:
        return None
    finest = min(granules, default=1)
    since = (times - times[0]).astype(np.float64)
    periods = _candidates(times, finest)
    least = math.log(1e6 * max(1, len(periods)))
    found = []
    for candidate in periods:
        few = since[:_SCREENED]
        period = _refined(few, candidate, _BLOCKS[:2])
        if not period or _local(_phases(few, period)) < _LOCALLY / 2:
            continue
        period = _refined(since, period, _BLOCKS[2:])
        if not period or any(_divides(period, granule) for granule in granules):
            continue
        phases = _phases(since, period)
        overall = float(abs(phases.mean()) ** 2)
        local = _local(phases)
        if local > _LOCALLY and len(times) * overall > least:
            found.append((period, local, overall))
    if not found:
        return None
    best = max(local for _, local, _ in found)
    period, local, overall = max(each for each in found if each[1] >= 0.9 * best)
    outages = [outage.start_us for outage in silences] if len(silences) <= MANY else []
    beats = np.rint(np.diff(times)[~np.isin(times[:-1], outages)] / period)
    beats = beats[beats >= 1]
    if not len(beats):
        return None
    skipped = 1 - len(beats) / beats.sum()
    if skipped > _SELDOM:
        return None
    longest = float(np.quantile(beats, _REGULAR, method="higher")) * period
    if 2 * longest > since[-1]:  # one gap takes up the span, as between the years 1 and 9999: nothing comes back
        return None
    return Polling(period, local, overall, float(skipped), _up(longest))


def tick(distinct: IntArray) -> float | None:
    """The tick of a clock whose times are multiples of a period that is on no ladder, None if there is none.

    The least differences of the times are one tick; it is refined as a polling period is. Times lie within a
    microsecond of its multiples. Whatever has a period of 10 ms or more is taken for a poll: clocks have no such ticks.
    """
    times = _middle(distinct)
    if len(times) < LEAST_ROWS:
        return None
    gaps = np.diff(times)
    least = int(gaps.min())
    if not _SHORTEST_TICK < least < _LONGEST_TICK:
        return None
    once = gaps[gaps < 1.5 * least]
    since = (times - times[0]).astype(np.float64)
    period = _refined(since, float(once.mean()), _BLOCKS)
    if not period:
        return None
    phases = _phases(since, period)
    off = np.angle(phases * np.conj(phases.mean())) / (2 * np.pi) * period
    return period if abs(phases.mean()) > _TICK_R and float(np.median(np.abs(off))) <= 1 else None


def _up(us: float) -> int:
    """A duration rounded up to four digits, in whole microseconds.

    >>> _up(30_000_638.1), _up(381.5)
    (30010000, 382)
    """
    digit = int(10 ** max(0, len(str(int(us))) - 4))
    return math.ceil(us / digit) * digit


def _middle(distinct: IntArray) -> IntArray:
    spare = max(0, len(distinct) - _SEARCHED) // 2
    return distinct[spare : spare + _SEARCHED]


def _candidates(times: IntArray, finest: int) -> list[float]:
    """The most frequent differences of times one to three apart, and halves and thirds of them."""
    width = max(finest, float(np.median(np.diff(times))) / 200, 1.0)
    found: list[float] = []
    for apart in (1, 2, 3):
        differences = (times[apart:] - times[:-apart]).astype(np.float64)
        cells = np.floor(differences / width).astype(np.int64)
        values, counts = np.unique(cells, return_counts=True)
        for cell in values[np.argsort(-counts, kind="stable")[:_MODES]].tolist():
            near = differences[np.abs(cells - cell) <= 1]
            mode = float(near.mean())
            found += [mode / part for part in (1, 2, 3)]
    distinct: list[float] = []
    for each in sorted(found, reverse=True):
        if each >= 2 and all(abs(each - other) > 1e-3 * other for other in distinct):
            distinct.append(each)
    return distinct


def _phases(since: FloatArray, period: float) -> ComplexArray:
    return np.asarray(np.exp((2j * np.pi / period) * since), np.complex128)


def _refined(since: FloatArray, period: float, blocks: Sequence[int]) -> float:
    """A period, corrected by the mean advance of the phase between the halves of blocks; 0 if it vanishes."""
    for beats in blocks:
        half = np.floor(since / (beats * period / 2)).astype(np.int64)
        if half[-1] < 2:
            break
        phases = _phases(since, period)
        starts = np.flatnonzero(np.concatenate(([True], half[1:] != half[:-1])))
        sums, halves = np.add.reduceat(phases, starts), half[starts]
        adjacent = np.diff(halves) == 1
        advance = np.sum(np.conj(sums[:-1]) * sums[1:] * adjacent)
        if advance == 0:
            continue
        period *= 1 + float(np.angle(advance)) / (2 * np.pi) / (beats / 2)
        if not period > 1:
            return 0.0
    return period


def _divides(period: float, granule: int) -> bool:
    times = granule / period
    return times > 0.5 and abs(times - round(times)) < 1e-3 * times


def _local(phases: ComplexArray) -> float:
    """The mean square concentration of 64 neighbours each."""
    blocks = max(1, len(phases) // _NEIGHBOURS)
    parts = phases[: blocks * _NEIGHBOURS].reshape(blocks, -1) if len(phases) >= _NEIGHBOURS else phases[None, :]
    return float(np.mean(np.abs(parts.mean(axis=1)) ** 2))
