"""Texts and plan files that are too long, too deep, or of the wrong kind end with a code, and quickly."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from whenabouts.core.durations import parse_duration
from whenabouts.core.errors import Code, InputError, QueryError
from whenabouts.core.expressions.sql import MOST_CHARACTERS, MOST_TOKENS, parse_expression
from whenabouts.core.times.templates import read_templates
from whenabouts.planner import parse_query, read_plan_file

pytestmark = pytest.mark.slow

SCHEMA = pa.schema({"t": pa.timestamp("us", "UTC"), "k": pa.string(), "v": pa.int64()})
JOIN = "SELECT * FROM s A, s B WHERE WINDOW(A, B) = '2 s' AND "
QUERY = "queries:\n  - {name: hot, coalesce: [v], window: {rows: 9}}\n"


def nested(opening: str, inner: str, closing: str, times: int) -> str:
    return opening * times + inner + closing * times


CONDITIONS = {
    "parentheses": nested("(", "A.v > 1", ")", 200),
    "many parentheses": nested("(", "A.v > 1", ")", 20_000),
    "functions": nested("ABS(", "A.v", ")", 3000) + " > 1",
    "not": "NOT " * 5000 + "A.v > 1",
    "minus": "- " * 5000 + "A.v > 1",
    "case": nested("CASE WHEN A.v > 1 THEN ", "1", " END", 500) + " > 1",
    "sum": "A.v > " + " + ".join(["1"] * 5000),
    "texts": "A.k = " + " || ".join(["'x'"] * 5000),
    "branches": "CASE " + " ".join(f"WHEN A.v = {n} THEN {n}" for n in range(2000)) + " END > 1",
    "values": "A.v IN (" + ",".join(map(str, range(130_000))) + ")",
    "words": "A.v IN (" + ",".join("1" for _ in range(MOST_TOKENS)) + ")",
    "characters": "A.k = '" + "x" * MOST_CHARACTERS + "'",
    "digits": "A.v > " + "9" * 100_000,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_without_measure_is_refused(name: str) -> None:
    with pytest.raises(QueryError) as alone:
        parse_expression(CONDITIONS[name])
    assert alone.value.code == Code.BAD_SQL
    with pytest.raises(QueryError) as in_query:
        parse_query(JOIN + CONDITIONS[name]).bind({"s": SCHEMA})
    assert in_query.value.code in (Code.BAD_SQL, Code.BAD_QUERY_TEXT)
    assert "line 1, column" in str(in_query.value)
    for error in (alone, in_query):
        assert len(str(error.value)) < 2000


def test_brackets_in_text_are_no_nesting() -> None:
    told = parse_expression(" AND ".join(["a.k <> '('"] * 100))
    assert len(list(told.columns())) == 100


@pytest.mark.parametrize("joiner", [" AND ", " OR "])
def test_thousands_of_operands_are_taken(joiner: str) -> None:
    condition = joiner.join(f"A.v > B.v + {n}" for n in range(3000))
    bound = parse_query(f"{JOIN}({condition})").bind({"s": SCHEMA})
    assert len(dict(bound.query.predicates)) == 1
    assert len(list(parse_expression(condition).columns())) == 6000


def test_many_values_are_taken() -> None:
    found = parse_expression("a.v IN (" + ", ".join(map(str, range(10_000))) + ")")
    assert len(list(found.columns())) == 10_000


def test_thousands_of_columns_are_taken() -> None:
    schema = pa.schema([("t", SCHEMA.field("t").type), *((f"c{n}", pa.int64()) for n in range(5000))])
    chosen = ", ".join(f"A.c{n}, B.c{n} + 1 AS d{n}" for n in range(2500))
    bound = parse_query(f"SELECT {chosen} FROM s A, s B WHERE WINDOW(A, B) = '2 s'").bind({"s": schema})
    assert len(bound.columns or ()) == 5000
    derived = ", ".join(f"c{n} + {n} AS d{n}" for n in range(2500))
    bound = parse_query(f"SELECT * FROM s COALESCE ON {derived}").bind({"s": schema})
    assert len(bound.operator([schema], streaming=False).output_schema) > 2500


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM " + ", ".join(f"s A{n}" for n in range(300)) + " WHERE WINDOW(A0, A1) = '2 s'",
        "SELECT * FROM " + "[" * 3000,
        "SELECT * FROM " + nested("(SELECT * FROM ", "s", ")", 500),
        " UNION ".join(["SELECT 1"] * 3000),
        f"SELECT * FROM s [ROWS {'9' * 6000}] COALESCE ON v",
        "SELECT * FROM s [ROWS ²] COALESCE ON v",
        f"SELECT * FROM s A, s B WHERE WINDOW(A, B) = '{'9' * 5000} s'",
        "SELECT * FROM s A, s B WHERE WINDOW(A, B) = '1 s' WITH THRESHOLD .'a'",
        f"SELECT * FROM s A, s B WHERE WINDOW(A, B) = '1 s' WITH THRESHOLD {'9' * 6000}",
    ],
)
def test_other_texts_without_measure_are_refused(text: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_query(text).bind({"s": SCHEMA})
    assert len(str(refused.value)) < 2000


def bomb() -> str:
    """282 bytes that expand to a billion values."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join(lines) + "\n"


