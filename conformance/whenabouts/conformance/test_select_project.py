"""The law of selection and projection: inside a query they give the same rows as before and after it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from whenabouts.conformance import coalescing_case_tables, multiset
from whenabouts.conformance.engine import Engine
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.expressions.tree import Expression, column
from whenabouts.core.harness import Variant
from whenabouts.core.local import run
from whenabouts.core.wrappers.select_project import SelectProject

VARIANTS = {
    "batch": Variant(),
    "stream, 3 buckets, restarted": Variant(streaming=True, parallelism=3, restart_after=2),
}


def _literal(value: object) -> Expression:
    return Expression("literal", value=value)


LEVEL = (("high", Expression("gt", (column("level"), _literal(1.5)))),)
QUERY = SelectProject(
    query=Coalesce(time="t", group="room", values=["high", "state"], window="40 s", slide="15 s", lateness="3 s"),
    derived={"events": LEVEL},
    where={"events": Expression("lt", (column("room"), _literal(20)))},
    having=Expression("gt", (column("n"), _literal(1))),
    columns=(("room", column("room")), ("one less", Expression("subtract", (column("n"), _literal(1))))),
)


@pytest.mark.parametrize("variant", ["stream, 3 buckets, restarted", pytest.param("batch", marks=pytest.mark.similar)])
def test_differential_selection_and_projection(engine: Engine, variant: str) -> None:
    """Rows selected, columns computed and results projected inside a query are as if it had been done outside."""
    how = VARIANTS[variant]
    readings = coalescing_case_tables.readings()
    files = coalescing_case_tables.stream() if how.streaming else coalescing_case_tables.finite()
    outcome = engine.run(QUERY, files, how)
    by_hand = readings.append_column("high", pc.greater(readings["level"], 1.5))
    chosen = by_hand.filter(pc.less(by_hand["room"], 20).fill_null(False))
    rows = run(QUERY.query, [chosen]).output.filter(pc.field("n") > 1)
    want = pa.table({"room": rows["room"], "one less": pc.subtract(rows["n"], 1)})
    assert want.num_rows > 100
    multiset.assert_same(multiset.rows(outcome.output), multiset.rows(want), "projected rows", {"query": QUERY})
    counts = outcome.metrics
    assert counts["rows_in"] == counts["rows_processed"] + counts["rows_rejected"] + counts["rows_replayed"]
    assert set(outcome.rejects.column_names) == {"input", "code", "reason", *readings.column_names}
