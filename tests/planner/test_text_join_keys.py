"""Equal columns of joins as text are keys whatever they are called, and may be selected from each stream."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import QueryError
from whenabouts.core.local import run
from whenabouts.planner import parse_query

NAN = float("nan")
A = pa.table({"t": [0, 1, 2], "v": [NAN, -0.0, None], "k": [1, 1, 2], "j": [1, 2, 2]})
B = pa.table({"t": [0, 1, 2], "v": [NAN, 0.0, None], "w": [NAN, 0.0, None], "kk": [1, 3, 2]})
TABLES = {"a": A, "b": B}
WINDOW = "WINDOW(A, B) = '1 s'"
KINDS = {
    "timing": "FROM a A, b B WHERE WINDOW(A, B) = '1 s' WITH THRESHOLD 1 AND ",
    "outer": "FROM a A LEFT JOIN b B ON WINDOW(A, B) = '1 s' AND ",
    "window": "FROM a A, b B WHERE WINDOW(A, B) = '1 s' AND ",
    "as-of": "FROM a A ASOF JOIN b B ON A.t >= B.t AND ",
}


def _bound(text: str, **tables: pa.Table) -> Any:
    return parse_query(text).bind({name: table.schema for name, table in (TABLES | tables).items()})


def _rows(text: str, **tables: pa.Table) -> list[dict[str, Any]]:
    given = TABLES | tables
    query = parse_query(text)
    bound = query.bind({name: table.schema for name, table in given.items()})
    rows: list[dict[str, Any]] = run(bound, [given[source.stream] for source in query.sources]).output.to_pylist()
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["v", "w"])
def test_equality_means_the_same_whatever_the_columns_are_called(kind: str, name: str) -> None:
    """NaN equals NaN and -0.0 equals 0.0, as in every key."""
    rows = _rows(f"SELECT A.t AS a, B.t AS b {KINDS[kind]} A.v = B.{name}")
    found = {(row["a"], row["b"]) for row in rows}
    assert found == {(0, 0), (1, 1)} | ({(2, None)} if kind == "outer" else set())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", ["A.k = B.kk", "B.kk = A.k", "a.K = b.KK AND A.k = B.kk"])
def test_keys_may_be_called_differently(kind: str, said: str) -> None:
    assert _bound(f"SELECT * {KINDS[kind]} {said}").query.on == (("k", "kk"),)
    rows = _rows(f"SELECT A.t AS a, k, kk, B.kk + 0 AS more {KINDS[kind]} {said}")
    assert {(row["a"], row["k"]) for row in rows} == {(0, 1), (1, 1), (2, 2)}
    assert all(row["k"] == row["kk"] == row["more"] for row in rows)


def test_a_row_without_a_partner_has_no_key_of_the_other_stream() -> None:
    rows = _rows("SELECT k, kk FROM a A FULL JOIN b B ON WINDOW(A, B) = '1 s' AND A.j = B.kk WHERE B.kk = 3 OR A.j = 2")
    assert sorted(map(str, rows)) == sorted(map(str, [{"k": None, "kk": 3}, {"k": 1, "kk": 2}, {"k": 2, "kk": 2}]))


def test_keys_of_three_streams_follow_equalities() -> None:
    draw = random.Random(4)
    tables = {name: pa.table({"t": range(20), name: [draw.randrange(3) for _ in range(20)],
                              "o": [draw.randrange(2) for _ in range(20)]}) for name in "xyz"}  # fmt: skip
    windows = "FROM x, y, z WHERE WINDOW(x, y) = '3 us' AND WINDOW(y, z) = '3 us' AND "
    for said, on, same in (
        ("x.x = y.y AND z.z = y.y", (("x", "y", "z"),), lambda a, b, c: a["x"] == b["y"] == c["z"]),
        ("x.o = y.o AND y.o = z.o AND x.o = z.o", ("o",), lambda a, b, c: a["o"] == b["o"] == c["o"]),
        ("x.o = y.y AND x.o = y.o AND y.o = z.o", ("o",), lambda a, b, c: b["y"] == a["o"] == b["o"] == c["o"]),
        ("x.x = y.y AND z.z <> y.y", (), lambda a, b, c: a["x"] == b["y"] != c["z"]),
    ):
        text = "SELECT x.t AS a, y.t AS b, z.t AS c " + windows + said
        assert _bound(text, **tables).query.on == on
        found = {(row["a"], row["b"], row["c"]) for row in _rows(text, **tables)}
        rows = product(*(table.to_pylist() for table in tables.values()))
        near = [row for row in rows if abs(row[0]["t"] - row[1]["t"]) <= 3 and abs(row[1]["t"] - row[2]["t"]) <= 3]
        assert found == {(a["t"], b["t"], c["t"]) for a, b, c in near if same(a, b, c)} != set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_may_be_selected_from_each_stream(kind: str) -> None:
    tables = {name: pa.table({"t": [1], "k": [7], "v": [n]}) for n, name in enumerate("ab")}
    start = f"{KINDS[kind]} A.k = B.k"
    for select, names in (
        ("A.k, B.k", ["k", "k_B"]),
        ("A.v, B.v, B.k, A.k", ["v", "v_B", "k", "k_A"]),
        ("A.k, B.K, B.k AS other", ["k", "K", "other"]),
        ("A.*, B.*", ["t_A", "k", "v_A", "t_B", "k_B", "v_B"]),
        ("k, B.k", ["k", "k_B"]),
    ):
        (row,) = _rows(f"SELECT {select} {start}", **tables)
        assert list(row) == names
        assert {value for name, value in row.items() if name[0] in "kKo"} == {7}
    whole = list(_rows(f"SELECT * {start}", **tables)[0])
    assert list(_rows(f"SELECT *, B.k {start}", **tables)[0]) == [*whole, "k_B"]
    with pytest.raises(QueryError, match="WA-2009: line 1, column 1: two columns of the result are called 'k'"):
        _rows(f"SELECT A.k, B.k AS k {start}", **tables)


def test_a_column_may_be_selected_twice_only_with_its_stream() -> None:
    with pytest.raises(QueryError, match="WA-2009"):
        _rows(f"SELECT k, k {KINDS['timing']} A.k = B.kk")


def test_the_joint_probability_may_be_selected() -> None:
    text = "SELECT *, A.t AS at FROM a A, b B WHERE WINDOW(A, B) = '1 s' WITH THRESHOLD 0.5"
    text += " AND WINDOW(B, A) = '2 s' WITH THRESHOLD 0.5"
    bound = parse_query(text).bind({name: table.schema for name, table in TABLES.items()}, joint=True)
    assert "probability" in run(bound, [A, B]).output.column_names


@pytest.mark.parametrize("kind", KINDS)
def test_types_that_cannot_be_compared_exactly_are_refused_as_keys(kind: str) -> None:
    with pytest.raises(QueryError, match="WA-2008"):
        _rows(f"SELECT A.k {KINDS[kind]} A.k = B.w")
    cast = f"SELECT A.k {KINDS[kind]} CAST(A.k AS DOUBLE) = B.w"
    if kind != "as-of":  # there a condition on both streams belongs to WHERE
        assert len(_rows(cast)) == (3 if kind == "outer" else 0)
