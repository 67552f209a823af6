"""Sums of 128 bits against those on limbs, which `test_exact_sums` compares with rationals."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whenabouts.core.errors import Code, InputError
from whenabouts.core.join_aggregate.exact_sums import PrefixSums, digits_of
from whenabouts.core.join_aggregate.wide_sums import WidePrefix


def exactly(values: list[float]) -> float:
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def both(column: pa.Array, seed: int) -> tuple[list[Any], list[Any]]:
    """Sums and means over random ranges with rows beside them, of both kinds, their bits."""
    random = np.random.default_rng(seed)
    start, stop = random.integers(0, len(column) + 1, (2, 50))
    rows = random.integers(0, len(column), 100 if len(column) else 0).astype(np.int32)
    offsets = np.sort(random.integers(0, len(rows) + 1, 51))
    digits = digits_of(column)
    expected = PrefixSums.of(digits).of_ranges(start, stop, digits.take(rows), offsets)
    wide = WidePrefix.of(column)
    assert wide is not None
    found = wide.of_ranges(start, stop, (offsets, rows), expected.counts)
    return tuple(
        [repr(value) for part in (sums.to_arrow(column.type, "v"), sums.to_means(column.type, "v"))
         for value in part.tolist()]
        for sums in (found, expected)
    )  # fmt: skip


@given(
    st.integers(0, 60),
    st.sampled_from([-1073, -1074 + 52, -400, -60, 0, 31, 64, 400, 950]),
    st.integers(1, 66),
    st.integers(0, 99),
)
@settings(max_examples=100, deadline=None)
def test_sums_of_floats_have_the_same_bits(rows: int, least: int, spread: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    digits = random.choice([-1.0, 1.0], rows) * (1.0 + random.random(rows) * random.integers(0, 2, rows))
    values = np.ldexp(digits, random.integers(least, least + spread, rows)) * (random.random(rows) < 0.9)
    column = pa.array(values + 0.0, mask=random.random(rows) < 0.2)
    found, expected = both(column, seed)
    assert found == expected


@pytest.mark.parametrize("exponent", [-1073, -300, -52, 0, 12, 900, 970])
def test_sums_of_measured_values_have_the_same_bits(exponent: int) -> None:
    random = np.random.default_rng(abs(exponent))
    for values in (random.normal(size=300), np.round(random.random(300) * 100, 2), random.integers(-9, 9, 300) + 0.0):
        found, expected = both(pa.array(np.ldexp(values, exponent) + 0.0, mask=random.random(300) < 0.1), 1)
        assert found == expected


@pytest.mark.parametrize("size", [1, 30, 55])
@pytest.mark.parametrize("type_", [pa.int64(), pa.duration("us"), pa.int8(), pa.bool_(), pa.uint32(), pa.float32()])
def test_sums_of_other_types_are_the_same(type_: pa.DataType, size: int) -> None:
    limits = {"int64": (-(2**size), 2**size), "duration[us]": (-(2**size), 2**size), "int8": (-128, 128),
              "bool": (0, 2), "uint32": (0, 2**32), "float": (-1000, 1000)}  # fmt: skip
    random = np.random.default_rng(size)
    whole = random.integers(*limits[str(type_)], 4)
    column = pa.array([*whole.tolist(), None], pa.int64()).cast(type_)
    found, expected = both(column, size)
    assert found == expected


def test_a_sum_beyond_its_type_is_refused() -> None:
    column, nothing = pa.array([2**63 - 1, 1, -(2**63)]), (np.zeros(3, int), np.empty(0, np.int32))
    wide = WidePrefix.of(column)
    assert wide is not None
    sums = wide.of_ranges(np.array([0, 0]), np.array([3, 2]), nothing, np.array([3, 2]))
    with pytest.raises(InputError, match="'v' for left row 1 exceeds int64") as caught:
        sums.to_arrow(column.type, "v")
    assert caught.value.code == Code.SUM_OUT_OF_RANGE
    assert sums.to_means(column.type, "v").tolist() == [0.0, 2.0**62]


def test_sums_round_ties_to_even_and_overflow_to_infinity() -> None:
    greatest = math.ldexp(1 - 2.0**-53, 1024)
    nothing = np.zeros(2, int), np.empty(0, np.int32)
    for values in (
        [1.0, 2.0**-53], [1.0 + 2.0**-52, 2.0**-53], [1.0, 2.0**-53, 2.0**-70], [2.0**53, 1.0, 2.0**-10],
        [greatest, 2.0**970], [greatest, 2.0**970 - 2.0**920], [-greatest, -(2.0**970)], [5e-324, 5e-324],
        [1e16, 1.0, -1e16], [2.0**72 - 2.0**19, 2.0**19 - 2.0**-34, 1.0], [2.0**72 - 2.0**19, 2.0**18, 1.0],
    ):  # fmt: skip
        wide = WidePrefix.of(pa.array(values))
        assert wide is not None
        sums = wide.of_ranges(np.array([0]), np.array([len(values)]), nothing, np.array([len(values)]))
        assert sums.to_floats().tolist() == [exactly(values)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, -0.0]),
        pa.array([1.0, math.nan]),
        pa.array([1.0, math.inf]),
        pa.array([1e-300, 1e300]),
        pa.array([1], pa.uint64()),
        pa.array([Decimal("1.50")]),
        pa.array([datetime.date(2020, 1, 1)]),
    ],
    ids=lambda column: str(column.to_pylist()),
)
def test_columns_that_do_not_fit_are_left_to_the_limbs(column: pa.Array) -> None:
    assert WidePrefix.of(column) is None
    assert WidePrefix.of(column.slice(0, 0)) is None or pa.types.is_floating(column.type)


def test_a_null_beside_values_that_fit_has_no_digits() -> None:
    column = pa.array([None, 1.5, None])
    assert WidePrefix.of(column).prefix[:, 0].tolist() == [0, 0, 3 << 51, 3 << 51]  # type: ignore[union-attr]
