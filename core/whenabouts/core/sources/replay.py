"""Replays event files as a stream: rows in order of arrival, at a given pace, resumable from any row.

It serves experiments and tests. An engine's adapter asks which rows are due, and its workers read them in slices.
Arrival depends only on the files and the settings:

    a row arrives at `t_max`, its last possible time, plus a delay;
    the delay is uniform in [0, disorder], drawn from the seed and the row's number in the files.

So a row's `t_max` is never more than `disorder` behind the greatest one before it, and with a lateness of `disorder` no
row is late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core.arrays.record_batches import take_table, take_values
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.blocks import times
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.sources.files import (
    cast_to,
    check_distinct,
    find_files,
    format_of,
    open_parquet,
    read_file,
    unified,
)
from whenabouts.core.sources.pushdown import Predicate, groups_ruled_out
from whenabouts.core.sources.time_parsing import UTC_US, ClockRules, ParsingCounts, parse_times
from whenabouts.core.state.segment_codec import fingerprint
from whenabouts.core.times.time_specs import Interval, Point, TimeSpec

ROWS_PER_SLICE = 1 << 17
"""Rows per slice: bounds a worker's memory, and is enough for full batches."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How event files are replayed.

    `path`: a file, a folder or a glob of Parquet, CSV and JSON lines. `time`: the time specification; if it is more
    than plain columns (`from_granularity`, `from_latency`, a histogram, ...), the columns `bounds` are added, with the
    first and the last instant at which the event can have happened. `disorder`, `seed`: see the module's docstring.
    `rows_per_second` releases rows at that rate in wall-clock time, `speed` that many seconds of event time per second;
    without either, all rows are due at once. `rules`: zone and unit of times that do not state them.

    Raises QueryError: WA-2002 and WA-2003 for the disorder, WA-2006 for an invalid pace, or two of them.

    >>> Replay(path="quakes.csv", time=Point("t"), disorder="5 s", seed=7).disorder_us
    5000000
    """

    path: str
    time: TimeSpec
    bounds: tuple[str, str] = ("t_min", "t_max")
    disorder: Duration = 0
    seed: int = 0
    rows_per_second: float | None = None
    speed: float | None = None
    rules: ClockRules = field(default_factory=ClockRules)

    def __post_init__(self) -> None:
        object.__setattr__(self, "disorder", parse_non_negative(self.disorder, name="disorder"))
        paces = {"rowsPerSecond": self.rows_per_second, "speed": self.speed}
        for name, pace in paces.items():
            if pace is not None and not 0 < pace < float("inf"):
                raise QueryError(Code.BAD_OPTION, f"{name} is {pace}", "give a number above zero")
        if None not in paces.values():
            raise QueryError(Code.BAD_OPTION, "rowsPerSecond and speed are both given", "give one of them")

    @property
    def disorder_us(self) -> int:
        """The greatest delay of a row, in microseconds."""
        return parse_duration(self.disorder)

    @property
    def adds_bounds(self) -> bool:
        """Whether rows get the columns `bounds`."""
        return not isinstance(self.time, (Point, Interval))

    def open(self) -> EventFiles:
        """Find the files and their common schema. Cost: metadata of Parquet files; text files are read once.

        Raises InputError WA-1008 for unreadable files, WA-1001 and WA-1002 for files that disagree or lack the time
        columns, QueryError WA-2009 for two columns with the same name.
        """
        paths, _ = find_files(self.path)
        files = [_described(path, self) for path in paths]
        for file in files:
            check_distinct(file.path, file.schema.names)
        typed = [file for file in files if file.rows] or files[:1]  # a file without rows does not show types
        schema = typed[0].schema
        for file in typed[1:]:
            schema = unified(schema, file.schema, typed[0].path, file.path)
        EventReader(0, "replayed", schema, self.time)
        clash = set(self.bounds) & set(schema.names)
        if self.adds_bounds:
            if clash:
                raise QueryError(
                    Code.COLUMN_CLASH,
                    f"the files already have a column {min(clash)!r}",
                    "give other names for the added columns: bounds=from,to",
                )
            schema = pa.schema([*schema, *(pa.field(name, UTC_US) for name in self.bounds)])
        return EventFiles(self, schema, tuple(chunk for file in files for chunk in file.chunks))


class Chunk(NamedTuple):
    """The unit of reading: a row group of a Parquet file, or a whole text file (`group` is None)."""

    path: Path
    group: int | None
    rows: int


@dataclass(frozen=True)
class EventFiles:
    """Opened files as a list of chunks; small, and sent to workers."""

    replay: Replay
    schema: pa.Schema
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(chunk.rows for chunk in self.chunks)

    @cached_property
    def starts(self) -> IntArray:
        """The number of the first row of every chunk, counted over all files."""
        rows = np.array([chunk.rows for chunk in self.chunks], np.int64)
        return np.cumsum(rows) - rows

    def table(self, number: int) -> pa.Table:
        """The rows of a chunk in `schema`; a time that cannot be parsed is null."""
        chunk = self.chunks[number]
        return _finished(self.replay, self.schema, chunk, _version(chunk.path))

    def matching(self, predicates: Sequence[Predicate]) -> Iterator[int]:
        """The chunks that can hold rows that meet all predicates, by the statistics of Parquet files."""
        ruled_out: dict[Path, set[int]] = {}
        for number, chunk in enumerate(self.chunks):
            if chunk.group is not None and predicates:
                if chunk.path not in ruled_out:
                    ruled_out[chunk.path] = groups_ruled_out(chunk.path, predicates, self.schema)
                if chunk.group in ruled_out[chunk.path]:
                    continue
            yield number

    def arrivals(self) -> ReplayOrder:
        """When each row arrives. Cost: reading the time columns, O(rows log rows), 16 bytes of memory per row."""
        at = np.empty(self.rows, np.int64)
        for number, (start, chunk) in enumerate(zip(self.starts, self.chunks, strict=True)):
            _, t_max, known = _times_of(self._time_columns(number), self.replay.time)
            # A row without a time arrives together with the last row before it that has one.
            timed = np.maximum.accumulate(np.where(known, np.arange(chunk.rows), -1))
            before = at[start - 1] if start else t_max[known][:1].sum()
            at[start : start + chunk.rows] = np.where(timed < 0, before, t_max[timed]) if chunk.rows else ()
        if self.replay.disorder_us:
            at += _draws(self.replay.seed, len(at), self.replay.disorder_us)
        order = None if (np.diff(at) >= 0).all() else np.argsort(at, kind="stable")
        return ReplayOrder(self, order, at if order is None else at[order])

    def _time_columns(self, number: int) -> pa.Table:
        """A chunk with only the columns that its times need."""
        chunk, names = self.chunks[number], _columns_of(self.replay.time)
        if chunk.group is None:
            return self.table(number).select(names)
        raw = open_parquet(chunk.path).read_row_group(chunk.group, columns=list(names))
        schema = pa.schema([self.schema.field(name) for name in names])
        return cast_to(_settled(raw, self.replay, chunk.path), schema, chunk.path)


@dataclass(frozen=True)
class ReplayOrder:
    """The rows of files in order of arrival: row n of the stream is row `order[n]` of the files.

    `order` is None if that is n itself. `at_us`: when row n of the stream arrives, in event time.
    """

    files: EventFiles
    order: IntArray | None
    at_us: IntArray

    @cached_property
    def fingerprint(self) -> str:
        """A fingerprint of the files and their order, which positions in the stream depend on."""
        replay = self.files.replay
        files = [(c.path.name, c.group, c.rows, c.path.stat().st_size) for c in self.files.chunks]
        return fingerprint(files, replay.time.columns, replay.time.templates, replay.disorder_us, replay.seed)

    def due(self, start: int, seconds: float) -> int:
        """The row that the stream has reached `seconds` after it was at row `start`."""
        replay, total = self.files.replay, len(self.at_us)
        if replay.rows_per_second is not None:
            return min(start + int(seconds * replay.rows_per_second), total)
        if replay.speed is not None:
            if start >= total:
                return total
            now = int(self.at_us[max(start - 1, 0)]) + int(seconds * replay.speed * 1e6)
            return int(np.searchsorted(self.at_us, now, side="right"))
        return total

    def slices(self, start: int, stop: int, rows: int = ROWS_PER_SLICE) -> list[Slice]:
        """Rows `[start, stop)` of the stream, split into slices for workers."""
        found = []
        for first in range(start, stop, rows):
            last = min(first + rows, stop)
            taken = np.arange(first, last) if self.order is None else self.order[first:last]
            found.append(Slice(self.files, taken))
        return found


@dataclass(frozen=True)
class Slice:
    """Rows of the files by number, to be read by a worker."""

    files: EventFiles
    rows: IntArray

    def read(self) -> pa.Table:
        """The rows in this order. Cost: reading the chunks that hold them; the process caches the last ones."""
        chunk = np.searchsorted(self.files.starts, self.rows, side="right") - 1
        by_chunk = np.argsort(chunk, kind="stable")
        tables = []
        for number in np.unique(chunk).tolist():
            at = self.rows[by_chunk][chunk[by_chunk] == number] - self.files.starts[number]
            tables.append(take_table(self.files.table(number), at))
        if len(tables) < 2:
            return tables[0] if tables else self.files.schema.empty_table()
        back = np.empty(len(by_chunk), np.int64)
        back[by_chunk] = np.arange(len(by_chunk))
        return take_table(pa.concat_tables(tables), back)


def _settled(raw: pa.Table, replay: Replay, path: Path) -> pa.Table:
    """All rows of `raw` with parsed times; times that cannot be parsed are null."""
    done = parse_times(raw, replay.time.columns, replay.rules, ParsingCounts(), str(path))
    if not len(done.lost):
        return done.table
    lost = np.zeros(raw.num_rows, bool)
    lost[done.lost] = True
    kept = np.where(lost, -1, np.cumsum(~lost) - 1)
    table = raw
    for name in done.text_columns:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, take_values(done.table.column(name), kept))
    return table


def _draws(seed: int, n: int, most: int) -> IntArray:
    """n integers in [0, most]; number i is a hash of (seed, i): SplitMix64 (Steele, Lea and Flood 2014)."""
    x = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed % 2**32) * np.uint64(2**32)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    unit = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return np.minimum((unit * (most + 1)).astype(np.int64), most)


def _version(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=4)
def _finished(replay: Replay, schema: pa.Schema, chunk: Chunk, version: tuple[int, int]) -> pa.Table:
    """The rows of a chunk in `schema`. Cached, since the next slice usually reads the same chunk."""
    table = _settled(_read(chunk.path, chunk.group, replay), replay, chunk.path)
    if not replay.adds_bounds:
        return cast_to(table, schema, chunk.path)
    table = cast_to(table, pa.schema(list(schema)[:-2]), chunk.path)
    t_min, t_max, known = _times_of(table, replay.time)
    for name, us in zip(replay.bounds, (t_min, t_max), strict=True):
        table = table.append_column(name, pa.array(us, pa.int64(), mask=~known).cast(UTC_US))
    return table


def _times_of(table: pa.Table, time: TimeSpec) -> tuple[IntArray, IntArray, BoolArray]:
    """`t_min`, `t_max`, and which rows have valid ones."""
    n, names = table.num_rows, _columns_of(time)
    row = "row " + " ".join(names)  # different from every name in it
    rows = table.select(names).append_column(row, pa.array(np.arange(n)))
    reader = EventReader(0, "replayed", rows.schema, time)
    t_min, t_max, known = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, bool)
    for batch in rows.to_batches():
        block = reader.read(batch).block
        at = np.asarray(block.column(row))
        t_min[at], t_max[at] = times(block)
        known[at] = True
    return t_min, t_max, known


def _columns_of(time: TimeSpec) -> tuple[str, ...]:
    """All columns that a time specification reads."""
    return tuple(dict.fromkeys([*time.columns, *filter(None, [time.template_column])]))


def _read(path: Path, group: int | None, replay: Replay) -> pa.Table:
    """The raw rows of a chunk; in text files, times and template names stay text."""
    return read_file(path, _columns_of(replay.time)) if group is None else open_parquet(path).read_row_group(group)


class _File(NamedTuple):
    path: Path
    schema: pa.Schema
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)


def _described(path: Path, replay: Replay) -> _File:
    if format_of(path) == "parquet":
        written = open_parquet(path)
        raw = written.schema_arrow.empty_table()
        groups = range(written.metadata.num_row_groups)
        chunks = [Chunk(path, group, written.metadata.row_group(group).num_rows) for group in groups]
    else:
        raw = _read(path, None, replay)
        chunks = [Chunk(path, None, raw.num_rows)]
    return _File(path, _settled(raw, replay, path).schema.remove_metadata(), tuple(chunks))
