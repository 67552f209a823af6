"""Which right row prevails, and how probably: the kernels against exact rationals."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from whenabouts.conformance import prevailing_oracle as oracle
from whenabouts.conformance.oracle import Time
from whenabouts.core import arrays, asof_join
from whenabouts.core.arrays import jit
from whenabouts.core.asof_join.high_ends import high_ends
from whenabouts.core.asof_join.prevailing import Direction, MaxCandidates, Prevailing, Side, prevailing
from whenabouts.core.probability.gauss_legendre import MOST_NODES
from whenabouts.core.times.templates import Template

DIRECTIONS: tuple[Direction, ...] = ("backward", "forward", "nearest")
PROMISED = Fraction(1, 10**12)


class Times(NamedTuple):
    """Times of one side as the core and as the oracle take them."""

    side: Side
    exact: list[Time]


def intervals(ends: Sequence[tuple[int, int]]) -> Times:
    t_min, t_max = (np.array([end[i] for end in ends], np.int64) for i in (0, 1))
    return Times(Side(t_min, t_max), [Time(*end) for end in ends])


def histograms(templates: tuple[Template, ...], rows: Sequence[tuple[int, int]]) -> Times:
    """Rows of (t_max, template)."""
    t_max, number = np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int32)
    lengths = np.array([template.length_us for template in templates])
    side = Side(t_max - lengths[number], t_max, None, number, templates)
    return Times(side, [Time(0, t, tuple(templates[k].exact)) for t, k in rows])


def random_template(draw: random.Random, scale: int) -> Template:
    """Up to three buckets, some empty, perhaps at an end."""
    weights = [draw.choice([0, 1, 2, 3]) for _ in range(draw.randint(1, 3))]
    if not any(weights):
        weights[0] = 1
    edges = [draw.randint(-3, 3) * scale]
    for _ in weights:
        edges.append(edges[-1] + draw.randint(1, 4) * scale)
    total = sum(weights)
    return Template(
        tuple((lo, hi, Fraction(weight, total)) for lo, hi, weight in zip(edges, edges[1:], weights, strict=False))
    )


def random_times(draw: random.Random, n: int, span: int = 10, scale: int = 1) -> Times:
    """Small integers, so that ends touch and rows are equal; points, intervals or histograms."""
    if draw.random() < 0.3:
        templates = tuple(random_template(draw, scale) for _ in range(2))
        return histograms(templates, [(draw.randint(0, span) * scale, draw.randint(0, 1)) for _ in range(n)])
    starts = [draw.randint(0, span) * scale for _ in range(n)]
    return intervals([(start, start + draw.choice([0, 0, 1, 2, 3, 5, 8]) * scale) for start in starts])


def random_rules(draw: random.Random, scale: int = 1) -> oracle.Rules:
    tolerance = draw.choice([None, None, 0, 1, 2, 3, 5])
    return oracle.Rules(draw.choice(DIRECTIONS), None if tolerance is None else tolerance * scale, draw.random() < 0.6)


def run(left: Side, right: Side, rules: oracle.Rules, function: Callable[..., Prevailing] = prevailing) -> Prevailing:
    return function(
        left,
        right,
        direction=rules.direction,
        tolerance_us=rules.tolerance_us,
        allow_exact_matches=rules.exact_matches,
    )


def of_row(answer: Prevailing, i: int, right: int) -> list[float]:
    """The probabilities of left row i by right row, and of none."""
    found = [0.0] * right
    for c in range(answer.offsets[i], answer.offsets[i + 1]):
        found[answer.rows[c]] = float(answer.probability[c])
    return [*found, float(answer.none_probability[i])]


def check(left: Times, right: Times, rules: oracle.Rules, ranks: list[int] | None = None) -> Fraction:
    """The greatest error; only what is certain may be 1.0."""
    side = right.side if ranks is None else right.side._replace(rank=np.array(ranks, np.int64))
    answer, greatest = run(left.side, side, rules), Fraction(0)
    for i, time in enumerate(left.exact):
        exact = oracle.prevailing(time, right.exact, rules, ranks)
        for value, expected in zip(of_row(answer, i, len(right.exact)), [*exact.rows, exact.none], strict=True):
            assert (value == 1.0) == (expected == 1), (left, right, rules)
            greatest = max(greatest, abs(Fraction(value) - expected))
    return greatest


@pytest.mark.parametrize("seed", range(12))
def test_every_kind_of_time(seed: int) -> None:
    """Points, intervals and histograms, touching ends, equal rows, each direction, tolerances at edges and 0."""
    draw = random.Random(seed)
    for _ in range(25):
        left, right = random_times(draw, 2), random_times(draw, draw.randint(0, 5))
        ranks = list(range(len(right.exact)))
        draw.shuffle(ranks)
        assert check(left, right, random_rules(draw), ranks) < PROMISED


def test_one_row_that_surely_comes_before_the_other() -> None:
    """The probability is then that of one pair: points and intervals, touching ends, tolerances."""
    draw = random.Random(8)
    for _ in range(400):
        a, s = draw.randint(4, 8), draw.randint(4, 8)
        end = draw.randint(2, min(a, s))
        lengths = [draw.choice([0, 1, 3, 10**8]) for _ in range(3)]
        right = intervals([(end - lengths[0], end), (s, s + lengths[1])])
        rules = replace(random_rules(draw), tolerance_us=draw.choice([None, 4, 6, 10**9]))
        assert check(intervals([(a, a + lengths[2])]), right, rules) < PROMISED


@pytest.mark.parametrize("seed", range(6))
def test_lengths_from_a_microsecond_to_a_month(seed: int) -> None:
    """Short times within and beside long ones: an instant is an edge and an offset, so nothing is lost."""
    draw = random.Random(100 + seed)
    lengths = [1, 3, 1000, 10**6, 3600 * 10**6, 30 * 86_400 * 10**6]
    for _ in range(12):
        around = draw.choice([10**15, -(10**9)])

        def time(around: int = around) -> tuple[int, int]:
            length = draw.choice([0, *lengths])
            start = around + draw.randint(-2, 2) * draw.choice(lengths) - draw.randint(0, max(length, 1))
            return start, start + length

        left, right = intervals([time() for _ in range(2)]), intervals([time() for _ in range(draw.randint(1, 5))])
        rules = replace(random_rules(draw), tolerance_us=draw.choice([None, 2, 10**6, 86_400 * 10**6]))
        assert check(left, right, rules) < PROMISED


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_more_rows_than_a_polynomial_of_low_degree_has(direction: Direction) -> None:
    """Six to nine rows that all overlap, with a left time that is long, short, or a point."""
    draw = random.Random(5)
    for left in [(0, 60), (28, 31), (30, 30)]:
        rows = 6 if direction == "nearest" else draw.randint(7, 9)
        right = intervals([(draw.randint(0, 29), draw.randint(31, 60)) for _ in range(rows)])
        assert check(intervals([left]), right, oracle.Rules(direction)) < PROMISED


@pytest.mark.parametrize("n", [1, 2, 3, 10, 63, 64, 500, 20_000])
@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_n_rows_like_the_left_one(n: int, direction: Direction) -> None:
    """All orders are equally likely, so each answer has 1 / (n + 1)."""
    answer = prevailing(intervals([(0, 1000)]).side, intervals([(0, 1000)] * n).side, direction=direction)
    assert np.abs(answer.probability - 1 / (n + 1)).max() < 1e-15
    assert abs(answer.none_probability[0] - 1 / (n + 1)) < 1e-15
    assert len(answer.rows) == n


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("overlap", [3, 12, 40])
def test_the_answers_of_a_row_sum_to_one(direction: Direction, overlap: int) -> None:
    draw = np.random.default_rng(7)
    sides = []
    for _ in range(2):
        t_min = np.sort(draw.integers(0, 100_000, 100))
        sides.append(Side(t_min, t_min + draw.integers(0, 2000 * overlap, 100) * (draw.random(100) < 0.8)))
    for tolerance in (None, 700, 10_000):
        answer = prevailing(*sides, direction=direction, tolerance_us=tolerance)
        total = np.append(answer.probability, 0.0).cumsum()[answer.offsets[1:] - 1]
        total = np.diff(np.where(answer.offsets[1:] > 0, total, 0.0), prepend=0.0) + answer.none_probability
        kept = ~answer.rejected
        assert kept.sum() > 50
        assert np.abs(total - 1)[kept].max() < 1e-12


def mirrored(times: Times) -> Times:
    """Time reversed; the rows in the same places."""
    if times.side.template is None:
        return intervals([(-time.t_max, -time.t_min) for time in times.exact])
    templates = tuple(
        Template(tuple((-hi, -lo, p) for lo, hi, p in template.buckets[::-1])) for template in times.side.templates
    )
    # The anchor is the end of the last bucket, which a bucket of probability 0 may put after the support.
    firsts = [template.buckets[0][0] - template.end_us for template in times.side.templates]
    numbers = times.side.template.tolist()
    return histograms(templates, [(-int(t) - firsts[k], k) for t, k in zip(times.side.t_max, numbers, strict=True)])


def test_forward_is_backward_of_mirrored_times() -> None:
    """Bit for bit; of points at one instant the first in order takes the place of the last."""
    draw = random.Random(11)
    for _ in range(200):
        left, right = random_times(draw, 3), random_times(draw, 6)
        rules = random_rules(draw)
        ranks = np.array(draw.sample(range(6), 6))
        forward = run(left.side, right.side._replace(rank=ranks), oracle.Rules("forward", rules.tolerance_us))
        backward = run(
            mirrored(left).side,
            mirrored(right).side._replace(rank=-ranks),
            oracle.Rules("backward", rules.tolerance_us),
        )
        for i in range(3):
            assert of_row(forward, i, 6) == of_row(backward, i, 6)


def test_all_times_shifted_give_the_same_bits() -> None:
    draw = random.Random(12)
    for _ in range(100):
        left, right, rules = random_times(draw, 3), random_times(draw, 6), random_rules(draw)
        answer = run(left.side, right.side, rules)
        for shift in (1, 10**15 + 7, -(2**57)):
            moved = [
                side._replace(t_min=side.t_min + shift, t_max=side.t_max + shift) for side in (left.side, right.side)
            ]
            again = run(*moved, rules)
            assert again.rows.tolist() == answer.rows.tolist()
            assert again.probability.tobytes() == answer.probability.tobytes()
            assert again.none_probability.tobytes() == answer.none_probability.tobytes()


def stretch(left: Time, right: list[Time], rules: oracle.Rules) -> tuple[float, float]:
    """The ends of the stretch that candidates meet, from all right rows, by the definition."""
    a, b = left.t_min, left.t_max
    low, high = -np.inf, np.inf
    for row in right:
        s, e = row.t_min, row.t_max
        if not rules.exact_matches and a == b == s == e:
            continue
        if rules.direction == "backward":
            low = max(low, s) if e <= a else low
        elif rules.direction == "forward":
            high = min(high, e) if s >= b else high
        else:
            low, high = max(low, min(s, 2 * a - e)), min(high, max(e, 2 * b - s))
    if rules.tolerance_us is not None:
        low, high = max(low, a - rules.tolerance_us), min(high, b + rules.tolerance_us)
    return max(low, a) if rules.direction == "forward" else low, min(high, b) if rules.direction == "backward" else high


def test_candidates_are_those_of_the_definition_and_no_other_row_matters() -> None:
    """The same rationals from the candidates alone; rows outside change no bit."""
    draw = random.Random(13)
    pruned = 0
    for _ in range(300):
        right = intervals([(s, s + draw.choice([0, 0, 1, 2, 5])) for s in (draw.randint(0, 40) for _ in range(8))])
        start = draw.randint(5, 35)
        left = intervals([(start, start + draw.choice([0, 1, 4]))])
        rules = random_rules(draw)
        answer = run(left.side, right.side, rules)
        low, high = stretch(left.exact[0], right.exact, rules)
        expected = [
            k
            for k, row in enumerate(right.exact)
            if row.t_max >= low
            and row.t_min <= high
            and (rules.exact_matches or not left.exact[0].t_min == left.exact[0].t_max == row.t_min == row.t_max)
        ]
        assert sorted(answer.rows.tolist()) == expected
        pruned += 8 - len(expected)
        if rules.tolerance_us is not None:
            ends = [(times.side.t_min, times.side.t_max) for times in (left, right)]
            end = high_ends(
                ends[0], np.zeros(1, np.int32), ends[1], np.zeros(8, np.int32), 1, direction=rules.direction,
                tolerance_us=rules.tolerance_us, allow_exact_matches=rules.exact_matches,
            )  # fmt: skip
            assert end.tolist() == [high]
        whole = oracle.prevailing(left.exact[0], right.exact, rules)
        part = oracle.prevailing(left.exact[0], [right.exact[k] for k in expected], rules)
        assert part.none == whole.none
        assert list(part.rows) == [whole.rows[k] for k in expected]
        alone = run(left.side, intervals([tuple(right.exact[k][:2]) for k in expected]).side, rules)
        assert [expected[k] for k in alone.rows.tolist()] == answer.rows.tolist()
        assert alone.probability.tobytes() == answer.probability.tobytes()
        assert alone.none_probability.tobytes() == answer.none_probability.tobytes()
    assert pruned > 800


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("shuffled", [False, True])
def test_candidates_of_many_rows_and_keys(direction: Direction, shuffled: bool) -> None:
    """Thousands of short rows with a few very long ones among them, which reach over many blocks; null keys."""
    random_ = np.random.default_rng(3)
    n = 3000
    t_min = np.sort(random_.integers(0, 30_000, n)) // 10 * 10
    lengths = np.where(random_.random(n) < 0.003, 9_000, random_.integers(0, 3, n) * 10)
    key = random_.integers(-1, 3, n).astype(np.int32)
    right = Side(t_min, t_min + lengths, key, rank=random_.permutation(n))
    if shuffled:
        order = random_.permutation(n)
        right = Side(t_min[order], (t_min + lengths)[order], key[order], rank=random_.permutation(n))
    starts = random_.integers(0, 30_000, 60)
    left = Side(starts, starts + random_.integers(0, 2, 60) * 25, random_.integers(-1, 4, 60).astype(np.int32))
    for tolerance in (None, 55):
        answer = prevailing(left, right, direction=direction, tolerance_us=tolerance)
        for i in range(60):
            found = sorted(answer.rows[answer.offsets[i] : answer.offsets[i + 1]].tolist())
            assert left.key is not None
            assert right.key is not None
            if left.key[i] < 0:
                assert found == []
                assert answer.none_probability[i] == 1.0
                continue
            mine = np.flatnonzero(right.key == left.key[i])
            times = [Time(int(right.t_min[k]), int(right.t_max[k])) for k in mine]
            low, high = stretch(Time(int(left.t_min[i]), int(left.t_max[i])), times, oracle.Rules(direction, tolerance))
            expected = [int(k) for k in mine if right.t_max[k] >= low and right.t_min[k] <= high]
            assert answer.rejected[i] or found == expected


def test_only_what_is_certain_has_probability_one() -> None:
    """`check` compares with the oracle; these are the cases at its edge."""
    left, certain = intervals([(10, 20)]), oracle.Rules()
    for right, expected in [
        ([(0, 10)], [1.0, 0.0]),
        ([(0, 10), (-5, 0)], [1.0, 0.0, 0.0]),
        ([(0, 10), (20, 30)], [1.0, 0.0, 0.0]),
        ([(0, 10), (0, 0)], [1.0, 0.0, 0.0]),
        ([(3, 3), (3, 3)], [0.0, 1.0, 0.0]),
        ([(20, 25)], [0.0, 1.0]),
    ]:
        assert of_row(run(left.side, intervals(right).side, certain), 0, len(right)) == expected
    nearly = of_row(run(left.side, intervals([(0, 10), (0, 2**58)]).side, certain), 0, 2)
    assert nearly[0] == 1 - 2**-53
    assert nearly[1] > 0
    # A template whose empty bucket covers all instants that matter.
    around = histograms((Template(((0, 10, 0.5), (10, 20, 0), (20, 30, 0.5))),), [(30, 0)])
    apart = histograms((Template(((0, 1, 1),)),), [(20, 0)])
    assert of_row(run(apart.side, around.side, certain), 0, 1) == [0.5, 0.5]


def test_too_many_candidates() -> None:
    """The row is marked, not answered; points are never too many; more may be allowed."""
    spread = [(k, 1000 + k) for k in range(65)]
    for left, kind in [((500, 600), "plane"), ((550, 550), "line")]:
        rows = intervals([left, (0, 0)]).side
        limit = MaxCandidates()._replace(**{kind: 64})
        answer = prevailing(rows, intervals(spread).side, direction="backward", max_candidates=limit)
        assert answer.rejected.tolist() == [True, False]
        assert answer.offsets.tolist() == [0, 0, 1]
        more = prevailing(
            rows, intervals(spread).side, direction="backward", max_candidates=limit._replace(**{kind: 65})
        )
        assert not more.rejected.any()
        assert abs(more.probability[:65].sum() + more.none_probability[0] - 1) < 1e-12
    points = prevailing(
        intervals([(500, 600)]).side, intervals([(k, k) for k in range(500, 601)]).side, direction="nearest"
    )
    assert not points.rejected.any()
    assert len(points.rows) == 101
    mixed = intervals([*((k, k) for k in range(500, 601)), (400, 550), (450, 700)]).side
    one, two = (
        prevailing(intervals([(500, 600)]).side, mixed, direction="nearest", max_candidates=MaxCandidates(9, 9, limit))
        for limit in (1, 2)
    )
    assert one.rejected.all()
    assert abs(two.probability.sum() + two.none_probability[0] - 1) < 1e-12


def test_empty_sides() -> None:
    none, one = intervals([]).side, intervals([(0, 10)]).side
    assert prevailing(none, one, direction="backward").offsets.tolist() == [0]
    for direction in DIRECTIONS:
        answer = prevailing(one, none, direction=direction, tolerance_us=5)
        assert answer.none_probability.tolist() == [1.0]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module from the kernels' sources, without numba."""
    names = ("workspace", "quadrature", "candidates", "classes", "plane_grid", "plane_integral", "line_integral")
    package = "whenabouts.core.asof_join."
    with monkeypatch.context() as patched:
        patched.setattr(jit, "compiled", lambda *_, **__: lambda function: function)
        patched.setattr(arrays, "integer_powers", arrays.integer_powers)
        patched.delitem(sys.modules, "whenabouts.core.arrays.integer_powers")
        for name in (*names, "prevailing"):
            patched.setattr(asof_join, name, getattr(asof_join, name))
            patched.delitem(sys.modules, package + name)
        return importlib.import_module(package + "prevailing")


