"""Rows that are gathered from columns laid side by side are those that are gathered column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import whenabouts as wa
from whenabouts.core.arrays import record_batches, threads
from whenabouts.core.arrays import side_by_side as kernels
from whenabouts.core.arrays.record_batches import RowsAt, copy_of, side_by_side
from whenabouts.core.arrays.side_by_side import WIDTH, gathering, laid
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.local import timing_join, window_join

MANY = 1 << 17
"""In these tests, of fewer rows no copies are made."""


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of columns of the copies that were made."""
    made = []

    def counted(columns: Sequence[IntArray]) -> IntArray:
        made.append(len(columns))
        return laid(columns)

    monkeypatch.setattr(kernels, "laid", counted)
    monkeypatch.setattr(record_batches, "_BEYOND_CACHES", MANY)
    return made


def _table(columns: int, rows: int = MANY, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({f"c{n}": rng.integers(-(1 << 62), 1 << 62, rows) for n in range(columns)})


def _anywhere(rows: int, count: int, seed: int = 2) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, rows, count).astype(np.int32)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("columns", range(2, WIDTH + 1))
@pytest.mark.parametrize(("rows", "count"), [(1, 1), (1, 5), (3, 0), (7, 4), (1000, 70_001), (140_000, 140_003)])
def test_the_values_are_those_of_the_rows(rows: int, count: int, columns: int, number: int) -> None:
    values = [column.to_numpy() for column in _table(columns, rows).columns]
    at, out = _anywhere(rows, count), [np.empty(count, np.int64) for _ in range(columns)]
    with threads.using(number):
        together = laid(values)
        threads.each(lambda work: work(), gathering(together, at, out), count)
    for column, found in zip(values, out, strict=True):
        assert np.array_equal(column[at], found)


@pytest.mark.parametrize("columns", [3, 4, 5, 6, 8, 9, 13])
def test_all_columns_of_a_table(columns: int) -> None:
    table, at = _table(columns), _anywhere(MANY, MANY + 3)
    groups = side_by_side(table, table.column_names, at)
    assert set(groups) == set(table.column_names)
    assert {len(group.names) for group in groups.values()} <= {2, 3, 4}
    found = RowsAt(table, at, groups).columns(table.column_names)
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in table.take(at).columns]


def test_other_columns_and_copies_are_gathered_beside_them() -> None:
    plain = _table(3)
    halves = pa.chunked_array([plain["c0"].combine_chunks()[: MANY // 2], plain["c0"].combine_chunks()[MANY // 2 :]])
    fields = [*plain.schema, *(pa.field(name, pa.int64()) for name in ("gaps", "halves"))]
    fields += [pa.field("text", pa.string()), pa.field("float", pa.float64()), pa.field("small", pa.int32())]
    schema = pa.schema([*fields, copy_of(pa.field("time", pa.timestamp("us")), "c1")])
    rows = range(MANY)
    columns = [
        *plain.columns, pa.array([n if n % 3 else None for n in rows]), halves, pa.array([f"{n}" for n in rows]),
        pa.array([n / 7 for n in rows]), pa.array(rows, pa.int32()),
        plain["c1"].combine_chunks().view(pa.timestamp("us")),
    ]  # fmt: skip
    table, at = pa.table(columns, schema=schema), _anywhere(MANY, MANY)
    groups = side_by_side(table, table.column_names, at)
    assert set(groups) == {"c0", "c1", "c2", "float"}
    taken = RowsAt(table, at, groups)
    assert pa.table(taken.columns(table.column_names), schema=schema).equals(table.take(at).combine_chunks())
    assert taken["time"].buffers()[1].address == taken["c1"].buffers()[1].address
    assert RowsAt(table, at, groups)["c2"].equals(taken["c2"])  # one of a group, asked for alone


@pytest.mark.parametrize(
    ("columns", "rows", "count"), [(2, MANY, MANY), (4, MANY - 1, MANY), (4, MANY + 1, MANY), (0, MANY, MANY)]
)
def test_no_copies_of_few_columns_or_of_rows_that_are_not_wanted(columns: int, rows: int, count: int) -> None:
    table = _table(max(columns, 1), rows)
    assert not side_by_side(table, table.column_names[:columns], _anywhere(rows, count))


def test_columns_are_gathered_one_by_one_if_there_is_no_memory_for_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(columns: Sequence[IntArray]) -> IntArray:
        raise MemoryError

    monkeypatch.setattr(kernels, "laid", none)
    table = _table(4)
    assert not side_by_side(table, table.column_names, _anywhere(MANY, MANY))


def test_no_copies_for_rows_in_order() -> None:
    table = _table(4)
    assert not side_by_side(table, table.column_names, np.repeat(np.arange(MANY, dtype=np.int32), 2))


def _events(rows: int, seed: int, **more: Any) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {"k": rng.integers(0, 50, rows), "t": 1_700_000_000_000_000 + rng.integers(0, rows * 10_000, rows)}
    return pa.table(columns | {"id": np.arange(rows), "v": rng.random(rows)} | more)


@pytest.mark.parametrize("number", [1, 2])
def test_a_timing_join_gives_the_columns_of_its_rows(number: int, copies: list[int]) -> None:
    left, right = _events(MANY + 9, 1, text=[f"{n}" for n in range(MANY + 9)]), _events(MANY + 9, 2)
    time, condition = wa.Point("t"), wa.within("500 ms", confidence=1)
    found = timing_join(left, right, on="k", left_time=time, right_time=time, condition=condition, threads=number)
    assert found.num_rows > MANY + 9
    assert copies
    of_left = left.take(found["id_left"]).rename_columns(["k", "t_left", "id_left", "v_left", "text"])
    of_right = right.take(found["id_right"]).drop_columns("k").rename_columns(["t_right", "id_right", "v_right"])
    assert found.select(of_left.column_names).combine_chunks().equals(of_left.combine_chunks())
    assert found.select(of_right.column_names).combine_chunks().equals(of_right.combine_chunks())


def test_a_window_join_gives_the_columns_of_its_rows(copies: list[int]) -> None:
    streams = {name: _events(MANY + 9, seed) for seed, name in enumerate("abc")}
    found = window_join(streams, on="k", time=wa.Point("t"), windows={("a", "b"): "500 ms", ("b", "c"): "500 ms"})
    assert found.num_rows > MANY + 9
    assert copies
    for name, table in streams.items():
        of_stream = table.take(found[f"id_{name}"]).drop_columns("k")
        of_stream = of_stream.rename_columns([f"{column}_{name}" for column in of_stream.column_names])
        assert found.select(of_stream.column_names).combine_chunks().equals(of_stream.combine_chunks())
