"""Joins of many pairs put their targets in order first, and give the same pairs and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import Interval, Lateness, Point, overlaps, within
from whenabouts.core.arrays import threads
from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.local import run_stream, timing_join
from whenabouts.core.timing_join import strategies
from whenabouts.core.timing_join.query import TimingJoin


def side(seed: int, rows: int = 600, *, ordered: bool = False) -> pa.Table:
    random = np.random.default_rng(seed)
    start = random.integers(0, 5_000, rows)
    start = np.sort(start) if ordered else start
    length = random.integers(0, 400, rows)
    return pa.table({
        "key": pa.array([None if code == 3 else f"key {code}" for code in random.integers(0, 4, rows)]),
        "a": start,
        "b": start + length * random.integers(0, 2, rows),
        "c": start + length + 1,
        "id": np.arange(rows),
        "text": [f"{number % 7}" * (number % 5) for number in range(rows)],
    })  # fmt: skip


def count_reorderings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Reorders however few pairs there are; the list grows with every time."""
    seen: list[int] = []
    correlate = strategies.correlate

    def counting(*args: Any, reorder: Any = None, **options: Any) -> Any:
        def noted(positions: Any) -> None:
            seen.append(len(positions))
            reorder(positions)

        return correlate(*args, reorder=None if reorder is None else noted, **options)

    monkeypatch.setattr(strategies, "correlate", counting)
    monkeypatch.setattr(strategies, "MANY_TARGETS", 0)
    monkeypatch.setattr(strategies, "MANY_A_ROW", 0)
    # Rows with few candidates go another way.
    monkeypatch.setattr(strategies, "near_pairs", lambda *_: None)
    return seen


INTERVAL, LONGER = Interval("a", "b", max_uncertainty=400), Interval("a", "c", max_uncertainty=401)
OVERLAPPING = {"condition": overlaps(), "left_time": LONGER, "right_time": LONGER}
WITHIN = {"condition": within("300us", confidence=0.4), "left_time": INTERVAL, "right_time": INTERVAL}
MOVED: dict[str, dict[str, Any]] = {
    "overlaps": OVERLAPPING,
    "overlaps, with keys": {**OVERLAPPING, "on": "key"},
    "uncertain times": WITHIN,
    "uncertain times with keys": {**WITHIN, "on": "key"},
    "points": {**WITHIN, "left_time": Point("a"), "right_time": Point("b"), "on": "key"},
}
NOT_MOVED: dict[str, dict[str, Any]] = {
    "a further condition": {**WITHIN, "where": "left.id < right.id + 5"},
    "instants that touch": {**OVERLAPPING, "left_time": INTERVAL, "right_time": INTERVAL},
}


@pytest.mark.parametrize("probability", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", [*MOVED, *NOT_MOVED])
def test_the_rows_are_the_same(name: str, ordered: bool, probability: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = side(1), side(2, ordered=ordered)
    options = MOVED[name] if name in MOVED else NOT_MOVED[name]

    def rows(count: int) -> list[tuple[Any, ...]]:
        found = timing_join(left, right, threads=count, probability=probability, **options)
        return sorted(zip(*found.to_pydict().values(), strict=True), key=repr)

    expected = rows(1)
    assert len(expected) > 500
    seen = count_reorderings(monkeypatch)
    assert rows(1) == expected
    # Targets in order of time stay where they are, unless they are grouped by key or ordered by midpoint.
    assert bool(seen) is (name in MOVED) or ordered
    monkeypatch.setattr(threads, "LEAST_ROWS", 5)
    assert rows(3) == expected


@pytest.mark.parametrize("name", MOVED)
def test_the_rows_of_a_stream_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = TimingJoin(**({"on": ()} | MOVED[name]), lateness=Lateness(5_000, 5_000))
    # Rows of either side arrive later than rows of the other that they match, and are the base of these pairs.
    parts = [[table.slice(at, 150) for at in range(0, 600, 150)] for table in (side(1), side(2))]

    def rows() -> list[tuple[Any, ...]]:
        return sorted(zip(*run_stream(query, parts).output.to_pydict().values(), strict=True), key=repr)

    expected = rows()
    assert len(expected) > 500
    seen = count_reorderings(monkeypatch)
    assert rows() == expected
    assert len(seen) > 4


@pytest.mark.parametrize("how", ["left_outer", "full_outer", "left_semi", "left_anti"])
def test_modes_that_mark_rows_are_left_alone(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = side(1), side(2)
    options: dict[str, Any] = {**OVERLAPPING, "how": how}

    def rows() -> list[tuple[Any, ...]]:
        return sorted(zip(*timing_join(left, right, **options).to_pydict().values(), strict=True), key=repr)

    expected = rows()
    seen = count_reorderings(monkeypatch)
    assert (rows(), seen) == (expected, [])


def test_rows_in_order_are_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    at = np.arange(0, 60_000, 10)
    rows = pa.table({"t": at, "id": at})
    time_of, condition = Point("t"), within("100us", confidence=1)
    options: dict[str, Any] = {"left_time": time_of, "right_time": time_of, "condition": condition}
    expected = timing_join(rows, rows, **options).to_pydict()
    seen = count_reorderings(monkeypatch)
    assert (timing_join(rows, rows, **options).to_pydict(), seen) == (expected, [])


def test_positions_are_those_of_the_order() -> None:
    random = np.random.default_rng(5)
    rows = strategies.MANY_TARGETS
    base, target = (Times(start, start + 50) for start in random.integers(0, 100 * rows, (2, rows)))
    found: list[Any] = []
    for reorder in (None, found.append):
        pairs = list(strategies.correlate(
            base, target, -900, 900, 1.0, strategy="auto", base_lengths=(0, 50), target_lengths=(0, 50),
            counters=strategies.CorrelationCounters(), reorder=reorder,
        ))  # fmt: skip
        found.append([np.concatenate(column) for column in zip(*pairs, strict=True)])
    (base_at, target_at), order, (base_in_order, target_in_order) = found
    assert len(base_at) > strategies.MANY_A_ROW * rows
    wanted, given = np.lexsort((target_at, base_at)), np.lexsort((order[target_in_order], base_in_order))
    assert np.array_equal(base_at[wanted], base_in_order[given])
    assert np.array_equal(target_at[wanted], order[target_in_order][given])
    assert np.abs(np.diff(target_in_order.astype(np.int64))).max() < 1_000
