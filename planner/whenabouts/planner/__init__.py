"""The planner: chooses schemes and algorithms for many queries at once, and explains why."""

from typing import TYPE_CHECKING

from whenabouts.core.costs.choices import Workload
from whenabouts.core.costs.eager_lazy_cost import ExtentCost, SchemeCosts, Statistics, scheme_costs
from whenabouts.core.costs.operation_costs import AtomicCosts, Table, Terms
from whenabouts.core.costs.prices import Sizes, Weights
from whenabouts.core.deprecation import renamed
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

if not TYPE_CHECKING:  # type checkers take a module with `__getattr__` to have every name
    __getattr__ = renamed(__name__, {"Load": "Workload"})
