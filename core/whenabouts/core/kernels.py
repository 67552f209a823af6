"""All compiled code at once, for hosts that load it before the first row comes: else the first step that needs it."""

from __future__ import annotations

from importlib import import_module

KERNELS = (
    "aggregate_kernels",
    "anchored_ranges",
    "coalescing_kernels",
    "combinations",
    "confidence_bounds",
    "gather",
    "keep_best",
    "moving_join_kernels",
    "moving_kernels",
    "ordered_chunks",
    "pair_fill",
    "regions",
    "row_order",
    "satisfaction_probability",
    "shape_probability",
    "shape_thresholds",
)
"""The modules of `whenabouts.core` that hold it."""


def load_kernels() -> None:
    """Import them. Two to three CPU-seconds where they have been compiled before."""
    for name in KERNELS:
        import_module(f"whenabouts.core.{name}")
