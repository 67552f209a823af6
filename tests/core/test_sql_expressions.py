"""Conditions in SQL: their meaning, compared with DuckDB, and the errors for text that is not valid."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core.errors import QueryError
from whenabouts.core.expressions.sql import parse_expression
from whenabouts.core.expressions.tree import TIME, check_condition, evaluate, holds

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = pa.table(
    {
        "x": pa.array([1, 2, None, 4, -3]),
        "y": pa.array([4, 2, 2, None, 3], pa.int32()),
        "f": pa.array([1.5, 0.0, None, -2.75, 1e300]),
        "s": ["u", "Uv", None, "a%b", ""],
        "d": pa.array(["u", "v", "u", None, "w"]).dictionary_encode(),
        "ok": [True, False, None, True, False],
        "t": pa.array([BEGIN + timedelta(seconds=n) for n in range(5)], pa.timestamp("us", "UTC")),
        "n": pa.array([BEGIN.replace(tzinfo=None) + timedelta(seconds=4 - n) for n in range(5)], pa.timestamp("ms")),
        "odd name": [1, 1, 2, 2, None],
    }
)


def _values(text: str, rows: pa.Table = ROWS) -> list[Any]:
    condition = parse_expression(text)
    check_condition(condition, {"a": rows.schema, "b": rows.schema})
    found = evaluate(pickle.loads(pickle.dumps(condition)), lambda column: rows.column(column.value[1]))
    return [found.as_py()] * len(rows) if isinstance(found, pa.Scalar) else list(found.to_pylist())


CONDITIONS = """
a.x < b.y AND NOT a.s = 'u' OR a.x IS NULL
(a.x < b.y OR a.ok) AND b.ok IS NOT TRUE
a.x = NULL
NULL
a.ok
NOT a.ok IS FALSE
a.x IS NOT NULL
a.x IN (1, 4, b.y)
a.x NOT IN (1, NULL)
a.x BETWEEN 1 AND b.y
a.x NOT BETWEEN -3 AND 1
a.x IS DISTINCT FROM b.y
a.x IS NOT DISTINCT FROM b.y
abs(a.x - b.y) * 2 + 1 <= 3
-a.x < -(b.y) + 1.5
a.x / b.y > 0.9
a.f / 0 > 1
least(a.x, b.y, 2) = 2
greatest(a.x, b.y) > 3
coalesce(a.x, b.y, 0) = 2
CASE WHEN a.x > 1 THEN a.ok WHEN a.x IS NULL THEN TRUE END
CASE a.x WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'many' END <> 'many'
CAST(a.f AS DOUBLE) > CAST(b.y AS BIGINT)
a.s LIKE 'U%' OR a.s LIKE '_'
a.s NOT LIKE '%v'
a.s ILIKE 'u%'
lower(a.s) || 'x' = 'uvx'
upper(a.s) = 'U'
length(a.s) > 1
a.d = 'u'
floor(a.f) = 1 OR ceil(a.f) = -2
sqrt(abs(a.f)) < 1
a.t - b.n < INTERVAL '2' SECOND
a.t + INTERVAL '1 second' >= b.n
b.t > TIMESTAMP '2024-01-01 00:00:02'
a.n < DATE '2024-01-02'
a."odd name" = 1
a.s = 'it''s' -- with a remark
""".strip().splitlines()


def test_conditions_mean_what_they_mean_to_duckdb() -> None:
    duckdb = pytest.importorskip("duckdb")
    naive = ROWS.column("t").cast(pa.timestamp("us"))  # DuckDB takes a literal as of the session's zone
    of_utc = ROWS.set_column(ROWS.schema.names.index("t"), "t", naive)
    with duckdb.connect() as base:
        base.register("r", of_utc)
        for text in CONDITIONS:
            sql = text.replace("a.f / 0", "a.f / nullif(0, 0)")  # there a division by 0 is infinite, here it is null
            asked = f"SELECT CAST(({sql}\n) AS BOOLEAN) FROM r a POSITIONAL JOIN r b"
            assert _values(text) == [row[0] for row in base.sql(asked).fetchall()], text


BIG = 2**53 + 1  # no double
NUMBERS = pa.table(
    {
        "big": pa.array([BIG, 20_000_001, -(2**63), None]),
        "u": pa.array([2**64 - 1, 5, 2**63, None], pa.uint64()),
        "f": pa.array([2.0**53, 2e7, 0.5, 1.0]),
        "small": pa.array([2.0**53, 2e7, 0.5, 1.0], pa.float32()),
        "day": pa.array([0, 1, 2, None], pa.date32()),
        "ms": pa.array([0, 86_400_000, -1, 5], pa.timestamp("ms")),
        "us": pa.array([1, 86_399_999_999, -1_001, 5], pa.timestamp("us")),
    }
)
ROUNDED = """
a.big > b.f
a.big > b.small
a.big = b.f
a.big <> b.small
a.big IS DISTINCT FROM b.f
a.big / 2 > 1
a.big * 0.5 > b.small + 1
a.big - b.small > 0
a.big > 1.5
a.big IN (2.5e0, 9007199254740992e0)
COALESCE(a.big, b.f) = 9007199254740992
COALESCE(b.small, a.big) > 1
LEAST(a.big, b.f) < 1
GREATEST(a.big, b.small, 3) > 4
CASE WHEN b.f > 1 THEN a.big ELSE b.f END > 1
SQRT(ABS(CAST(a.big AS DOUBLE))) > 4473
FLOOR(a.big) > 0 AND CEIL(a.big) > b.f - 1
CAST(a.big AS DOUBLE) = b.f
CAST(a.big AS FLOAT) = b.small
CAST(a.u AS DOUBLE) > b.f
a.u > b.big
a.u = 5
a.u IN (5, -1)
a.u IS NOT DISTINCT FROM b.big
a.u * 0.5 > 3
a.day + INTERVAL '1' DAY > b.ms
a.day + INTERVAL '1' DAY = b.day
a.ms - b.day > INTERVAL '0' SECOND
a.day - INTERVAL '1' SECOND < b.us
LEAST(a.ms, b.us) = b.us
GREATEST(a.us, b.ms) = b.ms
GREATEST(a.day, b.us) > b.us
COALESCE(a.day, b.us) = b.us
CASE WHEN a.f > 1 THEN a.ms ELSE b.us END = b.us
""".strip().splitlines()


@pytest.mark.parametrize("text", ROUNDED)
def test_whether_a_condition_works_depends_on_types_not_on_values(text: str) -> None:
    """Integers beside floats are rounded, times take the finest unit; as DuckDB does, with doubles for its floats."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as base:
        doubles = NUMBERS.set_column(3, "small", NUMBERS["small"].cast(pa.float64()))
        base.register("r", doubles)
        expected = base.execute(f"SELECT {text} FROM r a POSITIONAL JOIN r b").fetchall()
    assert _values(text, NUMBERS) == [row[0] for row in expected]


