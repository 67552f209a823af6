"""Outer, semi and anti joins as text give the rows that DuckDB gives for the same SQL."""

from __future__ import annotations

import random
import re
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from whenabouts.core import Interval, Point, QueryError, within
from whenabouts.core.local import run, run_stream, timing_join
from whenabouts.planner import parse_query

ON = ("A.k = B.k", "A.k = B.k AND A.j = B.j", "A.v < B.v", "A.k = B.k AND A.v > 1", "B.v IS NOT NULL AND A.j = B.j")
ON = (
    *ON,
    "A.k = B.k AND A.v <> B.v AND B.v > 1 AND A.v IS NOT NULL",
    "A.t = B.t",
    "A.k = B.j",
    "A.k = B.k AND A.v = B.j",
)
WHERE = ("", "A.v > 1", "B.v > 1", "B.v IS NULL", "A.k = B.k", "B.k IS NULL OR B.k = 1", "A.v IS NULL AND B.t > 3")
WHERE = (*WHERE, "A.v >= B.v", "A.k IS NULL", "A.id > 4 AND B.id > 4")


def _stream(seed: int, n: int = 25) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "t": pa.array([draw.randrange(20) for _ in range(n)], pa.int64()),
            "k": pa.array([draw.choice([1, 2, None]) for _ in range(n)], pa.int64()),
            "j": pa.array([draw.choice([1, 2]) for _ in range(n)], pa.int64()),
            "v": pa.array([draw.choice([1, 2, 3, None]) for _ in range(n)], pa.int64()),
            "id": pa.array(range(n), pa.int64()),
        }
    )


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(list(row.values())) for row in rows)


def _ours(text: str, tables: dict[str, pa.Table], **options: Any) -> list[dict[str, Any]]:
    query = parse_query(text).bind({name: table.schema for name, table in tables.items()}, **options)
    rows: list[dict[str, Any]] = run(query, list(tables.values()), buckets=3).output.to_pylist()
    return rows


