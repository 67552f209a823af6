"""Join aggregates over tables: what is asked, what is refused, and the types of the answers."""

from __future__ import annotations

import datetime
import math
import pickle
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import whenabouts as wa
from whenabouts.core.errors import Code, InputError, QueryError, WhenaboutsError
from whenabouts.core.hosting.column_case import as_spelled
from whenabouts.core.hosting.columns_compared import columns_compared
from whenabouts.core.join_aggregate import partners
from whenabouts.core.local import Outcome, run

POINT = wa.Point("t")
INTERVAL = wa.Interval("a", "b")
EXACT: dict[str, Any] = {"left_time": POINT, "right_time": POINT, "condition": wa.within(2, confidence=1)}
LEFT = pa.table({"t": [10, 20, 30], "who": ["x", "y", "z"]})
RIGHT = pa.table({"t": [9, 11, 12, 19], "v": pa.array([1.5, None, 2.5, 4.0])})


def columns(right: pa.Table, aggregates: dict[str, Any], **more: Any) -> dict[str, list[Any]]:
    found = wa.join_aggregate(LEFT, right, **(EXACT | more), aggregates=aggregates)
    return {name: found[name].to_pylist() for name in aggregates}


def test_functions_by_name_with_arguments_in_either_form() -> None:
    asked = {"n": "count", "values": "count:v", "total": ("sum", "v"), "last": "last:v", "p2": "p_at_least:2"}
    assert columns(RIGHT, asked) == {
        "n": [3, 1, 0], "values": [2, 1, 0], "total": [4.0, 4.0, None], "last": [2.5, 4.0, None], "p2": [1.0, 0.0, 0.0]
    }  # fmt: skip


def test_a_column_without_any_value_has_nothing_to_tell() -> None:
    asked = {"n": "count:v", "d": "count_distinct:v", "least": "min:v", "last": "last:v", "all": "collect:v"}
    assert columns(RIGHT.set_column(1, "v", pa.nulls(4)), asked) == {
        "n": [0, 0, 0], "d": [0, 0, 0], "least": [None] * 3, "last": [None] * 3, "all": [[None] * 3, [None], []]
    }  # fmt: skip


def test_the_columns_are_the_left_ones_and_the_aggregates_in_the_order_given() -> None:
    found = wa.join_aggregate(LEFT, RIGHT, **EXACT, aggregates={"z": "any", "v": "count"})
    assert found.column_names == ["t", "who", "z", "v"]
    inner = wa.join_aggregate(LEFT, RIGHT, **EXACT, aggregates={"z": "any"}, how="inner")
    assert inner["who"].to_pylist() == ["x", "y"]


def test_frames_of_other_libraries() -> None:
    found = wa.join_aggregate(pl.from_arrow(LEFT), pl.from_arrow(RIGHT), **EXACT, aggregates={"n": "count"})
    assert isinstance(found, pl.DataFrame)
    assert found["n"].to_list() == [3, 1, 0]


def test_a_column_whose_name_holds_a_colon() -> None:
    right = RIGHT.rename_columns(["t", "a:b"])
    assert columns(right, {"total": "sum:a:b"}) == {"total": [4.0, 4.0, None]}


def test_nobody_on_one_side_or_on_both() -> None:
    asked = {
        "n": "count",
        "total": "sum:v",
        "all": "collect:v",
        "none": "p_none",
        "e": "expected_sum:v",
        "k": "count_at:1",
    }
    nobody = {"n": [0] * 3, "total": [None] * 3, "all": [[]] * 3, "none": [1.0] * 3, "e": [0.0] * 3, "k": [0] * 3}
    assert columns(RIGHT.slice(0, 0), asked) == nobody
    assert wa.join_aggregate(LEFT.slice(0, 0), RIGHT, **EXACT, aggregates=asked).num_rows == 0


