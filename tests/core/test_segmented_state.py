"""Segments, directory and waiting rows against a model of plain lists, and the states that a restart may find."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from infra.operators import CountingStore
from whenabouts.core import EngineError, Interval
from whenabouts.core.arrays.record_batches import copy_of
from whenabouts.core.runtime.blocks import T_MAX, T_MIN
from whenabouts.core.runtime.event_reader import EventReader
from whenabouts.core.state import segment_layout
from whenabouts.core.state.memory_store import DictStore
from whenabouts.core.state.segment_codec import FORMAT_VERSION, decode, encode
from whenabouts.core.state.segment_layout import DIRECTORY, Layout
from whenabouts.core.state.segmented_state import SegmentedState

SCHEMA = pa.schema({T_MIN: pa.int64(), T_MAX: pa.int64(), "v": pa.string()})


def block(ends: list[int]) -> pa.RecordBatch:
    arrays = [
        pa.array(ends, pa.int64()),
        pa.array(ends, pa.int64()),
        pa.array([f"r{t}" for t in ends], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def ends(batches: list[pa.RecordBatch]) -> list[int]:
    return [t for batch in batches for t in batch.column(T_MAX).to_pylist()]


class StateMachine(RuleBasedStateMachine):
    """Every step reopens the state from its bytes, as a restarted engine would."""

    def __init__(self) -> None:
        super().__init__()
        self.store = DictStore()
        self.rows: list[list[int]] = [[], []]
        self.waiting: list[tuple[int, list[int]]] = []
        self.floors = [-(2**63), -(2**63)]
        self.physical = 0

    span_us = 0

    def state(self) -> SegmentedState:
        return SegmentedState(self.store, [SCHEMA, SCHEMA], slot_us=10, span_us=self.span_us)

    @rule(input=st.integers(0, 1), times=st.lists(st.integers(-50, 50), min_size=1, max_size=8))
    def append(self, input: int, times: list[int]) -> None:
        state = self.state()
        state.append(input, block(times))
        state.save()
        self.rows[input] += times
        self.physical += len(times)

    @rule(input=st.integers(0, 1), before=st.integers(-60, 60))
    def evict(self, input: int, before: int) -> None:
        state = self.state()
        self.physical -= state.evict(input, before)
        state.save()
        self.floors[input] = max(self.floors[input], before)

    @rule(input=st.integers(0, 1), times=st.lists(st.integers(-50, 50), min_size=1, max_size=3))
    def wait(self, input: int, times: list[int]) -> None:
        state = self.state()
        state.wait(input, block(times))
        state.save()
        self.waiting.append((input, times))

    @rule()
    def take_waiting(self) -> None:
        state = self.state()
        taken = [(arrival.input, ends([arrival.block])) for arrival in state.take_waiting()]
        state.save()
        assert taken == self.waiting
        self.waiting = []

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        state = self.state()
        assert state.rows_held == self.physical
        assert state.rows_waiting == sum(len(times) for _, times in self.waiting)
        assert state.first_waiting_us == min((t for _, times in self.waiting for t in times), default=None)
        for input in (0, 1):
            spans = sorted(state._segments[input].values())
            assert all(one.first < one.stop <= other.first for one, other in pairwise(spans))
            alive = [t for t in self.rows[input] if t >= self.floors[input]]
            assert sorted(ends(state.load(input, -100, 100))) == sorted(alive)
            even = state.load_chosen(input, -100, 100, lambda rows: np.asarray(rows.column(T_MAX)) % 2 == 0)
            assert sorted(ends(even)) == sorted(t for t in alive if t % 2 == 0)
            assert state.rows_within(input, -100, 100) >= len(alive)
            near = ends(state.load(input, 0, 5))
            assert sorted(t for t in near if 0 <= t <= 5) == sorted(t for t in alive if 0 <= t <= 5)
            end = state.first_end_us(input)
            assert end is None or end % 10 == 0


TestSegmentedState = StateMachine.TestCase
TestSegmentedState.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


class GrowingStateMachine(StateMachine):
    """The same where small segments grow."""

    span_us = 40


TestGrowingSegmentedState = GrowingStateMachine.TestCase
TestGrowingSegmentedState.settings = TestSegmentedState.settings


@pytest.mark.parametrize(("step", "late"), [(100, 0), (100, 3_000), (5_000, 0)])
def test_segments_grow_to_a_size_and_no_further(step: int, late: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long state is neither one segment, which each step would rewrite, nor one for each step."""
    monkeypatch.setattr(segment_layout, "GROWING_BYTES", 40_000)
    store, draw, schema, rows = CountingStore(), np.random.default_rng(7), pa.schema({T_MAX: pa.int64()}), 100_000
    for start in range(0, rows, step):
        times = np.arange(start, start + step) - draw.integers(0, late + 1, step)
        state = SegmentedState(store, [schema], slot_us=100, span_us=50_000)
        state.append(0, pa.record_batch([pa.array(times)], schema=schema))
        state.save()
    segments = sorted(state._segments[0].values())
    assert sum(segment.rows for segment in segments) == rows
    assert len(segments) <= 4 * 8 * rows / 40_000
    assert max(segment.size for segment in segments) <= 40_000 + 8 * (step + late) + 1_000
    assert all(segment.stop - segment.first <= 500 for segment in segments)
    written = sum(call.kind == "put" and call.input == 0 for call in store.calls)
    assert written <= (8 if late else 2) * max(rows / step, len(segments))


