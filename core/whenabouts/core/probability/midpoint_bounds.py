"""Sure and outer ranges on the axis of the targets' midpoints, as the strategy `auto` uses them.

Write a time as its midpoint plus a centred uniform. Then `D = (midpoint_target - midpoint_base) + Z`, where Z is a
symmetric trapezoid that depends on the two lengths only. With `Q` the quantile function of Z, c the confidence and a
wide window

    match  <=>  lo + Q(c)  <=  midpoint_target - midpoint_base  <=  hi - Q(c)

Midpoints are kept doubled (`t_min + t_max`), so that everything stays an integer; `q = 2 Q`.

For a base row, the targets' lengths vary between the least and the greatest length *present*. At a fixed probability,
q is monotone in the target's length: a longer uniform is less peaked, hence so is Z (Birnbaum 1948), so q grows where
the probability is above 1/2 and falls where it is below. The extremes are therefore at the two ends, and the min and
the max of both cover either case. The outer range uses `q(c - e)`, the sure range `q(c + e)` (e is the kernel's guard
band), each rounded outward by a margin that covers the error of the square root. So the exact probability of a pair in
the sure range is above c by more than the kernel's error, and that of a pair outside the outer range is as far below:
the kernel would decide the same. Where certainty is required (`c + e > 1`), the sure range is an exact integer.
"""

from __future__ import annotations

import math

import numpy as np

from whenabouts.core.arrays.jit import FLOAT64, INT64, READ_INT64, TWO_FLOAT64, WRITE_INT64_2D, compiled
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.confidence_bounds import SPAN_US, opens_left, opens_right
from whenabouts.core.probability.satisfaction_probability import KERNEL_ERROR
from whenabouts.core.times.limits import ALWAYS_US, NEVER_US

_ROUNDING = 2.0**-48
"""Of a support: more than the error of its quantiles, a few 2^-53."""


@compiled(FLOAT64(FLOAT64, FLOAT64, FLOAT64, FLOAT64), inline=True)
def _centred_quantile(short: float, long: float, root: float, p: float) -> float:
    """Twice the centred p-quantile of the sum of two uniforms: `confidence_bounds.sum_quantile` less half the support.

    `root` is the square root of `short * long`, which all p share.
    """
    tail = min(max(min(p, 1.0 - p), 0.0), 0.5)
    reach = math.sqrt(2.0 * tail) * root if 2.0 * tail * long <= short else tail * long + 0.5 * short
    centred = 2.0 * reach - (short + long)
    return centred if p <= 0.5 else -centred


@compiled(TWO_FLOAT64(FLOAT64, FLOAT64, FLOAT64), inline=True)
def _quantile_bracket(length1: float, length2: float, confidence: float) -> tuple[float, float]:
    """At most twice the centred quantile of `c - e`, and at least that of `c + e`."""
    short, long = min(length1, length2), max(length1, length2)
    root, margin = math.sqrt(short * long), 1.0 + _ROUNDING * (short + long)
    return (
        _centred_quantile(short, long, root, confidence - KERNEL_ERROR) - margin,
        _centred_quantile(short, long, root, confidence + KERNEL_ERROR) + margin,
    )


@compiled((READ_INT64, READ_INT64, INT64, INT64, INT64, INT64, FLOAT64, WRITE_INT64_2D))
def fill_anchored_ranges(
    base_min: IntArray,
    base_max: IntArray,
    lo: int,
    hi: int,
    shortest: int,
    longest: int,
    confidence: float,
    out: IntArray,
) -> None:
    """Kernel of `anchored_ranges`: writes the outer and sure ends of each row into `out[n, 4]`."""
    left, right = max(min(lo, SPAN_US + 1), -SPAN_US - 1), max(min(hi, SPAN_US + 1), -SPAN_US - 1)
    left_open, right_open = opens_left(lo), opens_right(hi)
    # In a window narrower than the supports both tails count: each alone still bounds P from above, and nothing is
    # sure.
    widest = ALWAYS_US if left_open or right_open else hi - lo - longest
    all_possible, certain = confidence <= KERNEL_ERROR, confidence + KERNEL_ERROR > 1.0
    least, greatest = float(shortest), float(longest)
    # No branch depends on the data, and indices are unsigned (no check for negative ones), so that LLVM vectorises the
    # loop: a third of the time. Few values become integers, since there is no vector instruction for that.
    flat = out.reshape(out.size)
    for i in range(base_min.size):
        length = base_max[i] - base_min[i]
        outer_1, sure_1 = _quantile_bracket(float(length), least, confidence)
        outer_2, sure_2 = _quantile_bracket(float(length), greatest, confidence)
        support = length + longest
        outer_q = -support if all_possible else max(math.floor(min(outer_1, outer_2)), -support)
        sure_q = support if certain else min(math.ceil(max(sure_1, sure_2)), support)
        anchor = base_min[i] + base_max[i]
        outer_lo = NEVER_US if left_open else anchor + 2 * left + outer_q
        sure_lo = NEVER_US if left_open else anchor + 2 * left + sure_q
        sure_hi = ALWAYS_US if right_open else anchor + 2 * right - sure_q
        outer_hi = ALWAYS_US if right_open else anchor + 2 * right - outer_q
        wide = length <= widest
        at = np.uint64(4) * np.uint64(i)
        flat[at] = outer_lo
        flat[at + np.uint64(1)] = sure_lo if wide else max(outer_lo, outer_hi + 1)
        flat[at + np.uint64(2)] = sure_hi if wide else max(outer_lo, outer_hi + 1) - 1
        flat[at + np.uint64(3)] = outer_hi


def anchored_ranges(
    base_min: IntArray,
    base_max: IntArray,
    lo: int,
    hi: int,
    *,
    target_lengths: tuple[int, int],
    confidence: float,
) -> IntArray:
    """Outer start, sure start, sure end, outer end of each base row on the axis `t_min + t_max` of the targets.

    Arguments as for `confidence_bounds.confidence_bounds`; `target_lengths` are the least and greatest length present.
    Returns int64[n, 4], ends inclusive: a target outside `[out[0], out[3]]` cannot match, one in `[out[1], out[2]]`
    matches (empty if `out[2] < out[1]`). O(n), about 0.05 us a row. Raises ValueError unless `0 <= least <= greatest`.

    >>> anchored_ranges(np.array([100]), np.array([110]), -50, 50, target_lengths=(0, 0), confidence=1.0).tolist()
    [[118, 120, 300, 302]]
    """
    shortest, longest = target_lengths
    if not 0 <= shortest <= longest:
        raise ValueError(f"target_lengths must be (least, greatest), both >= 0, got {target_lengths}")
    out = np.empty((len(base_min), 4), np.int64)
    fill_anchored_ranges(
        np.ascontiguousarray(base_min, np.int64),
        np.ascontiguousarray(base_max, np.int64),
        lo, hi, min(shortest, SPAN_US), min(longest, SPAN_US), confidence, out,
    )  # fmt: skip
    return out