def test_plain_python_gives_the_same_bits(plain: ModuleType) -> None:
    """Nothing is left to a compiler's arithmetic."""
    assert not hasattr(plain.integrate_plane, "signatures")
    draw = random.Random(17)
    for _ in range(40):
        left, right, rules = random_times(draw, 2), random_times(draw, 5), random_rules(draw)
        one = run(left.side, right.side, rules)
        other = run(left.side, right.side, rules, plain.prevailing)
        for name in Prevailing._fields:
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_fewer_nodes_than_exact_ones(plain: ModuleType, direction: Direction) -> None:
    """Many rows: the table's nodes, and integrals that end early, against all nodes that are exact, and to the end."""
    for function in (plain.integrate_plane, plain.integrate_line):
        function.__globals__.update(
            {
                "nodes_for": lambda degree, _: min(degree // 2 + 1, MOST_NODES),
                "parts_for": lambda _: 1,
                "STOP_BELOW": 1e-300,
            }
        )
    plain.integrate_plane.__globals__["STOP_CHANGE"] = np.inf
    draw = random.Random(21)
    for rows, left in [(14, (400, 1400)), (40, (900, 930)), (40, (900, 900))]:
        starts = [draw.randint(0, 900) for _ in range(rows)]
        right = intervals([(start, start + draw.randint(500, 1500)) for start in starts])
        one = prevailing(intervals([left]).side, right.side, direction=direction)
        other = plain.prevailing(intervals([left]).side, right.side, direction=direction)
        assert np.abs(one.probability - other.probability).max() < 2e-14
        assert abs(one.none_probability - other.none_probability) < 2e-14
        assert one.probability.tobytes() != other.probability.tobytes()


def test_equal_left_rows_have_equal_answers() -> None:
    """Rows of truncated clocks, whose answers are copied, between others and in other keys."""
    ends = [(0, 10), (10, 20), (0, 10), (0, 10), (10, 20), (3, 3), (0, 10)] * 40
    keys = np.array([0, 0, 1, 0, 0, 0, 1] * 40, np.int32)
    left = intervals(ends).side._replace(key=keys)
    right = intervals([(-10, 0), (0, 10), (0, 10), (10, 20), (2, 9)] * 2).side
    right = right._replace(key=np.array([0] * 5 + [1] * 5, np.int32))
    every = prevailing(left, right, direction="nearest")
    for i in range(len(ends)):
        alone = prevailing(intervals([ends[i]]).side._replace(key=keys[i : i + 1]), right, direction="nearest")
        assert of_row(every, i, 10) == of_row(alone, 0, 10)
