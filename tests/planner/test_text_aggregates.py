"""Join aggregates as text: each function against the library call, exact times against DuckDB, errors by name."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset
from whenabouts.conformance.engine import Engine, load
from whenabouts.core.errors import Code
from whenabouts.core.harness import Variant
from whenabouts.planner import parse_query


def _tables(seed: int, n: int = 40) -> dict[str, pa.Table]:
    random = np.random.default_rng(seed)
    orders = {"id": np.arange(n), "account": random.integers(0, 4, n), "ts": random.integers(0, 300, n)}
    at = random.permutation(400)[:n]  # no two at one instant: of these FIRST of DuckDB takes any
    amounts = [None if each % 7 == 0 else int(each) for each in random.integers(-50, 50, n)]
    payments = {"account": random.integers(0, 4, n), "ts": at, "amount": pa.array(amounts, pa.int64())}
    return {"orders": pa.table(orders), "payments": pa.table(payments)}


def _run(text: str, tables: dict[str, pa.Table], times: Any = None, **options: Any) -> pa.Table:
    query = parse_query(text).bind({name: table.schema for name, table in tables.items()}, times, **options)
    return wa.run(query, list(tables.values()))


FUNCTIONS: dict[str, Any] = {
    "COUNT(p)": "count",
    "COUNT(p.amount)": "count:amount",
    "COUNT(DISTINCT p.amount)": "count_distinct:amount",
    "SUM(p.amount)": "sum:amount",
    "AVG(amount)": "mean:amount",
    "MIN(p.amount)": "min:amount",
    "MAX(P.AMOUNT)": "max:amount",
    "FIRST(p.amount)": "first:amount",
    "LAST(p.amount)": "last:amount",
    "ARRAY_AGG(p.amount)": "collect:amount",
    "LIST(p.amount)": "collect:amount",
    "EXPECTED(COUNT(p))": "expected_count",
    "EXPECTED(SUM(p.amount))": "expected_sum:amount",
    "VARIANCE(COUNT(p))": "count_variance",
    "variance(sum(p.amount))": "sum_variance:amount",
    "PROBABILITY(COUNT(p) = 0)": "p_none",
    "PROBABILITY(0 >= COUNT(p))": "p_none",
    "PROBABILITY(COUNT(p) < 1)": "p_none",
    "PROBABILITY(COUNT(p) > 0)": "p_any",
    "PROBABILITY(COUNT(p) <> 0)": "p_any",
    "PROBABILITY(COUNT(p) >= 3)": "p_at_least:3",
    "PROBABILITY(2 < COUNT(p))": "p_at_least:3",
    "COUNT_AT(p, 0.9)": "count_at:0.9",
}
UNCERTAIN = {"o": wa.from_granularity("ts", 15), "p": wa.from_granularity("ts", 10)}
JOIN = "FROM orders o, payments p WHERE o.account = p.account AND WINDOW(o, p) BETWEEN '-40 us' AND '0 s' "


def test_each_function_is_that_of_the_library() -> None:
    tables = _tables(1)
    items = ", ".join(f"{said} AS c{n}" for n, said in enumerate(FUNCTIONS))
    found = _run(f"SELECT o.id, {items} {JOIN} WITH THRESHOLD 0.6 GROUP BY o", tables, UNCERTAIN)
    expected = wa.join_aggregate(
        *tables.values(), on="account", left_time=UNCERTAIN["o"], right_time=UNCERTAIN["p"],
        condition=wa.between("-40 us", "0 s", confidence=0.6),
        aggregates={f"c{n}": asked for n, asked in enumerate(FUNCTIONS.values())},
    )  # fmt: skip
    assert multiset.rows(found) == multiset.rows(expected.select(found.column_names))
    assert found.num_rows == tables["orders"].num_rows
    assert len(set(found["c15"].to_pylist())) > 9  # chances, neither 0 nor 1 alone


ITEMS = "id, o.account AS account, COUNT(p.amount) AS n, SUM(p.amount) AS s, MIN(p.amount) - MAX(p.amount) AS d"
ORDERED = {"FIRST(p.amount)": "FIRST(p.amount ORDER BY p.ts)", "LAST(p.amount)": "LAST(p.amount ORDER BY p.ts)"}


@pytest.mark.parametrize("join", ["o LEFT JOIN payments p ON", "o JOIN payments p ON", "o INNER JOIN payments p ON"])
@pytest.mark.parametrize("more", ["", "AND p.amount > 0"])
def test_exact_times_give_the_rows_of_a_join_and_group_by(join: str, more: str) -> None:
    tables = _tables(len(join + more))
    window, plain = "WINDOW(o, p) BETWEEN '-40 us' AND '0 s'", "p.ts - o.ts BETWEEN -40 AND 0"
    names = ", ".join(f"{said} AS {said[:4]}" for said in ORDERED)
    text = f"SELECT {ITEMS}, {names} FROM orders {join} o.account = p.account AND {window} {more} "
    text += "WHERE o.id > 5 GROUP BY o"
    inner = "LEFT" not in join
    if inner and "INNER" not in join:
        text = text.replace("GROUP BY", "AND o.id < 99 GROUP BY")
    found = _run(text, tables, how="inner") if "s o JOIN" in text else _run(text, tables)
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    for ours, theirs in ORDERED.items():
        text = text.replace(ours, theirs)
    grouped = text.replace(window, plain).replace("GROUP BY o", "GROUP BY o.id, o.account, o.ts")
    expected = connection.sql(grouped).to_arrow_table()
    assert expected.num_rows > 5
    assert (expected.num_rows < 34) == inner
    assert multiset.rows(found) == multiset.rows(expected.cast(found.schema))


def test_rows_of_the_grouped_stream_stay_unless_the_text_drops_them() -> None:
    tables = _tables(4)
    text = "SELECT id, COUNT(p) AS n " + JOIN + "GROUP BY o"
    counts = _run(text, tables)["n"].to_pylist()
    assert (len(counts), 0 in counts) == (40, True)
    assert "INNER JOIN drops them" in parse_query(text).notes[0]
    said = text.replace(", payments p WHERE", " INNER JOIN payments p ON")
    assert sorted(_run(said, tables)["n"].to_pylist()) == sorted(n for n in counts if n)
    assert parse_query(said).notes == []
    with pytest.raises(wa.QueryError, match="how is given, and the text says it"):
        _run(said, tables, how="left_outer")


def test_columns_are_named_as_in_sql_and_may_be_computed() -> None:
    tables = _tables(5)
    text = "SELECT o.*, COUNT(p), EXPECTED(COUNT(p)), COUNT(p) * 2 + id AS more, COUNT(p) > 0 AS any "
    text += (
        f", COALESCE(SUM(p.amount), 0) AS s, CASE WHEN COUNT(p) > 1 THEN 'many' ELSE 'few' END AS c {JOIN} GROUP BY o"
    )
    rows = _run(text, tables).to_pylist()
    assert list(rows[0]) == ["id", "account", "ts", "COUNT(p)", "EXPECTED(COUNT(p))", "more", "any", "s", "c"]
    for row in rows:
        assert row["EXPECTED(COUNT(p))"] == row["COUNT(p)"]
        assert row["s"] is not None
        assert row["c"] == ("many" if row["COUNT(p)"] > 1 else "few")
        assert (row["more"], row["any"]) == (row["COUNT(p)"] * 2 + row["id"], row["COUNT(p)"] > 0)


def test_a_left_column_may_be_called_as_an_aggregate() -> None:
    tables = _tables(6)
    tables["orders"] = tables["orders"].append_column("COUNT(p)", pa.array(["x"] * 40))
    found = _run(f'SELECT "COUNT(p)" AS mine, COUNT(p) AS n {JOIN} GROUP BY o', tables)
    assert set(found["mine"].to_pylist()) == {"x"}
    assert found["n"].to_pylist() != [0] * 40


def test_keys_of_other_names_and_a_window_said_from_the_other_side() -> None:
    tables = _tables(7)
    expected = _run(f"SELECT id, SUM(p.amount) AS s {JOIN} GROUP BY o", tables)
    tables["payments"] = tables["payments"].rename_columns(["owner", "ts", "amount"])
    turned = JOIN.replace("p.account", "p.owner").replace("WINDOW(o, p) BETWEEN '-40 us' AND '0 s'",
                                                           "WINDOW(p, o) BETWEEN '0 s' AND '40 us'")  # fmt: skip
    assert multiset.rows(_run(f"SELECT id, SUM(p.amount) AS s {turned} GROUP BY o", tables)) == multiset.rows(expected)


def test_chances_need_no_threshold_and_pairs_of_uncertain_times_do() -> None:
    tables = _tables(8)
    text = f"SELECT id, PROBABILITY(COUNT(p) = 0) AS p {JOIN} GROUP BY o"
    assert 0.0 < sorted(_run(text, tables, UNCERTAIN)["p"].to_pylist())[20] < 1.0
    for said, options in ((text.replace("AS p", "AS p, COUNT(p)"), {}), (text, {"how": "inner"})):
        with pytest.raises(wa.QueryError) as raised:
            _run(said, tables, UNCERTAIN, **options)
        assert raised.value.code is Code.NO_CONFIDENCE
        assert "WITH THRESHOLD" in str(raised.value)


def test_options_of_the_library_and_those_that_the_text_says() -> None:
    tables = _tables(9)
    text = f"SELECT id, PROBABILITY(COUNT(p) = 0) AS p {JOIN} GROUP BY o"
    with pytest.raises(wa.QueryError) as raised:
        _run(text, tables, UNCERTAIN, most_uncertain=1)
    assert raised.value.code is Code.TOO_MANY_UNCERTAIN
    with pytest.raises(wa.QueryError, match="aggregates is given, and the text says it"):
        _run(text, tables, aggregates={"n": "count"})


@pytest.mark.parametrize("name", ["local", "simulated-spark", "simulated-flink"])
def test_a_stream_gives_the_rows_of_finite_input(name: str) -> None:
    """Spread over three buckets, with a restart, and with conditions on either stream."""
    tables = _tables(10)
    text = f"SELECT id, COUNT(p) AS n, EXPECTED(COUNT(p)) / 2 AS e {JOIN} AND p.amount > -40 AND id > 3 "
    text = text.replace("AND p.amount", "WITH THRESHOLD 0.6 AND p.amount") + "GROUP BY o"
    times = {name: wa.from_granularity("ts", 10) for name in "op"}
    query = parse_query(text).bind({name: table.schema for name, table in tables.items()}, times, "1 s")
    files = {side: [table.slice(at, 10) for at in range(0, 40, 10)]
             for side, table in zip(query.inputs, tables.values(), strict=True)}  # fmt: skip
    harness = load(name)()
    harness.start()
    outcome = Engine(harness).run(query, files, Variant(streaming=True, parallelism=3, restart_after=1))
    harness.stop()
    expected = _run(text, tables, times)
    assert expected.num_rows == 36
    assert multiset.rows(outcome.output) == multiset.rows(expected)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (f"SELECT COUNT(*) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "COUNT(*) is 1 in SQL for a row without"),
        (f"SELECT COUNT(p) {JOIN}", Code.UNSUPPORTED_TEXT, "GROUP BY o: each row of o is then a group"),
        (f"SELECT o.id, COUNT(p) {JOIN} GROUP BY o.id", Code.UNSUPPORTED_TEXT, "GROUP BY o.id in a join"),
        (f"SELECT o.id, COUNT(p) {JOIN} GROUP BY o, p", Code.UNSUPPORTED_TEXT, "GROUP BY o, p in a join"),
        (f"SELECT o.id, COUNT(p) {JOIN} GROUP BY ALL", Code.UNSUPPORTED_TEXT, "GROUP BY ALL in a join"),
        (f"SELECT o.id, COUNT(p) {JOIN} GROUP BY o WITH ROLLUP", Code.UNSUPPORTED_TEXT, "ROLLUP in a join"),
        (f"SELECT COUNT(o) {JOIN} GROUP BY p", Code.UNSUPPORTED_TEXT, "expected p first in FROM"),
        ("SELECT COUNT(a) FROM orders A, payments a WHERE WINDOW(A, a) = '1 s' GROUP BY a",
         Code.UNSUPPORTED_TEXT, "expected a first in FROM"),
        (f"SELECT COUNT(p) {JOIN} GROUP BY o HAVING COUNT(p) > 2", Code.UNSUPPORTED_TEXT, "HAVING is not available"),
        (f"SELECT id {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "GROUP BY o without an aggregate"),
        (f"SELECT *, COUNT(p) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "found '*' in SELECT"),
        (f"SELECT p.*, COUNT(p) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "found 'p.*' in SELECT"),
        (f"SELECT p.amount, COUNT(p) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "column 8: found 'p.amount' in SELECT"),
        (f"SELECT amount + COUNT(p) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "aggregates of p"),
        (f"SELECT SUM(o.id) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "a column of p in it"),
        (f"SELECT SUM(p.amount * 2) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "a column of p in it"),
        (f"SELECT SUM(p.amounts) {JOIN} GROUP BY o", Code.SQL_COLUMN, "did you mean 'amount'?"),
        (f"SELECT SUM(DISTINCT p.amount) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "a column of p in it"),
        (f"SELECT COUNT(p) FILTER (WHERE p.amount > 1) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "FILTER"),
        (f"SELECT COUNT(p) OVER () {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "OVER"),
        (f"SELECT LAST(p.amount IGNORE NULLS) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "IGNORE NULLS"),
        (f"SELECT ARRAY_AGG(p.amount ORDER BY p.ts) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "a column of p in it"),
        (f"SELECT MEDIAN(p.amount) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "expected COUNT, SUM, AVG"),
        (f"SELECT EXPECTED(AVG(p.amount)) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "the expected mean is not"),
        (f"SELECT EXPECTED(COUNT(p.amount)) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "COUNT(p) or SUM(p.column)"),
        (f"SELECT EXPECTED(MAX(p.amount)) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "COUNT(p) or SUM(p.column)"),
        (f"SELECT VARIANCE(p.amount) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "COUNT(p) or SUM(p.column)"),
        (f"SELECT PROBABILITY(COUNT(p) = 2) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "= 0, > 0 or >= k"),
        (f"SELECT PROBABILITY(COUNT(p) >= 0) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "= 0, > 0 or >= k"),
        (f"SELECT PROBABILITY(SUM(p.amount) > 3) {JOIN} GROUP BY o", Code.UNSUPPORTED_TEXT, "= 0, > 0 or >= k"),
        (f"SELECT COUNT_AT(p, 1.5) {JOIN} GROUP BY o", Code.BAD_OPTION, "column 8: the argument of aggregate"),
        (f"SELECT COUNT(p) {JOIN} AND o.id < p.amount GROUP BY o", Code.UNSUPPORTED_TEXT, "on o and p beside"),
        (f"SELECT COUNT(p) {JOIN} AND OVERLAPS(o, p) GROUP BY o", Code.UNSUPPORTED_TEXT, "2 windows"),
        ("SELECT COUNT(B) FROM a A, b B, c C WHERE WINDOW(A, B) = '1 s' AND WINDOW(B, C) = '1 s' GROUP BY A",
         Code.UNSUPPORTED_TEXT, "GROUP BY in a join of 3 streams"),
        ("SELECT COUNT(p) FROM orders o FULL JOIN payments p ON WINDOW(o, p) = '1 s' GROUP BY o",
         Code.UNSUPPORTED_TEXT, "full_outer in a grouped join"),
        ("SELECT COUNT(p) FROM orders o LEFT JOIN payments p ON WINDOW(o, p) = '1 s' AND o.id = 3 GROUP BY o",
         Code.UNSUPPORTED_TEXT, "it in WHERE, where it filters rows of o"),
        ("SELECT COUNT(p) FROM orders o LEFT JOIN payments p ON WINDOW(o, p) = '1 s' WHERE p.amount = 3 GROUP BY o",
         Code.UNSUPPORTED_TEXT, "those on p in ON"),
        ("SELECT COUNT(p) FROM orders o ASOF JOIN payments p ON o.ts >= p.ts GROUP BY o",
         Code.UNSUPPORTED_TEXT, "GROUP BY in an as-of join"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, code: Code, said: str) -> None:
    with pytest.raises(wa.QueryError) as raised:
        _run(text, _tables(1))
    assert raised.value.code is code, str(raised.value)
    assert said in str(raised.value)
    assert "line 1" in str(raised.value)
