"""As-of joins as text: the rows of DuckDB for its form, those of the function for both, and errors with their place."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance import multiset
from whenabouts.core.errors import Code
from whenabouts.planner import parse_query


def _tables(seed: int, n: int = 60) -> dict[str, pa.Table]:
    """Trades, and quotes of which no two of a symbol are at one instant: DuckDB takes any of those."""
    random = np.random.default_rng(seed)
    trades = {"symbol": random.integers(0, 4, n), "ts": random.integers(0, 300, n), "size": np.arange(n)}
    at = random.permutation(1200)[:n]
    quotes = {"symbol": at % 4, "ts": at // 4, "bid": np.arange(n) + 100}
    return {"trades": pa.table(trades), "quotes": pa.table(quotes)}


def _run(text: str, tables: dict[str, pa.Table], times: Any = None, **options: Any) -> pa.Table:
    query = parse_query(text).bind({name: table.schema for name, table in tables.items()}, times, **options)
    return wa.run(query, list(tables.values()))


@pytest.mark.slow
@pytest.mark.parametrize("sign", [">=", ">", "<=", "<"])
@pytest.mark.parametrize("kind", ["ASOF JOIN", "ASOF LEFT JOIN"])
@pytest.mark.parametrize("keys", ["A.symbol = B.symbol AND", ""])
@pytest.mark.parametrize("where", ["", "WHERE A.size > 20", "WHERE B.bid > 130"])
def test_the_form_of_duckdb_gives_its_rows(sign: str, kind: str, keys: str, where: str) -> None:
    tables = _tables(len(sign + kind + keys))
    if not keys:
        tables["quotes"] = pa.table({"symbol": [1] * 60, "ts": np.arange(60) * 5, "bid": np.arange(60) + 100})
    text = f"SELECT A.size, B.bid, B.ts AS at FROM trades A {kind} quotes B ON {keys} A.ts {sign} B.ts {where}"
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, table)
    expected = connection.sql(text).to_arrow_table()
    assert expected.num_rows
    assert multiset.rows(_run(text, tables)) == multiset.rows(expected.cast(_run(text, tables).schema))


QUOTED = "SELECT * FROM trades A ASOF {kind} JOIN quotes B "
BOTH = {
    "MATCH_CONDITION (A.ts >= B.ts) ON A.symbol = B.symbol": {"how": "left_outer"},
    "MATCH_CONDITION (B.ts < A.ts) USING (symbol)": {"how": "left_outer", "allow_exact_matches": False},
    "USING (symbol) MATCH_CONDITION (A.ts <= B.ts)": {"how": "left_outer", "direction": "forward"},
    "MATCH_CONDITION (NEAREST(B, A)) ON A.symbol = B.symbol TOLERANCE '9 us'": {
        "how": "left_outer", "direction": "nearest", "tolerance": 9,
    },
    "ON A.symbol = B.symbol AND TIME(B) > TIME(A) TOLERANCE INTERVAL '20' MICROSECOND": {
        "how": "inner", "direction": "forward", "allow_exact_matches": False, "tolerance": 20,
    },
    "ON A.symbol = B.symbol AND A.ts >= B.ts TOLERANCE 7 MICROSECONDS": {"how": "inner", "tolerance": 7},
}  # fmt: skip


@pytest.mark.parametrize("said", BOTH)
@pytest.mark.parametrize("kind", ["", "INNER", "LEFT"])
def test_both_forms_give_the_rows_of_the_function(said: str, kind: str) -> None:
    tables, options = _tables(len(said)), BOTH[said]
    how = {"": options["how"], "INNER": "inner", "LEFT": "left_outer"}[kind]
    time = wa.Point("ts")
    expected = wa.asof_join(
        *tables.values(), on="symbol", left_time=time, right_time=time, suffixes=("_A", "_B"), **options | {"how": how}
    )
    text = QUOTED.format(kind=kind) + said
    assert multiset.rows(_run(text, tables)) == multiset.rows(expected)
    assert bool(parse_query(text).notes) == (not kind)


def test_uncertain_times_a_threshold_and_conditions_of_the_right_stream() -> None:
    tables = _tables(3)
    times = {"A": wa.Point("ts"), "B": wa.from_granularity("ts", 20)}
    text = (
        "SELECT size, bid, probability, none_probability FROM trades A ASOF LEFT JOIN quotes B "
        "ON A.symbol = B.symbol AND TIME(A) >= TIME(B) AND B.bid < 130 WITH THRESHOLD 0.4"
    )
    few = tables["quotes"].filter(pa.array(np.asarray(tables["quotes"]["bid"]) < 130))
    expected = wa.asof_join(
        tables["trades"], few, on="symbol", left_time=times["A"], right_time=times["B"], confidence=0.4
    ).select(["size", "bid", "probability", "none_probability"])
    assert multiset.rows(_run(text, tables, times)) == multiset.rows(expected)
    alone = _run("SELECT size, none_probability " + text[text.index("FROM") :].replace("LEFT ", ""), tables, times,
                 how="left_anti")  # fmt: skip
    assert all(p >= 0.4 for p in alone["none_probability"].to_pylist())


def test_a_column_called_asof_changes_nothing() -> None:
    left, right = pa.table({"asof": [1, 2], "t": [1, 9]}), pa.table({"u": [1, 2], "t": [2, 9]})
    text = "SELECT asof, u FROM l A, r B WHERE WINDOW(A, B) = '2 us' WITH THRESHOLD 0.5"
    assert _run(text, {"l": left, "r": right}).to_pylist() == [{"asof": 1, "u": 1}, {"asof": 2, "u": 2}]


START = "SELECT * FROM trades A ASOF JOIN quotes B "


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (START, Code.UNSUPPORTED_TEXT, "0 inequalities"),
        (START + "ON A.symbol = B.symbol", Code.UNSUPPORTED_TEXT, "one inequality of the streams' times"),
        (START + "ON A.ts >= B.ts AND A.ts <= B.ts", Code.UNSUPPORTED_TEXT, "2 inequalities"),
        (START + "MATCH_CONDITION (A.ts >= B.ts) ON A.ts > B.ts", Code.UNSUPPORTED_TEXT, "2 inequalities"),
        (START + "ON A.ts >= B.ts AND A.size + B.bid = 3", Code.UNSUPPORTED_TEXT, "others go into WHERE"),
        (START.replace("ASOF", "ASOF LEFT") + "ON A.ts >= B.ts AND A.size > 3", Code.UNSUPPORTED_TEXT, "go into WHERE"),
        (START + "ON A.size >= B.ts", Code.NO_TIME, "'size' is not the time of A, which is ts"),
        (START + "USING (size) MATCH_CONDITION (A.ts >= B.ts)", Code.SQL_COLUMN, "a column that both streams have"),
        (START + "ON A.ts >= B.ts TOLERANCE '2 parsecs'", Code.BAD_QUERY_TEXT, "is not a duration"),
        (START + "ON A.ts >= B.ts TOLERANCE 2", Code.BAD_QUERY_TEXT, "a unit of time"),
        (START + "ON A.ts >= B.ts TOLERANCE '2 s' TOLERANCE '3 s'", Code.BAD_QUERY_TEXT, "TOLERANCE once"),
        (START + "ON A.ts >= B.ts WITH THRESHOLD 0.5 WITH THRESHOLD 0.6", Code.BAD_QUERY_TEXT, "a second THRESHOLD"),
        (START + "MATCH_CONDITION (A.ts >= B.ts", Code.BAD_QUERY_TEXT, "is not closed"),
        (START + "MATCH_CONDITION (NEAREST(A, A))", Code.BAD_QUERY_TEXT, "NEAREST(A, B)"),
        (START.replace("ASOF", "ASOF RIGHT") + "ON A.ts >= B.ts", Code.UNSUPPORTED_TEXT, "ASOF RIGHT JOIN"),
        (START + "ON A.ts >= B.ts JOIN quotes C ON B.bid = C.bid", Code.UNSUPPORTED_TEXT, "one of two streams alone"),
        ("SELECT * FROM trades A, quotes B MATCH_CONDITION (A.ts > B.ts)", Code.BAD_QUERY_TEXT, ""),
    ],
)
def test_what_is_refused(text: str, code: Code, said: str) -> None:
    with pytest.raises(wa.QueryError) as raised:
        _run(text, _tables(1))
    assert raised.value.code is code, str(raised.value)
    assert said in str(raised.value)
    assert "line 1" in str(raised.value)


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("TOLERANCE '2 s'", {"tolerance": 5}),
        ("WITH THRESHOLD 0.5", {"confidence": 0.5}),
        ("", {"direction": "nearest"}),
    ],
)
def test_what_the_text_says_cannot_be_given_otherwise(said: str, options: dict[str, Any]) -> None:
    with pytest.raises(wa.QueryError, match="is given, and the text says it"):
        _run(START + "ON A.ts >= B.ts " + said, _tables(1), **options)


def test_an_end_of_an_interval_is_not_its_time() -> None:
    ends = pa.schema({"t_min": pa.int64(), "t_max": pa.int64(), "v": pa.int64()})
    for said in ("A.t_min >= B.t_max", "A.t_max >= B.t_max", "A.t_min >= B.t_min"):
        with pytest.raises(wa.QueryError, match=r"WA-2114: .* is not the time of A, which is t_min, t_max"):
            parse_query(f"{START} ON {said}").bind({"trades": ends, "quotes": ends})
    bound = parse_query(f"{START} ON TIME(A) >= TIME(B) WITH THRESHOLD 0.5").bind({"trades": ends, "quotes": ends})
    assert bound.query.direction == "backward"


def test_how_is_said_once() -> None:
    with pytest.raises(wa.QueryError, match="how is given, and the text says it"):
        _run(START.replace("ASOF", "ASOF LEFT") + "ON A.ts >= B.ts", _tables(1), how="inner")
