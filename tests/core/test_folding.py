"""Right rows of a join aggregate that are folded into open left rows: the same answers, and little state."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import whenabouts as wa
from infra.operators import OperatorDriver
from whenabouts.core.errors import EngineError, QueryError
from whenabouts.core.join_aggregate import open_rows, operator
from whenabouts.core.local import Outcome, run_stream
from whenabouts.core.state.memory_store import DictStore

STEPS, FEW_LEFT = 12, 4
SECOND = 1_000_000
INTERVAL = wa.Interval("a", "b", max_uncertainty=40_000)
EVERY_FUNCTION: dict[str, Any] = {
    "n": "count", "vs": "count:v", "any": "any", "sum_v": "sum:v", "sum_w": "sum:w", "sum_d": "sum:d", "sum_x": "sum:x",
    "mean": "mean:v",
    "least": "min:v", "greatest": "max:v", "x": "max:x", "text": "min:s", "last_text": "max:s", "most": "max:d",
    "first": "first:s",
    "first_v": "first:v", "last": "last:s", "last_w": "last:w", "expected": "expected_count",
    "expected_v": "expected_sum:v", "expected_w": "expected_sum:w",
    "first_p": "first:p", "last_p": "last:p", "earliest": "min:at", "latest": "max:at",
}  # fmt: skip
"""Every function that can be folded."""


def side(rows: int, seed: int, *, values: bool = False) -> list[pa.Table]:
    """Rows of each step, 1 s a step, in no order inside a step; values of several types, with ties and nulls."""
    random, files = np.random.default_rng(seed), []
    for step in range(STEPS):
        b = 1_000 * (1_000 * step + random.integers(0, 1_000, rows) // 8 * 8)
        columns: dict[str, Any] = {
            "k": random.integers(0, 2, rows),
            "a": b - random.integers(0, 5, rows) * 10_000,
            "b": b,
        }
        if values:
            special = np.array([0.1, 0.2, 1e16, -1e16, -0.0, 5e-324, 1e300, -1e300])
            usual = np.round(random.normal(size=rows), 2)
            chosen = np.where(random.random(rows) < 0.8, usual, random.choice(special, rows))
            columns["v"] = pa.array(chosen, pa.float64(), mask=random.random(rows) < 0.2)
            columns["x"] = np.where(random.random(rows) < 0.99, -0.0, random.choice([np.inf, -np.inf, np.nan], rows))
            columns["w"] = random.integers(-(2**58), 2**58, rows)
            columns["s"] = pa.array([f"{n}" if n % 5 else None for n in random.integers(0, 30, rows)], pa.string())
            eighths = random.integers(-999, 999, rows)
            columns["d"] = pa.array([Decimal(int(n)) / 8 for n in eighths], pa.decimal128(9, 3))
            columns["p"] = pa.array([{"x": int(n)} if n % 7 else None for n in eighths])
            columns["at"] = pa.array(b, pa.timestamp("us", "UTC"), mask=random.random(rows) < 0.1)
        files.append(pa.table(columns))
    return files


def query(lo: int = -100, hi: int = 4_000, **more: Any) -> wa.JoinAggregate:
    condition = wa.between(lo * 1_000, hi * 1_000, confidence=more.pop("confidence", 0.6))
    given: dict[str, Any] = {"left_time": INTERVAL, "right_time": INTERVAL, "on": "k", "lateness": "1 s"}
    return wa.JoinAggregate(**(given | {"condition": condition, "aggregates": EVERY_FUNCTION} | more))


def answers(asked: wa.JoinAggregate, *, right: int = 60, changes: dict[int, wa.JoinAggregate] | None = None) -> Outcome:
    return run_stream(asked, [side(FEW_LEFT, 1), side(right, 2, values=True)], changes=changes)


def in_order(outcome: Outcome) -> list[Any]:
    """Rows with each double as its bits."""
    table = outcome.output
    for at, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            table = table.set_column(at, field.name, pa.chunked_array([c.view(pa.int64()) for c in table[at].chunks]))
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize(
    ("lo", "hi"), [(-100, 4_000), (0, 9_000), (1_500, 3_000), (-4_000, -500), (-700, 700)],
    ids=["after", "long after", "only after", "only before", "around"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["left_outer", "inner"])
def test_folded_rows_give_the_same_bits(lo: int, hi: int, how: str) -> None:
    always, never = (answers(query(lo, hi, how=how, folding=folding)) for folding in ("always", "never"))
    assert in_order(always) == in_order(never)
    assert always.metrics["matched"] == never.metrics["matched"] > 0
    assert always.metrics["unmatched"] == never.metrics["unmatched"]


def test_folding_in_time_slots_and_buckets() -> None:
    sides = [side(FEW_LEFT, 1), side(60, 2, values=True)]
    usual = run_stream(query(folding="never"), sides)
    spread = run_stream(query(folding="always", time_slots="3 s"), sides, buckets=4, restart_after=6)
    assert in_order(spread) == in_order(usual)


@pytest.mark.parametrize(("first", "then"), [("always", "never"), ("never", "always"), ("auto", "always")])
def test_folding_may_change_at_a_restart(first: str, then: str) -> None:
    """So state of a release that knew no folding is read, too: it has no marks."""
    usual = answers(query(folding="never"))
    changed = answers(query(folding=first), changes={5: query(folding=then)})
    assert in_order(changed) == in_order(usual)


def test_auto_folds_where_right_rows_outnumber_open_left_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "FEW", 100)
    folds: list[int] = []
    fold = open_rows.OpenRows._fold

    def counted(self: open_rows.OpenRows, *arguments: Any) -> int:
        folds.append(fold(self, *arguments))
        return folds[-1]

    monkeypatch.setattr(open_rows.OpenRows, "_fold", counted)
    found = answers(query(folding="auto"))
    assert 0 < sum(n > 0 for n in folds) < STEPS // 2
    assert in_order(found) == in_order(answers(query(folding="never")))
    folds.clear()
    answers(query(folding="auto"), right=FEW_LEFT)
    assert not any(folds)


def test_other_functions_are_refused_while_left_rows_have_folded_partners() -> None:
    fewer = query(folding="always", aggregates={"n": "count", "first": "first:v"})
    other = replace(fewer, aggregates={"n": "count", "first": "last:v"})
    assert answers(fewer, changes={6: replace(fewer, how="inner")}).output.num_rows  # the same marks
    for changed in (other, replace(fewer, condition=wa.between("-100 ms", "4 s", confidence=0.7))):
        with pytest.raises(EngineError, match=r"WA-3006: open left rows have partners that were folded"):
            answers(fewer, changes={6: changed})
    never = replace(fewer, folding="never")
    assert answers(never, changes={6: replace(other, folding="never")}).output.num_rows


def test_other_functions_may_follow_once_those_left_rows_have_come_out() -> None:
    points = {"left_time": wa.Point("t"), "right_time": wa.Point("t"), "condition": wa.between(0, "10 s", confidence=1)}
    schema = pa.schema({"t": pa.int64(), "v": pa.int64()})
    first, then = (
        OperatorDriver(
            wa.JoinAggregate(**points, lateness=0, folding="always", aggregates={"n": function}), schema, store
        )
        for store in [DictStore()]
        for function in ("sum:v", "min:v")
    )

    def rows(*seconds: int) -> pa.RecordBatch:
        return pa.record_batch([[n * SECOND for n in seconds], list(seconds)], schema=schema)

    def fed(driver: OperatorDriver, left: pa.RecordBatch, right: pa.RecordBatch, watermark: int) -> list[int]:
        step = driver.feed({"left": left, "right": right}, watermark * SECOND)
        return [row["n"] for batch in step.output for row in batch.to_pylist()]

    assert not fed(first, rows(1, 18), rows(2, 3, 5, 19), 1)
    assert not fed(first, rows(), rows(), 5)
    assert first.last.metrics["rows_evicted"] == 2
    assert first.last.gauges["state_rows_right"] == 2, "2 and 3 are folded"
    with pytest.raises(EngineError, match="WA-3006"):
        fed(then, rows(), rows(), 5)
    assert not fed(first, rows(20), rows(8, 21), 6)
    assert fed(first, rows(), rows(), 12) == [2 + 3 + 5 + 8]
    assert not fed(then, rows(22), rows(24), 18)
    assert sorted(fed(then, rows(), rows(), 60)) == [19, 21, 24]


@pytest.mark.parametrize("needs", ["count_distinct:v", "collect:v", "p_none", "count_variance"])
def test_functions_that_need_the_rows_are_not_folded(needs: str) -> None:
    with pytest.raises(QueryError, match="WA-2006: folding is 'always'"):
        query(aggregates={"n": "count", "all": needs}, folding="always")
    assert not query(aggregates={"n": "count", "all": needs}).can_fold


def test_unknown_folding_is_refused() -> None:
    with pytest.raises(QueryError, match="WA-2006: folding is 'on'"):
        query(folding="on")


FOLDINGS = pytest.mark.parametrize(("folding", "most"), [("never", 10_200), ("auto", 1_600), ("always", 600)])


@pytest.mark.parametrize("folding", ["never", "always"])
def test_dense_right_rows_without_left_ones(folding: str) -> None:
    """The window is as wide as 50 steps, and so are segments; but what no left row can meet is not held."""
    asked = query(0, 100_000, folding=folding, on=None, aggregates={"n": "count"})
    driver = OperatorDriver(asked, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    for step in range(40):
        b = np.arange(200) * SECOND // 100 + step * 2 * SECOND
        driver.feed({"right": pa.record_batch({"a": b, "b": b})}, step * 2 * SECOND)
        assert driver.last.gauges["state_rows_right"] <= 800


@FOLDINGS
def test_dense_right_rows_beside_sparse_left_ones(folding: str, most: int) -> None:
    """A left row every 25 s that waits for 100 s, and 100 right rows a second: each left row has 10,001 partners."""
    asked = wa.JoinAggregate(
        left_time=wa.Point("t"), right_time=wa.Point("t"), condition=wa.between(0, "100 s", confidence=1),
        aggregates={"n": "count", "sum": "sum:v", "last": "last:v"}, lateness="1 s", folding=folding,
    )  # fmt: skip
    schema = pa.schema({"t": pa.int64(), "v": pa.float64()})
    driver, held, found = OperatorDriver(asked, schema), [], []
    for second in range(0, 200, 2):
        t = np.arange(200) * SECOND // 100 + second * SECOND
        rows = {"right": pa.record_batch([t, np.full(200, 0.1)], schema=schema)}
        if second % 25 == 0:
            rows["left"] = pa.record_batch([pa.array([second * SECOND]), pa.array([0.0])], schema=schema)
        step = driver.feed(rows, second * SECOND)
        held.append(step.gauges["state_rows_right"])
        found += [row for batch in step.output for row in batch.to_pylist()]
    assert max(held[50:]) <= most
    assert folding != "never" or max(held) > 0.9 * most
    assert [(row["n"], row["last"]) for row in found] == [(10_001, 0.1)] * 2
    assert {row["sum"] for row in found} == {math.fsum([0.1] * 10_001)}