def test_null_keys_meet_nobody() -> None:
    left = LEFT.append_column("k", pa.array([1, None, 1]))
    right = RIGHT.append_column("k", pa.array([1, 1, None, None], pa.int32()))
    asked = {"n": "count", "none": "p_none"}
    found = wa.join_aggregate(left, right, **EXACT, on="k", aggregates=asked)
    assert sorted(zip(found["who"].to_pylist(), found["n"].to_pylist(), found["none"].to_pylist(), strict=True)) == [
        ("x", 2, 0.0), ("y", 0, 1.0), ("z", 0, 1.0)
    ]  # fmt: skip
    assert wa.join_aggregate(left, right, **EXACT, on="k", aggregates=asked, how="inner")["who"].to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        (pa.duration("ms"), [5, 7], (datetime.timedelta(milliseconds=12), 6.0, pa.duration("ms"))),
        (pa.bool_(), [True, True], (2, 1.0, pa.int64())),
        (pa.uint64(), [2**62, 5], (2**62 + 5, float(2**62 + 5) / 2, pa.int64())),
        (pa.float32(), [0.5, 0.25], (0.75, 0.375, pa.float64())),
        (pa.decimal128(5, 2), [Decimal("1.25"), Decimal("2.00")], (Decimal("3.25"), 1.625, pa.decimal128(38, 2))),
        (pa.int8(), [127, 127], (254, 127.0, pa.int64())),
    ],
    ids=str,
)
def test_the_types_of_sums(type_: pa.DataType, values: list[Any], expected: tuple[Any, float, pa.DataType]) -> None:
    right = pa.table({"t": [9, 11], "v": pa.array(values, type_)})
    asked = {"total": "sum:v", "mean": "mean:v", "least": "min:v", "e": "expected_sum:v"}
    found = wa.join_aggregate(LEFT, right, **EXACT, aggregates=asked)
    total, mean, sum_type = expected
    assert (found["total"][0].as_py(), found["mean"][0].as_py()) == (total, mean)
    assert [found.schema.field(name).type for name in asked] == [sum_type, pa.float64(), type_, pa.float64()]
    assert found["e"][0].as_py() == mean * 2


def test_dictionaries_are_compared_by_their_values() -> None:
    right = pa.table({"t": [9, 11], "v": pa.array(["b", "a"]).dictionary_encode()})
    assert columns(right, {"least": "min:v", "all": "collect:v"}) == {
        "least": ["a", None, None], "all": [["b", "a"], [], []]
    }  # fmt: skip


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32(), pa.float16()])
def test_both_zeros_are_one_value_and_all_nan_are(type_: pa.DataType) -> None:
    values = np.array([0.0, -0.0, np.nan, -np.nan], type_.to_pandas_dtype())
    right = pa.table({"t": [9] * 4, "v": pa.array(values, type_)})
    assert columns(right, {"n": "count_distinct:v"})["n"][0] == 2


@pytest.mark.parametrize("name", ["min:v", "count_distinct:v", "first:v"])
def test_nested_values(name: str) -> None:
    right = pa.table({"t": [9, 9, 11], "v": [[2], [1, 5], [1]]})
    assert columns(right, {"x": name})["x"][0] == {"min:v": [1], "count_distinct:v": 3, "first:v": [1, 5]}[name]


def test_a_sum_outside_its_type_stops_the_query() -> None:
    right = pa.table({"t": [9, 11], "v": [2**62, 2**62]})
    with pytest.raises(InputError, match="WA-1024: the sum of 'v' for left row 0, which ends at 10 us, exceeds int64"):
        columns(right, {"x": "sum:v"})
    assert columns(right, {"x": "mean:v"})["x"][0] == float(2**62)


def test_a_sum_outside_its_type_names_its_left_row_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partners, "ROWS_AT_ONCE", 1)
    left = pa.table({"a": [90, 5, 10], "b": [95, 12, 17]})
    huge = pa.array([Decimal(9 * 10**36)] * 2, pa.decimal128(38, 1))
    right = pa.table({"a": [8, 22], "b": [20, 30], "v": huge})
    times: dict[str, Any] = {"left_time": INTERVAL, "right_time": INTERVAL}
    for asked in {"x": "sum:v"}, {"x": "mean:v"}, {"x": "sum:v", "p": "p_none"}:
        condition = wa.within(9, confidence=0.1)
        with pytest.raises(InputError, match=r"'v' for left row 2, which ends at 17 us, exceeds decimal128\(38, 1\)"):
            wa.join_aggregate(left, right, condition=condition, aggregates=asked, **times)


def test_values_that_are_not_finite_make_chances_nan_with_a_warning() -> None:
    right = pa.table({"t": [9, 11, 12, 19], "v": [1.0, math.inf, None, 2.0]})
    with pytest.warns(wa.NotFiniteWarning, match=r"WA-1076: in 1 row a chance function is NaN"):
        found = columns(right, {"e": "expected_sum:v", "s": "sum:v", "var": "sum_variance:v", "n": "expected_count"})
    assert [math.isnan(found["e"][0]), math.isnan(found["var"][0])] == [True, True]
    assert (found["e"][1:], found["s"], found["n"]) == ([2.0, 0.0], [math.inf, 2.0, None], [3.0, 1.0, 0.0])


