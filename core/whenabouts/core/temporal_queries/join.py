"""Join of the coalesced tuples of two windows by when they hold (Al-Kateb 2010, Example 1), extent by extent.

Candidates come from a plane sweep over begins: of two periods that share an instant or meet, one begins inside the
other, so that with the tuples of each side in order of their begins the partners of a tuple are one range of the other
side. From one instant of a look to the next only tuples that changed look for partners; the pairs of the others stay.
Where both windows stay in memory, so it is from step to step (`temporal_queries.sliding_join`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.coalescing.extent_evaluator import ExtentStream, Look, Runs
from whenabouts.core.coalescing.operator import (
    Coalesce,
    CoalesceOptions,
    blocks_in_time,
    coalescing_reader,
    column_names,
)
from whenabouts.core.coalescing.output import VALID_FROM, VALID_TO, WINDOW_END, time_array, window_end_type
from whenabouts.core.coalescing.sliding_window import MovingWindow
from whenabouts.core.coalescing.window_ranges import Marks, marks_of, places_of
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.expressions.letter_case import same
from whenabouts.core.expressions.row_predicates import call_predicate
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.runtime.event_reader import times
from whenabouts.core.runtime.keys import NULL_KEY, Keys
from whenabouts.core.runtime.output_memory import Growing, require_room
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step
from whenabouts.core.state.memory_store import StorePart
from whenabouts.core.temporal_queries.periods import PREDICATES, Period
from whenabouts.core.temporal_queries.sliding_join import LastInstant, Periods, moving_pairs
from whenabouts.core.temporal_queries.sliding_join import SideRuns as MovingRuns

Matches: TypeAlias = Callable[[pa.Table, pa.Table], Any]
"""Of the group and value columns of as many left as right tuples: a boolean for each pair (Arrow or numpy)."""


class TemporalJoinOptions(CoalesceOptions, total=False):
    """The fields of `TemporalJoin`, as functions take them."""

    on: str | Sequence[str]
    relation: str
    matches: Matches | None
    min_duration: Duration | None
    suffixes: tuple[str, str]
    idle_after: Duration | None


@dataclass(frozen=True, kw_only=True)
class TemporalJoin(Coalesce):
    """A `Coalesce` of two inputs with the same columns, whose coalesced tuples are joined.

    `on`: group or value columns that must be equal. `relation`: one of `periods.PREDICATES` between the left and the
    right period. `matches`: a further predicate, see `Matches`. `min_duration`: least duration of the intersection. A
    slide of so many rows counts those of the left input: both windows end with each such tuple, at its (time, group).
    Needs a window. `idle_after`: how far an input may be behind before it is not waited for (see
    `times.lateness.Lateness`). Raises QueryError WA-2006 besides what `Coalesce` raises.

    >>> TemporalJoin(time="t", group="region", values="humidity", window="1h", slide="1m", min_duration="4m").relation
    'overlaps'
    """

    on: str | Sequence[str] = ()
    relation: str = "overlaps"
    matches: Matches | None = None
    min_duration: Duration | None = None
    suffixes: tuple[str, str] = ("_left", "_right")
    idle_after: Duration | None = None

    kind: ClassVar[str] = "temporal join"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "on", checks.columns_of("on", self.on))
        checks.suffixes("suffixes", self.suffixes)
        if self.matches is not None:
            checks.function("matches", self.matches, "give a function of the left and the right tuples' columns")
        if self.extents.is_history:
            raise QueryError(Code.BAD_OPTION, "no window is given", "give window= or rows=")
        if self.extents.slide_rows is not None and self.extents.window.per_group:
            raise QueryError(
                Code.BAD_OPTION, "a join slides by rows of each group", "groups share no instants: slide by a duration"
            )
        checks.one_of("relation", self.relation, tuple(PREDICATES))
        for name in self.on:  # in any case: where that counts, the operator looks again
            if not any(same(name, known) for known in (*self.group, *self.values)):
                raise _not_compared(name)
        for name in ("min_duration", "idle_after"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, parse_non_negative(getattr(self, name), name=name))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The two inputs."""
        return ("left", "right")

    @property
    def described(self) -> str:
        """As that of a `Coalesce`, with what must be equal, and how periods lie."""
        on = f" on {', '.join(self.on)}" if self.on else ""
        return f"{super().described}{on}, {self.relation}"

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness, the same for both."""
        return super().lateness_us * 2

    @property
    def idle_after_us(self) -> int | None:
        """Microseconds, None where a silent input is waited for."""
        return None if self.idle_after is None else parse_duration(self.idle_after)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> TemporalJoinOperator:  # type: ignore[override]
        """The operator for a left and a right schema."""
        self.warn_of_one_bucket(streaming)
        return TemporalJoinOperator(self, schemas)


def _not_compared(name: str) -> QueryError:
    return QueryError(Code.BAD_OPTION, f"on names {name!r}", "it is neither a group nor a value column")


class TemporalJoinOperator:
    """Runs a `TemporalJoin` over the blocks and the state of one bucket."""

    needs_latest = True

    def __init__(self, query: TemporalJoin, schemas: Sequence[pa.Schema]) -> None:
        self.query = query
        how = query.coalescing
        self.readers = tuple(
            coalescing_reader(place, name, schema, query.point, how)
            for place, (name, schema) in enumerate(zip(query.inputs, schemas, strict=True))
        )
        self._streams = tuple(ExtentStream(reader, how) for reader in self.readers)
        plain = [reader.schema for reader in self.readers]
        on = column_names(query.on)
        for name in on:
            if name not in (*how.group, *how.values):
                raise _not_compared(name)
        self._on = Keys(on, plain, query.inputs)
        self._on_groups = Keys([name for name in on if name in how.group], plain, query.inputs)
        # A group stays together where its bucket hangs on group columns only.
        spread = () if query.extents.window.over_all_groups else tuple(name for name in on if name in how.group)
        self.keys = Keys(spread, plain, query.inputs)
        self.event_time = None
        self._names = (*how.group, *how.values)
        self._sides = [self._names, tuple(name for name in self._names if name not in on)]
        types = [schema.field(query.point.t).type for schema in plain]
        if types[0] != types[1]:
            raise InputError(Code.WRONG_TYPE, f"the times are {types[0]} and {types[1]}", "cast one of them")
        self._time = types[0]
        self.output_schema = self._schema(plain, on)

    def _schema(self, plain: list[pa.Schema], on: tuple[str, ...]) -> pa.Schema:
        columns = [pa.field(WINDOW_END, window_end_type(self._time))] if self.query.extents.slides else []
        for schema, names, suffix in zip(plain, self._sides, self.query.suffixes, strict=True):
            columns += [pa.field(name if name in on else name + suffix, schema.field(name).type) for name in names]
        columns += [pa.field(VALID_FROM, self._time), pa.field(VALID_TO, self._time)]
        called = [column.name for column in columns]
        if len(set(called)) < len(called):
            raise QueryError(
                Code.COLUMN_CLASH, f"two output columns share a name: {', '.join(called)}", "choose other suffixes"
            )
        return pa.schema(columns)

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: what becomes final, and its candidates at each instant."""
        step = Step()
        blocks = blocks_in_time(self.readers, arrivals, watermark_us, step)
        until = END_OF_TIME if demand is FlushMode.END else watermark_us
        ends = [int(times(block)[1].max()) for side in blocks for block in side if block.num_rows]
        latest_us = max([latest_us, *ends])  # both sides look at the same instants
        looks, timers = [], []
        marks = None
        for place, stream in enumerate(self._streams):
            look = stream.step(StorePart(store, place, 2), blocks[place], until, latest_us, step, marks)
            by_rows = self.query.extents.slide_rows is not None and marks is None
            if by_rows and look is not None:
                marks = self._marks(look)
            looks.append(look)
            timers.append(step.timer_us)
            step.timer_us = None
        step.timer_us = min((timer for timer in timers if timer is not None), default=None)
        if looks[0] is not None and looks[1] is not None:
            for rows in Growing("pairs").counted(self._joined(looks[0], looks[1])):
                step.output.append(rows)
                step.metrics[metrics.MATCHED] += rows.num_rows
        for stream in self._streams:
            stream.remember()
        return step

    def _marks(self, look: Look) -> Marks:
        """The tuples of the left side at which extents end."""
        group, tuples = self.query.coalescing.group, look.tuples
        order = tuples.numbers if isinstance(tuples, MovingWindow) else places_of(tuples, group)
        return marks_of(
            tuples.times, order, look.ranges, lambda at: pa.table(tuples.taken(at, group), names=list(group))
        )

    def rows_held(self, store: SegmentStore) -> int:
        """Rows and runs of both sides in a bucket's state (for `wrappers.state_limit`)."""
        return sum(stream.rows_held(StorePart(store, place, 2)) for place, stream in enumerate(self._streams))

    def _joined(self, left: Look, right: Look) -> Iterator[pa.RecordBatch]:
        """The pairs of each instant at which both sides have tuples.

        A pair of tuples that both stay as they were stays a pair: from one instant to the next only tuples that came,
        grew, or lost their first constituents are looked at. Windows in memory carry that on from step to step.
        """
        if isinstance(left.tuples, MovingWindow) and isinstance(right.tuples, MovingWindow):
            windows, last = (left.tuples, right.tuples), left.tuples.last_instant
            if isinstance(last, LastInstant) and last.partner() is right.tuples:
                given = windows, (left.ranges, right.ranges), self._keys_of_groups(windows), last
                for found in moving_pairs(*given, self._reach, self._equal_that_match):
                    yield self._output(*found)
                return
            left.tuples.last_instant = None
        yield from self._swept(left, right)

    def _swept(self, left: Look, right: Look) -> Iterator[pa.RecordBatch]:
        """As `_joined`, of all extents of a look: a plane sweep at each instant."""
        sides = [_Side(look, self._names) for look in (left, right)]
        keys = self._on.codes([side.rows for side in sides]) if self._on.names else [None, None]
        ends = np.unique(np.concatenate([end for side in sides for end in (side.start, side.end)]))
        for side, key in zip(sides, keys, strict=True):
            side.line_up(ends, key)
        a = b = np.empty(0, np.int64)
        instants = np.intersect1d(sides[0].instants, sides[1].instants).tolist()
        for instant in instants:
            come, stayed = zip(*(side.move_to(instant) for side in sides), strict=True)
            stay = sides[0].here[a] & sides[1].here[b]
            new = [
                touching(self.query.relation, sides[0], sides[1], come[0], sides[1].now),
                touching(self.query.relation, sides[0], sides[1], stayed[0], come[1]),
            ]
            found = tuple(np.concatenate(places) for places in zip(*new, strict=True))
            good = self._that_match(*(side.periods(at) for side, at in zip(sides, found, strict=True)))
            a, b = (np.concatenate([old[stay], more[good]]) for old, more in zip((a, b), found, strict=True))
            if len(a):
                yield self._output(sides[0].at_us[instant], sides[0].periods(a), sides[1].periods(b))
        if instants and isinstance(left.tuples, MovingWindow) and isinstance(right.tuples, MovingWindow):
            windows, last = (left.tuples, right.tuples), instants[-1]
            pairs = sides[0].runs(a, last), sides[1].runs(b, last)
            left.tuples.last_instant = LastInstant.of(windows, (left.ranges, right.ranges), last, pairs)

    def _keys_of_groups(self, windows: tuple[MovingWindow, MovingWindow]) -> tuple[IntArray, IntArray]:
        """By number of a group the code of its columns in `on`: only groups of equal codes can have pairs."""
        numbers = [window.groups.numbers for window in windows]
        of_both = [np.zeros(len(window.state), np.int64) for window in windows]
        if self._on_groups.names:
            tables = [window.groups.table(number) for window, number in zip(windows, numbers, strict=True)]
            for codes, number, found in zip(of_both, numbers, self._on_groups.codes(tables), strict=True):
                codes[number] = found
        return of_both[0], of_both[1]

    def _reach(self, runs: MovingRuns, left: bool) -> tuple[IntArray, IntArray]:
        """What the runs that these can be paired with touch: these runs, or all that is behind or before them."""
        if self.query.relation not in ("before", "after"):
            return runs.start, runs.end
        if (self.query.relation == "before") == left:
            return runs.end, np.full(len(runs.end), END_OF_TIME)
        return np.full(len(runs.start), NO_WATERMARK), runs.start

    def _equal_that_match(self, left: Periods, right: Periods) -> IntArray:
        """As `_that_match`, of pairs of which it is not known yet that they are equal in the values of `on`."""
        places = self._that_hold(left, right)
        if self._on.names != self._on_groups.names and len(places):
            codes = self._on.codes([left.rows(places), right.rows(places)])
            places = places[(codes[0] == codes[1]) & (codes[0] != NULL_KEY)]
        return self._chosen(left, right, places)

    def _that_match(self, left: Periods, right: Periods) -> IntArray:
        """The places of the pairs, given side by side, that satisfy the query."""
        return self._chosen(left, right, self._that_hold(left, right))

    def _that_hold(self, left: Periods, right: Periods) -> IntArray:
        """Those that stand in the relation, for long enough."""
        periods = [Period(pa.array(side.start), pa.array(side.end)) for side in (left, right)]
        good = np.asarray(PREDICATES[self.query.relation](*periods))
        if self.query.min_duration is not None:
            start, end = _intersection(left, right)
            good = good & (end - start >= parse_non_negative(self.query.min_duration, name="min_duration"))
        return np.flatnonzero(good)

    def _chosen(self, left: Periods, right: Periods, places: IntArray) -> IntArray:
        """Those of which the user's predicate says so."""
        if self.query.matches is None or not len(places):
            return places
        told = call_predicate(
            self.query.matches,
            left.rows(places),
            right.rows(places),
            code=Code.BAD_PREDICATE,
            what="matches",
            hint="it gets two tables and gives one boolean for each pair of rows",
        )
        chosen: IntArray = places[told]
        return chosen

    def _output(self, at_us: int, left: Periods, right: Periods) -> pa.RecordBatch:
        columns, every = [], np.arange(len(left.start))
        if self.query.extents.slides:
            columns.append(time_array(np.full(len(every), at_us), self.output_schema.field(WINDOW_END).type))
        for side, names in zip((left, right), self._sides, strict=True):
            columns += [column.chunk(0) for column in side.rows(every).select(names).combine_chunks().columns]
        start, end = _intersection(left, right)
        none = pa.array(start >= end)
        for ends in (start, end):
            array = time_array(ends, self._time)
            columns.append(pc.if_else(none, pa.scalar(None, array.type), array))
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)


