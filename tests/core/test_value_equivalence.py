"""Equivalences against exact rationals, null, NaN, infinities and the ends of integer types among them."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whenabouts.conformance.oracle_coalescing import equivalent
from whenabouts.core import InputError, QueryError
from whenabouts.core.coalescing import Coalesce
from whenabouts.core.local import run_stream
from whenabouts.core.value_equivalence import (
    BOUNDED,
    KINDS,
    Equivalence,
    check_comparable,
    comparable,
    linked,
    parse_equivalence,
    within_relative,
    within_value,
)

FLOATS = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, math.inf, -math.inf, math.nan]))
BOUNDS = st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 1e300))
WHOLE = {pa.int64(): (-(2**63), 2**63 - 1), pa.uint64(): (0, 2**64 - 1), pa.int8(): (-128, 127)}


def agree(kind: str, bound: float, type_: pa.DataType, before: object, after: object) -> bool:
    column = comparable(pa.array([before, after], type_))
    given = Equivalence(kind, bound if kind in BOUNDED else None)
    return bool(linked([column.slice(0, 1)], [column.slice(1, 2)], given)[0])


@given(st.sampled_from(KINDS), BOUNDS, FLOATS, FLOATS)
@example("within_value", 0.1, 0.3, 0.4)
@example("within_value", 2.0**-53, 1.0, 1.0 + 2.0**-52)
@example("within_value", 1.0, 2.0**-60, 1.0 + 2.0**-52)  # the exact difference exceeds 1, the rounded one does not
@example("within_relative", 0.1, 10.0, 11.0)
@settings(deadline=None)
def test_floats(kind: str, bound: float, before: float | None, after: float | None) -> None:
    assert agree(kind, bound, pa.float64(), before, after) == equivalent(kind, bound, before, after)


@pytest.mark.parametrize("type_", WHOLE)
@given(data=st.data(), kind=st.sampled_from(KINDS), bound=BOUNDS)
@settings(deadline=None)
def test_integers(data: st.DataObject, type_: pa.DataType, kind: str, bound: float) -> None:
    low, high = WHOLE[type_]
    near = st.sampled_from([v for v in (low, low + 1, -1, 0, 1, 10, 11, 100, 110, high - 1, high) if low <= v <= high])
    numbers = st.one_of(st.none(), near, st.integers(low, high))
    before, after = data.draw(numbers), data.draw(numbers)
    assert agree(kind, bound, type_, before, after) == equivalent(kind, bound, before, after)


@pytest.mark.parametrize("values", [["a", "b"], [b"a", b"b"], [True, False], [[1], [1, 2]], [{"x": 1}, {"x": 2}]])
def test_equal_of_other_types(values: list[object]) -> None:
    column = comparable(pa.array([values[0], values[0], values[1], None, None]))
    found = linked([column.slice(0, -1)], [column.slice(1, None)], parse_equivalence("equal"))
    assert found.tolist() == [True, False, False, True]


def test_all_columns_must_agree() -> None:
    columns = [comparable(pa.array(values)) for values in ([1, 1, 2], [1.0, 1.0, 1.0])]
    before, after = ([c.take(np.array(at)) for c in columns] for at in ([0, 1], [1, 2]))
    assert linked(before, after, parse_equivalence("equal")).tolist() == [True, False]


def test_forms() -> None:
    assert parse_equivalence("within:2") == within_value(2)
    assert parse_equivalence("within_relative:0.1") == within_relative(0.1)
    assert str(within_value(0.5)) == "within_value(0.5)"
    assert Fraction(parse_equivalence("within:1e-3").bound or 0) == Fraction(0.001)


@pytest.mark.parametrize("text", ["same", "within", "within:x", "within:-1", "within:nan", "equal:1", "within:inf", 3])
def test_refusals(text: str) -> None:
    with pytest.raises(QueryError, match="WA-2022"):
        parse_equivalence(text)


@pytest.mark.parametrize(
    ("kind", "type_"), [("within:1", pa.string()), ("within:1", pa.timestamp("us")), ("increasing", pa.bool_())]
)
def test_types_that_cannot_be_compared(kind: str, type_: pa.DataType) -> None:
    with pytest.raises(InputError, match="WA-1023"):
        check_comparable(parse_equivalence(kind), pa.schema({"v": type_}), ["v"])


def test_a_run_of_zeros_of_both_signs_shows_the_one_that_is_left() -> None:
    """0.0 and -0.0 are equal and make a run, but look different once the first one has expired."""
    at = [1_000, 1_100, 1_200, 1_500, 5_400, 5_500]
    values = [0.0, -0.0, -0.0, -0.0, 1.0, 1.0]
    files = [pa.table({"t": [ms * 1_000], "v": [value]}) for ms, value in zip(at, values, strict=True)]
    told = []
    for scheme in ("eager", "lazy"):
        query = Coalesce(time="t", values="v", window="4s", slide="50ms", scheme=scheme)
        rows = run_stream(query, [files]).output.to_pylist()
        told.append([math.copysign(1, row["v"]) for row in rows if row["window_end"] == 5_100_000])
    assert told == [[-1.0], [-1.0]]
