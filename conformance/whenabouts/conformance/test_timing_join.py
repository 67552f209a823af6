"""Laws of the timing join on finite inputs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from whenabouts.conformance import case_tables, expectations, multiset
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core.harness import LocalHarness, Variant
from whenabouts.core.timing_join.settings import STRATEGIES

DATASETS = tuple(case_tables.PROFILES)
BY_ALL = (
    "ties", "wide", "narrow", "certain", "point and interval", "malformed",
    "histograms", "histogram and interval", "ties of histograms", "narrow histograms", "certain histograms",
    "few lengths",
)  # fmt: skip
"""Datasets on which every strategy runs. On the others they take turns, because some engines start jobs slowly."""

OTHERS = [name for name in DATASETS if name not in BY_ALL]
TURN = {name: STRATEGIES[1 + at % 5] for at, name in enumerate([*OTHERS, *BY_ALL])}
DISSIMILAR = {
    ("histograms",), ("histograms", "auto"), ("histograms", "eager"), ("narrow histograms", "lazy_lookup"),
}  # fmt: skip
"""Cases with histograms that run everywhere; the others are similar to them."""


def _case(*case: str) -> Any:
    dataset, *strategy = case
    if dataset in (*case_tables.HISTOGRAMS, "few lengths"):
        similar = case not in DISSIMILAR
    else:
        similar = dataset != "ties" and not {"auto", TURN[dataset]}.issuperset(strategy)
    return pytest.param(*case, marks=[pytest.mark.similar] if similar else [])


EACH_CASE = pytest.mark.parametrize(
    ("dataset", "strategy"),
    [
        *(_case(name, s) for name in BY_ALL for s in STRATEGIES),
        *(_case(name, s) for name in OTHERS for s in ("auto", TURN[name])),
    ],
)
EACH_SHEET = pytest.mark.parametrize("dataset", [_case(name) for name in DATASETS])

ACCURACY = Fraction(1, 10**12)


@EACH_CASE
def test_oracle_pairs(engine: Engine, dataset: str, strategy: str) -> None:
    """The pairs are those of brute force over exact rationals, with their multiplicity and all columns."""
    query = case_tables.with_strategy(case_tables.dataset(dataset).query, strategy)
    outcome = engine.run(query, case_tables.finite(dataset))
    _, answer = expectations.of_dataset(dataset)
    multiset.assert_same(expectations.join_rows(outcome), answer.rows, "pairs", {"query": query})


@EACH_SHEET
def test_oracle_columns(engine: Engine, dataset: str) -> None:
    """Columns come in the promised order with the types of the inputs, on finite inputs and on streams."""
    query, tables = case_tables.dataset(dataset).query, case_tables.dataset(dataset).tables
    finite = engine.run(query, case_tables.finite(dataset))
    expected = expectations.output_schema(query, tables, streaming=False)
    multiset.assert_same_columns(finite.output.schema, expected, "a finite join")


@EACH_SHEET
def test_differential_lower_confidence(engine: Engine, dataset: str) -> None:
    """A lower confidence keeps every pair, its probability to the last bit, and adds pairs."""
    query = case_tables.dataset(dataset).query
    lower = replace(query, condition=replace(query.condition, confidence=query.condition.confidence / 2))
    pairs = expectations.join_rows(engine.run(query, case_tables.finite(dataset)))
    more = expectations.join_rows(engine.run(lower, case_tables.finite(dataset)))
    multiset.assert_same(pairs & more, pairs, "pairs that a lower confidence keeps", {"query": query})


@EACH_SHEET
def test_oracle_probability(engine: Engine, dataset: str) -> None:
    """Every probability is within 1e-12 of the exact one, the nearest double for small numbers, 1 only if certain."""
    outcome = engine.run(case_tables.dataset(dataset).query, case_tables.finite(dataset))
    _, answer = expectations.of_dataset(dataset)
    names = [name for name in outcome.output.column_names if name not in expectations.COMPUTED]
    keys = zip(*(multiset.cells(outcome.output.column(name)) for name in names), strict=True)
    values = outcome.output.column("probability").to_pylist()
    assert values, "the dataset has no pair"
    for row, value in zip(keys, values, strict=True):
        p = answer.probability[row]
        assert abs(Fraction(value) - p.exact) <= ACCURACY, f"{value!r} is not {p.exact} for {row}"
        assert (value == 1.0) == (p.exact == 1), f"{value!r} for {p.exact}"
        assert value > 0.0
        if p.small:
            assert value == p.nearest, f"{value!r} is not the double nearest to {p.exact} for {row}"


@EACH_CASE
def test_differential_strategies(engine: Engine, dataset: str, strategy: str) -> None:
    """A strategy gives the rows of `auto`, to the last bit of the probability; `auto` those of another one."""
    query, files = case_tables.dataset(dataset).query, case_tables.finite(dataset)
    other = "auto" if strategy != "auto" else TURN[dataset]
    actual = engine.run(case_tables.with_strategy(query, strategy), files).output
    expected = engine.run(case_tables.with_strategy(query, other), files).output
    multiset.assert_same(multiset.rows(actual), multiset.rows(expected), f"{strategy} against {other}")


@pytest.mark.hosting
@pytest.mark.parametrize(
    "dataset",
    fewer_on_slow_engines(
        ["ties", "wide", "certain", "malformed", "histograms", "malformed histograms"], ["malformed"]
    ),
)
def test_differential_parallelism(engine: Engine, dataset: str) -> None:
    """Three buckets give the rows and the rejects of one."""
    query, files = case_tables.dataset(dataset).query, case_tables.finite(dataset)
    one, many = engine.run(query, files), engine.run(query, files, Variant(parallelism=3))
    multiset.assert_same(multiset.rows(many.output), multiset.rows(one.output), "3 buckets against 1", {"query": query})
    multiset.assert_same(multiset.rows(many.rejects), multiset.rows(one.rejects), "rejects of 3 buckets against 1")


@pytest.mark.parametrize(
    ("dataset", "files", "seed"),
    [
        ("ties", 5, 1),
        ("certain", 3, 2),
        ("malformed", 4, 3),
        ("ties of histograms", 5, 4),
        ("malformed histograms", 4, 5),
    ],
)
def test_differential_files(engine: Engine, dataset: str, files: int, seed: int) -> None:
    """Rows in another order, split into other files (some empty), give the same rows and rejects."""
    query = case_tables.with_strategy(case_tables.dataset(dataset).query, "lazy_lookup")
    whole, cut = (
        engine.run(query, case_tables.finite(dataset)),
        engine.run(query, case_tables.finite(dataset, files, seed)),
    )
    multiset.assert_same(multiset.rows(cut.output), multiset.rows(whole.output), f"{files} files", {"query": query})
    multiset.assert_same(multiset.rows(cut.rejects), multiset.rows(whole.rejects), f"rejects of {files} files")


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    [("ties", "lazy"), ("realistic", "auto"), ("narrow", "eager"), ("ties of histograms", "auto")],
)
def test_differential_engines(engine: Engine, dataset: str, strategy: str) -> None:
    """The rows are the local engine's under another strategy, to the last bit of the probability."""
    query, files = case_tables.dataset(dataset).query, case_tables.finite(dataset)
    reference = LocalHarness().open(case_tables.with_strategy(query, "ssort"), Variant(parallelism=2))
    for name, tables in files.items():
        reference.source(name, tables)
    expected = reference.collect().output
    actual = engine.run(case_tables.with_strategy(query, strategy), files).output
    multiset.assert_same(multiset.rows(actual), multiset.rows(expected), f"{engine.name} against local")


