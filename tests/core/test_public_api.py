"""The public API, and the cost of importing it."""

import ast
import dataclasses
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import whenabouts as wa
import whenabouts.core
from whenabouts.core import local
from whenabouts.core.asof_join.query import AsofJoin, AsofJoinOptions
from whenabouts.core.coalescing.query import Coalesce, EarlyCoalesceOptions
from whenabouts.core.join_aggregate.query import JoinAggregate, JoinAggregateOptions
from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate, TemporalAggregateOptions
from whenabouts.core.temporal_queries.join_query import TemporalJoin, TemporalJoinOptions
from whenabouts.core.timing_join.query import TimingJoin, TimingJoinOptions
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.window_join.settings import WindowJoinOptions

HEAVY = ("numba", "pandas", "pyspark", "pyflink", "pulp", "click")

PUBLIC = {
    "AsofJoin", "AtLeastOnceWarning", "AvroPayload", "ChanceMatches", "Coalesce", "CoalescingQuery", "Code",
    "Condition", "DigitsCutWarning",
    "DoubtfulTimesWarning", "EmptyInputWarning", "EngineError", "Equivalence", "Finding",
    "GroupProfile", "Profile", "profile", "Histogram", "InputError", "Interval",
    "JoinAggregate", "JsonPayload", "Lateness", "Learned", "Workload", "LossyQueryWarning", "NotFiniteWarning",
    "MixedZonesWarning",
    "PairAnswer", "Plan", "PlanChangedWarning", "Point", "QueryError", "Reason", "Registry", "RejectedRowsWarning",
    "RejectsSummary", "SingleBucketWarning", "StateLimit", "Statistics",
    "Template", "TemporalAggregate", "TemporalJoin", "TextQuery", "TimingJoin", "WhenaboutsError", "WindowExtent",
    "WindowJoin", "absolute_tolerance", "asof_join", "between", "build_worker_archive", "chance_matches", "coalesce",
    "deadline",
    "delay", "empirical", "exponential", "flink_plugin", "from_clock", "from_distribution", "from_granularity",
    "from_latency", "from_polling", "join_aggregate", "normal", "overlaps", "parse_query", "planner", "possibly",
    "read_plan_file",
    "rejects",
    "relative_tolerance", "run", "spark_plugin", "temporal_aggregate", "temporal_join", "timing_join", "triangular",
    "LearnedClock", "LearnedClocks", "learn_clock", "learn_delay",
    "WatchClock", "watch_clock",
    "summarise_rejects", "timeline", "uniform", "why_not", "window_join", "within",
}  # fmt: skip
"""What `import whenabouts as wa` offers: a name that leaves this list breaks users' programs."""


def test_public_names_are_the_frozen_list() -> None:
    assert set(wa.__all__) == set(dir(wa)) == PUBLIC
    assert len(wa.__all__) == len(PUBLIC)
    assert all(hasattr(wa, name) for name in PUBLIC)
    with pytest.raises(AttributeError, match="timing_joint"):
        _ = wa.timing_joint  # type: ignore[attr-defined]


@pytest.mark.parametrize("minor", [10, 15])
def test_an_unsupported_python_is_refused_with_a_code(monkeypatch: pytest.MonkeyPatch, minor: int) -> None:
    """An archive or a JAR brings the package to any Python."""
    monkeypatch.setattr(sys, "version_info", (3, minor, 14, "final", 0))
    needed = rf"WA-3002: Python is 3\.{minor}, one from 3\.11 to 3\.14 is needed \(hint: .*PYSPARK_PYTHON"
    with pytest.raises(ImportError, match=needed):
        exec(Path(wa.__file__).read_text(encoding="utf-8"), {"__path__": [], "__name__": "whenabouts"})


def test_the_core_offers_what_the_root_has_of_it() -> None:
    """The older import path: `from whenabouts.core import Interval`."""
    assert set(whenabouts.core.__all__) < PUBLIC
    assert all(getattr(whenabouts.core, name) is getattr(wa, name) for name in whenabouts.core.__all__)


def test_type_checkers_see_each_name_where_python_finds_it() -> None:
    """The imports under TYPE_CHECKING and those at run time are separate lists."""
    tree = ast.parse(Path(str(wa.__file__)).read_text())
    imports = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    seen: dict[str, object] = {}
    for node in imports:
        if isinstance(node, ast.Import):
            seen |= {alias.asname or alias.name: import_module(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            seen |= {alias.name: getattr(import_module(str(node.module)), alias.name) for alias in node.names}
    assert set(seen) == PUBLIC
    assert all(getattr(wa, name) is found for name, found in seen.items())


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import whenabouts", ("numpy", "pyarrow", *HEAVY)),
        ("import whenabouts as wa; wa.within, wa.WhenaboutsError, dir(wa)", ("numpy", "pyarrow", *HEAVY)),
        ("import whenabouts as wa; wa.timing_join, wa.Interval, wa.rejects", HEAVY),
        ("import whenabouts as wa; wa.spark_plugin, wa.flink_plugin", HEAVY),
        ("import whenabouts.core, whenabouts.core.local", HEAVY),
    ],
)
def test_a_name_loads_what_it_needs_and_no_more(statement: str, not_loaded: tuple[str, ...]) -> None:
    script = f"import sys; {statement}; print([m for m in {not_loaded} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_import_is_light() -> None:
    """It loads fewer than a hundred modules beyond Python's own, so that it does not delay the command line."""
    script = "import sys; before = set(sys.modules); import whenabouts; print(len(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 100


@pytest.mark.parametrize(
    ("query", "options", "without"),
    [
        (AsofJoin, AsofJoinOptions, set()),
        (Coalesce, EarlyCoalesceOptions, set()),
        (JoinAggregate, JoinAggregateOptions, set()),
        (TemporalAggregate, TemporalAggregateOptions, {"emit", "valid_last"}),
        (TemporalJoin, TemporalJoinOptions, {"emit", "valid_last"}),
        (TimingJoin, TimingJoinOptions, set()),
        (WindowJoin, WindowJoinOptions, {"times"}),
    ],
)
def test_functions_take_just_the_fields_of_their_query(query: type, options: type, without: set[str]) -> None:
    fields = {field.name: field for field in dataclasses.fields(query) if field.name not in without}
    assert set(options.__annotations__) == set(fields)
    without_default = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    required = {name for name, kind in options.__annotations__.items() if "Required[" in str(kind)}
    assert required == without_default


def test_the_signature_of_a_function_shows_the_options() -> None:
    shown = inspect.signature(local.temporal_join).parameters
    assert list(shown)[:3] == ["left", "right", "time"]
    assert shown["relation"].default == "overlaps"
    assert shown["time"].default is inspect.Parameter.empty
    assert list(inspect.signature(local.window_join).parameters)[:3] == ["frames", "time", "windows"]
