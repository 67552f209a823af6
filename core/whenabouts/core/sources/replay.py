"""Event files as a stream: their rows in the order in which they arrive, at a pace, from any row on.

The stream provider of experiments, tests and rehearsals; an engine's adapter asks which rows are due and has them read
in slices by its workers. What arrives when is a function of the files and the settings alone:

    a row arrives at `t_max`, its last possible time, plus a delay;
    the delay is uniform in [0, disorder], drawn from the seed and the row's place in the files.

So a row is never more than `disorder` behind the greatest `t_max` before it: a lateness of `disorder` loses none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.runtime.event_reader import EventReader, times
from whenabouts.core.sources.files import cast_to, check_distinct, find_files, format_of, read_file, unified
from whenabouts.core.sources.time_parsing import UTC_US, ClockRules, Findings, settle
from whenabouts.core.state.segment_codec import fingerprint
from whenabouts.core.times.time_specs import Interval, Point, TimeSpec

ROWS_PER_SLICE = 1 << 17
"""Rows that one call reads: a bound on a worker's memory, and enough for full batches."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """How event files are played.

    `path`: a file, a folder or a glob of Parquet, CSV and JSON lines. `time`: when an event happened; where it is more
    than plain columns (`from_granularity`, `from_latency`, a histogram, ...), the columns `bounds` are added, the first
    and the last instant at which the event can have happened. `disorder`, `seed`: see the module. `rows_per_second`
    releases rows at that rate of the wall clock, `speed` as many seconds of event time in one second; neither: all at
    once. `rules`: zone and unit of times that do not tell.

    Raises QueryError: WA-2002 and WA-2003 for the disorder, WA-2006 for a pace that is none, or two of them.

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
        """Greatest delay of a row."""
        return parse_duration(self.disorder)

    @property
    def adds_bounds(self) -> bool:
        """Whether rows get the columns `bounds`."""
        return not isinstance(self.time, (Point, Interval))

    def open(self) -> EventFiles:
        """Find the files and their common schema. Cost: Parquet files tell it, text files are read once.

        Raises InputError WA-1008 for what cannot be read, WA-1001 and WA-1002 for files that disagree or have no such
        time, QueryError WA-2009 for columns of one name.
        """
        paths, _ = find_files(self.path)
        files = [_described(path, self) for path in paths]
        for file in files:
            check_distinct(file.path, file.schema.names)
        told = [file for file in files if file.rows] or files[:1]  # a file without rows does not tell types
        schema = told[0].schema
        for file in told[1:]:
            schema = unified(schema, file.schema, told[0].path, file.path)
        EventReader(0, "replayed", schema, self.time)
        clash = set(self.bounds) & set(schema.names)
        if self.adds_bounds:
            if clash:
                raise QueryError(
                    Code.COLUMN_CLASH,
                    f"the files have a column {min(clash)!r} already",
                    "name the columns of the bounds otherwise: bounds=from,to",
                )
            schema = pa.schema([*schema, *(pa.field(name, UTC_US) for name in self.bounds)])
        return EventFiles(self, schema, tuple(chunk for file in files for chunk in file.chunks))


class Chunk(NamedTuple):
    """What is read at once: a row group of a Parquet file, or a whole text file (`group` None)."""

    path: Path
    group: int | None
    rows: int


class Predicate(NamedTuple):
    """A condition on one column: `op` is ==, <, <=, >, >=, in, null or there (not null)."""

    column: str
    op: str
    value: Any = None


