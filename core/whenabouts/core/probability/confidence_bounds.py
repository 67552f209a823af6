"""The tight bounds LH, LL, RL, RH on the axis of the targets' `t_max` (ITC section 4.1, Figure 1).

For a base row and a window `[lo, hi]` on `D = X_target - X_base` the axis of the target's `t_max`
splits into

    violation | left probe [LH, LL) | satisfaction [LL, RL] | right probe (RL, RH] | violation

Let `tail_lo = P(D >= lo)` and `tail_hi = P(D <= hi)`. For a fixed `t_max` a longer target has more mass
early, which lowers tail_lo and raises tail_hi. So with `rho`/`pi` the least/greatest target length, `c`
the confidence and `e` the kernel's guard band:

    LH = least x    with tail_lo(target = [x - rho, x]) >= c - e, and > 0
    LL = least x    with tail_lo(target = [x - pi,  x]) >= c + e, or = 1
    RL = greatest x with tail_hi(target = [x - rho, x]) >= c + e, or = 1
    RH = greatest x with tail_hi(target = [x - pi,  x]) >= c - e, and > 0

Where `hi - lo >= len(base) + pi`, at most one tail is below 1, so P equals that tail and `[LL, RL]` is sure. In a
narrower window each tail is only an upper bound of P: the sure range is empty and all of `[LH, RH]` is probed.

A tail depends only on the two lengths and on how far the window's end reaches into the support of D:
`tail_lo = F(x - min_base - lo)` and `tail_hi = F(hi - (x - len_target - max_base))`, where F is the distribution
function of the sum of two uniforms on `[0, l1]` and `[0, l2]`. So all four bounds come from one function,
`least_reach`: the least integer `y` at which F crosses a threshold. It starts at the closed form (one square root)
and corrects it with the kernel itself.
"""

from __future__ import annotations

import math

import numpy as np

from whenabouts.core.arrays.jit import BOOL, FLOAT64, INT64, READ_INT64, WRITE_INT64_2D, compiled
from whenabouts.core.arrays.typing import IntArray
from whenabouts.core.probability.satisfaction_probability import KERNEL_ERROR, pair_probability
from whenabouts.core.times.limits import ALWAYS_US, FARTHEST_US, NEVER_US, UNBOUNDED_US

SPAN_US = 2 * FARTHEST_US
"""The greatest distance of two times."""


@compiled(BOOL(INT64))
def opens_left(lo: int) -> bool:
    """Whether `lo` excludes no pair: the end is open, or farther away than two times can be apart."""
    return lo < -SPAN_US


@compiled(BOOL(INT64))
def opens_right(hi: int) -> bool:
    """Whether `hi` excludes no pair."""
    return hi > SPAN_US


@compiled(BOOL(INT64, INT64, INT64))
def is_wide(lo: int, hi: int, lengths: int) -> bool:
    """Whether at most one end of the window can cut into the support of D, given the sum of the two lengths.

    >>> is_wide(-5, 5, 10), is_wide(-5, 5, 11), is_wide(-(2**62), 5, 11)
    (True, False, True)
    """
    return opens_left(lo) or opens_right(hi) or hi - lo >= lengths


@compiled(FLOAT64(INT64, INT64, FLOAT64), inline=True)
def sum_quantile(length1: int, length2: int, p: float) -> float:
    """The p-quantile of the sum of uniforms on `[0, length1]` and `[0, length2]`, in closed form.

    The relative error is a few 2^-53.

    >>> sum_quantile(10, 10, 0.5), sum_quantile(10, 20, 0.25), sum_quantile(0, 8, 0.75)
    (10.0, 10.0, 6.0)
    """
    short = float(min(length1, length2))
    long = float(max(length1, length2))
    # The distribution is symmetric, so measure from the nearer end of the support. No branch depends on the data, so
    # that a loop over rows is vectorised.
    tail = min(max(min(p, 1.0 - p), 0.0), 0.5)
    ramp = 0.5 * short  # half the mass of a ramp, times `long`
    root = math.sqrt(2.0 * short * long * tail)
    reach = root if tail * long <= ramp else tail * long + ramp
    return reach if p <= 0.5 else (short + long) - reach


@compiled(BOOL(INT64, INT64, INT64, FLOAT64))
def _reaches(length1: int, length2: int, reach: int, threshold: float) -> bool:
    p = pair_probability(0, length1, 0, length2, -UNBOUNDED_US, reach - length1)
    return p == 1.0 or (p > 0.0 and p >= threshold)