PLANS = {
    "alias bomb": (bomb() + QUERY, "aliases expand to more than"),
    "bomb of queries": (bomb().replace("i: &i", "queries: &i"), "aliases expand to more than"),
    "alias in itself": ("queries: &q [*q]", "an alias refers to a value that contains it"),
    "deep": ("queries: " + nested("[", "", "]", 500), "nested"),
    "deeper": ("queries: " + "[" * 20_000, "nested"),
    "twice": ("queries: [{name: a, name: b, coalesce: [v], window: {rows: 9}}]", "'name' is given twice"),
    "parallelism": (QUERY + "parallelism: abc", "parallelism is 'abc'"),
    "no parallelism": (QUERY + "parallelism: null", "parallelism is None"),
    "negative": (QUERY + "parallelism: -3", "parallelism is -3"),
    "half": (QUERY + "parallelism: 1.5", "parallelism is 1.5"),
    "digits": (QUERY + "parallelism: " + "9" * 5000, "Exceeds the limit"),
    "hysteresis": (QUERY + "hysteresis: abc", "hysteresis is 'abc'"),
    "sizes": (QUERY + "sizes: [a, b]", "WA-2"),
    "scan": (QUERY.replace("9}", "9}, max_scan_time: abc"), "max_scan_time is 'abc'"),
    "equivalence": (QUERY.replace("9}", "9}, equivalence: [1]"), "queries[0]"),
    "stream": (QUERY.replace("9}", "9}, stream: [1]"), "queries[0]"),
    "pin": (QUERY.replace("9}", "9}, pin: {scheme: [1]}"), "queries[0]"),
    "rows": (QUERY.replace("rows: 9", "rows: abc"), "queries[0]"),
    "long value": ("queries: " + "x" * 100_000, "queries is missing or has the wrong type"),
    "long mapping": (json.dumps({"streams": ["x"] * 50_000}), "streams is ['x', 'x', 'x', ...]"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_file_of_any_kind_has_a_plan_or_a_code(tmp_path: Path, name: str) -> None:
    text, wanted = PLANS[name]
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(QueryError) as refused:
        read_plan_file(path).plan()
    assert wanted in str(refused.value)
    assert "plan.yaml" in str(refused.value)
    assert len(str(refused.value)) < 2000


def test_aliases_and_merged_mappings_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "queries:\n"
        "  - &hot {name: hot, coalesce: &c [v], window: {rows: 9}}\n"
        "  - {<<: *hot, name: wet}\n"
        "  - {name: dry, coalesce: *c, window: {rows: 99}}\n"
    )
    assert list(read_plan_file(path).plan().choices) == ["hot", "wet", "dry"]


def test_places_in_a_long_file_of_queries_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.sql"
    good = "-- name: q{}\nSELECT * FROM s [ROWS 9] COALESCE ON v;\n"
    path.write_text("".join(good.format(n) for n in range(50)) + "-- a comment\n  SELECT * FROM WHERE")
    with pytest.raises(QueryError, match="line 102, column 17"):
        read_plan_file(path)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": [[0, 1, 1]], "a": [[0, 2, 1]]}', Code.BAD_TEMPLATE),
        (nested("[", "", "]", 5000), Code.UNREADABLE_FILE),
        ('{"a": [[0, 1, ' + "9" * 6000 + "]]}", Code.UNREADABLE_FILE),
    ],
)
def test_templates_that_are_none_or_two_are_refused(tmp_path: Path, text: str, code: Code) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError) as refused:
        read_templates(tmp_path / "t.json")
    assert refused.value.code == code


def test_a_duration_of_many_digits_is_refused() -> None:
    for text in ("9" * 5000 + " s", "P" + "9" * 5000 + "D", "1h" * 5000):
        with pytest.raises(QueryError, match="WA-2002"):
            parse_duration(text)
