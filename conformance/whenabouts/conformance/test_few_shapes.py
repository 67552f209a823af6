"""Laws of times of few shapes: templates, or few different lengths. Satisfaction times decide there, not the kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.conformance import case_tables, expectations, multiset, operation_counts
from whenabouts.conformance.case_tables import SECOND
from whenabouts.conformance.engine import Engine
from whenabouts.core import Histogram, Lateness
from whenabouts.core.harness import Variant

BY_TIMES = ("auto", "eager", "lazy", "lazy_lookup")
"""The strategies that take satisfaction times for templates; for lengths only `auto` does, the others are ITC's."""

EVERYWHERE = {("histograms", "auto"), ("histograms", "eager"), ("narrow histograms", "lazy_lookup")}
CASES = [(name, strategy) for name in case_tables.HISTOGRAMS for strategy in BY_TIMES] + [("few lengths", "auto")]


@lru_cache
def _left_open(dataset: str) -> int:
    events = expectations.of_dataset(dataset)[0].events
    return operation_counts.left_open(events["left"], events["right"], case_tables.dataset(dataset).query.condition)


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    [pytest.param(*case, marks=() if case in EVERYWHERE else pytest.mark.similar) for case in CASES],
)
def test_oracle_probes_of_few_shapes(engine: Engine, dataset: str, strategy: str) -> None:
    """Only pairs on the exact boundary, and pairs in narrow windows that a tail does not decide, are probed."""
    query = case_tables.with_strategy(case_tables.dataset(dataset).query, strategy)
    outcome = engine.run(query, case_tables.finite(dataset))
    _, answer = expectations.of_dataset(dataset)
    assert outcome.metrics["probed"] == _left_open(dataset)
    assert outcome.metrics["lookup_hits"] == 0
    assert outcome.metrics["matched"] == answer.rows.total()


@pytest.mark.parametrize("strategy", ["simple", "ssort"])
@pytest.mark.parametrize("dataset", [pytest.param("histograms", marks=pytest.mark.similar), "many templates"])
def test_oracle_probes_without_times(engine: Engine, dataset: str, strategy: str) -> None:
    """`simple` and `ssort` use no ranges: they probe every pair, however few shapes there are."""
    query = case_tables.with_strategy(case_tables.dataset(dataset).query, strategy)
    inputs, _ = expectations.of_dataset(dataset)
    keys = [[event.key for event in events if event.key is not None] for events in inputs.events.values()]
    outcome = engine.run(query, case_tables.finite(dataset))
    assert outcome.metrics["probed"] == sum(keys[0].count(key) for key in keys[1])
    assert outcome.metrics["sure"] == outcome.metrics["lookup_hits"] == 0


@pytest.mark.parametrize(
    ("dataset", "strategy"),
    [
        ("histograms", "auto"),
        *(
            pytest.param(dataset, strategy, marks=pytest.mark.similar)
            for dataset, strategy in [
                ("histograms", "eager"),
                ("histogram and interval", "lazy"),
                ("point and histogram", "auto"),
                ("many templates", "lazy_lookup"),
                ("few lengths", "auto"),
            ]
        ),
    ],
)
def test_oracle_no_probe_on_streams(engine: Engine, dataset: str, strategy: str) -> None:
    """On a stream, too, nothing is probed in a wide window, in whatever steps the rows arrive."""
    query = case_tables.with_strategy(case_tables.dataset(dataset).query, strategy)
    outcome = engine.run(query, case_tables.stream(dataset), Variant(streaming=True))
    assert outcome.metrics["probed"] == 0
    assert outcome.metrics["matched"] == expectations.of_dataset(dataset)[1].rows.total() > 0


@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.similar)])
def test_differential_one_bucket(engine: Engine, streaming: bool) -> None:
    """A uniform interval is a histogram of one bucket: the same rows, to the last bit of the probability."""
    interval, files = case_tables.dataset("few lengths").query, {"right": case_tables.finite("few lengths")["right"]}
    files["left"] = tuple(_with_lengths(table) for table in case_tables.finite("few lengths")["left"])
    files = {side: files[side] for side in expectations.SIDES}
    templates = {str(n * SECOND): [(0, n * SECOND, 1)] for n in (2, 5, 9)}
    interval = replace(interval, lateness=Lateness(left="1 day", right="1 day"))  # rows come in any order
    histogram = replace(interval, left_time=Histogram("t_max", template="length", templates=templates))
    one, other = (engine.run(query, files, Variant(streaming=streaming)).output for query in (histogram, interval))
    assert one.num_rows > 100
    multiset.assert_same(multiset.rows(one), multiset.rows(other), "one bucket against an interval")


def _with_lengths(table: pa.Table) -> pa.Table:
    """The rows with a column that names their lengths."""
    return table.append_column("length", pc.subtract(table.column("t_max"), table.column("t_min")))
