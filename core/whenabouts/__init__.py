"""Joins of event streams whose times are uncertain, on Spark, on Flink and in process.

    import whenabouts as wa

is the one import that users need. Each public name is imported when it is first used, so that the import itself loads
no engine, no Arrow and no compiler. What only one engine has is in its adapter, `wa.spark_plugin` or `wa.flink_plugin`.

>>> import pyarrow as pa
>>> import whenabouts as wa
>>> left = pa.table({"id": [1, 2], "from": [0, 100], "to": [10, 110]})
>>> right = pa.table({"name": ["a", "b"], "t0": [12, 300], "t1": [20, 310]})
>>> pairs = wa.timing_join(left, right, left_time=wa.Interval("from", "to"), right_time=wa.Interval("t0", "t1"),
...                        condition=wa.within("15us", confidence=0.8))
>>> pairs.select(["id", "name", "probability"]).to_pylist()
[{'id': 1, 'name': 'a', 'probability': 0.84375}]
"""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

# pip sees to it; an archive or a JAR on the Python path does not. What is imported from here on needs it.
if not (3, 11) <= sys.version_info[:2] <= (3, 14):
    raise ImportError(
        f"WA-3002: Python is {sys.version_info[0]}.{sys.version_info[1]}, one from 3.11 to 3.14 is needed (hint: give "
        "such a one to driver and workers: PYSPARK_PYTHON on Spark, python.executable on Flink; docs/shipping.md)"
    )

# In the repository and in an editable install the parts of the package (core, planner, adapters, ...) lie in several
# source roots. The other roots have no `__init__.py` at this level: they are portions that this line adds. In place, so
# that tools that read the module's spec find them too. (Their `__init__.pyi` are for pyright: of several folders of one
# name it looks only into those that are packages. mypy looks into all of them, but refuses several `__init__.py`.)
__path__[:] = extend_path(__path__, __name__)

if TYPE_CHECKING:
    import whenabouts.flink_plugin as flink_plugin
    import whenabouts.planner as planner
    import whenabouts.spark_plugin as spark_plugin
    from whenabouts.core import (
        AvroPayload,
        ChanceMatches,
        Code,
        Condition,
        DigitsCutWarning,
        DoubtfulTimesWarning,
        EngineError,
        Equivalence,
        Finding,
        GroupProfile,
        Histogram,
        InputError,
        Interval,
        JsonPayload,
        Lateness,
        Learned,
        LearnedClock,
        LearnedClocks,
        LossyQueryWarning,
        MixedZonesWarning,
        PairAnswer,
        Point,
        Profile,
        QueryError,
        Reason,
        RejectedRowsWarning,
        RejectsSummary,
        SingleBucketWarning,
        Template,
        WhenaboutsError,
        WindowExtent,
        absolute_tolerance,
        between,
        chance_matches,
        deadline,
        delay,
        empirical,
        exponential,
        from_clock,
        from_distribution,
        from_granularity,
        from_latency,
        from_polling,
        learn_clock,
        learn_delay,
        normal,
        overlaps,
        possibly,
        profile,
        relative_tolerance,
        summarise_rejects,
        timeline,
        triangular,
        uniform,
        why_not,
        within,
    )
    from whenabouts.core.asof_join.query import AsofJoin
    from whenabouts.core.clocks.watching.query import WatchClock
    from whenabouts.core.coalescing.query import Coalesce
    from whenabouts.core.errors import AtLeastOnceWarning, EmptyInputWarning, NotFiniteWarning
    from whenabouts.core.hosting.worker_archive import build_worker_archive
    from whenabouts.core.join_aggregate.query import JoinAggregate
    from whenabouts.core.operations import (
        asof_join,
        coalesce,
        join_aggregate,
        rejects,
        run,
        temporal_aggregate,
        temporal_join,
        timing_join,
        watch_clock,
        window_join,
    )
    from whenabouts.core.temporal_queries.aggregate_query import TemporalAggregate
    from whenabouts.core.temporal_queries.join_query import TemporalJoin
    from whenabouts.core.timing_join.query import TimingJoin
    from whenabouts.core.window_join.query import WindowJoin
    from whenabouts.core.wrappers.state_limit import StateLimit
    from whenabouts.planner import (
        CoalescingQuery,
        Plan,
        PlanChangedWarning,
        Registry,
        Statistics,
        TextQuery,
        Workload,
        parse_query,
        read_plan_file,
    )

