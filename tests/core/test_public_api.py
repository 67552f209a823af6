"""What users may rely on, and what importing it costs."""

import subprocess
import sys

import whenabouts.core

PUBLIC = {
    "ChanceMatches",
    "Code",
    "Condition",
    "EngineError",
    "Equivalence",
    "Histogram",
    "InputError",
    "Interval",
    "Lateness",
    "LossyQueryWarning",
    "PairAnswer",
    "Point",
    "QueryError",
    "Reason",
    "RejectedRowsWarning",
    "Template",
    "WhenaboutsError",
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
