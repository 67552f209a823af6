"""Tests of the exact comparison: the differences that it must find, and its message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import multiset


def _rows(values: list[object], type_: pa.DataType) -> object:
    return multiset.rows(pa.table({"v": pa.array(values, type_, from_pandas=False)}))


def test_floats_are_compared_by_their_bits() -> None:
    third = 1 / 3
    assert _rows([third], pa.float64()) != _rows([np.nextafter(third, 1)], pa.float64())
    assert _rows([0.0], pa.float64()) != _rows([-0.0], pa.float64())
    assert _rows([float("nan")], pa.float64()) == _rows([float("nan")], pa.float64())
    assert _rows([float("nan")], pa.float64()) != _rows([None], pa.float64())


def test_values_of_other_types_are_other_values() -> None:
    assert _rows([1], pa.int64()) != _rows([1.0], pa.float64())
    assert _rows([1], pa.int64()) != _rows([True], pa.bool_())
    assert _rows([""], pa.string()) != _rows([None], pa.string())


def test_timestamps_are_compared_in_microseconds() -> None:
    assert _rows([1], pa.timestamp("ms")) == _rows([1000], pa.timestamp("us"))
    assert _rows([1], pa.timestamp("ms")) != _rows([1001], pa.timestamp("us"))


def test_order_does_not_count_and_multiplicity_does() -> None:
    assert _rows([1, 2, 1], pa.int64()) == _rows([2, 1, 1], pa.int64())
    assert _rows([1, 1], pa.int64()) != _rows([1], pa.int64())


def test_the_message_shows_missing_and_extra_rows() -> None:
    actual, expected = multiset.counted([(1, 0.5), (2, 0.5), (2, 0.5)]), multiset.counted([(1, 0.5), (3, None)])
    with pytest.raises(AssertionError) as failure:
        multiset.assert_same(actual, expected, "pairs", {"strategy": "eager"})
    assert str(failure.value).splitlines() == [
        "pairs: 3 rows, expected 2",
        "  strategy = 'eager'",
        "  1 missing",
        "  missing x1: (3, None)",
        "  2 too many",
        "  too many x2: (2, 0.5)",
    ]


def test_columns_are_compared_by_name_order_and_type() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    multiset.assert_same_columns(schema, schema, "a table")
    for other in (pa.schema({"b": pa.string(), "a": pa.int64()}), pa.schema({"a": pa.int32(), "b": pa.string()})):
        with pytest.raises(AssertionError, match="a table"):
            multiset.assert_same_columns(other, schema, "a table")
