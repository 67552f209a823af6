"""Laws of the as-of join: which changes of its input leave every probability as it is, to the last bit."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, multiset, oracle
from whenabouts.conformance.case_tables import SECOND, YEAR_2024
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.conformance.test_asof_join import ANY, OPTIONS, any_query
from whenabouts.core import Histogram, Interval, from_clock
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.asof_join.settings import DIRECTIONS
from whenabouts.core.durations import parse_duration
from whenabouts.core.harness import Variant
from whenabouts.core.times.time_specs import TimeSpec

ANSWER = ["number", "row", "probability", "none_probability"]
"""What is compared: a left row, a right row, and the two probabilities by their bits."""

EQUAL = (1, 2, 3, 10, 63, 64, 300)
INSIDE = 1e-15


@pytest.mark.parametrize("direction", fewer_on_slow_engines(DIRECTIONS, ["backward"]))
def test_oracle_asof_equal_intervals(engine: Engine, direction: str) -> None:
    """Of n right rows with the left row's interval each prevails with 1 / (n + 1), and so does none; nearest with
    1 / n."""
    keys = np.repeat(np.arange(len(EQUAL)), EQUAL)
    begin, end = YEAR_2024, YEAR_2024 + SECOND
    left = pa.table({"k": range(len(EQUAL)), "a": [begin] * len(EQUAL), "b": [end] * len(EQUAL)})
    right = pa.table({"k": keys, "a": [begin] * len(keys), "b": [end] * len(keys), "row": range(len(keys))})
    interval = Interval("a", "b")
    query = AsofJoin(left_time=interval, right_time=interval, on="k", direction=direction, confidence=ANY, keep="all")
    output = engine.run(query, {"left": (left,), "right": (right,)}, Variant(parallelism=2)).output
    assert sorted(output.column("row").to_pylist()) == list(range(len(keys)))
    n = np.array(EQUAL)[output.column("k").to_numpy()]
    none = np.zeros(len(n)) if direction == "nearest" else 1 / (n + 1)
    expected = 1 / n if direction == "nearest" else none
    assert np.abs(output.column("probability").to_numpy() - expected).max() <= INSIDE
    assert np.abs(output.column("none_probability").to_numpy() - none).max() <= INSIDE


CASES = 60
"""How many cases of a dataset are compared."""


def _first_cases(dataset: str) -> dict[str, pa.Table]:
    """Rows of a dataset, times as integers; a number for each left row, and for each right row its place in an order
    of its own, `order`."""
    found = {}
    for side, table in case_tables.dataset(dataset).tables.items():
        of_side = table.filter(pa.array(table.column("case").to_numpy() < CASES))
        for at, field in enumerate(of_side.schema):
            if pa.types.is_timestamp(field.type) and field.name.startswith("t"):
                us = of_side.column(at).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
                of_side = of_side.set_column(at, field.name, us)
        numbers = pa.array(np.arange(of_side.num_rows))
        of_side = of_side.append_column("number" if side == "left" else "row", numbers)
        if side == "right":
            order = case_tables.rng(dataset, "order").permutation(of_side.num_rows)
            of_side = of_side.append_column("order", pa.array(order))
        found[side] = of_side
    return found


def _query(dataset: str, options: str, **more: Any) -> AsofJoin:
    return any_query(dataset, options, **({"order_by": "order", "keep": "all", "confidence": ANY} | more))


def _lengths(spec: TimeSpec) -> dict[str, int]:
    """By the name of a template, how far its last bucket ends after the first one begins."""
    ends = {
        str(name): [parse_duration(at) for bucket in template.buckets for at in bucket[:2]]
        for name, template in spec.templates
    }
    return {name: max(of) - min(of) for name, of in ends.items()}


def _mirrored_time(spec: TimeSpec) -> TimeSpec:
    if not spec.templates:
        return spec
    templates = {
        name: [(-parse_duration(hi), -parse_duration(lo), p) for lo, hi, p in reversed(template.buckets)]
        for name, template in spec.templates
    }
    return Histogram(spec.columns[-1], template=spec.template_column, templates=templates)


def _mirrored_rows(table: pa.Table, spec: TimeSpec) -> pa.Table:
    """The rows with time reversed about an instant of 2024. A histogram is placed by the end of its last bucket."""
    first, last = spec.columns[0], spec.columns[-1]
    lengths = _lengths(spec)
    extra = np.zeros(table.num_rows, np.int64)
    if spec.template_column is not None:
        extra += [lengths[str(name)] for name in table.column(spec.template_column).to_pylist()]
    elif lengths:
        extra += max(lengths.values())
    ends = [2 * YEAR_2024 - table.column(name).to_numpy() + extra for name in (last, first)]
    for name, values in zip((first, last), ends, strict=True):
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


@pytest.mark.parametrize(
    ("dataset", "options"),
    fewer_on_slow_engines(
        [
            (dataset, options)
            for dataset in ("histogram and interval", "ties", "point and interval", "histograms")
            for options in ("", " strict", " tolerance")
        ],
        [("histogram and interval", " tolerance")],
    ),
)
def test_differential_asof_mirror(engine: Engine, dataset: str, options: str) -> None:
    """Looking forward gives the bits of looking backward with time and the order of rows reversed."""
    rows, specs = _first_cases(dataset), case_tables.dataset(dataset).specs
    forward = engine.run(_query(dataset, f"forward{options}"), {side: (table,) for side, table in rows.items()})
    mirrored = {side: (_mirrored_rows(table, specs[side]),) for side, table in rows.items()}
    (right,) = mirrored["right"]
    reversed_order = pa.array(-right.column("order").to_numpy())
    mirrored["right"] = (right.set_column(right.column_names.index("order"), "order", reversed_order),)
    times = {f"{side}_time": _mirrored_time(spec) for side, spec in specs.items()}
    backward = engine.run(_query(dataset, f"backward{options}", **times), mirrored)
    expected = multiset.rows(forward.output, ANSWER)
    assert expected.total() > CASES
    multiset.assert_same(multiset.rows(backward.output, ANSWER), expected, "rows of reversed time")


SHIFTS = (0, 1, 10**15 + 7, -(2**51) - 5)


@pytest.mark.parametrize(
    ("dataset", "options"),
    fewer_on_slow_engines(
        [
            ("histogram and interval", "nearest tolerance"),
            ("ties", "backward strict"),
            ("point and interval", "nearest"),
            ("histograms", "forward tolerance"),
        ],
        [("histogram and interval", "nearest tolerance")],
    ),
)
def test_differential_asof_shift(engine: Engine, dataset: str, options: str) -> None:
    """The same times, decades earlier or later, give the same bits."""
    specs, inputs = case_tables.dataset(dataset).specs, {}
    for side, table in _first_cases(dataset).items():
        copies = []
        for number, shift in enumerate(SHIFTS):
            moved = table.append_column("shift", pa.array([number] * table.num_rows))
            for name in set(specs[side].columns):
                at = moved.column_names.index(name)
                moved = moved.set_column(at, name, pa.array(moved.column(name).to_numpy() + shift))
            copies.append(moved)
        inputs[side] = (pa.concat_tables(copies),)
    query = _query(dataset, options)
    on = (*query.key_columns, "shift")
    output = engine.run(_query(dataset, options, on=on), inputs, Variant(parallelism=2)).output
    by_shift: dict[Any, Counter[Row]] = defaultdict(Counter)
    for row, count in multiset.rows(output, ["shift", *ANSWER]).items():
        by_shift[row[0]][row[1:]] += count
    assert len(by_shift) == len(SHIFTS)
    assert by_shift[0].total() > CASES
    for number, shift in enumerate(SHIFTS):
        multiset.assert_same(by_shift[number], by_shift[0], f"rows later by {shift} us")


def _stretch(query: AsofJoin, left: oracle.Time, right: list[oracle.Time]) -> tuple[float, float]:
    """The stretch that the support of a right row must meet for the row to matter, from all rows of its key."""
    a, b = left.t_min, left.t_max
    tolerance = np.inf if query.tolerance_us is None else query.tolerance_us
    low, high = -np.inf, np.inf
    for s, e, _ in right:
        if query.direction == "backward":
            low = max(low, s) if e <= a else low
        elif query.direction == "forward":
            high = min(high, e) if s >= b else high
        else:
            low, high = max(low, min(s, 2 * a - e)), min(high, max(e, 2 * b - s))
    low, high = max(low, a - tolerance), min(high, b + tolerance)
    return (max(low, a) if query.direction == "forward" else low), (
        min(high, b) if query.direction == "backward" else high
    )


LEFT_ROWS, RIGHT_ROWS = 60, 8


@pytest.mark.parametrize(
    "options",
    fewer_on_slow_engines(
        [direction + more for direction in reversed(DIRECTIONS) for more in ("", " strict", " tolerance")], ["nearest"]
    ),
)
def test_differential_asof_rows_out_of_reach(engine: Engine, options: str) -> None:
    """Right rows that cannot prevail change no bit: without them, each left row's answers are the same."""
    random = case_tables.rng("out of reach")
    interval = Interval("a", "b")
    asked = {name: value for name, value in OPTIONS[options].items() if name != "order_by"}
    query = AsofJoin(
        left_time=interval, right_time=interval, on=("number", "every"), confidence=ANY, keep="all", **asked
    )
    left, right, dropped = [], [], 0
    for number in range(LEFT_ROWS):
        begin = YEAR_2024 + SECOND * int(random.integers(5, 36))
        time = oracle.Time(begin, begin + SECOND * int(random.choice([0, 1, 4])))
        starts = YEAR_2024 + SECOND * random.integers(0, 41, RIGHT_ROWS)
        ends = starts + SECOND * random.choice([0, 0, 1, 2, 5], RIGHT_ROWS)
        rows = [oracle.Time(int(s), int(e)) for s, e in zip(starts, ends, strict=True)]
        excluded = not query.allow_exact_matches and time.t_min == time.t_max
        matter = [row for row in rows if not (excluded and row.t_min == row.t_max == time.t_min)]
        low, high = _stretch(query, time, matter)
        for every in (True, False):
            left.append({"number": number, "every": every, "a": time.t_min, "b": time.t_max})
            for row, (s, e, _) in enumerate(rows):
                if every or (rows[row] in matter and e >= low and s <= high):
                    right.append({"number": number, "every": every, "a": s, "b": e, "row": row})
                else:
                    dropped += 1
    inputs = {"left": (pa.Table.from_pylist(left),), "right": (pa.Table.from_pylist(right),)}
    output = engine.run(query, inputs, Variant(parallelism=2)).output
    found: dict[Any, Counter[Row]] = defaultdict(Counter)
    for each, count in multiset.rows(output, ["every", *ANSWER]).items():
        found[each[0].value][each[1:]] += count
    assert dropped > LEFT_ROWS * 2
    multiset.assert_same(found[True], found[False], "rows from all right rows", {"query": query})


