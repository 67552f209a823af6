"""The law of shared extents: queries registered together give the same rows as each alone, under every scheme."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pyarrow.compute as pc
import pytest

from whenabouts.conformance import coalescing_case_tables, multiset
from whenabouts.conformance.coalescing_case_tables import QUERIES, TEMPORAL
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.random_policy import RandomPolicy
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.harness import Variant
from whenabouts.core.local import Outcome, run
from whenabouts.core.shared_coalescing.columns import QUERY
from whenabouts.core.shared_coalescing.query import SharedCoalescing

VARIANTS = {
    "batch": Variant(),
    "batch, 3 buckets": Variant(parallelism=3),
    "stream": Variant(streaming=True),
    "stream, 3 buckets, restarted": Variant(streaming=True, parallelism=3, restart_after=2),
}

TOGETHER: dict[str, Coalesce] = {
    name: QUERIES[name]
    for name in ("slides", "slides of near values", "slides of rising values", "last window", "all")
} | {
    "aggregate": TEMPORAL["aggregate"],
    "rows": QUERIES["rows of each group"],
    "by state": replace(QUERIES["slides"], group=("room", "state"), values="level"),
    "at an instant": QUERIES["window at an instant"],
}  # fmt: skip
"""Windows, slides and groupings of every kind; two share grouping, window and slide."""

SCHEMES = {
    "all lazy": dict.fromkeys(TOGETHER, "lazy"),
    "all eager": dict.fromkeys(TOGETHER, "eager"),
    "mixed": {name: ("eager", "lazy")[index % 2] for index, name in enumerate(TOGETHER)},
}
UNGROUPED = {
    "all of the stream": replace(QUERIES["slides"], group=()),
    "by room": QUERIES["slides"],
    "rows of all groups": QUERIES["rows"],
    "slides of rows": QUERIES["rows, lazy"],
}
"""No grouping in common: rows of all groups meet in one bucket."""


@lru_cache
def _alone(name: str) -> Outcome:
    return run((TOGETHER | UNGROUPED)[name], [coalescing_case_tables.readings()])


def check_shared(outcome: Outcome, query: SharedCoalescing) -> None:
    """What each query gives, and the rows that some query rejects, each once; all rows are accounted for."""
    readings = coalescing_case_tables.readings()
    refused: Counter[multiset.Row] = Counter()
    for name, _ in query.queries:
        alone = _alone(name)
        rows = outcome.output.filter(pc.equal(outcome.output[QUERY], name))
        mine = rows.select(query.columns_of(name, readings.schema))
        assert alone.output.num_rows > 20 or "instant" in name
        multiset.assert_same(multiset.rows(mine), multiset.rows(alone.output), f"rows of {name!r}", {"query": query})
        refused |= multiset.rows(alone.rejects, readings.column_names)  # of each row the greatest count
    found = multiset.rows(outcome.rejects, readings.column_names)
    multiset.assert_same(found, refused, "rejects", {"query": query})
    counts = outcome.metrics
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"]


@pytest.mark.parametrize(
    ("schemes", "variant"),
    fewer_on_slow_engines([(s, v) for s in SCHEMES for v in VARIANTS], [("mixed", "stream, 3 buckets, restarted")]),
)
def test_differential_registered_together(engine: Engine, schemes: str, variant: str) -> None:
    """Queries that share extents give the same rows as each alone; a row that some query rejects is rejected once."""
    how = VARIANTS[variant]
    files = coalescing_case_tables.stream(8) if how.streaming else coalescing_case_tables.finite()
    query = SharedCoalescing(queries=TOGETHER, schemes=SCHEMES[schemes])
    check_shared(engine.run(query, files, how), query)


@pytest.mark.canary
def test_differential_schemes_decided_in_the_job(engine: Engine) -> None:
    """Schemes that a running job decides in its buckets, again and again, with a restart: the rows stay the same."""
    check_decided_in_the_job(engine, seed=0)


def check_decided_in_the_job(engine: Engine, seed: int) -> None:
    """The law for one order of arrival and one sequence of decisions."""
    query = SharedCoalescing(queries=TOGETHER, schemes=SCHEMES["all lazy"], adapting=RandomPolicy(seed))
    how = VARIANTS["stream, 3 buckets, restarted"]
    outcome = engine.run(query, coalescing_case_tables.stream(4, seed), how, remember=False)
    check_shared(outcome, query)
    assert outcome.metrics["schemes_switched"] > 3  # of seven that can, in three buckets and four files


def test_differential_schemes_change(engine: Engine) -> None:
    """At a restart every eager query becomes lazy and every lazy one eager: nothing is lost or emitted twice."""
    other = {name: "lazy" if scheme == "eager" else "eager" for name, scheme in SCHEMES["mixed"].items()}
    query, changed = (SharedCoalescing(queries=TOGETHER, schemes=schemes) for schemes in (SCHEMES["mixed"], other))
    how = Variant(streaming=True, parallelism=3, restart_after=3, restarted_as=changed)
    check_shared(engine.run(query, coalescing_case_tables.stream(8), how, remember=False), query)


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.SingleBucketWarning")
@pytest.mark.parametrize("variant", fewer_on_slow_engines(["stream", "batch, 3 buckets"], ["batch, 3 buckets"]))
def test_differential_registered_together_without_common_groups(engine: Engine, variant: str) -> None:
    """So do queries whose groupings have nothing in common."""
    how = VARIANTS[variant]
    files = coalescing_case_tables.stream(8) if how.streaming else coalescing_case_tables.finite()
    query = SharedCoalescing(queries=UNGROUPED, schemes=dict.fromkeys(UNGROUPED, "lazy"))
    check_shared(engine.run(query, files, how), query)


@pytest.mark.filterwarnings("ignore::whenabouts.core.errors.SingleBucketWarning")
@pytest.mark.parametrize("first", ["eager", "lazy"])
def test_differential_schemes_of_row_windows_change(engine: Engine, first: str) -> None:
    """Windows that count rows change their scheme at a restart: their slides by rows go on where they were."""
    then = "lazy" if first == "eager" else "eager"
    query, changed = (
        SharedCoalescing(queries=UNGROUPED, schemes=dict.fromkeys(UNGROUPED, scheme)) for scheme in (first, then)
    )
    how = Variant(streaming=True, parallelism=3, restart_after=3, restarted_as=changed)
    check_shared(engine.run(query, coalescing_case_tables.stream(8), how, remember=False), query)
