"""Integer powers by repeated squaring: the library's `pow` differs between machines."""

from __future__ import annotations

from whenabouts.core.arrays.jit import FLOAT64, INT64, compiled


@compiled(FLOAT64(FLOAT64, INT64), inline=True)
def power(base: float, exponent: int) -> float:
    """The base to the power of an exponent of 0 or more.

    >>> power(0.5, 3), power(0.0, 0)
    (0.125, 1.0)
    """
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
