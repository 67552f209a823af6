"""Folded right rows: the candidates of every left row to come stay the same, and state stays small."""

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core.asof_join.carried_rows import Carried, CarriedRows, still_needed
from whenabouts.core.runtime.blocks import T_MAX, T_MIN
from whenabouts.core.runtime.keys import Keys
from whenabouts.core.state.memory_store import DictStore

SCHEMA = pa.schema({T_MIN: pa.int64(), T_MAX: pa.int64(), "key": pa.int64(), "version": pa.int64()})
FAR = 1 << 40


def _batch(rows: list[tuple[int, int, int, int]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * 4
    return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


def _tuples(rows: pa.RecordBatch) -> list[tuple[int, int, int, int]]:
    return [tuple(row.values()) for row in rows.to_pylist()]


def _candidates(rows, key, a, b, tolerance, direction):
    """The candidates of a left row by the definition, of tied points only the last."""
    mine = [row for row in rows if row[2] == key]
    last = {row[0]: max(other for other in mine if other[:2] == row[:2]) for row in mine if row[0] == row[1] < a}
    mine = [row for row in mine if row[0] != row[1] or row[0] >= a or last[row[0]] == row]
    if direction == "backward":
        p, q = max((s for s, e, *_ in mine if e <= a), default=-FAR), b
    else:
        p = max((min(s, 2 * a - e) for s, e, *_ in mine), default=-FAR)
        q = min((max(e, 2 * b - s) for s, e, *_ in mine), default=FAR)
    lo, hi = (max(p, a - tolerance), min(q, b + tolerance)) if tolerance is not None else (p, q)
    return sorted(row for row in mine if row[1] >= lo and row[0] <= hi)


@pytest.mark.parametrize("direction", ["backward", "nearest"])
@pytest.mark.parametrize("tolerance", [None, 0, 7])
@pytest.mark.parametrize("seed", range(40))
def test_folding_leaves_the_candidates_of_all_later_left_rows(seed, tolerance, direction):
    random = np.random.default_rng(seed)
    begins = random.integers(0, 25, 30)
    ends = begins + random.integers(0, 6, 30) * random.integers(0, 2, 30)
    rows = list(zip(begins.tolist(), ends.tolist(), random.integers(0, 3, 30).tolist(), range(30), strict=True))
    before = int(random.integers(5, 30))
    early = [row for row in rows if row[1] < before]
    block = _batch(early)
    codes = np.asarray(block.column("key").to_numpy())
    kept = _tuples(block.filter(pa.array(still_needed(codes, block, ("version",), before, tolerance))))
    later = [row for row in rows if row[1] >= before]
    for key in range(3):
        for a in range(before, 32):
            b = a + int(random.integers(0, 5))
            expected = _candidates(rows, key, a, b, tolerance, direction)
            assert _candidates(kept + later, key, a, b, tolerance, direction) == expected
    assert len(kept) <= len(early)


def test_a_key_keeps_its_last_row_however_old_and_one_of_equal_instants():
    block = _batch([(5, 5, 0, 1), (5, 5, 0, 3), (5, 5, 0, 2), (1, 4, 0, 0), (0, 9, 0, 0), (2, 2, 7, 0)])
    codes = np.asarray(block.column("key").to_numpy())
    needed = still_needed(codes, block, ("version",), FAR, None)
    assert _tuples(block.filter(pa.array(needed))) == [(5, 5, 0, 3), (0, 9, 0, 0), (2, 2, 7, 0)]


def _carried(store: DictStore, carried: Carried, tolerance: int | None) -> CarriedRows:
    keys = Keys(("key",), [SCHEMA, SCHEMA], ("left", "right"))
    return CarriedRows(store, SCHEMA, keys, order_by=("version",), tolerance_us=tolerance, carried=carried)


def test_carried_rows_of_many_keys_stay_one_for_each_key_over_restarts():
    random = np.random.default_rng(1)
    store, carried, last, dropped = DictStore(), Carried(), {}, 0
    for step in range(50):
        step_rows = [(step, step, int(key), int(version)) for key, version in random.integers(0, 900, (100, 2))]
        rows = _carried(store, carried, None)
        dropped += rows.fold(_batch(step_rows), step + 1)
        carried = rows.carried
        for row in step_rows:
            last[row[2]] = max(last.get(row[2], row), row)
        assert carried.rows == len(last)
        assert carried.bytes == store.bytes_held
    assert dropped == 50 * 100 - len(last)
    found = _carried(store, carried, None).of(_batch([(99, 99, 17, 0), (99, 99, 430, 0)]))
    assert {last[17], last[430]} <= set(_tuples(found))


def test_with_a_tolerance_silent_keys_expire_within_one_more_tolerance_and_leave_no_bytes():
    store, carried = DictStore(), Carried()
    rows = _carried(store, carried, 100)
    rows.sweep(0)
    rows.fold(_batch([(n % 50, n % 50, n, 0) for n in range(5000)]), 60)
    rows.sweep(60)
    carried = rows.carried
    assert carried.rows == 5000
    assert carried.slots > 5
    due = rows.next_sweep_us
    assert due == 160
    part_way = _carried(store, carried, 100)
    part_way.sweep(130)
    assert 0 < part_way.carried.rows < 5000
    carried = part_way.carried
    last = _carried(store, carried, 100)
    last.sweep(last.next_sweep_us)
    assert last.carried.rows == 0 == store.bytes_held
    assert last.next_sweep_us is None