def test_segments_of_an_earlier_release_keep_their_slots() -> None:
    store = DictStore()
    SegmentedState(store, [SCHEMA], slot_us=100).append(0, block([5]))
    before = SegmentedState(store, [SCHEMA], slot_us=100)
    before.append(0, block([5]))
    before.save()
    state = SegmentedState(store, [SCHEMA], slot_us=1, span_us=100)
    state.append(0, block([250]))
    state.save()
    assert state.slot_us == 100
    assert [segment[:3] for segment in sorted(state._segments[0].values())] == [(0, 1, 1), (2, 3, 1)]


def test_a_step_touches_only_the_segments_it_needs() -> None:
    store = CountingStore()
    for start in range(0, 1000, 20):  # a trickle: two slots a step
        state = SegmentedState(store, [SCHEMA], slot_us=10)
        state.append(0, block(list(range(start, start + 20))))
        state.save()
    store.calls.clear()
    state = SegmentedState(store, [SCHEMA], slot_us=10)
    assert ends(state.load(0, 500, 519)) == list(range(500, 520))
    state.append(0, block([505]))
    state.evict(0, 300)
    state.save()
    assert [call[:3] for call in store.calls] == [
        ("get", DIRECTORY, 0),
        ("get", 0, 50),
        ("get", 0, 51),
        ("put", 0, 50),
        ("put", DIRECTORY, 0),
    ]


def test_rows_that_arrive_together_are_kept_in_few_segments() -> None:
    store = CountingStore()
    state = SegmentedState(store, [SCHEMA], slot_us=10)
    state.append(0, block(list(range(100_000))))
    state.append(0, block([500_000, -500_000, 5]))
    puts = [call.slot for call in store.calls if call.kind == "put"]
    assert puts == [0, 2500, 5000, 7500, 0, -50000, 50000]
    assert sorted(ends(state.load(0, -(2**62), 2**62))) == sorted([*range(100_000), 500_000, -500_000, 5])
    assert state.evict(0, 25_000) == 25_002
    assert state.first_end_us(0) == 50_000


def test_reading_changes_nothing() -> None:
    store = CountingStore()
    SegmentedState(store, [SCHEMA], slot_us=10).save()
    assert not [call for call in store.calls if call.kind == "put"]


def test_a_bucket_keeps_the_slot_width_it_was_written_with() -> None:
    store = DictStore()
    state = SegmentedState(store, [SCHEMA], slot_us=10)
    state.append(0, block([1, 25]))
    state.save()
    state = SegmentedState(store, [SCHEMA], slot_us=1000)
    assert state.slot_us == 10
    assert ends(state.load(0, 20, 29)) == [25]


def test_other_columns_are_refused() -> None:
    store = DictStore()
    state = SegmentedState(store, [SCHEMA], slot_us=10)
    state.append(0, block([1]))
    state.save()
    with pytest.raises(EngineError, match=r"WA-3003.*other columns"):
        SegmentedState(store, [SCHEMA.append(pa.field("new", pa.int64()))], slot_us=10)


def test_unknown_versions_are_refused() -> None:
    data = encode(block([1]))
    assert decode(data, SCHEMA).equals(block([1]))
    with pytest.raises(
        EngineError, match=rf"version {FORMAT_VERSION + 1}, this release reads version {FORMAT_VERSION}"
    ):
        decode(b"WA" + bytes([FORMAT_VERSION + 1]) + data[3:], SCHEMA)
    with pytest.raises(EngineError, match="WA-3003: the state is of unknown bytes"):
        decode(b"\x80\x04pickle", SCHEMA)


