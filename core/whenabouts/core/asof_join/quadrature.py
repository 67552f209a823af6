"""How many nodes an integral over a piece needs.

On a piece every factor of the product is affine with values in [0, 1]. With h_k half the change of factor k, of
multiplicity u_k, and `S = sum u_k h_k`, the product is at most exp(S (r - 1)) on the Bernstein ellipse of radius rho,
`r = (rho + 1/rho) / 2`, and N Gauss-Legendre nodes err by at most
`(32/15) exp(S (r - 1)) rho^(-2N) / (1 - rho^-2)` of the piece's mass [Trefethen, Approximation Theory and Approximation
Practice, Theorem 19.3]. The table has the least N for 1e-14, over all rho. A polynomial of degree D needs no more than
`D // 2 + 1`.
"""

from __future__ import annotations

import numpy as np

from whenabouts.core.arrays.jit import FLOAT64, INT64, compiled

MOST_CHANGE = 24.0
"""The greatest S for which the table holds; pieces with a greater one are cut into equal parts."""

STOP_BELOW = 1e-18
"""An integral stops where all that is left contributes less than this."""

STOP_CHANGE = 41.5
"""A product of factors 1 - x_k with `sum x_k` of this or more is less than `STOP_BELOW`."""

# By S in steps of 1/8, rounded up, from 0 to 24: (N, how many steps in turn need N nodes).
_RUNS = (
    (5, 2),
    (6, 3),
    (7, 4),
    (8, 5),
    (9, 6),
    (10, 7),
    (11, 8),
    (12, 10),
    (13, 11),
    (14, 11),
    (15, 13),
    (16, 14),
    (17, 15),
    (18, 16),
    (19, 17),
    (20, 18),
    (21, 19),
    (22, 15),
)
_NODES = np.repeat(*np.array(_RUNS, np.int64).T)


@compiled(INT64(INT64, FLOAT64), inline=True)
def nodes_for(degree: int, change: float) -> int:
    """The nodes for a polynomial of this degree whose factors change by S = `change`, at most `MOST_CHANGE`."""
    return min(degree // 2 + 1, int(_NODES[int(change * 8.0) + 1]))


@compiled(INT64(FLOAT64), inline=True)
def parts_for(change: float) -> int:
    """The number of equal parts into which to cut a piece."""
    return int(change / MOST_CHANGE) + 1
