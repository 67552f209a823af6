"""Temporal coalescing over window extents (Al-Kateb 2010): the query, and the operator that runs it over blocks.

A tuple is valid from its time to that of the next tuple of its group; consecutive tuples of equivalent values become
one. What is final comes out: an extent at T once the watermark has passed T; where there is no window, a run once the
tuple that ends it is settled. The way of a row: `coalescing.reorder_buffer` (it waits until it is settled),
`coalescing.window_log` (what an extent to come can hold), `coalescing.extent_evaluator` (which extents are final, with
`window_ranges` and `coalescing.kernels`), `coalescing.output`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Required, TypedDict

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.coalescing.equivalence import Equivalence, Predicate, check_comparable, parse_equivalence
from whenabouts.core.coalescing.extent_evaluator import Coalescing, ExtentStream, Look
from whenabouts.core.coalescing.output import RunOutput, runs_of_ordered_rows
from whenabouts.core.coalescing.sliding_window import Keeps
from whenabouts.core.coalescing.window_spec import Extents, Instant, extents_of
from whenabouts.core.costs.choices import Choice, Value, Workload, ruled
from whenabouts.core.costs.eager_lazy_cost import Statistics, eager_part, lone_scheme
from whenabouts.core.costs.prices import SchemePrices
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, InputError, QueryError, SingleBucketWarning
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step
from whenabouts.core.runtime.watermarks import drop_late
from whenabouts.core.times.time_specs import Point, TimeSpec

SCHEMES = ("auto", "eager", "lazy")
"""`eager` keeps runs and compares a tuple once; `lazy` keeps tuples and compares them at each look. `auto`: see
`Coalesce.choices`."""

_HISTORY = "over all of the past it keeps the last run of each group"


class CoalesceOptions(TypedDict, total=False):
    """The fields of `Coalesce`, as functions take them."""

    time: Required[str | TimeSpec]
    group: str | Sequence[str]
    values: Required[str | Sequence[str]]
    window: Duration | None
    rows: int | None
    per_group: bool
    slide: Duration | None
    at: Instant | None
    equivalence: str | Equivalence | Predicate
    scheme: str
    closed: str
    lateness: Duration | None


@dataclass(frozen=True, kw_only=True)
class Coalesce:
    """A coalescing query, validated.

    `time`: a column, or Point. `group`: columns within which tuples follow each other (none: all rows are one group).
    `values`: columns that must all be equivalent, see `coalescing.equivalence`. `window` (a duration) or `rows` (a
    number, `per_group` or of the whole stream), with `slide`, or `at` one instant, or at the end of the input; neither:
    all of the past, run by run. A slide of a window of rows is a number of tuples if it is an int, else a duration.
    `closed`: "both" ends of a window belong to it, or the "right" one only. `scheme`: see `SCHEMES`; the result is the
    same.

    Raises QueryError: WA-2006 for options that exclude each other, WA-2021 for a window or slide of zero or less,
    WA-2022 for what is no equivalence. Warns (`LossyQueryWarning`) of a slide longer than the window.

    >>> Coalesce(time="ts", group="mote", values="light", window="1h", slide="5m").extents.slide_us
    300000000
    """

    time: str | TimeSpec
    group: str | Sequence[str] = ()
    values: str | Sequence[str]
    window: Duration | None = None
    rows: int | None = None
    per_group: bool = False
    slide: Duration | None = None
    at: Instant | None = None
    equivalence: str | Equivalence | Predicate = "equal"
    scheme: str = "auto"
    closed: str = "both"
    lateness: Duration | None = None

    kind: ClassVar[str] = "coalescing"
    """What the query is called in `described`."""

    keeps_aggregates: ClassVar[bool] = False
    """Whether what is computed of an extent that slides is kept from one to the next."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", point_of(self.time))
        for name in ("group", "values"):
            object.__setattr__(self, name, checks.columns_of(name, getattr(self, name)))
        if not self.values:
            raise QueryError(Code.BAD_OPTION, "no value columns are given", "name those whose equivalence makes a run")
        checks.one_of("scheme", self.scheme, SCHEMES)
        checks.flag("per_group", self.per_group)
        object.__setattr__(self, "equivalence", parse_equivalence(self.equivalence))
        if self.lateness is not None:
            object.__setattr__(self, "lateness", parse_non_negative(self.lateness, name="lateness"))
        extents = extents_of(self.window, self.rows, self.per_group, self.slide, self.at, self.closed)
        if not self.group:  # one group is all of the stream
            extents = replace(extents, window=replace(extents.window, per_group=False))
        object.__setattr__(self, "_extents", extents)

    @property
    def inputs(self) -> tuple[str, ...]:
        """One input."""
        return ("events",)

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness."""
        return (parse_duration(self.lateness or 0),)

    @property
    def says_lateness(self) -> bool:
        """Whether `lateness` was given."""
        return self.lateness is not None

    @property
    def idle_after_us(self) -> int | None:
        """A silent input is waited for."""
        return None

    @property
    def described(self) -> str:
        """What is coalesced, within which groups, and over which window.

        >>> Coalesce(time="ts", group="mote", values="light", window="1h", slide="5m").described
        'coalescing of light by mote, window 1 h, slide 5 min'
        """
        by = f" by {', '.join(self.group)}" if self.group else ""
        return f"{self.kind} of {', '.join(self.values)}{by}{self.extents.described}"

    @property
    def point(self) -> Point:
        """The time of a row."""
        assert isinstance(self.time, Point)
        return self.time

    @property
    def extents(self) -> Extents:
        """The window, and when it is looked at."""
        extents: Extents = self.__dict__["_extents"]
        return extents

    @property
    def coalescing(self) -> Coalescing:
        """All that concerns the one input."""
        assert isinstance(self.equivalence, Equivalence)
        return Coalescing(
            column_names(self.group),
            column_names(self.values),
            self.extents,
            self.equivalence,
            self.choices()[0].value == "eager",
            self.lateness_us[0],
        )

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What is chosen where the query says `auto`, and why. `pins`: decided by hand.

        A query with a window is decided by `costs.eager_lazy_cost`, at the statistics of which nothing else is known;
        one over all of the past is eager, which keeps the last run of each group where lazy keeps all tuples. Among
        others over its stream the planner decides.

        >>> Coalesce(time="t", values="v", window="1 h").choices()[0].value
        'eager'
        >>> print(*Coalesce(time="t", values="v").choices())
        scheme = eager: over all of the past it keeps the last run of each group
        """
        asked = (pins or {}).get("scheme", self.scheme)
        pin = None if asked == "auto" else str(asked)
        extents, rate = self.extents, (load or Workload()).rate(self.inputs[0])
        if extents.is_history or pin not in (None, *SCHEMES):
            return [ruled("scheme", pin or "eager", _HISTORY, pinned=pin is not None)]
        width_us, rows = extents.window.width_us, self.rows
        tuples = float(rows) if rows is not None else max((width_us or 0) / 1e6 * (rate or 1.0), 1.0)
        part = eager_part(width_us, extents.slide_us, aggregated=self.keeps_aggregates)
        prices = (load and load.scheme_prices) or SchemePrices()
        return [lone_scheme(tuples, Statistics(source="default"), prices, part=part, pin=pin)]

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark the time of a row is when no extent to come holds it any more: on average, half
        a slide having passed since the last one. Zero where no time but a number of rows, or no window, bounds it."""
        extents = self.extents
        if extents.window.width_us is None:
            return 0
        return max(extents.window.reach_us - (extents.slide_us or 0) // 2, 0)

    def copies(self, input: int) -> float:
        """How many buckets hold a row: one."""
        return 1.0

    def warn_of_one_bucket(self, streaming: bool) -> None:
        """Warn (`SingleBucketWarning`, WA-2081) of a stream that cannot be spread: its window counts all rows."""
        if streaming and self.group and self.extents.window.over_all_groups:
            warnings.warn(
                f"{Code.SINGLE_BUCKET}: rows={self.rows} counts the rows of all groups together, so that one bucket, "
                "and one core, gets the whole stream: per_group=True spreads it",
                SingleBucketWarning,
                stacklevel=3,
            )

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> CoalesceOperator:
        """The operator for a schema.

        Raises InputError WA-1023 for values that the equivalence cannot compare. Warns (`SingleBucketWarning`) of a
        stream that one bucket must hold: that of a window of rows of all groups.
        """
        self.warn_of_one_bucket(streaming)
        return CoalesceOperator(self, schemas[0])


class CoalesceOperator:
    """Runs a `Coalesce` over the blocks and the state of one bucket."""

    needs_latest = True

    def __init__(self, query: Coalesce, schema: pa.Schema, keeps: Keeps | None = None) -> None:
        self.query = query
        self._how = query.coalescing
        self.readers = (coalescing_reader(0, query.inputs[0], schema, query.point, self._how),)
        self._stream = ExtentStream(self.readers[0], self._how, keeps)
        # Which tuples of a group lie in a window of rows of the whole stream hangs on all groups: one bucket has them.
        spread = () if query.extents.window.over_all_groups else self._how.group
        self.keys = Keys(spread, [self.readers[0].schema], query.inputs)
        time = self.readers[0].schema.field(query.point.t).type
        self._output = RunOutput(self.readers[0].schema, self._how, time)
        self.event_time = None  # what comes out lies behind the watermark

    @property
    def output_schema(self) -> pa.Schema:
        """`window_end` where the window slides, group and value columns, `valid_from`, `valid_to`, `n`."""
        return self._output.schema

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the rows that arrive and settle, and the extents that come out."""
        step = Step()
        blocks = blocks_in_time(self.readers, arrivals, watermark_us, step)[0]
        until = END_OF_TIME if demand is FlushMode.END else watermark_us
        rows = self._at_once(store, blocks, demand, step)
        if rows is None:
            look = self._stream.step(store, blocks, until, latest_us, step)
            rows = None if look is None else self._looked(look, step)
            self._stream.remember()
        if rows is not None and rows.num_rows:
            step.output.append(rows)
            step.metrics[metrics.MATCHED] += rows.num_rows
        return step

    def rows_held(self, store: SegmentStore) -> int:
        """Rows and runs in a bucket's state (for `wrappers.state_limit`)."""
        return self._stream.rows_held(store)

    def rows_of(self, look: Look) -> pa.RecordBatch:
        """The output rows of the extents of a look."""
        return self._output.of_look(look)

    def _looked(self, look: Look, step: Step) -> pa.RecordBatch:
        step.metrics[metrics.COALESCED] += look.coalesced
        step.metrics[metrics.NEIGHBOURS] += look.neighbours
        return self.rows_of(look)

    def _at_once(
        self, store: SegmentStore, blocks: list[pa.RecordBatch], demand: FlushMode, step: Step
    ) -> pa.RecordBatch | None:
        """Finite input that comes in order of time, coalesced in one pass; None where it is not so simple."""
        how = self._how
        simple = how.extents.is_history and how.extents.at_us is None and how.equivalence.kind == "equal"
        if demand is not FlushMode.END or not simple or not self._stream.is_new(store):
            return None
        table = pa.Table.from_batches(blocks, self.readers[0].block_schema).combine_chunks()
        runs = runs_of_ordered_rows(table, self._stream.rows.keys, how.values)
        if runs is None:
            return None
        step.metrics[metrics.PROCESSED] += table.num_rows
        step.metrics[metrics.COMPARED] += table.num_rows
        return self._output.of_rows(table, runs)