def test_few_rows_at_once_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    left = pa.table({"a": range(0, 400, 4), "b": range(9, 409, 4)})
    right = pa.table({"a": range(0, 400, 3), "b": range(5, 405, 3), "v": [0.1 * n for n in range(134)]})
    asked = {"n": "count", "s": "sum:v", "last": "last:v", "d": "count_distinct:v", "all": "collect:v",
             "none": "p_none", "e": "expected_sum:v", "var": "sum_variance:v", "k": "count_at:0.7"}  # fmt: skip
    query = wa.JoinAggregate(
        left_time=INTERVAL, right_time=INTERVAL, condition=wa.within(20, confidence=0.6), aggregates=asked
    )
    whole = run(query, [left, right])
    monkeypatch.setattr(partners, "ROWS_AT_ONCE", 7)
    parts = run(query, [left, right])
    assert whole.output.equals(parts.output)
    assert whole.metrics == parts.metrics
    assert whole.metrics["chance_terms"] > 0


def _probes(sure: int) -> Outcome:
    """Right rows that are sure partners of all left rows, beside a few that are not."""
    left = pa.table({"a": [0, 7, 11], "b": [10, 14, 17]})
    a = [100 + n % 50 for n in range(sure)] + [300, 303, 309, 316]
    right = pa.table({"a": a, "b": [t + 3 + t % 5 for t in a]})
    condition = wa.between(20, 300, confidence=0.5)
    asked = {"n": "count", "none": "p_none", "two": ("p_at_least", sure + 2)}
    query = wa.JoinAggregate(left_time=INTERVAL, right_time=INTERVAL, condition=condition, aggregates=asked)
    return run(query, [left, right])


def test_more_sure_rows_cost_no_kernel_call_and_no_quadrature() -> None:
    few, many = _probes(100).metrics, _probes(200).metrics
    assert few["probed"] == many["probed"] > 0
    assert few["chance_terms"] == many["chance_terms"] > 0
    assert many["sure"] - few["sure"] == 300


def test_the_most_uncertain_partners_of_different_times() -> None:
    left, right = pa.table({"a": [0], "b": [10]}), pa.table({"a": [4, 4, 5], "b": [6, 6, 9]})
    given: dict[str, Any] = {
        "left_time": INTERVAL, "right_time": INTERVAL, "condition": 3, "aggregates": {"p": "p_none"}
    }  # fmt: skip
    assert wa.join_aggregate(left, right, **given, most_uncertain=2).num_rows == 1
    with pytest.raises(QueryError, match=r"WA-2182: .* can meet 2 uncertain right rows .* most_uncertain is 1"):
        wa.join_aggregate(left, right, **given, most_uncertain=1)


