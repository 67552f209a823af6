"""The join aggregate: for each left row numbers about the right rows that meet a timing condition, and no pairs.

`JoinAggregate` is the query; `join_aggregate.operator` runs it over blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Required, TypedDict

import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.costs.choices import Choice, Held, Value, Workload
from whenabouts.core.durations import Duration
from whenabouts.core.join_aggregate.cost import algorithm, folding, held
from whenabouts.core.join_aggregate.functions import Asked
from whenabouts.core.join_aggregate.settings import JoinAggregateSettings
from whenabouts.core.runtime.key_names import On
from whenabouts.core.times.conditions import Condition
from whenabouts.core.times.lateness import Lateness
from whenabouts.core.times.time_specs import TimeSpec

if TYPE_CHECKING:
    from whenabouts.core.join_aggregate.operator import JoinAggregateOperator


class JoinAggregateOptions(TypedDict, total=False):
    """The fields of `JoinAggregate`, as functions take them."""

    left_time: Required[TimeSpec]
    right_time: Required[TimeSpec]
    condition: Required[Condition | Duration | tuple[Duration, Duration]]
    aggregates: Required[Mapping[str, Asked]]
    on: On
    how: str
    lateness: Lateness | Duration | Mapping[str, Duration] | None
    time_slots: Duration | None
    rates: Mapping[str, float]
    min_confidence: float | None
    most_uncertain: int | None
    folding: str


@dataclass(frozen=True, kw_only=True)
class JoinAggregate(JoinAggregateSettings):
    """A join aggregate of two inputs, validated.

    `condition`: as in `TimingJoin`. Where only chance functions are asked it needs no confidence, and may be a bare
    window: a duration (`"2 s"`), or bounds on right - left (`("-5 minutes", "0 s")`). `on`, `lateness`, `time_slots`,
    `rates`, `min_confidence`: as in `TimingJoin`.

    `aggregates`: output name -> `"function"`, `"function:argument"` or `(function, argument)`. **Decided** functions
    look at the right rows that reach the confidence, the pairs of the timing join: `count`, `count:v` (of rows with a
    value), `any`, `sum:v`, `mean:v`, `min:v`, `max:v`, `first:v`, `last:v`, `count_distinct:v`, `collect:v`. **Chance**
    functions look at all right rows that are possible, and know no confidence: `expected_count`, `expected_sum:v`,
    `count_variance`, `sum_variance:v`, `p_none`, `p_any`, `p_at_least:k` and `count_at:c`, the greatest k that is
    reached with the probability c. Partners share the left row's time, and the offset of their clock (`from_clock`), so
    that they are not independent: these functions integrate over both.

    `first` and `last` follow the middle of the times, then their ends, then the aggregated columns in the order of the
    right input. `how`: `left_outer` keeps all left rows, `inner` those with at least one pair.

    `most_uncertain`: a left row with more uncertain right rows (those of equal times count once) stops the query with
    WA-2182.

    `folding`, on streams: whether right rows that only waiting left rows can meet are *folded* into these: what they
    add to each answer is kept in their place, so that a few left rows do not keep many right rows. `auto`: where there
    are at least 1,000 of them, and 4 for each waiting left row; `always`: in each step; `never`. `count_distinct`,
    `collect`, variances and probabilities need the rows themselves. The results have the same bits.

    Raises QueryError: WA-2001 for a bad confidence, WA-2006 for no aggregates, an unknown function, a missing, spare
    or invalid argument, an unknown option value, or `folding="always"` with a function that needs the rows, WA-2009 for
    a name that is taken, WA-2011 for a clock whose offset matters but is not declared, WA-2041 for impossible time
    slots, WA-2064 for a decided function or `inner` without a confidence.

    >>> import whenabouts as wa
    >>> wa.JoinAggregate(left_time=wa.Point("t"), right_time=wa.Point("t"), condition=wa.within("1 s", confidence=1),
    ...                  aggregates={"n": "count", "total": "sum:v"}).aggregates[1]
    Aggregate(name='total', function='sum', argument='v')
    """

    own_counts = (metrics.CHANCE_TERMS, metrics.NOT_FINITE)

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """The only way to run it, and whether streams fold; see `costs.choices`. There is nothing to pin."""
        return [algorithm(self), folding(self)]

    def held(self, input: int, load: Workload) -> Held:
        """The rows that a stream holds on average; see `costs.choices.Holding`."""
        return held(self, input, load)

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> JoinAggregateOperator:
        """The operator for a left and a right schema.

        Raises InputError WA-1001 for an unknown column, WA-1023 for sums of what is no number, QueryError WA-2008 for
        keys that cannot be compared, WA-2009 for an aggregate that is named as a left column. On a stream WA-2004 for a
        one-sided condition, and WA-2010 for intervals without `max_uncertainty`: state would never shrink.
        """
        if streaming:
            self.reach.require_bounds()
        from whenabouts.core.join_aggregate.operator import JoinAggregateOperator

        return JoinAggregateOperator(self, schemas, streaming=streaming)
