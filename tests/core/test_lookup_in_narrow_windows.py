"""Corollary 2 of the ITC paper needs a wide window: counterexamples, and that `lazy_lookup` does not use it otherwise.

The corollary: a target that matches a base row matches every base row that both starts and ends no later (left probe
range). It compares one tail of D = X_target - X_base; in a window narrower than both supports the other tail counts
too.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import NamedTuple

import pyarrow as pa
import pytest

from whenabouts.conformance import oracle
from whenabouts.core import Condition, Interval
from whenabouts.core.local import run
from whenabouts.core.timing_join import strategies as correlation
from whenabouts.core.timing_join.query import TimingJoin
from whenabouts.core.timing_join.settings import STRATEGIES

LONGEST = 4
INTERVALS = [(end - length, end) for end in range(8) for length in range(LONGEST + 1)]
TARGET = (6, 9)

Ends = tuple[int, int]


class Case(NamedTuple):
    """The target matches `proven` at `confidence`, and not `dominated`, which starts and ends no later."""

    proven: Ends
    dominated: Ends
    lo: int
    hi: int
    confidence: float


def p(base: Ends, lo: int, hi: int) -> Fraction:
    return oracle.probability(base, TARGET, lo, hi).exact


def counterexamples(width: int) -> list[Case]:
    """All pairs of base rows and windows of this width in which a dominated row has the lesser probability."""
    found = []
    for lo, proven, dominated in product(range(-3, 9), INTERVALS, INTERVALS):
        # In the left probe range D may be below `lo`; dominance applies only there.
        left_probe = all(TARGET[0] - end < lo for _, end in (proven, dominated))
        if left_probe and dominated[0] <= proven[0] and dominated[1] <= proven[1]:
            better, worse = p(proven, lo, lo + width), p(dominated, lo, lo + width)
            if better > worse:
                found.append(Case(proven, dominated, lo, lo + width, float((better + worse) / 2)))
    return found


def matches(case: Case, strategy: str) -> list[Ends]:
    """The base rows that the join pairs with the target, both rows in one block."""
    query = TimingJoin(
        left_time=Interval("a", "b", max_uncertainty=LONGEST), right_time=Interval("a", "b", max_uncertainty=LONGEST),
        condition=Condition(case.lo, case.hi, case.confidence), strategy=strategy,
    )  # fmt: skip
    rows = [case.proven, case.dominated]
    tables = [
        pa.table({"a": pa.array([a for a, _ in side], pa.int64()), "b": pa.array([b for _, b in side], pa.int64())})
        for side in (rows, [TARGET])
    ]
    output = run(query, tables).output
    return list(zip(output.column("a_left").to_pylist(), output.column("b_left").to_pylist(), strict=True))


def test_dominance_holds_in_wide_windows() -> None:
    """From the sum of the greatest lengths on, as the spec says."""
    assert not counterexamples(2 * LONGEST)
    assert not counterexamples(2 * LONGEST + 1)


def test_dominance_fails_in_narrow_windows() -> None:
    """A longer row that ends at the same time has less of its mass in the window, on either side of it.

    ::

        target                ===        6 .. 9
        proven               |           5: D in [1, 4], a third of it in [3, 4]
        dominated        ====|           1 .. 5: D in [1, 8], 5/24 of it in [3, 4]
    """
    assert (p((5, 5), 3, 4), p((1, 5), 3, 4)) == (Fraction(1, 3), Fraction(5, 24))
    assert Case((5, 5), (1, 5), 3, 4, float(Fraction(13, 48))) in counterexamples(1)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_join_is_right_where_dominance_fails(width: int) -> None:
    cases = counterexamples(width)
    assert len(cases) > 50
    for case in cases[:: len(cases) // 40]:
        for strategy in STRATEGIES:
            assert matches(case, strategy) == [case.proven], (case, strategy)


def test_the_look_up_would_be_wrong_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the look-up forced on, `lazy_lookup` takes the dominated row too: the test above can fail."""
    monkeypatch.setattr(correlation, "is_wide", lambda *_: True)
    cases = counterexamples(3)
    wrong = [case for case in cases[:: len(cases) // 40] if matches(case, "lazy_lookup") != [case.proven]]
    assert any(case.dominated in matches(case, "lazy_lookup") for case in wrong)
    assert matches(wrong[0], "lazy") == [wrong[0].proven]
