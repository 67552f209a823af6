"""Which coalescing queries keep their own eager extent and which share a lazy one: an exact 0-1 program.

With ``x_j = 1`` for an eager query and ``y_g = 1`` where at least one query over stream ``g`` is lazy:

    minimise    sum_j eager_j x_j + sum_j lazy_scan_j (1 - x_j) + sum_g shared_g y_g
    such that   y_g >= 1 - x_j  for each j over g,   y_g <= sum of (1 - x_j) over g
                sum_j memory_j x_j + sum_g shared_memory_g y_g <= budget     (where a budget is given)

This is the selection problem of Al-Kateb et al. 2010 (section 6.2, Theorem 1), with the cost of the shared extent. The
paper omits it as a constant, but it is not constant: it is zero if no query is lazy.

Where no budget binds, the streams are independent and the optimum has a closed form: all eager, or the shared cost plus
the smaller cost of each query. It decides by default, since it is exact and costs O(n). Where a budget binds, the
program is a knapsack with set-up costs and goes to the solver: HiGHS if it is installed, else the CBC that comes with
PuLP. ``solver="program"`` always solves the program; both give the same cost. Solvers work with tolerances, so their
result is checked and evaluated with exact sums, and improved by single changes until none helps.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from whenabouts.core.errors import Code, QueryError
from whenabouts.core.runtime.option_checks import one_of

Status = Literal["optimal", "time limit"]
Solver = Literal["closed form", "program"]

_SCALE = 1e6  # CBC ignores improvements below 1e-5: costs are scaled so that this does not matter

_OVER = 2.0  # budgets: any number above one means too much
_SLACK = 1e-9  # of the budget: allows for rounding; selections over the budget are excluded exactly


@dataclass(frozen=True, slots=True)
class Candidate:
    """A query to be decided: costs of both schemes, memory of its own extent, its stream, and a fixed decision."""

    eager: float
    lazy_scan: float
    memory: float = 0.0
    stream: int = 0
    fixed: bool | None = None


@dataclass(frozen=True, slots=True)
class LazyExtent:
    """The lazy extent of a stream: its cost and memory if at least one query over the stream is lazy."""

    cost: float
    memory: float = 0.0


@dataclass(frozen=True, slots=True)
class Selection:
    """``eager[j]``: whether query j keeps its own extent. ``cost``: the total cost. ``solver``: what decided.

    ``status``: "optimal", or "time limit" if the solver was stopped; ``gap`` then bounds the saving of a better
    selection, as a fraction of ``cost``.
    """

    eager: tuple[bool, ...]
    cost: float
    status: Status = "optimal"
    gap: float = 0.0
    solver: Solver = "closed form"


SOLVERS = ("auto", "program")
"""`auto`: the closed form where it holds, else the program; `program`: always the program, by PuLP."""


def select(
    eager: Sequence[float],
    lazy_scan: Sequence[float],
    shared_lazy: float,
    memory: Sequence[float] | None = None,
    shared_memory: float = 0.0,
    budget: float | None = None,
    *,
    fixed: Sequence[bool | None] | None = None,
    time_limit: float | None = None,
    solver: str = "auto",
) -> Selection:
    """Decide eager or lazy for n queries over one stream, at the least cost.

    ``eager[j]`` is the cost of query j with its own extent, ``lazy_scan[j]`` that of its scans of the shared one, which
    costs ``shared_lazy`` once if any query is lazy. ``memory[j]``, ``shared_memory`` and ``budget`` are in one unit;
    all costs in another. ``fixed[j]`` is a fixed decision (True: eager). ``time_limit`` in seconds. ``solver``: see
    `SOLVERS`.

    Ties: lazy rather than eager, and of equal queries the first ones are eager. Cost: O(n) by the closed form; the
    program has n + 1 integer variables. Source: Al-Kateb et al. 2010, section 6.2; see the module's text.

    Raises: QueryError WA-2071 if the budget cannot be kept, with the amount that is missing; WA-2006 for lists of
    different lengths, numbers that are not finite, or another solver.

    >>> select([3.0, 1.0], [1.0, 4.0], 1.0)
    Selection(eager=(False, True), cost=3.0, status='optimal', gap=0.0, solver='closed form')
    >>> select([3.0, 1.0], [1.0, 4.0], 1.0, solver="program").solver
    'program'
    >>> select([3.0, 1.0], [1.0, 4.0], 1.0, memory=[5, 5], shared_memory=6, budget=10).eager
    (True, True)
    """
    n = len(eager)
    memory = [0.0] * n if memory is None else memory
    fixed = [None] * n if fixed is None else fixed
    for name, values in (("lazy_scan", lazy_scan), ("memory", memory), ("fixed", fixed)):
        if len(values) != n:
            raise QueryError(Code.BAD_OPTION, f"{name} has {len(values)} values for {n} queries", "give one for each")
    candidates = [
        Candidate(float(own), float(scan), float(size), 0, decision)
        for own, scan, size, decision in zip(eager, lazy_scan, memory, fixed, strict=True)
    ]
    extents = [LazyExtent(float(shared_lazy), float(shared_memory))]
    return solve(candidates, extents, budget, time_limit=time_limit, solver=solver)


def solve(
    candidates: Sequence[Candidate],
    shared: Sequence[LazyExtent],
    budget: float | None = None,
    *,
    time_limit: float | None = None,
    solver: str = "auto",
) -> Selection:
    """As :func:`select`, for queries over several streams that share one budget; ``shared[g]`` is stream g's extent.

    >>> solve([Candidate(2.0, 1.0, stream=0), Candidate(2.0, 1.0, stream=1)],
    ...     [LazyExtent(0.5), LazyExtent(9.0)]).eager
    (False, True)
    """
    one_of("solver", solver, SOLVERS)
    _check_numbers(candidates, shared, budget)
    problem = _Problem(candidates, shared, math.inf if budget is None else float(budget))
    if solver == "auto":
        free = _without_budget(problem)
        if problem.memory(free) <= problem.budget:
            return Selection(tuple(free), problem.cost(free))
    if not candidates:
        return Selection((), 0.0, solver="program")
    problem.check_feasible()
    eager, status, bound = _by_program(problem, time_limit)
    eager = _first_of_equals(problem, _improved(problem, eager))
    cost = problem.cost(eager)
    gap = 0.0 if status == "optimal" else max(0.0, (cost - bound) / abs(cost)) if cost else 0.0
    return Selection(tuple(eager), cost, status, gap, "program")


@dataclass(frozen=True, slots=True)
class _Problem:
    candidates: Sequence[Candidate]
    shared: Sequence[LazyExtent]
    budget: float

    def streams(self) -> Iterator[tuple[LazyExtent, list[int]]]:
        members: list[list[int]] = [[] for _ in self.shared]
        for j, candidate in enumerate(self.candidates):
            members[candidate.stream].append(j)
        yield from zip(self.shared, members, strict=True)

    def used(self, eager: Sequence[bool]) -> list[LazyExtent]:
        lazy = {candidate.stream for candidate, own in zip(self.candidates, eager, strict=True) if not own}
        return [self.shared[stream] for stream in sorted(lazy)]

    def cost(self, eager: Sequence[bool]) -> float:
        own = [c.eager if chosen else c.lazy_scan for c, chosen in zip(self.candidates, eager, strict=True)]
        return math.fsum([*own, *(extent.cost for extent in self.used(eager))])

    def memory(self, eager: Sequence[bool]) -> float:
        own = [c.memory for c, chosen in zip(self.candidates, eager, strict=True) if chosen]
        return math.fsum([*own, *(extent.memory for extent in self.used(eager))])

    def holds(self, eager: Sequence[bool]) -> bool:
        """Whether the fixed decisions are kept."""
        return all(c.fixed in (None, chosen) for c, chosen in zip(self.candidates, eager, strict=True))

    def leanest(self) -> list[bool]:
        """The selection with the least memory: each stream is all eager, or lazy wherever that is allowed."""
        eager = [candidate.fixed is True for candidate in self.candidates]
        for extent, members in self.streams():
            undecided = [j for j in members if not eager[j]]
            may_all = all(self.candidates[j].fixed is not False for j in undecided)
            if may_all and math.fsum(self.candidates[j].memory for j in undecided) < extent.memory:
                for j in undecided:
                    eager[j] = True
        return eager

    def check_feasible(self) -> None:
        least = self.memory(self.leanest())
        if least > self.budget:
            raise QueryError(
                Code.PLAN_INFEASIBLE,
                f"the memory budget is {self.budget:g}, but every selection needs at least {least:g}",
                f"raise the budget by {least - self.budget:g}, shorten windows, or unpin queries",
            )


def _check_numbers(candidates: Sequence[Candidate], shared: Sequence[LazyExtent], budget: float | None) -> None:
    numbers: dict[str, tuple[float, ...]] = {
        f"query {j}": (candidate.eager, candidate.lazy_scan, candidate.memory) for j, candidate in enumerate(candidates)
    }
    numbers |= {f"shared extent {g}": (extent.cost, extent.memory) for g, extent in enumerate(shared)}
    for what, values in numbers.items():
        if not all(math.isfinite(value) for value in values):
            raise QueryError(Code.BAD_OPTION, f"{what} has costs or memory {values}", "they must be finite numbers")
        if values[-1] < 0:
            raise QueryError(Code.BAD_OPTION, f"{what} needs memory {values[-1]:g}", "memory must not be negative")
    if budget is not None and math.isnan(budget):
        raise QueryError(Code.BAD_OPTION, "the memory budget is not a number", "give a number or leave it out")


def _without_budget(problem: _Problem) -> list[bool]:
    """The optimum without a binding budget, in closed form, stream by stream."""
    eager = [False] * len(problem.candidates)
    for extent, members in problem.streams():
        of = problem.candidates
        mixed = {j: of[j].eager < of[j].lazy_scan if of[j].fixed is None else bool(of[j].fixed) for j in members}
        undecided = [j for j in members if of[j].fixed is None]
        if members and all(mixed.values()) and extent.cost < 0 and undecided:
            # An extent of negative cost pays for the query that loses least by being lazy.
            least = min(undecided, key=lambda j: of[j].lazy_scan - of[j].eager)
            mixed[least] = of[least].lazy_scan - of[least].eager + extent.cost > 0
        if any(not chosen for chosen in mixed.values()) and all(of[j].fixed is not False for j in members):
            lazy = [j for j in members if not mixed[j]]
            if math.fsum([*(of[j].eager for j in lazy), *(-of[j].lazy_scan for j in lazy), -extent.cost]) < 0:
                mixed = dict.fromkeys(members, True)
        for j, chosen in mixed.items():
            eager[j] = chosen
    return eager


def _by_program(problem: _Problem, time_limit: float | None) -> tuple[list[bool], Status, float]:
    """The solver's selection, its status, and a lower bound of the cost from the linear relaxation."""
    import pulp

    of = problem.candidates
    scale = _SCALE / max([abs(c.eager - c.lazy_scan) for c in of] + [abs(s.cost) for s in problem.shared] + [1e-300])
    most = max([c.memory for c in of] + [s.memory for s in problem.shared])
    unit = (problem.budget if math.isfinite(problem.budget) else most) or most or 1.0

    def share(memory: float) -> float:
        """The fraction of the budget, capped: solvers handle numbers such as 1e38 badly."""
        return min(memory / unit, _OVER)

    program = pulp.LpProblem("eager_or_lazy", pulp.LpMinimize)
    own = [program.add_variable(f"x{j}", cat="Binary") for j in range(len(of))]
    any_lazy = [program.add_variable(f"y{g}", cat="Binary") for g in range(len(problem.shared))]
    program += pulp.LpAffineExpression(
        [(x, (c.eager - c.lazy_scan) * scale) for x, c in zip(own, of, strict=True)]
        + [(y, extent.cost * scale) for y, extent in zip(any_lazy, problem.shared, strict=True)]
    )
    if math.isfinite(problem.budget):
        program += (
            pulp.LpAffineExpression(
                [(x, share(c.memory)) for x, c in zip(own, of, strict=True)]
                + [(y, share(extent.memory)) for y, extent in zip(any_lazy, problem.shared, strict=True)]
            )
            <= problem.budget / unit + _SLACK
        )
    for y, (_, members) in zip(any_lazy, problem.streams(), strict=True):
        # One row for all `y >= 1 - x_j` has a weaker relaxation, but branching on y removes the difference, and ten
        # thousand rows would cost the solver more.
        eager_ones = pulp.lpSum(own[j] for j in members)
        program += len(members) * y + eager_ones >= len(members)
        program += y + eager_ones <= len(members)
    for x, candidate in zip(own, of, strict=True):
        if candidate.fixed is not None:
            x.lowBound = x.upBound = int(candidate.fixed)
    bound = _relaxation(program, scale) + math.fsum(c.lazy_scan for c in of) if time_limit is not None else -math.inf
    while True:
        program.solve(_solver(time_limit))
        eager = [x.value() is not None and round(x.value()) == 1 for x in own]
        fits = problem.memory(eager) <= problem.budget
        if program.sol_status != pulp.LpSolutionOptimal:
            # Stopped before it found a feasible selection: take the one with the least memory.
            return eager if fits and problem.holds(eager) else problem.leanest(), "time limit", bound
        if fits:
            return eager, "optimal", bound
        # Over the budget by less than the tolerance: exclude this selection.
        program += pulp.lpSum(1 - x if chosen else x for x, chosen in zip(own, eager, strict=True)) >= 1


