"""Inputs of the laws: hundreds of small random cases under one query, distinguished by an extra key column `case`.

One engine job then checks hundreds of tables; an engine that takes seconds per job gets as many cases as one that
takes milliseconds. Times are small integers times a unit, so that many pairs have a probability of exactly the
confidence, and rows repeat: two rows may agree in every column.

Everything is made by seeded generators: a dataset is the same on every machine and for every engine.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from whenabouts.conformance import oracle, templates
from whenabouts.conformance.templates import BINARY_SECOND, DAYS, DYADIC, MANY, MIXED, NUMBERED, TemplateSet
from whenabouts.core import Condition, Interval, Lateness, Point, between, deadline, delay, within
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.query import TimingJoin

SECOND = 1_000_000
DAY = 86_400 * SECOND
YEAR_2024 = 1_704_067_200 * SECOND
YEAR_1900 = -25_567 * DAY
YEAR_1950 = -7_305 * DAY
YEAR_2200 = 84_006 * DAY

LATENESS = Lateness(left="3 s", right="5 s")
Files = tuple[pa.Table, ...]
Kind = tuple[int, int] | TemplateSet | None
"""Intervals of lengths from the least to the greatest, histograms, or points."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A query and its inputs, rows in no particular order."""

    name: str
    query: TimingJoin
    tables: Mapping[str, pa.Table]

    @property
    def specs(self) -> dict[str, TimeSpec]:
        """The time specification of each input."""
        return {"left": self.query.left_time, "right": self.query.right_time}


@dataclass(frozen=True)
class Profile:
    """The rows of a dataset. Lengths and spans are in units; intervals have one of the `few` lengths, if any."""

    condition: Condition
    left: Kind = (0, 10)
    right: Kind = (0, 10)
    few: tuple[int, ...] = ()
    keys: str = "integers"
    unit: int = SECOND
    origin: int = YEAR_2024
    stretch: int = 240  # cases lie somewhere in this many units ...
    span: int = 24  # ... and each is this wide
    cases: int = 200
    bad: float = 0.0
    time_type: pa.DataType = field(default_factory=pa.int64)
    declared: bool = True


def rng(*seed: object) -> np.random.Generator:
    """A generator seeded by names and numbers, the same in every process."""
    return np.random.default_rng(zlib.crc32(repr(seed).encode()))


@lru_cache
def dataset(name: str) -> Dataset:
    """The dataset of a profile."""
    profile = PROFILES[name]
    on = ("case", "k", "k2") if profile.keys == "two columns" else ("case", "k")
    query = TimingJoin(
        left_time=_spec(profile, profile.left),
        right_time=_spec(profile, profile.right),
        condition=profile.condition,
        on=on,
        lateness=LATENESS,
    )
    return Dataset(name, query, _tables(name, profile))


def _spec(profile: Profile, lengths: Kind) -> TimeSpec:
    if lengths is None:
        return Point("t")
    if isinstance(lengths, TemplateSet):
        return lengths.spec(profile.unit)
    longest = lengths[1] * profile.unit if profile.declared else None
    return Interval("t_min", "t_max", max_uncertainty=longest, min_uncertainty=lengths[0] * profile.unit)


