"""Engine-neutral operators for event streams whose times are uncertain.

Importing this package starts nothing and loads no engine and no compiler; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whenabouts.core.clocks.learn_clock import learn_clock
    from whenabouts.core.clocks.learn_delay import learn_delay
    from whenabouts.core.clocks.learned_clock import LearnedClock
    from whenabouts.core.clocks.learned_clocks import LearnedClocks
    from whenabouts.core.clocks.profile.findings import Finding
    from whenabouts.core.clocks.profile.group_profile import GroupProfile
    from whenabouts.core.clocks.profile.profile import profile
    from whenabouts.core.clocks.profile.report import Profile
    from whenabouts.core.coalescing.equivalence import Equivalence, absolute_tolerance, relative_tolerance
    from whenabouts.core.errors import (
        Code,
        DigitsCutWarning,
        DoubtfulTimesWarning,
        EngineError,
        InputError,
        LossyQueryWarning,
        MixedZonesWarning,
        QueryError,
        RejectedRowsWarning,
        SingleBucketWarning,
        WhenaboutsError,
    )
    from whenabouts.core.explain.chance_matches import ChanceMatches, chance_matches
    from whenabouts.core.explain.pair_answer import PairAnswer, Reason
    from whenabouts.core.explain.rejects_summary import RejectsSummary, summarise_rejects
    from whenabouts.core.explain.timeline import timeline
    from whenabouts.core.explain.why_not import why_not
    from whenabouts.core.times.clock_errors import from_clock
    from whenabouts.core.times.conditions import Condition, between, deadline, delay, overlaps, possibly, within
    from whenabouts.core.times.distributions import exponential, normal, triangular, uniform
    from whenabouts.core.times.empirical_distributions import empirical
    from whenabouts.core.times.lateness import Lateness
    from whenabouts.core.times.learned import Learned
    from whenabouts.core.times.spec_builders import from_distribution, from_granularity, from_latency, from_polling
    from whenabouts.core.times.templates import Template
    from whenabouts.core.times.time_specs import Histogram, Interval, Point
    from whenabouts.core.window_extent.extent import WindowExtent
    from whenabouts.core.wrappers.payloads import AvroPayload, JsonPayload
    from whenabouts.core.wrappers.state_limit import StateLimit

    within_relative, within_value = relative_tolerance, absolute_tolerance  # deprecated

__all__ = [
    "AvroPayload",
    "ChanceMatches",
    "Code",
    "Condition",
    "DigitsCutWarning",
    "DoubtfulTimesWarning",
    "EngineError",
    "Equivalence",
    "Finding",
    "GroupProfile",
    "Histogram",
    "InputError",
    "Interval",
    "JsonPayload",
    "Lateness",
    "Learned",
    "LearnedClock",
    "LearnedClocks",
    "LossyQueryWarning",
    "MixedZonesWarning",
    "PairAnswer",
    "Point",
    "Profile",
    "QueryError",
    "Reason",
    "RejectedRowsWarning",
    "RejectsSummary",
    "SingleBucketWarning",
    "StateLimit",
    "Template",
    "WhenaboutsError",
    "WindowExtent",
    "absolute_tolerance",
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
    "learn_clock",
    "learn_delay",
    "normal",
    "overlaps",
    "possibly",
    "profile",
    "relative_tolerance",
    "summarise_rejects",
    "timeline",
    "triangular",
    "uniform",
    "why_not",
    "within",
]

_HOMES = {
    **dict.fromkeys(
        (
            "Code",
            "DigitsCutWarning",
            "DoubtfulTimesWarning",
            "EngineError",
            "InputError",
            "LossyQueryWarning",
            "MixedZonesWarning",
            "QueryError",
            "RejectedRowsWarning",
            "SingleBucketWarning",
            "WhenaboutsError",
        ),
        "errors",
    ),
    **dict.fromkeys(
        ("Condition", "between", "deadline", "delay", "overlaps", "possibly", "within"), "times.conditions"
    ),
    **dict.fromkeys(("exponential", "normal", "triangular", "uniform"), "times.distributions"),
    "Template": "times.templates",
    "AvroPayload": "wrappers.payloads",
    "JsonPayload": "wrappers.payloads",
    "Equivalence": "coalescing.equivalence",
    "absolute_tolerance": "coalescing.equivalence",
    "relative_tolerance": "coalescing.equivalence",
    "ChanceMatches": "explain.chance_matches",
    "chance_matches": "explain.chance_matches",
    "Finding": "clocks.profile.findings",
    "GroupProfile": "clocks.profile.group_profile",
    "Profile": "clocks.profile.report",
    "profile": "clocks.profile.profile",
    "Histogram": "times.time_specs",
    "Interval": "times.time_specs",
    "Lateness": "times.lateness",
    "Learned": "times.learned",
    "LearnedClock": "clocks.learned_clock",
    "LearnedClocks": "clocks.learned_clocks",
    "PairAnswer": "explain.pair_answer",
    "Point": "times.time_specs",
    "Reason": "explain.pair_answer",
    "StateLimit": "wrappers.state_limit",
    "WindowExtent": "window_extent.extent",
    "empirical": "times.empirical_distributions",
    "from_clock": "times.clock_errors",
    "from_distribution": "times.spec_builders",
    "from_granularity": "times.spec_builders",
    "from_latency": "times.spec_builders",
    "from_polling": "times.spec_builders",
    "learn_clock": "clocks.learn_clock",
    "learn_delay": "clocks.learn_delay",
    "RejectsSummary": "explain.rejects_summary",
    "summarise_rejects": "explain.rejects_summary",
    "timeline": "explain.timeline",
    "why_not": "explain.why_not",
}
"""The module of each name. None is imported with this package: a module waits for its packages when it is imported, so
that two threads, as an engine's workers have them, could wait for each other."""

if not TYPE_CHECKING:  # type checkers take a module with `__getattr__` to have every name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            renamed = import_module(f"{__name__}.deprecation").renamed
            return renamed(__name__, {"within_relative": "relative_tolerance", "within_value": "absolute_tolerance"})(
                name
            )
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found  # so that the next use is an ordinary one
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
