"""Steps of a clock: places in the order of arrival at which the level of the times changes and stays changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.profile.findings import Finding, examples
from whenabouts.core.clocks.profile.gaps import instant
from whenabouts.core.clocks.profile.granules import HOUR, MINUTE
from whenabouts.core.durations import format_duration
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US

_SIDE = 10
"""So many rows on one side of a step all lie on its side."""

_NEAREST, _NEARBY = 3, 100
"""A step is measured between the nearest rows, and what rows usually take there between those nearby."""

_FACTOR = 10
_BLOCK = 16
_LEVELS = 4
_EPOCH = datetime(1970, 1, 1)
_SHOWN_ZONES = 5

_ERRORS, _MOST_OFF = 5, 15 * MINUTE
"""A step is taken for one of an hour if it is five errors from it at most, and a quarter of an hour."""

KNOWN_OFFSETS = {
    18_000_000: "GPS less UTC",
    19_000_000: "TAI less GPS",
    37_000_000: "TAI less UTC",
}
"""Offsets of time scales since 2017, in microseconds."""

_NEAR_US = 500_000


class Step(NamedTuple):
    """A step before a row: by how much the clock went ahead (below zero: back), the reading before it, and how well the
    former is known."""

    at: int
    by_us: int
    before_us: int
    error_us: int = 0


def backward_steps(us: IntArray) -> list[Step]:
    """Jumps back after which rows stay back, of times in the order of arrival.

    The times are taken less what rows usually take. At a step the ten before it are then all later than the ten after
    it, by more than ten times the .999 lag elsewhere, and the time of ten rows. A block of rows that merely arrives
    late ends with a jump ahead of about the same length: that is no step. O(n).
    """
    if len(us) < 4 * _SIDE:
        return []
    # Rows in order never jump back by more than this gap, whatever it is, so that they have no step.
    gap = max(float(np.median(us[_SIDE:] - us[:-_SIDE])) / _SIDE, 0.0)
    level = us - np.rint(gap * np.arange(len(us))).astype(np.int64)
    least, most = _window(level, np.minimum), _window(level, np.maximum)
    jump = least[:-_SIDE] - most[_SIDE:]  # of the step before row i + _SIDE
    candidates = np.flatnonzero(jump > _FACTOR * gap)
    if not len(candidates):
        return []
    runs = np.split(candidates, np.flatnonzero(np.diff(candidates) > 1) + 1)
    places = [int(run[np.argmax(jump[run])]) for run in runs]
    usual = _usual_lag(us, [place + _SIDE for place in places])
    found = []
    for place in places:
        at = place + _SIDE
        if jump[place] > _FACTOR * usual:
            step = _measured(us, at)
            if not _returns(us, at, step.before_us, -step.by_us):
                found.append(step)
    return found


def _measured(us: IntArray, at: int) -> Step:
    """The step back before row `at`, known to within the time that a few rows take there."""
    sides = us[max(0, at - _NEARBY) : at], us[at : at + _NEARBY]
    advances = [np.median(side[_SIDE // 2 :] - side[: -_SIDE // 2]) for side in sides]
    gap = max(float(np.mean(advances)) / (_SIDE // 2), 0.0)
    # Rows equally far from the step lie on both sides of it: one gap apart, then three, then five.
    back = us[at - _NEAREST : at][::-1] - us[at : at + _NEAREST] + gap * (2 * np.arange(_NEAREST) + 1)
    return Step(at, -round(float(np.median(back))), int(us[at - _SIDE : at].max()), round(gap))


def _window(us: IntArray, of: np.ufunc) -> IntArray:
    """The least or greatest of each `_SIDE` neighbours."""
    found = us
    width = 1
    while width < _SIDE:
        shift = min(width, _SIDE - width)
        found = of(found[:-shift], found[shift:])
        width += shift
    return np.asarray(found, np.int64)


def _usual_lag(us: IntArray, cuts: Sequence[int]) -> float:
    """The .999 quantile of the lags, or of the distances of neighbours, between the cuts."""
    parts = np.split(us, cuts)
    lags = np.concatenate([np.maximum.accumulate(part) - part for part in parts if len(part)])
    gaps = np.concatenate([np.diff(part) for part in parts])
    return float(max(np.quantile(lags, 0.999), np.median(gaps[gaps > 0]) if (gaps > 0).any() else 0))


def _returns(us: IntArray, at: int, latest: int, by: int) -> bool:
    """Whether the rows after `at` pass the latest time before it by a jump of half its length or more."""
    beyond = us[at:] > latest
    if not beyond.any():
        return False
    first = at + int(np.argmax(beyond))
    return bool(us[first] - us[max(at, first - _SIDE) : first].max(initial=us[at]) > by / 2)


def level_steps(us: IntArray, arrival_us: IntArray) -> list[Step]:
    """Changes of the level of time less arrival, of rows in the order of arrival.

    Levels are medians of sixteen rows. A step lies where four of them before and four after it are apart by more than
    ten times what neighbouring levels usually are, and each level is nearer to its own side. O(n).
    """
    blocks = len(us) // _BLOCK
    if blocks < 3 * _LEVELS:
        return []
    difference = us - arrival_us
    middle = int(np.median(difference))
    rest = (difference - middle)[: blocks * _BLOCK].reshape(blocks, _BLOCK).astype(np.float64)
    levels = np.median(rest, axis=1)
    noise = max(
        float(np.median(np.abs(np.diff(levels)))), float(np.median(np.abs(rest - levels[:, None]))) / _LEVELS, 1.0
    )
    windows = np.lib.stride_tricks.sliding_window_view(levels, _LEVELS)
    medians, spreads = np.median(windows, axis=1), np.ptp(windows, axis=1)
    # Of each block the four before it and the four after it: the step may lie inside the block.
    before, after = medians[: -_LEVELS - 1], medians[_LEVELS + 1 :]
    spread = np.maximum(spreads[: -_LEVELS - 1], spreads[_LEVELS + 1 :])
    change = after - before
    clear = np.abs(change) - np.maximum(_FACTOR * noise, 3 * spread)
    strong = np.flatnonzero(clear > 0)
    found = []
    for run in np.split(strong, np.flatnonzero(np.diff(strong) > 1) + 1):
        if len(run):
            best = int(run[np.argmax(clear[run])])
            at = _place(rest.ravel(), best + _LEVELS, before[best], after[best])
            found.append(Step(at, round(float(change[best])), int(us[max(0, at - 1)]), round(noise)))
    return found


def _place(rest: FloatArray, block: int, before: float, after: float) -> int:
    """The row at which the differences pass from one level to the other, in a block or beside it."""
    start, end = (block - 1) * _BLOCK, (block + 2) * _BLOCK
    nearer_after = np.abs(rest[start:end] - after) < np.abs(rest[start:end] - before)
    score = np.cumsum(np.where(nearer_after, 1, -1))
    return start + int(np.argmin(np.concatenate(([0], score))))


def step_findings(steps: Sequence[Step], rows: IntArray, granule_us: int, total: int, whose: str) -> Iterator[Finding]:
    """A finding for each step; `rows`: numbers of the rows in the order of arrival, `total`: of all rows."""
    for step in steps:
        zones = zones_of(step, granule_us)
        ahead = "ahead" if step.by_us > 0 else "back"
        by = format_duration(_known_digits(abs(step.by_us), step.error_us))
        sentence = f"{whose} steps {ahead} by {by} after {instant(step.before_us)}"
        known = _known(abs(step.by_us))
        remedy = "Split the rows there, or mend the clock."
        if zones:
            shown = ", ".join(zones[:_SHOWN_ZONES]) + (", ..." if len(zones) > _SHOWN_ZONES else "")
            sentence += f": local time, an hour {'missing' if step.by_us > 0 else 'repeated'} (as in {shown})"
            remedy = "Write UTC, or read the column with its time zone."
        elif known:
            sentence += f", as much as {known}"
        share = (len(rows) - step.at) / max(1, total)
        yield Finding("clock step", "wrong", share, examples(rows[step.at : step.at + 1]), sentence + ".", remedy)


def zones_of(step: Step, granule_us: int) -> list[str]:
    """The zones whose clocks repeat (or skip) an hour within two hours of the step; none unless it may be an hour."""
    error = min(_ERRORS * step.error_us, _MOST_OFF)
    if abs(abs(step.by_us) - HOUR) > max(granule_us, MINUTE, error):
        return []
    if not FIRST_US + 2 * HOUR <= step.before_us <= LAST_US - 2 * HOUR:
        return []  # what is around the step would leave the calendar
    reading = (_EPOCH + timedelta(microseconds=step.before_us)).replace(microsecond=0)
    readings = [reading + timedelta(minutes=15 * quarter) for quarter in range(-8, 9)]
    return [name for name in _zones() if _shifts(name, readings, -1 if step.by_us < 0 else 1)]


def _known_digits(us: int, error_us: int) -> int:
    """A duration, rounded to the power of ten at or below its error.

    >>> _known_digits(3_573_412_345, 43_200_000), _known_digits(3_573_412_345, 0)
    (3570000000, 3573412345)
    """
    digits = len(str(error_us)) - 1
    return round(us, -digits)


@lru_cache(maxsize=1)
def _zones() -> tuple[str, ...]:
    return tuple(sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")))


def _shifts(name: str, readings: Sequence[datetime], sign: int) -> bool:
    """Whether the wall clock of a zone shows one of the readings twice (sign -1) or never (1)."""
    zone = ZoneInfo(name)
    for reading in readings:
        first, second = (reading.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
        if first is not None and second is not None and second - first == timedelta(hours=sign):
            return True
    return False


def _known(us: int) -> str | None:
    return next((name for offset, name in KNOWN_OFFSETS.items() if abs(us - offset) <= _NEAR_US), None)


def offset_findings(names: Sequence[str], differences: Sequence[IntArray], rows: Sequence[int]) -> Iterator[Finding]:
    """Groups whose median of time less arrival is off the others' by a known difference of time scales."""
    medians = np.array([np.median(each) for each in differences])
    if len(medians) < 2:
        return
    counts = np.array(rows)
    usual = float(np.median(np.repeat(medians, np.minimum(counts, 1_000))))
    for name, median, count in zip(names, medians.tolist(), counts.tolist(), strict=True):
        known = _known(round(abs(median - usual)))
        if known:
            yield Finding(
                "time scale", "doubt", count / int(counts.sum()), (),
                f"The clock of {name} is {format_duration(round(median - usual))} off the others, as much as {known}.",
                "Convert it to UTC.",
            )  # fmt: skip
