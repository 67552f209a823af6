"""Equivalences against exact rationals, including null, NaN, infinities and the limits of integer types."""

import math
import re
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whenabouts.conformance.coalescing_oracle import equivalent
from whenabouts.core import EngineError, InputError, QueryError
from whenabouts.core.coalescing.equivalence import (
    BOUNDED,
    KINDS,
    Equivalence,
    absolute_tolerance,
    check_comparable,
    comparable,
    linked,
    parse_equivalence,
    relative_tolerance,
)
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import coalesce, run_stream, temporal_join

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
@example("within_relative", 3.0, 1e308, -1e308)  # both sides overflow
@example("within_relative", 1.9, 1e308, -9.1e307)
@example("within_relative", 1e300, 1e10, -math.inf)
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
    assert parse_equivalence("absolute_tolerance:2") == absolute_tolerance(2)
    assert parse_equivalence("relative_tolerance:0.1") == relative_tolerance(0.1)
    assert str(absolute_tolerance(0.5)) == "absolute_tolerance(0.5)"
    for one in (np.int64(1), np.float32(1), np.uint8(1), Fraction(1)):
        assert absolute_tolerance(one) == absolute_tolerance(1)
    assert Fraction(parse_equivalence("absolute_tolerance:1e-3").bound or 0) == Fraction(0.001)


@pytest.mark.parametrize(
    "text",
    [
        "same",
        "absolute_tolerance",
        "within",
        "absolute_tolerance:x",
        "relative_tolerance:-1",
        "absolute_tolerance:nan",
        "equal:1",
        "absolute_tolerance:inf",
        3,
    ],
)
def test_refusals(text: str) -> None:
    with pytest.raises(QueryError, match="WA-2022"):
        parse_equivalence(text)


@pytest.mark.parametrize(
    "bound", [2**53 + 1, np.int64(2**53 + 1), 10**400, Fraction(1, 3), True, np.True_, math.nan, "1", None]
)
def test_bounds_that_no_float_holds_are_refused(bound: Any) -> None:
    for tolerance in (absolute_tolerance, relative_tolerance):
        with pytest.raises(QueryError, match="WA-2022: the bound is"):
            tolerance(bound)


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("absolute_tolerance:1", pa.string()),
        ("absolute_tolerance:1", pa.timestamp("us")),
        ("increasing", pa.bool_()),
    ],
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


def near(previous: pa.Table, current: pa.Table) -> pa.ChunkedArray:
    return pc.less_equal(pc.abs(pc.subtract(current["v"], previous["v"])), 1)


READINGS = pa.table({"t": range(8), "v": [0, 1, 2, 9, 9, None, 9, 8]})


def test_a_function_is_asked_once_about_all_pairs() -> None:
    asked = []

    def counting(previous: pa.Table, current: pa.Table) -> pa.ChunkedArray:
        asked.append((previous.column_names, previous["v"].to_pylist(), current["v"].to_pylist()))
        return near(previous, current)

    runs = coalesce(READINGS, time="t", values="v", equivalence=counting)
    assert runs.select(["v", "n"]).to_pylist() == [
        {"v": 0, "n": 3}, {"v": 9, "n": 2}, {"v": None, "n": 1}, {"v": 9, "n": 2},
    ]  # fmt: skip
    values = READINGS["v"].to_pylist()
    assert [call for call in asked if call[1]] == [(["v"], values[:-1], values[1:])]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda a, b: pa.scalar(False), "a single BooleanScalar"),
        (lambda a, b: True, "True, a single bool"),
        (lambda a, b: "yes", "'yes', a single str"),
        (lambda a, b: None, "None, a single NoneType"),
        (lambda a, b: pc.subtract(b["v"], a["v"]), "int64"),
        (lambda a, b: np.ones(len(a["v"]) + 1, bool), "an array of bool"),
        (lambda a, b: a["v"] == b["v"], "a single bool"),  # the form for values of one row
        (lambda a, b: abs(b["v"] - a["v"]) <= 1, "failed for 0 pairs of rows with TypeError"),
        (lambda a: a, "TypeError"),
    ],
)
def test_a_function_that_gives_no_booleans_is_refused_before_the_run(answer: object, told: str) -> None:
    query = Coalesce(time="t", values="v", equivalence=answer)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=f"WA-2022.*{told}.*called once with two tables"):
        query.operator([READINGS.schema], streaming=True)


def test_a_function_that_needs_rows_is_no_wrong_one() -> None:
    close = np.vectorize(lambda a, b: bool(abs(b - a) <= 1))
    values = READINGS.filter(pc.is_valid(READINGS["v"]))
    told = [
        coalesce(values, time="t", values="v", equivalence=function).select(["v", "n"]).to_pylist()
        for function in (near, lambda a, b: close(a["v"].to_numpy(), b["v"].to_numpy()))
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("answer", [lambda a, b: np.ones(len(a), np.int8), lambda a, b: np.array(["x"] * len(a))])
def test_an_array_of_anything_but_booleans_is_refused_when_it_comes(answer: object) -> None:
    with pytest.raises(QueryError, match=r"WA-2022.*an array of .* for 7 pairs of rows"):
        coalesce(READINGS, time="t", values="v", equivalence=answer)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [lambda a, b: pa.scalar(True), lambda a, b: np.ones(len(a), np.int8)])
def test_matches_of_a_temporal_join_gives_booleans_too(answer: object) -> None:
    with pytest.raises(QueryError, match=r"WA-2065: matches gave .* for 5 pairs of rows"):
        temporal_join(READINGS, READINGS, time="t", values="v", window=10, on="v", matches=answer)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["eager", "lazy"])
@given(cuts=st.lists(st.integers(0, 8), max_size=5), values=st.lists(st.integers(0, 3), min_size=8, max_size=8))
@settings(deadline=None, max_examples=30)
def test_blocks_change_nothing(scheme: str, cuts: list[int], values: list[int]) -> None:
    table = pa.table({"t": range(8), "v": values})
    edges = [0, *sorted(cuts), 8]
    files = [table.slice(a, b - a) for a, b in pairwise(edges)]
    for options in ({}, {"window": 3, "slide": 1}, {"rows": 3, "slide": 1}):
        query = Coalesce(time="t", values="v", equivalence=near, scheme=scheme, lateness=0, **options)  # type: ignore[arg-type]
        built_in = Coalesce(
            time="t", values="v", equivalence="absolute_tolerance:1", scheme=scheme, lateness=0, **options
        )  # type: ignore[arg-type]
        found, expected = (run_stream(q, [files]).output for q in (query, built_in))
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_a_checkpoint_knows_a_function_by_its_name_not_by_its_address() -> None:
    def query(function: object) -> Coalesce:
        return Coalesce(time="t", values="v", equivalence=function)  # type: ignore[arg-type]

    def other(previous: pa.Table, current: pa.Table) -> pa.ChunkedArray:
        return near(previous, current)

    written = identity_of(query(near), [READINGS.schema], 4).to_json()
    elsewhere = re.sub(r"0x[0-9a-f]+", "0x7f00dead", written)
    assert elsewhere != written
    identity_of(query(near), [READINGS.schema], 4).check(elsewhere)
    with pytest.raises(EngineError, match=r"WA-3032.*<function near>"):
        identity_of(query(other), [READINGS.schema], 4).check(written)