EMPTY = pa.table({"v": pa.nulls(2), "w": pa.nulls(2), "i": [1, 2], "s": ["a", None], "t": pa.array([1, 2], TIME)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"a.v {sign} b.{other}", None) for sign in ("=", "<=", "<>") for other in ("w", "i", "s", "t")),
        ("a.v IS NOT DISTINCT FROM b.w", True),
        ("a.v IS DISTINCT FROM b.i", True),
        ("a.v IS NULL AND b.w IS NULL", True),
        ("a.v", None),
        ("NOT a.v", None),
        ("a.v OR TRUE", True),
        ("a.v AND b.w", None),
        ("TRUE AND NULL", None),
        ("LOWER(a.v) = b.s", None),
        ("a.v || b.s = 'x'", None),
        ("LENGTH(a.v) + 1 > 1", None),
        ("a.v LIKE 'x%' OR a.v ILIKE '%'", None),
        ("a.v + 1 > b.i - a.w", None),
        ("a.v + b.w = -a.v", None),
        ("b.t + a.v > b.t - a.w", None),
        ("b.t - INTERVAL '1' DAY > a.v + INTERVAL '1' DAY", None),
        ("a.v * 2 / b.w > FLOOR(SQRT(ABS(a.v)))", None),
        ("COALESCE(a.v, b.i) >= LEAST(a.v, 0)", True),
        ("COALESCE(a.v, b.w) = LEAST(a.v, b.w)", None),
        ("COALESCE(a.v, b.w, b.t) <= GREATEST(b.t, a.v)", True),
        ("CASE WHEN a.v THEN 1 ELSE a.w END = 1", None),
        ("CASE WHEN a.v IS NULL THEN b.i ELSE a.w END > 0", True),
        ("CAST(a.v AS TEXT) = 'x' OR CAST(a.v AS DATE) < b.t", None),
        ("a.v IN (1, b.i)", None),
        ("a.v BETWEEN b.t AND b.w", None),
    ],
)
def test_a_column_without_any_value_is_null_of_any_type(text: str, expected: bool | None) -> None:
    assert _values(text, EMPTY) == [expected] * 2
    condition = parse_expression(text.replace("a.", "").replace("b.", ""))
    assert holds(condition, EMPTY).tolist() == [expected is True] * 2


