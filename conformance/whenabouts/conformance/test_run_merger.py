"""Laws of the second operator: one input, output that only the watermark makes final, state that is rewritten."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc
import pytest

from whenabouts.conformance import multiset, oracle, sheets
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.multiset import Row
from whenabouts.core.harness import Variant
from whenabouts.core.run_merger import RunMerger

VARIANTS = {
    "batch": Variant(),
    "batch, 3 buckets": Variant(parallelism=3),
    "stream": Variant(streaming=True),
    "stream, 3 buckets": Variant(streaming=True, parallelism=3),
    "stream, restarted": Variant(streaming=True, restart_after=2),
}


def _order(values: Sequence[Any]) -> tuple[tuple[int, Any], ...]:
    """Values ascending, NaN after the numbers, null last."""
    return tuple((2, 0) if v is None else (1, 0) if v != v else (0, v) for v in values)


def _runs(query: RunMerger, rows: Sequence[dict[str, Any]]) -> Counter[Row]:
    """Runs of equal values in plain Python: sort each group, begin a run where a value or a gap says so."""
    groups: dict[Any, list[tuple[int, tuple[Any, ...], list[Any]]]] = defaultdict(list)
    for row in rows:
        if row["t"] is not None:
            values = [row[name] for name in query.values]
            groups[_order([row[name] for name in query.group])].append((row["t"], _order(values), values))
    found = []
    for group, events in groups.items():
        events.sort(key=lambda event: event[:2])
        names = [None if rank == 2 else value for rank, value in group]
        run = [events[0]]
        for event in [*events[1:], None]:
            if event is not None and event[1] == run[-1][1] and event[0] - run[-1][0] <= query.gap_us:
                run.append(event)
                continue
            found.append((*names, *run[0][2], run[0][0], run[-1][0], len(run)))
            run = [] if event is None else [event]
    return multiset.counted(found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_oracle_runs(engine: Engine, variant: str) -> None:
    """The runs are those of plain Python over sorted rows; rows without a time are rejected; all are accounted for."""
    query, table = sheets.runs_sheet()
    how = VARIANTS[variant]
    outcome = engine.run(query, sheets.runs_stream() if how.streaming else {"events": (table,)}, how)
    rows = oracle.plain_rows(table)
    multiset.assert_same(multiset.rows(outcome.output), _runs(query, rows), "runs", {"query": query})
    nulls = table.filter(pc.is_null(table.column("t")))
    rejects = multiset.rows(outcome.rejects, ["code", *table.column_names])
    multiset.assert_same(rejects, Counter({("WA-1003", *row): n for row, n in multiset.rows(nulls).items()}), "rejects")
    assert outcome.metrics["rows_in"] == outcome.metrics["rows_processed"] + outcome.metrics["rows_rejected"]
    assert outcome.metrics["rows_in"] >= table.num_rows


@pytest.mark.parametrize(("files", "seed"), [(1, 1), (8, 2)])
def test_differential_runs_of_arrival_orders(engine: Engine, files: int, seed: int) -> None:
    """Another order of arrival inside the lateness, cut into other files, gives the same runs."""
    query, _ = sheets.runs_sheet()
    usual, other = (
        engine.run(query, sheets.runs_stream(*how), Variant(streaming=True)).output for how in ((), (files, seed))
    )
    multiset.assert_same(multiset.rows(other), multiset.rows(usual), f"runs of {files} files in order {seed}")


def test_oracle_runs_bounded_state(engine: Engine) -> None:
    """Runs that are final leave the state while the stream goes on."""
    query, _ = sheets.runs_sheet()
    metrics = engine.run(query, sheets.runs_stream(8, 2), Variant(streaming=True)).metrics
    assert 0 <= metrics["rows_stored"] - metrics["rows_evicted"] <= metrics["rows_stored"] / 2