def _relaxation(program: object, scale: float) -> float:
    import pulp

    relaxed = program.deepcopy()  # type: ignore[attr-defined]  # an LpProblem; PuLP's types do not say so
    for variable in relaxed.variables():
        variable.cat = pulp.LpContinuous
    relaxed.solve(_solver(None))
    return float(pulp.value(relaxed.objective)) / scale


def _solver(time_limit: float | None) -> object:
    import pulp

    highs = pulp.HiGHS(msg=False, timeLimit=time_limit, gapRel=0, threads=1)
    if highs.available():
        return highs
    with warnings.catch_warnings():
        # PuLP 3 includes CBC and warns that PuLP 4 will not.
        warnings.simplefilter("ignore", DeprecationWarning)
        return pulp.PULP_CBC_CMD(msg=False, timeLimit=time_limit, gapRel=0, threads=1)


def _improved(problem: _Problem, eager: list[bool]) -> list[bool]:
    """Change single queries while that reduces the cost, or the number of extents at equal cost, within the budget."""
    cost = problem.cost(eager)
    if len(eager) > 1000:  # quadratic, and the tolerance is irrelevant for so many
        return eager
    changed = True
    while changed:
        changed = False
        for j, candidate in enumerate(problem.candidates):
            if candidate.fixed is not None:
                continue
            other = [*eager[:j], not eager[j], *eager[j + 1 :]]
            other_cost = problem.cost(other)
            better = other_cost < cost or (other_cost == cost and eager[j])
            if better and problem.memory(other) <= problem.budget:
                eager, cost, changed = other, other_cost, True
    return eager


def _first_of_equals(problem: _Problem, eager: list[bool]) -> list[bool]:
    """The same number of eager queries among equal ones, but always the first, so that the result is deterministic."""
    alike: dict[Candidate, list[int]] = {}
    for j, candidate in enumerate(problem.candidates):
        alike.setdefault(candidate, []).append(j)
    settled = list(eager)
    for members in alike.values():
        chosen = sum(eager[j] for j in members)
        for place, j in enumerate(members):
            settled[j] = place < chosen
    return settled
