"""Laws of rows that cannot be used: each is returned with its code, and all rows are counted."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from whenabouts.conformance import case_tables, expectations, multiset
from whenabouts.conformance.engine import Engine
from whenabouts.conformance.slow_engine_cases import fewer_on_slow_engines
from whenabouts.core.errors import REASONS, Code
from whenabouts.core.harness import Variant

pytestmark = pytest.mark.hosting

VARIANTS = {
    "batch": Variant(),
    "batch, 3 buckets": Variant(parallelism=3),
    "stream": Variant(streaming=True),
    "stream, 3 buckets": Variant(streaming=True, parallelism=3),
    "stream, restarted": Variant(streaming=True, restart_after=2),
}
FAULTS = {
    "malformed": {"WA-1003", "WA-1004", "WA-1005", "WA-1006", "WA-1007"},
    "malformed histograms": {"WA-1003", "WA-1007", "WA-1013"},
}


def _each_case(*kept: str) -> pytest.MarkDecorator:
    cases = [(variant, dataset) for dataset in FAULTS for variant in VARIANTS]
    kept_cases = [(variant, "malformed") for variant in kept]
    return pytest.mark.parametrize(("variant", "dataset"), fewer_on_slow_engines(cases, kept=kept_cases))


def _files(dataset: str, variant: Variant) -> dict[str, tuple[pa.Table, ...]]:
    return case_tables.stream(dataset) if variant.streaming else case_tables.finite(dataset)


@_each_case("batch, 3 buckets", "stream, restarted")
def test_oracle_rejects(engine: Engine, variant: str, dataset: str) -> None:
    """Every row with a fault is rejected, with the code of its fault and its original columns; no other row is."""
    how = VARIANTS[variant]
    outcome = engine.run(case_tables.dataset(dataset).query, _files(dataset, how), how)
    inputs, _ = expectations.of_dataset(dataset)
    tables = case_tables.dataset(dataset).tables
    codes = set()
    for side in expectations.SIDES:
        expected = Counter((code, *values) for code, values in inputs.refused[side])
        multiset.assert_same(expectations.rejected(outcome, tables, side), expected, f"rejects of the {side} input")
        codes |= {row[0] for row in expected}
    assert codes == FAULTS[dataset], "the dataset has every fault"
    told = zip(outcome.rejects.column("code").to_pylist(), outcome.rejects.column("reason").to_pylist(), strict=True)
    assert dict(told) == {code: REASONS[Code(code)] for code in codes}


@_each_case("batch, 3 buckets")
def test_oracle_accounting(engine: Engine, variant: str, dataset: str) -> None:
    """Rows in = rows processed + rows rejected; rows that a restart replays are counted again on both sides."""
    how = VARIANTS[variant]
    files = _files(dataset, how)
    outcome = engine.run(case_tables.dataset(dataset).query, files, how)
    given = sum(table.num_rows for tables in files.values() for table in tables)
    metrics = outcome.metrics
    assert metrics["rows_in"] == metrics["rows_processed"] + metrics["rows_rejected"]
    assert metrics["rows_in"] == given if how.restart_after is None else metrics["rows_in"] >= given
    inputs, answer = expectations.of_dataset(dataset)
    if how.restart_after is None:
        assert metrics["rows_rejected"] == sum(map(len, inputs.refused.values())) == outcome.rejects.num_rows
        assert metrics["matched"] == answer.rows.total() == outcome.output.num_rows
