"""The timing join: pairs of a left and a right event with `P(lo <= X2 - X1 <= hi) >= confidence`.

`TimingJoin` is the query; `TimingJoinOperator` runs it over blocks with its state in segments. Sources: ITC
(Lee 2010) section 4, PTJoin (Mok) section 3. The strategies differ in which rows are correlated with which, and when
(here), and in the ranges that spare kernel calls (`correlation`); the set of pairs is the same for all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Required, TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.choices import Choice, Load, Value
from whenabouts.core.clocks import resolve_clocks
from whenabouts.core.conditions import Condition
from whenabouts.core.durations import Duration, parse_duration, parse_non_negative
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.events import EventReader, templates_of, times
from whenabouts.core.join_modes import LEFT, RIGHT, Mode
from whenabouts.core.keys import NULL_KEY, Keys
from whenabouts.core.lateness import drop_late
from whenabouts.core.pair_output import EVENT_TIME
from whenabouts.core.protocol import END_OF_TIME, NO_WATERMARK, Arrival, Demand, SegmentStore, Step
from whenabouts.core.segmented_state import Held, Layout, SegmentedState, rows_in_state
from whenabouts.core.settling import keep_marks, settler_of
from whenabouts.core.side_rows import Finality, JoinOutput, one_batch, table_of
from whenabouts.core.side_rows import SideRows as _Rows
from whenabouts.core.time_slots import LEAST_WIDTH_US, TimeSlots, home_input
from whenabouts.core.timestamps import Lateness, TimeSpec
from whenabouts.core.timing_cost import block_rows, choices, load_of

if TYPE_CHECKING:
    from whenabouts.core.correlation import Counters, Times

STRATEGIES = ("auto", "simple", "ssort", "eager", "lazy", "lazy_lookup")
"""Names of spec and papers; `auto` correlates by sorted midpoints, the fastest form known."""

_PER_ARRIVAL = frozenset({"simple", "ssort", "eager"})
_WHOLE_BUFFER = frozenset({"simple", "ssort"})

LEAST_SLOT_US = 250_000
"""Slots are not narrower than this, however short the condition: a segment should hold many rows."""

IntArray = NDArray[np.int64]
Positions = NDArray[np.int32]


class TimingJoinOptions(TypedDict, total=False):
    """The fields of `TimingJoin`, as functions take them."""

    left_time: Required[TimeSpec]
    right_time: Required[TimeSpec]
    condition: Required[Condition]
    on: str | Sequence[str] | None
    how: str
    best: str | None
    strategy: str
    lateness: Lateness | None
    suffixes: tuple[str, str]
    probability: bool
    block_size: int | None
    max_latency: Duration | None
    rates: Mapping[str, float]
    min_confidence: float | None
    time_slots: Duration | None


@dataclass(frozen=True, kw_only=True)
class TimingJoin:
    """A timing join of two inputs, validated.

    `on`: key column(s) that must be equal; none means one key. `strategy`: see `STRATEGIES`. `block_size` rows wait at
    most in a lazy strategy, and none longer than `max_latency` of event time; `auto` lets rows wait where there is a
    `max_latency`. None: chosen by what a row costs (`timing_cost`), from `rates`, rows per second by input, where they
    are known. An engine that takes in batches of its own (Spark) lets none wait; where rows may wait, what comes out
    has no event time that an engine could rely on. `probability=False` leaves the column out. `lateness`: how far rows
    may lag behind their side's watermark. `how`, `best`: see `join_modes`.

    `time_slots`: the width of slots that spread the rows of a key over buckets (`time_slots`); "auto": where there is
    no key and the query allows it, as wide as the stretch in which partners lie.

    Clocks (`from_clock`) on either side are resolved here, so that `left_time` and `right_time` are what counts.

    Raises QueryError: WA-2001 for a `min_confidence` above the confidence, WA-2006 for an unknown option value, WA-2011
    for a clock whose offset counts and is not declared, WA-2041 for time slots in a mode that decides about both sides,
    with a one-sided condition, or where the lengths of intervals are not declared.

    >>> from whenabouts.core import Point, within
    >>> TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("1s", confidence=1), on="k").on
    ('k',)
    """

    left_time: TimeSpec
    right_time: TimeSpec
    condition: Condition
    on: str | Sequence[str] | None = None
    how: str = "inner"
    best: str | None = None
    strategy: str = "auto"
    lateness: Lateness | None = None
    suffixes: tuple[str, str] = ("_left", "_right")
    probability: bool = True
    block_size: int | None = None
    max_latency: Duration | None = None
    rates: Any = ()
    min_confidence: float | None = None
    time_slots: Duration | None = None

    changeable: ClassVar[frozenset[str]] = frozenset(
        {
            "left_time", "right_time", "condition", "strategy", "lateness", "suffixes", "probability", "block_size",
            "max_latency", "rates", "min_confidence",
        }
    )  # fmt: skip
    """What may change over the state, within what the state holds (see docs/changing-a-query.md)."""

    def __post_init__(self) -> None:
        on = (self.on,) if isinstance(self.on, str) else tuple(self.on or ())
        object.__setattr__(self, "on", on)
        if self.max_latency is not None:
            object.__setattr__(self, "max_latency", parse_non_negative(self.max_latency, name="max_latency"))
        if self.strategy not in STRATEGIES:
            raise QueryError(Code.BAD_OPTION, f"strategy is {self.strategy!r}", f"choose of {', '.join(STRATEGIES)}")
        _ = self.mode
        left, right = resolve_clocks(self.left_time, self.right_time)
        object.__setattr__(self, "left_time", left)
        object.__setattr__(self, "right_time", right)
        if self.min_confidence is not None:
            least = replace(self.condition, confidence=self.min_confidence).confidence
            if least > self.condition.confidence:
                raise QueryError(
                    Code.BAD_CONFIDENCE,
                    f"min_confidence is {least}, above the confidence {self.condition.confidence}",
                    "it is the least confidence that the query may be changed to",
                )
        if self.time_slots not in (None, "auto"):
            object.__setattr__(self, "time_slots", parse_duration(self.time_slots, name="time_slots"))
            self._require_slots()
        if self.block_size is not None and self.block_size < 1:
            raise QueryError(Code.BAD_OPTION, f"block_size is {self.block_size}", "give one row or more")
        rates = dict(self.rates)
        if rates and set(rates) != set(self.inputs):
            raise QueryError(Code.BAD_OPTION, f"rates are given for {', '.join(rates)}", "give left and right")
        Load(rates=rates)
        object.__setattr__(self, "rates", tuple(rates.items()))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The two inputs."""
        return ("left", "right")

    @property
    def mode(self) -> Mode:
        """`how` and `best`."""
        return Mode(self.how, self.best)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """`on` as a tuple."""
        return tuple(self.on or ())

    @property
    def lateness_us(self) -> tuple[int, ...]:
        """Microseconds of lateness, left and right."""
        return (self.lateness or Lateness()).per_input_us

    @property
    def idle_after_us(self) -> int | None:
        """How far a side may be behind the other before it is idle."""
        return (self.lateness or Lateness()).idle_after_us

    @property
    def slots(self) -> TimeSlots | None:
        """How the rows of a key are spread over buckets; None: they are not."""
        if self.time_slots is None:
            return None
        if self.time_slots == "auto":
            try:
                self._require_slots()
            except QueryError:
                return None
            if self.key_columns:
                return None
        home = home_input(self.mode)
        low, high = self.condition.lo_us, self.condition.hi_us
        lo, hi = (low, high) if home == RIGHT else (-high, -low)  # bounds on home time - the other's time
        longest = [spec.max_uncertainty_us or 0 for spec in (self.left_time, self.right_time)]
        reach = hi - lo + sum(longest)
        width = max(reach, LEAST_WIDTH_US) if self.time_slots == "auto" else parse_duration(self.time_slots)
        return TimeSlots(width_us=width, home=home, before_us=-lo, after_us=hi + longest[home])

    def _require_slots(self) -> None:
        """Raise QueryError WA-2041 where slots cannot be."""
        home = home_input(self.mode)
        longest = (self.left_time, self.right_time)[home].max_uncertainty_us
        if self.condition.one_sided or longest is None:
            raise QueryError(
                Code.NOT_SLOTTED,
                "time slots, and no bound on how far apart partners are",
                "give a condition with two ends, and max_uncertainty= for intervals",
            )
        if self.time_slots != "auto" and parse_duration(self.time_slots or 0) <= 0:
            raise QueryError(Code.BAD_OPTION, f"time_slots is {self.time_slots}", "give a width above zero")

    def choices(self, load: Load | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What is chosen where the query says `auto`, and why; see `choices`. `pins`: decided by hand."""
        return choices(self, load_of(self, load or Load()), pins or {})

    def kept_for_us(self, input: int) -> int:
        """How far behind the watermark the `t_max` of an input's row is when no row to come can match it any more."""
        return -self.least_difference(input)

    def least_difference(self, input: int) -> int:
        """The least t_max of `input` less that of the other with which rows can match (`shape_thresholds`)."""
        from whenabouts.core.shape_thresholds import least_difference  # numba: imported when first needed

        specs = (self.left_time, self.right_time)
        kinds = [
            tuple(template for _, template in spec.templates)
            or ((spec.min_uncertainty_us, spec.max_uncertainty_us or 0),)
            for spec in specs
        ]
        confidence = self.min_confidence or self.condition.confidence
        return least_difference(kinds[1 - input], kinds[input], *self.window_from(1 - input), confidence)

    def window_from(self, base: int) -> tuple[int, int]:
        """Bounds on (target time - base time) when `base` is the base input."""
        condition = self.condition
        return (condition.lo_us, condition.hi_us) if base == LEFT else (-condition.hi_us, -condition.lo_us)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> TimingJoinOperator:
        """The operator for a left and a right schema.

        On a stream a one-sided condition (WA-2004) or a missing `max_uncertainty` (WA-2010) is refused: state would
        never shrink.
        """
        if streaming:
            self.condition.require_two_sided()
            for name, time in zip(self.inputs, (self.left_time, self.right_time), strict=True):
                if time.max_uncertainty_us is None:
                    raise QueryError(
                        Code.UNBOUNDED_STATE,
                        f"the {name} intervals have no declared greatest length",
                        "give Interval(..., max_uncertainty=...): it bounds the state of a stream",
                    )
        return TimingJoinOperator(self, schemas, streaming=streaming)


class _Work(NamedTuple):
    """One correlation: rows `[start, stop)` of `base` against the first `known` rows of the other input."""

    base: int
    start: int
    stop: int
    known: int


class TimingJoinOperator:
    """Runs a `TimingJoin` over the blocks and the state of one bucket."""

    needs_latest = False

    def __init__(self, query: TimingJoin, schemas: Sequence[pa.Schema], *, streaming: bool) -> None:
        self.query = query
        self._specs = (query.left_time, query.right_time)
        self._templates = tuple(tuple(template for _, template in spec.templates) for spec in self._specs)
        self.readers = tuple(
            EventReader(place, name, schema, spec)
            for place, (name, schema, spec) in enumerate(zip(query.inputs, schemas, self._specs, strict=True))
        )
        plain = [reader.schema for reader in self.readers]
        self.keys = Keys(query.key_columns, plain, query.inputs, query.slots)
        self._differences: dict[int, int] = {}
        self._streaming = streaming
        self._block_rows = block_rows(query)
        # What waits lies below the watermark when it comes out: no engine may rely on its event time.
        waits = self._block_rows > 1 or not query.mode.plain
        self.event_time = EVENT_TIME if streaming and not waits else None
        self._columns = JoinOutput(
            query.mode,
            (plain[LEFT], plain[RIGHT]),
            keys=query.key_columns,
            key_types=self.keys.types,
            suffixes=query.suffixes,
            probability=query.probability,
            streaming=streaming,
        )
        blocks = [reader.block_schema for reader in self.readers]
        longest = (self._longest(LEFT), self._longest(RIGHT))
        self._settler = settler_of(
            query.mode, blocks, query.key_columns, self.query.window_from(LEFT), longest, self._columns
        )
        self._layout = Layout(blocks) if self._settler is None else self._settler.layout
        if any(self._templates):  # rows in state number their templates
            names = json.dumps([[name for name, _ in spec.templates] for spec in self._specs])
            self._layout = replace(self._layout, purpose=self._layout.purpose + names)
        if query.slots is not None:  # rows in state were placed by them
            self._layout = replace(self._layout, purpose=f"{self._layout.purpose} {query.slots}")

    @property
    def output_schema(self) -> pa.Schema:
        """Left columns, right columns, `probability`, and on streams `event_time`; of one side in semi and anti."""
        return self._columns.schema

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: Demand = Demand.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Cost: the rows that arrived, the segments they reach, and the pairs."""
        step = Step()
        state = SegmentedState(store, self._layout, slot_us=self._slot_us())
        if demand is not Demand.END:
            state.keep([self.obsolete_before(input, 0) for input in (LEFT, RIGHT)])
        fresh = self._with_keys(drop_late(self.readers, arrivals, watermark_us, step), step)
        crossed: list[list[pa.RecordBatch]] = [[], []]
        if self._may_wait(state, fresh, watermark_us, demand):
            for arrival in fresh:
                state.wait(*arrival)
        else:
            until_us = END_OF_TIME if demand is Demand.END else watermark_us
            crossed = self._take_in(state, state.take_waiting() + fresh, until_us, demand, step)
        if self._settler is not None:
            until_us = END_OF_TIME if demand is Demand.END else self._future_us(state, watermark_us)
            keep = demand is not Demand.END
            step.output += self._settler.settle(state, crossed, self._finality(), until_us, keep, step)
        if demand is not Demand.END:
            self._evict(state, watermark_us, step)
            state.save()
            step.gauges = state.gauges(self.query.inputs)
            step.timer_us = self._next_timer(state)
            step.rows_waiting = state.rows_waiting
        return step

    def rows_held(self, store: SegmentStore) -> int:
        """Rows of both inputs in a bucket's state, those included that wait (for `state_bound`). One `get`."""
        return rows_in_state(store, len(self.readers))

    def _may_wait(self, state: SegmentedState, fresh: list[Arrival], watermark_us: int, demand: Demand) -> bool:
        """Whether a lazy strategy goes on waiting (ITC Alg. 4: "enough" tuples, or their time is up)."""
        if demand is not Demand.NOTHING:
            return False
        rows = state.rows_waiting + sum(arrival.block.num_rows for arrival in fresh)
        due = self._waiting_due_us(state)
        return rows < self._block_rows and (due is None or due > watermark_us)

    def _waiting_due_us(self, state: SegmentedState) -> int | None:
        """The watermark at which waiting rows are due by `max_latency`."""
        if self.query.max_latency is None or state.first_waiting_us is None:
            return None
        return state.first_waiting_us + parse_duration(self.query.max_latency)

    def _take_in(
        self, state: SegmentedState, arrivals: list[Arrival], until_us: int, demand: Demand, step: Step
    ) -> list[list[pa.RecordBatch]]:
        """Correlate rows with each other and with the state, then store them; gives back those that are final."""
        crossed: list[list[pa.RecordBatch]] = [[], []]
        if not arrivals:
            return crossed
        rows = [self._rows(state, input, arrivals) for input in (LEFT, RIGHT)]
        left, right = rows
        round_ = None if self._settler is None else self._settler.begin(state, rows)
        for pairs in self._pairs(rows, arrivals, step):
            if self.query.best is None and not self.query.mode.one_sided:
                step.output += self._output(rows, pairs, step)
            if round_ is not None:
                probability = None if self.query.best is None else self.probabilities(left.table, right.table, *pairs)
                step.output += round_.take(pairs, probability, step)
        for input, side in enumerate(rows):
            if round_ is None:
                new = one_batch(side.table.slice(side.stored))
            else:
                new, final = keep_marks(state, input, side, round_, self._finality().before(input, until_us))
                crossed[input].append(final)
            if new.num_rows and demand is not Demand.END:
                state.append(input, new)
                step.metrics[metrics.STORED] += new.num_rows
        return crossed

    def _finality(self) -> Finality:
        return Finality(self.obsolete_before, self._streaming)

    def _with_keys(self, arrivals: list[Arrival], step: Step) -> list[Arrival]:
        """Take rows with a null key out: they match nothing, and where a mode wants them they come out at once.

        Columns that the state does not keep go here too.
        """
        kept = []
        for input, block in arrivals:
            if any(block.column(name).null_count for name in self.query.key_columns):
                missing = self.keys.codes([block])[0] == NULL_KEY
                if input in self.query.mode.preserved:
                    rows = pa.Table.from_batches([block])
                    step.output += self._columns.unmatched(input, rows, missing, times(block)[1], step)
                block = block.filter(pa.array(~missing))
            if block.num_rows:
                kept.append(Arrival(input, block.select(self._layout.schemas[input].names)))
        return kept

    def _rows(self, state: SegmentedState, input: int, arrivals: list[Arrival]) -> _Rows:
        """The rows of `input` that this step's correlations can need, in one chunk a column."""
        schema = self._layout.schemas[input]
        others = [arrival.block for arrival in arrivals if arrival.input != input]
        held: list[Held] = state.held(input, *self._reach(input, others)) if others else []
        if self._settler is not None:
            held = [self._settler.wanted(each) for each in held]
        stored = [each.rows.select(schema.names) for each in held]
        table = table_of([*stored, *(block for place, block in arrivals if place == input)], schema)
        return _Rows(table, *times(table), templates_of(table), sum(batch.num_rows for batch in stored), tuple(held))

    def _reach(self, input: int, others: list[pa.RecordBatch]) -> tuple[int, int]:
        """The stretch of t_max in which rows of `input` can have partners among the blocks of the other input."""
        if self.query.strategy in _WHOLE_BUFFER:
            return -END_OF_TIME, END_OF_TIME
        ends = [times(block) for block in others]
        lo, hi = self.query.window_from(1 - input)
        longest = self._longest(input)
        return min(int(t_min.min()) for t_min, _ in ends) + lo, max(
            int(t_max.max()) for _, t_max in ends
        ) + hi + longest

    def _longest(self, input: int) -> int:
        return self._specs[input].max_uncertainty_us or 0

    def _pairs(
        self, rows: list[_Rows], arrivals: list[Arrival], step: Step
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """(left positions, right positions) of all matching pairs in which at least one row is new."""
        from whenabouts.core.correlation import Counters, correlate  # numba: imported when first needed

        codes = self.keys.codes([side.table for side in rows]) if self.query.key_columns else [None, None]
        counters = Counters()
        for work in self._work(rows, arrivals):
            base, target = work.base, 1 - work.base
            for base_at, target_at in correlate(
                _times(rows[base], codes[base], work.start, work.stop),
                _times(rows[target], codes[target], 0, work.known),
                *self.query.window_from(base),
                self.query.condition.confidence,
                strategy=self.query.strategy,
                base_lengths=self._lengths(base, rows[base]),
                target_lengths=self._lengths(target, rows[target]),
                counters=counters,
                base_templates=self._templates[base],
                target_templates=self._templates[target],
                base_is_right=base == RIGHT,
            ):
                base_at = base_at + np.int32(work.start) if work.start else base_at
                yield (base_at, target_at) if base == LEFT else (target_at, base_at)
        _add(counters, step.metrics)

    def _work(self, rows: list[_Rows], arrivals: list[Arrival]) -> list[_Work]:
        """Which rows meet which, so that each pair with a new row in it is met exactly once.

        One arrival after the other for the strategies that work per arrival (ITC Alg. 1 and 2); as one block for the
        others: new left rows against all right rows, then new right rows against the stored left ones, which mends
        Alg. 5 and 6, where only one side runs.
        """
        if self.query.strategy not in _PER_ARRIVAL:
            left, right = rows
            return [
                work
                for work in (
                    _Work(LEFT, left.stored, len(left.t_max), len(right.t_max)),
                    _Work(RIGHT, right.stored, len(right.t_max), left.stored),
                )
                if work.stop > work.start
            ]
        seen = [side.stored for side in rows]
        works: list[_Work] = []
        for input, block in arrivals:
            start, stop = seen[input], seen[input] + block.num_rows
            if works and works[-1].base == input:  # rows of one input do not meet: their blocks can go together
                start = works.pop().start
            works.append(_Work(input, start, stop, seen[1 - input]))
            seen[input] = stop
        return works

    def _lengths(self, input: int, side: _Rows) -> tuple[int, int]:
        """(rho, pi): the declared lengths, or on undeclared finite input the greatest there is."""
        longest = self._specs[input].max_uncertainty_us
        if longest is None:
            longest = int((side.t_max - side.t_min).max(initial=0))
        return self._specs[input].min_uncertainty_us, longest

    def _output(
        self, rows: list[_Rows], pairs: tuple[NDArray[np.int32], NDArray[np.int32]], step: Step
    ) -> Iterator[pa.RecordBatch]:
        """The pairs' rows with their computed columns."""
        (left, right), (l_at, r_at) = rows, pairs
        probability = self.probabilities(left.table, right.table, l_at, r_at) if self.query.probability else None
        event_us = np.maximum(left.t_max[l_at], right.t_max[r_at]) if self._streaming else None
        yield from self._columns.pairs(left.table, right.table, pairs, probability, event_us, step)

    def probabilities(
        self, left: pa.Table, right: pa.Table, left_at: Positions, right_at: Positions
    ) -> NDArray[np.float64]:
        """The canonical kernel's value for the pairs (left_at[i], right_at[i]) of two tables of blocks. O(pairs)."""
        window = self.query.condition.lo_us, self.query.condition.hi_us
        if not any(self._templates):
            from whenabouts.core.satisfaction_probability import probabilities_at  # numba: imported when first needed

            return probabilities_at(*times(left), *times(right), left_at, right_at, *window)
        from whenabouts.core.shape_probability import shape_probabilities_at
        from whenabouts.core.shapes import shapes_of

        sides = []
        for side in (left, right):
            template = templates_of(side)
            sides.append((*times(side), np.empty(0, np.int32) if template is None else template))
        shapes = [shapes_of(templates) for templates in self._templates]
        return shape_probabilities_at(sides[0], sides[1], left_at, right_at, shapes[0], shapes[1], *window)

    def _slot_us(self) -> int:
        """A quarter of the stretch in which partners are found, for new buckets."""
        condition = self.query.condition
        if condition.one_sided:
            return LEAST_SLOT_US
        reach = condition.hi_us - condition.lo_us + self._longest(LEFT) + self._longest(RIGHT)
        return max(reach // 4, LEAST_SLOT_US)

    def _evict(self, state: SegmentedState, watermark_us: int, step: Step) -> None:
        """Drop rows that no future row can match (ITC Alg. 2 line 8), nor any row that still waits."""
        future_us = self._future_us(state, watermark_us)
        for input in (LEFT, RIGHT):
            step.metrics[metrics.EVICTED] += state.evict(input, self.obsolete_before(input, future_us))

    def _future_us(self, state: SegmentedState, watermark_us: int) -> int:
        """No row that is still to be correlated has a lesser `t_max`."""
        first = state.first_waiting_us
        return watermark_us if first is None else min(watermark_us, first)

    def obsolete_before(self, input: int, watermark_us: int) -> int:
        """No row of `input` with a lesser `t_max` can match what is still to come at this watermark."""
        from whenabouts.core.shape_thresholds import past  # numba: imported when first needed

        if input not in self._differences:
            self._differences[input] = self.query.least_difference(input)
        return past(watermark_us, self._differences[input])

    def _next_timer(self, state: SegmentedState) -> int | None:
        """The least watermark at which a segment can go, a row is final or waiting rows are due."""
        due = [self._waiting_due_us(state)]
        for input in (LEFT, RIGHT):
            end = state.first_end_us(input)
            if end is not None:
                due.append(end - self.obsolete_before(input, 0))  # the bound moves with the watermark
        if self._settler is not None:
            held_back = state.first_waiting_us  # no watermark gets past rows that wait: they are taken in first
            final = self._settler.next_us(state, self._finality())
            due += [us for us in final if held_back is None or us <= held_back]
        return min((us for us in due if us is not None), default=None)


def _times(side: _Rows, codes: IntArray | None, start: int, stop: int) -> Times:
    from whenabouts.core.correlation import Times

    taken = slice(start, stop)
    return Times(
        side.t_min[taken],
        side.t_max[taken],
        None if codes is None else codes[taken],
        None if side.template is None else side.template[taken],
    )


def _add(counters: Counters, counts: Counter[str]) -> None:
    counts[metrics.PROBED] += counters.probed
    counts[metrics.SURE] += counters.sure
    counts[metrics.LOOKUP_HITS] += counters.lookup_hits
    counts[metrics.CORRELATIONS] += counters.correlations
