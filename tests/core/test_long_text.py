"""More text than one array of Arrow's `string` holds: here 40 bytes instead of 2 GiB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whenabouts as wa
from whenabouts.core.arrays import long_text
from whenabouts.core.arrays.plain_types import plain_table
from whenabouts.core.arrays.record_batches import one_batch, take_columns_or_null, take_rows, take_table
from whenabouts.core.join_aggregate import pair_ranges
from whenabouts.core.joins.rows import SideRows
from whenabouts.core.runtime.blocks import T_MAX, T_MIN, times
from whenabouts.core.runtime.protocol import Step
from whenabouts.core.timing_join.best_marks import BestStep, MarkSchemas, partner_column
from whenabouts.core.timing_join.modes import Mode

MOST = 40
NEAR: dict[str, Any] = {"on": "k", "left_time": wa.Point("t"), "right_time": wa.Point("t")}
WITHIN = wa.within(3, confidence=1)

VALUES = {
    **{name: f"{name}:b_few" for name in ("first", "last", "min", "max")},
    **{f"all_{name}": f"collect:{name}" for name in ("b_few", "b_number")},
}


def timing(left: pa.Table, right: pa.Table, **more: Any) -> pa.Table:
    return wa.timing_join(left, right, condition=WITHIN, **NEAR, **more)


def values_of(left: pa.Table, right: pa.Table, **more: Any) -> pa.Table:
    return wa.join_aggregate(left.select(["t", "k"]), right, condition=WITHIN, aggregates=VALUES, **NEAR, **more)


CALLS: dict[str, Callable[[pa.Table, pa.Table], pa.Table]] = {
    **{how: partial(timing, how=how) for how in ("inner", "full_outer", "left_semi")},
    "best": lambda left, right: timing(left, right, best="left", how="left_outer"),
    "best both": lambda left, right: timing(left, right, best="both", how="full_outer"),
    "asof": lambda left, right: wa.asof_join(left, right, tolerance=3, **NEAR),
    "aggregate": lambda left, right: wa.join_aggregate(
        left, right, condition=WITHIN, aggregates={"n": "count"}, **NEAR
    ),
    "nested": lambda left, right: timing(left.select(["t", "k", "a_map", "a_struct"]), right.select(["t", "k"])),
    "values": lambda left, right: values_of(left, right),
    "values of pairs": lambda left, right: values_of(left, right, how="inner"),
    "values of ranges": lambda left, right: timing(left.select(["t", "k"]), right, pairs="ranges").aggregate(VALUES),
    "right rows of ranges": lambda left, right: timing(left, right, pairs="ranges").right,
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
    words = [None if size == 3 else "y" * size for size in rng.integers(0, 5, 60).tolist()]
    kinds[f"{name}_number"] = pa.array(range(60))
    kinds[f"{name}_few"] = pa.array(["z" * 12 if number % 20 == 5 else None for number in range(60)])
    kinds[f"{name}_map"] = pa.array(
        [None if word is None else [(word, [word, None])] * len(word) for word in words],
        pa.map_(pa.string(), pa.list_(pa.string(), 2)),
    )
    kinds[f"{name}_struct"] = pa.array([None if word == "" else {"words": words[:4]} for word in words])
    return pa.table({"t": rng.integers(0, 60, 60), "k": rng.integers(0, 2, 60), **kinds})


def sizes(values: list[Any], type_: pa.DataType) -> Iterator[int]:
    """The bytes of text, or values of lists, in each array inside."""
    valid = [value for value in values if value is not None]
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        yield sum(map(len, valid))
    elif pa.types.is_struct(type_):
        for field in type_:
            yield from sizes([value[field.name] for value in valid], field.type)
    elif pa.types.is_map(type_):
        yield sum(map(len, valid))
        for at, of in enumerate((type_.key_type, type_.item_type)):
            yield from sizes([item[at] for value in valid for item in value], of)
    elif pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        yield sum(map(len, valid))
        yield from sizes([item for value in valid for item in value], type_.value_type)


def largest(values: pa.Array) -> int:
    return max(sizes(values.to_pylist(), values.type), default=0)


@pytest.mark.parametrize("few", [16, 0])
@pytest.mark.parametrize("name", CALLS)
def test_batches_hold_no_more_text_than_an_array_may(name: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_text, "_FEW", few)  # 0: only the rows that are taken are looked at
    left, right = rows(1, "a"), rows(2, "b")
    whole = CALLS[name](left, right)
    monkeypatch.setattr(long_text, "MOST", MOST)
    cut = CALLS[name](left, right)
    assert cut.equals(whole)
    assert cut.num_rows > 20
    for column in cut.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            assert column.num_chunks > 2
        for chunk in column.chunks:
            assert len(chunk) == 1 or largest(chunk) <= MOST


def test_marks_of_rows_with_one_partner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_text, "MOST", MOST)
    candidates = pa.table({T_MIN: [1, 2], T_MAX: [1, 2], "v": ["x" * 30, "y"]})
    blocks = [candidates.schema, candidates.schema]
    sides = [SideRows(candidates, *times(candidates), None, 0), SideRows(candidates, *times(candidates), None, 0)]
    step = BestStep(MarkSchemas(Mode("left_outer", "left"), blocks), sides, [None, None])
    every = np.arange(2, dtype=np.int32), np.zeros(2, np.int32)
    step.take(every, np.ones(2), Step())
    marks = step.marks(0)
    assert marks is not None
    assert [len(chunk) for chunk in marks.column(partner_column(2)).chunks] == [1, 1]


def test_conditions_see_pairs_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = rows(1, "a"), rows(2, "b")
    seen = []

    def differ(mine: pa.Table, other: pa.Table) -> Any:
        seen.append(max(largest(values) for values in (mine["a_text"], other["b_text"])))
        return pc.greater_equal(pc.binary_length(mine["a_text"]), pc.binary_length(other["b_text"]))

    whole = timing(left, right, where=differ)
    monkeypatch.setattr(long_text, "MOST", MOST)
    calls = len(seen)
    assert timing(left, right, where=differ).equals(whole)
    assert max(seen[:calls]) > MOST >= max(seen[calls:])


def test_dictionaries_of_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few long values may be shown by many rows."""
    monkeypatch.setattr(long_text, "MOST", MOST)
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0, 0, 1, 1], pa.uint8()), ["x" * 20, "y" * 30])
    decoded = plain_table(pa.table({"v": column})).column("v")
    assert decoded.to_pylist() == column.to_pylist()
    assert all(largest(chunk) <= MOST for chunk in decoded.chunks)


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_text, "MOST", 3)
        pieces = take_table(pa.table([column], ["c"]), np.array(wanted, np.int64)).column(0)
    assert pieces.to_pylist() == found.to_pylist()
    assert all(largest(chunk) <= 3 for chunk in pieces.chunks)
    valid = [number for number in wanted if number >= 0]
    assert take_rows(column, np.array(valid, np.int32)).to_pylist() == [values[number] for number in valid]


def test_rows_that_must_be_together_are_refused_with_a_code() -> None:
    """Arrow makes several batches of a table with more text; the first one is not all of it."""
    batches = pa.table({"c": pa.chunked_array([["a"], ["b"]])}).to_batches()
    table = SimpleNamespace(combine_chunks=lambda: SimpleNamespace(to_batches=lambda: batches))
    with pytest.raises(wa.QueryError, match=r"WA-2201: .* more than 2 GiB.*large_string"):
        one_batch(table)


def test_ranges_of_rows_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are where text is too long for one."""
    left, right = rows(1, "a"), rows(2, "b")
    expected = timing(left, right, pairs="ranges").pairs()
    monkeypatch.setattr(pair_ranges, "table_of", pa.Table.from_batches)
    assert timing(left, right, pairs="ranges").pairs().equals(expected)
