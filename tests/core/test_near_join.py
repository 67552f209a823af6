"""Pairs of rows with few candidates, searched and filled in one go, are those of the general way, in its order."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from whenabouts.core.arrays.key_time_order import Times
from whenabouts.core.arrays.threads import using
from whenabouts.core.times.limits import UNBOUNDED_US
from whenabouts.core.times.templates import Template
from whenabouts.core.timing_join import near_join, near_pairs, strategies
from whenabouts.core.timing_join.candidate_ranges import kinds_of, sides_of

LENGTHS = (0, 2_000)
CONFIDENCE = 0.7


def times(
    rows: int, span: int, keys: int | None, seed: int, *, ordered: bool = False, length: int | None = None
) -> Times:
    rng = np.random.default_rng(seed)
    t_max = rng.integers(-span, span, rows, endpoint=True)
    t_max = np.sort(t_max) if ordered else t_max
    t_min = t_max - (rng.integers(*LENGTHS, rows, endpoint=True) if length is None else length)
    return Times(t_min, t_max, None if keys is None else rng.integers(0, keys, rows))


def options(**more: Any) -> dict[str, Any]:
    return {"strategy": "auto", "base_lengths": LENGTHS, "target_lengths": LENGTHS} | more


def answer(
    base: Times, target: Times, window: tuple[int, int], chunk_pairs: int = 1 << 24, **more: Any
) -> list[object]:
    """Pairs in their order, and all counts."""
    counters = strategies.CorrelationCounters()
    expected: list[tuple[int, int]] = []
    chunks = list(
        strategies.correlate(
            base, target, *window, CONFIDENCE, counters=counters, chunk_pairs=chunk_pairs,
            expect=lambda *counts: expected.append(counts), **options(**more),
        )
    )  # fmt: skip
    assert all(len(chunk[0]) <= chunk_pairs for chunk in chunks)
    pairs = [np.concatenate([chunk[side] for chunk in chunks]).tolist() for side in (0, 1)] if chunks else []
    return [pairs, counters, expected]


def generally(base: Times, target: Times, window: tuple[int, int], **more: Any) -> list[object]:
    with patch.object(strategies, "near_pairs", return_value=None):
        return answer(base, target, window, **more)


def is_near(base: Times, target: Times, window: tuple[int, int], **more: Any) -> bool:
    given = options(base_templates=(), target_templates=(), base_is_right=False) | more
    sides = sides_of(base, target, *window, CONFIDENCE, **given)
    return near_join.near_pairs(sides, kinds_of(sides)) is not None


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("keys", [None, 1, 40])
@pytest.mark.parametrize("window", [(-3_000, 3_000), (500, 2_500), (0, 9_000), None])
def test_pairs_order_and_counts_are_those_of_the_general_way(
    window: tuple[int, int] | None, keys: int | None, ordered: bool
) -> None:
    span = 8_000_000 // (keys or 1)
    window = window or (-UNBOUNDED_US, -194 * span // 100)
    base, target = (times(3_000, span, keys, seed, ordered=ordered) for seed in (1, 2))
    expected = generally(base, target, window)
    for rows_at_once in (1 << 14, 500, 7):
        with patch.object(near_join, "_ROWS_AT_ONCE", rows_at_once):
            assert answer(base, target, window) == expected
    assert is_near(base, target, window)
    assert len(expected[0][0]) > 30  # type: ignore[index]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("keys", [None, 40])
@pytest.mark.parametrize("lengths", [(0, 0), (1_000, 1_000), (7, 2_000), (0, 999)])
@pytest.mark.parametrize(
    "window",
    [(-3_000, 3_000), (500, 2_500), (-300, 400), (100, 101), (2**62, 2**62), None, (-UNBOUNDED_US, UNBOUNDED_US)],
)
def test_rows_of_one_length_have_the_pairs_of_the_general_way(
    window: tuple[int, int] | None, lengths: tuple[int, int], keys: int | None, ordered: bool
) -> None:
    span = 8_000_000 // (keys or 1)
    if window == (-UNBOUNDED_US, UNBOUNDED_US):
        keys, rows = 100, 300  # three a key
    else:
        rows = 3_000
    window = window or (-UNBOUNDED_US, -194 * span // 100)
    base, target = (
        times(rows, span, keys, seed, ordered=ordered, length=length) for seed, length in enumerate(lengths)
    )
    expected = generally(base, target, window)
    for rows_at_once in (1 << 14, 500):
        with patch.object(near_join, "_ROWS_AT_ONCE", rows_at_once):
            assert answer(base, target, window) == expected
    assert is_near(base, target, window)
    if window not in ((-300, 400), (100, 101), (2**62, 2**62)):  # too narrow for long intervals, or too far
        assert len(expected[0][0]) > 30  # type: ignore[index]


SHAPES = (
    Template(((0, 400, 0.5), (400, 1_500, 0.0), (1_500, 2_000, 0.5))),
    Template(((0, 10, 0.25), (10, 700, 0.5), (700, 701, 0.25))),
    Template(((0, 1, 1.0),)),
)


def with_kinds(rows: Times, kind: str, seed: int) -> tuple[Times, tuple[Template, ...]]:
    """The same rows with templates, or with few lengths."""
    number = np.random.default_rng(seed).integers(0, 3, len(rows)).astype(np.int32)
    if kind == "templates":
        lengths = np.array([shape.length_us for shape in SHAPES])[number]
        return Times(rows.t_max - lengths, rows.t_max, rows.key, number), SHAPES
    if kind == "few lengths":
        return Times(rows.t_max - np.array([20, 700, 2_000])[number], rows.t_max, rows.key), ()
    if kind == "one length":
        return Times(rows.t_max - 700, rows.t_max, rows.key), ()
    return rows, ()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("keys", [None, 40])
@pytest.mark.parametrize(
    "kinds",
    [
        ("templates", "templates"), ("templates", "many lengths"), ("one length", "templates"),
        ("few lengths", "few lengths"), ("one length", "few lengths"), ("few lengths", "one length"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("window", [(-3_000, 3_000), (500, 2_500), (-300, 400), (100, 101), (2**58, 2**58), None])
def test_rows_of_several_kinds_have_the_pairs_of_the_general_way(
    window: tuple[int, int] | None, kinds: tuple[str, str], keys: int | None, ordered: bool
) -> None:
    span = 8_000_000 // (keys or 1)
    narrow = window in ((-300, 400), (100, 101), (2**58, 2**58))  # too narrow for long intervals, or too far
    window = window or (-UNBOUNDED_US, -194 * span // 100)
    (base, left), (target, right) = (
        with_kinds(times(3_000, span, keys, seed, ordered=ordered), kind, seed) for seed, kind in enumerate(kinds)
    )
    for more in ({}, {"base_is_right": True}):
        more = more | {"base_templates": left, "target_templates": right}
        expected = generally(base, target, window, **more)
        for rows_at_once in (1 << 14, 500):
            with patch.object(near_join, "_ROWS_AT_ONCE", rows_at_once):
                assert answer(base, target, window, **more) == expected
        assert is_near(base, target, window, **more)
        assert narrow or len(expected[0][0]) > 30  # type: ignore[index]


def test_pairs_that_the_thresholds_of_templates_leave_open_are_decided_as_in_the_general_way() -> None:
    base, target = (with_kinds(times(2_000, 1_000_000, None, seed), "templates", seed)[0] for seed in (1, 2))
    more = {"base_templates": SHAPES, "target_templates": SHAPES}
    probed = 0
    for width in range(1_395, 1_405):  # narrower than the supports: both tails matter
        window = (-width // 2, width // 2)
        found = answer(base, target, window, **more)
        assert found == generally(base, target, window, **more)
        assert is_near(base, target, window, **more)
        probed += found[1].probed  # type: ignore[attr-defined]
    assert probed > 100


def test_chunks_and_threads_give_the_same_pairs() -> None:
    base, target = (times(200_000, 4_000_000, 100, seed) for seed in (1, 2))
    window = (-8_000, 8_000)
    assert is_near(base, target, window)
    alone = answer(base, target, window)
    assert alone == generally(base, target, window)
    with using(2):
        assert answer(base, target, window) == alone
        assert answer(base, target, window, chunk_pairs=1_000) == alone


def test_rows_that_crowd_get_room_as_they_need_it() -> None:
    base, target = times(2_000, 2_000_000, None, 1), times(2_000, 2_000_000, None, 2)
    many = np.arange(2_000) < 100  # a tenth of the pairs per row allowed, all at one place
    t_max = np.where(many, 0, base.t_max)
    base = Times(t_max - 5, t_max)
    partners = np.where(np.arange(2_000) < 100, 3, target.t_max)
    target = Times(partners - (target.t_max - target.t_min), partners)
    window = (-2_500, 2_500)
    expected = generally(base, target, window)
    with patch.object(near_join, "_ROWS_AT_ONCE", 16), patch.object(near_join, "_few_of_first", return_value=True):
        assert answer(base, target, window) == expected
        assert is_near(base, target, window)


@pytest.mark.parametrize("why", ["many pairs", "one row"])
def test_others_go_the_general_way(why: str) -> None:
    base, target, window = times(3_000, 3_000_000, None, 1), times(3_000, 3_000_000, None, 2), (-3_000, 3_000)
    if why == "many pairs":
        window = (-30_000, 30_000)
    else:
        t_max = np.where(np.arange(3_000) < near_pairs.PAIRS_AT_ONCE + 1, 7, 10_000_000 + target.t_max)
        target = Times(t_max - (target.t_max - target.t_min), t_max)
    with patch.object(near_join, "_ROWS_AT_ONCE", 64):
        assert not is_near(base, target, window)
        assert answer(base, target, window) == generally(base, target, window)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("times_are", ["wide", "crowded"])
def test_times_of_every_kind_have_the_pairs_of_the_general_way(times_are: str, ordered: bool) -> None:
    base, target = (times(3_000, 3_000_000, 3, seed, ordered=ordered) for seed in (1, 2))
    if times_are == "wide":
        base.t_max[0], base.t_min[0] = 2**58, 2**58 - 3
        target.t_max[-1], target.t_min[-1] = -(2**58), -(2**58) - 7
    else:  # nearly all in a few places, and far from each other
        for side in (base, target):
            lengths, far = side.t_max - side.t_min, 2**40 * (np.arange(3_000) % 900)
            side.t_max[:] = far + side.t_max % 50
            side.t_min[:] = side.t_max - lengths
    window = (-3_000, 3_000)
    expected = generally(base, target, window)
    for rows_at_once in (1 << 14, 64):
        with patch.object(near_join, "_ROWS_AT_ONCE", rows_at_once):
            assert is_near(base, target, window)
            assert answer(base, target, window) == expected
    assert len(expected[0][0]) > 30  # type: ignore[index]
