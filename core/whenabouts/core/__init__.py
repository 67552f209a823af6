"""Engine-neutral operators for event streams whose times are uncertain.

Importing this package starts nothing and loads no engine and no compiler; kernels are imported when first needed.
"""

from whenabouts.core.conditions import Condition, between, deadline, delay, within
from whenabouts.core.errors import (
    Code,
    EngineError,
    InputError,
    QueryError,
    RejectedRowsWarning,
    WhenaboutsError,
)
from whenabouts.core.templates import Template
from whenabouts.core.timestamps import Histogram, Interval, Lateness, Point

__all__ = [
    "Code",
    "Condition",
    "EngineError",
    "Histogram",
    "InputError",
    "Interval",
    "Lateness",
    "Point",
    "QueryError",
    "RejectedRowsWarning",
    "Template",
    "WhenaboutsError",
    "between",
    "deadline",
    "delay",
    "within",
]
