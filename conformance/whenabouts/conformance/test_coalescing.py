"""Laws of coalescing: both schemes, every window and slide, batch and stream."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from whenabouts.conformance import coalescing_case_tables, generators, multiset
from whenabouts.conformance.case_tables import SECOND
from whenabouts.conformance.change_rows import applied
from whenabouts.conformance.coalescing_answers import CoalescingAnswer, answer
from whenabouts.conformance.coalescing_case_tables import QUERIES, TEMPORAL
from whenabouts.conformance.coalescing_generators import CoalescingExample, arrivals, coalescings
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core.coalescing.columns import OP
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome, run

VARIANTS = {
    "batch": Variant(),
    "batch, 3 buckets": Variant(parallelism=3),
    "stream": Variant(streaming=True),
    "stream, 3 buckets, restarted": Variant(streaming=True, parallelism=3, restart_after=2),
}
similar = pytest.mark.similar
pytestmark = pytest.mark.filterwarnings("ignore::whenabouts.core.SingleBucketWarning")
"""Windows of rows of all groups are among the queries."""


@lru_cache
def _answer(query: str) -> CoalescingAnswer:
    return answer(QUERIES[query], coalescing_case_tables.readings())


def _run(engine: Engine, query: str, variant: str) -> Outcome:
    how = VARIANTS[variant]
    files = coalescing_case_tables.stream() if how.streaming else coalescing_case_tables.finite()
    return engine.run(QUERIES[query], files, how)


@pytest.mark.parametrize(
    ("query", "variant"),
    fewer_on_slow_engines(
        [(query, variant) for query in QUERIES for variant in VARIANTS],
        kept=[("all", "batch"), ("slides", "batch, 3 buckets")],
        canary=("slides", "stream, 3 buckets, restarted"),
    ),
)
def test_oracle_coalescing(engine: Engine, query: str, variant: str) -> None:
    """Coalesced tuples equal those computed from scratch, for every scheme, window and slide; every row is counted."""
    expected, outcome = _answer(query), _run(engine, query, variant)
    multiset.assert_same(multiset.rows(outcome.output), expected.rows, "coalesced tuples", {"query": QUERIES[query]})
    rejects = multiset.rows(outcome.rejects, ["code", *coalescing_case_tables.readings().column_names])
    multiset.assert_same(rejects, expected.rejects, "rejects")
    counts, rows_in = outcome.metrics, coalescing_case_tables.readings().num_rows
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"] + counts["rows_replayed"]
    assert counts["rows_in"] >= rows_in
    if VARIANTS[variant].restart_after is None:
        assert (counts["rows_in"], counts["rows_replayed"]) == (rows_in, expected.replayed)


@pytest.mark.parametrize(
    ("query", "variant"),
    fewer_on_slow_engines(
        [(query, variant) for query in QUERIES for variant in ("batch", "stream, 3 buckets, restarted")],
        kept=[("all", "stream, 3 buckets, restarted")],
    ),
)
def test_oracle_last_reading(engine: Engine, query: str, variant: str) -> None:
    """With `valid_last` each coalesced tuple has the time of its last reading, under every scheme, window and slide."""
    how, asked = VARIANTS[variant], replace(QUERIES[query], valid_last=True)
    files = coalescing_case_tables.stream() if how.streaming else coalescing_case_tables.finite()
    expected = answer(asked, coalescing_case_tables.readings())
    multiset.assert_same(multiset.rows(engine.run(asked, files, how).output), expected.rows, "tuples", {"query": asked})


EARLY = [name for name, query in QUERIES.items() if query.scheme != "lazy" and query.extents.slide_rows is None]


@pytest.mark.parametrize(
    ("query", "variant"),
    fewer_on_slow_engines(
        [(query, variant) for query in EARLY for variant in VARIANTS],
        kept=[(query, "stream, 3 buckets, restarted") for query in ("all", "slides")],
    ),
)
def test_oracle_early_answers(engine: Engine, query: str, variant: str) -> None:
    """Early answers, each change applied, become the rows from scratch; the same rows are rejected as without them."""
    how, early = VARIANTS[variant], replace(QUERIES[query], emit="early", scheme="auto")
    files = coalescing_case_tables.stream() if how.streaming else coalescing_case_tables.finite()
    expected, outcome = _answer(query), engine.run(early, files, how)
    multiset.assert_same(applied(outcome.output), expected.rows, "coalesced tuples", {"query": early})
    rejects = multiset.rows(outcome.rejects, ["code", *coalescing_case_tables.readings().column_names])
    multiset.assert_same(rejects, expected.rejects, "rejects")
    counts = outcome.metrics
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"] + counts["rows_replayed"]
    if query == "slides" and how.streaming:
        assert outcome.output.num_rows > expected.rows.total(), "rows out of order correct early answers"


@pytest.mark.parametrize(("files", "seed"), [pytest.param(1, 1, marks=similar), (8, 2)])
def test_differential_coalescing_of_arrival_orders(engine: Engine, files: int, seed: int) -> None:
    """Another order of arrival within the lateness, split into other files, gives the same extents and rejects."""
    for query in ("slides", "rows of each group"):
        usual, other = (
            engine.run(QUERIES[query], coalescing_case_tables.stream(*how), Variant(streaming=True))
            for how in ((), (files, seed))
        )
        multiset.assert_same(multiset.rows(other.output), multiset.rows(usual.output), f"{query} of {files} files")
        multiset.assert_same(multiset.rows(other.rejects), multiset.rows(usual.rejects), f"rejects of {files} files")


@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        ("aggregate", "batch, 3 buckets"),
        ("join", "batch, 3 buckets"),
        pytest.param("aggregate", "stream, 3 buckets, restarted", marks=similar),
        pytest.param("join", "stream, 3 buckets, restarted", marks=pytest.mark.canary),
        pytest.param("join of rows", "batch, 3 buckets", marks=similar),
        pytest.param("join of rows", "stream, 3 buckets, restarted", marks=similar),
    ],
)
def test_differential_temporal_queries(engine: Engine, kind: str, variant: str) -> None:
    """Temporal joins and aggregates give the local engine's rows, for any buckets, files and restarts."""
    query, how = TEMPORAL[kind], VARIANTS[variant]
    files = (coalescing_case_tables.stream() if how.streaming else coalescing_case_tables.finite())["events"]
    outcome = engine.run(query, dict.fromkeys(query.inputs, files), how)
    want = run(query, [coalescing_case_tables.readings()] * len(query.inputs)).output
    assert want.num_rows > 100
    multiset.assert_same(multiset.rows(outcome.output), multiset.rows(want), kind, {"query": query})


