"""The planner: chooses schemes and algorithms for many queries at once, and explains why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whenabouts.core.costs.choices import Workload
from whenabouts.core.costs.eager_lazy_cost import ExtentCost, SchemeCosts, Statistics, scheme_costs
from whenabouts.core.costs.operation_costs import AtomicCosts, Table, Terms
from whenabouts.core.costs.prices import Sizes, Weights
from whenabouts.core.deprecation import renamed

if TYPE_CHECKING:
    from whenabouts.planner.adaptive import Adaptive
    from whenabouts.planner.coalescing_queries import CoalescingQuery
    from whenabouts.planner.join_plans import JoinPlan
    from whenabouts.planner.measured_statistics import measured_statistics
    from whenabouts.planner.plan_files import read_plan_file
    from whenabouts.planner.plans import Plan, QueryPlan
    from whenabouts.planner.registry import PlanChangedWarning, Registry
    from whenabouts.planner.selection import Selection, select
    from whenabouts.planner.streams import Stream
    from whenabouts.planner.text_queries import TextQuery, parse_query

__all__ = [
    "Adaptive",
    "AtomicCosts",
    "CoalescingQuery",
    "ExtentCost",
    "JoinPlan",
    "Plan",
    "PlanChangedWarning",
    "QueryPlan",
    "Registry",
    "SchemeCosts",
    "Selection",
    "Sizes",
    "Statistics",
    "Stream",
    "Table",
    "Terms",
    "TextQuery",
    "Weights",
    "Workload",
    "measured_statistics",
    "parse_query",
    "read_plan_file",
    "scheme_costs",
    "select",
]

_HOMES = {
    "Adaptive": "adaptive",
    "CoalescingQuery": "coalescing_queries",
    "JoinPlan": "join_plans",
    "measured_statistics": "measured_statistics",
    "read_plan_file": "plan_files",
    "Plan": "plans",
    "QueryPlan": "plans",
    "PlanChangedWarning": "registry",
    "Registry": "registry",
    "Selection": "selection",
    "select": "selection",
    "Stream": "streams",
    "TextQuery": "text_queries",
    "parse_query": "text_queries",
}
"""The modules of this package's own names, which are imported when they are first used (as in `whenabouts.core`)."""

_old_name = renamed(__name__, {"Load": "Workload"})

if not TYPE_CHECKING:  # type checkers take a module with `__getattr__` to have every name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            return _old_name(name)
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found  # so that the next use is an ordinary one
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
