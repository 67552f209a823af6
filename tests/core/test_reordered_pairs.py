"""Joins of many pairs put their targets in order first, and give the same pairs and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from whenabouts.core import Interval, Point, overlaps, within
from whenabouts.core.arrays import threads
from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.local import timing_join
from whenabouts.core.timing_join import strategies


def side(seed: int, rows: int = 600, *, ordered: bool = False) -> pa.Table:
    random = np.random.default_rng(seed)
    start = random.integers(0, 5_000, rows)
    start = np.sort(start) if ordered else start
    return pa.table({
        "key": pa.array([None if code == 3 else f"key {code}" for code in random.integers(0, 4, rows)]),
        "a": start,
        "b": start + random.integers(0, 400, rows) * random.integers(0, 2, rows),
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
    monkeypatch.setattr(strategies, "MANY_PAIRS", 0)
    monkeypatch.setattr(strategies, "MANY_A_ROW", 0)
    # Rows with few candidates go another way.
    monkeypatch.setattr(strategies, "near_pairs", lambda *_: None)
    return seen


INTERVAL = Interval("a", "b")
CALLS: dict[str, dict[str, Any]] = {
    "overlaps": {"condition": overlaps()},
    "overlaps, with keys": {"condition": overlaps(), "on": "key"},
    "with keys and probabilities": {"condition": within("300us", confidence=0.4), "on": "key", "probability": True},
    "of points": {"condition": within("300us", confidence=0.4), "left_time": Point("a"), "right_time": Point("b")},
    "a further condition": {
        "condition": within("300us", confidence=0.4),
        "where": "left.id < right.id + 5",
        "on": "key",
    },
    "a further condition on instants": {"condition": overlaps(), "where": "left.text = right.text"},
}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_the_rows_are_the_same(name: str, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = side(1), side(2, ordered=ordered)
    options = {"left_time": INTERVAL, "right_time": INTERVAL, "probability": False, **CALLS[name]}

    def rows(count: int) -> list[tuple[Any, ...]]:
        found = timing_join(left, right, threads=count, **options)
        return sorted(zip(*found.to_pydict().values(), strict=True), key=repr)

    expected = rows(1)
    assert len(expected) > 500
    seen = count_reorderings(monkeypatch)
    assert rows(1) == expected
    assert seen == [600 if "on" not in options else seen[0]]
    monkeypatch.setattr(threads, "LEAST_ROWS", 5)
    assert rows(3) == expected


@pytest.mark.parametrize("how", ["left_outer", "full_outer", "left_semi", "left_anti"])
def test_modes_that_mark_rows_are_left_alone(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = side(1), side(2)
    options: dict[str, Any] = {"left_time": INTERVAL, "right_time": INTERVAL, "condition": overlaps(), "how": how}

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
    base, target = (Times(start, start + 50) for start in random.integers(0, 3_000_000, (2, 30_000)))
    found: list[Any] = []
    for reorder in (None, found.append):
        pairs = list(strategies.correlate(
            base, target, -9_000, 9_000, 1.0, strategy="auto", base_lengths=(0, 50), target_lengths=(0, 50),
            counters=strategies.CorrelationCounters(), reorder=reorder,
        ))  # fmt: skip
        found.append([np.concatenate(column) for column in zip(*pairs, strict=True)])
    (base_at, target_at), order, (base_in_order, target_in_order) = found
    assert len(base_at) > strategies.MANY_PAIRS
    wanted, given = np.lexsort((target_at, base_at)), np.lexsort((order[target_in_order], base_in_order))
    assert np.array_equal(base_at[wanted], base_in_order[given])
    assert np.array_equal(target_at[wanted], order[target_in_order][given])
    assert np.abs(np.diff(target_in_order.astype(np.int64))).max() < 1_000
