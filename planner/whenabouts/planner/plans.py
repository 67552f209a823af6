"""Plans: the decisions for every registered query, their costs, and the costs of the alternatives."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from whenabouts.core.costs.choices import Alternative, Choice
from whenabouts.core.errors import Code, QueryError
from whenabouts.core.html_tables import html_table
from whenabouts.planner.byte_sizes import format_bytes
from whenabouts.planner.join_plans import DECISIONS, JoinPlan, explain_join
from whenabouts.planner.selection import Solver, Status
from whenabouts.planner.state_forecast import state_table

Scheme = Literal["eager", "lazy"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The plan of one coalescing query.

    ``choices``: scheme and buckets, with alternatives and reasons. ``shared``: whether it reads the extent that the
    lazy queries of its stream share. ``eager_cost``: of an extent of its own, all three terms weighted; ``lazy_cost``:
    of its scans of the shared extent, or of an extent of its own if it cannot share. ``terms``: the normalised memory,
    update and scan of both. ``state_bytes`` and ``scan_time``: expected for the chosen scheme (the bytes of a shared
    extent are counted once for its stream, in the plan).
    """

    name: str
    stream: str
    scheme: Scheme
    pinned: bool
    shares_with: tuple[str, ...]
    eager_cost: float
    lazy_cost: float
    terms: dict[str, dict[str, float]]
    statistics: dict[str, Any]
    state_bytes: float
    scan_time: float
    choices: tuple[Choice, ...] = ()
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for all queries of a registry.

    ``cost``: the minimised weighted sum, with the shared extents. ``alternatives``: the same for all eager and for
    all lazy, whether or not the constraints allow them. ``status``, ``gap`` and ``solver``: see `Selection`.
    ``fitted``: whether the costs are the defaults, fitted to the paper's decisions and not measured. ``release``: that
    of the package that made the plan. ``joins``: the plans of joins.
    """

    queries: tuple[QueryPlan, ...]
    cost: float
    alternatives: dict[str, float]
    shared_bytes: dict[str, float]
    status: Status = "optimal"
    gap: float = 0.0
    release: str = ""
    joins: tuple[JoinPlan, ...] = ()
    solver: Solver | Literal[""] = ""
    fitted: bool = False

    @property
    def choices(self) -> dict[str, str]:
        """Scheme or strategy of each query by name."""
        return {**self.schemes, **{join.name: join.strategy for join in self.joins}}

    @property
    def schemes(self) -> dict[str, Scheme]:
        """Scheme of each coalescing query by name."""
        return {query.name: query.scheme for query in self.queries}

    @property
    def decisions(self) -> dict[str, dict[str, str | int]]:
        """The value of every option, by query and option."""
        return {each.name: {choice.what: choice.value for choice in each.choices} for each in self._parts}

    @property
    def _parts(self) -> tuple[QueryPlan | JoinPlan, ...]:
        return (*self.queries, *self.joins)

    def bytes_beside(self, stream: str) -> float:
        """The expected state of all other streams, and of the joins."""
        own = {frozenset((each.name, *each.shares_with)): each for each in self.queries if not each.shared}
        theirs = sum(each.state_bytes for each in own.values() if each.stream != stream)
        theirs += sum(join.state_bytes or 0.0 for join in self.joins)
        return theirs + sum(size for name, size in self.shared_bytes.items() if name != stream)

    def beats(self, other: Plan, hysteresis: float) -> bool:
        """Whether this plan is cheaper than another by more than the hysteresis, a fraction of the other's cost.

        >>> now = Plan((), 1.0, {}, {})
        >>> Plan((), 0.94, {}, {}).beats(now, 0.05), Plan((), 0.96, {}, {}).beats(now, 0.05)
        (True, False)
        """
        return self.cost < other.cost - hysteresis * abs(other.cost)

    def to_json(self) -> str:
        """The plan as JSON text; `Plan.from_json` reads it.

        >>> Plan((), 0.0, {}, {}) == Plan.from_json(Plan((), 0.0, {}, {}).to_json())
        True
        """
        return json.dumps({"format": _FORMAT, "choices": self.choices} | asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read an exported plan.

        Raises: QueryError WA-2075 for any other text, or another format.
        """
        try:
            found = json.loads(text)
            if found.pop("format") != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT}")
            found.pop("choices")
            queries = tuple(
                QueryPlan(
                    **{
                        "shared": query["scheme"] == "lazy",  # earlier releases did not write it
                        **query,
                        "shares_with": tuple(query["shares_with"]),
                        "choices": _choices(query),
                    }
                )
                for query in found.pop("queries")
            )
            joins = tuple(_join(join) for join in found.pop("joins", ()))
            plan = cls(queries=queries, joins=joins, **found)
            _check_decisions(plan)
            return plan
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise QueryError(
                Code.BAD_PLAN_FILE, f"not an exported plan: {error}", "export one with Plan.to_json"
            ) from error

    def diff(self, other: Plan) -> dict[str, tuple[str | None, str | None]]:
        """Differing decisions by name: here and in ``other``; None if a query is not in a plan.

        A scheme or strategy has the query's name, any other option ``name.option``.

        >>> Plan((), 0.0, {}, {}).diff(Plan((), 1.0, {}, {}))
        {}
        """
        mine, theirs = self._flat(), other._flat()
        names = [*mine, *(name for name in theirs if name not in mine)]
        gone = {name for name in names if (name in mine) != (name in theirs) and "." in name}
        return {
            name: (mine.get(name), theirs.get(name))
            for name in names
            if mine.get(name) != theirs.get(name) and name not in gone
        }

    def _flat(self) -> dict[str, str]:
        """Every decision by name, without what follows from it (an order, the width of slots)."""
        flat: dict[str, str] = dict(self.choices)
        for join in self.joins:
            flat |= {f"{join.name}.{c.what}": str(c.value) for c in join.choices[1:] if c.what in DECISIONS}
        return flat

    def _repr_html_(self) -> str:
        rows = [(each.name, choice.what, choice.value, choice.why) for each in self._parts for choice in each.choices]
        page = [html_table("Plan", ["query", "option", "choice", "why"], rows, f"total cost {self.cost:.4f}")]
        page += [state_table(f"Expected state of {join.name}", join.state) for join in self.joins if join.state]
        return "\n".join(page)

    def explain(self) -> str:
        """The plan as text: the choices for every query, their alternatives and reasons, and the expected state."""
        lines: list[str] = []
        if self.queries:
            lines += [f"{'query':<16}{'choice':<8}{'eager':>9}{'lazy':>9}  {'state':>10}{'scan':>10}  statistics"]
            lines += [_line(query) for query in self.queries]
            lines += [
                f"one lazy extent over {stream}: {format_bytes(size)}" for stream, size in self.shared_bytes.items()
            ]
            others = ", ".join(f"{name.replace('_', ' ')} {cost:.4f}" for name, cost in self.alternatives.items())
            by = f" by the {self.solver}" if self.solver else ""
            lines.append(f"total cost {self.cost:.4f} ({self.status}{by}{_gap(self.gap)}); {others}")
            lines.append(
                "eager: own extent, memory + update + scan; lazy: scans of the shared extent, which is counted once"
            )
            if self.fitted:
                lines.append("costs: fitted to Tables 5 and 6 of Al-Kateb 2010, not measured; see whenabouts calibrate")
            lines += [f"{query.name}: {choice}" for query in self.queries for choice in query.choices]
        for join in self.joins:
            lines += explain_join(join)
        return "\n".join(lines) or "no queries registered"


