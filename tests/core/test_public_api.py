"""What users may rely on, and what importing it costs."""

import dataclasses
import inspect
import subprocess
import sys

import pytest

import whenabouts.core
from whenabouts.core import local
from whenabouts.core.coalescing.operator import Coalesce, CoalesceOptions
from whenabouts.core.temporal_queries.aggregate import TemporalAggregate, TemporalAggregateOptions
from whenabouts.core.temporal_queries.join import TemporalJoin, TemporalJoinOptions
from whenabouts.core.timing_join.query import TimingJoin, TimingJoinOptions
from whenabouts.core.window_join.query import WindowJoin
from whenabouts.core.window_join.settings import WindowJoinOptions

PUBLIC = {
    "AvroPayload",
    "ChanceMatches",
    "Code",
    "Condition",
    "DoubtfulTimesWarning",
    "EngineError",
    "Equivalence",
    "Histogram",
    "InputError",
    "Interval",
    "JsonPayload",
    "Lateness",
    "DigitsCutWarning",
    "LossyQueryWarning",
    "PairAnswer",
    "Point",
    "QueryError",
    "Reason",
    "RejectedRowsWarning",
    "SingleBucketWarning",
    "StateLimit",
    "Template",
    "WhenaboutsError",
    "WindowExtent",
    "between",
    "chance_matches",
    "deadline",
    "delay",
    "empirical",
    "exponential",
    "from_clock",
    "from_distribution",
    "from_granularity",
    "from_latency",
    "from_polling",
    "normal",
    "triangular",
    "uniform",
    "why_not",
    "within",
    "within_relative",
    "within_value",
}


def test_public_names_are_the_frozen_list() -> None:
    assert set(whenabouts.core.__all__) == PUBLIC
    assert all(hasattr(whenabouts.core, name) for name in PUBLIC)


def test_importing_core_loads_no_engine_and_no_compiler() -> None:
    script = (
        "import sys, whenabouts.core, whenabouts.core.local;"
        "print([m for m in ('numba', 'pyspark', 'pyflink', 'pandas', 'pulp', 'click') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("query", "options", "of_the_inputs"),
    [
        (Coalesce, CoalesceOptions, set()),
        (TemporalAggregate, TemporalAggregateOptions, set()),
        (TemporalJoin, TemporalJoinOptions, set()),
        (TimingJoin, TimingJoinOptions, set()),
        (WindowJoin, WindowJoinOptions, {"times"}),
    ],
)
def test_functions_take_just_the_fields_of_their_query(query: type, options: type, of_the_inputs: set[str]) -> None:
    fields = {field.name: field for field in dataclasses.fields(query) if field.name not in of_the_inputs}
    assert set(options.__annotations__) == set(fields)
    without_default = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    required = {name for name, kind in options.__annotations__.items() if "Required[" in str(kind)}
    assert required == without_default


def test_the_signature_of_a_function_shows_the_options() -> None:
    shown = inspect.signature(local.temporal_join).parameters
    assert list(shown)[:3] == ["left", "right", "time"]
    assert shown["relation"].default == "overlaps"
    assert shown["time"].default is inspect.Parameter.empty