REFUSED: list[tuple[dict[str, Any], Code, str]] = [
    ({"aggregates": {}}, Code.BAD_OPTION, "no aggregates"),
    ({"aggregates": "count"}, Code.BAD_OPTION, "aggregates is 'count'"),
    ({"aggregates": {"n": "cuont"}}, Code.BAD_OPTION, "did you mean 'count'"),
    ({"aggregates": {"n": "expected_mean:v"}}, Code.BAD_OPTION, "the expected mean is not"),
    ({"aggregates": {"n": 3}}, Code.BAD_OPTION, "aggregate 'n' is 3"),
    ({"aggregates": {3: "count"}}, Code.BAD_OPTION, "name of an aggregate is 3"),
    ({"aggregates": {"n": "sum"}}, Code.BAD_OPTION, "name a column"),
    ({"aggregates": {"n": "sum:"}}, Code.BAD_OPTION, "name a column"),
    ({"aggregates": {"n": "p_none:v"}}, Code.BAD_OPTION, "p_none takes none"),
    ({"aggregates": {"n": "p_at_least"}}, Code.BAD_OPTION, "whole number"),
    ({"aggregates": {"n": "p_at_least:0"}}, Code.BAD_OPTION, "whole number"),
    ({"aggregates": {"n": ("p_at_least", 1.5)}}, Code.BAD_OPTION, "whole number"),
    ({"aggregates": {"n": ("p_at_least", True)}}, Code.BAD_OPTION, "whole number"),
    ({"aggregates": {"n": "count_at:0"}}, Code.BAD_OPTION, "probability"),
    ({"aggregates": {"n": "count_at:nan"}}, Code.BAD_OPTION, "probability"),
    ({"aggregates": {"event_time": "count"}}, Code.COLUMN_CLASH, "event_time"),
    ({"aggregates": {"who": "count"}}, Code.COLUMN_CLASH, "who"),
    ({"aggregates": {"n": "sum:w"}}, Code.MISSING_COLUMN, "no such column"),
    ({"aggregates": {"n": "sum:name"}}, Code.INCOMPARABLE_VALUES, "have no sum"),
    ({"aggregates": {"n": "sum_variance:name"}}, Code.INCOMPARABLE_VALUES, "have no sum"),
    ({"condition": 2}, Code.NO_CONFIDENCE, "n=count looks at pairs"),
    ({"condition": wa.within(2)}, Code.NO_CONFIDENCE, "n=count looks at pairs"),
    ({"condition": 2, "how": "inner", "aggregates": {"n": "p_none"}}, Code.NO_CONFIDENCE, "how='inner'"),
    ({"condition": (2, 1), "aggregates": {"n": "p_none"}}, Code.EMPTY_CONDITION, "admits no difference"),
    ({"how": "full_outer"}, Code.BAD_OPTION, "how"),
    ({"min_confidence": 0.5, "condition": wa.within(2, confidence=0.4)}, Code.BAD_CONFIDENCE, "above the confidence 0"),
    ({"min_confidence": 0.5, "condition": wa.possibly(wa.within(2))}, Code.BAD_CONFIDENCE, "confidence of possibly, 0"),
    ({"min_confidence": 0.5, "condition": 2, "aggregates": {"n": "p_none"}}, Code.BAD_OPTION, "has no confidence"),
    ({"most_uncertain": 0}, Code.BAD_OPTION, "most_uncertain"),
    ({"right_time": wa.from_clock("t"), "aggregates": {"n": "p_none"}}, Code.UNKNOWN_CLOCK_OFFSET, "offset"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "code", "problem"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_refused(changed: dict[str, Any], code: Code, problem: str) -> None:
    right = RIGHT.append_column("name", pa.array(["a"] * 4))
    with pytest.raises(WhenaboutsError, match=problem) as raised:
        wa.join_aggregate(LEFT, right, **(EXACT | {"aggregates": {"n": "count"}} | changed))
    assert raised.value.code == code


def test_a_shared_offset_changes_no_probability_of_a_pair() -> None:
    clock = wa.from_clock("t", offset=5)
    given: dict[str, Any] = {"left_time": POINT, "condition": wa.within(2, confidence=0.1)}
    for right in (clock, wa.from_clock("t", offset=5, domain="a")):
        asked = {"n": "count", "e": "expected_count"}
        assert wa.join_aggregate(LEFT, RIGHT, **given, right_time=right, aggregates=asked)["e"][0].as_py() > 0
    within = wa.from_clock("t", jitter=3, domain="a")
    wa.join_aggregate(LEFT, RIGHT, left_time=within, right_time=within, condition=2, aggregates={"p": "p_none"})


def test_a_stream_needs_bounds() -> None:
    schemas = [pa.schema({"a": pa.int64(), "b": pa.int64()})] * 2
    asked = {"p": "p_none"}
    query = wa.JoinAggregate(left_time=INTERVAL, right_time=INTERVAL, condition=2, aggregates=asked)
    with pytest.raises(QueryError, match="WA-2010"):
        query.operator(schemas, streaming=True)
    with pytest.raises(QueryError, match="WA-2004"):
        replace(query, condition=wa.delay(2)).operator(schemas, streaming=True)


def test_queries_travel_and_are_made_anew() -> None:
    query = wa.JoinAggregate(**EXACT, on="k", aggregates={"n": "count", "s": "sum:v"}, time_slots="auto")
    assert pickle.loads(pickle.dumps(query)) == query == replace(query)
    assert hash(query) == hash(replace(query))
    assert replace(query, aggregates={"n": "count:v"}).aggregates[0].described == "n=count:v"


def test_names_of_another_case() -> None:
    query = wa.JoinAggregate(**EXACT, on="K", aggregates={"s": "sum:V", "n": "count"})
    schema = pa.schema({"T": pa.int64(), "k": pa.int64(), "v": pa.int64()})
    found, _ = as_spelled(query, [schema.remove(2), schema])
    assert isinstance(found, wa.JoinAggregate)
    assert (found.on, found.columns, found.right_time) == (("k",), {"v"}, wa.Point("T"))
    assert columns_compared(found) == [{"k"}, {"k", "v"}]


def test_certain_partners_that_decide_what_is_asked_save_the_quadrature() -> None:
    left = pa.table({"a": [0, 0], "b": [10, 10], "k": [1, 2]})
    right = pa.table({"a": [20, 21, 28, 28], "b": [22, 23, 36, 36], "k": [1, 1, 1, 2]})
    asked = {"none": "p_none", "any": "p_any", "two": "p_at_least:2"}

    def found(**more: Any) -> Outcome:
        condition = wa.between(5, 25)
        query = wa.JoinAggregate(
            left_time=INTERVAL, right_time=INTERVAL, condition=condition, on="k", aggregates={**asked, **more}
        )
        return run(query, [left, right])

    alone, with_more = found(), found(variance="count_variance")
    assert alone.output.equals(with_more.output.drop_columns("variance"))
    first = alone.output.filter(pc.equal(alone.output["k"], 1)).to_pylist()[0]
    assert (first["none"], first["any"], first["two"]) == (0.0, 1.0, 1.0)
    assert alone.metrics["chance_terms"] < with_more.metrics["chance_terms"]
