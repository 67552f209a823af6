"""The operations by name, for packages that offer them and must not load them until one is used."""

OPERATION_NAMES = (
    "asof_join",
    "coalesce",
    "join_aggregate",
    "rejects",
    "temporal_aggregate",
    "temporal_join",
    "timing_join",
    "watch_clock",
    "window_join",
)
"""What `whenabouts.core.operations` offers."""
