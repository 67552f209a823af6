"""Conditions in SQL: their meaning, compared with DuckDB, and the errors for text that is not valid."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core.errors import QueryError
from whenabouts.core.expressions.sql import parse_expression
from whenabouts.core.expressions.tree import check_condition, evaluate

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
SCHEMAS = {"a": ROWS.schema, "b": ROWS.schema}


def _values(text: str) -> list[Any]:
    condition = parse_expression(text)
    check_condition(condition, SCHEMAS)
    found = evaluate(pickle.loads(pickle.dumps(condition)), lambda column: ROWS.column(column.value[1]))
    return [found.as_py()] * len(ROWS) if isinstance(found, pa.Scalar) else list(found.to_pylist())


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
        ("a.x IN (SELECT 1)", "`a.x IN (SELECT 1)` is not supported"),
        ("count(*) > 1", "`COUNT\\(\\*\\)` is not supported"),
        ("floor(a.f, 1) = 1", "is not supported"),
        ("a.x BETWEEN SYMMETRIC 1 AND 2", "is not supported"),
        ("a.s LIKE '!%' ESCAPE '!'", "is not supported"),
        ("a.s LIKE b.s", "the pattern of LIKE"),
        ("a.b.x = 1", "is not supported"),
        ("a.x = 99999999999999999999", "does not fit into 64 bits"),
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
