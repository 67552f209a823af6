"""A plan: what was decided for every registered query, what it costs, and what the alternatives would have cost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from whenabouts.core.errors import Code, QueryError
from whenabouts.planner.selection import Status

Scheme = Literal["eager", "lazy"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One query's part of a plan.

    ``eager_cost``: its own extent, all three terms weighted; ``lazy_cost``: its scans of the shared one. ``terms``: the
    normalised memory, update and scan of both. ``state_bytes`` and ``scan_time``: predicted for the chosen scheme (the
    shared extent's bytes are counted once for a stream, in the plan).
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


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for all queries of a registry.

    ``cost``: the weighted sum that was minimised, the shared extents included. ``alternatives``: the same for all eager
    and all lazy, whether or not the constraints would allow them. ``status`` and ``gap``: see `Selection`. ``release``:
    of this package, by which it was made.
    """

    queries: tuple[QueryPlan, ...]
    cost: float
    alternatives: dict[str, float]
    shared_bytes: dict[str, float]
    status: Status = "optimal"
    gap: float = 0.0
    release: str = ""

    @property
    def choices(self) -> dict[str, Scheme]:
        """Scheme of each query by name."""
        return {query.name: query.scheme for query in self.queries}

    def to_json(self) -> str:
        """The plan as JSON text; `Plan.from_json` reads it back.

        >>> Plan((), 0.0, {}, {}) == Plan.from_json(Plan((), 0.0, {}, {}).to_json())
        True
        """
        return json.dumps({"format": _FORMAT, "choices": self.choices} | asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read an exported plan.

        Raises: QueryError WA-2075 for text that is no plan, or of another format.
        """
        try:
            found = json.loads(text)
            if found.pop("format") != _FORMAT:
                raise ValueError(f"it is not of format {_FORMAT}")
            found.pop("choices")
            queries = tuple(
                QueryPlan(**{**query, "shares_with": tuple(query["shares_with"])}) for query in found.pop("queries")
            )
            return cls(queries=queries, **found)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise QueryError(
                Code.BAD_PLAN_FILE, f"this is no exported plan: {error}", "export one with Plan.to_json"
            ) from error

    def diff(self, other: Plan) -> dict[str, tuple[Scheme | None, Scheme | None]]:
        """Where ``other`` decides otherwise: scheme here and there by name, None where a query is not in a plan.

        >>> Plan((), 0.0, {}, {}).diff(Plan((), 1.0, {}, {}))
        {}
        """
        mine, theirs = self.choices, other.choices
        names = [*mine, *(name for name in theirs if name not in mine)]
        return {name: (mine.get(name), theirs.get(name)) for name in names if mine.get(name) != theirs.get(name)}

    def explain(self) -> str:
        """The plan as text: every query's choice, what each alternative costs and why, and what state to expect."""
        if not self.queries:
            return "no queries registered"
        lines = [f"{'query':<16}{'choice':<8}{'eager':>9}{'lazy':>9}  {'state':>10}{'scan':>10}  statistics"]
        lines += [_line(query) for query in self.queries]
        lines += [f"one lazy extent over {stream}: {_bytes(size)}" for stream, size in self.shared_bytes.items()]
        others = ", ".join(f"{name.replace('_', ' ')} {cost:.4f}" for name, cost in self.alternatives.items())
        lines.append(f"total cost {self.cost:.4f} ({self.status}{_gap(self.gap)}); {others}")
        lines.append("eager: own extent, memory + update + scan; lazy: scans of the shared extent, which is paid once")
        return "\n".join(lines)


def _line(query: QueryPlan) -> str:
    known = query.statistics
    rate = f", {known['rate']:g}/s" if known["rate"] else ""
    notes = [f"cp {known['cp']:g}, oop {known['oop']:g}{rate} ({known['source']})"]
    notes += ["pinned"] if query.pinned else []
    notes += [f"one extent with {', '.join(query.shares_with)}"] if query.shares_with else []
    state = "shared" if query.scheme == "lazy" else _bytes(query.state_bytes)
    return (
        f"{query.name:<16}{query.scheme:<8}{query.eager_cost:>9.4f}{query.lazy_cost:>9.4f}  {state:>10}"
        f"{query.scan_time:>10.4g}  {'; '.join(notes)}"
    )


def _gap(gap: float) -> str:
    return f", at most {gap:.2%} over the optimum" if gap else ""


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"
