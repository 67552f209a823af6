"""The simulated Flink hides state in batch, as Flink does: a host that keeps rows of a batch in state loses them."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.conformance.simulated_engine import Schedule
from whenabouts.conformance.simulated_flink import SimulatedFlinkRun
from whenabouts.core.harness import Variant
from whenabouts.core.hosting.element_host import ElementHost, TaggedBlob
from whenabouts.core.hosting.element_watermark import LAST_MS
from whenabouts.core.hosting.segment_cache import SegmentCache
from whenabouts.core.runtime.protocol import NO_WATERMARK, FlushMode
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.times.conditions import within
from whenabouts.core.times.time_specs import Point
from whenabouts.core.timing_join.query import TimingJoin

KEYS, ROWS = 40, 400
SIDE = pa.table({"k": [n % KEYS for n in range(ROWS)], "t": pa.array(range(ROWS), pa.timestamp("us"))})


def _keep_in_state(self: Any, packed: tuple[int, int, bytes], state: Any) -> None:
    state.set_event_timer(LAST_MS)
    self._keep(packed, state)


def _step_of_state(self: Any, state: Any) -> Any:
    rows = sorted(self._take_kept(state), key=itemgetter(0))
    tagged: list[TaggedBlob]
    _, tagged = self._step(DictStore(), SegmentCache(), state.key, rows, NO_WATERMARK, FlushMode.END)
    yield from self._counted(tagged, state.key)


def _pairs(bundle_size: int) -> int:
    query = TimingJoin(on="k", left_time=Point("t"), right_time=Point("t"), condition=within("1 us", confidence=1))
    run = SimulatedFlinkRun(query, Variant(streaming=False, parallelism=8), Schedule())
    run.bundle_size = bundle_size
    for name in query.inputs:
        run.source(name, [SIDE.slice(0, ROWS // 2), SIDE.slice(ROWS // 2)])
    return run.collect().output.num_rows


@pytest.mark.parametrize("bundle_size", [1, 5, 100_000])
def test_no_row_of_a_batch_is_lost(bundle_size: int) -> None:
    assert _pairs(bundle_size) == ROWS


def test_a_host_that_keeps_them_in_state_loses_rows_unless_bundles_hold_one_element(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ElementHost, "_hold", _keep_in_state)
    monkeypatch.setattr(ElementHost, "_batch_step", _step_of_state)
    assert _pairs(1) == ROWS
    assert _pairs(5) < ROWS
    assert _pairs(100_000) == 0
