"""Rows by key in slots of hashes: what is read equals a dict of rows, and a step touches only the slots of its keys."""

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core.errors import EngineError
from whenabouts.core.state.hashed_slots import ROWS_PER_SLOT, HashedSlots, Size
from whenabouts.core.state.memory_store import DictStore

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})


def _hash(rows: pa.RecordBatch) -> np.ndarray:
    return _hashes(np.asarray(rows.column("key").to_numpy()))


def _hashes(keys: np.ndarray) -> np.ndarray:
    return keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def _rows(of: dict[int, list[int]]) -> pa.RecordBatch:
    pairs = [(key, value) for key, values in of.items() for value in values]
    return pa.record_batch([[key for key, _ in pairs], [value for _, value in pairs]], schema=SCHEMA)


class CountingStore(DictStore):
    """A store that counts what is read and written."""

    calls = 0

    def get(self, input, slot):
        self.calls += 1
        return super().get(input, slot)

    def put(self, input, slot, data):
        self.calls += 1
        super().put(input, slot, data)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_equals_a_dict_of_rows_after_any_replacements_and_restarts(seed):
    random = np.random.default_rng(seed)
    store, size, expected = DictStore(), Size(), {}
    for _ in range(60):
        slots = HashedSlots(store, 2, SCHEMA, _hash, size)  # a new step: only the store and the size are kept
        keys = np.unique(random.integers(0, 3000, 200))
        touched = slots.of(_hashes(keys))
        held = slots.read(touched)
        changed = {key: random.integers(0, 100, random.integers(0, 4)).tolist() for key in keys.tolist()}
        kept = {key: values for key, values in _by_key(held).items() if key not in changed}
        slots.replace(touched, _rows(kept | changed))
        expected |= changed
        size = slots.size
        assert size.rows == sum(map(len, expected.values()))
        assert size.rows <= ROWS_PER_SLOT * size.slots
    slots = HashedSlots(store, 2, SCHEMA, _hash, size)
    all_keys = np.arange(3000)
    assert size.slots > 4
    assert _by_key(slots.read(slots.of(_hashes(all_keys)))) == {key: rows for key, rows in expected.items() if rows}


def test_a_step_touches_only_the_slots_of_its_keys():
    store = CountingStore()
    slots = HashedSlots(store, 2, SCHEMA, _hash)
    slots.replace(np.array([0]), _rows({key: [key] for key in range(100_000)}))
    assert slots.size.slots == -(-100_000 // ROWS_PER_SLOT)
    store.calls = 0
    slots = HashedSlots(store, 2, SCHEMA, _hash, slots.size)
    touched = slots.of(_hashes(np.array([5, 70_000])))
    rows = slots.read(touched)
    slots.replace(touched, rows)
    assert {5, 70_000} <= set(rows.column("key").to_pylist())
    assert store.calls == 2 * len(touched) <= 4


def test_slots_without_rows_are_deleted():
    store = DictStore()
    slots = HashedSlots(store, 2, SCHEMA, _hash)
    slots.replace(np.array([0]), _rows({1: [1], 2: [2]}))
    slots.replace(np.array([0]), _rows({}))
    assert store.bytes_held == 0 == slots.size.rows


def test_keys_of_one_bucket_spread_over_all_slots():
    keys = np.arange(200_000)
    of_bucket = keys[_hashes(keys) % np.uint64(16) == 3]
    slots = HashedSlots(DictStore(), 2, SCHEMA, _hash, Size(slots=16))
    assert len(slots.of(_hashes(of_bucket))) == 16


def test_bytes_of_another_version_are_refused():
    store = DictStore()
    store.put(2, 0, b"WA\x63")
    with pytest.raises(EngineError, match="WA-3003"):
        HashedSlots(store, 2, SCHEMA, _hash).read(np.array([0]))


def _by_key(rows: pa.RecordBatch) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["key"], []).append(row["value"])
    return found