@dataclass(frozen=True)
class EventFiles:
    """Opened files, chunk by chunk; small, and travels to workers."""

    replay: Replay
    schema: pa.Schema
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(chunk.rows for chunk in self.chunks)

    @cached_property
    def starts(self) -> IntArray:
        """Number of the first row of every chunk, counted over all files."""
        return np.cumsum([0, *(chunk.rows for chunk in self.chunks[:-1])], dtype=np.int64)

    def table(self, number: int) -> pa.Table:
        """The rows of a chunk, in `schema`; a time that cannot be read is null."""
        chunk = self.chunks[number]
        return _finished(self.replay, self.schema, chunk, _version(chunk.path))

    def matching(self, predicates: Sequence[Predicate]) -> Iterator[int]:
        """Chunks that can hold rows for which all predicates hold, by the statistics of Parquet files."""
        ruled_out: dict[Path, set[int]] = {}
        for number, chunk in enumerate(self.chunks):
            if chunk.group is not None and predicates:
                if chunk.path not in ruled_out:
                    ruled_out[chunk.path] = _ruled_out(chunk.path, predicates, self.schema)
                if chunk.group in ruled_out[chunk.path]:
                    continue
            yield number

    def arrivals(self) -> ReplayOrder:
        """When each row arrives. Cost: reading the time columns, O(rows log rows), 16 bytes of memory a row."""
        at = np.empty(self.rows, np.int64)
        for number, (start, chunk) in enumerate(zip(self.starts, self.chunks, strict=True)):
            _, t_max, known = _times_of(self._time_columns(number), self.replay.time)
            places = np.maximum.accumulate(np.where(known, np.arange(chunk.rows), -1))
            before = (
                at[start - 1] if start else t_max[known][:1].sum()
            )  # a row without a time arrives with the last one
            # A row without a time arrives with the last one that has a time.
            at[start : start + chunk.rows] = np.where(places < 0, before, t_max[places]) if chunk.rows else ()
        if self.replay.disorder_us:
            at += _draws(self.replay.seed, len(at), self.replay.disorder_us)
        order = None if (np.diff(at) >= 0).all() else np.argsort(at, kind="stable")
        return ReplayOrder(self, order, at if order is None else at[order])

    def _time_columns(self, number: int) -> pa.Table:
        """A chunk with the columns alone that its times need."""
        chunk, names = self.chunks[number], _columns_of(self.replay.time)
        if chunk.group is None:
            return self.table(number).select(names)
        raw = _parquet(chunk.path).read_row_group(chunk.group, columns=list(names))
        schema = pa.schema([self.schema.field(name) for name in names])
        return cast_to(_settled(raw, self.replay, chunk.path), schema, chunk.path)


@dataclass(frozen=True)
class ReplayOrder:
    """The rows of files in the order of their arrival: row n of the stream is row `order[n]` of the files.

    `order` is None where that is n itself. `at_us`: when row n of the stream arrives, in event time.
    """

    files: EventFiles
    order: IntArray | None
    at_us: IntArray

    @cached_property
    def fingerprint(self) -> str:
        """What a position in the stream depends on: the files and their order."""
        replay = self.files.replay
        files = [(c.path.name, c.group, c.rows, c.path.stat().st_size) for c in self.files.chunks]
        return fingerprint(files, replay.time.columns, replay.time.templates, replay.disorder_us, replay.seed)

    def due(self, start: int, seconds: float) -> int:
        """How many rows of the stream are out `seconds` after it was at row `start`."""
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
        """Rows `[start, stop)` of the stream, in pieces for workers."""
        found = []
        for first in range(start, stop, rows):
            last = min(first + rows, stop)
            taken = np.arange(first, last) if self.order is None else self.order[first:last]
            found.append(Slice(self.files, taken))
        return found


@dataclass(frozen=True)
class Slice:
    """Rows of the files by number; a worker reads them."""

    files: EventFiles
    rows: IntArray

    def read(self) -> pa.Table:
        """The rows in this order. Cost: the chunks that hold them; the last ones read are kept by the process."""
        chunk = np.searchsorted(self.files.starts, self.rows, side="right") - 1
        by_chunk = np.argsort(chunk, kind="stable")
        tables = []
        for number in np.unique(chunk).tolist():
            at = self.rows[by_chunk][chunk[by_chunk] == number] - self.files.starts[number]
            tables.append(self.files.table(number).take(pa.array(at)))
        if len(tables) < 2:
            return tables[0] if tables else self.files.schema.empty_table()
        back = np.empty(len(by_chunk), np.int64)
        back[by_chunk] = np.arange(len(by_chunk))
        return pa.concat_tables(tables).take(pa.array(back))


def keep(table: pa.Table, predicates: Sequence[Predicate]) -> pa.Table:
    """The rows for which all predicates hold that can be told without doubt (see `expression`).

    >>> keep(pa.table({"a": [1, 2, None]}), [Predicate("a", ">", 1)]).num_rows
    1
    """
    wanted = expression(predicates, table.schema)
    return table if wanted is None else table.filter(wanted)