def _check_decisions(plan: Plan) -> None:
    """Raise ValueError for decisions that are none: a file may say anything."""
    for each in plan._parts:
        name: object = each.name
        if not isinstance(name, str):
            raise ValueError(f"a query is called {name!r}")
        for choice in each.choices:
            what: object = choice.what
            value: object = choice.value
            if not isinstance(what, str) or not isinstance(value, str | int):
                raise ValueError(f"{name!r} has the choice {what!r}: {value!r}")
    for query in plan.queries:
        if query.scheme not in ("eager", "lazy"):
            raise ValueError(f"the scheme of {query.name!r} is {query.scheme!r}")
    for join in plan.joins:
        if not join.choices:
            raise ValueError(f"there is no choice for {join.name!r}")


def _choices(found: dict[str, Any]) -> tuple[Choice, ...]:
    return tuple(
        Choice(**{**each, "alternatives": tuple(Alternative(**other) for other in each["alternatives"])})
        for each in found.get("choices", ())
    )


def _join(found: dict[str, Any]) -> JoinPlan:
    state = found["state"]
    return JoinPlan(
        **{
            **found,
            "streams": tuple(found["streams"]),
            "choices": _choices(found),
            "state": None if state is None else {name: (rows, size) for name, (rows, size) in state.items()},
        }
    )


def _line(query: QueryPlan) -> str:
    known = query.statistics
    rate = f", {known['rate']:g}/s" if known["rate"] else ""
    notes = [f"cp {known['cp']:g}, oop {known['oop']:g}{rate} ({known['source']})"]
    notes += ["pinned"] if query.pinned else []
    notes += [f"one extent with {', '.join(query.shares_with)}"] if query.shares_with else []
    state = "shared" if query.shared else format_bytes(query.state_bytes)
    return (
        f"{query.name:<16}{query.scheme:<8}{query.eager_cost:>9.4f}{query.lazy_cost:>9.4f}  {state:>10}"
        f"{query.scan_time:>10.4g}  {'; '.join(notes)}"
    )


def _gap(gap: float) -> str:
    return f", at most {gap:.2%} above the optimum" if gap else ""
