"""Rows with few candidates are filled as `fill_pairs` fills them: the same pairs in the same order, the same counts."""

from __future__ import annotations

import numpy as np
import pytest

from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.timing_join.candidate_ranges import ranges_of
from whenabouts.core.timing_join.length_classes import NO_KINDS
from whenabouts.core.timing_join.pair_fill import EVERYTHING, STATE_SLOTS, fill_pairs
from whenabouts.core.timing_join.short_fill import fill_short_rows

LO, HI, CONFIDENCE = -300, 300, 0.7


@pytest.mark.parametrize("span", [500, 20_000, 400_000, 10_000_000])
@pytest.mark.parametrize("rows", [3, 1_100])
def test_pairs_and_counts_are_those_of_the_general_kernel(rows: int, span: int) -> None:
    rng = np.random.default_rng(rows + span)
    sides = []
    for _ in range(2):
        t_min = rng.integers(0, span, rows)
        sides.append(Times(t_min, t_min + rng.integers(0, 200, rows), rng.integers(0, 3, rows)))
    lengths = (0, 200)
    found = ranges_of(*sides, LO, HI, CONFIDENCE, base_lengths=lengths, target_lengths=lengths)
    base, target, ranges = found.base, found.target, found.ranges
    room = int((ranges[:, 3] - ranges[:, 0]).sum())
    given = (
        LO, HI, CONFIDENCE, base.t_min, base.t_max, base.position, target.t_min, target.t_max, target.position, ranges,
    )  # fmt: skip
    answers = []
    for kernel in (fill_pairs, fill_short_rows, fill_short_rows.py_func):  # type: ignore[attr-defined]  # numba's
        state = np.zeros(STATE_SLOTS, np.int64)
        out = np.zeros(room, np.int32), np.zeros(room, np.int32)
        if kernel is fill_pairs:
            count = kernel(EVERYTHING, *given, NO_KINDS, np.empty(0, np.int64), 0, state, *out)
        else:
            count = kernel(*given, state, *out)
        answers.append((*(column[:count].tolist() for column in out), state[2:5].tolist()))
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
    assert room == 0 or len(answers[0][0]) > 0