def coalescing_reader(input: int, name: str, schema: pa.Schema, time: Point, how: Coalescing) -> EventReader:
    """The reader of an input whose group and value columns are there and can be compared.

    Raises InputError WA-1001 for a column that is missing, WA-1023 for one that cannot be compared, QueryError WA-2009
    for one that is named twice.
    """
    names, there = (*how.group, *how.values), frozenset(schema.names)
    times = Counter(names)
    for column in names:
        if column not in there:
            raise InputError(
                Code.MISSING_COLUMN,
                f"the {name} input has no column {column!r}",
                f"it has {', '.join(schema.names)}",
            )
        if times[column] > 1:
            raise QueryError(Code.COLUMN_CLASH, f"column {column!r} is named twice", "it is a group or a value")
    reader = EventReader(input, name, schema, time, groups=how.group)
    check_comparable(how.equivalence, reader.schema, how.values)
    return reader


def blocks_in_time(
    readers: Sequence[EventReader], arrivals: Sequence[Arrival], watermark_us: int, step: Step
) -> list[list[pa.RecordBatch]]:
    """The blocks of every input without late rows. What they bring is counted as processed only once it is settled."""
    blocks: list[list[pa.RecordBatch]] = [[] for _ in readers]
    for arrival in drop_late(readers, arrivals, watermark_us, step):
        blocks[arrival.input].append(arrival.block)
        step.metrics[metrics.PROCESSED] -= arrival.block.num_rows
    return blocks


def point_of(time: str | TimeSpec) -> Point:
    """The time column of a query that coalesces. Raises QueryError WA-2006 for times that are no points."""
    if isinstance(time, str):
        return Point(time)
    if not isinstance(time, Point):
        raise QueryError(Code.BAD_OPTION, f"time is {time!r}", "tuples are coalesced by an exact time: give a column")
    return time


def column_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several, as a tuple.

    >>> column_names("a"), column_names(["a", "b"])
    (('a',), ('a', 'b'))
    """
    return (names,) if isinstance(names, str) else tuple(names)
