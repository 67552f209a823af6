"""A join aggregate of streams that continues with other functions, another confidence, or what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import whenabouts as wa
from whenabouts.core.errors import EngineError
from whenabouts.core.hosting.query_identity import identity_of
from whenabouts.core.local import Outcome, run_stream

STEPS = 6
INTERVAL = wa.Interval("a", "b", max_uncertainty=40)


def files(offset: int) -> list[pa.Table]:
    """Ten rows a step, 100 us apart."""
    starts = [[1_000 * step + 100 * n + offset for n in range(10)] for step in range(STEPS)]
    return [pa.table({"a": a, "b": [t + 40 for t in a], "v": range(10), "w": range(10)}) for a in starts]


def query(confidence: float = 0.8, *, lo: int = -450, **more: Any) -> wa.JoinAggregate:
    given: dict[str, Any] = {"left_time": INTERVAL, "right_time": INTERVAL, "aggregates": {"n": "count", "s": "sum:v"}}
    condition = wa.between(lo, 450, confidence=confidence)
    return wa.JoinAggregate(**(given | {"condition": condition, "lateness": 300} | more))


def told(first: wa.JoinAggregate, changes: dict[int, wa.JoinAggregate]) -> Outcome:
    return run_stream(first, [files(0), files(40)], changes=changes)


def test_functions_may_change_while_they_read_the_same_columns() -> None:
    changed = replace(query(), aggregates={"n": "max:v", "s": "mean:v"}, how="inner", most_uncertain=3)
    output = told(query(), {3: replace(query(), aggregates={"n": "count:v", "s": "sum:v"})}).output
    assert output.equals(told(query(), {}).output)
    assert identity_of(changed, [files(0)[0].schema] * 2, 4) == identity_of(query(), [files(0)[0].schema] * 2, 4)


@pytest.mark.parametrize(
    "aggregates", [{"n": "count", "s": "sum:w"}, {"n": "count", "s": "any"}, {"n": "max:v", "s": "sum:w"}]
)
def test_other_columns_are_refused(aggregates: dict[str, str]) -> None:
    """The columns that are read are the format of the state, in which blocks do not repeat their schema."""
    with pytest.raises(EngineError, match="WA-3003"):
        told(query(), {3: replace(query(), aggregates=aggregates)})


def test_chances_after_decided_functions_need_rows_that_were_dropped() -> None:
    chance = {"n": "p_none", "s": "expected_sum:v"}
    with pytest.raises(EngineError, match="WA-3006"):
        told(query(), {3: replace(query(), aggregates=chance)})
    told(replace(query(), aggregates=chance), {})


def test_the_confidence_may_fall_as_far_as_the_least() -> None:
    with pytest.raises(EngineError, match="WA-3006"):
        told(query(), {3: query(0.1)})
    lower, usual = query(0.1, min_confidence=0.1), query(min_confidence=0.1)
    mixed = told(usual, {3: lower}).output["n"].to_pylist()
    both = [told(each, {}).output["n"].to_pylist() for each in (usual, lower)]
    assert mixed not in both
    assert all(n in (one, other) for n, one, other in zip(mixed, *both, strict=True))


def test_a_wider_window_is_refused() -> None:
    with pytest.raises(EngineError, match="WA-3006"):
        told(query(), {3: query(lo=-2_000)})


@pytest.mark.parametrize("lo", [-450, 100])
def test_steps_and_changes_of_nothing_do_not_show(lo: int) -> None:
    """Each left row once, with all its partners, whatever the steps."""
    whole = run_stream(query(lo=lo), [[pa.concat_tables(files(n))] for n in (0, 40)]).output
    steps = told(query(lo=lo), {2: query(lo=lo)}).output
    order = [("a", "ascending")]
    assert steps.sort_by(order).equals(whole.sort_by(order))