def _tables(name: str, profile: Profile) -> dict[str, pa.Table]:
    centres = rng(name, "centres").integers(0, profile.stretch, profile.cases)
    tables = {}
    for side in ("left", "right"):
        random = rng(name, side)
        case = np.repeat(np.arange(profile.cases), _rows_per_case(random, profile.cases))
        lengths = profile.left if side == "left" else profile.right
        columns: dict[str, Any] = {"case": pa.array(case)} | _keys(random, len(case), profile.keys, side)
        columns |= _times(random, centres[case], profile, lengths)
        columns |= {"id": pa.array(np.arange(len(case)))} | payload(random, len(case), side)
        table = pa.table(columns)
        again = random.integers(0, len(case), len(case) // 10)  # rows that agree in every column
        tables[side] = table.take(pa.array(random.permutation(np.append(np.arange(len(case)), again))))
    return tables


def _rows_per_case(random: np.random.Generator, cases: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """No row, one row, a few."""
    return random.choice(np.array([0, 1, 2, 4, 6, 9]), cases, p=[0.08, 0.12, 0.2, 0.25, 0.25, 0.1])


def _times(random: np.random.Generator, centre: Any, profile: Profile, lengths: Kind) -> dict[str, pa.Array]:
    n, unit = len(centre), profile.unit
    start = profile.origin + unit * (centre + random.integers(0, profile.span + 1, n))
    if isinstance(lengths, TemplateSet):
        return lengths.columns(random, start, profile.bad, profile.time_type)
    shortest, longest = lengths or (0, 0)
    length = unit * random.integers(shortest, longest + 1, n)
    if profile.few:
        length = unit * random.choice(np.array(profile.few), n)
    if unit == 1 and longest > DAY:  # lengths of every magnitude, down to a microsecond, and odd starts
        length = np.maximum(np.exp(random.uniform(0, np.log(longest), n)).astype(np.int64), shortest)
    extreme = random.random(n)
    length = np.where(extreme < 0.15, unit * shortest, np.where(extreme > 0.85, unit * longest, length))
    t_min, t_max = list(map(int, start)), list(map(int, start + length))
    ends: list[list[int | None]] = [[*t_min], [*t_max]]
    for at in np.flatnonzero(random.random(n) < profile.bad).tolist():
        _spoil(random, ends, at, unit, shortest, longest, points=lengths is None)
    names = ("t",) if lengths is None else ("t_min", "t_max")
    arrays = [pa.array(values, pa.int64()) for values in ends]
    if pa.types.is_timestamp(profile.time_type):
        arrays = [values.cast(pa.timestamp("us")).cast(profile.time_type) for values in arrays]
    return dict(zip(names, arrays, strict=False))


def _spoil(
    random: np.random.Generator,
    ends: list[list[int | None]],
    at: int,
    unit: int,
    shortest: int,
    longest: int,
    points: bool,
) -> None:
    """Give one row one fault."""
    t_min = ends[0][at]
    assert t_min is not None
    faults: list[tuple[int | None, int | None]] = [(None, t_min), (10**18, 10**18), (-(10**18), -(10**18))]
    if not points:
        faults += [(t_min, None), (t_min, t_min - unit), (t_min, t_min + longest * unit + 1), (t_min, 10**18)]
        faults += [(t_min, t_min + shortest * unit - 1)] if shortest else []
    ends[0][at], ends[1][at] = faults[random.integers(0, len(faults))]


def _keys(random: np.random.Generator, n: int, kind: str, side: str) -> dict[str, pa.Array]:
    number = random.choice(np.array([1, 2]), n)
    null = random.random(n) < 0.1
    narrow = pa.int32() if side == "right" else pa.int64()
    if kind == "text":
        return {"k": pa.array(np.array(["", "a b", "\u00e4\u2603"])[random.integers(0, 3, n)], pa.string(), mask=null)}
    if kind == "floats":
        values = np.array([np.nan, 0.0, -0.0, 1.5])[random.integers(0, 4, n)]
        return {"k": pa.array(values, pa.float64(), mask=null)}  # from_pandas is off: a NaN is no null
    if kind == "two columns":
        also = pa.array(np.array(["x", "y"])[random.integers(0, 2, n)], mask=random.random(n) < 0.1)
        return {"k": pa.array(number, narrow, mask=null), "k2": also}
    return {"k": pa.array(number, narrow, mask=null)}


def payload(random: np.random.Generator, n: int, side: str) -> dict[str, pa.Array]:
    """Columns that an operator only carries along: several types, nulls in all of them."""

    def some(values: Sequence[object], type_: pa.DataType) -> pa.Array:
        picked = [values[i] for i in random.integers(0, len(values), n)]
        return pa.array(picked, type_, from_pandas=False)

    if side == "left":
        return {
            "note": some(["", "one", "\u20ac", "a longer text, with a comma", None], pa.string()),
            "x": some([0.1, -0.0, 0.0, float("nan"), float("inf"), 5e-324, None], pa.float64()),
            "flag": some([True, False, None], pa.bool_()),
            "raw": some([b"", b"\x00\xff", None], pa.binary()),
        }
    return {
        "note": some(["right", None], pa.string()),
        "small": some([1, -(2**31), 2**31 - 1, None], pa.int32()),
        "day": some([0, -1, 19_000, None], pa.int32()).cast(pa.date32()),
        "seen": some([0, 1_704_067_200_000_001, None], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "price": some([125, -1, None], pa.int64()).cast(pa.decimal128(20, 0)),
    }


_INT = pa.int64()
PROFILES: dict[str, Profile] = {
    # |D| <= 5 at 0.5, lengths 0..10: the window is as wide as one interval, ties abound
    "ties": Profile(within("5 s", confidence=0.5), span=14),
    # wider than both intervals together: sure ranges exist
    "wide": Profile(between("-18 s", "14 s", confidence=0.8), left=(2, 10), right=(0, 6), keys="two columns"),
    "narrow": Profile(between("-1 s", "2 s", confidence=0.25), keys="text", span=8),
    "certain": Profile(within("12 s", confidence=1.0), keys="floats"),
    "barely": Profile(within("8 s", confidence=2.0**-40), time_type=pa.timestamp("us", "UTC")),
    "points": Profile(within("0 s", confidence=1.0), left=None, right=None, keys="text", span=9),
    "point and interval": Profile(
        deadline("9 s", since="2 s", confidence=0.75), left=None, right=(2, 8), time_type=pa.timestamp("ms", "UTC")
    ),
    "realistic": Profile(
        within("10 days", confidence=0.6),
        left=(0, 30 * DAY), right=(0, 20 * DAY), unit=1,
        origin=YEAR_1900, stretch=YEAR_2200 - YEAR_1900 - 60 * DAY, span=25 * DAY,
    ),
    "microseconds": Profile(within(7, confidence=0.9), unit=1),
    "malformed": Profile(between("-20 s", "20 s", confidence=0.3), left=(1, 10), bad=0.2, span=40),
    "before 1970": Profile(between("-30 s", "5 s", confidence=0.6), origin=YEAR_1950),
    "one-sided": Profile(deadline("4 s", confidence=0.5), declared=False),
    # as wide as any two supports together; no fraction of small numbers is near the confidences of histograms
    "histograms": Profile(between("-11 s", "10 s", confidence=0.6180339887), left=MIXED, right=NUMBERED),
    "histogram and interval": Profile(
        between("-9 s", "13 s", confidence=0.7071067811), left=MIXED, right=(0, 6), time_type=pa.timestamp("us", "UTC")
    ),
    "point and histogram": Profile(
        deadline("14 s", since="2 s", confidence=0.5772156649), left=None, right=templates.ALONE, keys="floats"
    ),
    "ties of histograms": Profile(
        within("12582912 us", confidence=0.75), left=DYADIC, right=DYADIC, unit=BINARY_SECOND
    ),
    "narrow ties of histograms": Profile(
        between("-2097152 us", "2097152 us", confidence=0.375), left=DYADIC, right=DYADIC, unit=BINARY_SECOND, span=12,
    ),
    "many templates": Profile(between("-14 s", "16 s", confidence=0.6931471805), left=MANY, right=MANY),
    "narrow histograms": Profile(
        between("-1 s", "3 s", confidence=0.2718281828), left=NUMBERED, right=MIXED, keys="text", span=12
    ),
    "certain histograms": Profile(within("13 s", confidence=1.0), left=MIXED, right=MIXED),
    "malformed histograms": Profile(
        between("-20 s", "20 s", confidence=0.3141592653), left=NUMBERED, right=MIXED, bad=0.2, span=44
    ),
    "realistic histograms": Profile(
        within("61 days", confidence=0.5671432904),
        left=DAYS, right=DAYS, unit=1,
        origin=YEAR_1900, stretch=YEAR_2200 - YEAR_1900 - 130 * DAY, span=100 * DAY,
    ),
    "one-sided histograms": Profile(
        delay("3 s", confidence=0.5671432904), left=MIXED, right=(0, 5), declared=False
    ),
    "learned clock": Profile(between("-7 s", "12 s", confidence=0.5671432904), left=templates.LEARNED, right=(0, 6)),
    "few lengths": Profile(within("9 s", confidence=0.6180339887), left=(2, 9), right=(0, 9), few=(2, 5, 9)),
}  # fmt: skip

HISTOGRAMS = tuple(
    name for name, p in PROFILES.items() if isinstance(p.left, TemplateSet) or isinstance(p.right, TemplateSet)
)
"""Datasets in which a side has templates."""


def reordered(table: pa.Table, spec: TimeSpec, lateness_us: int, *seed: object) -> pa.Table:
    """The rows in an order of arrival in which none is late under its own side's watermark.

    Each row is delayed by less than the lateness: whatever came before row r has t_max <= r.t_max + lateness. A
    watermark that is the least over several inputs is no further, so no engine may call a row late.
    """
    random = rng("order", *seed)
    types = {f.name: f.type for f in table.schema}
    delayed = []
    times = [oracle.read_time(spec, row, types) for row in oracle.plain_rows(table)]
    known = [time[1] for time in times if not isinstance(time, oracle.Fault)] or [0]
    for time in times:  # a row that cannot be used arrives anywhere
        t_max = known[random.integers(0, len(known))] if isinstance(time, oracle.Fault) else time[1]
        delayed.append(t_max + int(random.integers(0, lateness_us + 1)))
    order = sorted(range(len(delayed)), key=lambda row: (delayed[row], random.random()))
    return table.take(pa.array(order, pa.int64()))


def cut(table: pa.Table, n: int, *seed: object) -> Files:
    """`n` files of uneven length, in order; some may be empty."""
    ends = np.sort(rng("cut", n, *seed).integers(0, table.num_rows + 1, n - 1)).tolist()
    return tuple(table.slice(a, b - a) for a, b in zip([0, *ends], [*ends, table.num_rows], strict=True))


@lru_cache
def stream(name: str, files: tuple[int, int] = (4, 3), seed: int = 0) -> dict[str, Files]:
    """A dataset as files of a stream: rows out of order inside the lateness, `files` on the left and on the right."""
    source, lateness = dataset(name), LATENESS.per_input_us
    cuts = {}
    for index, (side, n) in enumerate(zip(("left", "right"), files, strict=True)):
        arriving = reordered(source.tables[side], source.specs[side], lateness[index], name, side, seed)
        cuts[side] = cut(arriving, n, name, side, seed)
    return cuts


@lru_cache
def finite(name: str, files: int = 1, seed: int = 0) -> dict[str, Files]:
    """A dataset as files of a batch, rows in any order."""
    cuts = {}
    for side, table in dataset(name).tables.items():
        shuffled = table.take(pa.array(rng(name, side, seed).permutation(table.num_rows)))
        cuts[side] = cut(shuffled, files, name, side, seed)
    return cuts


@lru_cache
def late_stream(name: str) -> dict[str, Files]:
    """A stream whose last file on each side also holds rows of its first one: far behind any watermark."""
    files = {side: list(tables) for side, tables in stream(name, (5, 5)).items()}
    for side, tables in files.items():
        whole = pa.concat_tables(tables)
        ordered = [whole.slice(start, len(whole) // 5) for start in range(0, len(whole), len(whole) // 5)]
        held_back, first = ordered[0].slice(0, 12), ordered[0].slice(12)
        files[side] = [first, *ordered[1:-1], pa.concat_tables([held_back, ordered[-1]])]
    return {side: tuple(tables) for side, tables in files.items()}


def with_strategy(query: TimingJoin, strategy: str, **options: Any) -> TimingJoin:
    """The query under another strategy."""
    return replace(query, strategy=strategy, **options)