def test_casts_to_integers_cut_off() -> None:
    assert _values("cast(a.f / 1e300 * 2.5 as int) = 2") == [False, False, None, False, True]


@pytest.mark.slow
def test_long_lists_are_walked() -> None:
    many = " OR ".join(f"a.x = {n}" for n in range(3000))
    assert _values(many) == [True, True, None, True, False]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a.x <", "WA-2091: line 1, column 5: something is missing near '<'"),
        ("a.x < abs()", "WA-2091: line 1, column 11: something is missing near"),
        ("a.x < b.y)", "WA-2091: line 1, column 10"),
        ("", "expected one condition, found 0"),
        ("a.x < 1; drop table a", "expected one condition, found 2"),
        ("a.x\n <\n  foo(b.y)", "WA-2091: line 3, column 3: `FOO"),
        ("a.x IN ()", "WA-2091: line 1, column 1: the list of IN is empty"),
        ("a.s / 2 > 1", "WA-2093: line 1, column 1: `divide` of string, int64: text"),
        ("a.x IN (SELECT 1)", "`a.x IN (SELECT 1)` is not supported"),
        ("count(*) > 1", "`COUNT\\(\\*\\)` is not supported"),
        ("floor(a.f, 1) = 1", "is not supported"),
        ("a.x BETWEEN SYMMETRIC 1 AND 2", "is not supported"),
        ("a.s LIKE '!%' ESCAPE '!'", "is not supported"),
        ("a.s LIKE b.s", "the pattern of LIKE"),
        ("a.b.x = 1", "is not supported"),
        ("a.x = 99999999999999999999", "does not fit into 64 bits"),
        ("a.x > . 0.9", "0.0.9 is no number"),
        ("__import__('os').system('true')", "is not supported"),
        ("(" * 3000 + "1" + ")" * 3000, "nested too deeply"),
        ("cast(a.x as json) = 1", "is not a supported type"),
        ("a.t - b.t < INTERVAL '1' MONTH", "WA-2002"),
        ("a.xx = 1", "WA-2092: line 1, column 1: there is no column 'xx' in a .hint: did you mean 'x'"),
        ("c.x = 1", "WA-2092: line 1, column 1: there is no table 'c'"),
        ("a.x = 1 and y = 1", "WA-2092: line 1, column 13: 'y' does not name its table"),
        ("a.x", "WA-2093: line 1, column 1: expected a condition, this gives int64"),
        ("a.x = 1 and a.x + b.s > 1", "WA-2093: line 1, column 13: `add` of int64, string"),
        ("a.t < INTERVAL '5' SECOND", "WA-2093"),
    ],
)
def test_what_is_no_condition_is_refused_where_it_stands(text: str, told: str) -> None:
    with pytest.raises(QueryError, match=told.replace("(SELECT 1)", r"\(SELECT 1\)")):
        _values(text)


def test_values_that_cannot_be_are_an_error() -> None:
    for text in ("9223372036854775807 + a.x > 0", "cast(a.s as int) = 1", "cast(a.f as int) = 1"):
        with pytest.raises(QueryError, match="WA-2093"):
            _values(text)
