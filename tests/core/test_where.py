"""`where=` of the timing join: against DuckDB, its cost in candidate pairs, its place in state, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.core import Interval, Point, QueryError, overlaps, within
from whenabouts.core.explain.chance_matches import chance_matches
from whenabouts.core.explain.why_not import why_not
from whenabouts.core.hosting.column_case import as_spelled
from whenabouts.core.hosting.columns_compared import columns_compared
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import run, timing_join
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.where import PAIRS_AT_ONCE

ROWS = 400
POINTS: dict[str, Any] = {
    "left_time": Point("t"), "right_time": Point("t"), "condition": within("30 us", confidence=1), "on": "k",
}  # fmt: skip
JOINS = {
    "inner": "JOIN", "left_outer": "LEFT JOIN", "right_outer": "RIGHT JOIN", "full_outer": "FULL JOIN",
    "left_semi": "SEMI JOIN", "left_anti": "ANTI JOIN",
}  # fmt: skip
CONDITIONS = (
    "left.v < right.v", "left.v = 2 OR right.v IS NULL", "NOT (left.v = right.v)", "left.note LIKE right.note || '%'",
    "left.v IS DISTINCT FROM right.v AND left.id > 100",
)  # fmt: skip


def _rows(seed: int, n: int = ROWS, keys: int = 4) -> pa.Table:
    """Keys and values with nulls; `id` numbers the rows."""
    draw = np.random.default_rng(seed)

    def some(values: list[Any]) -> pa.Array:
        return pa.array([values[at] for at in draw.integers(0, len(values), n)])

    return pa.table(
        {
            "k": some([*range(1, keys), None]),
            "t": draw.integers(0, 3000, n),
            "v": some([1, 2, 3, 4, None]),
            "note": some(["a", "ab", "b", None]),
            "id": np.arange(n),
        }
    )


LEFT, RIGHT = _rows(1), _rows(2)


def _ids(table: pa.Table) -> list[tuple[int, ...]]:
    """The rows by their numbers, -1 for a side that is missing; sorted."""
    columns = [table[name].fill_null(-1).to_pylist() for name in table.column_names if name.startswith("id")]
    return sorted(zip(*columns, strict=True))


@pytest.mark.parametrize("how", JOINS)
@pytest.mark.parametrize("condition", [*CONDITIONS[:3], *CONDITIONS[4:]])
def test_the_rows_are_those_of_the_join_on_both_conditions_in_duckdb(how: str, condition: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    one_sided = how in ("left_semi", "left_anti")
    same = condition.replace("left.", "a.").replace("right.", "b.")
    found = _ids(timing_join(LEFT, RIGHT, how=how, where=condition, **POINTS))
    with duckdb.connect() as base:
        base.register("a", LEFT)
        base.register("b", RIGHT)
        wanted = base.sql(
            f"""SELECT {"a.id" if one_sided else "coalesce(a.id, -1), coalesce(b.id, -1)"} FROM a {JOINS[how]} b
            ON a.k = b.k AND b.t - a.t BETWEEN -30 AND 30 AND ({same})"""
        ).fetchall()
    assert found == sorted(wanted)
    assert found


@pytest.mark.parametrize("condition", [
    "left.note || right.note || '!' = 'xy!'", "greatest(left.note, right.note, 'a') = 'y'",
    "least(left.note, 'z') = 'x'",
])  # fmt: skip
@pytest.mark.parametrize("types", [(pa.large_string(), pa.large_string()), (pa.string(), pa.large_string())])
def test_texts_of_both_widths(condition: str, types: tuple[pa.DataType, pa.DataType]) -> None:
    left, right = (pa.table({"k": [1], "t": [0], "note": pa.array([x], of)}) for x, of in zip("xy", types, strict=True))
    assert timing_join(left, right, where=condition, **POINTS).num_rows == 1


def _counting(accept: Callable[[pa.Table, pa.Table], Any]) -> tuple[Callable[[pa.Table, pa.Table], Any], list[int]]:
    """The condition, and a list of how many pairs each of its calls was given."""
    calls: list[int] = []

    def where(left: pa.Table, right: pa.Table) -> Any:
        assert left.num_rows == right.num_rows
        calls.append(left.num_rows)
        return accept(left, right)

    return where, calls


def test_the_condition_sees_candidate_pairs_alone_in_bounded_blocks() -> None:
    left, right = _rows(3, 3000, 2), _rows(4, 3000, 2)
    in_time = timing_join(left, right, **POINTS | {"condition": within("400 us", confidence=1)}).num_rows
    assert 2 * PAIRS_AT_ONCE < in_time < left.num_rows * right.num_rows / 3
    where, calls = _counting(lambda left, right: pc.less(left["id"], right["id"]))
    timing_join(left, right, where=where, **POINTS | {"condition": within("400 us", confidence=1)})
    assert sum(calls) == in_time
    assert max(calls) <= PAIRS_AT_ONCE


@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_a_semi_join_stops_at_a_row_s_first_accepted_partner(how: str) -> None:
    """With one in sixteen candidates accepted, far fewer are looked at than there are."""
    left, right = (pa.table({"t": np.zeros(n, np.int64), "id": np.arange(n)}) for n in (200, 20_000))
    where, calls = _counting(lambda left, right: pc.equal(pc.bit_wise_and(pc.multiply(right["id"], 40503), 15 * 16), 0))
    options = POINTS | {"on": None, "how": how, "where": where}
    assert timing_join(left, right, **options).num_rows == (200 if how == "left_semi" else 0)
    assert sum(calls) < 200 * 200, "candidates looked at, of 4,000,000"


def test_the_columns_that_a_condition_reads_are_stored_where_the_output_has_none_of_them() -> None:
    query = TimingJoin(**POINTS, how="left_semi", where="left.v < right.v")
    schemas = [LEFT.schema, RIGHT.schema]

    def stored(query: TimingJoin) -> list[str]:
        layout = query.operator(schemas, streaming=False)._layout
        return [name for name in layout.schemas[1].names if not name.startswith("_wa_")]

    assert stored(query) == ["k", "v"]
    assert stored(replace(query, where=None)) == ["k"]
    assert stored(replace(query, where=lambda left, right: left["v"] == right["v"])) == RIGHT.column_names


def test_a_checkpoint_knows_its_condition_but_for_pairs_alone() -> None:
    """State of a plain inner join is rows only: there the condition may change, as the confidence may."""
    schemas = [LEFT.schema, RIGHT.schema]
    plain, outer = (TimingJoin(**POINTS, how=how) for how in ("inner", "left_outer"))
    assert "where" not in identity_of(outer, schemas, 4).settings
    before = identity_of(replace(outer, where="left.v < right.v"), schemas, 4)
    for other in (None, "left.v > right.v"):
        with pytest.raises(Exception, match=r"WA-3032.*where was .*left\.v < right\.v"):
            identity_of(replace(outer, where=other), schemas, 4).check(before.to_json())
    identity_of(replace(plain, where="left.v < right.v"), schemas, 4).check(identity_of(plain, schemas, 4).to_json())


def test_names_are_found_in_any_case_where_the_engine_ignores_it() -> None:
    query = TimingJoin(**POINTS, where="LEFT.V < right.v AND V_LEFT <> v_Right AND ID_left > 3")
    found, schemas = as_spelled(query, [LEFT.schema, RIGHT.schema])
    assert columns_compared(found)[1] >= {"k", "v"}
    assert _ids(run(found, [LEFT, RIGHT]).output) == _ids(
        timing_join(LEFT, RIGHT, where="left.v < right.v AND left.id > 3", **POINTS)
    )
    assert [schema.names for schema in schemas] == [LEFT.column_names, RIGHT.column_names]


def test_a_question_about_a_pair_is_answered_by_the_condition() -> None:
    query = TimingJoin(**POINTS, where="left.v < right.v")
    left, right = {"k": 1, "t": 5, "v": 3}, {"k": 1, "t": 9, "v": 4}
    assert why_not(left, right, query=query)
    answer = why_not(left, right | {"v": None}, query=query)
    assert answer.reason.value == "where"
    assert str(answer) == "where: left.v < right.v is not true of these rows (probability 1)"
    assert why_not(left, right | {"t": 99, "v": 0}, query=query).reason.value == "outside window"
    assert TimingJoin(**POINTS, where="left.v < right.v").described.endswith(
        "with confidence 1, where left.v < right.v"
    )


def test_a_question_about_a_possible_pair_is_answered_by_the_supports() -> None:
    """Touching ends are a match of probability 0, as in the join."""
    times = {side: Interval("t0", "t") for side in ("left_time", "right_time")}
    query = TimingJoin(**times, condition=overlaps())
    answer = why_not({"t0": 0, "t": 10}, {"t0": 10, "t": 15}, query=query)
    assert (bool(answer), answer.probability) == (True, 0.0)
    assert str(answer).startswith("match: possible, with probability 0: right minus left lies between 0 us and 15 us")
    assert why_not({"t0": 0, "t": 10}, {"t0": 11, "t": 15}, query=query).reason.value == "outside window"
    ends = [sorted(np.random.default_rng(n).integers(0, 1000, 2)) for n in range(60)]
    table = pa.table({"t0": [a for a, _ in ends], "t": [b for _, b in ends]})
    assert chance_matches(table, table, query=query, slides=0).expected > 100


def _broken(left: pa.Table, right: pa.Table) -> Any:
    return left["nothing"]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("v < 3", "WA-2092.*does not say of which side.*left.v or right.v"),
        ("left.q < 1", "WA-2092.*no column 'q' in left"),
        ("v_lef < 1", "WA-2092.*did you mean 'v_left'"),
        ("x.v < 1", "WA-2092.*no table 'x'"),
        ("probability > 0.5", "WA-2092.*no column 'probability'"),
        ("left.v", "WA-2093.*expected a condition, this gives int64"),
        ("left.v < right.note", "WA-2093.*int64, string"),
        ("left.v <", "WA-2091"),
        ("", "WA-2091"),
        (5, "WA-2006.*where is 5"),
        (bool, "WA-2006.*where is"),
        (lambda left, right: True, "WA-2065.*where gave True, a single bool"),
        (lambda left, right: left["v"], "WA-2065.*an Arrow array of .* int64"),
        (lambda left, right: [True], "WA-2065.*where gave an array of bool and shape"),
        (_broken, "WA-2065.*where failed .* KeyError"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", str(value)),
)
def test_what_is_no_condition_is_refused(where: Any, error: str) -> None:
    with pytest.raises(QueryError, match=error):
        timing_join(LEFT, RIGHT, where=where, **POINTS)


def test_an_sql_condition_is_refused_before_any_row_is_read() -> None:
    with pytest.raises(QueryError, match="WA-2092"):
        TimingJoin(**POINTS, where="left.q < 1").operator([LEFT.schema, RIGHT.schema], streaming=True)


def test_the_probability_is_that_of_the_times() -> None:
    times = {side: Interval("t0", "t", max_uncertainty="40 us") for side in ("left_time", "right_time")}
    left, right = (rows.append_column("t0", pc.subtract(rows["t"], 40)) for rows in (LEFT, RIGHT))
    options: dict[str, Any] = POINTS | times | {"condition": within("30 us", confidence=0.4)}
    known = {row[:2]: row[2] for row in _with_probability(timing_join(left, right, **options))}
    found = _with_probability(timing_join(left, right, where="left.v < right.v", **options))
    assert 20 < len(found) < len(known)
    assert all(known[left_id, right_id] == p for left_id, right_id, p in found)


def _with_probability(table: pa.Table) -> list[tuple[int, int, float]]:
    return list(zip(*(table[name].to_pylist() for name in ("id_left", "id_right", "probability")), strict=True))