class _Side:
    """The coalesced tuples of one side of a look: each once, however many extents hold it, and which extents do.

    A tuple of an extent is told by the place of its first constituent and by its end.
    """

    def __init__(self, look: Look, names: tuple[str, ...]) -> None:
        runs: Runs = look.runs()
        order = np.lexsort((runs.end, runs.first))
        first, end = runs.first[order], runs.end[order]
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(first) != 0) | (np.diff(end) != 0)
        self.rows = pa.table(look.tuples.taken(first[new], names), names=list(names))
        self.start, self.end = runs.start[order][new], end[new]
        self._tuple = np.empty(len(order), np.int64)
        self._tuple[order] = np.cumsum(new) - 1
        self._ends_range = np.diff(runs.range, append=-1) != 0
        window, heads = look.tuples, first[new]
        self._group = window.owner(heads) if isinstance(window, MovingWindow) else np.zeros(len(heads), np.int64)
        instants = look.ranges.instants
        self._instants = instants[runs.range]
        self.at_us = dict(zip(instants.tolist(), look.ranges.at_us.tolist(), strict=True))

    def line_up(self, ends: IntArray, key: IntArray | None) -> None:
        """Number tuples by key and begin, and leave out those whose key has a null: they are in no pair."""
        key = np.zeros(len(self.start), np.int64) if key is None else key
        stride = len(ends) + 1
        self.begins, self.stops = (key * stride + np.searchsorted(ends, end) for end in (self.start, self.end))
        self.limits = (key + 1) * stride
        order = np.argsort(self.begins, kind="stable")
        self.start, self.end, self.rows = self.start[order], self.end[order], self.rows.take(pa.array(order))
        self.begins, self.stops, self.limits = self.begins[order], self.stops[order], self.limits[order]
        self._group = self._group[order]
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        known = key[self._tuple] != NULL_KEY
        self._held = number[self._tuple]
        instants, held = self._instants[known], self._held[known]
        by_instant = np.lexsort((held, instants))
        self.instants, starts = np.unique(instants[by_instant], return_index=True)
        spans = pairwise([*starts.tolist(), len(held)])
        self._extents = {
            at: held[by_instant[start:stop]] for at, (start, stop) in zip(self.instants.tolist(), spans, strict=True)
        }
        self.here = np.zeros(len(order), bool)
        self.now = np.empty(0, np.int64)

    def move_to(self, instant: int) -> tuple[IntArray, IntArray]:
        """The tuples of the extent at an instant that were not in the one looked at before, and those that were."""
        now = self._extents[instant]
        stayed = self.here[now]
        self.here[self.now] = False
        self.here[now] = True
        self.now = now
        return now[~stayed], now[stayed]

    def periods(self, at: IntArray) -> Periods:
        """Some tuples with their columns."""
        return Periods(self.start[at], self.end[at], lambda places: self.rows.take(pa.array(at[places])))

    def runs(self, at: IntArray, instant: int) -> MovingRuns:
        """Some tuples that the extent at an instant holds, as a window in memory tells them."""
        last = self._held[self._ends_range & (self._instants == instant)]
        return MovingRuns(self._group[at], self.start[at], self.end[at], np.isin(at, last))


