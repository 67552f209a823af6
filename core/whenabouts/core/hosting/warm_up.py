"""Loads all compiled code at once, for hosts that do so before the first row; else each step loads what it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

KERNELS = (
    "arrays.digests",
    "arrays.galloping",
    "arrays.gather",
    "arrays.grouped_sort",
    "arrays.grouped_words",
    "arrays.integer_powers",
    "arrays.key_time_order",
    "arrays.side_by_side",
    "arrays.slab_pool",
    "arrays.value_order",
    "asof_join.candidates",
    "asof_join.choosing",
    "asof_join.classes",
    "asof_join.high_ends",
    "asof_join.line_integral",
    "asof_join.plane_grid",
    "asof_join.plane_integral",
    "asof_join.point_sweep",
    "asof_join.prevailing",
    "asof_join.quadrature",
    "asof_join.workspace",
    "coalescing.early_kernels",
    "coalescing.early_window_kernels",
    "coalescing.kernels",
    "coalescing.sliding_aggregates",
    "coalescing.sliding_kernels",
    "coalescing.sorted_list_kernels",
    "coalescing.sorted_list_runs",
    "coalescing.unordered_kernels",
    "join_aggregate.chance_kernels",
    "join_aggregate.clock_kernels",
    "join_aggregate.limbs",
    "join_aggregate.piece_kernels",
    "join_aggregate.range_queries",
    "join_aggregate.several_clocks",
    "join_aggregate.wide_sums",
    "probability.confidence_bounds",
    "probability.histogram_probability",
    "probability.match_thresholds",
    "probability.midpoint_bounds",
    "probability.satisfaction_probability",
    "sources.json_lines",
    "temporal_queries.sliding_join_kernels",
    "timing_join.best_match_kernel",
    "timing_join.first_partners",
    "timing_join.near_pairs",
    "timing_join.pair_decision",
    "timing_join.pair_fill",
    "timing_join.possible_fill",
    "timing_join.probed_rows",
    "timing_join.range_search",
    "timing_join.short_fill",
    "window_join.expansion_kernels",
    "window_join.forward_evaluation",
)
"""The modules of `whenabouts.core` with compiled code."""


def load_kernels(progress: Callable[[int], None] | None = None, modules: Sequence[str] = KERNELS) -> None:
    """Read all that Python calls, or compile it. A CPU-second if it is in the cache, else one or two minutes.

    `progress` is called after each module with the number of those that are loaded. Processes that load the `modules`
    in different orders at the same time share the compiling.
    """
    from whenabouts.core.arrays.kernel import Kernel  # imports numba

    for done, name in enumerate(modules, start=1):
        module = import_module(f"whenabouts.core.{name}")
        for kernel in vars(module).values():
            if isinstance(kernel, Kernel) and not kernel.is_inlined:
                kernel.make_ready()
        if progress is not None:
            progress(done)
