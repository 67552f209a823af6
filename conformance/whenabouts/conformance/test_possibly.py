"""Laws of `possibly` and `overlaps`: pairs that can meet a condition at all, touching ends included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, reject
from hypothesis import strategies as st

from whenabouts.conformance import (
    case_tables,
    expectations,
    generators,
    join_modes_oracle,
    multiset,
    window_join_case_tables,
    window_join_oracle,
)
from whenabouts.conformance.case_tables import SECOND
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.generators import Example
from whenabouts.conformance.join_modes_oracle import ExpectedRow
from whenabouts.conformance.multiset import Row
from whenabouts.conformance.oracle import AmbiguousPairError
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core import overlaps, possibly, within
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

STREAM = Variant(streaming=True)
ACCURACY = Fraction(1, 10**12)

DATASETS = (
    "ties", "microseconds", "wide", "narrow", "points", "point and interval", "histograms", "narrow ties of histograms",
    "histogram and interval", "point and histogram", "few lengths", "before 1970", "malformed",
)  # fmt: skip
"""Of intervals, some of length 0, of points, and of histograms with holes; on a grid, so that many ends touch. Where
the grid is of microseconds, exact times lie next to the ends of the window."""

FINITE = ("one-sided", "one-sided histograms")
MODES: dict[str, dict[str, Any]] = {
    "inner": {},
    "full_outer": {"how": "full_outer"},
    "left_semi": {"how": "left_semi"},
    "left_anti": {"how": "left_anti"},
    "left_outer best left": {"how": "left_outer", "best": "left"},
    "full_outer best both": {"how": "full_outer", "best": "both"},
}
UNEVEN = ("histograms", "histogram and interval", "point and histogram")
"""Which of two equal probabilities is greater depends on the kernel's rounding here: no `best`."""

_TURNS = [
    (name, list(MODES)[(n + shift) % (4 if name in UNEVEN else 6)])
    for n, name in enumerate(DATASETS)
    for shift in (0, 3)
]


def _query(dataset: str, mode: str, **options: Any) -> TimingJoin:
    query = case_tables.dataset(dataset).query
    return replace(query, condition=possibly(query.condition), **MODES[mode], **options)


def _answer(query: TimingJoin, tables: Mapping[str, pa.Table]) -> list[ExpectedRow]:
    schemas = {side: table.schema for side, table in tables.items()}
    return join_modes_oracle.results(query, schemas, expectations.read(query, tables).events)


@lru_cache
def _expected(dataset: str, mode: str) -> list[ExpectedRow]:
    return _answer(_query(dataset, mode), case_tables.dataset(dataset).tables)


def _same(outcome: Outcome, expected: list[ExpectedRow], query: TimingJoin, *, timed: bool = False) -> None:
    """The rows, and on streams their instants; then the probability of each row, which may be 0."""
    __tracebackhide__ = True
    output, times = outcome.output, ["event_time"] if timed else []
    names = [name for name in output.column_names if name not in expectations.COMPUTED]
    wanted: Counter[Row] = Counter((*result.row, *([result.at_us] if timed else [])) for result in expected)
    multiset.assert_same(multiset.rows(output, [*names, *times]), wanted, "rows", {"query": query})
    if "probability" not in output.column_names:
        return
    exact: dict[Row, set[Fraction | None]] = {}
    for result in expected:
        exact.setdefault(result.row, set()).add(None if result.p is None else result.p.exact)
    rows = zip(*(multiset.cells(output.column(name)) for name in names), strict=True)
    for row, value in zip(rows, output.column("probability").to_pylist(), strict=True):
        assert any((p is None) == (value is None) and (p is None or _near(value, p)) for p in exact[row]), row


def _near(value: float, p: Fraction) -> bool:
    return (value == 0) == (p == 0) and abs(Fraction(value) - p) <= ACCURACY


@pytest.mark.parametrize(
    ("dataset", "mode"),
    fewer_on_slow_engines([*_TURNS, *((name, "left_anti") for name in FINITE)], [("ties", "inner")]),
)
def test_oracle_possibly(engine: Engine, dataset: str, mode: str) -> None:
    """A pair is kept if and only if its supports, ends included, admit the condition; its probability may be 0."""
    query = _query(dataset, mode)
    _same(engine.run(query, case_tables.finite(dataset)), _expected(dataset, mode), query)


@pytest.mark.parametrize(("dataset", "mode"), fewer_on_slow_engines(_TURNS, [("ties", "left_anti")]))
def test_oracle_possibly_on_streams(engine: Engine, dataset: str, mode: str) -> None:
    """On a stream the rows are the same, each final at the first instant at which no row can touch it any more."""
    query = _query(dataset, mode)
    _same(engine.run(query, case_tables.stream(dataset), STREAM), _expected(dataset, mode), query, timed=True)


