"""Decides eager or lazy for many queries at once, and explains itself."""

from whenabouts.planner.atomic_costs import AtomicCosts, Table, Terms
from whenabouts.planner.cost_model import ExtentCost, SchemeCosts, Sizes, Statistics, Weights, scheme_costs
from whenabouts.planner.measured_statistics import measured_statistics
from whenabouts.planner.plan_files import read_plan_file
from whenabouts.planner.plans import Plan, QueryPlan
from whenabouts.planner.registry import CoalescingQuery, PlanChangedWarning, Registry
from whenabouts.planner.selection import Selection, select
from whenabouts.planner.text_queries import TextQuery, parse_query

__all__ = [
    "AtomicCosts",
    "CoalescingQuery",
    "ExtentCost",
    "Plan",
    "PlanChangedWarning",
    "QueryPlan",
    "Registry",
    "SchemeCosts",
    "Selection",
    "Sizes",
    "Statistics",
    "Table",
    "Terms",
    "TextQuery",
    "Weights",
    "measured_statistics",
    "parse_query",
    "read_plan_file",
    "scheme_costs",
    "select",
]
