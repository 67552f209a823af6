"""Rows that repeat a time more often than chance makes them, and stretches without rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np

from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.clocks.profile.findings import Finding, examples, percent
from whenabouts.core.durations import format_duration

_LAGS = 4
_NEIGHBOURS = 50
_FACTOR = 10
_LEVEL = 1e-6
_LONGEST = 1_000
"""So many of the longest gaps are examined."""

MANY = 50
"""If there are more outages, rows come in bursts."""

_SAMPLED = 2_000
_SHOWN = 5
_BURSTS_US = 1_000
"""Events of one burst fall into one cell of a granularity of a millisecond: equal times are then only a note."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Outage(NamedTuple):
    """A stretch without rows, in microseconds since 1970."""

    start_us: int
    end_us: int


def repeats(us: IntArray, group: IntArray) -> BoolArray:
    """Which rows have the time and the group of the row before; rows are sorted by group, then time."""
    same = np.zeros(len(us), bool)
    same[1:] = (us[1:] == us[:-1]) & (group[1:] == group[:-1])
    return same


def duplicates(
    us: IntArray,
    group: IntArray,
    rows: IntArray,
    granule_us: int,
    ranks: Callable[[IntArray], IntArray] | None,
    *,
    grouped: bool,
) -> list[Finding]:
    """Equal times in one group beyond chance, and equal whole rows.

    Chance alone gives half as many pairs in one cell of the granularity as there are pairs one cell apart: that holds
    for any rate that changes slowly from cell to cell. `ranks` ranks rows, given by their
    numbers, by the other columns; None if there are none.
    """
    same = repeats(us, group)
    if not same.any():
        return []
    involved = same.copy()
    involved[:-1] |= same[1:]
    findings = []
    if ranks is not None:
        at = np.flatnonzero(involved)
        copies = _copies(us[at], group[at], ranks(rows[at]), rows[at])
        alike = _alike(ranks(rows[:: max(1, len(rows) // _SAMPLED)]))
        chance = alike * float(_together(us, group).sum())
        if np.count_nonzero(copies) > 3 * chance + 6 * math.sqrt(chance):
            share = np.count_nonzero(copies) / len(us)
            findings.append(
                Finding(
                    "duplicate rows", "doubt", share, examples(rows[at][copies]),
                    f"{percent(share)} of the rows are equal to another row in every column.",
                    "Drop the copies, or give deduplicate_by= where they are joined: else each of them counts.",
                )
            )  # fmt: skip
    pairs, expected = _pairs(us, group, granule_us)
    if pairs - expected > max(6 * math.sqrt(expected + 1), 0.1 * expected):
        share, of = float(same.mean()), " and group" if grouped else ""
        findings.append(
            Finding(
                "duplicate times", "doubt" if granule_us < _BURSTS_US else "note", share, examples(rows, same),
                f"{percent(share)} of the rows repeat the time{of} of another row: {pairs:,} pairs, "
                f"{expected:,.0f} to be expected by chance at this granularity.",
                "Find out whether an event was written twice; as-of joins and coalescing need an order for such rows.",
            )
        )  # fmt: skip
    return findings


def _copies(us: IntArray, group: IntArray, others: IntArray, rows: IntArray) -> BoolArray:
    """Which rows are equal to another one, of a lesser number, in time, group and the other columns."""
    order = np.lexsort((rows, others, group, us))
    equal = np.ones(len(us) - 1, bool)
    for values in (us, group, others):
        equal &= values[order[1:]] == values[order[:-1]]
    found = np.zeros(len(us), bool)
    found[order[1:]] = equal
    return found


def _alike(others: IntArray) -> float:
    """The probability that two random rows are equal in the other columns."""
    counts = np.bincount(others)
    return float((counts * (counts - 1)).sum()) / max(1, len(others) * (len(others) - 1))


def _together(cells: IntArray, group: IntArray) -> IntArray:
    """How many pairs each cell has; rows are sorted by group, then cell."""
    counts = np.diff(np.append(_starts(cells, group), len(cells)))
    return np.asarray(counts * (counts - 1) // 2, np.int64)


def _starts(cells: IntArray, group: IntArray) -> IntArray:
    return np.flatnonzero(np.concatenate(([True], (cells[1:] != cells[:-1]) | (group[1:] != group[:-1]))))


def _pairs(us: IntArray, group: IntArray, granule_us: int) -> tuple[int, float]:
    """Pairs of rows in one cell of the granularity, and how many are to be expected from those in cells nearby."""
    cells = us // granule_us
    starts = _starts(cells, group)
    counts = np.diff(np.append(starts, len(us)))
    cell, owner = cells[starts], group[starts]
    apart = 0
    for step in range(1, _LAGS + 1):
        near = (cell[step:] - cell[:-step] <= _LAGS) & (owner[step:] == owner[:-step])
        apart += int((counts[step:] * counts[:-step])[near].sum())
    return int(_together(cells, group).sum()), apart / _LAGS / 2


def outages(distinct: IntArray, rows: int) -> list[Outage]:
    """Gaps over ten times the median gap nearby, which the rate nearby makes improbable (1e-6 for all rows together).

    `distinct`: sorted, distinct times. Of each of the 1,000 longest gaps the median of 101 neighbours is taken.
    """
    gaps = np.diff(distinct)
    if len(gaps) < 20:
        return []
    least = max(_FACTOR, math.log2(rows / _LEVEL))
    worth = np.flatnonzero(gaps > least / 2 * _lowest_medians(gaps))
    longest = worth[np.argsort(-gaps[worth], kind="stable")][:_LONGEST]
    found = []
    for at in np.sort(longest).tolist():
        median = float(np.median(gaps[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1]))
        if gaps[at] > _FACTOR * median and 2.0 ** -(gaps[at] / median) < _LEVEL / rows:
            found.append(Outage(int(distinct[at]), int(distinct[at + 1])))
    return found


def _lowest_medians(gaps: IntArray) -> FloatArray:
    """For each gap the least median of its block of 101 gaps and of the two beside it: a guess that is seldom high."""
    width = 2 * _NEIGHBOURS + 1
    padded = np.concatenate((gaps, np.full(-len(gaps) % width, np.median(gaps[-width:]), np.int64)))
    medians = np.median(padded.reshape(-1, width), axis=1)
    around = np.pad(medians, 1, mode="edge")
    return np.repeat(np.minimum(np.minimum(around[:-2], around[2:]), medians), width)[: len(gaps)]


def outage_finding(found: list[Outage], span_us: int, whose: str) -> Finding:
    """A finding on the stretches without rows of a source, or of the recorder; if they are many, on bursts."""
    silent = sum(outage.end_us - outage.start_us for outage in found)
    share = silent / max(1, span_us)
    longest = sorted(found, key=lambda outage: outage.start_us - outage.end_us)[:_SHOWN]
    shown = ", ".join(f"{format_duration(end - start)} from {instant(start)}" for start, end in longest)
    if len(found) > MANY:
        many = f"{len(found):,}" + (" or more" if len(found) >= _LONGEST else "")
        return Finding(
            "bursts", "note", share, (), f"{whose} gives rows in bursts, with {many} gaps of over ten times the median "
            f"gap nearby: {shown}, ...", "Counts by chance are greater in bursts: see chance_matches.",
        )  # fmt: skip
    return Finding(
        "outage", "note", share, (),
        f"{whose} is silent {len(found)} times, {percent(share)} of the span: {shown}"
        + ("." if len(found) <= _SHOWN else ", ..."),
        "Absence of a row there is no absence of an event.",
    )  # fmt: skip


def instant(us: int) -> str:
    """A time for people, in UTC.

    >>> instant(1_500_000)
    '1970-01-01 00:00:01.500000'
    """
    return str((_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None))