__all__ = [
    "AsofJoin",
    "AtLeastOnceWarning",
    "AvroPayload",
    "ChanceMatches",
    "Coalesce",
    "CoalescingQuery",
    "Code",
    "Condition",
    "DigitsCutWarning",
    "DoubtfulTimesWarning",
    "EmptyInputWarning",
    "EngineError",
    "Equivalence",
    "Finding",
    "GroupProfile",
    "Histogram",
    "InputError",
    "Interval",
    "JoinAggregate",
    "JsonPayload",
    "Lateness",
    "Learned",
    "LearnedClock",
    "LearnedClocks",
    "LossyQueryWarning",
    "MixedZonesWarning",
    "NotFiniteWarning",
    "PairAnswer",
    "Plan",
    "PlanChangedWarning",
    "Point",
    "Profile",
    "QueryError",
    "Reason",
    "Registry",
    "RejectedRowsWarning",
    "RejectsSummary",
    "SingleBucketWarning",
    "StateLimit",
    "Statistics",
    "Template",
    "TemporalAggregate",
    "TemporalJoin",
    "TextQuery",
    "TimingJoin",
    "WatchClock",
    "WhenaboutsError",
    "WindowExtent",
    "WindowJoin",
    "Workload",
    "absolute_tolerance",
    "asof_join",
    "between",
    "build_worker_archive",
    "chance_matches",
    "coalesce",
    "deadline",
    "delay",
    "empirical",
    "exponential",
    "flink_plugin",
    "from_clock",
    "from_distribution",
    "from_granularity",
    "from_latency",
    "from_polling",
    "join_aggregate",
    "learn_clock",
    "learn_delay",
    "normal",
    "overlaps",
    "parse_query",
    "planner",
    "possibly",
    "profile",
    "read_plan_file",
    "rejects",
    "relative_tolerance",
    "run",
    "spark_plugin",
    "summarise_rejects",
    "temporal_aggregate",
    "temporal_join",
    "timeline",
    "timing_join",
    "triangular",
    "uniform",
    "watch_clock",
    "why_not",
    "window_join",
    "within",
]

_PARTS = ("flink_plugin", "planner", "spark_plugin")

_ELSEWHERE = {
    "AsofJoin": "whenabouts.core.asof_join.query",
    "AtLeastOnceWarning": "whenabouts.core.errors",
    "Coalesce": "whenabouts.core.coalescing.query",
    "EmptyInputWarning": "whenabouts.core.errors",
    "JoinAggregate": "whenabouts.core.join_aggregate.query",
    "NotFiniteWarning": "whenabouts.core.errors",
    "StateLimit": "whenabouts.core.wrappers.state_limit",
    "TemporalAggregate": "whenabouts.core.temporal_queries.aggregate_query",
    "TemporalJoin": "whenabouts.core.temporal_queries.join_query",
    "TimingJoin": "whenabouts.core.timing_join.query",
    "WatchClock": "whenabouts.core.clocks.watching.query",
    "WindowJoin": "whenabouts.core.window_join.query",
    "build_worker_archive": "whenabouts.core.hosting.worker_archive",
    **dict.fromkeys(
        (
            "asof_join",
            "coalesce",
            "join_aggregate",
            "rejects",
            "run",
            "temporal_aggregate",
            "temporal_join",
            "timing_join",
            "watch_clock",
            "window_join",
        ),
        "whenabouts.core.operations",
    ),
    **dict.fromkeys(
        (
            "CoalescingQuery",
            "Workload",
            "Plan",
            "PlanChangedWarning",
            "Registry",
            "Statistics",
            "TextQuery",
            "parse_query",
            "read_plan_file",
        ),
        "whenabouts.planner",
    ),
}
"""The modules of names that `whenabouts.core` itself does not have."""


if not TYPE_CHECKING:  # type checkers take a module with `__getattr__` to have every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _PARTS:
            return import_module(f"{__name__}.{name}")
        found = getattr(import_module(_ELSEWHERE.get(name, "whenabouts.core")), name)
        globals()[name] = found  # so that the next use is an ordinary one
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
