"""SQL conditions on times of every type and unit, far from 1970 and finer than a microsecond, against Python's
integers."""

from __future__ import annotations

import operator
from itertools import product

import pyarrow as pa
import pytest

from whenabouts.core.errors import QueryError
from whenabouts.core.expressions.sql import parse_expression
from whenabouts.core.expressions.tree import check_condition, evaluate

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
UNITS = tuple(NANOSECONDS)
INSTANTS = {
    **{str(kind): (kind, NANOSECONDS[kind.unit]) for unit in UNITS for kind in (pa.timestamp(unit),)},
    **{f"{unit} of Berlin": (pa.timestamp(unit, "Europe/Berlin"), NANOSECONDS[unit]) for unit in UNITS},
    "date32": (pa.date32(), 86_400 * 10**9),
    "date64": (pa.date64(), 10**6),
}
DURATIONS = {unit: (pa.duration(unit), NANOSECONDS[unit]) for unit in UNITS}
TIMES_OF_DAY = {
    "s": (pa.time32("s"), 10**9), "ms": (pa.time32("ms"), 10**6),
    "us": (pa.time64("us"), 10**3), "ns": (pa.time64("ns"), 1),
}  # fmt: skip
COMPARISONS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "<>": operator.ne,
    "IS NOT DISTINCT FROM": operator.eq,
}  # fmt: skip


def _numbers(kind: pa.DataType, unit: int, day: bool) -> list[int]:
    """Values of a type near the limits of other types, near zero and near a common instant."""
    if day:
        return [n for n in (0, 1, 43_200 * 10**9 // unit, 86_399 * 10**9 // unit) if n * unit < 86_400 * 10**9]
    least, greatest = (-(2**31), 2**31 - 1) if pa.types.is_date32(kind) else (-(2**63) + 1, 2**63 - 1)
    around = [sign * limit * other // unit for limit in (2**63,) for other in (1, 1000) for sign in (1, -1)]
    common = 1_700_006_400 * 10**9 // unit  # midnight of a day
    near = {n + d for n in (0, common, -common, *around) for d in (-1, 0, 1)} | {least, least + 1, greatest}
    return sorted(n for n in near if least <= n <= greatest)


def _holds(text: str, left: pa.Array, right: pa.Array) -> list[bool | None]:
    condition = parse_expression(text)
    tables = {"a": pa.table({"t": left}), "b": pa.table({"t": right})}
    check_condition(condition, {name: table.schema for name, table in tables.items()})
    found: list[bool | None] = evaluate(condition, lambda node: tables[node.value[0]].column("t")).to_pylist()
    return found


@pytest.mark.parametrize("family", [INSTANTS, DURATIONS, TIMES_OF_DAY], ids=["instants", "durations", "times of day"])
def test_every_comparison_of_every_two_types_is_exact(family: dict[str, tuple[pa.DataType, int]]) -> None:
    for (one, one_unit), (other, other_unit) in product(family.values(), repeat=2):
        values = list(
            product(
                _numbers(one, one_unit, family is TIMES_OF_DAY), _numbers(other, other_unit, family is TIMES_OF_DAY)
            )
        )
        left = pa.array([a for a, _ in values], pa.int64()).cast(_width(one)).cast(one)
        right = pa.array([b for _, b in values], pa.int64()).cast(_width(other)).cast(other)
        for sign, compare in COMPARISONS.items():
            expected = [compare(a * one_unit, b * other_unit) for a, b in values]
            assert _holds(f"a.t {sign} b.t", left, right) == expected, (one, sign, other)


def _width(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()


@pytest.mark.parametrize("sign", [sign for sign in COMPARISONS if sign != "IS NOT DISTINCT FROM"])
def test_comparisons_with_null_are_null(sign: str) -> None:
    left, right = pa.array([None, 1], pa.timestamp("s")), pa.array([1, None], pa.timestamp("ns"))
    assert _holds(f"a.t {sign} b.t", left, right) == [None, None]


def test_literals_meet_times_that_are_far_away_and_fine() -> None:
    far, fine = pa.array([2**62], pa.timestamp("s")), pa.array([1_704_067_200_000_000_001], pa.timestamp("ns"))
    assert _holds("a.t > TIMESTAMP '2024-01-01'", far, far) == [True]
    assert _holds("a.t > TIMESTAMP '2024-01-01'", fine, far) == [True]
    assert _holds("a.t = TIMESTAMP '2024-01-01'", fine, far) == [False]
    assert _holds("a.t > DATE '2024-01-01'", far, far) == [True]
    assert _holds("a.t IN (TIMESTAMP '2024-01-01')", fine, far) == [False]
    assert _holds("a.t BETWEEN TIMESTAMP '2024-01-01' AND b.t", fine, far) == [True]
    assert _holds("a.t > INTERVAL '1' SECOND", pa.array([2**62], pa.duration("s")), far) == [True]


def test_differences_keep_nanoseconds() -> None:
    t = pa.array([10], pa.timestamp("ns"))
    assert _holds("b.t - a.t > INTERVAL '0' SECOND", t, pa.array([11], pa.timestamp("ns"))) == [True]
    assert _holds("a.t + INTERVAL '1' SECOND = b.t", t, pa.array([10**9 + 10], pa.timestamp("ns"))) == [True]


@pytest.mark.parametrize(
    "text",
    [
        "CAST(a.t AS BIGINT) > 0",
        "CAST(a.t AS TIMESTAMP) > b.t",
        "CAST(a.t AS DATE) > DATE '2024-01-01'",
        "CAST(a.t AS TEXT) > '2'",
        "a.t + INTERVAL '1' SECOND > b.t",
        "least(a.t, b.t) = b.t",
    ],
)
def test_what_cannot_hold_a_time_is_an_error_and_does_not_wrap(text: str) -> None:
    with pytest.raises(QueryError, match="WA-2093"):
        _holds(text, pa.array([2**62], pa.timestamp("s")), pa.array([1], pa.timestamp("ns")))


@pytest.mark.parametrize("unit", UNITS)
def test_casts_mean_microseconds_whatever_the_unit(unit: str) -> None:
    t = pa.array([-1_500_000_000 // NANOSECONDS[unit]], pa.timestamp(unit))
    cut = -2_000_000 if unit == "s" else -1_500_000
    assert _holds(f"CAST(a.t AS BIGINT) = {cut}", t, t) == [True]
    assert _holds("CAST(a.t - b.t + INTERVAL '1' SECOND AS BIGINT) = 1000000", t, t) == [True]
    assert _holds("CAST(a.t AS DATE) = DATE '1969-12-31'", t, t) == [True]
    assert _holds("CAST(CAST(a.t AS DATE) AS TIMESTAMP) = TIMESTAMP '1969-12-31'", t, t) == [True]
    one = pa.array([-1], pa.timestamp("ns"))
    assert _holds("CAST(a.t AS TIMESTAMP) = TIMESTAMP '1969-12-31 23:59:59.999999'", one, one) == [True]
