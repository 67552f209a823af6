"""Every bad input of an as-of join has its code."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core import local
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.errors import Code, EmptyInputWarning, RejectedRowsWarning, WhenaboutsError
from whenabouts.core.hosting.host_options import HostSettings
from whenabouts.core.local import run, run_stream
from whenabouts.core.wrappers.select_project import SelectProject

POINT = wa.Point("t")
SPAN = wa.Interval("t", "u")
TABLE = pa.table({"k": [1, 2], "t": [1, 5], "u": [2, 6], "v": ["a", "b"]})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"direction": "sideways"}, Code.BAD_OPTION),
        ({"direction": None}, Code.BAD_OPTION),
        ({"keep": "first"}, Code.BAD_OPTION),
        ({"keep": None}, Code.BAD_OPTION),
        ({"how": "right_outer"}, Code.BAD_OPTION),
        ({"how": "full"}, Code.BAD_OPTION),
        ({"how": "left_anti", "keep": "all"}, Code.BAD_OPTION),
        ({"allow_exact_matches": 1}, Code.BAD_OPTION),
        ({"probability": "yes"}, Code.BAD_OPTION),
        ({"suffixes": ("_l",)}, Code.BAD_OPTION),
        ({"order_by": 5}, Code.BAD_OPTION),
        ({"max_candidates": 0}, Code.BAD_OPTION),
        ({"max_candidates": 2.5}, Code.BAD_OPTION),
        ({"left_time": "t"}, Code.BAD_OPTION),
        ({"time_slots": 0, "tolerance": 1}, Code.BAD_OPTION),
        ({"tolerance": -1}, Code.NEGATIVE_DURATION),
        ({"tolerance": "2 parsecs"}, Code.BAD_DURATION),
        ({"tolerance": 1.5}, Code.BAD_DURATION),
        ({"confidence": 0}, Code.BAD_CONFIDENCE),
        ({"confidence": 1.01}, Code.BAD_CONFIDENCE),
        ({"confidence": "high"}, Code.BAD_CONFIDENCE),
        ({"left_time": SPAN}, Code.NO_CONFIDENCE),
        ({"right_time": wa.from_granularity("t", "1 s")}, Code.NO_CONFIDENCE),
        ({"time_slots": "10 s"}, Code.NOT_SLOTTED),
        ({"time_slots": "10 s", "tolerance": "1 s", "left_time": SPAN, "confidence": 0.5}, Code.NOT_SLOTTED),
        ({"right_time": wa.from_clock("t", jitter="1 ms"), "confidence": 0.5}, Code.UNKNOWN_CLOCK_OFFSET),
        ({"left_time": wa.from_clock("t", jitter="1 ms"), "confidence": 0.5}, Code.UNKNOWN_CLOCK_OFFSET),
        (
            {"left_time": SPAN, "right_time": wa.from_clock("t", jitter="1 ms", offset="1 s"), "confidence": 0.5},
            Code.BAD_OPTION,
        ),
    ],
)
def test_options_are_refused_when_the_query_is_made(options: dict[str, Any], code: Code) -> None:
    with pytest.raises(WhenaboutsError) as raised:
        AsofJoin(**{"left_time": POINT, "right_time": POINT, **options})
    assert raised.value.code is code
    assert raised.value.hint


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"order_by": "w"}, Code.MISSING_COLUMN),
        ({"on": "w"}, Code.MISSING_COLUMN),
        ({"on": {"left": "v", "right": "k"}}, Code.KEY_TYPES_DIFFER),
        ({"right_time": wa.Point("w")}, Code.MISSING_COLUMN),
        ({"right_time": wa.Point("v")}, Code.WRONG_TYPE),
        ({"suffixes": ("", "")}, Code.COLUMN_CLASH),
    ],
)
def test_columns_are_refused_when_the_tables_are_known(options: dict[str, Any], code: Code) -> None:
    with pytest.raises(WhenaboutsError) as raised:
        wa.asof_join(TABLE, TABLE, **{"left_time": POINT, "right_time": POINT, **options})
    assert raised.value.code is code
    assert raised.value.hint


@pytest.mark.parametrize("taken", ["probability", "none_probability"])
def test_a_column_with_a_computed_ones_name_is_refused(taken: str) -> None:
    left = TABLE.append_column(taken, pa.array([1, 2]))
    with pytest.raises(wa.QueryError, match="WA-2009"):
        wa.asof_join(left, TABLE, left_time=POINT, right_time=POINT)
    assert wa.asof_join(left, TABLE, left_time=POINT, right_time=POINT, probability=False).num_rows == 2


@pytest.mark.parametrize("direction", ["forward", "nearest"])
def test_a_stream_that_looks_ahead_without_a_tolerance_is_refused(direction: str) -> None:
    query = AsofJoin(left_time=POINT, right_time=POINT, lateness="1 s", direction=direction)
    with pytest.raises(wa.QueryError) as raised:
        query.operator([TABLE.schema] * 2, streaming=True)
    assert raised.value.code is Code.UNBOUNDED_STATE


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_stream_of_intervals_without_a_greatest_length_is_refused(side: str) -> None:
    times = {"left_time": POINT, "right_time": POINT, f"{side}_time": wa.Interval("t", "t")}
    query = AsofJoin(**times, confidence=0.5, lateness="1 s")
    with pytest.raises(wa.QueryError, match=f"the {side} intervals have no declared greatest length") as raised:
        query.operator([TABLE.schema] * 2, streaming=True)
    assert raised.value.code is Code.UNBOUNDED_STATE


def test_a_null_time_is_rejected_on_both_sides() -> None:
    nulls = pa.table({"t": pa.array([3, None], pa.int64())})
    with pytest.warns(RejectedRowsWarning):
        found = wa.asof_join(nulls, nulls, left_time=POINT, right_time=POINT)
    assert found.num_rows == 1
    rejects = wa.rejects(found).select(["input", "code"]).to_pylist()
    assert rejects == [{"input": side, "code": "WA-1003"} for side in ("left", "right")]


def test_an_empty_right_side_leaves_left_rows_unmatched_and_warns() -> None:
    with pytest.warns(EmptyInputWarning, match="no left row has a partner"):
        found = wa.asof_join(TABLE, TABLE.slice(0, 0), on="k", left_time=POINT, right_time=POINT)
    assert found.column("v_right").null_count == found.num_rows == 2
    assert found.column("none_probability").to_pylist() == [1.0, 1.0]


def test_an_empty_left_side_gives_no_row() -> None:
    found = wa.asof_join(TABLE.slice(0, 0), TABLE, on="k", left_time=POINT, right_time=POINT)
    assert found.num_rows == 0
    assert found.column_names == [
        "k", "t_left", "u_left", "v_left", "t_right", "u_right", "v_right", "probability", "none_probability",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "warns"),
    [({}, True), ({"on": "k"}, False), ({"tolerance": 1}, True), ({"tolerance": 1, "time_slots": "auto"}, False)],
)
def test_a_parallel_engine_warns_of_one_bucket(options: dict[str, Any], warns: bool) -> None:
    query = AsofJoin(left_time=POINT, right_time=POINT, **options)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        local.ENGINE.check(query, [TABLE, TABLE], HostSettings())
        assert not found
        for asked in (query, SelectProject(query=query)):  # as of a query as text
            replace(local.ENGINE, parallel=True).check(asked, [TABLE, TABLE], HostSettings())
    assert [each.category for each in found] == [wa.SingleBucketWarning] * 2 * warns


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("how", ["left_outer", "left_anti"])
def test_a_left_row_with_too_many_candidates_is_rejected_and_counted(streaming: bool, how: str) -> None:
    left = pa.table({"t": [7, 100], "n": [1, 2]})
    right = pa.table({"a": [0, 1, 2, 99], "b": [10, 11, 12, 99]})
    interval = wa.Interval("a", "b", max_uncertainty=10)
    query = AsofJoin(left_time=POINT, right_time=interval, confidence=0.5, max_candidates=2, how=how, lateness=0)
    outcome = run_stream(query, [[left], [right]]) if streaming else run(query, [left, right])
    assert outcome.rejects.select(["input", "code", "n"]).to_pylist() == [{"input": "left", "code": "WA-1053", "n": 1}]
    assert outcome.output.column("n").to_pylist() == ([2] if how == "left_outer" else [])
    assert (outcome.metrics["rows_in"], outcome.metrics["rows_processed"], outcome.metrics["rows_rejected"]) == (
        6,
        5,
        1,
    )