@pytest.mark.hosting
@pytest.mark.parametrize(
    ("empty", "streaming"),
    fewer_on_slow_engines([(empty, s) for empty in ("left", "right", "both") for s in (False, True)], [("left", True)]),
)
def test_oracle_empty_inputs(engine: Engine, empty: str, streaming: bool) -> None:
    """An empty side gives no pair but all columns; the rows of the other side are processed."""
    query, tables = case_tables.dataset("ties").query, case_tables.dataset("ties").tables
    files = {side: (table.slice(0, 0) if empty in (side, "both") else table,) for side, table in tables.items()}
    outcome = engine.run(query, files, Variant(streaming=streaming))
    expected = expectations.output_schema(query, tables, streaming=streaming)
    multiset.assert_same_columns(outcome.output.schema, expected, "the columns of no rows")
    assert outcome.output.num_rows == 0
    assert outcome.rejects.num_rows == 0
    assert outcome.metrics["rows_processed"] == sum(table.num_rows for (table,) in files.values())


def test_oracle_without_probability(engine: Engine) -> None:
    """`probability=False` leaves the column out and changes nothing else."""
    source = case_tables.dataset("ties")
    query = case_tables.with_strategy(source.query, "auto", probability=False)
    outcome = engine.run(query, case_tables.finite("ties"))
    expected = expectations.output_schema(query, source.tables, streaming=False)
    multiset.assert_same_columns(outcome.output.schema, expected, "columns without probability")
    _, answer = expectations.of_dataset("ties")
    multiset.assert_same(multiset.rows(outcome.output), answer.rows, "pairs without probability")
