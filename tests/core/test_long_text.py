"""More text than one array of Arrow's `string` holds: here 40 bytes instead of 2 GiB."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whenabouts as wa
from whenabouts.core.arrays import long_text
from whenabouts.core.arrays.record_batches import one_batch, take_columns_or_null, take_rows

MOST = 40
NEAR: dict[str, Any] = {"on": "k", "left_time": wa.Point("t"), "right_time": wa.Point("t")}
WITHIN = wa.within(3, confidence=1)


def timing(left: pa.Table, right: pa.Table, **more: Any) -> pa.Table:
    return wa.timing_join(left, right, condition=WITHIN, **NEAR, **more)


CALLS: dict[str, Callable[[pa.Table, pa.Table], pa.Table]] = {
    **{how: partial(timing, how=how) for how in ("inner", "full_outer", "left_semi")},
    "best": lambda left, right: timing(left, right, best="left", how="left_outer"),
    "asof": lambda left, right: wa.asof_join(left, right, tolerance=3, **NEAR),
    "aggregate": lambda left, right: wa.join_aggregate(
        left, right, condition=WITHIN, aggregates={"n": "count"}, **NEAR
    ),
    "window": lambda left, right: wa.window_join(
        {"a": left, "b": right}, on="k", time=wa.Point("t"), windows={("a", "b"): 3}
    ),
}


def rows(seed: int, name: str) -> pa.Table:
    rng = np.random.default_rng(seed)
    texts = [None if size == 7 else "x" * size for size in rng.integers(0, 30, 60).tolist()]
    text, data = pa.array(texts), pa.array(texts, pa.binary())
    # Chunks, an empty one among them, of which one is a part of a longer array.
    whole = pa.chunked_array([text[3:20], text[:0], text[20:], text[:3]])
    kinds = {f"{name}_text": whole, f"{name}_data": data, f"{name}_large": text.cast(pa.large_string())}
    return pa.table({"t": rng.integers(0, 60, 60), "k": rng.integers(0, 2, 60), **kinds})


@pytest.mark.parametrize("few", [16, 0])
@pytest.mark.parametrize("name", CALLS)
def test_batches_hold_no_more_text_than_an_array_may(name: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_text, "_FEW", few)  # 0: only the rows that are taken are looked at
    left, right = rows(1, "a"), rows(2, "b")
    whole = CALLS[name](left, right)
    monkeypatch.setattr(long_text, "MOST_BYTES", MOST)
    cut = CALLS[name](left, right)
    assert cut.equals(whole)
    assert cut.num_rows > 20
    for column in cut.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            assert column.num_chunks > 5
            for chunk in column.chunks:
                assert len(chunk) == 1 or sum(len(value) for value in chunk.to_pylist() if value) <= MOST


@given(
    st.lists(st.lists(st.sampled_from(["", "a", "bc", None]), max_size=4), min_size=2, max_size=5).filter(any),
    st.lists(st.integers(-1, 40), max_size=12),
)
def test_values_are_taken_chunk_by_chunk(chunks: list[list[str | None]], at: list[int]) -> None:
    column = pa.chunked_array(chunks, pa.string())
    values = column.to_pylist()
    wanted = [number % len(values) if number >= 0 else -1 for number in at]
    found = take_columns_or_null([column], np.array(wanted, np.int32))[0]
    assert found.to_pylist() == [None if number < 0 else values[number] for number in wanted]
    valid = [number for number in wanted if number >= 0]
    assert take_rows(column, np.array(valid, np.int32)).to_pylist() == [values[number] for number in valid]


def test_rows_that_must_be_together_are_refused_with_a_code() -> None:
    """Arrow makes several batches of a table with more text; the first one is not all of it."""
    batches = pa.table({"c": pa.chunked_array([["a"], ["b"]])}).to_batches()
    table = SimpleNamespace(combine_chunks=lambda: SimpleNamespace(to_batches=lambda: batches))
    with pytest.raises(wa.QueryError, match=r"WA-2201: .* more than 2 GiB.*large_string"):
        one_batch(table)
