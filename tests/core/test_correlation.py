"""All strategies give the pairs of an exact brute force, with the operation counts that their papers define."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whenabouts.conformance import oracle
from whenabouts.core.arrays.key_time_order import order_rows
from whenabouts.core.probability.satisfaction_probability import KERNEL_ERROR, satisfaction_probability_numpy
from whenabouts.core.times.limits import FARTHEST_US, UNBOUNDED_US
from whenabouts.core.timing_join import candidate_ranges
from whenabouts.core.timing_join import strategies as correlation
from whenabouts.core.timing_join.strategies import STRATEGIES, CorrelationCounters, Times, correlate

Row = tuple[int, int, int]  # t_min, t_max, key
Pair = tuple[int, int]


def probability(base: Row, target: Row, lo: int, hi: int) -> Fraction:
    return oracle.probability(base[:2], target[:2], lo, hi).exact


def tail_hi(base: Row, target: Row, hi: int) -> Fraction:
    return probability(base, target, -UNBOUNDED_US, hi)


def tail_lo(base: Row, target: Row, lo: int) -> Fraction:
    return probability(base, target, lo, UNBOUNDED_US)


def brute_force(base: list[Row], target: list[Row], lo: int, hi: int, confidence: float) -> list[Pair]:
    return sorted(
        (i, j)
        for i, b in enumerate(base)
        for j, t in enumerate(target)
        if b[2] == t[2] and oracle.is_match(oracle.probability(b[:2], t[:2], lo, hi), confidence)
    )


def times_of(rows: list[Row], keyed: bool) -> Times:
    columns = np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, 3).T)
    return Times(columns[0], columns[1], columns[2] if keyed else None)


def greatest_length(times: Times) -> int:
    return int((times.t_max - times.t_min).max(initial=0))


def run(
    base: Times,
    target: Times,
    window: tuple[int, int],
    confidence: float,
    strategy: str,
    *,
    base_lengths: tuple[int, int] | None = None,
    target_lengths: tuple[int, int] | None = None,
    chunk_pairs: int = 1 << 24,
    first_only: bool = False,
) -> tuple[list[Pair], CorrelationCounters]:
    counters, pairs = CorrelationCounters(), []
    for base_rows, target_rows in correlate(
        base, target, *window, confidence, strategy=strategy, counters=counters, chunk_pairs=chunk_pairs,
        first_only=first_only,
        base_lengths=base_lengths or (0, greatest_length(base)),
        target_lengths=target_lengths or (0, greatest_length(target)),
    ):  # fmt: skip
        assert base_rows.dtype == target_rows.dtype == np.int32
        assert 0 < len(base_rows) == len(target_rows) <= chunk_pairs
        pairs += zip(base_rows.tolist(), target_rows.tolist(), strict=True)
    assert counters.matched == len(pairs)
    return sorted(pairs), counters


ROW = st.tuples(st.integers(0, 25), st.one_of(st.just(0), st.integers(0, 8)), st.integers(0, 2)).map(
    lambda row: (row[0], row[0] + row[1], row[2])
)
ROWS = st.lists(ROW, max_size=14)
WINDOW = st.one_of(
    st.tuples(st.integers(-12, 6), st.integers(0, 30)).map(lambda w: (w[0], w[0] + w[1])),
    st.integers(-6, 6).map(lambda lo: (lo, UNBOUNDED_US)),
    st.integers(-6, 6).map(lambda hi: (-UNBOUNDED_US, hi)),
    st.just((-UNBOUNDED_US, UNBOUNDED_US)),
)
CONFIDENCE = st.sampled_from((1.0, 0.8, 0.75, 0.5, 0.2, 1 / 3, 1e-3, 1e-300))

HALF_TIE = ([(0, 10, 0)], [(5, 15, 0), (-5, 5, 0)], (-5, 5), 0.5)
FOUR_FIFTHS_TIE = ([(0, 0, 0)], [(0, 10, 0), (-10, 0, 0)], (-8, 8), 0.8)


class TestFirstPartners:
    """Semi and anti modes need one partner for each row that has any."""

    @given(ROWS, ROWS, WINDOW, CONFIDENCE, st.booleans())
    @settings(max_examples=300, deadline=None)
    @example(*HALF_TIE, False)
    @example(*FOUR_FIFTHS_TIE, True)
    @example([(0, 8, 2), (9, 9, 0)], [(4, 4, 0), (4, 4, 2)], (0, 0), 1e-300, True)
    def test_each_row_that_has_a_partner_gets_one_of_its_own(
        self, base: list[Row], target: list[Row], window: tuple[int, int], confidence: float, keyed: bool
    ) -> None:
        if not keyed:
            base, target = ([(*row[:2], 0) for row in rows] for rows in (base, target))
        expected = brute_force(base, target, *window, confidence)
        for strategy in STRATEGIES:
            sides = times_of(base, keyed), times_of(target, keyed)
            pairs, _ = run(*sides, window, confidence, strategy, first_only=True)
            assert set(pairs) <= set(expected), strategy
            assert {row for row, _ in pairs} == {row for row, _ in expected}, strategy
            if strategy not in ("simple", "ssort"):
                assert len({row for row, _ in pairs}) == len(pairs), strategy

    @pytest.mark.parametrize("strategy", ["auto", "eager", "lazy", "lazy_lookup"])
    @pytest.mark.parametrize("lengths", [[0], [0, 20], range(0, 90)])
    def test_a_row_with_a_sure_partner_looks_at_nothing_else(self, strategy: str, lengths: Sequence[int]) -> None:
        """20,000 rows a side, each within reach of thousands: 100 million pairs, of which n are examined."""
        n, random = 20_000, np.random.default_rng(7)
        sides = []
        for _ in range(2):
            t_min = np.sort(random.integers(0, 100_000, n))
            sides.append(Times(t_min, t_min + random.choice(lengths, n)))
        pairs, counters = run(*sides, (-20_000, 20_000), 0.8, strategy, first_only=True)
        assert len(pairs) == n
        assert (counters.sure, counters.probed, counters.passed) == (n, 0, n)


class TestPairs:
    @given(ROWS, ROWS, WINDOW, CONFIDENCE, st.booleans())
    @settings(max_examples=300, deadline=None)
    @example(*HALF_TIE, False)
    @example(*FOUR_FIFTHS_TIE, True)
    @example([], [(0, 1, 0)], (0, 1), 0.5, True)
    @example([(0, 1, 0)], [], (0, 1), 0.5, False)
    @example([(3, 3, 0)] * 3, [(3, 3, 0)] * 2, (0, 0), 1.0, False)
    @example([(0, 8, 2), (9, 9, 0)], [(4, 4, 0), (4, 4, 2)], (0, 0), 1e-300, True)
    def test_every_strategy_equals_brute_force(
        self, base: list[Row], target: list[Row], window: tuple[int, int], confidence: float, keyed: bool
    ) -> None:
        if not keyed:
            base, target = ([(*row[:2], 0) for row in rows] for rows in (base, target))
        expected = brute_force(base, target, *window, confidence)
        for strategy in STRATEGIES:
            for chunk_pairs, bounded_at_once in ((1 << 24, 1 << 15), (3, 1 << 15), (3, 2)):
                with patch.object(candidate_ranges, "_BOUNDED_AT_ONCE", bounded_at_once):
                    pairs, _ = run(
                        times_of(base, keyed),
                        times_of(target, keyed),
                        window,
                        confidence,
                        strategy,
                        chunk_pairs=chunk_pairs,
                    )
                assert pairs == expected, strategy

    @pytest.mark.parametrize(("base", "target", "window", "confidence"), [HALF_TIE, FOUR_FIFTHS_TIE])
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_a_tie_with_the_confidence_matches(
        self, base: list[Row], target: list[Row], window: tuple[int, int], confidence: float, strategy: str
    ) -> None:
        assert {probability(base[0], t, *window) for t in target} == {Fraction(confidence).limit_denominator(10)}
        pairs, _ = run(times_of(base, False), times_of(target, False), window, confidence, strategy)
        assert pairs == [(0, 0), (0, 1)]
        above = float(np.nextafter(confidence, 1))
        assert run(times_of(base, False), times_of(target, False), window, above, strategy)[0] == []

    @pytest.mark.parametrize("confidence", [0.5, 0.8, 1 - 2.0**-49, 1 - 2.0**-51, 1 - 2.0**-53, 1.0])
    @pytest.mark.parametrize("width", [1, 2, 3])
    def test_long_intervals_where_float_noise_spans_thousands_of_us(self, confidence: float, width: int) -> None:
        month, random = 30 * 86_400 * 10**6, np.random.default_rng(7)
        base_max = random.integers(-3, 4, 120) * 10_000
        base = Times(base_max - month, base_max)
        # Every target's support ends near the window's end: all decisions fall where P is within 1e-13 of 1
        # or in the ties.
        target_max = np.concatenate((random.integers(-300_000, 300_000, 200), random.integers(0, month, 100)))
        target = Times(target_max - month, target_max)
        window = (-width * month, width * month)
        kernel = satisfaction_probability_numpy(
            base.t_min[:, None], base.t_max[:, None], target.t_min, target.t_max, *window
        )
        expected = sorted(zip(*(axis.tolist() for axis in np.nonzero(kernel >= confidence)), strict=True))
        for strategy in STRATEGIES:
            assert run(base, target, window, confidence, strategy)[0] == expected, strategy

    def test_rows_of_another_key_never_meet(self) -> None:
        base = Times(np.zeros(3, np.int64), np.ones(3, np.int64), np.array([7, 0, 3]))
        target = Times(np.zeros(2, np.int64), np.ones(2, np.int64), np.array([3, 9]))
        for strategy in STRATEGIES:
            assert run(base, target, (-9, 9), 0.5, strategy)[0] == [(2, 0)]


def counts_by_definition(
    base: list[Row],
    target: list[Row],
    window: tuple[int, int],
    confidence: float,
    base_lengths: tuple[int, int],
    target_lengths: tuple[int, int],
) -> tuple[int, int, int]:
    """(sure, probe candidates, look-up hits) from the definitions alone: no bounds, no search, no floats."""
    (rho, pi), (lo, hi) = target_lengths, window
    maybe, certain = Fraction(confidence - KERNEL_ERROR), Fraction(confidence + KERNEL_ERROR)
    sure = probed = hits = 0
    left: list[tuple[int, int]] = []
    right: list[tuple[int, int]] = []
    for i, b in enumerate(base):
        for j, t in enumerate(target):
            x = t[1]
            longest, shortest = (x - pi, x, 0), (x - rho, x, 0)
            highest = (tail_lo(b, shortest, lo), tail_hi(b, longest, hi))
            lowest = (tail_lo(b, longest, lo), tail_hi(b, shortest, hi))
            if b[2] != t[2] or not all(p > 0 and p >= maybe for p in highest):
                continue
            left_sure, right_sure = (p == 1 or p >= certain for p in lowest)
            if hi - lo >= b[1] - b[0] + pi and left_sure and right_sure:
                sure += 1
                continue
            probed += 1
            (right if left_sure else left).append((i, j))
    if hi - lo >= base_lengths[1] + pi:
        newest_first = sorted(left, key=lambda pair: (base[pair[0]][1], pair[0]), reverse=True)
        oldest_first = sorted(right, key=lambda pair: (base[pair[0]][1], pair[0]))
        for traversal, sign in ((newest_first, 1), (oldest_first, -1)):
            proven: dict[int, int] = {}
            for i, j in traversal:
                t_min = sign * base[i][0]
                if t_min <= proven.get(j, -(10**9)):
                    hits += 1
                else:
                    p = probability(base[i], target[j], lo, hi)
                    if p == 1 or p >= certain:
                        proven[j] = t_min
    return sure, probed, hits


class TestCounters:
    @given(ROWS, ROWS, WINDOW.filter(lambda w: w[0] > -UNBOUNDED_US and w[1] < UNBOUNDED_US), CONFIDENCE)
    @settings(max_examples=200, deadline=None)
    def test_they_equal_an_independent_count(
        self, base: list[Row], target: list[Row], window: tuple[int, int], confidence: float
    ) -> None:
        lengths = (0, 8)
        sure, candidates, hits = counts_by_definition(base, target, window, confidence, lengths, lengths)
        everything = sum(b[2] == t[2] for b in base for t in target)
        expected = {
            "simple": (0, everything, 0),
            "ssort": (0, everything, 0),
            "eager": (sure, candidates, 0),
            "lazy": (sure, candidates, 0),
            "lazy_lookup": (sure, candidates - hits, hits),
        }
        for strategy, counts in expected.items():
            for chunk_pairs in (1 << 24, 2):
                _, counters = run(
                    times_of(base, True), times_of(target, True), window, confidence, strategy,
                    base_lengths=lengths, target_lengths=lengths, chunk_pairs=chunk_pairs,
                )  # fmt: skip
                assert (counters.sure, counters.probed, counters.lookup_hits) == counts, strategy
                assert counters.correlations == 1

    def test_they_add_up_over_blocks(self) -> None:
        counters, rows = CorrelationCounters(), Times(np.array([0, 4]), np.array([2, 6]))
        for _ in range(3):
            list(
                correlate(
                    rows,
                    rows,
                    -1,
                    1,
                    0.5,
                    strategy="simple",
                    base_lengths=(0, 2),
                    target_lengths=(0, 2),
                    counters=counters,
                )
            )
        assert counters == CorrelationCounters(probed=12, sure=0, matched=6, lookup_hits=0, correlations=3, passed=12)

    def test_auto_probes_least(self) -> None:
        base, target = realistic_block(1), realistic_block(2)
        probed = {s: run(base, target, (-500_000, 500_000), 0.8, s)[1].probed for s in ("auto", "eager", "simple")}
        assert 2 * probed["auto"] < probed["eager"] < probed["simple"] / 10


def realistic_block(seed: int, rows: int = 1_500) -> Times:
    """200 events a second, uncertain by 20-200 ms, in the order of their arrival."""
    random = np.random.default_rng(seed)
    t_max = np.sort(random.integers(0, rows * 5_000, rows))
    return Times(t_max - random.integers(20_000, 200_001, rows), t_max)


class TestLookup:
    def test_it_avoids_kernel_calls_on_a_realistic_block(self) -> None:
        base, target = realistic_block(1), realistic_block(2)
        for confidence in (0.9, 0.5):
            lazy_pairs, lazy = run(base, target, (-500_000, 500_000), confidence, "lazy")
            pairs, lookup = run(base, target, (-500_000, 500_000), confidence, "lazy_lookup")
            assert pairs == lazy_pairs
            assert lookup.probed + lookup.lookup_hits == lazy.probed
            assert lookup.lookup_hits > lazy.probed / 5

    def test_in_a_narrow_window_it_would_be_wrong_and_is_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The newest base row matches; the older one is dominated but so early that D exceeds the window's
        # other end.
        base = times_of([(0, 1, 0), (10, 11, 0)], False)
        target = times_of([(10, 12, 0)], False)
        arguments = (base, target, (-2, 2), 0.5, "lazy_lookup")
        lengths = {"base_lengths": (0, 1), "target_lengths": (0, 20)}
        pairs, counters = run(*arguments, **lengths)
        assert pairs == [(1, 0)]
        assert counters.lookup_hits == 0
        monkeypatch.setattr(correlation, "is_wide", lambda *_: True)
        wrong, counters = run(*arguments, **lengths)
        assert wrong == [(0, 0), (1, 0)]
        assert counters.lookup_hits == 1


class TestOrderRows:
    @given(ROWS, st.sampled_from(("arrival", "t_max", "midpoint")), st.booleans())
    @settings(max_examples=150, deadline=None)
    def test_order_is_by_key_then_axis_then_arrival(self, rows: list[Row], axis: str, keyed: bool) -> None:
        times = times_of(rows, keyed)
        ordered = order_rows(times, axis, 3 if keyed else 1)
        value = {"arrival": lambda row: 0, "t_max": lambda row: row[1], "midpoint": lambda row: row[0] + row[1]}[axis]
        expected = sorted(range(len(rows)), key=lambda i: (rows[i][2] if keyed else 0, value(rows[i]), i))
        assert ordered.position.tolist() == expected
        assert ordered.t_min.tolist() == [rows[i][0] for i in expected]
        assert ordered.t_max.tolist() == [rows[i][1] for i in expected]
        if axis != "arrival":
            ordered.check()

    @pytest.mark.parametrize("axis", ["t_max", "midpoint"])
    @pytest.mark.parametrize("keys", [1, 5])
    @pytest.mark.parametrize("arrival", ["ordered", "nearly", "shuffled", "far", "reversed"])
    def test_every_way_to_sort_gives_the_same_order(self, axis: str, keys: int, arrival: str) -> None:
        random, n = np.random.default_rng(3), 5_000
        t_max = np.sort(random.integers(0, 10**6, n))
        if arrival == "nearly":
            t_max += random.integers(0, 400, n)
        elif arrival == "shuffled":
            random.shuffle(t_max)
        elif arrival == "far":  # value and position do not fit into 63 bits together
            random.shuffle(t_max)
            t_max *= 2**36
        elif arrival == "reversed":
            t_max = t_max[::-1].copy()
        t_min = t_max - random.integers(0, 100, n)
        key = random.integers(0, keys, n)
        times = Times(t_min, t_max, key if keys > 1 else None)
        before = t_min.copy(), t_max.copy(), key.copy()
        ordered = order_rows(times, axis, keys)
        expected = np.lexsort((t_max if axis == "t_max" else t_min + t_max, key))
        assert np.array_equal(ordered.position, expected)
        assert np.array_equal(ordered.t_min, t_min[expected])
        assert np.array_equal(ordered.t_max, t_max[expected])
        ordered.check()
        assert all(np.array_equal(a, b) for a, b in zip(before, (t_min, t_max, key), strict=True))


class TestArguments:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"strategy": "greedy"}, "unknown strategy 'greedy'"),
            ({"confidence": 0.0}, "confidence"),
            ({"confidence": 1.5}, "confidence"),
            ({"confidence": float("nan")}, "confidence"),
            ({"lo": 6}, "empty"),
            ({"chunk_pairs": 0}, "chunk_pairs"),
            ({"base_lengths": (0, 3)}, r"base lengths 4\.\.4 us are outside"),
            ({"target_lengths": (5, 9)}, r"target lengths 4\.\.4 us are outside"),
            ({"target": Times(np.array([5]), np.array([1]))}, "target lengths"),
            ({"target": Times(np.array([FARTHEST_US - 3]), np.array([FARTHEST_US + 1]))}, "target times must lie"),
            ({"target": Times(np.array([0]), np.array([4, 5]))}, "differ in length"),
            ({"target": Times(np.array([0]), np.array([4]), np.array([0]))}, "either both sides"),
        ],
    )
    def test_bad_ones_are_refused_before_anything_runs(self, change: dict[str, object], message: str) -> None:
        rows = Times(np.array([0]), np.array([4]))
        arguments: dict[str, object] = {
            "base": rows, "target": rows, "lo": -5, "hi": 5, "confidence": 0.5, "strategy": "auto",
            "base_lengths": (0, 9), "target_lengths": (0, 9), "counters": CorrelationCounters(),
        }  # fmt: skip
        with pytest.raises(ValueError, match=message):
            correlate(**(arguments | change))

    def test_negative_keys_are_refused(self) -> None:
        keyed = Times(np.array([0]), np.array([4]), np.array([-1]))
        with pytest.raises(ValueError, match="key codes"):
            run(keyed, keyed, (-5, 5), 0.5, "auto")

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_read_only_input_is_left_as_it_was(self, strategy: str) -> None:
        columns = [np.array(column) for column in ([9, 3, 5], [9, 8, 6], [1, 0, 1])]
        for column in columns:
            column.flags.writeable = False
        times = Times(*columns)
        pairs, _ = run(times, times, (-1, 4), 0.5, strategy)
        assert pairs == [(0, 0), (1, 1), (2, 0), (2, 2)]
