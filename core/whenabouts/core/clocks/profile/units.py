"""The unit of a time column, and values that stand for "no time": found on the raw numbers, before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.plain_types import plain, plain_type
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.clocks.profile.findings import Finding, Kind, examples, percent
from whenabouts.core.durations import format_duration
from whenabouts.core.errors import Code, InputError
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US
from whenabouts.core.times.time_units import DATES, FIRST_S, LAST_S, RANGES

MICROSECONDS = "microseconds"
YEARS = RANGES | {MICROSECONDS: (FIRST_S * 10**6, LAST_S * 10**6)}
"""The numbers of each unit for the years 1990 to 2100; the ranges are disjoint."""

_PER_SECOND = {"seconds": 1, "milliseconds": 1_000, MICROSECONDS: 1_000_000, "nanoseconds": 10**9}
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": MICROSECONDS, "ns": "nanoseconds"}
_SHORT = {name: short for short, name in UNIT_NAMES.items()}

_CONVERT = "Convert them where they are written."

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATES = {
    "1970-01-01": datetime(1970, 1, 1, tzinfo=UTC),
    "1900-01-01": datetime(1900, 1, 1, tzinfo=UTC),
    "0001-01-01": datetime(1, 1, 1, tzinfo=UTC),
    "2038-01-19 03:14:07": datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC),
    "9999-12-31": datetime(9999, 12, 31, tzinfo=UTC),
    "9999-12-31 23:59:59": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
}
_SENTINELS_US = {(date - _EPOCH) // timedelta(microseconds=1): name for name, date in _DATES.items()} | {
    LAST_US: "9999-12-31 23:59:59.999999",
    LAST_US // 1_000 * 1_000: "9999-12-31 23:59:59.999",
}

_FREQUENT = 0.01
_MORE_FREQUENT = 20
_ALONE = 10
"""A single row of another unit among so many may be a sentinel or an outlier."""


@dataclass(frozen=True, slots=True)
class RawTimes:
    """A time column as numbers: `ticks` of the declared `unit`, without nulls; `valid` says which rows have one.

    `floats`: the values if the column has floats (`ticks` are then empty), `narrow` if single precision holds them all.
    `type_`: the name of a type that holds times but that joins do not read, such as dates.
    """

    unit: str
    ticks: IntArray
    valid: BoolArray
    floats: FloatArray | None = None
    narrow: bool = False
    type_: str | None = None

    @property
    def numbers(self) -> IntArray | FloatArray:
        """The ticks or the floats."""
        return self.ticks if self.floats is None else self.floats


@dataclass(frozen=True, slots=True)
class Settled:
    """Times in microseconds of the unit that the numbers look like. `kept`: which of the valid rows are times.

    `tick_us`: the distance of neighbouring times that the column's type can hold, 0 if it is a microsecond or less.
    """

    us: IntArray
    kept: BoolArray
    findings: list[Finding]
    tick_us: float = 0.0


class Sentinel(NamedTuple):
    """A value that stands for "no time": a raw number, or else a time in microseconds."""

    name: str
    number: int | None
    us: int | None


class Odd(NamedTuple):
    """Which numbers of a column are odd in one way."""

    kind: Kind
    what: str
    mask: BoolArray


@dataclass(frozen=True)
class Verdict:
    """How the numbers of a column are read as times, and which of them are no times.

    `unit`: what the numbers look like, None if unknown; `median`: theirs. `units`: all that rows look like, if they are
    several. `sentinels`: values that are left out. `findings`: on the column's type.
    """

    declared: str
    unit: str | None
    median: float
    tick_us: float
    units: tuple[str, ...]
    sentinels: tuple[Sentinel, ...]
    findings: tuple[Finding, ...]

    @property
    def read_as(self) -> str:
        """The unit in which the numbers are read."""
        return self.declared if self.unit is None or self.unit == DATES else self.unit

    def read(self, numbers: IntArray | FloatArray) -> tuple[IntArray, BoolArray, list[Odd]]:
        """Times in microseconds, which of the numbers are times, and the odd ones; the latter always in one order."""
        us, outside = _microseconds(numbers, _PER_SECOND[self.read_as])
        kept = ~outside
        odd = []
        if self.unit is not None and self.unit != self.declared:
            odd.append(Odd("unit", self.unit, _inside(numbers, self.unit)))
        if self.unit == DATES:
            kept &= ~odd[0].mask
        for other in self.units:
            if other in (self.read_as, self.unit):
                continue
            mask = _inside(numbers, other)
            kept &= ~mask
            outside &= ~mask
            odd.append(Odd("mixed units", other, mask))
        odd.append(Odd("out of range", "", outside))
        for sentinel in self.sentinels:
            mask = (us == sentinel.us if sentinel.number is None else numbers == sentinel.number) & kept
            kept &= ~mask
            odd.append(Odd("sentinel", sentinel.name, mask))
        return us, kept, odd

    def finding(self, kind: Kind, what: str, share: float, where: tuple[int, ...] = ()) -> Finding:
        """What is said of odd numbers of this share."""
        if kind == "unit":
            looking = f"{percent(share)} of its numbers look" if self.units else "its numbers look"
            return Finding(
                kind, "wrong", share, where,
                f"The column is declared in {self.declared}, but {looking} like {what} "
                f"(the median, {self.median:.0f}, is then a time of {_year(self.median, what)}).",
                _CONVERT if self.units else unit_remedy(self.declared, what),
            )  # fmt: skip
        if kind == "mixed units":
            rest = [each for each in self.units if each != what]
            others = f", {'the others' if len(rest) == 1 else 'others'} like {' or '.join(rest)}" if rest else ""
            sentence = f"{percent(share)} of the rows look like {what}{others}."
            return Finding(kind, "wrong", share, where, sentence, _CONVERT)
        if kind == "out of range":
            return Finding(
                kind, "wrong", share, where, f"{percent(share)} of the rows lie outside the years 1 to 9999.",
                "Make them null.",
            )  # fmt: skip
        return Finding(
            kind, "wrong", share, where, f"{percent(share)} of the rows have the time {what}, which stands for none.",
            "Make them null, so that they are rejected and not joined.",
        )  # fmt: skip


def unit_remedy(declared: str, unit: str) -> str:
    """What to do with a column of one unit that is declared in another one.

    >>> unit_remedy("nanoseconds", "seconds")
    'Multiply its numbers by 1,000,000,000, or declare them as timestamp[s].'
    """
    if unit == DATES:
        return "Read them as dates first."
    more, fewer = _PER_SECOND[declared], _PER_SECOND[unit]
    convert = f"Multiply its numbers by {more // fewer:,}"
    if fewer > more:
        convert = f"Divide its numbers by {fewer // more:,}"
    return f"{convert}, or declare them as timestamp[{_SHORT[unit]}]."


def raw_times(column: pa.ChunkedArray, name: str) -> RawTimes:
    """The numbers of a column. Raises InputError WA-1002 for a type that holds no times."""
    given, type_ = column.type, plain_type(column.type)
    column = pa.chunked_array([plain(chunk) for chunk in column.chunks], type_)
    valid = np.asarray(pc.is_valid(column).to_numpy(), bool)
    present = column.drop_null() if column.null_count else column
    unread = None if pa.types.is_timestamp(type_) or pa.types.is_int64(type_) else str(type_)
    if pa.types.is_date(type_):
        present, type_ = _instants(present), pa.timestamp("us")
    if pa.types.is_floating(type_):
        floats = np.asarray(present.cast(pa.float64()).to_numpy(), np.float64)
        number = np.isfinite(floats)
        if not number.all():
            valid = valid.copy()
            valid[np.flatnonzero(valid)[~number]] = False
            floats = floats[number]
        narrow = not pa.types.is_float64(type_) or bool((floats == floats.astype(np.float32)).all())
        return RawTimes("float", np.zeros(0, np.int64), valid, floats, narrow)
    if pa.types.is_integer(type_) or pa.types.is_timestamp(type_):
        unit = UNIT_NAMES[type_.unit] if pa.types.is_timestamp(type_) else MICROSECONDS
        try:
            numbers = present.cast(pa.int64())
        except pa.ArrowInvalid:  # unsigned numbers that are no times
            numbers = pc.min_element_wise(present, pa.scalar(2**63 - 1, type_)).cast(pa.int64())
        return RawTimes(unit, np.asarray(numbers.to_numpy(), np.int64), valid, type_=unread)
    if pa.types.is_null(type_):
        return RawTimes(MICROSECONDS, np.zeros(0, np.int64), valid)
    raise InputError(
        Code.WRONG_TYPE,
        f"time column {name!r} is {given}",
        "give a timestamp column or int64 microseconds (`whenabouts profile` parses text in files)",
    )


def _instants(dates: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates as timestamps; what microseconds cannot hold lies just outside the calendar."""
    us_each = 86_400_000_000 if pa.types.is_date32(dates.type) else 1_000
    numbers = np.asarray(dates.cast(pa.int32() if pa.types.is_date32(dates.type) else pa.int64()).to_numpy(), np.int64)
    us = np.clip(numbers, FIRST_US // us_each - 1, LAST_US // us_each + 1) * us_each
    return pa.chunked_array([pa.array(us, pa.timestamp("us"))])


def settled(raw: RawTimes, rows: IntArray, name: str) -> Settled:
    """Times in microseconds, and findings on the column's type, unit, and sentinels; `rows`: which rows are valid."""
    numbers = raw.numbers
    if not len(numbers):
        return Settled(np.zeros(0, np.int64), np.zeros(0, bool), [])
    found = verdict(raw, unit_counts(numbers), len(numbers), name)
    us, kept, odd = found.read(numbers)
    findings = list(found.findings)
    for kind, what, mask in odd:
        if mask.any():
            findings.append(found.finding(kind, what, float(mask.mean()), examples(rows, mask)))
    return Settled(us[kept], kept, findings, found.tick_us)


def unit_counts(numbers: IntArray | FloatArray) -> dict[str, int]:
    """How many numbers look like each unit."""
    return {unit: int(np.count_nonzero(_inside(numbers, unit))) for unit in YEARS}


def verdict(raw: RawTimes, counts: Mapping[str, int], rows: int, name: str) -> Verdict:
    """How `rows` numbers are to be read, of which `raw` has all or a random sample, one at least; `counts` of all are
    those of `unit_counts`.

    The unit is the one in which the median lies in the years 1990 to 2100; the ranges of the units are disjoint. If it
    lies in none, the times are taken as declared.
    """
    findings: list[Finding] = []
    numbers = raw.numbers
    certain = (numbers != 0) & (numbers != -1)
    # One of the numbers: between two units it would be of neither.
    median = float(np.quantile(numbers[certain] if certain.any() else numbers, 0.5, method="higher"))
    unit = next((each for each, (low, high) in YEARS.items() if low <= median <= high), None)
    declared = raw.unit
    tick_us = 0.0
    if raw.floats is not None:
        unit = declared = unit if unit in _PER_SECOND else "seconds"
        tick_us = _float_finding(raw, unit, median, findings, name)
    if raw.type_ is not None:
        findings.append(
            Finding(
                "type", "wrong", 1.0, (), f"Column {name!r} is {raw.type_}, which joins do not read as a time.",
                "Make it a timestamp, or int64 microseconds.",
            )
        )  # fmt: skip
    found = Verdict(declared, unit, median, tick_us, (), (), tuple(findings))
    if 2 * sum(counts.values()) > rows:  # else they are times of other years
        found = replace(found, units=_mixture(counts, rows, unit or declared, found.read_as))
    us, kept, _ = found.read(numbers)
    return replace(found, sentinels=_sentinels(numbers, us, kept, 1e6 / _PER_SECOND[found.read_as]))


def _mixture(counts: Mapping[str, int], rows: int, unit: str, read_as: str) -> tuple[str, ...]:
    """The units that rows look like, if they are several.

    >>> _mixture({"seconds": 99, "milliseconds": 0, "nanoseconds": 1}, 100, "seconds", "seconds")
    ('seconds', 'nanoseconds')
    >>> _mixture({"seconds": 1, "milliseconds": 99}, 100, "milliseconds", "milliseconds")
    ()
    """
    others = [each for each in YEARS if counts.get(each) and each != unit]
    if sum(counts[each] for each in others) == 1 and rows >= _ALONE:
        # Read in a coarser unit, the single one would be a time after the year 9999.
        others = [each for each in others if _PER_SECOND.get(each, 0) > _PER_SECOND[read_as]]
    return tuple(each for each in YEARS if each in others or (each == unit and counts.get(each))) if others else ()


def _inside(numbers: IntArray | FloatArray, unit: str) -> BoolArray:
    low, high = YEARS[unit]
    return (numbers >= low) & (numbers <= high)


def _year(median: float, unit: str) -> str:
    if unit == DATES:
        return str(int(median) // 10_000)
    return str((_EPOCH + timedelta(seconds=median / _PER_SECOND[unit])).year)


def _float_finding(raw: RawTimes, unit: str, median: float, findings: list[Finding], name: str) -> float:
    spacing = float(np.spacing(np.float32(median))) if raw.narrow else float(np.spacing(np.float64(median)))
    tick_us = abs(spacing) * 1e6 / _PER_SECOND[unit]
    what = "single precision" if raw.narrow else "floats"
    findings.append(
        Finding(
            "float", "wrong", 1.0, (),
            f"Column {name!r} holds {what}, read as {unit}: neighbouring values are {format_duration(tick_us)} apart.",
            "Make it a timestamp where it is written.",
        )
    )  # fmt: skip
    return tick_us if tick_us > 1 else 0.0


def _microseconds(numbers: IntArray | FloatArray, per_second: int) -> tuple[IntArray, BoolArray]:
    """Numbers of a unit in microseconds, and which lie outside the years 1 to 9999 (they have the value 0).

    >>> [found.tolist() for found in _microseconds(np.array([253_402_300_799, 253_402_300_800, 2**62]), 1)]
    [[253402300799000000, 0, 0], [False, True, True]]
    """
    first, last = FIRST_US * per_second / 1e6, LAST_US * per_second / 1e6
    outside = (numbers < first) | (numbers > last)  # but for the rounding of the ends
    if outside.any():
        numbers = np.where(outside, 0, numbers)
    if numbers.dtype == np.float64:
        us = np.rint(numbers * (1e6 / per_second)).astype(np.int64)
    else:
        us = numbers.astype(np.int64, copy=False)
        us = us // (per_second // 1_000_000) if per_second > 1_000_000 else us * (1_000_000 // per_second)
    beyond = (us < FIRST_US) | (us > LAST_US)
    return (np.where(beyond, 0, us), outside | beyond) if beyond.any() else (us, outside)


def _sentinels(numbers: IntArray | FloatArray, us: IntArray, kept: BoolArray, us_each: float) -> tuple[Sentinel, ...]:
    """Named values, and frequent single values, that lie far from all other times; there need not be rows of the
    former. `us_each`: the unit in microseconds."""
    named = [Sentinel("0", 0, None), Sentinel("-1", -1, None)]
    named += [Sentinel(name, None, value) for value, name in _SENTINELS_US.items() if value]
    others = kept.copy()
    for each in named:
        others &= us != each.us if each.number is None else numbers != each.number
    for value in _frequent(us[others], np.count_nonzero(kept)):
        label = str(_EPOCH + timedelta(microseconds=value)).removesuffix("+00:00")
        named.append(Sentinel(label, None, value))
        others &= us != value
    rest = us[others]
    if not len(rest):
        return tuple(named)
    low, high = (int(q) for q in np.quantile(rest, (0.01, 0.99), method="nearest"))
    low, high = low - (high - low), high + (high - low)
    return tuple(
        each for each in named if not low <= (each.us if each.us is not None else (each.number or 0) * us_each) <= high
    )


def _frequent(us: IntArray, rows: int) -> list[int]:
    """Single values that hold at least 1 % of the rows and over 20 times those of the next most frequent value."""
    if len(us) < 2:
        return []
    ordered = np.sort(us)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.append(starts, len(ordered)))
    if len(counts) < 3:
        return []
    first, second = np.argsort(-counts, kind="stable")[:2]
    if counts[first] >= max(_FREQUENT * rows, 2) and counts[first] > _MORE_FREQUENT * counts[second]:
        return [int(ordered[starts[first]])]
    return []
