"""Plan files: their contents are planned, and errors in them are reported with their location."""

from pathlib import Path

import pytest

from whenabouts.core import InputError, QueryError
from whenabouts.planner import read_plan_file
from whenabouts.planner.plan_files import registry_of

PLAN = """
weights: {memory: 1, update: 1, scan: 2}
costs: {read: 1, insert: 0.0273, attach: 0.5, merge: {constant: 0.005, cp_oop: 0.2999}}
memory_budget: 16 MiB
queries:
  - {name: hot, coalesce: [temperature], group: [region], window: {rows: 100}, statistics: {cp: 0.8, oop: 0.1}}
  - {name: wet, coalesce: [humidity], group: [region], window: {range: 24 h}, pin: lazy}
"""


def test_a_plan_file_is_planned(tmp_path: Path) -> None:
    file = tmp_path / "queries.yaml"
    file.write_text(PLAN)
    plan = read_plan_file(file).plan()
    assert plan.choices["wet"] == "lazy"
    assert [each.statistics["source"] for each in plan.queries] == ["declared", "default"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("queries: 5", "queries is missing or has the wrong type"),
        ("{weight: 1, queries: []}", "unknown weight"),
        ("{costs: {merg: 1}, queries: []}", "no cost named 'merg'"),
        ("{costs: {merge: [1]}, queries: []}", "cost of 'merge'"),
        ("queries: [{name: a}]", r"queries\[0\]: window"),
        ("queries: [{name: a, coalesce: [x], window: {row: 5}}]", r"queries\[0\]: window: unknown row"),
        ("queries: [{name: a, coalesce: [5], window: {rows: 5}}]", r"queries\[0\]: coalesce"),
        ("queries: [{coalesce: [x], window: {rows: 5}}]", r"queries\[0\]: name"),
        ("queries: [{name: a, coalesce: [x], window: {rows: 5}, pin: now}]", r"queries\[0\]: pin"),
        ("queries: [{name: a, coalesce: [x], window: {rows: 5}, statistics: {cq: 1}}]", "statistics"),
        ("queries: [", "correct the YAML"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "queries.yaml"
    file.write_text(text)
    with pytest.raises(QueryError, match=f"WA-2075: .*{what}"):
        read_plan_file(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="WA-1008"):
        read_plan_file(tmp_path / "none.yaml")


def test_nothing_in_a_file_is_run() -> None:
    with pytest.raises(QueryError, match="WA-2075"):
        registry_of({"queries": [{"name": "a", "coalesce": ["x"], "window": "__import__('os')"}]})
