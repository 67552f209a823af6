"""Every word of a text counts: what no form uses is refused, and so is what is given twice or to nobody."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import Interval, Point, QueryError, within
from whenabouts.core.errors import Code
from whenabouts.core.local import run
from whenabouts.planner import Registry, Stream, parse_query

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64()})
SCHEMAS = dict.fromkeys("abs", SCHEMA)
OF_S = "SELECT * FROM s "
JOIN = "FROM a A, b B WHERE WINDOW(A, B) = '1 s'"
GROUPED = JOIN + " GROUP BY A"
ASOF = "SELECT * FROM a A ASOF JOIN b B "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT MAX(DURATION(VALID(s)), 999) FROM s COALESCE ON v", "WA-2111: line 1, column 8: found 'MAX(DURATION"),
        ("SELECT MIN(DURATION(VALID(s)), 1, 2) FROM s COALESCE ON v", "WA-2111: line 1, column 8: found 'MIN(DURATION"),
        ("SELECT COUNT(*, k) FROM s COALESCE ON v", "WA-2111: line 1, column 8: found 'COUNT(*, k)'"),
        ("SELECT COUNT(VALID(s), k) FROM s COALESCE ON v", "WA-2111: line 1, column 8: found 'COUNT(VALID(s), k)'"),
        ("SELECT COUNT(VALID(s.k)) FROM s COALESCE ON v", "WA-2111: line 1, column 14: found 'VALID(s.k'"),
        ("SELECT TIME_WEIGHTED(v + 1) FROM s COALESCE ON v", "WA-2112: line 1, column 8: found 'TIME_WEIGHTED"),
        ("SELECT TIME_WEIGHTED('v') FROM s COALESCE ON v", "WA-2112: line 1, column 8: found \"TIME_WEIGHTED"),
        ("SELECT TIME_WEIGHTED(v, k) FROM s COALESCE ON v", "WA-2091: line 1, column 8: `TIME_WEIGHTED(v, k)`"),
        ("SELECT VALID(s) AS p FROM s COALESCE ON v", "WA-2112: line 1, column 8: AS p for two columns"),
        ("SELECT INTERSECT(VALID(s), VALID(s)) FROM s COALESCE ON v", "WA-2112: line 1, column 8: found 'INTERSECT"),
        (OF_S + "COALESCE ON DISTINCT v", "WA-2111: line 1, column 17: DISTINCT in COALESCE ON"),
        (OF_S + "COALESCE ON v OFFSET 3", "WA-2111: line 1, column 17: OFFSET in COALESCE ON"),
        (OF_S + "COALESCE ON v WITHIN 5 SECOND", "WA-2111: line 1, column 40: found 'SECOND'"),
        (OF_S + "COALESCE ON v WITHIN 5 '6'", "WA-2111: line 1, column 40: found \"'6'\""),
        (OF_S + "COALESCE ON v WITHIN 5 EMIT", "WA-2111: line 1, column 40: found 'EMIT'"),
        (OF_S + "COALESCE ON v GROUP BY ALL", "WA-2112: line 1, column 1: ALL is not available"),
        (OF_S + "COALESCE ON v GROUP BY k WITH ROLLUP", "WA-2112: line 1, column 1: ROLLUP is not available"),
        ("SELECT v [ROWS 3] FROM s COALESCE ON v", "WA-2111: line 1, column 10: a window behind no stream"),
        (OF_S + "[ROWS 3] x [ROWS 5] COALESCE ON v", "WA-2111: line 1, column 28: a second window of one stream"),
        (OF_S + "[ROWS 3] [ROWS 5] COALESCE ON v", "WA-2111: line 1, column 26: a second window of one stream"),
        (f"SELECT * EXCEPT (k) {JOIN}", "WA-2112: line 1, column 8: found '* EXCEPT (k)'"),
        (f"SELECT A.* EXCEPT (k) {JOIN}", "WA-2112: line 1, column 10: found '* EXCEPT (k)'"),
        (f"SELECT * REPLACE (1 AS k) {JOIN}", "WA-2112: line 1, column 8: found '* REPLACE"),
        (f"SELECT * AS x {JOIN}", "WA-2112: line 1, column 8: found '* AS x'"),
        (f"SELECT A.* AS x {JOIN}", "WA-2112: line 1, column 8: found 'A.* AS x'"),
        (f"SELECT db.A.* {JOIN}", "WA-2112: line 1, column 8: found 'db.A.*'"),
        (f"SELECT AS STRUCT A.k {JOIN}", "WA-2112: line 1, column 1: KIND is not available"),
        (f"SELECT A.k {JOIN} AND THRESHOLD(0.5, 0.9)", "WA-2111: line 1, column 57: found 'THRESHOLD'"),
        (f"SELECT A.k {JOIN} AND THRESHOLD()", "WA-2111: line 1, column 57: found 'THRESHOLD'"),
        ("SELECT A.k FROM a A, b B WHERE WINDOW(A, B) = INTERVAL '1' DAY TO SECOND", "WA-2111: line 1, column 56"),
        (f"SELECT * EXCEPT (k), COUNT(B) {GROUPED}", "WA-2112: line 1, column 8: found '* EXCEPT (k)'"),
        (ASOF + "MATCH_CONDITION (A.t >= B.t, A.t > B.t) USING (k)", "WA-2111: line 1, column 33: 2 conditions"),
        (ASOF + "MATCH_CONDITION () USING (k)", "WA-2111: line 1, column 33: 0 conditions"),
        (ASOF + "MATCH_CONDITION (A.t >= B.t WHERE A.k = 1) USING (k)", "WA-2111: line 1, column 33: WHERE in MATCH"),
        (ASOF + "ON A.t >= B.t AND B.v > 3 WITH THRESHOLD 0.5 - 1", "WA-2111: line 1, column 78: found '-'"),
        (ASOF + "ON A.t >= B.t AND B.v > 3 TOLERANCE '2 s' * 2", "WA-2111: line 1, column 75: found '*'"),
        (ASOF.replace("b B", "b") + "MATCH_CONDITION (A.t >= b.t) B USING (k)", "WA-2111: line 1, column 60"),
        (ASOF + "MATCH_CONDITION (A.t >= B.t) USING (k::INT)", "WA-2092: line 1, column 29: USING names 'CAST("),
        (ASOF + "MATCH_CONDITION (A.t >= B.t) USING v (k)", "WA-2092: line 1, column 29: USING names 'V(k)'"),
        (f"SELECT COUNT_AT(B, . 0.9) {GROUPED}", "WA-2111: line 1, column 1: found"),
        (ASOF + "ON TIME(A, 'UTC') >= TIME(B)", "WA-2111: line 1, column 36: found \"TIME(A, 'UTC')\""),
        (ASOF + "ON TIME() >= TIME(B)", "WA-2111: line 1, column 36: found 'TIME()'"),
    ],
)  # fmt: skip
def test_what_no_form_uses_is_refused(text: str, told: str) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(text).bind(SCHEMAS)
    assert str(raised.value).startswith(told)
    assert raised.value.hint


def test_a_plain_column_of_coalesce_on_may_be_renamed() -> None:
    rows = pa.table({"t": [1, 2, 3], "k": [0, 0, 0], "v": [5, 5, 6]})
    text = "SELECT reading, k, n FROM s COALESCE ON v AS reading GROUP BY k"
    found = run(parse_query(text).bind({"s": rows.schema}), [rows]).output.to_pylist()
    assert found == [{"reading": 5, "k": 0, "n": 2}, {"reading": 6, "k": 0, "n": 1}]


def test_a_time_weighted_column_is_found_in_any_case() -> None:
    bound = parse_query("SELECT TIME_WEIGHTED(V) FROM s COALESCE ON v").bind(SCHEMAS)
    assert dict(bound.query.aggregates) == {"time_weighted_v": ("time_weighted", "v")}


@pytest.mark.parametrize("what", ["times", "lateness"])
def test_a_name_that_no_stream_has_is_refused(what: str) -> None:
    value: Any = Point("t") if what == "times" else "1 s"
    query = parse_query("SELECT * FROM trades A, quotes B WHERE WINDOW(A, B) = '1 s'")
    schemas = dict.fromkeys(("trades", "quotes", "more"), SCHEMA)
    query.bind(schemas, **{what: {"A": value, "quotes": value}})
    for name, hint in (("AA", "did you mean 'A'?"), ("quote", "did you mean 'quotes'?"), (3, "give one of these")):
        with pytest.raises(QueryError) as raised:
            query.bind(schemas, **{what: {name: value}})
        assert raised.value.code is Code.BAD_OPTION
        assert f"{what} names {name!r}, and the streams are A, trades, B, quotes" in str(raised.value)
        assert hint in str(raised.value)


def test_a_registry_describes_more_streams_than_a_text_has() -> None:
    described = Stream(schema=SCHEMA, time=Point("t"), lateness="1 s")
    registry = Registry(streams=dict.fromkeys("abs", described))
    registry.register("join", f"SELECT A.k {JOIN}")
    registry.register("runs", OF_S + "[ROWS 9] COALESCE ON v")
    assert set(registry.plan().choices) == {"join", "runs"}


SAID: dict[str, tuple[str, dict[str, Any]]] = {
    "timing": (
        f"SELECT A.k {JOIN} WITH THRESHOLD 1 AND A.v < B.v",
        {"on": "k", "condition": within("2 s", confidence=1), "left_time": Point("t"), "right_time": Point("t"),
         "suffixes": ("_x", "_y"), "where": "left.v > 1"},
    ),
    "outer": ("SELECT A.k FROM a A LEFT JOIN b B ON WINDOW(A, B) = '1 s'", {"how": "inner", "on": "k"}),
    "window": (f"SELECT A.k {JOIN} AND A.v < B.v", {"on": "k", "windows": {("A", "B"): "2 s"}, "predicates": {}}),
    "as-of": (
        ASOF + "ON A.t >= B.t TOLERANCE '2 s' WITH THRESHOLD 0.5",
        {"on": "k", "left_time": Point("t"), "direction": "forward", "allow_exact_matches": False, "tolerance": "1 s",
         "confidence": 0.4, "suffixes": ("_x", "_y")},
    ),
    "aggregate": (
        f"SELECT COUNT(B) {GROUPED}",
        {"on": "k", "condition": within("2 s", confidence=1), "right_time": Point("t"), "aggregates": {"n": "count"}},
    ),
    "coalesce": (
        OF_S + "[RANGE 1 HOUR SLIDE 1 MINUTE] COALESCE ON v WITHIN 2 GROUP BY k EMIT FINAL",
        {"window": "2 h", "slide": "2 m", "equivalence": "equal", "values": "k", "group": "v", "time": "t",
         "emit": "final"},
    ),
    "rows": (
        OF_S + "[PARTITION BY k ROWS 9] COALESCE ON v GROUP BY k", {"rows": 8, "per_group": False},
    ),
    "temporal aggregate": ("SELECT COUNT(*) FROM s [ROWS 9] COALESCE ON v", {"aggregates": {"n": "count"}, "rows": 3}),
    "temporal join": (
        "SELECT * FROM a, b COALESCE ON v WHERE VALID(a) OVERLAPS VALID(b) AND a.v <> b.v "
        "AND DURATION(INTERSECT(VALID(a), VALID(b))) >= '1 s'",
        {"relation": "before", "on": "v", "min_duration": "2 s", "suffixes": ("_x", "_y"), "matches": print},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("form", "option"), [(form, name) for form, (_, given) in SAID.items() for name in given])
def test_what_the_text_says_is_no_option(form: str, option: str) -> None:
    text, given = SAID[form]
    with pytest.raises(QueryError, match=f"WA-2006: {option} is given, and (the text|times) says? it"):
        parse_query(text).bind(SCHEMAS, **{option: given[option]})


def test_what_the_text_leaves_open_is_an_option() -> None:
    text = "SELECT * FROM s COALESCE ON v"
    query = parse_query(text).bind(SCHEMAS, window="1 h", equivalence="absolute_tolerance:2", emit="early").query
    within_two = parse_query(f"{text} WITHIN 2").bind(SCHEMAS).query
    assert (query.window, query.equivalence, query.emit) == ("1 h", within_two.equivalence, "early")
    asked = parse_query(f"SELECT A.k {JOIN} WITH THRESHOLD 1").bind(SCHEMAS, where="left.v > 1")
    assert asked.query.where is not None


@pytest.mark.parametrize("wrong", [None, 3, b"SELECT", ["SELECT"]])
def test_an_object_that_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(QueryError, match="WA-2006: the query is "):
        parse_query(wrong)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"schemas": None}, "schemas is None"),
        ({"schemas": SCHEMA}, "schemas is "),
        ({"schemas": [SCHEMA]}, "schemas is "),
        ({"schemas": {"a": 3, "b": SCHEMA}}, "the schema of 'a' is a builtins.int"),
        ({"times": {"A": "t"}}, "times['A'] is 't'"),
        ({"times": {"A": Interval}}, "times['A'] is <class"),
        ({"times": Point("t")}, "times is "),
        ({"times": "t"}, "times is 't'"),
    ],
)
def test_wrong_objects_for_streams_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(f"SELECT A.k {JOIN}").bind(**{"schemas": SCHEMAS} | given)
    assert str(raised.value).startswith(f"WA-2006: {told}")
    assert raised.value.hint


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"streams": {"a": 3}}, "streams['a'] is 3"),
        ({"streams": 3}, "streams is 3"),
        ({"streams": ["a"]}, "streams is ['a']"),
        ({"weights": "abc"}, "weights is 'abc'"),
        ({"weights": 3}, "weights is 3"),
        ({"weights": (1, 2, 3, 4)}, "weights is (1, 2, 3, 4)"),
        ({"weights": (1, None, 3)}, "weights is (1, None, 3)"),
    ],
)
def test_a_registry_refuses_wrong_objects(given: dict[str, Any], told: str) -> None:
    with pytest.raises(QueryError) as raised:
        Registry(**given)
    assert str(raised.value).startswith(f"WA-2006: {told}")
    assert raised.value.hint
