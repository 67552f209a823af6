"""Runs a `TemporalAggregate` over the blocks and the state of one bucket.

A group's extents at successive instants are ranges of its tuples whose ends only move forward, and only the first and
last run of a range can be cut. The durations of the other runs are added and subtracted, the greatest and least come
from monotone queues, and medians from sorted durations. So an instant costs the tuples that were added and dropped, not
the window: within one step, and from step to step if the window stays in memory (`coalescing.sliding_window`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray
from whenabouts.core.coalescing.aggregate_needs import AggregateNeeds
from whenabouts.core.coalescing.columns import WINDOW_END, time_array
from whenabouts.core.coalescing.extents import FinalExtents
from whenabouts.core.coalescing.operator import CoalesceOperator
from whenabouts.core.coalescing.settings import CoalesceSettings
from whenabouts.core.coalescing.sliding_window import SlidingWindow
from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.expressions.tree import Expression
from whenabouts.core.runtime.protocol import FlushMode, SegmentStore, Step

_EXACT = 2**53


class AggregateSettings(CoalesceSettings, Protocol):
    """The validated settings of a `TemporalAggregate`."""

    @property
    def aggregates(self) -> Mapping[str, str | tuple[str, str]]:
        """By output column the function, or a pair of function and column."""

    @property
    def where(self) -> pc.Expression | Expression | None:
        """Which coalesced tuples count."""


class AggregateOperator(CoalesceOperator):
    """Runs a `TemporalAggregate` over the blocks and the state of one bucket."""

    query: AggregateSettings

    def __init__(self, query: AggregateSettings, schema: pa.Schema) -> None:
        self._needs = _needs_of(query)
        super().__init__(query, schema, self._needs)
        self._group, self._values = self._spec.group, self._spec.values
        plain = self.readers[0].schema
        fields = [self._output.schema.field(WINDOW_END)] if query.extents.slides else []
        fields += [plain.field(name) for name in self._group]
        for name, asked in query.aggregates.items():
            if isinstance(asked, tuple) and asked[1] not in self._values:
                raise InputError(
                    Code.MISSING_COLUMN, f"{asked[1]!r} is no value column", f"they are {', '.join(self._values)}"
                )
            if isinstance(asked, tuple):
                type_ = plain.field(asked[1]).type
                if not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
                    raise InputError(
                        Code.INCOMPARABLE_VALUES,
                        f"value column {asked[1]!r} is {type_}",
                        "only numbers have a weighted mean",
                    )
            real = isinstance(asked, tuple) or asked in ("avg", "median")
            fields.append(pa.field(name, pa.float64() if real else pa.int64()))
        self._columns = pa.schema(fields)
        if len(set(self._columns.names)) < len(fields):
            raise QueryError(
                Code.COLUMN_CLASH, f"two output columns share a name: {', '.join(self._columns.names)}", "rename one"
            )

    @property
    def output_schema(self) -> pa.Schema:
        """`window_end` if the window slides, the group columns, the aggregates."""
        return self._columns

    def rows_of(self, extents: FinalExtents) -> pa.RecordBatch:
        """The aggregates of final extents."""
        ranges = extents.ranges
        full = ranges.lows < ranges.highs
        at_us, lows, highs = (column[full] for column in (ranges.at_us, ranges.lows, ranges.highs))
        of = None if ranges.group is None else ranges.group[full]
        kept = extents.tuples if isinstance(extents.tuples, SlidingWindow) else self._one_off(extents.tuples)
        found = self._durations(kept, extents, of, lows, highs)
        some = found.counts > 0
        columns = [time_array(at_us[some], self._columns.field(WINDOW_END).type)] if self.query.extents.slides else []
        columns += extents.tuples.taken(lows[some], self._group)
        plain = {"max": found.greatest, "min": found.least, "sum": found.sums, "count": found.counts}
        weighted: dict[str, pa.Array] = {}
        for asked in self.query.aggregates.values():
            if isinstance(asked, tuple):
                if asked[1] not in weighted:
                    means = self._weighted_means(extents, kept.passes, lows, highs, asked[1])
                    weighted[asked[1]] = means.filter(pa.array(some))
                columns.append(weighted[asked[1]])
            elif asked in plain:
                columns.append(pa.array(plain[asked][some]))
            else:
                halves = found.twice_median, np.full(len(some), 2)
                above, below = (found.sums, found.counts) if asked == "avg" else halves
                columns.append(pa.array(quotients(above[some], below[some])))
        return pa.RecordBatch.from_arrays(columns, schema=self._columns)

    def _without_extent(
        self, store: SegmentStore, blocks: list[pa.RecordBatch], demand: FlushMode, step: Step
    ) -> pa.RecordBatch | None:
        """Aggregates always need the extents."""
        return None

    def _durations(
        self, kept: SlidingWindow | _OneOff, extents: FinalExtents, of: IntArray | None, lows: IntArray, highs: IntArray
    ) -> _Durations:
        """Count, sum and extremes of the durations in each range."""
        from whenabouts.core.coalescing.sliding_aggregates import aggregate_ranges  # numba: imported when first needed

        if of is None:
            assert isinstance(extents.tuples, TemporalTuples)
            of = np.searchsorted(extents.tuples.starts, lows, side="right") - 1
        found = _Durations(*(np.zeros(len(lows), np.int64) for _ in range(5)))
        tuples = extents.tuples.times, extents.linked, kept.passes
        asked = self._needs.extremes, self._needs.median
        aggregate_ranges(kept.state, *tuples, *kept.queues, of, lows, highs, *asked, *found)
        return found

    def _one_off(self, tuples: TemporalTuples) -> _OneOff:
        """What aggregates need for tuples that are evaluated only once."""
        from whenabouts.core.coalescing.sliding_aggregates import BASE, ROOM, WIDTH

        state = np.zeros((len(tuples.starts) - 1, WIDTH), np.int64)
        room = 2 ** np.ceil(np.log2(np.maximum(np.diff(tuples.starts), 1))).astype(np.int64)
        state[:, BASE], state[:, ROOM] = np.cumsum(room) - room, room
        wanted = (self._needs.extremes, self._needs.extremes, self._needs.median)
        high, low, ordered = (np.empty(int(room.sum()) * each, np.int64) for each in wanted)
        passes = np.ones(len(tuples), bool)
        if self._needs.where is not None:
            names = [*self._group, *self._values]
            # Copied, not referenced: Arrow's filter needs aligned buffers, and those of the state are not.
            passes = self._needs.passing(pa.table(tuples.taken(np.arange(len(tuples)), names), names=names))
        return _OneOff(state, (high, low, ordered), passes)

    def _weighted_means(
        self, extents: FinalExtents, passes: BoolArray, lows: IntArray, highs: IntArray, column: str
    ) -> pa.Array:
        from whenabouts.core.coalescing.sliding_aggregates import weigh_ranges

        if not len(lows):
            return pa.array([], pa.float64())
        every = np.arange(len(extents.tuples.times))
        values = extents.tuples.taken(every, (column,))[0].cast(pa.float64(), safe=False)
        counts = np.asarray(values.is_valid()) & passes
        numbers = np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False))
        weighted, total = np.zeros(len(lows)), np.zeros(len(lows), np.int64)
        weigh_ranges(extents.tuples.times, extents.linked, counts, numbers, lows, highs, weighted, total)
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(weighted / total, mask=total == 0)


class _OneOff(NamedTuple):
    """What a `SlidingWindow` maintains for aggregates, for a single evaluation."""

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


def _needs_of(query: AggregateSettings) -> AggregateNeeds:
    """What the aggregates of a query need from a window."""
    asked = set(query.aggregates.values())
    return AggregateNeeds(bool(asked & {"max", "min"}), "median" in asked, query.where)


def quotients(above: IntArray, below: IntArray) -> FloatArray:
    """above / below, each the double nearest to the exact quotient.

    >>> quotients(np.array([7, 2**53 + 1]), np.array([2, 1])).tolist()
    [3.5, 9007199254740992.0]
    """
    found = above / np.maximum(below, 1)
    for i in np.flatnonzero((np.abs(above) >= _EXACT) & (below > 0)):
        found[i] = float(Fraction(int(above[i]), int(below[i])))
    return np.asarray(found)
