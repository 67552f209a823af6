"""Few candidates and possible pairs are filled as `fill_pairs` fills them: in its order, with its counts."""

from __future__ import annotations

import numpy as np
import pytest

from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.times.conditions import LEAST_CONFIDENCE
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.timing_join.candidate_ranges import ranges_of
from whenabouts.core.timing_join.length_classes import NO_KINDS
from whenabouts.core.timing_join.pair_fill import EVERYTHING, STATE_SLOTS, TAKEN, fill_pairs
from whenabouts.core.timing_join.possible_fill import fill_possible_pairs
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


@pytest.mark.parametrize("window", [(-1, 1), (-30, 200), (40, 40), (0, UNBOUNDED_US), (-UNBOUNDED_US, 9)])
@pytest.mark.parametrize("span", [60, 3_000, 40_000])
def test_possible_pairs_and_counts_are_those_of_the_general_kernel(span: int, window: tuple[int, int]) -> None:
    rng = np.random.default_rng(span)
    sides = []
    for _ in range(2):
        t_min = rng.integers(0, span, 1_500)
        lengths = rng.integers(0, 50, 1_500) * rng.integers(0, 2, 1_500)  # half of them are instants
        sides.append(Times(t_min, t_min + lengths, rng.integers(0, 3, 1_500)))
    found = ranges_of(*sides, *window, LEAST_CONFIDENCE, base_lengths=(0, 50), target_lengths=(0, 50))
    # All targets of the key are candidates: possible and impossible ones. A part of the certain ones is said to be so.
    ranges = found.ranges.copy()
    ranges[:, 0], ranges[:, 3] = found.target.starts[found.base.key], found.target.starts[found.base.key + 1]
    certain = ranges_of(*sides, *window, 1.0, base_lengths=(0, 50), target_lengths=(0, 50)).ranges
    ranges[:, 1], ranges[:, 2] = certain[:, 1], certain[:, 2]
    base, target = found.base, found.target
    rows = base.t_min, base.t_max, base.position, target.t_min, target.t_max, target.position, ranges
    room = int((ranges[:, 3] - ranges[:, 0]).sum())
    answers = []
    for kernel in (fill_pairs, fill_possible_pairs):
        state, out = np.zeros(STATE_SLOTS, np.int64), (np.zeros(room, np.int32), np.zeros(room, np.int32))
        if kernel is fill_pairs:
            given = (*window, LEAST_CONFIDENCE, *rows, NO_KINDS, np.empty(0, np.int64), 0)
            count = kernel(EVERYTHING, *given, state, *out)
        else:
            count = kernel(*window, *rows, state, *out)
        answers.append((*(column[:count].tolist() for column in out), state[2:5].tolist()))
    assert answers[1] == answers[0]
    assert 0 < len(answers[0][0]) < room
    assert bool(answers[0][2][TAKEN - 2]) is (window[1] - window[0] > 100)
