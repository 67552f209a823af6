"""This release continues from the state of a bucket that an earlier one wrote, and the rows are those of one batch.

`states-c8cd394.tar.xz` was written by that commit's core, the first of which the states of join aggregates and watched
clocks are kept: `python kept_states.py states-c8cd394.tar.xz`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from checkpoints.kept_states import QUERIES, events, lived, states
from whenabouts.core.local import run
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_layout import MARKS

STATES = states(Path(__file__).parent / "states-c8cd394.tar.xz")


@pytest.mark.parametrize("name", QUERIES)
def test_the_state_of_a_bucket(name: str) -> None:
    query, first = QUERIES[name], DictStore()
    rows = [lived(query, 0, first), lived(query, 1, STATES[name].copy())]
    assert rows[1].num_rows
    whole = run(query, [pa.concat_tables([events(0), events(1)])] * len(query.inputs)).output
    found = pa.concat_tables(rows)
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, whole.to_pylist()))


def test_only_the_folded_state_has_marks() -> None:
    """So the states show both forms of it."""
    marked = {name: [key for key in store._segments if key[0] == MARKS] for name, store in STATES.items()}
    assert {name: bool(keys) for name, keys in marked.items()} == {"aggregate": False, "folded": True, "watched": False}