def _theirs(text: str, tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    plain = re.sub(r"WINDOW\(A, B\) BETWEEN '(-?\d+) us' AND '(-?\d+) us'", r"B.t - A.t BETWEEN \1 AND \2", text)
    assert plain != text
    plain = plain.replace("LEFT SEMI", "SEMI")
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        rows: list[dict[str, Any]] = connection.sql(plain).to_arrow_table().to_pylist()
    return rows


@pytest.mark.parametrize(
    "join",
    [*(pytest.param(join, marks=pytest.mark.slow) for join in ("LEFT", "RIGHT OUTER", "LEFT SEMI")), "FULL", "ANTI"],
)
def test_an_outer_join_gives_the_rows_of_sql(join: str) -> None:
    """ON decides what a partner is, WHERE filters the result, keys of a missing partner are null."""
    one_sided = join in ("LEFT SEMI", "ANTI")
    tables = {"a": _stream(len(join)), "b": _stream(-len(join))}
    several = 0
    for on in ON:
        for where in WHERE:
            if one_sided and "B." in where:
                continue
            columns = (
                "A.id, A.v + 1 AS more, k, j"
                if one_sided
                else "A.id AS a, B.id AS b, A.k AS ak, B.k AS bk, A.v + B.v AS v"
            )
            text = f"SELECT {columns} FROM a A {join} JOIN b B ON WINDOW(A, B) BETWEEN '-1 us' AND '3 us' AND {on}"
            text += f" WHERE {where}" if where else ""
            want = _theirs(text, tables)
            assert _sorted(_ours(text, tables)) == _sorted(want), text
            several += len(want) > 10
    assert several > 3


@pytest.mark.parametrize(("join", "how"), [("LEFT", "left_outer"), ("RIGHT", "right_outer"), ("FULL", "full_outer")])
def test_the_columns_are_those_of_the_function(join: str, how: str) -> None:
    """Uncertain times, all columns, batch and stream."""
    draw = random.Random(3)
    a, b = (
        _stream(seed).append_column("t_max", pa.array([t + draw.randrange(4) for t in _stream(seed)["t"].to_pylist()]))
        for seed in (1, 2)
    )
    time = Interval("t", "t_max", max_uncertainty=3)
    text = f"SELECT * FROM a A {join} JOIN b B ON A.k = B.k AND WINDOW(A, B) = '2 us' WITH THRESHOLD 0.6 AND A.v <= B.v"
    query = parse_query(text).bind({"a": a.schema, "b": b.schema}, {"a": time, "b": time}, lateness=30)
    want = timing_join(
        a, b, on="k", left_time=time, right_time=time, condition=within(2, confidence=0.6), how=how,
        where="left.v <= right.v", suffixes=("_A", "_B"),
    )  # fmt: skip
    found = run(query, [a, b]).output
    assert found.schema.names == want.schema.names
    assert _sorted(found.to_pylist()) == _sorted(want.to_pylist())
    batches = [[table.slice(at, 9) for at in range(0, table.num_rows, 9)] for table in (a, b)]
    streamed = run_stream(query, batches).output.drop_columns("event_time")
    assert _sorted(streamed.to_pylist()) == _sorted(want.to_pylist())


def test_where_does_not_change_what_a_row_chooses() -> None:
    """With best, WHERE on the rows that are chosen among filters the result."""
    a, b = pa.table({"t": [5], "v": [1]}), pa.table({"t": [4, 6], "v": [1, 2]})
    join = "SELECT B.t AS t FROM a A LEFT JOIN b B ON WINDOW(A, B) = '2 us' "
    tables = {"a": a, "b": b}
    assert _ours(join, tables, best="left") == [{"t": 4}]
    assert _ours(join + "WHERE B.v = 2", tables, best="left") == []
    assert _ours(join + "AND B.v = 2", tables, best="left") == [{"t": 6}]
    assert _ours(join + "WHERE A.v = 2", tables, best="right") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("* FROM a NATURAL JOIN b ON {0}", "WA-2112: line 1, column 30: NATURAL is not available"),
        ("* FROM a ASOF JOIN b ON {0}", "WA-2112: line 1, column 32: a window in an ASOF JOIN"),
        ("* FROM a RIGHT SEMI JOIN b ON {0}", "WA-2112: line 1, column 33: RIGHT SEMI is not available"),
        ("* FROM a JOIN b USING (k) WHERE {0}", "WA-2112: line 1, column 22: USING is not available"),
        ("* FROM a LEFT JOIN b WHERE {0}", "WA-2111: line 1, column 27: LEFT JOIN without ON"),
        ("* FROM a LEFT JOIN b ON a.k = b.k WHERE {0}", "WA-2112: line 1, column 1: 0 windows in ON"),
        ("* FROM a LEFT JOIN b ON {0} WHERE OVERLAPS(a, b)", "WA-2111: line 1, column 60: found 'OVERLAPS(a, b'"),
        ("* FROM a LEFT JOIN b ON {0} AND WINDOW(b, a) = '1 us'", "WA-2112: line 1, column 1: 2 windows in ON"),
        ("* FROM a LEFT JOIN b ON {0}, b c", "WA-2112: line 1, column 27: LEFT JOIN in this query"),
        ("* FROM a LEFT JOIN b JOIN b c ON k = 1 ON {0}", "WA-2112: line 1, column 27: found 'b JOIN b c ON k = 1'"),
        ("* FROM a TABLESAMPLE (1 PERCENT), b WHERE {0}", "WA-2112: line 1, column 15: found 'a"),
        ("* FROM a LEFT JOIN b ON {0} COALESCE ON v", "WA-2112: line 1, column 27: LEFT JOIN in this query"),
        ("b.v FROM a SEMI JOIN b ON {0}", "WA-2092: line 1, column 8: the result has no columns of b"),
        ("b.* FROM a SEMI JOIN b ON {0}", "WA-2092: line 1, column 1: the result has no columns of b"),
        ("* FROM a ANTI JOIN b ON {0} WHERE b.v = 1", "WA-2092: line 1, column 60: the result has no columns of b"),
        ("* FROM a LEFT JOIN c b ON {0}", "WA-2001: line 1, column 1: a window of uncertain times"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(text: str, told: str) -> None:
    table = _stream(1)
    spans = table.rename_columns(["t_min", *table.column_names[1:-1], "t_max"])
    with pytest.raises(QueryError) as raised:
        parse_query("SELECT " + text.format("WINDOW(a, b) = '2 us'")).bind(
            {"a": table.schema, "b": table.schema, "c": spans.schema}
        )
    assert str(raised.value).startswith(told)
    assert raised.value.hint


def test_how_is_said_once() -> None:
    query = parse_query("SELECT * FROM a LEFT JOIN b ON WINDOW(a, b) = '2 us'")
    with pytest.raises(QueryError, match="WA-2006: how is given, and the text says it"):
        query.bind({name: _stream(1).schema for name in "ab"}, how="inner")


def test_a_mode_of_exact_times_needs_no_threshold() -> None:
    """A window without a threshold is a window join, and with a mode a timing join at confidence 1."""
    tables = {"a": _stream(1), "b": _stream(2)}
    found = _ours("SELECT a.id FROM a, b WHERE WINDOW(a, b) = '2 us'", tables, how="left_semi")
    point = Point("t")
    want = timing_join(
        *tables.values(), left_time=point, right_time=point, condition=within(2, confidence=1), how="left_semi"
    )
    assert _sorted(found) == _sorted(want.select(["id"]).to_pylist()) != []
