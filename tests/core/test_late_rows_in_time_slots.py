"""With time slots a row is late in all buckets that have copies of it, or in none, whatever their watermarks are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.conformance.kill_schedules import check, late_in_slots
from whenabouts.conformance.simulated_flink import SimulatedFlinkRun
from whenabouts.core import Code, Point, QueryError, within
from whenabouts.core.hosting.packer_clocks import without_slots
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.wrappers.deduplication import deduplicated

pytestmark = pytest.mark.slow

EVERY_RUN, FULL, EXHAUSTIVE, TOGETHER = 100, 800, 5_000, 50
LOST, EXTRA = 12, 45
"""Seeds where a pair would be lost without a reject, and where one of a rejected row would come out."""


@pytest.mark.parametrize(
    "first",
    [
        *range(0, EVERY_RUN, TOGETHER),
        *(pytest.param(first, marks=pytest.mark.full) for first in range(EVERY_RUN, FULL, TOGETHER)),
        *(pytest.param(first, marks=pytest.mark.exhaustive) for first in range(FULL, EXHAUSTIVE, TOGETHER)),
    ],
)
def test_the_rows_are_those_of_a_batch_over_the_rows_that_were_not_rejected(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        check(late_in_slots(seed))


@pytest.mark.parametrize(
    ("seed", "wrong"), [(LOST, "rows, expected 182\n  2 missing"), (EXTRA, "0 missing\n  3 too many")]
)
def test_by_the_watermark_of_each_bucket_they_would_not_be(
    monkeypatch: pytest.MonkeyPatch, seed: int, wrong: str
) -> None:
    monkeypatch.setattr(SimulatedFlinkRun, "own_watermarks", False)
    with pytest.raises(AssertionError) as raised:
        check(late_in_slots(seed))
    assert wrong in str(raised.value)


JOIN = TimingJoin(left_time=Point("t"), right_time=Point("t"), condition=within("1 s", confidence=1), lateness="1 s")
SCHEMAS = [pa.schema({"t": pa.int64(), "id": pa.int64()})] * 2


def _slots(query: Any) -> Any:
    return query.operator(SCHEMAS, streaming=True).keys.slots


def test_where_packers_cannot_decide_auto_chooses_no_slots() -> None:
    for query in (replace(JOIN, time_slots="auto"), deduplicated(replace(JOIN, time_slots="auto"), "id")):
        assert _slots(query) is not None
        assert _slots(without_slots(query, "no clocks")) is None
    keyed = replace(JOIN, on="k", time_slots="auto")
    for query in (JOIN, keyed):
        assert without_slots(query, "no clocks") is query


def test_where_packers_cannot_decide_slots_that_are_asked_for_are_refused() -> None:
    with pytest.raises(QueryError, match="no clocks") as raised:
        without_slots(deduplicated(replace(JOIN, time_slots="2 s"), "id"), "no clocks")
    assert raised.value.code is Code.NOT_SLOTTED
