"""`select` against exhaustive search, the solver against the closed form, and refused input."""

import itertools
import math
import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whenabouts.core import QueryError
from whenabouts.planner import select
from whenabouts.planner import selection as module
from whenabouts.planner.selection import Candidate, LazyExtent, solve


def exhaustive(candidates: Sequence[Candidate], shared: Sequence[LazyExtent], budget: float | None) -> float | None:
    """The least cost of all 2^n selections that the decisions made and the budget allow; None if there is none."""
    costs = []
    for eager in itertools.product((False, True), repeat=len(candidates)):
        if any(c.fixed not in (None, own) for c, own in zip(candidates, eager, strict=True)):
            continue
        used = [shared[g] for g in {c.stream for c, own in zip(candidates, eager, strict=True) if not own}]
        chosen = list(zip(candidates, eager, strict=True))
        memory = math.fsum([c.memory for c, own in chosen if own] + [extent.memory for extent in used])
        if budget is None or memory <= budget:
            costs.append(
                math.fsum([c.eager if own else c.lazy_scan for c, own in chosen] + [extent.cost for extent in used])
            )
    return min(costs, default=None)


# Small integers make ties and exactly met budgets; the others differ by less than a solver's tolerance.
numbers = st.one_of(st.integers(0, 4).map(float), st.floats(0, 3), st.floats(1, 1 + 1e-9))


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Candidate], list[LazyExtent], float | None]:
    streams = draw(st.integers(1, 2))
    one = st.builds(
        Candidate, numbers, numbers, numbers, st.integers(0, streams - 1), st.sampled_from([None, None, True, False])
    )
    candidates = draw(st.lists(one, max_size=8))
    shared = draw(
        st.lists(st.builds(LazyExtent, numbers | st.floats(-2, 0), numbers), min_size=streams, max_size=streams)
    )
    everything = sum(c.memory for c in candidates) + sum(extent.memory for extent in shared)
    budget = draw(st.none() | st.floats(0, 1).map(lambda part: part * everything) | st.integers(0, 12).map(float))
    return candidates, shared, budget


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(problems())
@example(([Candidate(0.0, 0.0, 0.0)], [LazyExtent(0.0, 1.0)], 1e-38))  # budgets of 1e38 are no problem for a solver
def test_costs_what_exhaustive_search_finds(
    problem: tuple[list[Candidate], list[LazyExtent], float | None],
) -> None:
    candidates, shared, budget = problem
    want = exhaustive(candidates, shared, budget)
    if want is None:
        with pytest.raises(QueryError, match="WA-2071"):
            solve(candidates, shared, budget)
        return
    found = solve(candidates, shared, budget)
    assert (found.cost, found.status) == (want, "optimal")
    assert all(c.fixed in (None, own) for c, own in zip(candidates, found.eager, strict=True))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(problems())
def test_the_program_agrees_with_the_closed_form(
    problem: tuple[list[Candidate], list[LazyExtent], float | None],
) -> None:
    """Without a budget, with one that does not bind, and with one that may."""
    candidates, shared, budget = problem
    for most in (None, 1e3, budget):
        try:
            found = solve(candidates, shared, most)
        except QueryError as error:
            with pytest.raises(QueryError, match=re.escape(str(error))):
                solve(candidates, shared, most, solver="program")
            continue
        program = solve(candidates, shared, most, solver="program")
        assert (program.solver, program.status) == ("program", "optimal")
        assert program.cost == found.cost == exhaustive(candidates, shared, most)
        assert found.solver == "closed form" or most is budget is not None


@pytest.mark.parametrize("budget", [None, 100.0])
def test_the_program_is_solved_if_it_is_asked_for(budget: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    solver = module._solver
    monkeypatch.setattr(module, "_solver", lambda limit: solved.append(limit) or solver(limit))
    given = [1.0, 3.0], [2.0, 1.0], 0.5, [5.0, 5.0], 6.0, budget
    assert select(*given).solver == "closed form"
    assert solved == []
    found = select(*given, solver="program")
    assert (found.eager, found.solver, solved) == ((True, False), "program", [None])
    assert select([], [], 1.0, solver="program").eager == ()
    with pytest.raises(QueryError, match="WA-2006: solver is 'guess'"):
        select(*given, solver="guess")


def test_ties_are_lazy_and_equal_queries_are_eager_from_the_first_on() -> None:
    assert select([1.0, 1.0], [1.0, 1.0], 0.0).eager == (False, False)
    equal = select([0.0] * 4, [1.0] * 4, 0.0, memory=[2.0] * 4, shared_memory=1.0, budget=5.0)
    assert equal.eager == (True, True, False, False)


def test_the_shared_extent_counts_only_if_somebody_uses_it() -> None:
    assert select([1.1, 1.1], [1.0, 1.0], 0.5).eager == (True, True)  # the paper's objective would choose lazy
    assert select([1.1] * 9, [1.0] * 9, 0.5).eager == (False,) * 9


def test_no_queries_cost_nothing() -> None:
    assert select([], [], 5.0, budget=0.0) == module.Selection((), 0.0)


def test_an_infeasible_budget_says_by_how_much() -> None:
    with pytest.raises(QueryError, match=r"WA-2071: .*budget is 5, .*at least 6 .*raise the budget by 1,"):
        select([1.0, 1.0], [1.0, 1.0], 1.0, memory=[3.0, 3.0], shared_memory=7.0, budget=5.0)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (([1.0], [1.0, 2.0], 1.0), "lazy_scan has 2 values for 1"),
        (([float("nan")], [1.0], 1.0), "query 0 has costs"),
        (([1.0], [1.0], math.inf), "shared extent 0 has costs"),
        (([1.0], [1.0], 1.0, [-1.0]), "query 0 needs memory -1"),
        (([1.0], [1.0], 1.0, [1.0], 0.0, math.nan), "budget is not a number"),
    ],
)
def test_numbers_that_are_none_are_refused(arguments: tuple[object, ...], what: str) -> None:
    with pytest.raises(QueryError, match=f"WA-2006: .*{what}"):
        select(*arguments)  # type: ignore[arg-type]


def test_a_stopped_solver_gives_a_selection_and_its_gap() -> None:
    n = 400
    eager = [((j * 7919) % 1009) / 1009 for j in range(n)]
    memory = [1 + ((j * 104729) % 997) / 997 for j in range(n)]
    stopped = select(eager, [1.0] * n, 1.0, memory, 3.0, n * 0.31, time_limit=1e-3)
    best = select(eager, [1.0] * n, 1.0, memory, 3.0, n * 0.31)
    assert best.status == "optimal"
    assert stopped.cost >= best.cost
    assert stopped.cost * (1 - stopped.gap) <= best.cost * (1 + 1e-9)
