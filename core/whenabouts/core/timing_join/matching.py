"""Finds the pairs of one step: which rows are correlated with which, and the probabilities of the pairs.

The strategies differ in which rows are correlated with which, and when, and in the ranges that avoid kernel calls
(`timing_join.strategies`); the set of pairs is the same for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from whenabouts.core import metrics
from whenabouts.core.arrays.record_batches import RowsAt, has_copies
from whenabouts.core.arrays.typing import BoolArray, FloatArray, IntArray, Positions
from whenabouts.core.joins.output_columns import OfRows
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.joins.sides import LEFT, RIGHT
from whenabouts.core.probability.possibility import instants_outside
from whenabouts.core.runtime.blocks import T_MAX, T_MIN, templates_of, times
from whenabouts.core.runtime.key_names import shared
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.runtime.output_memory import FEW_ROWS, bytes_per_row, require_room
from whenabouts.core.runtime.protocol import Arrival
from whenabouts.core.timing_join.settings import PER_ARRIVAL, WHOLE_BUFFER

if TYPE_CHECKING:
    from whenabouts.core.timing_join.settings import TimingJoinSettings
    from whenabouts.core.timing_join.strategies import Accepts, CorrelationCounters, Times
    from whenabouts.core.timing_join.where import Where


class _Correlation(NamedTuple):
    """One correlation: rows `[start, stop)` of the `base` input with rows `[since, known)` of the other input."""

    base: int
    start: int
    stop: int
    known: int
    since: int = 0


class Matching:
    """The pairs among the rows of a step, and their probabilities.

    `columns`: the columns that each input contributes to the output. `where`: a further condition on pairs.
    """

    def __init__(
        self, query: TimingJoinSettings, keys: Keys, columns: Sequence[Sequence[str]], where: Where | None = None
    ) -> None:
        specs = (query.left_time, query.right_time)
        once = shared(query.key_columns)
        self._keys, self._strategy = keys, query.strategy
        self._condition, self._decided_by = query.condition, query.decided_by
        self.where = where
        self._windows = tuple(query.window_from(input) for input in (LEFT, RIGHT))
        self._declared = tuple((spec.min_uncertainty_us, spec.max_uncertainty_us) for spec in specs)
        self._columns = columns[LEFT], [name for name in columns[RIGHT] if name not in once]
        self.templates = tuple(tuple(template for _, template in spec.templates) for spec in specs)
        self.emits_pairs = query.best is None and not query.mode.one_sided
        self._first_only = query.mode.one_sided and query.strategy not in WHOLE_BUFFER

    def pairs(
        self, rows: Sequence[SideRows], arrivals: Sequence[Arrival], counts: Counter[str]
    ) -> Iterator[tuple[Positions, Positions]]:
        """(left positions, right positions) of all matching pairs with at least one new row; adds to `counts`.

        In semi and anti modes only one such pair for each left row; left rows that matched before are not in `rows`.
        """
        from whenabouts.core.timing_join.strategies import (  # numba: imported when first needed
            CorrelationCounters,
            correlate,
        )

        codes = self._keys.codes([side.table for side in rows]) if self._keys.names else [None, None]
        lengths = [self._lengths(input, side) for input, side in enumerate(rows)]
        counters = CorrelationCounters()
        for work in self._correlations(rows, arrivals):
            base, target = work.base, 1 - work.base
            if work.known == work.since:  # such as stored rows of finite input
                counters.correlations += 1
                continue
            for base_at, target_at in correlate(
                _times(rows[base], codes[base], work.start, work.stop),
                _times(rows[target], codes[target], work.since, work.known),
                *self._windows[base],
                self._decided_by.confidence,
                strategy=self._strategy,
                base_lengths=lengths[base],
                target_lengths=lengths[target],
                counters=counters,
                base_templates=self.templates[base],
                target_templates=self.templates[target],
                base_is_right=base == RIGHT,
                first_only=self._first_only,
                expect=self._expecting(rows),
                accepts=self._accepting(rows, work),
            ):
                base_at = base_at + np.int32(work.start) if work.start else base_at
                target_at = target_at + np.int32(work.since) if work.since else target_at
                yield (base_at, target_at) if base == LEFT else (target_at, base_at)
        _add(counters, counts)

    def _expecting(self, rows: Sequence[SideRows]) -> Callable[[int, int], None] | None:
        """What checks that the pairs fit into memory; of those that `where` leaves nothing is known beforehand."""
        if not self.emits_pairs or self.where is not None:
            return None
        return lambda least, most: self.require_room([side.table for side in rows], least, most)

    def _accepting(self, rows: Sequence[SideRows], work: _Correlation) -> Accepts | None:
        """What decides about the pairs of a correlation besides their times, by their positions among its rows."""
        where, asked, (left, right) = self.where, self._condition, rows
        mixed = asked.possible and self._decided_by.confidence < 1 and _has_instants(left) and _has_instants(right)
        if where is None and not mixed:
            return None

        def accepts(base_at: Positions, target_at: Positions) -> BoolArray:
            at = base_at + np.int32(work.start), target_at + np.int32(work.since)
            left_at, right_at = at if work.base == LEFT else at[::-1]
            accepted = np.ones(len(left_at), bool)
            if mixed:
                ends = (left.t_min, left.t_max), (right.t_min, right.t_max)
                accepted = ~instants_outside(*ends, left_at, right_at, asked.lo_us, asked.hi_us)
            if where is None:
                return accepted
            kept = np.flatnonzero(accepted)
            accepted[kept] = where.holds(left.table, right.table, left_at[kept], right_at[kept])
            return accepted

        return accepts

    def probabilities(self, left: pa.Table, right: pa.Table, left_at: Positions, right_at: Positions) -> FloatArray:
        """The canonical kernel's value for the pairs (left_at[i], right_at[i]) of two tables of blocks. O(pairs)."""
        window = self._condition.lo_us, self._condition.hi_us
        if not any(self.templates):
            from whenabouts.core.probability.satisfaction_probability import (
                probabilities_at,  # numba: imported when first needed
            )

            return probabilities_at(*times(left), *times(right), left_at, right_at, *window)
        from whenabouts.core.probability.histogram_arrays import shapes_of
        from whenabouts.core.probability.histogram_probability import shape_probabilities_at

        sides = []
        for side in (left, right):
            template = templates_of(side)
            sides.append((*times(side), np.empty(0, np.int32) if template is None else template))
        shapes = [shapes_of(templates) for templates in self.templates]
        return shape_probabilities_at(sides[0], sides[1], left_at, right_at, shapes[0], shapes[1], *window)

    def probability_column(
        self, left: pa.Table, right: pa.Table, pairs: tuple[Positions, Positions]
    ) -> FloatArray | OfRows:
        """As `probabilities`, for the rows of an output: from its own columns, if the times are among them."""
        if any(self.templates) or not all(has_copies(side.schema, (T_MIN, T_MAX)) for side in (left, right)):
            return self.probabilities(left, right, *pairs)
        from whenabouts.core.probability.satisfaction_probability import satisfaction_probability

        def of(lefts: RowsAt, rights: RowsAt) -> FloatArray:
            (a, b), (c, d) = ([np.asarray(side[name]) for name in (T_MIN, T_MAX)] for side in (lefts, rights))
            return satisfaction_probability(a, b, c, d, self._condition.lo_us, self._condition.hi_us)

        return of

    def _correlations(self, rows: Sequence[SideRows], arrivals: Sequence[Arrival]) -> list[_Correlation]:
        """Which rows are correlated with which, so that each pair with a new row is considered exactly once.

        The strategies that work per arrival (ITC Alg. 1 and 2) take one arrival after another. The others take one
        block: new left rows with all right rows, then new right rows with the stored left ones. (In Alg. 5 and 6 only
        one side runs, which misses pairs.) If one partner decides about a left row, left rows are the base of both
        correlations, so that each searches its own partner, and no other pair is formed.
        """
        left, right = rows
        if self._strategy in PER_ARRIVAL and not self._first_only:
            return _per_arrival(rows, arrivals)
        new_left = _Correlation(LEFT, left.stored, len(left.t_max), len(right.t_max))
        if self._first_only:
            new_right = _Correlation(LEFT, 0, left.stored, len(right.t_max), since=right.stored)
        else:
            new_right = _Correlation(RIGHT, right.stored, len(right.t_max), left.stored)
        return [work for work in (new_left, new_right) if work.stop > work.start]

    def _lengths(self, input: int, side: SideRows) -> tuple[int, int]:
        """(rho, pi): the declared lengths; if pi is not declared (finite input), the greatest length present."""
        shortest, longest = self._declared[input]
        return shortest, int((side.t_max - side.t_min).max(initial=0)) if longest is None else longest

    def require_room(self, tables: Sequence[pa.Table], at_least: int, at_most: int) -> None:
        """Refuse a result whose certain pairs do not fit into memory (QueryError WA-2201)."""
        if at_least < FEW_ROWS:
            return
        sizes = " x ".join(f"{table.num_rows:,}" for table in tables)
        require_room(
            at_least, bytes_per_row(tables, self._columns, computed=2), f"pairs of {sizes} rows", at_most=at_most
        )


def _has_instants(side: SideRows) -> bool:
    return bool((side.t_min == side.t_max).any())


def _per_arrival(rows: Sequence[SideRows], arrivals: Sequence[Arrival]) -> list[_Correlation]:
    seen = [side.stored for side in rows]
    works: list[_Correlation] = []
    for input, block in arrivals:
        start, stop = seen[input], seen[input] + block.num_rows
        if works and works[-1].base == input:  # rows of one input do not match each other: merge their blocks
            start = works.pop().start
        works.append(_Correlation(input, start, stop, seen[1 - input]))
        seen[input] = stop
    return works


def _times(side: SideRows, codes: IntArray | None, start: int, stop: int) -> Times:
    from whenabouts.core.timing_join.strategies import Times

    taken = slice(start, stop)
    return Times(
        side.t_min[taken],
        side.t_max[taken],
        None if codes is None else codes[taken],
        None if side.template is None else side.template[taken],
    )


def _add(counters: CorrelationCounters, counts: Counter[str]) -> None:
    counts[metrics.PROBED] += counters.probed
    counts[metrics.SURE] += counters.sure
    counts[metrics.LOOKUP_HITS] += counters.lookup_hits
    counts[metrics.CORRELATIONS] += counters.correlations
