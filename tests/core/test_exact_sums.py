"""Exact sums against `math.fsum`, rationals and Python's integers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.core.errors import Code, InputError
from whenabouts.core.join_aggregate import exact_sums
from whenabouts.core.join_aggregate.exact_sums import (
    PrefixSums,
    digits_of,
    digits_of_floats,
    sums_of_rows,
)

Floats = NDArray[np.float64]


def exactly(values: list[float]) -> float:
    """The sum by the definition of `exact_sums`."""
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return sum(special)
    if values and all(value == 0 and math.copysign(1, value) < 0 for value in values):
        return -0.0
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def bits(values: Floats | list[float]) -> list[bytes]:
    return ["nan" if value != value else float(value).hex() for value in values]


def range_sums(values: Floats, start: list[int], stop: list[int], **more: object) -> Floats:
    prefix = PrefixSums.of(digits_of_floats(values))
    return prefix.of_ranges(np.array(start), np.array(stop), **more).to_floats()  # type: ignore[arg-type]


def ranges(random: np.random.Generator, rows: int, count: int) -> tuple[list[int], list[int]]:
    ends = np.sort(random.integers(0, rows + 1, (count, 2)), axis=1)
    return ends[:, 0].tolist(), ends[:, 1].tolist()


def of_any_size(random: np.random.Generator, rows: int, least: int, greatest: int) -> Floats:
    return np.ldexp(random.uniform(-1, 1, rows), random.integers(least, greatest, rows))


@pytest.mark.parametrize(("least", "greatest"), [(-1073, 1010), (-1073, -1000), (990, 1014), (-20, 20), (0, 1)])
def test_thousands_of_ranges_are_what_fsum_says(least: int, greatest: int) -> None:
    random = np.random.default_rng(least + 2000)
    values = of_any_size(random, 700, least, greatest)
    values = random.permutation(np.concatenate([values, -values[:300], values[:100] * 2.0**-52]))  # they cancel
    start, stop = ranges(random, len(values), 2000)
    truth = [math.fsum(values[i:j]) for i, j in zip(start, stop, strict=True)]
    assert bits(range_sums(values, start, stop)) == bits(truth)


def test_rows_beside_the_range_are_added() -> None:
    random = np.random.default_rng(3)
    values, extra = of_any_size(random, 200, -10, 10), of_any_size(random, 300, -900, 900)
    start, stop = ranges(random, 200, 50)
    offsets = np.sort(random.integers(0, 301, 51))
    sums = range_sums(values, start, stop, more=digits_of_floats(extra), offsets=offsets)
    truth = [
        math.fsum([*values[i:j], *extra[a:b]])
        for i, j, a, b in zip(start, stop, offsets[:-1], offsets[1:], strict=True)
    ]
    assert bits(sums) == bits(truth)


ANY_FLOAT = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1.7976931348623157e308]),
    st.integers(-(2**53), 2**53).map(float),
    st.tuples(st.floats(-1, 1), st.integers(-1070, 1020)).map(lambda pair: math.ldexp(*pair)),
)  # fmt: skip


@given(st.lists(ANY_FLOAT, max_size=40), st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=800, deadline=None)
def test_any_doubles(values: list[float], first: int, last: int) -> None:
    """NaN, infinities, -0.0, subnormals, results beyond the greatest double."""
    first, last = sorted((min(first, len(values)), min(last, len(values))))
    assert bits(range_sums(np.array(values, float), [first], [last])) == bits([exactly(values[first:last])])


@given(st.integers(0, 2**53), st.integers(-1074, 900), st.integers(0, 130), st.sampled_from([-1, 0, 1]))
@settings(max_examples=800, deadline=None)
def test_ties_go_to_even_and_anything_below_them_decides(whole: int, exponent: int, below: int, last: int) -> None:
    values = [math.ldexp(float(whole), exponent), math.ldexp(1.0, exponent - 1)]
    values.append(math.ldexp(float(last), exponent - 1 - below))
    assert bits(range_sums(np.array(values), [0], [3])) == bits([exactly(values)])


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 64, 100])
def test_every_range_of_a_prefix_with_every_32nd_row(rows: int) -> None:
    values = of_any_size(np.random.default_rng(rows), rows, -1000, 1000)
    values[: rows // 2] = np.nextafter(0, 1)
    prefix = PrefixSums.of(digits_of_floats(values))
    assert prefix.step == (1 if rows <= 1 else exact_sums.BLOCK)
    start, stop = zip(*[(i, j) for i in range(rows + 1) for j in range(rows + 1)], strict=True)
    truth = [math.fsum(values[i:j]) for i, j in zip(start, stop, strict=True)]
    assert bits(prefix.of_ranges(np.array(start), np.array(stop)).to_floats()) == bits(truth)


@given(st.lists(st.lists(ANY_FLOAT, max_size=6), min_size=1, max_size=6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_partial_sums_merge_in_any_order(parts: list[list[float]], settle: bool) -> None:
    def partial(values: list[float]) -> exact_sums.ExactSums:
        sums = sums_of_rows(digits_of_floats(np.array(values, float)), np.array([0, len(values)]))
        return sums.settled() if settle else sums

    total, backwards = partial(parts[0]), partial(parts[-1])
    for values in parts[1:]:
        total = total.merged(partial(values))
    for values in parts[-2::-1]:
        backwards = partial(values).merged(backwards)
    every = [value for values in parts for value in values]
    assert bits(total.to_floats()) == bits(backwards.to_floats()) == bits([exactly(every)])
    assert total.counts.tolist() == [len(every)]


def test_sums_of_very_many_values_are_settled_before_they_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_sums, "MOST_VALUES", 4)
    values = np.full(3, 1.7976931348623157e308)
    total = part = sums_of_rows(digits_of_floats(values), np.array([0, 3]))
    negative = sums_of_rows(digits_of_floats(-values), np.array([0, 3]))
    for _ in range(20):
        total = total.merged(part)
    assert int(np.abs(total.cells[:, 1:]).max()) <= 5 * 2**32
    for _ in range(20):
        total = total.merged(negative)
    assert total.merged(negative).to_floats().tolist() == [0.0]
    with pytest.raises(ValueError, match="at most 4 rows"):
        PrefixSums.of(digits_of_floats(np.ones(5)))


def test_nulls_are_no_values() -> None:
    column = pa.array([None, 1.5, None, -0.0, None])
    sums = PrefixSums.of(digits_of(column)).of_ranges(np.array([0, 0, 2, 3]), np.array([1, 5, 5, 4]))
    assert sums.counts.tolist() == [0, 2, 1, 1]
    assert bits(sums.to_arrow(column.type, "v").to_pylist()[1:]) == bits([1.5, -0.0, -0.0])
    assert sums.to_arrow(column.type, "v")[0].as_py() is None


WHOLE_TYPES = {
    pa.int8(): (-(2**7), 2**7 - 1), pa.uint16(): (0, 2**16 - 1), pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint64(): (0, 2**64 - 1), pa.duration("us"): (-(2**63), 2**63 - 1), pa.bool_(): (0, 1),
    pa.decimal128(38, 3): (1 - 10**38, 10**38 - 1), pa.decimal256(76, 0): (1 - 10**76, 10**76 - 1),
}  # fmt: skip


@pytest.mark.parametrize("type_", WHOLE_TYPES, ids=str)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_integers_and_decimals_are_exact_or_refused(type_: pa.DataType, data: st.DataObject) -> None:
    least, most = WHOLE_TYPES[type_]
    whole = data.draw(st.lists(st.none() | st.integers(least, most) | st.sampled_from([least, most, 0]), max_size=12))
    decimal = pa.types.is_decimal(type_)
    scale = type_.scale if decimal else 0
    if decimal:
        column = pa.array([None if v is None else Decimal(f"{v}E-{scale}") for v in whole], type_)
    elif pa.types.is_duration(type_):
        column = pa.array(whole, pa.int64()).cast(type_)
    else:
        column = pa.array(whole, type_) if pa.types.is_integer(type_) else pa.array(whole, pa.int8()).cast(type_)
    present = [v for v in whole if v is not None]
    total = sum(present)
    sums = PrefixSums.of(digits_of(column)).of_ranges(np.array([0]), np.array([len(whole)]))
    assert sums.to_floats().tolist() == [float(total)]
    limits = (1 - 10**38, 10**38 - 1) if decimal else (-(2**63), 2**63 - 1)
    if limits[0] <= total <= limits[1]:
        found = sums.to_arrow(type_, "v")
        assert found.type == (
            pa.decimal128(38, scale) if decimal else type_ if pa.types.is_duration(type_) else "int64"
        )
        plain = found.cast(pa.int64()) if pa.types.is_duration(type_) else found
        (value,) = plain.to_pylist()
        assert value == (None if not present else Decimal(f"{total}E-{scale}") if decimal else total)
        found.validate(full=True)
    else:
        with pytest.raises(InputError, match="'v' for left row 0") as caught:
            sums.to_arrow(type_, "v")
        assert caught.value.code == Code.SUM_OUT_OF_RANGE


def test_a_column_that_is_cut_out_of_another() -> None:
    column = pa.array([Decimal(10), Decimal(-3), None, Decimal(5)], pa.decimal128(5, 0)).slice(1, 3)
    sums = PrefixSums.of(digits_of(column)).of_ranges(np.array([0]), np.array([3]))
    assert sums.to_arrow(column.type, "v").to_pylist() == [Decimal(2)]


def test_means_divide_the_rounded_sum_once() -> None:
    floats, start, stop = pa.array([0.1, 0.2, None, 0.3]), np.array([0, 2]), np.array([4, 3])
    means = PrefixSums.of(digits_of(floats)).of_ranges(start, stop).to_means(floats.type, "v")
    assert bits(means) == bits([math.fsum([0.1, 0.2, 0.3]) / 3, math.nan])
    decimals = pa.array([Decimal("0.10"), Decimal("0.25"), None, Decimal("9999999999999999.99")])
    means = PrefixSums.of(digits_of(decimals)).of_ranges(start, stop).to_means(decimals.type, "v")
    assert bits(means) == bits([float(Decimal("10000000000000000.34")) / 3, math.nan])
    whole = pa.array([2**63 - 1] * 3)  # the sum of integers need not fit for their mean
    means = PrefixSums.of(digits_of(whole)).of_ranges(np.array([0]), np.array([3])).to_means(whole.type, "v")
    assert bits(means) == bits([float(3 * (2**63 - 1)) / 3])


def test_text_has_no_sum() -> None:
    with pytest.raises(InputError, match="cast them to a number") as caught:
        digits_of(pa.array(["1"]))
    assert caught.value.code == Code.INCOMPARABLE_VALUES
