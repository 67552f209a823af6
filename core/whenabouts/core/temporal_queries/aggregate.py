"""Aggregates of durations over coalesced extents (Al-Kateb 2010, Example 2): per group and instant one row.

A group's extents at successive instants are ranges of its tuples whose ends only move forward, and of a run only the
first and the last one of a range can be cut. The durations of the others are added and taken away, greatest and least
ones come from monotone queues, and medians from durations in order: the cost of an instant follows the tuples that came
and went, not the window, within a call and, where a window stays in memory (`coalescing.sliding_window`), from step to
step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, Required

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whenabouts.core import metrics
from whenabouts.core.arrays.typing import BoolArray, IntArray
from whenabouts.core.coalescing.extent_evaluator import Look
from whenabouts.core.coalescing.operator import Coalesce, CoalesceOperator, CoalesceOptions, blocks_in_time
from whenabouts.core.coalescing.output import WINDOW_END, time_array
from whenabouts.core.coalescing.sliding_window import Keeps, MovingWindow
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.expressions.tree import Expression
from whenabouts.core.runtime import option_checks as checks
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode, SegmentStore, Step

FUNCTIONS = ("max", "min", "sum", "avg", "count", "median")
"""Of the durations of the coalesced tuples, in microseconds: int64, but `avg` and `median` float64."""

WEIGHTED = "time_weighted"
"""(WEIGHTED, column): the mean of a column, each coalesced tuple weighted with its duration; float64."""

_EXACT = 2**53


class TemporalAggregateOptions(CoalesceOptions, total=False):
    """The fields of `TemporalAggregate`, as functions take them."""

    aggregates: Required[Mapping[str, str | tuple[str, str]]]
    where: pc.Expression | None


@dataclass(frozen=True, kw_only=True)
class TemporalAggregate(Coalesce):
    """A `Coalesce` whose extents are summed up.

    `aggregates`: output name -> one of `FUNCTIONS`, or `("time_weighted", column)`. `where`: an expression over the
    group and value columns, Arrow's or ours (`expressions`); coalesced tuples that do not pass do not count, and a
    group without any has no row.
    Raises QueryError WA-2006 besides what `Coalesce` raises.

    >>> TemporalAggregate(time="t", group="region", values="high", window="24h", slide="1h",
    ...                   aggregates={"longest": "max"}, where=pc.field("high")).aggregates
    {'longest': 'max'}
    """

    aggregates: Mapping[str, str | tuple[str, str]]
    where: pc.Expression | Expression | None = None

    kind: ClassVar[str] = "temporal aggregate"
    keeps_aggregates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        named: object = self.aggregates
        if not isinstance(named, Mapping):
            raise checks.refused("aggregates", named, "give aggregates={'longest': 'max'}, say")
        if self.where is not None and not isinstance(self.where, (pc.Expression, Expression)):
            raise checks.refused("where", self.where, "give an Arrow expression over the columns, as pc.field('v') > 3")
        if not self.aggregates:
            raise QueryError(Code.BAD_OPTION, "no aggregates are given", "give aggregates={'longest': 'max'}, say")
        for name, asked in named.items():
            weighted = isinstance(asked, tuple) and len(asked) == 2 and asked[0] == WEIGHTED
            if not isinstance(name, str) or (not weighted and not (isinstance(asked, str) and asked in FUNCTIONS)):
                raise QueryError(
                    Code.BAD_OPTION,
                    f"aggregate {name!r} is {asked!r}",
                    f"choose of {', '.join(FUNCTIONS)}, or ({WEIGHTED!r}, column)",
                )

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> AggregateOperator:
        """The operator for a schema.

        Without a window a group's row would be final at the end of the input only: on a stream that is refused
        (QueryError WA-2010).
        """
        if streaming and self.extents.is_history:
            raise QueryError(Code.UNBOUNDED_STATE, "a stream is summed up without a window", "give window= or rows=")
        self.warn_of_one_bucket(streaming)
        return AggregateOperator(self, schemas[0])


class AggregateOperator(CoalesceOperator):
    """Runs a `TemporalAggregate` over the blocks and the state of one bucket."""

    query: TemporalAggregate

    def __init__(self, query: TemporalAggregate, schema: pa.Schema) -> None:
        self._keeps = keeps_of(query)
        super().__init__(query, schema, self._keeps)
        self._group, self._values = self._how.group, self._how.values
        plain = self.readers[0].schema
        fields = [self._output.schema.field(WINDOW_END)] if query.extents.slides else []
        fields += [plain.field(name).remove_metadata() for name in self._group]
        for name, asked in query.aggregates.items():
            if isinstance(asked, tuple) and asked[1] not in self._values:
                raise InputError(
                    Code.MISSING_COLUMN, f"{asked[1]!r} is no value column", f"they are {', '.join(self._values)}"
                )
            if isinstance(asked, tuple):
                type_ = plain.field(asked[1]).type
                if not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
                    raise InputError(Code.INCOMPARABLE_VALUES, f"value column {asked[1]!r} is {type_}", "weigh numbers")
            real = isinstance(asked, tuple) or asked in ("avg", "median")
            fields.append(pa.field(name, pa.float64() if real else pa.int64()))
        self._columns = pa.schema(fields)
        if len(set(self._columns.names)) < len(fields):
            raise QueryError(
                Code.COLUMN_CLASH, f"two output columns share a name: {', '.join(self._columns.names)}", "rename one"
            )

    @property
    def output_schema(self) -> pa.Schema:
        """`window_end` where the window slides, the group columns, the aggregates."""
        return self._columns

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`."""
        step = Step()
        blocks = blocks_in_time(self.readers, arrivals, watermark_us, step)[0]
        until = END_OF_TIME if demand is FlushMode.END else watermark_us
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
        """The aggregates of the extents of a look."""
        full = look.ranges.lows < look.ranges.highs
        at_us, lows, highs = (column[full] for column in (look.ranges.at_us, look.ranges.lows, look.ranges.highs))
        of = None if look.ranges.group is None else look.ranges.group[full]
        kept = look.tuples if isinstance(look.tuples, MovingWindow) else self._kept(look.tuples)
        found = self._durations(kept, look, of, lows, highs)
        some = found.counts > 0
        columns = [time_array(at_us[some], self._columns.field(WINDOW_END).type)] if self.query.extents.slides else []
        columns += look.tuples.taken(lows[some], self._group)
        plain = {"max": found.greatest, "min": found.least, "sum": found.sums, "count": found.counts}
        weights: dict[str, pa.Array] = {}
        for asked in self.query.aggregates.values():
            if isinstance(asked, tuple):
                if asked[1] not in weights:
                    weights[asked[1]] = self._weighted(look, kept.passes, lows, highs, asked[1]).filter(pa.array(some))
                columns.append(weights[asked[1]])
            elif asked in plain:
                columns.append(pa.array(plain[asked][some]))
            else:
                halves = found.twice_median, np.full(len(some), 2)
                above, below = (found.sums, found.counts) if asked == "avg" else halves
                columns.append(pa.array(quotients(above[some], below[some])))
        return pa.RecordBatch.from_arrays(columns, schema=self._columns)

    def _durations(
        self, kept: MovingWindow | _Kept, look: Look, of: IntArray | None, lows: IntArray, highs: IntArray
    ) -> _Durations:
        """What the kernel finds of each range."""
        from whenabouts.core.coalescing.sliding_aggregates import aggregate_ranges  # numba: imported when first needed

        if of is None:
            assert isinstance(look.tuples, TemporalTuples)
            of = np.searchsorted(look.tuples.starts, lows, side="right") - 1
        found = _Durations(*(np.zeros(len(lows), np.int64) for _ in range(5)))
        tuples = look.tuples.times, look.linked, kept.passes
        asked = self._keeps.extremes, self._keeps.median
        aggregate_ranges(kept.state, *tuples, *kept.queues, of, lows, highs, *asked, *found)
        return found

    def _kept(self, tuples: TemporalTuples) -> _Kept:
        """What aggregates need beside tuples that are all here at once."""
        from whenabouts.core.coalescing.sliding_aggregates import BASE, ROOM, WIDTH

        state = np.zeros((len(tuples.starts) - 1, WIDTH), np.int64)
        room = 2 ** np.ceil(np.log2(np.maximum(np.diff(tuples.starts), 1))).astype(np.int64)
        state[:, BASE], state[:, ROOM] = np.cumsum(room) - room, room
        wanted = (self._keeps.extremes, self._keeps.extremes, self._keeps.median)
        high, low, ordered = (np.empty(int(room.sum()) * each, np.int64) for each in wanted)
        passes = np.ones(len(tuples), bool)
        if self._keeps.where is not None:
            names = [*self._group, *self._values]
            # Taken, not referred to: Arrow's filter wants aligned buffers, which state is not.
            passes = self._keeps.passing(pa.table(tuples.taken(np.arange(len(tuples)), names), names=names))
        return _Kept(state, (high, low, ordered), passes)

    def _weighted(self, look: Look, passes: BoolArray, lows: IntArray, highs: IntArray, column: str) -> pa.Array:
        from whenabouts.core.coalescing.sliding_aggregates import weigh_ranges

        if not len(lows):
            return pa.array([], pa.float64())
        every = np.arange(len(look.tuples.times))
        values = look.tuples.taken(every, (column,))[0].cast(pa.float64(), safe=False)
        known = np.asarray(values.is_valid()) & passes
        numbers = np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False))
        weighted, total = np.zeros(len(lows)), np.zeros(len(lows), np.int64)
        weigh_ranges(look.tuples.times, look.linked, known, numbers, lows, highs, weighted, total)
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(weighted / total, mask=total == 0)


class _Kept(NamedTuple):
    """See `MovingWindow`."""

    state: IntArray
    queues: tuple[IntArray, IntArray, IntArray]
    passes: BoolArray


class _Durations(NamedTuple):
    """Of the coalesced tuples of each range."""

    counts: IntArray
    sums: IntArray
    greatest: IntArray
    least: IntArray
    twice_median: IntArray


def keeps_of(query: TemporalAggregate) -> Keeps:
    """What the aggregates of a query need of a window."""
    asked = set(query.aggregates.values())
    return Keeps(bool(asked & {"max", "min"}), "median" in asked, query.where)


def quotients(above: IntArray, below: IntArray) -> NDArray[np.float64]:
    """above / below, each the double nearest to the exact quotient.

    >>> quotients(np.array([7, 2**53 + 1]), np.array([2, 1])).tolist()
    [3.5, 9007199254740992.0]
    """
    found = above / np.maximum(below, 1)
    for place in np.flatnonzero((np.abs(above) >= _EXACT) & (below > 0)):
        found[place] = float(Fraction(int(above[place]), int(below[place])))
    return np.asarray(found)
