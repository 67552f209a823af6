"""Finite input without an extent: the rows of an extent, in its order and to the last bit, for every type of column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core.arrays import grouped_sort
from whenabouts.core.coalescing import history_runs, operator
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import coalesce, run

ROWS = 400
GROUPS: dict[str, Any] = {
    "int64": lambda codes: pa.array(codes),
    "sparse": lambda codes: pa.array(codes * 10**12),
    "text": lambda codes: pa.array([f"room {code}" for code in codes]),
    "float": lambda codes: pa.array(np.where(codes == 0, np.where(np.arange(ROWS) % 2, 0.0, -0.0), codes)),
    "none": None,
}
VALUES: dict[str, Any] = {
    "float64": lambda v: pa.array(np.array([0.0, -0.0, np.nan, 1.5, np.inf, -np.nan])[v]),
    "float32": lambda v: pa.array(np.array([0.0, -0.0, np.nan, 1.5, np.inf, 2.5], np.float32)[v]),
    "int64": lambda v: pa.array(np.array([-(2**63), 0, 1, 2, 3, 2**63 - 1])[v]),
    "int8": lambda v: pa.array(v.astype(np.int8)),
    "uint32": lambda v: pa.array(v.astype(np.uint32)),
    "uint64": lambda v: pa.array(v.astype(np.uint64) << np.uint64(61)),
    "timestamp": lambda v: pa.array(v, pa.timestamp("ns", "UTC")),
    "date32": lambda v: pa.array(v.astype(np.int32), pa.date32()),
    "duration": lambda v: pa.array(v, pa.duration("s")),
}
QUICK = {"float64", "int8", "uint64", "date32"}
"""Enough of the types with groups of every kind: what is given as it was stored, cast, looked up, and ranked."""


def _cases() -> list[Any]:
    return [(group, value) for group in GROUPS for value in VALUES if group == "int64" or value in QUICK]


@pytest.mark.parametrize(("group", "value"), _cases())
@pytest.mark.parametrize("with_last", [True, False])
def test_rows_in_any_order_are_those_of_an_extent(
    group: str, value: str, with_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    columns = {"t": pa.array(rng.permutation(ROWS) * 1000), "v": VALUES[value](np.sort(rng.integers(0, 6, ROWS)))}
    if GROUPS[group] is not None:
        columns["g"] = GROUPS[group](rng.integers(0, 4, ROWS))
    table = pa.table(columns)
    given: dict[str, Any] = {"time": "t", "group": "g" if "g" in columns else (), "values": "v"}
    found = coalesce(table, valid_last=with_last, **given)
    counts = run(Coalesce(**given), [table]).metrics
    monkeypatch.setattr(operator, "runs_of_history", lambda *args, **options: None)
    assert _bits(found) == _bits(coalesce(table, valid_last=with_last, **given))
    assert counts == run(Coalesce(**given), [table]).metrics


@pytest.mark.parametrize(("group", "value"), _cases())
def test_rows_in_order_are_those_of_an_extent(group: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another order: that of the first rows."""
    rng = np.random.default_rng(10)
    columns = {"t": pa.array(np.arange(ROWS) * 1000), "v": VALUES[value](np.sort(rng.integers(0, 6, ROWS)))}
    if GROUPS[group] is not None:
        columns["g"] = GROUPS[group](rng.integers(0, 4, ROWS))
    table = pa.table(columns)
    given: dict[str, Any] = {"time": "t", "group": "g" if "g" in columns else (), "values": "v", "valid_last": True}
    found = coalesce(table, **given)
    monkeypatch.setattr(operator, "runs_of_history", lambda *args, **options: None)
    extent = coalesce(table, **given)
    first = np.argsort(extent["valid_from"].to_numpy(), kind="stable")
    assert _bits(found) == _bits(extent.take(pa.array(first)))


TIMES: dict[str, Any] = {
    "spread": lambda rng: rng.permutation(ROWS) * 1000,
    "nearly in order": lambda rng: 1000 * np.arange(ROWS) - 5500 * (np.arange(ROWS) % 50 == 7),
    "in the wrong order": lambda rng: 1000 * np.arange(ROWS)[::-1],
    "in crowds": lambda rng: rng.permutation(np.concatenate([np.arange(ROWS - 1), [10**15]])),
    "over millennia": lambda rng: (rng.permutation(ROWS) - ROWS // 5) * (300 * 10**15 // ROWS),
}
BY_PAIRS = {("in crowds", 1 << 14), ("over millennia", 16), ("over millennia", 1 << 14)}
"""What words of times and numbers cannot order, or not in linear time, with parts of so many rows."""


@pytest.mark.parametrize("rows_a_part", [1, 16, 1 << 14])
@pytest.mark.parametrize("value", ["float64", "int64"])
@pytest.mark.parametrize("order", TIMES)
def test_every_order_of_times_gives_the_rows_of_an_extent(
    order: str, value: str, rows_a_part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one part for each group and in many, of which some are empty, so that runs go from one to the next."""
    rng = np.random.default_rng(9)
    codes, values = rng.integers(0, 3, ROWS), np.sort(rng.integers(0, 6, ROWS))
    t = TIMES[order](rng)
    by_time = np.argsort(np.argsort(t))
    table = pa.table({"t": t, "g": 7 * codes, "v": VALUES[value](np.where(rng.random(ROWS) < 0.8, values[by_time], 3))})
    by_pairs: list[int] = []
    whole = grouped_sort.sorted_in_groups

    def noted(values: Any, *others: Any) -> Any:
        by_pairs.append(len(values))
        return whole(values, *others)

    monkeypatch.setattr(history_runs, "_ROWS_A_PART", rows_a_part)
    monkeypatch.setattr(grouped_sort, "sorted_in_groups", noted)
    given: dict[str, Any] = {"time": "t", "group": "g", "values": "v", "valid_last": True}
    found = coalesce(table, **given)
    assert bool(by_pairs) == ((order, rows_a_part) in BY_PAIRS)
    monkeypatch.setattr(operator, "runs_of_history", lambda *args, **options: None)
    assert _bits(found) == _bits(coalesce(table, **given))


def test_which_rows_need_no_extent() -> None:
    """Numbers in any order do; two readings of a room at one time, and groups that equal others, do not."""
    asked: list[bool] = []
    whole = history_runs._in_any_order

    def noted(*args: Any) -> Any:
        asked.append(whole(*args) is not None)
        return whole(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_runs, "_in_any_order", noted)
        given: dict[str, Any] = {"time": "t", "group": "g", "values": "v"}
        coalesce(pa.table({"t": [3, 1, 2], "g": [1, 1, 2], "v": [1.0, 2.0, 3.0]}), **given)
        assert asked == [True]
        coalesce(pa.table({"t": [3, 1, 1], "g": [1, 1, 1], "v": [1.0, 2.0, 2.0]}), **given)
        assert asked == [True, False]
        coalesce(pa.table({"t": [3, 1, 2], "g": [0.0, -0.0, 2.0], "v": [1.0, 2.0, 3.0]}), **given)
        assert asked == [True, False]


def _bits(table: pa.Table) -> tuple[pa.Schema, list[list[Any]]]:
    """The schema and the values, where floats are compared by their bits."""
    columns = []
    for column in table.columns:
        array = column.combine_chunks()
        if pa.types.is_floating(array.type):
            array = array.view(pa.int64() if pa.types.is_float64(array.type) else pa.int32())
        columns.append(
            array.to_pylist() if not pa.types.is_temporal(array.type) else array.cast(pa.string()).to_pylist()
        )
    return table.schema, columns