@compiled(INT64(INT64, INT64, FLOAT64))
def least_reach(length1: int, length2: int, threshold: float) -> int:
    """The least integer y with `F(y) >= threshold` and > 0, or `F(y) = 1`, F as the canonical kernel computes it.

    A threshold above 1 asks for certainty. Usually two or three kernel calls. Near 1 the kernel's values are constant
    over thousands of microseconds; galloping and bisection limit that to about 2 log2(length1 + length2) calls.

    >>> least_reach(10, 10, 0.5), least_reach(10, 10, 1.1), least_reach(10, 10, -1.0), least_reach(0, 0, 0.5)
    (10, 20, 1, 0)
    """
    support = length1 + length2
    if support == 0 or threshold > 1.0:
        return support
    # Invariant: F(below) does not reach the threshold, F(at) does.
    below, at = 0, support
    guess = min(max(math.ceil(sum_quantile(length1, length2, threshold)), 1), support)
    step = 1
    if _reaches(length1, length2, guess, threshold):
        at = guess
        while at - step > below and _reaches(length1, length2, at - step, threshold):
            at -= step
            step *= 2
        below = max(below, at - step)
    else:
        below = guess
        while below + step < at and not _reaches(length1, length2, below + step, threshold):
            below += step
            step *= 2
        at = min(at, below + step)
    while at - below > 1:
        middle = below + (at - below) // 2
        if _reaches(length1, length2, middle, threshold):
            at = middle
        else:
            below = middle
    return at


@compiled((READ_INT64, READ_INT64, INT64, INT64, INT64, INT64, FLOAT64, WRITE_INT64_2D))
def fill_confidence_bounds(
    base_min: IntArray,
    base_max: IntArray,
    lo: int,
    hi: int,
    rho: int,
    pi: int,
    confidence: float,
    out: IntArray,
) -> None:
    """Kernel of `confidence_bounds`: writes LH, LL, RL, RH of each row into `out[n, 4]`."""
    pi = min(pi, SPAN_US)
    rho = min(rho, pi)
    left, right = max(min(lo, SPAN_US + 1), -SPAN_US - 1), max(min(hi, SPAN_US + 1), -SPAN_US - 1)
    maybe, sure = confidence - KERNEL_ERROR, confidence + KERNEL_ERROR
    known = -1
    maybe_rho = maybe_pi = sure_rho = sure_pi = 0
    for i in range(base_min.size):
        length = base_max[i] - base_min[i]
        if length != known:  # the reaches depend on the length only, which repeats where all rows have one precision
            known = length
            maybe_rho, maybe_pi = least_reach(length, rho, maybe), least_reach(length, pi, maybe)
            sure_rho, sure_pi = least_reach(length, rho, sure), least_reach(length, pi, sure)
        lh = ll = NEVER_US
        rl = rh = ALWAYS_US
        if not opens_left(lo):
            lh = base_min[i] + left + maybe_rho
            ll = base_min[i] + left + sure_pi
        if not opens_right(hi):
            rl = base_max[i] + right + rho - sure_rho
            rh = base_max[i] + right + pi - maybe_pi
        if not is_wide(lo, hi, length + pi):
            ll = max(lh, rh + 1)
            rl = ll - 1
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = lh, ll, rl, rh


def confidence_bounds(
    base_min: IntArray,
    base_max: IntArray,
    lo: int,
    hi: int,
    *,
    target_lengths: tuple[int, int],
    confidence: float,
) -> IntArray:
    """LH, LL, RL, RH of each base row against targets with lengths `(rho, pi)`, for lo <= X_target - X_base <= hi.

    Base times are int64 microseconds [n] with `|t| <= FARTHEST_US`; `0 < confidence <= 1`. Where the base is the
    right-hand side of the condition, the caller passes `-hi, -lo`. Returns int64[n, 4]: a target with t_max below LH
    or above RH cannot match, one in `[LL, RL]` matches (empty if `RL < LL`), others need the kernel. Open window ends
    give `NEVER_US` and `ALWAYS_US`. O(n), about 0.1 us a row. Raises ValueError unless `0 <= rho <= pi`.

    >>> confidence_bounds(np.array([100]), np.array([110]), -50, 50, target_lengths=(0, 20), confidence=1.0).tolist()
    [[60, 80, 150, 150]]
    """
    rho, pi = target_lengths
    if not 0 <= rho <= pi:
        raise ValueError(f"target_lengths must be (rho, pi) with 0 <= rho <= pi, got {target_lengths}")
    out = np.empty((len(base_min), 4), np.int64)
    fill_confidence_bounds(
        np.ascontiguousarray(base_min, np.int64),
        np.ascontiguousarray(base_max, np.int64),
        lo, hi, min(rho, SPAN_US), min(pi, SPAN_US), confidence, out,
    )  # fmt: skip
    return out
