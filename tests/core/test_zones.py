"""Instants compared with times without a zone are refused if the engine's `=` would not read the latter as UTC."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from whenabouts.core import Interval, Point, QueryError, local, within
from whenabouts.core.errors import MixedZonesWarning
from whenabouts.core.expressions.sql import parse_expression
from whenabouts.core.hosting.host import require_one_zone
from whenabouts.core.runtime.protocol import Query
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.wrappers.payload_decoding import decoded
from whenabouts.core.wrappers.payloads import JsonPayload
from whenabouts.core.wrappers.select_project import SelectProject

QUERY = TimingJoin(left_time=Interval("a", "b"), right_time=Point("t"), condition=within("1 s", confidence=1))
INSTANT, WALL, COUNT = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.int64()


def _check(query: Query, schemas: list[pa.Schema], zone: str | None) -> None:
    require_one_zone(query, query.operator(schemas, streaming=False), schemas, zone)


@pytest.mark.parametrize(
    ("a", "b", "t", "refused"),
    [
        (INSTANT, INSTANT, INSTANT, False), (WALL, WALL, WALL, False), (INSTANT, INSTANT, WALL, True),
        (WALL, WALL, INSTANT, True), (INSTANT, WALL, COUNT, True), (COUNT, COUNT, WALL, False),
        (INSTANT, COUNT, INSTANT, False),
    ],
)  # fmt: skip
def test_times_of_both_kinds_are_refused_outside_of_utc(
    a: pa.DataType, b: pa.DataType, t: pa.DataType, refused: bool
) -> None:
    schemas = [pa.schema({"a": a, "b": b}), pa.schema({"t": t})]
    _check(QUERY, schemas, None)
    if not refused:
        _check(QUERY, schemas, "Europe/Berlin")
        return
    with pytest.raises(QueryError, match=r"WA-2192: time column '.' of the .* and the session's zone is Europe/Berlin"):
        _check(QUERY, schemas, "Europe/Berlin")


def test_times_in_payloads_are_ours_to_read() -> None:
    payload = JsonPayload({"a": "timestamp[us]", "b": "timestamp[us]"})
    schemas = [pa.schema({"value": pa.binary()}), pa.schema({"t": INSTANT})]
    _check(decoded(QUERY, {"left": payload}), schemas, "Europe/Berlin")


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", None])
def test_utc_and_no_zone_are_the_same_in_process(zone: str | None) -> None:
    tables = [
        pa.table({"a": pa.array([0], WALL), "b": pa.array([0], WALL)}),
        pa.table({"t": pa.array([0], pa.timestamp("us", zone))}),
    ]
    assert local.run(QUERY, tables).output.num_rows == 1  # a warning would fail


def test_another_zone_beside_none_warns_in_process() -> None:
    """Times are read as UTC all the same."""
    tables = [
        pa.table({"a": pa.array([0], WALL), "b": pa.array([0], WALL)}),
        pa.table({"t": pa.array([0], pa.timestamp("us", "Europe/Berlin"))}),
    ]
    told = r"WA-2192: time column 't' of the right input has times of Europe/Berlin, time column 'a' of the left input"
    with pytest.warns(MixedZonesWarning, match=told):
        assert local.run(QUERY, tables).output.num_rows == 1


POINT = Point("t")
JOIN = TimingJoin(left_time=POINT, right_time=POINT, condition=within("1 s", confidence=1))
WINDOW = WindowJoin(times={"left": POINT, "right": POINT}, windows={("left", "right"): "1 s"})
LEFT = pa.schema({"t": COUNT, "u": INSTANT, "v": COUNT, "w": INSTANT})
RIGHT = pa.schema({"t": COUNT, "u": WALL, "v": COUNT, "x": INSTANT})


@pytest.mark.parametrize(
    ("condition", "refused"),
    [
        ("left.u < right.u", True), ("left.u = right.x AND left.v = right.v", False), ("left.v = right.v", False),
        ("left.v = right.v AND NOT left.w IS NOT DISTINCT FROM right.u", True), ("right.u = right.x", True),
        ("left.u = right.x OR right.u = CAST(right.v AS TIMESTAMP)", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("query", [JOIN, WINDOW], ids=["timing join", "window join"])
def test_conditions_that_compare_both_kinds_are_refused(query: Query, condition: str, refused: bool) -> None:
    asked: Query
    if query is JOIN:
        asked = replace(JOIN, where=condition)
    else:
        asked = replace(WINDOW, predicates={("left", "right"): condition})
    _check(asked, [LEFT, RIGHT], None)
    if not refused:
        _check(asked, [LEFT, RIGHT], "Europe/Berlin")
        return
    with pytest.raises(QueryError, match=r"WA-2192: column '.*' of a condition holds instants, .* without a zone"):
        _check(asked, [LEFT, RIGHT], "Europe/Berlin")


def test_names_of_the_output_and_conditions_on_an_input_are_looked_up_too() -> None:
    with pytest.raises(QueryError, match="WA-2192"):
        _check(replace(JOIN, where="u_left = u_right"), [LEFT, RIGHT], "Europe/Berlin")
    selected = SelectProject(query=JOIN, where={"right": parse_expression("u = x")})
    with pytest.raises(QueryError, match="WA-2192"):
        _check(selected, [LEFT, RIGHT], "Europe/Berlin")
    _check(SelectProject(query=JOIN, where={"right": parse_expression("x = x")}), [LEFT, RIGHT], "Europe/Berlin")