@pytest.mark.parametrize(
    ("strategy", "dataset"),
    fewer_on_slow_engines(
        [(each, name) for each in STRATEGIES[1:] for name in ("ties", "point and interval", "histograms")],
        [("lazy_lookup", "ties")],
    ),
)
def test_differential_possibly_of_strategies(engine: Engine, strategy: str, dataset: str) -> None:
    """Every strategy keeps the same pairs."""
    for mode in ("inner", "left_semi"):
        query = _query(dataset, mode, strategy=strategy, block_size=40)
        _same(engine.run(query, case_tables.finite(dataset)), _expected(dataset, mode), query)
        _same(engine.run(query, case_tables.stream(dataset), STREAM), _expected(dataset, mode), query)


def test_oracle_touching_ends(engine: Engine) -> None:
    """`overlaps` keeps times that share one instant, with probability 0 unless both are that instant.

    left    [---0---]         [=1=]   2       3
    right           [---a---]         b    c
    """
    left = pa.table({"t_min": [0, 20, 40, 50], "t_max": [10, 25, 40, 50], "id": [0, 1, 2, 3]})
    right = pa.table({"t_min": [10, 40, 49], "t_max": [18, 40, 49], "name": ["a", "b", "c"]})
    source = case_tables.dataset("ties").query
    query = TimingJoin(left_time=source.left_time, right_time=source.right_time, condition=overlaps())
    found = engine.run(query, {"left": (left,), "right": (right,)}).output
    assert sorted(zip(*(found[name].to_pylist() for name in ("id", "name", "probability")), strict=True)) == [
        (0, "a", 0.0),
        (2, "b", 1.0),
    ]


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    fewer_on_slow_engines(
        [("uncertain path", "backward"), ("uncertain clique", "forward"), ("path", "backward")],
        [("uncertain clique", "forward")],
    ),
)
def test_oracle_possible_windows(engine: Engine, dataset: str, strategy: str) -> None:
    """Combinations within windows of `possibly` are those of brute force, on finite input and on streams."""
    source = window_join_case_tables.dataset(dataset)
    windows = tuple(replace(edge, confidence=possibly(within(0)).confidence) for edge in source.query.edges)
    query = replace(source.query, windows=windows, strategy=strategy)
    answer = window_join_oracle.answer(query, source.tables, window_join_case_tables.read(query, source.tables).events)
    assert answer.rows
    for files, variant in ((window_join_case_tables.finite, Variant()), (window_join_case_tables.stream, STREAM)):
        outcome = engine.run(query, files(dataset), variant)
        multiset.assert_same(
            window_join_case_tables.rows_of(outcome, query), answer.rows, "combinations", {"query": query}
        )


def _possible(data: st.DataObject, example: Example) -> tuple[Example, list[ExpectedRow]]:
    mode = data.draw(st.sampled_from(sorted(MODES)))
    event(mode)
    query = replace(example.query, condition=possibly(example.query.condition), **MODES[mode])
    try:
        return example._replace(query=query), _answer(query, example.tables)
    except AmbiguousPairError:
        reject()


def test_oracle_possibly_of_any_tables(engine: Engine) -> None:
    """For any small tables, any query and any mode the rows are those of brute force."""

    @generators.examples(engine.seconds_per_run(Variant()))
    @given(st.data(), generators.joins(), st.integers(1, 3))
    def law(data: st.DataObject, example: Example, parallelism: int) -> None:
        example, expected = _possible(data, example)
        files = {side: (table,) for side, table in example.tables.items()}
        outcome = engine.run(example.query, files, Variant(parallelism=parallelism), remember=False)
        _same(outcome, expected, example.query)

    law()


def test_oracle_possibly_of_any_streams(engine: Engine) -> None:
    """For any small streams, restarted anywhere, in any mode, rows and their instants equal those of brute force."""

    @generators.examples(engine.seconds_per_run(STREAM))
    @given(st.data(), generators.joins(units=(1, SECOND), finite=False))
    def law(data: st.DataObject, example: Example) -> None:
        example, expected = _possible(data, example)
        files = data.draw(generators.arrivals(example))
        restart = data.draw(st.none() | st.integers(0, max(map(len, files.values())) - 1))
        outcome = engine.run(example.query, files, Variant(streaming=True, restart_after=restart), remember=False)
        _same(outcome, expected, example.query, timed=True)

    law()