@pytest.mark.parametrize("query", fewer_on_slow_engines(["all", "slides", "rows"], ["slides"]))
def test_oracle_schemes(engine: Engine, query: str) -> None:
    """Eager stores runs and compares a tuple once; lazy stores tuples and compares them at each evaluation."""
    how = Variant(streaming=True)
    eager, lazy = (
        engine.run(replace(QUERIES[query], scheme=scheme), coalescing_case_tables.stream(8), how).metrics
        for scheme in ("eager", "lazy")
    )
    held = [counts["rows_stored"] - counts["rows_evicted"] for counts in (eager, lazy)]
    assert 0 < held[0] < held[1]
    if query != "all":  # where each look takes in what the ones before did
        assert eager["compared"] < lazy["compared"]


@pytest.mark.parametrize("query", fewer_on_slow_engines(["all", "slides", "slides, lazy"], ["slides"]))
def test_oracle_bounded_state_of_coalescing(engine: Engine, query: str) -> None:
    """Tuples that no later extent can hold leave the state while the stream continues."""
    counts = engine.run(QUERIES[query], coalescing_case_tables.stream(8, 2), Variant(streaming=True)).metrics
    assert 0 < counts["rows_stored"] - counts["rows_evicted"] <= 0.6 * counts["rows_processed"]


def _keeps(example: CoalescingExample, outcome: Outcome) -> None:
    """The rows are those from scratch, bad rows are rejected under their codes, and every row is accounted for."""
    __tracebackhide__ = True
    expected = answer(example.query, example.table)
    event("runs" if expected.rows else "no run")
    context = {"query": example.query, "table": example.table.to_pylist()}
    rows = applied if OP in outcome.output.column_names else multiset.rows
    multiset.assert_same(rows(outcome.output), expected.rows, "coalesced tuples", context)
    rejects = multiset.rows(outcome.rejects, ["code", *example.table.column_names])
    multiset.assert_same(rejects, expected.rejects, "rejects", context)
    counts = outcome.metrics
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"] + counts["rows_replayed"]


def test_oracle_coalescing_of_any_tables(engine: Engine) -> None:
    """For any small table, window, slide, equivalence and scheme the extents equal those computed from scratch."""

    @generators.examples(engine.seconds_per_run(Variant()))
    @given(coalescings(), st.integers(1, 3))
    def law(example: CoalescingExample, parallelism: int) -> None:
        files = {"events": (example.table,)}
        _keeps(example, engine.run(example.query, files, Variant(parallelism=parallelism), remember=False))

    law()


def test_oracle_coalescing_of_any_streams(engine: Engine) -> None:
    """For any small stream, restarted anywhere, the extents equal those computed from scratch, each emitted once.

    So do early answers, each change applied.
    """

    @generators.examples(engine.seconds_per_run(Variant(streaming=True)))
    @given(st.data(), coalescings(units=(SECOND,)), st.integers(1, 3))
    def law(data: st.DataObject, example: CoalescingExample, parallelism: int) -> None:
        files = data.draw(arrivals(example))
        restart = data.draw(st.none() | st.integers(0, len(files["events"]) - 1))
        how = Variant(streaming=True, parallelism=parallelism, restart_after=restart)
        query = example.query
        if query.scheme == "eager" and query.extents.slide_rows is None and data.draw(st.booleans()):
            query = replace(query, emit="early")
        _keeps(example, engine.run(query, files, how, remember=False))

    law()