def _intersection(left: Periods, right: Periods) -> tuple[IntArray, IntArray]:
    return np.maximum(left.start, right.start), np.minimum(left.end, right.end)


def touching(relation: str, left: _Side, right: _Side, a: IntArray, b: IntArray) -> tuple[IntArray, IntArray]:
    """The pairs of equal keys that can be in the relation: those that share an instant or meet, or that lie apart.

    `a` and `b`: tuples of both sides, in order. O(log) for each, and the pairs.
    """
    if relation == "after":
        b, a = touching("before", right, left, b, a)
        return a, b
    if relation == "before":
        return _expanded(a, b, right.begins, left.stops[a] + 1, left.limits[a])
    one = _expanded(a, b, right.begins, left.begins[a], left.stops[a] + 1)
    other, base = _expanded(b, a, left.begins, right.begins[b] + 1, right.stops[b] + 1)
    return np.concatenate([one[0], base]), np.concatenate([one[1], other])


def _expanded(
    base: IntArray, ordered: IntArray, begins: IntArray, least: IntArray, limit: IntArray
) -> tuple[IntArray, IntArray]:
    """Pairs of each base tuple with those of the other side that begin in `[least, limit)`."""
    low, high = (np.searchsorted(begins[ordered], bound) for bound in (least, limit))
    n = np.maximum(high - low, 0)
    require_room(int(n.sum()), 4 * 8, "pairs of periods to compare")
    offset = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
    return np.repeat(base, n), ordered[np.repeat(low, n) + offset]
