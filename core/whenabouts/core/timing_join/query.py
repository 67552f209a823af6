"""The timing join: pairs of a left and a right event with `P(lo <= X2 - X1 <= hi) >= confidence`.

`TimingJoin` is the query; `timing_join.operator` runs it over blocks with its state in segments. Sources: ITC
(Lee 2010) section 4, PTJoin (Mok) section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Required, TypedDict

import pyarrow as pa

from whenabouts.core.costs.choices import Choice, Value, Workload
from whenabouts.core.durations import Duration
from whenabouts.core.joins.pair_conditions import PairPredicate
from whenabouts.core.runtime.key_names import On
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.lateness import Lateness
from whenabouts.core.times.time_specs import TimeSpec
from whenabouts.core.timing_join.cost import choices, load_of
from whenabouts.core.timing_join.settings import TimingJoinSettings

if TYPE_CHECKING:
    from whenabouts.core.timing_join.operator import TimingJoinOperator


class TimingJoinOptions(TypedDict, total=False):
    """The fields of `TimingJoin`, as functions take them."""

    left_time: Required[TimeSpec]
    right_time: Required[TimeSpec]
    condition: Required[Condition]
    on: On
    how: str
    best: str | None
    ties: str
    strategy: str
    lateness: Lateness | Duration | Mapping[str, Duration] | None
    suffixes: tuple[str, str]
    probability: bool
    block_size: int | None
    max_latency: Duration | None
    rates: Mapping[str, float]
    min_confidence: float | None
    time_slots: Duration | None
    where: PairPredicate | None


@dataclass(frozen=True, kw_only=True)
class TimingJoin(TimingJoinSettings):
    """A timing join of two inputs, validated.

    `on`: key column(s) that must be equal; none means one key. A key that the sides call differently is a pair, as in
    `on=[("region", "reg")]`, or all are given as `{"left": [...], "right": [...]}`; both columns of a pair come out.

    `strategy`: see `STRATEGIES`. In a lazy strategy at most `block_size` rows wait, and none longer than `max_latency`
    of event time; `auto` lets rows wait if there is a `max_latency`. None: the cost model decides (`timing_join.cost`),
    from `rates`, rows per second by input, if given. On an engine with batches of its own (Spark) a micro-batch is a
    block, and rows wait beyond it only if `block_size` or `max_latency` is given. If rows may wait, the output has no
    event time that an engine could rely on. `probability=False` leaves the column out.
    `lateness`: how far rows may lag behind their side, a duration for both sides or a `Lateness`. `how`, `best`: see
    `timing_join.modes`, which also has the names that Spark, pandas and Polars use for `how`. `ties`: which of equally
    probable partners is the best, the `earliest` (the default) or the `nearest` by midpoint, for exact times by time.

    `time_slots`: the width of slots that spread the rows of a key over buckets (`runtime.time_slots`); "auto": if there
    is no key and the query allows slots, as wide as the range in which partners lie.

    `where`: a further condition on the columns of both rows, like the `ON` of SQL. In SQL (see `expressions.sql`),
    columns are written `left.x`, `right.x`, or as in the output of an inner join (`x_left`); the same on every engine.
    Or a function of two aligned tables, the left and the right rows' columns, to a boolean array: it is called for
    blocks of candidate pairs, in any order and number of calls, so it must be a function of each pair alone, and it
    travels to the workers by pickle. Null is not true. A row without a partner that meets both conditions is unmatched,
    `best` chooses among those that do, and the probability is that of the timing condition.

    Clocks (`from_clock`) are resolved here: `left_time` and `right_time` become the times that they mean in this join.

    Raises QueryError: WA-2001 for a `min_confidence` above the confidence, WA-2006 for an unknown option value, WA-2011
    for a clock whose offset matters but is not declared, WA-2041 for time slots in a mode that decides about both
    sides, with a one-sided condition, or with undeclared lengths of intervals, WA-2091 for a `where` that is no SQL
    condition. `operator` raises WA-2092 and WA-2093 for columns and types in it.

    >>> import whenabouts as wa
    >>> point = wa.Point("t")
    >>> wa.TimingJoin(left_time=point, right_time=point, condition=wa.within("1s", confidence=1), on="k").on
    ('k',)
    """

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """What `auto` chooses, and why; see `costs.choices`. `pins`: options fixed by hand."""
        return choices(self, load_of(self, load or Workload()), pins or {})

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> TimingJoinOperator:
        """The operator for a left and a right schema.

        On a stream, raises QueryError WA-2004 for a one-sided condition, and WA-2010 for intervals without
        `max_uncertainty`: state would never shrink.
        """
        if streaming:
            self.require_bounds()
        from whenabouts.core.timing_join.operator import TimingJoinOperator

        return TimingJoinOperator(self, schemas, streaming=streaming)
