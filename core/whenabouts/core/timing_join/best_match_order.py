"""The best partner of each row: the most probable one; ties go to the nearer midpoint if the mode says so, then the
earlier `t_max`, then the earlier `t_min`, then the lesser columns (`arrays.row_ranks`), then the lower number.

The last criterion only distinguishes rows that are equal in everything. Together they are one total order, so the best
partner does not depend on how rows are divided into chunks, steps or files.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whenabouts.core.arrays.record_batches import take_table
from whenabouts.core.arrays.row_ranks import ranks_of_rows
from whenabouts.core.arrays.typing import FloatArray, IntArray
from whenabouts.core.runtime.blocks import PREFIX, times

NOBODY = -1


class BestPartners:
    """The best partner so far of each of `n` rows, among `candidates` (a table of block columns).

    `middle`: `t_min + t_max` of each row, if ties go to the nearest partner; None: to the earliest. `numbers`: the
    candidates' numbers, None if any of several equal rows may be chosen. `best`, `probability`: index of the best
    candidate (-1 for none) and its probability. O(1) for each pair offered; columns are compared only to break ties.

    >>> rows = pa.table({"_wa_t_min": [0, 0, 0], "_wa_t_max": [5, 5, 5], "v": [3, 2, None]})
    >>> partners = BestPartners(1, rows, None)
    >>> partners.offer(np.zeros(2, np.int32), np.array([0, 1], np.int32), np.array([0.5, 0.5]))
    >>> partners.best.tolist(), partners.probability.tolist()
    ([1], [0.5])
    """

    def __init__(self, n: int, candidates: pa.Table, numbers: IntArray | None, middle: IntArray | None = None) -> None:
        self.best = np.full(n, NOBODY)
        self.probability = np.zeros(n)
        self.candidates = candidates
        self.numbers = numbers
        self._t_min, self._t_max = (np.ascontiguousarray(each, np.int64) for each in times(candidates))
        self._middle = np.empty(0, np.int64) if middle is None else middle
        self._rank = np.empty(0, np.int64)  # until one is needed

    def offer(self, rows: NDArray[np.int32], at: NDArray[np.int32], probability: FloatArray) -> None:
        """Process pairs: candidate `at[i]` matches row `rows[i]`."""
        done = self._keep(rows, at, probability)
        if done < len(rows):
            self._rank = self._ranks()
            self._keep(rows[done:], at[done:], probability[done:])

    def _keep(self, rows: NDArray[np.int32], at: NDArray[np.int32], probability: FloatArray) -> int:
        """How many of the pairs were taken in: all, unless ranks are needed."""
        from whenabouts.core.timing_join.best_match_kernel import keep_best  # numba: imported when first needed

        done: int = keep_best(
            rows, at, probability, self._t_max, self._t_min, self._rank, self._middle, self.probability, self.best
        )
        return done

    def _ranks(self) -> IntArray:
        """Ranks by columns, then by number, of the rows that share their times with another one."""
        order = np.lexsort((self._t_min, self._t_max))
        same = (np.diff(self._t_max[order]) == 0) & (np.diff(self._t_min[order]) == 0)
        shared = np.zeros(len(order), bool)
        shared[1:] |= same
        shared[:-1] |= same
        at = np.sort(order[shared])
        own = [name for name in self.candidates.column_names if not name.startswith(PREFIX)]
        by_columns = ranks_of_rows(take_table(self.candidates.select(own), at))
        number = at if self.numbers is None else self.numbers[at]
        ranks = np.zeros(len(order), np.int64)
        ranks[at[np.lexsort((number, by_columns))]] = np.arange(len(at))
        return ranks
