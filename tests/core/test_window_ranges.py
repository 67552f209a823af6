"""Which tuples row-count windows contain, where many tuples share their times."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core.coalescing.tuples import TemporalTuples
from whenabouts.core.coalescing.window_ranges import Window, ranges_at


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_the_stream_are_the_last_ones_by_time_and_group(seed: int) -> None:
    draw = random.Random(seed)
    names = draw.sample("abcdefg", draw.randint(1, 7))  # groups are numbered in another order than theirs
    held = {name: sorted(draw.sample(range(12), draw.randint(0, 9))) for name in names}
    starts = np.cumsum([0, *(len(at) for at in held.values())])
    number = np.repeat(np.arange(len(names), dtype=np.int32), np.diff(starts))
    at = np.array([us for name in names for us in held[name]], np.int64)
    tuples = TemporalTuples(pa.table({"g": names}), number, at, starts)
    window, instants = Window(rows=draw.randint(1, 12)), np.arange(-1, 13, draw.choice((1, 3)))
    found = ranges_at(tuples, window, instants, ("g",))
    assert window.rows is not None
    for k, instant in enumerate(instants.tolist()):
        last = sorted((us, name) for name in names for us in held[name] if us <= instant)[-window.rows :]
        for i, name in enumerate(names):
            r = i * len(instants) + k
            assert at[found.lows[r] : found.highs[r]].tolist() == [us for us, of in last if of == name]