def test_a_repeated_column_is_not_stored_and_version_1_that_stored_it_is_read() -> None:
    schema = pa.schema({"a": pa.timestamp("us", "UTC"), "b": pa.timestamp("us")})
    reader = EventReader(0, "left", schema, Interval("a", "b"))
    raw = pa.record_batch([pa.array([1, 2, 3]), pa.array([4, 5, 6])], names=["a", "b"]).cast(reader.schema)
    rows = reader.read(raw).block.slice(1)
    data = encode(rows, reader.block_schema)
    assert decode(data, reader.block_schema).equals(rows)
    assert len(data) < len(encode(pa.record_batch(rows.columns, names=list("wxyz"))))
    version_1 = b"WA\x01" + rows.serialize().to_pybytes()
    assert decode(version_1, reader.block_schema).equals(rows)


def test_a_lost_segment_is_told() -> None:
    store = DictStore()
    state = SegmentedState(store, [SCHEMA], slot_us=10)
    state.append(0, block([1]))
    state.save()
    store.delete(0, 0)
    with pytest.raises(EngineError, match=r"lost segment \(0, 0\)"):
        SegmentedState(store, [SCHEMA], slot_us=10).load(0, 0, 10)


def test_segments_of_a_slice_hold_the_slice_only() -> None:
    rows = block(np.arange(10_000).tolist())
    assert len(encode(rows.slice(0, 10))) < 1_000


MARKS_SCHEMA = pa.schema({"mark": pa.int64()})


def marked(store: DictStore) -> SegmentedState:
    layout = Layout([SCHEMA], marks={0: MARKS_SCHEMA}, marked_later=frozenset({0}))
    return SegmentedState(store, layout, slot_us=10)


def test_a_segment_that_is_marked_later_has_null_marks_for_rows_that_come_afterwards() -> None:
    store = DictStore()
    plain, state = SegmentedState(DictStore(), [SCHEMA], slot_us=10), marked(store)
    for each in (plain, state):
        each.append(0, block([3, 4, 25]))
        each.save()
    assert state.bytes_held == plain.bytes_held
    (held, other) = marked(store).load_marked(0, 0, 99)
    assert held.rows.schema.names == other.rows.schema.names == SCHEMA.names
    state = marked(store)
    (held, other) = state.load_marked(0, 0, 99)
    state.mark(held, pa.record_batch({"mark": pa.array([7, 8])}))
    state.save()
    state = marked(store)
    state.append(0, block([5]))
    state.save()
    first, second = marked(store).load(0, 0, 99)
    assert first.column("mark").to_pylist() == [7, 8, None]
    assert second.schema.names == SCHEMA.names
    state = marked(store)
    state.forget_marks(0)
    state.save()
    assert [batch.schema.names for batch in marked(store).load(0, 0, 99)] == [SCHEMA.names] * 2
    state.append(0, block([6]))
    assert state.evict(0, 99) == 5
    state.save()
    assert list(store._segments) == [(DIRECTORY, 0)]


def test_segments_of_which_half_was_dropped_are_rewritten() -> None:
    store = CountingStore()
    state = SegmentedState(store, [SCHEMA], slot_us=100)
    state.append(0, block([1, 2, 3, 4]))
    assert (state.evict(0, 2), state.trim(0), state.rows_held) == (0, 0, 4)
    assert (state.evict(0, 3), state.trim(0), state.rows_held, ends(state.load(0, 0, 99))) == (0, 2, 2, [3, 4])
    assert (state.evict(0, 5), state.trim(0), state.rows_held) == (0, 2, 0)
    state.save()
    assert list(store._segments) == [(DIRECTORY, 0)]


def test_a_column_may_have_no_name() -> None:
    """As a key of JSON may."""
    rows = pa.record_batch({"us": [1, 2], "": ["a", "b"]})
    schema = pa.schema([rows.schema.field(0), rows.schema.field(1), copy_of(pa.field("t", pa.timestamp("us")), "us")])
    rows = pa.RecordBatch.from_arrays([*rows.columns, rows.column(0).view(pa.timestamp("us"))], schema=schema)
    assert decode(encode(rows, schema), schema).equals(rows)
