"""Engine-neutral operators for event streams whose times are uncertain.

Importing this package starts nothing and loads no engine and no compiler; kernels are imported when first needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whenabouts.core.conditions import Condition, between, deadline, delay, within
from whenabouts.core.distributions import exponential, normal, triangular, uniform
from whenabouts.core.errors import (
    Code,
    EngineError,
    InputError,
    LossyQueryWarning,
    QueryError,
    RejectedRowsWarning,
    SingleBucketWarning,
    WhenaboutsError,
)
from whenabouts.core.templates import Template

if TYPE_CHECKING:
    from whenabouts.core.accidental_pairs import ChanceMatches, chance_matches
    from whenabouts.core.clocks import from_clock
    from whenabouts.core.empirical_distributions import empirical
    from whenabouts.core.pair_answers import PairAnswer, Reason, why_not
    from whenabouts.core.payloads import AvroPayload, JsonPayload
    from whenabouts.core.timestamps import Histogram, Interval, Lateness, Point
    from whenabouts.core.timestamps_from import from_distribution, from_granularity, from_latency, from_polling
    from whenabouts.core.value_equivalence import Equivalence, within_relative, within_value
    from whenabouts.core.window_extent import WindowExtent

__all__ = [
    "AvroPayload",
    "ChanceMatches",
    "Code",
    "Condition",
    "EngineError",
    "Equivalence",
    "Histogram",
    "InputError",
    "Interval",
    "JsonPayload",
    "Lateness",
    "LossyQueryWarning",
    "PairAnswer",
    "Point",
    "QueryError",
    "Reason",
    "RejectedRowsWarning",
    "SingleBucketWarning",
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
]

_IMPORTED_WHEN_USED = {
    "AvroPayload": "payloads",
    "JsonPayload": "payloads",
    "Equivalence": "value_equivalence",
    "within_relative": "value_equivalence",
    "within_value": "value_equivalence",
    "ChanceMatches": "accidental_pairs",
    "chance_matches": "accidental_pairs",
    "Histogram": "timestamps",
    "Interval": "timestamps",
    "Lateness": "timestamps",
    "PairAnswer": "pair_answers",
    "Point": "timestamps",
    "Reason": "pair_answers",
    "WindowExtent": "window_extent",
    "empirical": "empirical_distributions",
    "from_clock": "clocks",
    "from_distribution": "timestamps_from",
    "from_granularity": "timestamps_from",
    "from_latency": "timestamps_from",
    "from_polling": "timestamps_from",
    "why_not": "pair_answers",
}
"""Names whose modules import numpy or Arrow, which the start of the command line does without."""


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_WHEN_USED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_IMPORTED_WHEN_USED[name]}"), name)
