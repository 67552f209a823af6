"""The corrected cost model: the paper's decisions, its contradiction with constant costs, and its errors."""

import pytest

from whenabouts.core import QueryError
from whenabouts.planner import AtomicCosts, Sizes, Statistics, Table, Terms, Weights, scheme_costs, select

Decision = tuple[list[float], list[float], str]

# Al-Kateb et al. 2010: E for eager, L for lazy, queries 1 to 6.
TABLE_5: list[Decision] = [
    ([0.1] * 6, [0.0] * 6, "LLLLLL"),
    ([0.8] * 6, [0.0] * 6, "EEEEEE"),
    ([0.5] * 3 + [0.1] * 3, [0.0] * 6, "EEELLL"),
    ([0.8] * 3 + [0.1] * 3, [0.0] * 6, "EEELLL"),
]
TABLE_6: list[Decision] = [
    ([0.2] * 6, [0.3] * 6, "LLLLLL"),
    ([0.7] * 6, [0.6] * 6, "EEEEEE"),
    ([0.5] * 6, [0.3] * 6, "EEEEEE"),
    ([0.5] * 6, [0.7] * 6, "LLLLLL"),
    ([0.4] * 3 + [0.2] * 3, [0.6] * 3 + [0.7] * 3, "EEELLL"),
    ([0.4] * 3 + [0.2] * 3, [0.6, 0.8, 0.8, 0.7, 0.7, 0.7], "ELLLLL"),
]


def decide(cps: list[float], oops: list[float], weights: Weights, costs: AtomicCosts) -> str:
    both = [scheme_costs(100, Statistics(cp, oop), costs, Sizes()) for cp, oop in zip(cps, oops, strict=True)]
    memory, update, _ = both[0].lazy.normalised
    selection = select(
        [each.eager.weighted(weights) for each in both],
        [weights.scan * each.lazy.normalised[2] for each in both],
        weights.memory * memory + weights.update * update,
    )
    return "".join("E" if eager else "L" for eager in selection.eager)


@pytest.mark.parametrize(("cps", "oops", "want"), TABLE_5)
def test_decisions_of_table_5(cps: list[float], oops: list[float], want: str) -> None:
    assert decide(cps, oops, Weights(1, 1, 2), AtomicCosts()) == want


@pytest.mark.parametrize(("cps", "oops", "want"), TABLE_6)
def test_decisions_of_table_6(cps: list[float], oops: list[float], want: str) -> None:
    assert decide(cps, oops, Weights(0, 1, 1), AtomicCosts()) == want


@pytest.mark.parametrize("split", [0.05 * k for k in range(0, 21, 4)])
@pytest.mark.parametrize("merge", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("detach", [0.1, 0.4, 0.7])
def test_constant_costs_never_make_both_case_4_and_case_5_of_table_6(merge: float, split: float, detach: float) -> None:
    """Lazy at (.5, .7) needs d(.5, .7) > 0, eager at (.4, .6) needs d(.4, .6) < 0; d(.5, .7) <= 1.25 d(.4, .6)."""
    costs = AtomicCosts(merge=merge, split=split, detach=detach)
    cases = [decide(cps, oops, Weights(0, 1, 1), costs) == want for cps, oops, want in (TABLE_6[3], TABLE_6[4])]
    assert not all(cases)


def test_update_cost_cannot_fall_with_cp_where_the_decisions_hold() -> None:
    """Section 7.2 says that eager's update cost falls with cp where tuples come out of order; with costs that give the
    ten decisions it rises."""
    updates = [scheme_costs(100, Statistics(cp, 0.7), AtomicCosts(), Sizes()).eager.update for cp in (0.2, 0.4, 0.7)]
    assert updates == sorted(updates)


def test_memory_is_never_negative_while_the_window_fills() -> None:
    """Equation 1 as printed takes a whole tuple away for each one that has not expired yet."""
    filling = scheme_costs(100, Statistics(0.3, arrived=10), AtomicCosts(), Sizes())
    full = scheme_costs(100, Statistics(0.3), AtomicCosts(), Sizes())
    assert filling.eager.memory == pytest.approx(full.eager.memory / 10)
    assert filling.lazy.update < full.lazy.update  # nothing expires yet
    assert filling.eager.update < full.eager.update


def test_costs_of_smaller_windows_are_parts_of_the_largest() -> None:
    half = scheme_costs(50, Statistics(0.3), AtomicCosts(), Sizes(), largest=100).eager.normalised
    whole = scheme_costs(100, Statistics(0.3), AtomicCosts(), Sizes()).eager.normalised
    assert half == pytest.approx((whole[0] / 2, whole[1], whole[2] / 2))


def test_no_out_of_order_tuples_never_divide_by_cp() -> None:
    assert Terms(oop_per_cp=3.0)(0.0, 0.0) == 0.0
    assert scheme_costs(10, Statistics(0.0, 0.0), AtomicCosts(), Sizes()).eager.update == pytest.approx(0.0323)


def test_a_table_is_level_outside_its_axes() -> None:
    table = Table((0.2, 0.4), (0.0, 0.5), ((1.0, 2.0), (3.0, 4.0)))
    assert [table(0.0, 0.0), table(0.3, 0.25), table(1.0, 1.0)] == [1.0, pytest.approx(2.5), 4.0]
    with pytest.raises(QueryError, match="WA-2006"):
        Table((0.4, 0.2), (0.0,), ((1.0,), (2.0,)))


@pytest.mark.parametrize("wrong", [{"cp": 1.5}, {"oop": -0.1}, {"cp": float("nan")}, {"rate": 0.0}])
def test_statistics_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(QueryError, match="WA-2072"):
        Statistics(**wrong)  # type: ignore[arg-type]


def test_costs_and_weights_must_not_be_negative() -> None:
    with pytest.raises(QueryError, match="WA-2006: the cost of merge is -1"):
        scheme_costs(9, Statistics(), AtomicCosts(merge=-1), Sizes())
    with pytest.raises(QueryError, match="WA-2006: weights"):
        Weights(-1, 0, 1)
    with pytest.raises(QueryError, match="WA-2006: weights"):
        Weights(0, 0, 0)
