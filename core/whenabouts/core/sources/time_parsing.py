"""Parses times as files hold them: text, naive timestamps, dates, integers in another unit.

The core reads only TIMESTAMP and int64 microseconds. Text is parsed here, all rows at once. Rows whose text is not a
time are returned, to be rejected with WA-1009 and their original text.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.ticks import PER_SECOND, as_ticks
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.arrays.value_texts import iso_texts
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.option_checks import counted
from whenabouts.core.runtime.time_columns import FIRST_US, LAST_US, digits_cut
from whenabouts.core.times.time_units import UnitCounts, listed

UTC_US = pa.timestamp("us", "UTC")

NULL_WORDS = pa.array(["", "na", "n/a", "nan", "nat", "null", "none", "#n/a"])
"""Text that means null (lower case, trimmed): rejected with WA-1003, not WA-1009."""

_ISO = (
    r"^(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"
    r"(?:[Tt ](?P<hour>\d{2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:[.,](?P<fraction>\d+))?)?)?"
    r" ?(?P<zone>[Zz]|[+-]\d{2}(?::?\d{2})?)?)?$"
)
_FINER = r"[.,]\d{6}\d*[1-9]"
_INTEGER = r"^[+-]?\d{1,19}$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"

_UNIT_NAMES = {"seconds": "s", "milliseconds": "ms", "nanoseconds": "ns"}


@dataclass(frozen=True, slots=True)
class ClockRules:
    """How to read times without a zone, and integers.

    `zone`: the zone of naive times (None: UTC). `unit`: the unit of integers since 1970 (None: microseconds, after a
    plausibility check). Raises QueryError WA-2006 for an unknown zone.
    """

    zone: str | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.zone is not None:
            try:
                pc.assume_timezone(pa.array([0], pa.timestamp("us")), self.zone)
            except (pa.ArrowInvalid, ValueError) as error:
                raise QueryError(
                    Code.BAD_OPTION, f"time zone {self.zone!r} is not known", "e.g. --time-zone Europe/Berlin"
                ) from error


@dataclass(slots=True)
class ParsingCounts:
    """Counts per column for notes to the user after reading: naive, ambiguous or skipped, and truncated times."""

    naive: Counter[str] = field(default_factory=Counter)
    off_clock: Counter[str] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)

    def notes(self, name: str, zone: str | None) -> list[str]:
        """The notes as sentences."""
        notes = [
            f"{counted(n, 'time')} in column {column!r} of {name} {'has' if n == 1 else 'have'} no zone: read as UTC "
            "(--time-zone says otherwise)"
            for column, n in self.naive.items()
            if zone is None
        ]
        notes += [
            f"{counted(n, 'time')} in column {column!r} of {name} {'is' if n == 1 else 'are'} finer than a "
            f"microsecond: finer digits were cut ({Code.DIGITS_CUT})"
            for column, n in self.cut.items()
        ]
        return notes + [
            f"{counted(n, 'time')} in column {column!r} of {name} {'is' if n == 1 else 'are'} ambiguous or skipped on "
            f"the clocks of {zone}: the earliest instant was taken, for the t_max of an interval the latest"
            for column, n in self.off_clock.items()
        ]


class ParsedTimes(NamedTuple):
    """A table whose time columns the core can read, and the lost rows: as in `raw`, and their row numbers there.

    `text_columns`: columns that were text, or are text in lost rows. `outside[i]`: the i-th lost row has a time outside
    the years 1 to 9999.
    """

    table: pa.Table
    unparsable: pa.Table
    text_columns: tuple[str, ...]
    lost: IntArray
    outside: BoolArray


def parse_times(
    raw: pa.Table, columns: tuple[str, ...], clock: ClockRules, found: ParsingCounts, source: str
) -> ParsedTimes:
    """Parse the time `columns` of `raw` for the core. O(rows).

    Text becomes timestamp[us, UTC] (or int64 if it is integers). Naive timestamps and dates are converted to UTC from
    the clock's zone. Integers get the clock's unit. Dates, and integers with a unit, outside the years 1 to 9999 are
    lost with their text, since no microsecond timestamp holds them. `source` names the file in errors. A missing
    column, or one that is not a time, is left to the core's own error.

    Raises: InputError WA-1002 for integers that are clearly not microseconds, and for text with decimal fractions.
    """
    table, text_columns = raw, []
    unparsable, outside = np.zeros(raw.num_rows, bool), np.zeros(raw.num_rows, bool)
    for position, column in enumerate(dict.fromkeys(columns)):
        at = table.schema.get_field_index(column)
        if at < 0:
            continue
        latest = position == 1
        values = _decoded(table.column(at))
        if _is_text(values.type):
            text_columns.append(column)
            values, bad = _read_text(values, column, clock, found, source, latest)
            unparsable |= bad
        far = _outside(values, clock)
        if far.any():
            if column not in text_columns:
                text_columns.append(column)
                raw = raw.set_column(at, column, _in_words(values))
            outside |= far
            values = pc.if_else(pa.array(~far), values, pa.scalar(None, values.type))
        settled = _settle_typed(values, column, clock, found, source, latest)
        found.cut += Counter({column: digits_cut(settled)})
        table = table.set_column(at, column, settled)
    bad = unparsable | outside
    lost = np.flatnonzero(bad)
    if not len(lost):
        return ParsedTimes(table, raw.slice(0, 0), tuple(text_columns), lost, np.zeros(0, bool))
    kept, rejected = table.filter(pa.array(~bad)), raw.filter(pa.array(bad))
    return ParsedTimes(kept, rejected, tuple(text_columns), lost, ~unparsable[lost])


def _outside(values: pa.ChunkedArray, clock: ClockRules) -> BoolArray:
    """Which dates, or integers with a unit, are outside the years 1 to 9999."""
    type_ = values.type
    if pa.types.is_date(type_):
        ticks, per_second = as_ticks(values), Fraction(1, 86_400) if pa.types.is_date32(type_) else Fraction(1_000)
    elif pa.types.is_integer(type_) and clock.unit not in (None, "us"):
        ticks, per_second = values, Fraction(PER_SECOND[clock.unit])
    else:
        return np.zeros(len(values), bool)
    numbers = np.asarray(ticks.fill_null(0).to_numpy())
    first, last = (int(us * per_second // 1_000_000) for us in (FIRST_US, LAST_US))
    if numbers.dtype == np.uint64:
        return numbers > np.uint64(min(last, 2**63 - 1))
    numbers = numbers.astype(np.int64)
    return (numbers < max(first, -(2**63))) | (numbers > min(last, 2**63 - 1))


def _in_words(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_date(values.type):
        return values.cast(pa.string())
    return pa.chunked_array([iso_texts(chunk) for chunk in values.chunks], pa.string())


def _settle_typed(
    values: pa.ChunkedArray, column: str, clock: ClockRules, found: ParsingCounts, source: str, latest: bool
) -> pa.ChunkedArray:
    type_ = values.type
    if pa.types.is_date(type_):
        values = values.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(values.type) and values.type.tz is None:
        return _in_zone(values, column, clock, found, latest)
    if pa.types.is_integer(type_) and clock.unit is not None:
        return values if clock.unit == "us" else values.cast(pa.int64()).cast(pa.timestamp(clock.unit, "UTC"))
    if pa.types.is_int64(type_):
        _refuse_foreign_unit(values, column, source)
    return values


def _read_text(
    text: pa.ChunkedArray, column: str, clock: ClockRules, found: ParsingCounts, source: str, latest: bool
) -> tuple[pa.ChunkedArray, BoolArray]:
    """Text as timestamps, or as int64 if most of it is integers, and which rows could not be parsed."""
    trimmed = pc.utf8_trim_whitespace(text.combine_chunks().cast(pa.string()))
    trimmed = trimmed.combine_chunks() if isinstance(trimmed, pa.ChunkedArray) else trimmed
    missing = pc.is_in(pc.utf8_lower(trimmed), value_set=NULL_WORDS)
    trimmed = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    null = _flags(trimmed.is_null())
    integer = _flags(pc.match_substring_regex(trimmed, _INTEGER))
    number = _flags(pc.match_substring_regex(trimmed, _NUMBER))
    written = len(trimmed) - int(null.sum())
    if number.sum() * 2 > written and integer.sum() < number.sum() - integer.sum():
        example = _first(trimmed, number & ~integer)
        raise InputError(
            Code.WRONG_TYPE,
            f"time column {column!r} of {source} has decimal fractions, e.g. {example!r}",
            "floats cannot hold a time exactly: write ISO 8601, or whole numbers (with --time-unit)",
        )
    if integer.sum() * 2 > written:
        numbers, ok = _integers(trimmed, integer)
        return pa.chunked_array([pa.array(numbers, pa.int64(), mask=~ok)]), ~null & ~ok
    uniform = _parse_uniform(trimmed)
    us, zoned, ok = uniform or _parse_iso(trimmed)
    if uniform is None:  # Arrow parses no time with more than six digits
        found.cut += Counter({column: int((_flags(pc.match_substring_regex(trimmed, _FINER)) & ok).sum())})
    aware = pa.array(us, pa.int64(), mask=~ok).cast(UTC_US)
    if (ok & ~zoned).any():
        naive = pa.chunked_array([pa.array(us, pa.int64(), mask=~ok | zoned).cast(pa.timestamp("us"))])
        local = _in_zone(naive, column, clock, found, latest).combine_chunks()
        aware = pc.if_else(pa.array(zoned), aware, local)
    return pa.chunked_array([aware], UTC_US), ~null & ~ok


def _integers(text: pa.Array, candidate: BoolArray) -> tuple[IntArray, BoolArray]:
    """The candidates as int64; if some with 19 digits do not fit, each is converted by itself."""
    digits = pc.if_else(pa.array(candidate), pc.replace_substring_regex(text, r"^\+", ""), pa.scalar("0"))
    try:
        return np.asarray(digits.cast(pa.int64()).to_numpy(zero_copy_only=False)), candidate
    except pa.ArrowInvalid:
        exact = [int(value) for value in digits.to_pylist()]
        fits = np.array([-(2**63) <= value < 2**63 for value in exact], bool)
        return np.array([v if f else 0 for v, f in zip(exact, fits, strict=True)], np.int64), candidate & fits


def _parse_uniform(text: pa.Array) -> tuple[IntArray, BoolArray, BoolArray] | None:
    """As `_parse_iso`, ten times faster, if Arrow can cast all rows: all naive, or all with a zone. Otherwise None."""
    for zoned in (False, True):
        try:
            parsed = text.cast(UTC_US if zoned else pa.timestamp("us"))
        except pa.ArrowInvalid:
            continue
        us = np.asarray(parsed.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
        ok = _flags(parsed.is_valid())
        return us, ok & zoned, ok
    return None


def _parse_iso(text: pa.Array) -> tuple[IntArray, BoolArray, BoolArray]:
    """Microseconds (local time without a zone, else UTC), whether a zone was given, and whether it is a time.

    Digits finer than a microsecond are cut, as in the core.
    """
    parts = pc.extract_regex(text, _ISO)
    ok = _flags(parts.is_valid())
    fields: dict[str, Any] = {
        parts.type.field(i).name: parts.field(i).fill_null("") for i in range(parts.type.num_fields)
    }
    year, month, day = _number(fields["year"]), _number(fields["month"]), _number(fields["day"])
    hour, minute, second = _number(fields["hour"]), _number(fields["minute"]), _number(fields["second"])
    micros = _number(pc.utf8_slice_codeunits(pc.utf8_rpad(fields["fraction"], 6, "0"), 0, 6))
    ok &= (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    months = (year - 1970) * 12 + np.where(ok, month - 1, 0)
    first, after = (m.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for m in (months, months + 1))
    ok &= (day >= 1) & (day <= after - first)
    zone = fields["zone"]
    zoned = np.asarray(pc.not_equal(zone, "").to_numpy(zero_copy_only=False), bool) & ok
    digits = pc.replace_substring_regex(zone, "[^0-9]", "")
    offset_h = _number(pc.utf8_slice_codeunits(digits, 0, 2))
    offset_m = _number(pc.utf8_slice_codeunits(digits, 2, 4))
    ok &= (offset_h < 24) & (offset_m < 60)
    west = np.asarray(pc.starts_with(zone, "-").to_numpy(zero_copy_only=False), bool)
    offset = np.where(west, -1, 1) * (offset_h * 60 + offset_m)
    minutes = (first + day - 1) * 1440 + hour * 60 + minute - offset
    return (minutes * 60 + second) * 1_000_000 + micros, zoned & ok, ok


def _in_zone(
    values: pa.ChunkedArray, column: str, clock: ClockRules, found: ParsingCounts, latest: bool
) -> pa.ChunkedArray:
    """Naive times as instants by the zone's rules; where clocks repeat or skip an hour, the earliest or latest one."""
    found.naive[column] += len(values) - values.null_count
    if clock.zone is None:
        return values.cast(pa.timestamp(values.type.unit, "UTC"))
    early, late = (
        pc.assume_timezone(values, clock.zone, ambiguous=choice, nonexistent=choice).cast(
            pa.timestamp(values.type.unit, "UTC")
        )
        for choice in ("earliest", "latest")
    )
    twice = int(pc.sum(pc.not_equal(early, late)).as_py() or 0)
    if twice:
        found.off_clock[column] += twice
    return late if latest else early


