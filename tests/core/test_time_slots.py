"""Placement by time: rows that can match meet exactly once, and every row is counted once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.core import Interval, Point, between, deadline, within
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.blocks import times
from whenabouts.core.timing_join.query import TimingJoin

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "k": pa.int64()})
UNSURE = Interval("a", "b", max_uncertainty=40)

rows = st.lists(st.tuples(st.integers(-500, 500), st.integers(0, 40), st.sampled_from([0, 1, None])), max_size=20)


@settings(deadline=None, max_examples=60)
@given(
    rows,
    rows,
    st.integers(-60, 60),
    st.integers(0, 80),
    st.integers(1, 200),
    st.integers(2, 7),
    st.booleans(),
    st.booleans(),
)
def test_pairs_that_can_match_meet_in_one_bucket(
    left: list[tuple[int, int, int | None]],
    right: list[tuple[int, int, int | None]],
    lo: int,
    span: int,
    width: int,
    buckets: int,
    keyed: bool,
    right_home: bool,
) -> None:
    query = TimingJoin(
        left_time=UNSURE, right_time=UNSURE, condition=between(lo, lo + span, confidence=0.01),
        on="k" if keyed else None, how="right_outer" if right_home else "inner", time_slots=width,
    )  # fmt: skip
    operator = query.operator([SCHEMA, SCHEMA], streaming=True)
    homes: list[dict[int, list[int]]] = []
    for input, side in enumerate((left, right)):
        raw = pa.RecordBatch.from_pylist([{"a": t - length, "b": t, "k": k} for t, length, k in side], SCHEMA)
        block = operator.readers[input].read(raw).block
        places = operator.keys.partition(input, block, buckets)
        counted = Counter(row for place in places if not place.copied for row in place.at.tolist())
        assert counted == Counter(range(len(side)))
        found: dict[int, list[int]] = {row: [] for row in range(len(side))}
        for place in places:
            for row in place.at.tolist():
                found[row].append(place.bucket)
        assert all(len(set(homes_of)) == len(homes_of) for homes_of in found.values())
        homes.append(found)
    home = 1 if right_home else 0
    assert all(len(found) == 1 for found in homes[home].values())
    for i, (t1, length1, key1) in enumerate(left):
        for j, (t2, length2, key2) in enumerate(right):
            near = t2 - (t1 - length1) >= lo and (t2 - length2) - t1 <= lo + span
            if near and (not keyed or (key1 == key2 and key1 is not None)):
                assert len(set(homes[0][i]) & set(homes[1][j])) == 1


def test_rows_of_one_key_use_all_buckets_evenly() -> None:
    query = TimingJoin(
        left_time=Point("b"), right_time=Point("b"), condition=within(5, confidence=1), on="k", time_slots=100
    )
    operator = query.operator([SCHEMA, SCHEMA], streaming=True)
    t = np.arange(0, 8_000, 2)
    block = operator.readers[0].read(pa.record_batch({"a": t, "b": t, "k": np.zeros_like(t)})).block
    sizes = [(place.bucket, len(place.at)) for place in operator.keys.partition(0, block, 8)]
    assert sizes == [(bucket, 500) for bucket in range(8)]
    copies = [place for place in operator.keys.partition(1, block, 8) if place.copied]
    assert sum(len(place.at) for place in copies) == pytest.approx(len(t) * 10 / 100, rel=0.2)
    assert np.array_equal(np.diff(times(block)[1]), np.full(3999, 2))


def test_what_cannot_be_spread_is_refused_or_left() -> None:
    def query(slots: int | str, **options: object) -> TimingJoin:
        given = {"left_time": Point("b"), "right_time": Point("b"), "condition": within(5, confidence=1)} | options
        return TimingJoin(time_slots=slots, **given)  # type: ignore[arg-type]

    for options in ({"condition": deadline(5, confidence=1)}, {"left_time": Interval("a", "b")}, {"best": "both"}):
        with pytest.raises(QueryError) as raised:
            query(10, **options)
        assert raised.value.code is Code.NOT_SLOTTED
        assert query("auto", **options).slots is None
    with pytest.raises(QueryError, match="give a width above zero"):
        query(0)
    assert query("auto", on="k").slots is None
    assert query("auto").slots is not None
    assert query("auto", left_time=Interval("a", "b"), how="right_outer").slots is not None  # only home lengths count