def expression(predicates: Sequence[Predicate], schema: pa.Schema) -> pc.Expression | None:
    """The predicates as an Arrow expression, without those on unknown columns and on floats.

    Engines disagree on NaN: such rows are kept, and the engine filters once more.
    """
    found: pc.Expression | None = None
    for column, op, value in predicates:
        if column not in schema.names or pa.types.is_floating(schema.field(column).type):
            continue
        field = pc.field(column)
        match op:
            case "null":
                one = field.is_null()
            case "there":
                one = ~field.is_null()
            case "in":
                one = field.isin(pa.array(value, schema.field(column).type))
            case _:
                one = _COMPARISONS[op](field, pa.scalar(value, schema.field(column).type))
        found = one if found is None else found & one
    return found


_COMPARISONS: dict[str, Any] = {
    "==": lambda field, value: field == value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}


def _settled(raw: pa.Table, replay: Replay, path: Path) -> pa.Table:
    """All rows of `raw` with times that the core reads; those that cannot be read are null."""
    done = settle(raw, replay.time.columns, replay.rules, Findings(), str(path))
    if not len(done.lost):
        return done.table
    lost = np.zeros(raw.num_rows, bool)
    lost[done.lost] = True
    places = pa.array(np.cumsum(~lost) - 1, mask=lost)
    table = raw
    for name in done.text_columns:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, done.table.column(name).take(places))
    return table


def _draws(seed: int, n: int, most: int) -> IntArray:
    """n whole numbers in [0, most], number i a hash of (seed, i): splitmix64 (Steele, Lea and Flood 2014)."""
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
    """The rows of a chunk in `schema`. Kept for a while: the next slice mostly reads the same chunk."""
    table = _settled(_read(chunk.path, chunk.group, replay), replay, chunk.path)
    if not replay.adds_bounds:
        return cast_to(table, schema, chunk.path)
    table = cast_to(table, pa.schema(list(schema)[:-2]), chunk.path)
    t_min, t_max, known = _times_of(table, replay.time)
    for name, us in zip(replay.bounds, (t_min, t_max), strict=True):
        table = table.append_column(name, pa.array(us, pa.int64(), mask=~known).cast(UTC_US))
    return table


def _times_of(table: pa.Table, time: TimeSpec) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """`t_min`, `t_max`, and which rows have them."""
    n, names = table.num_rows, _columns_of(time)
    row = "row " + " ".join(names)  # a name that none of them has
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
    """All columns from which a time is told."""
    return tuple(dict.fromkeys([*time.columns, *filter(None, [time.template_column])]))


def _read(path: Path, group: int | None, replay: Replay) -> pa.Table:
    """The rows of a chunk as they are written; in text files times and names of templates stay text."""
    return read_file(path, _columns_of(replay.time)) if group is None else _parquet(path).read_row_group(group)


def _parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(Code.UNREADABLE_FILE, f"{path}: it cannot be read as parquet: {error}") from error


class _File(NamedTuple):
    path: Path
    schema: pa.Schema
    chunks: tuple[Chunk, ...]

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)


def _described(path: Path, replay: Replay) -> _File:
    if format_of(path) == "parquet":
        written = _parquet(path)
        raw = written.schema_arrow.empty_table()
        groups = range(written.metadata.num_row_groups)
        chunks = [Chunk(path, group, written.metadata.row_group(group).num_rows) for group in groups]
    else:
        raw = _read(path, None, replay)
        chunks = [Chunk(path, None, raw.num_rows)]
    return _File(path, _settled(raw, replay, path).schema.remove_metadata(), tuple(chunks))


def _ruled_out(path: Path, predicates: Sequence[Predicate], schema: pa.Schema) -> set[int]:
    """Row groups of a file in which no row can satisfy the predicates."""
    from pyarrow import dataset

    written = _parquet(path)
    same = {f.name for f in written.schema_arrow if f.name in schema.names and f.type == schema.field(f.name).type}
    wanted = expression([p for p in predicates if p.column in same], written.schema_arrow)
    if wanted is None:
        return set()
    (fragment,) = dataset.dataset(path, format="parquet").get_fragments()
    possible = {group.id for part in fragment.split_by_row_group(wanted) for group in part.row_groups}
    return set(range(written.metadata.num_row_groups)) - possible
