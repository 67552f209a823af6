"""`timing_join(pairs="ranges")`: the same pairs, and the same numbers about them, as ranges of ordered right rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.conformance import case_tables, multiset
from whenabouts.conformance.test_join_aggregate import DECIDED, SHEETS, files_of, query_of
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.hosting.engine import Engine
from whenabouts.core.local import run
from whenabouts.core.operations import Operations

POINTS: dict[str, Any] = {
    "left_time": wa.Point("t"), "right_time": wa.Point("t"), "condition": wa.within(2, confidence=1)
}  # fmt: skip
LEFT = pa.table({"k": ["a", None, "a", "b"], "t": [10, 10, 30, 11], "who": [1, 2, 3, 4]})
RIGHT = pa.table({"k": ["a", "a", "b", None, "a"], "t": [12, 9, 10, 10, None], "v": [1, 2, 3, 4, 5]})


@pytest.mark.slow
@pytest.mark.parametrize("dataset", SHEETS)
def test_the_pairs_and_the_numbers_are_those_of_the_operations(dataset: str) -> None:
    """Over all kinds of times, keys, nulls and unusable rows: the same pairs, numbers and rejects, to the last bit."""
    source = case_tables.dataset(dataset).query
    sides = [pa.concat_tables(files) for files in files_of(dataset, cases=60).values()]
    options = {name: getattr(source, name) for name in ("left_time", "right_time", "condition", "on")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranges = wa.timing_join(*sides, **options, pairs="ranges")
        rows = wa.timing_join(*sides, **options)
    multiset.assert_same(multiset.rows(ranges.pairs()), multiset.rows(rows), "pairs")
    assert ranges.pairs().schema == rows.schema
    multiset.assert_same(multiset.rows(ranges.rejects), multiset.rows(wa.rejects(rows)), "rejects")
    assert len(ranges) == rows.num_rows == sum(ranges.counts.to_pylist())
    for how in ("left_outer", "inner"):
        query = query_of(dataset, DECIDED, how=how)
        want = run(query, sides).output
        found = ranges.aggregate({each.name: (each.function, each.argument) for each in query.aggregates}, how=how)
        multiset.assert_same(multiset.rows(found), multiset.rows(want), how)
        assert found.schema == want.schema


def test_the_columns_point_to_right_rows() -> None:
    """A program of its own can walk the ranges: the pairs are `start` to `stop`, and what `more` lists."""
    times = {"left_time": wa.Interval("a", "b"), "right_time": wa.Interval("a", "b")}
    draw = np.random.default_rng(3)
    sides = []
    for n in (40, 300):
        a = draw.integers(0, 1000, n)
        sides.append(pa.table({"a": a, "b": a + draw.integers(0, 60, n), "n": np.arange(n)}))
    condition = wa.within(90, confidence=0.7)
    ranges = wa.timing_join(*sides, **times, condition=condition, pairs="ranges")
    found = set()
    numbers = ranges.right["n"].to_pylist()
    for left, start, stop, more in zip(
        ranges.left["n"].to_pylist(), ranges.start.to_pylist(), ranges.stop.to_pylist(), ranges.more.to_pylist(),
        strict=True,
    ):  # fmt: skip
        found |= {(left, numbers[at]) for at in [*range(start, stop), *more]}
    want = wa.timing_join(*sides, **times, condition=condition)
    assert found == set(zip(want["n_left"].to_pylist(), want["n_right"].to_pylist(), strict=True))
    assert any(more for more in ranges.more.to_pylist())
    assert any(stop - start for start, stop in zip(ranges.start.to_pylist(), ranges.stop.to_pylist(), strict=True))


def test_rows_without_a_key_or_a_time() -> None:
    with pytest.warns(wa.RejectedRowsWarning, match="its rejects"):
        ranges = wa.timing_join(LEFT, RIGHT, on="k", **POINTS, pairs="ranges")
    assert ranges.left["who"].to_pylist() == [1, 2, 3, 4]
    assert ranges.right["v"].to_pylist() == [2, 1, 3]
    assert ranges.start.to_pylist()[1] == ranges.stop.to_pylist()[1]
    assert ranges.counts.to_pylist() == [2, 0, 0, 1]
    assert ranges.rejects["v"].to_pylist() == [5]


def test_frames_come_in_the_kind_of_the_left_one() -> None:
    ranges = wa.timing_join(pl.from_arrow(LEFT), pl.from_arrow(RIGHT.slice(0, 4)), on="k", **POINTS, pairs="ranges")
    frames = [ranges.left, ranges.right, ranges.rejects, ranges.pairs(), ranges.aggregate({"n": "count"})]
    assert [type(frame) for frame in frames] == [pl.DataFrame] * 5


def test_no_rows() -> None:
    ranges = wa.timing_join(LEFT.slice(0, 0), RIGHT.slice(0, 0), on="k", **POINTS, pairs="ranges")
    assert len(ranges) == ranges.pairs().num_rows == ranges.aggregate({"n": "count"}).num_rows == 0


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"how": "left_anti"}, "how='left_anti'"),
        ({"best": "left"}, "best='left'"),
        ({"where": "left.who > right.v"}, "where="),
        ({"strategy": "lazy"}, "strategy='lazy'"),
        ({"deduplicate_by": "t"}, "deduplicate_by"),
        ({"pairs": "lists"}, "pairs"),
    ],
)
def test_what_needs_the_pairs_one_by_one_is_refused(more: dict[str, Any], match: str) -> None:
    with pytest.raises(QueryError, match=match) as raised:
        wa.timing_join(LEFT, RIGHT, **(POINTS | {"pairs": "ranges"} | more))
    assert raised.value.code is Code.BAD_OPTION


def test_chance_functions_are_refused() -> None:
    ranges = wa.timing_join(LEFT, RIGHT.slice(0, 4), on="k", **POINTS, pairs="ranges")
    with pytest.raises(QueryError, match="p_none looks at right rows that are possible") as raised:
        ranges.aggregate({"nobody": "p_none"})
    assert raised.value.code is Code.BAD_OPTION


def test_pairs_that_do_not_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges of a hundred million pairs are small; only the pairs themselves are refused."""
    monkeypatch.setenv("WHENABOUTS_OUTPUT_MEMORY", "200")
    side = pa.table({"t": np.arange(10_000)})
    ranges = wa.timing_join(side, side, **(POINTS | {"condition": wa.within(20_000, confidence=1)}), pairs="ranges")
    assert len(ranges) == 100_000_000
    with pytest.raises(QueryError, match="WA-2201"):
        ranges.pairs()


def test_an_engine_refuses() -> None:
    elsewhere = Engine("an engine", "somewhere", (pa.Table,), "", lambda *_: None, lambda _: None, {})
    with pytest.raises(QueryError, match="an engine does not support pairs='ranges'") as raised:
        Operations(elsewhere).timing_join(LEFT, RIGHT, **POINTS, pairs="ranges")
    assert raised.value.code is Code.NOT_AVAILABLE
