"""Where as-of joins of pandas, Polars and DuckDB differ: docs/asof-join.md has a table, and each cell is a test here.

A cell that says what another library does runs that library, so that the table is true of the tested versions.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.errors import RejectedRowsWarning

AT_ONE_INSTANT = {"left": {"t": [5]}, "right": {"t": [5, 5, 5], "v": [2, 3, 1]}}
EQUALLY_FAR = {"left": {"t": [5]}, "right": {"t": [3, 7], "v": [1, 2]}}
AFTER_AT_ONE_INSTANT = {"left": {"t": [5]}, "right": {"t": [1, 7, 7], "v": [0, 1, 2]}}
NULL_KEYS = {"left": {"t": [5], "k": [None]}, "right": {"t": [5], "k": [None], "v": [1]}}
NAN_KEYS = {"left": {"t": [5], "k": [float("nan")]}, "right": {"t": [5], "k": [float("nan")], "v": [1]}}
ZERO_KEYS = {"left": {"t": [5], "k": [-0.0]}, "right": {"t": [5], "k": [0.0], "v": [1]}}
AT_THE_TOLERANCE = {"left": {"t": [5]}, "right": {"t": [3], "v": [1]}}
UNSORTED = {"left": {"t": [5, 1]}, "right": {"t": [9, 0, 4], "v": [3, 1, 2]}}

Given = dict[str, dict[str, list[Any]]]


def tables(given: Given) -> tuple[pa.Table, pa.Table]:
    def table(columns: dict[str, list[Any]]) -> pa.Table:
        types = {"t": pa.int64(), "v": pa.int64(), "k": pa.float64()}
        return pa.table({name: pa.array(each, types[name], from_pandas=False) for name, each in columns.items()})

    return table(given["left"]), table(given["right"])


def ours(given: Given, **options: Any) -> list[Any]:
    left, right = tables(given)
    on = "k" if "k" in left.column_names else None
    found = wa.asof_join(left, right, on=on, left_time=wa.Point("t"), right_time=wa.Point("t"), **options)
    return list(found.sort_by("t_left").column("v").to_pylist())


def of_pandas(given: Given, **options: Any) -> list[Any]:
    left, right = (table.to_pandas() for table in tables(given))
    found = pd.merge_asof(left, right, on="t", by="k" if "k" in left else None, **options)
    return [None if pd.isna(value) else int(value) for value in found["v"]]


def of_polars(given: Given, direction: str = "backward", **options: Any) -> list[Any]:
    left, right = (pl.DataFrame(table) for table in tables(given))
    by = "k" if "k" in left.columns else None
    return left.join_asof(right, on="t", by=by, strategy=direction, check_sortedness=False, **options)["v"].to_list()  # type: ignore[arg-type]


def of_duckdb(given: Given, join: str = "ASOF LEFT JOIN", sign: str = ">=") -> list[Any]:
    connection = duckdb.connect()
    for name, table in zip(("l", "r"), tables(given), strict=True):
        connection.register(name, table)
    same = "l.k = r.k AND " if "k" in given["left"] else ""
    rows = connection.execute(f"SELECT r.v FROM l {join} r ON {same}l.t {sign} r.t ORDER BY l.t").fetchall()
    return [value for (value,) in rows]


def test_several_rows_at_the_time_backward() -> None:
    """pandas and Polars take the last in row order, DuckDB any, we the greatest."""
    assert ours(AT_ONE_INSTANT) == [3]
    assert ours(AT_ONE_INSTANT, order_by="v") == [3]
    assert of_pandas(AT_ONE_INSTANT) == of_polars(AT_ONE_INSTANT) == [1]
    assert of_duckdb(AT_ONE_INSTANT)[0] in (1, 2, 3)


def test_several_rows_at_the_time_forward() -> None:
    """pandas takes the first in row order, and so does Polars; DuckDB any, we the least."""
    assert ours(AT_ONE_INSTANT, direction="forward") == [1]
    assert of_pandas(AT_ONE_INSTANT, direction="forward") == [2]
    assert of_polars(AT_ONE_INSTANT, direction="forward") == [2]
    assert of_duckdb(AT_ONE_INSTANT, sign="<=")[0] in (1, 2, 3)


def test_row_numbers_in_order_by_give_the_answers_of_pandas_and_polars() -> None:
    left, right = tables(AT_ONE_INSTANT)
    right = right.append_column("number", pa.array(range(3)))
    for direction, expected in (("backward", 1), ("forward", 2)):
        found = wa.asof_join(
            left, right, left_time=wa.Point("t"), right_time=wa.Point("t"), direction=direction, order_by="number"
        )
        assert found.column("v").to_pylist() == [expected]


def test_nearest_and_equally_far() -> None:
    """pandas takes the row before, Polars the one after, we the one before."""
    assert ours(EQUALLY_FAR, direction="nearest") == [1]
    assert of_pandas(EQUALLY_FAR, direction="nearest") == [1]
    assert of_polars(EQUALLY_FAR, direction="nearest") == [2]


def test_nearest_and_several_rows_at_the_instant_after() -> None:
    """pandas takes the first, Polars the last, we the least."""
    assert ours(AFTER_AT_ONE_INSTANT, direction="nearest") == [1]
    assert of_pandas(AFTER_AT_ONE_INSTANT, direction="nearest") == [1]
    assert of_polars(AFTER_AT_ONE_INSTANT, direction="nearest") == [2]


def test_a_null_key() -> None:
    """pandas joins null with null; Polars, DuckDB and we do not."""
    assert ours(NULL_KEYS) == of_polars(NULL_KEYS) == of_duckdb(NULL_KEYS) == [None]
    assert of_pandas(NULL_KEYS) == [1]


def test_nan_is_a_key_and_both_zeros_are_one() -> None:
    """In all of them."""
    for given in (NAN_KEYS, ZERO_KEYS):
        assert ours(given) == of_pandas(given) == of_polars(given) == of_duckdb(given) == [1]


def instants(given: Given) -> list[pd.DataFrame]:
    """As pandas holds a null time."""
    return [table.to_pandas().assign(t=pd.to_datetime(table.to_pandas()["t"], unit="us")) for table in tables(given)]


def test_a_null_time() -> None:
    """pandas raises; Polars and DuckDB leave the left row unmatched; we reject it with a code."""
    left: Given = {"left": {"t": [None]}, "right": {"t": [5], "v": [1]}}
    with pytest.warns(RejectedRowsWarning, match="WA-1003"):
        assert ours(left) == []
    with pytest.raises(ValueError, match="null"):
        pd.merge_asof(*instants(left), on="t")
    assert of_polars(left) == of_duckdb(left) == [None]


def test_a_null_time_on_the_right() -> None:
    """pandas raises, the others ignore the row; we reject it."""
    right: Given = {"left": {"t": [5]}, "right": {"t": [None], "v": [1]}}
    with pytest.warns(RejectedRowsWarning, match="WA-1003"):
        assert ours(right) == [None]
    with pytest.raises(ValueError, match="null"):
        pd.merge_asof(*instants(right), on="t")
    assert of_polars(right) == of_duckdb(right) == [None]


def test_the_tolerance_is_inclusive() -> None:
    for tolerance, expected in ((2, [1]), (1, [None])):
        assert ours(AT_THE_TOLERANCE, tolerance=tolerance) == expected
        assert of_pandas(AT_THE_TOLERANCE, tolerance=tolerance) == expected
        assert of_polars(AT_THE_TOLERANCE, tolerance=tolerance) == expected


def test_a_tolerance_below_zero() -> None:
    """pandas and we refuse it, Polars takes it."""
    with pytest.raises(wa.QueryError, match="WA-2003"):
        ours(AT_THE_TOLERANCE, tolerance=-1)
    with pytest.raises(ValueError, match="tolerance must be positive"):
        of_pandas(AT_THE_TOLERANCE, tolerance=-1)
    assert of_polars(AT_THE_TOLERANCE, tolerance=-1) == [None]


def test_the_tolerance_never_brings_in_the_second_best_row() -> None:
    given: Given = {"left": {"t": [10]}, "right": {"t": [9, 9], "v": [1, 2]}}
    assert ours(given, tolerance=0) == [None]
    nearest: Given = {"left": {"t": [10]}, "right": {"t": [7, 12], "v": [1, 2]}}
    assert ours(nearest, direction="nearest", tolerance=1) == [None]


def test_unmatched_left_rows() -> None:
    """pandas and Polars keep them, DuckDB's ASOF JOIN drops them, ASOF LEFT JOIN keeps them; here `how` says."""
    given: Given = {"left": {"t": [1]}, "right": {"t": [5], "v": [1]}}
    assert of_pandas(given) == of_polars(given) == of_duckdb(given) == ours(given) == [None]
    assert of_duckdb(given, "ASOF JOIN") == ours(given, how="inner") == []


