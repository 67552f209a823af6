"""The as-of join: for each left row the right row of its key that prevails at its time.

`AsofJoin` is the query; `asof_join.operator` runs it over blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Required, TypedDict

import pyarrow as pa

from whenabouts.core.asof_join.cost import algorithm, held
from whenabouts.core.asof_join.settings import AsofJoinSettings
from whenabouts.core.costs.choices import Choice, Held, Value, Workload
from whenabouts.core.durations import Duration
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.key_names import On
from whenabouts.core.times.lateness import Lateness
from whenabouts.core.times.time_specs import TimeSpec

if TYPE_CHECKING:
    from whenabouts.core.asof_join.operator import AsofJoinOperator


class AsofJoinOptions(TypedDict, total=False):
    """The fields of `AsofJoin`, as functions take them."""

    left_time: Required[TimeSpec]
    right_time: Required[TimeSpec]
    on: On
    direction: str
    tolerance: Duration | None
    allow_exact_matches: bool
    confidence: float | None
    keep: str
    how: str
    order_by: str | Sequence[str] | None
    probability: bool
    suffixes: tuple[str, str]
    lateness: Lateness | Duration | Mapping[str, Duration] | None
    time_slots: Duration | None
    max_candidates: int | None


@dataclass(frozen=True, kw_only=True)
class AsofJoin(AsofJoinSettings):
    """An as-of join of two inputs, validated.

    `on`: key column(s), as in `TimingJoin`; none means one key. `direction`: the right row that prevails is the last at
    or before the left row (`backward`), the first at or after it (`forward`), or the closer of these two (`nearest`;
    the earlier one if both are equally far). `tolerance`: the greatest distance, inclusive; it never brings in the
    second-best row. `allow_exact_matches=False`: rows at exactly the time of the left row do not count; this concerns
    points, for two uncertain times are equal with probability 0.

    Rows at one instant are in the order of the columns `order_by` (ascending, nulls first), then of all columns
    (`arrays.row_ranks`). The greatest prevails looking backward, the least looking forward.

    Times may be uncertain. Then a right row prevails with a probability: that of the worlds in which it is the answer.
    A row comes out if it is at least `confidence`, which only a join of two `Point`s may leave out. `keep="best"`: only
    the most probable row (equally probable ones: the later, looking forward the earlier); `"all"`: each row that
    reaches the confidence, at most `1 / confidence` of them. `how`: `left_outer` keeps left rows without such a row,
    `inner` drops them, `left_anti` gives the left rows for which *no* right row prevails with at least the confidence.
    `max_candidates`: a left row with more right rows that may prevail is rejected (WA-1053); the default depends on
    what they cost.

    `time_slots`: as in `TimingJoin`; needs a `tolerance`. Clocks (`from_clock`) are resolved here: the offset of the
    right clock is common to all right rows, so that only the left time carries it.

    Raises QueryError: WA-2001 for a bad confidence, WA-2064 for a missing one, WA-2002 and WA-2003 for the tolerance,
    WA-2006 for an unknown option value, or `keep` with `left_anti`, WA-2011 for a clock whose offset matters but is not
    declared, WA-2041 for time slots without a tolerance.

    >>> import whenabouts as wa
    >>> wa.AsofJoin(left_time=wa.Point("t"), right_time=wa.Point("t"), on="k", how="left").how
    'left_outer'
    """

    def operator(self, schemas: Sequence[pa.Schema], *, streaming: bool) -> AsofJoinOperator:
        """The operator for a left and a right schema.

        Raises InputError WA-1001 for an unknown column, QueryError WA-2008 for keys that cannot be compared, WA-2009
        for clashing column names. On a stream, WA-2010 for intervals without `max_uncertainty`, and for a join that
        looks ahead without `tolerance`: a left row could wait for ever.
        """
        if streaming:
            self.require_bounded()
        from whenabouts.core.asof_join.operator import AsofJoinOperator

        return AsofJoinOperator(self, schemas, streaming=streaming)

    def choices(self, load: Workload | None = None, pins: Mapping[str, Value] | None = None) -> list[Choice]:
        """The only way to run it, with its cost; see `costs.choices`. There is nothing to pin."""
        return [algorithm(self, load or Workload())]

    def held(self, input: int, load: Workload) -> Held:
        """The rows that a stream holds on average; see `costs.choices.Holding`."""
        return held(self, input, load)

    def require_bounded(self) -> None:
        """Raise QueryError WA-2010 if nothing bounds how long a stream has to wait or to keep rows."""
        for name, time in zip(self.inputs, (self.left_time, self.right_time), strict=True):
            if time.max_uncertainty_us is None:
                raise QueryError(
                    Code.UNBOUNDED_STATE,
                    f"the {name} intervals have no declared greatest length",
                    "give Interval(..., max_uncertainty=...): it bounds the state of a stream",
                )
        if self.direction != "backward" and self.tolerance is None:
            raise QueryError(
                Code.UNBOUNDED_STATE,
                f"direction={self.direction!r} without a tolerance: a left row could wait for ever",
                "give tolerance=..., how far after the left row the right one may be",
            )
