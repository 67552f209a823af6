"""Rows that wait as they came: what is read back, and how much is stored."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from whenabouts.conformance import multiset
from whenabouts.conformance.change_rows import ChangedRows
from whenabouts.core import EngineError
from whenabouts.core.coalescing import waiting_rows
from whenabouts.core.coalescing.early_evaluator import EarlyEvaluator
from whenabouts.core.coalescing.query import Coalesce
from whenabouts.core.coalescing.waiting_rows import WaitingRows
from whenabouts.core.local import run
from whenabouts.core.runtime.blocks import T_MAX, T_MIN
from whenabouts.core.runtime.protocol import END_OF_TIME, NO_WATERMARK, Arrival, FlushMode
from whenabouts.core.state.memory_store import DictStore, StorePart
from whenabouts.core.state.segment_layout import Layout
from whenabouts.core.state.segmented_state import SegmentedState
from whenabouts.core.state.window_cache import window_cache

LAYOUT = Layout([pa.schema({T_MIN: pa.int64(), T_MAX: pa.int64(), "id": pa.int64()})])


def rows_of(at: list[int], first_id: int) -> pa.Table:
    """Rows at these times, numbered from an id on."""
    ids = list(range(first_id, first_id + len(at)))
    return pa.table({T_MIN: at, T_MAX: at, "id": ids}, schema=LAYOUT.schemas[0])


@pytest.mark.parametrize("seed", range(4))
def test_waiting_rows_are_those_at_or_after_the_watermark(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any blocks: large, small, empty, with rows far ahead, which keep their blocks from being dropped."""
    monkeypatch.setattr(waiting_rows, "LEAST_BYTES", 400)
    monkeypatch.setattr(waiting_rows, "LEAST_ROWS", 10)
    draw, store, model, until = random.Random(seed), DictStore(), dict[int, int](), 0
    most = stored = 0
    for step in range(200):
        waiting = WaitingRows(store, LAYOUT)
        at = [until + draw.randint(0, 300) for _ in range(draw.choice((0, 1, 3, 40)))]
        at += [until + 1_500] * (draw.random() < 0.5)
        model |= {1_000 * step + i: us for i, us in enumerate(at)}
        waiting.append(rows_of(at, 1_000 * step), until)
        until += draw.choice((0, 5, 60))
        waiting.settle(until)
        waiting.save()
        model = {id_: us for id_, us in model.items() if us >= until}
        low, high = sorted(draw.randint(until, until + 400) for _ in range(2))
        for first_us, last_us in ((until, END_OF_TIME), (low, high)):
            found = WaitingRows(store, LAYOUT).between(first_us, last_us)
            expected = sorted((us, id_) for id_, us in model.items() if first_us <= us <= last_us)
            assert sorted(zip(found[T_MAX].to_pylist(), found["id"].to_pylist(), strict=True)) == expected
        most = max(most, len(model))
        stored = max(stored, waiting.rows_held)
        assert len(waiting._blocks) < 40
    assert stored <= 2 * most + 100


def test_nothing_is_written_without_a_change() -> None:
    store = DictStore()
    waiting = WaitingRows(store, LAYOUT)
    waiting.append(rows_of([], 0), 0)
    waiting.settle(5)
    assert waiting.save() == ""
    assert not store.bytes_held
    waiting.append(rows_of([3], 0), 0)
    one, two = waiting.save(), waiting.save()
    assert one
    assert two == ""


def test_state_of_other_columns_is_refused() -> None:
    store = DictStore()
    waiting = WaitingRows(store, LAYOUT)
    waiting.append(rows_of([3], 0), 0)
    waiting.save()
    other = Layout([pa.schema({T_MIN: pa.int64(), T_MAX: pa.int64(), "id": pa.int32()})])
    with pytest.raises(EngineError, match="WA-3003"):
        WaitingRows(store, other)
    with pytest.raises(EngineError, match="WA-3003"):  # as a release that knows segments only would read it
        SegmentedState(store, LAYOUT, slot_us=1)
    store.delete(0, 0)
    with pytest.raises(EngineError, match="WA-3003"):
        WaitingRows(store, LAYOUT).between(NO_WATERMARK, END_OF_TIME)


def test_segments_of_an_earlier_release_are_read() -> None:
    """It kept the rows that wait in segments of event time: these rows are taken over."""
    query = Coalesce(time="t", group="g", values="v", lateness=40, window=60, slide=25, emit="early")
    draw = random.Random(5)
    rows = [{"t": max(0, at - draw.randint(0, 39)), "g": draw.choice("ab"), "v": at // 7} for at in range(200)]
    schema = pa.schema({"t": pa.int64(), "g": pa.string(), "v": pa.int64()})
    whole = pa.Table.from_pylist(rows, schema)
    operator: Any = query.operator([schema], streaming=True)
    evaluator: EarlyEvaluator = operator._early
    store, table = DictStore(), ChangedRows(query.coalescing.group)

    def step(part: pa.Table, until: int, demand: FlushMode = FlushMode.NOTHING) -> None:
        arrived = [Arrival(0, operator.readers[0].read(batch).block) for batch in part.to_batches()]
        found = operator.step(store, arrived, until, demand, 200)
        table.apply(pa.Table.from_batches(found.output, operator.output_schema))

    step(whole.slice(0, 100), NO_WATERMARK)
    step(whole.slice(100, 50), 60)
    part, buffer = StorePart(store, 0, 2), evaluator.buffer
    held = WaitingRows(part, buffer.layout).between(60, END_OF_TIME)
    assert held.num_rows
    for key in [key for key in store._segments if key[0] % 2 == 0]:
        store.delete(*key)
    segments = buffer._state(part)
    segments.append(0, held.to_batches()[0])
    segments.save()
    window_cache().clear()
    assert operator.rows_held(store) >= held.num_rows
    step(whole.slice(150), 100)
    step(whole.slice(0, 0), 160, FlushMode.END)
    late = {at for at in range(150, 200) if rows[at]["t"] < 100} | {at for at in range(100, 150) if rows[at]["t"] < 60}
    timely = whole.take([at for at in range(200) if at not in late])
    expected = run(Coalesce(time="t", group="g", values="v", window=60, slide=25), [timely]).output
    multiset.assert_same(table.counted, multiset.rows(expected), "rows at the end")