def test_unsorted_input() -> None:
    """pandas refuses it; we and DuckDB sort it. Polars checks if asked to, and is wrong if not."""
    assert ours(UNSORTED) == of_duckdb(UNSORTED) == [1, 2]
    with pytest.raises(ValueError, match="sorted"):
        of_pandas(UNSORTED)


def test_a_right_time_column_stays() -> None:
    """In pandas and Polars it does not."""
    left, right = tables(EQUALLY_FAR)
    found = wa.asof_join(left, right, left_time=wa.Point("t"), right_time=wa.Point("t"))
    assert found.select(["t_left", "t_right", "v"]).to_pylist() == [{"t_left": 5, "t_right": 3, "v": 1}]
    assert list(pd.merge_asof(left.to_pandas(), right.to_pandas(), on="t").columns) == ["t", "v"]
    assert pl.DataFrame(left).join_asof(pl.DataFrame(right), on="t").columns == ["t", "v"]


def test_a_prevailing_row_whose_values_are_null_still_prevails() -> None:
    given: Given = {"left": {"t": [5]}, "right": {"t": [1, 4], "v": [1, None]}}
    left, right = tables(given)
    found = wa.asof_join(left, right, left_time=wa.Point("t"), right_time=wa.Point("t"))
    assert found.select(["v", "t_right", "probability"]).to_pylist() == [{"v": None, "t_right": 4, "probability": 1.0}]


def test_nanoseconds_are_cut_and_counted() -> None:
    nano = pa.table({"t": pa.array([1_001, 1_002], pa.timestamp("ns")), "v": [2, 1]})
    micro = pa.table({"t": pa.array([1], pa.timestamp("us"))})
    with pytest.warns(wa.DigitsCutWarning, match="2 times"):
        found = wa.asof_join(micro, nano, left_time=wa.Point("t"), right_time=wa.Point("t"), order_by="v")
    assert found.column("v").to_pylist() == [2]
