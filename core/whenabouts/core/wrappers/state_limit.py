"""A limit on the rows that a bucket may hold, and what happens when it is reached.

State grows with the rate of the inputs and the width of the window, so a burst or one hot key can exceed the memory of
a worker. With a limit the outcome is defined: the query fails with a code, or it sheds rows, which are rejected and
counted like every other row that is not processed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import BoolArray
from whenabouts.core.durations import whole_of
from whenabouts.core.errors import Code, EngineError, QueryError
from whenabouts.core.runtime.blocks import PREFIX, times
from whenabouts.core.runtime.option_checks import one_of, shown
from whenabouts.core.runtime.protocol import NO_WATERMARK, Arrival, FlushMode, Operator, Rejected, SegmentStore, Step
from whenabouts.core.wrappers.base import WrappedOperator

FAIL, SHED = "fail", "shed"


@dataclass(frozen=True)
class StateLimit:
    """At most `rows` rows of all inputs in the state of one bucket; `on_full` is "fail" or "shed".

    "fail" raises EngineError WA-3033 in the step in which the rows would not fit: nothing of it is committed, and the
    query can be started again with a higher limit. "shed" rejects the rows that do not fit (WA-1042): of those that
    arrive in one step the latest by time, of one time the last by their columns. Rows that the watermark makes obsolete
    leave before either. What the store has counts: with `best` a row that waits for its partner's choice, and a second
    time as long as the segment from which it came is there; where rows are coalesced, be it runs or rows. Rows that are
    not selected, and repeats (`deduplicate_by`), need no room; a repeat of a row that was shed is a repeat. Finite
    inputs keep no state: there it changes nothing. Raises QueryError WA-2006 for an invalid limit.

    >>> StateLimit(1_000_000).on_full
    'fail'
    """

    rows: int
    on_full: str = FAIL

    def __post_init__(self) -> None:
        rows = whole_of(self.rows)
        if rows is None or rows < 1:
            problem = f"the limit of the state is {shown(self.rows)} rows"
            raise QueryError(Code.BAD_OPTION, problem, "give one row or more")
        object.__setattr__(self, "rows", rows)
        one_of("on_full", self.on_full, (FAIL, SHED))


class StateBound(StateLimit):
    """Deprecated name of `StateLimit`, whose `on_full` it calls `when_full`."""

    def __init__(self, rows: int, when_full: str = FAIL) -> None:
        warnings.warn(
            "StateBound(rows, when_full=) is called StateLimit(rows, on_full=) now", DeprecationWarning, stacklevel=2
        )
        super().__init__(rows, when_full)

    @property
    def when_full(self) -> str:
        """`on_full`."""
        return self.on_full


class LimitedOperator(WrappedOperator):
    """An operator whose state stays within a limit."""

    def __init__(self, operator: Operator, limit: StateLimit) -> None:
        super().__init__(operator)
        self._limit = limit

    def step(
        self,
        store: SegmentStore,
        arrivals: Sequence[Arrival],
        watermark_us: int,
        demand: FlushMode = FlushMode.NOTHING,
        latest_us: int = NO_WATERMARK,
    ) -> Step:
        """One step of `protocol.Operator`. Also costs one `get`, and a step without rows if new ones do not fit."""
        if demand is FlushMode.END or not arrivals:  # at the end nothing is kept
            return self._operator.step(store, arrivals, watermark_us, demand, latest_us)
        fresh = sum(int((times(arrival.block)[1] >= watermark_us).sum()) for arrival in arrivals)
        freed = Step()
        room = self._limit.rows - self._operator.rows_held(store)
        if fresh > room:
            freed = self._operator.step(store, [], watermark_us, demand, latest_us)
            room = self._limit.rows - self._operator.rows_held(store)
        shed: list[Rejected] = []
        if fresh > room:
            arrivals, shed = self._shed(arrivals, watermark_us, max(room, 0), fresh)
        step = self._operator.step(store, arrivals, watermark_us, demand, latest_us)
        return _both(freed, step, shed)

    def _shed(
        self, arrivals: Sequence[Arrival], watermark_us: int, room: int, fresh: int
    ) -> tuple[list[Arrival], list[Rejected]]:
        """The arrivals with at most `room` rows that are not late, and the others."""
        if self._limit.on_full == FAIL:
            raise EngineError(
                Code.STATE_FULL,
                f"{fresh} rows arrive in a bucket that has room for {room} of its {self._limit.rows}",
                "raise the limit, use more buckets, a narrower window or less lateness, or shed: on_full='shed'",
            )
        kept, shed = [], []
        fitting = _earliest(arrivals, [times(block)[1] >= watermark_us for _, block in arrivals], room)
        for (input, block), fits in zip(arrivals, fitting, strict=True):
            kept.append(Arrival(input, block.filter(pa.array(fits))))
            if not fits.all():
                rows = self._operator.readers[input].raw(block.filter(pa.array(~fits)))
                shed.append(Rejected(input, Code.SHED, rows))
        return [arrival for arrival in kept if arrival.block.num_rows], shed


def _earliest(arrivals: Sequence[Arrival], counted: Sequence[BoolArray], room: int) -> list[BoolArray]:
    """The rows of each arrival without those that are counted and not among the first `room` of these.

    In the order of `t_max`, `t_min`, input and content, so that the order of arrival, which no engine promises within a
    step, does not matter. Columns are compared only among the rows that share the rest with the last that fits.
    """
    blocks = [block for _, block in arrivals]
    lengths = [block.num_rows for block in blocks]
    input = np.repeat([arrival.input for arrival in arrivals], lengths)
    t_min, t_max = (np.concatenate(ends) for ends in zip(*map(times, blocks), strict=True))
    at = np.flatnonzero(np.concatenate(counted))
    at = at[np.lexsort((input[at], t_min[at], t_max[at]))]
    if 0 < room < len(at):
        last = at[room - 1]
        tied = np.flatnonzero((t_max[at] == t_max[last]) & (t_min[at] == t_min[last]) & (input[at] == input[last]))
        if tied[-1] >= room:
            own = pa.Table.from_batches([block for number, block in arrivals if number == input[last]])
            own = own.select([name for name in own.column_names if not name.startswith(PREFIX)])
            number = np.cumsum(input == input[last]) - 1
            at[tied] = at[tied][np.argsort(ranks_of_rows(take_table(own, number[at[tied]])), kind="stable")]
    fits = np.ones(len(input), bool)
    fits[at[room:]] = False
    return np.split(fits, np.cumsum(lengths)[:-1])


def limited(operator: Operator, limit: StateLimit | None) -> Operator:
    """The operator under a limit, if there is one. Where wrappers leave rows out (repeats, rows that are not selected),
    the limit is on what is left.

    Raises QueryError WA-2007 for shedding where rows are copied to time slots: a copy that is shed would lose pairs of
    a row that is not rejected.
    """
    if limit is None:
        return operator
    if limit.on_full == SHED and operator.keys.slots is not None:
        raise QueryError(
            Code.NOT_AVAILABLE,
            "rows that are spread by time slots cannot be shed",
            'give time_slots=None, or on_full="fail"',
        )
    if isinstance(operator, WrappedOperator):
        return operator.around(lambda inner: limited(inner, limit))
    return LimitedOperator(operator, limit)


def _both(first: Step, second: Step, shed: list[Rejected]) -> Step:
    """Two steps in one, with what was shed between them."""
    both = replace(
        second,
        output=first.output + second.output,
        rejected=first.rejected + second.rejected + shed,
        metrics=second.metrics.copy(),
    )
    both.metrics.update(first.metrics)
    if shed:
        rows = sum(each.rows.num_rows for each in shed)
        both.metrics[metrics.SHED] += rows
        both.metrics[metrics.REJECTED] += rows
    return both