def _refuse_foreign_unit(values: pa.ChunkedArray, column: str, source: str) -> None:
    """Refuse integers if most of them look like times of 1990 to 2100 in another unit than microseconds."""
    counts = UnitCounts()
    for chunk in values.chunks:
        counts.count(chunk)
    likely = counts.likely()
    if not likely:
        return
    holds = f"time column {column!r} of {source} holds integers such as {counts.example}"
    first, *others = likely
    if others:
        what = f"{holds}, which are of several units: {likely[first]:,} of {counts.values:,} look like {listed(likely)}"
        fix = "write them in one unit; `whenabouts profile` shows rows of each"
    else:
        name = _UNIT_NAMES.get(first)
        since = " since 1970" if name else ""
        what = f"{holds}, most of which look like {first}{since} and not like microseconds"
        fix = f"give --time-unit {name}" if name else "write them as 2024-01-31"
    raise InputError(Code.WRONG_TYPE, what, f"{fix} (or --time-unit us if they are microseconds after all)")


def _decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _flags(mask: pa.Array) -> BoolArray:
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _number(digits: pa.Array) -> IntArray:
    filled = pc.if_else(pc.equal(digits, ""), "0", digits)
    return np.asarray(filled.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _first(text: pa.Array, where: BoolArray) -> str:
    return str(text[int(np.argmax(where))].as_py())