SAME = {"domain": "a"}
CLOCKS: dict[str, tuple[dict[str, Any], ...]] = {
    "one clock": (SAME, SAME, {"offset": 0}, {"offset": 0}),
    "either side": ({"offset": 0}, {"offset": 4_000}, {"offset": 4_000}, {"offset": 0}),
}
"""Errors of the left and of the right clock beside their jitter, twice."""


@pytest.mark.parametrize(
    ("clocks", "direction"),
    fewer_on_slow_engines(
        [(clocks, direction) for clocks in CLOCKS for direction in DIRECTIONS],
        [("one clock", "backward"), ("either side", "nearest")],
    ),
)
def test_differential_asof_clock_offset(engine: Engine, clocks: str, direction: str) -> None:
    """Rows read from one clock have the bits of rows without an offset; an offset of the right clock gives those of
    the left one's."""
    random = case_tables.rng("clocks")
    left = pa.table({"t": YEAR_2024 + np.sort(random.integers(0, 90_000, 40)), "number": np.arange(40), "k": [1] * 40})
    right = pa.table({"u": YEAR_2024 + np.sort(random.integers(0, 90_000, 30)), "row": np.arange(30), "k": [1] * 30})
    inputs = {"left": (left,), "right": (right,)}

    def rows(of_left: dict[str, Any], of_right: dict[str, Any]) -> Counter[Row]:
        query = AsofJoin(
            left_time=from_clock("t", jitter=900, tolerance=0.01, **of_left),
            right_time=from_clock("u", jitter=700, tolerance=0.01, **of_right),
            on="k", direction=direction, confidence=0.1, keep="all",
        )  # fmt: skip
        return multiset.rows(engine.run(query, inputs).output, ANSWER)

    found, expected = rows(*CLOCKS[clocks][:2]), rows(*CLOCKS[clocks][2:])
    assert expected.total() >= 40
    multiset.assert_same(found, expected, f"rows of {clocks}")
    if clocks == "either side":
        assert found != rows(*CLOCKS["one clock"][2:])
