"""Queries as text: their meaning, compared with plain Python over the rows, and how errors are named and located."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.core import Interval, Point, QueryError, between, overlaps, possibly, within
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.local import coalesce, run, run_stream, timing_join
from whenabouts.core.runtime.changes import INSERT, OPS, UPDATE_AFTER
from whenabouts.core.runtime.protocol import Query
from whenabouts.planner import CoalescingQuery, Registry, TextQuery, parse_query

SECOND = 1_000_000


def _run(text: str, tables: dict[str, pa.Table], **how: Any) -> pa.Table:
    query = parse_query(text)
    bound = query.bind({name: table.schema for name, table in tables.items()}, **how)
    return run(bound, [tables[source.stream] for source in query.sources], buckets=2).output


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def _events(seed: int, n: int = 60) -> pa.Table:
    draw = random.Random(seed)
    start = [draw.randrange(100) * SECOND for _ in range(n)]
    return pa.table(
        {
            "t_min": start,
            "t_max": [at + draw.randrange(3) * SECOND for at in start],
            "region": [draw.choice("ab") for _ in range(n)],
            "v": [draw.choice([1, 2, 3, None]) for _ in range(n)],
        }
    )


def test_the_form_of_ptjoin_is_the_timing_join_between_conditions() -> None:
    a, b = _events(1), _events(2)
    found = _run(
        """SELECT B.v AS later, A.v, A.v + B.v AS both, region, probability FROM seismic A, acoustic B
        WHERE A.region = B.region AND WINDOW(A, B) = INTERVAL '2' SECOND WITH THRESHOLD 0.6
        AND A.v > 1 AND A.v <> B.v""",
        {"seismic": a, "acoustic": b},
    )
    times = {"left_time": Interval("t_min", "t_max"), "right_time": Interval("t_min", "t_max")}
    pairs = timing_join(a, b, on="region", condition=within("2 s", confidence=0.6), **times).to_pylist()
    want = [
        {"later": p["v_right"], "v": p["v_left"], "both": p["v_left"] + p["v_right"], "region": p["region"],
         "probability": p["probability"]}
        for p in pairs if None not in (p["v_left"], p["v_right"]) and p["v_left"] > 1 and p["v_left"] != p["v_right"]
    ]  # fmt: skip
    assert len(want) > 10
    assert _sorted(found.to_pylist()) == _sorted(want)


@pytest.mark.parametrize("how", ["inner", "left_outer", "left_anti"])
def test_conditions_on_both_streams_are_part_of_the_join(how: str) -> None:
    """A row without a partner that meets all of them is unmatched, as after ON in SQL."""
    a, b = _events(1), _events(2)
    text = """SELECT * FROM seismic A JOIN acoustic B ON A.region = B.region AND A.v < B.v
        WHERE WINDOW(A, B) = '2 s' WITH THRESHOLD 0.6 AND A.t_min <> B.t_min"""
    found = _run(text, {"seismic": a, "acoustic": b}, how=how)
    both: dict[str, Any] = {side: Interval("t_min", "t_max") for side in ("left_time", "right_time")}
    want = timing_join(
        a, b, on="region", condition=within("2 s", confidence=0.6), suffixes=("_A", "_B"), how=how,
        where="left.v < right.v AND left.t_min <> t_min_B", **both,
    )  # fmt: skip
    assert want.num_rows > 5
    assert _sorted(found.to_pylist()) == _sorted(want.to_pylist())
    with pytest.raises(QueryError, match="WA-2006: where is given"):
        _run(text, {"seismic": a, "acoustic": b}, where="left.v > 1")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM A, B WHERE WINDOW(A, B) = '2 s' WITH THRESHOLD 0.6",
        "SELECT * FROM A, B, C WHERE WINDOW(A, B) = '2 s' AND WINDOW(B, C) = '2 s' WITH THRESHOLD 0.6",
        "SELECT A.region, COUNT(B) AS n FROM A LEFT JOIN B ON WINDOW(A, B) = '2 s' WITH THRESHOLD 0.6 GROUP BY A",
        "SELECT * FROM A ASOF JOIN B ON A.region = B.region AND A.t_max >= B.t_max",
        "SELECT * FROM A COALESCE ON v GROUP BY region",
        "SELECT COUNT(*) AS n FROM A COALESCE ON v",
    ],
)
def test_bind_answers_for_options_that_the_query_lacks_or_the_text_says(text: str) -> None:
    schemas = dict.fromkeys("ABC", _events(1).schema)
    bind, times = (
        parse_query(text).bind,
        dict.fromkeys(re.findall(r"\b[ABC]\b", text.split("WHERE")[0]), Point("t_max")),
    )
    with pytest.raises(TypeError, match=r"^bind\(\) got an unexpected keyword argument 'foo'$"):
        bind(schemas, times, foo=1)
    with pytest.raises(
        TypeError, match=r"^bind\(\) got an unexpected keyword argument 'latenes'; did you mean 'lateness'\?$"
    ):
        bind(schemas, times, latenes="1 s")
    if "THRESHOLD" in text:
        with pytest.raises(QueryError, match=r"WA-2006: the text says the confidence, not bind\(\)"):
            bind(schemas, times, confidence=0.2)


def test_the_form_of_w_join_is_the_window_join() -> None:
    rows = {
        name: [(draw.randrange(3), draw.randrange(40), i) for i in range(15)]
        for name, draw in ((name, random.Random(name)) for name in "xyz")
    }
    tables = {
        name: pa.table(dict(zip(("gas", "ts", "id"), zip(*of, strict=True), strict=True))) for name, of in rows.items()
    }
    found = _run(
        """SELECT A.id AS a, B.id AS b, C.id AS c FROM x A JOIN y B ON A.gas = B.gas, z C
        WHERE B.gas = C.gas AND WINDOW(A, B) <= '9 us' AND WINDOW(B, C) BETWEEN '0 us' AND '12 us'
        AND A.id <> B.id AND A.id + B.id > C.id AND C.id IN (1, 3, 5, 7, 9, 11, 13)""",
        tables,
    )
    want = [
        {"a": i, "b": j, "c": k}
        for (ga, ta, i), (gb, tb, j), (gc, tc, k) in product(*rows.values())
        if ga == gb == gc and abs(ta - tb) <= 9 and 0 <= tc - tb <= 12 and i != j and i + j > k and k % 2
    ]
    assert len(want) > 10
    assert _sorted(found.to_pylist()) == _sorted(want)


def test_equal_columns_that_leave_a_stream_out_are_a_condition_of_a_pair() -> None:
    table = pa.table({"ts": [0, 1, 2], "k": [1, 2, 1], "id": [0, 1, 2]})
    found = _run(
        "SELECT A.id AS a, B.id AS b, C.id AS c FROM s A, s B, s C "
        "WHERE A.k = B.k AND WINDOW(A, B) = '5 us' AND WINDOW(B, C) = '0 us'",
        {"s": table},
    )
    want = [{"a": a, "b": b, "c": b} for a, b in product(range(3), range(3)) if a % 2 == b % 2]
    assert _sorted(found.to_pylist()) == _sorted(want)


def _readings(seed: int = 3, n: int = 120) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "ts": pa.array([i * SECOND for i in range(n)], pa.timestamp("us")),
            "region": [draw.choice("ab") for _ in range(n)],
            "temperature": [draw.choice([90.0, 95.0, 105.0, 110.0, None]) for _ in range(n)],
        }
    )


def test_a_condition_that_is_coalesced_on_asks_for_the_periods_in_which_it_holds() -> None:
    table = _readings()
    found = _run(
        "SELECT region, MAX(DURATION(VALID(s))) AS longest, COUNT(*) FROM s "
        "COALESCE ON temperature > 100 GROUP BY region",
        {"s": table},
    )
    want = []
    for region in "ab":
        mine = [row for row in table.to_pylist() if row["region"] == region]
        hot = [None if row["temperature"] is None else row["temperature"] > 100 for row in mine]
        starts = [i for i, is_hot in enumerate(hot) if i == 0 or is_hot != hot[i - 1]]
        ends = [*starts[1:], len(mine) - 1]
        lasts = [(mine[e]["ts"] - mine[s]["ts"]).seconds * SECOND for s, e in zip(starts, ends, strict=True) if hot[s]]
        want.append({"region": region, "longest": max(lasts), "count": len(lasts)})
    assert _sorted(found.to_pylist()) == _sorted(want)


def test_computed_values_windows_and_bounds_are_those_of_the_function() -> None:
    table = _readings()
    found = _run(
        "SELECT region, FLOOR(temperature / 10), VALID(s), n FROM s [RANGE 40 SECOND SLIDE 20 SECOND] "
        "COALESCE ON FLOOR(temperature / 10) GROUP BY region",
        {"s": table},
    )
    tens = [None if t is None else t // 10 for t in table.column("temperature").to_pylist()]
    given = {"time": "ts", "group": "region", "values": "tens", "window": "40 s", "slide": "20 s"}
    want = coalesce(table.append_column("tens", pa.array(tens)), **given)
    assert want.num_rows > 30
    assert _sorted([list(row.values()) for row in found.to_pylist()]) == _sorted(
        [list(row.values()) for row in want.to_pylist()]
    )
    near = _run("SELECT * FROM s [PARTITION BY region ROWS 9 SLIDE 3] COALESCE ON temperature WITHIN 5 "
                "WHERE region = 'a' AND n > 1 GROUP BY region", {"s": table})  # fmt: skip
    given = {"time": "ts", "group": "region", "values": "temperature", "rows": 9, "per_group": True, "slide": 3}
    every = coalesce(table, **given, equivalence="absolute_tolerance:5")
    assert _sorted(near.to_pylist()) == _sorted(
        [row for row in every.to_pylist() if row["region"] == "a" and row["n"] > 1]
    )


def test_periods_are_related_as_in_the_first_example_of_the_paper() -> None:
    table = _readings(n=40)
    found = _run(
        """SELECT a.region, b.region, INTERSECT(VALID(a), VALID(b))
        FROM s [RANGE 60 MINUTE] a, s [RANGE 60 MINUTE] b COALESCE ON temperature
        WHERE a.region <> b.region AND a.temperature = b.temperature AND VALID(a) OVERLAPS VALID(b)
        AND DURATION(INTERSECT(VALID(a), VALID(b))) >= INTERVAL '1' SECOND GROUP BY region""",
        {"s": table},
    )
    runs = coalesce(table, time="ts", group="region", values="temperature", window="60 m").to_pylist()
    want = []
    for a, b in product(runs, runs):
        start, end = max(a["valid_from"], b["valid_from"]), min(a["valid_to"], b["valid_to"])
        same = a["temperature"] is not None and a["temperature"] == b["temperature"]
        if a["region"] != b["region"] and same and (end - start).total_seconds() >= 1:
            want.append((a["region"], b["region"], start, end))
    assert want
    assert sorted(map(repr, (tuple(row.values()) for row in found.to_pylist()))) == sorted(map(repr, want))


SCHEMAS = {
    "seismic": pa.schema({"t_min": pa.int64(), "t_max": pa.int64(), "region": pa.string(), "v": pa.float64()}),
    "s": pa.schema({"ts": pa.timestamp("us"), "k": pa.string(), "t": pa.float64(), "h": pa.float64()}),
    "timeless": pa.schema({"a": pa.int64()}),
}
TWO = "SELECT * FROM seismic A, seismic B WHERE "
OF_S = "SELECT * FROM s "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "WA-2111: line 1, column 1: the query is empty (hint: expected SELECT)"),
        ("DELETE FROM s", "WA-2111: line 1, column 1: found 'DELETE'"),
        ("SELECT * FROM s; SELECT * FROM s", "WA-2111: line 1, column 16: more than one query"),
        ("SELECT 'a FROM s", "WA-2111: line 1, column 8: ' is not closed"),
        ("SELECT (k FROM s", "WA-2111: line 1, column 11: found 'FROM' (hint: expected ))"),
        (TWO, "WA-2111: line 1, column 36: something is missing near 'WHERE'"),
        ("SELECT *\nFROM seismic A, seismic B\nWHERE WINDOW(A, C) = '2 s'", "WA-2111: line 3, column 17: found 'C' ("
         "hint: expected one of the streams A, B)"),
        (TWO + "WINDOW(A, B) = 2000", "WA-2111: line 1, column 57: 2000 has no unit"),
        (TWO + "WINDOW(A, B) = '2 furlongs'", "WA-2111: line 1, column 57: '2 furlongs' is not a duration"),
        (TWO + "WINDOW(A, B) = '2 s' WITH THRESHOLD many", "WA-2111: line 1, column 78: found 'many'"),
        (TWO + "WINDOW(A, B) = '2 s' WITH THRESHOLD 1.5", "WA-2001: line 1, column 68: confidence is 1.5"),
        (TWO + "(WINDOW(A, B) = '2 s' OR A.v = 1)", "WA-2111: line 1, column 43: found"),
        (TWO + "WINDOW(A, B) = '2 s' AND A.w = 1", "WA-2092: line 1, column 67: there is no column 'w' in A"),
        (TWO + "WINDOW(A, B) = '2 s' AND v = 1", "WA-2092: line 1, column 67: 'v' does not say of which stream"),
        (TWO + "WINDOW(A, B) = '2 s' WITH THRESHOLD 1 AND A.v = A.region", "WA-2093: line 1, column 84: `eq`"),
        (TWO + "WINDOW(A, B) = '2 s' AND 1 = 1", "WA-2111: line 1, column 67: this is about no column"),
        (TWO + "WINDOW(A, B) = '2 s'", "WA-2064"),
        ("SELECT w FROM seismic A, seismic B WHERE WINDOW(A, B) = '2 s' WITH THRESHOLD 1", "WA-2092: line 1, column 8"),
        ("SELECT A.v, B.v AS v FROM seismic A, seismic B WHERE WINDOW(A, B) = '2 s' WITH THRESHOLD 1", "WA-2009"),
        ("SELECT * FROM seismic A, nowhere B WHERE WINDOW(A, B) = '2 s'", "WA-2113: line 1, column 26: no stream"),
        ("SELECT * FROM seismic A, timeless B WHERE WINDOW(A, B) = '2 s'", "WA-2114: which column of stream"),
        (OF_S, "WA-2112: line 1, column 1: this correlates nothing"),
        (OF_S + "[RANGE 24 HOUR", "WA-2111: line 1, column 31: the text ends (hint: expected ])"),
        (OF_S + "[RANGE HOUR 24] COALESCE ON t", "WA-2111: line 1, column 24: found 'HOUR'"),
        (OF_S + "[ROWS 1.5] COALESCE ON t", "WA-2111: line 1, column 23: found '1.5' (hint: expected a whole number"),
        (OF_S + "[RANGE 0 HOUR] COALESCE ON t", "WA-2021"),
        (OF_S + "COALESCE ON", "WA-2111"),
        (OF_S + "COALESCE ON tt", "WA-2092: line 1, column 29: there is no column 'tt' (hint: did you mean 't'?)"),
        (OF_S + "COALESCE ON t GROUP BY kk", "WA-2092: line 1, column 40: there is no column 'kk'"),
        (OF_S + "COALESCE ON t WHERE h > 1", "WA-2112: line 1, column 37: 'h' is neither grouped by nor coalesced on"),
        (OF_S + "COALESCE ON t ORDER BY k", "WA-2112: line 1, column 40: ORDER is not available"),
        ("SELECT h, COUNT(*) FROM s COALESCE ON t GROUP BY k", "WA-2111: line 1, column 8: found 'h'"),
        ("SELECT MAX(DURATION(VALID(x))) FROM s COALESCE ON t", "WA-2111: line 1, column 21: found"),
        ("SELECT MAX(DURATION(t)) FROM s COALESCE ON t", "WA-2111: line 1, column 12: found"),
        ("SELECT COUNT(DISTINCT k) FROM s COALESCE ON t", "WA-2111: line 1, column 8: found"),
        ("SELECT TIME_WEIGHTED(h) FROM s COALESCE ON t", "WA-2092: line 1, column 22: there is no column 'h'"),
        ("SELECT MAX(t) FROM s COALESCE ON t", "WA-2111: line 1, column 8: found 'MAX(t)'"),
        ("SELECT k, __import__('os') FROM s COALESCE ON t GROUP BY k", "WA-2091: line 1, column 11"),
        ("SELECT * FROM s a, s b COALESCE ON t", "WA-2111: line 1, column 1: no relation of periods"),
        ("SELECT * FROM s a, s b COALESCE ON t WHERE VALID(a) NEAR VALID(b)", "WA-2111: line 1, column 53: found"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_what_was_expected(text: str, told: str) -> None:
    def made() -> None:
        query = parse_query(text)
        query.bind(SCHEMAS).operator([SCHEMAS[source.stream] for source in query.sources], streaming=False)

    with pytest.raises(QueryError) as raised:
        made()
    assert str(raised.value).startswith(told)
    assert raised.value.hint


def test_no_prefix_of_a_query_raises_anything_else_than_a_coded_error() -> None:
    texts = [
        "SELECT A.v, B.* FROM seismic A, seismic AS B WHERE A.v = B.v AND WINDOW(A, B) = INTERVAL '2' SECOND "
        "WITH THRESHOLD 0.6",
        "SELECT k, MAX(DURATION(VALID(s))) m FROM s [PARTITION BY k ROWS 9 SLIDE 2] COALESCE ON t > 1 WITHIN 2 "
        "GROUP BY k",
    ]  # fmt: skip
    for text in texts:
        words = text.split(" ")
        mutated = [words[:i] + words[i + 1 :] for i in range(len(words))]
        mutated += [[*words[:i], b, a, *words[i + 2 :]] for i, (a, b) in enumerate(pairwise(words))]
        for attempt in [*(text[:n] for n in range(len(text))), *map(" ".join, mutated)]:
            try:
                parse_query(attempt).bind(SCHEMAS)
            except QueryError:
                continue


def test_a_text_tells_the_planner_which_query_it_is() -> None:
    query: TextQuery = parse_query("SELECT * FROM s [RANGE 2 HOUR] COALESCE ON t, h WITHIN 0.5 GROUP BY k")
    distinct = query.distinct()
    assert (distinct.coalesce, distinct.group, distinct.range) == (("t", "h"), ("k",), "2 HOUR")
    assert (distinct.stream, distinct.equivalence) == ("s", "absolute_tolerance:0.5")
    registry = Registry()
    registry.register("hot", "SELECT * FROM s [ROWS 10] COALESCE ON t GROUP BY k")
    assert registry.plan().choices == {"hot": "eager"}


@pytest.mark.parametrize(
    ("written", "us"),
    [("INTERVAL 2 SECOND", 2_000_000), ("'1h30m'", 5_400_000_000), ("interval '0.5' minute", 30_000_000)],
)
def test_durations_and_names_are_read_in_any_case(written: str, us: int) -> None:
    text = f"select B.REGION from seismic a, seismic B where window(A, b) <= {written} with threshold .9 "
    text += "and a.REGION = B.region"
    bound = parse_query(text).bind(SCHEMAS)
    assert (bound.query.condition.hi_us, bound.query.condition.confidence, bound.query.on) == (us, 0.9, ("region",))
    assert [name for name, _ in bound.columns] == ["REGION"]
    window = parse_query("select * from s [range '1h30m' slides 30 minutes] coalesce on T").bind(SCHEMAS).query
    assert (window.window, window.extents.slide_us, window.values) == (5_400_000_000, 1_800_000_000, ("t",))


def test_times_are_found_or_given() -> None:
    bound = parse_query("SELECT * FROM seismic A, s B WHERE WINDOW(A, B) = '1 s' WITH THRESHOLD 1").bind(
        SCHEMAS, {"A": Point("t_max")}, lateness={"B": "3 s"}
    )
    assert (bound.query.left_time, bound.query.right_time) == (Point("t_max"), Point("ts"))
    assert bound.lateness_us == (0, 3 * SECOND)


def test_what_is_possible() -> None:
    a, b = _events(1), _events(2)
    text = "SELECT * FROM seismic A JOIN acoustic B ON A.region = B.region AND {}"
    both: dict[str, Any] = {side: Interval("t_min", "t_max") for side in ("left_time", "right_time")}
    for written, condition in (
        ("OVERLAPS(A, B)", overlaps()),
        ("POSSIBLY(WINDOW(A, B) = '2 s')", possibly(within("2 s"))),
        ("POSSIBLY(WINDOW(B, A) BETWEEN '-1 s' AND '2 s')", possibly(between("-2 s", "1 s"))),
    ):
        found = _run(text.format(written), {"seismic": a, "acoustic": b})
        want = timing_join(a, b, on="region", condition=condition, suffixes=("_A", "_B"), **both)
        assert want.num_rows > 20
        assert 0.0 in want["probability"].to_pylist()
        assert _sorted(found.to_pylist()) == _sorted(want.to_pylist())


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ("OVERLAPS(A)", "WA-2111: line 1, column 30: OVERLAPS is of two streams"),
        ("OVERLAPS(A, B) WITH THRESHOLD 0.5", "WA-2111: .*THRESHOLD stands alone"),
        ("POSSIBLY(WINDOW(A, B) = '2 s') WITH THRESHOLD 0.5", "WA-2111: .*THRESHOLD stands alone"),
        ("POSSIBLY(WINDOW(A, B))", "WA-2111: .*found"),
        ("POSSIBLY(A.v < B.v) AND OVERLAPS(A, B)", "WA-2111: .*found"),
        ("POSSIBLY() AND OVERLAPS(A, B)", "WA-2111: .*POSSIBLY is of one window"),
    ],
)
def test_wrong_words_about_what_is_possible(written: str, error: str) -> None:
    with pytest.raises(QueryError, match=error):
        _run(f"SELECT * FROM x A, x B WHERE {written}", {"x": _events(1)})


def test_early_answers_and_last_readings_are_those_of_the_function() -> None:
    lamp = [
        pa.table({"room": ["a"] * len(t), "t": t, "lamp": lamps})
        for t, lamps in [([1, 2, 5], ["on", "on", "on"]), ([4], ["off"]), ([3, 9], ["off", "on"])]
    ]
    schemas = {"s": lamp[0].schema}
    text = "SELECT * FROM s COALESCE ON lamp GROUP BY room "
    plain = Coalesce(time="t", group="room", values="lamp", lateness=6)

    def rows(query: Query) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = run_stream(query, [lamp]).output.to_pylist()
        return found

    early = rows(parse_query(text + "EMIT EARLY;").bind(schemas, lateness=6))
    assert early == rows(replace(plain, emit="early"))
    assert rows(parse_query(text + "emit final").bind(schemas, lateness=6)) == rows(plain)
    named = rows(parse_query(text.replace("*", "lamp, VALID(s), Valid_Last AS last")).bind(schemas, lateness=6))
    with_last = rows(replace(plain, valid_last=True))
    assert named == [
        {"lamp": row["lamp"], "valid_from": row["valid_from"], "valid_to": row["valid_to"], "last": row["valid_last"]}
        for row in with_last
    ]
    assert rows(parse_query(text).bind(schemas, lateness=6, valid_last=True)) == with_last
    late = parse_query(text.replace("GROUP", "WHERE valid_last >= 4 GROUP")).bind(schemas, lateness=6)
    assert rows(late) == [row for row in with_last if row["valid_last"] >= 4]


def test_conditions_on_early_answers_leave_no_half_of_an_update() -> None:
    """Folded by key, the changes of a filtered query are the filtered rows, in every prefix of the stream."""
    draw = random.Random(5)
    times = sorted(range(60), key=lambda t: t + draw.randrange(9))
    lamp = [
        pa.table({"t": times[at : at + 4], "lamp": [draw.choice("xyz") for _ in range(4)]}) for at in range(0, 60, 4)
    ]
    filtered = parse_query("SELECT lamp, VALID(s), n FROM s COALESCE ON lamp WHERE n >= 2 AND lamp <> 'z' EMIT EARLY")
    query = filtered.bind({"s": lamp[0].schema}, lateness=12)
    changes = run_stream(query, [lamp]).output.to_pylist()
    assert {row["op"] for row in changes} == set(OPS)
    held: dict[int, Any] = {}
    for row in changes:
        op, key = row.pop("op"), row["valid_from"]
        if op in (INSERT, UPDATE_AFTER):
            assert key not in held
            held[key] = row
        else:
            assert held.pop(key) == row
    rows = coalesce(pa.concat_tables(lamp), time="t", values="lamp").to_pylist()
    want = [row for row in rows if row["n"] >= 2 and row["lamp"] != "z"]
    assert len(want) > 3
    assert _sorted(list(held.values())) == _sorted(want)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TWO + "WINDOW(A, B) = '2 s' EMIT EARLY", "WA-2112: line 1, column 63: EMIT EARLY without one stream"),
        (OF_S + "COALESCE ON t EMIT SOON", "WA-2111: line 1, column 36: 'SOON' cannot stand here"),
        ("SELECT COUNT(*) FROM s COALESCE ON t EMIT EARLY", "WA-2023: emit is 'early' in a temporal aggregate"),
        (OF_S + "[ROWS 9 SLIDE 3] COALESCE ON t EMIT EARLY", "WA-2023"),
    ],
)
def test_wrong_words_about_early_answers(text: str, told: str) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(text).bind(SCHEMAS)
    assert str(raised.value).startswith(told)
    assert raised.value.hint


def test_early_answers_are_asked_for_once_and_not_planned() -> None:
    query = parse_query(OF_S + "[RANGE 1 HOUR] COALESCE ON t EMIT EARLY")
    with pytest.raises(QueryError, match="WA-2006: emit is given, and the text says it"):
        query.bind(SCHEMAS, emit="final")
    with pytest.raises(QueryError, match="WA-2023: line 1, column 46: early answers are not planned"):
        query.distinct()
    last = parse_query("SELECT t, valid_last FROM s [RANGE 1 HOUR] COALESCE ON t")
    assert last.distinct().distinct == CoalescingQuery.of(last.bind(SCHEMAS).query, "s").distinct
