"""Hypothesis strategies for queries and tables of events, small enough to shrink to a case that a person can read.

Times are small integers (times a unit), so that equal times, touching windows and probabilities of exactly the
confidence are common; keys hold null, NaN and both zeros; rows repeat; sides may be empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from whenabouts.conformance import case_tables
from whenabouts.conformance.case_tables import SECOND, YEAR_2024
from whenabouts.conformance.templates import BINARY_SECOND
from whenabouts.core import Condition, Histogram, Interval, Lateness, Point
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

FULL = os.environ.get("WHENABOUTS_FULL") == "1"
"""Set by `make test-exhaustive`: more examples, and others in each run."""

SECONDS_PER_LAW = 300.0 if FULL else 6.0

CONFIDENCES = (0.25, 0.5, 0.75, 0.8, 1.0, 1 / 3, 0.1, 2.0**-30)
UNEVEN = (0.2718281828, 0.6180339887, 0.9159655941, 1.0, 2.0**-30)
"""Confidences that no fraction of small numbers comes near: for histograms whose sums are not dyadic."""
_KEYS: dict[str, tuple[pa.DataType, pa.DataType, tuple[object, ...]]] = {
    "int": (pa.int64(), pa.int32(), (1, 2, None)),
    "float": (pa.float64(), pa.float64(), (float("nan"), 0.0, -0.0, None)),
    "text": (pa.string(), pa.string(), ("", "a", "\u00e9", None)),
}


class Example(NamedTuple):
    """A query and its two tables."""

    query: TimingJoin
    tables: Mapping[str, pa.Table]


class Lengths(NamedTuple):
    """Lengths of a side in units; `points` reads one column, `declared` says the greatest length.

    With `templates` (buckets in units, by name) the side is of histograms, and rows have a template for a length.
    """

    shortest: int
    longest: int
    points: bool
    declared: bool = True
    templates: tuple[tuple[tuple[int, int, float], ...], ...] = ()


def examples(seconds_per_run: float) -> settings:
    """How many examples a law looks at: as many as the engine runs in its time, always from the same sequence."""
    affordable = int(SECONDS_PER_LAW / max(seconds_per_run, 1e-3))
    most = 3000 if FULL else settings().max_examples  # of the profile that is loaded
    return settings(
        deadline=None,
        derandomize=not FULL,
        database=None,
        print_blob=True,
        max_examples=min(max(affordable, 3), most),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def _template(draw: st.DrawFn) -> tuple[tuple[int, int, float], ...]:
    """Up to three dyadic buckets, holes and empty ends among them."""
    weights = draw(st.sampled_from([(8,), (4, 4), (1, 7), (6, 2), (4, 0, 4), (0, 8), (8, 0), (2, 5, 1), (0, 8, 0)]))
    start, buckets = draw(st.integers(-3, 3)), []
    for weight in weights:
        width = draw(st.sampled_from([1, 2, 4]))
        buckets.append((start, start + width, weight / 8))
        start += width
    return tuple(buckets)


@st.composite
def _lengths(draw: st.DrawFn, finite: bool) -> Lengths:
    if draw(st.integers(0, 2)) == 2:
        templates = tuple(draw(st.lists(_template(), min_size=1, max_size=3)))
        return Lengths(0, len(templates) - 1, points=False, templates=templates)
    shortest, more = draw(st.integers(0, 4)), draw(st.integers(0, 6))
    points = draw(st.booleans()) and shortest == more == 0
    return Lengths(shortest, shortest + more, points, not finite or draw(st.booleans()))


def _spec(lengths: Lengths, unit: int) -> TimeSpec:
    if lengths.points:
        return Point("t")
    if lengths.templates:
        given = [[(lo * unit, hi * unit, p) for lo, hi, p in template] for template in lengths.templates]
        return Histogram("t_max", template="t_min", templates=dict(zip("abc", given, strict=False)))
    longest = lengths.longest * unit if lengths.declared else None
    return Interval("t_min", "t_max", max_uncertainty=longest, min_uncertainty=lengths.shortest * unit)


@st.composite
def _table(draw: st.DrawFn, lengths: Lengths, unit: int, key: pa.DataType, values: tuple[object, ...]) -> pa.Table:
    row = st.tuples(
        st.sampled_from(values), st.integers(0, 16), st.integers(lengths.shortest, lengths.longest), st.integers(0, 2)
    )
    rows = draw(st.lists(row, max_size=7))
    rows += [rows[at] for at in draw(st.lists(st.integers(0, 6), max_size=2)) if at < len(rows)]
    starts = np.array([YEAR_2024 + start * unit for _, start, _, _ in rows], np.int64)
    ends = starts + np.array([length * unit for _, _, length, _ in rows], np.int64)
    times: dict[str, Any] = {"t": starts} if lengths.points else {"t_min": starts, "t_max": ends}
    if lengths.templates:
        times = {"t_min": pa.array(["abc"[which] for _, _, which, _ in rows], pa.string()), "t_max": starts}
    columns: dict[str, Any] = {"k": pa.array([k for k, *_ in rows], key, from_pandas=False)}
    columns |= {name: pa.array(at) for name, at in times.items()}
    return pa.table(columns | {"v": pa.array([v for *_, v in rows], pa.int64())})


@st.composite
def joins(draw: st.DrawFn, units: tuple[int, ...] = (1, SECOND), *, finite: bool = True) -> Example:
    """A timing join with any window, wide or narrow, and two tables of up to nine rows.

    On `finite` input windows may be open and lengths undeclared.
    The payload column `v` has few values, so that different rows agree in every column.
    """
    unit = draw(st.sampled_from(units))
    sides = {side: draw(_lengths(finite)) for side in ("left", "right")}
    dyadic = [bool(side.templates) for side in sides.values()]
    if any(dyadic) and unit > 1:
        unit = BINARY_SECOND  # so that sums of histograms are exact, and ties known
    confidences = UNEVEN if any(dyadic) and not all(dyadic) else CONFIDENCES
    lo, width = draw(st.integers(-14, 8)), draw(st.integers(0, 24))
    ends = [lo * unit, (lo + width) * unit]
    if finite and draw(st.integers(0, 5)) == 5:
        at = draw(st.sampled_from([0, 1]))
        ends[at] = (-UNBOUNDED_US, UNBOUNDED_US)[at]
    left_key, right_key, values = _KEYS[draw(st.sampled_from(sorted(_KEYS)))]
    query = TimingJoin(
        left_time=_spec(sides["left"], unit), right_time=_spec(sides["right"], unit),
        condition=Condition(ends[0], ends[1], draw(st.sampled_from(confidences))),
        on=draw(st.sampled_from([None, "k"])), strategy=draw(st.sampled_from(STRATEGIES)),
        block_size=draw(st.sampled_from([1, 3, 1000])),
        lateness=Lateness(left=draw(st.integers(0, 6)) * unit, right=draw(st.integers(0, 6)) * unit),
    )  # fmt: skip
    tables = {
        side: draw(_table(sides[side], unit, key, values)) for side, key in (("left", left_key), ("right", right_key))
    }
    return Example(query, tables)


@st.composite
def arrivals(draw: st.DrawFn, example: Example) -> dict[str, case_tables.Files]:
    """The rows of an example as files of a stream, out of order inside the lateness."""
    seed = draw(st.integers(0, 2**16))
    specs = {"left": example.query.left_time, "right": example.query.right_time}
    files = {}
    for side, lateness_us in zip(("left", "right"), example.query.lateness_us, strict=True):
        ordered = case_tables.reordered(example.tables[side], specs[side], lateness_us, seed, side)
        files[side] = case_tables.cut(ordered, draw(st.integers(1, 6)), seed, side)
    return files
