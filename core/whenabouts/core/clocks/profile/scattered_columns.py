"""Columns of more rows than are profiled whole, or of rows in other processes: exact counts, and a sample.

Two functions are applied to the rows where they are, part by part, and what they return is merged here. `Look` counts
the numbers of each unit and draws a uniform sample, which says how numbers are to be read, and where to cut the span
into stretches. `Tally` counts what `Verdict` and the classes of granularities need, and returns all rows of these
stretches: polls, duplicates, outages, order and steps show in rows that follow each other, not in random ones.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.plain_types import plain_type
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.clocks.profile.gaps import Outage, outages
from whenabouts.core.clocks.profile.granules import the_lattice
from whenabouts.core.clocks.profile.group_keys import key_values
from whenabouts.core.clocks.profile.units import RawTimes, Verdict, raw_times, unit_counts, verdict

Batches = Iterator[pa.RecordBatch]
_DRAWN = 1 << 16
"""Numbers of the uniform sample."""

STRETCHES = 16
"""The sample is of so many stretches of time, each with as many rows."""

_PART = b"part"


def rows_of(batches: Batches) -> Iterator[bytes]:
    """All rows, as bytes."""
    for batch in batches:
        yield _bytes(pa.Table.from_batches([batch]), {})


def read_bytes(data: bytes) -> pa.Table:
    """A table that was made into bytes here."""
    return pa.ipc.open_stream(data).read_all()


class Looked(NamedTuple):
    """What `Look` finds of a column: all rows, those with a number, how many look like each unit, and a sample.

    `drawn`: the sample's numbers, by a `priority` that was drawn, and for the first column their groups.
    """

    rows: int
    valid: int
    units: Counter[str]
    narrow: bool
    drawn: pa.Table

    def __add__(self, other: Looked) -> Looked:  # type: ignore[override]
        both = pa.concat_tables([self.drawn, other.drawn])
        first = np.argsort(both.column("priority").to_numpy(), kind="stable")[:_DRAWN]
        return Looked(
            self.rows + other.rows, self.valid + other.valid, self.units + other.units, self.narrow and other.narrow,
            both.take(pa.array(first)),
        )  # fmt: skip

    @property
    def numbers(self) -> IntArray | FloatArray:
        """Those of the sample."""
        return np.asarray(self.drawn.column("number").to_numpy())

    def raw(self, empty: RawTimes) -> RawTimes:
        """The sample as a column of the type of `empty`."""
        valid = np.ones(len(self.numbers), bool)
        if empty.floats is None:
            return replace(empty, ticks=self.numbers.astype(np.int64), valid=valid)
        return replace(empty, floats=self.numbers.astype(np.float64), valid=valid, narrow=self.narrow)


@dataclass(frozen=True)
class Look:
    """The first function: a `Looked` for each column of times; groups follow them. Its draws depend on `seed` and on
    the rows."""

    times: tuple[str, ...]
    seed: int

    def __call__(self, batches: Batches) -> Iterator[bytes]:
        """What was looked up of one part."""
        found: dict[str, list[Looked]] = {name: [] for name in self.times}
        for batch in batches:
            for at, name in enumerate(self.times):
                raw = raw_times(pa.chunked_array([batch.column(at)]), name)
                seed = [self.seed, at, zlib.crc32(raw.numbers.tobytes())]
                drawn = np.random.default_rng(seed).random(len(raw.numbers))
                few = np.argpartition(drawn, _DRAWN)[:_DRAWN] if len(drawn) > _DRAWN else np.arange(len(drawn))
                columns = {"priority": drawn[few], "number": raw.numbers[few]}
                if at == 0:
                    columns |= _groups(batch, len(self.times), np.flatnonzero(raw.valid)[few])
                counts = Counter(unit_counts(raw.numbers))
                one = Looked(batch.num_rows, len(drawn), counts, raw.narrow, pa.table(columns))
                found[name] = [sum_of([*found[name], one])]
        for name, parts in found.items():
            for part in parts:
                header = {"rows": part.rows, "valid": part.valid, "units": part.units, "narrow": part.narrow}
                yield _bytes(part.drawn, {"column": name, **header})

    def merged(self, parts: Iterable[bytes]) -> dict[str, Looked]:
        """What was looked up of all rows; without a column of which there are no rows."""
        found: dict[str, list[Looked]] = {}
        for data in parts:
            table = read_bytes(data)
            header = _header(table)
            drawn = table.replace_schema_metadata(None)
            one = Looked(header["rows"], header["valid"], Counter(header["units"]), header["narrow"], drawn)
            found[header["column"]] = [sum_of([*found.get(header["column"], []), one])]
        return {name: each for name, (each,) in found.items()}


def sum_of(parts: Sequence[Looked]) -> Looked:
    """All of them as one."""
    return reduce(Looked.__add__, parts)


class Counted(NamedTuple):
    """Usable rows, counted: how many, the first and last time, how many are in each class of granularities."""

    rows: int
    span_us: tuple[int, int]
    classes: IntArray

    def __add__(self, other: Counted) -> Counted:  # type: ignore[override]
        span = min(self.span_us[0], other.span_us[0]), max(self.span_us[1], other.span_us[1])
        return Counted(self.rows + other.rows, span, self.classes + other.classes)


@dataclass(frozen=True)
class Known:
    """What is known of rows of which those of some `stretches` were read: counts of all, and times of a `uniform`
    sample, which may be empty."""

    counted: Counted
    stretches: tuple[tuple[int, int], ...]
    uniform: IntArray

    def outages(self, distinct: IntArray) -> list[Outage]:
        """Stretches without rows: short ones inside the stretches, whose distinct times are given, and anywhere those
        that show in the uniform sample, whose ends are times of the sample."""
        drawn = np.unique(self.uniform)
        long = outages(drawn, len(drawn))
        short = [
            gap for gap in outages(distinct, len(distinct))
            if any(start <= gap.start_us and gap.end_us <= end for start, end in self.stretches)
        ]  # fmt: skip
        apart = [
            gap for gap in long if not any(gap.start_us < each.end_us and each.start_us < gap.end_us for each in short)
        ]
        return sorted([*short, *apart])

    def fullest(self, distinct: IntArray) -> IntArray:
        """The times of the stretch that has most of them: there are no rows between them that were not read."""
        parts = [distinct[slice(*np.searchsorted(distinct, (start, end + 1)))] for start, end in self.stretches]
        return max(parts, key=len)


def total_of(parts: Iterable[Counted]) -> Counted:
    """All of them as one."""
    return reduce(
        Counted.__add__, parts, Counted(0, (2**63 - 1, -(2**63)), np.zeros(len(the_lattice().multiples), np.int64))
    )


@dataclass(frozen=True)
class Tally:
    """The second function: how many rows are odd, usable rows by group and class, and the rows of some stretches.

    `times`: how the columns are read of the time and, if there is one, the time of arrival; groups follow them.
    `stretches`: from and to in microseconds, ascending.
    """

    times: tuple[tuple[str, Verdict], ...]
    stretches: tuple[tuple[int, int], ...]

    def __call__(self, batches: Batches) -> Iterator[bytes]:
        """What was counted of one part."""
        odd: Counter[int] = Counter()
        unknown = 0
        counts: list[pa.Table] = []
        for batch in batches:
            us, row, masks = _usable(batch.column(0), *self.times[0])
            odd.update({at: int(mask.mask.sum()) for at, mask in enumerate(masks)})
            columns = {"us": us}
            for name, how in self.times[1:]:
                arrived, known, _ = _usable(batch.column(1), name, how)
                at = np.searchsorted(known, row)
                there = np.zeros(len(row), bool)
                there[at < len(known)] = known[at[at < len(known)]] == row[at < len(known)]
                unknown += int(np.count_nonzero(~there))
                row = row[there]
                columns = {"us": us[there], "arrival": arrived[at[there]]}
            groups = _groups(batch, len(self.times), row)
            counts = [_grouped([*counts, _classes(columns["us"], groups)])]
            taken = self._within(columns["us"])
            sample = pa.table({**{name: values[taken] for name, values in columns.items()}})
            for name, values in groups.items():
                sample = sample.append_column(name, values.take(pa.array(taken)))
            yield _bytes(sample, {"sample": True})
        for table in counts:
            yield _bytes(table, {"sample": False, "odd": list(odd.items()), "unknown": unknown})

    def _within(self, us: IntArray) -> IntArray:
        starts, ends = (np.array(each, np.int64) for each in zip(*self.stretches, strict=True))
        at = np.searchsorted(starts, us, side="right") - 1
        return np.flatnonzero((at >= 0) & (us <= ends[at]))

    def merged(self, parts: Iterable[bytes]) -> Tallied:
        """What was counted of all rows."""
        odd: Counter[int] = Counter()
        unknown = 0
        counts, samples = [], []
        for data in parts:
            table = read_bytes(data)
            header = _header(table)
            if header["sample"]:
                samples.append(table)
                continue
            odd.update(dict(header["odd"]))
            unknown += header["unknown"]
            counts.append(table)
        return Tallied(odd, unknown, _grouped(counts), pa.concat_tables(samples).replace_schema_metadata(None))


class Tallied(NamedTuple):
    """What `Tally` found: odd rows by their position in `Verdict.read`, usable rows without a time of arrival, counts
    by group and class, and the rows of the stretches."""

    odd: Counter[int]
    unknown: int
    counts: pa.Table
    sample: pa.Table

    def by_group(self) -> Iterator[tuple[tuple[Any, ...], Counted]]:
        """The counts of each group."""
        lattice = the_lattice()
        names = [name for name in self.counts.column_names if name.startswith("g")]
        keys = zip(*(key_values(self.counts.column(name)) for name in names), strict=True)
        places: dict[tuple[Any, ...], list[int]] = {}
        for at, key in enumerate(keys if names else [()] * self.counts.num_rows):
            places.setdefault(key, []).append(at)
        classes, n, first, last = (
            np.asarray(self.counts.column(name).to_numpy()) for name in ("class", "n", "first", "last")
        )
        for key, rows in places.items():
            found = np.bincount(classes[rows], n[rows], len(lattice.multiples)).astype(np.int64)
            yield key, Counted(int(n[rows].sum()), (int(first[rows].min()), int(last[rows].max())), found)


def stretches_of(us: IntArray, share: float) -> tuple[tuple[int, int], ...]:
    """Stretches of time that hold about this share of the rows together, in equal parts, evenly among the rows.

    `us`: a uniform sample. Where times are few and coarse, so that a stretch holds far more, there are fewer stretches.

    >>> stretches_of(np.arange(1_000), 0.32)[:2]
    ((21, 41), (83, 103))
    """
    ordered = np.sort(us)
    middles = (np.arange(STRETCHES) + 0.5) / STRETCHES
    half = share / STRETCHES / 2
    ends = [
        (int(ordered[int(max(0.0, middle - half) * (len(us) - 1))]), int(ordered[int((middle + half) * (len(us) - 1))]))
        for middle in middles.tolist()
    ]
    joined: list[tuple[int, int]] = []
    for start, end in ends:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    middle_first = sorted(joined, key=lambda each: abs(joined.index(each) - len(joined) // 2))
    kept: list[tuple[int, int]] = []
    held = 0
    for start, end in middle_first:
        held += int(np.searchsorted(ordered, end, "right") - np.searchsorted(ordered, start))
        if kept and held > 2 * share * len(us) + STRETCHES:
            break
        kept.append((start, end))
    return tuple(sorted(kept))


def verdict_of(looked: Looked, empty: RawTimes, name: str) -> Verdict:
    """How a column of the type of `empty` is read, by its sample."""
    return verdict(looked.raw(empty), looked.units, looked.valid, name)


def _usable(column: pa.Array, name: str, how: Verdict) -> tuple[IntArray, IntArray, list[Any]]:
    """The times of a batch, their rows, and the odd ones."""
    raw = raw_times(pa.chunked_array([column]), name)
    us, kept, odd = how.read(raw.numbers)
    return us[kept], np.flatnonzero(raw.valid)[kept], odd


def _groups(batch: pa.RecordBatch, times: int, rows: IntArray) -> dict[str, pa.Array]:
    """The groups of some rows of a batch, whose first columns are times."""
    return {
        f"g{at}": values.cast(plain_type(values.type)).take(pa.array(rows))
        for at, values in enumerate(batch.columns[times:])
    }


def _classes(us: IntArray, groups: dict[str, pa.Array]) -> pa.Table:
    lattice = the_lattice()
    times = {"class": lattice.classes(us), "n": np.ones(len(us), np.int64), "first": us, "last": us}
    return pa.table({**times, **groups})


def _grouped(tables: Sequence[pa.Table]) -> pa.Table:
    """Counts by group and class, added up."""
    whole = pa.concat_tables([table.replace_schema_metadata(None) for table in tables])
    keys = ["class", *(name for name in whole.column_names if name.startswith("g"))]
    found = whole.group_by(keys).aggregate([("n", "sum"), ("first", "min"), ("last", "max")])
    given = found.rename_columns([name.split("_")[0] for name in found.column_names])
    return given.select(whole.column_names)


def _bytes(table: pa.Table, header: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({_PART: json.dumps(header).encode()})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _header(table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(table.schema.metadata[_PART])
    return found
