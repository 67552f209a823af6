"""Joins of periods as text: each condition counts, compared with plain Python over the coalesced tuples."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import QueryError
from whenabouts.core.local import coalesce, run
from whenabouts.planner import parse_query

MINUTE = 60_000_000
ROWS = pa.table(
    {
        "g": ["a", "a", "b", "b", "b"],
        "t": [at * MINUTE for at in (0, 10, 0, 2, 10)],
        "h": [1, 1, 5, 6, 6],
    }
)
START = "SELECT {} FROM s [RANGE 60 MINUTE] a, s [RANGE 60 MINUTE] b COALESCE ON h WHERE a.g < b.g "
LONG = "AND DURATION(INTERSECT(VALID(a), VALID(b))) >= '{}' "


def _rows(select: str, conditions: str = "", rows: pa.Table = ROWS, start: str = START) -> list[dict[str, Any]]:
    text = start.format(select) + "AND VALID(a) OVERLAPS VALID(b) " + conditions + " GROUP BY g"
    found: list[dict[str, Any]] = run(parse_query(text).bind({"s": rows.schema}), [rows, rows]).output.to_pylist()
    return found


def _intersections() -> list[tuple[int, int]]:
    runs = coalesce(ROWS, time="t", group="g", values="h", window="60 m").to_pylist()
    pairs = ((a, b) for a, b in product(runs, runs) if a["g"] < b["g"])
    both = [(max(a["valid_from"], b["valid_from"]), min(a["valid_to"], b["valid_to"])) for a, b in pairs]
    return sorted((start, end) for start, end in both if start < end)


@pytest.mark.parametrize("period", ["INTERSECT(VALID(a), VALID(b))", "intersect(valid(B), valid(A))"])
def test_the_period_of_a_pair_is_the_intersection(period: str) -> None:
    rows = _rows(f"{period}, DURATION({period}) AS d")
    found = sorted((row["valid_from"], row["valid_to"]) for row in rows)
    assert found == _intersections() != []
    assert all(row["d"] == row["valid_to"] - row["valid_from"] for row in rows)


@pytest.mark.parametrize("least", [("8 minutes", "1 minute"), ("1 minute", "8 minutes"), ("8 minutes",)])
def test_of_several_least_durations_the_greatest_counts(least: tuple[str, ...]) -> None:
    found = _rows("VALID_FROM, VALID_TO", "".join(map(LONG.format, least)))
    want = [(start, end) for start, end in _intersections() if end - start >= 8 * MINUTE]
    assert [(row["valid_from"], row["valid_to"]) for row in found] == want
    assert 0 < len(want) < len(_intersections())


def test_a_column_equal_to_itself_is_no_key() -> None:
    assert _rows("*", "AND a.h = a.h") == _rows("*") != []
    assert _rows("*", "AND a.h = b.h") == []
    some = ROWS.set_column(2, "h", pa.array([1, 1, None, 6, 6]))
    assert {row["h_b"] for row in _rows("*", "AND b.h = b.h", some)} == {6}


def test_a_second_column_of_one_name_has_the_name_of_its_stream() -> None:
    same = ROWS.set_column(2, "h", pa.array([1] * 5))
    assert list(_rows("a.h, b.h, a.g, b.g", "AND a.h = b.h", same)[0]) == ["h", "h_b", "g_a", "g_b"]


def test_a_column_is_looked_up_in_its_own_stream() -> None:
    """The stream's columns `h` and `h_s`: `s.h` is not `h_s`."""
    rows = pa.table({"t": [1, 2], "h": [1, 1], "h_s": [2, 2]})
    query = parse_query("SELECT s.h, h_s, s.n FROM s COALESCE ON h, h_s").bind({"s": rows.schema})
    assert run(query, [rows]).output.to_pylist() == [{"h": 1, "h_s": 2, "n": 2}]


@pytest.mark.parametrize(
    ("select", "conditions", "told"),
    [
        ("*", "AND DURATION(VALID(a)) >= '10 minutes'", "WA-2112: line 1, column 125: found 'DURATION(VALID(a"),
        ("DURATION(VALID(a)) AS d", "", "WA-2112: line 1, column 8: found"),
        ("DURATION(INTERSECT(VALID(a), VALID(a)))", "", "WA-2112: line 1, column 8: found"),
        ("VALID(a)", "", "WA-2112: line 1, column 8: VALID(a) alone"),
        ("VALID(b)", "", "WA-2112: line 1, column 8: VALID(b) alone"),
        ("INTERSECT(VALID(b), VALID(b))", "", "WA-2112: line 1, column 8: found"),
        ("INTERSECT(VALID(a), VALID(b), VALID(a))", "", "WA-2112: line 1, column 8: found"),
        ("INTERSECT(a.h, b.h)", "", "WA-2111: line 1, column 8: found"),
        ("INTERSECT(VALID(a), VALID(c))", "", "WA-2111: line 1, column 28: found 'VALID(c'"),
        ("INTERSECT(VALID(a.h), VALID(b))", "", "WA-2111: line 1, column 18: found 'VALID(a.h'"),
        ("INTERSECT(VALID(a), VALID(b)) AS i", "", "WA-2112: line 1, column 8: AS i for two columns"),
        ("a.valid_from", "", "WA-2092: line 1, column 8: there is no column 'valid_from'"),
        ("*", "AND DURATION(INTERSECT(VALID(a), VALID(b))) > '1 s'", "WA-2111"),
        ("*", "AND DURATION(INTERSECT(VALID(a), VALID(b)), 3) >= '1 s'", "WA-2112"),
        ("*", "AND RELATION('before', a, b)", "WA-2111: line 1, column 125: found 'RELATION'"),
    ],
)
def test_another_period_is_refused(select: str, conditions: str, told: str) -> None:
    with pytest.raises(QueryError) as raised:
        _rows(select, conditions)
    assert str(raised.value).startswith(told)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("[PARTITION BY g ROWS 1]", "[ROWS 1]"),
        ("[ROWS 1]", "[PARTITION BY g ROWS 1]"),
        ("[RANGE 1 HOUR]", "[RANGE 2 HOUR]"),
        ("[RANGE 1 HOUR]", ""),
        ("", "[RANGE 1 HOUR]"),
        ("[ROWS 9 SLIDE 3]", "[ROWS 9]"),
        ("[ROWS 9 SLIDE 3]", "[ROWS 9 SLIDE 3 SECOND]"),
    ],
)
def test_different_windows_are_refused(a: str, b: str) -> None:
    text = f"SELECT * FROM s {a} a, s {b} b COALESCE ON h WHERE VALID(a) OVERLAPS VALID(b) GROUP BY g"
    with pytest.raises(QueryError, match=r"WA-2111: .*: the two streams have different windows"):
        parse_query(text).bind({"s": ROWS.schema})


def test_one_window_may_be_written_in_two_ways() -> None:
    text = "SELECT * FROM s [RANGE 60 MINUTE] a, s [range '1 hour'] b COALESCE ON h WHERE VALID(a) OVERLAPS VALID(b)"
    assert parse_query(text).bind({"s": ROWS.schema}).query.window == 60 * MINUTE
