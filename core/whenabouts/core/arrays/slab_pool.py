"""Regions of a pool of arrays, of `2**k` places: taken, given back, and taken again.

`space[top]`: how far the pool is in use; `space[free + k]`: the first region of that size that was given back, or -1;
its first place holds the next one.
"""

from __future__ import annotations

from typing import Any

from whenabouts.core.arrays.jit import INT64, WRITE_INT64, compiled
from whenabouts.core.arrays.typing import IntArray


@compiled(INT64(WRITE_INT64, WRITE_INT64, INT64, INT64, INT64), inline=True)
def take_region(space: IntArray, pool: IntArray, top: int, free: int, size: int) -> Any:
    """A region of `2**size` places: one that was given back, or a new one."""
    found = space[free + size]
    if found >= 0:
        space[free + size] = pool[found]
        return found
    found = space[top]
    space[top] += 1 << size
    return found


@compiled((WRITE_INT64, WRITE_INT64, INT64, INT64, INT64), inline=True)
def give_back(space: IntArray, pool: IntArray, free: int, size: int, region: int) -> None:
    """Have a region of `2**size` places taken again."""
    pool[region] = space[free + size]
    space[free + size] = region


@compiled(INT64(INT64), inline=True)
def log2(size: int) -> Any:
    """The k for which `2**k` is the least power of two that is not below `size`."""
    found = 0
    while (1 << found) < size:
        found += 1
    return found
