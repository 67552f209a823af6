"""Laws of the as-of join: for each left row the right row that prevails at its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.conformance import asof_join_oracle, case_tables, expectations, multiset
from whenabouts.conformance.case_tables import SECOND, Files
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import Interval, Point
from whenabouts.core.asof_join.query import AsofJoin
from whenabouts.core.asof_join.settings import DIRECTIONS, HOWS
from whenabouts.core.harness import Variant

POINTS = "points"
"""Dataset of exact times: few instants, rows that repeat, keys with nulls, other columns with nulls in them."""

_OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    " strict": {"allow_exact_matches": False, "order_by": "small"},
    " tolerance": {"tolerance": 2 * SECOND, "order_by": ("day", "price")},
    " strict tolerance 0": {"tolerance": 0, "allow_exact_matches": False},
}
OPTIONS = {
    direction + name: {"direction": direction, **options}
    for direction in DIRECTIONS
    for name, options in _OPTIONS.items()
}
FEW = ("backward", "forward tolerance", "nearest strict")


def query_of(options: str, **more: Any) -> AsofJoin:
    """An as-of join over the dataset of points."""
    on = case_tables.dataset(POINTS).query.on
    return AsofJoin(**({"left_time": Point("t"), "right_time": Point("t"), "on": on} | OPTIONS[options] | more))


@lru_cache
def tables() -> Mapping[str, pa.Table]:
    """The dataset."""
    return case_tables.dataset(POINTS).tables


CASES = [(options, how) for options in OPTIONS for how in HOWS]


@pytest.mark.parametrize(
    ("options", "how"),
    fewer_on_slow_engines(
        CASES, [("backward", "left_outer"), ("nearest tolerance", "inner"), ("forward", "left_anti")]
    ),
)
def test_oracle_asof_points(engine: Engine, options: str, how: str) -> None:
    """Exact times: each left row has the right row of brute force, whatever the order of the rows."""
    query = query_of(options, how=how)
    outcome = engine.run(query, case_tables.finite(POINTS, 2), Variant(parallelism=2))
    multiset.assert_same(
        multiset.rows(outcome.output), asof_join_oracle.rows(query, tables()), "rows", {"query": query}
    )
    assert outcome.metrics["matched"] == outcome.output.num_rows


@pytest.mark.parametrize("options", fewer_on_slow_engines(OPTIONS, ()))
def test_differential_asof_buckets(engine: Engine, options: str) -> None:
    """The rows are those of one bucket in four and sixteen of them, for rows in any order, in any number of files."""
    query = query_of(options)
    expected = multiset.rows(engine.run(query, case_tables.finite(POINTS)).output)
    for parallelism, files in ((4, 3), (16, 1)):
        outcome = engine.run(query, case_tables.finite(POINTS, files, seed=files), Variant(parallelism=parallelism))
        multiset.assert_same(multiset.rows(outcome.output), expected, f"{parallelism} buckets", {"query": query})


@pytest.mark.parametrize("options", fewer_on_slow_engines([name for name in OPTIONS if "tolerance" in name], ()))
def test_differential_asof_time_slots(engine: Engine, options: str) -> None:
    """Spread over four buckets by time, with a key and without, the rows are those of one bucket; rows count once."""
    for on in (case_tables.dataset(POINTS).query.on, None):
        query = query_of(options, on=on)
        expected = multiset.rows(engine.run(query, case_tables.finite(POINTS)).output)
        for width in (SECOND, 40 * SECOND):
            slotted = replace(query, time_slots=width)
            outcome = engine.run(slotted, case_tables.finite(POINTS), Variant(parallelism=4))
            multiset.assert_same(multiset.rows(outcome.output), expected, "rows in slots", {"query": slotted})
            assert outcome.metrics["rows_in"] == sum(table.num_rows for table in tables().values())
            assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]


def _as_intervals(files: Mapping[str, Files]) -> dict[str, Files]:
    return {side: tuple(table.append_column("until", table["t"]) for table in of) for side, of in files.items()}


@pytest.mark.parametrize("options", fewer_on_slow_engines(OPTIONS, ()))
def test_differential_asof_intervals_of_no_length(engine: Engine, options: str) -> None:
    """Intervals that end where they begin give the rows of points, at any confidence."""
    query = query_of(options)
    expected = multiset.rows(engine.run(query, case_tables.finite(POINTS)).output)
    interval = Interval("t", "until", max_uncertainty="1 s")
    for confidence in (1e-9, 1.0):
        same = replace(query, left_time=interval, right_time=interval, confidence=confidence)
        outcome = engine.run(same, _as_intervals(case_tables.finite(POINTS)), Variant(parallelism=2))
        output = outcome.output.select([name for name in outcome.output.column_names if not name.startswith("until")])
        multiset.assert_same(multiset.rows(output), expected, "rows of intervals", {"query": same})


@pytest.mark.parametrize("options", fewer_on_slow_engines(OPTIONS, FEW))
def test_differential_asof_anti(engine: Engine, options: str) -> None:
    """`left_anti` gives the left rows whose `none_probability` in `left_outer` reaches the confidence."""
    files = case_tables.finite(POINTS)
    whole = engine.run(query_of(options), files).output
    alone = engine.run(query_of(options, how="left_anti"), files).output
    names = [name + "_left" if name + "_left" in whole.column_names else name for name in tables()["left"].column_names]
    names.append("none_probability")
    kept = whole.filter(pc.greater_equal(whole["none_probability"], 1.0)).select(names)
    multiset.assert_same(multiset.rows(alone), multiset.rows(kept), "left rows without a partner")


@pytest.mark.parametrize("how", fewer_on_slow_engines(HOWS, ("left_outer",)))
def test_oracle_asof_accounting(engine: Engine, how: str) -> None:
    """Malformed rows of both sides are rejected with their code; rows in = rows processed + rows rejected."""
    source = case_tables.dataset("malformed")
    query = AsofJoin(left_time=Point("t_max"), right_time=Point("t_max"), on=source.query.on, how=how)
    outcome = engine.run(query, case_tables.finite("malformed"), Variant(parallelism=2))
    _, refused = asof_join_oracle.read(query, source.tables)
    expected = asof_join_oracle.rows(query, source.tables)
    multiset.assert_same(multiset.rows(outcome.output), expected, "rows", {"query": query})
    whole = expectations.whole(case_tables.finite("malformed"))
    assert outcome.rejects.num_rows == outcome.metrics["rows_rejected"] == refused > 0
    assert outcome.metrics["rows_in"] == sum(table.num_rows for table in whole.values())
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]
